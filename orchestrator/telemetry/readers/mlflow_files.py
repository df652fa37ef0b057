"""MLflow: `mlruns` folders as text files lie in them, and histories that somebody else fetched."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from orchestrator.nouns import Scalar
from orchestrator.telemetry.readers.cells import cell
from orchestrator.telemetry.readers.log import Raw, Record, not_a_curve
from orchestrator.telemetry.readers.registry import reader

Point = tuple[float, int, float]
"""(time, step, value) as MLflow keeps a metric."""

_PLANNED = ("max_epochs", "num_epochs", "epochs", "n_epochs", "num_train_epochs", "max_steps")
_STATUS = {"1": "RUNNING", "2": "SCHEDULED", "3": "FINISHED", "4": "FAILED", "5": "KILLED"}
_LONGEST_PARAM = 60
_MAX_DOUBLE = 1.797e308
"""MLflow's database keeps infinity as the largest double."""


def _sniff(_: bytes, path: Path) -> float:
    folder = next(_run_folders(path), None) if path.is_dir() else None
    return 0.9 if folder is not None and _histories(folder / "metrics") else 0.0


@reader("mlflow", sniff=_sniff)
def read(path: Path) -> Raw:
    """The metrics of each run under a folder: `mlruns`, an experiment's, or a run's own."""
    runs: dict[str, list[Record]] = {}
    facts: dict[str, Mapping[str, Scalar]] = {}
    warnings: list[str] = []
    for folder in _run_folders(path):
        meta = _meta(folder / "meta.yaml")
        histories = _histories(folder / "metrics")
        if meta.get("lifecycle_stage") == "deleted" or not histories:
            continue
        runs[folder.name] = records_of(histories)
        facts[folder.name] = {**facts_of(_params(folder / "params")), **_facts_of_meta(meta)}
        if not meta:
            warnings.append(f"run {folder.name} has no meta.yaml: read without it")
    if not runs:
        raise not_a_curve(path, "holds MLflow runs without metrics", "log one value per step")
    return Raw(runs, tuple(warnings), facts_of=facts, is_table=False)


def records_of(histories: Mapping[str, Sequence[Point]]) -> list[Record]:
    """Points in the order in which they were logged.

    Metrics logged without a step have step 0 throughout: their points are counted instead.
    """
    counted = all(step == 0 for points in histories.values() for _, step, _ in points)
    rows = [
        (time, index if counted else step, name, value)
        for name, points in histories.items()
        for index, (time, step, value) in enumerate(sorted(points, key=lambda p: p[:2]))
    ]
    rows.sort(key=lambda row: row[:2])
    key = "row" if counted and any(step for _, step, _, _ in rows) else "step"
    return [{key: float(step), name: _infinite(value)} for _, step, name, value in rows]


def facts_of(params: Mapping[str, str]) -> dict[str, Scalar]:
    """Short parameters as `param/<name>`; `max_epochs` or `max_steps` if one of them tells it."""
    facts: dict[str, Scalar] = {}
    for name, text in params.items():
        value = cell(text)
        if value is not None and len(text) <= _LONGEST_PARAM:
            facts[f"param/{name}"] = value
        if name in _PLANNED and isinstance(value, float) and math.isfinite(value) and value > 0:
            facts["max_steps" if name == "max_steps" else "max_epochs"] = value
    return facts


def _facts_of_meta(meta: Mapping[str, str]) -> dict[str, Scalar]:
    status = meta.get("status", "")
    facts = {"run_name": meta.get("run_name"), "status": _STATUS.get(status, status)}
    return {name: fact for name, fact in facts.items() if fact}


def _infinite(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) >= _MAX_DOUBLE else value


def _run_folders(path: Path, depth: int = 0) -> Iterator[Path]:
    """Folders with a `metrics` folder, at most two levels down: mlruns/<experiment>/<run>."""
    if path.name == "metrics" and depth == 0:
        path = path.parent
    if (path / "metrics").is_dir():
        yield path
        return
    if depth < 3:
        try:
            inner = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
        except OSError:
            return
        for folder in inner:
            yield from _run_folders(folder, depth + 1)


def _histories(folder: Path) -> dict[str, list[Point]]:
    """Points of every metric, lines of "time value [step]"; slashes in a name make subfolders."""
    histories = {}
    for file in sorted(p for p in folder.rglob("*") if p.is_file()):
        points = [p for line in _text(file).splitlines() if (p := _point(line)) is not None]
        if points:
            histories[file.relative_to(folder).as_posix()] = points
    return histories


def _point(line: str) -> Point | None:
    parts = [cell(word) for word in line.split()]
    time, value, *rest = parts if len(parts) in (2, 3) else (None, None)
    step = rest[0] if rest else 0.0
    if not isinstance(time, float) or not isinstance(value, float) or not isinstance(step, float):
        return None
    return (time, int(step), value) if math.isfinite(step) and math.isfinite(time) else None


def _params(folder: Path) -> dict[str, str]:
    if not folder.is_dir():
        return {}
    return {p.relative_to(folder).as_posix(): _text(p) for p in folder.rglob("*") if p.is_file()}


def _meta(file: Path) -> dict[str, str]:
    """The plain `key: value` lines of a run's meta.yaml."""
    pairs = (line.partition(":") for line in _text(file).splitlines() if ":" in line)
    return {key.strip(): value.strip().strip("'\"") for key, _, value in pairs}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
