import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.stats import blocks
from orchestrator.stats.blocks import additive_fit, moments, paired_differences, pool
from tests.stats.reference import least_squares


def table(seed, arms=4, seeds=6, missing=0.0):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(arms, seeds)) + rng.normal(size=seeds) + rng.normal(size=(arms, 1))
    values[rng.random(values.shape) < missing] = np.nan
    return values


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 6), st.integers(2, 9), st.floats(0, 0.6))
def test_the_fit_is_ordinary_least_squares_with_dummies(seed, arms, seeds, missing):
    values = table(seed, arms, seeds, missing)
    fit = additive_fit(values)
    if np.isfinite(values).sum() < 2:
        assert fit.nu == 0
        return
    variance, nu = least_squares(values)
    assert fit.nu == nu
    if nu:
        assert fit.variance == pytest.approx(variance, rel=1e-9, abs=1e-12)


def test_complete_data_leave_arms_times_seeds_less_one_degrees_of_freedom():
    assert additive_fit(table(0, arms=5, seeds=6)).nu == 4 * 5


def test_a_seed_with_one_cell_changes_nothing():
    values = table(1)
    lonely = np.full((4, 1), np.nan)
    lonely[2] = 99.0
    assert additive_fit(np.hstack([values, lonely])).variance == pytest.approx(
        additive_fit(values).variance, rel=1e-12
    )


def test_two_rows_give_half_the_variance_of_their_differences():
    values = table(2, arms=2)
    assert 2 * additive_fit(values).variance == pytest.approx(
        (values[1] - values[0]).var(ddof=1), rel=1e-12
    )


def test_the_seed_correlation_is_the_mean_square_formula():
    values = table(3, arms=4, seeds=6)
    fit = additive_fit(values)
    between = 4 * values.mean(axis=0).var(ddof=1)
    expected = (between - fit.variance) / (between + 3 * fit.variance)
    assert fit.column_correlation == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_the_seed_correlation_is_recovered_from_many_seeds(missing):
    rng = np.random.default_rng(4)
    values = np.sqrt(0.3) * rng.normal(size=4000) + np.sqrt(0.7) * rng.normal(size=(4, 4000))
    values[rng.random(values.shape) < missing] = np.nan
    assert additive_fit(values).column_correlation == pytest.approx(0.3, abs=0.03)


def test_constant_values_have_no_seed_correlation():
    assert np.isnan(additive_fit(np.full((3, 5), 0.7)).column_correlation)


def test_rounding_is_not_a_difference():
    values = np.array([[0.3, 0.3], [0.1 + 0.2, 0.3]])
    assert (paired_differences(values) == 0).all()


def test_a_huge_value_in_one_arm_does_not_round_away_another_arms_differences():
    values = np.array([[1.0, 2.0, 3.0], [1.5, 2.1, 3.2], [1e18, 2.0, 1.0]])
    assert (paired_differences(values)[0] != 0).all()


def test_moments_are_undefined_without_numbers():
    n, mean, variance = moments(np.array([[np.nan, np.nan], [1.0, np.nan], [1.0, 3.0]]))
    assert n.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(mean, [np.nan, 1.0, 2.0])
    np.testing.assert_array_equal(variance, [np.nan, np.nan, 2.0])


def test_arms_with_a_diverged_run_or_a_single_pair_are_not_pooled():
    values = table(5, arms=4, seeds=5)
    values[1, 0] = np.nan  # diverged
    values[2, 1:] = np.nan  # missing
    diverged = np.zeros_like(values, dtype=bool)
    diverged[1, 0] = True
    assert pool(values, diverged, k=3).members.tolist() == [False, False, True]


def test_one_wild_arm_leaves_the_pool_and_takes_its_variance_along():
    values = table(6, arms=5, seeds=7)
    values[3] += 40 * np.random.default_rng(7).normal(size=7)
    shared = pool(values, np.zeros_like(values, dtype=bool), k=4)
    assert shared.members.tolist() == [True, True, False, True]
    assert shared.outliers.tolist() == [False, False, True, False]
    assert shared.fit.variance == pytest.approx(additive_fit(np.delete(values, 3, 0)).variance)


def test_equal_variances_rarely_lose_an_arm():
    lost = [
        pool(table(s, arms=5, seeds=5), np.zeros((5, 5), dtype=bool), k=4).outliers.any()
        for s in range(1000)
    ]
    assert np.mean(lost) < 0.015


def test_the_correlation_is_a_half_if_complete_and_less_if_pairs_are_missing():
    values = table(8, arms=3, seeds=6)
    calm = np.zeros_like(values, dtype=bool)
    assert pool(values, calm, k=2).correlation == 0.5
    values[1, 0] = np.nan
    assert pool(values, calm, k=2).correlation == pytest.approx(5 / (2 * np.sqrt(30)))


def test_working_in_blocks_changes_no_correlation(monkeypatch):
    values = table(5, arms=9, seeds=8, missing=0.3)
    values[0] = 0.0
    none = np.zeros(values.shape, dtype=bool)
    whole = pool(values, none, k=8).correlation
    assert whole < 0.5
    monkeypatch.setattr(blocks, "_BLOCK", 20)
    assert pool(values, none, k=8).correlation == whole


@pytest.mark.parametrize("shape", [(5, 40), (40, 5)])
def test_tables_that_fall_into_parts_are_fitted_part_by_part(shape):
    values = table(6, *shape, missing=0.3)
    values[:2, shape[1] // 2 :] = values[2:, : shape[1] // 2] = np.nan
    variance, nu = least_squares(values)
    fit = additive_fit(values)
    assert fit.nu == nu
    assert fit.variance == pytest.approx(variance, rel=1e-9)
