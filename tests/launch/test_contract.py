"""What holds for every launcher: one bad trial harms no other, and files say how each ended."""

import json
from pathlib import Path

import pytest

from orchestrator import launch
from orchestrator.nouns import Level, Monitoring, Status

LAUNCHERS = ["basic", "joblib", "isolated"]

PROGRAM = """
    import json
    import os
    import random
    import signal

    import numpy

    class Unpicklable(Exception):
        def __init__(self):
            super().__init__("cannot travel")
            self.hook = lambda: None

    def main(config):
        with open(f"{os.environ['ORCHESTRATOR_TRIAL_FOLDER']}/../../begun.txt", "a") as log:
            log.write(f"{config.mode} {config.seed}\\n")
        if config.mode == "raise":
            raise ValueError(f"seed {config.seed} is bad")
        if config.mode == "unpicklable":
            raise Unpicklable
        if config.mode == "exit":
            raise SystemExit(3)
        if config.mode == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if config.mode == "nan":
            return float("nan")
        if config.mode == "silent":
            return None
        facts = json.loads(os.environ["ORCHESTRATOR_TRIAL_FACTS"])
        folder = os.environ["ORCHESTRATOR_TRIAL_FOLDER"]
        return {
            "val/loss": config.lr + config.seed,
            "draw": random.random() + numpy.random.rand(),
            "is_full": os.environ["ORCHESTRATOR_MONITOR_LEVEL"] == "full",
            "every": int(os.environ.get("ORCHESTRATOR_MONITOR_EVERY", 0)),
            "seed_told": facts["seed"] if folder.endswith(facts["trial"]) else -1,
        }
"""

CONFIG = "{lr: 0.1, mode: fine, text: plain, flag: false}"


def begun(bench) -> list[str]:
    return Path(bench.campaign.folder, "begun.txt").read_text().splitlines()


@pytest.mark.parametrize("launcher", LAUNCHERS)
class TestEveryLauncher:
    def test_one_bad_trial_harms_no_other(self, bench, launcher):
        modes = ["raise", "nan", "unpicklable", "exit", "silent"]
        modes += [] if launcher == "basic" else ["kill"]
        it = bench(PROGRAM, CONFIG, launcher=launcher)
        bad = [it.trial((("mode", mode),)) for mode in modes]
        good = [it.trial((("lr", 1e-3), ("text", "a,{b}: 'c'")), seed) for seed in (7, 8)]
        ended = dict(zip([*modes, 7, 8], it.run(*bad, *good), strict=True))

        for seed in (7, 8):
            assert ended[seed].status is Status.DONE
            assert ended[seed].metrics["val/loss"] == 1e-3 + seed
        assert ended[7].metrics["draw"] != ended[8].metrics["draw"]
        assert ended["nan"].status is Status.DIVERGED
        assert ended["nan"].attempts == 1
        assert ended["raise"].status is Status.FAILED
        assert ended["raise"].reason.startswith("ValueError: seed 1 is bad\n")
        assert "program.py" in ended["raise"].reason
        assert ended["unpicklable"].reason.startswith("program.Unpicklable: cannot travel")
        assert ended["exit"].reason.startswith("SystemExit: 3")
        assert "metric 'val/loss' was never logged" in ended["silent"].reason
        for mode in set(modes) - {"nan", "kill"}:
            assert ended[mode].status is Status.FAILED
            assert ended[mode].attempts == 2
            assert begun(it).count(f"{mode} 1") == 2
        if launcher != "basic":
            assert ended["kill"].status is Status.LOST
            assert begun(it).count("kill 1") == 2
        assert len(it.told) == len(ended)

    def test_a_trial_is_the_same_again(self, bench, launcher):
        """Seeds hold for every generator, and nothing leaks from the trial before."""
        monitor = Monitoring(Level.FULL, every=7)
        it = bench(PROGRAM, CONFIG, launcher=launcher, monitor=monitor)
        trials = [it.trial((), 3), it.trial((("lr", 0.2),), 3), it.trial((("lr", 0.3),), 3)]
        outcomes = it.run(*trials)
        assert len({outcome.metrics["draw"] for outcome in outcomes}) == 1
        assert {(o.metrics["is_full"], o.metrics["every"]) for o in outcomes} == {(1, 7)}
        assert {outcome.metrics["seed_told"] for outcome in outcomes} == {3}
        quiet = bench(PROGRAM, CONFIG, launcher=launcher)
        assert quiet.trial((), 3).identity == trials[0].identity

    def test_what_is_recorded_is_read_and_not_run(self, bench, launcher):
        it = bench(PROGRAM, CONFIG, launcher=launcher)
        first = [it.trial((), 1), it.trial((("mode", "nan"),), 1), it.trial((("mode", "raise"),))]
        before = it.run(*first)
        runs = len(begun(it))
        it.told.clear()
        after = it.run(*first, it.trial((), 2))
        assert json.dumps([o.metrics for o in before]) == json.dumps([o.metrics for o in after[:3]])
        assert len(begun(it)) == runs + 1
        assert {trial.identity for trial, _ in it.told} == {t.identity for t in first} | {
            it.trial((), 2).identity
        }

    def test_a_config_that_changed_since_it_was_planned_is_not_trained(self, bench, launcher):
        it = bench(PROGRAM, CONFIG, launcher=launcher, attempts=1)
        planned = it.trial((("lr", 0.2),))
        stale = type(planned)(
            **{
                **{name: getattr(planned, name) for name in planned.__slots__},
                "config": planned.config.replace("0.2", "0.3"),
            }
        )
        [outcome] = it.run(stale)
        assert outcome.status is Status.FAILED
        assert outcome.reason == "config differs from the frozen one: lr was 0.3 and is 0.2"


@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_a_trial_is_stopped_at_its_time_limit(bench, launcher):
    program = """
        import time

        def main(config):
            time.sleep(config.sleep)
            return 1.0
    """
    it = bench(program, "sleep: 0", launcher=launcher, trial_minutes=0.3 / 60)
    slow, fast = it.run(it.trial((("sleep", 60),)), it.trial((("sleep", 0),)))
    assert slow.status is Status.TIMED_OUT
    assert 0.3 <= slow.seconds < 10
    assert fast.status is Status.DONE


def test_identity_is_of_config_code_data_and_seed(bench):
    it = bench(PROGRAM, CONFIG)
    same = it.trial((), 1)
    assert it.trial((("lr", 0.1),), 1).identity == same.identity
    assert it.trial((), 2).identity != same.identity
    assert it.trial((("lr", 0.2),), 1).identity != same.identity
    assert launch.read_outcome(same) is None
    assert Path(same.folder).name == same.identity
