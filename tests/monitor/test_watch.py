"""Where a monitor records, and what it says of the model."""

import subprocess
import sys

import pytest
import torch
from plain_record import batches, fit, mlp, start
from torch import nn

import orchestrator
from orchestrator import watch
from orchestrator.telemetry import read

PROVENANCE = ("python", "numpy", "orchestrator", "device_name", "cpu_threads", "code")
PROVENANCE += ("torch_seed", "numpy_stream", "python_stream")


def test_outside_a_campaign_nothing_happens_but_clipping(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, optimizer, monitor = start()
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
    fit(model, optimizer, batches(3), lambda _, loss: monitor.log(train_loss=loss))
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    monitor.clip_grad_norm_(1.0)
    assert torch.nn.utils.get_total_norm([p.grad for p in model.parameters()]) < 1.001
    monitor.close()
    assert list(tmp_path.iterdir()) == []


def test_in_a_campaign_the_trials_folder_is_named_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("ORCHESTRATOR_TRIAL_FOLDER", str(tmp_path / "trial"))
    model, optimizer, monitor = start()
    fit(model, optimizer, batches(3))
    monitor.close()
    assert len(read(tmp_path / "trial" / "telemetry")["grad_norm"]) == 3


def test_of_several_ranks_the_first_records(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    model, optimizer, monitor = start(tmp_path)
    fit(model, optimizer, batches(2))
    monitor.close()
    assert list(tmp_path.iterdir()) == []


def test_importing_orchestrator_imports_no_torch():
    code = "import sys, orchestrator; assert 'torch' not in sys.modules; orchestrator.watch"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="wach"):
        orchestrator.wach()


def test_the_header_says_what_is_trained(tmp_path):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(4, 5)
            self.body = nn.Linear(5, 5)
            self.old = nn.Linear(5, 5).requires_grad_(False)
            self.lost = nn.Linear(5, 1)
            self.scale = nn.Parameter(torch.ones(5))

    model = Net()
    trained = [*model.table.parameters(), *model.body.parameters(), model.scale]
    monitor = watch(model, torch.optim.AdamW(trained), folder=tmp_path)
    header = dict(read(tmp_path).header)
    assert header.pop("torch") == torch.__version__
    repeatable = {name: header.pop(name) for name in PROVENANCE}
    assert repeatable["torch_seed"] == torch.initial_seed()
    assert repeatable["cpu_threads"] == 1
    assert header.pop("frozen_share") == pytest.approx(30 / 91)
    assert header == {
        "optimizer": "AdamW",
        "weight_shapes": "5x5",
        "head": "lost.weight",
        "outputs": 1,
        "dropout": 0.0,
        "weight_decay": 0.01,
        "eps": 1e-8,
        "parameters": 20 + 30 + 30 + 6 + 5,
        "weight_layers": "body.weight",
        "embeddings": "table.weight",
        "sparse_embeddings": "",
        "not_optimized": "lost.weight,lost.bias",
        "untied": "",
        "frozen": "old.weight,old.bias",
        "precision": "float32",
        "device": "cpu",
        "world_size": 1,
        "monitor_level": "default",
        "monitor_every": 10,
    }
    monitor.close()


@pytest.mark.parametrize(
    "wrap",
    [nn.DataParallel, lambda m: torch.compile(m, backend="eager")],
    ids=["parallel", "compile"],
)
def test_wrappers_leave_the_names_of_layers_alone(tmp_path, wrap):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = watch(wrap(model), optimizer, folder=tmp_path)
    fit(model, optimizer, batches(1))
    monitor.close()
    assert list(read(tmp_path).layers("update_ratio")) == [
        "0.weight",
        "0.bias",
        "2.weight",
        "2.bias",
    ]


def test_sharded_parameters_are_said_not_to_be_measured(tmp_path, caplog):
    model = mlp()
    model[0].weight.full_tensor = lambda: None  # what marks a DTensor
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = watch(model, optimizer, folder=tmp_path)
    fit(model, optimizer, batches(3), lambda _, loss: monitor.log(train_loss=loss))
    monitor.close()
    assert "sharded" in caplog.text
    assert {n for n, _ in read(tmp_path).series.items()} == {"train/loss", "lr", "step_seconds"}
