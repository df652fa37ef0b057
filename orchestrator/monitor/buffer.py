"""What was recorded and is not written yet: rows on the host, their values still on the device."""

from __future__ import annotations

import itertools
import logging
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from orchestrator.monitor import activations, evaluation, layers, streams
from orchestrator.monitor.layers import Measurement, ZeroGradients
from orchestrator.monitor.spikes import Spikes, write_unusual
from orchestrator.monitor.steps import SeenStep, StepRow, columns, rescaled, see
from orchestrator.monitor.values import Read, Value
from orchestrator.nouns import Scalar
from orchestrator.telemetry import Writer

_FLUSH_STEPS = 500
_FLUSH_SECONDS = 2.0
_FLUSH_TENSORS = 20_000
"""Bounds what an evaluation may log without a single step."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Buffer:
    """Rows until the next flush, which writes them and is the only place that reads a tensor.

    It refers to no model and no optimizer, so that it can outlive the monitor: it is closed when
    that is collected or the process ends.
    """

    writer: Writer
    steps: list[StepRow] = field(default_factory=list)
    layers: list[tuple[int, Measurement]] = field(default_factory=list)
    outputs: list[tuple[int, activations.Heard]] = field(default_factory=list)
    evaluations: list[tuple[int, evaluation.Evaluation]] = field(default_factory=list)
    logged: list[tuple[int, str, Value]] = field(default_factory=list)
    spikes: Spikes = field(default_factory=Spikes)
    zero_gradients: ZeroGradients = field(default_factory=ZeroGradients)
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
        self.tensors += len(measurement.tensors())

    def add_outputs(self, step: int, heard: activations.Heard) -> None:
        """Hold what was heard of the modules in a step."""
        self.outputs.append((step, heard))
        self.tensors += 4 * len(heard.calls)

    def add_evaluation(self, step: int, evaluated: evaluation.Evaluation) -> None:
        """Hold what was seen of the model on its probe set."""
        self.evaluations.append((step, evaluated))
        self.tensors += len(evaluated.logits) + 3

    def add_logged(self, step: int, name: str, value: Value) -> None:
        """Hold a metric."""
        self.logged.append((step, name, value))
        self.tensors += 1

    def add_fact(self, name: str, layers: Sequence[str] | None) -> None:
        """Hold names for the header, with those of it that are there; None if nothing is known."""
        if layers is not None:
            before = str(self.facts.get(name, ""))
            self.facts[name] = ",".join(filter(None, (before, *layers)))

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
        steps, sampled, logged = self.steps, self.layers, self.logged
        outputs, self.outputs = self.outputs, []
        evaluations, self.evaluations = self.evaluations, []
        self.steps, self.layers, self.logged, self.tensors = [], [], [], 0
        self.flushed_at = time.perf_counter()
        if os.getpid() != self.process:
            return
        held: list[Value | None] = [value for row in steps for value in row.values()]
        held += [tensor for _, measurement in sampled for tensor in measurement.tensors()]
        held += [tensor for _, heard in outputs for tensor in heard.tensors()]
        held += [tensor for _, evaluated in evaluations for tensor in evaluated.tensors()]
        held += [value for _, _, value in logged]
        read = Read([value for value in held if isinstance(value, Tensor)])
        self._write_steps(steps, read)
        for names in dict.fromkeys(measurement.layers for _, measurement in sampled):
            self._write_layers([row for row in sampled if row[1].layers == names], read)
        if (masked := self.zero_gradients.names()) is not None:
            self.facts["masked"] = masked
        if outputs:
            steps_heard, quantities = activations.columns(outputs, read.number)
            self.writer.write_layers(steps_heard, outputs[0][1].names, quantities)
        if evaluations:
            self.facts |= evaluation.write(evaluations, read, self.writer)
        if logged:
            self._write_logged(logged, read)
        self._amend()

    def close(self) -> None:
        """Write what is left, and make it last."""
        self.flush()
        if os.getpid() == self.process:
            self.writer.close(self.facts)

    def _amend(self) -> None:
        if streams.used():
            self.facts["rng_streams"] = streams.used()
        self.writer.amend(self.facts)

    def _write_steps(self, rows: Sequence[StepRow], read: Read) -> None:
        for _, group in itertools.groupby(rows, key=lambda row: len(row.lr)):
            part = list(group)
            seen = [see(row, read) for row in part]
            at = np.array([row.step for row in part])
            self.writer.write_steps(at, columns(part, seen, read))
            self._look_into(seen)
            for row, each in zip(part, seen, strict=True):
                if row.applied:
                    self._note_rescaled(rescaled(row, each, read))

    def _look_into(self, seen: Sequence[SeenStep]) -> None:
        """Write what led to unusual steps."""
        self._note_nonfinite(seen)
        unusual = self.spikes.around(seen)
        if unusual:
            write_unusual(self.writer, unusual)

    def _note_rescaled(self, factor: float | None) -> None:
        """Norms and threshold are in another unit than what the optimizer applies."""
        if factor is None or 0.5 < factor < 2 or "rescaled_after_clipping" in self.facts:
            return
        self.facts["rescaled_after_clipping"] = factor
        _log.warning(
            "gradients are multiplied by %.3g between clip_grad_norm_ and the optimizer's step, so"
            " the norms that are recorded are not of what it applies. With a GradScaler:"
            " watch(..., scaler=scaler), and scaler.unscale_(optimizer) before you clip",
            factor,
        )

    def _note_nonfinite(self, seen: Sequence[SeenStep]) -> None:
        """The first step whose update had a NaN or infinity in it; a skipped one had none."""
        if "first_nonfinite" in self.facts:
            return
        for each in seen:
            if math.isfinite(each.total) or not each.is_seen:
                continue
            bad = np.flatnonzero(~np.isfinite(each.norms))
            if len(bad) and not each.is_skipped:
                name = each.names[bad[0]] or "a parameter outside of the model"
                self.facts["first_nonfinite"] = f"{each.step} {name}"
                _log.warning(
                    "the gradient of %s, and of %d parameters in all, was not finite in step %d;"
                    " training goes on",
                    name,
                    len(bad),
                    each.step,
                )
                return

    def _write_layers(self, rows: Sequence[tuple[int, Measurement]], read: Read) -> None:
        names = rows[0][1].layers
        steps = np.array([step for step, _ in rows])
        quantities = layers.columns([measurement for _, measurement in rows], read)
        self.writer.write_layers(steps, names, quantities)
        self.zero_gradients.see(steps, names, quantities["grad_norm"])
        counted = [(step, measurement) for step, measurement in rows if measurement.histograms]
        if counted:
            at = np.array([step for step, _ in counted])
            counts = layers.histogram_columns([each for _, each in counted], read)
            self.writer.write_histograms(at, names, counts)

    def _write_logged(self, rows: Sequence[tuple[int, str, Value]], read: Read) -> None:
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


def close_quietly(buffer: Buffer) -> None:
    """Close from anywhere, also while the interpreter ends; whatever fails is only told."""
    if not {"steps", "recording_stopped"} & buffer.facts.keys():
        _log.warning("no optimizer step was seen: is the watched optimizer the one that steps?")
    try:
        buffer.close()
    except Exception as error:
        _log.warning("the end of the recording is lost", exc_info=error)
