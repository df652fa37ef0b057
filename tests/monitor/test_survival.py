"""What is left when the process, or the disk, comes to an end."""

import errno
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time

import torch
from plain_record import batches, mlp
from torch import nn

from orchestrator import watch
from orchestrator.telemetry import read, read_metrics, writer

PROGRAM = """
    import os, signal, sys, torch
    import orchestrator
    torch.set_num_threads(1)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = orchestrator.watch(model, optimizer)

    def train(steps):
        for _ in range(steps):
            optimizer.zero_grad()
            loss = model(torch.ones(2, 3)).square().mean()
            loss.backward()
            optimizer.step()
            monitor.log(train_loss=loss)
"""


def program(folder, body: str) -> subprocess.Popen[bytes]:
    code = textwrap.dedent(PROGRAM) + textwrap.dedent(body)
    environment = {**os.environ, "ORCHESTRATOR_TRIAL_FOLDER": str(folder), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, "-W", "error", "-c", code], env=environment)


def test_a_process_that_is_killed_leaves_what_it_had_flushed(tmp_path):
    process = program(tmp_path, "while True: train(100)")
    deadline = time.monotonic() + 60
    while not read_metrics(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    telemetry = read(tmp_path)
    steps = len(telemetry["grad_norm"])
    assert steps >= 500
    assert telemetry["train/loss"].steps.tolist() == list(range(len(telemetry["train/loss"])))
    assert abs(len(telemetry["train/loss"]) - steps) <= 500
    assert telemetry.header["optimizer"] == "SGD"
    assert telemetry.header["grad_norm_seen"] == "optimizer"
    assert telemetry.header["steps"] == steps


def test_a_program_that_just_ends_is_recorded_to_its_end(tmp_path):
    assert program(tmp_path, "train(30); monitor.log(val_loss=0.5)").wait() == 0
    assert len(read(tmp_path)["grad_norm"]) == len(read(tmp_path)["train/loss"]) == 30
    assert read_metrics(tmp_path)["val/loss"] == 0.5
    assert read(tmp_path).header["steps"] == 30


def test_a_program_that_fails_is_recorded_to_its_end(tmp_path):
    assert program(tmp_path, "train(30); sys.exit(3)").wait() == 3
    assert len(read(tmp_path)["grad_norm"]) == 30


def test_a_forked_child_writes_nothing(tmp_path):
    body = """
    train(30)
    monitor._recorder._buffer.flush()
    child = os.fork()
    if child == 0:
        train(10)
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0
    """
    assert program(tmp_path, body).wait() == 0
    assert len(read(tmp_path)["grad_norm"]) == 30
    assert len(list(tmp_path.glob("telemetry/*-steps-*"))) == 1


def test_a_full_disk_does_not_end_the_training(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("orchestrator.monitor.buffer._FLUSH_STEPS", 10)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = watch(model, optimizer, folder=tmp_path)

    def train() -> None:
        for ((x, y),) in batches(20):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()

    train()
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(writer.os, "write", full)
        train()
    train()
    monitor.close()
    assert len(caplog.records) == 1
    telemetry = read(tmp_path)
    assert telemetry["grad_norm"].steps.tolist() == [*range(20), *range(40, 60)]
    assert telemetry.header["rows_lost"] == 20 + 10 + 1  # steps, those with layers, with modules
