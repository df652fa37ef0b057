"""Rules about train losses that go up: for good, or as jumps that heal."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from orchestrator.diagnose.logs.course import FEWEST, Course, course
from orchestrator.diagnose.logs.registry import log_rule
from orchestrator.diagnose.stability import loss_spikes
from orchestrator.nouns import Finding
from orchestrator.telemetry.readers import Log
from orchestrator.telemetry.robust import robust_std

LOST = 0.4
RISEN = 0.15
SIGMAS = 4.0
JUMP = 3.0
JUMP_SIGMAS = 10.0
CLAMPS = (87.3365, 16.1181, 100.0)


@log_rule(
    "divergence",
    asks="instability",
    explains=("loss_jumped", "repeated_spikes", "validation_rises", "nothing_learned", "clipped"),
)
def loss_rose_for_good(log: Log) -> Finding | None:
    """The train loss ends far above its best level.

    The last level lies 15 % of the best, 4 standard deviations of its noise, and 40 % of all that
    had been gained above the best one. Ours; (c) of `instability` asks for twice the best, which a
    loss of bits or nats that collapses to chance never reaches. Look-alikes: another data set or
    curriculum stage from some step on, an adversarial term, a penalty that is ramped up.
    """
    loss = course(log, "train/loss")
    if loss is None or len(loss) < FEWEST or log.facts.get("is_adversarial"):
        return None
    rise = loss.end - loss.best
    if rise <= max(RISEN * abs(loss.best), SIGMAS * loss.noise, LOST * loss.gained):
        return None
    at = loss.best_at
    return Finding(
        rule="loss_rose_for_good",
        severity=float(min(1.0, 0.6 + 0.4 * rise / max(loss.gained, abs(loss.best), 1e-300))),
        summary="the train loss rose from its best level {best:.3g} (at {first}) to {end:.3g} and "
        "stayed there; it had started at {start:.3g}" + _constant(loss, at),
        steps=(int(loss.steps[at]), int(loss.steps[-1])),
        evidence={"best": loss.best, "end": loss.end, "start": loss.start},
        confounders=(
            "other data from that step on",
            "a learning rate or a loss term that was changed there",
            "one bad batch that destroyed the weights",
        ),
    )


def _constant(loss: Course, since: int) -> str:
    """The sentence about outputs that are saturated: the same loss again and again.

    -ln of the smallest float, of 1e-7, and the clamp of binary cross-entropy: R11 of the reports.
    """
    late = loss.values[-max(3, (len(loss) - since) // 2) :]
    level = float(np.median(late))
    if np.ptp(late) > 1e-2 * abs(level):
        return ""
    clamp = next((f", {c:g} is a known clamp" for c in CLAMPS if abs(level / c - 1) < 1e-3), "")
    return f"; it is nearly constant since{clamp}: saturated or collapsed outputs"


@log_rule("instability", asks="instability")
def loss_jumped(log: Log) -> Finding | None:
    """The train loss jumped far above all it had been before, and came back.

    A value over 3 times the highest one before it, and 10 standard deviations of the noise above
    it; at least two points before, so that no first loss takes part. Ours: a new record needs no
    assumption about tails, as bursts on the way down stay below the start. Look-alikes: one bad
    batch (where every step is logged), a restart, another data set.
    """
    loss = course(log, "train/loss")
    if loss is None or len(loss) < FEWEST or log.facts.get("is_adversarial"):
        return None
    size = np.abs(loss.values)
    before = np.maximum.accumulate(size)[1:-1]  # highest up to each point but the last two
    excess = loss.values[2:] - before
    spread = robust_std(np.diff(loss.values)) / np.sqrt(2)
    jumps = np.flatnonzero((loss.values[2:] > JUMP * before) & (excess > JUMP_SIGMAS * spread)) + 2
    if not len(jumps) or before[jumps[0] - 2] == 0:
        return None
    top = int(jumps[np.argmax(loss.values[jumps])])
    evidence = {
        "peak": float(loss.values[top]),
        "before": float(before[jumps[0] - 2]),
        "end": loss.end,
        "jumps": float(len(jumps)),
    }
    return Finding(
        rule="loss_jumped",
        severity=float(min(1.0, 0.5 + 0.15 * np.log10(evidence["peak"] / evidence["before"]))),
        summary="the train loss jumped to {peak:.3g} at {first}, where it had never been above "
        "{before:.3g}, and came back to {end:.3g}",
        steps=(int(loss.steps[top]), int(loss.steps[top])),
        evidence=evidence,
        confounders=(
            "one bad batch",
            "a restart",
            "a gradient that was not finite: a skipped step",
        ),
    )


@log_rule("instability", asks="loss_spikes")
def repeated_spikes(log: Log) -> Finding | None:
    """Three or more spikes of the train loss, as `loss_spikes` defines them for trials.

    At least 53 rows. Source, thresholds, Look-alikes: `loss_spikes` (row 9 of
    docs/diagnosis.md). Not in adversarial training, whose losses swing by design.
    """
    loss = course(log, "train/loss")
    if loss is None or len(loss) < 53 or log.facts.get("is_adversarial"):
        return None
    found = loss_spikes(log.telemetry)
    return None if found is None else replace(found, rule="repeated_spikes")
