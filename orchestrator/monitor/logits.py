"""Logits of a classification: how far apart, how sure, how right; sums that stay on the device."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from orchestrator.monitor.modules import first_floating

IGNORED = -100
"""Target that does not count: torch's cross-entropy has it so, and Hugging Face for padding."""

_MOST_ELEMENTS = 2**22
"""Logits looked at together: bounds the copies in single precision, 16 MiB each."""


QUANTITIES = ("accuracy", "logit_spread", "logit_variance", "entropy", "log_z")
"""Means over rows: whether the largest logit is at the target; largest minus smallest; variance
over the classes; entropy of the softmax over log K; log Z = log sum exp, in nat."""

_WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Sums(NamedTuple):
    """Over the rows of a batch whose target counts: how many [1] and the `QUANTITIES` [5].

    `extremes` [2] are how far below 0 the lowest output is, and how far from 1 the sum of a row:
    both are about 0 if the outputs are probabilities already.
    """

    total: Tensor
    extremes: Tensor


def logits_of(output: object) -> Tensor | None:
    """The model's answer: what it calls `logits`, else the first floating tensor in it."""
    named = output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    return first_floating(output if named is None else named)


def largest_change(before: Tensor, after: Tensor) -> Tensor:
    """The largest difference between two answers of one shape, over the largest of `before` []."""
    before = before.float()
    return (before - after.float()).abs().max() / before.abs().max().clamp_min(1e-30)


def rows_of(output: object, targets: object) -> tuple[Tensor, Tensor] | None:
    """Logits [n, K] and classes [n] of a classification into K >= 2; None if it is none.

    It is one if the targets are whole numbers in the shape of the output without its last dimension
    (time is one more dimension of the batch), or without its second, where torch has the channels.
    """
    logits = logits_of(output)
    if logits is None or not isinstance(targets, Tensor) or targets.dtype not in _WHOLE:
        return None
    if targets.shape == logits.shape[:-1]:
        rows = logits
    elif targets.shape == (*logits.shape[:1], *logits.shape[2:]):
        rows = logits.movedim(1, -1)
    else:
        return None
    classes = rows.shape[-1]
    return (rows.reshape(-1, classes), targets.reshape(-1)) if classes > 1 else None


def sums(rows: Tensor, targets: Tensor) -> Sums:
    """What there is to add up of rows [n, K] with targets [n]."""
    size = max(1, _MOST_ELEMENTS // rows.shape[1])
    parts = [slice(start, start + size) for start in range(0, len(rows), size)]
    return pooled([_part(rows[part].float(), targets[part]) for part in parts])


def pooled(parts: Sequence[Sums]) -> Sums:
    """Sums over several batches."""
    return Sums(
        torch.stack([part.total for part in parts]).sum(0),
        torch.stack([part.extremes for part in parts]).amax(0),
    )


def means(sums: Sums) -> dict[str, Tensor]:
    """Each of the `QUANTITIES` [], by name; NaN if no target counts."""
    return dict(zip(QUANTITIES, (sums.total[1:] / sums.total[0]).unbind(), strict=True))


def _part(logits: Tensor, targets: Tensor) -> Sums:
    counts = targets != IGNORED
    log_z = logits.logsumexp(1)
    probability = (logits - log_z[:, None]).exp()
    highest, lowest = logits.amax(1), logits.amin(1)
    quantities = [
        counts,
        logits.argmax(1) == targets,
        highest - lowest,
        logits.var(1, correction=0),
        torch.special.entr(probability).sum(1) / math.log(logits.shape[1]),
        log_z,
    ]
    each = torch.stack([quantity.float() for quantity in quantities], 1)  # [n, 6]
    extremes = torch.stack([-lowest, (logits.sum(1) - 1).abs()], 1)  # [n, 2]
    # Not multiplied: what does not count may be infinite.
    return Sums(
        torch.where(counts[:, None], each, 0.0).sum(0),
        torch.where(counts[:, None], extremes, -math.inf).amax(0),
    )
