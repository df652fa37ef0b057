"""The monitor changes nothing and waits for nothing."""

import copy

import pytest
import torch
from plain_record import Waits, batches, fit, mlp, points, start
from torch import nn

from orchestrator import watch
from orchestrator.monitor import buffer
from orchestrator.telemetry import read


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3), nn.ReLU(), nn.Linear(8, 3))

    def forward(self, x):
        return self.inner(x)


@pytest.mark.parametrize("every", [1, 7])
@pytest.mark.parametrize("kind", ["SGD", "AdamW"])
def test_weights_and_random_numbers_are_the_same_bit_for_bit(tmp_path, every, kind):
    results = []
    for recording in (False, True):
        torch.manual_seed(5)
        model = Noisy()
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.05)
        monitor = watch(model, optimizer, every=every, folder=tmp_path) if recording else None
        fit(
            model,
            optimizer,
            batches(80),
            each=lambda _, loss, m=monitor: m and m.log(train_loss=loss),
            before=lambda _, loss, m=monitor: m and m.clip_grad_norm_(None),
        )
        if monitor:
            monitor.close()
        results.append([*model.parameters(), torch.get_rng_state()])
    for plain, watched in zip(*results, strict=True):
        assert torch.equal(plain, watched)


@pytest.mark.parametrize("recording", [False, True])
@pytest.mark.parametrize("max_norm", [1e-3, 0.3, 1e9])
@pytest.mark.parametrize("grown", [1.0, float("inf"), float("nan"), 0.0])
def test_clipping_is_torchs_bit_for_bit(tmp_path, recording, max_norm, grown):
    model, optimizer, monitor = start(tmp_path if recording else None)
    fit(model, optimizer, batches(1))
    model[2].bias.grad *= grown
    twin = copy.deepcopy(model)
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        theirs.grad = ours.grad.clone()
    expected = torch.nn.utils.clip_grad_norm_(twin.parameters(), max_norm)
    total = monitor.clip_grad_norm_(max_norm)
    assert torch.equal(total, expected) or (total.isnan() and expected.isnan())
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours.grad.nan_to_num(), theirs.grad.nan_to_num())
    monitor.close()


def test_clipping_computes_one_norm(tmp_path, monkeypatch):
    model, optimizer, monitor = start(tmp_path)
    # Step 5, which comes next, is not sampled, and no longer one whose clipping is checked.
    fit(model, optimizer, batches(5), before=lambda *_: monitor.clip_grad_norm_(1.0))
    calls = []
    real = torch._foreach_norm
    monkeypatch.setattr(torch, "_foreach_norm", lambda *a: calls.append(1) or real(*a))
    fit(model, optimizer, batches(1), before=lambda *_: monitor.clip_grad_norm_(1.0))
    assert len(calls) == 1
    monitor.close()


def test_models_and_optimizers_can_still_be_copied(tmp_path):
    model, optimizer, monitor = start(tmp_path)
    copy.deepcopy(model)
    copy.deepcopy(optimizer).step()
    monitor.close()


def test_nothing_waits_for_the_device_between_flushes(tmp_path):
    model, optimizer, monitor = start(tmp_path, every=1)

    def log(step, loss):
        monitor.log(train_loss=loss, accuracy=loss > 0, n=step)

    with Waits() as waits:
        fit(model, optimizer, batches(100), log, lambda *_: monitor.clip_grad_norm_(0.3))
    assert waits.count == 0
    monitor.close()
    assert len(read(tmp_path)["train/loss"]) == 100


class Everything(nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = nn.Embedding(20, 5)
        self.sparse = nn.Embedding(20, 5, sparse=True)
        self.body = mlp()

    def forward(self, tokens):
        return self.body(self.dense(tokens) + self.sparse(tokens))


@pytest.mark.filterwarnings("ignore:.*[Ss]parse.*")
@pytest.mark.parametrize("kind", ["default", "full"])
def test_nothing_waits_inside_of_torch_either(tmp_path, kind):
    """Counted by the profiler, which also sees what one operation of torch asks another for."""

    def waits(recording):
        torch.manual_seed(0)
        model = Everything()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        monitor = watch(
            model,
            optimizer,
            level=kind,
            every=1,
            histograms=2,
            folder=tmp_path if recording else None,
        )
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            for _ in range(4):
                tokens = torch.arange(12) % 7
                optimizer.zero_grad()
                model(tokens).square().sum().backward()
                optimizer.step()
        monitor.close()
        names = [event.key for event in profile.key_averages() for _ in range(event.count)]
        return [
            n for n in names if n in ("aten::_local_scalar_dense", "aten::item", "aten::nonzero")
        ]

    assert waits(recording=True) == waits(recording=False)
    assert len(read(tmp_path)["grad_norm/sparse.weight"]) == 4


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20, 5)
        self.body = mlp()

    def forward(self, tokens):
        return self.body(self.table(tokens))


@pytest.mark.parametrize("level", ["default", "full"])
def test_a_training_without_data_can_be_watched_until_the_flush(tmp_path, caplog, level):
    """On the meta device whatever needs a value raises: nothing here assumes a device."""
    model = Reader().to("meta")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = watch(model, optimizer, level=level, every=1, histograms=3, folder=tmp_path)
    for _ in range(20):
        loss = model(torch.empty(6, dtype=torch.long, device="meta")).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        monitor.log(train_loss=loss)
    assert not caplog.records
    monitor.close()
    assert "the end of the recording is lost" in caplog.text


def test_a_flush_is_one_transfer(tmp_path, monkeypatch):
    transfers = []
    real = torch.Tensor.cpu
    monkeypatch.setattr(torch.Tensor, "cpu", lambda t: transfers.append(t.numel()) or real(t))
    model, optimizer, monitor = start(tmp_path)
    fit(model, optimizer, batches(30), lambda _, loss: monitor.log(train_loss=loss))
    monitor.close()
    assert len(transfers) == 1


def test_memory_is_bounded_by_flushes(tmp_path, monkeypatch):
    monkeypatch.setattr(buffer, "_FLUSH_STEPS", 10)
    monkeypatch.setattr(buffer, "_FLUSH_TENSORS", 50)
    model, optimizer, monitor = start(tmp_path)
    held = monitor._recorder._buffer
    fit(model, optimizer, batches(35))
    assert len(held.steps) < 10
    for i in range(1000):
        monitor.log(score=i)
        assert len(held.logged) <= 50
    monitor.close()
    assert points(tmp_path, "score") == {35: 999}
