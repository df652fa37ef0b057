"""What is true of a training before its first step: the header of its telemetry."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from orchestrator.nouns import Scalar

_DROPOUT = nn.modules.dropout._DropoutNd
_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def parameter_names(model: nn.Module) -> dict[Tensor, str]:
    """Name of each parameter, tied ones once, without what wrappers and torch.compile add."""
    named = unwrapped(model).named_parameters()
    return {p: name.replace("_orig_mod.", "") for name, p in named}


def unwrapped(model: nn.Module) -> nn.Module:
    """The user's own module behind wrappers and torch.compile."""
    while True:
        if isinstance(model, _WRAPPERS):
            model = model.module
        elif isinstance(original := getattr(model, "_orig_mod", None), nn.Module):
            model = original
        else:
            return model


def is_sharded(model: nn.Module) -> bool:
    """Whether a rank has but a part of the parameters, so that it cannot run the model alone."""
    wrapped = any(type(module).__name__ == "FullyShardedDataParallel" for module in model.modules())
    return wrapped or any(
        hasattr(parameter, "full_tensor") or hasattr(parameter, "ds_id")  # FSDP 2, DeepSpeed
        for parameter in model.parameters()
    )


def header(
    model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], names: Mapping[Tensor, str]
) -> dict[str, Scalar]:
    """The header's facts. Lists of parameters are comma-separated names.

    `weight_layers` are the trainable matrices and convolution kernels, without embeddings: those
    move only in the rows that a batch touched; `weight_shapes` are theirs, as in `64x3x3x3`.
    `not_optimized` are trainable and in no optimizer. `head` is the last matrix, trainable or not,
    and has `outputs` rows. `sparse_embeddings` get sparse gradients, `embeddings` do not. `untied`
    are output layers that equal an embedding and are another parameter.
    """
    optimized = {p for o in optimizers for group in o.param_groups for p in group["params"]}
    trainable = {p: name for p, name in names.items() if p.requires_grad}
    tables = embeddings(model)
    matrices = {p for p in names if p.ndim >= 2} - tables.keys()
    layers = {p: name for p, name in trainable.items() if p in matrices & optimized}
    size = sum(p.numel() for p in names)
    return {
        "optimizer": ", ".join(type(optimizer).__name__ for optimizer in optimizers),
        "parameters": size,
        "weight_layers": ",".join(layers.values()),
        "weight_shapes": ",".join("x".join(map(str, p.shape)) for p in layers),
        "outputs": next((p.shape[0] for p in reversed([*names]) if p in matrices), 0),
        "head": next((names[p] for p in reversed([*names]) if p in matrices), ""),
        "embeddings": ",".join(n for p, n in names.items() if tables.get(p) is False),
        "sparse_embeddings": ",".join(n for p, n in names.items() if tables.get(p)),
        "not_optimized": ",".join(n for p, n in trainable.items() if p not in optimized),
        "untied": ",".join(names[p] for p in untied(model) if p in names),
        "frozen": ",".join(n for p, n in names.items() if not p.requires_grad),
        "frozen_share": 1 - sum(p.numel() for p in trainable) / size if size else 0.0,
        "dropout": max((m.p for m in model.modules() if isinstance(m, _DROPOUT)), default=0.0),
        **{name: _largest(optimizers, name) for name in ("weight_decay", "eps")},
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


def _largest(optimizers: Sequence[torch.optim.Optimizer], option: str) -> float:
    """An option's largest value over all groups; 0 where no optimizer has it."""
    values = [g.get(option) for o in optimizers for g in o.param_groups]
    return max((float(v) for v in values if isinstance(v, int | float)), default=0.0)


def embeddings(model: nn.Module) -> dict[Tensor, bool]:
    """Weights of embeddings, and whether their gradients are sparse.

    Not those that another module uses too, as an output layer: then every row moves.
    """
    tables: dict[Tensor, bool] = {}
    others: set[Tensor] = set()
    for module in model.modules():
        for p in module.parameters(recurse=False):
            if isinstance(module, nn.Embedding | nn.EmbeddingBag):
                tables[p] = tables.get(p, True) and module.sparse
            else:
                others.add(p)
    return {p: is_sparse for p, is_sparse in tables.items() if p not in others}


def untied(model: nn.Module) -> list[Tensor]:
    """Weights of linear layers that hold the values of an embedding in memory of their own.

    None if the values are all the same, as where everything is zero, or are spread over ranks.
    """
    if is_sharded(model):
        return []
    modules = list(model.modules())
    tables = [m.weight for m in modules if isinstance(m, nn.Embedding)]
    heads = [m.weight for m in modules if isinstance(m, nn.Linear)]
    return [head for head in heads if any(_are_copies(head, table) for table in tables)]


def _are_copies(head: Tensor, table: Tensor) -> bool:
    alike = all(getattr(head, a) == getattr(table, a) for a in ("shape", "device", "dtype"))
    if head is table or not alike or head.is_meta:
        return False
    return torch.equal(head, table) and bool(head.amin() < head.amax())
