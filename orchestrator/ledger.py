"""The append-only record of a campaign: one JSON line per step done, fsync'd; a step is done once.

The ledger is the truth. What MLflow and the report show is rebuilt from it and never read back to
decide.
"""

from __future__ import annotations

import dataclasses
import fcntl
import io
import json
import math
import os
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import BinaryIO, TypeVar

from orchestrator.errors import OrchestratorError

T = TypeVar("T")

FILE = "ledger.jsonl"


def encode(value: object) -> object:
    """JSON-able form of a noun; non-finite floats become {"float": "nan"}, strict JSON."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [encode(v) for v in value]
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"{type(value).__name__} is not something the ledger stores")


def decode(kind: typing.Any, data: typing.Any) -> typing.Any:  # typing forms have no better type
    """The `kind` that `encode` made `data` from; fields the text lacks take their defaults."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(data, dict) and set(data) == {"float"}:
        return float(data["float"])
    if origin in (types.UnionType, typing.Union):
        structured = [a for a in arguments if dataclasses.is_dataclass(a) or typing.get_origin(a)]
        return decode(structured[0], data) if structured and data is not None else data
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = typing.get_type_hints(kind)
        names = [f.name for f in dataclasses.fields(kind) if f.name in data]
        return kind(**{name: decode(hints[name], data[name]) for name in names})
    if origin is tuple:
        kinds = [arguments[0]] * len(data) if arguments[-1] is Ellipsis else arguments
        return tuple(decode(k, d) for k, d in zip(kinds, data, strict=True))
    if origin is not None and issubclass(origin, Mapping):
        return {k: decode(arguments[1], v) for k, v in data.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(data)
    return float(data) if kind is float else data


class Ledger:
    """Steps by name, in the order they were done.

    One writer at a time: the file is locked while it is open.

    A last line cut short by a kill is dropped: its step was not done.
    """

    def __init__(self, folder: Path, *, writable: bool = True) -> None:
        self.path = folder / FILE
        self._steps: dict[str, object] = {}
        self._file: BinaryIO = io.BytesIO()
        if writable:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+b")
        try:
            if writable:
                self._lock()
                self._drop_torn_line()
            for entry in read_lines(self.path):
                self._steps[str(entry["step"])] = entry["value"]
        except BaseException:
            self.close()
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OrchestratorError(
                f"campaign folder {self.path.parent} is in use by another `orchestrator run`.",
                "wait for it, stop it, or give this one its own folder=...",
            ) from None

    def _drop_torn_line(self) -> None:
        self._file.seek(0)
        content = self._file.read()
        complete = content.rfind(b"\n") + 1
        if complete < len(content):
            self._file.truncate(complete)

    def __contains__(self, step: str) -> bool:
        return step in self._steps

    def __len__(self) -> int:
        return len(self._steps)

    def steps(self, prefix: str = "") -> Iterator[str]:
        """Names of the steps done that begin with `prefix`, in the order they were done."""
        return (name for name in list(self._steps) if name.startswith(prefix))

    def get(self, step: str, kind: type[T]) -> T:
        """What `step` gave, as a `kind`; KeyError if it was not done."""
        return typing.cast(T, decode(kind, self._steps[step]))

    def add(self, step: str, value: object) -> None:
        """Write one step down for good; doing one twice is a bug of ours."""
        assert step not in self._steps, f"step {step!r} was done before"
        encoded = encode(value)
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"at": now, "step": step, "value": encoded}, allow_nan=False)
        self._file.write(line.encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._steps[step] = encoded

    def once(self, step: str, kind: type[T], compute: Callable[[], T]) -> T:
        """The value of `step`: read back if it was done before, else computed and written down."""
        if step not in self:
            self.add(step, compute())
        return self.get(step, kind)

    def close(self) -> None:
        """Give the lock back."""
        self._file.close()


def read_lines(path: Path) -> Iterator[dict[str, object]]:
    """The complete lines of a ledger file, parsed; a damaged line names itself."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                yield json.loads(line)
            except ValueError:
                raise OrchestratorError(
                    f"line {number} of {path} is damaged: {line[:80]!r}",
                    "restore the file from a copy, or start afresh with another folder=...",
                ) from None
