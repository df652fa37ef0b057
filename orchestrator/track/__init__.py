"""The record shown in MLflow. A view: written, never read back to decide anything."""

from orchestrator.track.histories import histories
from orchestrator.track.scores import scores
from orchestrator.track.store import Unreachable
from orchestrator.track.sync import sync

__all__ = ["Unreachable", "histories", "scores", "sync"]
