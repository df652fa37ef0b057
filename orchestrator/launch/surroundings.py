"""What a trial finds around it, the same for every trial, and taken away again afterwards.

In-process launchers run one trial after another in one process; without this a trial would begin
with what the last one left: RNG state, environment, modules, loggers.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from orchestrator.launch.files import Job
from orchestrator.telemetry.layout import (
    EVERY_VARIABLE,
    FACTS_VARIABLE,
    FOLDER_VARIABLE,
    HISTOGRAMS_VARIABLE,
    LEVEL_VARIABLE,
)


@contextmanager
def surroundings(job: Job, folder: Path) -> Iterator[None]:
    """Seeds, threads, environment and module search path of the trial in the block."""
    with _process(), _modules(job.training.folder), _generators():
        os.environ[FOLDER_VARIABLE] = str(folder)
        os.environ[LEVEL_VARIABLE] = job.level
        os.environ.pop(EVERY_VARIABLE, None)
        if job.every is not None:
            os.environ[EVERY_VARIABLE] = str(job.every)
        os.environ[HISTOGRAMS_VARIABLE] = str(job.histograms)
        os.environ[FACTS_VARIABLE] = json.dumps(_facts(job))
        seed(job.trial.seed, threads=max(1, cores() // job.workers))
        yield


def _facts(job: Job) -> dict[str, str | int]:
    """What makes the trial what it is, beside its config; `data` is the user's word, if any."""
    facts: dict[str, str | int] = {
        "trial": job.trial.identity,
        "seed": job.trial.seed,
        "code": job.training.code,
    }
    return facts | ({"data": job.training.data} if job.training.data else {})


def seed(value: int, *, threads: int) -> None:
    """Seed every global generator, and set the threads that torch computes with.

    Two threads on busy cores ran 3-16 times slower (docs/design.md), so trials share the cores.
    """
    import torch

    random.seed(value)
    np.random.seed(value % 2**32)
    torch.manual_seed(value)
    torch.set_num_threads(threads)


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def _generators() -> Iterator[None]:
    import torch

    before = random.getstate(), np.random.get_state(), torch.get_rng_state()
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])
        torch.set_rng_state(before[2])
        torch.set_num_threads(threads)


@contextmanager
def _process() -> Iterator[None]:
    environment, arguments, path = dict(os.environ), sys.argv[:], sys.path[:]
    folder, root = Path.cwd(), logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        sys.argv[:], sys.path[:] = arguments, path
        os.chdir(folder)
        for handler in set(root.handlers) - set(handlers):
            handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)


@contextmanager
def _modules(folder: str) -> Iterator[None]:
    """The program's own modules can be imported in the block, and are forgotten after it."""
    before = set(sys.modules)
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            if _is_own(name, folder):
                del sys.modules[name]


def _is_own(name: str, folder: str) -> bool:
    """Whether a module is the user's: in their folder, but neither ours nor of a .venv in there."""
    file = getattr(sys.modules[name], "__file__", None)
    if file is None or name.split(".")[0] == "orchestrator":
        return False
    return Path(file).is_relative_to(folder) and "site-packages" not in Path(file).parts
