"""A campaign file that tests the first hypotheses about a log, but for the user's program."""

from __future__ import annotations

import numpy as np

from orchestrator.errors import OrchestratorError
from orchestrator.log_nouns import Diagnosis

MOST = 3
"""Factors that are mapped: those of the first hypotheses."""

KEYS = {
    "lr": ("optimizer", "lr"),
    "weight_decay": ("optimizer", "weight_decay"),
    "dropout": ("model", "dropout"),
    "warmup": ("schedule", "warmup"),
    "clip": (None, "clip"),
}
USUAL = {"lr": "0.001", "weight_decay": "0.0", "dropout": "0.0", "warmup": "0.0", "clip": "null"}
"""What a baseline holds where the log does not tell."""


def campaign_file(diagnosis: Diagnosis) -> str:
    """exp.yaml: `plan` accepts it once train.call is filled in and the baseline is the user's."""
    factors = list(dict.fromkeys(h.factor for h in diagnosis.hypotheses))[:MOST]
    if not factors:
        raise OrchestratorError(
            f"--plan: {diagnosis.source} is {diagnosis.label}; no hypothesis asks for an ablation.",
            "nothing was written; what was seen is to be checked in code or data, not by training",
        )
    claims = [h for h in diagnosis.hypotheses if h.factor in factors]
    lines = [
        f"# {diagnosis.source!r} was called {diagnosis.label}. This campaign tests:",
        *(f"#   {' '.join(h.claim.split())}" for h in claims),
        "# Fill in train.call and the baseline; then: python -m orchestrator plan conf=THIS_FILE",
        "train:",
        "  call: ???  # module.function, which takes this config and returns the metrics",
        "  config:  # the baseline: as it was when the log was written",
    ]
    values = USUAL | _seen(diagnosis)
    for section in dict.fromkeys(KEYS[name][0] for name in factors):
        inside = [n for n in factors if KEYS[n][0] == section]
        pairs = ", ".join(f"{KEYS[n][1]}: {values[n]}" for n in inside)
        lines.append(f"    {section}: {{{pairs}}}" if section else f"    {pairs}")
    lines.append("factors:")
    lines += [f"  {n}: {'.'.join(part for part in KEYS[n] if part)}" for n in factors]
    metric = "val/loss" if "val/loss" in diagnosis.telemetry else "train/loss"
    lines.append(f"metric: {{name: {metric}, direction: min}}")
    return "\n".join(lines) + "\n"


def _seen(diagnosis: Diagnosis) -> dict[str, str]:
    """The peak of the learning rate and the threshold of clipping, as far as the log told them."""
    seen = {}
    for finding in diagnosis.findings:
        threshold = finding.evidence.get("threshold", finding.evidence.get("max_norm"))
        if threshold is not None:
            seen["clip"] = repr(float(threshold))
    if "lr" in diagnosis.telemetry:
        rates = diagnosis.telemetry["lr"].values
        rates = rates[np.isfinite(rates) & (rates > 0)]
        if len(rates):
            seen["lr"] = repr(float(f"{np.max(rates):.3g}"))
    return seen
