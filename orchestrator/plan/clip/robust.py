"""Robust statistics of a series: medians over windows and blocks, spread, slope, correlation."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from orchestrator.nouns import Floats
from orchestrator.telemetry.robust import NORMAL

TRIMMED = 0.1  # share of a block left out at each end

_CHUNK = 20_000  # windows partitioned at once: 8 MB


def rolling_median(x: Floats, width: int) -> Floats:
    """Median over the `width` (odd) values around each one: [n] -> [n].

    At the ends the window is cut, not padded.
    """
    half = width // 2
    if len(x) <= width:
        return np.array([np.median(x[max(0, i - half) : i + half + 1]) for i in range(len(x))])
    views = np.lib.stride_tricks.sliding_window_view(x, width)
    inner = np.empty(len(views))
    for start in range(0, len(views), _CHUNK):
        rows = views[start : start + _CHUNK].copy()
        rows.partition(half, axis=1)
        inner[start : start + _CHUNK] = rows[:, half]
    head = [np.median(x[: i + half + 1]) for i in range(half)]
    tail = [np.median(x[i - half :]) for i in range(len(x) - half, len(x))]
    return np.concatenate([head, inner, tail])


def lower_half_std(residuals: Floats) -> float:
    """Standard deviation read from the values below zero, where spikes cannot be: [n] -> scalar.

    Equals the standard deviation for normal residuals around a median of zero.
    """
    below = -residuals[residuals < 0]
    return NORMAL * float(np.median(below)) if len(below) else 0.0


def block_edges(n: int, *, blocks: int, smallest: int) -> list[int]:
    """Edges of at most `blocks` equal blocks of at least `smallest` steps (one block at least)."""
    count = max(1, min(blocks, n // smallest))
    return [round(i * n / count) for i in range(count + 1)]


def block_levels(x: Floats, edges: list[int]) -> tuple[Floats, Floats]:
    """Mean of each block without its lowest and highest 10 %, and its error for independent steps.

    [n] -> [blocks], [blocks]. The error is the Winsorised one (Tukey and McLaughlin 1963). Not the
    median: of two kinds of batches in near equal shares it jumps from one to the other.
    """
    levels, errors = [], []
    for a, b in pairwise(edges):
        block = np.sort(x[a:b])
        cut = int(TRIMMED * len(block))
        inner = block[cut : len(block) - cut]
        spread = float(np.clip(block, inner[0], inner[-1]).std(ddof=1 if len(block) > 1 else 0))
        levels.append(float(inner.mean()))
        errors.append(spread / ((1 - 2 * TRIMMED) * np.sqrt(len(block))))
    return np.array(levels), np.array(errors)


def lag_one(x: Floats, *, pieces: int = 8, smallest: int = 50) -> float:
    """Lag-one autocorrelation around a straight line in each piece: what a slow drift is not.

    Corrected for the bias of fitting the line, (2 + 4 phi) / piece length: Marriott and Pope (1954)
    give (1 + 4 phi) for a mean; 2 instead of 1 was found by simulation and is right within 0.04.
    """
    edges = block_edges(len(x), blocks=pieces, smallest=smallest)
    above = below = 0.0
    for a, b in pairwise(edges):
        t = np.arange(b - a) - (b - a - 1) / 2
        piece = x[a:b] - x[a:b].mean()
        piece = piece - t * (t @ piece) / max(1.0, float(t @ t))
        above += float(piece[1:] @ piece[:-1])
        below += float(piece @ piece)
    if below == 0.0:
        return 0.0
    phi, length = above / below, len(x) / (len(edges) - 1)
    return min(0.99, phi + (2 + 4 * max(0.0, phi)) / length)


def variance_inflation(phi: float) -> float:
    """Steps that count as one independent step in an AR(1) of correlation `phi`; at least 1."""
    phi = max(0.0, phi)
    return (1 + phi) / (1 - phi)


def mean_inflation(phi: float, length: float) -> float:
    """Variance of the mean of an AR(1)'s block, over that read from its spread as if independent.

    `variance_inflation` for long blocks. A block of `length` steps not much longer than the
    correlation lasts shows too little spread: what it lacks, f of the whole, is in the mean itself.
    """
    phi = max(0.0, phi)
    ends = 2 * phi * (1 - phi**length) / (length * (1 - phi) ** 2)
    f = ((1 + phi) / (1 - phi) - ends) / length
    return float((length - 1) * f / max(1 - f, 1e-3))
