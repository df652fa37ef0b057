"""Rules about evaluations that cannot be relied on."""

from __future__ import annotations

import numpy as np

from orchestrator.diagnose.logs.course import course
from orchestrator.diagnose.logs.registry import log_rule
from orchestrator.nouns import Finding, Floats
from orchestrator.telemetry.readers import Log
from orchestrator.telemetry.robust import robust_std

EVALUATIONS = 10
JITTER = 0.25
OUTLYING = 3.0
OUTLYING_SIGMAS = 5.0
OUTLIERS = 3
CALMER = 2.0


@log_rule("noisy_eval")
def evaluation_jumps(log: Log) -> Finding | None:
    """Validation jumps from evaluation to evaluation more than it can have changed.

    At least 10 evaluations with a positive loss. Either the jitter of one half (robust standard
    deviation of the differences of the log loss, over √2) exceeds 0.25, that is 25 %, and twice
    that of the train loss; or three losses are over 3 times the median of the five around them, and
    5 times the jitter of the train loss above it. Ours, above the 0.2 of a healthy look-alike of
    the zoo. Look-alikes: a learning rate that is too high (then train jumps as well), batch
    statistics in evaluation, a tiny or randomly drawn validation set.
    """
    val, train = course(log, "val/loss"), course(log, "train/loss")
    if val is None or len(val) < EVALUATIONS or np.min(val.values) <= 0:
        return None
    logs = np.log(val.values)
    jitter = _jitter(logs)
    known = train is not None and np.min(train.values) > 0
    own = _jitter(np.log(train.values)) if train is not None and known else 0.0
    apart = logs - _around(logs)
    outliers = np.flatnonzero(apart > max(np.log(OUTLYING), OUTLYING_SIGMAS * own))
    if not (jitter > max(JITTER, CALMER * own) or len(outliers) >= OUTLIERS):
        return None
    top = int(np.argmax(apart))
    return Finding(
        rule="evaluation_jumps",
        severity=float(min(1.0, 0.3 + jitter + 0.05 * len(outliers))),
        summary="the validation loss jitters by {jitter:.0%} from evaluation to evaluation; "
        "{outliers:.0f} are over 3 times those around them, the highest is {highest:.3g} at {peak}",
        steps=(int(val.steps[0]), int(val.steps[-1])),
        evidence={
            "jitter": jitter,
            "outliers": float(len(outliers)),
            "highest": float(val.values[top]),
            "peak": f"{val.steps[top]}",
        },
        confounders=(
            "a learning rate that is too high",
            "a small or randomly drawn validation set",
            "batch statistics or dropout in evaluation",
        ),
    )


def _jitter(logs: Floats) -> float:
    """Jitter of the rougher half: a decayed learning rate calms the other one."""
    middle = len(logs) // 2
    halves = [np.diff(part) for part in (logs[: middle + 1], logs[middle:])]
    return max(robust_std(d) for d in halves) / float(np.sqrt(2))


def _around(logs: Floats) -> Floats:
    """Median [n] of the five values around each."""
    padded = np.pad(logs, 2, mode="reflect")
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1))
