"""`propose`: from recorded norms to thresholds, their clip ratios and the reasons; `as_json`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from orchestrator.clip_nouns import Candidate, ClipEvidence, Flag, NormSeries, Proposal
from orchestrator.errors import OrchestratorError, collect
from orchestrator.nouns import ClipStage
from orchestrator.plan.clip import forecast, optimizers, outlook
from orchestrator.plan.clip.backtest import EXPLORATORY, coverage, default_horizon, widening
from orchestrator.plan.clip.calibration import Calibration
from orchestrator.plan.clip.candidates import Threshold
from orchestrator.plan.clip.outlook import Outlook
from orchestrator.plan.clip.pilot import Pilot, examine
from orchestrator.plan.clip.recommendation import recommend, remarks
from orchestrator.plan.clip.stable import TOLERANCE

PRESENT = "present"
"""The name of the setting in force among what is forecast."""

LIFTED = {PRESENT: 0.0, "gap": 0.5}
"""Share of the lift to the loudest part that a threshold takes: what is in force stays, and `gap`
stays halfway to the spikes, which do not move with the level."""


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """A proposal, and what any other threshold would do to the same pilots.

    The methods may be asked only where the proposal is not refused.
    """

    proposal: Proposal
    calibrations: tuple[Calibration, ...] = ()
    pilots: tuple[Pilot, ...] = ()

    def update_removed(self, max_norm: float) -> float:
        """Share of the summed norm over the windows that clipping at `max_norm` takes away."""
        return 1 - outlook.kept(self.calibrations, math.log(max_norm))[0]

    def lr_factor(self, max_norm: float) -> float:
        """E[min(1, max_norm / norm)]: the learning rate of a control that moves as far."""
        return outlook.kept(self.calibrations, math.log(max_norm))[1]

    def stages(self, max_norm: float) -> tuple[ClipStage, ...]:
        """What a fresh training of this recipe will show under `max_norm`, part by part."""
        return outlook.staged(self.pilots, math.log(max_norm))


def propose(
    series: NormSeries | Sequence[NormSeries],
    *,
    optimizer: str | None,
    n_parameters: int | None,
    horizon: int | None,
    current: float | None,
    rng: np.random.Generator,
) -> Proposal:
    """What `max_norm` to try, judged from one unclipped pilot or from several seeds of one recipe.

    `horizon` is how many recorded steps ahead clip ratios are predicted (None: half of the window,
    as far as the intervals were found to hold); `current` is the threshold in force, None for no
    clipping. What is None is taken from the pilots where they tell it.
    """
    return survey(
        series, optimizer=optimizer, n_parameters=n_parameters, horizon=horizon, current=current,
        rng=rng,
    ).proposal  # fmt: skip


@np.errstate(all="ignore")  # a record may hold any number
def survey(
    series: NormSeries | Sequence[NormSeries],
    *,
    optimizer: str | None,
    n_parameters: int | None,
    horizon: int | None,
    current: float | None,
    rng: np.random.Generator,
) -> Survey:
    """As `propose`, and ready to be asked about other thresholds."""
    pilots = [series] if isinstance(series, NormSeries) else list(series)
    _validate(pilots, horizon=horizon, current=current, n_parameters=n_parameters)
    setting = _Setting(
        optimizer or next((p.optimizer for p in pilots if p.optimizer), None),
        n_parameters or next((p.n_parameters for p in pilots if p.n_parameters), None),
        next((p.eps for p in pilots if p.eps), None),
        current or next((p.max_norm_in_force for p in pilots if p.max_norm_in_force), None),
    )
    examined = [examine(p, rng) for p in pilots]
    usable = tuple(p for p in examined if p.calibration is not None)
    seen = _seen(examined, setting)
    refusal = _refusal(examined, usable)
    if refusal is not None:
        return Survey(replace(seen, reason=refusal))
    ahead = Outlook(usable, horizon or min(default_horizon(c) for c in _calibrations(usable)))
    told = _told(seen, ahead, setting, rng)
    said = remarks(examined, ahead, optimizers.family(setting.optimizer), horizon)
    return Survey(replace(told, remarks=said), ahead.calibrations, usable)


@dataclass(frozen=True, slots=True)
class _Setting:
    """What is known of the training that the norms do not show."""

    optimizer: str | None
    n_parameters: int | None
    eps: float | None
    current: float | None


def _seen(examined: Sequence[Pilot], setting: _Setting) -> Proposal:
    """What the record shows, before anything is proposed from it."""
    return Proposal(
        flags=_union(examined),
        n_steps=sum(len(p.series) for p in examined),
        n_used=0,
        recommendation="refused",
        reason="",
        dropped=_dropped(examined),
        sources=tuple(p.series.source for p in examined),
        optimizer=setting.optimizer,
    )


def _told(
    seen: Proposal, ahead: Outlook, setting: _Setting, rng: np.random.Generator
) -> Proposal:  # fmt: skip
    """The candidates with their forecasts, which of them to take and why, and for how long."""
    shown, evidence = _forecasts(ahead, setting, rng)
    proposed = tuple(c for c in shown if c.name != PRESENT)
    kind = optimizers.family(setting.optimizer)
    recommendation, default, reason = recommend(ahead, proposed, kind, seen.flags)
    first, c = ahead.pilots[0], ahead.calibrations[0]
    rows = tuple(row for p in ahead.pilots for row in p.backtest.rows)
    covered = coverage(rows)
    spikes = _spikes(ahead)
    inside = (int(first.checked.steps[c.window.first]), int(first.checked.steps[c.window.last - 1]))
    return replace(
        seen,
        n_used=sum(len(k.window) for k in ahead.calibrations),
        recommendation=recommendation,
        reason=reason,
        stable=inside if c.window.is_stable else None,
        window=inside,
        spikes=tuple(step for step, _ in spikes),
        spike_sizes=tuple(size for _, size in spikes),
        drift_per_1000_steps=1000 * c.window.slope / _stride(first),
        default=default,
        valid_until_step=_valid_until(first, c),
        horizon=ahead.horizon,
        candidates=proposed,
        present=next((c for c in shown if c.name == PRESENT), None),
        stages=outlook.stages(first),
        backtest=rows,
        is_exploratory=covered is not None and covered < EXPLORATORY,
        evidence=evidence,
    )


def _forecasts(
    ahead: Outlook, setting: _Setting, rng: np.random.Generator
) -> tuple[tuple[Candidate, ...], ClipEvidence]:
    """The candidates and the present setting, forecast, and the curve of ratio against max_norm."""
    found = [*outlook.pooled_thresholds(ahead.calibrations)]
    if setting.current:
        found.append(Threshold(PRESENT, math.log(setting.current), None))
    grid = outlook.grid(ahead.calibrations[0])
    simulated = ahead.simulated(np.concatenate([[t.log_norm for t in found], grid]), rng)
    widen = max(widening(c) for c in ahead.calibrations)
    raised = outlook.lift(ahead.pilots)
    shown = tuple(
        outlook.candidate(
            t, forecast.interval(simulated[:, i], widen=widen), ahead,
            raised=raised * LIFTED.get(t.name, 1.0),
            optimizer=setting.optimizer, n_parameters=setting.n_parameters, eps=setting.eps,
        )
        for i, t in enumerate(found)
    )  # fmt: skip
    return shown, outlook.evidence(ahead.pilots[0], grid, simulated[:, len(found) :])


def _spikes(ahead: Outlook) -> list[tuple[int, float]]:
    """(step, size over the level) of every spike, by step."""
    return sorted(
        (int(p.checked.steps[i]), float(np.exp(k.spikes.residuals[i - k.ramp_end])))
        for p, k in zip(ahead.pilots, ahead.calibrations, strict=True)
        for i in k.spikes.indices
    )


# --- what is asked for -----------------------------------------------------------------------


def _validate(
    pilots: Sequence[NormSeries], *, horizon: int | None, current: float | None,
    n_parameters: int | None,
) -> None:  # fmt: skip
    errors = []
    if not pilots:
        errors.append(OrchestratorError("no pilot given", "give at least one series of norms"))
    if current is not None and not (math.isfinite(current) and current > 0):
        errors.append(
            OrchestratorError(
                f"current max_norm is {current}",
                "a negative max_norm flips the gradients' sign and 0 freezes the model; give a "
                "positive "
                "number, or nothing where nothing is clipped",
            )
        )
    for name, value in (("horizon", horizon), ("n_parameters", n_parameters)):
        if value is not None and value < 1:
            errors.append(OrchestratorError(f"{name} is {value}", "give a positive whole number"))
    collect(errors)


# --- over pilots -----------------------------------------------------------------------------

RECORDING = {
    "all_nonfinite",
    "zero_norms",
    "constant",
    "already_clipped",
    "amp_scaled",
    "implausible_level",
}
"""Refusals that speak of how norms are recorded: what one pilot shows is true of all."""


def _calibrations(usable: Sequence[Pilot]) -> tuple[Calibration, ...]:
    return tuple(p.calibration for p in usable if p.calibration is not None)


def _refusal(examined: Sequence[Pilot], usable: Sequence[Pilot]) -> str | None:
    """Why nothing is proposed: no usable pilot, or one that shows the recorder to be wrong."""
    refused = [p for p in examined if p.refusal is not None]
    wrong = [p for p in refused if p.flags[-1].name in RECORDING]
    first = (wrong or (refused if not usable else []))[:1]
    return first[0].refusal if first else None


def _union(examined: Sequence[Pilot]) -> tuple[Flag, ...]:
    """Flags of all pilots, each name once; where not all pilots have it, with how many do."""
    found: dict[str, Flag] = {}
    for flag in (f for p in examined for f in p.flags):
        found.setdefault(flag.name, flag)
    if len(examined) == 1:
        return tuple(found.values())
    counts = {name: sum(any(f.name == name for f in p.flags) for p in examined) for name in found}
    return tuple(
        Flag(name, f"{f.text} (in {counts[name]} of {len(examined)} pilots)")
        for name, f in found.items()
    )


def _dropped(examined: Sequence[Pilot]) -> dict[str, int]:
    names = {name for p in examined for name in p.checked.dropped}
    return {n: sum(p.checked.dropped.get(n, 0) for p in examined) for n in sorted(names)}


def _stride(pilot: Pilot) -> float:
    """Optimizer steps per valid row."""
    steps = pilot.checked.steps
    return max(1.0, float(np.median(np.diff(steps))))


def _valid_until(pilot: Pilot, c: Calibration) -> int:
    """Half a window on, or until the drift has moved the level by 25 %, whichever comes first."""
    rows = float(default_horizon(c))
    if c.window.is_drifting:
        rows = min(rows, TOLERANCE / abs(c.window.slope))
    return int(pilot.checked.steps[-1] + max(1.0, rows) * _stride(pilot))
