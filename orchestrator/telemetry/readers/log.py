"""What reading a log gives, and what a format hands over before it is interpreted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Direction, Scalar, Telemetry

Cell = float | str
Record = dict[str, Cell]
"""A row, line, object or event of a file: column -> number or word; an empty cell is absent."""


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """A foreign log, read: the curves of one run, and what was taken for what.

    `columns` names, for each series of `telemetry`, the column it came from (for a total that was
    added up, all of them), and the columns of `step` and `epoch`. `n_points` counts what the source
    holds before a session was chosen and duplicates were dropped: rows of a table, else points of
    the longest series. `axis` is what steps count: "optimizer step", "epoch" or "row". `runs` are
    the runs found, `run` the one read. `directions` says which way a series is good, where its name
    tells. `facts` (listed in facts.py) are repeated in the telemetry's header.
    """

    format: str
    columns: Mapping[str, str]
    telemetry: Telemetry
    n_points: int
    axis: str
    warnings: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    run: str = ""
    directions: Mapping[str, Direction] = field(default_factory=dict)
    facts: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Raw:
    """The content of a file, in file order, with nothing interpreted but its syntax.

    `runs` holds the records of each run that the *file format* keeps apart; a file that knows no
    runs has the one named "". `facts_of` holds facts of single runs. `is_table`: a record is a row,
    else it is one point of one series. `bare_is_train`: names without a split are of training.
    """

    runs: Mapping[str, Sequence[Record]]
    warnings: tuple[str, ...] = ()
    facts: Mapping[str, Scalar] = field(default_factory=dict)
    facts_of: Mapping[str, Mapping[str, Scalar]] = field(default_factory=dict)
    is_table: bool = True
    bare_is_train: bool = False


class NotACurve(OrchestratorError):  # noqa: N818 - read as "except readers.NotACurve"
    """A file that is there and can be read, but is no training log."""


def not_a_curve(path: Path, seen: str, needed: str) -> NotACurve:
    """The error for a file that is no training log: what was seen, and what would be needed."""
    return NotACurve(f"not a training curve: {path} {seen}", needed)
