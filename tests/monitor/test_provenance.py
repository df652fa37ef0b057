"""What the header says of code, seeds, libraries, precision and streams."""

import json
import platform
import random
import subprocess

import numpy as np
import pytest
import torch
from plain_record import batches, fit, mlp, start
from torch import nn

import orchestrator
from orchestrator import watch
from orchestrator.monitor import provenance, streams
from orchestrator.monitor.provenance import code_version, data_digest
from orchestrator.telemetry import read


def header(folder, **options):
    _, _, monitor = start(folder, **options)
    monitor.close()
    return read(folder).header


def test_seeds_are_those_in_force_and_nothing_is_drawn(tmp_path):
    torch.manual_seed(7)
    np.random.seed(7)
    random.seed(7)
    found = header(tmp_path / "a")
    assert found["torch_seed"] == 7
    after = torch.rand(1).item(), np.random.rand(), random.random()
    torch.manual_seed(7)
    np.random.seed(7)
    random.seed(7)
    mlp()  # draws as `start` does
    assert (torch.rand(1).item(), np.random.rand(), random.random()) == after


def test_streams_of_numpy_and_python_are_told_apart_by_their_states(tmp_path):
    np.random.seed(1)
    random.seed(1)
    first, again = header(tmp_path / "a"), header(tmp_path / "b")
    np.random.rand()
    other = header(tmp_path / "c")
    assert first["numpy_stream"] == again["numpy_stream"] != other["numpy_stream"]
    assert first["python_stream"] == again["python_stream"] == other["python_stream"]


def test_versions_are_those_that_run(tmp_path):
    found = header(tmp_path)
    assert found["python"] == platform.python_version()
    assert found["numpy"] == np.__version__
    assert found["torch"] == torch.__version__
    assert found["device_name"]
    assert platform.node() not in found.values()


def test_a_trials_facts_come_from_its_campaign(tmp_path, monkeypatch):
    told = {"trial": "ab12", "seed": 3, "code": "cd34", "data": "digits 2"}
    monkeypatch.setenv("ORCHESTRATOR_TRIAL_FACTS", json.dumps(told))
    found = header(tmp_path)
    assert {name: found[name] for name in told} == told


def git(folder, *arguments):
    identity = ("-c", "user.name=n", "-c", "user.email=e@example.org")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True
    )
    return done.stdout.decode().strip()


@pytest.fixture
def _fresh():
    code_version.cache_clear()
    yield
    code_version.cache_clear()


@pytest.mark.usefixtures("_fresh")
def test_code_is_the_scripts_commit_and_whether_files_differ(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("pass\n")
    git(tmp_path, "init", "-q")
    untracked = code_version(str(script))
    assert untracked.startswith("sha256:")
    git(tmp_path, "add", "train.py")
    git(tmp_path, "commit", "-qm", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    code_version.cache_clear()
    assert code_version(str(script)) == commit
    script.write_text("pass  # changed\n")
    code_version.cache_clear()
    assert code_version(str(script)) == f"{commit}-dirty"


@pytest.mark.usefixtures("_fresh")
def test_code_without_a_repository_or_without_git_is_the_scripts_hash(tmp_path, monkeypatch):
    script = tmp_path / "train.py"
    script.write_text("pass\n")
    found = code_version(str(script))
    script.write_text("pass  # changed\n")
    code_version.cache_clear()
    assert code_version(str(script)) != found
    monkeypatch.setattr(provenance.subprocess, "run", no_git)
    script.write_text("pass\n")
    code_version.cache_clear()
    assert code_version(str(script)) == found
    assert code_version(None) == code_version(str(tmp_path / "none.py")) == ""


def no_git(*_, **__):
    raise FileNotFoundError("git")


def test_random_streams_are_named_with_their_seeds(tmp_path):
    streams.forget()
    orchestrator.generator(3, "init")
    model, optimizer, monitor = start(tmp_path)
    orchestrator.generator(3, "data")
    fit(model, optimizer, batches(2))
    monitor.close()
    assert read(tmp_path).header["rng_streams"] == "data:3,init:3"
    start(tmp_path / "next")[2].close()
    assert "rng_streams" not in read(tmp_path / "next").header


@pytest.mark.parametrize("level", ["norms", "default"])
@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
def test_autocast_is_seen_in_the_first_step(tmp_path, dtype, level):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = watch(model, optimizer, level=level, folder=tmp_path)
    for ((x, y),) in batches(2):
        with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
            model(x)  # an evaluation is none of the training's
        with torch.autocast("cpu", dtype=dtype, enabled=dtype is not None):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert not torch.nn.modules.module._global_forward_pre_hooks
    monitor.close()
    found = read(tmp_path).header.get("autocast")
    assert found == (None if dtype is None else str(dtype).removeprefix("torch."))
    assert read(tmp_path).header["precision"] == "float32"


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_the_probes_data_is_told_apart_by_its_numbers_kind_and_shape(kind):
    data = (torch.arange(12) % 5).reshape(3, 4).to(kind)
    same = data_digest((data.clone().T.contiguous().T, {"labels": torch.ones(3)}))
    assert same == data_digest([data, {"labels": torch.ones(3)}])
    other = data.clone()
    other[2, 3] = 0 if other[2, 3] else 1
    assert same != data_digest((other, {"labels": torch.ones(3)}))
    assert same != data_digest((data.reshape(4, 3), {"labels": torch.ones(3)}))
    assert same != data_digest((data, {"labels": torch.ones(4)}))
    assert data_digest(data.float()) != data_digest(data.double())


def test_the_header_tells_the_first_batch_of_the_probe(tmp_path):
    def probed(folder, shift):
        _, _, monitor = start(folder)
        ((inputs, targets),) = batches(1)[0]
        monitor.probe(inputs + shift, targets, loss=nn.functional.cross_entropy)
        monitor.probe(inputs + 1, targets, loss=nn.functional.cross_entropy)
        monitor.close()
        return read(folder).header["probe_data"]

    first, again = probed(tmp_path / "a", 0.0), probed(tmp_path / "b", 0.0)
    assert first == again != probed(tmp_path / "c", 0.5)
