"""What helps to read the curves of a log and is no finding: how much was seen, what is odd."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from orchestrator.diagnose.logs.clipping import ALWAYS, FACTOR, threshold_of
from orchestrator.diagnose.logs.course import FEWEST, Course, course, longest, qualities
from orchestrator.diagnose.logs.stagnation import late_pace
from orchestrator.telemetry.readers import Log
from orchestrator.telemetry.robust import finite, robust_std

FIRST, ENORMOUS = 4.0, 1e3
"""A first loss over so many times those after it is said not to count."""

TINY_RATE = 0.01
NOISY = 0.3
FAR = 3.0
SAME = 0.1
RISES = 0.2


def remarks(log: Log) -> tuple[str, ...]:
    """Sentences, those on how much was seen first."""
    train, val = course(log, "train/loss"), course(log, "val/loss")
    told = [*_extent(log), *_numbers(log), *_clipping(log)]
    if train is not None:
        told += _train(log, train)
    if val is not None:
        told += _val(val)
    if train is not None and val is not None:
        told += _both(train, val)
    return (*told, *_metrics(log), *_components(log))


def _extent(log: Log) -> Iterator[str]:
    facts = log.facts
    if (n := longest(log)) < FEWEST:
        yield f"too few points: {n}; {FEWEST} at least make a curve"
    if facts.get("is_adversarial"):
        yield "adversarial losses: whether training converges cannot be read off them"
    validation = [s for name, s in log.telemetry.series.items() if name.startswith("val/")]
    if not validation:
        yield "no evaluation: nothing can be said about generalisation"
    elif (few := max(map(len, validation))) < FEWEST:
        yield f"only {few} evaluation{'s' * (few > 1)}"
    planned = facts.get("max_steps") if log.axis == "optimizer step" else facts.get("max_epochs")
    if facts.get("stopped_early") and isinstance(planned, int | float):
        yield f"ended at {facts['last']} of {planned:.0f} planned"
    epochs = facts.get("epochs")
    if isinstance(epochs, int | float) and 0 < epochs < 0.95 and "max_epochs" in facts:
        yield f"only {epochs:.2g} of an epoch was seen"


def _numbers(log: Log) -> Iterator[str]:
    """What is not finite, and yet no fault of the training."""
    for name, series in log.telemetry.series.items():
        broken = ~np.isfinite(series.values)
        if not broken.any() or name == "train/loss":
            continue
        if name == "grad_norm" and not broken[-1]:
            at = ", ".join(map(str, series.steps[broken][:5]))
            yield f"the gradient norm is not finite at {at}: steps that a loss scaler skips"
        elif name.startswith(("train/", "val/")) and name != "val/loss":
            yield f"{name} is NaN in {int(broken.sum())} rows: the metric itself (0/0), or no data"


def _clipping(log: Log) -> Iterator[str]:
    """Nearly always clipped, but hardly: common in healthy runs."""
    threshold, source = threshold_of(log)
    if threshold is None or "grad_norm" not in log.telemetry:
        return
    norm = finite(log.telemetry["grad_norm"]).values
    factor = float(np.median(norm)) / threshold if len(norm) else 0.0
    if len(norm) and np.mean(norm > threshold) > ALWAYS and factor < FACTOR:
        share = np.mean(norm > threshold)
        yield (
            f"the gradient norm is above {threshold:g} ({source}) in {share:.0%} of rows, "
            f"but only {factor:.2g} times as high"
        )


def _train(log: Log, train: Course) -> Iterator[str]:
    ratio = log.facts.get("first_loss_ratio")
    if len(train) < FEWEST:
        return
    if isinstance(ratio, float) and ratio > ENORMOUS:
        yield f"the loss begins enormous ({train.values[0]:.2g}): initial scale, or raw targets?"
    elif isinstance(ratio, float) and ratio > FIRST:
        yield f"the first train loss is {ratio:.2g} times those after it: not counted"
    if 0 <= train.end < min(1e-3 * train.start, 1e-3):
        yield f"the train loss ends at {train.end:.2g}: a trivial target, or memorised data"
    quarter = train.values[: len(train) // 4]
    if len(quarter) >= 5 and np.median(quarter) > 0.97 * train.start > 0 and train.remaining < 0.75:
        yield "a slow start: the loss stood still over the first quarter, then it was learned"
    scatter = robust_std(np.diff(train.values[len(train) // 2 :], 2)) / np.sqrt(6)  # no slope in it
    if scatter > NOISY * abs(train.end) > 0:
        share = scatter / abs(train.end)
        yield f"single train losses scatter by {share:.0%} of their level: smooth before judging"
    if train.end < train.start and late_pace(train) > 0.1:
        yield "the train loss was still falling where the log ends"
    if "lr" in log.telemetry and (tail := _idle_from(log)) is not None:
        yield f"from {tail} on the learning rate is below 1 % of its peak: nothing changes any more"


def _idle_from(log: Log) -> int | None:
    """Where the rate fell below 1 % of its peak for good, if a tenth of the log was left."""
    lr = finite(log.telemetry["lr"])
    if len(lr) < FEWEST or np.max(lr.values) <= 0:
        return None
    last = int(np.flatnonzero(lr.values >= TINY_RATE * np.max(lr.values))[-1])
    return int(lr.steps[last + 1]) if last + 1 < 0.9 * len(lr) else None


def _val(val: Course) -> Iterator[str]:
    if len(val) < FEWEST or np.min(val.values) <= 0:
        return
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(val.values, 2, mode="reflect"), 5)
    far = np.flatnonzero(val.values[1:] > FAR * np.median(windows, axis=1)[1:]) + 1
    if len(far) in (1, 2):
        told = " and ".join(f"{val.values[i]:.3g} at {val.steps[i]}" for i in far)
        yield f"isolated validation loss over {FAR:.0f} times those around it: {told}"


def _both(train: Course, val: Course) -> Iterator[str]:
    at_train = np.array([train.level_at(int(step)) for step in val.steps])
    if len(val) < 3 or np.min(at_train) <= 0 or np.min(val.values) <= 0:
        return
    ratio = np.log(val.values / at_train)
    factor = float(np.exp(np.median(ratio)))
    moved = max(np.ptp(np.log(at_train)), 0.0) > 3 * SAME
    if abs(np.log(factor)) > np.log(3) and robust_std(ratio) < SAME and moved:
        yield f"validation is {factor:.2g} times the train loss throughout: summed in another way?"
    elif factor < 0.1:
        yield f"validation is {factor:.2g} times the train loss: a trivial task, or shared data?"
    elif np.mean(ratio < 0) > 0.8:
        yield "validation is below the train loss, as where that is measured in train mode"


def _metrics(log: Log) -> Iterator[str]:
    """Where each metric was best, if that was not the end."""
    for metric in qualities(log)[:4]:
        best = int(np.argmin(metric.values))
        if len(metric) >= 3 and best < 0.95 * (len(metric) - 1) and np.ptp(metric.values) > 0:
            value = abs(float(metric.values[best]))
            yield f"{metric.name} is best at {metric.steps[best]}: {value:.4g}"


def _components(log: Log) -> Iterator[str]:
    """Parts of a validation loss that rise on their own, and series that stopped moving."""
    for name, series in log.telemetry.series.items():
        known = finite(series)
        if not name.startswith(("train/", "val/")) or len(known) < FEWEST:
            continue
        half = known.values[len(known) // 2 :]
        if np.ptp(half) == 0 and np.ptp(known.values) > 0:
            yield f"{name} is constant at {half[0]:.4g} over the second half"
        part = course(log, name) if name.startswith("val/") and "loss" in name else None
        if (
            part is not None
            and name != "val/loss"
            and part.end - part.best > RISES * abs(part.best)
        ):
            at = part.steps[part.best_at]
            yield f"{name} rises on its own: {part.best:.3g} (at {at}) to {part.end:.3g}"
