"""One optimizer step of some layers: what was seen of it, and what its measures need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from orchestrator.monitor.layers import NO_LAYER, Numbers
from orchestrator.monitor.measures import cosine, histogram, norms
from orchestrator.monitor.schedule import Sample
from orchestrator.monitor.steps import Gradients


class Copy(NamedTuple):
    """A parameter as it was; of a sparse table the rows with these numbers, else all of it."""

    numbers: Tensor | None
    values: Tensor


class Rows(NamedTuple):
    """The rows [k] of a table that were looked at, by number or all, and which are touched."""

    numbers: Tensor | None
    touched: Tensor


@dataclass(slots=True, eq=False)
class LayerStep:
    """One step of the layers as far as it was seen; tensors by parameter, only what is to be kept.

    A parameter is in `rows` if it is a table, and in `gradients` and `updates` for the next step.
    """

    number: int
    sample: Sample
    index: dict[Tensor, int]
    quantities: dict[str, Numbers] = field(default_factory=dict)
    histograms: dict[str, Numbers] = field(default_factory=dict)
    moved: tuple[Tensor, ...] = ()
    rows: dict[Tensor, Rows] = field(default_factory=dict)
    gradients: dict[Tensor, Tensor] = field(default_factory=dict)
    updates: dict[Tensor, Tensor] = field(default_factory=dict)

    def put(self, name: str, values: Mapping[Tensor, Tensor]) -> None:
        """A number [] for each parameter, as a quantity in single precision."""
        if values:
            device = next(iter(values.values())).device
            flat = torch.stack([v.to(device, torch.float32) for v in values.values()])
            self.quantities[name] = Numbers(self._at(values), flat)

    def take_norms(self, gradients: Gradients, index: Mapping[str, int]) -> None:
        """Use norms that were computed for another purpose; `index` of each layer by name.

        Of a table too: the rows that are not touched add nothing.
        """
        at = tuple(index.get(name, NO_LAYER) for name in gradients.names)
        self.quantities["grad_norm"] = Numbers(at, gradients.norms)

    def look_at(self, what: str, tensors: Mapping[Tensor, Tensor]) -> None:
        """Measure the gradients, the parameters or the updates, of tables the touched rows."""
        if not tensors:
            return
        parts = list(tensors.values())
        touched = {i: self.rows[p].touched for i, p in enumerate(tensors) if p in self.rows}
        if self.sample.measures and f"{what}_norm" not in self.quantities:
            self.quantities[f"{what}_norm"] = Numbers(self._at(tensors), norms(parts, touched))
        if self.sample.histograms:
            counts = [histogram(part, touched.get(i)) for i, part in enumerate(parts)]
            counts = [count.to(counts[0].device) for count in counts]
            self.histograms[what] = Numbers(self._at(tensors), torch.stack(counts))

    def compare(self, what: str, tensors: Mapping[Tensor, Tensor], last: LayerStep | None) -> None:
        """Cosines with the gradients or the updates of the step before, if that is what `last` is.

        Of a table on the rows touched in both; of a sparse one only this step's rows are at hand.
        """
        if not self.sample.details or last is None or last.number != self.number - 1:
            return
        old = last.gradients if what == "grad" else last.updates
        cosines = {}
        for p in (p for p in tensors if p in old):
            rows = [step.rows[p] for step in (self, last) if p in step.rows]
            if all(row.numbers is None for row in rows):
                touched = rows[0].touched & rows[1].touched if rows else None
                cosines[p] = cosine(tensors[p], old[p], touched)
        self.put(f"{what}_cosine", cosines)

    def unscale(self, scale: Tensor) -> None:
        """Divide what was seen of the gradients by a loss scale; bins cannot be divided."""
        if "grad_norm" in self.quantities:
            seen = self.quantities["grad_norm"]
            self.quantities["grad_norm"] = seen._replace(values=seen.values / scale)
        self.histograms.pop("grad", None)

    def values_before(self, before: Mapping[Tensor, Copy]) -> dict[Tensor, Tensor] | None:
        """What the step moved as it was before; None if that was not kept."""
        values = {}
        for p in self.moved:
            numbers = self.numbers(p)
            copy = before.get(p)
            if copy is None or not (copy.numbers is None or copy.numbers is numbers):
                return None
            is_narrow = numbers is None or copy.numbers is not None
            values[p] = copy.values if is_narrow else copy.values[numbers]
        return values

    def values_now(self, p: Tensor) -> Tensor:
        """A parameter, of a sparse table what is looked at."""
        numbers = self.numbers(p)
        return p.detach() if numbers is None else p.detach()[numbers]

    def numbers(self, p: Tensor) -> Tensor | None:
        """Which rows of a sparse table are looked at; None for all else."""
        return self.rows[p].numbers if p in self.rows else None

    def _at(self, parameters: Iterable[Tensor]) -> tuple[int, ...]:
        return tuple(self.index[p] for p in parameters)
