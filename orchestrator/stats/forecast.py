"""How many seeds per arm, in all, a verdict would take; `MOST_SEEDS` reads "or more"."""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.special import gammaincinv, nctdtr, stdtrit

from orchestrator.nouns import FEWEST_SEEDS
from orchestrator.stats import dunnett

MOST_SEEDS = 10_000

UPPER_LIMIT = 0.80
"""Confidence of the upper limit of a variance: nearly every arm is decided at N+, where the
estimate itself leaves one in eight undecided after three seeds (docs/statistics.md)."""


def upper_variance(variance: float, nu: float) -> float:
    """Upper 80 % limit of a `variance` estimated on `nu` degrees of freedom."""
    return variance * nu / float(2 * gammaincinv(nu / 2, 1 - UPPER_LIMIT))


def seeds_for_verdict(
    variance: float, delta: float, *, alpha: float, k: int, pooled_arms: int
) -> int:
    """Smallest n at which the simultaneous interval's half-width is at most `delta` / 2.

    Such an interval cannot both contain 0 and leave (-delta, delta), so a verdict is certain.
    `variance` is that of a difference, guarded; `pooled_arms` is 0 for an arm that stands alone (t,
    Bonferroni).
    """

    def certain(n: int) -> bool:
        if pooled_arms:
            c = dunnett.critical_value(alpha, m=k, nu=pooled_arms * (n - 1), r=0.5)
        else:
            c = float(-stdtrit(n - 1, alpha / k))
        return c * math.sqrt(variance / n) <= delta / 2

    return _smallest(certain)


def seeds_to_detect(effect: float, *, alpha: float, power: float = 0.8) -> int:
    """Smallest n at which a one-sided paired t test finds `effect` (mean / std of differences).

    Optimistic when `effect` is an estimate somebody liked (winner's curse).
    """

    def found(n: int) -> bool:
        limit, shift = float(-stdtrit(n - 1, alpha)), effect * math.sqrt(n)
        missed = float(nctdtr(n - 1, shift, limit))  # NaN where it is too small for scipy
        return shift > limit if math.isnan(missed) else missed <= 1 - power

    return _smallest(found)


def _smallest(enough: Callable[[int], bool]) -> int:
    """The smallest n in [FEWEST_SEEDS, MOST_SEEDS] that is `enough`, which is monotone in n."""
    low, high = FEWEST_SEEDS - 1, FEWEST_SEEDS
    while not enough(high):
        if high == MOST_SEEDS:
            return MOST_SEEDS
        low, high = high, min(2 * high, MOST_SEEDS)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
