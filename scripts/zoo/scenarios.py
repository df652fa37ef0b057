"""The table: each scenario with its family, what must be told first, and how it differs.

Faults and look-alikes are those of the published sets and of bug reports, rebuilt on the digits.
Whole families are held out: thresholds were set on `TUNED` ones alone. The split was fixed by name
before any result was looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from zoo import models
from zoo.models import attention_of, linears
from zoo.training import Data, Setup

TUNED = frozenset(
    {
        "learning rate",
        "loop",
        "structure",
        "initialisation",
        "overfitting",
        "evaluation",
        "clipping",
        "non-finite",
        "optimizers",
        "schedules",
        "small sets",
        "regularised",
    }
)
"""Families in which thresholds were tuned; all others are held out."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """One way of training; `expected` are the rules of which one must be told first.

    Nothing may be told where `expected` is empty. `WATCH` stands for a mistake that
    `orchestrator.watch` refuses before the first step.
    """

    name: str
    family: str
    expected: tuple[str, ...]
    setup: Setup

    @property
    def is_healthy(self) -> bool:
        return not self.expected

    @property
    def is_tuned(self) -> bool:
        return self.family in TUNED


WATCH = "refused_by_watch"

# --- what may differ ------------------------------------------------------------------------------

Make = Callable[[Iterable[nn.Parameter]], Optimizer]


def adam(lr: float = 1e-3, **options: float) -> Make:
    return partial(Adam, lr=lr, **options)


def sgd(lr: float = 0.1, **options: float) -> Make:
    return partial(SGD, lr=lr, **options)


def few(count: int) -> Callable[[Data, np.random.Generator], Data]:
    """A train set of `count` images, others with each seed."""

    def chosen(data: Data, rng: np.random.Generator) -> Data:
        rows = rng.permutation(len(data.train[1]))[:count]
        return replace(data, train=(data.train[0][rows], data.train[1][rows]))

    return chosen


def few_val(data: Data, rng: np.random.Generator) -> Data:
    rows = rng.permutation(len(data.val[1]))[:32]
    return replace(data, val=(data.val[0][rows], data.val[1][rows]))


def pixels(largest: float) -> Callable[[Data, np.random.Generator], Data]:
    """Intensities from 0 to `largest`, as they come from a file."""

    def scaled(data: Data, _: np.random.Generator) -> Data:
        low, high = data.train[0].min(), data.train[0].max()
        sets = [((x - low) / (high - low) * largest, y) for x, y in (data.train, data.val)]
        return replace(data, train=sets[0], val=sets[1])

    return scaled


def random_labels(data: Data, rng: np.random.Generator) -> Data:
    labels = torch.tensor(rng.integers(0, 10, len(data.train[1])))
    return replace(data, train=(data.train[0], labels))


def in_order(data: Data, _: np.random.Generator) -> Data:
    order = torch.argsort(data.train[1], stable=True)
    return replace(data, train=(data.train[0][order], data.train[1][order]))


def rare(ratio: float, classes: Iterable[int]) -> Callable[[Data, np.random.Generator], Data]:
    """Train and validation sets in which these classes are `ratio` times as rare."""

    def thinned(data: Data, rng: np.random.Generator) -> Data:
        sets = []
        for images, labels in (data.train, data.val):
            is_rare = np.isin(labels.numpy(), list(classes))
            kept = torch.tensor(~is_rare | (rng.random(len(labels)) < 1 / ratio))
            sets.append((images[kept], labels[kept]))
        return replace(data, train=sets[0], val=sets[1])

    return thinned


def leaked(data: Data, _: np.random.Generator) -> Data:
    """A fifth of validation was copied into the train set."""
    images, labels = data.val[0][:100], data.val[1][:100]
    train = torch.cat([data.train[0], images]), torch.cat([data.train[1], labels])
    return replace(data, train=train, duplicates=0.2)


def mirrored(images: Tensor) -> Tensor:
    return images.flip(-1)


def redrawn(std: float) -> Callable[[nn.Module], None]:
    """All weight matrices drawn anew, from N(0, std)."""

    def prepare(model: nn.Module) -> None:
        for layer in linears(model):
            nn.init.normal_(layer.weight, std=std)

    return prepare


def gained(gain: float) -> Callable[[nn.Module], None]:
    """All weight matrices drawn anew, from N(0, gain² / inputs)."""

    def prepare(model: nn.Module) -> None:
        for layer in linears(model):
            nn.init.normal_(layer.weight, std=gain * layer.weight[0].numel() ** -0.5)

    return prepare


def zeroed(model: nn.Module) -> None:
    for parameter in model.parameters():
        nn.init.zeros_(parameter)


def dead(layer: int) -> Callable[[nn.Module], None]:
    def prepare(model: nn.Module) -> None:
        nn.init.constant_(linears(model)[layer].bias, -20.0)

    return prepare


def sharpened(factor: float) -> Callable[[nn.Module], None]:
    def prepare(model: nn.Module) -> None:
        for layer in attention_of(model):
            with torch.no_grad():
                layer.query.weight.mul_(factor)
                layer.key.weight.mul_(factor)

    return prepare


def frozen_but(*kept: type[nn.Module]) -> Callable[[nn.Module], None]:
    """Everything frozen but modules of these types."""

    def prepare(model: nn.Module) -> None:
        model.requires_grad_(False)
        for module in model.modules():
            if isinstance(module, kept):
                module.requires_grad_(True)

    return prepare


def frozen_trunk(model: nn.Module) -> None:
    model.requires_grad_(False)
    linears(model)[-1].requires_grad_(True)


def without_head(model: nn.Module) -> list[nn.Parameter]:
    """All parameters but those of the last layer."""
    left_out = set(linears(model)[-1].parameters())
    return [p for p in model.parameters() if p not in left_out]


def without_first(model: nn.Module) -> list[nn.Parameter]:
    left_out = set(linears(model)[0].parameters())
    return [p for p in model.parameters() if p not in left_out]


def flipped(loss: Tensor, _: int) -> Tensor:
    return -loss


def nan_at(when: int) -> Callable[[Tensor, int], Tensor]:
    return lambda loss, step: loss * float("nan") if step == when else loss


def through_half(scale: float) -> Callable[[nn.Module, int], bool]:
    """Gradients that went through half precision at this loss scale."""

    def tamper(model: nn.Module, _: int) -> bool:
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.grad.copy_((parameter.grad * scale).half().float() / scale)
        return True

    return tamper


def overflowing(steps: int) -> Callable[[nn.Module, int], bool]:
    """What a loss scale does that starts too high: infinite gradients, and no step."""

    def tamper(model: nn.Module, step: int) -> bool:
        if step < steps:
            for parameter in model.parameters():
                parameter.grad.mul_(float("inf"))
        return step >= steps

    return tamper


def times(scale: float) -> Callable[[nn.Module, int], bool]:
    """Gradients of a loss that was multiplied."""

    def tamper(model: nn.Module, _: int) -> bool:
        for parameter in model.parameters():
            parameter.grad.mul_(scale)
        return True

    return tamper


def with_softmax(model: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(model(), nn.Softmax(1))


def on_numbers(outputs: Tensor, labels: Tensor) -> Tensor:
    """Squared distance of every output to the number of the class."""
    return F.mse_loss(outputs, labels.float()[:, None].expand_as(outputs))


def warmup(share: float) -> Callable[[float], float]:
    return lambda time: min(1.0, (time + 1e-3) / share)


def cosine(time: float) -> float:
    return 0.5 * (1 + float(np.cos(np.pi * time)))


def collapse(time: float) -> float:
    return 1.0 if time < 10 / 444 else 1e-8


def linear_decay(time: float) -> float:
    return min(time / 0.1 + 0.01, (1.001 - time) / 0.9, 1.0)


def step_decay(time: float) -> float:
    return 0.1 ** int(3 * time)


PERCEPTRON, CONVOLUTION = models.perceptron, models.convolution
RESIDUAL, ATTENTION = models.Residual, models.Attention

# --- the tables -----------------------------------------------------------------------------------


def _row(name: str, family: str, expected: str, **changes: object) -> Scenario:
    setup = replace(Setup(), **changes)  # type: ignore[arg-type]
    return Scenario(name, family, tuple(expected.split()), setup)


FAULTS = (
    _row("Adam, lr 0.3", "learning rate", "instability", optimizer=adam(0.3)),
    _row("SGD, lr 8", "learning rate", "instability", optimizer=sgd(8.0)),
    _row(
        "momentum 0.98 at lr 0.6", "learning rate", "instability", optimizer=sgd(0.6, momentum=0.98)
    ),
    _row("SGD, lr 1e-5", "learning rate", "learning_rate_too_low", optimizer=sgd(1e-5)),
    _row("missing zero_grad", "loop", "stale_gradients", zeroes_gradients=False),
    _row("loss with the wrong sign", "loop", "wrong_sign", objective=flipped),
    _row(
        "softmax before cross-entropy", "loss", "loss_head_mismatch", model=with_softmax(PERCEPTRON)
    ),
    _row("squared error on class numbers", "loss", "loss_head_mismatch", criterion=on_numbers),
    _row("all weights zero", "initialisation", "bad_initialisation", prepare=zeroed),
    _row("weights from N(0, 3)", "initialisation", "bad_initialisation", prepare=redrawn(3.0)),
    _row(
        "weights from N(0, 1e-3), 6 layers",
        "initialisation",
        "bad_initialisation",
        model=partial(PERCEPTRON, depth=6),
        prepare=redrawn(1e-3),
    ),
    _row(
        "8 sigmoid layers",
        "depth",
        "vanishing_gradients",
        model=partial(PERCEPTRON, depth=8, activation=nn.Sigmoid),
    ),
    _row(
        "10 layers of gain 6",
        "depth",
        "exploding_gradients bad_initialisation",
        model=partial(PERCEPTRON, depth=10),
        prepare=gained(6.0),
    ),
    _row("bias -20 before a ReLU", "dead units", "dead_units", prepare=dead(1)),
    _row("trunk detached", "structure", "detached", model=lambda: models.Cut(PERCEPTRON())),
    _row("head not in the optimizer", "structure", "not_optimized", optimized=without_head),
    _row(
        "all frozen but batch norm",
        "structure",
        "frozen",
        model=models.normalised,
        prepare=frozen_but(nn.BatchNorm1d),
    ),
    _row("inputs up to 4080", "inputs", "input_scale", data=pixels(4080.0)),
    _row("random labels", "labels", "label_noise", data=random_labels, epochs=30),
    _row(
        "60 images, width 512",
        "overfitting",
        "overfitting",
        model=partial(PERCEPTRON, 512),
        data=few(60),
        epochs=150,
    ),
    _row(
        "AdamW, weight decay 200",
        "regularisation",
        "over_regularised",
        optimizer=partial(AdamW, lr=1e-3, weight_decay=200.0),
    ),
    _row(
        "dropout 0.95",
        "regularisation",
        "over_regularised",
        model=partial(PERCEPTRON, dropout=0.95),
    ),
    _row("SGD clipped at 1e-3", "clipping", "high_clip_ratio", optimizer=sgd(), clip=1e-3),
    _row("Adam, eps 10", "epsilon", "epsilon_too_large", optimizer=adam(eps=10.0)),
    _row("NaN at step 150", "non-finite", "non_finite", objective=nan_at(150)),
    _row("validation mirrored", "evaluation", "validation_shift", view=mirrored),
    _row(
        "no eval mode",
        "evaluation",
        "evaluation_in_training_mode",
        model=partial(PERCEPTRON, dropout=0.5),
        evaluates_in_eval_mode=False,
    ),
    _row("rare classes, 40:1", "imbalance", "class_imbalance", data=rare(40, range(4, 10))),
    _row("sorted, not shuffled", "order", "data_order", data=in_order, shuffles=False),
    _row("lr to zero after 10 steps", "schedules", "schedule_collapse", schedule=collapse),
    _row(
        "queries and keys x40",
        "attention",
        "attention_saturation",
        model=ATTENTION,
        prepare=sharpened(40.0),
    ),
    _row("logits x200", "logits", "logit_scale", model=lambda: models.Scaled(PERCEPTRON(), 200.0)),
    _row("half precision at scale 1e-6", "half precision", "underflow", tamper=through_half(1e-6)),
)
"""The 33 of the published sets."""

MORE_FAULTS = (
    _row("optimizer of another model", "handling", WATCH, loses_optimizer=True),
    _row("first layer not in the optimizer", "handling", "not_optimized", optimized=without_first),
    _row(
        "dropout that ignores eval mode",
        "handling",
        "evaluation_inconsistent",
        model=models.Careless,
    ),
    _row(
        "clipped before unscaling",
        "handling",
        "high_clip_ratio",
        optimizer=sgd(),
        clip=1.0,
        tamper=times(65536.0),
        unscale=65536.0,
    ),
    _row("a fifth of validation in train", "handling", "leakage", data=leaked),
    _row(
        "convolution: Adam, lr 0.3",
        "convolution",
        "instability",
        model=CONVOLUTION,
        optimizer=adam(0.3),
    ),
    _row(
        "convolution: SGD, lr 8",
        "convolution",
        "instability",
        model=CONVOLUTION,
        optimizer=sgd(8.0),
    ),
    _row(
        "convolution: SGD, lr 1e-5",
        "convolution",
        "learning_rate_too_low",
        model=CONVOLUTION,
        optimizer=sgd(1e-5),
    ),
    _row(
        "convolution: softmax before cross-entropy",
        "convolution",
        "loss_head_mismatch",
        model=with_softmax(CONVOLUTION),
    ),
    _row(
        "convolution: weights from N(0, 3)",
        "convolution",
        "bad_initialisation",
        model=CONVOLUTION,
        prepare=redrawn(3.0),
    ),
    _row(
        "convolution: validation mirrored",
        "convolution",
        "validation_shift",
        model=CONVOLUTION,
        view=mirrored,
    ),
    _row(
        "convolution: random labels",
        "convolution",
        "label_noise",
        model=partial(CONVOLUTION, 24),
        data=random_labels,
        epochs=30,
    ),
    _row(
        "convolution: inputs up to 4080",
        "convolution",
        "input_scale",
        model=CONVOLUTION,
        data=pixels(4080.0),
    ),
    _row(
        "convolution: SGD clipped at 1e-3",
        "convolution",
        "high_clip_ratio",
        model=CONVOLUTION,
        optimizer=sgd(),
        clip=1e-3,
    ),
    _row(
        "residual: missing zero_grad",
        "residual",
        "stale_gradients",
        model=RESIDUAL,
        zeroes_gradients=False,
    ),
    _row(
        "residual: loss with the wrong sign",
        "residual",
        "wrong_sign",
        model=RESIDUAL,
        objective=flipped,
    ),
    _row(
        "residual: all weights zero",
        "residual",
        "bad_initialisation",
        model=RESIDUAL,
        prepare=zeroed,
    ),
    _row(
        "residual: 80 images",
        "residual",
        "overfitting",
        model=partial(RESIDUAL, 128),
        data=few(80),
        epochs=120,
    ),
    _row(
        "residual: weight decay 200",
        "residual",
        "over_regularised",
        model=RESIDUAL,
        optimizer=partial(AdamW, lr=1e-3, weight_decay=200.0),
    ),
    _row(
        "residual: NaN at step 90", "residual", "non_finite", model=RESIDUAL, objective=nan_at(90)
    ),
    _row(
        "residual: Adam, eps 10",
        "residual",
        "epsilon_too_large",
        model=RESIDUAL,
        optimizer=adam(eps=10.0),
    ),
    _row(
        "residual: lr to zero after 10 steps",
        "residual",
        "schedule_collapse",
        model=RESIDUAL,
        schedule=collapse,
    ),
    _row(
        "attention: all but norms frozen",
        "attention",
        "frozen",
        model=ATTENTION,
        prepare=frozen_but(nn.LayerNorm),
    ),
    _row(
        "attention: Adam, lr 0.3", "attention", "instability", model=ATTENTION, optimizer=adam(0.3)
    ),
    _row(
        "attention: sorted, not shuffled",
        "attention",
        "data_order",
        model=ATTENTION,
        data=in_order,
        shuffles=False,
    ),
)
"""Further ones: other models, and other ways to make the same mistakes."""

HEALTHY = (
    _row("Adam", "optimizers", ""),
    _row("SGD", "optimizers", "", optimizer=sgd()),
    _row(
        "embedding of 20,000 rows",
        "embeddings",
        "",
        model=models.Pixels,
        optimizer=adam(3e-3),
        epochs=8,
    ),
    _row(
        "frozen backbone and a fresh head",
        "backbones",
        "",
        model=partial(PERCEPTRON, 256),
        optimizer=adam(3e-3),
        prepare=frozen_trunk,
    ),
    _row("warm-up", "schedules", "", schedule=warmup(0.3)),
    _row("validation of 32", "small sets", "", data=few_val),
    _row(
        "label smoothing 0.2",
        "regularised",
        "",
        criterion=partial(F.cross_entropy, label_smoothing=0.2),
        evaluated=F.cross_entropy,
    ),
    _row("dropout 0.5", "regularised", "", model=partial(PERCEPTRON, 128, dropout=0.5)),
    _row("cosine to zero", "schedules", "", schedule=cosine),
    _row("80 epochs", "small sets", "", epochs=80),
    _row("Adam clipped at 0.05", "clipping", "", clip=0.05),
    _row(
        "residual branches that start at zero",
        "initialisation",
        "",
        model=partial(RESIDUAL, zeroed=True),
    ),
    _row("accumulation of 4", "loop", "", accumulate=4, batch=8),
    _row("experts left out at random", "structure", "", model=models.Dropping),
    _row("overflow in the first 3 steps", "non-finite", "", tamper=overflowing(3)),
    _row("rare class, 12:1, learned", "imbalance", "", data=rare(12, (3,))),
    _row("attention", "attention", "", model=ATTENTION, optimizer=adam(3e-3)),
    _row("inputs up to 16", "inputs", "", data=pixels(16.0)),
    _row(
        "tanh, SGD, lr 0.05",
        "optimizers",
        "",
        model=partial(PERCEPTRON, activation=nn.Tanh),
        optimizer=sgd(0.05),
        epochs=20,
    ),
    _row("batch of 8", "optimizers", "", batch=8, epochs=6),
)
"""The 20 look-alikes of the published sets."""

MORE_HEALTHY = (
    _row("convolution", "convolution", "", model=CONVOLUTION, optimizer=adam(2e-3)),
    _row(
        "convolution: SGD, momentum",
        "convolution",
        "",
        model=CONVOLUTION,
        optimizer=sgd(0.03, momentum=0.9),
    ),
    _row(
        "convolution: dropout 0.3",
        "convolution",
        "",
        model=partial(CONVOLUTION, dropout=0.3),
        optimizer=adam(2e-3),
    ),
    _row("residual", "residual", "", model=RESIDUAL),
    _row(
        "residual: linear warm-up and decay", "residual", "", model=RESIDUAL, schedule=linear_decay
    ),
    _row(
        "residual: AdamW, weight decay 0.1",
        "residual",
        "",
        model=RESIDUAL,
        optimizer=partial(AdamW, lr=1e-3, weight_decay=0.1),
    ),
    _row("batch norm", "batch norm", "", model=models.normalised),
    _row(
        "batch norm, SGD, steps",
        "batch norm",
        "",
        model=models.normalised,
        optimizer=sgd(),
        schedule=step_decay,
    ),
    _row(
        "sparse embedding, SGD",
        "embeddings",
        "",
        model=partial(models.Pixels, sparse=True),
        optimizer=sgd(0.5),
        epochs=12,
        records_norm=False,
    ),
    _row(
        "attention: cosine, clipped at 1",
        "attention",
        "",
        model=ATTENTION,
        optimizer=adam(3e-3),
        schedule=cosine,
        clip=1.0,
    ),
)
"""Further ones: other models and schedules."""

SCENARIOS = (*FAULTS, *MORE_FAULTS, *HEALTHY, *MORE_HEALTHY)


def by_name(name: str) -> Scenario:
    """The scenario that is called so."""
    return next(scenario for scenario in SCENARIOS if scenario.name == name)
