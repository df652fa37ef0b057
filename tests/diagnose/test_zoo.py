"""A few of the fault zoo's trainings; all of them on 5 seeds are scripts/bench_zoo.py."""

import pytest
import torch
from zoo.scenarios import SCENARIOS, by_name
from zoo.training import train

from orchestrator.diagnose import RULES, diagnose
from orchestrator.telemetry import read

QUICK = (
    "missing zero_grad",
    "trunk detached",
    "softmax before cross-entropy",
    "all weights zero",
    "tokens: a mask that leaks",
    "experts left out at random",
    "Adam",
)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", QUICK)
def test_of_a_training_is_told_what_is_wrong_and_nothing_else(tmp_path, name):
    scenario = by_name(name)
    train(scenario.setup, 0, tmp_path)
    told = [finding.rule for finding in diagnose([read(tmp_path)])]
    assert told == [] if scenario.is_healthy else told[0] in scenario.expected


def test_the_table_names_rules_that_exist_and_no_scenario_twice():
    assert {rule for s in SCENARIOS for rule in s.expected} <= {*RULES, "refused_by_watch"}
    assert len({s.name for s in SCENARIOS}) == len(SCENARIOS)
    assert {s.is_healthy for s in SCENARIOS if s.is_tuned} == {True, False}
    assert {s.is_healthy for s in SCENARIOS if not s.is_tuned} == {True, False}
