import math

import pytest
from scipy import stats

from orchestrator.stats.dunnett import critical_value
from orchestrator.stats.forecast import (
    MOST_SEEDS,
    seeds_for_verdict,
    seeds_to_detect,
    upper_variance,
)


def test_the_upper_variance_is_the_chi_squared_limit():
    assert upper_variance(2.0, 8) == pytest.approx(2 * 8 / stats.chi2.ppf(0.2, 8), rel=1e-9)


def test_twenty_four_seeds_decide_at_one_sigma_without_correlation():
    assert seeds_for_verdict(2.0, 1.0, alpha=0.05, k=1, pooled_arms=1) == 24


@pytest.mark.parametrize("pooled", [0, 4])
def test_the_forecast_is_the_smallest_n_whose_interval_must_decide(pooled):
    variance, delta, k = 1.7, 1.3, 4
    n = seeds_for_verdict(variance, delta, alpha=0.05, k=k, pooled_arms=pooled)

    def half_width(n):
        if pooled:
            c = critical_value(0.05, m=k, nu=pooled * (n - 1), r=0.5)
        else:
            c = stats.t.isf(0.05 / k, n - 1)
        return c * math.sqrt(variance / n)

    assert half_width(n) <= delta / 2 < half_width(n - 1)


@pytest.mark.parametrize(
    ("effect", "n"), [(2.3, 3), (1.36, 5), (1.07, 7), (0.85, 11), (0.68, 15), (0.58, 20)]
)
def test_seeds_to_detect_an_effect_of_given_size(effect, n):
    assert seeds_to_detect(effect, alpha=0.05) == n
    limit = stats.t.isf(0.05, n - 1)
    assert stats.nct.sf(limit, n - 1, effect * math.sqrt(n)) >= 0.8


@pytest.mark.parametrize("effect", [38 / math.sqrt(1000), 1e3, 1e12])
def test_an_enormous_effect_needs_few_seeds(effect):
    assert 3 <= seeds_to_detect(effect, alpha=0.05) <= 7


def test_the_forecast_stops_where_nobody_would_go():
    assert seeds_to_detect(0.0, alpha=0.05) == MOST_SEEDS
    assert seeds_for_verdict(1.0, 1e-9, alpha=0.05, k=2, pooled_arms=2) == MOST_SEEDS
