"""Which log a folder holds. Importing this module registers all formats, in the order of ties."""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import OrchestratorError
from orchestrator.telemetry.readers import (  # noqa: F401
    event_files,
    hf_trainer_state,
    json_history,
    jsonl,
    keras_csv,
    lightning_csv,
    mlflow_files,
    plain_csv,
    registry,
    text_log,
    ultralytics_csv,
)
from orchestrator.telemetry.readers.log import not_a_curve
from orchestrator.telemetry.readers.source import files_under

_KNOWN = (
    "trainer_state.json",
    "metrics.csv",
    "results.csv",
    "trainer_log.jsonl",
    "metrics.jsonl",
    "metrics.json",
    "scalars.json",
    "training_log.csv",
    "log.csv",
    "history.csv",
    "history.json",
    "log.txt",
    "train.log",
)
"""Names that training tools give to their logs, richer ones first."""

_SUFFIXES = ((".csv", ".tsv", ".jsonl", ".log"), (".json", ".txt"))
"""Endings of logs under other names, surer ones first."""


def log_in(path: Path) -> Path:
    """`path`, or the one log inside it if it is a folder that no format reads as a whole."""
    if not path.is_dir() or registry.detect(b"", path) is not None:
        return path
    files = files_under(path)
    for name in _KNOWN:
        if found := [file for file in files if file.name == name]:
            return _latest(path, found)
    tiers = ([file for file in files if file.suffix in endings] for endings in _SUFFIXES)
    found = next((tier for tier in tiers if tier), [])
    if len(found) == 1:
        return found[0]
    shown = ", ".join(str(file.relative_to(path)) for file in found[:8])
    seen = f"holds {len(found)} files that may be logs ({shown})" if found else "holds no log"
    raise not_a_curve(path, seen, "give the path of one log")


def unknown(path: Path) -> OrchestratorError:
    """The error for a file that no format can read."""
    formats = ", ".join(registry.FORMATS)
    seen = "holds binary data that no reader knows"
    return not_a_curve(path, seen, f"give a log in one of these formats: {formats}")


def _latest(folder: Path, found: list[Path]) -> Path:
    """The log with most in it: each checkpoint's state repeats and extends the one before."""
    nearest = min(len(file.relative_to(folder).parts) for file in found)
    if nearest == 1:
        return min(found, key=lambda file: len(file.parts))
    if found[0].name == _KNOWN[0]:
        return max(found, key=lambda file: file.stat().st_size)
    if len(found) == 1:
        return found[0]
    shown = ", ".join(str(file.relative_to(folder)) for file in found[:8])
    raise not_a_curve(folder, f"holds several logs ({shown})", "give the path of one of them")
