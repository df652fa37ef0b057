"""Blocks on a terminal, and the one place that makes a rich Console."""

from __future__ import annotations

import re
from typing import IO

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

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

WIDTH = 120
"""Columns assumed where the output is no terminal: a log file that is read later."""

ASCII = str.maketrans({"±": "+/-", "·": "|", "─": "-", "━": "-", "→": "->"})


def console(file: IO[str] | None = None) -> Console:
    """A console on standard output; colours and cursor moves only on a real terminal."""
    made = Console(file=file, highlight=False, soft_wrap=False)
    if not made.is_terminal:
        made = Console(file=file, highlight=False, width=WIDTH, no_color=True)
    return made


def show(document: Document, out: Console) -> None:
    """Print the blocks; pictures and links are for the report, not for a terminal."""
    for block in document:
        _block(block, out)


def line(text: str, out: Console, *, style: str = "") -> None:
    """Print one paragraph of text with our two marks, wrapped, nothing else interpreted."""
    out.print(_inline(_printable(text, out)), style=style or None)


def _block(block: Block, out: Console) -> None:
    match block:
        case Heading(text, level):
            out.print()
            line(text, out, style="bold underline" if level == 1 else "bold")
        case Text(text, strong):
            line(text, out, style="bold" if strong else "")
        case Bullets(items):
            listed = RichTable.grid(padding=(0, 1, 0, 0))
            for item in items:
                listed.add_row("  -", _inline(_printable(item, out)))
            out.print(listed)
        case Table():
            out.print(_table(block, out))
            if block.note:
                line(block.note, out, style="dim")
        case Picture() | Link():
            pass


def _table(table: Table, out: Console) -> RichTable:
    drawn = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in table.columns:
        drawn.add_column(escape(_printable(column, out)), overflow="fold")
    for row in table.rows:
        drawn.add_row(*(_inline(_printable(cell, out)) for cell in row))
    return drawn


def _printable(text: str, out: Console) -> str:
    """Text that the stream can encode: `+/-` for `±` where it is not UTF-8."""
    encoding = out.encoding or "ascii"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(ASCII).encode(encoding, "replace").decode(encoding)
    return text


def _inline(text: str) -> str:
    """Our marks as rich markup; everything else is escaped."""
    safe = escape(text)
    safe = re.sub(r"`([^`]+)`", r"[cyan]\1[/cyan]", safe)
    return re.sub(r"\*\*(.+?)\*\*", r"[bold]\1[/bold]", safe)
