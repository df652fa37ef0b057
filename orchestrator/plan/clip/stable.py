"""Where the norm is stable: after the ramp, after the last LR jump, and how its level moves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.clip_nouns import Flag
from orchestrator.nouns import Floats, Ints
from orchestrator.plan.clip.robust import (
    block_edges,
    block_levels,
    lag_one,
    mean_inflation,
    variance_inflation,
)
from orchestrator.telemetry.robust import theil_sen

TOLERANCE = float(np.log(1.25))
"""A level within 25 % is the same level."""

AFTER_RAMP = 1.5  # the norm settles after the ramp: half its length more is left out
BLOCKS, SMALLEST_BLOCK = 40, 25
SMALLEST_WINDOW, SMALLEST_SHARE = 100, 0.15
ENOUGH = 0.5  # share of the segment from which a stable window is believed
FALLBACK = 0.4  # share of the segment that is used when nothing is stable
NOISE = 3.0  # standard errors of a block level added to the tolerance
SIGNIFICANT = 3.0  # standard errors of the slope from which a drift is flagged


def ramp_end(lr: Floats | None) -> int:
    """Number of leading steps during which the LR rises; 0 without a ramp.

    A single jump is no ramp; a rise below 25 % is no warm-up.
    """
    if lr is None or len(lr) < 3 or not np.isfinite(lr[0]):
        return 0
    rises = np.diff(lr)
    falls = np.flatnonzero(rises < 0)
    end = int(falls[0]) if len(falls) else len(lr) - 1
    up = np.flatnonzero(rises[:end] > 0)
    if len(up) < 2 or lr[end] < 1.25 * max(lr[0], 0.0):
        return 0
    return int(up[-1]) + 1


def lr_jumps(lr: Floats | None, start: int) -> Ints:
    """Indices after `start` at which the LR changes by more than 25 % in one step, standing alone.

    The last steps of a cosine or a line to zero change as fast, but so do their neighbours.
    """
    if lr is None:
        return np.empty(0, np.int64)
    log_lr = np.log(np.where(lr > 0, lr, np.nan))
    moves = np.nan_to_num(np.abs(np.diff(log_lr)), nan=0.0)
    found = []
    for i in np.flatnonzero(moves > TOLERANCE):
        around = np.sort(np.concatenate([moves[max(0, i - 5) : i], moves[i + 1 : i + 6]]))
        # The second largest: the jump before or after may be a jump as well. In the last steps a
        # jump cannot be told from the end of a decay in which steps are missing.
        is_last = i + 6 > len(moves)
        if i + 1 > start and not is_last and moves[i] > 5 * around[-2]:
            found.append(int(i) + 1)
    return np.array(found, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """The steps a threshold is calibrated on: indices [first, last), and how the level moves in it.

    `slope` is the drift of the log norm per step (Theil-Sen on block levels), `slope_error` its
    standard error. `is_stable` is False where the last steps of a drifting segment were taken.
    `block_centers`, `block_levels` [b]; `block_noise` is the standard error of one block level.
    """

    first: int
    last: int
    is_stable: bool
    slope: float
    slope_error: float
    block_centers: Floats
    block_levels: Floats
    block_noise: float
    phi: float

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def is_drifting(self) -> bool:
        """Whether the slope is beyond two standard errors: thresholds are then re-based."""
        return abs(self.slope) > 2 * self.slope_error


def window(z: Floats, first: int, last: int) -> Window:
    """The latest stable window of the segment [first, last) of log norms `z`, spikes taken out.

    The longest one that ends with the segment and whose drift and block levels stay within 25 %
    beyond what the noise of a block level explains. If it is shorter than half of the segment, the
    last 40 % are used and called unstable.
    """
    n = last - first
    edges = [first + e for e in block_edges(n, blocks=BLOCKS, smallest=SMALLEST_BLOCK)]
    smallest = max(SMALLEST_WINDOW, SMALLEST_SHARE * n)
    for start in edges[:-1]:
        if last - start < max(smallest, ENOUGH * n):
            break
        candidate = describe(z, start, last, is_stable=True)
        if _is_level(candidate):
            return candidate
    if n <= SMALLEST_WINDOW:
        return describe(z, first, last, is_stable=True)
    return describe(z, last - max(SMALLEST_WINDOW, int(FALLBACK * n)), last, is_stable=False)


def describe(z: Floats, first: int, last: int, *, is_stable: bool) -> Window:
    """Blocks, slope and noise of the log norms `z` in [first, last)."""
    edges = block_edges(last - first, blocks=BLOCKS, smallest=SMALLEST_BLOCK)
    x = z[first:last]
    levels, errors = block_levels(x, edges)
    centers = first + (np.array(edges[:-1]) + np.array(edges[1:]) - 1) / 2
    phi = lag_one(x)
    length = (last - first) / len(levels)
    noise = float(np.median(errors)) * np.sqrt(mean_inflation(phi, length))
    slope = theil_sen(centers, levels) if len(levels) > 2 else 0.0
    return Window(
        first, last, is_stable, slope, _slope_error(centers, levels, slope, noise),
        centers, levels, float(noise), phi,
    )  # fmt: skip


def _slope_error(centers: Floats, levels: Floats, slope: float, noise: float) -> float:
    """Standard error of a slope through block levels.

    The larger of what the residuals of the blocks say, with their own correlation, and what the
    noise within blocks says.
    """
    count = len(levels)
    if count < 3:
        return float("inf")
    t = centers - centers.mean()
    rest = levels - levels.mean() - slope * t
    correlation = float(rest[1:] @ rest[:-1]) / max(float(rest @ rest), 1e-300)
    spread = float(np.sqrt(rest @ rest / (count - 2)))
    spread *= np.sqrt(variance_inflation(min(0.9, correlation + 1.0 / count)))
    return float(max(spread, noise) / np.sqrt(t @ t))


def _is_level(w: Window) -> bool:
    """Drift over the window and every block level stay within the tolerance plus noise."""
    margin = NOISE * w.block_noise
    drift = abs(w.slope) * len(w)
    error = 2 * w.block_noise / np.sqrt(len(w.block_levels)) * np.sqrt(12.0)
    off = np.abs(w.block_levels - np.median(w.block_levels))
    return bool(drift < TOLERANCE + error and off.max() < TOLERANCE + margin)


def drift(w: Window, segment: int) -> Flag | None:
    """The level moves, over the `segment` steps since the ramp or last jump, by over 25 %."""
    per_thousand = 1000 * w.slope
    moved = abs(w.slope) * segment
    is_significant = abs(w.slope) > SIGNIFICANT * w.slope_error and moved > TOLERANCE
    if w.is_stable and not is_significant:
        return None
    direction = "rises" if w.slope > 0 else "falls"
    what = (
        f"The level {direction} by {abs(np.expm1(per_thousand)):.0%} per 1,000 steps"
        if is_significant
        else "The level wanders by more than 25 %"
    )
    how = (
        "the threshold is re-based to the level at the end"
        if w.is_stable
        else f"no stable interval was found; the last {len(w)} steps were used, re-based to the "
        "level at the end"
    )
    return Flag("drift", f"{what}; {how}. It holds for a limited time only.")
