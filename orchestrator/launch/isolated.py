"""The launcher `isolated`: each trial its own process, forked from a warm server, N at once."""

from __future__ import annotations

import atexit
import functools
import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]  # takes a function of __main__ by value
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, configure_log, run_job, setup_globals
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict

from orchestrator.launch.files import TrialFiles
from orchestrator.launch.sweep import Sweep
from orchestrator.launch.warm import Ending, Job, Setting
from orchestrator.nouns import Outcome, Status

PRELOAD = (__name__, "orchestrator.launch.host", "pyarrow", "pandas")
"""What every trial imports; the last two, 0.6 s, come with the first chunk of telemetry written."""

GOODBYE_SECONDS = 10.0  # for the server to kill its jobs and end; it takes milliseconds


class ServerLostError(RuntimeError):
    """The warm server ended without being asked to."""


class WarmServer:
    """The owner's end of a warm server; closing it kills what still runs there."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._connection = Connection(ours.detach())
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (open as long as the server)
        code = (
            "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
            "from orchestrator.launch.warm import main; main(int(sys.argv[2]))"
        )
        arguments = [json.dumps(sys.path), str(theirs.fileno())]
        self._process = subprocess.Popen(
            [sys.executable, "-c", code, *arguments],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C in the terminal is the owner's alone
            # The order of sets of strings, too, is to be the same for every trial and resumption.
            env={"PYTHONHASHSEED": "0", **os.environ},
        )
        theirs.close()

    def is_alive(self) -> bool:
        """Whether it can be given jobs."""
        return not self._connection.closed and self._process.poll() is None

    def run(self, setting: Setting, jobs: Iterable[Job]) -> Iterator[Ending]:
        """Run `jobs`, yielding each one's ending as it comes; jobs are drawn while others run."""
        try:
            self._send(setting)
            outstanding = 0
            for job in jobs:
                self._send(job)
                outstanding += 1
                while self._connection.poll():
                    yield self._receive()
                    outstanding -= 1
            for _ in range(outstanding):
                yield self._receive()
        except (EOFError, ConnectionError):
            raise ServerLostError(f"the warm server ended: {self._last_words()}") from None

    def close(self) -> None:
        """Kill what runs and end; safe to call twice."""
        self._connection.close()
        try:
            self._process.wait(GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:  # it is stopped, or still importing
            self._process.kill()
            self._process.wait()
        self._errors.close()

    def _send(self, message: Setting | Job) -> None:
        self._connection.send_bytes(pickle.dumps(message))

    def _receive(self) -> Ending:
        ending = pickle.loads(self._connection.recv_bytes())
        assert isinstance(ending, Ending)
        return ending

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return f"exit code {code}; {lines[-1] if lines else 'it said nothing'}"


_server: WarmServer | None = None  # kept between batches: starting it takes seconds


def warm_server() -> WarmServer:
    """The warm server of this process; a living one is used again."""
    global _server
    if _server is None or not _server.is_alive():
        close()
        _server = WarmServer()
        atexit.register(close)
    return _server


def close() -> None:
    """End the warm server, if there is one."""
    global _server
    if _server is not None:
        _server.close()
        atexit.unregister(close)
        _server = None


# --- Hydra's side -------------------------------------------------------------------------------


@dataclass(slots=True)
class Batch:
    """What all jobs of a batch are made of, and the folder of each, in their order."""

    hydra_context: HydraContext
    task_function: TaskFunction
    config: DictConfig
    timeout_seconds: float | None
    files: list[TrialFiles] = field(default_factory=list)

    def jobs(
        self, job_overrides: Sequence[Sequence[str]], first: int, returns: Path
    ) -> Iterator[Job]:
        """One job per list of overrides, composed when it is asked for."""
        state = Singleton.get_state()
        jobs = Sweep(self.hydra_context.config_loader, self.config)
        for number, overrides in enumerate(job_overrides):
            config = jobs.config(overrides)
            with open_dict(config):
                config.hydra.job.id = config.hydra.job.num = first + number
            sweep = config.hydra.sweep
            files = TrialFiles(Path(str(sweep.dir), str(sweep.subdir)).absolute())
            files.folder.mkdir(parents=True, exist_ok=True)
            self.files.append(files)
            arguments = self.hydra_context, self.task_function, config, state
            work = functools.partial(execute, *arguments, returns / str(number))
            yield Job(number, cloudpickle.dumps(work), str(files.output), self.timeout_seconds)


def launch(
    batch: Batch,
    job_overrides: Sequence[Sequence[str]],
    *,
    first: int,
    workers: int,
    preload: Sequence[str],
) -> list[JobReturn]:
    """Run one job per list of overrides and return what they returned, in their order.

    A job that was killed leaves an outcome in its folder: TIMED_OUT or LOST, with the reason.
    """
    setup_globals()
    configure_log(batch.config.hydra.hydra_logging, batch.config.hydra.verbose)
    setting = Setting(
        workers=workers,
        preload=(*PRELOAD, *preload),
        environ=dict(os.environ),
        path=sys.path[:],
        cwd=str(Path.cwd()),
        gpus=gpus(workers),
    )
    results: dict[int, JobReturn] = {}
    with tempfile.TemporaryDirectory() as returns:
        try:
            jobs = batch.jobs(job_overrides, first, Path(returns))
            for ending in warm_server().run(setting, jobs):
                record(ending, batch.files[ending.number])
                returned = Path(returns) / str(ending.number)
                results[ending.number] = _job_return(ending, returned)
        except BaseException:
            close()  # and with it all jobs that run
            raise
    for number, overrides in enumerate(job_overrides):
        results[number].overrides = list(overrides)
    return [results[number] for number in range(len(job_overrides))]


def execute(
    hydra_context: HydraContext,
    task_function: TaskFunction,
    config: DictConfig,
    state: dict[str, Any],
    returned: Path,
) -> None:
    """Run one Hydra job in its own process and leave what it returned or raised in a file."""
    state["instances"][Plugins] = Plugins.instance()  # or they would be searched for again
    Singleton.set_state(state)
    setup_globals()
    HydraConfig.instance().set_config(config)
    job = run_job(
        hydra_context=hydra_context,
        config=config,
        task_function=task_function,
        job_dir_key="hydra.sweep.dir",
        job_subdir_key="hydra.sweep.subdir",
    )
    try:
        content = cloudpickle.dumps((job.status, job._return_value))
    except Exception as error:  # whatever the user's object raises when it is pickled
        told = f"{job._return_value!r} cannot be returned: {error}"
        content = pickle.dumps((JobStatus.FAILED, RuntimeError(told)))
    returned.write_bytes(content)


def record(ending: Ending, files: TrialFiles) -> None:
    """Write down how a job ended that could not do so itself."""
    if files.outcome.exists():
        return
    files.write_outcome(
        Outcome(
            identity=files.folder.name,
            status=Status.TIMED_OUT if ending.timed_out else Status.LOST,
            metrics=files.read_metrics(),
            seconds=ending.seconds,
            attempts=files.count_attempts(),
            reason=_told(ending),
            started=ending.began,
        )
    )


def _told(ending: Ending) -> str:
    if ending.timed_out:
        return f"stopped after {ending.seconds:.0f} s"
    if ending.code < 0:
        name = signal.Signals(-ending.code).name
        hint = "; out of memory?" if -ending.code == signal.SIGKILL else ""
        return f"killed by {name}{hint}"
    return f"exited with code {ending.code} before its outcome was recorded"


def _job_return(ending: Ending, returned: Path) -> JobReturn:
    if not returned.exists():
        return JobReturn(status=JobStatus.FAILED, _return_value=RuntimeError(_told(ending)))
    status, value = pickle.loads(returned.read_bytes())
    return JobReturn(status=status, _return_value=value)


def gpus(workers: int) -> tuple[str, ...]:
    """One GPU for each slot, where there are several of both; otherwise every job sees them all.

    Asked of nvidia-smi: no library may touch a GPU in a process that others are forked from.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = [name.strip() for name in visible.split(",") if name.strip()]
    elif shutil.which("nvidia-smi"):
        query = ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"]
        listed = subprocess.run(query, capture_output=True, text=True)
        names = listed.stdout.split() if listed.returncode == 0 else []
    else:
        names = []
    return tuple(names) if workers > 1 and len(names) > 1 else ()
