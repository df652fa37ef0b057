"""Each check: a planted fault fires it, and alone; its healthy look-alike does not."""

import numpy as np
import pytest

from orchestrator.plan.clip.robust import mean_inflation
from orchestrator.plan.clip.spikes import spikes
from tests.plan.clip.conftest import ask, flags, pilot


def body(rng, n=1200, spread=0.25):
    return np.exp(spread * rng.standard_normal(n))


def test_a_healthy_stationary_pilot_raises_no_flag(rng):
    found = ask(pilot(body(rng)))
    assert flags(found) == set()
    assert found.recommendation == "no_clipping_needed"
    assert {c.name for c in found.candidates} <= {"standard", "light", "firm", "gap"}


@pytest.mark.parametrize("n", [0, 1, 12, 49])
def test_fewer_than_50_steps_are_refused(rng, n):
    found = ask(pilot(body(rng, n)))
    assert (found.recommendation, flags(found)) == ("refused", {"too_short"})


def test_50_to_199_steps_quote_no_quantile_beyond_p95(rng):
    found = ask(pilot(body(rng, 150)))
    assert found.recommendation != "refused"
    assert {c.quantile for c in found.candidates} <= {0.95, None}


def test_nothing_finite_is_refused():
    assert flags(ask(pilot(np.full(300, np.nan)))) == {"all_nonfinite"}


def test_many_nonfinite_norms_are_flagged_and_few_are_dropped(rng):
    norms = body(rng)
    few, many = norms.copy(), norms.copy()
    few[::100] = np.inf
    many[::10] = np.nan
    assert flags(ask(pilot(few))) == set()
    found = ask(pilot(many))
    assert flags(found) == {"nonfinite"}
    assert found.dropped == {"nonfinite": 120}
    assert "numerics" in found.reason


def test_a_constant_norm_is_refused_and_a_quiet_one_is_not(rng):
    assert flags(ask(pilot(np.full(500, 3.0)))) == {"constant"}
    assert ask(pilot(body(rng, spread=0.01))).recommendation != "refused"


def test_norms_recorded_after_clipping_are_refused_with_the_value(rng):
    found = ask(pilot(np.minimum(body(rng), 1.2)))
    assert flags(found) == {"already_clipped"}
    assert "1.2" in found.reason
    assert found.candidates == ()


def test_norms_rounded_by_a_logger_are_not_taken_for_clipped(rng):
    assert "already_clipped" not in flags(ask(pilot(np.round(body(rng), 2))))


def scales(n):
    return 2.0 ** (15 + np.arange(n) // (n // 4))


def test_norms_that_carry_the_loss_scale_are_divided_by_it(rng):
    norms = body(rng)
    found = ask(pilot(norms * scales(1200), loss_scale=scales(1200)))
    clean = ask(pilot(norms))
    assert flags(found) == {"amp_scaled"}
    assert found.candidates[0].max_norm == pytest.approx(clean.candidates[0].max_norm, rel=0.05)


def test_unscaled_norms_beside_a_moving_loss_scale_are_left_alone(rng):
    assert flags(ask(pilot(body(rng), loss_scale=scales(1200)))) == set()


def test_norms_that_look_scaled_are_refused_until_confirmed(rng):
    found = ask(pilot(body(rng) * scales(1200)))
    assert "amp_scaled" in flags(found)
    assert found.recommendation == "refused"


def test_large_norms_alone_are_not_taken_for_scaled(rng):
    assert flags(ask(pilot(5e4 * body(rng)))) == set()


def test_norms_of_micro_batches_are_told_and_the_last_of_each_cycle_is_used(rng):
    grows = np.tile(np.sqrt([1, 2, 3, 4]), 400)
    found = ask(pilot(body(rng, 1600, 0.05) * grows))
    assert flags(found) == {"micro_step"}
    assert found.candidates[0].max_norm == pytest.approx(2.0 * 1.25, rel=0.1)


@pytest.mark.parametrize("end", [2.31, 6.0, np.nan])
def test_a_pilot_that_did_not_learn_gets_no_proposal(rng, end):
    loss = np.linspace(2.3, end, 1200) if end == end else np.full(1200, np.nan)
    loss[0] = 2.3
    healthy = np.linspace(2.3, 0.4, 1200)
    if end == end:
        found = ask(pilot(body(rng), loss=loss))
        assert (found.recommendation, flags(found)) == ("refused", {"unhealthy"})
    assert flags(ask(pilot(body(rng), loss=healthy))) == set()


def test_a_warm_up_is_left_out(rng):
    lr = np.minimum(1.0, np.arange(1, 1201) / 100)
    norms = body(rng)
    norms[:100] *= np.linspace(8, 1, 100)
    found = ask(pilot(norms, lr=lr))
    assert flags(found) == {"transient"}
    assert found.window[0] >= 100


def test_only_the_last_regime_counts_after_an_lr_step(rng):
    lr = np.where(np.arange(1200) < 600, 1e-1, 1e-2)
    norms = np.where(np.arange(1200) < 600, 5.0, 1.0) * body(rng)
    found = ask(pilot(norms, lr=lr))
    assert flags(found) == {"regime_change"}
    assert found.window[0] >= 600
    cosine = 0.5e-1 * (1 + np.cos(np.pi * np.arange(1200) / 1200))
    assert flags(ask(pilot(body(rng), lr=cosine))) == set()


def test_isolated_spikes_are_found_none_is_invented_and_clipping_is_advised(rng):
    norms = body(rng)
    at = np.array([200, 433, 700, 1100])
    norms[at] *= 30
    found = ask(pilot(norms))
    assert (flags(found), found.spikes) == ({"spikes"}, tuple(at))
    assert (found.recommendation, found.default) == ("clip", "standard")
    gap = next(c for c in found.candidates if c.name == "gap")
    assert np.exp(0.8) < gap.max_norm < 30 * np.exp(0.8)


def test_drift_is_told_with_its_slope_and_thresholds_belong_to_the_end(rng):
    level = np.exp(-np.linspace(0, 1.5, 2000))
    found = ask(pilot(body(rng, 2000, 0.1) * level))
    assert flags(found) == {"drift"}
    assert found.drift_per_1000_steps == pytest.approx(-0.75, rel=0.2)
    standard = next(c for c in found.candidates if c.name in ("standard", "firm"))
    assert standard.max_norm == pytest.approx(np.exp(-1.5) * 1.26, rel=0.1)
    assert found.valid_until_step < 2000 + 400
    early, late = found.candidates[0].stage_ratios[0], found.candidates[0].stage_ratios[-1]
    assert early.median > 0.9 > 0.6 > late.median


def test_correlated_batches_are_told(rng):
    z = np.zeros(1500)
    for t in range(1, 1500):
        z[t] = 0.7 * z[t - 1] + 0.15 * rng.standard_normal()
    assert flags(ask(pilot(np.exp(z)))) == {"autocorrelated"}


@pytest.mark.parametrize(("phi", "length"), [(0.0, 25), (0.5, 25), (0.8, 25), (0.95, 100)])
def test_the_noise_of_a_block_of_correlated_steps_is_that_of_simulated_ones(rng, phi, length):
    z = np.zeros((20_000, length + 100))
    noise = rng.standard_normal(z.shape)
    for t in range(1, length + 100):
        z[:, t] = phi * z[:, t - 1] + noise[:, t]
    blocks = z[:, 100:]
    seen = blocks.mean(axis=1).var() / (blocks.var(axis=1, ddof=1).mean() / length)
    assert mean_inflation(phi, length) == pytest.approx(seen, rel=0.06)


def test_a_norm_that_is_far_out_is_a_spike_where_the_loss_is_too(rng):
    norms = rng.pareto(2.0, 1500) + 1
    loss = 0.3 + 2 * np.exp(-np.arange(1500) / 300) * np.exp(0.05 * rng.standard_normal(1500))
    assert ask(pilot(norms, loss=loss)).spikes == ()
    far = np.argsort(norms)[-5:]
    loss[far] *= 4
    found = set(ask(pilot(norms, loss=loss)).spikes)
    assert found
    assert found <= set(far.tolist())


def test_a_pareto_tail_is_hardly_ever_taken_for_spikes(rng):
    tails = (np.log(rng.pareto(1.5, 800) + 1) for _ in range(300))
    assert sum(len(spikes(z).indices) > 0 for z in tails) <= 3


def test_two_kinds_of_batches_are_told_with_their_period(rng):
    norms = body(rng, spread=0.1) * np.where(np.arange(1200) % 5 == 0, 4.0, 1.0)
    found = ask(pilot(norms))
    assert flags(found) == {"bimodal"}
    assert "every 5 steps" in next(f.text for f in found.flags)


def test_a_heavy_tail_is_told_and_no_high_quantile_is_offered(rng):
    found = ask(pilot(rng.pareto(2.0, 1500) + 1))
    assert flags(found) == {"heavy_tail"}
    assert {c.quantile for c in found.candidates} <= {0.95, None}


@pytest.mark.parametrize(("norms", "flag"), [(0.0, "zero_norms"), (1e30, "implausible_level")])
def test_impossible_levels_are_refused(rng, norms, flag):
    found = ask(pilot(norms * body(rng)))
    assert (found.recommendation, flags(found)) == ("refused", {flag})
