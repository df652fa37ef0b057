"""What each module puts out on sampled steps: sums that stay on the device until the flush."""

from __future__ import annotations

import functools
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook
from torch.utils.hooks import RemovableHandle

from orchestrator.monitor.modules import first_floating, watched_modules
from orchestrator.nouns import Ints, Level, Monitoring, Scalar
from orchestrator.telemetry.writer import Column

MOST_CALLS = 64
"""Calls of one module that count in a step: bounds what a loop over time may hold on to."""

EARLY = (0, 10, 30)
"""Steps that are sampled however long the interval: the initialisation shows."""

_SPARSE = 10
"""On the default level, modules are looked at in every tenth of the steps in which layers are."""

_OVER_THE_BATCH = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
"""Not `SyncBatchNorm`, which takes the examples of all processes."""

_OF_ONE = "batch_norm_of_one"
"""In the header: a batch normalisation that never had more than one example; empty if it had."""

_EDGE = 0.01
"""Saturated is the outer hundredth of a bounded range. For a sigmoid and a tanh alike the slope is
there below 4 % of its greatest; how large the share may get is for a rule to say. The choice is
ours; that saturation stalls layers: Glorot and Bengio 2010, section 3."""


class Call(NamedTuple):
    """One forward call of module number `module`, whose output has `size` elements.

    `total` and `norm` are the sum and the Euclidean norm of these. `saturated` is a share, None
    where the module has no bounds.
    """

    module: int
    size: int
    total: Tensor
    norm: Tensor
    nonzero: Tensor
    saturated: Tensor | None


class Heard(NamedTuple):
    """The calls of one optimizer step; `names` are those of all modules that are watched."""

    names: tuple[str, ...]
    calls: tuple[Call, ...]

    def tensors(self) -> Iterator[Tensor]:
        """All that is still on the device."""
        return (part for call in self.calls for part in call if isinstance(part, Tensor))


class Activations:
    """A model's modules, overheard in sampled steps: in training mode and with gradients.

    It listens by torch's one hook for all modules. A hook in a module would be pickled with it when
    the model is saved, and copied with it for a running average; and one that is always there slows
    down every call.
    """

    def __init__(self, model: nn.Module, every: int, facts: dict[str, Scalar]) -> None:
        """Listen from now on, to every so many steps; `facts` are told if that cannot be done."""
        watched = watched_modules(model)
        self.names = tuple(watched)
        # DataParallel trains copies of the modules, which share this one dictionary with them.
        self._numbers = {id(m._forward_hooks): i for i, m in enumerate(watched.values())}
        self._modules = tuple(watched.values())  # an id is unique as long as its object lives
        self._is_compiled = any(
            hasattr(m, "_orig_mod") or m._compiled_call_impl is not None for m in model.modules()
        )
        self._every = every
        self._facts = facts
        self._calls: list[list[Call]] = [[] for _ in watched]
        self._forwards: set[int] = set()
        self._error: Exception | None = None
        self._handles: list[RemovableHandle] = []
        weakref.finalize(self, _remove, self._handles)
        # Where the model is compiled only later on; see `_listen`.
        warnings.filterwarnings("ignore", r"Using `torch.compile\(module\)` when there are global")
        self._listen()

    def turn(self, step: int) -> Heard | None:
        """What was heard in `step`, which is over; None if it is not sampled.

        The number of the first step is not known when it begins: it may be heard for nothing.
        """
        if self._error is not None:
            raise self._error
        heard = None
        if self._handles:
            heard = Heard(self.names, tuple(call for calls in self._calls for call in calls))
            self._calls = [[] for _ in self.names]
            self._forwards.clear()
            self.close()
        if self._is_sampled(step + 1):
            self._listen()
        return heard if self._is_sampled(step) else None

    def hear(self, module: nn.Module, output: object) -> None:
        """Measure an output, if it is one of a training."""
        number = self._numbers.get(id(getattr(module, "_forward_hooks", None)))
        if number is None or not module.training or not torch.is_grad_enabled():
            return
        # Checkpointing calls a module again during backward. Where the first call had no gradients
        # (reentrant checkpoints), the second one is the first that is heard here.
        is_backward = torch._C._current_graph_task_id() != -1
        if is_backward and number in self._forwards:
            return
        if not is_backward:
            self._forwards.add(number)
        tensor = first_floating(output)
        if tensor is not None and len(self._calls[number]) < MOST_CALLS:
            self._calls[number].append(_measure(number, module, tensor.detach()))
            if isinstance(module, _OVER_THE_BATCH):
                name = self.names[number] if len(tensor) == 1 else ""
                self._facts[_OF_ONE] = self._facts.get(_OF_ONE, name) and name

    def fail(self, error: Exception) -> None:
        """Keep what went wrong in the middle of a forward pass until the step is over."""
        self._error = error
        self.close()

    def close(self) -> None:
        """Listen no longer."""
        _remove(self._handles)

    def _is_sampled(self, step: int) -> bool:
        return step % self._every == 0 or step in EARLY

    def _listen(self) -> None:
        """Not to modules that are compiled: a hook would have them compiled once more."""
        if self._is_compiled or is_compile_in_use():
            self._facts["activations"] = "not recorded: torch.compile"
        else:
            ear = functools.partial(_overhear, weakref.ref(self))
            self._handles.append(register_module_forward_hook(ear))


def listener(
    model: nn.Module, monitoring: Monitoring, facts: dict[str, Scalar]
) -> Activations | None:
    """What listens to a training on its level, if anything does; see `Activations`."""
    if monitoring.level is Level.FULL:
        return Activations(model, monitoring.interval, facts)
    if monitoring.level is Level.DEFAULT:
        return Activations(model, _SPARSE * monitoring.interval, facts)
    return None


def columns(
    rows: Sequence[tuple[int, Heard]], number: Callable[[Tensor], float]
) -> tuple[Ints, dict[str, Column]]:
    """Steps [n] and each quantity [n, modules] of rows with the same modules.

    Calls are pooled by their elements. The variance is E[x^2] - E[x]^2 of sums in single precision
    (what a device does in one pass and without a copy): a std below a hundredth of the mean is
    rough, below a thousandth it is nothing but rounding.
    """
    shape = (4, len(rows), len(rows[0][1].names))
    count, total, square, nonzero = np.zeros(shape)
    saturated, bounded = np.zeros(shape[1:]), np.zeros(shape[1:])
    for row, (_, heard) in enumerate(rows):
        for call in heard.calls:
            at = row, call.module
            count[at] += call.size
            total[at] += number(call.total)
            square[at] += number(call.norm) ** 2
            nonzero[at] += number(call.nonzero)
            if call.saturated is not None:
                bounded[at] += call.size
                saturated[at] += call.size * number(call.saturated)
    with np.errstate(divide="ignore", invalid="ignore"):  # modules that were not called
        mean = total / count
        quantities = {
            "activation_mean": np.ma.array(mean, mask=count == 0),
            "activation_std": np.ma.array(
                np.sqrt(np.maximum(square / count - mean**2, 0)), mask=count == 0
            ),
            "activation_zeros": np.ma.array(1 - nonzero / count, mask=count == 0),
            "activation_saturated": np.ma.array(saturated / bounded, mask=bounded == 0),
        }
    steps = np.array([step for step, _ in rows])
    return steps, {name: values.astype(np.float32) for name, values in quantities.items()}


def _measure(number: int, module: nn.Module, output: Tensor) -> Call:
    with torch.no_grad():
        precision = torch.float64 if output.dtype == torch.float64 else torch.float32
        return Call(
            number,
            output.numel(),
            output.sum(dtype=precision),
            torch.linalg.vector_norm(output, dtype=precision),
            output.count_nonzero().to(precision),  # one type: one transfer at the flush
            _saturated(module, output),
        )


def _saturated(module: nn.Module, output: Tensor) -> Tensor | None:
    """Share of the outputs near a bound; of a softmax, of the rows that are all but one-hot."""
    if isinstance(module, nn.Sigmoid):
        return _share((output - 0.5).abs() > 0.5 - _EDGE)
    if isinstance(module, nn.Tanh):
        return _share(output.abs() > 1 - 2 * _EDGE)
    if isinstance(module, nn.ReLU6):  # its lower bound is a ReLU's
        return _share(output >= 6)
    if isinstance(module, nn.Hardsigmoid):
        return _share((output <= 0) | (output >= 1))
    if isinstance(module, nn.Hardtanh):
        return _share((output <= module.min_val) | (output >= module.max_val))
    if isinstance(module, nn.Softmax) and module.dim is not None:
        return _share(output.amax(module.dim) > 1 - _EDGE)
    return None


def _share(is_so: Tensor) -> Tensor:
    return is_so.count_nonzero() / is_so.numel()


def _overhear(ears: weakref.ref[Activations], module: nn.Module, _: object, output: object) -> None:
    """The hook; an error of ours must not come up in the forward pass."""
    if torch.compiler.is_compiling():
        return
    listener = ears()
    if listener is None:
        return
    try:
        listener.hear(module, output)
    except Exception as error:  # whatever it is
        listener.fail(error)


def is_compile_in_use() -> bool:
    """Whether this process has called torch.compile: which modules it compiles cannot be seen."""
    eval_frame = sys.modules.get("torch._dynamo.eval_frame")
    return any(backend for backend in getattr(eval_frame, "cached_backends", {}).values())


def _remove(handles: list[RemovableHandle]) -> None:
    while handles:
        handles.pop().remove()
