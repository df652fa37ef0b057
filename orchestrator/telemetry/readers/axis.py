"""What rows count: optimizer steps, epochs, or nothing; and where one run ends, another begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from orchestrator.nouns import Floats, Ints
from orchestrator.telemetry.readers.log import Record
from orchestrator.telemetry.readers.roles import Roles
from orchestrator.telemetry.readers.table import Column

Kind = frozenset[str]
"""The columns that a row fills."""

STEP, EPOCH, ROW = "optimizer step", "epoch", "row"

_LARGEST = 2.0**53
"""Beyond it a float no longer tells integers apart."""

_JITTER = 2
"""A row may come this many rows late without being a resume: several threads log."""

_UNORDERED, _FEW_CUTS = 0.2, 2
"""If more than this share of rows go back, and more than a few, rows are in no order at all."""

_CROWDED = 1.5
"""Points per epoch above which epochs do not number the rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """Where each row lies: `keys` [n], filled in for rows that tell none.

    Keys order rows and tell runs apart; `counts_rows`: they are too coarse to number them.
    """

    axis: str
    keys: Floats
    counts_rows: bool = False
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Run:
    """Rows of one run within a file, and the positions from which it was resumed."""

    rows: list[int]
    resumed: list[int] = field(default_factory=list)
    late: int = 0


def kinds_of(records: Sequence[Record], roles: Roles) -> list[Kind]:
    """For each row, which columns it fills: training and evaluation rows advance separately."""
    axes = {roles.step, roles.epoch, roles.index}
    return [frozenset(record.keys() - axes) for record in records]


def place(
    n_rows: int, columns: Mapping[str, Column], roles: Roles, kinds: Sequence[Kind]
) -> Placement:
    """Position of every row, by the step column, else by the epochs, else by counting rows."""
    step, epoch, index = (
        _spread(columns[name] if name is not None else None, n_rows)
        for name in (roles.step, roles.epoch, roles.index)
    )
    notes: list[str] = []
    if _advances(step, columns, roles) and _is_whole(step):
        step = _epochs_called_step(step, kinds, roles, notes)
        step = _counted_on(step, epoch, kinds, roles, notes)
        return Placement(STEP, _filled(step), notes=tuple(notes))
    if np.isfinite(epoch).any() and _is_whole(epoch):
        filled = _filled(epoch)
        crowded = not _numbers_rows(filled, columns, roles)
        return Placement(ROW if crowded else EPOCH, filled, counts_rows=crowded)
    if np.isfinite(index).any() and _is_whole(index):
        return Placement(ROW, _filled(index))
    if np.isfinite(epoch).any():
        return Placement(ROW, _filled(epoch), counts_rows=True)
    return Placement(ROW, np.arange(n_rows, dtype=np.float64), counts_rows=True)


def split_runs(keys: Floats, kinds: Sequence[Kind]) -> tuple[list[Run], bool]:
    """Runs appended to one another, and whether the rows are in an order at all.

    Where rows of one kind go back: to the start or before it, a new run begins. Else the run was
    resumed there, and its older rows from there on are dropped.
    """
    cuts = _cuts(keys, kinds)
    bounds = [0, *cuts, len(keys)]
    restarts = sum(1 for a, b in pairwise(bounds[1:]) if keys[a] <= keys[0] and b - a > 1)
    if len(cuts) - restarts > max(_FEW_CUTS, _UNORDERED * len(keys)):
        return [Run(list(range(len(keys))))], False
    runs: list[Run] = []
    for begin, end in pairwise(bounds):
        rows = list(range(begin, end))
        if not runs or keys[begin] <= keys[runs[-1].rows[0]]:
            runs.append(Run(rows))
            continue
        run = runs[-1]
        kept = [row for row in run.rows if keys[row] < keys[begin]]
        if len(run.rows) - len(kept) <= _JITTER:
            run.late += 1
            kept = run.rows
        else:
            run.resumed.append(int(keys[begin]))
        run.rows = kept + rows
    return runs, True


def steps_of(placement: Placement, rows: Ints) -> Ints:
    """Step of each of a run's `rows` (all of them, in file order)."""
    if placement.counts_rows:
        return np.arange(len(rows), dtype=np.int64)
    return np.rint(placement.keys[rows]).astype(np.int64)


def _spread(column: Column | None, n_rows: int) -> Floats:
    """Values of a column at their rows [n_rows], NaN elsewhere and where no step can be."""
    spread = np.full(n_rows, np.nan)
    if column is not None:
        values = np.where(np.abs(column.values) < _LARGEST, column.values, np.nan)
        spread[column.rows] = values
    return spread


def _is_whole(values: Floats) -> bool:
    finite = values[np.isfinite(values)]
    return bool((finite == np.rint(finite)).all())


def _filled(keys: Floats) -> Floats:
    """Keys with every gap filled by the last one before it (the first ones by the first known)."""
    known = np.isfinite(keys)
    last = np.maximum.accumulate(np.where(known, np.arange(len(keys)), -1))
    first = int(np.argmax(known))
    return keys[np.where(last < 0, first, last)]


def _advances(step: Floats, columns: Mapping[str, Column], roles: Roles) -> bool:
    """Whether a step column is of use: it has values, and not the same one for all points."""
    known = step[np.isfinite(step)]
    if len(known) == 0:
        return False
    return bool((known != known[0]).any()) or _numbers_rows(_filled(step), columns, roles)


def _numbers_rows(epoch: Floats, columns: Mapping[str, Column], roles: Roles) -> bool:
    """Whether no series has many different values in one epoch."""
    axes = {roles.step, roles.epoch, roles.index}
    for name, column in columns.items():
        if name in axes or len(column) < 2:
            continue
        at = epoch[column.rows]
        advances = (np.diff(at) != 0) | (np.diff(column.values) != 0)
        if 1 + advances.sum() > _CROWDED * (1 + (np.diff(at) != 0).sum()):
            return False
    return True


def _cuts(keys: Floats, kinds: Sequence[Kind]) -> list[int]:
    """Rows at which the key goes back, within rows of one kind."""
    last: dict[Kind, float] = {}
    cuts = []
    for row, (key, kind) in enumerate(zip(keys.tolist(), kinds, strict=True)):
        if key < last.get(kind, key):
            cuts.append(row)
            last = {}
        last[kind] = key
    return cuts


def _rows_by_kind(known: npt.NDArray[np.bool_], kinds: Sequence[Kind]) -> list[Ints]:
    """Rows of each kind among the `known` ones, the most frequent kind first."""
    found: dict[Kind, list[int]] = {}
    for row in np.flatnonzero(known).tolist():
        found.setdefault(kinds[row], []).append(row)
    return [np.array(rows) for rows in sorted(found.values(), key=len, reverse=True)]


def _epochs_called_step(
    step: Floats, kinds: Sequence[Kind], roles: Roles, notes: list[str]
) -> Floats:
    """Steps in which evaluation rows that count epochs have the step of the row before them.

    mmengine writes `step` so. They are told by lying at less than half of it, throughout.
    """
    main, *others = _rows_by_kind(np.isfinite(step), kinds) or [np.array([], dtype=np.int64)]
    if (np.diff(step[main]) < 0).any():
        return step
    for rows in others:
        before = np.searchsorted(main, rows) - 1
        if (before < 0).any() or (np.diff(step[rows]) < 0).any():
            continue
        real = step[main[before]]
        if (step[rows] < real).all() and (2 * step[rows] < real).mean() > 0.5:
            step = step.copy()
            step[rows] = real
            notes.append(f"{roles.step!r} counts epochs in {len(rows)} evaluation rows")
    return step


def _counted_on(
    step: Floats, epoch: Floats, kinds: Sequence[Kind], roles: Roles, notes: list[str]
) -> Floats:
    """Steps that start anew in every epoch, counted on from epoch to epoch."""
    both = np.isfinite(step) & np.isfinite(epoch)
    by_kind = _rows_by_kind(both, kinds)
    back = up = 0
    for rows in by_kind:
        falls = np.diff(step[rows]) < 0
        back += int(falls.sum())
        up += int((falls & (np.diff(np.floor(epoch[rows])) > 0)).sum())
    if up == 0 or 2 * up < back:
        return step
    notes.append(f"{roles.step!r} starts anew every epoch: counted on")
    usual = kinds[by_kind[0][0]]
    is_main = both & np.array([kind >= usual for kind in kinds])
    main = step[is_main]
    ahead = np.diff(main)
    gap = float(np.median(ahead[ahead > 0])) if main.min() == 0 and (ahead > 0).any() else 0.0
    return _with_offsets(step, np.floor(_filled(epoch)), is_main, gap)


def _with_offsets(
    step: Floats, epoch: Floats, is_main: npt.NDArray[np.bool_], gap: float
) -> Floats:
    """Steps plus the length of the epochs before; rows that are not main ones come after those.

    `gap` lies between an epoch's last row and the next one's first, if steps are counted from 0.
    An epoch that comes again, after a resume, begins where it began before.
    """
    counted = step.copy()
    begins = {epoch[0]: 0.0}
    now, length, reached = epoch[0], 0.0, -np.inf
    for row, (at, number) in enumerate(zip(step.tolist(), epoch.tolist(), strict=True)):
        if number > now:
            begins[number] = begins[now] + (number - now) * (length + gap)
        elif number < now:
            begins = {e: begun for e, begun in begins.items() if e <= number}
            begins.setdefault(number, 0.0)
        if number != now:
            now, length, reached = number, 0.0, -np.inf
        if is_main[row]:
            length, reached = max(length, at), begins[now] + at
            counted[row] = reached
        elif np.isfinite(at):
            counted[row] = max(begins[now] + at, reached)
        elif np.isfinite(reached):
            counted[row] = reached
    return counted
