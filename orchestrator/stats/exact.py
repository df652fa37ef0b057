"""Exact sign-flip test: under no difference, the two labels on a seed could as well be swapped."""

from __future__ import annotations

import numpy as np

from orchestrator.nouns import Floats

MOST_SEEDS = 12
"""2^12 sign vectors; the pooled t is as good as exact beyond, and 2^n grows out of hand."""

_BLOCK = 1 << 22
"""Statistics held at once: 32 MB."""

TIE = 1e-9
"""Statistics closer than this are tied: rounding would break ties of a discrete null at random."""


def sign_flip(differences: Floats) -> Floats:
    """Adjusted p [arms] of "better" for `differences` [arms, seeds] without gaps.

    All 2^n sign vectors on whole seeds, all arms together; statistic sum d / sqrt(sum d^2),
    monotone in the paired t and finite at zero variance; step-down over the maximum (Westfall &
    Young 1993). The smallest p it can give is 2^-n: 0.125 at three seeds, 0.031 at five.
    """
    arms, seeds = differences.shape
    norm = np.sqrt((differences**2).sum(axis=1))
    scaled = np.divide(
        differences, norm[:, None], out=np.zeros_like(differences), where=norm[:, None] > 0
    )
    observed = scaled.sum(axis=1)
    order = np.argsort(-observed, kind="stable")
    rising = np.ascontiguousarray(scaled[order[::-1]].T)  # [seeds, arms], the largest last
    reached = np.zeros(arms, dtype=np.int64)
    size = max(1, _BLOCK // max(1, arms))
    for first in range(0, 2**seeds, size):
        vectors = np.arange(first, min(first + size, 2**seeds))[:, None]
        null = (1.0 - 2.0 * ((vectors >> np.arange(seeds)) & 1)) @ rising  # [size, arms]
        largest_left = np.maximum.accumulate(null, axis=1)
        reached += (largest_left >= observed[order[::-1]] - TIE).sum(axis=0)
    p = reached[::-1] / 2**seeds
    adjusted = np.empty(arms)
    adjusted[order] = np.maximum.accumulate(p)
    return adjusted


def seeds_to_reach(alpha: float) -> int:
    """The fewest seeds at which 2^-n <= `alpha`: below, no outcome whatever can be significant."""
    return int(np.ceil(-np.log2(alpha) - TIE))
