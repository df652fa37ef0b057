import numpy as np
import pytest

from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Direction

LOSSES = [2.0, 1.5, 1.2, 1.1]


def table(header, rows, separator=",", end="\n"):
    lines = [header, *(separator.join(str(cell) for cell in row) for row in rows)]
    return end.join(lines) + end


def test_a_plain_table_is_read_on_its_epochs(read):
    rows = [(e, 1 / e, 2 / e, 0.1 * e) for e in range(1, 6)]
    log = read("any.csv", table("epoch,train_loss,val_loss,val_miou", rows))
    assert (log.format, log.axis, log.n_points) == ("plain_csv", "epoch", 5)
    assert log.columns == {
        "train/loss": "train_loss",
        "val/loss": "val_loss",
        "val/miou": "val_miou",
        "epoch": "epoch",
    }
    assert log.telemetry["val/loss"].steps.tolist() == [1, 2, 3, 4, 5]
    assert log.telemetry["val/loss"].values.tolist() == [2 / e for e in range(1, 6)]
    assert log.directions == {
        "train/loss": Direction.MIN,
        "val/loss": Direction.MIN,
        "val/miou": Direction.MAX,
    }
    assert log.telemetry.header["format"] == "plain_csv"
    assert log.warnings == ()


def test_semicolons_with_decimal_commas(read):
    log = read("log.csv", "epoch;loss_train;loss_val\n1;0,53;0,61\n2;0,42;0,55\n3;0,4;1,5e-1\n")
    assert log.telemetry["train/loss"].values.tolist() == [0.53, 0.42, 0.4]
    assert log.telemetry["val/loss"].values.tolist() == [0.61, 0.55, 0.15]


def test_a_quoted_decimal_comma_is_not_a_separator(read):
    log = read("log.csv", 'step,loss,note\n1,"1,000.5","a, b"\n2,"1,000.0","c"\n')
    assert log.telemetry["train/loss"].values.tolist() == [1000.5, 1000.0]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_any_separator_will_do(read, separator):
    rows = enumerate(LOSSES)
    log = read("x.tsv", table(separator.join(["step", "loss"]), rows, separator))
    assert log.telemetry["train/loss"].values.tolist() == LOSSES


def test_blanks_separate_columns_too(read):
    log = read("x.txt", "# epoch  train_loss   val_loss\n 1   0.5    0.6\n 2  0.4   0.55\n")
    assert log.telemetry["val/loss"].values.tolist() == [0.6, 0.55]


def test_a_single_column_is_a_curve(read):
    log = read("loss.csv", "loss\n3\n2\n1\n0.5\n")
    assert (log.axis, log.telemetry["train/loss"].values.tolist()) == ("row", [3, 2, 1, 0.5])


def test_comments_blank_lines_and_a_repeated_header_are_no_rows(read):
    text = (
        "# run 7\n Epoch , Train Loss , Val Loss \n1,3,4\n\n2,2,3\nepoch,train_loss,val_loss\n3,1,2"
    )
    log = read("x.csv", text)
    assert log.telemetry["train/loss"].values.tolist() == [3, 2, 1]
    assert log.columns["train/loss"] == "Train Loss"
    assert "header in the middle" in log.warnings[0]


def test_a_header_in_the_middle_may_name_other_columns(read):
    text = "epoch,loss\n1,3\n2,2\nepoch,loss,val_loss\n3,1,1.5\n4,0.5,1.2\n"
    log = read("x.csv", text)
    assert log.telemetry["train/loss"].values.tolist() == [3, 2, 1, 0.5]
    assert log.telemetry["val/loss"].steps.tolist() == [3, 4]


def test_a_last_line_cut_in_the_middle_is_dropped(read):
    log = read("x.csv", "epoch,train_loss,val_loss\n1,3,4\n2,2,3\n3,1.23")
    assert len(log.telemetry["train/loss"]) == 2
    assert "cut in the middle" in log.warnings[0]


def test_a_short_line_elsewhere_lacks_its_last_cells(read):
    log = read("x.csv", "epoch,train_loss,val_loss\n1,3,4\n2,2\n3,1,2\n")
    assert log.telemetry["train/loss"].values.tolist() == [3, 2, 1]
    assert log.telemetry["val/loss"].steps.tolist() == [1, 3]


def test_cells_that_python_printed_are_numbers(read):
    text = "step,loss,acc\n1,tensor(2.5000),45.3%\n"
    text += "2,\"tensor(2.0, device='cuda:0')\",50%\n3,[1.5],55%\n"
    log = read("x.csv", text)
    assert log.telemetry["train/loss"].values.tolist() == [2.5, 2.0, 1.5]
    assert log.telemetry["train/accuracy"].values.tolist() == [45.3, 50.0, 55.0]


def test_keras_writes_training_metrics_bare(read):
    rows = [(e, 0.1 * e, 1 / (e + 1), 0.09 * e, 2 / (e + 1)) for e in range(5)]
    log = read("training.log", table("epoch,accuracy,loss,val_accuracy,val_loss", rows))
    assert log.format == "keras_csv"
    assert {"train/accuracy", "train/loss", "val/accuracy", "val/loss"} <= set(log.columns)


def test_keras_without_epochs_and_with_validation_first(read):
    text = table("val_loss,val_accuracy,loss,accuracy", [(2, 0.1, 3, 0.2), (1, 0.2, 2, 0.3)])
    log = read("log.csv", text.replace("\n", "\r\r\n"))
    assert (log.format, log.axis) == ("keras_csv", "row")
    assert log.telemetry["train/loss"].values.tolist() == [3, 2]


def test_lightning_rows_are_sparse(read):
    text = "epoch,lr-Adam,step,train_loss,val_loss\r\n"
    text += ",0.1,0,,\r\n0,,49,0.5,\r\n0,,99,0.4,\r\n0,,99,,0.6\r\n"
    log = read("metrics.csv", text)
    assert (log.format, log.axis, log.n_points) == ("lightning_csv", "optimizer step", 4)
    assert log.telemetry["train/loss"].steps.tolist() == [49, 99]
    assert log.telemetry["val/loss"].steps.tolist() == [99]
    assert log.columns["lr"] == "lr-Adam"


def test_nan_for_an_empty_cell_is_no_divergence(read):
    rows = [(49, 0, 0.5, "nan"), (99, 0, 0.4, "nan"), (99, 0, "nan", 0.6), (149, 1, "nan", "nan")]
    log = read("metrics.csv", table("step,epoch,train_loss,val_loss", rows))
    assert log.telemetry["train/loss"].values.tolist() == [0.5, 0.4]
    assert np.isnan(log.telemetry["val/loss"].values[-1])  # a row of NaN only is of the kind before
    assert "stand for empty ones" in "".join(log.warnings)


def test_nan_in_a_dense_table_is_nan(read):
    log = read("x.csv", table("epoch,loss,val_loss", [(1, 2, 3), (2, "nan", 2), (3, "inf", "nan")]))
    assert np.isnan(log.telemetry["train/loss"].values[1])
    assert np.isinf(log.telemetry["train/loss"].values[2])
    assert log.facts["nonfinite/train/loss"] == 2


def test_a_diverged_row_of_a_sparse_table_keeps_its_nan(read):
    rows = [
        (10, 0, 0.5, 0.1, "nan"),
        (10, 0, "nan", "nan", 0.6),
        (20, 1, 0.4, 0.1, "nan"),
        (30, 1, "nan", 0.1, "nan"),
    ]
    log = read("metrics.csv", table("step,epoch,train_loss,lr,val_loss", rows))
    assert np.isnan(log.telemetry["train/loss"].values[-1])
    assert len(log.telemetry["val/loss"]) == 1


@pytest.mark.parametrize("filler", ["nan", 0])
def test_an_evaluation_every_few_epochs_is_filled_up_in_between(read, filler):
    rows = [(e, 3 / e, 4 / e if e % 5 == 0 or e == 23 else filler) for e in range(1, 24)]
    log = read("x.csv", table("epoch,train_loss,val_loss", rows))
    assert log.telemetry["val/loss"].steps.tolist() == [5, 10, 15, 20, 23]
    assert len(log.telemetry["train/loss"]) == 23


def test_a_loss_that_stays_nan_is_no_filler(read):
    rows = [(e, 3 / e, "nan" if e in (4, 7) or e > 9 else 1 / e) for e in range(1, 15)]
    log = read("x.csv", table("epoch,train_loss,val_loss", rows))
    assert log.facts["nonfinite/val/loss"] == 7


def test_of_step_and_epoch_twins_the_finer_one_is_the_loss(read):
    rows = [(i, 0, 1 / (i + 1), "") for i in range(10)] + [(9, 0, "", 0.3)]
    log = read("metrics.csv", table("step,epoch,train_loss_step,train_loss_epoch", rows))
    assert log.columns["train/loss"] == "train_loss_step"
    assert log.columns["train/loss_epoch"] == "train_loss_epoch"


def test_an_evaluation_after_training_is_not_part_of_the_curve(read):
    rows = [(100 * i, i, 1 / i, "") for i in range(1, 6)]
    rows += [(100 * i, i, "", 2 / i) for i in range(1, 6)] + [(501, 6, "", 0.001)]
    log = read("metrics.csv", table("step,epoch,train_loss,val_loss", rows))
    assert log.telemetry["val/loss"].values[-1] == 2 / 5
    assert log.facts["after_fit/val/loss"] == 0.001


YOLO = (
    "      epoch,   train/box_loss,   train/cls_loss, metrics/mAP_0.5,"
    "     val/box_loss,     val/cls_loss,            x/lr0,            x/lr1"
)


def test_yolo_losses_come_in_parts_without_a_total(read):
    rows = [(e, 0.5 / (e + 1), 0.25 / (e + 1), 0.1 * e, 0.5, 0.5, 0.1, 0.2) for e in range(4)]
    log = read("results.csv", table(YOLO, rows, separator=",      "))
    assert log.format == "ultralytics_csv"
    assert log.telemetry["train/loss"].values.tolist() == [0.75 / (e + 1) for e in range(4)]
    assert log.columns["train/loss"] == "train/box_loss + train/cls_loss"
    assert log.columns["val/mAP_0.5"] == "metrics/mAP_0.5"
    assert (log.columns["lr"], log.columns["lr/1"]) == ("x/lr0", "x/lr1")
    assert log.facts["loss_is_sum"] is True


def test_losses_of_zero_that_nobody_computed_are_left_out(read):
    rows = [(e, 0.5 / (e + 1), 0.25 / (e + 1), 0.1 * e, 0, 0, 0.1, 0.2) for e in range(4)]
    log = read("results.csv", table(YOLO, rows))
    assert "val/loss" not in log.telemetry
    assert "val/mAP_0.5" in log.telemetry
    assert "val/box_loss" in log.facts["not_computed"]


def test_a_loss_that_is_zero_everywhere_is_kept(read):
    log = read("x.csv", table("step,grad_norm,loss", [(i, 0.0, 0.0) for i in range(5)]))
    assert log.facts["zero_losses"] == 5
    assert log.facts["constant"] == "grad_norm, train/loss"


def test_many_rows_per_epoch_are_numbered_by_row(read):
    rows = [(e, 1 / (1 + e * 5 + b), 0.1) for e in range(3) for b in range(5)]
    log = read("x.csv", table("epoch,train_loss,lr", rows))
    assert (log.axis, len(log.telemetry["train/loss"])) == ("row", 15)
    assert log.telemetry["epoch"].values[[0, -1]].tolist() == [0, 2]


def test_an_unnamed_index_numbers_rows(read):
    rows = [(i, 1 / (i + 1), 2 / (i + 1)) for i in range(5)]
    log = read("x.csv", table(",Loss,ValLoss", rows))
    assert log.axis == "row"
    assert log.columns == {"train/loss": "Loss", "val/loss": "ValLoss"}


def test_rows_may_say_which_split_they_are_of(read):
    rows = [(e, phase, value, 0.1) for e in range(3) for phase, value in (("train", 1), ("val", 2))]
    log = read("x.csv", table("epoch,phase,loss,acc", rows))
    assert log.telemetry["train/loss"].values.tolist() == [1, 1, 1]
    assert log.telemetry["val/loss"].values.tolist() == [2, 2, 2]


def test_rows_may_name_their_metric(read):
    rows = [(s, m, v) for s in range(3) for m, v in (("train_loss", 1), ("val_loss", 2))]
    log = read("x.csv", table("step,metric,value", rows))
    assert log.telemetry["val/loss"].steps.tolist() == [0, 1, 2]


def test_an_export_of_several_runs(read):
    header = (
        "Step,good - train/loss,good - train/loss__MIN,good - train/loss__MAX,bad - train/loss,"
    )
    header += "bad - train/loss__MIN,bad - train/loss__MAX"
    rows = [(s, 1, 1, 1, 5, 5, 5) for s in range(3)] + [(3, "", "", "", 6, 6, 6)]
    log = read("wandb.csv", table(header, rows))
    assert (log.runs, log.run) == (("good", "bad"), "bad")
    assert log.telemetry["train/loss"].values.tolist() == [5, 5, 5, 6]
    assert "run bad is read" in log.warnings[0]
    other = read("wandb.csv", table(header, rows), run="good")
    assert other.telemetry["train/loss"].values.tolist() == [1, 1, 1]


def test_runs_told_apart_by_a_column(read):
    rows = [(seed, e, seed + 1 / (e + 1)) for seed in (1, 2) for e in range(4)]
    log = read("x.csv", table("seed,epoch,train_loss", rows))
    assert (log.runs, log.run) == (("1", "2"), "2")
    with pytest.raises(OrchestratorError, match="no run '3'"):
        read("x.csv", table("seed,epoch,train_loss", rows), run="3")


def test_six_points_are_read_though_they_are_no_curve(read):
    log = read("x.csv", table("epoch,train_loss", [(i, 1) for i in range(6)]))
    assert (log.n_points, log.facts["n_train"]) == (6, 6)


def test_thinning_keeps_enough_of_every_series(read):
    rows = [(i, 1 / (i + 1), 0.5 if i % 100 == 0 else "") for i in range(1000)]
    log = read("x.csv", table("step,train_loss,val_loss", rows), every=10)
    assert log.telemetry["train/loss"].steps.tolist() == list(range(0, 1000, 10))
    assert len(log.telemetry["val/loss"]) == 10
    with pytest.raises(OrchestratorError, match="every=0"):
        read("x.csv", table("step,train_loss", rows), every=0)
