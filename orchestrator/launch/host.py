"""What runs in a trial's process: the user's program, and around it what makes it a trial.

Nothing that the program does escapes but through the record in the trial's folder: an exception
that reached the launcher would take the results of the whole batch with it.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import numbers
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn
from omegaconf import DictConfig

from orchestrator.errors import OrchestratorError, nearest
from orchestrator.launch import script
from orchestrator.launch.compose import canonical, differences, hydra_aside, hydra_override
from orchestrator.launch.files import Job, TrialFiles
from orchestrator.launch.surroundings import surroundings
from orchestrator.nouns import Outcome, Status
from orchestrator.telemetry import recordings

ROOM = str(Path(__file__).parent)
TRACEBACK_LINES = 12  # in an outcome's reason; all of it is in the trial's output


class TimeLimit(BaseException):
    """The trial has run for as long as it may."""


def run(config: DictConfig) -> dict[str, Any]:
    """Hydra's task function for every trial: run it, record how it ended, return the record.

    An interrupt alone is not recorded, so the trial is repeated.
    """
    files = TrialFiles(HydraConfig.get().runtime.output_dir)
    job = files.read_job()
    files.set_attempts(files.count_attempts() + 1)
    started, clock = time.time(), time.monotonic()
    returned: object = None
    error: BaseException | None = None
    try:
        with surroundings(job, files.folder), time_limit(job.limit_seconds), hydra_aside():
            returned = _program(job, files, config)
    except KeyboardInterrupt:
        raise
    except BaseException as raised:
        traceback.print_exc()
        error = raised
    recordings.close_all()
    metrics = files.read_metrics() | numbers_in(returned, job.metric)
    status, reason = judged(job.metric, metrics, error, returned)
    outcome = Outcome(
        identity=job.trial.identity,
        status=status,
        metrics=metrics,
        seconds=time.monotonic() - clock,
        attempts=files.count_attempts(),
        reason=reason,
        started=started,
    )
    files.write_outcome(outcome)
    return dataclasses.asdict(outcome) | {"status": status.value}


# --- the user's program -------------------------------------------------------------------------


def _program(job: Job, files: TrialFiles, config: DictConfig) -> object:
    return _script(job, files) if job.training.kind == "script" else _call(job, config)


def _call(job: Job, config: DictConfig) -> object:
    check_frozen(job, config)
    module, _, name = job.training.target.rpartition(".")
    program = importlib.import_module(module)
    if not hasattr(program, name):
        functions = [n for n, value in vars(program).items() if callable(value)]
        raise OrchestratorError(f"module {module} has no {name}.", nearest(name, functions))
    returned: object = getattr(program, name)(config)
    return returned


def _script(job: Job, files: TrialFiles) -> object:
    app = _App(job)
    overrides = [hydra_override(key, value) for key, value in job.trial.overrides]
    overrides.append(hydra_override(job.training.seed_key, job.trial.seed))
    path = Path(job.training.folder) / job.training.target
    script.run(path, overrides, files.app, app)
    if app.job is None:
        raise OrchestratorError(
            f"{path} ended without calling a function under @hydra.main.",
            "train.script wants a Hydra app; for a plain function use train.call",
        )
    returned: object = app.job.return_value
    return returned


class _App:
    """Listens to a script: refuses another config than the frozen one, keeps what it returned."""

    def __init__(self, frozen: Job) -> None:
        self.frozen = frozen
        self.job: JobReturn | None = None

    def started(self, config: DictConfig) -> None:
        check_frozen(self.frozen, script.plain(config))

    def ended(self, job: JobReturn) -> None:
        self.job = job


class ConfigDiffers(BaseException):
    """The config composed for the job is not the one frozen when the trial was planned."""


def check_frozen(job: Job, config: DictConfig) -> None:
    """Raise ConfigDiffers unless `config` resolves to what was frozen in the trial."""
    found = canonical(config, job.training.seed_key)
    if found != job.trial.config:
        told = differences(job.trial.config, found)
        raise ConfigDiffers(f"config differs from the frozen one: {told}")


# --- how it ended -------------------------------------------------------------------------------


def numbers_in(returned: object, metric: str) -> dict[str, float]:
    """The metrics that a program returned: one number is `metric`, a mapping says its own names.

    Anything else is the program's own business.
    """
    if isinstance(returned, Mapping):
        read = {str(name): _number(value) for name, value in returned.items()}
    else:
        read = {metric: _number(returned)}
    return {name: value for name, value in read.items() if value is not None}


def _number(value: object) -> float | None:
    """Python's and numpy's numbers, and whatever holds one value as a 0-d tensor does."""
    if isinstance(value, numbers.Real):
        return float(value)
    shape, item = getattr(value, "shape", None), getattr(value, "item", None)
    return float(item()) if item is not None and shape is not None and len(shape) == 0 else None


def judged(
    metric: str, metrics: Mapping[str, float], error: BaseException | None, returned: object
) -> tuple[Status, str]:
    """Status and reason, from what was logged and returned and from what was raised.

    A run that lost its numbers has diverged whatever it did next; many raise only then.
    """
    lost = [n for n in (metric, "train/loss") if not math.isfinite(metrics.get(n, 0.0))]
    if isinstance(error, TimeLimit):
        return Status.TIMED_OUT, str(error)
    if lost:
        reason = f"{lost[0]} is {metrics[lost[0]]}"
        return Status.DIVERGED, reason + (f"; then {_headline(error)}" if error else "")
    if isinstance(error, ConfigDiffers):
        return Status.FAILED, str(error)
    if error is not None and not _is_normal_exit(error):
        return Status.FAILED, _told(error)
    if metric not in metrics:
        return Status.FAILED, (
            f"metric {metric!r} was never logged, and the program returned "
            f"{type(returned).__name__}; logged: {nearest(metric, metrics)}"
        )
    return Status.DONE, ""


def _is_normal_exit(error: BaseException) -> bool:
    return isinstance(error, SystemExit) and error.code in (None, 0)


def _told(error: BaseException) -> str:
    import torch

    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(ROOM):
        trace = trace.tb_next  # the user's frames are what helps
    text = "".join(traceback.format_exception(type(error), error, trace)).strip()
    tail = "\n".join(text.splitlines()[-TRACEBACK_LINES:])
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return f"out of memory: {_headline(error)}\n{tail}"
    return f"{_headline(error)}\n{tail}"


def _headline(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip().splitlines()[0]


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Raise TimeLimit in the block after `seconds`, at the next step of the interpreter.

    Only a main thread can be interrupted, and a job elsewhere is not limited.
    """
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def expire(*_: object) -> None:
        raise TimeLimit(f"stopped after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
