"""The shape of the body in the window: two kinds of batches, a heavy tail, correlated steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.clip_nouns import Flag
from orchestrator.nouns import Floats, Ints
from orchestrator.plan.clip.robust import lower_half_std
from orchestrator.plan.clip.spikes import mean_excess

CORRELATED = 0.25  # lag-one correlation from which fewer than 60 % of the steps count
CORRELATED_ERRORS = 3.5  # standard errors 1/sqrt(n)

HEAVY = 0.85
"""Mean excess over the spread of the lower half: 0.42 normal, 0.97 Laplace, 1.67 Pareto (any
alpha)."""

SMALLEST_MODE = 0.03  # share of steps; fewer are spikes
SEPARATION = 3.0  # Ashman, Bird and Zepf (1994): two modes are seen from D = 2
VALLEY = 0.5  # density between the modes over that of the lower mode
INTERLEAVED = 0.3  # changes of mode, over those of batches drawn independently


def autocorrelated(phi: float, n: int) -> Flag | None:
    """Neighbouring steps resemble each other: `phi` is the lag-one correlation over `n` steps."""
    if phi < max(CORRELATED, CORRELATED_ERRORS / np.sqrt(n)):
        return None
    return Flag(
        "autocorrelated",
        f"Neighbouring norms are correlated ({phi:.2f}): {n} steps count as about "
        f"{n * (1 - phi) / (1 + phi):.0f}. Are batches shuffled?",
    )


def heavy_tail(residuals: Floats) -> Flag | None:
    """The upper tail falls far more slowly than the lower half says: [n] around a median of 0."""
    spread = lower_half_std(residuals - np.median(residuals))
    if spread == 0.0:
        return None
    ratio = mean_excess(residuals) / spread
    top = max(1.0, 0.05 * len(residuals))
    if ratio < HEAVY + 0.5 / np.sqrt(top):
        return None
    return Flag(
        "heavy_tail",
        f"The upper tail is heavy (mean excess {ratio:.2f} of the body's spread, 0.42 for a "
        "log-normal law): high quantiles are uncertain. Offered are p95 and median + 4 MAD, with "
        "wider intervals.",
    )


@dataclass(frozen=True, slots=True, eq=False)
class Modes:
    """Two kinds of batches: log levels of both, and which steps are in the upper one."""

    lower: float
    upper: float
    is_upper: np.ndarray[tuple[int], np.dtype[np.bool_]]
    period: int | None


def modes(z: Floats) -> Modes | None:
    """Two interleaved, well separated modes of the log norms of a window [n], or None."""
    fit = _two_normals(z)
    if fit is None:
        return None
    share, center, spread = fit
    apart = (center[1] - center[0]) / np.sqrt((spread**2).mean())
    if share.min() < SMALLEST_MODE or apart < SEPARATION:
        return None
    cut = _valley(z, center)
    if cut is None:
        return None
    upper = z > cut
    p = float(upper.mean())
    changes = float(np.mean(upper[1:] != upper[:-1]))
    if p < SMALLEST_MODE or 1 - p < SMALLEST_MODE or changes < INTERLEAVED * 2 * p * (1 - p):
        return None
    low, high = float(np.median(z[~upper])), float(np.median(z[upper]))
    rare = np.flatnonzero(upper) if p <= 0.5 else np.flatnonzero(~upper)
    return Modes(low, high, upper, _period(rare))


def bimodal(found: Modes, steps: Ints) -> Flag:
    """Both modes and which batches are in the rarer one."""
    share = float(found.is_upper.mean())
    name, rare = ("upper", found.is_upper) if share <= 0.5 else ("lower", ~found.is_upper)
    where = steps[rare]
    which = (
        f"every {found.period} steps from step {where[0]}"
        if found.period
        else "steps " + ", ".join(str(s) for s in where[:8]) + (", ..." if len(where) > 8 else "")
    )
    return Flag(
        "bimodal",
        f"Two kinds of batches: norms around {np.exp(found.lower):.3g} ({1 - share:.0%}) and "
        f"around "
        f"{np.exp(found.upper):.3g} ({share:.0%}); the {name} mode is {which}. A threshold between "
        "them clips one kind of data, not spikes.",
    )


def _two_normals(z: Floats) -> tuple[Floats, Floats, Floats] | None:
    """Shares, centres and standard deviations of a mixture of two normals, by EM."""
    z = z if len(z) <= 20_000 else z[:: len(z) // 20_000 + 1]
    cut = float(z.mean())
    for _ in range(30):
        low, high = z[z <= cut], z[z > cut]
        if not len(low) or not len(high):
            return None
        moved = (float(low.mean()) + float(high.mean())) / 2
        if abs(moved - cut) < 1e-9:
            break
        cut = moved
    share = np.array([len(low), len(high)]) / len(z)
    center = np.array([low.mean(), high.mean()])
    smallest = 1e-3 * float(z.std()) + 1e-12
    spread = np.maximum([low.std(), high.std()], smallest)
    for _ in range(60):
        log_density = -0.5 * ((z[:, None] - center) / spread) ** 2 + np.log(share / spread)
        log_density -= log_density.max(axis=1, keepdims=True)
        weight = np.exp(log_density)
        weight /= weight.sum(axis=1, keepdims=True)
        total = np.maximum(weight.sum(axis=0), 1e-9)
        share = total / total.sum()
        center = (weight * z[:, None]).sum(axis=0) / total
        variance = (weight * (z[:, None] - center) ** 2).sum(axis=0) / total
        spread = np.maximum(np.sqrt(variance), smallest)
    order = np.argsort(center)
    return share[order], center[order], spread[order]


def _valley(z: Floats, center: Floats) -> float | None:
    """Place of lowest density between two centres, if it is a valley; else None."""
    edges = np.linspace(center[0], center[1], 12)
    width = edges[1] - edges[0]
    counts = np.histogram(z, bins=edges)[0]
    at_modes = [np.mean(np.abs(z - c) < width / 2) * len(z) for c in center]
    inner = counts[1:-1] if len(counts) > 4 else counts
    smooth = (inner[:-1] + inner[1:]) / 2
    bottom = int(np.argmin(smooth))
    if smooth[bottom] > VALLEY * min(at_modes):
        return None
    return float(edges[1 + bottom + 1])


def _period(rare: Ints) -> int | None:
    """The step between rare batches if it is nearly always the same."""
    if len(rare) < 4:
        return None
    apart = np.diff(rare)
    usual = int(np.median(apart))
    return usual if usual > 1 and float(np.mean(apart == usual)) > 0.9 else None
