"""The unclipped pilot of a clip proposal: the baseline with clipping off, on the first seeds.

Its trials are the campaign's own: `run` takes them for the baseline's where that does not clip, and
for those of the arm without clipping where it does.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from orchestrator import launch, plan, report
from orchestrator.campaign.trials import Trials
from orchestrator.errors import OrchestratorError
from orchestrator.nouns import FEWEST_SEEDS, Arm, Campaign
from orchestrator.record import opened

FEWEST = 2
"""Pilots that have to end in a result: below two nothing is known of the spread between seeds."""


def pilot(
    campaign: Campaign, display: report.Display, *, is_clipped: bool = False
) -> tuple[Path, ...]:
    """Run or resume the pilot, and return the folders of its trials that ended in a result.

    `is_clipped`: as the baseline clips, for a training that does not live without.
    """
    factor = next((f for f in campaign.factors if f.name == "clip"), None)
    if factor is None:
        raise OrchestratorError(
            f"campaign {campaign.name!r} maps no factor clip, so its pilot may be clipped.",
            "add factors: {clip: <key of max_norm>} to it",
        )
    ledger = opened(campaign)
    try:
        trials = Trials(campaign, ledger, display)
        arm = Arm("baseline") if is_clipped else plan.unclipped(factor)
        (config,) = launch.resolve(campaign.training, [arm.overrides])
        arm = replace(arm, config=config)
        seeds = plan.seed_block(campaign.protocol, number=1, stage="screen")[:FEWEST_SEEDS]
        if not trials.affordable([arm], seeds):
            raise OrchestratorError(
                f"budget.trials={campaign.budget.trials} does not pay for {len(seeds)} pilots.",
                "raise budget.trials",
            )
        how = f"clipped at {factor.baseline}" if is_clipped else "without clipping"
        trials.run(f"pilot {how} x {len(seeds)} seeds", [arm], seeds)
        trials.refuse_accidents(arm, seeds, fewest=FEWEST)
        ended = trials.record().of(arm, seeds)
        return tuple(Path(t.folder) for t, o in ended if o.status.is_result)
    finally:
        launch.close()
        ledger.close()
