"""A campaign over the five factors that have a meaning, and resolving as the launcher does it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest
from omegaconf import OmegaConf

from orchestrator.nouns import (
    Budget,
    Campaign,
    Direction,
    Factor,
    Metric,
    Overrides,
    Protocol,
    Training,
)

CONFIG = """
optimizer: {lr: 0.001, weight_decay: 0.0}
model: {dropout: 0.0}
schedule: {warmup: 0.0}
clip: null
seed: 0
"""

FACTORS = (
    Factor("lr", "optimizer.lr", 1e-3),
    Factor("weight_decay", "optimizer.weight_decay", 0.0),
    Factor("dropout", "model.dropout", 0.0),
    Factor("warmup", "schedule.warmup", 0.0),
    Factor("clip", "clip", None),
)

Resolve = Callable[[Sequence[Overrides]], tuple[str, ...]]


@pytest.fixture
def campaign() -> Campaign:
    return Campaign(
        name="digits",
        folder="runs/digits",
        training=Training("call", "train.main", CONFIG, "seed", ".", "c0de"),
        factors=FACTORS,
        metric=Metric("val/loss", Direction.MIN),
        budget=Budget(rounds=3, trials=300, trial_minutes=5.0, attempts=2),
        protocol=Protocol(
            alpha=0.05,
            looks=(5,),
            confirm_seeds=10,
            headline_seeds=10,
            max_ablations=10,
            max_hypotheses=2,
        ),
        workers=4,
    )


@pytest.fixture
def resolving() -> Callable[[str], Resolve]:
    """From a config's YAML text to `resolve`: overrides -> canonical JSON without the seed."""

    def of(text: str) -> Resolve:
        def resolve(overrides: Sequence[Overrides]) -> tuple[str, ...]:
            configs = []
            for pairs in overrides:
                config = OmegaConf.create(text)
                for key, value in pairs:
                    OmegaConf.update(config, key, value)
                tree = OmegaConf.to_container(config, resolve=True)
                del tree["seed"]
                configs.append(json.dumps(tree, sort_keys=True))
            return tuple(configs)

        return resolve

    return of
