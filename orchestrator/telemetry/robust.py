"""Robust statistics of a curve, for signals, for rules and for thresholds."""

from __future__ import annotations

import numpy as np

from orchestrator.nouns import Floats, Ints, Series

NORMAL = 1.4826
"""The median absolute deviation of normal values times this is their standard deviation."""


def robust_std(values: Floats) -> float:
    """1.4826 MAD of [n]: the standard deviation of normal values (Leys et al. 2013); 0 of none."""
    return NORMAL * float(np.median(np.abs(values - np.median(values)))) if len(values) else 0.0


def theil_sen(x: Floats | Ints, y: Floats) -> float:
    """Median of the slopes of all pairs (Theil 1950, Sen 1968); [n], [n], n at least 2."""
    first, second = np.triu_indices(len(x), k=1)
    return float(np.median((y[second] - y[first]) / (x[second] - x[first])))


def finite(series: Series) -> Series:
    """The points whose value is finite."""
    keep = np.isfinite(series.values)
    return Series(series.steps[keep], series.values[keep], series.unit)
