"""Blocks as Markdown, for report.md, for MLflow's descriptions and for a README."""

from __future__ import annotations

from orchestrator.report.blocks import (
    Block,
    Bullets,
    Document,
    Heading,
    Link,
    Picture,
    Table,
    Text,
)


def markdown(document: Document, *, pictures: str = "figures") -> str:
    """The whole document; `pictures` is the folder in which its PNG files lie."""
    return "\n\n".join(_block(block, pictures) for block in document) + "\n"


def _block(block: Block, pictures: str) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Text(text, strong):
            # An answer may hold bold itself, and bold does not nest.
            return f"**{text.replace('**', '')}**" if strong else text
        case Bullets(items):
            return "\n".join(f"- {item}" for item in items)
        case Table():
            return _table(block)
        case Picture(file, caption, _):
            return f"![{caption}]({pictures}/{file})\n\n*{caption}*"
        case Link(text, page):
            return f"[{text}]({page}.md)"


def _table(table: Table) -> str:
    rows = [table.columns, ("---",) * len(table.columns), *table.rows]
    lines = ["| " + " | ".join(map(_cell, row)) + " |" for row in rows]
    return "\n".join(lines) + (f"\n\n{table.note}" if table.note else "")


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").splitlines())
