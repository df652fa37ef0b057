"""Hydra's view of the launcher `isolated`; the work is in orchestrator/launch/isolated.py.

Hydra imports this file whenever it looks for plugins, so that it imports nothing heavy. It does so
before the module is in sys.modules, where a dataclass would look up annotations that are text: no
`from __future__ import annotations` here.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


@dataclass
class IsolatedLauncherConf:
    """`preload` names what the warm server imports before it forks the jobs' processes."""

    _target_: str = "hydra_plugins.isolated_launcher.IsolatedLauncher"
    workers: int = 1
    timeout_seconds: float | None = None
    preload: list[str] = field(default_factory=list)


ConfigStore.instance().store(
    group="hydra/launcher", name="isolated", node=IsolatedLauncherConf, provider="orchestrator"
)


class IsolatedLauncher(Launcher):
    """Each job its own process, forked from a warm server."""

    def __init__(self, workers: int, timeout_seconds: float | None, preload: Sequence[str]) -> None:
        self._options = {"workers": workers, "preload": list(preload)}
        self._batch: dict[str, Any] = {"timeout_seconds": timeout_seconds}

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Keep what every job is made of."""
        self._batch |= {
            "hydra_context": hydra_context,
            "task_function": task_function,
            "config": config,
        }

    def launch(
        self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int
    ) -> Sequence[JobReturn]:
        """Run one job per list of overrides."""
        from orchestrator.launch import isolated

        batch = isolated.Batch(**self._batch)
        return isolated.launch(batch, job_overrides, first=initial_job_idx, **self._options)
