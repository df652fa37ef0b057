"""Looking more than once: levels that keep the error over all looks, and when to stop an arm."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import stdtr, stdtrit

_SEQUENCES = 1_000_000  # and their mirror images: error of a level under 1 %; 0.7 s
_UNLIKELY = 0.80


@lru_cache(maxsize=32)
def levels(looks: tuple[int, ...], alpha: float) -> tuple[float, ...]:
    """The level at each of `looks` (seeds, ascending, from 2 on) that spends `alpha` in all.

    By look n, alpha (n / n_max)^2 is spent. Calibrated on sequences of paired t tests of pure noise
    (fixed stream): levels from normal theory let more through at so few seeds. Made for one arm;
    with more, the family-wise error stays below.
    """
    if len(looks) == 1:
        return (alpha,)
    rng = np.random.default_rng(0)
    total, squares = np.zeros(_SEQUENCES), np.zeros(_SEQUENCES)
    running = np.ones((2, _SEQUENCES), dtype=np.bool_)  # each sequence, and its mirror image
    found, seen, spent = [], 0, 0.0
    for n in looks:
        for _ in range(n - seen):
            difference = rng.standard_normal(_SEQUENCES)
            total += difference
            squares += difference**2
        t = total / np.sqrt(n * (squares - total**2 / n) / (n - 1))
        both = np.stack([t, -t])
        share = alpha * (n / looks[-1]) ** 2 - spent
        crossing = max(1, round(both.size * share))
        limit = float(np.partition(both[running], -crossing)[-crossing])
        found.append(float(stdtr(n - 1, -limit)) if seen else share)  # the first is exact
        running &= both < limit
        seen, spent = n, spent + share
    return tuple(found)


def is_hopeless(mean_difference: float, *, se: float, nu: float, delta: float) -> bool:
    """Whether a gain of `delta` (0 if nobody named one) is so unlikely that seeds are better spent.

    The one-sided upper 80 % limit of the difference lies below it. Non-binding: whoever stops here
    can only lose power, never raise the error.
    """
    return mean_difference + float(stdtrit(nu, _UNLIKELY)) * se < delta
