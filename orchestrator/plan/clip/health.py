"""Whether the pilot learned: a threshold taken from a dead network is quiet and wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np

from orchestrator.clip_nouns import Bools, Flag, NormSeries
from orchestrator.nouns import Floats
from orchestrator.plan.clip.robust import rolling_median
from orchestrator.telemetry.robust import NORMAL, robust_std

CHANCE = tuple(float(np.log(k)) for k in (*range(2, 21), 50, 100, 200, 1000))
"""Cross-entropy of a guess among k classes, nat."""

AT_CHANCE = (
    -0.004,
    0.012,
)  # nat around ln k; dead pilots of the recorded set end at +0.000..+0.006
LOST = 0.5  # share of what had been learned that is lost at the end
SIGNIFICANT = 3.0  # standard errors
SMALLEST_GAIN = 0.005  # of the loss at the start
SMALLEST_PART = 5  # steps whose median is a loss to judge by

AnyArray = TypeVar("AnyArray", Floats, Bools)


def unhealthy(loss: Floats | None, log_norms: Floats) -> Flag | None:
    """The loss is not better than at the start, was lost again, or stays at chance.

    `loss`, `log_norms` [n], aligned. None without a loss to judge by.
    """
    if loss is None:
        return None
    finite = np.isfinite(loss)
    if finite.sum() < 20:
        return None
    y = loss[finite]
    end_loss = y[-max(5, len(y) // 10) :]
    end = float(np.median(end_loss))
    noise = _noise(y)
    starts = [y[:k] for k in {5, min(50, len(y) // 5), len(y) // 10} if k >= 5]
    start = max(float(np.median(s)) for s in starts)
    has_gained = any(_gain(s, end, noise) for s in starts)
    if (~finite[-max(5, len(loss) // 10) :]).mean() > 0.5:
        return Flag("unhealthy", "The loss is not finite at the end of the pilot: it diverged.")
    if not has_gained:
        return _flag(
            f"the loss at the end ({end:.4g}) is not better than at the start ({start:.4g})"
        )
    best = float(np.min(_block_medians(y)))
    if end - best > LOST * (start - best) and end - best > SIGNIFICANT * noise:
        return _flag(
            f"the loss had fallen from {start:.4g} to {best:.4g} and is {end:.4g} at the end"
        )
    if _is_at_chance(y, end) and _is_quiet(log_norms[finite]):
        return _flag(f"the loss stays at {end:.4g}, which is chance, with quiet norms")
    return None


@np.errstate(invalid="ignore")
def until_it_broke(series: NormSeries) -> NormSeries:
    """A pilot up to the step from which its loss was lost for good; a sound one is left whole.

    Lost: not finite, or more than half of what had been learned until then is gone, in the median
    of 5 steps. What comes after belongs to another network than the one that is to be clipped.
    """
    if series.loss is None or len(series) < SMALLEST_PART:
        return series
    y = np.where(np.isfinite(series.loss), series.loss, np.inf)
    level = rolling_median(y, SMALLEST_PART)
    best = np.minimum.accumulate(level)
    gained = level[0] - best
    lost = ~np.isfinite(level) | ((gained > 0) & (level - best > LOST * gained))
    if not lost[-1]:
        return series
    sound = np.flatnonzero(~lost)
    end = max(0, int(sound[-1]) + 1 - SMALLEST_PART // 2) if len(sound) else 0

    def head(x: AnyArray | None) -> AnyArray | None:
        return None if x is None else x[:end]

    return replace(
        series, steps=series.steps[:end], norms=series.norms[:end], loss=head(series.loss),
        lr=head(series.lr), loss_scale=head(series.loss_scale), skipped=head(series.skipped),
    )  # fmt: skip


def _flag(what: str) -> Flag:
    return Flag(
        "unhealthy",
        f"The pilot is not healthy: {what}. A low, quiet norm is no sign of health, and a "
        f"threshold "
        "taken here would fit a network that does not learn. Look at LR, data and numerics first.",
    )


def _noise(y: Floats) -> float:
    """Standard deviation of one step's loss around its slow course, from successive differences."""
    return float(NORMAL * np.median(np.abs(np.diff(y))) / np.sqrt(2))


def _gain(first: Floats, end: float, noise: float) -> bool:
    start = float(np.median(first))
    error = 1.25 * noise / np.sqrt(len(first))  # of a median
    return bool(start - end > max(SIGNIFICANT * error, SMALLEST_GAIN * abs(start)))


def _block_medians(y: Floats) -> Floats:
    return np.array(
        [np.median(block) for block in np.array_split(y, max(1, min(40, len(y) // 10)))]
    )


def _is_at_chance(y: Floats, end: float) -> bool:
    """Within a hair of ln k and without any noise of a model that decides: sd below 1.5 %."""
    tail = y[-max(20, len(y) // 4) :]
    spread = robust_std(tail)
    near = any(AT_CHANCE[0] < end - chance < AT_CHANCE[1] for chance in CHANCE)
    return near and spread < 0.015 * abs(end)


def _is_quiet(log_norms: Floats) -> bool:
    """The level of the last quarter is below half of the level before."""
    cut = 3 * len(log_norms) // 4
    return bool(np.median(log_norms[cut:]) < np.median(log_norms[:cut]) - np.log(2))
