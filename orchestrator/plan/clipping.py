"""Clipping in a campaign: thresholds, their matched controls and forecasts, all of one proposal.

The proposal (plan/clip, docs/clip.md) is made from the norms that the baseline's trials recorded
before clipping; of a trial that broke, from those before it did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from orchestrator.clip_nouns import CONTROL, MATCHED_LR, ClipAlarm
from orchestrator.nouns import Ablation, Arm, ClipForecast, Factor, Hypothesis, Move, Telemetry
from orchestrator.plan.arms import arm_at, at_present, off_value
from orchestrator.plan.clip import Survey, from_telemetry, survey, until_it_broke, watch
from orchestrator.plan.clip.optimizers import SAME_LR, Family, family

WANTED = ("firm", "standard", "light", "gap")
"""Which candidates become levels, the first two that there are: arms cost trials."""


def surveyed(telemetries: Sequence[Telemetry]) -> Survey | None:
    """The proposal from trials that differ in their seed; None if none recorded a norm."""
    recorded = [t for t in telemetries if len(t.series.get("grad_norm", ()))]
    if not recorded:
        return None
    return survey(
        [until_it_broke(from_telemetry(t)) for t in recorded],
        optimizer=None,
        n_parameters=None,
        horizon=None,
        current=None,
        rng=np.random.default_rng(0),
    )


def thresholds(found: Survey) -> tuple[float, ...]:
    """At most two candidates for a whole training, ascending; empty where the proposal refuses."""
    by_name = {c.name: c.from_start for c in found.proposal.candidates}
    return tuple(sorted(by_name[name] for name in [n for n in WANTED if n in by_name][:2]))


def control(
    ablation: Ablation, factors: Mapping[str, Factor], baseline: Arm, found: Survey
) -> tuple[Ablation | None, str]:
    """No clipping at the learning rate that moves as far as clipping does, and what to note.

    Due where a threshold removes over 10 % of SGD's update: it is a hidden learning rate then.
    """
    if not found.pilots or family(found.proposal.optimizer) is not Family.SGD:
        return None, ""
    clip = ablation.factor
    removed = {v: found.update_removed(v) for v in _limits(clip, ablation.arms).values()}
    firm = sorted(v for v, share in removed.items() if share > CONTROL)
    if not firm:
        return None, ""
    shares = ", ".join(f"{v:g}: {removed[v]:.0%}" for v in firm)
    told = f"share of SGD's update that max_norm removes: {shares}"
    if "lr" not in factors:
        return None, f"{told}; map lr under factors for the matched control"
    lr = at_present(factors["lr"], baseline)
    if isinstance(lr.baseline, bool) or not isinstance(lr.baseline, int | float):
        return None, f"{told}; no matched control, for {lr.key} is no number"
    scales = [found.lr_factor(v) for v in firm]
    rates = [float(f"{lr.baseline * s:.3g}") for s in scales if s < 1 - SAME_LR]
    if not rates:
        return None, f"{told}, all in rare steps: no matched control is due"
    off = off_value(clip)
    moved = () if clip.baseline == off else (clip.key,)
    factor = replace(lr, name=MATCHED_LR, levels=(), moves_with=(*lr.moves_with, *moved))
    start = replace(baseline, overrides=tuple({**dict(baseline.overrides), clip.key: off}.items()))
    arms = tuple(
        arm_at(factor, v, start if moved else baseline) for v in sorted(dict.fromkeys(rates))
    )
    claim = "lr lowered by as much as clipping removes, without clipping, improves the metric too"
    why = f"{told}, and may be a hidden learning rate"
    hypothesis = Hypothesis(
        ablation.hypothesis.finding, MATCHED_LR, Move.DOWN, claim, why, "train_loss", Move.DOWN
    )
    return Ablation(MATCHED_LR, hypothesis, factor, arms), ""


def forecasts(ablation: Ablation, found: Survey) -> tuple[ClipForecast, ...]:
    """What is predicted of every arm that clips, and of a baseline that does."""
    if not found.pilots:
        return ()
    limits = _limits(ablation.factor, ablation.arms)
    return tuple(ClipForecast(name, v, found.stages(v)) for name, v in limits.items())


def clip_alarms(forecast: ClipForecast, telemetry: Telemetry) -> tuple[ClipAlarm, ...]:
    """Where a training left what was predicted of its clipping; none where no norm is recorded."""
    if not len(telemetry.series.get("grad_norm", ())):
        return ()
    return watch(forecast, from_telemetry(telemetry))


def _limits(clip: Factor, arms: Sequence[Arm]) -> dict[str, float]:
    """The threshold by arm, the baseline's too, of those that have one."""
    values = {"baseline": clip.baseline} | {a.name: dict(a.overrides)[clip.key] for a in arms}
    return {
        name: float(v)
        for name, v in values.items()
        if isinstance(v, int | float) and not isinstance(v, bool) and v > 0
    }
