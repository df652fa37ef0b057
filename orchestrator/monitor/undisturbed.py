"""Running a model in between, so that its training does not notice."""

from __future__ import annotations

import contextlib
import random
import sys
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn


@contextlib.contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients in the block; after it, all is as it was, bit for bit.

    Put back are the mode of each module, buffers that changed (a BatchNorm that stays in training
    mode on its own account) and the random numbers of torch, numpy and Python. Modes are set one by
    one, since `train()` may be overridden to do more, like merging weights. What `torch.compile`
    made of the model is left alone. A state that a module keeps elsewhere is not put back.
    """
    modes = [(module, module.training) for module in model.modules()]
    buffers = list(_copies(model))
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    python, numpy = random.getstate(), np.random.get_state()
    with (
        torch.no_grad(),  # not `inference_mode`: what a module caches in it cannot be trained on
        torch.random.fork_rng(devices=[device.index for device in devices]),
        _in_plain_modules(),
    ):
        try:
            for module, _ in modes:
                module.training = False
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
            for module, mode in modes:
                module.training = mode
            for module, name, buffer, copy in buffers:
                module._buffers[name] = buffer
                if buffer is not None and copy is not None:
                    # Not `buffer.copy_`: a graph that waits for its backward would refuse it then.
                    buffer.data.copy_(copy)


def _copies(
    model: nn.Module,
) -> Iterator[tuple[nn.Module, str, Tensor | None, Tensor | None]]:
    """Every buffer with a copy; without one where it cannot be written to, being expanded.

    Which ones change is not known: batch norm's kernel does not count itself as a change.
    """
    for module in model.modules():
        for name, buffer in module._buffers.items():
            copy = None
            if buffer is not None and not (buffer.layout is torch.strided and 0 in buffer.stride()):
                copy = buffer.detach().clone()
            yield module, name, buffer, copy


@contextlib.contextmanager
def _in_plain_modules() -> Iterator[None]:
    """Each module is called, and not a compiled whole or torch's fused transformer layer."""
    is_fast = torch.backends.mha.get_fastpath_enabled()
    is_dynamo_loaded = "torch._dynamo" in sys.modules
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        stance = torch.compiler.set_stance("force_eager") if is_dynamo_loaded else None
        with stance or contextlib.nullcontext():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(is_fast)
