"""The report on disk: `<campaign>/report/`, rewritten as a whole, always complete."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.nouns import Page, Record
from orchestrator.report import story
from orchestrator.report.blocks import Document, Heading, Picture, Table
from orchestrator.report.html import html
from orchestrator.report.markdown import markdown
from orchestrator.report.pictures import Reader


@dataclass(frozen=True, slots=True)
class Report:
    """Where the report lies, and its pages by name ("" for the campaign's)."""

    folder: Path
    markdown: Path
    html: Path
    pages: Mapping[str, Page]


def write(record: Record, telemetry: Reader) -> Report:
    """Write report.md, report.html, a page per ablation and the figures; nothing is half written.

    Each file is written aside and renamed, figures first: a page never names a missing one.
    """
    folder = Path(record.campaign.folder) / "report"
    pages: dict[str, Page] = {}
    texts: dict[str, str] = {}
    for name, document, summary in _documents(record, telemetry):
        pages[name] = _page(name, document, summary)
        stem = name or "report"
        texts[f"{stem}.md"] = markdown(document)
        texts[f"{stem}.html"] = pages[name].html
    for page in pages.values():
        for file, png in page.figures.items():
            _write(folder / "figures" / file, png)
    for file, text in texts.items():
        _write(folder / file, text.encode())
    return Report(folder, folder / "report.md", folder / "report.html", pages)


def _documents(record: Record, telemetry: Reader) -> list[tuple[str, Document, Document]]:
    """(name, page, what to see first of it) for the campaign and each ablation."""
    whole = story.campaign_page(record)
    found = [("", whole, story.campaign_summary(record))]
    for turn in record.rounds:
        if turn.plan is None:
            continue
        results = {r.ablation: r for r in turn.results}
        for ablation in turn.plan.ablations:
            result = results.get(ablation.name)
            page = story.ablation_page(record, turn, ablation, result, telemetry)
            summary = (
                *story.ablation_summary(turn, ablation, result),
                *story.clip_blocks(record, turn.plan, ablation, telemetry),
            )
            found.append((turn.plan.page_of(ablation), page, summary))
    return found


def _page(name: str, document: Document, summary: Document) -> Page:
    table = next((b for b in summary if isinstance(b, Table)), Table((), ()))
    return Page(
        name=name,
        title=next(b.text for b in document if isinstance(b, Heading)),
        summary=markdown(tuple(b for b in summary if not isinstance(b, Picture))),
        html=html(document),
        columns=table.columns,
        rows=table.rows,
        figures={b.file: b.png for b in document if isinstance(b, Picture)},
    )


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    # mkstemp makes files for their owner alone; a report is to be read.
    Path(aside).chmod(0o644)
    Path(aside).replace(path)
