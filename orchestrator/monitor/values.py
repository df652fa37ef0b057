"""Numbers that may still be on the device, and bringing them to the host together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from orchestrator.nouns import Floats

Value = float | Tensor
"""A number, or a 0-d tensor that is read when the buffer is flushed."""


class Read:
    """The numbers behind a flush's tensors, brought to the host together."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._values = dict(zip(map(id, tensors), fetch(tensors), strict=True))

    def number(self, value: Value) -> float:
        """`value` itself, or the one element that it has."""
        return float(self._values[id(value)][0]) if isinstance(value, Tensor) else value

    def vector(self, tensor: Tensor) -> Floats:
        """The elements of a tensor [n]."""
        return self._values[id(tensor)]

    def vectors(self, parts: Sequence[Tensor]) -> Floats:
        """The elements of several tensors behind one another [n]."""
        if len(parts) == 1:
            return self._values[id(parts[0])]
        return np.concatenate([self._values[id(part)] for part in parts])


def fetch(tensors: Sequence[Tensor]) -> list[Floats]:
    """Values of each tensor, flat, brought to the host in one transfer per device and data type."""
    kinds: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for i, tensor in enumerate(tensors):
        kinds.setdefault((tensor.device, tensor.dtype), []).append(i)
    values: list[Floats] = [np.empty(0)] * len(tensors)
    for members in kinds.values():
        members.sort(key=lambda i: tensors[i].dim() > 0)
        numbers = [tensors[i] for i in members if tensors[i].dim() == 0]
        vectors = [tensors[i].flatten() for i in members[len(numbers) :]]
        # Stacked first: `cat` takes no 0-d tensors, and a view of each would be a call of its own.
        flat = torch.cat([*([torch.stack(numbers)] if numbers else []), *vectors])
        read, start = flat.cpu().double().numpy(), 0
        for i in members:
            end = start + tensors[i].numel()
            values[i] = read[start:end]
            start = end
    return values
