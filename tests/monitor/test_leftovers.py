"""Steps made from the gradients of the step before: told exactly, in every way of clearing them."""

import pytest
import torch
from plain_record import batches, mlp
from torch import nn
from torch.nn import functional

import orchestrator
from orchestrator.telemetry import read

STEPS = 8


def stale_steps(folder, *, clear, accumulate=1, clips=False):
    """Train with `clear(optimizer, step)` before each step's backward passes."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, weight_decay=0.1)
    monitor = orchestrator.watch(model, optimizer, folder=folder)
    for step, ((x, y),) in enumerate(batches(STEPS)):
        clear(optimizer, step)
        for _ in range(accumulate):
            functional.cross_entropy(model(x), y).backward()
        if clips:
            monitor.clip_grad_norm_(1e-3)
        optimizer.step()
    monitor.close()
    return read(folder).header["stale_steps"]


def thrown_away(optimizer, step):
    optimizer.zero_grad()


def set_to_zero(optimizer, step):
    optimizer.zero_grad(set_to_none=False)


def never(optimizer, step):
    pass


@pytest.mark.parametrize("clear", [thrown_away, set_to_zero])
@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("clips", [False, True])
def test_cleared_gradients_leave_nothing(tmp_path, clear, accumulate, clips):
    assert stale_steps(tmp_path, clear=clear, accumulate=accumulate, clips=clips) == 0


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("clips", [False, True])
def test_every_step_but_the_first_is_stale_without_zero_grad(tmp_path, accumulate, clips):
    assert stale_steps(tmp_path, clear=never, accumulate=accumulate, clips=clips) == STEPS - 1


def test_single_steps_are_counted(tmp_path):
    def sometimes(optimizer, step):
        if step % 4:
            optimizer.zero_grad()

    assert stale_steps(tmp_path, clear=sometimes) == 1


def test_a_layer_left_out_of_a_step_is_not_stale(tmp_path):
    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.often, self.seldom = nn.Linear(4, 3), nn.Linear(4, 1)

        def forward(self, x, *, both):
            return self.often(x) + (self.seldom(x) if both else 0)

    model = Gate()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = orchestrator.watch(model, optimizer, folder=tmp_path)
    for step in range(9):
        optimizer.zero_grad()
        model(torch.randn(5, 4), both=step % 3 == 0).sum().backward()
        optimizer.step()
    monitor.close()
    assert read(tmp_path).header["stale_steps"] == 0


def test_two_players_that_clear_only_their_own_gradients_are_healthy(tmp_path):
    """As in adversarial training: one's backward pass reaches the other's parameters as well."""
    model = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 1)])
    maker, judge = (torch.optim.SGD(part.parameters(), lr=0.01) for part in model)
    monitor = orchestrator.watch(model, [maker, judge], folder=tmp_path)
    for _ in range(6):
        for player in (judge, maker):
            player.zero_grad()
            model[1](model[0](torch.randn(5, 3))).sum().backward()
            player.step()
    monitor.close()
    assert read(tmp_path).header["stale_steps"] == 0


def test_the_parameter_that_is_looked_at_keeps_no_hook(tmp_path):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    monitor = orchestrator.watch(model, optimizer, folder=tmp_path)
    for ((x, y),) in batches(2):
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    monitor.close()
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())


def test_the_header_tells_what_the_structure_is(tmp_path):
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Dropout(0.3), nn.Linear(8, 4), nn.Linear(4, 2)
    )
    model[4].requires_grad_(False)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.01, weight_decay=0.2, eps=1e-5)
    orchestrator.watch(model, optimizer, folder=tmp_path).close()
    header = read(tmp_path).header
    assert header["weight_layers"] == "0.weight,3.weight"
    assert header["weight_shapes"] == "2x1x3x3,4x8"
    assert header["head"] == "4.weight"
    assert header["frozen_share"] == pytest.approx(10 / 66)
    assert (header["dropout"], header["weight_decay"], header["eps"]) == (0.3, 0.2, 1e-5)
