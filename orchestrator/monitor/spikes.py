"""Which steps were unusual, found at the flush, and the steps before them in full."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from orchestrator.monitor.steps import SeenStep
from orchestrator.nouns import Floats
from orchestrator.telemetry import Writer
from orchestrator.telemetry.robust import NORMAL

KEPT = 20
"""Steps that are written in full: the unusual one and those before it."""

MOST = 100
"""Unusual steps that are written in a training: bounds the disk that a training full of them takes.
"""

_WINDOW = 50
_LEAST = 20
_STDS, _FACTOR = 6.0, 1.5
"""A spike's log norm lies above the median of the 50 steps before (20 at least) by 6 standard
deviations, taken as 1.4826 MAD (Leys et al. 2013), and by a factor of 1.5. Steps that are looked at
for no reason cost only disk, so nothing finer is asked."""


class Spikes:
    """Looks back over the last steps from flush to flush, all on the host."""

    def __init__(self) -> None:
        self._last: deque[SeenStep] = deque(maxlen=KEPT - 1)
        self._logs = np.empty(0)  # of the last finite norms above 0
        self._was_finite = True
        self._written = -1
        self._count = 0

    def around(self, seen: Sequence[SeenStep]) -> list[SeenStep]:
        """Unusual steps and the ones before them, each once in a training, in their order."""
        steps = [*self._last, *seen]
        first = len(self._last)
        wanted: set[int] = set()
        for i in self._unusual(seen):
            if self._count < MOST:
                self._count += 1
                wanted.update(range(max(0, first + i + 1 - KEPT), first + i + 1))
        around = [steps[i] for i in sorted(wanted) if steps[i].step > self._written]
        if around:
            self._written = around[-1].step
        self._last.extend(seen)
        return around

    def _unusual(self, seen: Sequence[SeenStep]) -> list[int]:
        """Indices of spikes, and of steps that are the first after a finite one not to be so."""
        totals = np.array([each.total for each in seen])
        is_known = np.array([each.is_seen for each in seen], dtype=np.bool_)
        is_finite = np.isfinite(totals)
        usable = np.flatnonzero(is_finite & (totals > 0))
        spikes = usable[self._is_spike(np.log(totals[usable]))]
        before = np.append(self._was_finite, (is_finite | ~is_known)[:-1])
        if len(seen):
            self._was_finite = bool(is_finite[-1] or not is_known[-1])
        broken = np.flatnonzero(is_known & ~is_finite & before)
        return sorted({*spikes.tolist(), *broken.tolist()})

    def _is_spike(self, logs: Floats) -> npt.NDArray[np.bool_]:
        """Whether each log norm [n] lies far above the median of up to 50 before it."""
        known = np.append(self._logs, logs)
        first = len(self._logs)
        self._logs = known[-_WINDOW:]
        level = np.full(len(known), np.inf)
        for i in range(max(first, _LEAST), min(_WINDOW, len(known))):
            level[i] = np.median(known[:i])
        if len(known) > _WINDOW:
            windows = np.lib.stride_tricks.sliding_window_view(known[:-1], _WINDOW)
            level[_WINDOW:] = np.median(windows, axis=1)
        found: npt.NDArray[np.bool_] = known - level > math.log(_FACTOR)
        for i in np.flatnonzero(found).tolist():
            before = known[max(0, i - _WINDOW) : i]
            std = NORMAL * float(np.median(np.abs(before - level[i])))
            found[i] = known[i] - level[i] > _STDS * std
        return found[first:]


def write_unusual(writer: Writer, steps: Sequence[SeenStep]) -> None:
    """Write each gradient's norm, and the micro-batches, of `steps`."""
    names = tuple(dict.fromkeys(name for each in steps for name in each.names if name))
    if names:
        column = {name: i for i, name in enumerate(names)}
        norms = np.zeros((len(steps), len(names)), dtype=np.float32)
        mask = np.ones(norms.shape, dtype=np.bool_)
        for row, each in enumerate(steps):
            for name, norm in zip(each.names, each.norms, strict=True):
                if name:
                    norms[row, column[name]], mask[row, column[name]] = norm, False
        at = np.array([each.step for each in steps])
        writer.write_layers(at, names, {"grad_norm": np.ma.array(norms, mask=mask)})
    batches = [batch for each in steps for batch in each.batches]
    if batches:
        writer.write_batches(batches)
