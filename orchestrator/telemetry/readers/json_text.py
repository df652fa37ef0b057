"""JSON as it is found on disks: cut off, damaged in places, with NaN and Infinity in it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import TypeAlias

from orchestrator.telemetry.readers.cells import cell
from orchestrator.telemetry.readers.log import Cell, Record

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

_DEEPEST = 4
"""Levels of nested objects that are flattened into names."""

_MAX_DAMAGE = 100


def parse(text: str) -> Json | None:
    """The value that `text` writes, or None if it is not JSON."""
    try:
        value: Json = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value


def salvage(text: str) -> list[dict[str, Json]]:
    """The complete objects inside damaged JSON: what a cut or a flipped bit left whole."""
    decoder = json.JSONDecoder()
    found: list[dict[str, Json]] = []
    at, damage = text.find("{", 1), 0
    while at >= 0 and damage < _MAX_DAMAGE:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            damage += 1
            end = at + 1
        else:
            if isinstance(value, dict):
                found.append(value)
        at = text.find("{", end)
    return found


def record(value: dict[str, Json]) -> Record:
    """Numbers and words of an object, nested names joined by "/"; lists and truths are left out."""
    return dict(_flat(value, "", 1))


def number(value: Json) -> float | None:
    """A JSON number, or one in quotes ("NaN"); null is NaN, for which strict JSON has no word."""
    if isinstance(value, bool):
        return None
    if value is None:
        return math.nan
    if isinstance(value, str):
        written = cell(value)
        return written if isinstance(written, float) else None
    if isinstance(value, int | float):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    return None


def _flat(value: dict[str, Json], prefix: str, depth: int) -> Iterator[tuple[str, Cell]]:
    for key, item in value.items():
        name = prefix + key
        if isinstance(item, dict):
            if depth < _DEEPEST:
                yield from _flat(item, name + "/", depth + 1)
        elif (written := number(item)) is not None:
            yield name, written
        elif isinstance(item, str):
            yield name, item
