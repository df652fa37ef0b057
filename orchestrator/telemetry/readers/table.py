"""Records turned into columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from orchestrator.nouns import Floats, Ints
from orchestrator.telemetry.readers.log import Record


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """The numbers of one column: `rows` [n] ascending, counted in the file; `values` [n]."""

    rows: Ints
    values: Floats

    def __len__(self) -> int:
        return len(self.rows)


def is_periodic(rows: Sequence[int]) -> bool:
    """Whether rows come at one distance of two or more, as evaluations do; the last may be near."""
    gaps = [b - a for a, b in pairwise(rows)]
    if len(gaps) < 2 or gaps[0] < 2:
        return False
    return set(gaps[:-1]) == {gaps[0]} and gaps[-1] <= gaps[0] and rows[0] <= gaps[0]


def columns_of(records: Sequence[Record]) -> dict[str, Column]:
    """Columns that hold at least one number, in the order in which the file names them."""
    rows: dict[str, list[int]] = {}
    values: dict[str, list[float]] = {}
    for index, record in enumerate(records):
        for name, cell in record.items():
            if isinstance(cell, float):
                rows.setdefault(name, []).append(index)
                values.setdefault(name, []).append(cell)
    return {
        name: Column(np.array(rows[name], dtype=np.int64), np.array(values[name])) for name in rows
    }


def texts_of(records: Sequence[Record]) -> dict[str, list[str]]:
    """Words of the columns that hold any, in file order."""
    found: dict[str, list[str]] = {}
    for record in records:
        for name, cell in record.items():
            if isinstance(cell, str):
                found.setdefault(name, []).append(cell)
    return found
