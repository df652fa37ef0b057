import dataclasses

import numpy as np
import pytest

from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Arm, Budget, Factor, Hypothesis, Move, Policy, Series, Telemetry
from orchestrator.plan import foresee, freeze, plan_round

UP, DOWN, EITHER = Move.UP, Move.DOWN, Move.EITHER


def hypothesis(factor, move, finding="plateau"):
    return Hypothesis(finding, factor, move, "", "", "train_loss", DOWN)


def telemetry(n=1000, optimizer="SGD", lr=0.1):
    rng = np.random.default_rng(0)
    steps = np.arange(n)
    return Telemetry(
        {
            "train/loss": Series(steps, np.linspace(2.3, 0.1, n)),
            "grad_norm": Series(steps, np.exp(rng.normal(0, 0.3, n))),
            "lr": Series(steps, np.full(n, lr)),
        },
        {"optimizer": optimizer},
    )


def drawn(campaign, *hypotheses, baseline=None, **others):
    return plan_round(
        campaign,
        number=others.pop("number", 1),
        baseline=baseline or Arm("baseline"),
        hypotheses=hypotheses,
        telemetries=others.pop("telemetries", [telemetry()]),
        **others,
    )


def names(plan):
    return [[arm.name for arm in ablation.arms] for ablation in plan.ablations]


def limited(campaign, trials):
    return dataclasses.replace(campaign, budget=Budget(3, trials, 5.0, 2))


def test_a_plan_holds_explicit_arms_seeds_and_levels(campaign):
    plan = drawn(campaign, hypothesis("lr", UP), hypothesis("dropout", UP), number=2)
    assert names(plan) == [["lr=0.003", "lr=0.01", "lr=0.03"], ["dropout=0.2", "dropout=0.4"]]
    assert plan.ablations[0].arms[0].overrides == (("optimizer.lr", 0.003),)
    assert plan.seeds == (200, 201, 202, 203, 204)
    assert plan.confirm_seeds[0] == 300
    assert (plan.alpha, plan.alpha_screen) == (0.05, 0.1)


def test_every_arm_passes_the_preflight(campaign, resolving):
    everything = [hypothesis(f.name, DOWN if f.name == "clip" else UP) for f in campaign.factors]
    generous = dataclasses.replace(
        campaign, protocol=dataclasses.replace(campaign.protocol, max_hypotheses=9)
    )
    plan = drawn(generous, *everything)
    assert len(plan.ablations) == 5
    frozen = freeze(plan, campaign.training, resolving(campaign.training.config))
    assert all(arm.config for ablation in frozen.ablations for arm in ablation.arms)


def test_no_more_ablations_than_hypotheses_allowed(campaign):
    plan = drawn(campaign, hypothesis("lr", UP), hypothesis("dropout", UP), hypothesis("clip", UP))
    assert [a.name for a in plan.ablations] == ["lr", "dropout"]
    assert "left for a later round: clip up" in plan.notes[0]


def test_a_factor_is_varied_once_per_round(campaign):
    plan = drawn(campaign, hypothesis("lr", UP), hypothesis("lr", EITHER), hypothesis("clip", DOWN))
    assert [a.name for a in plan.ablations] == ["lr", "clip"]


def test_adopted_overrides_are_carried_on_and_set_the_level_to_start_from(campaign):
    adopted = Arm("baseline", (("clip", 1.0), ("optimizer.lr", 0.01)))
    plan = drawn(campaign, hypothesis("lr", EITHER), baseline=adopted)
    assert names(plan) == [["lr=0.00333", "lr=0.03"]]
    assert plan.ablations[0].arms[1].overrides == (("clip", 1.0), ("optimizer.lr", 0.03))
    assert plan.ablations[0].factor.baseline == 0.01
    assert plan.baseline == adopted


def test_levels_are_taken_from_what_was_measured(campaign):
    norms = drawn(campaign, hypothesis("clip", DOWN)).ablations[0].arms
    assert len(norms) == 2
    decay = drawn(campaign, hypothesis("weight_decay", UP))
    assert names(decay) == [["weight_decay=0.0001", "weight_decay=0.001", "weight_decay=0.01"]]
    decoupled = [telemetry(optimizer="AdamW", lr=3e-4)]
    decay = drawn(campaign, hypothesis("weight_decay", UP), telemetries=decoupled)
    assert names(decay) == [["weight_decay=0.1", "weight_decay=1", "weight_decay=10"]]


def test_a_factor_without_a_level_is_told_and_makes_room(campaign):
    plan = drawn(
        campaign,
        hypothesis("weight_decay", DOWN),
        hypothesis("dropout", UP),
        hypothesis("lr", UP),
    )
    assert [a.name for a in plan.ablations] == ["dropout", "lr"]
    assert plan.notes == ("weight_decay: no level lies down from 0",)


def test_clip_without_norms_is_told(campaign):
    plan = drawn(campaign, hypothesis("clip", DOWN), telemetries=[])
    assert plan.ablations == ()
    assert "recorded gradient norms" in plan.notes[0]


def test_arms_are_trimmed_to_the_budget_and_the_number_that_would_fit_is_named(campaign):
    both = (hypothesis("lr", UP), hypothesis("dropout", UP))
    plan = drawn(limited(campaign, 45), *both)  # 45 - 5 baseline - 20 confirming = 4 arms x 5
    assert names(plan) == [["lr=0.003", "lr=0.01"], ["dropout=0.2", "dropout=0.4"]]
    assert "tell more: lr=0.03" in plan.notes[0]
    assert "budget.trials=50 would pay for all 5 arms" in plan.notes[0]
    whole = drawn(limited(campaign, 50), *both)
    assert len(whole.ablations[1].arms) == 2
    assert whole.notes == ()


def test_trials_that_were_spent_count(campaign):
    plan = drawn(limited(campaign, 50), hypothesis("lr", UP), spent=20)
    assert names(plan) == [["lr=0.003", "lr=0.01"]]
    assert "leaves 30 trials" in plan.notes[0]


def test_a_spent_budget_leaves_no_ablation_but_a_note(campaign):
    plan = drawn(limited(campaign, 10), hypothesis("lr", UP))
    assert plan.ablations == ()
    assert "budget.trials=40 would pay" in plan.notes[0]


def test_the_budget_pays_for_every_look_and_the_largest_confirmation(campaign):
    protocol = dataclasses.replace(campaign.protocol, looks=(3, 5), confirm_seeds=None)
    sequential = dataclasses.replace(campaign, protocol=protocol)
    plan = drawn(limited(sequential, 45), hypothesis("lr", UP))  # 45 - 3 - 2 more - 30 = 2 x 5
    assert names(plan) == [["lr=0.003", "lr=0.01"]]
    assert "a confirmation takes at most 30 and an arm at most 5" in plan.notes[0]
    assert "budget.trials=50 would pay" in plan.notes[0]
    assert (plan.looks, len(plan.seeds)) == ((3, 5), 5)
    assert (plan.confirm_from, len(plan.confirm_seeds)) == (5, 15)


def test_whoever_only_optimises_pays_for_no_confirmation(campaign):
    protocol = dataclasses.replace(campaign.protocol, policy=Policy.OPTIMISE)
    greedy = dataclasses.replace(campaign, protocol=protocol)
    plan = drawn(limited(greedy, 20), hypothesis("lr", UP))  # 20 - 5 baseline = 3 arms x 5
    assert names(plan) == [["lr=0.003", "lr=0.01", "lr=0.03"]]
    assert plan.confirm_seeds == ()


def test_none_and_texts_have_readable_arm_names(campaign):
    factors = (
        Factor("clip", "clip", 1e-3),
        Factor("activation", "model.activation", "relu", levels=("gelu", "tanh")),
        Factor("nesterov", "optimizer.nesterov", False, levels=(True,)),
    )
    custom = dataclasses.replace(
        campaign,
        factors=factors,
        protocol=dataclasses.replace(campaign.protocol, max_hypotheses=3),
    )
    plan = drawn(custom, *(hypothesis(f.name, UP) for f in factors), telemetries=[])
    assert names(plan) == [
        ["clip=0.01", "clip=none"],
        ["activation=gelu", "activation=tanh"],
        ["nesterov=true"],
    ]


def test_foreseeing_shows_every_mapped_factor_before_anything_is_measured(campaign, resolving):
    plan = foresee(campaign)
    assert [a.name for a in plan.ablations] == ["lr", "weight_decay", "dropout", "warmup"]
    assert names(plan)[0] == ["lr=0.000333", "lr=0.003"]
    assert any("clip" in note for note in plan.notes)
    freeze(plan, campaign.training, resolving(campaign.training.config))


def test_foreseeing_leaves_out_what_has_neither_rule_nor_levels(campaign):
    factors = (Factor("batch", "batch", 32), Factor("width", "width", 64, levels=(32, 128)))
    plan = foresee(dataclasses.replace(campaign, factors=factors))
    assert names(plan) == [["width=32", "width=128"]]


def test_a_factor_whose_levels_cannot_be_derived_is_an_error(campaign):
    custom = dataclasses.replace(campaign, factors=(Factor("dropout", "p", None),))
    with pytest.raises(OrchestratorError, match="no number"):
        drawn(custom, hypothesis("dropout", UP))
