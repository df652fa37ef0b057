"""Rules about validation that is left behind by training."""

from __future__ import annotations

import numpy as np

from orchestrator.diagnose.logs.course import Course, course, qualities
from orchestrator.diagnose.logs.registry import log_rule
from orchestrator.diagnose.progress import TARGET
from orchestrator.nouns import Direction, Finding
from orchestrator.telemetry.readers import Log
from orchestrator.telemetry.robust import robust_std

EVALUATIONS = 4
RISEN = 0.07
LOST = 0.05
SIGMAS = 3.0
STILL_FALLING = 0.95
MEMORISED = 0.25
KEPT = 0.9
ABOVE = 3.0
DECAYED = 0.1
DECAYED_OF_GAIN = 0.1


@log_rule("overfitting", asks="overfitting", explains=("memorised",))
def validation_rises(log: Log) -> Finding | None:
    """The validation loss ends above its best while the train loss went on falling.

    At least 4 evaluations; the last level is 7 % above the best one (as in `overfitting`), 3
    standard errors of its noise, and 5 % of all that validation had gained: a late wiggle at the
    bottom of a deep fall is none. From the best evaluation on, the train loss lost another 5 %.
    Thresholds ours. Look-alikes: calibration alone (a metric that still improves is told), a change
    of data or of the learning rate, a train loss that is measured with dropout.
    """
    train, val = course(log, "train/loss"), course(log, "val/loss")
    if train is None or val is None or len(val) < EVALUATIONS or len(train) < EVALUATIONS:
        return None
    val = _short(val)
    at = val.best_at
    rise = val.end - val.best
    gained = float(val.values[0]) - val.best  # an evaluation is an average: the first one counts
    spread = robust_std(np.diff(val.values)) / np.sqrt(2) / np.sqrt(val.width)
    if rise <= max(RISEN * abs(val.best), LOST * gained, SIGMAS * spread):
        return None
    then = train.level_at(int(val.steps[at]))
    if train.end > then - (1 - STILL_FALLING) * abs(then):
        return None
    if in_one_step(val):
        return None
    better = _metric_that_improved(log, int(val.steps[at]))
    evidence: dict[str, float | str] = {
        "best": val.best,
        "end": val.end,
        "rise": rise / abs(val.best) if val.best else float("inf"),
        "train_then": then,
        "train_end": train.end,
    }
    return Finding(
        rule="validation_rises",
        severity=float(min(1.0, 0.4 + float(evidence["rise"]) - (0.2 if better else 0.0))),
        summary="the validation loss rose from {best:.3g} (at {first}) to {end:.3g} while the "
        "train loss went on from {train_then:.3g} to {train_end:.3g}" + _but(better),
        steps=(int(val.steps[at]), int(val.steps[-1])),
        evidence=evidence | _evidence_of(better),
        confounders=(
            "calibration: confident mistakes raise the loss, not the error",
            "validation data of another kind",
            "a change of the learning rate at the same time",
        ),
    )


@log_rule("overfitting", asks="overfitting")
def memorised(log: Log) -> Finding | None:
    """The train loss was learned by heart and nothing of it reached validation.

    From the first evaluation on the train loss fell below 25 % (the zoo's gate), the validation
    loss kept 90 %, and ends at 3 times the train loss (row 22 of docs/diagnosis.md). Excluded: a
    rise in one step; losses that are not the same quantity, where a metric improves or a share is
    above 0.9. Look-alikes: wrong labels or another kind of data in validation.
    """
    train, val = course(log, "train/loss"), course(log, "val/loss")
    if train is None or val is None or min(len(train), len(val)) < EVALUATIONS:
        return None
    val = _short(val)
    began = train.level_at(int(val.steps[0]))
    if not (0 < train.end < MEMORISED * began and val.remaining > KEPT):
        return None
    if val.end < ABOVE * train.end or in_one_step(val):
        return None
    better = _metric_that_improved(log, int(val.steps[0]))
    if val.end <= val.start and (better is not None or _is_good(log)):
        return None
    return Finding(
        rule="memorised",
        severity=0.9,
        summary="the train loss fell from {began:.3g} to {train_end:.2g}, but the "
        "validation loss stayed at {val_end:.3g}"
        + (_but(better) or ": the train set is memorised, nothing transfers"),
        steps=(int(val.steps[0]), int(val.steps[-1])),
        evidence={"train_end": train.end, "began": began, "val_end": val.end}
        | _evidence_of(better),
        confounders=("validation labels or data of another kind", "labels at random"),
    )


@log_rule("overfitting", asks="overfitting")
def metric_decays(log: Log) -> Finding | None:
    """Without a validation loss: a validation metric gets worse while the train loss falls.

    Every metric that improved at all lost a tenth of its best level, and 3 standard errors, in the
    levels' own width; the train loss lost 5 % from there on. Ours. Look-alikes: a noisy metric on
    a small set, a threshold that moves.
    """
    train, metrics = course(log, "train/loss"), qualities(log)
    if train is None or course(log, "val/loss") is not None or not metrics:
        return None
    found = [m for m in metrics if len(m) >= 10 and _decayed(m, train)]
    if not found or len(found) < len([m for m in metrics if len(m) >= 10 and m.gained > 0]):
        return None
    worst = max(found, key=lambda m: m.end - m.best)
    return Finding(
        rule="metric_decays",
        severity=0.5,
        summary="{metric} went from its best level {best:.3g} (at {first}) to {end:.3g} while the "
        "train loss fell to {train_end:.3g}",
        steps=(int(worst.steps[worst.best_at]), int(worst.steps[-1])),
        evidence={
            "metric": worst.name,
            "best": abs(worst.best),
            "end": abs(worst.end),
            "train_end": train.end,
        },
        confounders=("a noisy metric on few examples",),
    )


def in_one_step(val: Course) -> bool:
    """Whether validation rose in one step between two evaluations, and neither before nor after.

    Over 70 % of a rise by a fifth or more lies between the levels of 3 evaluations on either side
    of one difference: other data, another schedule (R27 of the reports).
    """
    at = int(np.argmin(val.values))
    rise = val.end - float(val.values[at])
    if len(val) - at < 6 or rise < 0.2 * abs(float(val.values[at])):
        return False
    jump = at + 1 + int(np.argmax(np.diff(val.values[at:])))
    before, after = np.median(val.values[max(0, jump - 3) : jump]), np.median(val.values[jump:][:3])
    return bool(after - before > 0.7 * rise and val.end - after < 0.3 * rise)


def _decayed(metric: Course, train: Course) -> bool:
    rise = metric.end - metric.best
    spread = metric.noise / np.sqrt(metric.width)
    then = train.level_at(int(metric.steps[metric.best_at]))
    falls = train.end < then - (1 - STILL_FALLING) * abs(then)
    return falls and rise > max(
        DECAYED * abs(metric.best), DECAYED_OF_GAIN * metric.gained, SIGMAS * spread
    )


def _is_good(log: Log) -> bool:
    """Whether validation succeeds by some share that is better when higher."""
    return any(TARGET <= -q.end <= 1 for q in qualities(log, Direction.MAX))


def _but(better: Course | None) -> str:
    """The other half of the truth, where a metric disagrees with the loss."""
    return (
        "; {metric} still improved, to {metric_end:.3g}: loss and metric disagree, it may be "
        "calibration alone"
        if better is not None
        else ""
    )


def _evidence_of(better: Course | None) -> dict[str, float | str]:
    return {} if better is None else {"metric": better.name, "metric_end": abs(better.end)}


def _short(val: Course) -> Course:
    """Few evaluations are each an average over a whole set: below 10 they are taken singly."""
    return val if len(val) >= 10 else Single(val.name, val.steps, val.values)


class Single(Course):
    """A curve so short that each of its points is a level."""

    @property
    def width(self) -> int:
        """One."""
        return 1


def _metric_that_improved(log: Log, since: int) -> Course | None:
    """A validation metric whose end is clearly better than it was at step `since`."""
    for metric in qualities(log):
        short = _short(metric)
        then = short.level_at(since)
        if then - short.end > max(0.01 * abs(then), SIGMAS * short.noise / np.sqrt(short.width)):
            return metric
    return None
