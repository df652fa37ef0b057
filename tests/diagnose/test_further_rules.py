"""Rules for wiring, data, first steps, depth, numbers: a trace that must fire, and look-alikes."""

import dataclasses

import numpy as np
import pytest
from scipy.stats import binom

from orchestrator.diagnose import RULES, blocking, diagnose, hypothesise
from orchestrator.diagnose.hypotheses import TABLE
from orchestrator.diagnose.remedies import REMEDIES
from orchestrator.diagnose.stability import at_least
from orchestrator.diagnose.synthetic import LAYERS, World, edited, simulate, without
from orchestrator.nouns import Batch, Factor, Series, Telemetry

STUCK = {"floor": 2.2, "error": 0.85, "speed": 1.0, "gap": 0.0}


def draw(**changes):
    world = dataclasses.replace(World(noise=0.05, jitter=0.01), **changes)
    return simulate(world, np.random.default_rng(0))


def plus(telemetry, header=None, **series):
    """The training with more series (`a__b` is `a/b`; numbers are constant) and header facts."""
    steps = np.arange(0, 1000, 10)
    more = {
        name.replace("__", "/"): Series(steps, np.broadcast_to(np.float64(values), steps.shape))
        for name, values in series.items()
    }
    facts = {**telemetry.header, **(header or {})}
    return Telemetry({**telemetry.series, **more}, facts, telemetry.batches)


def fired(name, telemetry):
    rule = RULES[name]
    assert rule.lacks(telemetry) == []
    return rule.check(telemetry)


def scaled(telemetry, prefix, factor):
    for name in [n for n in telemetry.series if n.startswith(prefix)]:
        telemetry = edited(telemetry, name, lambda values: factor * values)
    return telemetry


# --- wiring ---------------------------------------------------------------------------------------


def test_what_is_in_no_optimizer_is_told_by_name():
    assert fired("not_optimized", draw()) is None
    finding = fired("not_optimized", plus(draw(), {"not_optimized": "a.weight,a.bias"}))
    assert finding.evidence == {"count": 2.0, "layers": "a.weight, a.bias"}


def test_detached_is_a_layer_without_a_gradient_beside_others_that_have_one():
    assert fired("detached", draw()) is None
    cut = without(draw(), f"grad_norm/{LAYERS[0]}")
    assert fired("detached", cut).layer == LAYERS[0]
    assert fired("detached", without(draw(), "grad_norm/")) is None  # not recorded at all
    zero = edited(draw(), f"grad_norm/{LAYERS[1]}", np.zeros_like)
    assert fired("detached", zero) is None  # LoRA's second matrix


def test_a_frozen_head_is_told_where_the_run_began_with_a_guess_and_is_underfit():
    facts = {"frozen": "head.weight,head.bias", "head": "head.weight"}
    assert fired("frozen", plus(draw(**STUCK), facts)).evidence["count"] == 2
    assert fired("frozen", plus(draw(), facts)) is None  # it learns
    adapted = plus(draw(**STUCK), facts | {"outputs": 50_000})
    assert fired("frozen", adapted) is None  # a pretrained head starts far below log C
    trunk = plus(draw(**STUCK), {"frozen": "first.weight", "head": "head.weight"})
    assert fired("frozen", trunk) is None
    assert fired("frozen", plus(draw(**STUCK), {"frozen": "a", "weight_layers": ""}))


def test_stale_gradients_are_told_from_half_of_the_steps_on():
    assert fired("stale_gradients", plus(draw(), {"stale_steps": 999})).severity == 1
    assert fired("stale_gradients", plus(draw(), {"stale_steps": 400})) is None


def test_wiring_explains_whatever_follows_from_it():
    (finding,) = diagnose([plus(draw(**STUCK), {"stale_steps": 999})])
    assert finding.rule == "stale_gradients"
    assert "plateau" in finding.consequences


# --- objective and evaluation ---------------------------------------------------------------------


def climbing(telemetry):
    for name in ("train/loss", "probe/loss", "val/loss"):
        telemetry = edited(telemetry, name, lambda v: 2.3 * np.exp(np.linspace(0, 5, len(v))))
    return telemetry


def test_a_loss_that_climbs_by_small_updates_has_the_wrong_sign():
    (finding,) = diagnose([climbing(draw(error=0.9))])
    assert finding.rule == "wrong_sign"
    large = scaled(climbing(draw()), "update_ratio/", 100.0)
    assert fired("wrong_sign", large) is None  # the learning rate explains it


def test_probabilities_taken_for_logits_stop_at_their_floor():
    stopped = edited(draw(), "train/loss", lambda v: np.maximum(v, 1.47))
    facts = {"outputs_are_probabilities": True}
    assert "taken for logits" in fired("loss_head_mismatch", plus(stopped, facts)).summary
    assert fired("loss_head_mismatch", stopped) is None  # another floor
    assert fired("loss_head_mismatch", plus(draw(), facts)) is None  # their logarithm is taken


def test_a_loss_that_falls_while_answers_stay_guesses_is_another_objective():
    blind = edited(draw(), "probe/accuracy", lambda v: 0 * v + 0.1)
    assert "fell to" in fired("loss_head_mismatch", blind).summary
    assert fired("loss_head_mismatch", draw()) is None


def test_dropout_that_lowers_no_probe_was_on_in_the_evaluation():
    same = edited(draw(**{**STUCK, "floor": 0.9}), "probe/loss", lambda v: v)
    assert fired("evaluation_in_training_mode", plus(same, {"dropout": 0.5}))
    assert fired("evaluation_in_training_mode", plus(same, {"dropout": 0.0})) is None
    lower = edited(same, "probe/loss", lambda v: 0.7 * v)
    assert fired("evaluation_in_training_mode", plus(lower, {"dropout": 0.5})) is None


def test_an_evaluation_that_differs_from_itself_is_told_beyond_rounding():
    assert fired("evaluation_inconsistent", plus(draw(), eval_inconsistency=0.3))
    assert fired("evaluation_inconsistent", plus(draw(), eval_inconsistency=1e-4)) is None


def test_batch_normalisation_of_one_is_told_where_evaluation_suffers():
    facts = {"batch_norm_of_one": "norm"}
    harmed = plus(edited(draw(), "probe/loss", lambda v: 3 * v), facts)
    assert fired("batch_norm_of_one", harmed).layer == "norm"
    assert fired("batch_norm_of_one", plus(draw(), facts)) is None
    assert fired("batch_norm_of_one", plus(harmed, {"batch_norm_of_one": ""})) is None


# --- tokens ---------------------------------------------------------------------------------------

NEXT = {"targets_are_next_inputs": 1.0, "targets_are_inputs": 0.1}
SAME = {"targets_are_next_inputs": 0.1, "targets_are_inputs": 1.0}


def token_rules(facts, inconsistency=0.0):
    telemetry = plus(draw(), facts, eval_inconsistency=inconsistency)
    rules = ("future_leak", "targets_unshifted", "padding_counts", "padding_seen")
    return {name for name in rules if fired(name, telemetry)}


def test_a_model_that_is_to_predict_the_next_token_must_not_see_it():
    assert token_rules(NEXT | {"future_leak": 0.2}) == {"future_leak"}
    assert token_rules(NEXT | {"future_leak": 1e-6}) == set()
    masked = {"targets_are_next_inputs": 0.1, "targets_are_inputs": 0.15}
    assert token_rules(masked | {"future_leak": 0.2}) == set()  # it is to see both sides
    assert token_rules(NEXT | {"future_leak": 0.2}, inconsistency=0.3) == set()  # it draws anew


def test_a_causal_model_must_not_be_asked_for_its_input():
    assert token_rules(SAME | {"future_leak": 0.0}) == {"targets_unshifted"}
    assert token_rules(SAME | {"future_leak": 0.2}) == set()  # an autoencoder
    assert token_rules({"targets_are_next_inputs": 1.0, "targets_are_inputs": 1.0}) == set()


def test_padding_counts_from_a_twentieth_on():
    assert token_rules(NEXT | {"padding_counts": 0.3}) == {"padding_counts"}
    assert token_rules(NEXT | {"padding_counts": 0.02}) == set()  # a token that starts each
    assert token_rules({}) == set()  # no tokens


def test_padding_that_is_attended_to_is_told():
    assert token_rules(SAME | {"future_leak": 0.2, "padding_seen": 0.02}) == {"padding_seen"}
    assert token_rules({"padding_seen": 1e-5}) == set()
    assert token_rules({"padding_seen": 0.02}, inconsistency=0.3) == set()


def test_a_head_that_only_began_as_its_embedding_is_told():
    assert fired("untied_weights", plus(draw(), {"untied": "head.weight"})).layer == "head.weight"
    assert fired("untied_weights", plus(draw(), {"untied": ""})) is None


# --- data -----------------------------------------------------------------------------------------


def test_inputs_are_measured_by_what_the_first_layer_makes_of_them():
    far = scaled(scaled(draw(), "activation_std/first", 100.0), "train/loss", 20.0)
    far = edited(far, "train/loss", lambda v: v)
    assert fired("input_scale", far).evidence["input_rms"] == pytest.approx(104, rel=0.01)
    assert fired("input_scale", scaled(draw(), "activation_std/first", 100.0)) is None


def test_validation_that_lags_from_the_start_is_shifted():
    lagging = edited(draw(speed=10.0), "val/accuracy", lambda v: np.maximum(v - 0.5, 0.05))
    lagging = edited(lagging, "val/loss", lambda v: 2.5 * v + 1.0)
    assert fired("validation_shift", lagging)
    assert fired("validation_shift", draw(speed=10.0)) is None
    assert fired("validation_shift", draw(gap=0.6, rise=0.4, accuracy_gap=0.2)) is None


def test_validation_at_chance_beside_a_train_set_that_is_learned_is_noise():
    noisy = edited(draw(), "val/accuracy", lambda v: 0 * v + 0.1)
    assert fired("label_noise", noisy).evidence["classes"] == 10
    assert fired("label_noise", edited(draw(), "val/accuracy", lambda v: 0 * v + 0.3)) is None


def test_what_the_user_logs_about_the_data_is_judged():
    assert fired("class_imbalance", plus(draw(), val__recall_rare=0.1))
    assert fired("class_imbalance", plus(draw(), val__recall_rare=0.5)) is None
    assert fired("data_order", plus(draw(), train__label_entropy=0.1))
    assert fired("data_order", plus(draw(), train__label_entropy=0.9)) is None
    many = {"outputs": 1000}
    assert fired("data_order", plus(draw(), many, train__label_entropy=0.35, samples=16)) is None
    assert fired("data_order", plus(draw(), train__label_entropy=0.0, samples=1)) is None
    assert fired("leakage", plus(draw(), val__duplicates=0.001))
    assert fired("leakage", plus(draw(), val__duplicates=0.0)) is None
    assert fired("data_wait", plus(draw(), data_seconds=0.3, step_seconds=1.0))
    assert fired("data_wait", plus(draw(), data_seconds=0.1, step_seconds=1.0)) is None


# --- first steps ----------------------------------------------------------------------------------


def test_weights_are_compared_with_what_torch_draws():
    assert fired("bad_initialisation", draw(**STUCK)) is None
    wide = scaled(draw(**STUCK), f"param_norm/{LAYERS[1]}", 30.0)
    assert fired("bad_initialisation", wide).layer == LAYERS[1]
    assert fired("bad_initialisation", scaled(draw(), f"param_norm/{LAYERS[1]}", 30.0)) is None
    assert fired("bad_initialisation", scaled(draw(**STUCK), "param_norm/", 0.0))
    one = scaled(draw(**STUCK), f"param_norm/{LAYERS[2]}", 0.0)
    assert fired("bad_initialisation", one) is None  # a head that starts at zero


def test_attention_is_saturated_where_it_never_looked_around_and_nothing_is_learned():
    assert fired("attention_saturation", plus(draw(**STUCK), probe__attention_entropy=0.05))
    assert fired("attention_saturation", plus(draw(), probe__attention_entropy=0.05)) is None
    sharpening = np.linspace(1.0, 0.05, 100)
    late = plus(draw(**STUCK), probe__attention_entropy=sharpening)
    assert fired("attention_saturation", late) is None


def test_logits_are_out_of_scale_with_a_first_loss_far_above_a_guess():
    tall = scaled(draw(), "train/loss", 10.0)
    assert fired("logit_scale", plus(tall, logit_variance=900.0)).evidence["std"] == 30
    assert fired("logit_scale", plus(draw(), logit_variance=900.0)) is None  # learned confidence
    assert fired("logit_scale", plus(tall, logit_variance=1.0)) is None  # a loss that is summed


def test_logits_drift_where_log_z_runs_away_from_a_run_that_does_not_learn():
    away = np.linspace(2.0, 60.0, 100)
    assert fired("logit_drift", plus(draw(**STUCK), log_z=away, logit_spread=80.0))
    assert fired("logit_drift", plus(draw(), log_z=away, logit_spread=80.0)) is None
    assert fired("logit_drift", plus(draw(**STUCK), log_z=2.3, logit_spread=80.0)) is None


# --- depth ----------------------------------------------------------------------------------------


def deep(telemetry, gradient=1.0, spread=1.0):
    """Six weight matrices; gradients and outputs grow by a factor from each to the next."""
    names = [f"l{i}.weight" for i in range(6)]
    facts = {"weight_layers": ",".join(names), "weight_shapes": ",".join(["64x64"] * 6)}
    more = {f"grad_norm/{n}": gradient**i for i, n in enumerate(names)}
    more |= {f"activation_std/l{i}": spread**i for i in range(6)}
    more |= {f"param_norm/{n}": 4.6 for n in names}
    bare = without(telemetry, "grad_norm/", "activation_", "param_norm/")
    return plus(bare, facts, **more)


def test_gradients_vanish_by_their_ratio_in_a_run_that_is_underfit():
    assert fired("vanishing_gradients", deep(draw(**STUCK), gradient=8.0)).layer == "l0.weight"
    assert fired("vanishing_gradients", deep(draw(), gradient=8.0)) is None
    assert fired("vanishing_gradients", deep(draw(**STUCK), gradient=2.0)) is None
    dead = edited(deep(draw(**STUCK), gradient=8.0), "grad_norm/l0.weight", np.zeros_like)
    assert fired("vanishing_gradients", dead) is None  # dead units


def test_activations_explode_by_their_growth_over_depth():
    tall = scaled(draw(), "train/loss", 10.0)
    assert fired("exploding_gradients", deep(tall, spread=4.0)).evidence["growth"] > 10
    assert fired("exploding_gradients", deep(tall, spread=1.5)) is None
    assert fired("exploding_gradients", deep(draw(), spread=4.0)) is None


def test_a_gradient_that_grows_until_the_loss_is_lost_has_exploded():
    def lost(values):
        values[600:] = np.nan
        return values

    ending = edited(draw(), "train/loss", lost)

    def growing(values):
        values[595:600] *= 100
        return values

    assert fired("exploding_gradients", edited(ending, "grad_norm", growing)).steps[0] in range(
        595, 600
    )
    assert fired("exploding_gradients", ending) is None
    assert fired("exploding_gradients", edited(draw(), "grad_norm", growing)) is None  # it recovers


def test_units_are_dead_by_outputs_or_by_gradients_that_are_exactly_zero():
    silent = edited(draw(**STUCK), "activation_zeros/first", lambda v: 0 * v + 0.97)
    assert fired("dead_units", silent).layer == "first"
    assert (
        fired("dead_units", edited(draw(), "activation_zeros/first", lambda v: 0 * v + 0.97))
        is None
    )
    still = edited(draw(**STUCK), f"grad_norm/{LAYERS[0]}", np.zeros_like)
    assert fired("dead_units", still).layer == LAYERS[0]
    assert fired("dead_units", draw(**STUCK)) is None


def test_layers_are_out_of_step_by_three_decades():
    facts = {"weight_layers": "a,b,c,d"}
    apart = {f"update_ratio/{n}": 10.0**-k for n, k in zip("abcd", (2, 2, 6, 6), strict=True)}
    near = {f"update_ratio/{n}": 10.0**-k for n, k in zip("abcd", (2, 3, 3, 4), strict=True)}
    assert fired("layer_imbalance", plus(draw(**STUCK), facts, **apart))
    assert fired("layer_imbalance", plus(draw(), facts, **apart)) is None
    assert fired("layer_imbalance", plus(draw(**STUCK), facts, **near)) is None


# --- regularisation, steps, numbers ---------------------------------------------------------------


def test_weight_decay_is_told_by_weights_that_shrink():
    shrinking = draw(**STUCK)
    for name in LAYERS:
        shrinking = edited(
            shrinking, f"param_norm/{name}", lambda v: v * np.exp(-np.linspace(0, 5, len(v)))
        )
    assert (
        fired("over_regularised", plus(shrinking, {"weight_decay": 10.0})).evidence["norm_left"]
        < 0.2
    )
    assert fired("over_regularised", plus(shrinking, {"weight_decay": 0.0})) is None
    assert (
        fired("over_regularised", plus(draw(**STUCK), {"dropout": 0.95})).evidence["dropout"]
        == 0.95
    )
    assert fired("over_regularised", plus(draw(), {"dropout": 0.95})) is None


def test_an_epsilon_is_too_large_where_steps_are_far_below_the_learning_rate():
    slow = scaled(draw(**STUCK), "update_ratio/", 1e-4)
    assert fired("epsilon_too_large", plus(slow, {"eps": 10.0})).evidence["step"] < 0.01
    assert fired("epsilon_too_large", plus(slow, {"eps": 1e-8})) is None
    assert fired("epsilon_too_large", plus(draw(**STUCK), {"eps": 1e-3})) is None
    assert fired("epsilon_too_large", plus(slow, {"eps": 10.0, "optimizer": "SGD"})) is None


def test_noise_dominates_where_it_outweighs_the_gradient_on_a_plateau():
    assert fired("noise_dominated", plus(draw(**STUCK), train__gradient_noise=5.0))
    assert fired("noise_dominated", plus(draw(**STUCK), train__gradient_noise=0.5)) is None
    assert fired("noise_dominated", plus(draw(), train__gradient_noise=5.0)) is None


def test_gradients_underflow_where_a_bias_has_zeros_in_its_gradient():
    assert fired("underflow", plus(draw(), **{"grad_zeros__head.bias": 0.6}))
    assert fired("underflow", plus(draw(), **{"grad_zeros__head.bias": 0.0})) is None
    done = edited(draw(), "train/loss", lambda v: 1e-3 * v)
    assert fired("underflow", plus(done, **{"grad_zeros__head.bias": 0.6})) is None


def test_a_loss_scale_collapses_by_halvings_after_its_search():
    steps = np.arange(100)
    assert fired("loss_scale_collapse", plus(draw(), loss_scale=2.0 ** (16 - steps / 2)))
    searching = 2.0 ** np.where(steps < 2, 30 - 15 * steps, 16)
    assert fired("loss_scale_collapse", plus(draw(), loss_scale=searching)) is None


def test_a_gradient_that_jumps_before_the_loss_is_a_warning_with_step_and_batch():
    def jump(values):
        values[500:512] += 2.0
        return values

    def warn(values):
        values[498] *= 60
        return values

    spiky = edited(edited(draw(), "train/loss", jump), "grad_norm", warn)
    told = Telemetry(spiky.series, spiky.header, (Batch(498, 0, "shard 7"), Batch(497, 0, "x")))
    (finding,) = diagnose([told])
    assert finding.rule == "gradient_spike"
    assert (finding.evidence["step"], finding.evidence["batches"]) == (498, "shard 7")
    same = edited(edited(draw(), "train/loss", jump), "grad_norm", lambda v: v)
    assert fired("gradient_spike", same) is None

    def often(values):
        values[100::25] *= 60
        return values

    assert fired("gradient_spike", edited(spiky, "grad_norm", often)) is None


@pytest.mark.parametrize(("k", "n", "p"), [(1, 1, 0.077), (3, 12, 0.077), (2, 2, 0.3), (3, 3, 0.0)])
def test_the_chance_of_so_many_events_is_the_binomials(k, n, p):
    assert at_least(k, n, p) == pytest.approx(binom.sf(k - 1, n, p), abs=1e-12)


# --- what to do -----------------------------------------------------------------------------------


def test_every_rule_says_what_to_do_about_it():
    for name in RULES:
        assert name in REMEDIES or name in TABLE, name


def test_a_program_that_is_wired_wrong_is_mended_before_any_trial():
    findings = diagnose([plus(draw(**STUCK), {"stale_steps": 999})])
    raised, advice = hypothesise(findings, [Factor("lr", "lr", 0.1)])
    assert raised == ()
    assert advice == blocking(findings) != ()
    assert "zero_grad" in advice[0]


def test_what_only_code_can_mend_is_advice_beside_the_hypotheses():
    findings = diagnose([plus(draw(**STUCK), {"dropout": 0.95, "eps": 1e-8})])
    raised, _ = hypothesise(findings, [Factor("dropout", "dropout", 0.95)])
    assert [h.factor for h in raised] == ["dropout"]
    dead = edited(draw(**STUCK), "activation_zeros/first", lambda v: 0 * v + 0.97)
    raised, advice = hypothesise(diagnose([dead]), [Factor("lr", "lr", 0.1)])
    assert [h.factor for h in raised] == ["lr"]
    assert advice[0].startswith("dead_units: check biases")
    assert blocking(diagnose([dead])) == ()
