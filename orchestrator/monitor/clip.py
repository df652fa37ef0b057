"""The total norm of gradients as torch computes it to clip them, and the norms it is made of."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils._foreach_utils import _group_tensors_by_device_and_dtype, _has_foreach_support


@torch.no_grad()
def total_norm(gradients: list[Tensor]) -> tuple[Tensor, Tensor | None]:
    """What `get_total_norm` returns, bit for bit, and on the way to it the norm of each [n].

    The latter is None where torch computes in groups, whose order nobody promises (gradients on
    several devices or in several data types), where it takes no short cut for many tensors, and of
    shards.
    """
    if any(hasattr(gradient, "full_tensor") for gradient in gradients):
        return nn.utils.get_total_norm(gradients), None
    groups = _group_tensors_by_device_and_dtype([gradients])  # type: ignore[list-item]
    if len(groups) == 1 and _has_foreach_support(gradients, gradients[0].device):
        each = torch.stack(torch._foreach_norm(gradients, 2.0))
        return torch.linalg.vector_norm(each, 2.0), each
    return nn.utils.get_total_norm(gradients), None


def over_shards(norm: Tensor) -> Tensor:
    """A norm of shards as the plain number that it is over all of them; every rank must ask."""
    whole: Tensor = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    return whole
