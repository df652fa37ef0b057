"""A diagnosis as the JSON object that other programs read (docs/diagnosis.md)."""

from __future__ import annotations

import math

from orchestrator.diagnose.logs.verdict import TOO_SHORT
from orchestrator.log_nouns import Diagnosis
from orchestrator.nouns import Finding, Hypothesis

Json = dict[str, object]


def as_json(diagnosis: Diagnosis) -> Json:
    """The contract: plain values only, no NaN and no infinity (they become words)."""
    metric = "val/loss" if "val/loss" in diagnosis.telemetry else "train/loss"
    return {
        "format": diagnosis.format,
        "series": dict(diagnosis.columns),
        "n_points": diagnosis.n_points,
        "label": diagnosis.label,
        "labels": list(diagnosis.labels),
        "findings": [_finding(f) for f in diagnosis.findings],
        "hypotheses": [_hypothesis(h, metric) for h in diagnosis.hypotheses],
        "warnings": [*diagnosis.remarks, *diagnosis.warnings],
    }


def refused(reason: str) -> Json:
    """The same object for a file that holds no training curve."""
    return {
        "format": None,
        "series": {},
        "n_points": 0,
        "label": TOO_SHORT,
        "labels": [TOO_SHORT],
        "findings": [],
        "hypotheses": [],
        "warnings": [reason],
    }


def _finding(finding: Finding) -> Json:
    return {
        "rule": finding.rule,
        "severity": round(finding.severity, 3),
        "steps": list(finding.steps),
        "layer": finding.layer,
        "evidence": {name: _plain(value) for name, value in finding.evidence.items()},
        "summary": finding.summary,
        "confounders": list(finding.confounders),
    }


def _hypothesis(hypothesis: Hypothesis, metric: str) -> Json:
    return {
        "factor": hypothesis.factor,
        "direction": hypothesis.move.value,
        "claim": hypothesis.claim,
        "why": hypothesis.why,
        "prediction": {metric: "improves", hypothesis.signal: hypothesis.signal_move.value},
    }


def _plain(value: float | str) -> float | str:
    if isinstance(value, str):
        return value
    return float(value) if math.isfinite(value) else str(float(value))
