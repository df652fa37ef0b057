"""The rules of a verdict on one arm, in the order of the protocol; see docs/statistics.md."""

from __future__ import annotations

import math

from orchestrator.nouns import FEWEST_SEEDS, Call, Comparison, Comparisons
from orchestrator.stats import divergence, exact, flags, forecast


def call(c: Comparison, of: Comparisons) -> Call:
    """The first rule that holds; the order is part of the protocol."""
    p_better, p_worse = deciding_p(c, of)
    level = of.level_of(c)
    if diverges_more(c) and c.p_diverged <= level / of.k:
        return Call.WORSE
    if c.n_pairs < FEWEST_SEEDS:
        if diverges_more(c):
            return Call.FAILED
        return Call.BETTER if rescues(c) and p_better <= level else Call.INCONCLUSIVE
    if flags.IDENTICAL in c.flags:
        return Call.EQUIVALENT
    if p_worse <= level:
        return Call.WORSE
    if diverges_more(c):
        return Call.UNSTABLE
    if p_better <= level:
        return Call.BETTER
    return Call.EQUIVALENT if flags.NEGLIGIBLE in c.flags else Call.INCONCLUSIVE


def diverges_more(c: Comparison) -> bool:
    """Whether the arm diverged on more seeds than the baseline; it can then never be better.

    Dropping those seeds instead triples the rate of false "better" (docs/statistics.md).
    """
    return c.n_only_arm_diverged > c.n_only_baseline_diverged


def decided_exactly(c: Comparison) -> bool:
    """Whether t means nothing here; known from the metric's step and the spread, never from p."""
    return flags.ZERO_VARIANCE in c.flags or flags.COARSE in c.flags


def rescues(c: Comparison) -> bool:
    """Whether the baseline diverged so often that only its divergences can be compared.

    Then no test of means can be run, and the sign test on who diverged takes its place; given
    the pattern of divergences only one of the two is ever used, so the level holds.
    """
    return c.n_pairs < FEWEST_SEEDS and c.n_only_baseline_diverged > 0


def deciding_p(c: Comparison, of: Comparisons) -> tuple[float, float]:
    """The p-values for better and for worse that the verdict rests on.

    Where the exact test decides but cannot be run, t may not claim more than sign flips could.
    """
    if rescues(c):
        rescued = divergence.sign_test(c.n_only_baseline_diverged, c.n_only_arm_diverged)
        return min(1.0, of.k * rescued), min(1.0, of.k * c.p_diverged)
    if not decided_exactly(c):
        return c.p_better, c.p_worse
    least = 0.5**c.n_pairs
    return (
        max(least, c.p_better) if c.p_exact_better is None else c.p_exact_better,
        max(least, c.p_worse) if c.p_exact_worse is None else c.p_exact_worse,
    )


def seeds_needed(c: Comparison, of: Comparisons, *, pooled_arms: int) -> tuple[int, int]:
    """Seeds per arm, in all, for a verdict: with the estimated variance, and with its upper limit.

    `pooled_arms` is how many arms of the family share a variance.
    In a fixed design at alpha: seeds past the last look are a new experiment.
    With a delta: for an interval that must decide. Without: to find the observed difference again.
    """
    least = max(FEWEST_SEEDS, c.n_pairs + 1)
    reach = exact.seeds_to_reach(of.alpha)
    if decided_exactly(c) and c.n_pairs < reach:
        return reach, reach
    if math.isnan(c.se) or c.se == 0:
        needed = least if math.isnan(c.se) else max(least, exact.seeds_to_reach(of.alpha / of.k))
        return needed, needed
    variance = c.se**2 * c.n_pairs
    upper = forecast.upper_variance(variance, of.nu if c.pooled else c.n_pairs - 1)

    def seeds(variance: float) -> int:
        if of.metric.delta is None:
            effect = abs(c.mean_difference) / math.sqrt(variance)
            return max(least, forecast.seeds_to_detect(effect, alpha=of.alpha))
        together = pooled_arms if c.pooled else 0
        return max(
            least,
            forecast.seeds_for_verdict(
                variance, of.metric.delta, alpha=of.alpha, k=of.k, pooled_arms=together
            ),
        )

    return seeds(variance), seeds(upper)
