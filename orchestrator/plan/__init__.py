"""Hypotheses become a plan: levels, arms, seeds, cost, and the check that one variable differs."""

from orchestrator.plan.arms import unclipped
from orchestrator.plan.clipping import clip_alarms
from orchestrator.plan.cost import cost
from orchestrator.plan.levels import Facts, levels
from orchestrator.plan.margin import default_delta
from orchestrator.plan.preflight import diff, freeze
from orchestrator.plan.reach import reach
from orchestrator.plan.rounds import asked, foresee, plan_round
from orchestrator.plan.seeds import headline_seeds, seed_block

__all__ = [
    "Facts",
    "asked",
    "clip_alarms",
    "cost",
    "default_delta",
    "diff",
    "foresee",
    "freeze",
    "headline_seeds",
    "levels",
    "plan_round",
    "reach",
    "seed_block",
    "unclipped",
]
