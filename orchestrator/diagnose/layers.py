"""Readings of layers and outputs that several rules take: shapes, first values, medians."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from orchestrator.diagnose.curves import first_step
from orchestrator.diagnose.progress import Progress
from orchestrator.nouns import Series, Telemetry
from orchestrator.telemetry.robust import finite

EARLY = 50
"""Steps whose median gradient counts for a layer (row 12 of docs/diagnosis.md)."""

TALL = 3.0
"""Multiple of log C above which a classifier's first loss is no guess among C (row 10)."""


@dataclass(frozen=True, slots=True)
class Weight:
    """A trained weight matrix or kernel: `rows` outputs of `inputs` each (fan-in)."""

    name: str
    rows: int
    inputs: int

    @property
    def default_norm(self) -> float:
        """Expected norm where torch initialised it: U(-a, a), a = 1 / sqrt(inputs)."""
        return math.sqrt(self.rows / 3)

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.rows * self.inputs


def weights(telemetry: Telemetry) -> list[Weight]:
    """The trained weight matrices in the model's order; none where the header has no shapes."""
    names = str(telemetry.header.get("weight_layers") or "").split(",")
    shapes = str(telemetry.header.get("weight_shapes") or "").split(",")
    if not all(names) or not all(shapes) or len(names) != len(shapes):
        return []
    sides = [[int(side) for side in shape.split("x")] for shape in shapes]
    return [Weight(n, s[0], math.prod(s[1:])) for n, s in zip(names, sides, strict=True)]


def classes(telemetry: Telemetry) -> int | None:
    """Outputs of the model: those of the probe's logits, else rows of the last matrix; 2 or more.

    That they are classes is for the rule to know: a loss that is compared with their logarithm
    must be a cross-entropy.
    """
    for fact in ("logit_classes", "outputs"):
        count = telemetry.header.get(fact)
        if isinstance(count, int | float) and count >= 2:
            return int(count)
    return None


def is_tall(telemetry: Telemetry, course: Progress | None) -> bool:
    """Whether the first losses lie above 3 log C: confidently wrong before anything was learned.

    Of a cross-entropy over C classes, which an accuracy vouches for.
    """
    count = classes(telemetry)
    judged = any(f"{split}/accuracy" in telemetry for split in ("probe", "train", "val"))
    if course is None or count is None or not judged:
        return False
    return course.start > TALL * math.log(count)


def at_start(series: Series) -> float | None:
    """The first finite value."""
    known = finite(series)
    return float(known.values[0]) if len(known) else None


def early_median(series: Series, first: int) -> float | None:
    """Median over the sampled ones of the first 50 steps."""
    known = finite(series)
    values = known.values[known.steps < first + EARLY]
    return float(np.median(values)) if len(values) else None


def early_gradients(telemetry: Telemetry) -> dict[str, float]:
    """Root mean square of each weight matrix's gradient, median of the first 50 steps."""
    layers, first = telemetry.layers("grad_norm"), first_step(telemetry)
    found = {}
    for weight in weights(telemetry):
        norm = early_median(layers[weight.name], first) if weight.name in layers else None
        if norm is not None:
            found[weight.name] = norm / math.sqrt(weight.size)
    return found


def latest(telemetry: Telemetry, name: str, count: int = 3) -> float | None:
    """Median of the last finite values of a series, None where it has none."""
    if name not in telemetry:
        return None
    values = finite(telemetry[name]).values[-count:]
    return float(np.median(values)) if len(values) else None
