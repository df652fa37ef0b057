"""From a file's records to a `Log`: choose the run, name the columns, put points in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Scalar, Series, Telemetry
from orchestrator.telemetry.readers import axis, checks, choice, curves, facts, longform, naming
from orchestrator.telemetry.readers.log import Log, Raw, Record
from orchestrator.telemetry.readers.roles import Roles, assign
from orchestrator.telemetry.readers.table import Column, columns_of

_SUMMARY_KEYS = ("train_runtime", "train_samples_per_second")
"""A Hugging Face Trainer closes with a row of means over the run, under these names."""


@dataclass(slots=True)
class _Told:
    """What has been found out beside the curves, so far."""

    warnings: list[str]
    facts: dict[str, Scalar]


def assemble(
    path: Path,
    raw: Raw,
    form: str,
    *,
    mapping: Mapping[str, str],
    run: str | None,
    every: int | None,
) -> Log:
    """The log of one run of `raw`; see `readers.read_log` for the arguments."""
    sources = choice.sources_of(raw)
    source, number = choice.wanted(path, sources, raw, run)
    told = _Told(list(raw.warnings), {**raw.facts, **raw.facts_of.get(source, {})})
    records = _tidied(sources[source], told)
    columns = columns_of(records)
    told.facts |= _planned(columns)
    roles = assign(columns, mapping, bare_is_train=raw.bare_is_train)
    checks.refuse_other_tables(path, records, columns, roles, is_table=raw.is_table)
    placement, sessions = _laid_out(records, columns, roles, told)
    index = choice.session_of(path, sessions, number)
    names = choice.names_of(sources, source, len(sessions))
    chosen = choice.name_of(source, index, len(sources), len(sessions))
    told.warnings += choice.warning(names, chosen, len(sessions[index].rows))
    series = _series(path, columns, roles, sessions[index], placement, told)
    counted = _axis_name(placement, series, roles, told)
    known = facts.facts_of(series, counted, told.facts)
    warnings = [*told.warnings, *facts.warnings_of(known, series)]
    if every is not None:
        series = {role: curves.thinned(s, every) for role, s in series.items()}
    return Log(
        format=form,
        columns=_columns_taken(series, roles),
        telemetry=Telemetry(series, {"format": form, "axis": counted, **known}),
        n_points=len(sources[source]) if raw.is_table else _n_points(columns, roles, len(records)),
        axis=counted,
        warnings=tuple(dict.fromkeys(warnings)),
        runs=names,
        run=chosen,
        directions={r: d for r in series if (d := naming.direction_of(r)) is not None},
        facts=known,
    )


def _tidied(records: Sequence[Record], told: _Told) -> list[Record]:
    """Rows that are points of curves; what other rows tell becomes a fact."""
    rows: list[Record] = []
    summaries: list[Record] = []
    for record in longform.phases(records):
        is_summary = any(key in record for key in _SUMMARY_KEYS)
        (summaries if is_summary else rows).append(record)
    if summaries:
        told.warnings.append(f"{len(summaries)} summary row(s) are not points of the curves")
    if len(summaries) == 1:
        told.facts |= {f"summary/{n}": c for n, c in summaries[0].items() if isinstance(c, float)}
    rows, fillers = longform.without_fillers(rows)
    if fillers:
        told.warnings.append(f"{fillers} NaN cells stand for empty ones")
    return rows


def _planned(columns: Mapping[str, Column]) -> dict[str, Scalar]:
    """What columns such as `total_steps` say of the plan."""
    names = {name: naming.PLANNED_NAMES.get(naming.normal(name)) for name in columns}
    return {ours: float(columns[name].values[-1]) for name, ours in names.items() if ours}


def _laid_out(
    records: Sequence[Record], columns: Mapping[str, Column], roles: Roles, told: _Told
) -> tuple[axis.Placement, list[axis.Run]]:
    """Where the rows lie, and the sessions they fall into."""
    kinds = axis.kinds_of(records, roles)
    placement = axis.place(len(records), columns, roles, kinds)
    sessions, is_ordered = axis.split_runs(placement.keys, kinds)
    told.warnings += [*placement.notes, *roles.warnings]
    if not is_ordered:
        told.warnings.append("rows are in no order: sorted by step")
    return placement, sessions


def _series(
    path: Path,
    columns: Mapping[str, Column],
    roles: Roles,
    session: axis.Run,
    placement: axis.Placement,
    told: _Told,
) -> dict[str, Series]:
    """The curves of one session."""
    if session.resumed:
        at = ", ".join(map(str, session.resumed))
        told.facts["resumed_at"] = at
        told.warnings.append(f"resumed at {at}: older rows from there on are dropped")
    if session.late:
        told.warnings.append(f"{session.late} row(s) came late and were put in order")
    rows = np.array(session.rows, dtype=np.int64)
    series, after_fit, notes = curves.series_of(columns, roles, rows, placement)
    series, zero = curves.without_zeros(series)
    if not any(checks.is_measured(role) for role in series):
        raise OrchestratorError(f"{path}: the run has no losses or metrics", "choose another run")
    told.warnings += notes
    told.facts |= after_fit
    if zero:
        told.facts["not_computed"] = shown = ", ".join(zero)
        told.warnings.append(f"zeros that stand for not computed are left out: {shown}")
    flags = {
        "is_adversarial": roles.is_adversarial,
        "val_is_test": roles.val_is_test,
        "loss_is_sum": "train/loss" in roles.sums,
    }
    told.facts |= {name: True for name, holds in flags.items() if holds}
    return series


def _columns_taken(series: Mapping[str, Series], roles: Roles) -> dict[str, str]:
    taken = {role: " + ".join(parts) for role, parts in roles.sums.items()}
    taken |= roles.columns
    axes = {"step": roles.step, "epoch": roles.epoch}
    named = {axis: column for axis, column in axes.items() if column is not None}
    return {role: taken[role] for role in series if role in taken} | named


def _axis_name(
    placement: axis.Placement, series: Mapping[str, Series], roles: Roles, told: _Told
) -> str:
    """What steps count: epochs, if they are the only axis and end where epochs were to end."""
    planned = told.facts.get("max_epochs")
    if placement.axis != axis.STEP or roles.epoch is not None or "max_steps" in told.facts:
        return placement.axis
    last = max(int(s.steps[-1]) for s in series.values())
    return axis.EPOCH if isinstance(planned, int | float) and last <= planned else axis.STEP


def _n_points(columns: Mapping[str, Column], roles: Roles, n_records: int) -> int:
    """Points of the longest series; a position, which all points have, is none."""
    axes = (roles.step, roles.epoch, roles.index)
    counts = [len(c) for n, c in columns.items() if n not in axes or len(c) < n_records]
    return max(counts, default=n_records)
