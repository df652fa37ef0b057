"""Statistics of diverged runs. Diverged is a result, missing is not."""

from __future__ import annotations

from scipy.special import bdtrc, betaincinv

from orchestrator.nouns import Interval


def sign_test(arm_only: int, baseline_only: int) -> float:
    """P(X >= `arm_only`) for X binomial(arm_only + baseline_only, 1/2): exact McNemar, one-sided.

    Seeds on which both or neither diverged say nothing about which of the two is worse.
    """
    if arm_only == 0:
        return 1.0
    return float(bdtrc(arm_only - 1, arm_only + baseline_only, 0.5))


def clopper_pearson(count: int, n: int, *, alpha: float) -> Interval:
    """Exact limits of a rate, each one-sided at `alpha`; 0 of 5 at 0.05: up to 45 %."""
    low = float(betaincinv(count, n - count + 1, alpha)) if count > 0 else 0.0
    high = float(betaincinv(count + 1, n - count, 1 - alpha)) if count < n else 1.0
    return Interval(low, high)
