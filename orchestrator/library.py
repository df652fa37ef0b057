"""What a program does with scores it already has: compare them, and show what came out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import OrchestratorError, nearest
from orchestrator.nouns import Comparison, Comparisons, Verdict
from orchestrator.score_nouns import COLUMNS, Columns, Scores, ScoreTable

if TYPE_CHECKING:
    import pandas as pd

FORMS = ("png", "svg", "pdf")


@dataclass(frozen=True, slots=True, eq=False)
class ComparisonResult:
    """What `compare` found.

    `comparisons` has what the arms share (`k`, `n`, `nu`, `critical_value`, `seed_correlation`, the
    baseline's mean and standard deviation) and one Comparison an arm, in the order of the table;
    `verdicts` are in the same order. `ranking` names all arms and the baseline, best first.
    `scores` is arm -> seed -> value as read, NaN for a run that diverged; `notes` tell how.
    """

    comparisons: Comparisons
    verdicts: tuple[Verdict, ...]
    ranking: tuple[str, ...]
    scores: Scores
    notes: tuple[str, ...] = ()

    def comparison(self, arm: str) -> Comparison:
        """The numbers of one arm. Raises OrchestratorError with the nearest name."""
        return self.comparisons.arms[self._place(arm)]

    def verdict(self, arm: str) -> Verdict:
        """What is said of one arm, why, and what to do next; raises as `comparison` does."""
        return self.verdicts[self._place(arm)]

    def differences(self, arm: str) -> dict[int, float]:
        """Arm minus baseline by seed, in the metric's own direction and unit; finite pairs only."""
        self._place(arm)
        baseline = self.scores[self.comparisons.baseline]
        runs = self.scores[arm]
        gaps = {seed: runs[seed] - baseline[seed] for seed in sorted(runs.keys() & baseline.keys())}
        return {seed: gap for seed, gap in gaps.items() if math.isfinite(gap)}

    def as_json(self) -> dict[str, Any]:
        """Plain data, as `compare --json` prints it; what is undefined is None."""
        from orchestrator.comparison import as_json

        return as_json(self.comparisons, self.verdicts, self.ranking)

    def markdown(self) -> str:
        """The table, the reasons of the verdicts and the notes, as Markdown."""
        from orchestrator.report import comparison_markdown

        return comparison_markdown(self.comparisons, self.verdicts, self.ranking, self.notes)

    def latex(self) -> str:
        """The table as LaTeX; it needs the package booktabs."""
        from orchestrator.report import comparison_latex

        return comparison_latex(self.comparisons, self.verdicts, self.ranking)

    def forest(self, path: str | Path) -> Path:
        """Write a forest plot of the differences to a .png, .svg or .pdf file, and return its path.

        Raises OrchestratorError if the file cannot be written, or is to be of another kind.
        """
        path = Path(path)
        form = plot_form(path)
        from orchestrator.report import comparison_forest

        picture = comparison_forest(
            self.comparisons, self.verdicts, self.ranking, self.scores, form=form
        )
        try:
            path.write_bytes(picture)
        except OSError as error:
            raise OrchestratorError(f"cannot write {path}: {error.strerror}") from error
        return path

    def _place(self, arm: str) -> int:
        names = [c.arm for c in self.comparisons.arms]
        if arm not in names:
            raise OrchestratorError(f"no arm {arm!r} was compared", nearest(arm, names))
        return names.index(arm)


def compare(
    scores: str | Path | Mapping[str, Mapping[int, float]] | pd.DataFrame | ScoreTable,
    *,
    baseline: str | None = None,
    direction: str | None = None,
    alpha: float = 0.05,
    delta: float | None = None,
    resolution: float = 0.0,
    looks: Sequence[int] = (),
    arm: str = COLUMNS.arm,
    seed: str = COLUMNS.seed,
    value: str = COLUMNS.value,
    status: str = COLUMNS.status,
) -> ComparisonResult:
    """Compare every arm with a baseline on common seeds, and say which differ.

    Guarded block Dunnett: seeds are blocks, arms share one residual variance; p-values are
    one-sided and step-down adjusted, intervals simultaneous at 1 - 2 alpha. With one arm it is the
    paired t test.

    Args:
        scores: One number for each arm and seed. A file (CSV, TSV, JSON, JSON Lines, Parquet,
            Feather, Excel), a DataFrame, arm -> seed -> value, or what `mlflow_scores` returns.
            Long: a row a run, [runs] in columns `arm`, `seed`, `value` and, if need be, `status`
            (done, diverged or missing). Wide: [seeds, arms] beside a column `seed` (or with the
            seeds as the index of a DataFrame), or [arms, seeds] beside a column `arm`. A cell may
            say "diverged" or "missing" in place of a number; NaN alone is refused, for it could be
            either, and to leave out diverged runs would triple the false verdicts.
        baseline: The arm that the others are compared with.
        direction: "max" if higher values are better, "min" if lower ones are.
        alpha: Level, one-sided, for each direction, over all arms together; in (0, 0.5).
        delta: Smallest difference worth acting on, in the unit of the values, above 0; without it
            nothing can be equivalent.
        resolution: Step of the values in their unit: 1/N for an accuracy over N examples.
        looks: Numbers of seeds, ascending from 3 on, at which one has planned to look; the level is
            then that of the look with as many seeds as the baseline has.
        arm: What the column is called that names the arm of a run.
        seed: That of its seed, a whole number; pairs are joined on it.
        value: That of its result.
        status: That of what became of it.

    Returns:
        A ComparisonResult. Its numbers are oriented so that positive is better, and in the unit of
        the values; docs/statistics.md has every formula.

    Raises:
        OrchestratorError: if anything in table or options is wrong, with all that is.

    References:
        Dunnett 1955, JASA 50:1096 (comparisons with a control); Westfall and Young 1993
        (step-down); Schuirmann 1987 (equivalence); Hedges 1981 (effect sizes). Error rates:
        docs/statistics.md.
    """
    from orchestrator import decide
    from orchestrator.comparison import compare_table

    found = compare_table(
        _table(scores, Columns(arm, seed, value, status)),
        baseline=baseline,
        direction=direction,
        alpha=alpha,
        delta=delta,
        resolution=resolution,
        looks=tuple(looks),
    )
    verdicts = decide.judge(found.comparisons)
    ranking = decide.ranking(found.comparisons, verdicts)
    return ComparisonResult(found.comparisons, verdicts, ranking, found.scores, found.notes)


def mlflow_scores(
    experiment: str,
    *,
    metric: str | None = None,
    arm: str = COLUMNS.arm,
    seed: str = COLUMNS.seed,
    status: str = COLUMNS.status,
    baseline: str | None = None,
    where: str = "",
    tracking_uri: str | None = None,
) -> ScoreTable:
    """The last value of a metric of every run of an MLflow experiment, for `compare`.

    `experiment` is a name or an id. `arm`, `seed` and `status` name tags or parameters, with
    `tags.` or `params.` before them where both exist. `where` is a filter in MLflow's search
    syntax. `tracking_uri` is by default MLFLOW_TRACKING_URI, then our own runs/mlflow.db. Of a
    campaign of our own, which needs no names, `baseline` chooses the block of seeds.

    A run whose metric is NaN or infinite has diverged; one that failed or was killed without that
    is an accident, hence missing. Raises OrchestratorError if the store does not answer.
    """
    from orchestrator import track

    return track.scores(
        experiment,
        metric=metric,
        columns=Columns(arm=arm, seed=seed, status=status),
        baseline=baseline,
        where=where,
        uri=tracking_uri,
    )


def plot_form(path: Path) -> str:
    """The kind of picture that a file's name asks for."""
    form = path.suffix.removeprefix(".").lower()
    if form not in FORMS:
        raise OrchestratorError(
            f"{path} is no picture we can draw", f"end it in .{', .'.join(FORMS)}"
        )
    return form


def _table(
    scores: str | Path | Mapping[str, Mapping[int, float]] | pd.DataFrame | ScoreTable,
    columns: Columns,
) -> ScoreTable:
    from orchestrator import comparison

    if isinstance(scores, ScoreTable):
        return scores
    if isinstance(scores, str | Path):
        return comparison.read_table(Path(scores), columns)
    if isinstance(scores, Mapping):
        return comparison.from_mapping(scores, "scores", columns)
    return comparison.from_frame(scores, "scores", columns)
