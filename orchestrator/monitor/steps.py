"""Optimizer steps: what is held of each until the flush, and the columns it then becomes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from orchestrator.monitor.intake import Taken
from orchestrator.monitor.values import Read, Value
from orchestrator.nouns import Batch, Floats
from orchestrator.telemetry.writer import Column

Masked = np.ma.MaskedArray[tuple[int], np.dtype[np.float32]]

_NO_NORMS = np.empty(0)


class Gradients(NamedTuple):
    """Norm of each of some gradients [n], by the names of their parameters."""

    names: tuple[str, ...]
    norms: Tensor


class StepRow(NamedTuple):
    """One optimizer step.

    `seconds` is NaN for the first. `gradients` come from `clip_grad_norm_` or from each optimizer;
    `total` is their norm where only that is known. `applied` are those that the optimizers got
    after `clip_grad_norm_`, looked at in a few steps. `max_norm` is NaN where nobody clipped,
    infinite where `clip_grad_norm_` only recorded. Of a GradScaler: `scale` is in force, gradients
    were seen with it where `is_scaled`, and `overflow` is above 0 where a fused optimizer skipped.
    """

    step: int
    seconds: float
    lr: tuple[Value, ...]
    gradients: tuple[Gradients, ...]
    total: Tensor | None
    applied: tuple[Gradients, ...]
    max_norm: float
    is_scaled: bool
    scale: Tensor | None
    overflow: Tensor | None
    taken: Taken

    def values(self) -> Iterator[Value | None]:
        """All that may still be on the device."""
        yield from self.lr
        yield from (part.norms for part in (*self.gradients, *self.applied))
        yield from (self.total, self.scale, self.overflow)
        for batch in self.taken.batches:
            yield from (batch.samples, batch.tokens)


class SeenStep(NamedTuple):
    """A step on the host; `is_seen` if its gradients were.

    `norms` [n] are of the gradients in `names`, "" for a parameter that the model has not. These
    and `total` are in the loss's unit, whether or not the loss was scaled.
    """

    step: int
    total: float
    max_norm: float
    names: tuple[str, ...]
    norms: Floats
    is_seen: bool
    is_skipped: bool
    batches: tuple[Batch, ...]


def see(row: StepRow, read: Read) -> SeenStep:
    """Bring a step to the host; what was loss-scaled is divided by the scale."""
    names: tuple[str, ...] = ()
    norms = _NO_NORMS
    total = np.nan if row.total is None else read.number(row.total)
    if row.gradients:
        names = row.gradients[0].names
        if len(row.gradients) > 1:
            names = tuple(name for part in row.gradients for name in part.names)
        norms = read.vectors([part.norms for part in row.gradients])
        total = float(norms @ norms) ** 0.5 if row.total is None else total
    max_norm = row.max_norm
    if row.is_scaled and row.scale is not None:
        scale = read.number(row.scale)
        norms, total, max_norm = norms / scale, total / scale, max_norm / scale
    is_skipped = row.overflow is not None and read.number(row.overflow) > 0
    batches = tuple(
        Batch(
            row.step, i, batch.id or "", _number(batch.samples, read), _number(batch.tokens, read)
        )
        for i, batch in enumerate(row.taken.batches)
    )
    is_seen = bool(row.gradients) or row.total is not None
    return SeenStep(row.step, total, max_norm, names, norms, is_seen, is_skipped, batches)


def rescaled(row: StepRow, seen: SeenStep, read: Read) -> float | None:
    """What gradients were multiplied with between clipping and the step; None if nobody looked."""
    applied = {
        name: n for part in row.applied for name, n in _named(part, read) if name in seen.names
    }
    if not applied:
        return None
    whole = dict(zip(seen.names, seen.norms.tolist(), strict=True))
    before = math.hypot(*(whole[name] for name in applied))
    after = math.hypot(*applied.values())
    factor = after / (before * min(1, seen.max_norm / (seen.total + 1e-6))) if before > 0 else 1.0
    return factor if math.isfinite(factor) else None


def _named(part: Gradients, read: Read) -> Iterable[tuple[str, float]]:
    return zip(part.names, read.vector(part.norms).tolist(), strict=True)


def columns(rows: Sequence[StepRow], seen: Sequence[SeenStep], read: Read) -> dict[str, Column]:
    """Each series of steps [n] with one number of parameter groups; masked: not recorded."""
    total = np.array([each.total for each in seen])
    max_norm = np.array([each.max_norm for each in seen])
    no_clip = np.isnan(max_norm)
    no_norm = np.array([not each.is_seen for each in seen])
    # What torch multiplies the gradients with (clip_grads_with_norm_), or nothing at all.
    with np.errstate(invalid="ignore"):
        coefficient = np.where(np.isinf(max_norm), 1, np.minimum(1, max_norm / (total + 1e-6)))
    seconds = np.array([row.seconds for row in rows])
    found: dict[str, Column] = {
        "grad_norm": np.ma.array(total, mask=no_norm),
        "clip_coefficient": np.ma.array(coefficient, mask=no_clip),
        "max_norm": np.ma.array(max_norm, mask=no_clip),
        "nonfinite": _masked(_nonfinite(each) for each in seen),
        "step_seconds": np.ma.array(seconds, mask=np.isnan(seconds)),
        "micro_batches": _masked(row.taken.passes or None for row in rows),
    }
    lr = np.array([[read.number(lr) for lr in row.lr] for row in rows])  # [n, groups]
    for i in range(lr.shape[1]):
        found[f"lr/{i}" if i else "lr"] = lr[:, i]
    return found | _optional(rows, seen, read)


def _optional(rows: Sequence[StepRow], seen: Sequence[SeenStep], read: Read) -> dict[str, Masked]:
    """What only some programs tell, and only if this one did."""
    found = {
        "loss_scale": _masked(_number(row.scale, read) for row in rows),
        "skipped_steps": _masked(map(_skipped, rows, seen)),
        "samples": _masked(_total(b.samples for b in each.batches) for each in seen),
        "tokens": _masked(_total(b.tokens for b in each.batches) for each in seen),
    }
    return {name: column for name, column in found.items() if not np.all(column.mask)}


def _skipped(row: StepRow, seen: SeenStep) -> float | None:
    """A fused optimizer finds out itself, in the very step; before any other there was one."""
    if row.scale is None and row.overflow is None:
        return None
    return row.taken.skipped if row.overflow is None else float(seen.is_skipped)


def _total(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _number(value: Value | None, read: Read) -> float | None:
    return None if value is None else read.number(value)


def _nonfinite(each: SeenStep) -> float | None:
    if math.isfinite(each.total):  # as all that it is made of
        return 0.0
    return float(np.count_nonzero(~np.isfinite(each.norms))) if each.names else None


def _masked(values: Iterable[float | None]) -> Masked:
    found = list(values)
    missing = [value is None for value in found]
    numbers = np.array([0.0 if value is None else value for value in found], dtype=np.float32)
    return np.ma.array(numbers, mask=missing)
