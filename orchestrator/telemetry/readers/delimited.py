"""Delimited text, of which every CSV format is a special case: delimiter, header, rows."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from pathlib import Path

from orchestrator.telemetry.readers.cells import MISSING, cell, is_number
from orchestrator.telemetry.readers.log import Cell, Raw, Record, not_a_curve
from orchestrator.telemetry.readers.source import LARGEST, read_text, sniffed

BLANKS = " "
"""Stands for "any run of blanks" where a delimiter is named."""

_DELIMITERS = (",", ";", "\t", "|", BLANKS)
_SAMPLE = 40
_COMMENT = re.compile(r"\s*(#|//|%|sep=.$)", re.I)
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+(?:[eE][-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class Shape:
    """What the top of a delimited file shows. `names` are stripped; `sample` are rows below them.

    A file whose first row holds numbers has no header: its columns are called "column 1", ...
    """

    delimiter: str
    names: tuple[str, ...]
    sample: tuple[tuple[str, ...], ...]
    has_header: bool = True
    decimal_comma: bool = False


@lru_cache(maxsize=4)
def shape_of(text: str) -> Shape | None:
    """The shape of the table that `text` begins with, or None if it is no table."""
    lines = list(_first_lines(text))
    found = [shape for d in _DELIMITERS if (shape := _shape(lines, d)) is not None]
    return max(found, key=lambda s: (len(s.names), s.delimiter != BLANKS), default=None)


def sniff_shape(head: bytes) -> Shape | None:
    """`shape_of` the first bytes of a file."""
    return shape_of(sniffed(head)) if head else None


def read_table(path: Path) -> Raw:
    """All rows of a delimited file."""
    text, warnings = read_text(path)
    shape = shape_of(text)
    if shape is None:
        raise not_a_curve(path, "has no rows of numbers under a header", "give a CSV with a header")
    parser = _Rows(shape)
    for cells in _rows(text, shape.delimiter):
        parser.add(cells)
    return Raw({"": parser.records}, (*warnings, *parser.warnings(text.endswith("\n"))))


def _first_lines(text: str) -> Iterator[str]:
    """The first `_SAMPLE` lines, less blank ones and comments; a header in a comment is kept."""
    taken, comment = 0, ""
    for line in text[: 1 << 18].split("\n"):
        if not line.strip():
            continue
        if _COMMENT.match(line):
            comment = _COMMENT.sub("", line, count=1).strip()
            continue
        if taken == 0 and comment and all(is_number(w) for w in line.replace(",", " ").split()):
            yield comment
        yield line
        taken += 1
        if taken == _SAMPLE:
            return


def _shape(lines: Sequence[str], delimiter: str) -> Shape | None:
    """The table under `delimiter`, if most rows are as long as the header and mostly numbers."""
    is_quoted = any('"' in line for line in lines)
    rows = [tuple(map(str.strip, row)) for row in _split(lines, delimiter, is_quoted=is_quoted)]
    if len(rows) < 2:
        return None
    names = _trimmed(rows[0])
    width = len(names)
    if width < 2 and not (delimiter == "," and width == 1):
        return None
    has_header = not any(is_number(name) for name in names if name)
    body = rows[1:] if has_header else rows
    body = [row for row in body if _key(row) != _key(names)]
    body = list(takewhile(lambda row: not _is_header(row, names), body))
    as_wide = sum(1 for row in body if len(_trimmed(row)) <= width <= len(row))
    filled = [c for row in body for c in row if c.lower() not in MISSING]
    numbers = sum(1 for c in filled if is_number(c))
    wanted = 0.8 if delimiter == BLANKS or width == 1 else 0.3
    # The last line of a head, or of a file, may be cut.
    if as_wide < 0.8 * (len(body) - 1) or not numbers or numbers < wanted * len(filled):
        return None
    if not has_header:
        names = tuple(f"column {i + 1}" for i in range(width))
    commas = sum(1 for c in filled if _DECIMAL_COMMA.fullmatch(c))
    points = sum(1 for c in filled if re.fullmatch(r"[-+]?\d*\.\d+.*", c))
    return Shape(delimiter, names, tuple(body), has_header, delimiter != "," and commas > points)


def _trimmed(row: tuple[str, ...]) -> tuple[str, ...]:
    """A row without the empty cells that a delimiter at the end of each line makes."""
    while row and not row[-1]:
        row = row[:-1]
    return row


def _rows(text: str, delimiter: str) -> Iterator[tuple[str, ...]]:
    """Every row's cells, stripped. Quotes that do not pair up are taken for letters."""
    lines = (line for line in text.split("\n") if line.strip() and not _COMMENT.match(line))
    for row in _split(lines, delimiter, is_quoted='"' in text and text.count('"') % 2 == 0):
        cells = tuple(c.strip() for c in row)
        if any(cells):
            yield cells


def _split(lines: Iterable[str], delimiter: str, *, is_quoted: bool) -> Iterator[list[str]]:
    if delimiter == BLANKS:
        return (line.split() for line in lines)
    if not is_quoted:
        return (line.replace('"', "").split(delimiter) for line in lines)
    csv.field_size_limit(max(csv.field_size_limit(), LARGEST))
    return csv.reader((line + "\n" for line in lines), delimiter=delimiter, skipinitialspace=True)


def _key(row: Sequence[str]) -> tuple[str, ...]:
    """A header as it compares with another one: without case, blanks and separators."""
    return tuple(re.sub(r"[\s_./-]+", "", c).lower() for c in row)


def _is_header(row: Sequence[str], names: Sequence[str]) -> bool:
    """Whether a row further down names columns again: words only, a third of them known."""
    filled = [c for c in row if c]
    if len(filled) < 2 or any(is_number(c) for c in filled):
        return False
    return len(set(_key(names)) & set(_key(filled))) >= max(1, len(filled) // 3)


class _Rows:
    """Collects rows into records, and what was odd about them."""

    def __init__(self, shape: Shape) -> None:
        self.records: list[Record] = []
        self._shape = shape
        self._names = unique(shape.names)
        self._seen_header = not shape.has_header
        self._odd: Counter[str] = Counter()
        self._last_is_short = False

    def add(self, cells: tuple[str, ...]) -> None:
        """Take one row: a header, or data."""
        if not self._seen_header:
            self._seen_header = True
            if _key(_trimmed(cells)) == _key(self._shape.names):
                return
        record: Record = {}
        is_data = not self._shape.has_header
        for name, text in zip(self._names, cells, strict=False):
            value: Cell | None = cell(text, decimal_comma=self._shape.decimal_comma)
            if value is not None:
                record[name] = value
                is_data = is_data or isinstance(value, float)
        if is_data or not self._take_header(cells):
            self._count_odd(cells)
            self.records.append(record)

    def _take_header(self, cells: tuple[str, ...]) -> bool:
        if not _is_header(cells, self._names):
            return False
        if _key(_trimmed(cells)) == _key(self._names):
            self._odd["a header in the middle was skipped"] += 1
        else:
            self._names = unique(_trimmed(cells))
            self._odd["a header in the middle named other columns"] += 1
        return True

    def _count_odd(self, cells: tuple[str, ...]) -> None:
        self._last_is_short = len(cells) < len(self._names)
        if self._last_is_short:
            self._odd["fewer cells than the header"] += 1
        elif len(cells) > len(self._names) < len(_trimmed(cells)):
            self._odd["more cells than the header: the surplus was ignored"] += 1

    def warnings(self, ends_with_newline: bool) -> list[str]:
        """What was odd, with the number of rows; a last row cut short is dropped here."""
        if self._last_is_short and not ends_with_newline and self.records:
            self.records.pop()
            self._odd["fewer cells than the header"] -= 1
            self._odd["cut in the middle: the last row was dropped"] += 1
        return [f"{count} row(s): {what}" for what, count in self._odd.items() if count]


def unique(names: Sequence[str]) -> tuple[str, ...]:
    """Names, with "#2", "#3" behind repetitions."""
    seen: Counter[str] = Counter()
    result = []
    for name in names:
        seen[name] += 1
        result.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return tuple(result)
