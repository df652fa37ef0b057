"""Look-alikes and faults, for calibrating rules: ours, and those of others.

`HEALTHY` must stay silent; `FAULTS` take a strength in (0, 1], of which 1 is plain to see. Both
return a Telemetry; all randomness comes from `rng`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from orchestrator.diagnose.synthetic import LAYERS, World, edited, scatter, simulate, without
from orchestrator.nouns import Floats, Ints, Series, Telemetry

Healthy = Callable[[np.random.Generator], Telemetry]


def _varied(**changes: object) -> Healthy:
    """A world with these changes, of a length, speed and noise that vary from draw to draw."""

    def draw(rng: np.random.Generator) -> Telemetry:
        varied = {
            "steps": int(rng.integers(300, 1500)),
            "speed": float(rng.uniform(8, 25)),
            "noise": float(rng.uniform(0.1, 0.4)),
            "gap": float(rng.uniform(0.03, 0.12)),
        }
        return simulate(replace(World(), **(varied | changes)), rng)  # type: ignore[arg-type]

    return draw


def _dropout(rng: np.random.Generator) -> Telemetry:
    def above(values: Floats) -> Floats:
        return values + float(rng.uniform(0.1, 0.4))

    return edited(_varied()(rng), "train/loss", above)


def _first_loss(rng: np.random.Generator) -> Telemetry:
    def high(values: Floats) -> Floats:
        values[0] *= rng.uniform(5, 20)
        return values

    return edited(_varied()(rng), "train/loss", high)


def _heavy_tails(rng: np.random.Generator) -> Telemetry:
    def tailed(values: Floats) -> Floats:
        return values * np.maximum(0.2, 1 + 0.2 * rng.standard_t(4, len(values)))

    return edited(_varied(noise=0.05)(rng), "train/loss", tailed)


def _bad_batches(rng: np.random.Generator) -> Telemetry:
    def outlying(values: Floats) -> Floats:
        values[rng.random(len(values)) < 0.01] *= 20
        return values

    return edited(_varied()(rng), "train/loss", outlying)


def _few_samples(rng: np.random.Generator) -> Telemetry:
    """Batches of one or two, for long: small losses and gradients, and now and then large ones.

    Untrained, a network is equally wrong about each sample; the tails come with what it learns.
    """
    spread = 1.2 * np.minimum(1.0, np.arange(10_000) / 300)
    scale = np.exp(rng.normal(-(spread**2) / 2, spread))  # of mean 1

    def tailed(values: Floats) -> Floats:
        return values * scale

    whole = _varied(steps=len(scale), noise=0.05)(rng)
    return edited(edited(whole, "train/loss", tailed), "grad_norm", tailed)


def _skipped(rng: np.random.Generator) -> Telemetry:
    def infinite(values: Floats) -> Floats:
        values[: rng.integers(1, 6)] = np.inf
        return values

    return edited(_varied()(rng), "grad_norm", infinite)


def _zero_start(rng: np.random.Generator) -> Telemetry:
    def ratios(values: Floats) -> Floats:
        values[:30] = 1 / np.arange(30).clip(1)
        values[0] = np.inf
        return values

    return edited(_varied()(rng), "update_ratio/head.weight", ratios)


def _changed_data(rng: np.random.Generator) -> Telemetry:
    def shifted(values: Floats) -> Floats:
        at = int(rng.integers(8, 18))
        values[at:] += rng.uniform(0.3, 1.0)
        return values

    return edited(without(_varied()(rng), "probe/accuracy", "val/accuracy"), "val/loss", shifted)


def _accumulated(rng: np.random.Generator) -> Telemetry:
    bare = without(_varied()(rng), "probe/", "val/accuracy")
    return edited(bare, "train/loss", lambda values: values / rng.choice([4, 8, 16]))


def _language_model(rng: np.random.Generator) -> Telemetry:
    """A power law without any accuracy, still falling slowly where it ends."""
    world = World(start=10.0, steps=int(rng.integers(600, 2000)), update=2e-3)
    bare = without(simulate(world, rng), "probe/", "val/", "train/loss")
    time = np.arange(world.steps)
    level = 2.0 + 8.0 * (1 + time / 5) ** -float(rng.uniform(0.25, 0.4))
    at = bare["lr"].steps[:: world.steps // 20]
    losses = {
        "train/loss": Series(time, level * scatter(rng, 0.03, len(time))),
        "val/loss": Series(at, (level[at] + 0.05) * scatter(rng, 0.004, len(at))),
    }
    return Telemetry({**bare.series, **losses}, bare.header)


HEALTHY: dict[str, Healthy] = {
    "plain": _varied(),
    "dropout: train loss above validation": _dropout,
    "calibration: loss up, accuracy up": _varied(
        gap=0.1, rise=0.3, accuracy_gap=0.05, late_accuracy=0.06
    ),
    "validation of 32 examples": _varied(examples=32, jitter=0.15),
    "validation harder from the start": _varied(gap=0.6, accuracy_gap=0.06, jitter=0.03),
    "validation set changed": _changed_data,
    "noisy evaluations": _varied(jitter=0.2),
    "cosine to zero": _varied(lr="cosine", speed=20.0),
    "warm-up over 30 %": _varied(lr="warmup"),
    "linear warm-up and decay": _varied(lr="linear", speed=20.0),
    "step decay": _varied(lr="steps", speed=40.0),
    "converged for long": _varied(speed=60.0, floor=1e-4),
    "budget of a few evaluations": _varied(evaluations=3, steps=120, speed=8.0),
    "label smoothing floor": _varied(floor=0.87, gap=0.03, accuracy_gap=0.01),
    "noisy labels": _varied(floor=0.5, error=0.08, accuracy_gap=-0.03, gap=-0.1),
    "first loss 5-20x the second": _first_loss,
    "loss noise with 4 degrees of freedom": _heavy_tails,
    "1 % outlying batches": _bad_batches,
    "losses of a few samples each": _few_samples,
    "fine-tuning with small steps": _varied(start=0.9, update=2e-4, floor=0.5, error=0.05),
    "Adam clipped at every step": _varied(max_norm=0.01),
    "SGD clipped at 9 of 10 steps": _varied(optimizer="SGD", norm=20.0, max_norm=6.0),
    "skipped steps of a loss scale": _skipped,
    "a matrix that starts at zero": _zero_start,
    "train loss a fixed share of validation": _accumulated,
    "language model, losses alone": _language_model,
}

# --- faults -------------------------------------------------------------------------------------

Fault = Callable[[np.random.Generator, float], Telemetry]


def _overfitting(rng: np.random.Generator, strength: float) -> Telemetry:
    gap = 0.03 + 0.2 * strength
    return _varied(
        gap=0.1 + strength, rise=0.6 * strength, accuracy_gap=gap, floor=1e-3, speed=30.0
    )(rng)


def _plateau(rng: np.random.Generator, strength: float) -> Telemetry:
    return _varied(floor=0.5 + 1.2 * strength, error=0.15 + 0.5 * strength, gap=0.02)(rng)


def _too_low(rng: np.random.Generator, strength: float) -> Telemetry:
    return _varied(speed=2 * (1 - strength) + 0.01, update=1e-3 * 10 ** (-3 * strength))(rng)


def _collapse(rng: np.random.Generator, strength: float) -> Telemetry:
    whole = _varied(steps=1000, speed=3.0)(rng)
    gone = int(600 - 590 * strength)

    def held(values: Floats, steps: Ints) -> Floats:
        late = steps >= gone
        frozen = values[~late][-1] if np.any(~late) else values[0]
        return np.where(late, frozen * scatter(rng, 0.03, len(values)), values)

    series = dict(whole.series)
    for name in ("train/loss", "probe/loss", "val/loss", "probe/accuracy", "val/accuracy"):
        series[name] = Series(series[name].steps, held(series[name].values, series[name].steps))
    for name in ("lr", *(n for n in series if n.startswith("update_ratio/"))):
        late = series[name].steps >= gone
        series[name] = Series(series[name].steps, series[name].values * np.where(late, 1e-4, 1.0))
    return Telemetry(series, whole.header)


def _unstable(rng: np.random.Generator, strength: float) -> Telemetry:
    """Early updates tear the weights apart; the network is dead from then on."""
    whole = _varied(floor=2.2, error=0.85, update=3e-3)(rng)
    peak = 0.5 + 20 * strength**2

    def torn(values: Floats) -> Floats:
        length = min(40, len(values) // 4)
        values[2:length] *= peak * np.exp(-np.arange(length - 2) / 8) + 1
        return values

    def large(values: Floats) -> Floats:
        values[:4] = (0.03 + 0.4 * strength**2) * scatter(rng, 0.3, 4)
        values[4:] *= 1e-3
        return values

    whole = edited(whole, "train/loss", torn)
    for name in LAYERS:
        whole = edited(whole, f"update_ratio/{name}", large)
    return whole


def _spikes(rng: np.random.Generator, strength: float) -> Telemetry:
    whole = _varied(steps=1000, speed=10.0)(rng)

    def jumping(values: Floats) -> Floats:
        for at in rng.choice(np.arange(200, 950, 75), 6, replace=False):
            values[at : at + 12] += (0.05 + 3 * strength**2) * np.exp(-np.arange(12) / 6)
        return values

    return edited(whole, "train/loss", jumping)


def _broken(rng: np.random.Generator, strength: float) -> Telemetry:
    def nan(values: Floats) -> Floats:
        values[int((1 - strength) * (len(values) - 1)) :] = np.nan
        return values

    return edited(edited(_varied()(rng), "train/loss", nan), "val/loss", nan)


def _tight(rng: np.random.Generator, strength: float) -> Telemetry:
    return _varied(
        optimizer="SGD",
        max_norm=0.5 * 10 ** (-3 * strength),
        update=1e-3 * 10 ** (-3 * strength),
        speed=2 * (1 - strength) + 0.01,
    )(rng)


FAULTS: dict[str, Fault] = {
    "overfitting": _overfitting,
    "plateau": _plateau,
    "learning_rate_too_low": _too_low,
    "schedule_collapse": _collapse,
    "instability": _unstable,
    "loss_spikes": _spikes,
    "non_finite": _broken,
    "high_clip_ratio": _tight,
}
"""By the name of the rule that must tell it first."""
