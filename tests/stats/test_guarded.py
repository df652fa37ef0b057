import numpy as np
import pytest
from scipy import stats

from orchestrator.stats import guarded
from tests.stats.reference import guarded as slow


def example(seed, arms=3, seeds=6, *, missing=0.0, diverged=0.0):
    """Oriented values and which cells diverged; the baseline ran on every seed."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=seeds) + rng.normal(size=(arms + 1, seeds))
    values += rng.normal(size=(arms + 1, 1))
    lost = rng.random(values.shape) < diverged
    gone = rng.random(values.shape) < missing
    gone[0] = False
    lost &= ~gone
    values[gone | lost] = np.nan
    return values, lost


@pytest.mark.parametrize("seed", range(24))
def test_every_number_agrees_with_the_slow_reference(seed):
    kind = {0: {}, 1: {"missing": 0.15}, 2: {"missing": 0.1, "diverged": 0.1}}[seed % 3]
    values, diverged = example(seed, arms=1 + seed % 5, seeds=7, **kind)
    k = values.shape[0] - 1 + seed % 2
    at = guarded.look(values, diverged, k=k, resolution=0.0)
    assert (at.n_pairs >= 2).all(), "choose another seed: the reference has no rule below"
    expected = slow(values, diverged, k, 0.05, delta=0.8)
    np.testing.assert_allclose(at.mean_difference, expected["mean"], rtol=1e-9)
    np.testing.assert_allclose(at.se, expected["se"], rtol=1e-9)
    assert at.pool.fit.nu == expected["nu"]
    assert at.pool.members.tolist() == expected["pooled"]
    assert at.pool.correlation == pytest.approx(expected["r"], rel=1e-12)
    better = guarded.step_down(at, at.mean_difference)
    worse = guarded.step_down(at, -at.mean_difference)
    np.testing.assert_allclose(better, expected["better"], atol=1e-4)
    np.testing.assert_allclose(worse, expected["worse"], atol=1e-4)
    equivalent = guarded.equivalence(at, delta=0.8)
    np.testing.assert_allclose(equivalent, expected["equivalent"], atol=1e-4)
    for j in range(len(at.se)):
        c = guarded.critical_value(at, j, alpha=0.05)
        assert expected["beyond"](j, c) == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("n", [2, 3, 5, 10])
def test_one_arm_is_the_one_sided_paired_t_test(n):
    values, diverged = example(n, arms=1, seeds=n)
    at = guarded.look(values, diverged, k=1, resolution=0.0)
    expected = stats.ttest_rel(values[1], values[0], alternative="greater")
    assert guarded.step_down(at, at.mean_difference)[0] == pytest.approx(expected.pvalue, rel=1e-9)
    interval = expected.confidence_interval(0.95)
    half = guarded.half_widths(at, alpha=0.05)[0]
    assert at.mean_difference[0] - half == pytest.approx(interval.low, rel=1e-9)


def test_an_arm_outside_the_pool_is_a_paired_t_test_with_bonferroni():
    values, diverged = example(1, arms=3, seeds=6)
    values[1, 0], diverged[1, 0] = np.nan, True
    at = guarded.look(values, diverged, k=3, resolution=0.0)
    expected = stats.ttest_rel(values[1, 1:], values[0, 1:], alternative="greater").pvalue
    assert guarded.tail(at, 0, at.mean_difference[0], m=3) == pytest.approx(
        min(1.0, 3 * expected), rel=1e-9
    )


def test_the_interval_and_the_equivalence_p_say_the_same():
    for seed in range(40):
        values, diverged = example(seed, arms=3, seeds=5)
        at = guarded.look(values, diverged, k=3, resolution=0.0)
        half = guarded.half_widths(at, alpha=0.05)
        inside = np.abs(at.mean_difference) + half < 1.5
        assert (inside == (guarded.equivalence(at, delta=1.5) <= 0.05)).all()


def test_a_noisy_baseline_raises_every_arms_variance():
    values, diverged = example(2, arms=4, seeds=6)
    values[0] += 20 * np.random.default_rng(0).normal(size=6)
    at = guarded.look(values, diverged, k=4, resolution=0.0)
    assert (at.variance >= np.var(values[1:] - values[0], axis=1, ddof=1).mean() * 0.999).all()


def test_the_metrics_step_is_a_floor_under_the_variance():
    values = np.array([[0.8, 0.9, 0.8], [0.9, 0.9, 0.8], [0.8, 0.9, 0.9]])
    at = guarded.look(values, np.zeros_like(values, dtype=bool), k=2, resolution=0.5)
    np.testing.assert_allclose(at.variance, 0.25 / 6)
    assert at.coarse.all()


def test_no_variance_leaves_sign_flips_of_equal_differences():
    values = np.vstack([np.arange(5.0), np.arange(5.0) + 0.1])
    at = guarded.look(values, np.zeros_like(values, dtype=bool), k=1, resolution=0.0)
    assert at.se[0] == 0
    assert guarded.step_down(at, at.mean_difference)[0] == 0.5**5
    assert guarded.step_down(at, -at.mean_difference)[0] == 1
    assert guarded.half_widths(at, alpha=0.05)[0] == 0
    assert guarded.half_widths(at, alpha=0.01)[0] == np.inf


def test_adjusted_p_values_count_arms_that_were_registered_but_are_gone():
    values, diverged = example(3, arms=2, seeds=5)
    two = guarded.look(values, diverged, k=2, resolution=0.0)
    four = guarded.look(values, diverged, k=4, resolution=0.0)
    assert (
        guarded.step_down(four, two.mean_difference) > guarded.step_down(two, two.mean_difference)
    ).all()
