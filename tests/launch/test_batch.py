import json
from dataclasses import replace

import pytest

from orchestrator import launch
from orchestrator.errors import OrchestratorError
from orchestrator.launch import isolated
from orchestrator.launch.files import TrialFiles
from orchestrator.nouns import Arm, Status

COUNTED = """
    from pathlib import Path

    def main(config):
        count = Path(__file__).with_name(f"count{config.seed}")
        begun = int(count.read_text()) + 1 if count.exists() else 1
        count.write_text(str(begun))
        if begun <= config.fails:
            raise {error}
        return float(begun)
"""


def counted(bench, error: str, fails: int, **changes):
    return bench(COUNTED.replace("{error}", error), f"fails: {fails}", launcher="basic", **changes)


def test_an_accident_is_tried_again_and_its_result_counts(bench):
    it = counted(bench, "OSError('passing trouble')", fails=1)
    [outcome] = it.run(it.trial())
    assert (outcome.status, outcome.attempts) == (Status.DONE, 2)
    assert len(it.told) == 1


def test_attempts_are_counted_over_resumptions_and_can_be_raised(bench):
    it = counted(bench, "OSError('lasting trouble')", fails=2)
    trial = it.trial()
    assert it.run(trial)[0].attempts == 2
    assert it.run(trial)[0].status is Status.FAILED
    it.campaign = replace(it.campaign, budget=replace(it.campaign.budget, attempts=3))
    [outcome] = it.run(trial)
    assert (outcome.status, outcome.attempts) == (Status.DONE, 3)


def test_an_interrupt_is_raised_and_uses_up_no_attempt(bench):
    it = counted(bench, "KeyboardInterrupt", fails=1, attempts=1)
    fine, interrupted = it.trials(((("fails", 0),), 1), ((), 2))
    with pytest.raises(KeyboardInterrupt):
        it.run(fine, interrupted)
    assert launch.read_outcome(fine).status is Status.DONE
    assert launch.read_outcome(interrupted) is None
    assert TrialFiles(interrupted.folder).count_attempts() == 0
    assert [outcome.metrics["val/loss"] for outcome in it.run(fine, interrupted)] == [1.0, 2.0]


def test_a_trial_that_took_us_along_in_every_attempt_is_lost(bench):
    it = counted(bench, "OSError", fails=0)
    trial = it.trial()
    files = TrialFiles(trial.folder)
    files.folder.mkdir(parents=True)
    files.set_attempts(2)
    [outcome] = it.run(trial)
    assert outcome.status is Status.LOST
    assert "so did the process that launched it" in outcome.reason


def test_an_attempt_is_not_used_up_by_the_death_of_the_process_that_launched_it(bench):
    it = bench("def main(config):\n    return 1.0", attempts=1)
    trial = it.trial()
    files = TrialFiles(trial.folder)
    files.folder.mkdir(parents=True)
    files.set_attempts(1)
    [outcome] = it.run(trial)
    assert (outcome.status, outcome.attempts) == (Status.DONE, 1)


def test_trials_that_would_compute_the_same_are_run_once(bench):
    it = counted(bench, "OSError", fails=0)
    one, same = it.trials(((), 1), ((("fails", 0),), 1))
    first, second = it.run(one, same)
    assert first is second
    assert len(it.told) == 1


def test_what_on_outcome_raises_comes_through(bench):
    it = counted(bench, "OSError", fails=0)
    trial = it.trial()

    def refuse(trial, outcome):
        raise OSError("disk full")

    for _ in ("told by the thread that watches", "told while what is recorded is read"):
        with pytest.raises(OSError, match="disk full"):
            launch.launch(it.campaign, [trial], on_outcome=refuse)
    assert launch.read_outcome(trial).status is Status.DONE


def test_the_frozen_trial_and_its_outcome_lie_in_its_folder(bench):
    it = counted(bench, "OSError", fails=0)
    trial = it.trial((), 5)
    it.run(trial)
    frozen = json.loads(TrialFiles(trial.folder).job.read_text())
    assert frozen["trial"]["config"] == '{"fails": 0}'
    assert frozen["trial"]["seed"] == 5
    recorded = json.loads(TrialFiles(trial.folder).outcome.read_text())
    assert recorded["identity"] == trial.identity
    assert recorded["started"] > 0


def test_an_unknown_launcher_names_the_nearest(bench):
    it = bench("def main(config): ...", launcher="isolate")
    with pytest.raises(OrchestratorError, match="did you mean 'isolated'"):
        it.run(it.trial())


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("hydra.launcher.n_jobs=3", "n_jobs"),
        ("hydra.launcher.workers=many", "workers"),
        ("hydra.launcher.workers=[", "workers"),
    ],
)
def test_a_launchers_wrong_setting_is_the_users_mistake(bench, override, told):
    it = bench("def main(config): ...", launcher_overrides=(override,))
    with pytest.raises(OrchestratorError, match=told):
        it.run(it.trial())


def test_a_launcher_that_begins_nothing_is_told_once(bench, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("sbatch: command not found")

    monkeypatch.setattr(isolated, "launch", fail)
    it = bench("def main(config): ...")
    with pytest.raises(OrchestratorError, match=r"no trial was begun: .*sbatch: command not found"):
        it.run(it.trial(), it.trial((), 2))


def test_an_arm_that_was_never_resolved_is_a_fault_of_ours(bench):
    it = bench("def main(config): ...")
    with pytest.raises(AssertionError, match="never resolved"):
        launch.plan_trial(it.campaign, Arm("arm"), 1)
