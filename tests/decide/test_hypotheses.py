import dataclasses

import numpy as np
import pytest

from orchestrator.comparison import compare
from orchestrator.decide import judge, support
from orchestrator.nouns import Direction, Hypothesis, Metric, Move, Support

METRIC = Metric("val/loss", Direction.MIN, unit="nat", delta=0.5)
HYPOTHESIS = Hypothesis(
    finding="overfitting",
    factor="weight_decay",
    move=Move.UP,
    claim="more weight decay lowers val/loss",
    why="the gap grows",
    signal="generalization_gap",
    signal_move=Move.DOWN,
)
SEEDS = range(5)


def cells(by, seed, spread=0.1):
    rng = np.random.default_rng(0)
    base = rng.normal(size=5)
    own = np.random.default_rng(seed).normal(size=5)
    return dict(zip(SEEDS, base + by + spread * own, strict=True))


def weigh(effects, moves, hypothesis=HYPOTHESIS):
    """Support, where arm j changes the metric by effects[j] and the signal by moves[j]."""
    found = compare(
        METRIC,
        cells(0, 99, 0.0),
        {f"arm{j}": cells(e, j) for j, e in enumerate(effects)},
        alpha=0.05,
    )
    mechanism = None
    if moves is not None:
        down = hypothesis.signal_move is Move.DOWN
        metric = Metric(hypothesis.signal, Direction.MIN if down else Direction.MAX)
        arms = {f"arm{j}": cells(m, 50 + j) for j, m in enumerate(moves) if m is not None}
        mechanism = compare(metric, cells(0, 98, 0.0), arms, alpha=0.05)
    return support(hypothesis, judge(found, alpha_screen=0.1), found, mechanism)


def test_a_better_metric_and_the_predicted_move_support_it():
    said, why = weigh([-1.0, 0.1], [-1.0, 0.0])
    assert said is Support.SUPPORTED
    assert "arm0" in why
    assert "generalization_gap by -" in why
    assert "as predicted" in why


def test_a_factor_that_is_wired_to_nothing_is_not_refuted():
    baseline = cells(0, 99, 0.0)
    found = compare(METRIC, baseline, {"arm0": baseline, "arm1": baseline}, alpha=0.05)
    said, why = support(HYPOTHESIS, judge(found, alpha_screen=0.1), found, None)
    assert said is Support.INCONCLUSIVE
    assert "is the factor wired up?" in why


def test_no_arm_better_but_all_worse_or_equivalent_refutes_it():
    said, why = weigh([1.0, 0.0], [-1.0, -1.0])
    assert said is Support.REFUTED
    assert "arm0 worse" in why
    assert "arm1 equivalent" in why


def test_a_better_metric_against_the_predicted_move_refutes_it():
    said, why = weigh([-1.0], [1.0])
    assert said is Support.REFUTED
    assert "another cause" in why


def test_a_better_metric_without_a_visible_move_is_inconclusive():
    said, why = weigh([-1.0], [0.01])
    assert said is Support.INCONCLUSIVE
    assert "no predicted move" in why


@pytest.mark.parametrize("moves", [None, [None]])
def test_a_better_metric_without_recordings_is_inconclusive(moves):
    assert weigh([-1.0], moves)[0] is Support.INCONCLUSIVE


def test_an_undecided_metric_is_inconclusive():
    rough = dataclasses.replace(METRIC, delta=None)
    found = compare(rough, cells(0, 99, 0.0), {"arm0": cells(0.01, 3, spread=1.0)}, alpha=0.05)
    said, why = support(HYPOTHESIS, judge(found), found, None)
    assert said is Support.INCONCLUSIVE
    assert "no arm shows an improvement" in why


def test_one_arm_that_moves_as_predicted_is_enough():
    assert weigh([-1.0, -1.2], [1.0, -1.0])[0] is Support.SUPPORTED


def test_arms_that_disagree_on_the_mechanism_leave_it_open():
    assert weigh([-1.0, -1.2], [1.0, 0.01])[0] is Support.INCONCLUSIVE


@pytest.mark.parametrize("move", [-1.0, 1.0])
def test_a_prediction_of_any_move_holds_either_way(move):
    either = dataclasses.replace(HYPOTHESIS, signal_move=Move.EITHER)
    assert weigh([-1.0], [move], either)[0] is Support.SUPPORTED
    assert weigh([-1.0], [0.01], either)[0] is Support.INCONCLUSIVE


def test_two_recordings_of_the_signal_tell_nothing():
    found = compare(METRIC, cells(0, 99, 0.0), {"arm0": cells(-1.0, 0)}, alpha=0.05)
    mechanism = compare(
        Metric("generalization_gap", Direction.MIN),
        {0: 1.0, 1: 1.1},
        {"arm0": {0: 0.5, 1: 0.6001}},
        alpha=0.05,
    )
    assert support(HYPOTHESIS, judge(found), found, mechanism)[0] is Support.INCONCLUSIVE
