import numpy as np
import pytest

from orchestrator.diagnose.curves import (
    active_span,
    condensed,
    is_tiny,
    running_median,
    trend,
    update_ratio,
)
from orchestrator.nouns import Series, Telemetry
from orchestrator.telemetry.robust import finite, robust_std


def series(values):
    return Series(np.arange(len(values)), np.asarray(values, dtype=float))


def test_a_trend_is_recovered_in_spite_of_outliers():
    rng = np.random.default_rng(0)
    steps = np.arange(40.0)
    values = 3 - 0.02 * steps + rng.normal(0, 0.05, 40)
    values[::10] += 5
    assert trend(steps, values).slope == pytest.approx(-0.02, abs=0.01)


def test_the_t_of_a_trend_is_calibrated_on_flat_noise():
    steps = np.arange(12.0)
    draws = np.random.default_rng(1).normal(size=(2000, 12))
    t = np.array([trend(steps, values).t for values in draws])
    # 5 % lie beyond the t quantile at 10 degrees of freedom, give or take what is estimated of r
    assert 0.01 < np.mean(t < -1.81) < 0.08


def test_the_error_of_a_trend_widens_with_correlation():
    rng = np.random.default_rng(2)
    steps = np.arange(60.0)
    walk = np.zeros(60)
    for i in range(1, 60):
        walk[i] = 0.8 * walk[i - 1] + rng.normal()
    shuffled = rng.permutation(walk)
    assert trend(steps, walk).error > 1.3 * trend(steps, shuffled).error


def test_a_constant_curve_has_no_trend():
    assert trend(np.arange(6.0), np.full(6, 2.0)).t == 0


def test_blocks_are_medians_at_their_last_step():
    blocks = condensed(series(range(240)), 24)
    assert len(blocks) == 24
    assert blocks.steps[0] == 9
    assert blocks.values[0] == 4.5
    assert len(condensed(series([1, 2, 3]), 24)) == 3


def test_robust_readings_match_their_slow_derivation():
    values = np.random.default_rng(3).standard_t(3, 500)
    deviations = sorted(abs(v - np.median(values)) for v in values)
    assert robust_std(values) == pytest.approx(
        1.4826 * (deviations[249] + deviations[250]) / 2, rel=1e-9
    )
    slow = [np.median(values[i : i + 5]) for i in range(496)]
    assert running_median(values, 5).tolist() == slow
    assert len(running_median(values[:3], 5)) == 0


def test_the_update_ratio_is_the_median_over_weight_matrices():
    layers = {
        "update_ratio/a": series([1.0, 1.0, 1.0]),
        "update_ratio/b": series([3.0, 3.0, np.inf]),
        "update_ratio/bias": series([100.0, 100.0, 100.0]),
    }
    named = Telemetry(layers, {"weight_layers": "a,b"})
    assert update_ratio(named, 0, 3).values.tolist() == [2.0, 2.0, 1.0]
    assert update_ratio(named, 1, 2).steps.tolist() == [1]
    assert update_ratio(Telemetry(layers), 0, 1).values.tolist() == [3.0]


def test_tiny_updates_are_small_or_cannot_add_up():
    assert is_tiny(5e-5, 10**6)
    assert is_tiny(5e-4, 100)
    assert not is_tiny(5e-4, 10_000)
    assert not is_tiny(2e-3, 10)


def test_the_active_span_leaves_out_ramp_and_tail():
    rate = np.concatenate([np.linspace(0, 1, 10), np.ones(10), np.linspace(1, 0, 10)])
    first, last = active_span(Telemetry({"lr": series(rate)}), 0.5)
    assert (first, last) == (5, 25)
    assert active_span(Telemetry({"loss": series(rate)}), 0.5) == (0, 30)
    assert active_span(Telemetry({"lr": series(np.zeros(30))}), 0.5) == (0, 30)


def test_finite_keeps_steps_and_values_together():
    kept = finite(series([1.0, np.nan, 3.0, np.inf]))
    assert kept.steps.tolist() == [0, 2]
    assert kept.values.tolist() == [1.0, 3.0]
