import dataclasses

from orchestrator.nouns import Arm, Hypothesis, Move
from orchestrator.plan import cost, plan_round


def planned(campaign):
    claim = Hypothesis("plateau", "lr", Move.UP, "", "", "train_loss", Move.DOWN)
    return plan_round(
        campaign, number=1, baseline=Arm("baseline"), hypotheses=[claim], telemetries=[]
    )


def test_cost_counts_trials_by_stage(campaign):
    told = cost(planned(campaign), campaign, None)
    assert "5 baseline, 15 screening, 20 confirming, 20 headline; " in told
    assert "20 at least if no arm is a candidate, 60 at most" in told
    assert "budget.trials=300 over at most 3 rounds" in told
    assert "known once the baseline has run" in told


def test_cost_tells_time_in_waves_of_workers(campaign):
    assert "At most 30 s with 4 workers, 2 s a trial" in cost(planned(campaign), campaign, 2.0)
    alone = dataclasses.replace(campaign, workers=1)
    assert "At most 60 min with 1 worker," in cost(planned(alone), alone, 60.0)
    assert "At most 16.7 h" in cost(planned(alone), alone, 1000.0)


def test_a_plan_without_ablations_costs_its_baseline(campaign):
    bare = dataclasses.replace(planned(campaign), ablations=())
    assert "5 baseline; 5 at most" in cost(bare, campaign, None)


def test_with_several_looks_the_fewest_and_the_most_are_told(campaign):
    protocol = dataclasses.replace(campaign.protocol, looks=(3, 5, 10), confirm_seeds=None)
    sequential = dataclasses.replace(campaign, protocol=protocol)
    told = cost(planned(sequential), sequential, None)
    assert "3 to 10 baseline, 9 to 30 screening, 10 to 30 confirming, 20 headline" in told
    assert "12 at least if no arm is a candidate, 90 at most" in told
