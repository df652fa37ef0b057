import math

import numpy as np
import pytest
from scipy import stats

from orchestrator.stats import guarded
from orchestrator.stats.power import detectable_effect, power


@pytest.mark.parametrize(("n", "effect", "rho"), [(3, 2.0, 0.3), (5, 1.0, 0.0), (10, 1.0, 0.7)])
def test_the_power_of_one_arm_is_the_noncentral_t(n, effect, rho):
    shift = effect * math.sqrt(n / (2 * (1 - rho)))
    expected = stats.nct.sf(stats.t.isf(0.05, n - 1), n - 1, shift)
    assert power(effect, n=n, k=1, alpha=0.05, rho=rho) == pytest.approx(expected, abs=0.004)


def test_the_power_agrees_with_simulated_ablations():
    rng = np.random.default_rng(11)
    calm, found, total = np.zeros((5, 5), dtype=bool), 0, 1500
    for _ in range(total):
        values = np.sqrt(0.3) * rng.normal(size=5) + np.sqrt(0.7) * rng.normal(size=(5, 5))
        values[1] += 1.5
        at = guarded.look(values, calm, k=4, resolution=0.0)
        found += at.mean_difference[0] > guarded.half_widths(at, alpha=0.05)[0]
    assert found / total == pytest.approx(power(1.5, n=5, k=4, alpha=0.05, rho=0.3), abs=0.03)


def test_the_detectable_effect_is_found_with_the_power_asked_for():
    effect = detectable_effect(n=5, k=4, alpha=0.05, rho=0.3, power=0.8)
    assert power(effect, n=5, k=4, alpha=0.05, rho=0.3) == pytest.approx(0.8, abs=1e-4)


def test_more_seeds_or_fewer_arms_find_smaller_effects():
    at = [detectable_effect(n=n, k=k, alpha=0.05, rho=0.0) for n, k in ((3, 4), (5, 4), (5, 1))]
    assert at[0] > at[1] > at[2] * 0.9
    assert at[1] > detectable_effect(n=10, k=4, alpha=0.05, rho=0.0)
