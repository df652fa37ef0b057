"""The series of one run: each column's points in order of steps, one per step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from orchestrator.nouns import Floats, Ints, Scalar, Series
from orchestrator.telemetry.names import unit
from orchestrator.telemetry.readers import axis, naming
from orchestrator.telemetry.readers.roles import Roles
from orchestrator.telemetry.readers.table import Column, is_periodic

_AFTER_FIT = 0.1
"""A last evaluation within this share of the usual distance was made after training: of another
split, or of the best checkpoint."""

_KEPT = 20
"""Thinning leaves a series at least this many points: evaluations are few already."""


def series_of(
    columns: Mapping[str, Column], roles: Roles, rows: Ints, placement: axis.Placement
) -> tuple[dict[str, Series], dict[str, Scalar], list[str]]:
    """Series by role, facts, and notes, from `rows` (ascending) of the file.

    Of several points at one step the last written stands.
    """
    steps = np.zeros(len(placement.keys), dtype=np.int64)
    steps[rows] = axis.steps_of(placement, rows)
    is_wanted = np.zeros(len(steps), dtype=np.bool_)
    is_wanted[rows] = True
    series: dict[str, Series] = {}
    facts: dict[str, Scalar] = {}
    repeated: list[str] = []
    sources = dict(roles.columns)
    if roles.epoch and placement.axis != axis.EPOCH:
        sources["epoch"] = roles.epoch
    for role, name in sources.items():
        column = columns[name]
        keep = is_wanted[column.rows]
        at, values = _ordered(steps[column.rows[keep]], column.values[keep])
        if role.startswith("val/") and placement.axis == axis.STEP and _is_after_fit(at):
            facts[f"after_fit/{role}"] = float(values[-1])
            at, values = at[:-1], values[:-1]
        is_last = np.append(np.diff(at) > 0, True)[: len(at)]
        if not is_last.all() and role != "epoch":
            repeated.append(role)
        if len(at):
            series[role] = Series(at[is_last], values[is_last], unit(role))
    return _with_sums(series, roles), facts, _notes(facts, repeated)


def without_zeros(series: dict[str, Series]) -> tuple[dict[str, Series], list[str]]:
    """Series without the zeros that stand for "not computed", and which had such.

    They are validation losses that are 0 throughout beside a train loss that is not, as YOLOv9
    writes them, and validation series that are 0 but in every n-th row.
    """
    train, val = series.get("train/loss"), series.get("val/loss")
    is_never = train is not None and train.values.any() and (val is None or not val.values.any())
    kept: dict[str, Series] = {}
    zero = []
    for role, curve in series.items():
        rows = np.flatnonzero(curve.values)
        if not role.startswith("val/") or len(rows) == len(curve):
            kept[role] = curve
        elif len(rows) == 0 and is_never and naming.is_loss(role):
            zero.append(role)
        elif is_periodic(rows.tolist()):
            kept[role] = Series(curve.steps[rows], curve.values[rows], curve.unit)
            zero.append(role)
        else:
            kept[role] = curve
    return kept, zero


def thinned(series: Series, every: int) -> Series:
    """Every `every`-th point, or as many as leave `_KEPT`."""
    stride = max(1, min(every, len(series) // _KEPT))
    return Series(series.steps[::stride], series.values[::stride], series.unit)


def _ordered(steps: Ints, values: Floats) -> tuple[Ints, Floats]:
    if (np.diff(steps) < 0).any():
        order = np.argsort(steps, kind="stable")
        return steps[order], values[order]
    return steps, values


def _is_after_fit(steps: Ints) -> bool:
    if len(steps) < 3:
        return len(steps) == 2 and bool(steps[0] == steps[1])
    usual = np.median(np.diff(np.unique(steps[:-1]))) if steps[0] < steps[-2] else 0.0
    return bool(steps[-1] - steps[-2] < _AFTER_FIT * usual)


def _with_sums(series: dict[str, Series], roles: Roles) -> dict[str, Series]:
    """Series and the totals that nobody logged, at the steps at which all parts are known."""
    by_column = {column: role for role, column in roles.columns.items()}
    for role, parts in roles.sums.items():
        curves = [series[by_column[p]] for p in parts if by_column[p] in series]
        if len(curves) < len(parts):
            continue
        steps = curves[0].steps
        for curve in curves[1:]:
            steps = np.intersect1d(steps, curve.steps, assume_unique=True)
        total = sum(c.values[np.isin(c.steps, steps)] for c in curves)
        if len(steps):
            series = {role: Series(steps, np.asarray(total), unit(role)), **series}
    return series


def _notes(facts: Mapping[str, Scalar], repeated: list[str]) -> list[str]:
    notes = [
        f"{name.removeprefix('after_fit/')}: evaluated again after training ({value:g}); left out"
        for name, value in facts.items()
        if isinstance(value, float)
    ]
    if repeated:
        shown = ", ".join(repeated[:5]) + (", ..." if len(repeated) > 5 else "")
        notes.append(f"several values at one step, the last one stands: {shown}")
    return notes
