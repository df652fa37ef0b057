"""Clip thresholds from unclipped gradient norms (docs/clip.md): proposed, or quantiles of the body.

The quantile rule stands in where no pilot can carry a proposal: too short, or it did not learn.

A threshold inside the body of the norms is a hidden cut of the learning rate under SGD; which
quantile of the upper tail is taken hardly matters.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from orchestrator.nouns import Floats, Telemetry
from orchestrator.plan.clip import from_telemetry, propose
from orchestrator.telemetry.robust import NORMAL, robust_std

FEWEST = 50
"""Valid steps below which no threshold is proposed (check 2)."""

WINDOW = 51
STABLE_SHARE = 0.6
FIRST_STEPS = 20
BREAKS = 10.0


def thresholds(norms: Floats) -> tuple[float, ...]:
    """At most two thresholds, ascending: p95 and p99 of the body of `norms` [n], in their unit.

    Spikes are no part of the body: above exp(max(6 s, ln 1.5)) times the running median of 51,
    s from the lower half of the residuals. A quantile q is quoted from 5 / (1 - q) norms on; below
    500 the median + 4 MAD of the logarithm stands in for p99. Never below 1.25 medians nor p90.
    Empty if the norms are too few, constant, or were clipped before they were recorded (one value
    shared by 1 % and 8 steps).
    """
    valid = norms[np.isfinite(norms) & (norms > 0)]
    if len(valid) < FEWEST or np.std(np.log(valid)) < 1e-6 or _was_clipped(valid):
        return ()
    body = valid[~_spikes(np.log(valid))]
    logs = np.log(body)
    light = float(np.exp(np.median(logs) + 4 * robust_std(logs)))
    firm = float(np.quantile(body, 0.95)) if len(body) >= 100 else light
    standard = float(np.quantile(body, 0.99)) if len(body) >= 500 else light
    least = max(1.25 * float(np.median(body)), float(np.quantile(body, 0.9)))
    low, high = sorted((max(firm, least), max(standard, least)))
    return (low, high) if high > 1.05 * low else (high,)


WANTED = ("firm", "standard", "light", "gap")
"""Which candidates become levels, the first two that there are: arms cost trials."""


def proposed(telemetries: Sequence[Telemetry]) -> tuple[float, ...]:
    """At most two thresholds, ascending, of the proposal (plan/clip); empty where it refuses."""
    pilots = [from_telemetry(t) for t in telemetries if len(t.series.get("grad_norm", ()))]
    if not pilots:
        return ()
    found = propose(
        pilots,
        optimizer=None,
        n_parameters=None,
        horizon=None,
        current=None,
        rng=np.random.default_rng(0),
    )
    by_name = {c.name: c.max_norm for c in found.candidates}
    return tuple(sorted(by_name[name] for name in [n for n in WANTED if n in by_name][:2]))


def unclipped_norms(telemetries: Sequence[Telemetry]) -> Floats | None:
    """The norms that thresholds are taken from, of all trials together; None if none recorded any.

    The last 60 % of a trial whose loss fell: past the ramp, and each seed with its own drift. Of a
    trial that did not learn only the first 20 steps, and of these what came before a norm of 10x
    the first: a network that broke has norms that mean nothing, quiet or not (check 7).
    """
    parts = []
    for telemetry in telemetries:
        if "grad_norm" in telemetry:
            norms = telemetry["grad_norm"].values
            late = norms[int((1 - STABLE_SHARE) * len(norms)) :]
            parts.append(late if _learned(telemetry) else _before_it_broke(norms))
    return np.concatenate(parts) if parts else None


def _before_it_broke(norms: Floats) -> Floats:
    first = norms[:FIRST_STEPS]
    broken = np.flatnonzero(~(first <= BREAKS * first[:1]))  # NaN too
    return first[: broken[0]] if len(broken) else first


def _learned(telemetry: Telemetry) -> bool:
    """Whether the loss ends clearly below its start: at most 90 % of it."""
    if "train/loss" not in telemetry or len(telemetry["train/loss"]) < FIRST_STEPS:
        return False
    loss = telemetry["train/loss"].values
    return bool(np.median(loss[-len(loss) // 20 :]) < 0.9 * min(loss[0], np.median(loss[:5])))


def _was_clipped(valid: Floats) -> bool:
    ordered = np.sort(valid)
    needed = max(8, len(valid) // 100)
    same = ordered[needed - 1 :] <= ordered[: len(ordered) - needed + 1] * (1 + 1e-4)
    return bool(np.any(same))


def _spikes(logs: Floats) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    padded = np.pad(logs, WINDOW // 2, mode="reflect")
    level = np.median(np.lib.stride_tricks.sliding_window_view(padded, WINDOW), axis=1)
    residuals = logs - level
    lower = residuals[residuals <= 0]
    s = NORMAL * float(np.median(np.abs(lower))) if len(lower) else 0.0
    return np.asarray(residuals > max(6 * s, np.log(1.5)))
