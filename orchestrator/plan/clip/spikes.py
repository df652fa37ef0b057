"""Isolated spikes of the norm, told apart from a heavy tail and from a second kind of batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.clip_nouns import Bools
from orchestrator.nouns import Floats, Ints
from orchestrator.plan.clip.robust import lower_half_std, rolling_median

WINDOW = 51
SPREADS = 6.0  # a normal body passes this once in 1e9 steps
SMALLEST = float(np.log(1.5))
LARGEST_SHARE = 0.03
"""More flagged steps than this are a second population of batches, not spikes."""

GAP_EXCESSES = 5.0
"""k spikes lie beyond a gap that is wider than (this + 2 ln k) / k mean excesses of the body's top
5 %.

In an exponential tail the gap below the k-th largest is exponential with mean excess / k (Renyi
1953), so that some gap exceeds it with a probability below exp(-5) pi^2 / 6, 1.1 %. A normal body
of 1,000 steps ends near 3.3 std, and 5 x 0.42 = 2.1 std further is below the 6 std of a spike.
Where the tail is heavy (mean excess over HEAVY spreads) each gap has to be wide by itself."""

GAP_HEAVY = 8.0

HEAVY = 0.85
"""Mean excess over the spread of the lower half: 0.42 normal, 0.97 Laplace, 1.67 Pareto (any
alpha)."""

TOP = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Spikes:
    """`indices` [k] of spikes, `residuals` [n] over the rolling median, `spread` of the body's.

    `is_second_population`: too many were found to be spikes; `indices` is then empty. `tail` [m]
    are steps that far out without a gap to the body.
    """

    indices: Ints
    residuals: Floats
    spread: float
    tail: Ints
    is_second_population: bool = False


def spikes(log_norms: Floats, residuals: Floats | None = None) -> Spikes:
    """Find the spikes in a series of log norms [n]; `residuals` [n] if they are known."""
    r = log_norms - rolling_median(log_norms, WINDOW) if residuals is None else residuals
    spread = lower_half_std(r)
    far = np.flatnonzero(r > max(SPREADS * spread, SMALLEST))
    none = np.empty(0, np.int64)
    if not len(far):
        return Spikes(none, r, spread, none)
    far = far[np.argsort(r[far], kind="stable")]
    body = np.delete(r, far)
    gaps = np.diff(np.concatenate([[body.max()], r[far]]))
    count = np.arange(len(far), 0, -1)  # that lie beyond each gap
    excess = mean_excess(body)
    if excess < HEAVY * spread:
        needed = (GAP_EXCESSES + 2 * np.log(count)) / count * excess
        wide = np.flatnonzero(gaps > np.where(count > 1, np.maximum(needed, SMALLEST), needed))
    else:
        wide = np.flatnonzero(gaps > GAP_HEAVY * excess)
    cut = int(wide[0]) if len(wide) else len(far)
    beyond, tail = np.sort(far[cut:]), np.sort(far[:cut])
    beyond = beyond[_stands_out(log_norms, beyond, far)]
    if len(beyond) > LARGEST_SHARE * len(r):
        return Spikes(none, r, spread, tail, is_second_population=True)
    return Spikes(beyond, r, spread, tail)


def _stands_out(z: Floats, beyond: Ints, far: Ints) -> Bools:
    """Which of `beyond` lie above every ordinary step near them: [k].

    Where two kinds of batches alternate the rolling median may jump between them; a step far above
    it is then still an ordinary one of the upper kind.
    """
    ordinary = z.copy()
    ordinary[far] = -np.inf
    reach = WINDOW // 2
    highest = [ordinary[max(0, i - reach) : i + reach + 1].max() for i in beyond]
    return np.array([z[i] > h + SMALLEST / 2 for i, h in zip(beyond, highest, strict=True)], bool)


def mean_excess(x: Floats) -> float:
    """How far the top 5 % lie above their lower end on average (Hill 1975 on logs): [n] -> scalar.

    0.42 std for a normal law, 1 / alpha for the log of a Pareto law.
    """
    threshold = float(np.quantile(x, 1 - TOP))
    top = x[x > threshold]
    return float(np.mean(top) - threshold) if len(top) else 0.0
