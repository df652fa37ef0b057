"""Looking more than once: which arms of an ablation get more seeds; see docs/statistics.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.decide import rules
from orchestrator.decide.verdicts import judge
from orchestrator.nouns import FEWEST_SEEDS, Call, Comparison, Comparisons, Look, Verdict
from orchestrator.stats import sequential

ENDING = (Call.WORSE, Call.EQUIVALENT, Call.UNSTABLE, Call.FAILED)
"""Verdicts that more seeds are not spent on. `better` ends an arm as soon as it is a candidate."""


def at_look(compared: Comparisons, before: Look | None, *, alpha_screen: float) -> Look:
    """Judge one look and say which arms go on; pure, and all there is to the sequential design.

    `compared` holds every arm of the ablation, also those that ended at an earlier look (`before`;
    None at the first): they count in k and in the variance, but keep their comparison and verdict.
    `alpha_screen` is spent over all looks, as alpha is. The ablation ends with its last active arm,
    at its first candidate, or at the last look.
    """
    levels = sequential.levels(compared.looks, alpha_screen) if compared.looks else (alpha_screen,)
    fresh = judge(compared, alpha_screen=levels[compared.look - 1])
    active = before.going_on if before else tuple(c.arm for c in compared.arms)
    arms, verdicts = list(compared.arms), list(fresh)
    if before is not None:
        for j, (arm, verdict) in enumerate(
            zip(before.comparisons.arms, before.verdicts, strict=True)
        ):
            if arm.arm not in active:
                arms[j], verdicts[j] = arm, verdict
    merged = replace(compared, arms=tuple(arms))
    if compared.look >= len(compared.looks):
        return Look(merged, tuple(verdicts), ())
    winners = [v.arm for v in verdicts if v.is_candidate]
    going_on = []
    for j, arm in enumerate(arms):
        if arm.arm not in active or verdicts[j].is_candidate or verdicts[j].call in ENDING:
            continue
        if verdicts[j].call is Call.INCONCLUSIVE and is_hopeless(arm, merged):
            verdicts[j] = _dropped(verdicts[j], merged)
        elif winners:
            verdicts[j] = _cut_short(verdicts[j], winners)
        else:
            going_on.append(arm.arm)
    return Look(merged, tuple(verdicts), tuple(going_on))


def is_hopeless(c: Comparison, of: Comparisons) -> bool:
    """Whether a gain of delta (0 if there is none) has become too unlikely to spend more seeds."""
    if c.n_pairs < FEWEST_SEEDS or math.isnan(c.se) or rules.rescues(c):
        return False
    nu = of.nu if c.pooled else c.n_pairs - 1
    return sequential.is_hopeless(c.mean_difference, se=c.se, nu=nu, delta=of.metric.delta or 0.0)


def _dropped(verdict: Verdict, of: Comparisons) -> Verdict:
    amount = f"delta = {of.metric.delta:g}" if of.metric.delta else "0"
    return replace(
        verdict,
        reason=f"dropped: a gain >= {amount} is unlikely; {verdict.reason}",
        next_act="leave it out: seeds are better spent on other arms",
        seeds_needed=None,
        is_dropped=True,
    )


def _cut_short(verdict: Verdict, winners: Sequence[str]) -> Verdict:
    told = f"no more seeds were run, for {', '.join(winners)} is a candidate"
    return replace(verdict, reason=f"{verdict.reason}; {told}")
