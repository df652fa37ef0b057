"""Tables in which a word in each row says what the row's numbers are, turned into wide ones."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from orchestrator.telemetry.readers import naming
from orchestrator.telemetry.readers.log import Record
from orchestrator.telemetry.readers.table import is_periodic

_PHASES = ("split", "phase", "mode", "stage", "subset", "partition", "set", "dataset", "type")
_TAGS = ("metric", "tag", "metric_name", "variable", "series", "key", "name")
_RUNS = ("run", "run_id", "run_name", "experiment", "exp", "fold", "seed", "version", "trial")
_EXTREMES = ("__MIN", "__MAX")
_MOST_RUNS = 1000
_MOST_KINDS = 50


def phases(records: Sequence[Record]) -> list[Record]:
    """Rows that say "train" or "val" in a column give that to the names of their other columns."""
    column = _column(records, _PHASES, lambda word: bool(naming.split_of(word)))
    if column is None:
        return list(records)
    kept = {name for name in _names(records) if _is_axis(name)}
    result = []
    for record in records:
        split = naming.split_of(str(record.get(column, "")))
        result.append(
            {
                (name if name in kept or not split else f"{split}/{name}"): value
                for name, value in record.items()
                if name != column
            }
        )
    return result


def melted(records: Sequence[Record]) -> list[Record]:
    """Rows of (step, name of a metric, value) become rows of (step, that metric)."""
    value = next(
        (n for n in _names(records) if naming.normal(n) in ("value", "metric_value")), None
    )
    column = _column(records, _TAGS, bool)
    if value is None or column is None:
        return list(records)
    result = []
    for record in records:
        row = {n: c for n, c in record.items() if n not in (value, column)}
        if isinstance(tag := record.get(column), str) and isinstance(record.get(value), float):
            row[tag] = record[value]
        result.append(row)
    return result


def by_run(records: Sequence[Record]) -> dict[str, list[Record]] | None:
    """Rows of several runs, told apart by a column; None if there is no such column.

    A column that is different in nearly every row tells no runs apart.
    """
    for name in _names(records):
        if naming.normal(name) not in _RUNS:
            continue
        runs: dict[str, list[Record]] = {}
        for record in records:
            rest = {n: c for n, c in record.items() if n != name}
            runs.setdefault(_word(record.get(name, "")), []).append(rest)
        if 1 < len(runs) <= min(_MOST_RUNS, len(records) // 2):
            return runs
    return None


def exported(records: Sequence[Record]) -> dict[str, list[Record]] | None:
    """Weights & Biases' export: columns "<run> - <metric>" with __MIN and __MAX beside each."""
    names = _names(records)
    if not any(n.endswith(_EXTREMES) and n[: -len("__MIN")] in names for n in names):
        return None
    runs: dict[str, list[Record]] = {}
    for record in records:
        parts: dict[str, Record] = {}
        shared: Record = {}
        for name, value in record.items():
            run, dash, metric = name.rpartition(" - ")
            if name.endswith(_EXTREMES):
                continue
            if dash:
                parts.setdefault(run, {})[metric] = value
            else:
                shared[name] = value
        for run, part in parts.items():
            if any(isinstance(value, float) for value in part.values()):
                runs.setdefault(run, []).append({**shared, **part})
    return runs or None


def without_fillers(records: Sequence[Record]) -> tuple[list[Record], int]:
    """Rows without the NaNs that stand for empty cells, and how many those were.

    They can only where no cell is empty.
    """
    names = _names(records)
    if len(records) < 2 or any(len(record) < len(names) for record in records):
        return list(records), 0
    if not any(_is_nan(cell) for record in records for cell in record.values()):
        return list(records), 0
    metrics = [name for name in names if not _is_axis(name)]
    kinds = [frozenset(n for n in metrics if not _is_nan(record[n])) for record in records]
    counts = Counter(kind for kind in kinds if kind)
    if len(counts) <= _MOST_KINDS and any(a.isdisjoint(b) for a in counts for b in counts):
        result = _sparse(records, kinds, counts)
    else:
        filled = {n: [row for row, kind in enumerate(kinds) if n in kind] for n in metrics}
        seldom = {name for name, rows in filled.items() if is_periodic(rows)}
        result = [
            {n: c for n, c in record.items() if n not in seldom or not _is_nan(c)}
            for record in records
        ]
    return result, sum(map(len, records)) - sum(map(len, result))


def _sparse(
    records: Sequence[Record], kinds: Sequence[frozenset[str]], counts: Counter[frozenset[str]]
) -> list[Record]:
    """Rows of kinds that share no column, as pandas writes a sparse table.

    A row that fills part of what another kind fills has real NaNs in the rest of it; one of
    nothing but NaN has those of the row before it.
    """
    whole = {kind: _whole(kind, counts) for kind in counts}
    result, previous = [], counts.most_common(1)[0][0]
    for record, kind in zip(records, kinds, strict=True):
        previous = whole.get(kind, previous)
        result.append({n: c for n, c in record.items() if not _is_nan(c) or n in previous})
    return result


def _whole(kind: frozenset[str], counts: Counter[frozenset[str]]) -> frozenset[str]:
    """The most frequent kind that `kind` is part of."""
    return max((k for k in counts if kind <= k), key=lambda k: counts[k])


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _is_axis(name: str) -> bool:
    tables = (naming.STEP_NAMES, naming.EPOCH_NAMES)
    return any(naming.rank_in(name, table) is not None for table in tables)


def _names(records: Sequence[Record]) -> Mapping[str, None]:
    return dict.fromkeys(chain.from_iterable(records))


def _column(
    records: Sequence[Record], names: Sequence[str], is_word: Callable[[str], bool]
) -> str | None:
    """The column called like one of `names` whose words pass `is_word` in most rows."""
    for name in _names(records):
        if naming.normal(name) in names:
            words = [c for r in records if isinstance(c := r.get(name), str)]
            if len(words) > 0.8 * len(records) and sum(map(is_word, words)) > 0.8 * len(words):
                return name
    return None


def _word(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return re.sub(r"\s+", " ", str(value))
