"""The numbers of a run: statistics of an arm under names of their own, last values of a trial."""

from __future__ import annotations

import math
from collections.abc import Mapping

from orchestrator.nouns import Comparison, Comparisons, Direction, Metric, Outcome


def effect(c: Comparison, comparisons: Comparisons) -> dict[str, float]:
    """An arm's statistics under names of their own; difference = arm - baseline, not oriented."""
    metric = comparisons.metric
    sign = 1.0 if metric.direction is Direction.MAX else -1.0
    ends = sorted((sign * c.interval.low, sign * c.interval.high))
    p = c.p_better if c.mean_difference >= 0 else c.p_worse
    values = {
        f"{metric.name}.mean": c.mean,
        f"{metric.name}.sd": c.sd,
        f"{metric.name}.difference": sign * c.mean_difference,
        f"{metric.name}.ci_low": ends[0],
        f"{metric.name}.ci_high": ends[1],
        f"{metric.name}.p_adjusted": p,
        "n": float(c.n_pairs),
        "diverged": float(c.n_diverged),
    }
    return _readable(values)


def control(comparisons: Comparisons) -> dict[str, float]:
    """The baseline's statistics."""
    name = comparisons.metric.name
    values = {
        f"{name}.mean": comparisons.baseline_mean,
        f"{name}.sd": comparisons.baseline_sd,
        "n": float(comparisons.baseline_n),
    }
    return _readable(values)


def _readable(values: Mapping[str, float]) -> dict[str, float]:
    """Four digits, as MLflow prints every one of them; the record keeps the exact numbers."""
    return {k: float(f"{v:.4g}") for k, v in values.items() if math.isfinite(v)}


def last_values(outcome: Outcome, metric: Metric | None) -> dict[str, float]:
    """What the trial logged last, without the test split of `metric`; and what it cost."""
    kept = {k: v for k, v in outcome.metrics.items() if metric is None or not is_test(k, metric)}
    return {k: v for k, v in kept.items() if math.isfinite(v)} | {"seconds": outcome.seconds}


def is_test(name: str, metric: Metric) -> bool:
    """Whether `name` was measured on the test split."""
    return name == metric.test_name or name.startswith("test/")
