"""Which arms are kept where the budget does not pay for all: against every way to choose."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.nouns import Ablation, Arm, Factor, Hypothesis, Move
from orchestrator.plan import budget
from orchestrator.plan.budget import affordable, information
from orchestrator.stats.power import power

LEVEL = 0.05


def ablation(name, count):
    arms = tuple(Arm(f"{name}={i}", ((name, i),)) for i in range(count))
    hypothesis = Hypothesis("", name, Move.UP, "", "", "train_loss", Move.DOWN)
    return Ablation(name, hypothesis, Factor(name, name, 0), arms)


def by_hand(count, of, seeds):
    """Mutual information from the joint table of truth and verdict."""
    if not count:
        return 0.0
    chance = power(1.0, n=seeds, k=count, alpha=LEVEL, rho=0.0)
    found = (count * chance + (of - count) * LEVEL) / of
    joint = np.array([[0.5 * found, 0.5 * (1 - found)], [0.5 * LEVEL, 0.5 * (1 - LEVEL)]])
    apart = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    return float((joint * np.log2(joint / apart)).sum())


@pytest.mark.parametrize(("count", "of"), [(0, 3), (1, 1), (1, 3), (2, 3), (3, 3)])
def test_information_is_that_of_the_joint_table(count, of):
    told = information(count, of=of, seeds=5, level=LEVEL)
    assert told == pytest.approx(by_hand(count, of, 5), abs=1e-9)
    assert 0 <= told < 1


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4), room=st.integers(0, 12))
def test_no_other_choice_of_as_many_arms_tells_more(sizes, room):
    drawn = [ablation(f"f{i}", size) for i, size in enumerate(sizes)]
    counts = budget._split(drawn, room, 5, LEVEL)
    ways = [w for w in itertools.product(*(range(s + 1) for s in sizes)) if sum(w) <= room]

    def told(way):
        return sum(by_hand(c, s, 5) for c, s in zip(way, sizes, strict=True))

    assert sum(counts) <= room
    assert told(counts) == pytest.approx(max(map(told, ways)), abs=1e-8)
    if len(set(sizes)) == 1:  # alike: the earlier ones first
        assert list(counts) == sorted(counts, reverse=True)


@pytest.mark.parametrize(("room", "kept"), [(2, ["lr"]), (3, ["clip", "matched_lr"])])
def test_a_control_is_kept_whole_beside_what_it_controls_or_not_at_all(campaign, room, kept):
    drawn = [ablation("clip", 1), ablation("lr", 2), ablation("matched_lr", 2)]
    trials = dataclasses.replace(campaign.budget, trials=25 + 5 * room)  # 5 baseline, 20 confirming
    chosen, notes = affordable(dataclasses.replace(campaign, budget=trials), drawn, 5)
    assert [a.name for a in chosen] == kept
    assert chosen[-1].arms == ablation(kept[-1], 2).arms
    assert "left out" in notes[0]
