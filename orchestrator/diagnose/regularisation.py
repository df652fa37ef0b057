"""Rules about weight decay and dropout that leave nothing to learn with."""

from __future__ import annotations

import numpy as np

from orchestrator.diagnose.curves import whole_run
from orchestrator.diagnose.progress import progress
from orchestrator.diagnose.registry import rule
from orchestrator.nouns import Finding, Telemetry
from orchestrator.telemetry.robust import finite

SHRUNK = 0.2
HEAVY_DROPOUT = 0.6


@rule(
    needs=("param_norm/", "train/loss|probe/loss"),
    tells="too much regularisation from slow learning",
    explains=(
        *("instability", "dead_units", "layer_imbalance"),
        *("epsilon_too_large", "learning_rate_too_low", "plateau"),
    ),
)
def over_regularised(telemetry: Telemetry) -> Finding | None:
    """Weight decay shrinks the weights, or dropout removes most of them, and the run is underfit.

    The norm of all weight matrices falls below 0.2 of its start with a weight decay in force, or
    more than 0.6 is dropped (row 21 of docs/diagnosis.md, zoo; DC over_regularization). Excluded:
    healthy dropout and decay (the run learns), shrinking from an initialisation that was too wide.
    """
    course = progress(telemetry)
    if course is None or not course.is_underfit:
        return None
    shrunk, dropout = _norm_left(telemetry), float(telemetry.header.get("dropout") or 0.0)
    decay = float(telemetry.header.get("weight_decay") or 0.0)
    evidence: dict[str, float | str] = {"remaining": course.remaining}
    if shrunk is not None and shrunk < SHRUNK and decay > 0:
        evidence |= {"norm_left": shrunk, "weight_decay": decay}
        says = "weights shrank to {norm_left:.2g} of their norm at weight decay {weight_decay:.3g}"
    elif dropout > HEAVY_DROPOUT:
        evidence["dropout"] = dropout
        says = "{dropout:.0%} of the units are dropped"
    else:
        return None
    return Finding(
        rule="over_regularised",
        severity=0.9,
        summary=says + " and {remaining:.0%} of the start loss is left",
        steps=whole_run(telemetry),
        evidence=evidence,
        confounders=("a training that is merely short",),
    )


def _norm_left(telemetry: Telemetry) -> float | None:
    """Norm of all weight matrices in the end over that at the first sampled step."""
    named = str(telemetry.header.get("weight_layers") or "").split(",")
    layers = telemetry.layers("param_norm")
    ends = [finite(layers[name]).values[[0, -1]] for name in named if name in layers]
    if not ends:
        return None
    first, last = np.sqrt(np.sum(np.square(ends), axis=0))
    return float(last / first) if first > 0 else None
