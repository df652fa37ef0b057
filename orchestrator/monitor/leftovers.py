"""Whether a step is made from its own gradients, or from those of the step before as well."""

from __future__ import annotations

import weakref
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle


class Leftovers:
    """Counts an optimizer's steps whose gradients began on top of those of the step before.

    Exact, and no number is read: autograd adds to a gradient in place, which raises its version by
    one. A gradient that was thrown away is another tensor, one that was set to zero is two versions
    on. One parameter is looked at, the smallest that has a gradient at the first step.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._handles: list[RemovableHandle] = []
        self._parameter: Tensor | None = None
        self._last: tuple[Tensor | None, int] = (None, 0)
        self._is_fresh = True
        self.stale = 0

    def look(self) -> None:
        """After each step of the optimizer."""
        if self._parameter is None:
            self._choose()
            return
        gradient = self._parameter.grad
        is_left = gradient is not None and gradient is self._last[0]
        self.stale += is_left and not self._is_fresh
        self._keep(gradient)
        self._is_fresh = False

    def close(self) -> None:
        """Look no longer."""
        while self._handles:
            self._handles.pop().remove()

    def _choose(self) -> None:
        owned: Sequence[Tensor] = [p for g in self._optimizer.param_groups for p in g["params"]]
        dense = [p for p in owned if p.grad is not None and not p.grad.is_sparse and p.is_leaf]
        if dense:
            self._parameter = min(dense, key=Tensor.numel)
            self._keep(self._parameter.grad)
            self._is_fresh = False
            ear = weakref.ref(self)
            register = self._parameter.register_post_accumulate_grad_hook
            hook = register(lambda p: _heard(ear, p))  # type: ignore[no-untyped-call]
            self._handles.append(hook)

    def accumulated(self, gradient: Tensor | None) -> None:
        """A backward pass has added to `gradient`."""
        last, version = self._last
        is_added = gradient is not None and gradient is last and gradient._version == version + 1
        self._is_fresh |= not is_added
        self._keep(gradient)

    def _keep(self, gradient: Tensor | None) -> None:
        # The tensor itself is held: the address of one that is gone is given to the next.
        self._last = gradient, 0 if gradient is None else gradient._version


def _heard(ear: weakref.ref[Leftovers], parameter: Tensor) -> None:
    listener = ear()
    if listener is not None:
        listener.accumulated(parameter.grad)
