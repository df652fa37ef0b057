"""A round's ablations on their seeds, look by look, until each has ended.

One step in the ledger per look and ablation: whoever resumes goes on at the very look.
"""

from __future__ import annotations

from orchestrator import decide
from orchestrator.campaign import measured
from orchestrator.campaign.trials import Trials
from orchestrator.nouns import Ablation, AblationResult, Arm, Look, Plan
from orchestrator.record import look_step, looks_at, step


def screen(trials: Trials, planned: Plan) -> tuple[list[AblationResult], str]:
    """Results of the ablations, and why there are no more seeds if the budget ended them.

    At each look only the arms that go on get the seeds it needs; so does the baseline, while any
    arm goes on.
    """
    ending = ""
    for number, n in enumerate(planned.looks, start=1):
        going_on = {a.name: _going_on(trials, planned, a) for a in planned.ablations}
        arms = [arm for names in going_on.values() for arm in names]
        if not arms:
            break
        seeds = planned.seeds[:n]
        if not trials.affordable([planned.baseline, *arms], seeds):
            ending = f"the budget is spent (budget.trials={trials.campaign.budget.trials})"
            break
        which = f"look {number} of {len(planned.looks)}: " if len(planned.looks) > 1 else ""
        some = f"{len(arms)} arm{'s' if len(arms) > 1 else ''}"
        trials.run(f"{which}{some} x {n} seeds", [planned.baseline, *arms], seeds)
        for ablation in planned.ablations:
            if going_on[ablation.name]:
                trials.display.look(_look(trials, planned, ablation, seeds), ablation)
    looked = [a for a in planned.ablations if looks_at(trials.ledger, planned.round, a)]
    results = [_result(trials, planned, ablation) for ablation in looked]
    for result, ablation in zip(results, looked, strict=True):
        trials.display.result(result, ablation)
    return results, ending


def _going_on(trials: Trials, planned: Plan, ablation: Ablation) -> list[Arm]:
    """The arms that have not ended; none once there is a result, though more could be paid now."""
    if step(planned.round, f"result/{ablation.name}") in trials.ledger:
        return []
    done = looks_at(trials.ledger, planned.round, ablation)
    return [a for a in ablation.arms if not done or a.name in done[-1].going_on]


def _look(trials: Trials, planned: Plan, ablation: Ablation, seeds: tuple[int, ...]) -> Look:
    def compute() -> Look:
        done = looks_at(trials.ledger, planned.round, ablation)
        compared = measured.compared(
            trials.record(),
            measured.metric(trials.record(), planned),
            planned.baseline,
            ablation.arms,
            seeds,
            looks=planned.looks,
        )
        before = done[-1] if done else None
        return decide.at_look(compared, before, alpha_screen=planned.alpha_screen)

    number = measured.look_at(planned.looks, seeds)
    return trials.ledger.once(look_step(planned.round, number, ablation), Look, compute)


def _result(trials: Trials, planned: Plan, ablation: Ablation) -> AblationResult:
    def compute() -> AblationResult:
        look = looks_at(trials.ledger, planned.round, ablation)[-1]
        compared, verdicts = look.comparisons, look.verdicts
        seeds = planned.seeds[: planned.looks[compared.look - 1]]
        mechanism = measured.mechanism(trials.record(), planned, ablation, seeds)
        support, reason = decide.support(ablation.hypothesis, verdicts, compared, mechanism)
        return AblationResult(
            ablation=ablation.name,
            comparisons=compared,
            mechanism=mechanism,
            verdicts=verdicts,
            support=support,
            support_reason=reason,
            ranking=decide.ranking(compared, verdicts),
        )

    name = step(planned.round, f"result/{ablation.name}")
    return trials.ledger.once(name, AblationResult, compute)
