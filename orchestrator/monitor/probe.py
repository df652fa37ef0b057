"""Norms of gradients, parameters and updates, as tensors that stay on the device until `fetch`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from orchestrator.nouns import Floats

_HALVES = (torch.float16, torch.bfloat16)
"""Norms of these are summed in float32: float16 overflows at 65504, bfloat16 has three digits."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """One sampled step of one optimizer's layers: norms, one 0-d tensor for each layer.

    `parameters` is from before the step. `untouched` are the layers (by index) that had no
    gradient, hence no update.
    """

    layers: tuple[str, ...]
    gradients: Sequence[Tensor]
    parameters: Sequence[Tensor]
    updates: Sequence[Tensor]
    untouched: tuple[int, ...]


class Probe:
    """One optimizer's layers: the trainable parameters that it shares with the model.

    On a sampled step: `see_gradients` while they are whole, `see_parameters` before the step, in
    either order, then `measure` after it. Which layers there are is looked up at each sampled step,
    since groups may be added and layers unfrozen in mid-training.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, names: Mapping[Tensor, str]) -> None:
        """`names` by parameter, in the model's order."""
        self.optimizer = optimizer
        self._names = names
        self._layers: dict[Tensor, str] = {}
        self._gradients: tuple[Sequence[Tensor], tuple[int, ...]] | None = None
        self._before: tuple[list[Tensor], Sequence[Tensor]] | None = None

    def gradient_norms(self) -> Sequence[Tensor]:
        """Norm of each gradient that the optimizer applies, be it of a layer or not."""
        groups = self.optimizer.param_groups
        gradients = [p.grad for group in groups for p in group["params"] if p.grad is not None]
        return norms(gradients)

    def see_gradients(self) -> None:
        """Measure the layers' gradients as they are now."""
        gradients = [p.grad for p in self._look_up()]
        touched = [gradient for gradient in gradients if gradient is not None]
        self._gradients = None
        if touched:
            untouched = tuple(i for i, gradient in enumerate(gradients) if gradient is None)
            present = [touched[0] if gradient is None else gradient for gradient in gradients]
            self._gradients = norms(present), untouched

    def see_parameters(self) -> None:
        """Measure the layers' parameters, and keep a copy of them until `measure`."""
        copies = [p.detach().clone() for p in self._look_up()]
        self._before = copies, norms(copies)

    def measure(self) -> Measurement | None:
        """What the step did to the layers; None if none of them had a gradient."""
        layers, self._layers = self._look_up(), {}
        gradients, self._gradients = self._gradients, None
        before, self._before = self._before, None
        if gradients is None or before is None:
            return None
        copies, parameter_norms = before
        torch._foreach_sub_(copies, [p.detach() for p in layers])
        names = tuple(layers.values())
        return Measurement(names, gradients[0], parameter_norms, norms(copies), gradients[1])

    def _look_up(self) -> dict[Tensor, str]:
        if not self._layers:
            owned = {p for group in self.optimizer.param_groups for p in group["params"]}
            self._layers = {
                p: name for p, name in self._names.items() if p in owned and p.requires_grad
            }
        return self._layers


def norms(tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    """Euclidean norm of each of `tensors`, in single precision at least."""
    with torch.no_grad():
        kinds = {t.dtype for t in tensors}
        if len(kinds) == 1:
            with contextlib.suppress(NotImplementedError):  # for sparse gradients
                return torch._foreach_norm(tensors, 2, _precision(kinds.pop()))
        dense = [t.coalesce().values() if t.is_sparse else t for t in tensors]
        return [torch.linalg.vector_norm(t, dtype=_precision(t.dtype)) for t in dense]


def _precision(kind: torch.dtype) -> torch.dtype | None:
    return torch.float32 if kind in _HALVES else None


def fetch(tensors: Sequence[Tensor]) -> Floats:
    """Values of 0-d `tensors` [n], brought to the host in one transfer per device and data type."""
    values = np.empty(len(tensors))
    kinds: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for i, tensor in enumerate(tensors):
        kinds.setdefault((tensor.device, tensor.dtype), []).append(i)
    for members in kinds.values():
        values[members] = torch.stack([tensors[i] for i in members]).cpu().double().numpy()
    return values
