"""Automated controlled-experiment tuning for PyTorch training; its names load when first used."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.errors import OrchestratorError
    from orchestrator.library import ComparisonResult, compare, mlflow_scores
    from orchestrator.monitor import Monitor, generator, watch
    from orchestrator.monitor.huggingface import HuggingFaceMonitor
    from orchestrator.monitor.lightning import LightningMonitor

__all__ = [
    "ComparisonResult",
    "HuggingFaceMonitor",
    "LightningMonitor",
    "Monitor",
    "OrchestratorError",
    "compare",
    "generator",
    "mlflow_scores",
    "watch",
]

_HOMES = {
    "ComparisonResult": "orchestrator.library",
    "HuggingFaceMonitor": "orchestrator.monitor.huggingface",  # needs transformers
    "LightningMonitor": "orchestrator.monitor.lightning",  # needs lightning
    "Monitor": "orchestrator.monitor",
    "OrchestratorError": "orchestrator.errors",
    "compare": "orchestrator.library",
    "generator": "orchestrator.monitor",
    "mlflow_scores": "orchestrator.library",
    "watch": "orchestrator.monitor",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
