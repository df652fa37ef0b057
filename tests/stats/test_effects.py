import math

import numpy as np
import pytest
from scipy import special, stats

from orchestrator.stats.effects import probability_superior, small_sample_factor, standardized


@pytest.mark.parametrize("nu", [2, 3, 9, 40])
def test_the_small_sample_factor_is_the_ratio_of_gammas(nu):
    expected = special.gamma(nu / 2) / (math.sqrt(nu / 2) * special.gamma((nu - 1) / 2))
    assert small_sample_factor(nu) == pytest.approx(expected, rel=1e-12)


def test_the_factor_removes_the_bias_of_a_standardized_mean():
    draws = np.random.default_rng(0).normal(1.0, 1.0, (200_000, 5))
    biased = draws.mean(axis=1) / draws.std(axis=1, ddof=1)
    assert biased.mean() > 1.2
    assert small_sample_factor(4) * biased.mean() == pytest.approx(1.0, abs=0.01)


def test_two_numbers_or_no_spread_give_no_standardized_effect():
    assert math.isnan(standardized(1.0, 0.5, 2))
    assert math.isnan(standardized(1.0, 0.0, 5))
    assert math.isnan(standardized(1.0, math.nan, 1))


def test_the_probability_superior_is_mann_whitneys_u():
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 6, 7).astype(float), rng.integers(0, 6, 5).astype(float)
    expected = stats.mannwhitneyu(a, b).statistic / 35
    assert probability_superior(a, b) == pytest.approx(expected, abs=1e-12)
    assert math.isnan(probability_superior(a, b[:0]))
