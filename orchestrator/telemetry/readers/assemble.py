"""From a file's records to a `Log`: choose the run, name the columns, put points in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from orchestrator.errors import OrchestratorError, nearest
from orchestrator.nouns import Ints, Scalar, Series, Telemetry
from orchestrator.telemetry.readers import axis, checks, curves, facts, longform, naming
from orchestrator.telemetry.readers.log import Log, Raw, Record
from orchestrator.telemetry.readers.roles import Roles, assign
from orchestrator.telemetry.readers.table import Column, columns_of

_SUMMARY_KEYS = ("train_runtime", "train_samples_per_second")
"""A Hugging Face Trainer closes with a row of means over the run, under these names."""


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
    notes, known = list(raw.warnings), dict(raw.facts)
    sources = _sources(raw)
    name, session = _wanted(path, sources, raw, run)
    known |= raw.facts_of.get(name, {})
    records = _tidied(sources[name], notes, known)
    columns = columns_of(records)
    roles = assign(columns, mapping, bare_is_train=raw.bare_is_train)
    checks.refuse_other_tables(path, records, columns, roles, is_table=raw.is_table)
    kinds = axis.kinds_of(records, roles)
    placement = axis.place(len(records), columns, roles, kinds)
    runs, is_ordered = axis.split_runs(placement.keys, kinds)
    if not is_ordered:
        notes.append("rows are in no order: sorted by step")
    number = _session(path, runs, session)
    names = _names(sources, name, len(runs))
    chosen = _name(name, number, len(sources), len(runs))
    if len(names) > 1:
        notes.append(_choice(names, chosen, len(runs[number - 1].rows)))
    notes += [*placement.notes, *roles.warnings, *_tell_resumes(runs[number - 1], known)]
    rows = np.array(runs[number - 1].rows, dtype=np.int64)
    series = _series(path, columns, roles, rows, placement, notes, known)
    counted = _axis_name(placement, series, known)
    told = facts.facts_of(series, counted, known)
    notes += facts.warnings_of(told, series)
    if every is not None:
        series = {role: curves.thinned(s, every) for role, s in series.items()}
    return Log(
        format=form,
        columns=_columns_taken(series, roles),
        telemetry=Telemetry(series, {"format": form, "axis": counted, **told}),
        n_points=len(sources[name]) if raw.is_table else _n_points(columns, roles, len(records)),
        axis=counted,
        warnings=tuple(dict.fromkeys(notes)),
        runs=names,
        run=chosen,
        directions={r: d for r in series if (d := naming.direction_of(r)) is not None},
        facts=told,
    )


def _sources(raw: Raw) -> Mapping[str, Sequence[Record]]:
    """Records of each run that the file, or a column of it, keeps apart."""
    if len(raw.runs) > 1 or not raw.is_table:
        return raw.runs
    records = longform.melted(next(iter(raw.runs.values())))
    return longform.exported(records) or longform.by_run(records) or {"": records}


def _wanted(
    path: Path, sources: Mapping[str, Sequence[Record]], raw: Raw, run: str | None
) -> tuple[str, str]:
    """Source and number of the session ("" if the user did not say) to be read."""
    longest = max(reversed(list(sources)), key=lambda name: len(sources[name]))
    if run is None:
        return longest, ""
    if run in sources:
        return run, ""
    for name in sources:
        if raw.facts_of.get(name, {}).get("run_name") == run:
            return name, ""
    name, mark, number = run.rpartition("#")
    if len(sources) == 1:
        return longest, number
    if mark and name in sources:
        return name, number
    raise OrchestratorError(f"{path}: there is no run {run!r}", nearest(run, sources))


def _session(path: Path, runs: Sequence[axis.Run], session: str) -> int:
    """Number of the run to be read, from 1: the one asked for, else the longest, else the last."""
    if not session:
        return max(range(1, len(runs) + 1), key=lambda n: (len(runs[n - 1].rows), n))
    numbers = [str(n + 1) for n in range(len(runs))]
    if session not in numbers:
        raise OrchestratorError(f"{path}: there is no run {session!r}", nearest(session, numbers))
    return int(session)


def _name(source: str, number: int, n_sources: int, n_runs: int) -> str:
    if n_runs == 1:
        return source or "1"
    return f"{source}#{number}" if n_sources > 1 else str(number)


def _names(sources: Mapping[str, Sequence[Record]], chosen: str, n_runs: int) -> tuple[str, ...]:
    """What `run` may be: all sources; the chosen one by its sessions, if it has several."""
    names: list[str] = []
    for source in sources:
        count = n_runs if source == chosen else 1
        names += [_name(source, n + 1, len(sources), count) for n in range(count)]
    return tuple(names)


def _choice(names: tuple[str, ...], chosen: str, n_rows: int) -> str:
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"{len(names)} runs ({shown}): run {chosen} is read, {n_rows} rows"


def _tell_resumes(run: axis.Run, known: dict[str, Scalar]) -> list[str]:
    notes = []
    if run.resumed:
        at = ", ".join(map(str, run.resumed))
        known["resumed_at"] = at
        notes.append(f"resumed at {at}: older rows from there on are dropped")
    if run.late:
        notes.append(f"{run.late} row(s) came late and were put in order")
    return notes


def _tidied(records: Sequence[Record], notes: list[str], known: dict[str, Scalar]) -> list[Record]:
    """Rows that are points of curves, with what other rows tell moved to `known`."""
    rows: list[Record] = []
    summaries: list[Record] = []
    for record in longform.phases(records):
        is_summary = any(key in record for key in _SUMMARY_KEYS)
        (summaries if is_summary else rows).append(record)
    if summaries:
        notes.append(f"{len(summaries)} summary row(s) are not points of the curves")
    if len(summaries) == 1:
        known |= {f"summary/{n}": c for n, c in summaries[0].items() if isinstance(c, float)}
    rows, fillers = longform.without_fillers(rows)
    if fillers:
        notes.append(f"{fillers} NaN cells stand for empty ones")
    for record in rows:
        for name, ours in naming.PLANNED_NAMES.items():
            if isinstance(value := record.get(name), float):
                known[ours] = value
    return rows


def _series(
    path: Path,
    columns: Mapping[str, Column],
    roles: Roles,
    rows: Ints,
    placement: axis.Placement,
    notes: list[str],
    known: dict[str, Scalar],
) -> dict[str, Series]:
    series, after_fit, odd = curves.curves(columns, roles, rows, placement)
    series, zero = curves.without_zeros(series)
    if not any(checks.is_measured(role) for role in series):
        raise OrchestratorError(f"{path}: the run has no losses or metrics", "choose another run")
    known |= after_fit
    if zero:
        known["not_computed"] = ", ".join(zero)
        odd.append(f"0 throughout stands for not computed, left out: {', '.join(zero)}")
    flags = {
        "is_adversarial": roles.is_adversarial,
        "val_is_test": roles.val_is_test,
        "loss_is_sum": "train/loss" in roles.sums,
    }
    known |= {name: True for name, holds in flags.items() if holds}
    notes += odd
    return series


def _columns_taken(series: Mapping[str, Series], roles: Roles) -> dict[str, str]:
    taken = {role: " + ".join(parts) for role, parts in roles.sums.items()}
    taken |= roles.columns
    axes = {"step": roles.step, "epoch": roles.epoch}
    named = {axis: column for axis, column in axes.items() if column is not None}
    return {role: taken[role] for role in series if role in taken} | named


def _axis_name(
    placement: axis.Placement, series: Mapping[str, Series], known: Mapping[str, Scalar]
) -> str:
    """What steps count. A "step" that ends at the number of epochs planned counts epochs."""
    planned = known.get("max_epochs")
    if placement.axis != axis.STEP or not isinstance(planned, int | float) or "max_steps" in known:
        return placement.axis
    return axis.EPOCH if max(s.steps[-1] for s in series.values()) <= planned else axis.STEP


def _n_points(columns: Mapping[str, Column], roles: Roles, n_records: int) -> int:
    """Points of the longest series; a position, which all points have, is none."""
    axes = (roles.step, roles.epoch, roles.index)
    counts = [len(c) for n, c in columns.items() if n not in axes or len(c) < n_records]
    return max(counts, default=n_records)
