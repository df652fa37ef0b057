"""What each rule says, and the look-alikes it must know, one small trace at a time."""

import dataclasses

import numpy as np
import pytest

from orchestrator.diagnose import RULES, diagnose
from orchestrator.diagnose.synthetic import World, edited, simulate, without
from orchestrator.nouns import Series, Telemetry
from orchestrator.telemetry.signals import loss_spike_steps

NOISE_FREE = World(noise=0.05, jitter=0.01)


def draw(seed=0, **changes):
    return simulate(dataclasses.replace(NOISE_FREE, **changes), np.random.default_rng(seed))


def told(telemetry):
    return [finding.rule for finding in diagnose([telemetry])]


def fired(name, telemetry):
    return RULES[name].check(telemetry)


# --- overfitting ----------------------------------------------------------------------------------

OVERFIT = {"gap": 0.6, "rise": 0.4, "accuracy_gap": 0.2, "floor": 1e-3, "speed": 30.0}


def test_overfitting_tells_the_gap_and_where_validation_was_best():
    (finding,) = diagnose([draw(**OVERFIT)])
    assert finding.rule == "overfitting"
    assert finding.evidence["accuracy_gap"] == pytest.approx(0.2, abs=0.03)
    assert f"{finding.evidence['accuracy_gap']:.2f} below train" in finding.summary
    assert 0 < finding.steps[0] < finding.steps[1] == 999


def test_overfitting_is_seen_without_probe_and_without_accuracy():
    whole = draw(**OVERFIT)
    assert told(without(whole, "probe/")) == ["overfitting"]
    assert told(without(whole, "probe/", "val/accuracy")) == ["overfitting"]


def test_overfitting_needs_five_evaluations():
    assert told(draw(**OVERFIT, evaluations=4)) == []


def test_a_gap_within_the_error_of_a_tiny_validation_set_is_no_overfitting():
    gap = {**OVERFIT, "accuracy_gap": 0.1}
    assert told(draw(**gap, examples=1000)) == ["overfitting"]
    assert told(draw(**gap, examples=32)) == []


def test_rising_accuracy_means_calibration_not_overfitting():
    still = draw(**{**OVERFIT, "late_accuracy": 0.15, "accuracy_gap": 0.25})
    assert still["val/loss"].values[-1] > 1.2 * still["val/loss"].values.min()
    assert "overfitting" not in told(still)


def test_a_gap_from_the_first_evaluation_on_is_another_kind_of_data():
    shifted = edited(draw(gap=0.7), "val/accuracy", lambda v: np.maximum(v - 0.35, 0.0))
    shifted = edited(shifted, "probe/accuracy", lambda v: np.maximum(v, 0.6))
    assert "overfitting" not in told(shifted)


def test_one_jump_of_the_validation_loss_is_a_change_of_data_or_schedule():
    bare = without(draw(), "probe/accuracy", "val/accuracy")
    jump = np.where(np.arange(25) >= 12, 0.8, 0.0)
    assert told(edited(bare, "val/loss", lambda v: v + jump)) == []


def test_the_test_split_is_never_looked_at():
    whole = draw()
    test = {n.replace("val/", "test/"): s for n, s in draw(**OVERFIT).series.items() if "val/" in n}
    assert told(Telemetry({**whole.series, **test}, whole.header)) == []


# --- optimisation ---------------------------------------------------------------------------------


def test_plateau_tells_level_and_size_of_the_updates():
    (finding,) = diagnose([draw(floor=1.5, error=0.5, speed=30.0, gap=0.0)])
    assert finding.rule == "plateau"
    assert finding.evidence["level"] == pytest.approx(1.5, rel=0.05)
    assert 1e-4 < finding.evidence["update_ratio"] < 1e-2


def test_a_flat_loss_with_high_accuracy_is_a_floor():
    assert told(draw(floor=0.87, speed=60.0, gap=0.01)) == []


def test_a_flat_tail_of_the_schedule_is_no_plateau():
    assert "plateau" not in told(draw(floor=0.7, error=0.15, lr="cosine", speed=4.0, gap=0.0))


def test_a_loss_too_noisy_to_tell_is_no_plateau():
    noisy = draw(floor=1.5, error=0.5, speed=3.0, jitter=0.5, gap=0.0)
    assert fired("plateau", noisy) is None


def test_a_probe_of_few_points_is_no_plateau_while_the_steps_still_fall():
    flat = draw(1, floor=1.5, error=0.5, speed=30.0, gap=0.0, evaluations=8)
    assert fired("plateau", flat)
    falling = edited(flat, "train/loss", lambda v: v - np.linspace(0, 0.15, len(v)))
    assert fired("plateau", falling) is None
    hardly = edited(flat, "train/loss", lambda v: v - np.linspace(0, 0.015, len(v)))
    assert fired("plateau", hardly)


SLOW = {"speed": 0.3, "update": 6e-5}


def test_a_learning_rate_too_low_shows_in_tiny_updates_and_a_straight_fall():
    (finding,) = diagnose([draw(**SLOW)])
    assert finding.rule == "learning_rate_too_low"
    assert finding.evidence["update_ratio"] < 1e-4
    assert "healthy: about 1e-3" in finding.summary


def test_slow_learning_with_healthy_updates_is_not_the_learning_rates_fault():
    assert "learning_rate_too_low" not in told(draw(speed=0.3, update=4e-3))


def test_small_steps_on_purpose_slow_down():
    assert told(draw(start=0.9, floor=0.6, error=0.12, speed=20.0, update=6e-5)) in (
        [],
        ["plateau"],
    )
    assert "learning_rate_too_low" not in told(
        draw(start=0.9, floor=0.6, error=0.12, speed=20.0, update=6e-5)
    )


def test_updates_are_read_after_the_warm_up():
    assert "learning_rate_too_low" not in told(draw(speed=2.0, update=4e-3, lr="warmup"))


def collapsed(at, **changes):
    whole = draw(speed=2.0, **changes)
    late = np.arange(1000) >= at
    held = {
        n: np.where(s.steps >= at, s.values[np.searchsorted(s.steps, at)], s.values)
        for n, s in whole.series.items()
        if n.endswith(("loss", "accuracy")) and s.steps[-1] >= at
    }
    series = {n: Series(whole[n].steps, v) for n, v in held.items()}
    series["lr"] = Series(np.arange(1000), np.where(late, 1e-11, 1e-3))
    for name, layer in whole.layers("update_ratio").items():
        frozen = np.where(layer.steps >= at, 1e-9, layer.values)
        series[f"update_ratio/{name}"] = Series(layer.steps, frozen)
    return Telemetry({**whole.series, **series}, whole.header)


def test_a_schedule_that_collapses_early_is_told_and_explains_the_plateau():
    (finding,) = diagnose([collapsed(300)])
    assert finding.rule == "schedule_collapse"
    assert "70% of steps left" in finding.summary
    assert finding.steps[0] == 300


def test_a_schedule_that_ends_late_is_no_collapse():
    assert fired("schedule_collapse", collapsed(700)) is None


def test_a_learning_rate_of_zero_throughout_is_told():
    still = edited(draw(speed=0.0, update=0.0), "lr", lambda v: 0 * v)
    (finding,) = diagnose([still])
    assert finding.summary == "the learning rate is 0 in every step"


# --- stability ------------------------------------------------------------------------------------


def exploded(peak=30.0, update=0.3):
    def torn(values):
        values[2:30] *= peak
        return values

    whole = edited(draw(floor=2.2, error=0.8, speed=1.0), "train/loss", torn)
    for name in whole.layers("update_ratio"):
        change = np.where(np.arange(100) < 3, update, 1e-7)
        whole = edited(whole, f"update_ratio/{name}", lambda v, change=change: change)
    return whole


def test_instability_is_the_root_of_what_follows():
    (finding,) = diagnose([exploded()])
    assert finding.rule == "instability"
    assert set(finding.consequences) >= {"plateau"}
    assert finding.evidence["peak"] == pytest.approx(30, rel=0.2)
    assert finding.evidence["early_update_peak"] == pytest.approx(0.3)


def test_instability_explains_a_loss_that_ends_as_nan():
    def nan(values):
        values[40:] = np.nan
        return values

    findings = diagnose([edited(without(exploded(), "probe/", "val/"), "train/loss", nan)])
    assert [f.rule for f in findings] == ["instability"]
    assert "non_finite" in findings[0].consequences


def test_nan_without_instability_stands_for_itself():
    def nan(values):
        values[600:] = np.nan
        return values

    findings = diagnose([edited(draw(), "train/loss", nan)])
    assert [f.rule for f in findings] == ["non_finite"]
    assert findings[0].summary == "train/loss is not finite from step 600 on"


def test_nan_that_came_back_or_is_in_the_evaluation_alone_is_no_divergence():
    def hole(values):
        values[3:5] = np.nan
        return values

    assert told(edited(draw(), "train/loss", hole)) == []
    assert told(edited(draw(), "val/loss", lambda v: v * np.nan)) == []


def test_ten_skipped_steps_at_the_end_are_not_finite_and_nine_are_not_told():
    def infinite(count):
        return lambda v: np.where(np.arange(1000) >= 1000 - count, np.inf, v)

    assert told(edited(draw(), "grad_norm", infinite(10))) == ["non_finite"]
    assert told(edited(draw(), "grad_norm", infinite(9))) == []


def test_a_run_that_learned_is_let_off_a_transient_peak():
    def peaked(values):
        values[2:12] *= 8
        return values

    assert told(edited(draw(), "train/loss", peaked)) == []


def spiky(count, height, length=8):
    def jumping(values):
        for at in np.linspace(250, 900, count).astype(int):
            values[at : at + length] += height
        return values

    def forewarned(values):
        for at in np.linspace(250, 900, count).astype(int):
            values[at - 1] *= 40
        return values

    return edited(edited(draw(), "train/loss", jumping), "grad_norm", forewarned)


def test_three_spikes_are_told_with_the_gradient_norm_before_them():
    (finding,) = diagnose([spiky(3, 1.0)])
    assert finding.rule == "loss_spikes"
    assert finding.evidence["spikes"] == 3
    assert finding.evidence["grad_norm_ratio"] > 15


def test_two_spikes_are_not_told_unless_they_are_huge():
    assert told(spiky(2, 1.0)) == []
    assert told(spiky(1, 15.0)) == ["loss_spikes"]


def test_jitter_of_a_converged_loss_is_no_spike():
    assert told(spiky(6, 0.1)) == []


def test_single_bad_batches_are_no_spike():
    assert told(spiky(6, 3.0, length=1)) == []


def heavy_tailed(seed, steps=10_000):
    rng = np.random.default_rng(seed)
    loss = 1.5 * np.exp(-np.arange(steps) / 500) + 0.05 * rng.lognormal(0, 1.2, steps)
    return Telemetry({"train/loss": Series(np.arange(steps), loss)}, {})


def test_losses_of_a_few_samples_each_now_and_then_stand_together_by_chance():
    """Batches of 2: in a long run their jumps pass for spikes, but no oftener than they must."""
    spikes = [len(loss_spike_steps(heavy_tailed(seed))) for seed in range(10)]
    assert np.mean(np.array(spikes) >= 3) >= 0.7
    assert not any(fired("loss_spikes", heavy_tailed(seed)) for seed in range(10))


def test_spikes_among_losses_of_a_few_samples_each_are_told():
    def swell(values):
        for at in range(500, 9500, 600):
            values[at : at + 8] += 5
        return values

    assert fired("loss_spikes", edited(heavy_tailed(0), "train/loss", swell))


# --- clipping -------------------------------------------------------------------------------------

TIGHT = {"optimizer": "SGD", "max_norm": 1e-3, **SLOW}


def test_a_tight_clip_under_sgd_is_the_root_of_tiny_updates():
    (finding,) = diagnose([draw(**TIGHT)])
    assert finding.rule == "high_clip_ratio"
    assert finding.consequences == ("learning_rate_too_low",)
    assert finding.evidence["clip_ratio"] == 1.0
    assert finding.evidence["max_norm"] == 1e-3


def test_adam_rescales_what_was_clipped():
    assert told(draw(**{**TIGHT, "optimizer": "AdamW"})) == ["learning_rate_too_low"]
    assert told(draw(optimizer="Adam", max_norm=1e-3)) == []


def test_sgd_that_learns_may_clip_as_often_as_it_likes():
    assert told(draw(optimizer="SGD", max_norm=1e-3)) == []


def test_clipping_now_and_then_is_healthy():
    assert "high_clip_ratio" not in told(draw(**{**TIGHT, "max_norm": 0.6}))
