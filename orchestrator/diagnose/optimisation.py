"""Rules about training that gets nowhere: steps too small, over too early, or leading nowhere."""

from __future__ import annotations

import numpy as np

from orchestrator.diagnose.curves import (
    HEALTHY_UPDATE,
    SHORT_PATH,
    TINY_UPDATE,
    active_span,
    early_update_peak,
    is_tiny,
    trend,
    update_ratio,
)
from orchestrator.diagnose.progress import progress
from orchestrator.diagnose.registry import rule
from orchestrator.nouns import Finding, Telemetry
from orchestrator.telemetry.robust import finite

LOSSES = "train/loss|probe/loss"

STANDSTILL = 0.003  # sum of update ratios: whatever the loss seems to do, the weights stand still


@rule(
    needs=("lr", LOSSES),
    tells="a collapsed schedule from a plateau",
    explains=("plateau", "learning_rate_too_low"),
)
def schedule_collapse(telemetry: Telemetry) -> Finding | None:
    """The learning rate is all but gone while most of the training is still to come.

    Below 1 % of its peak for good before half of the steps (row 20 of docs/diagnosis.md), on a run
    that is underfit, with updates below 1e-4 if they were recorded (the source's 1e-6 belongs to a
    rate of zero; 1 % of a healthy 1e-2 is 1e-4). A rate that is 0 throughout is the same: a
    scheduler nobody steps. Excluded: the end of an intended decay, warm-up, restarts.
    """
    lr, course = finite(telemetry["lr"]), progress(telemetry)
    if course is None or not course.is_underfit or len(lr) < 10:
        return None
    peak, total = float(np.max(lr.values)), course.total
    high = np.flatnonzero(lr.values >= 0.01 * peak) if peak > 0 else np.array([], dtype=np.int64)
    if len(high) == len(lr):
        return None
    last_high = high[-1] if len(high) else -1
    gone = int(lr.steps[min(last_high + 1, len(lr) - 1)])
    left = 1 - (gone - int(lr.steps[0])) / max(total, 1)
    moved = update_ratio(telemetry, gone, total).values
    if last_high == len(lr) - 1 or left <= 0.5 or (len(moved) and np.median(moved) >= TINY_UPDATE):
        return None
    says = "the learning rate fell below 1 % of its peak {peak:.2g} with {left:.0%} of steps left"
    return Finding(
        rule="schedule_collapse",
        severity=float(min(1.0, left)),
        summary=says if peak > 0 else "the learning rate is 0 in every step",
        steps=(gone, total - 1),
        evidence={"peak": peak, "left": left, "remaining": course.remaining},
        confounders=("an intended end of the training",),
    )


@rule(
    needs=("update_ratio/", LOSSES),
    tells="a learning rate that is too low from a plateau",
    explains=("plateau",),
)
def learning_rate_too_low(telemetry: Telemetry) -> Finding | None:
    """Updates so small that the weights cannot get anywhere within the budget.

    Median update ratio of the weight matrices, while the learning rate was at half its peak or
    more, below 1e-4 (row 15 of docs/diagnosis.md), or below 1e-3 and, times the steps, below 0.3:
    the weights cannot have moved by more than that share (ours); on an underfit run that lost
    nothing of its pace: over the last third it still fell at half its mean pace, or it never left
    the start (90 %), or the weights moved by less than 0.3 % in all. Excluded: warm-up and cosine
    tail (half peak), small steps on purpose, as in fine-tuning, which slow down; what converged;
    a network that died, whose first 60 steps were not small.
    """
    course = progress(telemetry)
    if course is None or not course.is_underfit:
        return None
    first, last = active_span(telemetry, 0.5)
    moved = update_ratio(telemetry, first, last).values
    if len(moved) < 5:
        return None
    ratio = float(np.median(moved))
    path = ratio * (last - first)
    settles = path > STANDSTILL and course.remaining < 0.9 and course.late_pace < 0.5
    died = early_update_peak(telemetry) > HEALTHY_UPDATE
    if died or settles or not is_tiny(ratio, last - first):
        return None
    return Finding(
        rule="learning_rate_too_low",
        severity=float(min(1.0, 0.5 + 0.25 * max(0.0, np.log10(SHORT_PATH / max(path, 1e-9))))),
        summary="updates are {update_ratio:.2g} of the weights (healthy: about 1e-3) and "
        "{remaining:.0%} of the start loss is left",
        steps=(int(first), int(last) - 1),
        evidence={"update_ratio": ratio, "path": path, "remaining": course.remaining},
        confounders=("a training that is merely short", "an optimizer epsilon that is too large"),
    )


@rule(needs=(LOSSES,), tells="a plateau from slow learning")
def plateau(telemetry: Telemetry) -> Finding | None:
    """The train loss has stopped falling far above what learning reaches.

    Theil-Sen trend over the last third of the points (at least 5) at which the learning rate was
    above a tenth of its peak: falling by less than 2 standard errors (row 19 of docs/diagnosis.md),
    and measured well enough to say so: fall plus 2 standard errors below 10 % of the level (ours:
    without it every noisy curve is flat); on an underfit run. Excluded: decay of the schedule to
    its tail, a floor once accuracy has been reached (label smoothing), too few points. Without any
    accuracy the floor of the loss is unknown, and only a loss above 60 % of its start is taken.
    """
    course = progress(telemetry)
    if course is None or not course.is_underfit:
        return None
    first, last = active_span(telemetry, 0.1)
    active = (course.steps >= first) & (course.steps < last + 1)
    steps, losses = course.steps[active], course.losses[active]
    window = max(5, len(steps) // 3)
    if len(steps) < 8:
        return None
    line = trend(steps[-window:], losses[-window:])
    level = float(np.median(losses[-window:]))
    if line.t < -2 or 2 * line.error - line.change > 0.1 * abs(level):
        return None
    moved = update_ratio(telemetry, steps[-window], last).values
    change, evidence = line.change / level, dict[str, float | str]()
    evidence |= {"level": level, "remaining": course.remaining, "change": change}
    says = "the train loss stays at {level:.3g}, {remaining:.0%} of its start ({change:+.1%})"
    if len(moved):
        evidence["update_ratio"] = float(np.median(moved))
        says += "; updates are {update_ratio:.2g} of the weights"
    return Finding(
        rule="plateau",
        severity=float(min(1.0, course.remaining)),
        summary=says,
        steps=(int(steps[-window]), int(steps[-1])),
        evidence=evidence,
        confounders=("a floor of the loss: noisy targets, label smoothing", "a curriculum"),
    )
