"""What a person watches while a campaign runs: stages, findings, the plan, trials, verdicts.

On a terminal the trials under way are one progress line that redraws itself; anywhere else plain
lines, at most one every ten seconds, without control characters.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from orchestrator.nouns import (
    Ablation,
    AblationResult,
    Adoption,
    Confirmation,
    Headline,
    Look,
    Outcome,
    Plan,
    Round,
    Status,
    Trial,
)
from orchestrator.report import sentences, tables, words
from orchestrator.report.blocks import Bullets, Heading, Text
from orchestrator.report.console import console, line, show

QUIET_SECONDS = 10.0
"""Least time between two progress lines where nothing can be redrawn."""


class Display:
    """The live view of one campaign. Use as a context manager, so that the cursor comes back."""

    def __init__(
        self, file: IO[str] | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._out = console(file)
        self._clock = clock
        self._bar: Progress | None = None
        self._label, self._total = "", 0
        self._ended: dict[str, Status] = {}  # by identity: a retried trial ends twice, counts once
        self._began = self._spoke = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def stage(self, title: str) -> None:
        """A new stage begins."""
        self._stop()
        show((Heading(title, 1),), self._out)

    def findings(self, turn: Round) -> None:
        """What the baseline showed, and what is to be tested because of it."""
        self._stop()
        if not turn.findings:
            line("No finding: no rule fired on the baseline.", self._out)
        show((Bullets(tuple(sentences.finding(f) for f in turn.findings)),), self._out)
        for claim in turn.hypotheses:
            line(f"Hypothesis: {claim.claim}, because {claim.why}.", self._out)
        if turn.untestable:
            show((Text("Not testable:"), Bullets(turn.untestable)), self._out)

    def plan(self, planned: Plan, cost: str) -> None:
        """What will be launched: arms with their diffs, seeds, test, cost."""
        self._stop()
        show((Heading(f"Plan of round {planned.round}"), tables.plan_table(planned)), self._out)
        for note in planned.notes:
            line(note, self._out)
        line(cost, self._out)

    def trials(self, label: str, total: int) -> None:
        """`total` trials begin; `finished` is called for each."""
        self._stop()
        self._label, self._total, self._ended = label, total, {}
        self._began = self._spoke = self._clock()
        if not self._out.is_terminal:
            line(f"{label}: {total} trials", self._out)
            return
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
            console=self._out,
        )
        self._bar.add_task(label, total=total, told="")
        self._bar.start()

    def finished(self, trial: Trial, outcome: Outcome) -> None:
        """One trial ended; what is not DONE is told at once."""
        self._ended[trial.identity] = outcome.status
        if outcome.status is not Status.DONE:
            line(f"{trial.arm}, seed {trial.seed}: {words.ending(outcome)}", self._out)
        done = len(self._ended)
        if self._bar is not None:
            task = self._bar.tasks[0]
            self._bar.update(task.id, completed=done, told=self._told(done))
        elif done == self._total or self._clock() - self._spoke >= QUIET_SECONDS:
            self._spoke = self._clock()
            line(f"{self._label}: {done} of {self._total} {self._told(done)}".rstrip(), self._out)
        if done >= self._total:
            self._stop()

    def result(self, result: AblationResult, ablation: Ablation) -> None:
        """The table of one ablation and what became of its hypothesis."""
        self._stop()
        show(
            (
                Heading(f"{ablation.factor.name} (`{ablation.factor.key}`)"),
                tables.ablation_table(result, ablation),
                Text(
                    sentences.support(result),
                    strong=True,
                ),
            ),
            self._out,
        )

    def look(self, taken: Look, ablation: Ablation) -> None:
        """Which arms of an ablation go on after one of several looks."""
        self._stop()
        if len(taken.comparisons.looks) > 1:
            line(f"{ablation.factor.name}: {sentences.look(taken)}", self._out)

    def adoption(self, taken: Adoption) -> None:
        """The arm that becomes the baseline without a confirmation."""
        self._stop()
        show((Text(sentences.adoption(taken)),), self._out)

    def confirmation(self, asked: Confirmation) -> None:
        """What fresh seeds said of the winner."""
        self._stop()
        show(
            (
                Heading("Confirmation on fresh seeds"),
                tables.confirmation_table(asked),
                Text(sentences.confirmation(asked)),
            ),
            self._out,
        )

    def headline(self, last: Headline) -> None:
        """The final configuration against the original one."""
        self._stop()
        alpha = last.validation.alpha
        show(
            (
                tables.headline_table(last),
                Text(sentences.headline(last, alpha), strong=True),
                Text(sentences.headline_test(last)),
            ),
            self._out,
        )

    def ending(self, text: str) -> None:
        """Why the loop stopped."""
        self._stop()
        line(f"The loop stopped: {text}.", self._out, style="bold")

    def published(self, report: Path, url: str | None) -> None:
        """Where to read on. Printed whole, so that it can be clicked or copied."""
        self._stop()
        self._out.print(f"report: {report}", markup=False, soft_wrap=True)
        if url:
            self._out.print(f"MLflow: {url}", markup=False, soft_wrap=True)

    def warning(self, text: str) -> None:
        """Something went wrong beside the campaign, which goes on."""
        line(f"warning: {text}", self._out, style="yellow")

    def _told(self, done: int) -> str:
        failures = words.tally(s for s in self._ended.values() if s is not Status.DONE)
        parts = [failures] if failures else []
        if 0 < done < self._total:
            left = (self._clock() - self._began) / done * (self._total - done)
            parts.append(f"about {words.seconds(left)} left")
        return f"({'; '.join(parts)})" if parts else ""

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
