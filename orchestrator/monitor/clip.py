"""The total norm of gradients as torch computes it to clip them, and the norms it is made of."""

from __future__ import annotations

import torch
from torch import Tensor, nn


@torch.no_grad()
def total_norm(gradients: list[Tensor]) -> tuple[Tensor, Tensor | None]:
    """What `get_total_norm` returns, bit for bit, and on the way to it the norm of each [n].

    The latter is None where torch computes in groups, whose order nobody promises: gradients on
    several devices or in several data types, and where it takes no short cut: sparse or sharded.
    """
    if len({(type(g), g.device, g.dtype, g.layout) for g in gradients}) == 1:
        first = gradients[0]
        if type(first) is Tensor and first.layout is torch.strided:
            each = torch.stack(torch._foreach_norm(gradients, 2.0))
            return torch.linalg.vector_norm(each, 2.0), each
    return nn.utils.get_total_norm(gradients), None
