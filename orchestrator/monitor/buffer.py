"""What was recorded and is not written yet: rows on the host, their values still on the device."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from orchestrator.monitor.probe import Measurement, fetch
from orchestrator.nouns import Scalar
from orchestrator.telemetry import Writer
from orchestrator.telemetry.writer import Column

_FLUSH_STEPS = 500
_FLUSH_SECONDS = 2.0
_FLUSH_TENSORS = 20_000
"""Bounds what an evaluation may log without a single step."""

Value = float | Tensor
"""A number, or a 0-d tensor that is read when the buffer is flushed."""


class StepRow(NamedTuple):
    """One optimizer step.

    `seconds` is NaN for the first. `norms` are of gradients: one total, or one tensor for each
    optimizer with the norm of each gradient. `max_norm` is None where `clip_grad_norm_` was not
    called, infinite where it only recorded.
    """

    step: int
    seconds: float
    lr: tuple[Value, ...]
    norms: tuple[Tensor, ...]
    max_norm: float | None


@dataclass(slots=True)
class Buffer:
    """Rows until the next flush, which writes them and is the only place that reads a tensor.

    It refers to no model and no optimizer, so that it can outlive the monitor: it is closed when
    that is collected or the process ends.
    """

    writer: Writer
    steps: list[StepRow] = field(default_factory=list)
    layers: list[tuple[int, Measurement]] = field(default_factory=list)
    logged: list[tuple[int, str, Value]] = field(default_factory=list)
    facts: dict[str, Scalar] = field(default_factory=dict)
    tensors: int = 0
    flushed_at: float = field(default_factory=time.perf_counter)
    process: int = field(default_factory=os.getpid)

    def add_step(self, row: StepRow) -> None:
        """Hold what was seen of a step."""
        self.steps.append(row)
        self.tensors += 1

    def add_layers(self, step: int, measurement: Measurement) -> None:
        """Hold what was seen of the layers in a step."""
        self.layers.append((step, measurement))
        self.tensors += 3

    def add_logged(self, step: int, name: str, value: Value) -> None:
        """Hold a metric."""
        self.logged.append((step, name, value))
        self.tensors += 1

    def is_due(self, now: float) -> bool:
        """Whether it is time to flush, by `time.perf_counter` or by what is held."""
        return (
            len(self.steps) >= _FLUSH_STEPS
            or self.tensors >= _FLUSH_TENSORS
            or now - self.flushed_at > _FLUSH_SECONDS
        )

    def flush(self) -> None:
        """Write all rows and forget them; one transfer from the device for all of them.

        A forked child (a data loader's worker) has a copy of the rows, and does not write them.
        """
        steps, layers, logged = self.steps, self.layers, self.logged
        self.steps, self.layers, self.logged, self.tensors = [], [], [], 0
        self.flushed_at = time.perf_counter()
        if os.getpid() != self.process:
            return
        held: list[Value] = [value for row in steps for value in (*row.lr, *row.norms)]
        held += [norms for _, m in layers for norms in (m.gradients, m.parameters, m.updates)]
        held += [value for _, _, value in logged]
        read = _Read([value for value in held if isinstance(value, Tensor)])
        for _, rows in itertools.groupby(steps, key=lambda row: len(row.lr)):
            self._write_steps(list(rows), read)
        for names in dict.fromkeys(measurement.layers for _, measurement in layers):
            self._write_layers([row for row in layers if row[1].layers == names], read)
        if logged:
            self._write_logged(logged, read)
        self.writer.amend(self.facts)

    def close(self) -> None:
        """Write what is left, and make it last."""
        self.flush()
        if os.getpid() == self.process:
            self.writer.close(self.facts)

    def _write_steps(self, rows: Sequence[StepRow], read: _Read) -> None:
        norm = np.array([read.norm(row.norms) for row in rows])
        no_norm = np.array([not row.norms for row in rows])
        max_norm = np.array([np.nan if row.max_norm is None else row.max_norm for row in rows])
        no_clip = np.array([row.max_norm is None for row in rows])
        # What torch multiplies the gradients with (clip_grads_with_norm_), or nothing at all.
        with np.errstate(invalid="ignore"):
            coefficient = np.where(np.isinf(max_norm), 1, np.minimum(1, max_norm / (norm + 1e-6)))
        seconds = np.array([row.seconds for row in rows])
        columns: dict[str, Column] = {
            "grad_norm": np.ma.array(norm, mask=no_norm),
            "clip_coefficient": np.ma.array(coefficient, mask=no_clip),
            "max_norm": np.ma.array(max_norm, mask=no_clip),
            "step_seconds": np.ma.array(seconds, mask=np.isnan(seconds)),
        }
        lr = np.array([[read.number(lr) for lr in row.lr] for row in rows])  # [n, groups]
        for i in range(lr.shape[1]):
            columns[f"lr/{i}" if i else "lr"] = lr[:, i]
        self.writer.write_steps(np.array([row.step for row in rows]), columns)

    def _write_layers(self, rows: Sequence[tuple[int, Measurement]], read: _Read) -> None:
        steps = np.array([step for step, _ in rows])
        seen = [measurement for _, measurement in rows]
        gradient = read.rows([m.gradients for m in seen])  # [n, layers], as the others
        parameter = read.rows([m.parameters for m in seen])
        update = read.rows([m.updates for m in seen])
        untouched = np.zeros(gradient.shape, dtype=np.bool_)
        for row, measurement in enumerate(seen):
            untouched[row, list(measurement.untouched)] = True
        with np.errstate(divide="ignore", invalid="ignore"):  # parameters initialised with zeros
            ratio = update / parameter
        columns = {
            "grad_norm": np.ma.array(gradient, mask=untouched),
            "param_norm": parameter,
            "update_ratio": np.ma.array(ratio, mask=untouched),
        }
        self.writer.write_layers(steps, seen[0].layers, columns)

    def _write_logged(self, rows: Sequence[tuple[int, str, Value]], read: _Read) -> None:
        """A `train/...` logged several times in a step is the mean: those are its micro-batches."""
        values: dict[tuple[int, str], list[float]] = {}
        for step, name, value in rows:
            if name.startswith("train/"):
                values.setdefault((step, name), []).append(read.number(value))
            else:
                values[step, name] = [read.number(value)]
        steps, names = zip(*values, strict=True)
        means = np.array([sum(parts) / len(parts) for parts in values.values()])
        self.writer.write_logged(np.array(steps), names, means)


class _Read:
    """The numbers behind a flush's tensors, brought to the host together."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._values = dict(zip(map(id, tensors), fetch(tensors), strict=True))

    def number(self, value: Value) -> float:
        return self._values[id(value)][0] if isinstance(value, Tensor) else value

    def norm(self, parts: Sequence[Tensor]) -> float:
        return math.hypot(*(number for part in parts for number in self._values[id(part)]))

    def rows(self, tensors: Sequence[Tensor]) -> npt.NDArray[np.float32]:
        return np.array([self._values[id(tensor)] for tensor in tensors], dtype=np.float32)
