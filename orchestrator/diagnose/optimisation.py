"""Rules about training that gets nowhere: steps too small, over too early, or leading nowhere."""

from __future__ import annotations

import numpy as np

from orchestrator.diagnose.curves import (
    HEALTHY_UPDATE,
    SHORT_PATH,
    TINY_UPDATE,
    active_span,
    condensed,
    early_update_peak,
    first_step,
    is_tiny,
    trend,
    update_ratio,
)
from orchestrator.diagnose.layers import weights
from orchestrator.diagnose.progress import progress
from orchestrator.diagnose.registry import rule
from orchestrator.nouns import Finding, Series, Telemetry
from orchestrator.telemetry.robust import finite

LOSSES = "train/loss|probe/loss"

FROZEN_BY_EPS = 0.01  # of the learning rate: an Adam step's size per element is about 1 of it
LARGEST_USUAL_EPS = 1e-6

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
    needs=("update_ratio/", "param_norm/", "lr", LOSSES),
    tells="an optimizer epsilon that is too large",
    explains=("learning_rate_too_low", "plateau"),
)
def epsilon_too_large(telemetry: Telemetry) -> Finding | None:
    """Adam's steps are far smaller than its learning rate, since epsilon outweighs the gradients.

    Root mean square of a step per element under 1 % of the learning rate (row 15 of
    docs/diagnosis.md; Adam's own is about 1), in the median over matrices and the sampled steps of
    the first half, with an epsilon above 1e-6, on an underfit run. Excluded: other optimizers,
    usual epsilons (there the gradients are dead), runs that learn.
    """
    eps, course = float(telemetry.header.get("eps") or 0.0), progress(telemetry)
    named = str(telemetry.header.get("optimizer") or "").lower()
    if "adam" not in named or eps <= LARGEST_USUAL_EPS or course is None or not course.is_underfit:
        return None
    ratios, norms = telemetry.layers("update_ratio"), telemetry.layers("param_norm")
    lr, sizes = telemetry["lr"], list[float]()
    for weight in weights(telemetry):
        if weight.name in ratios and weight.name in norms:
            ratio, norm = ratios[weight.name], norms[weight.name]
            steps = np.intersect1d(np.intersect1d(ratio.steps, norm.steps), lr.steps)
            steps = steps[steps < course.total / 2]
            each = [s.values[np.searchsorted(s.steps, steps)] for s in (ratio, norm, lr)]
            with np.errstate(divide="ignore", invalid="ignore"):
                size = each[0] * each[1] / each[2] / np.sqrt(weight.size)
            sizes += size[np.isfinite(size)].tolist()
    if len(sizes) < 5 or np.median(sizes) >= FROZEN_BY_EPS:
        return None
    return Finding(
        rule="epsilon_too_large",
        severity=0.9,
        summary="a step is {step:.2g} of the learning rate at eps {eps:.3g} (healthy: about 1)",
        steps=(first_step(telemetry), course.total - 1),
        evidence={"step": float(np.median(sizes)), "eps": eps, "remaining": course.remaining},
        confounders=("gradients that vanish",),
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
    its tail, a floor once accuracy has been reached (label smoothing), too few points, a probe of
    few points where the losses of the steps still fall. Without any accuracy the floor of the loss
    is unknown, and only a loss above 60 % of its start is taken.
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
    if _steps_fall(telemetry, steps[-window], last):
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


def _steps_fall(telemetry: Telemetry, first: float, last: float) -> bool:
    """Whether the losses of the steps fall by 2 standard errors and by a hundredth of their level.

    They are many more than the points of a probe; of very many a fall of nothing is significant.
    """
    if "train/loss" not in telemetry:
        return False
    loss = finite(telemetry["train/loss"])
    within = (loss.steps >= first) & (loss.steps <= last)
    blocks = condensed(Series(loss.steps[within], loss.values[within], loss.unit))
    if len(blocks) < 5:
        return False
    line = trend(blocks.steps.astype(np.float64), blocks.values)
    return line.t < -2 and -line.change > 0.01 * abs(float(np.median(blocks.values)))


@rule(
    extra=True,
    needs=("train/gradient_noise", LOSSES),
    tells="a batch that is too small from a plateau",
    explains=("plateau",),
)
def noise_dominated(telemetry: Telemetry) -> Finding | None:
    """Gradients that are mostly noise, on a loss that has stopped falling.

    `train/gradient_noise` is for the user to log: trace of the gradient's covariance over examples,
    over batch size and squared norm of the mean gradient (the norm test of Bollapragada et al.
    2018; McCandlish et al. 2018 call it the noise scale over the batch). Its median over the last
    third exceeds 1 and the train loss falls by less than 2 standard errors there (row 31 of
    docs/diagnosis.md, Cockpit). Excluded: the tail of a schedule, runs that have learned.
    """
    course, noise = progress(telemetry), finite(telemetry["train/gradient_noise"])
    if course is None or not course.is_underfit or len(noise) < 5 or len(course.steps) < 8:
        return None
    first, last = active_span(telemetry, 0.1)
    late = noise.values[(noise.steps >= course.total * 2 / 3) & (noise.steps < last)]
    window = max(5, len(course.steps) // 3)
    line = trend(course.steps[-window:], course.losses[-window:])
    if len(late) < 3 or np.median(late) <= 1 or line.t < -2:
        return None
    return Finding(
        rule="noise_dominated",
        severity=0.5,
        summary="a batch's gradient is {noise:.3g} parts noise to one of signal",
        steps=(max(int(first), int(course.steps[-window])), int(last) - 1),
        evidence={"noise": float(np.median(late)), "remaining": course.remaining},
        confounders=("the end of a schedule", "a floor of the loss"),
    )
