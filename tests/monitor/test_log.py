"""Which step a metric belongs to, and what a metric may be."""

import math

import numpy as np
import pytest
import torch
from plain_record import batches, fit, mlp, points, start

from orchestrator import watch
from orchestrator.telemetry import read, read_metrics


def test_a_train_loss_belongs_to_the_step_it_made(tmp_path):
    for name in ("before", "after"):
        model, optimizer, monitor = start(tmp_path / name)
        losses = []

        def log(_, loss, monitor=monitor, losses=losses):
            losses.append(loss.item())
            monitor.log(train_loss=loss)

        fit(model, optimizer, batches(5), **{"before" if name == "before" else "each": log})
        monitor.log(val_loss=7.0)
        monitor.close()
        assert points(tmp_path / name, "train/loss") == pytest.approx(dict(enumerate(losses)))
        assert points(tmp_path / name, "val/loss") == {5: 7.0}


def test_an_evaluation_is_at_the_number_of_steps_made(tmp_path):
    model, optimizer, monitor = start(tmp_path)
    monitor.log(**{"val/loss": 9.0, "probe.loss": 8})
    fit(model, optimizer, batches(4), lambda step, _: step == 1 and monitor.log(val_loss=3.0))
    monitor.close()
    assert points(tmp_path, "val/loss") == {0: 9, 2: 3}
    assert points(tmp_path, "probe/loss") == {0: 8}


def test_a_step_may_be_given(tmp_path):
    model, optimizer, monitor = start(tmp_path)
    fit(model, optimizer, batches(2), lambda step, _: monitor.log(step=10 * step, f1=0.5))
    monitor.log(step=10, f1=0.75)
    monitor.close()
    assert points(tmp_path, "f1") == {0: 0.5, 10: 0.75}


def test_numbers_of_all_kinds_are_logged(tmp_path):
    _, _, monitor = start(tmp_path)
    monitor.log(
        a=1,
        b=np.float32(0.5),
        c=torch.tensor(2),
        d=torch.tensor([3.0]),
        e=torch.tensor(0.25, dtype=torch.bfloat16),
        f=True,
        g=torch.tensor(True),
        h=math.nan,
        i=torch.tensor(1e300, dtype=torch.float64),
    )
    monitor.close()
    metrics = read_metrics(tmp_path)
    assert math.isnan(metrics.pop("h"))
    assert metrics == {"a": 1, "b": 0.5, "c": 2, "d": 3, "e": 0.25, "f": 1, "g": 1, "i": 1e300}


def test_a_tensor_is_logged_as_it_is_now(tmp_path):
    _, _, monitor = start(tmp_path)
    total = torch.tensor(1.0)
    monitor.log(total=total)
    total += 5
    monitor.close()
    assert read_metrics(tmp_path) == {"total": 1.0}


def test_what_is_logged_after_the_end_still_counts(tmp_path):
    model, optimizer, monitor = start(tmp_path)
    fit(model, optimizer, batches(2))
    monitor.close()
    monitor.close()
    monitor.log(test_loss=0.5)
    assert points(tmp_path, "test/loss") == {2: 0.5}
    fit(model, optimizer, batches(2))
    assert len(read(tmp_path)["grad_norm"]) == 2


def test_a_resumed_training_goes_on_where_its_optimizer_was(tmp_path):
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    fit(model, optimizer, batches(5))
    resumed = torch.optim.AdamW(model.parameters())
    monitor = watch(model, resumed, folder=tmp_path)
    resumed.load_state_dict(optimizer.state_dict())
    monitor.log(val_loss=1.0)
    fit(model, resumed, batches(3), lambda _, loss: monitor.log(train_loss=loss))
    monitor.close()
    telemetry = read(tmp_path)
    assert telemetry["grad_norm"].steps.tolist() == [5, 6, 7]
    assert telemetry["train/loss"].steps.tolist() == [5, 6, 7]
    assert telemetry["val/loss"].steps.tolist() == [5]
    assert telemetry.header["steps"] == 8


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def resume(folder, make, loads=True, **options):
    """Five steps recorded, then three of a process that resumed from a checkpoint of the last."""
    model = mlp()
    optimizer = make(model.parameters())
    monitor = watch(model, optimizer, folder=folder)
    fit(model, optimizer, batches(5))
    monitor.close()
    resumed = make(model.parameters())
    monitor = watch(model, resumed, folder=folder, **options)
    if loads:
        resumed.load_state_dict(optimizer.state_dict())
    fit(model, resumed, batches(3))
    monitor.close()
    return read(folder)["grad_norm"].steps.tolist()


def plain_sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def test_an_optimizer_that_does_not_count_goes_on_where_the_telemetry_ends(tmp_path):
    assert resume(tmp_path, momentum) == list(range(8))


def test_the_program_knows_better_where_it_goes_on(tmp_path):
    assert resume(tmp_path / "a", momentum, first_step=4) == list(range(7))
    assert resume(tmp_path / "b", plain_sgd, first_step=5) == list(range(8))


def test_an_optimizers_own_count_is_believed_first(tmp_path):
    assert resume(tmp_path, torch.optim.AdamW, first_step=2) == list(range(8))


@pytest.mark.parametrize("make", [plain_sgd, momentum, torch.optim.AdamW])
def test_a_training_that_starts_again_replaces_what_was_recorded_and_says_so(
    tmp_path, make, caplog
):
    assert resume(tmp_path, make, loads=False) == [0, 1, 2]
    assert caplog.text.count("first_step=") == 1
