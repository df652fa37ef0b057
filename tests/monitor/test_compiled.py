"""A compiled model is recorded as the plain one, whichever came first, `watch` or `compile`."""

import pytest
import torch
from plain_record import batches, fit, mlp, same_telemetry

from orchestrator import watch

BACKENDS = ["eager", "aot_eager"]  # "inductor" passes too, but compiles for 25 s of CPU


def trained(folder, compiled=lambda model: model, *, first):
    torch.manual_seed(0)
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    run = compiled(model)
    monitor = watch(model if first == "watch" else run, optimizer, level="full", folder=folder)
    fit(
        run,
        optimizer,
        batches(12),
        lambda _, loss: monitor.log(train_loss=loss),
        lambda *_: monitor.clip_grad_norm_(0.3),
    )
    monitor.close()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("first", ["watch", "compile"])
def test_it_is_recorded_as_the_plain_one(tmp_path, backend, first):
    trained(tmp_path / "plain", first=first)
    trained(tmp_path / "compiled", lambda m: torch.compile(m, backend=backend), first=first)
    same_telemetry(tmp_path / "compiled", tmp_path / "plain", rel=1e-3, is_compiled=True)
