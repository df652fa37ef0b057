from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from orchestrator import launch
from orchestrator.nouns import (
    Arm,
    Budget,
    Campaign,
    Direction,
    Metric,
    Outcome,
    Overrides,
    Protocol,
    Training,
    Trial,
)


@pytest.fixture(scope="session", autouse=True)
def no_servers_left() -> Iterator[None]:
    yield
    launch.close()
    from joblib.externals.loky import get_reusable_executor

    get_reusable_executor().shutdown(wait=True, kill_workers=True)


class Bench:
    """A program in a folder, and a campaign about it."""

    def __init__(self, folder: Path, program: str, config: str, **changes: object) -> None:
        self.folder = folder
        self.told: list[tuple[Trial, Outcome]] = []
        (folder / "program.py").write_text(dedent(program))
        training = Training("call", "program.main", dedent(config), "seed", str(folder), "")
        names = {"kind", "target", "seed_key"}
        training = replace(training, **{k: v for k, v in changes.items() if k in names})
        budget = Budget(rounds=1, trials=100, trial_minutes=5, attempts=2)
        names = {"trial_minutes", "attempts"}
        budget = replace(budget, **{k: v for k, v in changes.items() if k in names})
        campaign = Campaign(
            name="bench",
            folder=str(folder / "runs" / "bench"),
            training=replace(training, code=launch.fingerprint(training)),
            factors=(),
            metric=Metric("val/loss", Direction.MIN),
            budget=budget,
            protocol=Protocol(0.05, (3,), 3, 3, 10, 2),
            workers=2,
        )
        names = {"launcher", "launcher_overrides", "workers", "monitor"}
        self.campaign = replace(campaign, **{k: v for k, v in changes.items() if k in names})

    def trial(self, overrides: Overrides = (), seed: int = 1) -> Trial:
        return self.trials((overrides, seed))[0]

    def trials(self, *pairs: tuple[Overrides, int]) -> list[Trial]:
        configs = launch.resolve(self.campaign.training, [overrides for overrides, _ in pairs])
        return [
            launch.plan_trial(self.campaign, Arm("arm", overrides, config), seed)
            for (overrides, seed), config in zip(pairs, configs, strict=True)
        ]

    def run(self, *trials: Trial) -> list[Outcome]:
        outcomes = launch.launch(
            self.campaign, trials, on_outcome=lambda *pair: self.told.append(pair)
        )
        return [outcomes[trial.identity] for trial in trials]


@pytest.fixture
def bench(tmp_path: Path) -> Callable[..., Bench]:
    def make(program: str, config: str = "{lr: 0.1, mode: fine}", **changes: object) -> Bench:
        return Bench(tmp_path, program, config, **changes)

    return make
