"""Whether to clip, which candidate to begin with, why, and what is to be borne in mind."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from orchestrator.clip_nouns import Candidate, Flag
from orchestrator.plan.clip import optimizers
from orchestrator.plan.clip.backtest import default_horizon
from orchestrator.plan.clip.calibration import Calibration
from orchestrator.plan.clip.optimizers import Family
from orchestrator.plan.clip.outlook import Outlook
from orchestrator.plan.clip.pilot import Pilot

SPIKE_P99S = 2.0
"""Without a norm beyond twice p99 nothing happened that clipping would have prevented."""


STRANGLED = 0.2
"""Share of a pilot's steps that were clipped from which it is no unclipped one: watching.HIGH."""


def recommend(
    ahead: Outlook, candidates: Sequence[Candidate], kind: Family, flags: Sequence[Flag]
) -> tuple[str, str | None, str]:
    """Recommendation, default candidate, and why."""
    first = _first_things(flags)
    worst = max(_largest_excursion(c) for c in ahead.calibrations)
    spikes = sum(len(c.spikes.indices) for c in ahead.calibrations)
    if kind is Family.SIGN:
        return "no_clipping_needed", None, first + optimizers.remarks(kind, has_spikes=False)[0]
    if worst < math.log(SPIKE_P99S):
        return (
            "no_clipping_needed",
            None,
            f"{first}No norm went beyond {SPIKE_P99S:g} times the 99th percentile (the largest: "
            f"{math.exp(worst):.2g} times): there was nothing that clipping would have "
            f"prevented. The "
            "candidates are shown for a test.",
        )
    names = [c.name for c in candidates]
    wanted = ("light", "standard", "firm", "gap") if kind is Family.ADAM and not spikes else (
        "standard", "light", "firm", "gap")  # fmt: skip
    default = next(n for n in wanted if n in names)
    chosen = candidates[names.index(default)]
    seen = (
        f"{spikes} isolated spikes"
        if spikes
        else f"norms of up to {math.exp(worst):.2g} times the 99th percentile"
    )
    return (
        "clip",
        default,
        f"{first}{seen[0].upper()}{seen[1:]} were seen; max_norm = {chosen.max_norm:.3g} "
        f"({default}) "
        f"cuts them and is predicted to clip {chosen.clip_ratio.low:.1%} to "
        f"{chosen.clip_ratio.high:.1%} of the coming {ahead.horizon} steps.",
    )


def _first_things(flags: Sequence[Flag]) -> str:
    """What is to be done before any threshold."""
    return next((f.text + " " for f in flags if f.name == "nonfinite"), "")


def _largest_excursion(c: Calibration) -> float:
    """Log of the largest residual after the ramp over the body's 99th percentile of residuals."""
    r = c.spikes.residuals
    body = np.delete(r, c.spikes.indices - c.ramp_end)
    return float(r.max() - np.quantile(body, 0.99))


def remarks(
    examined: Sequence[Pilot], ahead: Outlook, kind: Family, horizon: int | None
) -> tuple[str, ...]:
    """What is to be borne in mind: of the checks, left-out pilots, the horizon, the optimizer."""
    notes = [note for p in examined for note in p.checked.notes]
    for p in examined:
        if p.refusal is not None:
            notes.append(f"Pilot {p.series.source or examined.index(p)} was left out: {p.refusal}")
    notes += [note for p in examined if (note := _strangled(p)) is not None]
    half = min(default_horizon(c) for c in ahead.calibrations)
    if horizon is not None and horizon > half:
        notes.append(
            f"The horizon of {horizon} steps is more than half of the window ({half}): on recorded "
            "trainings intervals held less often than they say that far ahead."
        )
    if not any(c.window.is_stable for c in ahead.calibrations):
        notes.append("No stable interval: treat the thresholds as a first guess and record on.")
    has_spikes = any(len(c.spikes.indices) for c in ahead.calibrations)
    return (*dict.fromkeys(notes), *optimizers.remarks(kind, has_spikes=has_spikes))


def _strangled(pilot: Pilot) -> str | None:
    """A pilot that was clipped in many of its steps shows the norms of that path only."""
    limit = pilot.series.max_norm_in_force
    if limit is None:
        return None
    share = float(np.mean(np.exp(pilot.checked.log_norms) > limit))
    if share <= STRANGLED:
        return None
    return (
        f"The pilot itself was clipped at {limit:.3g} in {share:.0%} of its steps. Norms depend on "
        "the path: if the training lives without clipping, record one so."
    )
