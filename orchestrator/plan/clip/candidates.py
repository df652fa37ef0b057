"""The candidates: at most four thresholds, named by how firmly they clip."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.nouns import Floats
from orchestrator.plan.clip.calibration import Calibration
from orchestrator.telemetry.robust import robust_std

QUANTILES = {"standard": 0.99, "light": 0.995, "firm": 0.95}
MADS = 4.0
"""Median + 4 MAD of the log (MAD scaled to the standard deviation) clips next to nothing of a
normal body; on the recorded trainings it did as well as p95."""

EXCEEDANCES = 5.0  # independent steps that must lie beyond a quantile for it to be quoted
FEW = 200  # steps under which only p95 is quoted
FLOOR_MEDIANS = 1.25
"""Lower, a threshold lies in the body and is a hidden cut of the learning rate."""

FLOOR_QUANTILE = 0.90
GAP = float(np.log(1.5))
SAME = float(np.log(1.05))  # closer than 5 %: one candidate
ORDER = ("standard", "light", "firm", "gap")
"""Which of two merged candidates gives the name."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """A candidate before it is forecast: log of the threshold, and its quantile, if any."""

    name: str
    log_norm: float
    quantile: float | None


def thresholds(c: Calibration, *, n_eff: float | None = None) -> tuple[Threshold, ...]:
    """The candidates of one calibration, in the order of ORDER.

    `n_eff` is the number of independent steps that stand behind a quantile (None: this pilot's).
    """
    body = c.body
    low = floor(body)
    independent = c.n_eff if n_eff is None else n_eff
    found = [_raised(t, low) for t in (*_quantiles(c, independent), *_gap(c))]
    return merged(found)


def floor(body: Floats) -> float:
    """No candidate lies below 1.25 x the median, nor below p90, of the body [n] of log norms."""
    middle = float(np.median(body)) + np.log(FLOOR_MEDIANS)
    return max(float(middle), float(np.quantile(body, FLOOR_QUANTILE)))


def is_supported(quantile: float, c: Calibration, n_eff: float) -> bool:
    """Whether at least five of `n_eff` independent steps lie beyond a quantile of the body."""
    if len(c.body) < FEW and quantile > QUANTILES["firm"]:
        return False
    return n_eff * (1 - quantile) >= EXCEEDANCES


def _quantiles(c: Calibration, n_eff: float) -> list[Threshold]:
    body = c.body
    far = float(np.median(body)) + MADS * robust_std(body)
    offered = ("firm",) if c.heavy is not None else ("standard", "light", "firm")
    found = [
        Threshold(name, float(np.quantile(body, QUANTILES[name])), QUANTILES[name])
        for name in offered
        if is_supported(QUANTILES[name], c, n_eff)
    ]
    # A mixture's MAD spans both modes and says nothing of its tail.
    few = len(body) < FEW and found
    if c.modes is None and not few:
        light = [t for t in found if t.name == "light"]
        if not light or far > light[0].log_norm:
            found = [t for t in found if t.name != "light"] + [Threshold("light", far, None)]
    return sorted(found, key=lambda t: ORDER.index(t.name))


def _gap(c: Calibration) -> list[Threshold]:
    """Between the largest body residual and the smallest spike, when they are well apart."""
    if not len(c.spikes.indices):
        return []
    r = c.spikes.residuals
    at = c.spikes.indices - c.ramp_end
    smallest = float(r[at].min())
    largest = float(c.body.max()) - c.base
    if smallest - largest <= GAP:
        return []
    return [Threshold("gap", c.base + (smallest + largest) / 2, None)]


def _raised(t: Threshold, low: float) -> Threshold:
    return t if t.log_norm >= low else Threshold(t.name, low, None)


def merged(found: list[Threshold]) -> tuple[Threshold, ...]:
    """`found` without those that lie within 5 % of one before them in ORDER."""
    kept: list[Threshold] = []
    for t in sorted(found, key=lambda t: ORDER.index(t.name)):
        if all(abs(t.log_norm - other.log_norm) >= SAME for other in kept):
            kept.append(t)
    return tuple(kept)
