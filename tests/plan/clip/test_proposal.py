import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from orchestrator.clip_nouns import NormSeries
from orchestrator.errors import OrchestratorError
from orchestrator.plan.clip import as_json, propose
from tests.plan.clip.conftest import ask, flags, pilot

KEYS = {
    "flags", "n_steps", "n_used", "stable", "spikes", "drift_per_1000_steps", "recommendation",
    "reason", "default", "valid_until_step", "candidates",
}  # fmt: skip


def body(rng, n=1200, spread=0.25):
    return np.exp(spread * rng.standard_normal(n))


def test_the_json_has_exactly_the_contract_s_keys(rng):
    told = as_json(ask(pilot(body(rng))))
    assert set(told) == KEYS
    keys = {"name", "max_norm", "quantile", "clip_ratio", "update_removed"}
    assert all(set(c) == keys for c in told["candidates"])
    json.dumps(told, allow_nan=False)
    assert set(as_json(ask(pilot(body(rng, 10))))) == KEYS


def test_candidates_stay_out_of_the_body_and_apart(rng):
    for spread in (0.02, 0.2, 0.8):
        norms = body(rng, spread=spread)
        found = np.array([c.max_norm for c in ask(pilot(norms)).candidates])
        assert found.min() >= 0.999 * max(1.25 * np.median(norms), np.quantile(norms, 0.9))
        assert (np.diff(np.sort(np.log(found))) >= np.log(1.05) - 1e-9).all()


def test_the_predicted_ratio_holds_for_what_comes(rng):
    norms = body(rng, 3000)
    found = ask(pilot(norms[:1500]), horizon=700)
    for c in found.candidates:
        assert c.clip_ratio.low <= np.mean(norms[1500:2200] > c.max_norm) <= c.clip_ratio.high


def test_seeds_with_different_levels_widen_the_interval(rng):
    one = ask(pilot(body(rng)))
    several = ask([pilot(level * body(rng)) for level in (0.7, 1.0, 1.4)])
    width = [c.clip_ratio.high - c.clip_ratio.low for p in (one, several) for c in p.candidates[:1]]
    assert width[1] > 2 * width[0]


def test_the_optimizer_changes_what_is_said(rng):
    norms = body(rng, spread=0.6)
    norms[::300] *= 200
    lion = ask(pilot(norms), optimizer="Lion")
    assert lion.recommendation == "no_clipping_needed"
    adam = ask(pilot(norms), optimizer="AdamW", n_parameters=10**14)
    assert any("starves" in r for c in adam.candidates for r in c.remarks)
    sgd = ask(pilot(norms), optimizer="SGD", current=0.5)
    assert any("LR x" in r for r in sgd.present.remarks)
    assert sgd.present.lr_factor < 1


def test_a_pilot_that_was_itself_clipped_most_of_the_time_is_told(rng):
    norms = body(rng)
    often, seldom = (ask(pilot(norms, max_norm_in_force=limit)) for limit in (0.5, 3.0))
    assert any("itself was clipped at 0.5" in remark for remark in often.remarks)
    assert not any("itself was clipped" in remark for remark in seldom.remarks)


def test_a_threshold_for_a_whole_training_stays_out_of_its_loudest_part(rng):
    falls = np.exp(-np.linspace(0, 2, 2400))
    norms = falls * body(rng, 2400, 0.2)
    found = ask([pilot(norms), pilot(falls * body(rng, 2400, 0.2))])
    loudest = norms[:240]
    for c in found.candidates:
        assert c.from_start > 3 * c.max_norm
        assert np.mean(loudest > c.from_start) < 0.15
    still = ask(pilot(body(rng)))
    assert all(c.from_start == c.max_norm for c in still.candidates)


def test_the_optimizer_s_own_epsilon_tells_whether_it_starves(rng):
    def told(eps):
        found = ask(pilot(body(rng), eps=eps, n_parameters=10**6), optimizer="AdamW")
        return any("starves" in r for c in found.candidates for r in c.remarks)

    assert told(1e-3)
    assert not told(1e-8)


def test_the_same_record_gives_the_same_answer(rng):
    series = pilot(body(rng))
    assert as_json(ask(series)) == as_json(ask(series))


@pytest.mark.parametrize("current", [0.0, -1.0, float("inf"), float("nan")])
def test_impossible_settings_are_refused_in_words(rng, current):
    with pytest.raises(OrchestratorError, match="max_norm"):
        ask(pilot(body(rng)), current=current)


def test_one_step_in_many_is_told_with_what_cannot_be_seen(rng):
    series = pilot(body(rng))
    sparse = NormSeries(50 * series.steps, series.norms, loss=series.loss)
    found = ask(sparse)
    assert flags(found) == {"sparse_log"}
    assert "one in 50" in found.flags[0].text


@settings(max_examples=40, deadline=None)
@given(
    arrays(np.float64, st.integers(0, 400), elements=st.floats(0) | st.just(np.nan)),
    st.booleans(),
)
def test_no_numbers_cause_a_traceback(norms, has_loss):
    steps = np.arange(len(norms))
    series = NormSeries(steps, norms, loss=norms[::-1].copy() if has_loss else None, lr=norms)
    found = propose(
        series, optimizer="SGD", n_parameters=10, horizon=None, current=1.0,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    json.dumps(as_json(found), allow_nan=False)
    for c in found.candidates:
        assert 0 <= c.clip_ratio.low <= c.clip_ratio.median <= c.clip_ratio.high <= 1
        assert np.isfinite(c.max_norm)
        assert c.max_norm > 0
