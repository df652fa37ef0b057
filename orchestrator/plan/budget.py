"""Which arms a round can pay for: those whose verdicts are expected to tell the most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.clip_nouns import MATCHED_LR
from orchestrator.nouns import Ablation, Campaign, Policy
from orchestrator.plan.seeds import seed_block
from orchestrator.stats import sequential
from orchestrator.stats.power import power

EFFECT = 1.0
"""Gain that is planned for, in standard deviations of single runs. Ours: before a trial has run
nothing tells a hypothesis' effect from another's, so it must only be the same for all."""

PRIOR = 0.5
"""Chance that a hypothesis is true. Ours, and for the same reason the same for all."""


def affordable(
    campaign: Campaign, drawn: Sequence[Ablation], spent: int
) -> tuple[list[Ablation], list[str]]:
    """What of `drawn` the budget pays for, and a note of what was left out.

    As if no arm ended before the last look, and the largest confirmation followed: what is begun
    can be finished. Kept are, of each ablation, the first arms, as many as make the expected
    information (`information`) of all together the largest; of equals those of earlier ablations.
    """
    protocol, budget = campaign.protocol, campaign.budget.trials
    seeds, more = protocol.looks[-1], protocol.looks[-1] - protocol.looks[0]
    confirming = 2 * len(seed_block(protocol, number=1, stage="confirm"))
    if protocol.policy is Policy.OPTIMISE:
        confirming = 0
    room = max(0, (budget - spent - more - confirming) // seeds)
    wanted = sum(len(ablation.arms) for ablation in drawn)
    if wanted <= room:
        return list(drawn), []
    level = sequential.levels(protocol.looks, protocol.alpha_screen)[-1]
    counts = _split(drawn, room, seeds, level)
    pairs = list(zip(drawn, counts, strict=True))
    left_out = [arm.name for a, count in pairs for arm in a.arms[count:]]
    most = "at most " if more or protocol.confirm_seeds is None else ""
    note = (
        f"budget.trials={budget} leaves {max(0, budget - spent)} trials, of which a confirmation "
        f"takes {most}{confirming} and an arm {most}{seeds}; left out, as the rest is expected to "
        f"tell more: {', '.join(left_out)}. "
        f"budget.trials={spent + more + confirming + wanted * seeds} would pay for all "
        f"{wanted} arms"
    )
    return [replace(a, arms=a.arms[:count]) for a, count in pairs if count], [note]


def information(count: int, *, of: int, seeds: int, level: float) -> float:
    """Bits that the verdict on `count` arms, out of `of`, is expected to tell of a hypothesis.

    The mutual information of "one of the `of` levels gains `EFFECT`", which is so with chance
    `PRIOR` and as likely for each level, and of "an arm is found better" at `level` after `seeds`
    seeds, which happens with the chance of `stats.power`, or of `level` where there is nothing to
    be found (Lindley 1956, "On a measure of the information provided by an experiment").
    """
    if not count:
        return 0.0
    share = count / of
    found = share * power(EFFECT, n=seeds, k=count, alpha=level, rho=0.0) + (1 - share) * level
    told = PRIOR * found + (1 - PRIOR) * level
    return _entropy(told) - PRIOR * _entropy(found) - (1 - PRIOR) * _entropy(level)


def _entropy(chance: float) -> float:
    """In bits, of an event and its opposite."""
    return -sum(p * math.log2(p) for p in (chance, 1 - chance) if p > 0)


def _split(drawn: Sequence[Ablation], room: int, seeds: int, level: float) -> tuple[int, ...]:
    """Arms of each ablation, `room` in all; found exactly, one ablation after another.

    Of the ways to use up as many arms, all but the best are forgotten. Those with clipping are kept
    apart, for its control comes later: it is worth something beside clipping only, and whole.
    """
    best: dict[tuple[int, bool], tuple[float, tuple[int, ...]]] = {(0, False): (0.0, ())}
    for ablation in drawn:
        of, ways = len(ablation.arms), best
        told = [information(c, of=of, seeds=seeds, level=level) for c in range(of + 1)]
        best = {}
        for (used, clips), (bits, counts) in ways.items():
            control = [of] if clips else [0]
            for count in control if ablation.name == MATCHED_LR else range(of + 1):
                way = (used + count, clips or (ablation.name == "clip" and count > 0))
                candidate = (round(bits + told[count], 9), (*counts, count))
                if way[0] <= room:
                    best[way] = max(best.get(way, candidate), candidate)
    return max(best.values())[1]
