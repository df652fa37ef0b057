import numpy as np
import pytest

from orchestrator.nouns import Series, Telemetry
from orchestrator.plan.thresholds import thresholds, unclipped_norms


def body(n, spread=0.3, seed=0):
    return np.exp(np.random.default_rng(seed).normal(0.0, spread, n))


def telemetry(norms, losses):
    steps = np.arange(len(norms))
    return Telemetry({"grad_norm": Series(steps, norms), "train/loss": Series(steps, losses)})


def test_thresholds_are_quantiles_of_a_known_law():
    found = np.array([thresholds(body(4000, seed=s)) for s in range(20)])
    truth = np.exp(0.3 * np.array([1.645, 2.326]))
    assert np.median(found, axis=0) == pytest.approx(truth, rel=0.03)


def test_spikes_do_not_raise_the_thresholds():
    norms = body(2000)
    spiky = norms.copy()
    spiky[::100] *= 50
    assert thresholds(spiky) == pytest.approx(thresholds(norms), rel=0.05)


def test_no_threshold_lies_inside_the_body():
    for spread in (0.05, 0.1, 0.5, 1.0):
        norms = body(1000, spread)
        low = thresholds(norms)[0]
        assert low >= 1.25 * np.median(norms) * 0.99
        assert low >= np.quantile(norms, 0.9) * 0.9


def test_few_norms_quote_no_far_quantile():
    low, high = thresholds(body(120))
    assert low == pytest.approx(np.exp(0.3 * 1.645), rel=0.25)
    assert high == pytest.approx(np.exp(0.3 * 4), rel=0.25)  # median + 4 MAD, not the maximum
    assert thresholds(body(49)) == ()


def test_no_threshold_comes_from_constant_or_clipped_or_broken_norms():
    assert thresholds(np.full(500, 2.0)) == ()
    assert thresholds(np.minimum(body(1000), 1.0)) == ()
    assert thresholds(np.full(500, np.nan)) == ()
    holed = body(1000)
    holed[::10] = np.inf
    assert len(thresholds(holed)) == 2


def test_norms_come_from_the_later_part_of_a_run_that_learned():
    ramp = np.concatenate([np.full(400, 50.0), body(600)])
    falling = np.linspace(2.3, 0.1, 1000)
    assert unclipped_norms([telemetry(ramp, falling)]).max() < 10


def test_norms_come_from_the_first_steps_of_a_run_that_broke():
    dying = np.concatenate([np.full(20, 3.0), np.full(980, 1e-6)])
    flat = np.full(1000, 2.3)
    assert unclipped_norms([telemetry(dying, flat)]).tolist() == [3.0] * 20
    assert unclipped_norms([]) is None


def test_norms_end_where_a_run_blew_up():
    torn = np.concatenate([[1.0, 2.0, 50.0, 1e6, np.nan], np.full(995, 1e-6)])
    flat = np.full(1000, 2.3)
    assert unclipped_norms([telemetry(torn, flat)]).tolist() == [1.0, 2.0]
    assert thresholds(unclipped_norms([telemetry(torn, flat)] * 5)) == ()
