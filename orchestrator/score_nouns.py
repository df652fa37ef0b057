"""Scores that somebody already has, between the room that reads them and the one that compares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Comparisons, Direction

Scores = dict[str, dict[int, float]]
"""arm -> seed -> value, NaN for diverged; a missing run has no entry. Arms in order of the file."""


@dataclass(frozen=True, slots=True)
class Columns:
    """What the columns of a table are called, or the tags and parameters of MLflow runs."""

    arm: str = "arm"
    seed: str = "seed"
    value: str = "value"
    status: str = "status"


COLUMNS = Columns()


@dataclass(frozen=True, slots=True, eq=False)
class ScoreTable:
    """A table of scores, not yet checked: cells by column, all columns of one length.

    `names` are what it calls its columns; `name` and `places` (one a row) are what an error says.
    `metric`, `baseline` and `direction` are known where the source tells them. `mistakes` were
    found while it was read; `notes` are what a reader of the result has to know.
    """

    name: str
    columns: Mapping[str, Sequence[object]]
    places: Sequence[str]
    names: Columns = COLUMNS
    decimal_comma: bool = False
    metric: str = ""
    baseline: str = ""
    direction: Direction | None = None
    mistakes: tuple[OrchestratorError, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """A table's comparison, the scores it rests on, and the notes of the table."""

    comparisons: Comparisons
    scores: Scores
    notes: tuple[str, ...]
