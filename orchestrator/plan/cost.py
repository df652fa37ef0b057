"""What a plan costs before it is launched: trials by stage, and time."""

from __future__ import annotations

import math

from orchestrator.nouns import Campaign, Plan


def cost(plan: Plan, campaign: Campaign, seconds_per_trial: float | None) -> str:
    """Trials of this round by stage, the fewest and the most of them, and how long they take.

    The fewest: every arm ends at the first look, and none is a candidate. The most: the baseline is
    not on record yet, no arm ends before the last look, the largest confirmation follows, and the
    headline is run. Time is trials in waves of `campaign.workers` times the median trial so far.
    """
    arms = sum(len(ablation.arms) for ablation in plan.ablations)
    looks = plan.looks or (len(plan.seeds),)
    confirming = len(plan.confirm_seeds) if arms else 0
    last = looks[-1] if arms else looks[0]
    stages = {
        "baseline": (looks[0], last),
        "screening": (arms * looks[0], arms * last),
        "confirming": (2 * (plan.confirm_from or confirming) if confirming else 0, 2 * confirming),
        "headline": (2 * campaign.protocol.headline_seeds if arms else 0,) * 2,
    }
    told = ", ".join(f"{_range(*counts)} {stage}" for stage, counts in stages.items() if counts[1])
    fewest = looks[0] * (1 + arms)
    total = sum(most for _, most in stages.values())
    least = f"{fewest} at least if no arm is a candidate, " if arms else ""
    text = f"Trials of this round: {told}; {least}{total} at most, of budget.trials="
    text += f"{campaign.budget.trials} over at most {campaign.budget.rounds} rounds. "
    workers = f"{campaign.workers} worker{'s' if campaign.workers > 1 else ''}"
    if seconds_per_trial is None:
        return text + f"Time with {workers}: known once the baseline has run."
    seconds = math.ceil(total / campaign.workers) * seconds_per_trial
    return text + f"At most {_duration(seconds)} with {workers}, {seconds_per_trial:.3g} s a trial."


def _range(fewest: int, most: int) -> str:
    return f"{most}" if fewest == most else f"{fewest} to {most}"


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
