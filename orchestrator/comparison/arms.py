"""Arms against the baseline on common seeds; see docs/statistics.md."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.errors import OrchestratorError, nearest
from orchestrator.nouns import (
    Comparison,
    Comparisons,
    Direction,
    Floats,
    Interval,
    Metric,
    Outcome,
    Status,
    Trial,
)
from orchestrator.stats import divergence, effects, exact, flags, guarded, sequential
from orchestrator.stats.blocks import Bools, moments, paired_differences
from orchestrator.stats.guarded import Look

DIVERGED_BEYOND = 1e100
"""A value as large, though finite, has diverged; its square would soon not be a number."""


def cells(pairs: Sequence[tuple[Trial, Outcome]], metric: str) -> dict[int, float]:
    """The value of `metric` by seed: NaN for a run that diverged, no entry for an accident.

    A timeout counts as diverged: slow is something the arm did. So does a value that is not finite.
    """
    values: dict[int, float] = {}
    for trial, outcome in pairs:
        if outcome.status is Status.DONE:
            if metric not in outcome.metrics:
                raise OrchestratorError(
                    f"{trial.arm}, seed {trial.seed} never logged {metric!r} ({trial.folder})",
                    nearest(metric, outcome.metrics),
                )
            value = float(outcome.metrics[metric])
            values[trial.seed] = value if math.isfinite(value) else math.nan
        elif outcome.status.is_result:
            values[trial.seed] = math.nan
    return values


def compare(
    metric: Metric,
    baseline: Mapping[int, float],
    arms: Mapping[str, Mapping[int, float]],
    *,
    alpha: float,
    registered: int | None = None,
    looks: tuple[int, ...] = (),
    look: int = 1,
) -> Comparisons:
    """Compare each arm (seed -> value; not finite: diverged, absent: missing) with the baseline.

    `alpha` is one-sided per direction and family-wise over `registered` arms, at least as many as
    are given: an arm that failed or was removed after its results were seen still counts.
    With `looks` (numbers of seeds, ascending) it is spent over all of them, and this is number
    `look`, from 1: intervals and flags are at that look's level.
    """
    levels = sequential.levels(looks, alpha) if looks else ()
    level = levels[look - 1] if levels else alpha
    values, diverged = _matrix(metric, baseline, arms)
    at = guarded.look(
        values, diverged, k=max(len(arms), registered or 0), resolution=metric.resolution
    )
    tests = _tests(metric, values, at, level)
    differences = paired_differences(values)
    compared = []
    for j, (name, cells_of_arm) in enumerate(arms.items()):
        comparison = _comparison(metric, name, j, values, diverged, differences[j], at, tests)
        surplus = not cells_of_arm.keys() <= baseline.keys()
        words = _flags(metric, comparison, j, differences[j], at, alpha=level, surplus=surplus)
        compared.append(replace(comparison, flags=words, look=look))
    n, mean, variance = moments(values[:1])
    return Comparisons(
        metric=metric,
        alpha=alpha,
        k=at.k,
        n=values.shape[1],
        nu=float(at.pool.fit.nu),
        sigma=math.sqrt(at.pool.fit.variance) if at.pool.fit.nu else math.nan,
        critical_value=guarded.pooled_critical_value(at, alpha=level),
        seed_correlation=at.pool.fit.column_correlation,
        baseline_mean=_sign(metric) * float(mean[0]),
        baseline_sd=float(np.sqrt(variance[0])),
        baseline_n=int(n[0]),
        arms=tuple(compared),
        method="guarded block Dunnett" if at.k != 1 else "one-sided paired t",
        looks=looks,
        levels=levels,
        look=look,
    )


def _sign(metric: Metric) -> float:
    return 1.0 if metric.direction is Direction.MAX else -1.0


def _matrix(
    metric: Metric, baseline: Mapping[int, float], arms: Mapping[str, Mapping[int, float]]
) -> tuple[Floats, Bools]:
    """Oriented values [arms + 1, seeds], NaN unless finite, and which of them diverged.

    A seed the baseline was not run on is unusable for all arms and gets no column.
    """
    rows, seeds = [baseline, *arms.values()], sorted(baseline)
    raw = np.array([[row.get(s, math.nan) for s in seeds] for row in rows], dtype=np.float64)
    ran = np.array([[s in row for s in seeds] for row in rows], dtype=np.bool_)
    finite = np.abs(raw) < DIVERGED_BEYOND
    return np.where(finite, _sign(metric) * raw, np.nan), ran & ~finite


@dataclass(frozen=True, slots=True, eq=False)
class _Tests:
    """p-values and half-widths of all arms [arms]; NaN where a test could not be run."""

    better: Floats
    worse: Floats
    exact_better: Floats
    exact_worse: Floats
    equivalent: Floats
    half_width: Floats


def _tests(metric: Metric, values: Floats, at: Look, alpha: float) -> _Tests:
    undefined = np.full(len(at.se), np.nan)
    exact_better, exact_worse = undefined.copy(), undefined.copy()
    complete = values[:, np.isfinite(values[0])]
    whole = np.isfinite(complete[1:]).all(axis=1)
    if whole.any() and 1 <= complete.shape[1] <= exact.MOST_SEEDS:
        differences = paired_differences(complete)[whole]
        exact_better[whole] = exact.sign_flip(differences)
        exact_worse[whole] = exact.sign_flip(-differences)
    return _Tests(
        better=guarded.step_down(at, at.mean_difference),
        worse=guarded.step_down(at, -at.mean_difference),
        exact_better=exact_better,
        exact_worse=exact_worse,
        equivalent=guarded.equivalence(at, delta=metric.delta) if metric.delta else undefined,
        half_width=guarded.half_widths(at, alpha=alpha),
    )


def _comparison(
    metric: Metric, name: str, j: int, values: Floats, diverged: Bools, differences: Floats,
    at: Look, tests: _Tests,
) -> Comparison:  # fmt: skip
    paired = differences[np.isfinite(differences)]
    runs, baseline = (row[np.isfinite(row)] for row in (values[j + 1], values[0]))
    difference, se = float(at.mean_difference[j]), float(at.se[j])
    arm_only = int((diverged[j + 1] & np.isfinite(values[0])).sum())
    baseline_only = int((diverged[0] & np.isfinite(values[j + 1])).sum())
    half = float(tests.half_width[j])
    return Comparison(
        arm=name,
        n_pairs=len(paired),
        n_diverged=int(diverged[j + 1].sum()),
        n_only_arm_diverged=arm_only,
        n_only_baseline_diverged=baseline_only,
        mean=_sign(metric) * float(runs.mean()) if len(runs) else math.nan,
        mean_difference=difference,
        se=se,
        t=difference / se if se > 0 else math.nan,
        p_better=float(tests.better[j]),
        p_worse=float(tests.worse[j]),
        p_exact_better=_known(tests.exact_better[j]),
        p_exact_worse=_known(tests.exact_worse[j]),
        interval=Interval(difference - half, difference + half)
        if math.isfinite(half)
        else Interval(-math.inf, math.inf),
        p_equivalent=_known(tests.equivalent[j]),
        hedges_g=effects.standardized(difference, _std(paired), len(paired)),
        glass_delta=effects.standardized(difference, _std(baseline), len(baseline)),
        probability_superior=effects.probability_superior(runs, baseline),
        pooled=bool(at.pool.members[j]),
        worst_seed_difference=float(paired.min()) if len(paired) else math.nan,
        p_diverged=divergence.sign_test(arm_only, baseline_only),
        sd=_std(runs),
    )


def _known(p: float) -> float | None:
    return None if math.isnan(p) else float(p)


def _std(row: Floats) -> float:
    return float(row.std(ddof=1)) if len(row) > 1 else math.nan


def _flags(
    metric: Metric,
    c: Comparison,
    j: int,
    differences: Floats,
    at: Look,
    *,
    alpha: float,
    surplus: bool,
) -> tuple[str, ...]:
    delta = metric.delta
    same_fate = c.n_only_arm_diverged + c.n_only_baseline_diverged == 0
    inside = delta is not None and -delta < c.interval.low and c.interval.high < delta
    fragile = c.n_pairs >= 5 and any(
        p <= alpha and exact_p is not None and exact_p > alpha
        for p, exact_p in ((c.p_better, c.p_exact_better), (c.p_worse, c.p_exact_worse))
    )
    facts = {
        flags.IDENTICAL: c.n_pairs >= 1 and same_fate and not np.nan_to_num(differences).any(),
        flags.ZERO_VARIANCE: c.se == 0,
        flags.COARSE: bool(at.coarse[j]),
        flags.FRAGILE: fragile,
        flags.NEGLIGIBLE: inside,
        flags.NOT_WORSE: delta is not None and c.interval.low > -delta,
        flags.VARIANCE_OUTLIER: bool(at.pool.outliers[j]),
        flags.BASELINE_MISSING: surplus,
    }
    return tuple(word for word, holds in facts.items() if holds)
