"""One pilot up to some step: spikes, window, level, shape. Both `propose` and backtest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.clip_nouns import Flag
from orchestrator.nouns import Floats, Ints
from orchestrator.plan.clip import forecast, shape, stable
from orchestrator.plan.clip.checks import SMALLEST
from orchestrator.plan.clip.robust import rolling_median, variance_inflation
from orchestrator.plan.clip.spikes import WINDOW, Spikes, spikes
from orchestrator.plan.clip.stable import AFTER_RAMP, Window


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """What a threshold is derived from; indices count valid steps, norms are logs.

    `values` [w] are the window's log norms, re-based to the level at its end where the level
    drifts; `residuals` [w] the same less the smoothed level; `is_body` [w] excludes spikes.
    `n_eff` is the number of independent steps the body counts as.
    """

    log_norms: Floats
    first: int
    ramp_end: int
    jumps: Ints
    spikes: Spikes
    window: Window
    level: forecast.Level
    values: Floats
    residuals: Floats
    is_body: np.ndarray[tuple[int], np.dtype[np.bool_]]
    n_eff: float
    modes: shape.Modes | None
    heavy: Flag | None

    @property
    def body(self) -> Floats:
        """Log norms a candidate's quantile is taken of."""
        return self.values[self.is_body]

    @property
    def base(self) -> float:
        """The level that residuals of spikes are measured from: at the end, or the window's."""
        return self.level.value if self.window.is_drifting else float(np.median(self.body))


def segment(lr: Floats | None, n: int) -> tuple[int, int, Ints]:
    """First step to use, length of the ramp, and the LR jumps after it."""
    ramp = stable.ramp_end(lr)
    first = int(AFTER_RAMP * ramp)
    if n - first < SMALLEST:
        first = ramp
    jumps = stable.lr_jumps(lr, first)
    return int(max([first, *jumps])), ramp, jumps


def calibrate(
    log_norms: Floats,
    lr: Floats | None,
    residuals: Floats | None = None,
    loss: Floats | None = None,
) -> Calibration:
    """Calibrate on the valid log norms [n] of a pilot, at least 50 of them in the last regime.

    `lr` and `loss` [n] if known; `residuals` [n] over the rolling median where they are already.
    """
    z = log_norms
    first, ramp, jumps = segment(lr, len(z))
    found = spikes(
        z[ramp:],
        None if residuals is None else residuals[ramp:],
        None if loss is None else loss[ramp:],
    )
    r = found.residuals
    body = z.copy()
    body[ramp + found.indices] -= r[found.indices]
    window = stable.window(body, first, len(z))
    level = forecast.level(window)
    inside = slice(window.first, window.last)
    is_body = np.ones(len(z), bool)
    is_body[ramp + found.indices] = False
    rest = z[inside] - level.trend
    values = level.value + rest if window.is_drifting else z[inside]
    keep = is_body[inside]
    modes = shape.modes(values)
    heavy = None if modes is not None else shape.heavy_tail(values[keep])
    return Calibration(
        log_norms=z, first=first, ramp_end=ramp, jumps=jumps, window=window, level=level,
        spikes=Spikes(ramp + found.indices, r, found.spread),
        values=values, residuals=rest, is_body=keep,
        n_eff=float(keep.sum()) / variance_inflation(window.phi), modes=modes, heavy=heavy,
    )  # fmt: skip


def prefix_residuals(log_norms: Floats, residuals: Floats, end: int) -> Floats:
    """Residuals over the rolling median as they would have been with nothing after `end`."""
    half = WINDOW // 2
    if end <= 2 * WINDOW:
        return log_norms[:end] - rolling_median(log_norms[:end], WINDOW)
    tail = log_norms[end - 2 * WINDOW : end]
    edge = (tail - rolling_median(tail, WINDOW))[-half:]
    return np.concatenate([residuals[: end - half], edge])
