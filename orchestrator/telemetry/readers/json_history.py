"""One JSON value with a history in it: a list of rows, or lists of numbers by name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

from orchestrator.telemetry.readers import json_text
from orchestrator.telemetry.readers.cells import cell
from orchestrator.telemetry.readers.hf_trainer_state import rows_of
from orchestrator.telemetry.readers.json_text import Json
from orchestrator.telemetry.readers.log import Raw, Record, not_a_curve
from orchestrator.telemetry.readers.registry import reader
from orchestrator.telemetry.readers.source import read_text, sniffed

_DEEPEST = 4
_WRAPPERS = frozenset({"history", "log", "logs", "metrics", "log_history", "records", "results"})
"""Names of a level that say nothing about what was measured."""


def _sniff(head: bytes, _: Path) -> float:
    text = sniffed(head).lstrip()
    if text.startswith(("{", "[")):
        return 0.6 if text[1:].lstrip().startswith(('"', "{", "[", "]", "}")) else 0.0
    return 0.0


@reader("json_history", sniff=_sniff)
def read(path: Path) -> Raw:
    """The longest history in the value: its list of rows, or its lists of numbers side by side."""
    text, warnings = read_text(path)
    value = json_text.parse(text)
    if value is None:
        rows = rows_of(list(json_text.salvage(text)))
        by_name = {} if rows else _lists_in(text)
        found = f"{len(rows)} rows" if rows else f"{len(by_name)} lists"
        warnings += (f"damaged or cut off: {found} could be read",)
    else:
        rows = max((rows_of(found) for found in _row_lists(value, 0)), key=len, default=[])
        by_name = dict(_number_lists(value, "", 0))
    longest = max(map(len, by_name.values()), default=0)
    if max(len(rows), longest) == 0:
        seen = "is JSON without a list of rows or of numbers"
        raise not_a_curve(path, seen, "give a history: one value per epoch or step")
    if len(rows) >= longest:
        return Raw({"": rows}, warnings)
    return _side_by_side(by_name, longest, warnings)


def _lists_in(text: str) -> dict[str, list[float]]:
    """Lists of numbers behind a name, up to the first thing in them that is no number."""
    by_name = {}
    for name, inside in re.findall(r'"([^"\\]{1,200})"\s*:\s*\[([^\[\]{}"]*)', text):
        numbers = (cell(word) for word in inside.split(","))
        known = [
            n for n in takewhile(lambda n: isinstance(n, float), numbers) if isinstance(n, float)
        ]
        if known:
            by_name[name] = known
    return by_name


def _side_by_side(by_name: dict[str, list[float]], longest: int, warnings: tuple[str, ...]) -> Raw:
    """Rows of lists: a shorter list was logged less often, its last value at the end."""
    records: list[Record] = [{} for _ in range(longest)]
    for name, values in by_name.items():
        for i, value in enumerate(values):
            records[-(-(i + 1) * longest // len(values)) - 1][name] = value
    shorter = sorted(name for name, values in by_name.items() if len(values) < longest)
    if shorter:
        note = f"shorter than {longest} values and spread evenly: {', '.join(shorter[:5])}"
        warnings += (note,)
    return Raw({"": records}, warnings)


def _row_lists(value: Json, depth: int) -> Iterator[list[Json]]:
    if depth > _DEEPEST:
        return
    if isinstance(value, list):
        if any(isinstance(item, dict) for item in value):
            yield value
    elif isinstance(value, dict):
        if len(value) > 1 and all(k.isdigit() and isinstance(v, dict) for k, v in value.items()):
            yield [{"epoch": int(k), **v} for k, v in value.items() if isinstance(v, dict)]
        for item in value.values():
            yield from _row_lists(item, depth + 1)


def _number_lists(value: Json, prefix: str, depth: int) -> Iterator[tuple[str, list[float]]]:
    """Lists of numbers, and objects {"0": number, "1": number, ...} as pandas writes columns."""
    if isinstance(value, dict) and depth <= _DEEPEST:
        for key, item in value.items():
            inner = prefix if key.lower() in _WRAPPERS else f"{prefix}{key}/"
            if isinstance(item, dict) and item and all(k.isdigit() for k in item):
                item = list(item.values())
            if isinstance(item, list):
                numbers = [json_text.number(v) for v in item]
                known = [n for n in numbers if n is not None]
                if known and len(known) == len(numbers):
                    yield inner.rstrip("/") or key, known
            else:
                yield from _number_lists(item, inner, depth + 1)
