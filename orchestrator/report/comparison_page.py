"""A comparison that belongs to no campaign: on a terminal, as Markdown, LaTeX and forest plot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from orchestrator.nouns import Comparisons, Direction, Verdict
from orchestrator.report import figures, tables, words
from orchestrator.report.blocks import Bullets, Document, Table
from orchestrator.report.console import console, show
from orchestrator.report.figures import ForestRow
from orchestrator.report.latex import latex
from orchestrator.report.markdown import markdown

MOST_ROWS = 40
"""Arms in a forest plot; more cannot be read on one page."""

LONGEST_LABEL = 44


def show_comparison(
    comparisons: Comparisons,
    verdicts: Sequence[Verdict],
    ranking: Sequence[str],
    notes: Sequence[str] = (),
) -> None:
    """Print the table and the verdicts' reasons."""
    show(_document(comparisons, verdicts, ranking, notes), console())


def comparison_markdown(
    comparisons: Comparisons,
    verdicts: Sequence[Verdict],
    ranking: Sequence[str],
    notes: Sequence[str] = (),
) -> str:
    """The table and the verdicts' reasons as Markdown."""
    return markdown(_document(comparisons, verdicts, ranking, notes))


def comparison_latex(
    comparisons: Comparisons, verdicts: Sequence[Verdict], ranking: Sequence[str]
) -> str:
    """The table as LaTeX; needs the package booktabs."""
    return latex(_table(comparisons, verdicts, ranking), label="tab:comparison")


def comparison_forest(
    comparisons: Comparisons,
    verdicts: Sequence[Verdict],
    ranking: Sequence[str],
    scores: Mapping[str, Mapping[int, float]],
    *,
    form: str,
) -> bytes:
    """The differences with intervals and paired seeds, best first, as png, svg or pdf."""
    metric = comparisons.metric
    said = {v.arm: words.call(v) for v in verdicts}
    by_arm = {c.arm: c for c in comparisons.arms}
    names = [name for name in ranking if name in by_arm]
    rows = [
        ForestRow(
            _short(name),
            words.difference(by_arm[name], metric),
            words.difference_interval(by_arm[name], metric),
            _paired(scores[name], scores[comparisons.baseline]),
            said[name],
        )
        for name in names[:MOST_ROWS]
    ]
    best = f", best {MOST_ROWS} of {len(names)} arms" if len(names) > MOST_ROWS else ""
    return figures.forest(
        rows,
        title=f"difference to {_short(comparisons.baseline)} (diamond), "
        f"{words.level(comparisons)} interval, paired seeds (dots){best}",
        axis=f"difference in {metric.name}",
        delta=metric.delta,
        lower_is_better=metric.direction is Direction.MIN,
        form=form,
    )


def _document(
    comparisons: Comparisons,
    verdicts: Sequence[Verdict],
    ranking: Sequence[str],
    notes: Sequence[str],
) -> Document:
    reasons = tuple(
        f"{v.arm}: {v.call.value}, {v.reason}. {v.next_act[:1].upper()}{v.next_act[1:]}."
        for v in verdicts
    )
    told = (Bullets(tuple(f"Note: {note}." for note in notes)),) if notes else ()
    return (_table(comparisons, verdicts, ranking), Bullets(reasons), *told)


def _table(comparisons: Comparisons, verdicts: Sequence[Verdict], ranking: Sequence[str]) -> Table:
    return tables.comparison_table(comparisons, ranking, {v.arm: words.call(v) for v in verdicts})


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_LABEL else f"{name[: LONGEST_LABEL - 1]}…"


def _paired(arm: Mapping[int, float], baseline: Mapping[int, float]) -> tuple[float, ...]:
    gaps = (value - baseline[seed] for seed, value in arm.items() if seed in baseline)
    return tuple(gap for gap in gaps if math.isfinite(gap))
