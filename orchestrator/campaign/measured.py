"""What finished trials say: metrics, signals, telemetry, as comparisons and plain numbers."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from orchestrator import comparison, telemetry
from orchestrator.nouns import (
    Ablation,
    Arm,
    Comparisons,
    Direction,
    Metric,
    Move,
    Plan,
    Record,
    Telemetry,
    Trial,
)
from orchestrator.telemetry.layout import FOLDER


def read_telemetry(trial: Trial) -> Telemetry | None:
    """What the trial recorded, or None if it recorded nothing."""
    folder = Path(trial.folder) / FOLDER
    return telemetry.read(folder) if folder.is_dir() else None


def telemetries(record: Record, arm: Arm, seeds: tuple[int, ...]) -> list[Telemetry]:
    """What the results among the arm's trials recorded; accidents tell nothing of the training."""
    return [recorded for _, recorded in _recorded(record, arm, seeds)]


def compared(
    record: Record,
    metric: Metric,
    baseline: Arm,
    arms: Sequence[Arm],
    seeds: tuple[int, ...],
    *,
    looks: tuple[int, ...] = (),
) -> Comparisons:
    """`arms` against `baseline` on `metric`; with `looks`, at the one that `seeds` are for."""
    return comparison.compare(
        metric,
        comparison.cells(record.of(baseline, seeds), metric.name),
        {arm.name: comparison.cells(record.of(arm, seeds), metric.name) for arm in arms},
        alpha=record.campaign.protocol.alpha,
        looks=looks,
        look=look_at(looks, seeds),
    )


def metric(record: Record, planned: Plan) -> Metric:
    """The campaign's metric with the delta that the round was planned with."""
    asked = record.campaign.metric
    return dataclasses.replace(asked, delta=planned.delta or asked.delta)


def earlier_scores(record: Record, arm: Arm, block: tuple[int, ...]) -> list[float]:
    """The arm's finite scores on every seed so far but those of the `block` to be compared."""
    ran = (t.seed for t in record.trials.values() if t.overrides == arm.overrides)
    seeds = tuple(sorted(set(ran) - set(block)))
    values = comparison.cells(record.of(arm, seeds), record.campaign.metric.name).values()
    return [v for v in values if math.isfinite(v)]


def mechanism(
    record: Record, planned: Plan, ablation: Ablation, seeds: tuple[int, ...]
) -> Comparisons | None:
    """The predicted signal over the same trials as the metric; None if nothing recorded it.

    At the level of the look that `seeds` are for: it was chosen by the metric, not in advance.
    """
    hypothesis = ablation.hypothesis
    direction = Direction.MIN if hypothesis.signal_move is Move.DOWN else Direction.MAX
    baseline = _signals(record, planned.baseline, seeds, hypothesis.signal)
    arms = {a.name: _signals(record, a, seeds, hypothesis.signal) for a in ablation.arms}
    if not baseline or not any(arms.values()):
        return None
    metric = Metric(hypothesis.signal, direction)
    looks, look = planned.looks, look_at(planned.looks, seeds)
    return comparison.compare(metric, baseline, arms, alpha=planned.alpha, looks=looks, look=look)


def look_at(looks: tuple[int, ...], seeds: tuple[int, ...]) -> int:
    """Which of `looks`, from 1, these `seeds` are for; without looks there is only one."""
    return looks.index(len(seeds)) + 1 if looks else 1


def spread(record: Record, arm: Arm, seeds: tuple[int, ...]) -> float | None:
    """Standard deviation of the metric over the arm's seeds; None below two finite values."""
    values = comparison.cells(record.of(arm, seeds), record.campaign.metric.name).values()
    finite = [v for v in values if math.isfinite(v)]
    return statistics.stdev(finite) if len(finite) > 1 else None


def seconds_per_trial(record: Record) -> float | None:
    """Median over all trials so far."""
    seconds = [outcome.seconds for outcome in record.outcomes.values()]
    return statistics.median(seconds) if seconds else None


def _signals(record: Record, arm: Arm, seeds: tuple[int, ...], name: str) -> dict[int, float]:
    found = {}
    for seed, recorded in _recorded(record, arm, seeds):
        signals = telemetry.signals(recorded)
        if name in signals:
            found[seed] = signals[name].value
    return found


def _recorded(record: Record, arm: Arm, seeds: tuple[int, ...]) -> list[tuple[int, Telemetry]]:
    read = [(t.seed, read_telemetry(t)) for t, o in record.of(arm, seeds) if o.status.is_result]
    return [(seed, recorded) for seed, recorded in read if recorded is not None]
