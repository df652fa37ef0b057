"""The record shown to a person: terminal, Markdown, self-contained HTML, plots. Decides nothing."""

from orchestrator.report.display import Display
from orchestrator.report.explain import (
    explain,
    show_comparison,
    show_explanation,
    show_status,
    status,
)
from orchestrator.report.files import Report, write
from orchestrator.report.layers import layer_picture
from orchestrator.report.log_page import show_diagnosis, write_diagnosis

__all__ = [
    "Display",
    "Report",
    "explain",
    "layer_picture",
    "show_comparison",
    "show_diagnosis",
    "show_explanation",
    "show_status",
    "status",
    "write",
    "write_diagnosis",
]
