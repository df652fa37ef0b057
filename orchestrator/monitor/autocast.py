"""Which lower precision a training's forward pass is cast to: known only while it runs."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.hooks import RemovableHandle

from orchestrator.monitor.activations import is_compile_in_use
from orchestrator.nouns import Scalar


class Autocast:
    """Looks at each call of a module in training mode, until it is closed; writes it into `facts`.

    By torch's hook for all modules, as `Activations`; where something is compiled, nothing is seen.
    """

    def __init__(
        self, model: nn.Module, devices: Iterable[torch.device], facts: dict[str, Scalar]
    ) -> None:
        self._modules = weakref.WeakSet(model.modules())
        types = {device.type for device in devices}
        self._types = [t for t in sorted(types) if torch.amp.is_autocast_available(t)]
        self._facts = facts
        self._handles: list[RemovableHandle] = []
        if not is_compile_in_use():
            self._handles.append(register_module_forward_pre_hook(_ear(weakref.ref(self))))
        weakref.finalize(self, _remove, self._handles)

    def look(self, module: nn.Module) -> None:
        """Look at the call of a module."""
        if module in self._modules and module.training and torch.is_grad_enabled():
            for kind in self._types:
                if torch.is_autocast_enabled(kind):
                    dtype = torch.get_autocast_dtype(kind)
                    self._facts["autocast"] = str(dtype).removeprefix("torch.")

    def close(self) -> None:
        """Look no longer."""
        _remove(self._handles)


def _ear(look: weakref.ref[Autocast]) -> Callable[[nn.Module, object], None]:
    def hear(module: nn.Module, _: object) -> None:
        listener = None if torch.compiler.is_compiling() else look()
        if listener is not None:
            listener.look(module)

    return hear


def _remove(handles: list[RemovableHandle]) -> None:
    while handles:
        handles.pop().remove()
