"""Inside the training process: what a training is like, recorded on the optimizer step."""

from orchestrator.monitor.streams import generator
from orchestrator.monitor.watch import Monitor, watch

__all__ = ["Monitor", "generator", "watch"]
