"""The smallest difference worth acting on, where the user has not named one."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

EARLIER_SEEDS = 10
"""Fewest seeds a default may rest on: with 5, an arm that differs by exactly delta = 2 SD is called
equivalent in up to 16 % instead of 5 % (../docs/statistics.md, "delta")."""

SUPERIOR_IN_THREE_OF_FOUR = 0.95
"""In standard deviations of a run: one run of the arm then beats one of the baseline in 75 % of
pairs, for Phi(0.95 / sqrt 2) = 0.75 (Bouthillier et al. 2021 act on 0.75)."""


def default_delta(earlier: Sequence[float]) -> float | None:
    """A delta from the baseline's finite scores on `earlier` seeds, in their unit.

    None where there are fewer than ten, or all are equal. They must not be seeds that are going to
    be compared: a margin from the same few seeds is not safe.
    """
    if len(earlier) < EARLIER_SEEDS:
        return None
    return SUPERIOR_IN_THREE_OF_FOUR * statistics.stdev(earlier) or None
