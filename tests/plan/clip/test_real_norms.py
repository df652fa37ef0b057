"""Norms of a real training in mixed precision with accumulation, logged rightly and wrongly."""

import csv
import json

import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from orchestrator import watch
from orchestrator.cli import main

STEPS, MICRO = 800, 4


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """The folder of what `watch` recorded, and of what two users logged themselves."""
    folder = tmp_path_factory.mktemp("amp")
    images, labels = load_digits(return_X_y=True)
    images, labels = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=150)
    monitor = watch(model, optimizer, scaler=scaler, level="norms", folder=folder / "watched")
    parameters = list(model.parameters())
    scaled, micro = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        losses = []
        for _ in range(MICRO):
            chosen = torch.randint(len(images), (8,))
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(model(images[chosen]), labels[chosen]) / MICRO
            scaler.scale(loss).backward()
            losses.append(loss.item())
            norm = nn.utils.get_total_norm([p.grad for p in parameters]).item()
            micro.append(
                (len(micro), sum(losses) * MICRO / len(losses), 0.05, norm / scaler.get_scale())
            )
        scaled.append((step, sum(losses), 0.05, norm, scaler.get_scale()))
        scaler.unscale_(optimizer)
        monitor.clip_grad_norm_(None)
        monitor.log(train_loss=sum(losses))
        scaler.step(optimizer)
        scaler.update()
    monitor.close()
    columns = ["step", "loss", "lr", "grad_norm", "loss_scale"]
    for name, rows in (
        ("scaled", scaled),
        ("micro", micro),
        ("forgotten", [r[:4] for r in scaled]),
    ):
        with (folder / f"{name}.csv").open("w") as file:
            csv.writer(file).writerows([columns[: len(rows[0])], *rows])
    return folder


def proposed(path, capsys):
    assert main(["propose-clip", str(path), "--optimizer", "SGD", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def thresholds(answer):
    return {c["name"]: c["max_norm"] for c in answer["candidates"]}


def test_what_watch_records_needs_no_mending(logged, capsys):
    answer = proposed(logged / "watched", capsys)
    assert not {"amp_scaled", "micro_step"} & set(answer["flags"])
    assert thresholds(answer)


def test_norms_with_the_loss_scale_in_them_are_divided_by_it(logged, capsys):
    right, mended = (proposed(logged / name, capsys) for name in ("watched", "scaled.csv"))
    assert "amp_scaled" in mended["flags"]
    assert thresholds(mended) == pytest.approx(thresholds(right), rel=1e-3)


def test_norms_with_an_unknown_loss_scale_are_refused(logged, capsys):
    answer = proposed(logged / "forgotten.csv", capsys)
    assert "amp_scaled" in answer["flags"]
    assert answer["recommendation"] == "refused"


def test_of_norms_of_every_micro_batch_the_last_is_taken(logged, capsys):
    right, mended = (proposed(logged / name, capsys) for name in ("watched", "micro.csv"))
    assert "micro_step" in mended["flags"]
    assert thresholds(mended) == pytest.approx(thresholds(right), rel=0.02)
