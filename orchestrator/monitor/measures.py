"""Numbers of tensors, as tensors on the same device: nothing here waits for a value.

A *table* is a matrix of which a step uses some rows, an embedding. It is measured on the rows that
its gradient touches: `touched` [rows] says which.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from orchestrator.telemetry.layout import HISTOGRAM_BINS, HISTOGRAM_LOW

HALVES = (torch.float16, torch.bfloat16)
"""Norms of these are summed in float32: float16 overflows at 65504, bfloat16 has three digits."""

_CHUNK = 2**24
"""Elements counted at once into a histogram: 64 MiB for each of its intermediate results."""

_NOTHING: Mapping[int, Tensor] = {}


@torch.no_grad()
def norms(tensors: Sequence[Tensor], touched: Mapping[int, Tensor] = _NOTHING) -> Tensor:
    """Euclidean norm of each of `tensors` [n], in single precision at least.

    Of those in `touched`, by position, over the touched rows. The squares are summed as they are:
    in single precision what is below 4e-23 counts as zero, and above 2e19 the norm is infinite.
    """
    parts = [_row_norms_of(t, touched[i]) if i in touched else t for i, t in enumerate(tensors)]
    if len({part.dtype for part in parts}) == 1:
        # Refused for sparse gradients and for several devices.
        with contextlib.suppress(RuntimeError):
            return torch.stack(torch._foreach_norm(parts, 2, _precision(parts[0])))
    dense = [_values(part) if part.is_sparse else part for part in parts]
    each = [torch.linalg.vector_norm(part, dtype=_precision(part)) for part in dense]
    return torch.stack([norm.to(parts[0].device, torch.float32) for norm in each])


@torch.no_grad()
def row_norms(table: Tensor) -> Tensor:
    """Norm of each row [rows]; it costs what the norm of the whole does."""
    each: Tensor = torch.linalg.vector_norm(table.flatten(1), dim=1, dtype=_precision(table))
    return each


@torch.no_grad()
def summed_rows(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Row numbers [k] and values [k, ...] of a sparse gradient with k entries, each row once.

    Rows that came several times are summed and leave rows of zeros at the end, numbered 0. That is
    what `coalesce` does, which has to ask the device how many rows there are.
    """
    rows, order = gradient._indices()[0].sort()
    is_new = torch.ones_like(rows)
    is_new[1:] = rows[1:] != rows[:-1]
    slots = is_new.cumsum(0) - 1
    values = gradient._values()
    summed = torch.zeros_like(values).index_add_(0, slots, values[order])
    return torch.zeros_like(rows).scatter_(0, slots, rows), summed


@torch.no_grad()
def zero_share(gradient: Tensor, touched: Tensor | None = None) -> Tensor:
    """Share of exact zeros [], of a table in the touched rows; NaN of nothing."""
    size: Tensor | int = gradient.numel()
    if touched is not None:  # the other rows of a gradient are zero
        size = touched.count_nonzero() * math.prod(gradient.shape[1:])
    return (size - gradient.count_nonzero()) / size


@torch.no_grad()
def nonfinite(tensor: Tensor) -> Tensor:
    """How many elements are NaN or infinite []."""
    # The difference is 0 for all other numbers; isfinite takes ten times as long on a CPU.
    return (tensor - tensor).count_nonzero()


@torch.no_grad()
def cosine(first: Tensor, second: Tensor, touched: Tensor | None = None) -> Tensor:
    """Cosine of the angle between two tensors of a shape [], on `touched` rows; NaN if one is 0."""
    if not first.numel():
        return torch.full((), math.nan, device=first.device)
    units: list[Tensor] = []
    for tensor in (first, second):
        part = tensor.float() if tensor.dtype in HALVES else tensor
        if touched is not None:
            part = torch.where(touched[:, None], part.flatten(1), 0)
        part = part / part.abs().max()  # its square is in range now
        units.append(part / torch.linalg.vector_norm(part))
    return (units[0] * units[1]).sum()


@torch.no_grad()
def histogram(tensor: Tensor, touched: Tensor | None = None) -> Tensor:
    """Counts of magnitudes [2 + HISTOGRAM_BINS]: zeros, the bins (layout.py), NaN or infinite."""
    ignored = HISTOGRAM_BINS + 2
    counts = torch.zeros(ignored + 1, dtype=torch.int64, device=tensor.device)
    one = torch.ones(1, dtype=torch.int64, device=tensor.device)
    table = tensor if tensor.dim() else tensor.reshape(1)
    rows = max(1, _CHUNK * len(table) // max(1, table.numel()))
    for first in range(0, len(table), rows):
        part = slice(first, first + rows)
        bins = _bins(table[part])
        if touched is not None:
            bins = torch.where(touched[part, None], bins.flatten(1), ignored)
        # Not bincount, which asks for the largest; not scatter_add_, which is slow.
        counts.index_add_(0, bins.flatten(), one.expand(bins.numel()))
    return counts[:ignored]


def _bins(tensor: Tensor) -> Tensor:
    """Number of each element's bin; bin 1 begins at 2 ** HISTOGRAM_LOW."""
    values = tensor.float() if tensor.dtype in HALVES else tensor
    exponent = torch.frexp(values).exponent  # |value| in [2 ** (exponent - 1), 2 ** exponent)
    bins = (exponent - HISTOGRAM_LOW).clamp_(1, HISTOGRAM_BINS)
    bins = torch.where(values == 0, 0, bins)
    return torch.where(values.isfinite(), bins, HISTOGRAM_BINS + 1)


def _row_norms_of(table: Tensor, touched: Tensor) -> Tensor:
    return torch.where(touched, row_norms(table), 0)


def _values(sparse: Tensor) -> Tensor:
    return summed_rows(sparse)[1] if sparse.sparse_dim() == 1 else sparse.coalesce().values()


def _precision(tensor: Tensor) -> torch.dtype | None:
    return torch.float32 if tensor.dtype in HALVES else None
