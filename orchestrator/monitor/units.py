"""Which units of a model are dead: zero over a whole pass through a set of data."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from orchestrator.monitor.modules import first_floating, watched_modules

_READERS = (nn.Linear, nn.modules.conv._ConvNd)
"""What reads units. Its inputs show what a function (`F.relu`) made, which no module put out."""

_CHANNELS_FIRST = (
    nn.modules.conv._ConvNd,
    nn.modules.batchnorm._NormBase,
    nn.GroupNorm,
)
_CHANNELS_LAST = (nn.Linear, nn.LayerNorm, nn.RMSNorm, nn.Embedding, nn.MultiheadAttention)

_NO_UNITS = (nn.Softmax, nn.Softmax2d, nn.LogSoftmax, nn.Softmin, nn.MultiheadAttention)

_MOST_CALLS = 64
"""Calls of one module in a pass that are told apart; the rest counts with the last."""


class Units:
    """The units of a model, of which it is kept whether they were ever not zero.

    Units are the entries along the last dimension after a linear layer or a layer norm, and the
    channels after a convolution or a batch norm: of the outputs of activation functions, and of the
    inputs of linear layers and convolutions, which a function may have made zero. Left out are
    inputs that are the data or what an activation module has just put out.

    Each call of an activation module in a pass has units of its own, since one without weights is
    often used in several places; a linear layer or a convolution has the same ones in all calls.
    """

    def __init__(self, model: nn.Module) -> None:
        self._names = {module: name for name, module in watched_modules(model).items()}
        self._alive: dict[tuple[str, int], Tensor | None] = {}
        self._calls: Counter[str] = Counter()
        self._dimension = -1
        self._are_data = True
        self._last: Tensor | None = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """See one forward pass, through a part of the data."""
        self._calls.clear()
        self._dimension, self._are_data = -1, True
        handle = register_module_forward_hook(self._see)
        try:
            yield
        finally:
            handle.remove()
            self._last = None

    def dead(self) -> dict[str, Tensor]:
        """Share of dead units [] of each module, by its name, in the model's order."""
        parts: dict[str, list[Tensor]] = {}
        for (name, _), alive in self._alive.items():
            if alive is not None:
                parts.setdefault(name, []).append(alive)
        shares = {name: 1 - torch.cat(alive).float().mean() for name, alive in parts.items()}
        return {name: shares[name] for name in self._names.values() if name in shares}

    def _see(self, module: nn.Module, inputs: tuple[object, ...], output: object) -> None:
        if isinstance(module, _READERS):
            self._see_inputs(module, first_floating(inputs))
        if isinstance(module, _CHANNELS_FIRST):
            self._dimension = 1
        elif isinstance(module, _CHANNELS_LAST):
            self._dimension = -1
        name = self._names.get(module)
        if name is not None and _is_activation(module):
            tensor = first_floating(output)
            if tensor is not None:
                call = min(self._calls[name], _MOST_CALLS)
                self._calls[name] += 1
                self._count(name, call, tensor, self._dimension)
                self._last = tensor

    def _see_inputs(self, module: nn.Module, tensor: Tensor | None) -> None:
        are_data, self._are_data = self._are_data, False
        name = self._names.get(module)
        if tensor is None or name is None or are_data or _share_memory(tensor, self._last):
            return
        self._count(name, 0, tensor, 1 if isinstance(module, _CHANNELS_FIRST) else -1)

    def _count(self, name: str, call: int, tensor: Tensor, dimension: int) -> None:
        moved = tensor.detach().movedim(dimension if tensor.dim() > 1 else 0, -1)
        alive = (moved != 0).reshape(-1, moved.shape[-1]).any(0)  # [units]
        before = self._alive.get((name, call), alive)
        # A dimension that changes from batch to batch is none of units.
        is_same = before is not None and before.shape == alive.shape
        self._alive[name, call] = before | alive if before is not None and is_same else None


def _is_activation(module: nn.Module) -> bool:
    """One of torch's or a module of the user's own that has neither weights nor other modules."""
    home = type(module).__module__
    if home == nn.ReLU.__module__:
        return not isinstance(module, _NO_UNITS)
    return not home.startswith("torch.") and not any(True for _ in module.parameters())


def _share_memory(first: Tensor, second: Tensor | None) -> bool:
    if second is None:
        return False
    return first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
