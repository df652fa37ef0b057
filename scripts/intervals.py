"""The interval that every bench tells beside a rate."""

from __future__ import annotations

import math

Z95 = 1.959964
"""Standard normal quantile of 0.975."""


def wilson(count: int, n: int) -> tuple[float, float]:
    """95 % interval of a rate (Wilson 1927), within [0, 1]."""
    p, scale = count / n, 1 / (1 + Z95**2 / n)
    middle = scale * (p + Z95**2 / (2 * n))
    half = scale * Z95 * math.sqrt(p * (1 - p) / n + Z95**2 / (4 * n**2))
    return max(0.0, middle - half), min(1.0, middle + half)
