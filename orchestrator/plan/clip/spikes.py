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

TOP = 0.05  # share of steps whose excess tells how fast the tail falls
IMPROBABLE = 1e-3
"""Chance that a tail as heavy as seen reaches so far so often; below it, those steps are spikes."""

LOSS_SPREADS = 4.0
"""For the loss of a step whose norm is far out: a second witness need not be as sure as the first.
On recorded trainings it named no step that was not a bad batch, or the one after."""

SAMPLE = 2000  # steps at which the spread of the loss is read


@dataclass(frozen=True, slots=True, eq=False)
class Spikes:
    """`indices` [k] of spikes, `residuals` [n] over the rolling median, `spread` of the body's."""

    indices: Ints
    residuals: Floats
    spread: float


def spikes(
    log_norms: Floats, residuals: Floats | None = None, loss: Floats | None = None
) -> Spikes:  # fmt: skip
    """Find the spikes in a series of log norms [n]; `residuals` [n] if they are known.

    A step is far out beyond 6 spreads and 1.5 times the level. It is a spike if the tail of the
    body does not reach there, or if its loss is far out too: then it is the batch.
    """
    r = log_norms - rolling_median(log_norms, WINDOW) if residuals is None else residuals
    spread = lower_half_std(r)
    limit = max(SPREADS * spread, SMALLEST)
    far = np.flatnonzero(r > limit)
    if len(far):
        is_spike = _beyond_tail(r, far, limit) | (False if loss is None else _jumps(loss, far))
        far = far[is_spike & _stands_out(log_norms, far)]
    if len(far) > LARGEST_SHARE * len(r):
        far = far[:0]
    return Spikes(far, r, spread)


def _beyond_tail(r: Floats, far: Ints, limit: float) -> Bools:
    """Which of the steps `far` [k], beyond `limit`, lie where the body's tail puts not so many.

    Log norms above their 95th percentile u are taken as exponential (a Pareto tail of the norm;
    a normal one falls faster) with a mean excess that counts the far steps as lying at the limit:
    censored there, they make the tail as heavy as they are many, not as far as they lie (Deemer and
    Votaw 1955). The largest j of them are spikes if j or more beyond the smallest have a chance
    below IMPROBABLE, by Chernoff's bound for a Poisson count.
    """
    u = float(np.quantile(r, 1 - TOP))
    top = r[r > u]
    near = top[top <= limit] - u
    if not len(near):
        return np.zeros(len(far), bool)
    excess = (near.sum() + (len(top) - len(near)) * max(0.0, limit - u)) / len(near)
    order = np.argsort(-r[far], kind="stable")
    count = np.arange(1, len(far) + 1)
    expected = len(top) * np.exp(-(r[far][order] - u) / max(excess, 1e-300))
    with np.errstate(divide="ignore"):
        log_chance = count - expected + count * np.log(expected / count)
    improbable = np.flatnonzero((expected < count) & (log_chance < np.log(IMPROBABLE)))
    found = np.zeros(len(far), bool)
    if len(improbable):
        found[order[: improbable[-1] + 1]] = True
    return found


def _jumps(loss: Floats, at: Ints) -> Bools:
    """Whether the loss of the steps `at` lies far above that of the steps around each: [k]."""
    y = np.log(np.where(loss > 0, loss, np.nan))
    sample = np.unique(np.linspace(0, len(y) - 1, SAMPLE).astype(np.int64))
    usual = _over_median(y, sample)
    usual = usual[np.isfinite(usual)]
    if not len(usual):
        return np.zeros(len(at), bool)
    return _over_median(y, at) > max(LOSS_SPREADS * lower_half_std(usual), SMALLEST)


def _over_median(y: Floats, at: Ints) -> Floats:
    """`y` at each of `at` less the median of the steps around it that are finite: [k]."""
    half = WINDOW // 2
    padded = np.concatenate([np.full(half, np.nan), y, np.full(half, np.nan)])
    around = np.sort(padded[at[:, None] + np.arange(WINDOW)], axis=1)  # NaN last
    known = np.maximum(1, np.isfinite(around).sum(axis=1))
    over: Floats = y[at] - around[np.arange(len(at)), (known - 1) // 2]
    return over


def _stands_out(z: Floats, far: Ints) -> Bools:
    """Which of the far steps lie above every ordinary step near them: [k].

    Where two kinds of batches alternate the rolling median may jump between them; a step far above
    it is then still an ordinary one of the upper kind.
    """
    ordinary = z.copy()
    ordinary[far] = -np.inf
    reach = WINDOW // 2
    highest = [ordinary[max(0, i - reach) : i + reach + 1].max() for i in far]
    return np.array([z[i] > h + SMALLEST / 2 for i, h in zip(far, highest, strict=True)], bool)


def mean_excess(x: Floats) -> float:
    """How far the top 5 % lie above their lower end on average (Hill 1975 on logs): [n] -> scalar.

    0.42 std for a normal law, 1 / alpha for the log of a Pareto law.
    """
    threshold = float(np.quantile(x, 1 - TOP))
    top = x[x > threshold]
    return float(np.mean(top) - threshold) if len(top) else 0.0
