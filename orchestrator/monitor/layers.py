"""What was measured of layers, and its columns once it is on the host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from torch import Tensor

from orchestrator.monitor.values import Read
from orchestrator.nouns import Ints
from orchestrator.telemetry.layout import HISTOGRAM_BINS

MASKED_STEPS = 50
"""Steps after which a layer whose gradient was always zero is called masked."""

_UNDEFINED = ("grad_zeros", "grad_cosine", "update_cosine")
"""NaN is no value here: share of nothing, angle to zero."""

Grid = np.ma.MaskedArray[tuple[int, ...], np.dtype[Any]]


NO_LAYER = -1


class Numbers(NamedTuple):
    """A quantity of some of the layers, given by index: `values` [n], of histograms [n, bins].

    A value with the index `NO_LAYER` is of something else.
    """

    layers: tuple[int, ...]
    values: Tensor


class Measurement(NamedTuple):
    """One sampled step of one optimizer's layers: quantities and histograms by name.

    A quantity lacks the layers for which it is not defined: without a gradient there is no update,
    and `touched_rows` is of tables.
    """

    layers: tuple[str, ...]
    quantities: dict[str, Numbers]
    histograms: dict[str, Numbers]

    def tensors(self) -> list[Tensor]:
        """All that is still on the device."""
        parts = (*self.quantities.values(), *self.histograms.values())
        return [numbers.values for numbers in parts]


@dataclass(slots=True)
class ZeroGradients:
    """Which layers' gradients were nothing but zeros in the sampled ones of the first 50 steps."""

    first: int | None = None
    last: int = 0
    always: dict[str, bool] = field(default_factory=dict)

    def see(self, steps: Ints, layers: Sequence[str], norm: Grid) -> None:
        """Look at gradient norms [n, layers]; masked where there was no gradient."""
        if self.first is None:
            self.first = int(steps[0])
        self.last = int(steps[-1])
        early = norm[steps < self.first + MASKED_STEPS]
        seen = ~np.ma.getmaskarray(early)
        for layer, norms, had_one in zip(layers, early.data.T, seen.T, strict=True):
            if had_one.any():
                is_zero = bool((norms[had_one] == 0).all())
                self.always[layer] = is_zero and self.always.get(layer, True)

    def names(self) -> str | None:
        """Those layers, comma-separated, as soon as the steps are over."""
        if self.first is None or self.last < self.first + MASKED_STEPS:
            return None
        return ",".join(name for name, is_zero in self.always.items() if is_zero)


def columns(rows: Sequence[Measurement], read: Read) -> dict[str, Grid]:
    """Each quantity [n, layers] of measurements of the same layers; masked where it has none."""
    found = _grids([m.quantities for m in rows], len(rows[0].layers), (), np.float32, read)
    for name in found.keys() & _UNDEFINED:
        found[name] = np.ma.masked_where(np.isnan(found[name].data), found[name])
    update, parameter = found["update_norm"], found["param_norm"]
    with np.errstate(divide="ignore", invalid="ignore"):  # parameters initialised with zeros
        ratio = update.data / parameter.data
    nothing = (update.data == 0) & (parameter.data == 0)
    unknown = np.ma.getmaskarray(update) | np.ma.getmaskarray(parameter) | nothing
    return found | {"update_ratio": np.ma.array(ratio, mask=unknown)}


def histogram_columns(rows: Sequence[Measurement], read: Read) -> dict[str, Grid]:
    """Each kind's counts [n, layers, bins] of measurements of the same layers."""
    bins = (HISTOGRAM_BINS + 2,)
    return _grids([m.histograms for m in rows], len(rows[0].layers), bins, np.int64, read)


def _grids(
    rows: Sequence[Mapping[str, Numbers]],
    layers: int,
    shape: tuple[int, ...],
    dtype: npt.DTypeLike,
    read: Read,
) -> dict[str, Grid]:
    grids = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values: npt.NDArray[Any] = np.zeros((len(rows), layers, *shape), dtype)
        grid = np.ma.array(values, mask=np.ones(values.shape, dtype=np.bool_))
        for i, row in enumerate(rows):
            if name in row:
                at = np.array(row[name].layers)
                found = read.vector(row[name].values).reshape(len(at), *shape)
                grid[i, at[at != NO_LAYER]] = found[at != NO_LAYER]
        grids[name] = grid
    return grids
