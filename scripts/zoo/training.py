"""The one training loop of the zoo; a `Setup` says in what a scenario differs from the baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from sklearn.datasets import load_digits
from torch import Tensor, nn

import orchestrator
from zoo import models
from zoo.models import CLASSES

DATA_SEED = 2026  # one split for all: what differs between seeds is the training
N_TRAIN, N_VAL = 1200, 500
PROBE = 500


@dataclass(frozen=True, slots=True)
class Data:
    """Images [n, 8, 8] and labels [n] of train and validation."""

    train: tuple[Tensor, Tensor]
    val: tuple[Tensor, Tensor]
    duplicates: float = 0.0  # share of validation that is in train


def _all(model: nn.Module) -> list[nn.Parameter]:
    return list(model.parameters())


_adam = partial(torch.optim.Adam, lr=1e-3)


def _plainly(loss: Tensor, _step: int) -> Tensor:
    return loss


@dataclass(frozen=True, slots=True)
class Setup:
    """How one training is done; the defaults are the healthy baseline.

    `schedule` is the factor on the learning rate at a share of the training. `prepare` changes the
    model before it is watched, `optimized` chooses what the optimizer gets, `objective` makes of
    the loss what is differentiated, `tamper` changes gradients before the step and says whether
    the step is taken, `unscale` divides them after clipping, `view` preprocesses validation images.
    """

    model: Callable[[], nn.Module] = models.perceptron
    optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer] = _adam
    data: Callable[[Data, np.random.Generator], Data] | None = None
    criterion: Callable[..., Tensor] = F.cross_entropy
    evaluated: Callable[..., Tensor] | None = None
    objective: Callable[[Tensor, int], Tensor] = _plainly
    schedule: Callable[[float], float] | None = None
    prepare: Callable[[nn.Module], None] | None = None
    optimized: Callable[[nn.Module], list[nn.Parameter]] = _all
    tamper: Callable[[nn.Module, int], bool] | None = None
    view: Callable[[Tensor], Tensor] | None = None
    epochs: int = 12
    batch: int = 32
    clip: float | None = None
    unscale: float = 1.0
    records_norm: bool = True
    accumulate: int = 1
    shuffles: bool = True
    zeroes_gradients: bool = True
    evaluates_in_eval_mode: bool = True
    loses_optimizer: bool = False


@cache
def digits() -> Data:
    """Standardised digits, split once."""
    pixels, digit = load_digits(return_X_y=True)
    images = torch.tensor((pixels - pixels.mean()) / pixels.std(), dtype=torch.float32)
    images, labels = images.view(-1, 8, 8), torch.tensor(digit)
    order = np.random.default_rng(DATA_SEED).permutation(len(labels))
    train, val = order[:N_TRAIN], order[N_TRAIN : N_TRAIN + N_VAL]
    return Data((images[train], labels[train]), (images[val], labels[val]))


def train(setup: Setup, seed: int, folder: Path) -> None:
    """Train once under a monitor that records into `folder`."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    data = setup.data(digits(), rng) if setup.data else digits()
    model = setup.model()
    if setup.prepare:
        setup.prepare(model)
    optimizer = setup.optimizer(setup.optimized(model))
    if setup.loses_optimizer:
        model = setup.model()
    total = setup.epochs * max(1, len(data.train[1]) // (setup.batch * setup.accumulate))
    schedule = setup.schedule or (lambda _: 1.0)
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
        group["lr"] *= schedule(0.0)
    monitor = orchestrator.watch(model, optimizer, folder=folder, level="full")
    if setup.evaluates_in_eval_mode:  # the initialisation shows
        monitor.probe(
            data.train[0][:PROBE], data.train[1][:PROBE], loss=setup.evaluated or setup.criterion
        )
    step = 0
    for _ in range(setup.epochs):
        for batches in _epoch(setup, data, rng):
            if setup.zeroes_gradients:
                optimizer.zero_grad()
            for batch in batches:
                images, labels = data.train[0][batch], data.train[1][batch]
                loss = setup.criterion(model(images), labels)
                (setup.objective(loss, step) / setup.accumulate).backward()
                monitor.batch(samples=len(labels))
                monitor.log(train_loss=loss)
            labels = data.train[1][np.concatenate(batches)]
            monitor.log(**{"train/label_entropy": _entropy(labels)})
            is_taken = setup.tamper(model, step) if setup.tamper else True
            if setup.records_norm:
                monitor.clip_grad_norm_(setup.clip)
            if is_taken:
                _take(setup, optimizer)
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * schedule((step + 1) / total)
            step += 1
        _evaluate(monitor, setup, model, data)
    monitor.close()


def _take(setup: Setup, optimizer: torch.optim.Optimizer) -> None:
    if setup.unscale != 1.0:
        for parameter in (p for group in optimizer.param_groups for p in group["params"]):
            parameter.grad.div_(setup.unscale)
    optimizer.step()


def _epoch(setup: Setup, data: Data, rng: np.random.Generator) -> Iterator[list[np.ndarray]]:
    """The micro-batches of each step."""
    n = len(data.train[1])
    order = rng.permutation(n) if setup.shuffles else np.arange(n)
    rows = setup.batch * setup.accumulate
    for chosen in np.array_split(order, max(1, n // rows)):
        yield np.array_split(chosen, setup.accumulate)


def _entropy(labels: Tensor) -> float:
    """Entropy of a step's labels over that of equally frequent classes."""
    shares = _counts(labels) / labels.numel()
    return float(torch.special.entr(shares).sum()) / float(np.log(CLASSES))


def _counts(labels: Tensor) -> Tensor:
    """How often each class occurs; -100 is none."""
    return torch.bincount(labels[labels >= 0], minlength=CLASSES)


def _evaluate(monitor: orchestrator.Monitor, setup: Setup, model: nn.Module, data: Data) -> None:
    """What a user would log: losses and accuracies on a train probe and on validation."""
    criterion = setup.evaluated or setup.criterion
    every = 1 if setup.shuffles else 3  # the beginning of a sorted train set has few classes
    images, labels = data.train[0][::every][:PROBE], data.train[1][::every][:PROBE]
    if setup.evaluates_in_eval_mode:
        monitor.probe(images, labels, loss=criterion)
        model.eval()
    else:
        _score(monitor, "probe", model, criterion, images, labels)
    images, labels = setup.view(data.val[0]) if setup.view else data.val[0], data.val[1]
    right = _score(monitor, "val", model, criterion, images, labels)
    model.train()
    monitor.log(**{"val/duplicates": data.duplicates})
    counts, known = _counts(data.train[1]), labels[labels >= 0].unique().tolist()
    rare = [k for k in known if 10 * counts[k] < counts.max()]
    if rare:
        recalls = torch.stack([right[labels == k].mean() for k in rare])
        monitor.log(**{"val/recall_rare": recalls.mean()})
    for layer in models.attention_of(model):
        monitor.log(**{"probe/attention_entropy": layer.entropy})


@torch.no_grad()
def _score(
    monitor: orchestrator.Monitor,
    split: str,
    model: nn.Module,
    criterion: Callable[..., Tensor],
    images: Tensor,
    labels: Tensor,
) -> Tensor:
    """Log loss and accuracy of a split; which answers are right [n]."""
    outputs = model(images)
    right = (outputs.argmax(1) == labels).float()
    scores = {"loss": criterion(outputs, labels), "accuracy": right.mean()}
    monitor.log(**{f"{split}/{name}": value for name, value in scores.items()})
    return right
