"""What is true of a training before its first step: the header of its telemetry."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from orchestrator.nouns import Scalar

_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def parameter_names(model: nn.Module) -> dict[Tensor, str]:
    """Name of each parameter, tied ones once, without what wrappers and torch.compile add."""
    while isinstance(model, _WRAPPERS):
        model = model.module
    return {p: name.replace("_orig_mod.", "") for name, p in model.named_parameters()}


def header(
    model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], names: Mapping[Tensor, str]
) -> dict[str, Scalar]:
    """The header's facts. Lists of parameters are comma-separated names.

    `weight_layers` are the trainable matrices and convolution kernels, without embeddings: those
    move only in the rows that a batch touched. `not_optimized` are trainable and in no optimizer.
    """
    optimized = {p for o in optimizers for group in o.param_groups for p in group["params"]}
    trainable = {p: name for p, name in names.items() if p.requires_grad}
    matrices = {p for p in optimized if p.ndim >= 2} - _embeddings(model)
    return {
        "optimizer": ", ".join(type(optimizer).__name__ for optimizer in optimizers),
        "parameters": sum(p.numel() for p in names),
        "weight_layers": ",".join(n for p, n in trainable.items() if p in matrices),
        "not_optimized": ",".join(n for p, n in trainable.items() if p not in optimized),
        "frozen": ",".join(n for p, n in names.items() if not p.requires_grad),
        "precision": ", ".join(sorted({str(p.dtype).removeprefix("torch.") for p in names})),
        "device": ", ".join(sorted({str(p.device) for p in names})),
        "torch": torch.__version__,
        "world_size": world()[1],
    }


def world() -> tuple[int, int]:
    """Rank of this process among those that train together, and their number."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _embeddings(model: nn.Module) -> set[Tensor]:
    """Weights of embeddings, unless another module uses them too: then every row moves."""
    tables: set[Tensor] = set()
    others: set[Tensor] = set()
    for module in model.modules():
        owner = tables if isinstance(module, nn.Embedding | nn.EmbeddingBag) else others
        owner.update(module.parameters(recurse=False))
    return tables - others
