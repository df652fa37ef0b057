import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from orchestrator.comparison import cells, compare
from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Comparisons, Direction, Metric, Outcome, Status, Trial
from orchestrator.stats import flags
from tests.stats.reference import guarded as slow
from tests.stats.reference import sign_flips

UP = Metric("accuracy", Direction.MAX)
DOWN = Metric("loss", Direction.MIN, unit="nat")


def run(table, metric=UP, *, alpha=0.05, registered=None) -> Comparisons:
    """Compare rows of a table [arms + 1, seeds]; None is missing, NaN diverged."""
    rows = [{s: v for s, v in enumerate(row) if v is not None} for row in table]
    arms = {f"arm{j}": row for j, row in enumerate(rows[1:], start=1)}
    return compare(metric, rows[0], arms, alpha=alpha, registered=registered)


def noise(seed, arms=2, seeds=5, *, effect=0.0, rho=0.3):
    rng = np.random.default_rng(seed)
    table = np.sqrt(rho) * rng.normal(size=seeds)
    table = table + np.sqrt(1 - rho) * rng.normal(size=(arms + 1, seeds))
    table[1] += effect
    return table


def numbers(comparisons):
    """Everything numeric, for comparing two Comparisons."""
    arms = [
        [
            getattr(c, f.name)
            for f in dataclasses.fields(c)
            if f.name not in ("arm", "flags", "interval")
        ]
        + [c.interval.low, c.interval.high]
        for c in comparisons.arms
    ]
    return np.array([[math.nan if x is None else float(x) for x in row] for row in arms])


# --- agreement ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_complete_ablations_agree_with_the_slow_reference(seed):
    table = noise(seed, arms=4, seeds=6, effect=1.0)
    found = run(table, dataclasses.replace(UP, delta=0.5))
    expected = slow(table, np.zeros_like(table, dtype=bool), 4, 0.05, delta=0.5)
    exact = sign_flips(table[1:] - table[0])
    assert found.nu == expected["nu"]
    assert found.sigma == pytest.approx(expected["sigma"], rel=1e-9)
    assert expected["beyond"](0, found.critical_value) == pytest.approx(0, abs=1e-4)
    for j, c in enumerate(found.arms):
        assert c.mean_difference == pytest.approx(expected["mean"][j], rel=1e-9)
        assert c.se == pytest.approx(expected["se"][j], rel=1e-9)
        assert c.p_better == pytest.approx(expected["better"][j], abs=1e-4)
        assert c.p_worse == pytest.approx(expected["worse"][j], abs=1e-4)
        assert c.p_equivalent == pytest.approx(expected["equivalent"][j], abs=1e-4)
        assert c.p_exact_better == pytest.approx(exact[j], abs=1e-12)
        assert c.interval.high - c.mean_difference == pytest.approx(
            found.critical_value * c.se, rel=1e-9
        )


def test_one_arm_is_the_paired_t_test_in_the_metrics_direction():
    table = noise(1, arms=1, seeds=7)
    (c,) = run(table, DOWN).arms
    expected = stats.ttest_rel(table[1], table[0], alternative="less")
    assert c.p_better == pytest.approx(expected.pvalue, rel=1e-9)
    assert c.mean_difference == pytest.approx(-(table[1] - table[0]).mean(), rel=1e-12)
    assert c.mean == pytest.approx(table[1].mean())
    assert c.sd == pytest.approx(table[1].std(ddof=1))
    assert c.worst_seed_difference == pytest.approx(-(table[1] - table[0]).max())


# --- invariances ----------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 9999), st.permutations(range(5)), st.permutations(range(3)))
def test_the_order_of_seeds_and_arms_does_not_matter(seed, seeds, arms):
    table = noise(seed, arms=3)
    base = numbers(run(table))
    np.testing.assert_allclose(numbers(run(table[:, seeds])), base, rtol=1e-9)
    shuffled = np.vstack([table[:1], table[1:][arms]])
    np.testing.assert_allclose(numbers(run(shuffled)), base[arms], rtol=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 9999), st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
def test_p_values_do_not_depend_on_origin_and_unit(seed, shift, scale):
    table = noise(seed)
    for one, other in zip(run(table).arms, run(scale * table + shift).arms, strict=True):
        assert other.p_better == pytest.approx(one.p_better, rel=1e-6)
        assert other.p_worse == pytest.approx(one.p_worse, rel=1e-6)
        assert other.p_exact_better == one.p_exact_better
        assert other.se == pytest.approx(scale * one.se, rel=1e-6)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 9999))
def test_swapping_the_direction_swaps_better_and_worse_exactly(seed):
    table = noise(seed, arms=3)
    for up, down in zip(run(table, UP).arms, run(table, DOWN).arms, strict=True):
        assert (up.p_better, up.p_worse) == (down.p_worse, down.p_better)
        assert (up.p_exact_better, up.p_exact_worse) == (down.p_exact_worse, down.p_exact_better)
        assert up.mean_difference == -down.mean_difference
        assert up.mean == down.mean


# --- edge cases of the protocol -----------------------------------------------------------------


def test_two_seeds_give_an_estimate_but_one_seed_gives_no_variance():
    two, one = run(noise(0, seeds=2)).arms[0], run(noise(0, seeds=1)).arms[0]
    assert math.isfinite(two.se)
    assert math.isfinite(one.mean_difference)
    assert math.isnan(one.se)
    assert math.isnan(one.p_better)
    assert (one.interval.low, one.interval.high) == (-math.inf, math.inf)


def test_no_seed_at_all_gives_nothing_but_raises_nothing():
    found = compare(UP, {}, {"a": {}, "b": {1: 0.5}}, alpha=0.05)
    assert (found.n, found.baseline_n, found.k, found.nu) == (0, 0, 2, 0)
    assert [c.n_pairs for c in found.arms] == [0, 0]
    assert found.arms[1].flags == (flags.BASELINE_MISSING,)
    assert compare(UP, {1: 0.5}, {}, alpha=0.05).arms == ()


def test_runs_that_all_diverged_are_counted():
    nan = math.nan
    found = run([[0.5, 0.6, 0.7], [nan, nan, math.inf]])
    (c,) = found.arms
    assert (c.n_pairs, c.n_diverged, c.n_only_arm_diverged, c.p_diverged) == (0, 3, 3, 0.125)
    (c,) = run([[nan, nan, nan], [0.5, 0.6, 0.7]]).arms
    assert (c.n_pairs, c.n_only_baseline_diverged, c.p_diverged) == (0, 3, 1.0)
    (c,) = run([[nan, nan, nan], [nan, nan, nan]]).arms
    assert (c.n_pairs, c.n_only_arm_diverged, c.n_only_baseline_diverged) == (0, 0, 0)


def test_a_constant_metric_is_identical_to_the_baseline():
    for c in run(np.full((3, 5), 0.7)).arms:
        assert set(c.flags) == {flags.IDENTICAL, flags.ZERO_VARIANCE}
        assert (c.p_better, c.p_worse, c.p_exact_better) == (1, 1, 1)


def test_equal_differences_have_the_exact_p_of_their_signs():
    start = np.array([0.1, 0.5, 0.3, 0.9, 0.2])
    (c,) = run([start, start + 0.1]).arms
    assert c.flags == (flags.ZERO_VARIANCE,)
    assert (c.p_better, c.p_exact_better, c.se) == (2**-5, 2**-5, 0)
    assert math.isnan(c.t)


def test_an_arm_identical_to_the_baseline_is_flagged_beside_noisy_arms():
    table = noise(2, arms=3)
    table[2] = table[0]
    assert [flags.IDENTICAL in c.flags for c in run(table).arms] == [False, True, False]


def test_a_metric_with_coarse_steps_is_flagged():
    table = np.round(noise(3) / 4) * 4
    metric = dataclasses.replace(UP, resolution=4.0)
    assert all(flags.COARSE in c.flags for c in run(table, metric).arms)
    assert not any(flags.COARSE in c.flags for c in run(noise(3), UP).arms)


def test_ties_are_fine():
    table = np.round(noise(4, arms=3, seeds=6) * 2) / 2
    assert np.isfinite([c.p_better for c in run(table).arms]).all()


def test_a_missing_run_drops_that_pair_for_that_arm_only():
    table = noise(5, arms=2, seeds=6).tolist()
    table[1][0] = None
    found = run(table)
    assert [c.n_pairs for c in found.arms] == [5, 6]
    assert [c.p_exact_better is None for c in found.arms] == [True, False]
    assert found.nu == 6 * 3 - 1 - (6 + 3 - 1)


def test_a_seed_without_the_baseline_is_unusable_for_all_arms():
    table = noise(6, arms=2, seeds=6).tolist()
    table[0][2] = None
    found = run(table)
    short = run([[v for s, v in enumerate(row) if s != 2] for row in table])
    np.testing.assert_allclose(numbers(found), numbers(short))
    assert all(flags.BASELINE_MISSING in c.flags for c in found.arms)


def test_a_removed_arm_still_counts():
    table = noise(7, arms=3)
    all_three, two = run(table), run(table[:3], registered=3)
    assert two.k == 3
    bound = [c.p_better for c in all_three.arms[:2]]
    assert [c.p_better for c in two.arms] != [c.p_better for c in run(table[:3]).arms]
    assert max(two.arms[j].p_better - bound[j] for j in range(2)) < 0.35


def test_a_finite_but_absurd_value_counts_as_diverged():
    (c,) = run([[0.5, 0.6, 0.7], [0.5, 1e200, 0.7]]).arms
    assert c.n_diverged == 1


def test_extreme_scales_raise_no_warning():
    for scale in (1e-300, 1e-160, 1e90):
        run(noise(8) * scale)
    table = noise(9, arms=3)
    table[3] = -1e38 * np.abs(table[3])
    assert run(table).arms[0].p_better == pytest.approx(
        run(table[:3], registered=3).arms[0].p_better
    )


def test_a_p_that_the_exact_test_does_not_share_is_fragile():
    d = np.array([3.0, 3.1, 2.9, 3.0, -0.4])
    (c,) = run([np.arange(5.0), np.arange(5.0) + d]).arms
    assert c.p_better <= 0.05 < c.p_exact_better
    assert flags.FRAGILE in c.flags


def test_delta_makes_differences_negligible_or_not_worse():
    table = noise(10, arms=1, seeds=8)
    table[1] = table[0] + 0.01 * np.random.default_rng(0).normal(size=8)
    (c,) = run(table, dataclasses.replace(UP, delta=0.5)).arms
    assert {flags.NEGLIGIBLE, flags.NOT_WORSE} <= set(c.flags)
    assert c.p_equivalent < 1e-6


def test_more_than_twelve_seeds_have_no_exact_p():
    (c,) = run(noise(11, arms=1, seeds=13)).arms
    assert c.p_exact_better is None


# --- simulated rates ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def null_ablations():
    return [run(noise(s, arms=4)).arms for s in range(2000)]


def test_the_family_wise_error_is_near_its_level(null_ablations):
    wrong = [any(c.p_better <= 0.05 for c in arms) for arms in null_ablations]
    assert 0.025 <= np.mean(wrong) <= 0.052


def test_the_simultaneous_interval_covers_as_often_as_it_says(null_ablations):
    covered = [all(c.interval.low <= 0 <= c.interval.high for c in arms) for arms in null_ablations]
    assert 0.90 - 0.02 <= np.mean(covered) <= 0.96


def test_the_power_is_what_the_tables_promise():
    found = [run(noise(s, arms=4, effect=2.0)).arms[0].p_better <= 0.05 for s in range(1000)]
    assert 0.82 <= np.mean(found) <= 0.88


def test_p_is_uniform_for_one_arm_under_the_null():
    p = [run(noise(s, arms=1)).arms[0].p_better for s in range(800)]
    assert stats.kstest(p, "uniform").pvalue > 0.01


# --- cells ----------------------------------------------------------------------------------------


def pair(seed, status, metrics):
    trial = Trial(f"id{seed}", "arm", seed, (), "", f"/trials/id{seed}")
    return trial, Outcome(trial.identity, status, metrics, 1.0, 1)


def test_accidents_are_absent_and_diverged_runs_are_not_numbers():
    found = cells(
        [
            pair(0, Status.DONE, {"loss": 0.5}),
            pair(1, Status.DIVERGED, {"loss": 0.1}),
            pair(2, Status.TIMED_OUT, {}),
            pair(3, Status.FAILED, {"loss": 0.2}),
            pair(4, Status.LOST, {}),
            pair(5, Status.DONE, {"loss": math.inf}),
        ],
        "loss",
    )
    assert found.keys() == {0, 1, 2, 5}
    assert found[0] == 0.5
    assert all(math.isnan(found[s]) for s in (1, 2, 5))


def test_a_finished_trial_without_the_metric_is_told_with_the_nearest_name():
    with pytest.raises(OrchestratorError, match=r"arm, seed 0 never logged 'loss'") as told:
        cells([pair(0, Status.DONE, {"val/loss": 0.5})], "loss")
    assert "val/loss" in told.value.remedy
