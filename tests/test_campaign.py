"""The loop end to end, from the command line, on a training that takes milliseconds."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.nouns import Call, Record, Status
from tests.toy_campaigns import (
    TOY,
    command,
    prepared,
    record,
    run,
    said_by,
    steps,
    wait_until,
)

EXP = """
train:
  call: toy.main
  config: {dropout: 0.0, decoy: 0.0, seconds: 0.0, fault: {}}
factors: {dropout: {key: dropout, levels: [0.1, 0.4]}}
metric: {name: val/loss, direction: min, unit: nat, test: test/loss}
protocol: {looks: [4], confirm_seeds: 4, headline_seeds: 4}
tracking_uri: null
workers: 2
"""


@pytest.fixture
def exp(tmp_path: Path) -> Path:
    return prepared(tmp_path, EXP)


def verdict_table(found: Record) -> list[tuple]:
    """Everything a verdict rests on, without times."""
    return [
        (r.number, result.ablation, c.arm, c.n_pairs, c.mean_difference, c.p_better, v.call)
        for r in found.rounds
        for result in r.results
        for c, v in zip(result.comparisons.arms, result.verdicts, strict=True)
    ]


def test_a_real_fault_is_found_tested_confirmed_adopted_and_told_once(exp):
    said = run(exp)
    found = record(exp)
    first = found.rounds[0]
    assert [f.rule for f in first.findings] == ["overfitting"]
    verdicts = {v.arm: v.call for v in first.results[0].verdicts}
    assert verdicts["dropout=0.4"] is Call.BETTER
    assert first.confirmation is not None
    assert first.confirmation.adopted
    assert found.headline is not None
    assert found.headline.test is not None
    assert found.headline.final.overrides == (("dropout", 0.4),)
    assert found.headline.test.arms[0].mean_difference > 0.5
    assert set(found.headline.seeds).isdisjoint(first.seeds + first.confirmation.seeds)
    assert found.ending
    for words in ("overfitting", "dropout=0.4", "better", found.ending):
        assert words in said
    assert (exp.parent / "campaign" / "report" / "report.html").exists()

    # The same command again runs nothing and finds the same.
    lines = (exp.parent / "campaign" / "ledger.jsonl").read_text()
    run(exp)
    assert (exp.parent / "campaign" / "ledger.jsonl").read_text() == lines
    assert verdict_table(record(exp)) == verdict_table(found)


@pytest.mark.slow
def test_a_killed_run_resumes_to_the_table_of_an_undisturbed_one(exp):
    run(exp)
    undisturbed, trials = verdict_table(record(exp)), trials_in(steps(exp))
    shutil.rmtree(exp.parent / "campaign")
    slow = "train.config.seconds=0.1"  # the verdicts are the same; there is time to be killed
    for number, least in ((signal.SIGKILL, 6), (signal.SIGINT, 13), (signal.SIGTERM, 20)):
        process = subprocess.Popen(
            command(exp, "run", slow),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        wait_until(exp, lambda done, n=least: trials_in(done) >= n, seconds=60)
        os.kill(process.pid, number)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == (-9 if number == signal.SIGKILL else 130), said
        assert least <= trials_in(steps(exp)) < least + 7
    run(exp, slow)
    assert trials_in(steps(exp)) == trials
    assert verdict_table(record(exp)) == undisturbed
    assert len(steps(exp)) == len(set(steps(exp)))


def trials_in(done):
    return sum("outcome/" in each for each in done)


def test_a_factor_wired_to_nothing_is_told_and_nothing_is_claimed(exp):
    exp.write_text(EXP.replace("{key: dropout, levels: [0.1, 0.4]}", "{key: decoy, levels: [0.4]}"))
    said = run(exp)
    found = record(exp)
    assert "wired" in said
    assert found.headline is None
    assert not any(v.is_candidate for r in found.rounds for a in r.results for v in a.verdicts)


def test_a_healthy_training_ends_with_nothing_to_explain(exp):
    said = run(exp, "train.config.dropout=0.5")
    found = record(exp)
    assert found.rounds[0].findings == ()
    assert len(found.outcomes) == 4
    assert found.ending in said


def test_an_arm_that_lives_where_the_baseline_always_diverges_is_adopted(exp):
    text = EXP.replace("dropout: 0.0,", "dropout: 0.5, lr: 3.0,")
    text = text.replace(
        "dropout: {key: dropout, levels: [0.1, 0.4]}", "lr: {key: lr, levels: [0.3]}"
    )
    exp.write_text(text.replace("looks: [4], confirm_seeds: 4,", "looks: [5], confirm_seeds: 5,"))
    run(exp)
    found = record(exp)
    diverged = {t.seed for t, o in found.of(found.rounds[0].baseline, found.rounds[0].seeds)}
    assert len(diverged) == 5
    assert found.rounds[0].confirmation.adopted
    assert found.headline.final.overrides == (("lr", 0.3),)


def test_mlflow_that_does_not_answer_stops_nothing_and_is_fed_later(exp):
    said = run(exp, "train.config.dropout=0.5", "tracking_uri=http://127.0.0.1:9")
    assert "warning" in said
    assert "report feeds MLflow later" in said
    uri = f"sqlite:///{exp.parent}/later.db"
    assert "workflowType" in run(exp, f"tracking_uri={uri}", verb="report")
    assert (exp.parent / "later.db").exists()


def test_one_failing_seed_is_retried_reported_and_left_out(exp):
    said = run(exp, "+train.config.fault.1=raise")
    found = record(exp)
    failed = [o for o in found.outcomes.values() if o.status is Status.FAILED]
    assert failed
    assert all(o.attempts == 2 and "cannot be trained" in o.reason for o in failed)
    assert "FAILED" in said
    assert found.rounds[0].results[0].comparisons.arms[0].n_pairs == 3


def test_a_program_that_always_raises_is_the_users_and_mending_it_resumes(exp):
    code = TOY.read_text()
    broken = code.replace("    rng =", "    raise KeyError('batch')\n    rng =")
    (exp.parent / "toy.py").write_text(broken)
    said = run(exp, "train.config.dropout=0.5", code=2)
    assert "KeyError" in said
    assert "output.txt" in said
    (exp.parent / "toy.py").write_text(code)
    run(exp, "train.config.dropout=0.5")
    assert record(exp).ending


def test_a_metric_that_is_never_logged_names_the_nearest(exp):
    said = run(exp, "metric.name=val/los", code=2)
    assert "val/los" in said
    assert "did you mean 'val/loss'" in said


def test_a_folder_that_belongs_to_another_campaign_is_refused_with_the_difference(exp):
    run(exp, "train.config.dropout=0.5")
    said = run(exp, "train.config.dropout=0.5", "protocol.looks=[5]", "monitor.level=full", code=2)
    assert "protocol.looks was (4,) and is now (5,)" in said
    assert "monitor.level was default and is now full" in said
    (exp.parent / "toy.py").write_text(TOY.read_text() + "\n\nMORE = 1\n")
    assert "training.code" in run(exp, "train.config.dropout=0.5", code=2)


def test_another_launcher_and_more_workers_may_resume(exp):
    run(exp, "train.config.dropout=0.5", "hydra/launcher=basic", "workers=1")
    run(exp, "train.config.dropout=0.5", "hydra/launcher=joblib", "workers=2")


def test_an_unknown_launcher_is_refused_before_anything_runs(exp):
    assert "isolated" in run(exp, "hydra/launcher=isolatd", code=2)


def test_a_budget_that_cannot_pay_for_the_next_stage_ends_the_campaign_honestly(exp):
    said = run(exp, "budget.trials=13")
    found = record(exp)
    assert len(found.trials) <= 13
    assert found.headline is None
    assert "budget.trials=13" in found.ending
    assert found.ending in said


def test_plan_status_report_and_explain_tell_without_running(exp):
    said = run(exp, "monitor.level=norms", verb="plan")
    for words in ("dropout=0.4", "dropout: 0 → 0.4", "trials", "monitor.level=norms"):
        assert words in said
    assert not (exp.parent / "campaign").exists()
    assert "no campaign" in run(exp, verb="status", code=2)
    run(exp)
    assert "dropout=0.4" in run(exp, verb="status")
    by_folder = [sys.executable, "-m", "orchestrator", "status", str(exp.parent / "campaign")]
    assert "dropout=0.4" in said_by(by_folder)
    shutil.rmtree(exp.parent / "campaign" / "report")
    assert "report.html" in run(exp, verb="report")
    said = run(exp, "dropout=0.4", verb="explain")
    for words in ("dropout=0.4", "better", "seeds", "interval"):
        assert words in said
    assert "dropout=0.4" in run(exp, "dropout=0.5", verb="explain", code=2)
