"""What crosses a door when somebody's own log is diagnosed: from `diagnose` to `report` and cli."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.nouns import Finding, Hypothesis, Telemetry

LABELS = (
    "healthy",
    "overfitting",
    "plateau",
    "underfitting",
    "instability",
    "divergence",
    "high_clip_ratio",
    "vanishing",
    "noisy_eval",
    "insufficient_data",
)
"""What a log can be called (docs/diagnosis.md)."""


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """What one log says.

    `columns` is which column was taken for which series, `axis` what its steps count. `labels` are
    all that hold, the primary one first; `findings` are in the same order, root causes first.
    `remarks` say what helps to read the curves and is no finding; `warnings` what the reader of
    the log had to decide or repair.
    """

    source: str
    format: str
    axis: str
    columns: Mapping[str, str]
    n_points: int
    telemetry: Telemetry
    labels: tuple[str, ...]
    findings: tuple[Finding, ...]
    hypotheses: tuple[Hypothesis, ...]
    remarks: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def label(self) -> str:
        """The primary label."""
        return self.labels[0]
