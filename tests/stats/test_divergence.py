import pytest
from scipy import stats

from orchestrator.stats.divergence import clopper_pearson, sign_test


@pytest.mark.parametrize(("arm", "baseline"), [(0, 0), (0, 3), (1, 0), (4, 0), (3, 2), (6, 1)])
def test_the_sign_test_is_an_exact_binomial_test(arm, baseline):
    expected = (
        stats.binomtest(arm, arm + baseline, 0.5, alternative="greater").pvalue
        if arm + baseline
        else 1.0
    )
    assert sign_test(arm, baseline) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("count", "n"), [(0, 5), (5, 5), (2, 7), (1, 1), (0, 1)])
def test_the_limits_are_clopper_and_pearsons(count, n):
    limits = clopper_pearson(count, n, alpha=0.05)
    expected = stats.binomtest(count, n).proportion_ci(0.9, method="exact")
    assert (limits.low, limits.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_none_of_five_is_up_to_forty_five_percent():
    assert clopper_pearson(0, 5, alpha=0.05).high == pytest.approx(0.4507, abs=1e-4)
