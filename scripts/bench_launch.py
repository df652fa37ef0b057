"""What a launcher costs per trial: 24 trivial torch trials, as ratios to the isolated launcher.

    python scripts/bench_launch.py [--trials 24] [--workers 2]

CPU seconds count the processes started; wall seconds mean little on a busy machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from orchestrator import launch  # noqa: E402
from orchestrator.nouns import (  # noqa: E402
    Arm,
    Budget,
    Campaign,
    Direction,
    Metric,
    Protocol,
    Training,
)

PROGRAM = """
import torch

def main(config):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.lr)
    for _ in range(20):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()

if __name__ == "__main__":
    import types
    torch.set_num_threads(1)
    main(types.SimpleNamespace(lr=0.1))
"""


@dataclass(frozen=True)
class Cost:
    """Seconds for all trials, the start of servers and workers included."""

    wall: float
    cpu: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    how_many = options.trials, options.workers
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "program.py").write_text(PROGRAM)
        first = measured(partial(by_launcher, folder, "isolated", 1, options.workers))
        costs = {
            launcher: measured(partial(by_launcher, folder, launcher, *how_many))
            for launcher in ("isolated", "joblib")
        }
        costs["subprocess each"] = measured(partial(by_subprocess, folder, *how_many))
    report(costs, first, *how_many)


def by_launcher(folder: Path, launcher: str, trials: int, workers: int) -> None:
    training = Training("call", "program.main", "lr: 0.1", "seed", str(folder), "")
    campaign = Campaign(
        name="bench",
        folder=str(folder / f"{launcher}-{trials}"),
        training=replace(training, code=launch.fingerprint(training)),
        factors=(),
        metric=Metric("val/loss", Direction.MIN),
        budget=Budget(rounds=1, trials=trials, trial_minutes=5, attempts=1),
        protocol=Protocol(0.05, (3,), 3, 3, 10, 2),
        launcher=launcher,
        workers=workers,
    )
    arm = Arm("baseline", (), launch.resolve(campaign.training, [()])[0])
    planned = [launch.plan_trial(campaign, arm, seed) for seed in range(trials)]
    outcomes = launch.launch(campaign, planned, on_outcome=lambda *_: None)
    assert all(outcome.status.is_result for outcome in outcomes.values()), outcomes
    launch.close()
    if launcher == "joblib":
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown(wait=True)


def by_subprocess(folder: Path, trials: int, workers: int) -> None:
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}

    def one(_: int) -> None:
        subprocess.run([sys.executable, str(folder / "program.py")], check=True, env=environ)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, range(trials)))


def measured(work: Callable[[], None]) -> Cost:
    wall, cpu = time.monotonic(), cpu_seconds()
    work()
    return Cost(time.monotonic() - wall, cpu_seconds() - cpu)


def cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def report(costs: dict[str, Cost], first: Cost, trials: int, workers: int) -> None:
    base = costs["isolated"]
    print(f"{trials} trivial torch trials, {workers} at once")
    print(f"python {platform.python_version()}, {os.cpu_count()} cores\n")
    print(f"{'':18}{'wall s':>9}{'ratio':>8}{'CPU s':>9}{'ratio':>8}")
    for name, cost in costs.items():
        ratios = cost.wall / base.wall, cost.cpu / base.cpu
        print(f"{name:18}{cost.wall:9.1f}{ratios[0]:8.1f}{cost.cpu:9.1f}{ratios[1]:8.1f}")
    added = 1000 * (base.cpu - first.cpu) / (trials - 1)
    print(f"\nisolated, each further trial: {added:.0f} ms of CPU; the first: {first.cpu:.1f} s")


if __name__ == "__main__":
    main()
