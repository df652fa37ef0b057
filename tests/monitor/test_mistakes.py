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
        (lambda m: m.log(loss=torch.ones(2)), r"loss is a tensor of shape \(2,\)"),
        (lambda m: m.log(loss=1j), "loss is 1j"),
        (lambda m: m.log(loss=torch.tensor(1j)), "loss is a tensor"),
        (lambda m: m.log(step=1.5, loss=1.0), "step=1.5"),
        (lambda m: m.log(step=-1, loss=1.0), "step=-1"),
        (lambda m: (m.log(step=5, loss=1.0), m.log(step=4, loss=1.0)), "step 4 of 'loss'"),
        (lambda m: m.log(val_loss=1.0, eval_loss=1.0), "are both 'val/loss'"),
        (lambda m: m.clip_grad_norm_(0), "max_norm=0"),
        (lambda m: m.clip_grad_norm_(-1.0), "max_norm=-1.0"),
        (lambda m: m.clip_grad_norm_(math.nan), "max_norm=nan"),
        (lambda m: m.clip_grad_norm_("1.0"), "max_norm='1.0'"),
        (lambda m: m.clip_grad_norm_(True), "max_norm=True"),
    ],
)
def test_mistakes_in_the_loop_are_told(tmp_path, recording, call, words):
    _, _, monitor = start(tmp_path if recording else None)
    with pytest.raises(OrchestratorError, match=words):
        call(monitor)
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
