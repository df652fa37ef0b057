import pytest

from orchestrator.errors import OrchestratorError


def loss(i):
    return round(2.5 / (i + 1) + 0.1, 4)


def joined(*lines):
    return "".join(line + "\n" for line in lines)


def test_nanogpt_evaluates_a_train_probe_too(read):
    lines = ["number of parameters: 10.65M"]
    for i in range(0, 2000, 10):
        if i % 500 == 0:
            lines.append(f"step {i}: train loss {loss(i)}, val loss {loss(i) + 1}")
        lines.append(f"iter {i}: loss {loss(i)}, time 12.34ms, mfu 12.30%")
    log = read("train.log", joined(*lines))
    assert (log.format, log.axis) == ("text_log", "optimizer step")
    assert log.columns["train/loss"] == "loss"
    assert log.telemetry["val/loss"].steps.tolist() == [0, 500, 1000, 1500]
    assert log.telemetry["probe/loss"].values[0] == loss(0)
    assert len(log.telemetry["train/loss"]) == log.n_points == 200


def test_abbreviations_of_llm_c(read):
    lines = [f"s:{i} trl:{loss(i)} lr:0.0001 norm:1.5" for i in range(20)]
    log = read("main.log", joined("s:0 tel:11.0", *lines, "s:20 tel:3.1"))
    assert {"train/loss": "trl", "val/loss": "tel", "grad_norm": "norm"}.items() <= (
        log.columns.items()
    )
    assert log.telemetry["val/loss"].steps.tolist() == [0, 20]


def test_megatron_and_its_plan(read):
    line = " iteration {0:8d}/  500000 | elapsed time per iteration (ms): 1200.1 | learning rate: "
    line += "1.500E-06 | lm loss: {1:.6E} | loss scale: 65536.0 | grad norm: 2.1 | number of nan "
    line += "iterations:   0 |"
    log = read("m.log", joined(*(line.format(i * 100, loss(i)) for i in range(1, 9))))
    assert {"train/loss", "lr", "loss_scale", "grad_norm"} <= set(log.telemetry.series)
    assert (log.facts["max_steps"], log.facts["stopped_early"]) == (500_000, True)


def test_a_bracketed_epoch_with_its_iteration(read):
    lines = []
    for epoch in range(1, 4):
        for i in (50, 100):
            lines.append(
                f"Epoch(train)  [{epoch}][{i:3d}/100]  lr: 1.0000e-03  eta: 1:00:00  loss: 0.5"
            )
        lines.append(f"Epoch(val) [{epoch}][10/10]    accuracy/top1: {60 + epoch}.1000  time: 0.2")
    log = read("mm.log", joined(*lines))
    assert log.telemetry["train/loss"].steps.tolist() == [50, 100, 150, 200, 250, 300]
    assert log.telemetry["val/accuracy"].steps.tolist() == [100, 200, 300]


@pytest.mark.parametrize(
    "position", ["[{:03d}/100]", "[{}]", "{:3d}/100 |", "[Iter {}]", "it: {}", "Step    {},"]
)
def test_many_ways_to_tell_the_step(read, position):
    lines = [position.format(i) + f" train_loss={loss(i)} val_loss={loss(i)}" for i in range(1, 9)]
    log = read("x.log", joined(*lines))
    assert log.telemetry["train/loss"].steps.tolist() == list(range(1, 9))


def test_lines_of_a_test_set_give_their_split_to_bare_names(read):
    lines = []
    for epoch in range(1, 4):
        for b in range(3):
            lines.append(f"Train Epoch: {epoch} [{b * 640}/1920 ({b * 33}%)]\tLoss: {loss(epoch)}")
        lines.append(
            f"Test set: Average loss: {loss(epoch)}, Accuracy: 9{epoch}00/10000 (9{epoch}%)"
        )
    log = read("mnist.log", joined(*lines))
    assert log.telemetry["val/accuracy"].values.tolist() == [91, 92, 93]
    assert log.telemetry["val/loss"].values.tolist() == [loss(1), loss(2), loss(3)]
    assert len(log.telemetry["train/loss"]) == 9
    assert log.facts["val_is_test"] is True


def test_a_name_without_a_split_has_that_of_the_name_before_it(read):
    lines = []
    for e in range(5):
        lines += [f"Epoch {e}/9", "-" * 10, f"train Loss: {loss(e)} Acc: 0.7{e}"]
        lines += [f"val Loss: {loss(e)} Acc: 0.6{e}", ""]
    log = read("t.log", joined(*lines))
    assert log.axis == "epoch"
    assert log.telemetry["train/accuracy"].values[1] == 0.71
    assert log.telemetry["val/accuracy"].values[1] == 0.61
    assert log.facts["max_epochs"] == 9


def test_progress_bars_that_overwrite_themselves(read):
    text = ""
    for e in range(4):
        text += f"Epoch {e + 1}/4\n"
        for b in (1, 50, 100):
            text += f"\r{b}/100 [===>...] - ETA: 1s - loss: {loss(e)} - accuracy: 0.5"
        text += f" - val_loss: {loss(e)} - val_accuracy: 0.6\n"
    log = read("keras.log", text)
    assert log.telemetry["val/loss"].steps.tolist() == [100, 200, 300, 400]
    assert len(log.telemetry["train/loss"]) == 12


def test_python_dictionaries_and_their_summary(read):
    lines = [
        f"{{'loss': {loss(i)}, 'grad_norm': 1.5, 'learning_rate': 5e-05, 'epoch': {i / 10}}}"
        for i in range(10)
    ]
    lines.insert(5, "{'eval_loss': 0.5, 'eval_runtime': 3.2, 'epoch': 0.4}")
    lines.append("{'train_runtime': 9.4, 'train_loss': 0.6, 'epoch': 1.0}")
    log = read("hf.log", joined(*lines))
    assert log.columns["val/loss"] == "eval_loss"
    assert log.axis == "row"
    assert log.telemetry["train/loss"].values[-1] == loss(9)
    assert log.facts["summary/train_loss"] == 0.6


def test_tensors_percent_and_not_a_number(read):
    lines = [f"INFO step={i} loss=tensor(0.5, device='cuda:0') acc: 45.5%" for i in range(5)]
    log = read("x.log", joined(*lines, "INFO step=5 loss=nan acc: 1.0%"))
    assert log.telemetry["train/accuracy"].values[0] == 45.5
    assert log.facts["nonfinite/train/loss"] == 1
    assert set(log.columns) == {"train/loss", "train/accuracy", "step"}


def test_settings_and_noise_are_no_series(read):
    lines = ["loss_weights: {'bce': 1, 'dice': 2}", "lr: 0.1", "epochs: 50", "best Loss: 0.1"]
    lines += [
        f"Epoch: {e} | Train_loss: {loss(e)} | Val loss: {loss(e)} | val dice: 0.6"
        for e in range(5)
    ]
    lines += [
        "Best Loss: 0.5 | Best Dice: 0.8",
        "Early Stopping @ 4",
        "done in 0:10:00, loss 12:30",
    ]
    log = read("x.log", joined(*lines))
    assert set(log.telemetry.series) == {"train/loss", "val/loss", "val/dice"}


def test_a_line_logged_twice_counts_once(read):
    lines = []
    for e in range(1, 6):
        lines += [f"Epoch [{e}/100], Train Loss: {loss(e)}"]
        lines += [f"Epoch [{e}/100], Train Loss: {loss(e)}, Smoothed Validation Loss: {loss(e)}"]
    log = read("x.log", joined(*lines))
    assert log.axis == "epoch"
    assert len(log.telemetry["train/loss"]) == 5
    assert log.columns["val/loss"] == "Smoothed Validation Loss"


def test_a_smoothed_loss_gives_way_to_the_real_one(read):
    line = "Epoch {0}: Validation Loss: {1}, Smoothed Validation Loss: 9, Train Loss: 1"
    log = read("x.log", joined(*(line.format(e, loss(e)) for e in range(5))))
    assert log.columns["val/loss"] == "Validation Loss"
    assert log.columns["val/Smoothed_Loss"] == "Smoothed Validation Loss"


@pytest.mark.parametrize(
    "text", ["Dear all,\n\nplease find attached the loss.\n", "#!/bin/sh\necho 1\n"]
)
def test_prose_is_no_log(read, text):
    with pytest.raises(OrchestratorError, match="no line that tells a step and a loss"):
        read("README.txt", text)
