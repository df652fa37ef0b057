import numpy as np
import pytest
from scipy import stats

from orchestrator.stats import exact
from orchestrator.stats.exact import seeds_to_reach, sign_flip
from tests.stats.reference import sign_flips


@pytest.mark.parametrize("arms", [1, 2, 4])
@pytest.mark.parametrize("seeds", [1, 3, 6])
def test_the_sign_flip_test_agrees_with_brute_force(arms, seeds):
    differences = np.random.default_rng(arms * 10 + seeds).normal(0.3, 1, (arms, seeds))
    np.testing.assert_allclose(sign_flip(differences), sign_flips(differences), atol=1e-12)


def test_one_arm_agrees_with_scipys_permutation_test():
    d = np.random.default_rng(1).normal(0.5, 1, 8)
    expected = stats.permutation_test(
        (d,), np.mean, permutation_type="samples", alternative="greater", n_resamples=np.inf
    )
    assert sign_flip(d[None])[0] == pytest.approx(expected.pvalue, abs=1e-12)


@pytest.mark.parametrize("n", range(3, 8))
def test_the_smallest_p_is_one_in_two_to_the_n(n):
    assert sign_flip(np.arange(1.0, n + 1)[None])[0] == 0.5**n


def test_rounding_does_not_break_ties():
    # 0.1 + 0.2 - 0.3 leaves 6e-17: raw decimals would give 0.469 instead of 0.5
    d = np.array([0.1, 0.2, -0.3, 0.1, 0.2, -0.3])
    assert sign_flip(d[None]) == sign_flip(np.rint(10 * d)[None])


def test_no_difference_at_all_has_p_one():
    assert sign_flip(np.zeros((2, 4))).tolist() == [1, 1]


def test_five_seeds_are_needed_for_five_percent():
    assert [seeds_to_reach(a) for a in (0.25, 0.125, 0.05, 0.03125, 0.01)] == [2, 3, 5, 5, 7]


def test_working_in_blocks_changes_nothing(monkeypatch):
    d = np.random.default_rng(2).normal(0.3, 1, (5, 7))
    whole = sign_flip(d)
    monkeypatch.setattr(exact, "_BLOCK", 23)  # four sign vectors at a time
    assert sign_flip(d).tolist() == whole.tolist()
