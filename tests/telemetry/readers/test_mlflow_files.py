import math

import pytest

from orchestrator.errors import OrchestratorError
from orchestrator.telemetry import readers

EXPERIMENT = "mlruns/123/"


def metric(values, first=1, clock=1000):
    return "".join(f"{clock + 10 * i} {v} {first + i}\n" for i, v in enumerate(values))


def run(name, values, **more):
    meta = f"run_id: {name}\nrun_name: 'tall-{name}'\nstatus: 5\nlifecycle_stage: active\n"
    files = {
        "meta.yaml": meta,
        "metrics/train_loss": metric(values),
        "metrics/valid/acc": metric([0.1 * i for i in range(len(values))]),
        "metrics/final accuracy": "2000 0.9 0\n",
        "params/max_epochs": "12",
        "params/model": "Net(\n  Linear\n)" * 50,
    }
    return {f"{EXPERIMENT}{name}/{file}": text for file, text in (files | more).items()}


def test_a_run_as_text_files(fill):
    log = readers.read_log(fill(run("abc", [3, 2, 1])))
    assert (log.format, log.n_points, log.run) == ("mlflow", 3, "abc")
    assert log.telemetry["train/loss"].steps.tolist() == [1, 2, 3]
    assert log.columns["val/accuracy"] == "valid/acc"
    assert log.facts["param/max_epochs"] == 12
    assert (log.facts["status"], log.facts["run_name"]) == ("KILLED", "tall-abc")
    assert (log.axis, log.facts["stopped_early"]) == ("epoch", True)
    assert "param/model" not in log.facts


@pytest.mark.parametrize(
    "inside", ["", "mlruns", "mlruns/123", "mlruns/123/a", "mlruns/123/a/metrics"]
)
def test_any_folder_above_the_metrics_will_do(fill, inside):
    assert readers.read_log(fill(run("a", [3, 2, 1])) / inside).run == "a"


def test_one_of_several_runs(fill):
    folder = fill(run("a", [3, 2, 1, 0.5]) | run("b", [9, 8, 7]))
    log = readers.read_log(folder)
    assert (log.runs, log.run) == (("a", "b"), "a")
    assert readers.read_log(folder, run="b").telemetry["train/loss"].values[0] == 9
    assert readers.read_log(folder, run="tall-b").run == "b"
    with pytest.raises(OrchestratorError, match="no run 'c'"):
        readers.read_log(folder, run="c")


def test_points_in_no_order_and_twice_and_no_meta(fill):
    folder = fill(run("a", [3, 2, 1]) | {f"{EXPERIMENT}a/metrics/train_loss": (
        "1020 1 3\n1000 3 1\n1010 2 2\n1010 2 2\nbroken line\n\n"
    )})  # fmt: skip
    (folder / EXPERIMENT / "a/meta.yaml").unlink()
    log = readers.read_log(folder)
    assert log.telemetry["train/loss"].values.tolist() == [3, 2, 1]
    assert "no meta.yaml" in log.warnings[0]


def test_a_deleted_run_is_not_read(fill):
    deleted = run("a", [1, 1, 1, 1], **{"meta.yaml": "lifecycle_stage: deleted\n"})
    assert readers.read_log(fill(deleted | run("b", [3, 2]))).runs == ("b",)


def test_metrics_without_steps_are_numbered(fill):
    folder = fill({f"{EXPERIMENT}a/metrics/loss": "1 3 0\n2 2 0\n3 1 0\n"})
    log = readers.read_log(folder)
    assert (log.axis, log.telemetry["train/loss"].steps.tolist()) == ("row", [0, 1, 2])


def test_histories_that_somebody_fetched():
    points = [(1000 + i, 10 * i, 3.0 / (i + 1)) for i in range(5)]
    broken = [(1000, 0, 2.0), (1001, 10, math.nan), (1002, 20, 1.7976931348623157e308)]
    log = readers.from_histories(
        "mlflow:abc", {"train/loss": points, "eval_loss": broken}, params={"lr": "0.1"}
    )
    assert (log.format, log.axis) == ("mlflow", "optimizer step")
    assert log.telemetry["train/loss"].steps.tolist() == [0, 10, 20, 30, 40]
    assert log.telemetry["val/loss"].values[-1] == math.inf
    assert log.facts["param/lr"] == 0.1


def test_histories_without_a_loss_are_refused():
    with pytest.raises(OrchestratorError, match="mlflow:abc has no column that is a loss"):
        readers.from_histories("mlflow:abc", {"system/cpu": [(1, 1, 0.5)]})
