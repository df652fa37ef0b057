"""How far the training got: what nearly every rule asks before it speaks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.diagnose.curves import condensed, total_steps, trend
from orchestrator.nouns import Floats, Telemetry
from orchestrator.telemetry.robust import finite

LEARNED = 0.25
"""Share of the start loss below which training has succeeded (docs/diagnosis.md, gate (d))."""

TARGET = 0.9
"""Accuracy from which on training has succeeded, whatever its loss: a smoothed label has a floor.

The user's target is unknown here; this one is ours.
"""

STUCK = 0.6
"""Without any accuracy a loss has succeeded below this share of its start.

The floor of a smoothed label (0.38 for 0.2 over 10 classes) or of noisy targets is unknown. Ours.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """How the train loss went: `steps` [n], `losses` [n], level at `start` and `end`.

    From the probe in eval mode where it was evaluated 5 times, else medians of train-mode blocks.
    `accuracy` is the one at the end: the probe's, else train's, else validation's, else None.
    """

    steps: Floats
    losses: Floats
    start: float
    end: float
    accuracy: float | None
    total: int

    @property
    def remaining(self) -> float:
        """Share of the start loss that is still there at the end."""
        return self.end / self.start

    @property
    def is_underfit(self) -> bool:
        """Gate (d) of docs/diagnosis.md: nothing about gradients fires on a run that has learned.

        A loss that starts at or below zero has no share that remains; then nothing can be told.
        """
        if self.start <= 0:
            return False
        if self.accuracy is None:
            return self.remaining > STUCK
        return self.remaining > LEARNED and self.accuracy < TARGET

    @property
    def is_learned(self) -> bool:
        """Whether both loss and accuracy got there: stricter than not being underfit."""
        enough = self.accuracy is None or self.accuracy >= TARGET
        return self.start > 0 and self.remaining <= LEARNED and enough

    @property
    def is_forgotten(self) -> bool:
        """Whether the loss ends above twice its best, having lost a quarter of what it gained."""
        best = float(np.min(self.losses))
        return self.end > 2 * best and self.end - best > 0.25 * (self.start - best) > 0

    @property
    def late_pace(self) -> float:
        """Fall per step over the last third of the points, over the mean fall per step of all."""
        late = max(2, len(self.losses) // 3)
        fall = trend(self.steps[-late:], self.losses[-late:]).slope
        mean = (self.end - self.start) / max(self.steps[-1], 1.0)
        return fall / mean if mean < 0 else 0.0


def progress(telemetry: Telemetry) -> Progress | None:
    """The course of the train loss, or None if it has fewer than 5 finite points."""
    curves = {n: finite(telemetry[n]) for n in ("probe/loss", "train/loss") if n in telemetry}
    curve = next((condensed(c) for c in curves.values() if len(c) >= 5), None)
    if curve is None:
        return None
    steps = curves.get("train/loss", curve)  # only the curve of each step saw the start
    first = steps.values[:5] if len(steps) >= 5 else curve.values[:1]
    return Progress(
        steps=curve.steps.astype(np.float64),
        losses=curve.values,
        # The very first loss may be many times the second, and the second may have exploded.
        start=float(min(first[0], np.median(first))) if steps is not curve else float(first[0]),
        end=float(np.median(curve.values[-3:])),
        accuracy=accuracy(telemetry),
        total=total_steps(telemetry),
    )


def accuracy(telemetry: Telemetry) -> float | None:
    """Median of the last 3 accuracies as a share: the probe's, else train's, else validation's."""
    for name in ("probe/accuracy", "train/accuracy", "val/accuracy"):
        if name in telemetry and len(finite(telemetry[name])):
            return float(np.median(share(finite(telemetry[name]).values)[-3:]))
    return None


def share(values: Floats) -> Floats:
    """Accuracies as shares, also where they were logged in per cent."""
    return values / 100 if len(values) and np.max(values) > 1.5 else values
