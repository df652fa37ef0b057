"""Steps that are not finite, spikes, and the batches they came from."""

import math

import numpy as np
import pytest
import torch
from plain_record import Waits, batches, mlp, norm, points, start
from torch import nn

from orchestrator import watch
from orchestrator.monitor import spikes
from orchestrator.nouns import Batch
from orchestrator.telemetry import read

STEPS = 90


def train(folder, steps=STEPS, *, bad=(), factor=1.0, clips=False, micro=1, **options):
    """Gradients of the steps in `bad` are multiplied; norm of each gradient in each step."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = watch(model, optimizer, folder=folder, **options)
    seen = []
    with Waits() as waits:
        for step, parts in enumerate(batches(steps, micro)):
            optimizer.zero_grad()
            for i, (x, y) in enumerate(parts):
                monitor.batch(f"{step}.{i}", samples=len(x), tokens=(y > 0).sum())
                loss = nn.functional.cross_entropy(model(x), y) / micro
                (loss * (factor if step in bad else 1.0)).backward()
            if clips:
                monitor.clip_grad_norm_(0.5)
            seen.append({name: p.grad.clone() for name, p in model.named_parameters()})
            optimizer.step()
    assert waits.count == 0
    monitor.close()
    return [{name: norm([g]) for name, g in step.items()} for step in seen]


@pytest.mark.parametrize(("level", "every"), [("norms", 1), ("default", 1000)])
def test_the_steps_up_to_a_spike_are_written_in_full(tmp_path, level, every):
    seen = train(tmp_path, bad=(70,), factor=50.0, level=level, every=every)
    telemetry = read(tmp_path)
    window = list(range(70 - spikes.KEPT + 1, 71))
    for name in seen[0]:
        series = telemetry[f"grad_norm/{name}"]
        assert set(window) <= set(series.steps.tolist())
        expected = [seen[step][name] for step in series.steps]
        assert series.values == pytest.approx(expected, rel=1e-5)
    if level == "norms":
        assert telemetry["grad_norm/0.weight"].steps.tolist() == window
    assert [batch.step for batch in telemetry.batches] == window
    assert telemetry.batches[-1].id == "70.0"


def test_whole_gradients_are_written_although_they_are_clipped(tmp_path):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = watch(model, optimizer, level="norms", folder=tmp_path)
    for step, ((x, y),) in enumerate(batches(60)):
        optimizer.zero_grad()
        (nn.functional.cross_entropy(model(x), y) * (50 if step == 59 else 1)).backward()
        whole = norm([model[2].bias.grad])
        monitor.clip_grad_norm_(0.1)
        optimizer.step()
    monitor.close()
    assert points(tmp_path, "grad_norm/2.bias")[59] == pytest.approx(whole, rel=1e-5)


def test_a_window_reaches_back_over_a_flush(tmp_path, monkeypatch):
    monkeypatch.setattr("orchestrator.monitor.buffer._FLUSH_STEPS", 7)
    train(tmp_path, bad=(70,), factor=50.0, level="norms")
    window = list(range(70 - spikes.KEPT + 1, 71))
    assert read(tmp_path)["grad_norm/0.weight"].steps.tolist() == window


def test_the_batches_of_a_spike_are_those_the_program_told(tmp_path):
    train(tmp_path, bad=(70,), factor=50.0, micro=3)
    told = [batch for batch in read(tmp_path).batches if batch.step == 70]
    expected = [(y > 0).sum().item() for _, y in batches(STEPS, 3)[70]]
    assert told == [Batch(70, i, f"70.{i}", 6.0, expected[i]) for i in range(3)]


def test_a_calm_training_keeps_no_batches(tmp_path):
    train(tmp_path, level="norms")
    telemetry = read(tmp_path)
    assert telemetry.batches == ()
    assert not telemetry.layers("grad_norm")


def test_samples_and_tokens_of_a_step_are_summed_over_its_micro_batches(tmp_path):
    train(tmp_path, steps=5, micro=3)
    expected = [sum(int((y > 0).sum()) for _, y in parts) for parts in batches(5, 3)]
    assert list(points(tmp_path, "tokens").values()) == expected
    assert set(points(tmp_path, "samples").values()) == {18}
    assert set(points(tmp_path, "micro_batches").values()) == {3}


def test_backward_passes_count_where_the_program_tells_nothing(tmp_path):
    model, optimizer, monitor = start(tmp_path)
    for i, parts in enumerate([*batches(2, 1), *batches(2, 4)]):
        optimizer.zero_grad()
        for x, y in parts:
            nn.functional.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            model(parts[0][0])
        if i == 3:
            monitor.batch()  # only this one is told of
        optimizer.step()
    monitor.close()
    assert list(points(tmp_path, "micro_batches").values()) == [1, 1, 4, 1]
    assert "samples" not in read(tmp_path)


@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_step_that_is_not_finite_is_told_with_its_parameter(tmp_path, caplog, value, clips):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    monitor = watch(model, optimizer, level="norms", folder=tmp_path)
    for step, ((x, y),) in enumerate(batches(30)):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        if step in (12, 13):
            model[0].bias.grad[3] = value
            model[2].weight.grad[0, 0] = value
        monitor.batch(step)
        if clips:
            monitor.clip_grad_norm_(1.0)
        optimizer.step()
        if step >= 12:  # an optimizer that skips such a step leaves the weights as they were
            model.load_state_dict(mlp().state_dict())
    monitor.close()
    telemetry = read(tmp_path)
    assert telemetry.header["first_nonfinite"] == "12 0.bias"
    assert telemetry["nonfinite"].values.tolist() == [
        2.0 if s in (12, 13) else 0 for s in range(30)
    ]
    assert caplog.text.count("training goes on") == 1
    assert (
        "gradient of 0.bias, and of 2 parameters in all, was not finite in step 12" in caplog.text
    )
    assert [batch.id for batch in telemetry.batches] == [str(step) for step in range(13)]
    assert not np.isfinite(telemetry["grad_norm"].values[12])
    assert points(tmp_path, "grad_norm/0.bias")[11] < math.inf


def test_a_training_that_stays_broken_is_written_once(tmp_path):
    train(tmp_path, bad=range(60, 90), factor=math.nan, level="norms")
    steps = read(tmp_path)["grad_norm/0.weight"].steps.tolist()
    assert steps == list(range(60 - spikes.KEPT + 1, 61))


def test_windows_that_overlap_are_written_once_and_their_number_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(spikes, "MOST", 2)
    train(tmp_path, bad=(60, 62, 80), factor=50.0, level="norms")
    steps = read(tmp_path)["grad_norm/0.weight"].steps.tolist()
    assert steps == list(range(60 - spikes.KEPT + 1, 63))


def step_of(total, step=0):
    from orchestrator.monitor.steps import SeenStep

    return SeenStep(step, total, math.nan, (), np.empty(0), True, False, ())


def spikes_in(totals, chunk=500):
    found, looking = [], spikes.Spikes()
    for first in range(0, len(totals), chunk):
        part = [step_of(t, first + i) for i, t in enumerate(totals[first : first + chunk])]
        found += [part[i].step for i in looking._unusual(part)]
    return found


def slowly(totals):
    """The rule of `spikes`, step by step."""
    found = []
    for i in range(20, len(totals)):
        before = np.log(totals[max(0, i - 50) : i])
        level = np.median(before)
        std = 1.4826 * np.median(np.abs(before - level))
        if np.log(totals[i]) - level > max(6 * std, math.log(1.5)):
            found.append(i)
    return found


@pytest.mark.parametrize("chunk", [1, 7, 500])
def test_spikes_are_those_of_the_rule_however_the_steps_are_flushed(chunk):
    rng = np.random.default_rng(0)
    totals = np.exp(0.1 * rng.standard_t(3, size=400) + np.sin(np.arange(400) / 40))
    totals[[30, 250]] *= 20
    assert spikes_in(totals.tolist(), chunk) == slowly(totals)
    assert {30, 250} <= set(slowly(totals))


def test_a_healthy_training_has_hardly_a_spike():
    """Log-normal norms that drift: less than one spike in 1,000 steps over 20 trainings."""
    rng = np.random.default_rng(1)
    count = 0
    for _ in range(20):
        drift = np.linspace(0, -2, 1000)
        count += len(spikes_in(np.exp(drift + 0.3 * rng.standard_normal(1000)).tolist()))
    assert count <= 20
