"""Automated controlled-experiment tuning for PyTorch training; its names load when first used."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.errors import OrchestratorError
    from orchestrator.monitor import Monitor, generator, watch

__all__ = ["Monitor", "OrchestratorError", "generator", "watch"]

_HOMES = {
    "Monitor": "orchestrator.monitor",
    "OrchestratorError": "orchestrator.errors",
    "generator": "orchestrator.monitor",
    "watch": "orchestrator.monitor",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
