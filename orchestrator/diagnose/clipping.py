"""Rules about the clipping of gradients."""

from __future__ import annotations

import numpy as np

from orchestrator.diagnose.curves import LARGE_UPDATE, is_tiny, update_ratio
from orchestrator.diagnose.progress import progress
from orchestrator.diagnose.registry import rule
from orchestrator.nouns import Finding, Telemetry
from orchestrator.telemetry.robust import finite

ALWAYS = 0.9
DEEP = 0.05
FEWEST = 20  # steps that make a share
SCALE_FREE = (
    "adam",
    "adagrad",
    "adadelta",
    "rmsprop",
    "adafactor",
    "lamb",
    "lion",
    "muon",
    "rprop",
)
"""Optimizers whose step does not shrink with the gradient's scale, by part of their name."""


@rule(
    needs=("clip_coefficient", "train/loss|probe/loss"),
    tells="a clip threshold that is too tight from slow learning",
    explains=("learning_rate_too_low", "plateau"),
)
def high_clip_ratio(telemetry: Telemetry) -> Finding | None:
    """Nearly every step is clipped, deep inside the body of the gradient norms, and it hurts.

    More than 90 % of steps clipped (fault zoo, row 16 of docs/diagnosis.md), median coefficient
    below 0.05 or updates that are tiny (as in `learning_rate_too_low`) or large (above 5e-2: the
    threshold hides a learning rate that is too high), on an underfit run. Under SGD the threshold
    is a hidden cut of the learning rate by the coefficient (docs/clip.md). Excluded: optimizers
    that rescale by the gradient, for which always-clipped is inert (Adam learned normally at 0.05);
    a high ratio on a run that learns, as a norm above 1 in 90 % of steps is common in healthy runs.
    """
    name = str(telemetry.header.get("optimizer") or "").lower()
    course, coefficient = progress(telemetry), finite(telemetry["clip_coefficient"])
    if course is None or not course.is_underfit or len(coefficient) < FEWEST:
        return None
    if any(part in name for part in SCALE_FREE):
        return None
    clipped, depth = float(np.mean(coefficient.values < 1)), float(np.median(coefficient.values))
    moved = update_ratio(telemetry, 0, course.total).values
    ratio = float(np.median(moved)) if len(moved) else None
    tiny = ratio is not None and is_tiny(ratio, course.total)
    large = ratio is not None and ratio > LARGE_UPDATE
    if clipped <= ALWAYS or not (tiny or large or (depth < DEEP and name != "")):
        return None
    evidence: dict[str, float | str] = {"clip_ratio": clipped, "coefficient": depth}
    says = "{clip_ratio:.0%} of steps are clipped, to {coefficient:.2g} of their gradient"
    if ratio is not None:
        evidence["update_ratio"] = ratio
        says += "; updates are {update_ratio:.2g} of the weights"
    if "max_norm" in telemetry:
        evidence["max_norm"] = float(telemetry["max_norm"].values[-1])
        says += " at max_norm {max_norm:.3g}"
    return Finding(
        rule="high_clip_ratio",
        severity=float(min(1.0, 0.6 + 0.1 * max(0.0, -np.log10(max(depth, 1e-9))))),
        summary=says,
        steps=(int(coefficient.steps[0]), course.total - 1),
        evidence=evidence | {"remaining": course.remaining},
        confounders=("a learning rate that is too high", "bad batches", "overflow"),
    )
