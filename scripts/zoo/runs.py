"""Trains scenarios in parallel and keeps what they recorded, by a hash of the code that did it."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Telemetry
from orchestrator.telemetry import read
from zoo.scenarios import Scenario, by_name
from zoo.training import train

ROOT = Path(__file__).parents[2]
REFUSED = "refused.txt"


def fingerprint() -> str:
    """Of all code a recording depends on: the zoo's trainings, the monitor, the store."""
    rooms = (ROOT / "orchestrator/monitor", ROOT / "orchestrator/telemetry", ROOT / "scripts/zoo")
    files = sorted(p for room in rooms for p in room.glob("*.py") if p.name not in UNRELATED)
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


UNRELATED = {"peers.py", "signals.py", "robust.py", "runs.py"}
"""Files that read recordings only."""


def recordings(
    scenarios: Sequence[Scenario], seeds: int, *, folder: Path, workers: int = 2
) -> dict[str, list[Telemetry | str]]:
    """What each scenario recorded on each seed, or the words with which `watch` refused it.

    Trained are those that are not in `folder` yet.
    """
    store = folder / fingerprint()
    jobs = [(s.name, seed, _place(store, s.name, seed)) for s in scenarios for seed in range(seeds)]
    missing = [job for job in jobs if not job[2].exists()]
    if workers > 1 and len(missing) > 1:
        with multiprocessing.get_context("spawn").Pool(workers) as pool:
            _finish(pool.imap_unordered(_train, missing), len(missing))
    else:
        _finish(map(_train, missing), len(missing))
    found: dict[str, list[Telemetry | str]] = {s.name: [] for s in scenarios}
    for name, _, place in jobs:
        refused = place / REFUSED
        found[name].append(refused.read_text() if refused.exists() else read(place))
    return found


def _place(store: Path, name: str, seed: int) -> Path:
    return store / f"{hashlib.sha256(name.encode()).hexdigest()[:10]}-{seed}"


def _finish(done: Iterable[None], total: int) -> None:
    for count, _ in enumerate(done, start=1):
        if count % 50 == 0:
            print(f"{count} of {total} trained", flush=True)


def _train(job: tuple[str, int, Path]) -> None:
    """Train aside, then rename, so that an interrupted one is not taken for whole."""
    name, seed, place = job
    torch.set_num_threads(1)
    aside = place.with_name(f"{place.name}.{os.getpid()}")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        train(by_name(name).setup, seed, aside)
    except OrchestratorError as error:
        (aside / REFUSED).write_text(str(error))
    aside.rename(place)
