"""Files, frames and mappings of scores -> a ScoreTable. What the cells mean: `scores`."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.errors import OrchestratorError
from orchestrator.score_nouns import COLUMNS, Columns, ScoreTable
from orchestrator.telemetry.readers.source import decode

if TYPE_CHECKING:
    import pandas as pd

_DELIMITERS = ",;\t|"
_HEAD = 1 << 16
"""Characters in which a header must lie."""

_PARQUET, _FEATHER, _ZIP, _GZIP = b"PAR1", b"ARROW1", b"PK\x03\x04", b"\x1f\x8b"
_POINT = re.compile(r"(?:^|[;\t|])\s*[-+]?\d*\.\d+(?:[eE][-+]?\d+)?\s*(?:$|[;\t|])", re.MULTILINE)
_SEPARATOR_LINE = re.compile(r'"?sep=([,;\t|])"?')
"""What Excel writes and reads as a first line to name the delimiter."""


def read_table(path: Path, columns: Columns = COLUMNS) -> ScoreTable:
    """The table in a file, whichever of the formats of `table_in` it has."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise OrchestratorError(f"cannot read {path}: {error.strerror}") from error
    return table_in(data, str(path), columns)


def table_in(data: bytes, name: str, columns: Columns = COLUMNS) -> ScoreTable:
    """The table in the bytes of a file: delimited text, JSON (Lines), Parquet, Feather or Excel.

    Told by its first bytes, not by its name, so that standard input does as well. Text may be in
    UTF-8 or UTF-16, with or without a byte order mark.
    """
    if data.startswith((_PARQUET, _FEATHER, _ZIP)):
        return from_frame(_frame(data, name), name, columns)
    if data.startswith(_GZIP):
        raise OrchestratorError(f"{name} is compressed with gzip", "unpack it first")
    text, notes = decode(data)
    if "\0" in text or "\ufffd" in text:
        raise OrchestratorError(
            f"{name} is not a table: it holds binary data",
            "give CSV, JSON, JSON Lines, Parquet, Feather or Excel (.xlsx)",
        )
    if text.lstrip()[:1] in ("[", "{"):
        return _json(text, name, columns, notes)
    return _delimited(text, name, columns, notes)


def from_frame(frame: pd.DataFrame, name: str, columns: Columns = COLUMNS) -> ScoreTable:
    """The table in a pandas DataFrame, with named levels of its index as columns.

    An unnamed index of whole numbers is the seed where no column is.
    """
    if any(level is not None for level in frame.index.names):
        frame = frame.reset_index()
    names = [str(c) for c in frame.columns]
    cells: dict[str, Sequence[object]] = {
        column: frame.iloc[:, i].tolist() for i, column in enumerate(names)
    }
    known = {c.strip().casefold() for c in names}
    mine = {c.casefold() for c in (columns.arm, columns.seed, columns.value)}
    if not known & mine and frame.index.inferred_type == "integer":
        cells = {columns.seed: frame.index.tolist(), **cells}
    places = [f"row {i}" for i in range(1, len(frame) + 1)]
    return ScoreTable(name, cells, places, columns, mistakes=tuple(_twice(names, name)))


def from_mapping(
    scores: Mapping[str, Mapping[int, object]], name: str, columns: Columns = COLUMNS
) -> ScoreTable:
    """The table in arm -> seed -> value."""
    rows = [(arm, seed, value) for arm, runs in scores.items() for seed, value in runs.items()]
    arms, seeds, values = ([row[i] for row in rows] for i in range(3))
    places = [f"arm {arm!r}, seed {seed}" for arm, seed, _ in rows]
    cells = {columns.arm: arms, columns.seed: seeds, columns.value: values}
    return ScoreTable(name, cells, places, columns)


# --- delimited text -------------------------------------------------------------------------------


def _delimited(text: str, name: str, columns: Columns, notes: tuple[str, ...]) -> ScoreTable:
    first, _, rest = text.partition("\n")
    told = _SEPARATOR_LINE.fullmatch(first.strip())
    offset, text = (1, rest) if told else (0, text)
    delimiter = told[1] if told else _delimiter(text, columns)
    reader = csv.reader(
        io.StringIO(text, newline=""), delimiter=delimiter, strict=True, skipinitialspace=True
    )
    names: list[str] = []
    rows, lines = [], []
    try:
        for row in reader:
            if not any(map(str.strip, row)):
                continue
            if names:
                rows.append(row)
                lines.append(reader.line_num + offset)
            else:
                names = [c.strip() for c in row]
    except csv.Error as error:
        raise OrchestratorError(
            f"{name}, line {reader.line_num + offset}, is not CSV: {error}"
        ) from error
    whole = [i for i, row in enumerate(rows) if len(row) == len(names)]
    cells = list(zip(*(rows[i] for i in whole), strict=True)) if whole else [()] * len(names)
    return ScoreTable(
        name,
        {column: cells[i] for i, column in enumerate(names) if column},
        [f"line {lines[i]}" for i in whole],
        columns,
        decimal_comma=delimiter != "," and not _POINT.search(text),
        mistakes=(*_twice(names, name), *_ragged(rows, lines, names, name)),
        notes=notes,
    )


def _ragged(
    rows: Sequence[list[str]], lines: Sequence[int], names: Sequence[str], table: str
) -> list[OrchestratorError]:
    wrong = [line for row, line in zip(rows, lines, strict=True) if len(row) != len(names)]
    if not wrong:
        return []
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    problem = f"{table}, line {wrong[0]}{more}: not one field for each of {len(names)} columns"
    return [OrchestratorError(problem, "an empty field needs its delimiter too")]


def _delimiter(text: str, columns: Columns) -> str:
    """The one that splits the header into the most known names, then into the most names."""
    header = next((line for line in text[:_HEAD].splitlines() if line.strip()), "")
    known = {c.casefold() for c in (columns.arm, columns.seed, columns.value, columns.status)}

    def fit(delimiter: str) -> tuple[int, int]:
        names = [c.strip(' "\r').casefold() for c in header.split(delimiter)]
        return len(known & set(names)), len(names)

    return max(_DELIMITERS, key=fit)


def _twice(names: Sequence[str], table: str) -> list[OrchestratorError]:
    twice = sorted({c for c in names if c and names.count(c) > 1})
    if not twice:
        return []
    problem = f"{table} has a column twice: {', '.join(twice)}"
    return [OrchestratorError(problem, "keep one, or rename it")]


# --- other formats --------------------------------------------------------------------------------


def _json(text: str, name: str, columns: Columns, notes: tuple[str, ...]) -> ScoreTable:
    """A list of records, one record a line, arm -> seed -> value, or column -> list of cells."""
    try:
        content = _loaded(text)
    except (ValueError, RecursionError) as error:
        raise OrchestratorError(f"{name} is not JSON: {error}") from error
    if isinstance(content, list) and all(isinstance(r, dict) for r in content):
        header = dict.fromkeys(str(key) for record in content for key in record)
        cells = {key: [record.get(key) for record in content] for key in header}
        places = [f"record {i}" for i in range(1, len(content) + 1)]
        return ScoreTable(name, cells, places, columns, notes=notes)
    parts = list(content.values()) if isinstance(content, dict) else []
    if isinstance(content, dict) and parts and all(isinstance(p, dict) for p in parts):
        return from_mapping(content, name, columns)
    lengths = {len(part) if isinstance(part, list) else -1 for part in parts}
    if isinstance(content, dict) and len(lengths) == 1 and -1 not in lengths:
        places = [f"row {i}" for i in range(1, lengths.pop() + 1)]
        return ScoreTable(name, content, places, columns, notes=notes)
    raise OrchestratorError(
        f"{name} is JSON, but no table",
        'give [{"arm": "base", "seed": 0, "value": 0.5}, ...], one such record a line, '
        'or {"base": {"0": 0.5, ...}, ...}',
    )


def _loaded(text: str) -> object:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError:
        lines = [line for line in text.split("\n") if line.strip()]
        if len(lines) < 2:
            raise
        return [json.loads(line, object_pairs_hook=_once) for line in lines]


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object; json would keep the last of two runs with one seed, and say nothing."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = sorted({key for key, _ in pairs if [k for k, _ in pairs].count(key) > 1})
        raise ValueError(f"an object has a key twice: {', '.join(twice)}")
    return found


def _frame(data: bytes, name: str) -> pd.DataFrame:
    import pandas as pd

    buffer = io.BytesIO(data)
    try:
        if data.startswith(_PARQUET):
            return pd.read_parquet(buffer)
        if data.startswith(_FEATHER):
            return pd.read_feather(buffer)
        return pd.read_excel(buffer)
    except ImportError as error:
        raise OrchestratorError(
            f"{name}: reading Excel takes a package that is not installed ({error})",
            "pip install openpyxl, or export the sheet as CSV",
        ) from error
    except Exception as error:  # whatever the package behind pandas raises for a broken file
        raise OrchestratorError(
            f"{name} cannot be read: {type(error).__name__}: {str(error).partition(chr(10))[0]}",
            "write it again, or export it as CSV",
        ) from error
