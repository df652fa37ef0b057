"""One curve of a log, read robustly: its levels, its best, its noise. Scale-free, numpy only.

Levels are medians over a tenth of the points, three at least, so that neither a single point nor
the density of logging decides. Losses may be negative or span decades: what is compared is a share
of what was gained, or a multiple of the noise, and a ratio only where all values are positive.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.nouns import Direction, Floats, Ints, Series
from orchestrator.telemetry.readers import Log
from orchestrator.telemetry.robust import finite, robust_std

FEWEST = 7
"""Points that make a curve: "six points are not a curve" (docs/diagnosis.md, section 6)."""


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """Finite points of a curve, lower is better: `steps` [n], `values` [n], n >= 1.

    `name` is the series'.
    """

    name: str
    steps: Ints
    values: Floats

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def width(self) -> int:
        """Points in a level: a tenth of all, at least 3, or what there is."""
        return min(len(self), max(3, len(self) // 10))

    @property
    def opening(self) -> int:
        """Points in the first level, five or 2 %: a curve falls fastest there."""
        return min(self.width, max(5, len(self) // 50))

    @property
    def start(self) -> float:
        """Level of the first points."""
        return float(np.median(self.values[: self.opening]))

    @property
    def end(self) -> float:
        """Level of the last tenth."""
        return float(np.median(self.values[-self.width :]))

    @property
    def stride(self) -> int:
        """Points from one level to the next: a twentieth of the width hides no level."""
        return max(1, self.width // 20)

    @property
    def levels(self) -> Floats:
        """Medians of `width` consecutive points, every `stride` points."""
        windows = np.lib.stride_tricks.sliding_window_view(self.values, self.width)
        return np.asarray(np.median(windows[:: self.stride], axis=1))

    @property
    def best(self) -> float:
        """The lowest level of the same width."""
        return float(np.min(self.levels))

    @property
    def best_at(self) -> int:
        """Index of the point in the middle of the best level."""
        return int(np.argmin(self.levels)) * self.stride + self.width // 2

    @property
    def noise(self) -> float:
        """Standard deviation of one point around its neighbours: that of differences over √2."""
        return robust_std(np.diff(self.values)) / np.sqrt(2) if len(self) > 2 else 0.0

    @property
    def gained(self) -> float:
        """How far the level fell from the start to its best; 0 if it never did."""
        return max(0.0, self.start - self.best)

    @property
    def is_unmoved(self) -> bool:
        """Whether the end lies less than 10 % of the start, or 2 standard errors, below it."""
        error = self.noise * np.sqrt(1 / self.opening + 1 / self.width)
        return bool(self.start - self.end < max(0.1 * abs(self.start), 2 * error))

    @property
    def remaining(self) -> float:
        """End over start for a loss that is positive, else NaN."""
        return self.end / self.start if self.start > 0 and self.end > 0 else float("nan")

    def level_at(self, step: int) -> float:
        """Level around a step: the median of `width` points, clipped to the ends."""
        middle = int(np.searchsorted(self.steps, step))
        first = min(max(0, middle - self.width // 2), len(self) - self.width)
        return float(np.median(self.values[first : first + self.width]))


def course(log: Log, name: str) -> Course | None:
    """The curve of this name; None if it has no finite point. Higher-is-better ones are negated."""
    if name not in log.telemetry:
        return None
    known: Series = finite(log.telemetry[name])
    if not len(known):
        return None
    sign = -1.0 if log.directions.get(name) is Direction.MAX else 1.0
    return Course(name, known.steps, sign * known.values)


def qualities(log: Log, *directions: Direction) -> list[Course]:
    """Validation metrics, other than losses, that are good in one of these directions (or any)."""
    wanted = directions or tuple(Direction)
    names = [
        name
        for name, direction in log.directions.items()
        if name.startswith("val/") and "loss" not in name.lower() and direction in wanted
    ]
    return [c for n in names if (c := course(log, n)) is not None]


def longest(log: Log) -> int:
    """Points of the longest curve that says how training went.

    Of any, where no direction is known, as in adversarial training.
    """
    measured = [log.telemetry[name] for name in log.directions]
    return max(map(len, measured or log.telemetry.series.values()), default=0)
