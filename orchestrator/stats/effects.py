"""Effect sizes that do not depend on the metric's unit. NaN where they mean nothing at this n."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from orchestrator.nouns import Floats


def small_sample_factor(nu: int) -> float:
    """J(nu), which removes the bias of a standardized mean; NaN for nu < 2.

    J = Gamma(nu/2) / (sqrt(nu/2) Gamma((nu-1)/2)). Source: Hedges 1981, J. Educ. Stat. 6:107.
    """
    if nu < 2:
        return np.nan
    return float(np.exp(gammaln(nu / 2) - gammaln((nu - 1) / 2)) / np.sqrt(nu / 2))


def standardized(difference: float, std: float, n: int) -> float:
    """`difference` in units of a `std` estimated from `n` numbers, bias removed.

    Glass's delta with the baseline's std; Hedges's g (of paired differences) with theirs.
    """
    factor = small_sample_factor(n - 1)
    return difference / std * factor if std > 0 else np.nan


def probability_superior(arm: Floats, baseline: Floats) -> float:
    """P(one run of the arm beats one run of the baseline), ties half: Mann-Whitney U / (n m)."""
    if not (len(arm) and len(baseline)):
        return np.nan
    ordered = np.sort(baseline)
    below = np.searchsorted(ordered, arm, "left") + np.searchsorted(ordered, arm, "right")
    return float(below.mean() / (2 * len(baseline)))
