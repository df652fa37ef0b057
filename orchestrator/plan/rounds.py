"""A round's plan: one ablation per hypothesis, explicit arms, what the budget pays for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from orchestrator.nouns import (
    CONFIRMING,
    Ablation,
    Arm,
    Campaign,
    Factor,
    Hypothesis,
    Move,
    Plan,
    Policy,
    Role,
    Telemetry,
)
from orchestrator.plan import clipping
from orchestrator.plan.arms import arm_at, at_present, spelled
from orchestrator.plan.budget import affordable
from orchestrator.plan.clip import Survey
from orchestrator.plan.levels import Facts, levels
from orchestrator.plan.margin import default_delta
from orchestrator.plan.seeds import seed_block

LIKELY = {
    "lr": Move.EITHER,
    "weight_decay": Move.UP,
    "dropout": Move.UP,
    "warmup": Move.UP,
    "clip": Move.EITHER,
}
"""What is most often tried with a factor, before anything was measured; else both sides."""


def plan_round(
    campaign: Campaign,
    *,
    number: int,
    baseline: Arm,
    hypotheses: Sequence[Hypothesis],
    telemetries: Sequence[Telemetry],
    spent: int | None = None,
    earlier: Sequence[float] = (),
    left: int | None = None,
) -> Plan:
    """The ablations of round `number`: arms against `baseline`, each of them on every seed.

    `telemetries` are the baseline's, `spent` the trials run so far (None: the baseline's alone),
    `earlier` its finite scores on seeds that this round does not compare, `left` the ablations that
    may still be made (None: all that were declared). No product of factors: every arm differs from
    the baseline in one factor. At most `protocol.max_hypotheses` ablations, beside that of clipping
    its control where one is due, and only as many arms as `budget.trials` pays for together with a
    confirmation; what is left out is told in the notes.
    """
    left = campaign.protocol.max_ablations if left is None else left
    norms = clipping.surveyed(telemetries)
    drawn, notes = _ablations(campaign, baseline, hypotheses[:left], measured(telemetries, norms))
    control, told = _control(campaign, baseline, drawn, norms)
    drawn += control[: left - len(drawn)]
    known = campaign.protocol.looks[0] if spent is None else spent
    kept, trimmed = affordable(campaign, drawn, known)
    delta, margin = _margin(campaign, earlier)
    planned = _plan(campaign, number, baseline, kept, [*notes, *told, *trimmed, *margin])
    forecasts = [
        f for a in kept if a.name == "clip" and norms for f in clipping.forecasts(a, norms)
    ]
    return replace(planned, delta=delta, clipping=tuple(forecasts))


def _control(
    campaign: Campaign, baseline: Arm, drawn: Sequence[Ablation], norms: Survey | None
) -> tuple[list[Ablation], list[str]]:
    """The matched control of an ablation of clipping where one is due, and notes."""
    clip = next((a for a in drawn if a.name == "clip"), None)
    if clip is None or norms is None:
        return [], []
    factors = {factor.name: factor for factor in campaign.factors}
    control, note = clipping.control(clip, factors, baseline, norms)
    return [control] if control is not None else [], [note] if note else []


def asked(campaign: Campaign, tested: Collection[str]) -> tuple[Hypothesis, ...]:
    """What the user asks for (`ask`) and no round has tested: factors by name."""
    wanted = {factor.name: factor for factor in campaign.factors if factor.name in campaign.ask}
    return tuple(
        _likely(campaign, wanted[name], "asked", "the campaign asks for it")
        for name in campaign.ask
        if name not in tested
    )


def foresee(campaign: Campaign) -> Plan:
    """What round 1 may launch: for every factor that may vary the move most likely to come.

    Nothing was measured, so levels that take a measurement are told in the notes instead, and
    neither `max_hypotheses` nor the budget is applied: the findings will choose.
    """
    hypotheses = [
        _likely(campaign, factor, "", "not measured yet")
        for factor in campaign.factors
        if factor.role is Role.SCIENTIFIC and (factor.levels or factor.name in LIKELY)
    ]
    unlimited = replace(
        campaign, protocol=replace(campaign.protocol, max_hypotheses=max(1, len(hypotheses)))
    )
    drawn, notes = _ablations(unlimited, Arm("baseline"), hypotheses, Facts())
    return _plan(campaign, 1, Arm("baseline"), drawn, notes)


def _likely(campaign: Campaign, factor: Factor, finding: str, why: str) -> Hypothesis:
    claim = f"changing {factor.name} improves {campaign.metric.name}"
    move = LIKELY.get(factor.name, Move.EITHER)
    signal = ("clip_ratio", Move.EITHER) if factor.name == "clip" else ("train_loss", Move.DOWN)
    return Hypothesis(finding, factor.name, move, claim, why, *signal)


def measured(telemetries: Sequence[Telemetry], norms: Survey | None) -> Facts:
    """What the rules for levels take from the baseline's trials and the survey of their norms."""
    sums = [float(np.sum(t["lr"].values)) for t in telemetries if "lr" in t]
    ends = [int(s.steps[-1]) + 1 for t in telemetries for s in t.series.values() if len(s)]
    names = [str(t.header["optimizer"]) for t in telemetries if t.header.get("optimizer")]
    return Facts(
        total_steps=max(ends, default=None),
        optimizer=names[0] if names else "",
        lr_sum=float(np.median(sums)) if sums else None,
        thresholds=None if norms is None else clipping.thresholds(norms),
        refusal=norms.proposal.reason if norms and not norms.pilots else "",
    )


def _ablations(
    campaign: Campaign, baseline: Arm, hypotheses: Sequence[Hypothesis], facts: Facts
) -> tuple[list[Ablation], list[str]]:
    factors = {factor.name: factor for factor in campaign.factors}
    drawn: dict[str, Ablation] = {}
    notes = []
    for hypothesis in hypotheses:
        name, move = hypothesis.factor, hypothesis.move
        if len(drawn) == campaign.protocol.max_hypotheses or name in drawn:
            notes.append(f"left for a later round: {name} {move.value} ({hypothesis.finding})")
            continue
        factor = at_present(factors[name], baseline)
        values = levels(factor, move, facts)
        if values:
            arms = tuple(arm_at(factor, value, baseline) for value in values)
            drawn[name] = Ablation(name, hypothesis, factor, arms)
        else:
            notes.append(_no_level(factor, move, facts))
    return list(drawn.values()), notes


def _no_level(factor: Factor, move: Move, facts: Facts) -> str:
    way = {Move.UP: "up from", Move.DOWN: "down from", Move.EITHER: "on either side of"}[move]
    where = f"{factor.name}: no level lies {way} {spelled(factor.baseline)}"
    if factor.levels:
        return f"{where} among factors.{factor.name}.levels"
    if factor.name == "clip":
        return f"{where} that recorded gradient norms can tell. {facts.refusal}".rstrip()
    if factor.name == "warmup":
        return f"{where} before the number of steps has been measured"
    return where


def _margin(campaign: Campaign, earlier: Sequence[float]) -> tuple[float | None, list[str]]:
    """The round's delta, and where it comes from if it is not the user's."""
    named = campaign.metric.delta
    found = default_delta(earlier) if named is None else None
    if found is None:
        return named, []
    told = (
        f"delta = {found:.3g} by default: 0.95 standard deviations of {len(earlier)} earlier "
        "baseline seeds; metric.delta names another"
    )
    return found, [told]


def _plan(
    campaign: Campaign,
    number: int,
    baseline: Arm,
    ablations: Sequence[Ablation],
    notes: Sequence[str],
) -> Plan:
    protocol = campaign.protocol
    confirming = protocol.policy is Policy.PRODUCT
    return Plan(
        round=number,
        baseline=baseline,
        ablations=tuple(ablations),
        seeds=seed_block(protocol, number=number, stage="screen"),
        confirm_seeds=seed_block(protocol, number=number, stage="confirm") if confirming else (),
        alpha=protocol.alpha,
        alpha_screen=protocol.alpha_screen,
        notes=tuple(notes),
        looks=protocol.looks,
        confirm_from=CONFIRMING[0] if protocol.confirm_seeds is None else 0,
        delta=campaign.metric.delta,
    )
