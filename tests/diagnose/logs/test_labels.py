"""One small log for each label beside the look-alike that must not be called so."""

import numpy as np
import pytest

from orchestrator.diagnose.logs import LOG_RULES, diagnose_log
from orchestrator.diagnose.logs.contract import as_json
from orchestrator.diagnose.logs.testing import as_log
from orchestrator.diagnose.testing import HEALTHY
from orchestrator.log_nouns import LABELS
from orchestrator.telemetry.readers import read_log


def diagnosis(folder, **columns):
    """The diagnosis of a CSV with these columns; None is an empty cell."""
    names, rows = list(columns), list(zip(*columns.values(), strict=True))
    cells = [",".join("" if c is None else str(c) for c in row) for row in rows]
    file = folder / "log.csv"
    file.write_text("\n".join([",".join(names), *cells]) + "\n")
    return diagnose_log(read_log(file), source=str(file))


def falling(n, start=2.0, floor=0.2, speed=5.0):
    return floor + (start - floor) * np.exp(-speed * np.arange(n) / n)


def scattered(values, spread=0.03, seed=0):
    return values * np.exp(np.random.default_rng(seed).normal(0, spread, len(values)))


@pytest.fixture
def epochs():
    return range(40)


def test_two_curves_that_fall_together_are_healthy(tmp_path, epochs):
    loss = scattered(falling(40))
    found = diagnosis(tmp_path, epoch=epochs, train_loss=loss, val_loss=scattered(loss + 0.1))
    assert found.labels == ("healthy",)
    assert found.findings == found.hypotheses == ()


def test_validation_that_rises_while_training_falls_is_overfitting(tmp_path, epochs):
    rising = falling(40) + 0.03 * np.maximum(0, np.arange(40) - 12)
    found = diagnosis(tmp_path, epoch=epochs, train_loss=falling(40), val_loss=rising)
    assert found.label == "overfitting"
    assert [h.factor for h in found.hypotheses] == ["weight_decay", "dropout"]


def test_a_late_wiggle_at_the_bottom_of_a_deep_fall_is_no_overfitting(tmp_path):
    val = [0.474, 0.079, 0.068, 0.068, 0.043, 0.054, 0.05, 0.052]
    train = [0.3, 0.1, 0.05, 0.03, 0.01, 0.005, 0.003, 0.001]
    assert diagnosis(tmp_path, epoch=range(8), train_loss=train, val_loss=val).label == "healthy"


def test_a_rise_in_one_step_is_other_data(tmp_path, epochs):
    val = scattered(falling(40) + 0.5 * (np.arange(40) >= 20), 0.005)
    found = diagnosis(tmp_path, epoch=epochs, train_loss=falling(40, speed=3), val_loss=val)
    assert found.label == "healthy"


def test_a_metric_that_still_improves_is_told_with_the_rising_loss(tmp_path, epochs):
    rising = falling(40) + 0.03 * np.maximum(0, np.arange(40) - 12)
    accuracy = 0.9 - 0.5 * falling(40, 1.0, 0.0, 3.0)
    found = diagnosis(
        tmp_path, epoch=epochs, train_loss=falling(40), val_loss=rising, val_accuracy=accuracy
    )
    assert "val/accuracy still improved" in found.findings[0].summary


def test_a_train_set_learned_by_heart_that_transfers_nothing_is_overfitting(tmp_path, epochs):
    val = scattered(np.full(40, 4.0), 0.005)
    found = diagnosis(tmp_path, epoch=epochs, train_loss=falling(40, 4.0, 0.05), val_loss=val)
    assert [f.rule for f in found.findings] == ["memorised"]


def test_a_validation_loss_with_a_floor_beside_a_good_accuracy_is_healthy(tmp_path, epochs):
    val = 0.79 + falling(40, 0.05, 0.0, 20)
    accuracy = 0.96 - falling(40, 0.02, 0.0, 20)
    found = diagnosis(
        tmp_path, epoch=epochs, train_loss=falling(40, 1.0, 0.01), val_loss=val, val_acc=accuracy
    )
    assert found.label == "healthy"


def test_a_metric_that_decays_is_overfitting_where_no_validation_loss_was_logged(tmp_path, epochs):
    accuracy = scattered(0.8 - 0.01 * np.abs(np.arange(40) - 10), 0.005)
    found = diagnosis(tmp_path, epoch=epochs, train_loss=falling(40), val_accuracy=accuracy)
    assert [f.rule for f in found.findings] == ["metric_decays"]


def test_a_loss_that_never_moved_is_a_plateau_and_ln_k_is_told(tmp_path, epochs):
    loss = np.full(40, 2.3026) + np.random.default_rng(0).normal(0, 2e-4, 40)
    found = diagnosis(tmp_path, epoch=epochs, loss=loss, accuracy=[0.1] * 40)
    assert found.label == "plateau"
    assert "ln 10" in found.findings[0].summary


def test_a_slow_start_is_no_plateau(tmp_path, epochs):
    loss = np.where(np.arange(40) < 12, 0.693, 0.693 * np.exp(-(np.arange(40) - 12) / 25))
    found = diagnosis(tmp_path, epoch=epochs, train_loss=loss)
    assert found.label == "healthy"
    assert any("slow start" in remark for remark in found.remarks)


def test_a_learning_rate_of_zero_is_told_before_the_plateau_that_it_causes(tmp_path, epochs):
    loss = scattered(np.full(40, 11.4), 0.001)
    found = diagnosis(tmp_path, step=epochs, loss=loss, lr=[0.0] * 40)
    assert [f.rule for f in found.findings] == ["lr_is_zero"]
    assert found.findings[0].consequences == ("nothing_learned",)


def test_a_loss_that_falls_undiminished_to_the_end_is_underfitting(tmp_path):
    found = diagnosis(tmp_path, epoch=range(10), train_loss=np.linspace(4.6, 3.97, 10))
    assert found.label == "underfitting"
    assert found.hypotheses[0].factor == "lr"


def test_a_power_law_that_slows_down_is_no_underfitting(tmp_path):
    loss = 2.0 + 3.0 * (1 + np.arange(200)) ** -0.4
    assert diagnosis(tmp_path, step=range(200), loss=scattered(loss, 0.01)).label == "healthy"


def test_metrics_that_stay_at_zero_are_underfitting_whatever_the_losses_do(tmp_path, epochs):
    found = diagnosis(tmp_path, epoch=epochs, train_loss=falling(40), val_map=[0.001] + [0.0] * 39)
    assert [f.rule for f in found.findings] == ["metrics_stay_at_zero"]


def test_a_jump_above_all_that_was_and_back_is_instability(tmp_path, epochs):
    loss = scattered(falling(40))
    loss[20] = 60.0
    assert diagnosis(tmp_path, epoch=epochs, train_loss=loss).label == "instability"


@pytest.mark.parametrize("first", [5.0, 20.0])
def test_a_first_loss_many_times_the_rest_is_no_instability(tmp_path, epochs, first):
    loss = scattered(falling(40))
    loss[0] *= first
    assert diagnosis(tmp_path, epoch=epochs, train_loss=loss).label == "healthy"


def test_bursts_of_single_batches_below_the_start_are_no_instability(tmp_path):
    loss = scattered(falling(200, 0.5, 0.002, 6.0), 0.7)
    assert diagnosis(tmp_path, step=range(200), loss=loss).label == "healthy"


def test_a_loss_that_ends_as_nan_is_divergence(tmp_path, epochs):
    loss = [2.0] * 30 + ["nan"] * 10
    found = diagnosis(tmp_path, epoch=epochs, train_loss=loss, train_acc=[0.1] * 40)
    assert found.labels[0] == "divergence"


def test_a_zero_that_stands_for_nan_is_divergence(tmp_path, epochs):
    loss = [*scattered(falling(30)), *[0.0] * 10]
    norm = [*[1.5] * 30, *["nan"] * 10]
    found = diagnosis(tmp_path, step=epochs, loss=loss, grad_norm=norm)
    assert found.findings[0].rule == "loss_not_finite"
    assert "written as 0" in found.findings[0].summary


def test_a_metric_that_is_nan_is_no_divergence(tmp_path, epochs):
    dice = ["nan"] * 40
    found = diagnosis(tmp_path, epoch=epochs, loss=falling(40), val_loss=falling(40), val_dice=dice)
    assert found.labels == ("healthy",)


def test_a_loss_that_collapses_to_chance_is_divergence(tmp_path, epochs):
    loss = scattered(np.where(np.arange(40) < 20, falling(40, 2.7, 1.7, 3.0), 2.303), 0.002)
    found = diagnosis(tmp_path, epoch=epochs, train_loss=loss)
    assert found.labels == ("divergence",)
    assert found.hypotheses


def test_a_known_clamp_is_named(tmp_path, epochs):
    loss = [*scattered(falling(20, 20.0, 10.0)), *[87.3365] * 20]
    assert (
        "87.3365 is a known clamp"
        in diagnosis(tmp_path, step=epochs, loss=loss).findings[0].summary
    )


def test_an_evaluation_of_nan_beside_a_loss_that_learns_is_no_divergence(tmp_path, epochs):
    found = diagnosis(tmp_path, epoch=epochs, train_loss=falling(40), val_loss=["nan"] * 40)
    assert "divergence" not in found.labels


def test_gradients_of_zero_are_vanishing(tmp_path, epochs):
    found = diagnosis(tmp_path, step=epochs, loss=[0.0] * 40, grad_norm=[0.0] * 40)
    assert found.label == "vanishing"
    assert found.hypotheses == ()


def trainer_log(tmp_path, norms):
    return diagnosis(
        tmp_path,
        step=range(len(norms)),
        loss=scattered(falling(len(norms))),
        grad_norm=norms,
        learning_rate=[1e-4] * len(norms),
    )


def test_norms_far_above_the_trainers_threshold_are_a_high_clip_ratio(tmp_path):
    assert trainer_log(tmp_path, scattered(np.full(40, 12.0), 0.2)).label == "high_clip_ratio"


def test_norms_barely_above_the_threshold_are_a_remark(tmp_path):
    found = trainer_log(tmp_path, scattered(np.full(40, 2.0), 0.2))
    assert found.label == "healthy"
    assert any("but only" in remark for remark in found.remarks)


def test_large_norms_of_a_trainer_that_clips_nothing_say_nothing(tmp_path, epochs):
    norm = scattered(np.full(40, 12.0), 0.2)
    found = diagnosis(tmp_path, epoch=epochs, train_loss=scattered(falling(40)), grad_norm=norm)
    assert found.label == "healthy"


def test_validation_that_jumps_where_training_does_not_is_a_noisy_evaluation(tmp_path, epochs):
    loss = falling(40)
    found = diagnosis(tmp_path, epoch=epochs, train_loss=loss, val_loss=scattered(loss, 0.5))
    assert "noisy_eval" in found.labels


def test_one_isolated_outlier_of_validation_is_a_remark(tmp_path, epochs):
    loss = scattered(falling(40))
    val = loss + 0.05
    val[20] *= 10
    found = diagnosis(tmp_path, epoch=epochs, train_loss=loss, val_loss=val)
    assert found.label == "healthy"
    assert any("isolated validation loss" in remark for remark in found.remarks)


def test_six_points_are_no_curve_and_seven_are(tmp_path):
    six, seven = falling(6), falling(7)
    assert diagnosis(tmp_path, epoch=range(6), loss=six).labels == ("insufficient_data",)
    assert diagnosis(tmp_path, epoch=range(7), loss=seven).labels == ("healthy",)


def test_adversarial_losses_get_no_verdict(tmp_path, epochs):
    swings = scattered(np.full(40, 3.0), 0.3)
    found = diagnosis(tmp_path, epoch=epochs, loss_G=swings, loss_D=swings[::-1])
    assert found.labels == ("healthy",)
    assert any("adversarial" in remark for remark in found.remarks)


LOUD = {  # what the table of scripts/bench_logs.py publishes as alarms
    "calibration: loss up, accuracy up",
    "validation harder from the start",
    "noisy evaluations",
    "1 % outlying batches",
    "losses of a few samples each",
}


@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize("name", sorted(set(HEALTHY) - LOUD))
def test_look_alikes_stay_healthy(name, every):
    for seed in range(5):
        log = as_log(HEALTHY[name](np.random.default_rng(seed)), every=every)
        assert diagnose_log(log, source=name).labels == ("healthy",)


def test_every_rule_has_a_label_a_source_and_look_alikes():
    for rule in LOG_RULES.values():
        words = " ".join(rule.check.__doc__.split())
        assert rule.label in LABELS
        assert any(w in words for w in ("docs/diagnosis.md", "Ours", "ours", "Exact", "zoo"))
        assert "Look-alikes" in words or "Excluded" in words, rule.name


def test_the_contract_holds_plain_values_only(tmp_path, epochs):
    loss = scattered(falling(40))
    loss[20] = 60.0
    answer = as_json(diagnosis(tmp_path, epoch=epochs, train_loss=loss))
    assert set(answer) == {
        "format", "series", "n_points", "label", "labels", "findings", "hypotheses", "warnings"
    }  # fmt: skip
    (finding,) = answer["findings"]
    assert finding["rule"] == "loss_jumped"
    assert finding["steps"] == [20, 20]
    assert {"factor", "direction", "claim", "why", "prediction"} == set(answer["hypotheses"][0])
