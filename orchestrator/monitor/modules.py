"""Which modules of a model are looked at, and which of their outputs."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass

import torch
from torch import Tensor, nn

from orchestrator.monitor import facts

MOST_MODULES = 100
"""Of a model with more, every n-th of each kind of module is looked at."""

_PASSED_ON = (
    nn.modules.dropout._DropoutNd,
    nn.modules.loss._Loss,
    nn.modules.padding._ConstantPadNd,
    nn.Identity,
    nn.Flatten,
    nn.Unflatten,
    nn.Sequential,
    nn.ModuleList,
    nn.ModuleDict,
    nn.ParameterList,
    nn.ParameterDict,
)
"""What puts out its input, a loss or nothing; a container comes to this where it is empty."""

_PRECISIONS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""What torch can sum: not eight bits."""


def watched_modules(model: nn.Module) -> dict[str, nn.Module]:
    """The modules that compute something and hold no others, and attention, by name.

    Those that only pass on their input (dropout, flatten, ...) are left out. If there are more than
    `MOST_MODULES`, every n-th of each kind stays: same class, same name but for the numbers in it,
    so that of repeated blocks whole ones stay.
    """
    kinds: dict[tuple[type[nn.Module], str], list[str]] = {}
    found = dict(_leaves(facts.unwrapped(model), "", set()))
    for name, module in found.items():
        kinds.setdefault((type(module), re.sub(r"\d+", "*", name)), []).append(name)
    every = max(1, math.ceil(len(found) / MOST_MODULES))
    kept = {name for names in kinds.values() for name in names[::every]}
    return {name: module for name, module in found.items() if name in kept}


def first_floating(output: object) -> Tensor | None:
    """The first ordinary floating tensor, no scalar, in a module's output; None if there is none.

    Looked for in tuples, lists, mappings and dataclasses. Sparse, complex and quantised tensors,
    subclasses of Tensor (sharded, fake) and those of `torch.func`'s transforms are not ordinary.
    """
    if isinstance(output, Tensor):
        is_ordinary = (
            type(output) is Tensor
            and output.dtype in _PRECISIONS
            and output.layout is torch.strided
            and not torch._C._functorch.is_functorch_wrapped_tensor(output)
        )
        return output if is_ordinary and output.dim() and output.numel() else None
    if isinstance(output, Mapping):
        parts: Sequence[object] = tuple(output.values())
    elif is_dataclass(output) and not isinstance(output, type):
        parts = tuple(getattr(output, name) for name in output.__dataclass_fields__)
    elif isinstance(output, tuple | list):
        parts = output
    else:
        return None
    return next((t for part in parts if (t := first_floating(part)) is not None), None)


def _leaves(module: nn.Module, name: str, seen: set[nn.Module]) -> Iterator[tuple[str, nn.Module]]:
    if module in seen or isinstance(module, torch.jit.ScriptModule):
        return
    seen.add(module)
    held = {n: m for n, m in module.named_children() if n != "parametrizations"}
    if held and not isinstance(module, nn.MultiheadAttention):
        for inner, child in held.items():
            yield from _leaves(child, f"{name}.{inner}" if name else inner, seen)
    elif not isinstance(module, _PASSED_ON):
        yield name or "model", module
