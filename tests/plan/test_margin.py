import dataclasses
import statistics

import pytest

from orchestrator.nouns import Arm, Direction, Hypothesis, Metric, Move
from orchestrator.plan import default_delta, plan_round

SCORES = [0.51, 0.48, 0.55, 0.47, 0.50, 0.52, 0.49, 0.53, 0.46, 0.54]
CLAIM = Hypothesis("plateau", "lr", Move.UP, "", "", "train_loss", Move.DOWN)


def planned(campaign, earlier):
    return plan_round(
        campaign,
        number=2,
        baseline=Arm("baseline"),
        hypotheses=[CLAIM],
        telemetries=[],
        earlier=earlier,
    )


def test_ten_earlier_seeds_name_a_delta_and_the_plan_says_so(campaign):
    plan = planned(campaign, SCORES)
    assert plan.delta == pytest.approx(0.95 * statistics.stdev(SCORES))
    assert any("10 earlier baseline seeds" in note for note in plan.notes)


def test_one_run_of_an_arm_better_by_it_beats_the_baseline_in_three_of_four_pairs():
    runs = [statistics.NormalDist().inv_cdf((i + 0.5) / 999) for i in range(999)]
    difference = statistics.NormalDist(default_delta(runs), 2**0.5)  # of two runs
    assert 1 - difference.cdf(0) == pytest.approx(0.75, abs=0.005)


def test_fewer_seeds_or_no_spread_name_none(campaign):
    assert planned(campaign, SCORES[:9]).delta is None
    assert default_delta([0.5] * 12) is None


def test_the_users_own_delta_stands(campaign):
    asked = dataclasses.replace(campaign, metric=Metric("val/loss", Direction.MIN, delta=0.3))
    plan = planned(asked, SCORES)
    assert plan.delta == 0.3
    assert not any("delta" in note for note in plan.notes)
