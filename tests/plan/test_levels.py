import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Factor, Move
from orchestrator.plan import Facts, levels

PROPOSED = (1.6, 2.0)  # firm and standard, say
UP, DOWN, EITHER = Move.UP, Move.DOWN, Move.EITHER


def chosen(name, baseline, move, *, user=(), **facts):
    factor = Factor(name, f"config.{name}", baseline, tuple(user))
    return levels(factor, move, Facts(**facts))


@pytest.mark.parametrize(
    ("move", "expected"),
    [
        (UP, (0.003, 0.01, 0.03)),
        (DOWN, (3.33e-5, 1e-4, 3.33e-4)),
        (EITHER, (3.33e-4, 0.003)),
    ],
)
def test_learning_rates_go_in_half_decades(move, expected):
    assert chosen("lr", 1e-3, move) == expected


def test_a_learning_rate_of_zero_cannot_be_scaled():
    with pytest.raises(OrchestratorError, match=r"config\.lr=0 cannot be scaled"):
        chosen("lr", 0.0, UP)


def test_weight_decay_from_zero_takes_three_decades_for_adamw():
    assert chosen("weight_decay", 0.0, UP) == (0.01, 0.1, 1.0)
    assert chosen("weight_decay", 0, UP) == (0.01, 0.1, 1.0)


@pytest.mark.parametrize(
    ("lr_sum", "expected"), [(0.18, (0.1, 1.0, 10.0)), (30.0, (0.001, 0.01, 0.1))]
)
def test_decoupled_weight_decay_is_scaled_to_the_length_of_the_training(lr_sum, expected):
    found = chosen("weight_decay", 0.0, UP, optimizer="AdamW", lr_sum=lr_sum)
    assert found == expected
    assert 0.05 < found[1] * lr_sum < 2  # the middle one shrinks the weights noticeably


@pytest.mark.parametrize("optimizer", ["SGD", "Adam"])
def test_a_penalty_in_the_gradient_is_on_the_scale_of_the_loss(optimizer):
    found = chosen("weight_decay", 0.0, UP, optimizer=optimizer, lr_sum=30.0)
    assert found == (1e-4, 1e-3, 1e-2)


def test_weight_decay_that_is_on_is_multiplied():
    assert chosen("weight_decay", 0.01, UP) == (0.03, 0.1, 1.0)
    assert chosen("weight_decay", 0.01, DOWN) == (0.0, 0.001)
    assert chosen("weight_decay", 0.0, DOWN) == ()


def test_dropout_stays_below_nine_tenths():
    assert chosen("dropout", 0.0, UP) == (0.2, 0.4)
    assert chosen("dropout", 0.5, UP) == (0.7,)
    assert chosen("dropout", 0.8, UP) == ()
    assert chosen("dropout", 0.5, DOWN) == (0.0, 0.3)
    assert chosen("dropout", 0.0, EITHER) == (0.2,)


def test_warmup_is_a_share_for_a_float_and_steps_for_an_integer():
    assert chosen("warmup", 0.0, UP) == (0.05, 0.2)
    assert chosen("warmup", 0, UP, total_steps=1000) == (50, 200)
    assert chosen("warmup", 100, UP) == (200, 400)
    assert chosen("warmup", 0.1, UP) == (0.2, 0.4)
    assert chosen("warmup", 0.3, UP) == ()  # a share above one half is no warm-up
    assert chosen("warmup", 5.0, UP) == (10.0, 20.0)  # the user's unit, epochs perhaps
    assert all(type(v) is int for v in chosen("warmup", 0, UP, total_steps=1000))


def test_warmup_in_steps_waits_for_their_number():
    assert chosen("warmup", 0, UP) == ()


def test_clip_that_is_off_gets_the_proposed_thresholds():
    assert chosen("clip", None, DOWN, thresholds=PROPOSED) == PROPOSED
    assert chosen("clip", None, EITHER, thresholds=PROPOSED) == PROPOSED
    assert chosen("clip", 0.0, DOWN, thresholds=PROPOSED) == PROPOSED  # 0: off to some trainers
    assert chosen("clip", None, UP, thresholds=PROPOSED) == ()
    assert chosen("clip", None, DOWN) == chosen("clip", None, DOWN, thresholds=()) == ()


def test_clip_that_is_too_tight_is_loosened_to_the_proposed_and_off():
    assert chosen("clip", 1e-3, UP, thresholds=PROPOSED) == (0.01, 2.0, None)
    assert chosen("clip", 1e-3, UP) == (0.01, None)


def test_clip_that_is_on_is_asked_about_on_both_sides():
    assert chosen("clip", 1.0, EITHER, thresholds=PROPOSED) == (1.6, 2.0, None)
    assert chosen("clip", 1.61, EITHER, thresholds=PROPOSED) == (2.0, None)
    assert chosen("clip", 9.0, EITHER, thresholds=()) == (None,)


def test_clip_is_tightened_to_the_proposed_only():
    assert chosen("clip", 100.0, DOWN, thresholds=PROPOSED) == PROPOSED
    assert chosen("clip", 1e-3, DOWN, thresholds=PROPOSED) == ()
    assert chosen("clip", 3.0, DOWN, thresholds=()) == ()
    assert chosen("clip", 3.0, DOWN) == (0.3, 1.0)


def test_the_users_levels_override_the_rule_in_the_direction_of_the_move():
    mine = (1e-4, 1e-3, 5e-3)
    assert chosen("lr", 1e-3, UP, user=mine) == (5e-3,)
    assert chosen("lr", 1e-3, DOWN, user=mine) == (1e-4,)
    assert chosen("lr", 1e-3, EITHER, user=mine) == (1e-4, 5e-3)
    assert chosen("batch", 32, EITHER, user=(16, 32, 64)) == (16, 64)
    assert chosen("activation", "relu", UP, user=("gelu", "relu")) == ("gelu",)
    assert chosen("clip", None, DOWN, user=(1.0, None)) == (1.0,)


def test_an_unknown_factor_needs_levels():
    with pytest.raises(OrchestratorError, match=r"factors\.batch\.levels"):
        chosen("batch", 32, EITHER)


@pytest.mark.parametrize("value", ["1e-3", None, True])
def test_a_baseline_that_is_no_number_is_told(value):
    with pytest.raises(OrchestratorError, match=r"factors\.lr: .*is no number"):
        chosen("lr", value, UP)


@given(
    st.sampled_from(["lr", "weight_decay", "dropout", "warmup", "clip"]),
    st.floats(1e-6, 0.89) | st.integers(1, 1000),
    st.sampled_from(list(Move)),
)
def test_levels_are_few_legal_distinct_and_never_the_baseline(name, baseline, move):
    if name == "dropout" and baseline >= 0.9:
        return
    found = chosen(
        name, baseline, move, thresholds=PROPOSED, total_steps=1000, optimizer="SGD", lr_sum=10.0
    )
    assert len(found) <= 3
    assert len(set(found)) == len(found)
    assert baseline not in found
    numbers = [v for v in found if v is not None]
    assert numbers == sorted(numbers)
    assert all(v >= 0 for v in numbers)
    if name in ("lr", "clip"):
        assert all(v > 0 for v in numbers)
    if name == "dropout":
        assert all(v < 0.9 for v in numbers)
    if move is UP:
        assert all(v > baseline for v in numbers)
    if move is DOWN:
        assert all(v < baseline for v in numbers)
