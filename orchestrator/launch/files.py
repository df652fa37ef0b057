"""The folder of one trial: every file name spelled in one class, every write atomic."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.nouns import Outcome, Status, Training, Trial
from orchestrator.telemetry import read_metrics
from orchestrator.telemetry.layout import FOLDER


@dataclass(frozen=True, slots=True)
class Job:
    """What a trial's process is told, frozen in its folder before it is launched.

    `workers` trials share the machine's cores; `limit_seconds` is None where the launcher itself
    ends a trial that takes too long; `level`, `every` and `histograms` say how much it records.
    """

    trial: Trial
    training: Training
    metric: str
    workers: int
    limit_seconds: float | None
    level: str
    every: int | None
    histograms: int


class TrialFiles:
    """A trial's folder. What is in it, and not how its process ended, says how the trial ended."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.job = self.folder / "trial.json"
        self.outcome = self.folder / "outcome.json"
        self.attempts = self.folder / "attempts.json"
        self.output = self.folder / "output.txt"
        self.telemetry = self.folder / FOLDER
        self.app = self.folder / "app"  # output folder of a script's own Hydra job

    def prepare(self, job: Job) -> None:
        """Freeze `job` in the folder, wiped of an earlier attempt but for the count of attempts."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for path in self.folder.iterdir():
            if path == self.attempts:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        write_json(self.job, dataclasses.asdict(job))

    def read_job(self) -> Job:
        """The job as `prepare` froze it."""
        data = json.loads(self.job.read_text(encoding="utf-8"))
        overrides = tuple((key, value) for key, value in data["trial"].pop("overrides"))
        trial = Trial(**data.pop("trial"), overrides=overrides)
        return Job(trial=trial, training=Training(**data.pop("training")), **data)

    def count_attempts(self) -> int:
        """How often the trial has begun, over all launches and resumptions."""
        data = _read_json(self.attempts)
        return int(data["attempts"]) if data else 0

    def set_attempts(self, count: int) -> None:
        """Set the count that `count_attempts` reads."""
        write_json(self.attempts, {"attempts": count})

    def write_outcome(self, outcome: Outcome) -> None:
        """Record how the trial ended."""
        write_json(self.outcome, dataclasses.asdict(outcome) | {"status": outcome.status.value})

    def read_outcome(self) -> Outcome | None:
        """The recorded outcome, or None while there is none."""
        data = _read_json(self.outcome)
        return Outcome(**data | {"status": Status(data["status"])}) if data else None

    def read_metrics(self) -> dict[str, float]:
        """The last value of each logged metric."""
        return read_metrics(self.telemetry) if self.telemetry.is_dir() else {}


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write aside, flush to disk, rename: a reader sees the old file or the new, never a part."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with aside.open("w", encoding="utf-8") as file:
        json.dump(data, file)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return data
