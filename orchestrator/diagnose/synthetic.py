"""Trainings drawn from a law instead of a network, so that it is known what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from orchestrator.nouns import Floats, Ints, Scalar, Series, Telemetry

LAYERS = ("first.weight", "second.weight", "head.weight")
WIDTH = 128


@dataclass(frozen=True, slots=True)
class World:
    """The law one training follows; the defaults are a healthy classifier of 10 classes.

    Losses fall from `start` to `floor` in `speed` e-folds; `gap` and `accuracy_gap` are how far
    validation lags behind in the end, `rise` what its loss adds after a third of the training.
    `update` is the ratio at the start, `jitter` and `noise` are log standard deviations of
    evaluations and batches, `examples` the size of the validation set.
    """

    steps: int = 1000
    evaluations: int = 25
    start: float = 2.3
    floor: float = 0.02
    speed: float = 12.0
    noise: float = 0.2
    jitter: float = 0.02
    gap: float = 0.07
    rise: float = 0.0
    accuracy_gap: float = 0.025
    late_accuracy: float = 0.0
    error: float = 0.0
    examples: int = 500
    update: float = 4e-3
    lr: str = "constant"
    optimizer: str = "Adam"
    norm: float = 1.0
    max_norm: float | None = None


def simulate(world: World, rng: np.random.Generator) -> Telemetry:
    """One training under `world`."""
    n = world.steps
    steps = np.arange(n)
    time = steps / n
    lr = schedule(world.lr, time)
    progress = np.cumsum(lr) / n
    level = world.floor + (world.start - world.floor) * _decay(world.speed * progress)
    at = np.unique(np.linspace(n / world.evaluations, n, world.evaluations).astype(np.int64)) - 1
    probe = level[at] * scatter(rng, world.jitter, len(at))
    norm = world.norm * (0.3 + 0.7 * level / world.start) * scatter(rng, 0.3, n)
    series: dict[str, tuple[Ints, Floats]] = {
        "train/loss": (steps, level * scatter(rng, world.noise, n)),
        "lr": (steps, 1e-3 * lr),
        "grad_norm": (steps, norm),
        "probe/loss": (at, probe),
        "val/loss": (
            at,
            probe + _val_excess(world, time[at]) * scatter(rng, world.jitter, len(at)),
        ),
        **_accuracies(world, level, at, rng),
        **_updates(world, lr, progress, rng),
        **_layers(world, norm),
    }
    if world.max_norm is not None:
        series["clip_coefficient"] = (steps, np.minimum(1.0, world.max_norm / norm))
        series["max_norm"] = (steps, np.full(n, world.max_norm))
    header: dict[str, Scalar] = {
        "optimizer": world.optimizer,
        "steps": n,
        "weight_layers": ",".join(LAYERS),
        "weight_shapes": f"{WIDTH}x64,{WIDTH}x{WIDTH},10x{WIDTH}",
        "head": LAYERS[-1],
        "outputs": 10,
    }
    return Telemetry({name: Series(s, v) for name, (s, v) in series.items()}, header)


def schedule(name: str, time: Floats) -> Floats:
    """Learning rate over its peak, at times [n] in [0, 1)."""
    shapes = {
        "constant": np.ones_like(time),
        "cosine": 0.5 * (1 + np.cos(np.pi * time)),
        "warmup": np.minimum(1.0, time / 0.3),
        "linear": np.minimum(time / 0.1, (1 - time) / 0.9),
        "steps": 0.1 ** np.floor(3 * time),
    }
    return shapes[name]


def _layers(world: World, norm: Floats) -> dict[str, tuple[Ints, Floats]]:
    """Norms of weights that stay as torch draws them, of their gradients, and what they put out."""
    sampled = np.arange(0, world.steps, 10)
    rare = np.arange(0, world.steps, 100)
    found = {}
    for name, rows, part in zip(LAYERS, (WIDTH, WIDTH, 10), (0.5, 0.6, 0.6), strict=True):
        module = name.removesuffix(".weight")
        found[f"param_norm/{name}"] = sampled, np.full(len(sampled), np.sqrt(rows / 3))
        found[f"grad_norm/{name}"] = sampled, part * norm[sampled]
        found[f"activation_mean/{module}"] = rare, np.full(len(rare), 0.01)
        found[f"activation_std/{module}"] = rare, np.full(len(rare), 0.6)
        found[f"activation_zeros/{module}"] = rare, np.zeros(len(rare))
    return found


def without(telemetry: Telemetry, *prefixes: str) -> Telemetry:
    """The same training, recorded without the series whose name begins so."""
    kept = {n: s for n, s in telemetry.series.items() if not n.startswith(prefixes)}
    return Telemetry(kept, telemetry.header)


def edited(telemetry: Telemetry, name: str, change: Callable[[Floats], Floats]) -> Telemetry:
    """The same training with the values of one series changed."""
    old = telemetry[name]
    new = Series(old.steps, change(old.values.copy()), old.unit)
    return Telemetry({**telemetry.series, name: new}, telemetry.header)


def _decay(time: Floats) -> Floats:
    """A fast and a slow part, as losses fall; 1 at time 0."""
    return 0.8 * np.exp(-time) + 0.2 * np.exp(-time / 4)


def scatter(rng: np.random.Generator, spread: float, n: int) -> Floats:
    """Log-normal factors [n] with mean 1 and this standard deviation of the logarithm."""
    return np.exp(rng.normal(0.0, spread, n) - spread**2 / 2)


def _val_excess(world: World, time: Floats) -> Floats:
    """What validation lags behind: it opens early, and a rise goes on after a third of the time."""
    late = np.clip((time - 1 / 3) / (2 / 3), 0.0, 1.0)
    return world.gap * (1 - np.exp(-6 * time)) + world.rise * late


def _accuracies(
    world: World, level: Floats, at: Ints, rng: np.random.Generator
) -> dict[str, tuple[Ints, Floats]]:
    time = at / world.steps
    wrong = (level[at] - world.floor) / (world.start - world.floor)
    train = 1 - 0.9 * wrong - world.error
    lag = world.accuracy_gap * (1 - np.exp(-6 * time)) - world.late_accuracy * (time - 1)
    bias = rng.normal(0.0, np.sqrt(0.03 / world.examples))  # the sample is the same every time
    val = np.clip(train - lag + bias + rng.normal(0.0, 0.3 * np.sqrt(0.03 / world.examples)), 0, 1)
    return {
        "probe/accuracy": (at, np.clip(np.round(500 * train) / 500, 0, 1)),
        "val/accuracy": (at, np.round(world.examples * val) / world.examples),
    }


def _updates(
    world: World, lr: Floats, progress: Floats, rng: np.random.Generator
) -> dict[str, tuple[Ints, Floats]]:
    sampled = np.arange(0, world.steps, 10)
    shape = world.update * lr[sampled] * (0.15 + 0.85 * np.exp(-3 * progress[sampled]))
    return {
        f"update_ratio/{name}": (sampled, shape * scale * scatter(rng, 0.2, len(sampled)))
        for name, scale in zip(LAYERS, (0.6, 1.0, 1.5), strict=True)
    }
