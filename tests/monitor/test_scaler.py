"""Mixed precision: norms without the loss scale, and what the scaler skips."""

import copy

import pytest
import torch
from plain_record import Waits, batches, mlp, norm, points
from torch import nn

from orchestrator import watch
from orchestrator.telemetry import read

STEPS = 30
OVERFLOWS = {0: 2, 7: 1, 20: 3}  # before that step: how many attempts


def attempts(steps=STEPS):
    """Each batch, and whether its loss overflows."""
    for step, ((x, y),) in enumerate(batches(steps)):
        for _ in range(OVERFLOWS.get(step, 0)):
            yield x, y, True
        yield x, y, False


def scaled_loss(model, scaler, x, y, overflows):
    loss = nn.functional.cross_entropy(model(x), y)
    return loss, scaler.scale(loss) * (float("inf") if overflows else 1)


def scaler_for_cpu(**options):
    return torch.amp.GradScaler("cpu", init_scale=2.0**10, **options)


def plain(make, *, max_norm=None, unscales=True, seed=0):
    """Scale, skips and unscaled norm of each step, and the weights, from a loop without monitor."""
    torch.manual_seed(seed)
    model = mlp()
    optimizer = make(model.parameters())
    scaler = scaler_for_cpu(growth_interval=5)
    scales, norms, skipped = [], [], [0]
    for x, y, overflows in attempts():
        optimizer.zero_grad()
        scaled_loss(model, scaler, x, y, overflows)[1].backward()
        scale = scaler.get_scale()
        gradients = [p.grad / scale for p in model.parameters()]
        if unscales:
            scaler.unscale_(optimizer)
        if max_norm is not None:
            nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        scaler.step(optimizer)
        if overflows:
            skipped[-1] += 1
        else:
            scales.append(scale)
            norms.append(norm(gradients))
            skipped.append(0)
        scaler.update()
    return scales, norms, skipped[:-1], [p.detach().clone() for p in model.parameters()]


def watched(folder, make, *, max_norm=None, unscales=True, is_told=True):
    torch.manual_seed(0)
    model = mlp()
    optimizer = make(model.parameters())
    scaler = scaler_for_cpu(growth_interval=5)
    monitor = watch(model, optimizer, scaler=scaler if is_told else None, folder=folder)
    waits = Waits()
    for x, y, overflows in attempts():
        optimizer.zero_grad()
        loss, scaled = scaled_loss(model, scaler, x, y, overflows)
        scaled.backward()
        if unscales:
            scaler.unscale_(optimizer)
        with waits:
            monitor.batch(samples=len(x))
            if max_norm is not None:
                monitor.clip_grad_norm_(max_norm)
        scaler.step(optimizer)
        scaler.update()
        with waits:
            if not overflows:
                monitor.log(train_loss=loss)
    assert waits.count == 0
    monitor.close()
    return [p.detach().clone() for p in model.parameters()]


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2)


@pytest.mark.parametrize("make", [sgd, adam])
@pytest.mark.parametrize("max_norm", [None, 0.3])
@pytest.mark.parametrize("unscales", [True, False])
def test_scale_skips_and_norms_are_those_of_a_plain_loop(tmp_path, make, max_norm, unscales):
    scales, norms, skipped, weights = plain(make, max_norm=max_norm, unscales=unscales)
    ours = watched(tmp_path, make, max_norm=max_norm, unscales=unscales)
    for ours_, theirs in zip(ours, weights, strict=True):
        assert torch.equal(ours_, theirs)
    assert list(points(tmp_path, "loss_scale").values()) == scales
    assert list(points(tmp_path, "skipped_steps").values()) == skipped
    assert list(points(tmp_path, "grad_norm").values()) == pytest.approx(norms, rel=1e-5)
    assert set(points(tmp_path, "micro_batches").values()) == {1}
    assert set(points(tmp_path, "samples").values()) == {6}
    telemetry = read(tmp_path)
    assert telemetry.header["steps"] == STEPS
    layers = [s.values[0] for s in telemetry.layers("grad_norm").values()]
    assert sum(v**2 for v in layers) ** 0.5 == pytest.approx(norms[0], rel=1e-5)


def test_clipping_scaled_gradients_is_told_and_recorded_without_the_scale(tmp_path, caplog):
    scales, norms, _, _ = plain(sgd, max_norm=50.0, unscales=False)
    watched(tmp_path, sgd, max_norm=50.0, unscales=False)
    assert caplog.text.count("scaler.unscale_(optimizer)") == 1
    assert read(tmp_path).header["clipped_scaled"] is True
    limits = [50.0 / scale for scale in scales]
    assert list(points(tmp_path, "max_norm").values()) == pytest.approx(limits)
    coefficients = [min(1, limit / n) for limit, n in zip(limits, norms, strict=True)]
    found = list(points(tmp_path, "clip_coefficient").values())
    assert found == pytest.approx(coefficients, rel=1e-3)
    assert min(found) < 1


def fused(parameters):
    return torch.optim.AdamW(parameters, lr=1e-2, fused=True)


@pytest.mark.parametrize("max_norm", [None, 50.0])
@pytest.mark.parametrize("unscales", [True, False])
@pytest.mark.parametrize("is_told", [True, False])
def test_a_fused_optimizer_that_unscales_and_skips_by_itself(
    tmp_path, max_norm, unscales, is_told, caplog
):
    scales, norms, _, weights = plain(fused, max_norm=max_norm, unscales=unscales)
    ours = watched(tmp_path, fused, max_norm=max_norm, unscales=unscales, is_told=is_told)
    for ours_, theirs in zip(ours, weights, strict=True):
        assert torch.equal(ours_, theirs)
    # A skipped step counts as one here, for nobody on the host knows that it was.
    is_skipped = list(points(tmp_path, "skipped_steps").values())
    assert is_skipped == [float(o) for _, _, o in attempts()]
    total = list(points(tmp_path, "grad_norm").values())
    made = [t for t, was_skipped in zip(total, is_skipped, strict=True) if not was_skipped]
    assert made == pytest.approx(norms, rel=1e-5)
    if is_told:
        found = zip(points(tmp_path, "loss_scale").values(), is_skipped, strict=True)
        assert [scale for scale, was_skipped in found if not was_skipped] == scales
    telemetry = read(tmp_path)
    assert telemetry["nonfinite"].values[0] == 4
    assert "first_nonfinite" not in telemetry.header
    clips_scaled = max_norm is not None and not unscales
    assert ("clipped_scaled" in telemetry.header) == clips_scaled


def test_a_disabled_scaler_is_none(tmp_path):
    model = mlp()
    optimizer = sgd(model.parameters())
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    monitor = watch(model, optimizer, scaler=scaler, folder=tmp_path)
    for ((x, y),) in batches(3):
        optimizer.zero_grad()
        scaler.scale(nn.functional.cross_entropy(model(x), y)).backward()
        monitor.clip_grad_norm_(1.0)
        scaler.step(optimizer)
        scaler.update()
    monitor.close()
    assert "loss_scale" not in read(tmp_path)
    assert len(read(tmp_path)["grad_norm"]) == 3


@pytest.mark.parametrize("unscales", [True, False])
def test_a_scaler_that_nobody_told_of_is_noticed_where_it_matters(tmp_path, caplog, unscales):
    watched(tmp_path, sgd, max_norm=0.3, unscales=unscales, is_told=False)
    factor = read(tmp_path).header.get("rescaled_after_clipping")
    assert (factor is None) == unscales
    assert caplog.text.count("watch(..., scaler=scaler)") == (not unscales)
    if not unscales:
        scales = plain(sgd, max_norm=0.3, unscales=False)[0]
        assert factor == pytest.approx(1 / scales[0], rel=1e-3)


@pytest.mark.parametrize("max_norm", [None, 0.3])
def test_norms_under_autocast_are_those_of_the_gradients_in_single_precision(tmp_path, max_norm):
    model = mlp()
    twin = copy.deepcopy(model)
    optimizer, expected = sgd(model.parameters()), []
    plain_optimizer = sgd(twin.parameters())
    monitor = watch(model, optimizer, folder=tmp_path)
    for ((x, y),) in batches(20):
        for m, o in ((model, optimizer), (twin, plain_optimizer)):
            o.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = nn.functional.cross_entropy(m(x), y)
            loss.backward()
            if m is twin:
                expected.append(norm(p.grad for p in m.parameters()))
                if max_norm is not None:
                    nn.utils.clip_grad_norm_(m.parameters(), max_norm)
            elif max_norm is not None:
                monitor.clip_grad_norm_(max_norm)
            o.step()
    monitor.close()
    assert list(points(tmp_path, "grad_norm").values()) == pytest.approx(expected, rel=1e-5)
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours, theirs)
