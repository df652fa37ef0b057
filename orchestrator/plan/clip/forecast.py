"""Which share of the coming steps will exceed a threshold: an interval from level and drift."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.nouns import ClipRatio, Floats
from orchestrator.plan.clip.stable import Window

REPLICATES = 300
MOST_DRAWN = 4000
"""Steps simulated per replicate. A longer horizon is thinned, which only widens the interval: the
noise of a share of 1 % over 4,000 steps is 0.16 %, far below what the level does over such a
horizon."""

SLOPE_SHARE = (-0.25, 1.25)
"""A drift goes on, fades or turns: clip.md, chosen on the recorded trainings (coverage 80 -> 88
%)."""

LEVEL = 0.90


@dataclass(frozen=True, slots=True, eq=False)
class Level:
    """The level at the end of a window, log: `value`, its standard error `error`, `slope` per step.

    `walk` is the variance of the random walk the level makes over a block of `block` steps, as it
    was estimated (it may be negative), `walk_error` the standard error of that.
    `trend` [window] is the smoothed level at each of its steps.
    """

    value: float
    error: float
    slope: float
    slope_error: float
    walk: float
    walk_error: float
    block: float
    trend: Floats


def level(w: Window) -> Level:
    """Local-level model of the block medians: a random walk with drift, seen through block noise.

    Kalman filter and Rauch-Tung-Striebel smoother (Durbin and Koopman 2012, 2.2 and 4.4) with the
    walk's variance from the increments of the blocks. Without a walk and drift it is their mean.
    """
    block = len(w) / len(w.block_levels)
    slope = w.slope if w.is_drifting else 0.0
    walk, walk_error = _walk_variance(w, slope * block)
    # Two errors less: half of all stationary pilots would seem to walk otherwise.
    surely = max(0.0, walk - 2 * walk_error)
    noise = max(w.block_noise, 1e-12) ** 2
    value, error, smooth = _filter(w.block_levels, slope * block, surely, noise)
    steps = np.arange(w.first, w.last)
    trend = np.interp(steps, w.block_centers, smooth)
    before, after = steps < w.block_centers[0], steps > w.block_centers[-1]
    trend[before] += slope * (steps[before] - w.block_centers[0])
    trend[after] += slope * (steps[after] - w.block_centers[-1])
    return Level(
        value=value + slope * block / 2, error=error, slope=slope, slope_error=w.slope_error,
        walk=walk, walk_error=walk_error, block=block, trend=trend,
    )  # fmt: skip


def _walk_variance(w: Window, drift: float) -> tuple[float, float]:
    """Variance of the walk per block and its standard error.

    The mean square of the increments less twice the variance of the noise of a block; the error is
    that of such a mean when there is no walk, 2 noise sqrt(3 / b).
    """
    if len(w.block_levels) < 4:
        return 0.0, 0.0
    increments = np.diff(w.block_levels) - drift
    noise = 2 * w.block_noise**2
    return float(np.mean(increments**2)) - noise, noise * float(np.sqrt(3 / len(increments)))


def _filter(levels: Floats, drift: float, walk: float, noise: float) -> tuple[float, float, Floats]:
    """Level at the last block, its standard error, and the smoothed levels [b]."""
    count = len(levels)
    mean, variance = np.empty(count), np.empty(count)
    mean[0], variance[0] = levels[0], noise
    for j in range(1, count):
        ahead, spread = mean[j - 1] + drift, variance[j - 1] + walk
        gain = spread / (spread + noise)
        mean[j] = ahead + gain * (levels[j] - ahead)
        variance[j] = (1 - gain) * spread
    smooth = mean.copy()
    for j in range(count - 2, -1, -1):
        back = variance[j] / (variance[j] + walk)
        smooth[j] = mean[j] + back * (smooth[j + 1] - mean[j] - drift)
    return float(mean[-1]), float(np.sqrt(variance[-1])), smooth


def ratios(
    residuals: Floats,
    at: Level,
    log_thresholds: Floats,
    *,
    horizon: int,
    extra: float,
    rng: np.random.Generator,
) -> Floats:
    """Simulated shares of the next `horizon` steps above each threshold: [replicates, thresholds].

    `residuals` [n] are log norms less the trend, spikes included, in order. Nested circular block
    bootstrap (Politis and Romano 1992): an outer sample stands for not knowing the law, an inner
    one of the horizon's length for what will be drawn from it. The level starts within its standard
    error, drifts by a random share of the slope, and walks; `extra` is a further standard
    deviation of the level over the whole horizon (rolling origins, differences between seeds).
    Steps of a kind that was never seen come at a rate of Gamma(1/2) / n (Jeffreys): 0 exceedances
    of 500 are not 0 for ever.
    """
    thin = -(-max(horizon, len(residuals)) // MOST_DRAWN)
    e = residuals[::thin]
    draws = max(1, horizon // thin)
    length = max(1, min(len(e), round(len(e) ** (1 / 3)) + 1))
    position = np.arange(draws, dtype=np.float64) * thin
    out = np.empty((REPLICATES, len(log_thresholds)))
    for i in range(REPLICATES):
        law = _blocks(e, len(e), length, rng)
        drawn = _blocks(law, draws, length, rng)
        drift = rng.uniform(*SLOPE_SHARE) * at.slope
        drift += at.slope_error * rng.standard_normal() * bool(at.slope)
        start = at.error * rng.standard_normal() + extra * rng.standard_normal()
        path = start + drift * position + _walk(at, position, rng)
        above = np.sort(at.value + path + drawn)
        unseen = rng.binomial(draws, min(1.0, rng.gamma(0.5) / len(e)))
        out[i] = 1 - (np.searchsorted(above, log_thresholds, side="right") - unseen) / draws
    return np.minimum(out, 1.0)


def _blocks(x: Floats, n: int, length: int, rng: np.random.Generator) -> Floats:
    """`n` values of `x` in circular blocks of `length`."""
    starts = rng.integers(0, len(x), -(-n // length))
    index = (starts[:, None] + np.arange(length)) % len(x)
    drawn: Floats = x[index.ravel()[:n]]
    return drawn


def _walk(at: Level, position: Floats, rng: np.random.Generator) -> Floats:
    """A random walk of the level at `position` steps ahead, of uncertain size."""
    variance = at.walk + at.walk_error * rng.standard_normal()
    if variance <= 0.0:
        return np.zeros(len(position))
    count = int(position[-1] / at.block) + 2
    walk = np.cumsum(np.concatenate([[0.0], np.sqrt(variance) * rng.standard_normal(count)]))
    path: Floats = np.interp(position, at.block * np.arange(count + 1), walk)
    return path


def interval(simulated: Floats, *, widen: float) -> ClipRatio:
    """Median and 90 % interval of simulated shares [replicates]; `widen` stretches it."""
    low, median, high = np.quantile(simulated, [(1 - LEVEL) / 2, 0.5, (1 + LEVEL) / 2])
    return ClipRatio(
        low=float(max(0.0, median - widen * (median - low))),
        median=float(median),
        high=float(min(1.0, median + widen * (high - median))),
    )
