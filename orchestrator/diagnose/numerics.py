"""Rules about numbers that are none."""

from __future__ import annotations

import numpy as np

from orchestrator.diagnose.registry import rule
from orchestrator.nouns import Finding, Series, Telemetry

STREAK = 10  # skipped steps in a row; an AMP scale search ends before


@rule(needs=("train/loss|probe/loss|grad_norm",), tells="whether numbers stay finite", exact=True)
def non_finite(telemetry: Telemetry) -> Finding | None:
    """The loss ends as NaN or infinity, or 10 steps in a row had a gradient that is not finite.

    Row 7 of docs/diagnosis.md. Excluded: single skipped steps of an AMP scale search, an evaluation
    that alone is NaN (that is the evaluation's fault), a loss that came back.
    """
    found = []
    for name, streak in (("train/loss", 1), ("probe/loss", 1), ("grad_norm", STREAK)):
        if name in telemetry and len(telemetry[name]):
            first, last = _last_streak(telemetry[name])
            if last - first + 1 >= streak:
                steps = telemetry[name].steps
                found.append((int(steps[first]), int(steps[last]), name))
    if not found:
        return None
    first, last, name = min(found)
    return Finding(
        rule="non_finite",
        severity=1.0,
        summary="{series} is not finite from step {first} on",
        steps=(first, last),
        evidence={"series": name, "from_step": float(first)},
        confounders=("a batch with a broken value", "overflow in half precision"),
    )


def _last_streak(series: Series) -> tuple[int, int]:
    """First and last index of the streak of values that are not finite and reach to the end.

    Empty (last before first) if the last value is finite.
    """
    finite = np.flatnonzero(np.isfinite(series.values))
    first = int(finite[-1]) + 1 if len(finite) else 0
    return first, len(series) - 1
