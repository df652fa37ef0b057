"""What a plan costs before it is launched: trials by stage, and time."""

from __future__ import annotations

import math

from orchestrator.nouns import Campaign, Plan


def cost(plan: Plan, campaign: Campaign, seconds_per_trial: float | None) -> str:
    """Trials of this round by stage, the most that can come of them, and how long they take.

    The worst case: the baseline is not on record yet, a candidate is confirmed, and the headline is
    run. Time is trials in waves of `campaign.workers` times the median trial so far.
    """
    protocol = campaign.protocol
    arms = sum(len(ablation.arms) for ablation in plan.ablations)
    stages = {
        "baseline": len(plan.seeds),
        "screening": arms * len(plan.seeds),
        "confirming": 2 * len(plan.confirm_seeds) if arms else 0,
        "headline": 2 * protocol.headline_seeds if arms else 0,
    }
    total = sum(stages.values())
    told = ", ".join(f"{count} {stage}" for stage, count in stages.items() if count)
    text = f"Trials of this round: {told}; {total} at most, of budget.trials="
    text += f"{campaign.budget.trials} over at most {campaign.budget.rounds} rounds. "
    workers = f"{campaign.workers} worker{'s' if campaign.workers > 1 else ''}"
    if seconds_per_trial is None:
        return text + f"Time with {workers}: known once the baseline has run."
    seconds = math.ceil(total / campaign.workers) * seconds_per_trial
    return text + f"At most {_duration(seconds)} with {workers}, {seconds_per_trial:.3g} s a trial."


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
