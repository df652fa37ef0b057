"""How much a monitor records: by the program's word, else by the campaign's."""

import pytest
import torch
from plain_record import batches, fit, start

from orchestrator.errors import OrchestratorError
from orchestrator.telemetry import read

NORMS = {
    "lr",
    "grad_norm",
    "nonfinite",
    "micro_batches",
    "clip_coefficient",
    "max_norm",
    "step_seconds",
}
LOGGED = {"train/loss", "accuracy"}


def recorded(folder, steps=12, **options):
    torch.manual_seed(0)
    model, optimizer, monitor = start(folder, **options)
    fit(
        model,
        optimizer,
        batches(steps),
        lambda step, loss: monitor.log(train_loss=loss, accuracy=step),
        lambda *_: monitor.clip_grad_norm_(0.3),
    )
    monitor.close()
    return read(folder)


def test_off_records_what_the_program_logs_at_its_steps(tmp_path):
    telemetry = recorded(tmp_path, level="off")
    assert telemetry.series.keys() == LOGGED
    assert telemetry["train/loss"].steps.tolist() == list(range(12))
    assert telemetry["accuracy"].steps.tolist() == list(range(1, 13))
    assert telemetry.header["steps"] == 12
    assert "grad_norm_seen" not in telemetry.header


def test_norms_are_those_of_the_default_without_the_layers(tmp_path):
    norms = recorded(tmp_path / "norms", level="norms")
    default = recorded(tmp_path / "default", level="default")
    assert norms.series.keys() >= LOGGED | NORMS
    assert not norms.layers("update_ratio")
    assert norms["grad_norm"].values == pytest.approx(default["grad_norm"].values)


def test_norms_can_be_measured_every_so_many_steps(tmp_path):
    torch.manual_seed(0)
    model, optimizer, monitor = start(tmp_path, level="norms", every=4)
    fit(model, optimizer, batches(70), lambda _, loss: monitor.log(train_loss=loss))
    monitor.close()
    telemetry = read(tmp_path)
    assert telemetry["grad_norm"].steps.tolist() == [*range(0, 60, 2), 60, 64, 68]
    assert telemetry["nonfinite"].steps.tolist() == telemetry["grad_norm"].steps.tolist()
    assert len(telemetry["lr"]) == len(telemetry["train/loss"]) == 70
    assert recorded(tmp_path / "clips", level="norms", every=4)["grad_norm"].steps.tolist() == list(
        range(12)
    )  # for clipping it is needed anyway


@pytest.mark.parametrize(
    ("low", "high"), [("off", "norms"), ("norms", "default"), ("default", "full")]
)
def test_each_level_holds_the_one_before(tmp_path, low, high):
    less, more = (recorded(tmp_path / level, level=level) for level in (low, high))
    assert less.series.keys() <= more.series.keys()


def test_the_campaign_says_the_level_where_the_program_does_not(tmp_path, monkeypatch):
    monkeypatch.setenv("ORCHESTRATOR_MONITOR_LEVEL", "norms")
    monkeypatch.setenv("ORCHESTRATOR_MONITOR_EVERY", "4")
    quiet = recorded(tmp_path / "file")
    assert (quiet.header["monitor_level"], quiet.header["monitor_every"]) == ("norms", 4)
    told = recorded(tmp_path / "program", level="default", every=3)
    assert (told.header["monitor_level"], told.header["monitor_every"]) == ("default", 3)
    half = recorded(tmp_path / "half", level="default", steps=70)
    assert half["param_norm/0.weight"].steps.tolist() == [*range(0, 60, 2), 60, 64, 68]


def test_a_wrong_level_names_the_nearest_and_all_mistakes_are_told(monkeypatch):
    with pytest.raises(OrchestratorError) as told:
        start(level="norm", every=0)
    assert "level='norm'" in str(told.value)
    assert "did you mean 'norms'?" in str(told.value)
    assert "every=0" in str(told.value)
    monkeypatch.setenv("ORCHESTRATOR_MONITOR_EVERY", "now and then")
    with pytest.raises(OrchestratorError, match="now and then"):
        start()
