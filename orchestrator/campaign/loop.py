"""The loop: baseline, findings, hypotheses, plan, trials, verdicts, confirmation, adoption, again.

Each step is one function and one line in the ledger; a step found in the ledger is not done again,
which is all there is to resuming.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from orchestrator import decide, diagnose, launch, plan, report, track
from orchestrator.campaign import measured
from orchestrator.campaign.views import publish
from orchestrator.errors import OrchestratorError, nearest
from orchestrator.ledger import Ledger
from orchestrator.nouns import (
    Ablation,
    AblationResult,
    Arm,
    Campaign,
    Comparisons,
    Confirmation,
    Finding,
    Headline,
    Hypothesis,
    Metric,
    Move,
    Outcome,
    Overrides,
    Plan,
    Record,
    Telemetry,
    Trial,
)
from orchestrator.record import ACCIDENT, ENDING, HEADLINE, OUTCOME, TRIAL, assemble, opened, step

N_MIN = 3  # baseline seeds below which nothing can be compared (docs/statistics.md)


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

    def run(self) -> Record:
        original = Arm("baseline", (), self._resolve([()])[0])
        baseline, block, ending = original, 1, ""
        tried: set[tuple[str, Move]] = set()
        for number in range(1, self.campaign.budget.rounds + 1):
            seeds = plan.seed_block(self.protocol, number=block, stage="screen")
            planned, ending = self._plan(number, baseline, seeds, tried)
            if planned is None:
                break
            confirmation, ending = self._test(planned)
            tried |= {(a.factor.name, a.hypothesis.move) for a in planned.ablations}
            if confirmation is not None and confirmation.adopted:
                baseline = dataclasses.replace(confirmation.arm, name="baseline")
                block, tried = number + 1, set()
            self._publish()
            if ending:
                break
        if baseline.overrides != original.overrides:
            self._headline(original, baseline)
        rounds = self.campaign.budget.rounds
        ending = ending or f"all rounds are spent (budget.rounds={rounds})"
        ending = self.ledger.once(ENDING, str, lambda: ending)
        self.display.ending(ending)
        self._publish(self.display)
        return self.record()

    # --- one turn ---------------------------------------------------------------------------

    def _plan(
        self, number: int, baseline: Arm, seeds: tuple[int, ...], tried: set[tuple[str, Move]]
    ) -> tuple[Plan | None, str]:
        """Measure the baseline, diagnose it and plan the round; no plan comes with the reason."""
        self.display.stage(f"Round {number}")
        self.ledger.once(step(number, "baseline"), Arm, lambda: baseline)
        self.ledger.once(step(number, "seeds"), tuple[int, ...], lambda: seeds)
        if not self._affordable([baseline], seeds):
            return None, f"the budget is spent (budget.trials={self.campaign.budget.trials})"
        self._trials(f"baseline x {len(seeds)} seeds", [baseline], seeds)
        self._check_baseline(baseline, seeds)
        recorded = measured.telemetries(self.record(), baseline, seeds)
        findings = self._findings(number, recorded)
        hypotheses = self._hypotheses(number, findings, recorded, tried)
        self.display.findings(self.record().rounds[-1])
        done = sum(len(r.plan.ablations) for r in self.record().rounds[:-1] if r.plan)
        left = self.protocol.max_ablations - done
        if not findings:
            return None, "nothing was found that needs explaining"
        if not hypotheses:
            return None, "no hypothesis is left to test"
        if left <= 0:
            return None, f"the declared number of ablations ({done}) is used up"

        def compute() -> Plan:
            drawn = plan.plan_round(
                self.campaign,
                number=number,
                baseline=baseline,
                hypotheses=hypotheses[:left],
                telemetries=recorded,
                spent=sum(1 for _ in self.ledger.steps(TRIAL)),
            )
            drawn = dataclasses.replace(drawn, seeds=seeds)
            return plan.freeze(drawn, self.campaign.training, self._resolve)

        planned = self.ledger.once(step(number, "plan"), Plan, compute)
        cost = plan.cost(planned, self.campaign, measured.seconds_per_trial(self.record()))
        reach = plan.reach(planned, self.campaign, measured.spread(self.record(), baseline, seeds))
        self.display.plan(planned, f"{cost}\n{reach}".rstrip())
        if not planned.ablations:
            return None, "; ".join(planned.notes)
        return planned, ""

    def _findings(self, number: int, recorded: Sequence[Telemetry]) -> tuple[Finding, ...]:
        return self.ledger.once(
            step(number, "findings"),
            tuple[Finding, ...],
            lambda: diagnose.diagnose(recorded, skip=self.campaign.skip_rules),
        )

    def _hypotheses(
        self,
        number: int,
        findings: Sequence[Finding],
        recorded: Sequence[Telemetry],
        tried: set[tuple[str, Move]],
    ) -> tuple[Hypothesis, ...]:
        raised, untestable = diagnose.hypothesise(findings, self.campaign.factors, tried=tried)
        blind = diagnose.missing(recorded)
        self.ledger.once(step(number, "untestable"), tuple[str, ...], lambda: (*untestable, *blind))
        return self.ledger.once(step(number, "hypotheses"), tuple[Hypothesis, ...], lambda: raised)

    def _test(self, planned: Plan) -> tuple[Confirmation | None, str]:
        """Run the round's arms, judge them, and confirm the winner on fresh seeds."""
        arms = [arm for ablation in planned.ablations for arm in ablation.arms]
        if not self._affordable(arms, planned.seeds):
            return None, f"the budget is spent (budget.trials={self.campaign.budget.trials})"
        self._trials(
            f"{len(arms)} arm{'s' if len(arms) > 1 else ''} x {len(planned.seeds)} seeds",
            [planned.baseline, *arms],
            planned.seeds,
        )
        results = [self._result(planned, ablation) for ablation in planned.ablations]
        for result, ablation in zip(results, planned.ablations, strict=True):
            self.display.result(result, ablation)
        winner = decide.candidate(results)
        if winner is None:
            return None, ""
        ablation_name, arm_name = winner
        arm = next(a for a in arms if a.name == arm_name)
        return self._confirm(planned, ablation_name, arm)

    def _result(self, planned: Plan, ablation: Ablation) -> AblationResult:
        def compute() -> AblationResult:
            compared = self._compare(
                self.campaign.metric, planned.baseline, ablation.arms, planned.seeds
            )
            mechanism = measured.mechanism(self.record(), planned, ablation)
            verdicts = decide.judge(compared, alpha_screen=planned.alpha_screen)
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
        return self.ledger.once(name, AblationResult, compute)

    def _confirm(self, planned: Plan, ablation: str, arm: Arm) -> tuple[Confirmation | None, str]:
        seeds, baseline = planned.confirm_seeds, planned.baseline
        if not self._affordable([arm, baseline], seeds):
            return None, (
                f"budget.trials={self.campaign.budget.trials} does not pay for confirming "
                f"{arm.name} on {len(seeds)} fresh seeds: it stays a candidate"
            )
        self._trials(f"confirm {arm.name} on {len(seeds)} fresh seeds", [baseline, arm], seeds)

        def compute() -> Confirmation:
            compared = self._compare(self.campaign.metric, baseline, [arm], seeds)
            adopted, reason = decide.confirmed(compared)
            return Confirmation(ablation, arm, baseline, seeds, compared, adopted, reason)

        name = step(planned.round, "confirmation")
        confirmation = self.ledger.once(name, Confirmation, compute)
        self.display.confirmation(confirmation)
        return confirmation, ""

    def _headline(self, original: Arm, final: Arm) -> None:
        """Final against original on untouched seeds, and the one look at the test split."""
        seeds = plan.headline_seeds(self.protocol)
        if not self._affordable([original, final], seeds):
            return
        self.display.stage("Headline")
        self._trials(f"final against original x {len(seeds)} seeds", [original, final], seeds)

        def compute() -> Headline:
            metric = self.campaign.metric
            on_test = None
            if metric.test_name is not None:
                test = dataclasses.replace(metric, name=metric.test_name)
                on_test = self._compare(test, original, [final], seeds)
            validation = self._compare(metric, original, [final], seeds)
            return Headline(original, final, seeds, validation, on_test)

        self.display.headline(self.ledger.once(HEADLINE, Headline, compute))

    # --- trials -----------------------------------------------------------------------------

    def _trials(self, label: str, arms: Sequence[Arm], seeds: Sequence[int]) -> None:
        """Have an outcome for every arm and seed; what the ledger knows is not launched."""
        planned = [launch.plan_trial(self.campaign, arm, seed) for seed in seeds for arm in arms]
        for trial in planned:
            if TRIAL + trial.identity not in self.ledger:
                self.ledger.add(TRIAL + trial.identity, trial)
        todo = [t for t in planned if OUTCOME + t.identity not in self.ledger]
        if not todo:
            return
        self.display.trials(label, len(todo))
        launch.launch(self.campaign, todo, on_outcome=self._note)

    def _note(self, trial: Trial, outcome: Outcome) -> None:
        kind = OUTCOME if outcome.status.is_result else ACCIDENT
        suffix = "" if outcome.status.is_result else f"/{outcome.attempts}"
        self.ledger.once(f"{kind}{trial.identity}{suffix}", Outcome, lambda: outcome)
        self.display.finished(trial, outcome)

    def _affordable(self, arms: Sequence[Arm], seeds: Sequence[int]) -> bool:
        """Whether the budget pays for `arms` x `seeds`; what was run before is paid for."""
        wanted = {launch.plan_trial(self.campaign, arm, s).identity for arm in arms for s in seeds}
        known = {name.removeprefix(TRIAL) for name in self.ledger.steps(TRIAL)}
        return len(known | wanted) <= self.campaign.budget.trials

    def _check_baseline(self, baseline: Arm, seeds: Sequence[int]) -> None:
        """Refuse to go on where the program itself does not run, and say why in its own words."""
        pairs = self.record().of(baseline, tuple(seeds))
        accidents = [(t, o) for t, o in pairs if not o.status.is_result]
        if len(pairs) - len(accidents) < N_MIN:
            trial, outcome = accidents[0]
            raise OrchestratorError(
                f"{len(accidents)} of {len(pairs)} baseline trials failed; seed {trial.seed}: "
                f"{outcome.status.value}, {outcome.reason.partition(chr(10))[0]}",
                f"mend the training program (its output: {trial.folder}/output.txt) and repeat "
                "the command; after a passing trouble, raise budget.attempts to try again",
            )
        test = self.campaign.metric.test_name
        logged = {name for _, o in pairs if o.status.is_result for name in o.metrics}
        if test is not None and test not in logged:
            raise OrchestratorError(f"metric.test={test} was never logged.", nearest(test, logged))

    # --- small parts ------------------------------------------------------------------------

    def record(self) -> Record:
        """Everything done so far."""
        return assemble(self.ledger)

    def _resolve(self, overrides: Sequence[Overrides]) -> tuple[str, ...]:
        return launch.resolve(self.campaign.training, overrides)

    def _compare(
        self, metric: Metric, baseline: Arm, arms: Sequence[Arm], seeds: tuple[int, ...]
    ) -> Comparisons:
        return measured.compared(self.record(), metric, baseline, arms, seeds)

    def _publish(self, display: report.Display | None = None) -> None:
        try:
            publish(self.record(), display)
        except track.Unreachable as error:
            self.display.warning(f"{error}\nthe campaign goes on; `report` feeds MLflow later")
