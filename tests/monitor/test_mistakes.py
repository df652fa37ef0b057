"""The user's mistakes are told; ours do not end a training."""

import gc
import logging
import math

import pytest
import torch
from plain_record import batches, fit, mlp, start
from torch import nn

from orchestrator import OrchestratorError, watch
from orchestrator.telemetry import read, read_metrics


@pytest.mark.parametrize("recording", [False, True])
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, o, f: watch("model", o, folder=f), "the model is a str"),
        (lambda m, o, f: watch(nn.ReLU(), o, folder=f), "ReLU has no parameters"),
        (lambda m, o, f: watch(nn.LazyLinear(3), o, folder=f), "lazy parameters"),
        (lambda m, o, f: watch(m, [], folder=f), "no optimizer"),
        (lambda m, o, f: watch(m, "adam", folder=f), "not a torch.optim.Optimizer"),
        (lambda m, o, f: watch(m, [o, None], folder=f), "NoneType is not a torch.optim"),
        (lambda m, o, f: watch(mlp(), o, folder=f), "SGD holds none of the model's parameters"),
        (lambda m, o, f: watch(mlp(), [o, None], folder=f), "2 mistakes"),
        (lambda m, o, f: watch(m, o, every=0, folder=f), "every=0"),
        (lambda m, o, f: watch(m, o, every=2.5, folder=f), "every=2.5"),
        (lambda m, o, f: watch(m, o, first_step=-1, folder=f), "first_step=-1"),
        (lambda m, o, f: watch(m, o, first_step="7", folder=f), "first_step='7'"),
        (lambda m, o, f: watch(m, o, scaler=2.0, folder=f), "the scaler is a float"),
    ],
)
def test_mistakes_at_watch_are_told(tmp_path, recording, call, words):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(OrchestratorError, match=words):
        call(model, optimizer, tmp_path if recording else None)


@pytest.mark.parametrize("recording", [False, True])
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.log(loss="low"), "loss is 'low'"),
        (lambda m: m.log(loss=None), "loss is None"),
        (lambda m: m.log(loss=torch.ones(2)), "loss is a tensor of shape (2,)"),
        (lambda m: m.log(loss=1j), "loss is 1j"),
        (lambda m: m.log(loss=torch.tensor(1j)), "loss is a tensor"),
        (lambda m: m.log(step=1.5, loss=1.0), "step=1.5"),
        (lambda m: m.log(step=-1, loss=1.0), "step=-1"),
        (lambda m: (m.log(step=5, f1=1.0), m.log(step=4, f1=7.0)), "step 4 of 'f1'"),
        (lambda m: m.log(val_f1=1.0, eval_f1=1.0), "are both 'val/f1'"),
        (lambda m: m.batch([1, 2]), "id is a list"),
        (lambda m: m.batch(samples="all"), "samples is 'all'"),
        (lambda m: m.batch(tokens=torch.ones(3)), "tokens is a tensor of shape (3,)"),
    ],
)
def test_what_cannot_be_recorded_is_told_once_and_ends_nothing(
    tmp_path, caplog, recording, call, words
):
    _, _, monitor = start(tmp_path if recording else None)
    for _ in range(3):
        call(monitor)
    monitor.log(accuracy=0.5)
    assert len(caplog.records) == 1
    assert words in caplog.text
    assert "->" in caplog.text
    monitor.close()
    if recording:
        metrics = read_metrics(tmp_path)
        assert metrics["accuracy"] == 0.5
        assert metrics.get("f1", 1.0) == metrics.get("val/f1", 1.0) == 1.0
        assert "loss" not in metrics


def test_a_mistake_spoils_no_other_metric(tmp_path):
    _, _, monitor = start(tmp_path)
    monitor.log(loss="low", accuracy=0.5)
    monitor.close()
    assert read_metrics(tmp_path) == {"accuracy": 0.5}


@pytest.mark.parametrize("recording", [False, True])
@pytest.mark.parametrize("limit", [0, -1.0, math.nan, "1.0", True])
def test_a_threshold_that_would_change_the_training_otherwise_is_refused(
    tmp_path, recording, limit
):
    _, _, monitor = start(tmp_path if recording else None)
    with pytest.raises(OrchestratorError, match=f"max_norm={limit!r}"):
        monitor.clip_grad_norm_(limit)
    monitor.close()


def test_spellings_of_one_name_are_no_mistake(tmp_path):
    _, _, monitor = start(tmp_path)
    monitor.log(val_loss=1.0)
    monitor.log(**{"val/loss": 2.0, "val.loss": 3.0})
    monitor.close()
    assert read_metrics(tmp_path) == {"val/loss": 3.0}


def test_a_model_is_watched_once(tmp_path):
    model, optimizer, monitor = start(tmp_path / "a")
    with pytest.raises(OrchestratorError, match="this model is being recorded"):
        watch(model, optimizer, folder=tmp_path / "b")
    monitor.close()
    watch(model, optimizer, folder=tmp_path / "b").close()


def test_a_trial_has_one_monitor(tmp_path):
    _, _, monitor = start(tmp_path)
    with pytest.raises(OrchestratorError, match=r"nn\.ModuleList"):
        start(tmp_path)
    monitor.close()


def test_a_forgotten_training_does_not_stay_in_memory(tmp_path):
    model, optimizer, monitor = start(tmp_path)
    fit(model, optimizer, batches(3))
    del model, optimizer, monitor
    gc.collect()
    assert len(read(tmp_path)["grad_norm"]) == 3  # it was closed
    start(tmp_path)[2].close()


@pytest.mark.parametrize("method", ["see_parameters", "measure", "gradient_norms"])
def test_an_error_of_ours_ends_the_recording_and_not_the_training(
    tmp_path, monkeypatch, caplog, method
):
    model, optimizer, monitor = start(tmp_path)
    fit(model, optimizer, batches(4), lambda _, loss: monitor.log(train_loss=loss))

    def broken(*_):
        raise RuntimeError("no such luck")

    monkeypatch.setattr(f"orchestrator.monitor.probe.Probe.{method}", broken)
    with caplog.at_level(logging.WARNING):
        fit(model, optimizer, batches(4), lambda _, loss: monitor.log(train_loss=loss))
    monitor.clip_grad_norm_(1.0)
    monitor.close()
    assert len(caplog.records) == 1
    telemetry = read(tmp_path)
    assert telemetry["grad_norm"].steps.tolist() == [0, 1, 2, 3]
    assert telemetry.header["recording_stopped"] == "RuntimeError: no such luck"


def test_an_optimizer_that_never_steps_is_told(tmp_path, caplog):
    _, _, monitor = start(tmp_path)
    monitor.log(train_loss=1.0)
    monitor.close()
    assert "no optimizer step was seen" in caplog.text
