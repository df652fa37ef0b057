from __future__ import annotations

import base64
import dataclasses
import json
import warnings
import zlib
from pathlib import Path

import numpy as np
import pytest

from orchestrator.nouns import Page, Record, Series, Telemetry, Trial
from orchestrator.track import Unreachable, sync
from orchestrator.track.store import KEY, campaign_key
from orchestrator.track.sync import DIGEST, ID
from tests import records

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import mlflow


PAGES = {
    "": Page("", "digits", "**The answer** comes first.", "<html>whole</html>"),
    "r1-weight_decay": Page(
        "r1-weight_decay",
        "Round 1",
        "| arm | verdict |\n| --- | --- |\n| weight_decay=0.1 | better |",
        "<html>one</html>",
        ("arm", "verdict"),
        (("baseline", "-"), ("weight_decay=0.1", "better")),
        {"r1-weight_decay-forest.png": b"\x89PNG"},
    ),
}


def short(trial: Trial) -> Telemetry:
    """Four evaluations, one of them not finite: enough to see what is drawn."""
    steps = np.array([10, 20, 30, 40], dtype=np.int64)
    values = np.array([1.0, np.nan, 0.5, 0.25]) + trial.seed
    return Telemetry({"val/loss": Series(steps, values, "nat"), "test/loss": Series(steps, values)})


class Shown:
    """What MLflow holds of one campaign."""

    def __init__(self, uri: str, folder: Path) -> None:
        self.client = mlflow.tracking.MlflowClient(tracking_uri=uri)
        mine = f"tags.`{KEY}` = '{campaign_key(str(folder))}'"
        (self.experiment,) = self.client.search_experiments(filter_string=mine)
        found = self.client.search_runs([self.experiment.experiment_id], max_results=1000)
        self.runs = {r.info.run_name: r for r in found}

    def history(self, run: str, metric: str) -> list[tuple[int, float]]:
        points = self.client.get_metric_history(self.runs[run].info.run_id, metric)
        return [(p.step, p.value) for p in points]

    def table(self, run: str) -> list[list[str]]:
        """The rows of the table that MLflow shows as one: its tag says that it is one."""
        info = self.runs[run].info
        marked = json.loads(self.runs[run].data.tags["mlflow.loggedArtifacts"])
        assert marked == [{"path": "table.json", "type": "table"}]
        path = self.client.download_artifacts(info.run_id, "table.json")
        return json.loads(Path(path).read_text())["data"]

    def artifacts(self, run: str, path: str = "") -> set[str]:
        return {a.path for a in self.client.list_artifacts(self.runs[run].info.run_id, path)}


def small(folder: Path) -> Record:
    """The finished campaign with few of its trials."""
    record = records.finished(folder)
    kept = {i: t for i, t in record.trials.items() if t.seed in (0, 2, 3, 30)}
    return dataclasses.replace(record, trials=kept)


def show(record, uri: str, *, pages=PAGES, telemetry=short) -> Shown:
    sync(record, uri=uri, pages=pages, telemetry=telemetry, picture=lambda _: b"\x89PNG")
    return Shown(uri, Path(record.campaign.folder))


@pytest.fixture(scope="module")
def shown(sqlite_uri: str, tmp_path_factory: pytest.TempPathFactory) -> Shown:
    folder = tmp_path_factory.mktemp("finished")
    return show(small(folder), sqlite_uri)


def test_runs_are_nested_campaign_ablation_arm_trial(shown: Shown) -> None:
    def parent(name: str) -> str:
        run = shown.runs[name].data.tags["mlflow.parentRunId"]
        return next(n for n, r in shown.runs.items() if r.info.run_id == run)

    assert parent("r1-a1.3 weight_decay=0.1 seed 002") == "r1-a1.3 weight_decay=0.1"
    assert parent("r1-a1.3 weight_decay=0.1") == "r1-a1 weight_decay"
    assert parent("r1-a1 weight_decay") == "campaign digits-overfitting"
    assert parent("r1-a0 baseline") == "campaign digits-overfitting"
    assert "mlflow.parentRunId" not in shown.runs["campaign digits-overfitting"].data.tags


def test_a_trial_has_its_finite_points_on_the_optimizer_step(shown: Shown) -> None:
    history = shown.history("r1-a1.3 weight_decay=0.1 seed 002", "val/loss")
    assert history == [(10, 3.0), (30, 2.5), (40, 2.25)]
    assert shown.history("r1-a1.3 weight_decay=0.1 seed 002", "test/loss") == []
    assert len(shown.history("headline.2 final seed 030", "test/loss")) == 3


def test_status_and_times_are_those_of_the_trial(shown: Shown, tmp_path: Path) -> None:
    _, outcome = records.finished(tmp_path).of(records.WINNER, (2,))[0]
    info = shown.runs["r1-a1.3 weight_decay=0.1 seed 002"].info
    assert info.start_time == int(outcome.started * 1000)
    assert info.end_time == pytest.approx((outcome.started + outcome.seconds) * 1000, abs=1)
    assert info.status == "FINISHED"
    assert shown.runs["r1-a2.2 dropout=0.5 seed 002"].info.status == "FAILED"
    assert shown.runs["campaign digits-overfitting"].info.status == "FINISHED"


def test_the_first_seed_of_an_arm_and_a_diverged_one_show_their_layers(shown: Shown) -> None:
    assert "layers.png" in shown.artifacts("r1-a1.3 weight_decay=0.1 seed 000")
    assert "layers.png" not in shown.artifacts("r1-a1.3 weight_decay=0.1 seed 002")
    assert "layers.png" in shown.artifacts("r1-a1.4 weight_decay=1.0 seed 003")


def test_an_arm_shows_statistics_verdict_params_and_config(shown: Shown) -> None:
    run = shown.runs["r1-a1.3 weight_decay=0.1"]
    assert run.data.params == {"optimizer.weight_decay": "0.1"}
    assert run.data.tags["verdict"] == "better"
    wanted = {"mean", "sd", "difference", "ci_low", "ci_high", "p_adjusted"}
    assert set(run.data.metrics) == {f"val/loss.{x}" for x in wanted} | {"n", "diverged"}
    assert shown.artifacts("r1-a1.3 weight_decay=0.1") == {"config.json"}


def test_an_ablation_shows_table_plots_page_and_description(shown: Shown) -> None:
    name = "r1-a1 weight_decay"
    files = {"table.json", "r1-weight_decay-forest.png", "r1-weight_decay.html"}
    assert shown.artifacts(name) == files
    assert shown.runs[name].data.tags["mlflow.note.content"].startswith("| arm | verdict |")
    assert shown.table(name) == [["baseline", "-"], ["weight_decay=0.1", "better"]]


def test_the_campaign_shows_headline_report_and_data(shown: Shown) -> None:
    run = shown.runs["campaign digits-overfitting"]
    assert run.data.metrics["test/loss.difference"] < 0
    assert run.data.tags["verdict"] == "adopted weight_decay=0.1"
    assert "report/report.html" in shown.artifacts(run.info.run_name, "report")
    (dataset,) = run.inputs.dataset_inputs
    assert dataset.dataset.name == "digits, 300 training images"
    (dataset,) = shown.runs["r1-a0 baseline seed 000"].inputs.dataset_inputs
    assert dataset.tags[0].value == "training"


def test_the_experiment_opens_with_the_answer_and_a_view_of_the_arms(shown: Shown) -> None:
    tags = shown.experiment.tags
    assert tags["mlflow.note.content"].startswith("**The answer**")
    saved = json.loads(tags["mlflow.sharedViewState.orchestrator"])
    kind, _, packed = saved["state"].partition(";")
    view = json.loads(zlib.decompress(base64.b64decode(packed)))
    assert kind == "deflate"
    assert view["selectedColumns"][0] == "tags.`verdict`"
    assert "metrics.`val/loss.difference`" in view["selectedColumns"]
    runs = shown.client.search_runs([shown.experiment.experiment_id], view["searchFilter"])
    assert {r.data.tags["orchestrator.kind"] for r in runs} == {
        "campaign", "headline", "ablation", "confirmation", "arm",
    }  # fmt: skip


def test_showing_it_again_changes_nothing(shown: Shown, sqlite_uri: str, monkeypatch) -> None:
    folder = Path(shown.runs["campaign digits-overfitting"].data.tags["folder"])

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("nothing has changed")

    for name in ("create_run", "log_batch", "log_artifacts", "log_table", "set_terminated"):
        monkeypatch.setattr(mlflow.tracking.MlflowClient, name, forbidden)
    again = show(small(folder), sqlite_uri)
    assert {n: r.info.run_id for n, r in again.runs.items()} == {
        n: r.info.run_id for n, r in shown.runs.items()
    }


def test_a_campaign_grows_from_stage_to_stage(sqlite_uri: str, tmp_path: Path) -> None:
    first = show(records.baseline_only(tmp_path), sqlite_uri, pages={})
    assert first.runs["campaign digits-overfitting"].info.status == "RUNNING"
    second = show(records.planned(tmp_path), sqlite_uri)
    last = show(small(tmp_path), sqlite_uri)
    for name, run in first.runs.items():
        assert last.runs[name].info.run_id == run.info.run_id
    ids = [r.data.tags[ID] for r in last.runs.values()]
    assert len(ids) == len(set(ids)) > len(second.runs)
    assert last.runs["campaign digits-overfitting"].info.status == "FINISHED"
    assert last.runs["r1-a1.3 weight_decay=0.1"].data.tags["verdict"] == "better"
    assert last.runs["r1-a1.3 weight_decay=0.1"].info.end_time >= (
        last.runs["r1-a1.3 weight_decay=0.1"].info.start_time
    )


def test_an_interrupted_sync_is_completed_without_a_double_point(
    sqlite_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, real = records.baseline_only(tmp_path), mlflow.tracking.MlflowClient.set_tag

    def dies(client, run_id: str, key: str, value: str) -> None:
        if key == DIGEST and "seed" in client.get_run(run_id).info.run_name:
            raise ConnectionError("the server went away")
        real(client, run_id, key, value)

    monkeypatch.setattr(mlflow.tracking.MlflowClient, "set_tag", dies)
    with pytest.raises(Unreachable, match="went away"):
        sync(record, uri=sqlite_uri, pages={}, telemetry=short)
    monkeypatch.undo()
    done = show(record, sqlite_uri, pages={})
    assert done.history("r1-a0 baseline seed 000", "val/loss") == [(10, 1.0), (30, 0.5), (40, 0.25)]
    assert len([n for n in done.runs if "seed" in n]) == 2


def test_a_statistic_that_changes_shows_its_new_value(sqlite_uri: str, tmp_path: Path) -> None:
    record = small(tmp_path)
    show(record, sqlite_uri, telemetry=lambda _: None)
    first, *others = record.rounds
    result, other = first.results
    arms = tuple(dataclasses.replace(c, n_pairs=7) for c in result.comparisons.arms)
    more = dataclasses.replace(
        result, comparisons=dataclasses.replace(result.comparisons, arms=arms)
    )
    record = dataclasses.replace(
        record, rounds=(dataclasses.replace(first, results=(more, other)), *others)
    )
    rows = (("baseline", "-"), ("weight_decay=0.1", "better (confirmed)"))
    page = dataclasses.replace(PAGES["r1-weight_decay"], rows=rows)
    now = show(record, sqlite_uri, pages={**PAGES, page.name: page}, telemetry=lambda _: None)
    arm = now.runs["r1-a1.3 weight_decay=0.1"].data
    assert (arm.metrics["n"], arm.tags["verdict"]) == (7, "better (confirmed)")
    assert now.table("r1-a1 weight_decay") == [list(r) for r in rows]


def test_a_run_of_the_users_own_is_not_disturbed(
    sqlite_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_RUN_ID", "0123456789abcdef0123456789abcdef")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "theirs")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    done = show(records.baseline_only(tmp_path), sqlite_uri, pages={})
    assert "r1-a0 baseline seed 000" in done.runs


def test_the_way_to_look_is_a_command_and_a_url(sqlite_uri: str, tmp_path: Path) -> None:
    way = sync(records.healthy(tmp_path), uri=sqlite_uri, pages={}, telemetry=short)
    assert way is not None
    assert way.startswith(f"mlflow server --port 5000 --backend-store-uri {sqlite_uri}")
    assert "?workflowType=machine_learning&viewStateShareKey=orchestrator" in way
