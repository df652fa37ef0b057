import numpy as np
import pytest
from scipy import stats

from orchestrator.stats.sequential import is_hopeless, levels

LOOKS = (3, 5, 7, 10)


def crossings(alphas, effect=0.0, sequences=10_000):
    """Share of fresh sequences of paired t tests that are significant at some look."""
    d = effect + np.random.default_rng(77).normal(size=(sequences, LOOKS[-1]))
    found = np.zeros(sequences, dtype=bool)
    for n, alpha in zip(LOOKS, alphas, strict=True):
        found |= stats.ttest_1samp(d[:, :n], 0, axis=1, alternative="greater").pvalue <= alpha
    return found.mean()


@pytest.mark.parametrize(
    ("alpha", "expected"),
    [(0.10, (0.0090, 0.0184, 0.0343, 0.0774)), (0.05, (0.0045, 0.0088, 0.0161, 0.0360))],
)
def test_the_levels_are_those_of_the_protocol(alpha, expected):
    assert levels(LOOKS, alpha) == pytest.approx(expected, rel=0.015)


def test_the_error_over_all_looks_is_the_level():
    assert 0.044 <= crossings(levels(LOOKS, 0.05)) <= 0.057


def test_looking_four_times_at_the_full_level_would_not_hold_it():
    assert crossings((0.05,) * 4) > 0.11


def test_one_look_spends_everything_and_the_first_is_exact():
    assert levels((10,), 0.05) == (0.05,)
    assert levels((5, 10), 0.05)[0] == 0.05 / 4


def test_levels_are_the_same_at_every_call():
    first = levels((3, 6), 0.05)
    levels.cache_clear()
    assert levels((3, 6), 0.05) == first


def test_an_arm_is_hopeless_when_the_gain_lies_beyond_its_upper_limit():
    assert is_hopeless(-1.0, se=0.5, nu=8, delta=0.0)
    assert not is_hopeless(-0.2, se=0.5, nu=8, delta=0.0)
    upper = stats.t.ppf(0.8, 8) * 0.5
    assert is_hopeless(0.0, se=0.5, nu=8, delta=upper + 1e-9)
    assert not is_hopeless(0.0, se=0.5, nu=8, delta=upper - 1e-9)
