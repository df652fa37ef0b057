from __future__ import annotations

import math

import pytest

from orchestrator.nouns import Call, Interval, Verdict
from orchestrator.report import words


@pytest.mark.parametrize(
    ("spread", "places"),
    [(0.006, 3), (0.035, 3), (0.12, 2), (2.5, 1), (120.0, 0), (0.0, 4), (math.nan, 4), (1e-12, 8)],
)
def test_decimals_follow_the_spread(spread: float, places: int) -> None:
    assert words.decimals(spread) == places


def test_a_mean_without_a_spread_stands_alone() -> None:
    assert words.mean_and_sd(0.9331, 0.0061, 3) == "0.933 ± 0.006"
    assert words.mean_and_sd(0.9331, math.nan, 3) == "0.933"
    assert words.mean_and_sd(math.nan, math.nan, 3) == "-"


def test_zero_has_no_minus() -> None:
    assert words.signed(-0.0001, 3) == "+0.000"
    assert words.signed(-0.14, 3) == "-0.140"
    assert words.signed(math.nan, 3) == "-"


def test_an_infinite_interval_says_that_nothing_is_known() -> None:
    assert words.bracket(Interval(-math.inf, math.inf), 3) == "[unknown]"
    assert words.bracket(Interval(-0.14, 0.06), 3) == "[-0.140, +0.060]"


@pytest.mark.parametrize(
    ("p", "told"), [(0.0021, "p=0.002"), (1e-9, "p<0.001"), (1.0, "p=1.000"), (math.nan, "-")]
)
def test_p_values_have_three_decimals(p: float, told: str) -> None:
    assert words.p_value(p) == told


def test_seeds_are_a_range_where_they_are_one() -> None:
    assert words.seeds((0, 1, 2, 3)) == "0-3"
    assert words.seeds((0, 2, 5)) == "0, 2, 5"
    assert words.seeds((7,)) == "7"


@pytest.mark.parametrize(
    ("value", "told"), [(1e-3, "0.001"), (None, "null"), (True, "true"), ("cosine", "cosine")]
)
def test_config_values_are_shown_as_typed(value: object, told: str) -> None:
    assert words.scalar(value) == told  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "told"), [(0.42, "0.4 s"), (42.0, "42 s"), (90.0, "1.5 min"), (7200.0, "2.0 h")]
)
def test_durations_are_in_the_largest_unit(value: float, told: str) -> None:
    assert words.seconds(value) == told


def test_a_winner_of_screening_is_a_candidate_until_fresh_seeds_have_spoken() -> None:
    winner = Verdict("a", Call.BETTER, "", "", is_candidate=True)
    assert words.call(winner) == "candidate (unconfirmed)"
    assert words.call(Verdict("a", Call.INCONCLUSIVE, "", "", (4, 9))) == "inconclusive (+4 seeds)"
    assert words.call(Verdict("a", Call.UNSTABLE, "", "")) == "unstable"
    dropped = Verdict("a", Call.INCONCLUSIVE, "", "", is_dropped=True)
    assert words.call(dropped) == "inconclusive (dropped)"


def test_a_sentence_gets_one_full_stop() -> None:
    assert words.sentence("it is so") == "it is so."
    assert words.sentence("is the factor wired up?") == "is the factor wired up?"
