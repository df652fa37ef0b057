"""What one training of the zoo may do otherwise than the baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from zoo.models import LEVELS, attention_of, linears
from zoo.training import Data

Make = Callable[[Iterable[nn.Parameter]], Optimizer]
DataChange = Callable[[Data, np.random.Generator], Data]


def adam(lr: float = 1e-3, **options: float) -> Make:
    return partial(Adam, lr=lr, **options)


def sgd(lr: float = 0.1, **options: float) -> Make:
    return partial(SGD, lr=lr, **options)


def few(count: int) -> DataChange:
    """A train set of `count` images, others with each seed."""

    def chosen(data: Data, rng: np.random.Generator) -> Data:
        rows = rng.permutation(len(data.train[1]))[:count]
        return replace(data, train=(data.train[0][rows], data.train[1][rows]))

    return chosen


def few_val(data: Data, rng: np.random.Generator) -> Data:
    rows = rng.permutation(len(data.val[1]))[:32]
    return replace(data, val=(data.val[0][rows], data.val[1][rows]))


def both(data: Data, change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Data:
    """Train and then validation changed alike, given images and labels."""
    return replace(data, train=change(*data.train), val=change(*data.val))


def pixels(largest: float) -> DataChange:
    """Intensities from 0 to `largest`, as they come from a file."""

    def scaled(data: Data, _: np.random.Generator) -> Data:
        low, high = data.train[0].min(), data.train[0].max()
        return both(data, lambda x, y: ((x - low) / (high - low) * largest, y))

    return scaled


def exposed(data: Data, rng: np.random.Generator) -> Data:
    """Every image in a light of its own: times up to 4 or down to a quarter."""

    def lit(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        light = torch.tensor(4.0 ** rng.uniform(-1, 1, (len(labels), 1, 1)), dtype=torch.float32)
        return images * light, labels

    return both(data, lit)


def random_labels(data: Data, rng: np.random.Generator) -> Data:
    labels = torch.tensor(rng.integers(0, 10, len(data.train[1])))
    return replace(data, train=(data.train[0], labels))


def in_order(data: Data, _: np.random.Generator) -> Data:
    order = torch.argsort(data.train[1], stable=True)
    return replace(data, train=(data.train[0][order], data.train[1][order]))


def rare(ratio: int, classes: Iterable[int], *, everywhere: bool = True) -> DataChange:
    """A train set, and unless `everywhere` is false a validation set, in which these are rare."""

    def kept(labels: Tensor) -> Tensor:
        rows = [(labels == k).nonzero()[:, 0] for k in classes]
        left_out = torch.cat([found[max(1, len(found) // ratio) :] for found in rows])
        chosen = torch.ones(len(labels), dtype=torch.bool)
        chosen[left_out] = False
        return chosen

    def thinned(data: Data, _: np.random.Generator) -> Data:
        sets = []
        for (images, labels), is_thinned in ((data.train, True), (data.val, everywhere)):
            chosen = kept(labels) if is_thinned else torch.ones(len(labels), dtype=torch.bool)
            sets.append((images[chosen], labels[chosen]))
        return replace(data, train=sets[0], val=sets[1])

    return thinned


def tokens(*, shifted: bool = True, padded: bool = False, ignored: bool = True) -> DataChange:
    """Pixels as tokens, and for each the next one (or itself) to predict.

    `padded`: sequences end early, at lengths of their own, and the token LEVELS follows, whose
    targets are `ignored` or count.
    """

    def made(data: Data, rng: np.random.Generator) -> Data:
        low, high = data.train[0].min(), data.train[0].max()

        def read(images: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
            levels = ((images.flatten(1) - low) / (high - low) * LEVELS).long()
            given = levels.clamp_max(LEVELS - 1)
            if padded:
                ends = torch.tensor(rng.integers(16, 64, len(given)))
                given = torch.where(torch.arange(64) < ends[:, None], given, LEVELS)
            inputs, targets = given[:, :-1], given[:, 1:] if shifted else given[:, :-1]
            return inputs, torch.where(targets == LEVELS, -100, targets) if ignored else targets

        return both(data, read)

    return made


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
