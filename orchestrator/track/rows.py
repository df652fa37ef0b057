"""MLflow's runs -> rows of a ScoreTable: of anybody's experiment, and of a campaign of our own."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import OrchestratorError, nearest
from orchestrator.nouns import Direction
from orchestrator.score_nouns import Columns, ScoreTable

if TYPE_CHECKING:
    from mlflow.entities import Run

DIVERGED_BEYOND = 1e100
"""MLflow's databases store an infinity as the largest number there is."""

MOST_TOLD = 20
ENDED_BADLY, NOT_ENDED = ("FAILED", "KILLED"), ("RUNNING", "SCHEDULED")

_KIND = "orchestrator.kind"
_BLOCK = re.compile(r"(r\d+-[ab]|headline)")
"""Arms of one seed block begin alike: screening and confirmation of each round, headline."""

_BASELINE = re.compile(r"r\d+-a0 |r\d+-b\.1 |headline\.1 ")
_ENDINGS = {"DONE": "", "DIVERGED": "diverged", "TIMED_OUT": "diverged"}


@dataclass(frozen=True, slots=True)
class Row:
    """One run; `status` is a word of a ScoreTable's, empty where the value is the result."""

    run: str
    arm: str
    seed: str
    value: float
    status: str


# --- anybody's ------------------------------------------------------------------------------------


def of_anybody(
    name: str, runs: Sequence[Run], *, metric: str | None, columns: Columns
) -> ScoreTable:
    """Rows for the runs that have an arm and a seed; the others are counted in a note."""
    metric = metric or _only_metric(name, runs)
    if metric not in (known := _metrics(runs)):
        raise OrchestratorError(f"{name}: no run has a metric {metric!r}", nearest(metric, known))
    arms, seeds = _values(name, runs, columns.arm), _values(name, runs, columns.seed)
    words = _known(name, runs, columns.status)
    rows: list[Row] = []
    mistakes: list[OrchestratorError] = []
    told = Counter[str]()
    for run in runs:
        key, value = run.info.run_id, run.data.metrics.get(metric)
        if key not in arms or key not in seeds:
            told[f"without {columns.arm} or {columns.seed} left out"] += 1
            continue
        status = words.get(key) or _status(run.info.status, value)
        if not status and value is None:
            problem = f"{name}, run {key} (arm {arms[key]}, seed {seeds[key]}) has no {metric!r}"
            mistakes.append(OrchestratorError(problem, nearest(metric, run.data.metrics)))
            continue
        if status == "missing" and key not in words:
            told[f"{run.info.status}, hence missing"] += 1
        rows.append(Row(key, arms[key], seeds[key], math.nan if value is None else value, status))
    kept = _without_retried(rows)
    told["repeated later, not used"] += len(rows) - len(kept)
    notes = tuple(f"{count} run(s) {what}" for what, count in told.items() if count)
    return _table(name, kept, metric, mistakes=tuple(mistakes[:MOST_TOLD]), notes=notes)


def _status(ended: str, value: float | None) -> str:
    """What became of a run by MLflow's own word, and by its metric."""
    if value is not None and not abs(value) < DIVERGED_BEYOND:
        return "diverged"
    return "missing" if ended in (*ENDED_BADLY, *NOT_ENDED) else ""


def _without_retried(rows: Sequence[Row]) -> list[Row]:
    """Rows less the accidents that were run again: an arm and seed with a result has no accident.

    Two results of one arm and seed stay, and are told as a mistake where scores are checked.
    """
    results = {(row.arm, row.seed) for row in rows if row.status != "missing"}
    kept: dict[tuple[str, str, str], Row] = {}
    for row in rows:
        if row.status != "missing":
            kept[row.arm, row.seed, row.run] = row
        elif (row.arm, row.seed) not in results:
            kept[row.arm, row.seed, ""] = row
    return list(kept.values())


def _only_metric(name: str, runs: Sequence[Run]) -> str:
    known = _metrics(runs)
    if len(known) != 1:
        raise OrchestratorError(
            f"{name}: which metric is it?", f"name it with --metric; {nearest('', known)}"
        )
    return known.pop()


def _metrics(runs: Sequence[Run]) -> set[str]:
    return {metric for run in runs for metric in run.data.metrics}


def _values(name: str, runs: Sequence[Run], key: str) -> dict[str, str]:
    """What `key` is, by run that has it."""
    values = _known(name, runs, key)
    if not values:
        entries = {f"{kind}.{k}" for run in runs for kind, k, _ in _entries(run)}
        own = [entry for entry in entries if not entry.startswith("tags.mlflow.")]
        raise OrchestratorError(
            f"{name}: no run has a tag or a parameter {key!r}",
            f"name the arm's with --arm, the seed's with --seed; {nearest(key, own)}",
        )
    return values


def _known(name: str, runs: Sequence[Run], key: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for run in runs:
        values = {value for kind, k, value in _entries(run) if key in (k, f"{kind}.{k}")}
        if len(values) > 1:
            raise OrchestratorError(
                f"{name}, run {run.info.run_id}: tag and parameter {key!r} differ",
                f"say which of them: tags.{key} or params.{key}",
            )
        if values:
            found[run.info.run_id] = values.pop()
    return found


def _entries(run: Run) -> Iterator[tuple[str, str, str]]:
    yield from (("params", key, value) for key, value in run.data.params.items())
    yield from (("tags", key, value) for key, value in run.data.tags.items())


# --- our own --------------------------------------------------------------------------------------


def is_campaign(runs: Sequence[Run]) -> bool:
    """Whether `sync` made these runs."""
    return any(_KIND in run.data.tags for run in runs)


def of_campaign(
    name: str, runs: Sequence[Run], *, metric: str | None, baseline: str | None
) -> ScoreTable:
    """Rows for the trials of the seed block to which `baseline` belongs."""
    trials = [run for run in runs if run.data.tags.get(_KIND) == "trial"]
    blocks: dict[str, list[Run]] = {}
    for trial in trials:
        blocks.setdefault(_block(trial.data.tags["arm"]), []).append(trial)
    controls = {arm for run in trials if _BASELINE.match(arm := run.data.tags["arm"])}
    ordered = sorted(controls, key=_turn)
    if baseline is None and not controls:
        raise OrchestratorError(f"{name} has no trials yet", "run the campaign first")
    chosen = baseline if baseline is not None else ordered[0]
    if (block := _block(chosen)) not in blocks:
        raise OrchestratorError(f"{name} has no arm {chosen!r}", nearest(chosen, controls))
    top = next((r.data.tags for r in runs if r.data.tags.get(_KIND) == "campaign"), {})
    metric = metric or top.get("metric") or _only_metric(name, blocks[block])
    rows = [_trial(trial, metric) for trial in blocks[block]]
    others = [arm for arm in ordered if arm != chosen]
    notes = ["verdicts of one look at all arms together; the campaign's own are in its report"]
    if others:
        notes.append(f"other baselines with arms of their own: {', '.join(others)}")
    way = top.get("direction")
    return _table(
        name,
        rows,
        metric,
        baseline=chosen,
        direction=None if way is None else Direction(way),
        notes=tuple(notes),
    )


def _block(arm: str) -> str:
    match = _BLOCK.match(arm)
    return match[1] if match else ""


def _turn(arm: str) -> tuple[int, str]:
    """Rounds by their number, the headline after them."""
    match = re.match(r"r(\d+)", arm)
    return (int(match[1]) if match else sys.maxsize, arm)


def _trial(run: Run, metric: str) -> Row:
    tags = run.data.tags
    value = run.data.metrics.get(metric)
    status = _ENDINGS.get(tags["ended"], "missing")
    if not status and value is None:  # a value that is not finite is not shown in MLflow
        status = "diverged"
    return Row(
        run.info.run_id,
        tags["arm"],
        run.data.params["seed"],
        math.nan if value is None else value,
        status,
    )


def _table(
    name: str,
    rows: Sequence[Row],
    metric: str,
    *,
    baseline: str = "",
    direction: Direction | None = None,
    mistakes: tuple[OrchestratorError, ...] = (),
    notes: tuple[str, ...] = (),
) -> ScoreTable:
    columns: dict[str, Sequence[object]] = {
        "arm": [row.arm for row in rows],
        "seed": [row.seed for row in rows],
        "value": [row.value for row in rows],
        "status": [row.status for row in rows],
    }
    return ScoreTable(
        name,
        columns,
        [f"run {row.run}" for row in rows],
        metric=metric,
        baseline=baseline,
        direction=direction,
        mistakes=mistakes,
        notes=notes,
    )
