import json

import numpy as np
import pytest

from orchestrator.errors import OrchestratorError


def history(n=20, evaluate=5):
    rows = []
    for i in range(1, n + 1):
        rows.append(
            {"loss": 3 / i, "learning_rate": 1e-4, "grad_norm": 1.5, "epoch": i / n, "step": i}
        )
        if i % evaluate == 0:
            rows.append({"eval_loss": 3.5 / i, "eval_wer": 0.1, "epoch": i / n, "step": i})
    return rows


def state(rows, **more):
    return {"best_metric": None, "global_step": 20, "max_steps": 40, "log_history": rows, **more}


def test_a_trainer_state(read):
    log = read("trainer_state.json", json.dumps(state(history()), indent=2))
    assert (log.format, log.axis, log.n_points) == ("hf_trainer_state", "optimizer step", 24)
    assert log.columns["val/loss"] == "eval_loss"
    assert log.columns["lr"] == "learning_rate"
    assert log.telemetry["val/loss"].steps.tolist() == [5, 10, 15, 20]
    assert len(log.telemetry["train/loss"]) == 20
    assert log.facts["stopped_early"] is True
    assert log.facts["max_steps"] == 40


def test_the_closing_row_of_means_is_no_point(read):
    rows = [*history(), {"train_runtime": 9.0, "train_loss": 0.5, "step": 20}]
    log = read("trainer_state.json", json.dumps(state(rows)))
    assert log.telemetry["train/loss"].values[-1] == 3 / 20
    assert log.facts["summary/train_loss"] == 0.5


def test_rows_without_a_step_lie_where_the_row_before_them_does(read):
    rows = []
    for step in (10, 20, 30):
        rows += [{"loss": 1, "step": step}, {"eval_loss": 2, "step": step}, {"predict_loss": 3}]
    log = read("trainer_state.json", json.dumps(state(rows)))
    assert log.telemetry["test/loss"].steps.tolist() == [10, 20, 30]


def test_bare_nan_and_infinity_are_numbers(read):
    text = '{"log_history": [{"loss": NaN, "step": 1}, '
    text += '{"loss": 0.5, "grad_norm": Infinity, "step": 2}]}'
    log = read("trainer_state.json", text)
    assert np.isnan(log.telemetry["train/loss"].values[0])
    assert np.isinf(log.telemetry["grad_norm"].values[0])


def test_several_evaluation_sets_keep_their_names(read):
    rows = []
    for step in (1, 2, 3):
        rows += [{"loss": 1, "step": step}]
        rows += [{f"eval_{name}_loss": 2, "step": step} for name in ("news", "code")]
    log = read("trainer_state.json", json.dumps(state(rows)))
    assert log.columns["val/loss"] == "eval_news_loss"
    assert "val/code_loss" in log.telemetry
    assert "the first of several" in "".join(log.warnings)


def test_a_loss_of_zero_with_a_nan_gradient_is_told(read):
    rows = [{"loss": 1.0, "grad_norm": 2.0, "step": i} for i in range(5)]
    rows += [{"loss": 0.0, "grad_norm": float("nan"), "step": i} for i in range(5, 8)]
    log = read("trainer_state.json", json.dumps(state(rows)))
    assert log.facts["zero_loss_nan_gradient"] == 3
    assert "NaN filter" in "".join(log.warnings)


def test_a_state_cut_in_the_middle_keeps_its_complete_rows(read):
    text = json.dumps(state(history()), indent=2)
    log = read("trainer_state.json", text[: len(text) // 2])
    assert log.format == "hf_trainer_state"
    assert 5 < log.n_points < 20
    assert "cut off" in log.warnings[0]


def test_a_bare_list_of_rows(read):
    log = read("training_history.json", json.dumps(history(), indent=1))
    assert (log.format, len(log.telemetry["train/loss"])) == ("json_history", 20)


@pytest.mark.parametrize(
    "wrap",
    [
        lambda h: h,
        lambda h: {"history": h, "params": {"epochs": 3}},
        lambda h: {"train": {"loss": h["loss"]}, "val": {"loss": h["val_loss"]}},
        lambda h: {n: {str(i): v for i, v in enumerate(c)} for n, c in h.items()},
        lambda h: {str(i): {n: h[n][i] for n in h} for i in range(3)},
        lambda h: {"epochs": [{n: h[n][i] for n in h} for i in range(3)]},
    ],
)
def test_a_history_by_name_however_it_is_wrapped(read, wrap):
    log = read("h.json", json.dumps(wrap({"loss": [3, 2, 1], "val_loss": [4, 3, 2]})))
    assert log.telemetry["train/loss"].values.tolist() == [3, 2, 1]
    assert log.telemetry["val/loss"].values.tolist() == [4, 3, 2]


def test_a_shorter_list_was_logged_less_often(read):
    log = read("h.json", json.dumps({"train_loss": list(range(10, 0, -1)), "val_loss": [5, 4]}))
    assert log.telemetry["val/loss"].steps.tolist() == [4, 9]
    assert "spread evenly" in log.warnings[0]


def test_lists_cut_in_the_middle(read):
    log = read("h.json", '{"loss": [3, 2, 1], "val_loss": [4, 3, 2')
    assert log.telemetry["train/loss"].values.tolist() == [3, 2, 1]


def lines(*rows, end="\n"):
    return "".join(json.dumps(row) + end for row in rows)


def test_detectron_rows(read):
    rows = [{"iteration": 19 + 20 * i, "total_loss": 2 / (i + 1), "lr": 1e-3} for i in range(5)]
    rows[-1] |= {"bbox/AP": 20.0, "bbox/APs": float("nan")}
    log = read("metrics.json", lines(*rows))
    assert (log.format, log.columns["train/loss"]) == ("jsonl", "total_loss")
    assert log.telemetry["val/bbox/AP"].steps.tolist() == [99]
    assert log.columns["step"] == "iteration"


def test_a_step_that_counts_epochs_in_evaluation_rows(read):
    rows = []
    for epoch in range(1, 4):
        rows += [{"loss": 1.0, "lr": 0.1, "step": (epoch - 1) * 100 + s} for s in (50, 100)]
        rows += [{"coco/bbox_mAP": 0.1 * epoch, "step": epoch}]
    log = read("scalars.json", lines(*rows))
    assert log.telemetry["val/coco/bbox_mAP"].steps.tolist() == [100, 200, 300]
    assert "counts epochs" in "".join(log.warnings)


def test_iterations_that_start_anew_every_epoch_are_counted_on(read):
    rows = []
    for epoch in range(1, 4):
        rows += [{"mode": "train", "epoch": epoch, "iter": i, "loss": 1.0} for i in (50, 100)]
        rows += [{"mode": "val", "epoch": epoch, "iter": 7, "mIoU": 0.1}]
    log = read("20200101.log.json", lines({"env_info": "GCC", "seed": 0}, *rows))
    assert log.telemetry["train/loss"].steps.tolist() == [50, 100, 150, 200, 250, 300]
    assert log.telemetry["val/mIoU"].steps.tolist() == [100, 200, 300]


def test_nested_objects_are_flattened_and_lists_left_out(read):
    rows = [
        {"epoch": e, "train": {"loss": 1}, "val": {"loss": 2, "ap": [1, 2]}, "ok": True}
        for e in range(3)
    ]
    log = read("log.jsonl", lines(*rows))
    assert set(log.telemetry.series) == {"train/loss", "val/loss"}


def test_lines_that_are_no_json_and_a_cut_last_line(read):
    text = lines(*history(), end="\r\n") + "Traceback (most recent call last):\r\n\r\n"
    text += lines(*history()[:3]) + '{"loss": 0.1, "ste'
    log = read("log.jsonl", text)
    assert log.format == "jsonl"
    assert "cut in the middle" in log.warnings[0]
    assert "1 line(s) are no JSON" in log.warnings[1]


def test_numbers_in_quotes_are_numbers(read):
    rows = [{"step": str(i), "loss": "0.5", "eval_loss": "NaN"} for i in range(3)]
    log = read("log.jsonl", lines(*rows))
    assert log.telemetry["train/loss"].steps.tolist() == [0, 1, 2]
    assert np.isnan(log.telemetry["val/loss"].values).all()


@pytest.mark.parametrize(
    "text", ['{"a": 1}', "[]", "{}", '{"config": {"lr": 0.1}}', '["a", "b"]', "[["]
)
def test_json_without_a_history_is_told(read, text):
    with pytest.raises(OrchestratorError, match="not a training curve"):
        read("config.json", text)


def test_json_nested_beyond_reason_is_told(read):
    with pytest.raises(OrchestratorError, match="not a training curve"):
        read("deep.json", "[" * 100_000)
