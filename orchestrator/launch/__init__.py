"""Trials -> Outcomes, through any Hydra launcher.

    resolve   overrides -> canonical resolved configs, for preflight and for the trials' identities
    launch    trials -> outcomes; what is recorded on disk is read, the rest is run

The controller (compose, sources, batch) and the trial's process (host, surroundings, script) meet
in the trial's folder (files) alone. `isolated` and `warm` are our own launcher.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from orchestrator.launch import compose, script
from orchestrator.launch.batch import launch, read_outcome
from orchestrator.launch.isolated import close
from orchestrator.launch.sources import fingerprint
from orchestrator.nouns import Arm, Campaign, Overrides, Training, Trial

__all__ = [
    "baseline_config",
    "close",
    "fingerprint",
    "launch",
    "plan_trial",
    "read_outcome",
    "resolve",
]


def baseline_config(training: Training) -> str:
    """The program's own config as YAML text, interpolations unresolved; a script is asked."""
    return script.baseline_config(training) if training.kind == "script" else training.config


def resolve(training: Training, overrides: Sequence[Overrides]) -> tuple[str, ...]:
    """The resolved config without seed under each of `overrides`, as canonical JSON text.

    A key that the baseline's config lacks is refused.
    """
    compose.check_overrides(training, overrides)
    if training.kind == "script":
        return script.resolve_script(training, overrides)
    return compose.resolve_call(training, overrides)


def plan_trial(campaign: Campaign, arm: Arm, seed: int) -> Trial:
    """The trial of `arm` with `seed`; `arm.config` must be resolved.

    Two trials that would compute the same have the same identity, and one folder.
    """
    assert arm.config, f"arm {arm.name!r} was never resolved"
    training = campaign.training
    told = json.dumps([arm.config, training.code, training.data, seed])
    identity = hashlib.sha256(told.encode()).hexdigest()[:16]
    folder = Path(campaign.folder, "trials", identity)
    return Trial(identity, arm.name, seed, arm.overrides, arm.config, str(folder))
