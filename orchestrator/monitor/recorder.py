"""Looks on at each optimizer step and puts what it saw into a buffer; never raises, never waits."""

from __future__ import annotations

import functools
import logging
import math
import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec

from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

from orchestrator.monitor import facts, streams
from orchestrator.monitor.activations import listener
from orchestrator.monitor.autocast import Autocast
from orchestrator.monitor.buffer import Buffer, close_quietly
from orchestrator.monitor.evaluation import Batch, Evaluator, Loss
from orchestrator.monitor.intake import MicroBatch
from orchestrator.monitor.leftovers import Leftovers
from orchestrator.monitor.probe import Probe
from orchestrator.monitor.provenance import provenance
from orchestrator.monitor.resuming import steps_taken
from orchestrator.monitor.schedule import Schedule
from orchestrator.monitor.underway import CLIPPED_SCALED, StepUnderWay, has_gradients_later
from orchestrator.monitor.values import Value
from orchestrator.nouns import Level, Monitoring
from orchestrator.telemetry import Writer, recordings, steps_written

_log = logging.getLogger(__name__)
_recorders: weakref.WeakSet[Recorder] = weakref.WeakSet()

_Arguments = ParamSpec("_Arguments")


def open_recorders() -> Iterator[Recorder]:
    """Those that record in this process now."""
    return (recorder for recorder in _recorders if recorder.is_open)


def _guarded(
    method: Callable[Concatenate[Recorder, _Arguments], None],
) -> Callable[Concatenate[Recorder, _Arguments], None]:
    """The edge to the training: an error of ours ends the recording and not the training."""

    @functools.wraps(method)
    def guarded(recorder: Recorder, /, *args: _Arguments.args, **kwargs: _Arguments.kwargs) -> None:
        if recorder.has_failed:
            return
        try:
            method(recorder, *args, **kwargs)
        except Exception as error:  # whatever it is
            recorder.fail(error)

    return guarded


class Recorder:
    """One training's recording.

    A step is over when each optimizer has stepped, or when one of them steps again. Steps count
    from where a resumed training was: see `steps_taken`.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        monitoring: Monitoring,
        folder: Path,
        first_step: int | None = None,
        scaler: GradScaler | None = None,
    ) -> None:
        names = facts.parameter_names(model)
        self.model = model
        self.folder = folder
        self.is_open = True
        self.has_failed = False
        self._sees_norms = monitoring.level is not Level.OFF
        self._schedule = Schedule(monitoring)
        tables = facts.embeddings(model).keys()
        self._probes = {id(o): Probe(o, names, tables, self._schedule) for o in optimizers}
        self._leftovers = {id(optimizer): Leftovers(optimizer) for optimizer in optimizers}
        self._is_sharded = any(hasattr(parameter, "full_tensor") for parameter in names)
        # Reading a sharded one would wait for the other ranks.
        self._sees_gradients = self._sees_norms and not self._is_sharded
        self._first: int | None = None
        self._first_step = first_step
        self._written = steps_written(folder)
        self._step = 0
        self._ended_at = math.nan
        self._is_logged_first = False
        self._under_way = StepUnderWay(names, optimizers, scaler)
        self._stepped: set[int] = set()
        devices = list(dict.fromkeys(p.device for p in names))
        header = facts.header(model, optimizers, names) | provenance(devices, os.environ)
        header |= {"monitor_level": monitoring.level.value, "monitor_every": monitoring.interval}
        self._buffer = Buffer(Writer(folder, header))
        self._autocast = Autocast(model, devices, self._buffer.facts)
        self._close_buffer = weakref.finalize(self, close_quietly, self._buffer)
        self._hooks = [
            *(optimizer.register_step_pre_hook(self._before_step) for optimizer in optimizers),
            *(optimizer.register_step_post_hook(self._after_step) for optimizer in optimizers),
        ]
        if self._sees_gradients:
            self._hooks += self._under_way.intake.count_passes(names, optimizers)
        _recorders.add(self)
        self._evaluator = Evaluator(model, self._buffer.facts, self._schedule.sees_layers)
        self._ear = None if self._is_sharded else listener(model, monitoring, self._buffer.facts)
        recordings.add(self)  # a trial's host closes it when the program is through
        if self._is_sharded:
            _log.warning(
                "the model is sharded: layers are not recorded, and the norm of the gradients only "
                "by monitor.clip_grad_norm_"
            )

    @_guarded
    def log(self, name: str, value: Value, step: int | None) -> None:
        """Record a metric at `step`, or at the one it belongs to."""
        self._begin()
        if step is None:
            step = self._step
            if name.startswith("train/"):
                # A loss logged after `optimizer.step()` is the one which that step was made from.
                is_before_first = self._step == self._first
                self._is_logged_first |= is_before_first
                step -= not (is_before_first or self._is_logged_first)
        self._buffer.add_logged(step, name, value)
        if not self.is_open or self._buffer.is_due(time.perf_counter()):
            self._buffer.flush()

    @property
    def steps(self) -> int:
        """How many optimizer steps were made."""
        self._begin()
        return self._step

    @_guarded
    def see_batch(self, batch: MicroBatch) -> None:
        """Count a micro-batch into the step under way."""
        self._under_way.intake.add(batch)

    @_guarded
    def see_gradients(self) -> None:
        """Measure the gradients, which are still whole."""
        self._begin()
        if self._sees_gradients:
            for probe in self._probes.values():
                self._see_gradients(probe)

    @_guarded
    def evaluate(self, probe_set: Iterable[Batch], loss: Loss | None) -> None:
        """Look at the model on its probe set, after the steps made so far."""
        self._begin()
        evaluated = self._evaluator.evaluate(probe_set, loss)
        if evaluated is not None:
            self._buffer.add_evaluation(self._step, evaluated)
            for name, value in evaluated.metrics.items():
                self.log(name, value, None)

    @_guarded
    def see_clip(
        self, norm: Tensor | None, max_norm: float | None, each: Tensor | None = None
    ) -> None:
        """Keep the norm of gradients that are about to be clipped, or were once they were seen.

        `norm` is None if it is that of the gradients seen, and `each` [n] are the norms of the
        model's single gradients: if they are known, those need not be seen before. `max_norm` is
        infinite if nothing is clipped, and None if nobody knows how they are.
        """
        self._begin()
        is_whole = norm is not None and not hasattr(norm, "full_tensor")
        if not (self._sees_gradients or (self._sees_norms and is_whole)):
            return
        if each is not None:
            for probe in self._probes.values():
                probe.see_gradients(self._step, self._under_way.by_name(each))
        scale = self._under_way.see_clip(norm, max_norm, each)
        if scale is not None:
            self._see_scaled(list(self._probes.values()), scale)

    def close(self) -> None:
        """Look on no longer, and write what is left."""
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._end_last_step()
        self._look_away()
        streams.forget()

    def fail(self, error: Exception) -> None:
        """Stop, with the one warning. The hooks stay: this may be called from within one."""
        self.has_failed = True
        self._buffer.facts["recording_stopped"] = f"{type(error).__name__}: {error}"
        _log.warning("recording stops at step %d, training goes on", self._step, exc_info=error)
        self._look_away()

    def _look_away(self) -> None:
        self.is_open = False
        for look in (self._autocast, self._ear, *self._leftovers.values()):
            if look is not None:
                look.close()
        self._close_buffer()

    @_guarded
    def _before_step(
        self, optimizer: Optimizer, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        self._begin()
        if id(optimizer) in self._stepped:
            self._end_step()
        probe = self._probes[id(optimizer)]
        scale = self._under_way.see_scale(optimizer)
        if scale is not None:
            self._see_scaled([probe], scale)
        if not has_gradients_later(optimizer, args, kwargs):
            self._see_applied(probe)
        if self._sees_gradients:
            probe.see_parameters(self._step)

    @_guarded
    def _after_step(
        self, optimizer: Optimizer, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        probe = self._probes[id(optimizer)]
        if has_gradients_later(optimizer, args, kwargs):
            self._see_applied(probe)
        measurement = probe.measure()
        if measurement is not None:
            self._buffer.add_layers(self._step, measurement)
        if self._sees_gradients:
            self._leftovers[id(optimizer)].look()
            self._buffer.add_fact("detached", probe.never_had_a_gradient())
        self._under_way.intake.see_step()
        self._stepped.add(id(optimizer))
        if len(self._stepped) == len(self._probes):
            self._end_step()

    def _see_applied(self, probe: Probe) -> None:
        """Gradients as the optimizer gets them, unless they were seen before they were clipped."""
        if not self._sees_gradients:
            return
        if self._under_way.is_clipped:
            self._under_way.see_applied(probe)
        elif self._schedule.has_norms(self._step):
            self._see_gradients(probe)

    def _see_gradients(self, probe: Probe) -> None:
        probe.see_gradients(self._step, self._under_way.see_gradients(probe))

    def _see_scaled(self, probes: Sequence[Probe], scale: Tensor) -> None:
        """Gradients are clipped while they are multiplied with the loss scale."""
        for probe in probes:
            probe.unscale(scale)
        if "clipped_scaled" not in self._buffer.facts:
            self._buffer.facts["clipped_scaled"] = True
            _log.warning(CLIPPED_SCALED)

    def _begin(self) -> None:
        if self._first is None:
            optimizers = [probe.optimizer for probe in self._probes.values()]
            self._first = self._step = steps_taken(optimizers, self._first_step, self._written)
            self._schedule.first = self._first

    @_guarded
    def _end_last_step(self) -> None:
        if self._stepped:
            self._end_step()

    def _end_step(self) -> None:
        now = time.perf_counter()
        is_clipped = self._under_way.is_clipped
        row = self._under_way.take(self._step, now - self._ended_at)
        self._ended_at = now
        if self._sees_norms:
            self._buffer.add_step(row)
            self._note("unclipped" if is_clipped else "optimizer")
        heard = self._ear.turn(self._step) if self._ear else None
        if heard is not None:
            self._buffer.add_outputs(self._step, heard)
        self._autocast.close()
        self._step += 1
        self._stepped.clear()
        self._buffer.facts["steps"] = self._step
        self._buffer.facts["stale_steps"] = max(seen.stale for seen in self._leftovers.values())
        if self._buffer.is_due(now):
            self._buffer.flush()

    def _note(self, seen: str) -> None:
        """Which norm was seen: before clipping, or what the optimizer got, clipped or not."""
        before = self._buffer.facts.get("grad_norm_seen", seen)
        self._buffer.facts["grad_norm_seen"] = seen if before == seen else "mixed"
