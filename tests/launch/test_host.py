import logging
import math
import os
import random
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from orchestrator.launch.host import TimeLimit, judged, numbers_in, time_limit
from orchestrator.nouns import Status

LOSS = "val/loss"
FINE = {LOSS: 0.5, "train/loss": 0.1}
LOST = {LOSS: 0.5, "train/loss": math.nan}


@pytest.mark.parametrize(
    ("metrics", "error", "status", "reason"),
    [
        (FINE, None, Status.DONE, ""),
        (FINE, SystemExit(0), Status.DONE, ""),
        (FINE, SystemExit(), Status.DONE, ""),
        (FINE, SystemExit(1), Status.FAILED, "SystemExit: 1"),
        (FINE, ValueError("boom"), Status.FAILED, "ValueError: boom"),
        ({LOSS: math.inf}, None, Status.DIVERGED, "val/loss is inf"),
        (LOST, None, Status.DIVERGED, "train/loss is nan"),
        (LOST, ValueError("boom"), Status.DIVERGED, "train/loss is nan; then ValueError: boom"),
        ({"train/loss": math.inf}, None, Status.DIVERGED, "train/loss is inf"),
        (FINE, MemoryError(), Status.FAILED, "out of memory: MemoryError"),
        (FINE, torch.cuda.OutOfMemoryError("GPU 0"), Status.FAILED, "out of memory: torch."),
        (FINE, TimeLimit("stopped after 3 s"), Status.TIMED_OUT, "stopped after 3 s"),
        ({"val/los": 1.0}, None, Status.FAILED, "metric 'val/loss' was never logged"),
        ({"val/los": 1.0}, None, Status.FAILED, "did you mean 'val/los'"),
        ({}, None, Status.FAILED, "the program returned NoneType; logged: valid: (none)"),
    ],
)
def test_status_follows_from_what_was_logged_and_raised(metrics, error, status, reason):
    judgement = judged(LOSS, metrics, error, None)
    assert judgement[0] is status
    assert reason in judgement[1]


@pytest.mark.parametrize(
    ("returned", "metrics"),
    [
        (None, {}),
        (0.5, {LOSS: 0.5}),
        (1, {LOSS: 1.0}),
        (np.float32(0.5), {LOSS: 0.5}),
        (torch.tensor(0.5), {LOSS: 0.5}),
        ({"a": 1, "b": torch.tensor(2.0), "model": object()}, {"a": 1.0, "b": 2.0}),
        ((1.0, 2.0), {}),
        (np.zeros(3), {}),
        ("done", {}),
    ],
)
def test_a_program_returns_a_number_or_names_with_numbers(returned, metrics):
    assert numbers_in(returned, LOSS) == metrics


def test_a_time_limit_interrupts_and_is_gone_afterwards():
    with pytest.raises(TimeLimit), time_limit(0.01):
        time.sleep(5)
    with time_limit(60):
        pass
    with time_limit(None):
        pass


def test_a_trial_in_this_process_leaves_nothing_behind(bench):
    it = bench(
        """
        import logging, os, random, sys
        import numpy, torch

        def main(config):
            os.environ["LEFT"] = "behind"
            os.chdir(os.path.dirname(__file__))
            sys.path.append("left")
            sys.argv.append("left")
            logging.getLogger().addHandler(logging.NullHandler())
            logging.getLogger().setLevel(1)
            torch.set_num_threads(3)
            return random.random() + numpy.random.rand() + torch.rand(1).item()
        """,
        launcher="basic",
    )

    def around() -> tuple[object, ...]:
        random_states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
        root = logging.getLogger()
        return (
            dict(os.environ),
            Path.cwd(),
            sys.path[:],
            sys.argv[:],
            root.handlers[:],
            root.level,
            torch.get_num_threads(),
            str(random_states),
        )

    before = around()
    [outcome] = it.run(it.trial())
    assert outcome.status is Status.DONE
    assert around() == before
    assert "program" not in sys.modules


def test_two_programs_with_one_name_are_not_mixed_up(bench, tmp_path):
    for value in (1.0, 2.0):
        it = bench(f"def main(config):\n    return {value}", launcher="basic")
        [outcome] = it.run(it.trial())
        assert outcome.metrics == {LOSS: value}


def test_a_missing_function_names_the_nearest(bench):
    it = bench("def main(config): ...", target="program.mian", launcher="basic", attempts=1)
    [outcome] = it.run(it.trial())
    assert "module program has no mian" in outcome.reason
    assert "did you mean 'main'" in outcome.reason


@pytest.mark.parametrize("launcher", ["basic", "isolated"])
def test_what_a_monitor_still_holds_is_written_before_the_outcome_is_read(bench, launcher):
    """Also where the program keeps the monitor alive and never closes it."""
    it = bench(
        """
        import torch
        from orchestrator import watch

        KEPT = []

        def main(config):
            model = torch.nn.Linear(1, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            monitor = watch(model, optimizer)
            KEPT.append((monitor, model))
            for _ in range(3):
                loss = model(torch.ones(1, 1)).square().mean()
                loss.backward()
                optimizer.step()
                monitor.log(train_loss=loss * float("nan") if config.lost else loss)
            monitor.log(**{"val/loss": 0.25})
            if config.lost:
                raise ValueError("cannot go on")
        """,
        "lost: false",
        launcher=launcher,
    )
    fine, lost = it.run(*it.trials(((), 1), ((("lost", True),), 1)))
    assert fine.status is Status.DONE, fine.reason
    assert fine.metrics[LOSS] == 0.25
    assert lost.status is Status.DIVERGED
    assert lost.reason == "train/loss is nan; then ValueError: cannot go on"
