"""Rules about time that is spent on something else than learning."""

from __future__ import annotations

import numpy as np

from orchestrator.diagnose.registry import rule
from orchestrator.nouns import Finding, Telemetry
from orchestrator.telemetry.robust import finite

WAITING = 0.2


@rule(extra=True, needs=("data_seconds", "step_seconds"), tells="time spent on waiting for data")
def data_wait(telemetry: Telemetry) -> Finding | None:
    """The training waits for its data.

    `data_seconds` is for the user to log, each step: from asking the loader to having the batch.
    The median over steps of its share of `step_seconds` exceeds 0.2 (row 32 of docs/diagnosis.md).
    Excluded: single slow steps, evaluations and checkpoints (median).
    """
    wait, whole = finite(telemetry["data_seconds"]), finite(telemetry["step_seconds"])
    steps, at_wait, at_whole = np.intersect1d(wait.steps, whole.steps, return_indices=True)
    if len(steps) < 20:
        return None
    part = float(np.median(wait.values[at_wait] / np.maximum(whole.values[at_whole], 1e-9)))
    if part <= WAITING:
        return None
    return Finding(
        rule="data_wait",
        severity=0.3,
        summary="{share:.0%} of a step is spent on waiting for data",
        steps=(int(steps[0]), int(steps[-1])),
        evidence={"share": part},
        confounders=("a first epoch that fills a cache",),
    )
