"""Which run of a file is read. The format keeps its sources apart, the axis their sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.errors import OrchestratorError, nearest
from orchestrator.telemetry.readers import longform
from orchestrator.telemetry.readers.axis import Run
from orchestrator.telemetry.readers.log import Raw, Record

_SHOWN = 8

Sources = Mapping[str, Sequence[Record]]
"""Records of each run that the file, or a column of it, keeps apart; "" if there is one only."""


def sources_of(raw: Raw) -> Sources:
    """The runs of a file, as far as they can be told apart without looking at steps."""
    if len(raw.runs) > 1 or not raw.is_table:
        return raw.runs
    records = longform.melted(next(iter(raw.runs.values())))
    return longform.exported(records) or longform.by_run(records) or {"": records}


def wanted(path: Path, sources: Sources, raw: Raw, run: str | None) -> tuple[str, str]:
    """Source, and number of the session ("" if the user did not say), that `run` names.

    A run is named by its source, by MLflow's run name, by its session's number, or by
    `source#number`. Without a name it is the longest source, of equally long ones the last.
    """
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


def session_of(path: Path, sessions: Sequence[Run], number: str) -> int:
    """Index of the session to be read: the one numbered so, else the longest, else the last."""
    if not number:
        return max(range(len(sessions)), key=lambda i: (len(sessions[i].rows), i))
    numbers = [str(i + 1) for i in range(len(sessions))]
    if number not in numbers:
        raise OrchestratorError(f"{path}: there is no run {number!r}", nearest(number, numbers))
    return int(number) - 1


def name_of(source: str, index: int, n_sources: int, n_sessions: int) -> str:
    """What a session is called."""
    if n_sessions == 1:
        return source or "1"
    return f"{source}#{index + 1}" if n_sources > 1 else str(index + 1)


def names_of(sources: Sources, chosen: str, n_sessions: int) -> tuple[str, ...]:
    """What `run` may be: every source; the chosen one by its sessions, if it has several."""
    names: list[str] = []
    for source in sources:
        count = n_sessions if source == chosen else 1
        names += [name_of(source, i, len(sources), count) for i in range(count)]
    return tuple(names)


def warning(names: tuple[str, ...], chosen: str, n_rows: int) -> list[str]:
    """The sentence that says what was chosen, if there was a choice."""
    if len(names) == 1:
        return []
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    return [f"{len(names)} runs ({shown}): run {chosen} is read, {n_rows} rows"]
