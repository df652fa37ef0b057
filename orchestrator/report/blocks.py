"""What a page is made of. Written once by `story`, shown as Markdown, HTML or on a terminal.

Text may hold `code` in backticks and **bold**; nothing else is markup.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading; level 1 is the page's title."""

    text: str
    level: int = 2


@dataclass(frozen=True, slots=True)
class Text:
    """One paragraph. `strong` marks the answer, which a page shows first."""

    text: str
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Bullets:
    """Short sentences, one below the other."""

    items: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Cells under at most seven short columns; `note` holds n, unit, interval and method."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A PNG under its file name, with the sentence that makes it readable alone."""

    file: str
    caption: str
    png: bytes


@dataclass(frozen=True, slots=True)
class Link:
    """A pointer to another page, by file name without ending."""

    text: str
    page: str


Block = Heading | Text | Bullets | Table | Picture | Link
Document = tuple[Block, ...]
