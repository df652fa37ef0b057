"""A look at a model on a fixed probe set: loss, logits and dead units, left on the device."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from orchestrator.monitor import logits, sequences
from orchestrator.monitor.facts import is_sharded, unwrapped
from orchestrator.monitor.provenance import data_digest
from orchestrator.monitor.undisturbed import undisturbed
from orchestrator.monitor.units import Units
from orchestrator.monitor.values import Read
from orchestrator.nouns import Scalar
from orchestrator.telemetry import Writer

Loss = Callable[..., Tensor]

_SUM_TO_ONE = 1e-2
"""How far from 1 a row of probabilities in half precision may sum, and how far below 0 be."""


_log = logging.getLogger(__name__)


class Batch(NamedTuple):
    """What the model is called with, and what its answer is compared with.

    `are_labels`: the targets are one of the model's own keywords, and only it knows whether they
    are aligned with its outputs or to be shifted.
    """

    arguments: tuple[object, ...]
    keywords: Mapping[str, object]
    targets: object
    are_labels: bool = False


class Evaluation(NamedTuple):
    """One pass over the probe set. `metrics` and `logits` are 0-d tensors by name.

    `shares` [modules] are those of the dead units in each. `inconsistency` is the largest
    difference of two passes over one batch over the largest output, None where that was not tried;
    `extremes` [2] are those of `logits.Sums`, `sequence` [5] are `sequences.FACTS`. `classes` is 0
    if it is no classification. `data` is a digest of the first batch, "" where none was made.
    """

    metrics: Mapping[str, Tensor]
    logits: Mapping[str, Tensor]
    modules: tuple[str, ...]
    shares: Tensor | None
    classes: int
    inconsistency: Tensor | None
    extremes: Tensor | None
    sequence: Tensor | None
    data: str

    def tensors(self) -> Iterator[Tensor]:
        """All that is still on the device, but for the metrics."""
        yield from self.logits.values()
        ends = (self.shares, self.inconsistency, self.extremes, self.sequence)
        yield from (tensor for tensor in ends if tensor is not None)


def batches(inputs: object, targets: object) -> Iterator[Batch]:
    """The batches of a probe set: one, or each of an iterable of them.

    A tensor is the model's only argument, a tuple its arguments, a mapping its keywords, whose
    `labels` are the targets. Of an iterable's elements the last part is, as loaders give them.
    """
    if isinstance(inputs, Tensor | Mapping | tuple):
        yield _batch(inputs, targets)
    elif isinstance(inputs, Iterable):
        for item in inputs:
            if isinstance(item, tuple | list) and len(item) > 1:
                *parts, last = item
                yield _batch(parts[0] if len(parts) == 1 else tuple(parts), last)
            else:
                yield _batch(item[0] if isinstance(item, tuple | list) else item, None)


def evaluate(
    model: nn.Module, probe_set: Iterable[Batch], loss: Loss | None, *, looks: bool, tries: bool
) -> Evaluation:
    """Pass the probe set through `model`, which is left as it was.

    Only for loss and accuracy, unless it `looks` at logits and units as well. Of the first batch it
    makes a digest if it `tries` it, which is to call the model on it twice, and once or
    twice more if it is one of tokens.
    """
    model = unwrapped(model)
    device = next(model.parameters()).device
    units = Units(model) if looks else None
    seen: list[_Seen] = []
    inconsistency, sequence, data = None, None, ""
    with undisturbed(model):
        for given in probe_set:
            batch = _moved(given, device)
            with units.watched() if units else contextlib.nullcontext():
                output = model(*batch.arguments, **batch.keywords)
            seen.append(_see(output, batch, loss))
            if tries and len(seen) == 1:
                data = data_digest(given)
                inconsistency = _difference(output, model(*batch.arguments, **batch.keywords))
                sequence = _sequence(model, batch, output)
        if not seen:
            raise ValueError("the probe set is empty: a generator can be gone through only once")
        return _summary(seen, units, inconsistency, sequence, data)


def write(rows: Sequence[tuple[int, Evaluation]], read: Read, writer: Writer) -> dict[str, Scalar]:
    """Write evaluations by the steps they were at; returns what they tell the header."""
    facts: dict[str, Scalar] = {}
    for step, evaluation in rows:
        at = np.array([step])
        columns = {name: np.array([read.number(v)]) for name, v in evaluation.logits.items()}
        if evaluation.inconsistency is not None:
            columns["eval_inconsistency"] = np.array([read.number(evaluation.inconsistency)])
        if columns:
            writer.write_steps(at, columns)
        if evaluation.shares is not None:
            shares = read.vector(evaluation.shares).astype(np.float32)
            writer.write_layers(at, evaluation.modules, {"dead_units": shares[None]})
        if evaluation.extremes is not None:
            below, off = read.vector(evaluation.extremes)
            facts["logit_classes"] = evaluation.classes
            facts["outputs_are_probabilities"] = bool(max(below, off) <= _SUM_TO_ONE)
        if evaluation.sequence is not None:
            found = zip(sequences.FACTS, read.vector(evaluation.sequence), strict=True)
            facts |= {name: float(value) for name, value in found}
        if evaluation.data:
            facts["probe_data"] = evaluation.data
    return facts


class Evaluator:
    """Evaluates a model again and again, until something fails: that may be the program's fault."""

    def __init__(self, model: nn.Module, facts: dict[str, Scalar], looks: bool) -> None:
        """`facts` are told of a failure; it `looks` at more than loss and accuracy."""
        self._model = model
        self._facts = facts
        self._looks = looks
        self._was_tried = False

    def evaluate(self, probe_set: Iterable[Batch], loss: Loss | None) -> Evaluation | None:
        """What is seen on the probe set; None, with one warning, from the first failure on."""
        if "probe_stopped" in self._facts:
            return None
        tries = self._looks and not self._was_tried
        try:
            if is_sharded(self._model):
                raise NotImplementedError("a sharded model would wait for the other ranks")
            evaluated = evaluate(self._model, probe_set, loss, looks=self._looks, tries=tries)
        except Exception as error:  # whatever it is
            self._facts["probe_stopped"] = f"{type(error).__name__}: {error}"
            _log.warning("no probe any more; training and recording go on", exc_info=error)
            return None
        self._was_tried = True
        return evaluated


class _Seen(NamedTuple):
    """What is kept of a batch. Its loss counts by `weight`."""

    loss: Tensor | None
    weight: Tensor | float
    sums: logits.Sums | None
    is_aligned: bool
    classes: int


def _batch(inputs: object, targets: object) -> Batch:
    if isinstance(inputs, Mapping):
        if targets is None:
            return Batch((), inputs, inputs.get("labels"), are_labels=True)
        return Batch((), inputs, targets)
    return Batch(inputs if isinstance(inputs, tuple) else (inputs,), {}, targets)


def _moved(batch: Batch, device: torch.device) -> Batch:
    """The batch with its tensors where the model is."""

    def move(part: object) -> Any:
        if isinstance(part, Tensor):
            return part.to(device, non_blocking=True)
        if isinstance(part, Mapping):
            return {name: move(value) for name, value in part.items()}
        if isinstance(part, tuple | list):
            return [move(value) for value in part]
        return part

    arguments = tuple(move(part) for part in batch.arguments)
    return Batch(arguments, move(batch.keywords), move(batch.targets), batch.are_labels)


def _see(output: object, batch: Batch, loss: Loss | None) -> _Seen:
    targets = batch.targets
    weight: Tensor | float = 1.0
    is_aligned = True
    if isinstance(targets, Tensor) and targets.dim():
        is_class = not targets.is_floating_point()
        weight = (targets != logits.IGNORED).sum() if is_class else float(len(targets))
        is_aligned = targets.dim() == 1 or not batch.are_labels
    if loss is not None:
        value: object = loss(output, targets)
    else:
        value = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    rows = logits.rows_of(output, targets)
    return _Seen(
        loss=value.detach().reshape(()) if isinstance(value, Tensor) else None,
        weight=weight,
        sums=None if rows is None else logits.sums(*rows),
        is_aligned=is_aligned,
        classes=0 if rows is None else rows[0].shape[1],
    )


def _summary(
    seen: Sequence[_Seen],
    units: Units | None,
    inconsistency: Tensor | None,
    sequence: Tensor | None,
    data: str,
) -> Evaluation:
    metrics: dict[str, Tensor] = {}
    loss = _mean_loss([(each.loss, each.weight) for each in seen if each.loss is not None])
    if loss is not None:
        metrics["probe/loss"] = loss
    sums = [each.sums for each in seen if each.sums is not None]
    pool = logits.pooled(sums) if sums else None
    means = logits.means(pool) if pool else {}
    accuracy = means.pop("accuracy", None)
    if accuracy is not None and all(each.is_aligned for each in seen):
        metrics["probe/accuracy"] = accuracy
    shares = units.dead() if units else {}
    return Evaluation(
        metrics=metrics,
        logits=means if units else {},
        modules=tuple(shares),
        shares=torch.stack(list(shares.values())) if shares else None,
        classes=max(each.classes for each in seen),
        inconsistency=inconsistency,
        extremes=pool.extremes if pool and units else None,
        sequence=sequence,
        data=data,
    )


def _mean_loss(losses: Sequence[tuple[Tensor, Tensor | float]]) -> Tensor | None:
    """Weighted by how many targets count; of a single batch its own loss, to the bit."""
    if len(losses) < 2:
        return losses[0][0] if losses else None
    weights = torch.stack([torch.as_tensor(w, device=x.device).float() for x, w in losses])
    values = torch.stack([x.float() for x, _ in losses])
    return (values * weights).sum() / weights.sum()


def _sequence(model: nn.Module, batch: Batch, output: object) -> Tensor | None:
    tokens = sequences.tokens_of(
        model, batch.arguments, batch.keywords, batch.targets, are_labels=batch.are_labels
    )
    return None if tokens is None else sequences.look(model, tokens, output)


def _difference(first: object, second: object) -> Tensor | None:
    one, two = logits.logits_of(first), logits.logits_of(second)
    if one is None or two is None or one.shape != two.shape:
        return None
    return logits.largest_change(one, two)
