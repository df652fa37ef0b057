"""The warm server: imports once what every trial imports, then forks one process per job.

It lives in a process of its own and in one thread, so that forking is safe, and it never touches a
GPU: a process forked after that could not use one. The connection to its owner is its lifeline:
once that is closed, by whatever means the owner went away, it kills all jobs and ends.
"""

from __future__ import annotations

import atexit
import ctypes
import faulthandler
import gc
import io
import os
import pickle
import pkgutil
import selectors
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection


@dataclass(frozen=True, slots=True)
class Setting:
    """What holds for the jobs sent after it.

    `preload` names what to import before them. `gpus` are values for CUDA_VISIBLE_DEVICES, dealt
    out to the slots of which each running job has one; empty: all jobs see all.
    """

    workers: int
    preload: tuple[str, ...]
    environ: dict[str, str]
    path: list[str]
    cwd: str
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """`work` is a pickled function without arguments; `output` is the file its output goes to."""

    number: int
    work: bytes
    output: str
    limit_seconds: float | None


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job's process ended; `code` is negative for the signal that killed it."""

    number: int
    code: int
    began: float
    seconds: float
    timed_out: bool


@dataclass(slots=True)
class _Running:
    number: int
    slot: int
    began: float
    clock: float
    deadline: float
    timed_out: bool = False


class Server:
    """Runs at most `workers` jobs at once, each in a process group of its own."""

    def __init__(self, owner: Connection) -> None:
        self.owner = owner
        self.pid = os.getpid()
        self.setting: Setting | None = None
        self.waiting: deque[Job] = deque()
        self.running: dict[int, _Running] = {}
        # A signal makes a byte readable, which is how one wait sees messages and ended children.
        self.wake_reader, self.wake_writer = os.pipe()
        os.set_blocking(self.wake_reader, False)
        os.set_blocking(self.wake_writer, False)
        signal.set_wakeup_fd(self.wake_writer, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> Job | None:
        """Serve until the owner goes away: None. In each forked process: the job to do there."""
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self.owner, selectors.EVENT_READ)
                selector.register(self.wake_reader, selectors.EVENT_READ)
                while True:
                    job = self._start()
                    if job is not None:
                        return job
                    ready = {key.fileobj for key, _ in selector.select(self._seconds_left())}
                    if self.owner in ready:
                        self._receive()
                    if self.wake_reader in ready:
                        with suppress(BlockingIOError):
                            os.read(self.wake_reader, 4096)
                    self._reap()
                    self._expire()
        except (EOFError, ConnectionError):
            return None
        finally:
            if os.getpid() == self.pid:
                self._kill_all()

    def _receive(self) -> None:
        message = pickle.loads(self.owner.recv_bytes())
        if isinstance(message, Job):
            self.waiting.append(message)
        else:
            self.setting = message
            warm_up(message.preload)

    def _start(self) -> Job | None:
        while self.setting and self.waiting and len(self.running) < self.setting.workers:
            job = self.waiting.popleft()
            taken = {running.slot for running in self.running.values()}
            slot = next(s for s in range(self.setting.workers) if s not in taken)
            pid = os.fork()
            if pid == 0:
                self._become(job, slot)
                return job
            with suppress(OSError):  # the child does it too; whoever is first
                os.setpgid(pid, pid)
            clock = time.monotonic()
            deadline = clock + (job.limit_seconds or float("inf"))
            self.running[pid] = _Running(job.number, slot, time.time(), clock, deadline)
        return None

    def _become(self, job: Job, slot: int) -> None:
        """Turn the forked process into the job's."""
        assert self.setting is not None
        os.setpgid(0, 0)
        _die_with(self.pid)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.owner.close()
        os.close(self.wake_reader)
        os.close(self.wake_writer)
        output = os.open(job.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        os.environ.clear()
        os.environ.update(self.setting.environ)
        if self.setting.gpus:
            gpu = self.setting.gpus[slot % len(self.setting.gpus)]
            os.environ["CUDA_VISIBLE_DEVICES"] = gpu
        sys.path[:] = self.setting.path
        os.chdir(self.setting.cwd)

    def _reap(self) -> None:
        while self.running:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return
            pid = ended.si_pid
            _kill_group(pid)  # what the job started and left behind
            _, status = os.waitpid(pid, 0)
            running = self.running.pop(pid, None)
            if running is None:
                continue
            ending = Ending(
                number=running.number,
                code=os.waitstatus_to_exitcode(status),
                began=running.began,
                seconds=time.monotonic() - running.clock,
                timed_out=running.timed_out,
            )
            self.owner.send_bytes(pickle.dumps(ending))

    def _seconds_left(self) -> float | None:
        deadlines = [r.deadline for r in self.running.values() if not r.timed_out]
        left = min(deadlines, default=float("inf")) - time.monotonic()
        return None if left == float("inf") else max(0.0, left)

    def _expire(self) -> None:
        for pid, running in self.running.items():
            if time.monotonic() >= running.deadline and not running.timed_out:
                running.timed_out = True
                _kill_group(pid)

    def _kill_all(self) -> None:
        for pid in self.running:
            _kill_group(pid)
        for pid in self.running:
            os.waitpid(pid, 0)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # macOS refuses a group of zombies
        os.killpg(pid, signal.SIGKILL)


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when the server is killed.

    Elsewhere than on Linux it ends by itself.
    """
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)


def warm_up(names: Sequence[str]) -> None:
    """Import `names`; what cannot be imported is left to the job, which will say so."""
    for name in names:
        with suppress(Exception):
            pkgutil.resolve_name(name)
    gc.collect()
    gc.freeze()  # what was imported is not collected, so its pages stay shared


def warm_libraries() -> None:
    """Have done what libraries do once per process: Hydra's search for plugins, torch's compiler.

    torch imports that with the first optimizer, in 1.1 s. No step is taken and nothing is
    differentiated: with a GPU in the machine the one would look for it and the other would start
    autograd's threads, and forked processes could use neither.
    """
    import torch
    from hydra.core.plugins import Plugins

    Plugins.instance()
    torch.set_num_threads(1)
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])


def main(descriptor: int) -> None:
    """The server's process: warm up, serve; and in the forked processes, do the job and end."""
    # Lets is_available() answer without binding a GPU; jobs are given the owner's environment.
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    warm_libraries()
    job = Server(Connection(descriptor)).serve()
    if job is not None:
        faulthandler.enable()
        assert isinstance(sys.stdout, io.TextIOWrapper)
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
        pickle.loads(job.work)()
    _leave()


def _leave() -> None:
    """End the process as the interpreter would, but leave its memory to the kernel.

    Taking down all that the server imported takes 0.45 s, several times what the rest of a job's
    process costs.
    """
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
