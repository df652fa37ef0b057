"""How much there is in a batch that a framework hands over, as far as its tensors tell."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor
from torch.utils._pytree import tree_leaves

_IGNORED = -100
"""Label of what does not count in the loss: torch's cross entropy's, and all of transformers'."""


def sizes(batch: object) -> tuple[int | None, Tensor | None]:
    """Samples: the length of the first tensor. Tokens: where each has a label, those not ignored.

    None where it does not tell; the number of tokens stays on the device.
    """
    named = dict(batch) if isinstance(batch, Mapping) else {}
    leaves = tree_leaves(named or batch)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.ndim]
    samples = len(tensors[0]) if tensors else None
    labels = named.get("labels")
    if not isinstance(labels, Tensor) or labels.ndim != 2 or labels.is_floating_point():
        return samples, None
    return samples, (labels != _IGNORED).sum()
