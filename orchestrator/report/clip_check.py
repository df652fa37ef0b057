"""What clipping did in an ablation of it: predicted and realised clip ratio, and throughput."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, median

import numpy as np

from orchestrator import telemetry
from orchestrator.clip_nouns import MATCHED_LR
from orchestrator.nouns import (
    Ablation,
    Arm,
    ClipForecast,
    ClipRatio,
    Plan,
    Record,
    Telemetry,
)
from orchestrator.report import words
from orchestrator.report.blocks import Table
from orchestrator.report.pictures import Reader

NAMES = ("clip", MATCHED_LR)
"""Ablations of clipping: the thresholds, and no clipping at the matched learning rate."""


def clip_table(record: Record, plan: Plan, ablation: Ablation, read: Reader) -> Table | None:
    """A row per arm and the baseline; None for other ablations and where nothing was recorded."""
    if ablation.name not in NAMES:
        return None
    forecasts = {f.arm: f for f in plan.clipping}
    recorded = {
        arm.name: _recorded(record, arm, plan.seeds, read)
        for arm in (plan.baseline, *ablation.arms)
    }
    if not any(recorded.values()):
        return None
    control = _steps_per_second(recorded[plan.baseline.name])
    rows = tuple(
        (name, *_clipped(forecasts.get(name), seen), *_speed(_steps_per_second(seen), control))
        for name, seen in recorded.items()
        if seen
    )
    return Table(
        ("arm", "predicted clip ratio", "realised", "held", "steps/s", "against baseline"),
        rows,
        "Clip ratio: share of the steps after the warm-up whose norm exceeds max_norm. Predicted "
        "before the first trial from the unclipped norms of the baseline's seeds, realised the "
        "mean over seeds. Steps per second: median over steps, then over seeds.",
    )


def _recorded(
    record: Record, arm: Arm, seeds: tuple[int, ...], read: Reader
) -> list[Telemetry]:  # fmt: skip
    found = [read(trial) for trial, outcome in record.of(arm, seeds) if outcome.status.is_result]
    return [t for t in found if t is not None]


def _clipped(forecast: ClipForecast | None, seen: Sequence[Telemetry]) -> tuple[str, str, str]:
    """Predicted, realised, and whether the prediction held."""
    if forecast is None:
        return words.NOTHING, words.NOTHING, words.NOTHING
    predicted = _overall(forecast)
    told = f"{predicted.median:.1%} ({predicted.low:.1%} to {predicted.high:.1%})"
    ratios = [ratio for t in seen if (ratio := _realised(forecast, t)) is not None]
    if not ratios:
        return told, words.NOTHING, words.NOTHING
    realised = mean(ratios)
    held = predicted.low <= realised <= predicted.high
    return told, f"{realised:.1%}", "yes" if held else "no"


def _overall(forecast: ClipForecast) -> ClipRatio:
    """Over all stages, each by its length."""
    lengths = [s.last - s.first + 1 for s in forecast.stages]

    def over(values: Sequence[float]) -> float:
        return float(np.average(values, weights=lengths))

    ratios = [s.ratio for s in forecast.stages]
    return ClipRatio(
        over([r.low for r in ratios]),
        over([r.median for r in ratios]),
        over([r.high for r in ratios]),
    )


def _realised(forecast: ClipForecast, seen: Telemetry) -> float | None:
    """Share of the predicted steps whose finite norm exceeds the threshold."""
    if "grad_norm" not in seen:
        return None
    norms = seen["grad_norm"]
    inside = (norms.steps >= forecast.stages[0].first) & (norms.steps <= forecast.stages[-1].last)
    values = norms.values[inside]
    values = values[np.isfinite(values)]
    return float(np.mean(values > forecast.max_norm)) if len(values) else None


def _steps_per_second(seen: Sequence[Telemetry]) -> float | None:
    times = [telemetry.signals(t).get("step_seconds") for t in seen]
    known = [signal.value for signal in times if signal is not None and signal.value > 0]
    return 1 / median(known) if known else None


def _speed(own: float | None, control: float | None) -> tuple[str, str]:
    if own is None:
        return words.NOTHING, words.NOTHING
    against = words.NOTHING if control is None else f"{100 * (own / control - 1):+.0f} %"
    return f"{own:.3g}", against
