"""Rules about training that gets nowhere, or stops on the way."""

from __future__ import annotations

import numpy as np

from orchestrator.diagnose.curves import condensed, trend
from orchestrator.diagnose.logs.course import FEWEST, Course, course, qualities
from orchestrator.diagnose.logs.registry import log_rule
from orchestrator.nouns import Direction, Finding, Series
from orchestrator.telemetry.readers import Log

MOVED = 0.05
STARTED = 0.7
ALONE = 0.8
MOST = 0.95
PACE = 0.5
NOTHING = 0.01
METRIC_GAIN = 0.1


@log_rule("plateau", explains=("nothing_learned",))
def lr_is_zero(log: Log) -> Finding | None:
    """The learning rate is 0 in every row, and the loss stays where it was.

    Exact (row 20 of docs/diagnosis.md; R23 of the reports: a scheduler that nobody steps).
    Excluded: a rate that was rounded to 0 on a run that learns.
    """
    loss = course(log, "train/loss")
    if not log.facts.get("lr_always_zero") or loss is None or not loss.is_unmoved:
        return None
    return Finding(
        rule="lr_is_zero",
        severity=1.0,
        summary="the learning rate is 0 in every row, and the train loss stays at {loss:.3g}",
        steps=(int(loss.steps[0]), int(loss.steps[-1])),
        evidence={"loss": loss.end},
        confounders=("a scheduler that is never stepped", "a rate that was rounded"),
    )


@log_rule("plateau", asks="plateau")
def nothing_learned(log: Log) -> Finding | None:
    """The loss ends where it began: over the whole log it did not move by more than noise.

    Train loss, else validation loss: the last level is not 10 % below the first, and medians of
    first and last quarter differ by less than 5 % of their level (either by less than 2 standard
    errors, if that is more). Row 19 of docs/diagnosis.md over the whole run: a plateau further down
    may be the floor, which a log does not tell. Excluded: runs on which a validation metric gained
    0.1, or the other loss fell by a quarter. Look-alikes: a log of the end of a training, too short
    a run, a floor. A loss at ln K beside an accuracy of 1/K, and an accuracy that is constant to
    the digit, are told: the output is constant (R21 of the reports).
    """
    train, val = course(log, "train/loss"), course(log, "val/loss")
    loss = train or val
    if loss is None or len(loss) < FEWEST or not loss.is_unmoved:
        return None
    quarter = max(2, len(loss) // 4)
    early, late = (float(np.median(v)) for v in (loss.values[:quarter], loss.values[-quarter:]))
    error = loss.noise * float(np.sqrt(2 / quarter))
    if abs(late - early) > max(MOVED * abs(early), 2 * error) or _learns_elsewhere(log, train, val):
        return None
    evidence: dict[str, float | str] = {
        "early": early,
        "late": late,
        "change": late / early - 1 if early else 0.0,
        "noise": loss.noise / abs(late) if late else 0.0,
    }
    says = "the loss did not move: {early:.4g} over the first quarter, {late:.4g} over the last "
    says += "({change:+.1%}; one point scatters by {noise:.1%})"
    return Finding(
        rule="nothing_learned",
        severity=0.9,
        summary=says + _constant_output(log, evidence),
        steps=(int(loss.steps[0]), int(loss.steps[-1])),
        evidence=evidence,
        confounders=(
            "a log that begins late in the training",
            "a run too short for its learning rate",
            "a floor of the loss: noisy targets, a constant in the loss",
        ),
    )


@log_rule("underfitting", asks="learning_rate_too_low")
def stopped_while_falling(log: Log) -> Finding | None:
    """The train loss was still falling at half its mean pace when the log ended, most of it left.

    Theil-Sen trend over the last third of 24 blocks, significant (t < -2), at half the mean pace of
    all or more, with 80 % of the start left, or 70 % where a validation metric improves at such a
    pace as well (rows 15 and 20 of docs/diagnosis.md; the shares are ours). Look-alikes: a log that
    was cut or a run that still goes on, steps that are small on purpose, a language model's power
    law, which slows down by more.
    """
    loss = course(log, "train/loss")
    if loss is None or len(loss) < FEWEST or not STARTED < loss.remaining < MOST:
        return None
    pace = late_pace(loss)
    rising = [q for q in qualities(log, Direction.MAX) if len(q) >= FEWEST]
    if loss.remaining < ALONE and not any(late_pace(q) > PACE for q in rising):
        return None
    if pace < PACE or loss.end - loss.best > MOVED * abs(loss.best):
        return None
    return Finding(
        rule="stopped_while_falling",
        severity=0.5,
        summary="the train loss went from {start:.3g} to {end:.3g} and was still falling at "
        "{pace:.0%} of its mean pace when the log ended: stopped far too early, or too slow",
        steps=(int(loss.steps[2 * len(loss) // 3]), int(loss.steps[-1])),
        evidence={"start": loss.start, "end": loss.end, "pace": pace},
        confounders=("a run that is not over", "small steps on purpose, as in fine-tuning"),
    )


def late_pace(curve: Course) -> float:
    """Slope of the last third over the mean slope; 0 if it does not fall significantly."""
    blocks = condensed(Series(curve.steps, curve.values))
    steps = blocks.steps.astype(np.float64)
    third = max(3, len(steps) // 3)
    late = trend(steps[-third:], blocks.values[-third:])
    mean = (curve.end - curve.start) / max(steps[-1] - steps[0], 1.0)
    return late.slope / mean if late.t < -2 and mean < 0 else 0.0


@log_rule("underfitting")
def metrics_stay_at_zero(log: Log) -> Finding | None:
    """Every validation metric that should grow is at 0, whatever the losses do.

    Of all metrics that are better when higher, levels over the second half below 0.01, with 7
    evaluations at least. Ours. Look-alikes: anchors, labels or class ids that do not match, a guard
    that writes 0 for NaN, a metric that needs more training before it leaves 0.
    """
    rising = [q for q in qualities(log, Direction.MAX) if len(q) >= FEWEST]
    if not rising or any(np.median(-q.values[len(q) // 2 :]) >= NOTHING for q in rising):
        return None
    shown = rising[0]
    return Finding(
        rule="metrics_stay_at_zero",
        severity=0.8,
        summary="{metrics} stay at 0 while the losses move: nothing measurable is learned; look at "
        "labels, anchors and class ids first",
        steps=(int(shown.steps[0]), int(shown.steps[-1])),
        evidence={"metrics": ", ".join(q.name for q in rising[:4])},
        confounders=("labels that do not match", "a guard that writes 0 for NaN"),
    )


def _learns_elsewhere(log: Log, train: Course | None, val: Course | None) -> bool:
    """Whether the other loss or a metric shows that something was learned after all."""
    if train is not None and val is not None and val.remaining < 0.75:
        return True
    rising = [q for q in qualities(log, Direction.MAX) if len(q) >= FEWEST]
    return any(q.start - q.end > max(METRIC_GAIN * _unit(q), 3 * q.noise) for q in rising)


def _unit(quality: Course) -> float:
    """1 for a share, 100 for per cent."""
    return 100.0 if np.max(np.abs(quality.values)) > 1.5 else 1.0


def _constant_output(log: Log, evidence: dict[str, float | str]) -> str:
    """What loss and accuracy together tell of a model that always says the same."""
    known = (course(log, n) for n in ("train/accuracy", "val/accuracy"))
    curves = [c for c in known if c is not None and len(c) >= FEWEST]
    for accuracy in curves:
        half = -accuracy.values[len(accuracy) // 2 :] / _unit(accuracy)
        level, classes = float(np.median(half)), float(np.exp(min(float(evidence["late"]), 50.0)))
        whole = max(2, round(min(classes, 1e6)))
        if abs(np.log(classes / whole)) < 0.01 and abs(level * whole - 1) < 0.3:
            evidence |= {"classes": float(whole), "accuracy": level}
            return "; that is ln {classes:.0f}, with accuracy {accuracy:.3g}: a constant output"
        if np.ptp(half) == 0 and level < 0.95:
            evidence["accuracy"] = level
            return "; accuracy is constant to the digit at {accuracy:.4g}: a dead network"
    return ""
