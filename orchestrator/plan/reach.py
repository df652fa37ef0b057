"""Which effect a plan can find, said before a seed is spent."""

from __future__ import annotations

from functools import partial

from orchestrator.nouns import Campaign, Plan
from orchestrator.stats import sequential
from orchestrator.stats.power import detectable_effect

POWER = 0.8
RHO = 0.0
"""Correlation of runs that share a seed. None is assumed: where there is one, less can be found."""


def reach(plan: Plan, campaign: Campaign, baseline_sd: float | None) -> str:
    """The gain that each size of ablation, and the confirmation, finds with chance 0.8.

    In standard deviations of single runs, and in the metric's unit once the baseline has shown its
    spread over seeds (`baseline_sd`). Above the plan's delta the design may miss what matters, and
    that is said. Of several looks, what the last finds at its own level: the earlier ones only add
    to it, and what the dropping of arms takes away (docs/statistics.md) is left out.
    """
    n, at_most = len(plan.seeds), "at most " if len(plan.looks) > 1 else ""
    looks = plan.looks or (n,)
    level = sequential.levels(looks, plan.alpha_screen)[-1]
    amount = partial(_amount, unit=campaign.metric.unit, delta=plan.delta, baseline_sd=baseline_sd)
    told = [
        f"{k} arm{'s' if k > 1 else ''} x {at_most}{n} seeds find a gain of "
        + amount(detectable_effect(n=n, k=k, alpha=level, rho=RHO))
        for k in sorted({len(ablation.arms) for ablation in plan.ablations})
    ]
    m = len(plan.confirm_seeds)
    if told and m:
        found = detectable_effect(n=m, k=1, alpha=plan.alpha, rho=RHO)
        most = "at most " if plan.confirm_from else ""
        told.append(f"the confirmation on {most}{m} finds {amount(found)}")
    if not told:
        return ""
    text = f"With probability {POWER:g}, " + "; ".join(told) + "."
    return text + " Runs that correlate over seeds find less than that too."


def _amount(effect: float, *, unit: str, delta: float | None, baseline_sd: float | None) -> str:
    text = f"{effect:.2g} SD"
    if baseline_sd is None:
        return text
    amount = effect * baseline_sd
    text += f" ({amount:.2g} {unit}".rstrip()
    if delta is not None and amount > delta:
        text += f", more than delta={delta:.3g}"
    return text + ")"
