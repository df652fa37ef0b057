"""The stored series of a trial: written in the training process, read everywhere else. No torch."""

from orchestrator.telemetry.layout import is_store
from orchestrator.telemetry.names import canonical, unit
from orchestrator.telemetry.reader import read, read_metrics, steps_written
from orchestrator.telemetry.signals import signals
from orchestrator.telemetry.writer import Writer

__all__ = [
    "Writer",
    "canonical",
    "is_store",
    "read",
    "read_metrics",
    "signals",
    "steps_written",
    "unit",
]
