"""A table of scores, checked: one number for each arm and seed. Every mistake is told at once."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.errors import OrchestratorError, nearest
from orchestrator.score_nouns import COLUMNS, Columns, Scores, ScoreTable

STATUSES = ("done", "diverged", "missing")

MOST_TOLD = 20
"""Mistakes of single cells that are told one by one; a file of wrong rows has one reason."""

_SEED_NAME = re.compile(r"(?:seed[\s_=:-]*)?(\d+)", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"[-+]?\d*,\d+(?:[eE][-+]?\d+)?")

Cells = Sequence[object]
Row = tuple[str, object, object, object, object]
"""(place, arm, seed, value, status), as it stands in the table."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The scores of a table, what was wrong in it, and what was done with it."""

    scores: Scores
    mistakes: tuple[OrchestratorError, ...]
    notes: tuple[str, ...]


def read_scores(table: ScoreTable) -> Reading:
    """Read a long table (one run a row) or a wide one (arms against seeds).

    Long: columns arm, seed, value and, if need be, status: done (or empty), diverged or missing.
    Wide: a column `seed` and one for each arm, or a column `arm` and one for each seed; an empty
    cell of a text file is a run that is missing. In either form a cell may say "diverged" or
    "missing" in place of a number. A number that is not finite has to be explained by a status.
    """
    columns = table.names
    found = {c.strip().casefold(): c for c in table.columns}
    arm, seed, value, status = (
        found.get(name.strip().casefold())
        for name in (columns.arm, columns.seed, columns.value, columns.status)
    )
    used = {c for c in (arm, seed, value, status) if c is not None}
    rest = [c for c in table.columns if c not in used]
    notes, mistakes = list(table.notes), list(table.mistakes)
    if value is None and seed is not None and arm is None and rest:
        rows = _arms_as_columns(table, seed, rest)
        notes.append(f"columns taken for arms: {_listed(rest)}")
    elif value is None and arm is not None and seed is None and rest:
        rows = _seeds_as_columns(table, arm, rest)
        notes.append(f"columns taken for seeds: {_listed(rest)}")
    elif arm is None or seed is None or value is None:
        mistakes += _missing_columns(table, columns, found)
        return Reading({}, tuple(mistakes), tuple(notes))
    else:
        blank = ("",) * len(table.places)
        cells = [table.columns[c] for c in (arm, seed, value)]
        rows = zip(table.places, *cells, table.columns[status] if status else blank, strict=True)
        mistakes += _near_status(table, rest, status, columns.status)
        if rest:
            notes.append(f"columns not used: {_listed(rest)}")
    scores, wrong, count = _collected(rows, table)
    mistakes += wrong
    if count > len(wrong):
        mistakes.append(OrchestratorError(f"{table.name}: and {count - len(wrong)} more rows"))
    return Reading(scores, tuple(mistakes), tuple(notes))


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more


# --- the forms ------------------------------------------------------------------------------------


def _arms_as_columns(table: ScoreTable, seed: str, arms: Sequence[str]) -> Iterator[Row]:
    for arm in arms:
        cells = zip(table.places, table.columns[seed], table.columns[arm], strict=True)
        for place, number, value in cells:
            yield f"{place}, column {arm!r}", arm, number, value, _status_if_empty(value)


def _seeds_as_columns(table: ScoreTable, arm: str, seeds: Sequence[str]) -> Iterator[Row]:
    numbers = [(name, match[1] if (match := _SEED_NAME.fullmatch(name)) else name)
               for name in seeds]  # fmt: skip
    for i, (place, name) in enumerate(zip(table.places, table.columns[arm], strict=True)):
        for column, number in numbers:
            value = table.columns[column][i]
            yield f"{place}, column {column!r}", name, number, value, _status_if_empty(value)


def _status_if_empty(value: object) -> str:
    """An empty cell of a text file is no run. The NaN of a frame may be a run that diverged."""
    return "missing" if isinstance(value, str) and not value.strip() else ""


def _missing_columns(
    table: ScoreTable, columns: Columns, found: dict[str, str]
) -> list[OrchestratorError]:
    wanted = (("--arm", columns.arm), ("--seed", columns.seed), ("--metric", columns.value))
    return [
        OrchestratorError(
            f"{table.name} has no column {name!r}",
            f"name it with {option}; {nearest(name, [str(c) for c in table.columns])}",
        )
        for option, name in wanted
        if name.strip().casefold() not in found
    ]


def _near_status(
    table: ScoreTable, rest: Sequence[str], status: str | None, name: str
) -> list[OrchestratorError]:
    """A column that is nearly called `status`: not to read it would make diverged runs vanish."""
    if status is not None:
        return []
    if name != COLUMNS.status:
        known = [str(c) for c in table.columns]
        return [OrchestratorError(f"{table.name} has no column {name!r}", nearest(name, known))]
    near = [c for c in rest if "did you mean" in nearest(c.casefold(), (name,))]
    return [
        OrchestratorError(
            f"{table.name} has a column {c!r}, which may be the status of the runs",
            f"call it {name!r}, or name it with --status; rename it if it is something else",
        )
        for c in near
    ]


# --- the cells ------------------------------------------------------------------------------------


def _collected(
    rows: Iterator[Row], table: ScoreTable
) -> tuple[Scores, list[OrchestratorError], int]:
    """The scores, the first mistakes, and the number of mistakes."""
    scores: Scores = {}
    seen: dict[str, dict[int, str]] = {}
    mistakes: list[OrchestratorError] = []
    count = 0
    for place, *cells in rows:
        try:
            arm, seed, value = _cell(*cells, decimal_comma=table.decimal_comma)
            first = seen.setdefault(arm, {}).setdefault(seed, place)
            if first is not place:
                raise OrchestratorError(
                    f"arm {arm!r} has seed {seed} twice (first in {first})",
                    "a pair of runs needs one value each: keep one, or give them different seeds",
                )
        except OrchestratorError as error:
            count += 1
            if name := _text(cells[0]):
                scores.setdefault(name, {})  # the arm is there, whatever is wrong with its run
            if count <= MOST_TOLD:
                problem = f"{table.name}, {place}: {error.problem}"
                mistakes.append(OrchestratorError(problem, error.remedy))
            continue
        runs = scores.setdefault(arm, {})
        if value is not None:
            runs[seed] = value
    return scores, mistakes, count


def _cell(
    arm: object, seed: object, value: object, status: object, *, decimal_comma: bool
) -> tuple[str, int, float | None]:
    """(arm, seed, value) of one run; NaN for diverged, None for missing."""
    name = _text(arm)
    if not name:
        raise OrchestratorError("the arm has no name", "name the arm of every run")
    number = _whole(seed)
    if number is None:
        raise OrchestratorError(
            f"seed={_text(seed)!r} is not a whole number", "pairs are joined on the seed"
        )
    word = _text(status).lower()
    if not word and isinstance(value, str) and value.strip().lower() in STATUSES[1:]:
        word = value.strip().lower()
    if word and word not in STATUSES:
        raise OrchestratorError(f"status={_text(status)!r} is unknown", nearest(word, STATUSES))
    if word in STATUSES[1:]:
        return name, number, math.nan if word == "diverged" else None
    score = _number(value, decimal_comma=decimal_comma)
    if not math.isfinite(score):
        raise OrchestratorError(
            f"value={value!r} is not a finite number",
            "give diverged, for a run that blew up, or missing as its status or in place of it",
        )
    return name, number, score


def _text(cell: object) -> str:
    """A cell as it would be typed; the several ways to say "nothing" are empty."""
    if isinstance(cell, str):
        return cell.strip()
    text = "" if cell is None else str(cell)
    return "" if text in ("nan", "<NA>", "NaT") else text


def _whole(cell: object) -> int | None:
    """The whole number in a cell; spreadsheets write the seed 3 as 3.0."""
    if isinstance(cell, bool):
        return None
    if isinstance(cell, int | str):
        try:
            return int(cell)  # a seed beyond 2^53 is no longer exact as a float
        except ValueError:
            pass
    number = _number(cell)
    return int(number) if number.is_integer() else None


def _number(cell: object, *, decimal_comma: bool = False) -> float:
    """The number in a cell, NaN if it is none."""
    if isinstance(cell, bool):
        return math.nan
    try:
        return float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        pass
    if decimal_comma and isinstance(cell, str) and _DECIMAL_COMMA.fullmatch(cell.strip()):
        return float(cell.replace(",", "."))
    return math.nan
