"""The diagnosis of one log as blocks: what was taken for what, what was seen, what to try first."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from orchestrator.errors import OrchestratorError
from orchestrator.log_nouns import Diagnosis
from orchestrator.nouns import Finding, Hypothesis
from orchestrator.report.blocks import Block, Bullets, Document, Heading, Picture, Table, Text
from orchestrator.report.console import console, show

ROWS = 12
"""Series shown; the JSON object has all of them."""

SURE = ((0.8, "strong"), (0.5, "clear"), (0.0, "weak"))
"""Words for a finding's severity."""


def show_diagnosis(diagnosis: Diagnosis) -> None:
    """Print the diagnosis on the terminal."""
    show(document(diagnosis), console())


def write_diagnosis(diagnosis: Diagnosis, path: Path) -> None:
    """Write the diagnosis with its plot as one HTML file that needs nothing else."""
    from orchestrator.report.html import html
    from orchestrator.report.log_picture import picture

    if path.suffix.lower() not in (".html", ".htm"):
        raise OrchestratorError(f"--html {path}: not the name of a page", "end it in .html")
    first, *rest = document(diagnosis)
    blocks: list[Block] = [first, rest[0]]
    drawn = picture(diagnosis)
    if drawn is not None:
        words = "Losses and what else says how training went; grey: where a finding was made."
        blocks.append(Picture("curves.png", words, drawn))
    try:
        path.write_text(html((*blocks, *rest[1:])), encoding="utf-8")
    except OSError as error:
        raise OrchestratorError(f"--html {path}: {error.strerror}", "name another file") from None


def document(diagnosis: Diagnosis) -> Document:
    """The whole page; the answer comes first."""
    blocks: list[Block] = [
        Heading(f"Diagnosis of {diagnosis.source}", 1),
        Text(_answer(diagnosis), strong=True),
        *_columns(diagnosis),
    ]
    if diagnosis.findings:
        blocks.append(Heading("What was seen"))
        for finding in diagnosis.findings:
            blocks += _finding(finding, diagnosis.axis)
    if diagnosis.hypotheses:
        blocks += [Heading("What to try first"), _hypotheses(diagnosis.hypotheses)]
        blocks.append(
            Text("`--plan exp.yaml` writes a campaign that tests them over paired seeds.")
        )
    if diagnosis.remarks:
        blocks += [Heading("Worth knowing"), Bullets(diagnosis.remarks)]
    if diagnosis.warnings:
        blocks += [Heading("How the log was read"), Bullets(diagnosis.warnings)]
    return tuple(blocks)


def _answer(diagnosis: Diagnosis) -> str:
    others = f" (also: {', '.join(diagnosis.labels[1:])})" if diagnosis.labels[1:] else ""
    if diagnosis.findings:
        return f"{diagnosis.label}{others}: {diagnosis.findings[0].summary}"
    if diagnosis.label == "healthy":
        return "healthy: no rule fired. That is what curves can tell, not a proof"
    return f"{diagnosis.label}{others}"


def _columns(diagnosis: Diagnosis) -> list[Block]:
    """What was taken for what."""
    rows = []
    for role, series in diagnosis.telemetry.series.items():
        if role not in diagnosis.columns or not len(series):
            continue
        known = series.values[np.isfinite(series.values)]
        span = f"{known[0]:.4g} → {known[-1]:.4g}" if len(known) else "no number"
        steps = f"{series.steps[0]}-{series.steps[-1]}"
        rows.append((role, diagnosis.columns[role], str(len(series)), steps, span))
    order = {"train/loss": 0, "val/loss": 1, "grad_norm": 2, "lr": 3}
    rows.sort(key=lambda row: order.get(row[0], 4))
    more = f"; {len(rows) - ROWS} more series" if len(rows) > ROWS else ""
    note = f"format {diagnosis.format}, {diagnosis.n_points} points, steps count: {diagnosis.axis}"
    wrong = ". Wrong? say --map train_loss=COLUMN"
    columns = ("taken for", "column", "points", "steps", "first → last")
    return [Table(columns, tuple(rows[:ROWS]), note + more + wrong)]


def _finding(finding: Finding, axis: str) -> list[Block]:
    sure = next(word for bound, word in SURE if finding.severity >= bound)
    first, last = finding.steps
    where = f"{axis} {first}" if first == last else f"{axis}s {first}-{last}"
    layer = f", layer {finding.layer}" if finding.layer else ""
    says = f"**{finding.rule}** ({sure}, {finding.severity:.2f}; {where}{layer}): {finding.summary}"
    lines = [f"could also be: {', or '.join(finding.confounders)}"] * bool(finding.confounders)
    lines += [f"explains: {', '.join(finding.consequences)}"] * bool(finding.consequences)
    return [Text(says), *([Bullets(tuple(lines))] if lines else [])]


def _hypotheses(hypotheses: tuple[Hypothesis, ...]) -> Table:
    rows = tuple(
        (h.factor, h.move.value, h.claim, f"{h.signal} goes {h.signal_move.value}")
        for h in hypotheses
    )
    note = "A plot proposes, an ablation proves: a claim holds if metric and signal both move so."
    return Table(("factor", "move", "claim", "must also hold"), rows, note)
