"""Robust readings of one curve, shared by the rules. Pure numpy on finite values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.nouns import Floats, Series, Telemetry
from orchestrator.telemetry.robust import finite, theil_sen
from orchestrator.telemetry.signals import update_ratios

BLOCKS = 24
"""Points a per-step curve is condensed to where there is no probe: a block averages batch noise."""

LARGE_UPDATE = 5e-2
HEALTHY_UPDATE = 1e-3
TINY_UPDATE = 1e-4
"""Update ratios, per step: rows 14 and 15 of docs/diagnosis.md."""

EARLY_STEPS = 60
"""The steps in which a learning rate that is too high shows, as in row 14."""

SHORT_PATH = 0.3
"""Sum of update ratios below which the weights cannot have moved by more than this share. Ours."""


@dataclass(frozen=True, slots=True)
class Trend:
    """A straight line through a curve: value per step and its standard error.

    Over the whole curve it changes by `change`, give or take `error`; `t` is slope over error.
    """

    slope: float
    change: float
    error: float
    t: float


def running_median(values: Floats, width: int) -> Floats:
    """Medians [n - width + 1] of `width` consecutive values; empty if there are fewer."""
    if len(values) < width:
        return np.empty(0)
    windows = np.lib.stride_tricks.sliding_window_view(values, width)
    return np.asarray(np.median(windows, axis=1))


def trend(steps: Floats, values: Floats) -> Trend:
    """Theil-Sen line (Sen 1968) with the least-squares standard error of its residuals.

    The error is widened by the residuals' lag-1 correlation r: effective n = n (1 - r) / (1 + r).
    Needs 2 points; from 2 the error is zero and means nothing.
    """
    slope = theil_sen(steps, values)
    centred, span = steps - steps.mean(), float(np.ptp(steps))
    residuals = values - slope * centred
    residuals = residuals - np.median(residuals)
    power = float(np.sum(residuals**2))
    r = float(np.sum(residuals[1:] * residuals[:-1])) / power if power > 0 else 0.0
    r = min(max(r, 0.0), 0.9)
    variance = power / max(len(steps) - 2, 1) * (1 + r) / (1 - r)
    se = float(np.sqrt(variance / np.sum(centred**2)))
    t = 0.0 if slope == 0.0 else slope / max(se, 1e-300)
    return Trend(slope, slope * span, se * span, t)


def condensed(series: Series, blocks: int = BLOCKS) -> Series:
    """Medians of `blocks` equal stretches, each at its last step; the series itself if shorter."""
    if len(series) <= blocks:
        return series
    parts = np.array_split(np.arange(len(series)), blocks)
    medians = np.array([np.median(series.values[part]) for part in parts])
    return Series(series.steps[[part[-1] for part in parts]], medians, series.unit)


def first_step(telemetry: Telemetry) -> int:
    """The first step that any series shows."""
    return min((int(s.steps[0]) for s in telemetry.series.values() if len(s)), default=0)


def whole_run(telemetry: Telemetry) -> tuple[int, int]:
    """First and last step, of a finding about the run as such."""
    return first_step(telemetry), total_steps(telemetry) - 1


def total_steps(telemetry: Telemetry) -> int:
    """Optimizer steps the trial took, as far as any series shows."""
    return max((int(s.steps[-1]) for s in telemetry.series.values() if len(s)), default=0) + 1


def update_ratio(telemetry: Telemetry, first: float, last: float) -> Series:
    """‖Δθ‖/‖θ‖ over the sampled steps in [first, last): median over the weight matrices.

    Biases and gains are left out where the header names the weight matrices; so is what is not
    finite, as the ratio of a matrix that starts at zero.
    """
    columns: dict[int, list[float]] = {}
    for series in update_ratios(telemetry):
        inside = (series.steps >= first) & (series.steps < last) & np.isfinite(series.values)
        for step, value in zip(series.steps[inside], series.values[inside], strict=True):
            columns.setdefault(int(step), []).append(float(value))
    steps = sorted(columns)
    medians = np.array([np.median(columns[step]) for step in steps], dtype=np.float64)
    return Series(np.array(steps, dtype=np.int64), medians, "1")


def early_update_peak(telemetry: Telemetry) -> float:
    """90th percentile of the update ratio over the first 60 steps; 0 if none was recorded.

    A network that died in the first steps has a median of 0. Skipped steps, of ratio 0, are left
    out.
    """
    early = update_ratio(telemetry, 0, first_step(telemetry) + EARLY_STEPS).values
    early = early[early > 0]
    return float(np.quantile(early, 0.9)) if len(early) else 0.0


def is_tiny(ratio: float, steps: float) -> bool:
    """Whether updates of this ratio can get the weights nowhere in so many steps."""
    return ratio < TINY_UPDATE or (ratio < HEALTHY_UPDATE and ratio * steps < SHORT_PATH)


def active_span(telemetry: Telemetry, share_of_peak: float) -> tuple[float, float]:
    """First and last step (exclusive) at which the learning rate is at least a share of its peak.

    Everything, if it was not recorded or never positive.
    """
    everything = (0.0, float(total_steps(telemetry)))
    if "lr" not in telemetry:
        return everything
    lr = finite(telemetry["lr"])
    if not len(lr) or np.max(lr.values) <= 0:
        return everything
    high = lr.steps[lr.values >= share_of_peak * np.max(lr.values)]
    return float(high[0]), float(high[-1]) + 1
