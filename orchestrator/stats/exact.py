"""Exact sign-flip test: under no difference, the two labels on a seed could as well be swapped."""

from __future__ import annotations

import numpy as np

from orchestrator.nouns import Floats

MOST_SEEDS = 12
"""2^12 sign vectors; the pooled t is as good as exact beyond, and 2^n grows out of hand."""

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
    signs = 1.0 - 2.0 * ((np.arange(2**seeds)[:, None] >> np.arange(seeds)) & 1)  # [2^n, seeds]
    null = signs @ scaled.T  # [2^n, arms], row 0 observed
    order = np.argsort(-null[0], kind="stable")
    largest_left = np.maximum.accumulate(null[:, order[::-1]], axis=1)[:, ::-1]
    p = (largest_left >= null[0, order] - TIE).mean(axis=0)
    adjusted = np.empty(arms)
    adjusted[order] = np.maximum.accumulate(p)
    return adjusted


def seeds_to_reach(alpha: float) -> int:
    """The fewest seeds at which 2^-n <= `alpha`: below, no outcome whatever can be significant."""
    return int(np.ceil(-np.log2(alpha) - TIE))
