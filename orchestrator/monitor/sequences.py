"""How a sequence model's targets lie to its inputs, and whether it sees what it is to predict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from orchestrator.monitor import logits

_TOKENS = "input_ids"
"""What transformers calls the tokens."""

FACTS = (
    "targets_are_inputs",
    "targets_are_next_inputs",
    "future_leak",
    "padding_counts",
    "padding_seen",
)
"""Shares of the targets that count: those equal to the input at their place, and to the input one
place on; the largest change of an output when the last token is another, over all places before
it, as a share of the largest output; share of the targets whose input is the token that the first
embedding with a `padding_idx` never trains; the largest change of an output whose target counts
when the last quarter of the places is left out of sequences that have nothing but padding there.
"""


class Tokens(NamedTuple):
    """Tokens [batch, time] with targets [batch, time], and how to call the model on others.

    `answer` takes other tokens, `cut` a number of places to which all that has one entry for each
    is shortened. `are_shifted`: the model shifts the targets itself, so those at their place are
    the next tokens.
    """

    values: Tensor
    targets: Tensor
    answer: Callable[[Tensor], object]
    cut: Callable[[int], object]
    are_shifted: bool


def tokens_of(
    model: nn.Module,
    arguments: Sequence[object],
    keywords: Mapping[str, object],
    targets: object,
    *,
    are_labels: bool,
) -> Tokens | None:
    """The tokens of a batch whose every token has a target; None if it is none of that kind."""
    given = arguments[0] if arguments else keywords.get(_TOKENS)
    if not isinstance(given, Tensor) or not isinstance(targets, Tensor):
        return None
    if given.shape != targets.shape or given.dim() != 2 or given.shape[1] < 2:
        return None
    if not all(t.dtype in (torch.int64, torch.int32) for t in (given, targets)):
        return None

    def answer(tokens: Tensor) -> object:
        if arguments:
            return model(tokens, *arguments[1:], **keywords)
        return model(**{**keywords, _TOKENS: tokens})

    def cut(length: int) -> object:
        def short(part: object) -> object:
            if isinstance(part, Tensor) and part.shape[:2] == given.shape:
                return part[:, :length]
            return part

        named = {name: short(part) for name, part in keywords.items()}
        return model(*(short(part) for part in arguments), **named)

    return Tokens(given, targets, answer, cut, are_labels)


def look(model: nn.Module, tokens: Tokens, output: object) -> Tensor | None:
    """The `FACTS` [5], left on the device; None if `output` has no logits for each token.

    The model is called once more, and once more if an embedding has a `padding_idx`.
    """
    values, targets = tokens.values, tokens.targets
    before = _by_time(output, targets)
    if before is None:
        return None
    counts = targets != logits.IGNORED
    at_place = _share(targets == values, counts)
    one_on = _share(targets[:, :-1] == values[:, 1:], counts[:, :-1])
    if tokens.are_shifted:
        at_place, one_on = torch.zeros_like(at_place), at_place
    low, high = values.min(), values.max()
    other = values.clone()
    other[:, -1] = torch.where(values[:, -1] == low, high, low)
    after = _by_time(tokens.answer(other), targets)
    if after is None:
        return None
    last_aside = torch.cat([after[:, :-1], before[:, -1:]], 1)
    change = logits.largest_change(before, last_aside)
    padding = _padding(model)
    padded = torch.zeros_like(counts) if padding is None else values == padding
    # A recurrent layer that reads backwards begins with the padding, which is nobody's mistake.
    is_recurrent = any(isinstance(module, nn.RNNBase) for module in model.modules())
    seen = torch.zeros_like(change)
    if padding is not None and not is_recurrent:
        seen = _without_padding(tokens, before, padded)
    return torch.stack([at_place, one_on, change, _share(padded, counts), seen])


def _without_padding(tokens: Tokens, before: Tensor, padded: Tensor) -> Tensor:
    """How much outputs [batch, time, K] at real places change with the padding cut off []."""
    length = padded.shape[1] - padded.shape[1] // 4
    try:
        after = _by_time(tokens.cut(length), tokens.targets[:, :length])
    except Exception:  # a model of one length only
        after = None
    if after is None:
        return torch.zeros((), device=before.device)
    counts = (tokens.targets != logits.IGNORED) & ~padded
    is_real = counts[:, :length] & padded[:, length:].all(1, keepdim=True)
    before = before[:, :length]
    return logits.largest_change(before, torch.where(is_real[..., None], after, before))


def _by_time(output: object, targets: Tensor) -> Tensor | None:
    """Logits [batch, time, K], whichever dimension torch has the classes in."""
    found = logits.rows_of(output, targets)
    return None if found is None else found[0].reshape(*targets.shape, -1)


def _share(is_so: Tensor, counts: Tensor) -> Tensor:
    return (is_so & counts).sum().float() / counts.sum().clamp_min(1)


def _padding(model: nn.Module) -> int | None:
    tables = (module for module in model.modules() if isinstance(module, nn.Embedding))
    return next((t.padding_idx for t in tables if t.padding_idx is not None), None)
