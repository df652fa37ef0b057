"""Guarded block Dunnett: arms against one baseline, one pooled error, step-down, guarded variances.

For one arm it is the one-sided paired t test. Protocol, error rates and power: docs/statistics.md.
`values` and `diverged` are shaped and oriented as in `blocks`.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr, stdtrit

from orchestrator.nouns import Floats, Ints
from orchestrator.stats import dunnett
from orchestrator.stats.blocks import Bools, Pool, moments, noise_floor, paired_differences, pool

_CERTAIN = 1 - 1e-12
"""What is left up to 1 is less than the quadrature's own error: no later p need be computed."""


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """What the data say at one look, per arm [arms], before any level is set.

    `se` is of the mean difference: 0 if the variance is, NaN below two pairs. `coarse` marks arms
    whose metric moves in steps of at least one standard deviation of a difference. `k` is the
    family size.
    """

    n_pairs: Ints
    mean_difference: Floats
    variance: Floats
    se: Floats
    coarse: Bools
    pool: Pool
    k: int


def look(values: Floats, diverged: Bools, *, k: int, resolution: float) -> Look:
    """Pool the residual variance and guard it for each arm.

    v_j = max(2 sigma^2, s_j^2, mean s_i^2 over the pool, q^2/6) in the pool, max(s_j^2, q^2/6)
    outside; the second and third guard against an arm, or a baseline, that is noisier than the
    rest, the last against a metric with step q (2 x the variance q^2/12 of rounding).
    """
    differences = paired_differences(values)
    n, mean, own = moments(differences)
    shared = pool(values, diverged, k=k)
    inside = shared.members
    step = resolution**2 / 6
    variance = np.maximum(own, step)
    spread = own.copy()
    if inside.any():
        floor = max(2 * shared.fit.variance, float(own[inside].mean()), step)
        variance[inside] = np.maximum(own[inside], floor)
        spread[inside] = 2 * shared.fit.variance
    variance[variance <= noise_floor(values) ** 2] = 0.0
    coarse = (resolution > 0) & (resolution**2 >= np.where(n >= 2, spread, np.inf))
    se = np.sqrt(np.divide(variance, n, out=np.full(len(n), np.nan), where=n > 0))
    return Look(n, mean, variance, se, coarse, shared, k)


def tail(at: Look, arm: int, difference: float, *, m: int) -> float:
    """P-value of a mean `difference` in `arm` with `m` hypotheses left; NaN below two pairs.

    In the pool: largest of m t's. Outside: own variance and Bonferroni. Without any variance t
    means nothing; there the sign-flip p of n equal differences, 2^-n, with Bonferroni.
    """
    n, se = int(at.n_pairs[arm]), float(at.se[arm])
    if np.isnan(se):
        return np.nan
    if se == 0:
        return min(1.0, m * 0.5**n) if difference > 0 else 1.0
    t = difference / se
    if at.pool.members[arm]:
        return dunnett.tail(t, m=m, nu=at.pool.fit.nu, r=at.pool.correlation)
    return min(1.0, m * float(stdtr(n - 1, -t)))


def step_down(at: Look, differences: Floats) -> Floats:
    """Adjusted p [arms] of mean `differences` (negate them for "worse"), family-wise, by step-down.

    The smallest p_j(m) of those left is taken, starting at m = k, and never falls below an earlier
    one. Of the pool that is the arm with the largest t, outside it the one with the smallest p of
    its own, whatever m; so either is a queue.
    """
    adjusted = np.full(len(differences), np.nan)
    known = np.flatnonzero(~np.isnan(at.se))
    together = at.pool.members[known] & (at.se[known] > 0)
    inside, outside = known[together], known[~together]
    own = [tail(at, j, float(differences[j]), m=1) for j in outside]
    queues = [
        deque(inside[np.argsort(-differences[inside] / at.se[inside], kind="stable")].tolist()),
        deque(outside[np.argsort(own, kind="stable")].tolist()),
    ]
    previous = 0.0
    for m in range(at.k, at.k - len(known), -1):
        if previous >= _CERTAIN:
            adjusted[[*queues[0], *queues[1]]] = previous
            break
        p, queue = min(
            ((tail(at, q[0], float(differences[q[0]]), m=m), q) for q in queues if q),
            key=lambda smallest: smallest[0],
        )
        previous = adjusted[queue.popleft()] = max(previous, p)
    return adjusted


def critical_value(at: Look, arm: int, *, alpha: float) -> float:
    """The c with `tail(c se) = alpha` over the whole family; infinite where no c reaches it."""
    n, se = int(at.n_pairs[arm]), float(at.se[arm])
    if np.isnan(se):
        return np.inf
    if se == 0:
        return 0.0 if at.k * 0.5**n <= alpha else np.inf
    if at.pool.members[arm]:
        return pooled_critical_value(at, alpha=alpha)
    return float(-stdtrit(n - 1, alpha / at.k))


def pooled_critical_value(at: Look, *, alpha: float) -> float:
    """The critical value that arms in the pool share; NaN if nothing is pooled."""
    if at.pool.fit.nu == 0:
        return np.nan
    return dunnett.critical_value(alpha, m=at.k, nu=at.pool.fit.nu, r=at.pool.correlation)


def half_widths(at: Look, *, alpha: float) -> Floats:
    """Half-widths [arms] of simultaneous 1 - 2 alpha intervals around the mean differences."""
    c = np.array([critical_value(at, j, alpha=alpha) for j in range(len(at.se))])
    known = np.isfinite(c)
    widths = np.full(len(c), np.inf)
    widths[known] = c[known] * at.se[known]
    return widths


def equivalence(at: Look, *, delta: float) -> Floats:
    """TOST p [arms] (Schuirmann 1987) against a difference of `delta` or more, either way."""
    room = delta - np.abs(at.mean_difference)
    return np.array([tail(at, j, float(room[j]), m=at.k) for j in range(len(room))])
