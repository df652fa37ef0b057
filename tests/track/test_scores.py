"""Runs of anybody's experiment as scores, in a real SQLite file; test_servers has the others."""

from __future__ import annotations

import json
import math
import socket
from pathlib import Path

import pytest

import orchestrator
from orchestrator.cli import main
from orchestrator.comparison import cells
from orchestrator.comparison.scores import read_scores
from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Call, Direction
from orchestrator.score_nouns import Columns
from orchestrator.track import scores, sync
from orchestrator.track.store import connected
from tests import records
from tests.track.conftest import free_port
from tests.track.test_sync import PAGES, short, small

MODEL = Columns(arm="model")
BASE, WIDE = (0.50, 0.52, 0.49, 0.51), (0.61, 0.62, 0.58, 0.60)


class Logged:
    """An experiment and a way to log runs into it."""

    def __init__(self, client, name: str) -> None:
        self.client, self.name = client, name
        self.id = client.create_experiment(name)

    def run(self, arm, seed, value=None, ended="FINISHED", *, metric="acc", tags=None):
        tags = {"model": arm, **(tags or {})} if arm is not None else tags
        run_id = self.client.create_run(self.id, tags=tags).info.run_id
        if seed is not None:
            self.client.log_param(run_id, "seed", seed)
        if value is not None:
            self.client.log_metric(run_id, metric, 0.0, step=0)
            self.client.log_metric(run_id, metric, value, step=1)
        if ended != "RUNNING":
            self.client.set_terminated(run_id, ended)
        return run_id


def sweep(client, name) -> Logged:
    """Two arms of four seeds; one of each kind of run that gives no number."""
    logged = Logged(client, name)
    for arm, values in (("base", BASE), ("wide", WIDE)):
        for seed, value in enumerate(values):
            logged.run(arm, seed, value)
    logged.run("deep", 0, math.nan)
    logged.run("deep", 1, math.inf, "FAILED")
    logged.run("deep", 2, 0.4, "FAILED")
    logged.run("deep", 3, None, "RUNNING")
    logged.run("deep", 2, 0.55)  # seed 2 again, after its accident
    logged.run(None, None, 0.9)  # a parent of the sweep
    return logged


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A SQLite store with one sweep; the client stays open for more."""
    uri = f"sqlite:///{tmp_path_factory.mktemp('scores') / 'mlflow.db'}"
    with connected(uri) as client:
        sweep(client, "sweep")
        yield uri, client


def told(store, experiment, **options) -> str:
    with pytest.raises(OrchestratorError) as error:
        scores(experiment, uri=store[0], **options)
    return str(error.value)


def check(uri: str) -> None:
    table = orchestrator.mlflow_scores("sweep", arm="model", tracking_uri=uri)
    found = read_scores(table)
    assert not found.mistakes
    deep = found.scores.pop("deep")
    assert found.scores == {"base": dict(enumerate(BASE)), "wide": dict(enumerate(WIDE))}
    assert math.isnan(deep.pop(0))
    assert math.isnan(deep.pop(1))
    assert deep == {2: 0.55}
    assert table.metric == "acc"
    assert sorted(found.notes) == [
        "1 run(s) FAILED, hence missing",
        "1 run(s) RUNNING, hence missing",
        "1 run(s) repeated later, not used",
        "1 run(s) without model or seed left out",
    ]
    result = orchestrator.compare(table, baseline="base", direction="max")
    assert result.verdict("wide").call is Call.BETTER
    assert result.comparison("deep").n_diverged == 2


def test_diverged_failed_running_and_repeated_runs_are_told_apart(store):
    check(store[0])


def test_the_verb_reads_an_experiment_in_each_spelling(store, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store[0])
    asked = ("--metric", "acc", "--baseline", "base", "--direction", "max", "--json")
    said = []
    for names in (
        ("mlflow:sweep", "--arm", "model"),
        ("mlflow:1", "--arm", "tags.model", "--seed", "params.seed"),
        ("--mlflow", "sweep", "--arm-tag", "model", "--seed-param", "seed"),
    ):
        assert main(["compare", *names, *asked]) == 0
        said.append(json.loads(capsys.readouterr().out))
    assert said[0] == said[1] == said[2]
    assert said[0]["ranking"][:2] == ["wide", "base"]


def test_a_filter_chooses_runs(store):
    table = scores("sweep", uri=store[0], columns=MODEL, where="tags.model != 'deep'")
    assert set(table.columns["arm"]) == {"base", "wide"}
    wrong = told(store, "sweep", columns=MODEL, where="model = deep and")
    assert "filter 'model = deep and'" in wrong
    assert "for example: params.model = 'wide'" in wrong
    assert "no runs that match" in told(store, "sweep", where="metrics.acc < -7")


def test_wrong_names_are_told_with_those_that_are_there(store):
    uri, client = store
    assert "did you mean 'sweep'?" in told(store, "swep")
    wrong = told(store, "sweep")
    assert "no run has a tag or a parameter 'arm'" in wrong
    assert "tags.model" in wrong
    logged = Logged(client, "two metrics")
    logged.run("base", 0, 0.5)
    run = logged.run("base", 1, 0.5, metric="loss")
    assert "which metric is it?\n  -> name it with --metric; valid: acc, loss" in told(
        store, "two metrics", columns=MODEL
    )
    table = scores("two metrics", metric="acc", columns=MODEL, uri=uri)
    (mistake,) = table.mistakes
    assert f"run {run} (arm base, seed 1) has no 'acc'" in mistake.problem
    assert "no run has a metric 'ac'\n  -> did you mean 'acc'?" in told(
        store, "two metrics", metric="ac", columns=MODEL
    )
    logged.client.log_param(run, "model", "other")
    assert "tag and parameter 'model' differ" in told(
        store, "two metrics", metric="acc", columns=MODEL
    )


def test_two_results_of_one_seed_are_a_mistake_with_both_runs(store):
    logged = Logged(store[1], "twice")
    first, second = logged.run("base", 0, 0.5), logged.run("base", 0, 0.6)
    table = scores("twice", columns=MODEL, uri=store[0])
    (mistake,) = read_scores(table).mistakes
    assert f"run {second}: arm 'base' has seed 0 twice (first in run {first})" in mistake.problem


def test_a_tag_may_say_what_became_of_a_run(store):
    logged = Logged(store[1], "words")
    logged.run("base", 0, 0.5, "FAILED", tags={"status": "diverged"})
    logged.run("base", 1, 0.5, "FINISHED", tags={"status": "missing"})
    found = read_scores(scores("words", columns=MODEL, uri=store[0])).scores
    assert list(found["base"]) == [0]
    assert math.isnan(found["base"][0])


def test_a_store_that_is_not_there_exits_2(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    nobody = f"http://127.0.0.1:{free_port()}"
    for uri, said in (
        ((), "no tracking store is known"),
        (("--tracking-uri", nobody), f"MLflow at {nobody} does not answer"),
        (("--tracking-uri", "sqlite:///mistyped.db"), "there is no file"),
    ):
        assert main(["compare", "mlflow:sweep", *uri]) == 2
        assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [], "reading makes no database"


def test_a_server_that_never_answers_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(OrchestratorError, match=r"failed: .*timed out"):
            scores("sweep", uri=uri)


# --- our own --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def campaign(store, tmp_path_factory):
    """A whole campaign in the store: its record."""
    record = small(tmp_path_factory.mktemp("campaign"))
    sync(record, uri=store[0], pages=PAGES, telemetry=lambda _: None)  # its curves are made up
    return record


def test_a_campaign_of_our_own_needs_no_names(store, campaign):
    table = scores(campaign.campaign.name, uri=store[0])
    assert table.metric == campaign.campaign.metric.name
    assert table.direction is campaign.campaign.metric.direction is Direction.MIN
    assert table.baseline == "r1-a0 baseline"
    read = read_scores(table).scores
    plan = campaign.rounds[0].plan
    arms = [plan.baseline, *(arm for ablation in plan.ablations for arm in ablation.arms)]
    assert len(read) == len(arms)
    for arm, runs in zip(arms, read.values(), strict=True):
        expected = cells(campaign.of(arm, plan.seeds), table.metric)
        assert runs == pytest.approx(expected, rel=1e-9, nan_ok=True)
    found = orchestrator.compare(table)
    assert any("the campaign's own are in its report" in note for note in found.notes)


def test_another_block_of_seeds_is_chosen_by_its_baseline(store, campaign):
    name = campaign.campaign.name
    (note,) = (n for n in scores(name, uri=store[0]).notes if n.startswith("other baselines"))
    assert "headline.1 original" in note
    table = scores(name, baseline="headline.1 original", uri=store[0])
    assert set(table.columns["arm"]) == {"headline.1 original", "headline.2 final"}
    assert "no arm 'r9-a0 baseline'" in told(store, name, baseline="r9-a0 baseline")


def test_a_campaign_without_trials_says_so(store, tmp_path: Path):
    record = records.baseline_only(tmp_path)
    name = record.campaign.name
    sync(record, uri=store[0], pages={}, telemetry=short)
    experiment = next(
        e.name for e in store[1].search_experiments() if e.name.startswith(f"{name}-")
    )
    with pytest.raises(OrchestratorError, match="has only the baseline"):
        orchestrator.compare(scores(experiment, uri=store[0]))
