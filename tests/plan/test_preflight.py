import dataclasses

import pytest

from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Ablation, Arm, Factor, Hypothesis, Move, Plan
from orchestrator.plan import diff, freeze

CLAIM = Hypothesis("plateau", "lr", Move.UP, "", "", "train_loss", Move.DOWN)
LR = Factor("lr", "optimizer.lr", 1e-3)

INDEPENDENT = "{optimizer: {lr: 0.001, weight_decay: 0.0}, clip: 1.0, seed: 0}"
INTERPOLATED = "{optimizer: {lr: 0.001}, clip: '${optimizer.lr}', seed: 0}"


def planned(factor, *arms):
    return Plan(1, Arm("baseline"), (Ablation(factor.name, CLAIM, factor, arms),), (), (), 0.05, 1)


def arm(name, **overrides):
    return Arm(name, tuple((k.replace("__", "."), v) for k, v in sorted(overrides.items())))


def test_freezing_fills_in_every_resolved_config(campaign, resolving):
    plan = planned(LR, arm("lr=0.01", optimizer__lr=0.01), arm("lr=0.1", optimizer__lr=0.1))
    frozen = freeze(plan, campaign.training, resolving(INDEPENDENT))
    assert frozen.baseline.config
    for each in frozen.ablations[0].arms:
        changes = diff(frozen.baseline.config, each.config)
        assert [key for key, _, _ in changes] == ["optimizer.lr"]


def test_an_interpolation_that_moves_along_is_refused_in_these_words(campaign, resolving):
    plan = planned(LR, arm("lr_high", optimizer__lr=0.01))
    with pytest.raises(OrchestratorError) as told:
        freeze(plan, campaign.training, resolving(INTERPOLATED))
    assert str(told.value) == (
        "arm 'lr_high' was to change only optimizer.lr, but also changes clip (0.001 -> 0.01).\n"
        "  -> pin clip in the baseline, or declare it under factors.lr.moves_with."
    )


def test_a_declared_companion_may_move_along(campaign, resolving):
    factor = dataclasses.replace(LR, moves_with=("clip",))
    plan = planned(factor, arm("lr=0.01", optimizer__lr=0.01))
    assert freeze(plan, campaign.training, resolving(INTERPOLATED)).ablations[0].arms[0].config


def test_an_arm_that_is_the_baseline_is_refused(campaign, resolving):
    plan = planned(LR, arm("lr=0.001", optimizer__lr=1e-3))
    with pytest.raises(OrchestratorError, match=r"'lr=0\.001' was to change optimizer\.lr, but"):
        freeze(plan, campaign.training, resolving(INDEPENDENT))


def test_two_arms_with_one_config_are_refused(campaign, resolving):
    plan = planned(LR, arm("lr=0.01", optimizer__lr=0.01), arm("lr=0.010", optimizer__lr=0.01))
    with pytest.raises(OrchestratorError, match=r"'lr=0\.010' and 'lr=0\.01' have the same"):
        freeze(plan, campaign.training, resolving(INDEPENDENT))


def test_an_arm_that_moves_only_the_companion_is_refused(campaign, resolving):
    factor = dataclasses.replace(LR, moves_with=("clip",))
    plan = planned(factor, arm("lr=0.01", clip=2.0))
    with pytest.raises(OrchestratorError, match=r"was to change optimizer\.lr, but"):
        freeze(plan, campaign.training, resolving(INDEPENDENT))


def test_all_violations_are_told_at_once(campaign, resolving):
    same, moved = arm("lr=0.001", optimizer__lr=1e-3), arm("lr=1", optimizer__lr=1.0)
    with pytest.raises(OrchestratorError, match="2 mistakes") as told:
        freeze(planned(LR, same, moved), campaign.training, resolving(INTERPOLATED))
    assert "lr=0.001" in str(told.value)
    assert "lr=1" in str(told.value)


def test_the_seed_cannot_be_a_factor(campaign, resolving):
    plan = planned(Factor("seed", "seed", 0), arm("seed=1", seed=1))
    with pytest.raises(OrchestratorError, match="seed is the seed"):
        freeze(plan, campaign.training, resolving(INDEPENDENT))


def test_adopted_overrides_are_in_baseline_and_arms_alike(campaign, resolving):
    adopted = (("clip", 0.5), ("optimizer.lr", 0.01))
    plan = dataclasses.replace(
        planned(LR, arm("lr=0.03", clip=0.5, optimizer__lr=0.03)),
        baseline=Arm("baseline", adopted),
    )
    frozen = freeze(plan, campaign.training, resolving(INDEPENDENT))
    changes = diff(frozen.baseline.config, frozen.ablations[0].arms[0].config)
    assert changes == (("optimizer.lr", "0.01", "0.03"),)


def test_a_factor_may_be_a_whole_section(campaign):
    def resolve(overrides):
        sections = ['{"name": "cosine", "end": 0.0}', '{"name": "constant"}']
        return tuple(f'{{"schedule": {section}}}' for section in sections[: len(overrides)])

    factor = Factor("schedule", "schedule", "cosine", levels=("constant",))
    plan = planned(factor, arm("schedule=constant", schedule="constant"))
    assert freeze(plan, campaign.training, resolve).ablations[0].arms[0].config


def test_diff_compares_numbers_as_numbers_and_tells_what_is_absent():
    assert diff('{"a": 1, "b": [1, 2]}', '{"a": 1.0, "b": [1, 2]}') == ()
    assert diff('{"a": 1}', '{"a": true}') == (("a", "1", "true"),)
    assert diff('{"a": {"b": null}}', '{"a": {"c": "x"}}') == (
        ("a.b", "null", "(absent)"),
        ("a.c", "(absent)", '"x"'),
    )
