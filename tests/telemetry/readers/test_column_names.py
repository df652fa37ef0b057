import pytest

from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Direction
from orchestrator.telemetry.readers import direction_of, naming


def columns(read, *names, **arguments):
    rows = "".join(
        f"{i}," + ",".join(str(n + i) for n in range(len(names))) + "\n" for i in range(4)
    )
    log = read("x.csv", "step," + ",".join(names) + "\n" + rows, **arguments)
    return {role: column for role, column in log.columns.items() if role != "step"}


@pytest.mark.parametrize(
    "name",
    [
        "val_loss", "valid_loss", "validation_loss", "eval_loss", "dev_loss", "ValLoss", "valLoss",
        "val/loss", "eval/loss", "val.loss", "Val Loss", "validation loss", "loss_val", "loss/val",
        "loss (validation)", "valid", "Validation", "val_total_loss", "avg_val_loss",
        "eval/val_loss",
    ],
)  # fmt: skip
def test_spellings_of_the_validation_loss(read, name):
    assert columns(read, "train_loss", name)["val/loss"] == name


@pytest.mark.parametrize(
    "name",
    [
        "loss", "train_loss", "training_loss", "Loss", "TrainLoss", "train/loss", "loss/train",
        "total_loss", "train", "tr_loss", "train_loss_step", "running_loss", "lm loss", "nll",
        "mse",
    ],
)  # fmt: skip
def test_spellings_of_the_train_loss(read, name):
    assert columns(read, name)["train/loss"] == name


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("learning_rate", "lr"), ("lr-AdamW", "lr"), ("x/lr0", "lr"), ("lr/pg1", "lr/1"),
        ("train/learning_rate", "lr"), ("lr-Adam/pg2", "lr/2"), ("gnorm", "grad_norm"),
        ("train/grad_norm", "grad_norm"), ("gradient_norm", "grad_norm"),
        ("loss scale", "loss_scale"), ("val_acc", "val/accuracy"), ("eval_top1", "val/accuracy"),
        ("eval_rougeL", "val/rougeL"), ("val mate", "val/mate"), ("test_loss", "test/loss"),
        ("temperature", "temperature"), ("lr-Adam-momentum", "lr-Adam-momentum"),
        ("best_val_loss", "val/best_loss"),
    ],
)  # fmt: skip
def test_spellings_of_other_series(read, name, role):
    assert columns(read, "train_loss", "val_loss", name)[role] == name


def test_the_surer_spelling_wins_and_the_other_keeps_its_name(read):
    found = columns(read, "total_loss", "train_loss", "val_loss_smooth", "val_loss")
    assert found["train/loss"] == "train_loss"
    assert found["train/total_loss"] == "total_loss"
    assert found["val/loss"] == "val_loss"


def test_a_bare_metric_with_a_twin_is_of_training(read):
    assert columns(read, "mae", "loss", "val_mae", "val_loss")["train/mae"] == "mae"


def test_a_lone_metric_beside_both_losses_is_of_validation(read):
    assert columns(read, "train_loss", "val_loss", "top1")["val/accuracy"] == "top1"


def test_a_test_set_evaluated_each_epoch_serves_as_validation(read):
    found = columns(read, "train_loss", "test_loss", "test_err")
    assert (found["val/loss"], found["val/err"]) == ("test_loss", "test_err")


def test_the_error_rate_is_no_substitute_for_a_loss(read):
    assert "val/loss" not in columns(read, "train_loss", "valid_err")


def test_another_quantity_in_validation_is_hinted_at(read):
    log = read("x.csv", "step,train_loss,val_mse\n1,2,3\n2,1,2\n")
    assert "val/loss" not in log.telemetry
    assert "map val_loss=val_mse if it is the loss that is trained" in log.warnings[0]


def test_a_number_of_a_session_or_of_a_source_names_a_run(read):
    rows = [(s, e, s) for s in ("a", "b") for _ in range(2) for e in range(5)]
    text = "run,epoch,train_loss\n" + "".join(f"{s},{e},{e}\n" for s, e, _ in rows)
    assert read("x.csv", text).runs == ("a", "b#1", "b#2")
    assert read("x.csv", text, run="a#2").run == "a#2"


def test_the_same_substitute_is_taken_in_both_splits(read):
    found = columns(read, "train_mae", "val_mae", "train_rmse", "val_rmse")
    assert (found["train/loss"], found["val/loss"]) == ("train_rmse", "val_rmse")


def test_losses_of_opponents_are_not_added_up(read):
    log = read("x.csv", "gen_loss,disc_loss\n1,2\n2,1\n1,2\n")
    assert log.facts["is_adversarial"] is True
    assert log.columns == {"train/gen_loss": "gen_loss", "train/disc_loss": "disc_loss"}


def test_the_user_has_the_last_word(read):
    found = columns(
        read,
        "train_loss",
        "val_loss",
        "L_total",
        mapping={"train_loss": "L_total", "f1": "val_loss"},
    )
    assert found == {"train/loss": "L_total", "f1": "val_loss", "train_loss": "train_loss"}


def test_the_user_may_name_the_axis(read):
    log = read("x.csv", "t,a,b\n5,1,2\n6,2,3\n", mapping={"step": "t", "val/loss": "b"})
    assert log.axis == "optimizer step"
    assert log.telemetry["val/loss"].steps.tolist() == [5, 6]


def test_a_column_that_is_not_there_is_told_with_the_nearest(read):
    with pytest.raises(OrchestratorError, match="train_loss=trian_los") as error:
        columns(read, "train_loss", mapping={"train_loss": "trian_los"})
    assert "did you mean 'train_loss'" in error.value.remedy


@pytest.mark.parametrize(
    "name", ["val/loss", "val/mse", "eval_wer", "ppl", "test_err", "fid50k", "cls_loss"]
)
def test_less_is_better(name):
    assert direction_of(name) is Direction.MIN


@pytest.mark.parametrize(
    "name",
    ["val/accuracy", "val/mAP50-95(B)", "HBBmAP.5", "rouge-1", "rougeLsum", "bbox/APs", "val/mIoU",
     "updated_mean_io_u", "dice_coefficient", "eval_f1", "metrics/recall(M)", "mean_average_score"],
)  # fmt: skip
def test_more_is_better(name):
    assert direction_of(name) is Direction.MAX


@pytest.mark.parametrize(
    "name", ["val/runtime", "temperature", "epoch", "lr", "val/gen_len", "grad_norm"]
)
def test_some_names_tell_nothing(name):
    assert direction_of(name) is None


@pytest.mark.parametrize(
    "name", ["", " ", "_", "/", "train_", "val//", "a" * 500, "𝕧al_loss", "(", "#2"]
)
def test_any_name_can_be_taken_apart(name):
    split, rest = naming.take_apart(name)
    assert split in ("", "train", "val", "test")
    assert isinstance(rest, str)
