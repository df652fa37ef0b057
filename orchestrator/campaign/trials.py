"""The trials of a campaign: what the ledger knows is not run again, what the budget pays for is."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator import launch, report
from orchestrator.errors import OrchestratorError
from orchestrator.ledger import Ledger
from orchestrator.nouns import Arm, Campaign, Outcome, Record, Trial
from orchestrator.record import ACCIDENT, OUTCOME, TRIAL, assemble


class Trials:
    """Runs arms on seeds and writes every outcome down."""

    def __init__(self, campaign: Campaign, ledger: Ledger, display: report.Display) -> None:
        self.campaign = campaign
        self.ledger = ledger
        self.display = display
        self._record: tuple[int, Record] | None = None

    def run(self, label: str, arms: Sequence[Arm], seeds: Sequence[int]) -> None:
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

    def affordable(self, arms: Sequence[Arm], seeds: Sequence[int]) -> bool:
        """Whether the budget pays for `arms` x `seeds`; what was run before is paid for."""
        wanted = {launch.plan_trial(self.campaign, arm, s).identity for arm in arms for s in seeds}
        known = {name.removeprefix(TRIAL) for name in self.ledger.steps(TRIAL)}
        return len(known | wanted) <= self.campaign.budget.trials

    def refuse_accidents(self, arm: Arm, seeds: Sequence[int], *, fewest: int) -> None:
        """Refuse to go on with fewer than `fewest` results, and say why in the program's words."""
        pairs = self.record().of(arm, tuple(seeds))
        accidents = [(t, o) for t, o in pairs if not o.status.is_result]
        if len(pairs) - len(accidents) < fewest:
            trial, outcome = accidents[0]
            raise OrchestratorError(
                f"{len(accidents)} of {len(pairs)} {arm.name} trials failed; seed {trial.seed}: "
                f"{outcome.status.value}, {outcome.reason.partition(chr(10))[0]}",
                f"mend the training program (its output: {trial.folder}/output.txt) and repeat "
                "the command; after a passing trouble, raise budget.attempts to try again",
            )

    def record(self) -> Record:
        """Everything done so far; the ledger is decoded again only when it has grown."""
        if self._record is None or self._record[0] != len(self.ledger):
            self._record = len(self.ledger), assemble(self.ledger)
        return self._record[1]
