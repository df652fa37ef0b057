"""Rules about losses and gradients that are no numbers, or nothing at all."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orchestrator.diagnose.logs.course import FEWEST, course
from orchestrator.diagnose.logs.registry import log_rule
from orchestrator.nouns import Finding
from orchestrator.telemetry.readers import Log

FILTERED = 2
"""Last rows in a row with loss 0 and no usable gradient: one may be a skipped batch."""

LEARNED = 0.75
"""Share of the start loss: below it the weights work, so an evaluation of NaN is its own fault."""


@log_rule("vanishing")
def no_gradient(log: Log) -> Finding | None:
    """The gradient norm is exactly 0 in nine of ten rows, and the loss does not move.

    Exact; nothing is learned: labels fully masked, everything detached or frozen, or the logging is
    broken. Row 12 of docs/diagnosis.md in its limit. Excluded: a loss that was learned to 0 before,
    gradients that are zero only on skipped steps.
    """
    if "grad_norm" not in log.telemetry or "train/loss" not in log.telemetry:
        return None
    norm, loss = log.telemetry["grad_norm"], log.telemetry["train/loss"]
    zero = float(np.mean(norm.values == 0))
    known = loss.values[np.isfinite(loss.values)]
    if len(norm) < 3 or zero < 0.9 or not len(known) or np.ptp(known) > 0.01 * abs(known[0]):
        return None
    return Finding(
        rule="no_gradient",
        severity=1.0,
        summary="the gradient norm is 0 in {zero:.0%} of rows while the loss stays at {loss:.3g}: "
        "nothing is learned",
        steps=(int(norm.steps[0]), int(norm.steps[-1])),
        evidence={"zero": zero, "loss": float(np.median(known))},
        confounders=("labels that are all masked", "frozen parameters", "broken logging"),
    )


@log_rule("divergence", asks="non_finite")
def loss_not_finite(log: Log) -> Finding | None:
    """The train loss ends as NaN or infinity, or as the 0 that a trainer writes for NaN.

    Exact (row 7 of docs/diagnosis.md). A loss of exactly 0 beside a gradient norm that is NaN,
    infinite or 0, in the last two rows or more, after a loss that was not 0, is a filtered NaN (R15
    of the reports). Excluded: empty cells, metrics and evaluations that are NaN, single values that
    came back.
    """
    if "train/loss" not in log.telemetry:
        return None
    loss = log.telemetry["train/loss"]
    broken = ~np.isfinite(loss.values)
    filtered = _filtered(log)
    if filtered[-FILTERED:].sum() == FILTERED:
        broken = broken | filtered
    if not broken[-1:].any():
        return None
    sound = np.flatnonzero(~broken)
    first = int(sound[-1]) + 1 if len(sound) else 0
    return Finding(
        rule="loss_not_finite",
        severity=1.0,
        summary="the train loss is no number from {first} on"
        + (" (written as 0 by the trainer)" if np.isfinite(loss.values[-1]) else "")
        + _before(log, int(loss.steps[first])),
        steps=(int(loss.steps[first]), int(loss.steps[-1])),
        evidence={"rows": float(len(loss) - first)},
        confounders=("a batch with a broken value", "overflow in half precision"),
    )


@log_rule("divergence")
def evaluation_not_finite(log: Log) -> Finding | None:
    """The validation loss ends as NaN or infinity while the train loss is finite.

    Exact. The evaluation is broken, not the weights, which went on training; said as long as the
    train loss kept 75 % of its start (ours): on a run that learns it is a remark only. Look-alikes:
    half precision in evaluation, an empty validation set, labels that are all masked.
    """
    train = course(log, "train/loss")
    if "val/loss" not in log.telemetry or train is None:
        return None
    val = log.telemetry["val/loss"]
    broken = ~np.isfinite(val.values)
    if not broken[-1] or not np.isfinite(log.telemetry["train/loss"].values[-1]):
        return None
    if train.remaining < LEARNED:
        return None
    return Finding(
        rule="evaluation_not_finite",
        severity=0.7,
        summary="{broken:.0f} of {evaluations:.0f} validation losses are no numbers although the "
        "train loss is finite ({train:.3g}): the evaluation is broken",
        steps=(int(val.steps[np.argmax(broken)]), int(val.steps[-1])),
        evidence={
            "broken": float(broken.sum()),
            "evaluations": float(len(val)),
            "train": train.end,
        },
        confounders=("overflow in half precision", "an empty validation set", "masked labels"),
    )


def _before(log: Log, step: int) -> str:
    """What went before the break: the component that broke first, the rate, a calm loss.

    R01, R03, R05 and R09 of the reports: a rate that still rises points to warm-up, a loss that was
    calm to overflow, one that grew to the step size.
    """
    told = []
    parts = {
        n: s for n, s in log.telemetry.series.items() if n.startswith("train/") and "loss" in n
    }
    broke = {n: s.steps[~np.isfinite(s.values)] for n, s in parts.items() if n != "train/loss"}
    earliest = sorted((int(at[0]), n) for n, at in broke.items() if len(at))
    if earliest and len(earliest) < len(broke):
        told.append(f"{earliest[0][1]} broke first, at {earliest[0][0]}")
    if "lr" in log.telemetry:
        rates = log.telemetry["lr"]
        past = rates.values[rates.steps <= step]
        if len(past) > 2 and past[-1] == np.max(past) and past[-1] > past[len(past) // 2]:
            told.append("the learning rate was still rising")
    loss = log.telemetry["train/loss"]
    sound = loss.values[(loss.steps < step) & np.isfinite(loss.values)]
    if len(sound) >= FEWEST:
        calm = sound[-1] <= 2 * np.median(np.abs(sound[-FEWEST:]))
        told.append("the loss was calm before" if calm else "the loss had grown before")
    return "".join(f"; {sentence}" for sentence in told)


def _filtered(log: Log) -> npt.NDArray[np.bool_]:
    """Where [n] the train loss is exactly 0 and the gradient norm of the same row is unusable."""
    loss = log.telemetry["train/loss"]
    zero = loss.values == 0
    if "grad_norm" not in log.telemetry or zero.all():
        return np.zeros(len(loss), dtype=bool)
    norm = log.telemetry["grad_norm"]
    usable = norm.steps[np.isfinite(norm.values) & (norm.values != 0)]
    unusable = np.isin(loss.steps, norm.steps) & ~np.isin(loss.steps, usable)
    return np.asarray(zero & unusable)
