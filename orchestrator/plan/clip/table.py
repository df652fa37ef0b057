"""Columns of text into a NormSeries; every cell that cannot be is told with its row."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

import numpy as np

from orchestrator.clip_nouns import Bools, Flag, NormSeries
from orchestrator.errors import OrchestratorError, collect, nearest
from orchestrator.nouns import Floats, Ints

NAMES: dict[str, tuple[str, ...]] = {
    "step": ("step", "global_step", "iteration", "iter", "update", "num_updates"),
    "grad_norm": (
        "grad_norm", "gnorm", "gradient_norm", "total_norm", "total_grad_norm", "train/grad_norm",
        "global_grad_norm", "grad/norm", "norm",
    ),
    "loss": ("loss", "train/loss", "train_loss", "training_loss"),
    "lr": ("lr", "learning_rate", "train/learning_rate", "train/lr"),
    "loss_scale": ("loss_scale", "scale", "grad_scale"),
    "skipped": ("skipped", "skipped_step", "is_skipped", "overflow"),
    "run": ("run", "run_id", "run_name", "seed", "trial"),
}  # fmt: skip
"""What a column may be called; the first is ours."""

MISSING = {"", "none", "null", "na", "n/a", "-"}
YES, NO = {"1", "1.0", "true", "yes"}, {"0", "0.0", "false", "no"} | MISSING


def read_csv(path: Path) -> tuple[NormSeries, ...]:
    """The series in a CSV with a header, one for each value of a column `run` if there is one."""
    header, rows = _rows(path)
    taken = _columns(header, path)
    columns = list(zip_longest(*rows, fillvalue=""))
    texts = {
        name: list(columns[i]) if i < len(columns) else [""] * len(rows)
        for name, i in taken.items()
    }
    runs = texts.pop("run", None)
    if runs is None or len(set(runs)) < 2:
        return (series(texts, source=str(path), row=lambda i: f"line {i + 2}"),)
    found = []
    for run in dict.fromkeys(runs):
        at = [i for i, r in enumerate(runs) if r == run]
        part = {name: [cells[i] for i in at] for name, cells in texts.items()}
        found.append(series(part, source=f"{path}, run {run}", row=_lines(at)))
    return tuple(found)


def _lines(at: Sequence[int]) -> Callable[[int], str]:
    return lambda i: f"line {at[i] + 2}"


def series(
    texts: Mapping[str, Sequence[str]], *, source: str, row: Callable[[int], str]
) -> NormSeries:
    """Columns of text [n] each into a series in the order of its steps; rows without norm go.

    `row(i)` says where the user finds row i.
    """
    keep = [i for i, cell in enumerate(texts["grad_norm"]) if not _is_missing(cell)]

    def place(i: int) -> str:
        return row(keep[i])

    cells = {name: [column[i] for i in keep] for name, column in texts.items()}
    numbers, skipped = _numbers(cells, source, place)
    norms = numbers["grad_norm"]
    steps = _steps(numbers.get("step"), len(norms), source, place)
    _refuse_negative(norms, source, place)
    order, flags = _order(steps, source, place)

    def taken(name: str) -> Floats | None:
        return numbers[name][order] if name in numbers else None

    return NormSeries(
        steps=steps[order],
        norms=norms[order],
        loss=taken("loss"),
        lr=taken("lr"),
        loss_scale=taken("loss_scale"),
        skipped=None if skipped is None else skipped[order],
        source=source,
        flags=flags,
    )


def _numbers(
    cells: Mapping[str, Sequence[str]], source: str, place: Callable[[int], str]
) -> tuple[dict[str, Floats], Bools | None]:
    """The columns as numbers, and whether each step was skipped; all mistakes are told at once."""
    numbers: dict[str, Floats] = {}
    skipped = None
    errors = []
    for name in ("step", "grad_norm", "loss", "lr", "loss_scale", "skipped"):
        try:
            if name in cells and name == "skipped":
                skipped = _bools(cells[name], source, place)
            elif name in cells:
                numbers[name] = _floats(cells[name], name, source, place)
        except OrchestratorError as error:
            errors.append(error)
    collect(errors)
    return numbers, skipped


def _rows(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            first = file.readline()
            delimiter = max(",;\t", key=first.count)
            file.seek(0)
            rows = [r for r in csv.reader(file, delimiter=delimiter) if r]
    except (UnicodeDecodeError, csv.Error) as error:
        raise OrchestratorError(
            f"{path} is no table of text: {error}.",
            "give a CSV in UTF-8 with the columns step,loss,lr,grad_norm",
        ) from None
    if not rows:
        raise OrchestratorError(
            f"{path} is empty.", "give a CSV with the columns step,loss,lr,grad_norm"
        )
    return [name.strip() for name in rows[0]], rows[1:]


def _columns(header: Sequence[str], path: Path) -> dict[str, int]:
    """Our name of each column that is used, and its place."""
    lower = [name.lower() for name in header]
    taken = {}
    for ours, theirs in NAMES.items():
        place = next((lower.index(name) for name in theirs if name in lower), None)
        if place is not None:
            taken[ours] = place
    if "grad_norm" not in taken:
        raise OrchestratorError(
            f"{path} has no column grad_norm.",
            f"name the column of the total gradient norm grad_norm; {nearest('grad_norm', header)}",
        )
    return taken


def _is_missing(cell: str) -> bool:
    return cell.strip().lower() in MISSING


def _floats(
    cells: Sequence[str], name: str, source: str, row: Callable[[int], str]
) -> Floats:  # fmt: skip
    """Cells [n] as numbers, NaN where one is missing."""
    try:
        return np.array([float(c) for c in cells], dtype=np.float64)
    except ValueError:
        pass
    out = np.full(len(cells), np.nan)
    for i, cell in enumerate(cells):
        if _is_missing(cell):
            continue
        try:
            out[i] = float(cell)
        except ValueError:
            raise OrchestratorError(
                f"{source}, {row(i)}: {name} is {cell.strip()!r}, which is no number.",
                "write numbers with a decimal point, nan or inf, or leave the cell empty",
            ) from None
    return out


def _bools(cells: Sequence[str], source: str, row: Callable[[int], str]) -> Bools:
    out = np.zeros(len(cells), bool)
    for i, cell in enumerate(cells):
        word = cell.strip().lower()
        if word not in YES | NO:
            raise OrchestratorError(
                f"{source}, {row(i)}: skipped is {cell.strip()!r}.", "write 0 or 1"
            )
        out[i] = word in YES
    return out


def _steps(given: Floats | None, n: int, source: str, row: Callable[[int], str]) -> Ints:
    """The optimizer step of each row; rows are counted where no step was written."""
    if given is None:
        return np.arange(n, dtype=np.int64)
    odd = np.flatnonzero(
        ~(np.isfinite(given) & (given == np.floor(given)) & (np.abs(given) < 2e15))
    )
    if len(odd):
        raise OrchestratorError(
            f"{source}, {row(int(odd[0]))}: step is {given[odd[0]]:g}.",
            "give the number of the optimizer step, a whole number, in every row",
        )
    return given.astype(np.int64)


def _refuse_negative(norms: Floats, source: str, row: Callable[[int], str]) -> None:
    below = np.flatnonzero(norms < 0)
    if len(below):
        raise OrchestratorError(
            f"{source}, {row(int(below[0]))}: grad_norm is {norms[below[0]]:g}; {len(below)} of "
            f"{len(norms)} are negative, and a norm is not.",
            "give the norm itself, not its logarithm or a difference",
        )


def _order(
    steps: Ints, source: str, row: Callable[[int], str]
) -> tuple[Ints, tuple[Flag, ...]]:  # fmt: skip
    """Rows in the order of their steps, the last of each step, and what that hides.

    A file that goes back to its first step holds several runs; one that goes back part of the way
    is a training that was resumed.
    """
    moves = np.diff(steps)
    if not len(steps) or (moves > 0).all():
        return np.arange(len(steps), dtype=np.int64), ()
    order = np.argsort(steps, kind="stable")
    is_last = np.append(np.diff(steps[order]) > 0, True)
    repeated = int(len(steps) - is_last.sum())
    restarts = np.flatnonzero((moves < 0) & (steps[1:] == steps.min())) + 1
    if len(restarts) and repeated and steps[0] == steps.min():
        raise OrchestratorError(
            f"{source}: steps start again at {steps[restarts[0]]} in {row(int(restarts[0]))}: "
            f"several "
            "runs in one file.",
            "add a column run that tells them apart, or give one file per run",
        )
    flags = []
    if repeated:
        flags.append(
            Flag(
                "repeated_steps",
                f"{repeated} of {len(steps)} rows repeat a step; the last row of each step was "
                f"used. A "
                "row per micro-batch, rank or parameter group is no record of the total norm.",
            )
        )
    if (moves < 0).any():
        flags.append(
            Flag("unsorted_steps", "Steps were not in order; rows were sorted by their step.")
        )
    return order[is_last], tuple(flags)
