"""docs/monitoring.md: its programs run, and its table has every name that is recorded."""

import re

import pytest
import torch
from plain_record import PAGE, PROGRAMS, batches, fit, mlp, start
from torch.nn import functional
from torch.utils.data import DataLoader

import orchestrator
from orchestrator.telemetry import read

FRAMEWORKS = ("LightningMonitor", "HuggingFaceMonitor")  # run by those files' tests


def test_each_framework_has_its_program():
    for name in FRAMEWORKS:
        assert sum(name in program for program in PROGRAMS) == 1


@pytest.mark.parametrize("program", [p for p in PROGRAMS if not any(f in p for f in FRAMEWORKS)])
def test_its_programs_run(tmp_path, monkeypatch, program):
    monkeypatch.setenv("ORCHESTRATOR_TRIAL_FOLDER", str(tmp_path))
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = [micro[0] for micro in batches(8)]
    names = {
        "orchestrator": orchestrator,
        "torch": torch,
        "device": "cpu",
        "F": functional,
        "DataLoader": DataLoader,
        "model": model,
        "optimizer": optimizer,
        "loader": loader,
        "data": loader,
        "seed": 0,
        "loss": functional.cross_entropy(model(loader[0][0]), loader[0][1]),
        "evaluate": lambda _: 0.5,
    }
    if "read(folder)" in program:
        names["folder"] = tmp_path / "full"
        _, _, names["monitor"] = recorded = start(names["folder"], level="full")
        fit(*recorded[:2], batches(3))
        names["monitor"].close()
    elif "watch" not in program:
        names["monitor"] = orchestrator.watch(model, optimizer)
    exec(program, names)
    names["monitor"].close()
    if ".probe(" in program:
        assert read(tmp_path)["probe/loss"].steps.tolist() == [8, 16, 24]
    if "for inputs" not in program and "enumerate" not in program:
        return
    telemetry = read(tmp_path)
    assert len(telemetry["train/loss"]) == telemetry.header["steps"] == len(telemetry["grad_norm"])
    if "scaler" in program:
        assert len(telemetry["loss_scale"]) == len(telemetry["skipped_steps"]) == len(loader)
        assert telemetry.header["autocast"] == "bfloat16"
    if "monitor.batch" in program:
        assert set(telemetry["samples"].values) == set(telemetry["tokens"].values) == {6}


def test_its_table_has_every_name(tmp_path):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    monitor = orchestrator.watch(model, optimizer, level="full", scaler=scaler, folder=tmp_path)
    for ((x, y),) in batches(3):
        optimizer.zero_grad()
        with torch.autocast("cpu"):
            loss = functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        model[0].bias.grad[0] = float("inf")  # after which nothing is unscaled or skipped
        orchestrator.generator(0, "data")
        monitor.batch(samples=1, tokens=1)
        monitor.clip_grad_norm_(1.0)
        optimizer.step()
    monitor.probe(x, y, loss=functional.cross_entropy)
    monitor.close()
    telemetry = read(tmp_path)
    for name, series in telemetry.series.items():
        quantity, _, layer = name.partition("/")
        ours = quantity + "/<(layer|module)>" * bool(layer)
        row = re.search(rf"\n\|[^|]*`({name}|{ours})`.*", PAGE)
        assert row, name
        assert series.unit in row[0].split("|")[3]
    for fact in telemetry.header:
        assert f"`{fact}`" in PAGE
