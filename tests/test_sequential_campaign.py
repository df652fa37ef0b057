"""Campaigns that look at their seeds more than once, end to end on the toy training."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from orchestrator.nouns import Call, Record
from tests.toy_campaigns import command, prepared, record, run, steps, wait_until

EXP = """
train:
  call: toy.main
  config: {dropout: 0.0, seconds: 0.0, fault: {}}
factors: {dropout: {key: dropout, levels: [0.001, 0.4]}}
metric: {name: val/loss, direction: min, unit: nat, test: test/loss}
protocol: {headline_seeds: 4}
budget: {rounds: 1}
tracking_uri: null
workers: 2
"""


@pytest.fixture
def exp(tmp_path: Path) -> Path:
    return prepared(tmp_path, EXP)


def levels(exp: Path, *values: float) -> None:
    exp.write_text(EXP.replace("[0.001, 0.4]", str(list(values))))


def seeds_run(found: Record, arm: str) -> list[int]:
    return sorted(t.seed for t in found.trials.values() if t.arm == arm)


def test_a_clear_effect_stops_at_the_first_look(exp):
    said = run(exp)
    found = record(exp)
    (result,) = found.rounds[0].results
    verdicts = {v.arm: v for v in result.verdicts}
    assert verdicts["dropout=0.4"].call is Call.BETTER
    assert (result.comparisons.look, result.comparisons.n) == (1, 3)
    assert len(found.rounds[0].confirmation.seeds) == 5  # a gain that large needs no more
    assert found.rounds[0].confirmation.adopted
    assert found.headline.final.overrides == (("dropout", 0.4),)
    assert [s for s in steps(exp) if "look/" in s] == ["round/1/look/1/dropout"]
    for words in ("Look 1 of 4 (3 seeds, level 0.0045)", "3 to 10 baseline, 6 to 20 screening"):
        assert words in said
    assert len(found.trials) == 3 * 3 + 2 * 5 + 2 * 4


def test_an_arm_without_effect_is_dropped_and_told_why(exp):
    levels(exp, 0.003)
    said = run(exp, "metric.delta=0.05")
    found = record(exp)
    (verdict,) = found.rounds[0].results[0].verdicts
    assert (verdict.call, verdict.is_dropped) == (Call.INCONCLUSIVE, True)
    assert len(found.trials) == 2 * 3
    assert "inconclusive (dropped)" in said
    assert found.headline is None
    told = run(exp, "dropout=0.003", verb="explain")
    assert "dropped: a gain >= delta = 0.05 is unlikely" in told


def table(found: Record) -> list[tuple]:
    return [
        (c.arm, c.look, c.n_pairs, c.mean_difference, c.p_better, v.call, v.reason)
        for r in found.rounds
        for result in r.results
        for c, v in zip(result.comparisons.arms, result.verdicts, strict=True)
    ]


def test_a_run_killed_between_looks_resumes_to_the_same_table(exp):
    levels(exp, 0.003)
    slow = "train.config.seconds=0.1"  # time to be killed
    run(exp, slow)
    undisturbed, done = table(record(exp)), steps(exp)
    assert sum("look/" in s for s in done) == 4
    assert record(exp).rounds[0].results[0].comparisons.arms[0].n_pairs == 10
    told = run(exp, "dropout=0.003", verb="explain")
    assert "Look 2 of 4 (5 seeds, level 0.0087): dropout=0.003 goes on" in told
    shutil.rmtree(exp.parent / "campaign")
    for look in (1, 2):  # killed after each of them, resumed twice
        process = subprocess.Popen(
            command(exp, "run", slow), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        taken = f"round/1/look/{look}/dropout"
        wait_until(exp, lambda done, taken=taken: taken in done, seconds=120)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=60)
        assert f"round/1/look/{look + 1}/dropout" not in steps(exp)
    run(exp, slow)
    assert table(record(exp)) == undisturbed
    assert sorted(steps(exp)) == sorted(done)


def test_one_accident_at_the_first_look_is_made_good_by_the_next(exp):
    levels(exp, 0.4)
    run(exp, "+train.config.fault.1=raise", "budget.attempts=1")
    found = record(exp)
    arm = found.rounds[0].results[0].comparisons.arms[0]
    assert (arm.look, arm.n_pairs) == (2, 4)
    assert found.rounds[0].results[0].verdicts[0].is_candidate


def test_a_budget_that_ends_between_looks_judges_what_was_run(exp):
    levels(exp, 0.003)
    run(exp, "protocol.looks=[3,4]", "protocol.confirm_seeds=3", "budget.trials=14")
    folder = exp.parent / "campaign"
    whole = record(exp)
    assert whole.rounds[0].results[0].comparisons.look == 2
    lines = (folder / "ledger.jsonl").read_text().splitlines(keepends=True)
    first = next(i for i, s in enumerate(lines) if "look/1/dropout" in s)
    (folder / "ledger.jsonl").write_text("".join(lines[: first + 1]))
    said = run(exp, "protocol.looks=[3,4]", "protocol.confirm_seeds=3", "budget.trials=7")
    assert record(exp).rounds[0].results[0].comparisons.look == 1
    assert "the budget is spent (budget.trials=7)" in said


def test_policy_optimise_adopts_the_best_unproven_and_tests_only_the_headline(exp):
    said = run(exp, "protocol.policy=optimise", "budget.rounds=2")
    found = record(exp)
    first = found.rounds[0]
    assert first.confirmation is None
    assert first.adoption.arm.name == "dropout=0.4"
    assert found.headline.final.overrides == (("dropout", 0.4),)
    assert found.headline.test is not None
    screened = set(first.plan.seeds)
    assert screened.isdisjoint(found.headline.seeds)
    assert {t.seed for t in found.trials.values() if t.arm == "dropout=0.4"} <= screened
    assert "adopted, unproven" in said
    report = (exp.parent / "campaign" / "report" / "report.md").read_text()
    for words in ("| adopted, unproven |", "Policy `optimise`", "only the headline"):
        assert words in report
    assert "confirmation" not in report.split("Method and limits")[1].lower()
