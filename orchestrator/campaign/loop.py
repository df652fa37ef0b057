"""The loop: baseline, findings, hypotheses, plan, trials, verdicts, confirmation, adoption, again.

Each step is one function and one line in the ledger; a step found in the ledger is not done again,
which is all there is to resuming.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orchestrator import decide, diagnose, launch, plan, report, track
from orchestrator.campaign import measured, watched
from orchestrator.campaign.screen import screen
from orchestrator.campaign.trials import Trials
from orchestrator.campaign.views import publish
from orchestrator.errors import OrchestratorError, nearest
from orchestrator.ledger import Ledger
from orchestrator.nouns import (
    FEWEST_SEEDS,
    Ablation,
    AblationResult,
    Adoption,
    Arm,
    Campaign,
    Comparisons,
    Confirmation,
    Finding,
    Headline,
    Hypothesis,
    Metric,
    Move,
    Overrides,
    Plan,
    Policy,
    Record,
    Telemetry,
)
from orchestrator.record import ENDING, HEADLINE, TRIAL, opened, step


def run(campaign: Campaign, display: report.Display) -> Record:
    """Run or resume `campaign` to its end and return the whole record."""
    ledger = opened(campaign)
    try:
        return _Loop(campaign, ledger, display).run()
    finally:
        launch.close()
        ledger.close()


class _Loop:
    """One campaign under way."""

    def __init__(self, campaign: Campaign, ledger: Ledger, display: report.Display) -> None:
        self.campaign = campaign
        self.protocol = campaign.protocol
        self.ledger = ledger
        self.display = display
        self.trials = Trials(campaign, ledger, display)

    def run(self) -> Record:
        original = Arm("baseline", (), self._resolve([()])[0])
        baseline, block, ending = original, 1, ""
        tried: set[tuple[str, Move]] = set()
        for number in range(1, self.campaign.budget.rounds + 1):
            if number > 1:
                self._publish()
            seeds = plan.seed_block(self.protocol, number=block, stage="screen")
            planned, ending = self._plan(number, baseline, seeds, tried)
            if planned is None:
                break
            adopted, ending = self._test(planned)
            tried |= {(a.factor.name, a.hypothesis.move) for a in planned.ablations}
            if adopted is not None:
                baseline = dataclasses.replace(adopted, name="baseline")
                block, tried = number + 1, set()
            if ending:
                break
        if baseline.overrides != original.overrides:
            self._publish()
            self._headline(original, baseline)
        rounds = self.campaign.budget.rounds
        ending = ending or f"all rounds are spent (budget.rounds={rounds})"
        ending = self.ledger.once(ENDING, str, lambda: ending)
        self.display.ending(ending)
        self._publish(self.display)
        return self.trials.record()

    # --- one turn ---------------------------------------------------------------------------

    def _plan(
        self, number: int, baseline: Arm, block: tuple[int, ...], tried: set[tuple[str, Move]]
    ) -> tuple[Plan | None, str]:
        """Measure the baseline, diagnose it and plan the round; no plan comes with the reason.

        It is measured on the first look's seeds of the `block`.
        """
        seeds = block[: self.protocol.looks[0]]
        self.display.stage(f"Round {number}")
        self.ledger.once(step(number, "baseline"), Arm, lambda: baseline)
        self.ledger.once(step(number, "seeds"), tuple[int, ...], lambda: seeds)
        if not self.trials.affordable([baseline], seeds):
            return None, f"the budget is spent (budget.trials={self.campaign.budget.trials})"
        self.trials.run(f"baseline x {len(seeds)} seeds", [baseline], seeds)
        self._check_baseline(baseline, seeds)
        recorded = measured.telemetries(self.trials.record(), baseline, seeds)
        findings = self._findings(number, baseline, recorded)
        hypotheses = self._hypotheses(number, findings, recorded, tried)
        self.display.findings(self.trials.record().rounds[-1])
        done = sum(len(r.plan.ablations) for r in self.trials.record().rounds[:-1] if r.plan)
        left = self.protocol.max_ablations - done
        if amiss := diagnose.blocking(findings):
            return None, f"no trial helps before the program is mended: {'; '.join(amiss)}"
        if not hypotheses:
            return None, (
                "no hypothesis is left to test"
                if findings
                else "nothing was found that needs explaining"
            )
        if left <= 0:
            return None, f"the declared number of ablations ({done}) is used up"

        def compute() -> Plan:
            drawn = plan.plan_round(
                self.campaign,
                number=number,
                baseline=baseline,
                hypotheses=hypotheses,
                telemetries=recorded,
                spent=sum(1 for _ in self.ledger.steps(TRIAL)),
                earlier=measured.earlier_scores(self.trials.record(), baseline, block),
                left=left,
            )
            drawn = dataclasses.replace(drawn, seeds=block)
            return plan.freeze(drawn, self.campaign.training, self._resolve)

        planned = self.ledger.once(step(number, "plan"), Plan, compute)
        record = self.trials.record()
        cost = plan.cost(planned, self.campaign, measured.seconds_per_trial(record))
        reach = plan.reach(planned, self.campaign, measured.spread(record, baseline, block))
        self.display.plan(planned, f"{cost}\n{reach}".rstrip())
        if not planned.ablations:
            return None, "; ".join(planned.notes)
        return planned, ""

    def _findings(
        self, number: int, baseline: Arm, recorded: Sequence[Telemetry]
    ) -> tuple[Finding, ...]:
        """What the rules see, and where an adopted threshold clips otherwise than predicted."""

        def compute() -> tuple[Finding, ...]:
            seen = diagnose.diagnose(recorded, skip=self.campaign.skip_rules)
            forecast = watched.forecast_of(self.trials.record(), baseline)
            if forecast is None:
                return seen
            alarms = watched.clip_findings(forecast, recorded)
            told = {finding.rule for finding in alarms}
            return (*(f for f in seen if f.rule not in told), *alarms)

        return self.ledger.once(step(number, "findings"), tuple[Finding, ...], compute)

    def _hypotheses(
        self,
        number: int,
        findings: Sequence[Finding],
        recorded: Sequence[Telemetry],
        tried: set[tuple[str, Move]],
    ) -> tuple[Hypothesis, ...]:
        asked = plan.asked(self.campaign, self._tested())
        known = tried | {(h.factor, h.move) for h in asked}
        raised, untestable = diagnose.hypothesise(findings, self.campaign.factors, tried=known)
        blind = diagnose.missing(recorded)
        self.ledger.once(step(number, "untestable"), tuple[str, ...], lambda: (*untestable, *blind))
        return self.ledger.once(
            step(number, "hypotheses"), tuple[Hypothesis, ...], lambda: (*asked, *raised)
        )

    def _tested(self) -> set[str]:
        """Names of the factors that a round so far has an ablation of."""
        plans = [turn.plan for turn in self.trials.record().rounds if turn.plan]
        return {ablation.factor.name for planned in plans for ablation in planned.ablations}

    def _test(self, planned: Plan) -> tuple[Arm | None, str]:
        """Run the round's arms, judge them, and adopt the winner as the policy has it."""
        results, ending = screen(self.trials, planned)
        if not results:
            return None, ending
        optimise = self.protocol.policy is Policy.OPTIMISE
        winner = decide.best(results) if optimise else decide.candidate(results)
        if winner is None:
            return None, ending
        ablation = next(a for a in planned.ablations if a.name == winner[0])
        arm = next(a for a in ablation.arms if a.name == winner[1])
        if optimise:
            return self._adopt(planned, ablation, arm), ending
        result = next(r for r in results if r.ablation == ablation.name)
        confirmation, unpaid = self._confirm(planned, result, arm)
        adopted = confirmation is not None and confirmation.adopted
        return arm if adopted else None, ending or unpaid

    def _adopt(self, planned: Plan, ablation: Ablation, arm: Arm) -> Arm:
        """Take the best arm of the round at once; only the headline will claim anything."""
        name = step(planned.round, "adoption")
        adoption = self.ledger.once(name, Adoption, lambda: Adoption(ablation.name, arm))
        self.display.adoption(adoption)
        return adoption.arm

    def _confirm(
        self, planned: Plan, result: AblationResult, arm: Arm
    ) -> tuple[Confirmation | None, str]:
        needed = self.protocol.confirm_seeds
        if needed is None:
            needed = decide.confirming_seeds(result.comparisons, arm.name)
        seeds, baseline = planned.confirm_seeds[:needed], planned.baseline
        if not self.trials.affordable([arm, baseline], seeds):
            return None, (
                f"budget.trials={self.campaign.budget.trials} does not pay for confirming "
                f"{arm.name} on {len(seeds)} fresh seeds: it stays a candidate"
            )
        self.trials.run(f"confirm {arm.name} on {len(seeds)} fresh seeds", [baseline, arm], seeds)

        def compute() -> Confirmation:
            metric = measured.metric(self.trials.record(), planned)
            compared = self._compare(metric, baseline, [arm], seeds)
            adopted, reason = decide.confirmed(compared)
            return Confirmation(result.ablation, arm, baseline, seeds, compared, adopted, reason)

        name = step(planned.round, "confirmation")
        confirmation = self.ledger.once(name, Confirmation, compute)
        self.display.confirmation(confirmation)
        return confirmation, ""

    def _headline(self, original: Arm, final: Arm) -> None:
        """Final against original on untouched seeds, and the one look at the test split."""
        seeds = plan.headline_seeds(self.protocol)
        if not self.trials.affordable([original, final], seeds):
            return
        self.display.stage("Headline")
        self.trials.run(f"final against original x {len(seeds)} seeds", [original, final], seeds)

        def compute() -> Headline:
            metric = self.campaign.metric
            on_test = None
            if metric.test_name is not None:
                test = dataclasses.replace(metric, name=metric.test_name)
                on_test = self._compare(test, original, [final], seeds)
            validation = self._compare(metric, original, [final], seeds)
            return Headline(original, final, seeds, validation, on_test)

        self.display.headline(self.ledger.once(HEADLINE, Headline, compute))

    def _check_baseline(self, baseline: Arm, seeds: Sequence[int]) -> None:
        """Refuse to go on where the program itself does not run, and say why in its own words."""
        to_come = len(self.protocol.looks) > 1
        # While more seeds are to come, one accident is borne.
        self.trials.refuse_accidents(baseline, seeds, fewest=FEWEST_SEEDS - to_come)
        pairs = self.trials.record().of(baseline, tuple(seeds))
        test = self.campaign.metric.test_name
        logged = {name for _, o in pairs if o.status.is_result for name in o.metrics}
        if test is not None and test not in logged:
            raise OrchestratorError(f"metric.test={test} was never logged.", nearest(test, logged))

    def _resolve(self, overrides: Sequence[Overrides]) -> tuple[str, ...]:
        return launch.resolve(self.campaign.training, overrides)

    def _compare(
        self, metric: Metric, baseline: Arm, arms: Sequence[Arm], seeds: tuple[int, ...]
    ) -> Comparisons:
        return measured.compared(self.trials.record(), metric, baseline, arms, seeds)

    def _publish(self, display: report.Display | None = None) -> None:
        try:
            publish(self.trials.record(), display)
        except track.Unreachable as error:
            self.display.warning(f"{error}\nthe campaign goes on; `report` feeds MLflow later")
