import dataclasses
import re

import pytest

from orchestrator.nouns import Arm, Direction, Hypothesis, Metric, Move
from orchestrator.plan import plan_round, reach
from orchestrator.stats.power import power
from orchestrator.stats.sequential import levels


def planned(campaign, delta=None):
    claim = Hypothesis("plateau", "lr", Move.UP, "", "", "train_loss", Move.DOWN)
    metric = dataclasses.replace(campaign.metric, delta=delta)
    return plan_round(
        dataclasses.replace(campaign, metric=metric),
        number=1,
        baseline=Arm("baseline"),
        hypotheses=[claim],
        telemetries=[],
    )


def test_the_gain_that_is_told_is_found_four_times_in_five(campaign):
    told = reach(planned(campaign), campaign, None)
    screened, confirmed = map(float, re.findall(r"([\d.]+) SD", told))
    assert "3 arms x 5 seeds" in told
    assert power(screened, n=5, k=3, alpha=0.1, rho=0.0) == pytest.approx(0.8, abs=0.02)
    assert power(confirmed, n=10, k=1, alpha=0.05, rho=0.0) == pytest.approx(0.8, abs=0.02)


def test_of_several_looks_the_last_is_told_at_its_own_level(campaign):
    protocol = dataclasses.replace(campaign.protocol, looks=(3, 5, 7, 10), confirm_seeds=None)
    sequential = dataclasses.replace(campaign, protocol=protocol)
    told = reach(planned(sequential), sequential, None)
    screened, confirmed = map(float, re.findall(r"([\d.]+) SD", told))
    assert "3 arms x at most 10 seeds" in told
    assert "the confirmation on at most 15" in told
    level = levels((3, 5, 7, 10), 0.1)[-1]
    assert power(screened, n=10, k=3, alpha=level, rho=0.0) == pytest.approx(0.8, abs=0.02)
    assert power(confirmed, n=15, k=1, alpha=0.05, rho=0.0) == pytest.approx(0.8, abs=0.02)


def test_a_measured_spread_turns_it_into_the_metrics_unit(campaign):
    metric = Metric("val/loss", Direction.MIN, unit="nat")
    asked = dataclasses.replace(campaign, metric=metric)
    told = reach(planned(campaign, delta=0.05), asked, 0.1)
    gains = [float(g) for g in re.findall(r"\(([\d.]+) nat", told)]
    sds = [float(g) for g in re.findall(r"([\d.]+) SD", told)]
    assert gains == pytest.approx([0.1 * s for s in sds], rel=0.06)
    assert "more than delta=0.05" in told
    assert "delta" not in reach(planned(campaign, delta=0.05), asked, 0.001)


def test_a_plan_without_ablations_finds_nothing(campaign):
    assert reach(dataclasses.replace(planned(campaign), ablations=()), campaign, 0.1) == ""
