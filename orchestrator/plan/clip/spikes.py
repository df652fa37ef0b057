"""Isolated spikes of the norm, told apart from a heavy tail and from a second kind of batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.nouns import Floats, Ints
from orchestrator.plan.clip.robust import lower_half_std, rolling_median

WINDOW = 51
SPREADS = 6.0  # a normal body passes this once in 1e9 steps
SMALLEST = float(np.log(1.5))
LARGEST_SHARE = 0.03
"""More flagged steps than this are a second population of batches, not spikes."""

GAP_EXCESSES = 5.0
"""k spikes lie beyond a gap that is wider than (this + 2 ln k) / k mean excesses of the body's top 5 %.

In an exponential tail the gap below the k-th largest is exponential with mean excess / k (Renyi
1953), so that some gap exceeds it with a probability below exp(-5) pi^2 / 6, 1.1 %. A normal body of
1,000 steps ends near 3.3 std, and 5 x 0.42 = 2.1 std further is below the 6 std of a spike."""

TOP = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Spikes:
    """`indices` [k] of spikes, `residuals` [n] over the rolling median, `spread` of the body's.

    `is_second_population`: too many were found to be spikes; `indices` is then empty. `tail` [m] are
    steps that far out without a gap to the body.
    """

    indices: Ints
    residuals: Floats
    spread: float
    tail: Ints
    is_second_population: bool = False


def spikes(log_norms: Floats, residuals: Floats | None = None) -> Spikes:
    """Find the spikes in a series of log norms [n]; `residuals` [n] over its rolling median if known."""
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
    needed = (GAP_EXCESSES + 2 * np.log(count)) / count * mean_excess(body)
    wide = np.flatnonzero(gaps > np.where(count > 1, np.maximum(needed, SMALLEST), needed))
    beyond = np.sort(far[wide[0] :]) if len(wide) else none
    tail = np.sort(far[: wide[0]]) if len(wide) else np.sort(far)
    if len(beyond) > LARGEST_SHARE * len(r):
        return Spikes(none, r, spread, tail, is_second_population=True)
    return Spikes(beyond, r, spread, tail)


def mean_excess(x: Floats) -> float:
    """How far the top 5 % lie above their lower end on average (Hill 1975 on logs): [n] -> scalar.

    0.42 std for a normal law, 1 / alpha for the log of a Pareto law.
    """
    threshold = float(np.quantile(x, 1 - TOP))
    top = x[x > threshold]
    return float(np.mean(top) - threshold) if len(top) else 0.0
