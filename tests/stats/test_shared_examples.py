"""The noise that all seeds share, against models drawn example by example."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.stats.examples import disagreement, example_noise


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=200))
def test_the_share_judged_differently_lies_within_its_limits(judged):
    right = np.array(judged, dtype=float)
    share = float(np.mean(right[:, 0] != right[:, 1]))
    limits = disagreement(*right.mean(axis=0))
    assert limits.low - 1e-12 <= share <= limits.high + 1e-12


def test_the_noise_is_that_of_fresh_validation_sets():
    """600 examples, 9 % of them judged differently, half of those each way; 4,000 sets drawn."""
    rng = np.random.default_rng(0)
    kind = rng.choice(4, p=(0.85, 0.045, 0.045, 0.06), size=(4000, 600))
    arm = np.isin(kind, (0, 1)).mean(axis=1)
    baseline = np.isin(kind, (0, 2)).mean(axis=1)
    seen = float((arm - baseline).std())
    assert seen == pytest.approx(math.sqrt(0.09 / 600), rel=0.05)
    limits = example_noise(0.895, 0.895, resolution=1 / 600)
    assert limits.low == 0
    assert limits.high == pytest.approx(math.sqrt(0.21 / 600))
    assert limits.low <= seen <= limits.high


@pytest.mark.parametrize(("arm", "resolution"), [(0.5, 0.0), (1.2, 0.01), (-3.0, 0.01)])
def test_a_metric_that_is_no_share_of_examples_has_no_such_limit(arm, resolution):
    assert example_noise(arm, 0.5, resolution=resolution) is None
