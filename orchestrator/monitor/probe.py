"""Norms of gradients, parameters and updates, as tensors that stay on the device until a flush."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from orchestrator.monitor.steps import Gradients

HALVES = (torch.float16, torch.bfloat16)
"""Norms of these are summed in float32: float16 overflows at 65504, bfloat16 has three digits."""


class Measurement(NamedTuple):
    """One sampled step of one optimizer's layers: norms, each [layers].

    `parameters` is from before the step. `untouched` are the layers (by index) that had no
    gradient, hence no update.
    """

    layers: tuple[str, ...]
    gradients: Tensor
    parameters: Tensor
    updates: Tensor
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
        self._all_names: tuple[str, ...] = ()
        self._layers: dict[Tensor, str] = {}
        self._gradients: tuple[Tensor, tuple[int, ...]] | None = None
        self._before: tuple[list[Tensor], Tensor] | None = None

    def gradient_norms(self) -> Gradients | None:
        """Norm of each gradient that the optimizer applies, of a layer or not; None if none."""
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        if len(parameters) != len(self._all_names):
            self._all_names = tuple(self._names.get(p, "") for p in parameters)
        gradients = [g for p in parameters if (g := p.grad) is not None]
        names = self._all_names
        if len(gradients) < len(parameters):
            names = tuple(self._names.get(p, "") for p in parameters if p.grad is not None)
        return Gradients(names, norms(gradients)) if gradients else None

    def see_gradients(self) -> None:
        """Measure the layers' gradients as they are now."""
        gradients = [p.grad for p in self._look_up()]
        touched = [gradient for gradient in gradients if gradient is not None]
        self._gradients = None
        if touched:
            untouched = tuple(i for i, gradient in enumerate(gradients) if gradient is None)
            present = [touched[0] if gradient is None else gradient for gradient in gradients]
            self._gradients = norms(present), untouched

    def unscale(self, scale: Tensor) -> None:
        """Divide the gradients' norms by the scale of the loss that they were seen with."""
        if self._gradients is not None:
            self._gradients = self._gradients[0] / scale, self._gradients[1]

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


def norms(tensors: list[Tensor]) -> Tensor:
    """Euclidean norm of each of `tensors` [n], in single precision at least."""
    with torch.no_grad():
        if len({t.dtype for t in tensors}) == 1:
            # Refused for sparse gradients and for several devices.
            with contextlib.suppress(RuntimeError):
                return torch.stack(torch._foreach_norm(tensors, 2, _precision(tensors[0])))
        dense = [t.coalesce().values() if t.is_sparse else t for t in tensors]
        each = [torch.linalg.vector_norm(t, dtype=_precision(t)) for t in dense]
        return torch.stack([norm.to(tensors[0].device, torch.float32) for norm in each])


def _precision(tensor: Tensor) -> torch.dtype | None:
    return torch.float32 if tensor.dtype in HALVES else None
