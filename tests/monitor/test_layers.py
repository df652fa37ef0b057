"""Everything that is recorded of layers at level full, against tests/monitor/plain_record.py."""

import copy

import pytest
from plain_record import batches, mlp, record
from test_quantities import adamw, check, sgd


def check_full(folder, model, make, steps, *, histograms=1000, **options):
    """As `check`, and the histograms must be the same too."""
    twin, counts = copy.deepcopy(model), {}
    names = {"level": "full", "histograms": histograms}
    telemetry = check(folder, model, make, steps, **names, **options)
    plain = {name: options[name] for name in options.keys() & {"max_norm", "loss_of", "tables"}}
    every = options.get("every", 10)
    record(twin, make(twin), steps, every=every, **names, **plain, counts=counts)
    assert telemetry.histograms.keys() == counts.keys()
    for name, expected in counts.items():
        seen = telemetry.histograms[name]
        assert seen.steps.tolist() == list(expected)
        rows = zip(seen.zeros, seen.counts, seen.nonfinite, strict=True)
        assert [[zeros, *bins, bad] for zeros, bins, bad in rows] == list(expected.values()), name
    return telemetry


@pytest.mark.parametrize("make", [sgd, adamw])
def test_a_plain_loop(tmp_path, make):
    telemetry = check_full(tmp_path, mlp(), make, batches(103))
    assert telemetry.histograms["grad/0.weight"].steps.tolist() == [0, 100]
    assert telemetry["grad_cosine/0.weight"].steps.tolist()[:3] == [2, 4, 6]


def test_every_step_with_clipping_accumulation_and_flushes(tmp_path, monkeypatch):
    monkeypatch.setattr("orchestrator.monitor.buffer._FLUSH_STEPS", 7)
    steps = batches(20, micro=2)
    telemetry = check_full(tmp_path, mlp(), adamw, steps, every=1, max_norm=0.3, histograms=6)
    assert telemetry["update_cosine/0.weight"].steps.tolist() == list(range(1, 20))
    assert telemetry.histograms["update/0.bias"].steps.tolist() == [0, 6, 12, 18]
