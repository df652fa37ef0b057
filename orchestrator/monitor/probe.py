"""One optimizer's layers, measured; what is measured stays on the device until it is fetched."""

from __future__ import annotations

from collections.abc import Mapping, Set

import torch
from torch import Tensor

from orchestrator.monitor.layer_step import Copy, LayerStep, Rows
from orchestrator.monitor.layers import Measurement
from orchestrator.monitor.measures import (
    HALVES,
    nonfinite,
    norms,
    row_norms,
    summed_rows,
    zero_share,
)
from orchestrator.monitor.schedule import Schedule
from orchestrator.monitor.steps import Gradients

_DETACHED_STEPS = 50
"""A layer that had no gradient for so long is no expert that waits for its turn."""


class Probe:
    """One optimizer's layers: the trainable parameters that it shares with the model.

    On a sampled step: `see_gradients` while they are whole, `see_parameters` before the step, then
    `measure` after it. Gradients that the step itself makes are seen after it. Which layers there
    are is looked up at each sampled step, since groups may be added and layers unfrozen in
    mid-training.
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        names: Mapping[Tensor, str],
        embeddings: Set[Tensor],
        schedule: Schedule,
    ) -> None:
        """`names` by parameter, in the model's order; `embeddings` are measured as tables."""
        self.optimizer = optimizer
        self._schedule = schedule
        self._names = names
        self._all_names: tuple[str, ...] = ()
        self._embeddings = embeddings
        self._now: LayerStep | None = None
        self._last: LayerStep | None = None
        self._before: dict[Tensor, Copy] = {}
        self._spare: dict[Tensor, Tensor] = {}
        self._waiting: dict[Tensor, str] = {}
        self._steps = 0

    def gradient_norms(self) -> Gradients | None:
        """Norm of each gradient that the optimizer applies, of a layer or not; None if none."""
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        if len(parameters) != len(self._all_names):
            self._all_names = tuple(self._names.get(p, "") for p in parameters)
        gradients = [g for p in parameters if (g := p.grad) is not None]
        names = self._all_names
        if len(gradients) < len(parameters):
            names = tuple(self._names.get(p, "") for p in parameters if p.grad is not None)
        return Gradients(names, norms(gradients)) if gradients else None

    def see_gradients(self, number: int, known: Gradients | None) -> None:
        """Measure the layers' gradients as they are now, if step `number` is one to look at.

        `known` are norms of theirs and of other gradients, if somebody has computed them.
        """
        sample = self._schedule.at(number)
        if not sample.is_wanted:
            return
        layers = self._layers()
        self._now = now = LayerStep(number, sample, {p: i for i, p in enumerate(layers)})
        gradients = {p: g.detach() for p in layers if (g := p.grad) is not None}
        for p, gradient in gradients.items():
            numbers = None
            if gradient.is_sparse:
                numbers, gradients[p] = summed_rows(gradient)
            if gradient.is_sparse or p in self._embeddings:
                now.rows[p] = Rows(numbers, row_norms(gradients[p]) != 0)
        now.moved = tuple(gradients)
        if known is not None and known.norms.dtype not in HALVES:
            now.take_norms(known, {name: i for i, name in enumerate(layers.values())})
        now.look_at("grad", gradients)
        if sample.measures:
            now.put("touched_rows", {p: _share(row.touched, p) for p, row in now.rows.items()})
        if sample.details and gradients:
            touched = [now.rows[p].touched if p in now.rows else None for p in gradients]
            pairs = dict(zip(gradients, touched, strict=True))
            now.put("grad_zeros", {p: zero_share(gradients[p], t) for p, t in pairs.items()})
            now.put("grad_nonfinite", {p: nonfinite(g) for p, g in gradients.items()})
        now.compare("grad", gradients, self._last)
        if sample.keeps:
            now.gradients = {p: gradient.clone() for p, gradient in gradients.items()}

    def unscale(self, scale: Tensor) -> None:
        """Divide the gradients' norms by the scale of the loss that they were seen with."""
        if self._now is not None:
            self._now.unscale(scale)

    def see_parameters(self, number: int) -> None:
        """Keep what `measure` needs of the parameters before the step.

        If the gradients were seen, that is the layers that have one, and of sparse ones the rows;
        if the step makes its gradients, it is all.
        """
        if not self._schedule.at(number).is_wanted:
            return
        now = self._now
        moved = self._layers() if now is None else now.moved
        whole = [p for p in moved if now is None or now.numbers(p) is None]
        self._before = {p: Copy(None, self._buffer(p)) for p in whole}
        if whole:
            copies = [copy.values for copy in self._before.values()]
            torch._foreach_copy_(copies, [p.detach() for p in whole])
        if now is not None:
            narrow = [p for p in moved if now.numbers(p) is not None]
            self._before |= {p: Copy(now.numbers(p), now.values_now(p)) for p in narrow}

    def measure(self) -> Measurement | None:
        """What the step did to the layers; None if it is not sampled, or was not wholly seen."""
        now, self._now = self._now, None
        last, self._last = self._last, None
        before, self._before = self._before, {}
        values = now.values_before(before) if now is not None else None
        if now is None or not values:
            return None
        # What has no gradient is not moved; of an embedding no row of it counts then.
        still = {
            p: before[p].values if p in before else p.detach()
            for p in now.index
            if p not in values and p not in self._embeddings
        }
        now.look_at("param", still | values)
        # Before minus after: no quantity has the sign of an update in it.
        torch._foreach_sub_(list(values.values()), [now.values_now(p) for p in values])
        now.look_at("update", values)
        now.compare("update", values, last)
        if now.sample.keeps:
            now.updates, self._last = values, now
        else:
            self._spare = _reusable(before)
        if not now.sample.measures:
            return None
        return Measurement(tuple(self._layers().values()), now.quantities, now.histograms)

    def never_had_a_gradient(self) -> tuple[str, ...] | None:
        """To be asked after each step; told once: layers with none in the first 50 steps."""
        if self._steps == _DETACHED_STEPS:
            return None
        layers = self._layers() if self._steps == 0 else self._waiting
        self._waiting = {p: name for p, name in layers.items() if p.grad is None}
        self._steps += 1
        if self._steps < _DETACHED_STEPS:
            return None
        return tuple(name for p, name in self._waiting.items() if p.requires_grad)

    def _layers(self) -> dict[Tensor, str]:
        owned = {p for group in self.optimizer.param_groups for p in group["params"]}
        return {p: name for p, name in self._names.items() if p in owned and p.requires_grad}

    def _buffer(self, p: Tensor) -> Tensor:
        """A tensor like `p`, whatever is in it."""
        spare = self._spare.pop(p, None)
        if spare is None or (spare.shape, spare.dtype) != (p.shape, p.dtype):
            return torch.empty_like(p, requires_grad=False)
        return spare


def _reusable(before: Mapping[Tensor, Copy]) -> dict[Tensor, Tensor]:
    """Copies that the next sampled step may write over.

    Fresh memory costs ten times the copy on a CPU, where it comes page by page; an accelerator's
    allocator keeps it at hand, for other uses too.
    """
    return {p: c.values for p, c in before.items() if c.numbers is None and c.values.is_cpu}


def _share(touched: Tensor, table: Tensor) -> Tensor:
    return touched.count_nonzero() / max(1, len(table))
