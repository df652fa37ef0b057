"""What exp.yaml may say, as plain dataclasses that OmegaConf checks."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from omegaconf import MISSING

# OmegaConf reads an Enum by its members' names, and a user writes `min`, not `MIN`.
Direction = Enum("Direction", {"min": "min", "max": "max"})
Scale = Enum("Scale", {"log": "log", "linear": "linear"})
Level = Enum("Level", {"off": "off", "norms": "norms", "default": "default", "full": "full"})
Policy = Enum("Policy", {"product": "product", "optimise": "optimise"})
Role = Enum("Role", {"scientific": "scientific", "nuisance": "nuisance", "fixed": "fixed"})


@dataclass
class TrainConfig:
    """The program: `call` (module.function) or `script` (a Hydra app's file), and its config."""

    call: str | None = None
    script: str | None = None
    config: dict[str, Any] = field(default_factory=dict)
    seed_key: str = "seed"
    data: str = ""


@dataclass
class FactorConfig:
    """The long form of a factor; the short form is the key alone."""

    key: str = MISSING
    levels: list[Any] = field(default_factory=list)
    scale: Scale = Scale.linear
    role: Role = Role.scientific
    moves_with: list[str] = field(default_factory=list)


@dataclass
class MetricConfig:
    """What arms are ranked on; see nouns.Metric. `test` is the metric's name on the test split."""

    name: str = MISSING
    direction: Direction = MISSING
    unit: str = ""
    delta: float | None = None
    resolution: float = 0.0
    test: str | None = None


@dataclass
class BudgetConfig:
    """See nouns.Budget; values in conf/budget."""

    rounds: int = MISSING
    trials: int = MISSING
    trial_minutes: float = MISSING
    attempts: int = MISSING


@dataclass
class ProtocolConfig:
    """See nouns.Protocol; values in conf/protocol."""

    alpha: float = MISSING
    looks: list[int] = MISSING
    confirm_seeds: int | None = MISSING
    headline_seeds: int = MISSING
    max_ablations: int = MISSING
    max_hypotheses: int = MISSING
    first_seed: int = MISSING
    policy: Policy = MISSING


@dataclass
class MonitorConfig:
    """See nouns.Monitoring; values in conf/base.yaml."""

    level: Level = MISSING
    every: int | None = MISSING
    histograms: int = MISSING


@dataclass
class CampaignConfig:
    """Everything exp.yaml may say."""

    name: str = MISSING
    runs: str = MISSING
    folder: str = MISSING
    train: TrainConfig = field(default_factory=TrainConfig)
    factors: dict[str, Any] = field(default_factory=dict)
    metric: MetricConfig = field(default_factory=MetricConfig)
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    protocol: ProtocolConfig = field(default_factory=ProtocolConfig)
    monitor: MonitorConfig = field(default_factory=MonitorConfig)
    launcher: str = MISSING
    workers: int | None = None
    tracking_uri: str | None = None
    skip_rules: list[str] = field(default_factory=list)
    ask: list[str] = field(default_factory=list)


def field_names(kind: type) -> list[str]:
    """The keys a config dataclass has."""
    return [f.name for f in dataclasses.fields(kind)]
