"""Rules about the clipping of gradients, from norms that were logged before clipping."""

from __future__ import annotations

import numpy as np

from orchestrator.diagnose.logs.registry import log_rule
from orchestrator.nouns import Finding
from orchestrator.telemetry.readers import Log
from orchestrator.telemetry.robust import finite

ALWAYS = 0.9
FACTOR = 5.0
ROWS = 7
THRESHOLDS = ("max_grad_norm", "gradient_clip_val", "grad_clip", "max_norm", "clip_grad_norm")
"""Parameters under which trainers keep their threshold."""

HUGGING_FACE = {"loss", "grad_norm", "learning_rate"}
HUGGING_FACE_DEFAULT = 1.0
"""`TrainingArguments.max_grad_norm` where nobody set another; other trainers do not clip."""


@log_rule("high_clip_ratio", asks="high_clip_ratio")
def clipped(log: Log) -> Finding | None:
    """Nearly every logged gradient is clipped, and by a large factor.

    Norms above the threshold in over 90 % of rows, and 5 times as high in the median (section 6 of
    docs/diagnosis.md: above 1 in 90 % is common in healthy runs, the factor carries the signal; the
    5 is ours). The threshold is the logged parameter, else the 1.0 of a Hugging Face Trainer, known
    by its columns; without either nothing is said. Look-alikes: Adam rescales, so that always
    clipped may be inert; norms logged after clipping never exceed it; clipping switched off.
    """
    if "grad_norm" not in log.telemetry:
        return None
    norm = finite(log.telemetry["grad_norm"])
    threshold, source = threshold_of(log)
    if threshold is None or len(norm) < ROWS:
        return None
    share = float(np.mean(norm.values > threshold))
    factor = float(np.median(norm.values)) / threshold
    if share <= ALWAYS or factor < FACTOR:
        return None
    return Finding(
        rule="clipped",
        severity=float(min(1.0, 0.3 + 0.2 * np.log10(factor))),
        summary="the gradient norm is above {threshold:.3g} ({source}) in {share:.0%} of rows, "
        "{factor:.2g} times as high in the median",
        steps=(int(norm.steps[0]), int(norm.steps[-1])),
        evidence={"threshold": threshold, "source": source, "share": share, "factor": factor},
        confounders=("an optimizer that rescales, as Adam does", "clipping that is switched off"),
    )


def threshold_of(log: Log) -> tuple[float | None, str]:
    """The threshold and where it is known from."""
    for name in THRESHOLDS:
        value = log.facts.get(f"param/{name}")
        if isinstance(value, int | float) and value > 0:
            return float(value), name
    taken = {part.rsplit("/", 1)[-1] for part in log.columns.values()}
    if taken >= HUGGING_FACE:
        return HUGGING_FACE_DEFAULT, "the Trainer's default"
    return None, ""
