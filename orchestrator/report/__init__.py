"""The record shown to a person: terminal, Markdown, self-contained HTML, plots. Decides nothing."""

from orchestrator.report.comparison_page import (
    comparison_forest,
    comparison_latex,
    comparison_markdown,
    show_comparison,
)
from orchestrator.report.display import Display
from orchestrator.report.explain import (
    explain,
    show_explanation,
    show_status,
    status,
)
from orchestrator.report.files import Report, write
from orchestrator.report.layers import layer_picture
from orchestrator.report.log_page import show_diagnosis, write_diagnosis
from orchestrator.report.waiting import Say, waiting

__all__ = [
    "Display",
    "Report",
    "Say",
    "comparison_forest",
    "comparison_latex",
    "comparison_markdown",
    "explain",
    "layer_picture",
    "show_comparison",
    "show_diagnosis",
    "show_explanation",
    "show_status",
    "status",
    "waiting",
    "write",
    "write_diagnosis",
]
