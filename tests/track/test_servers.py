"""A campaign, and anybody's runs, through a real server and into a real PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.nouns import Page
from orchestrator.track import sync
from orchestrator.track.store import connected
from tests import records
from tests.track import test_scores
from tests.track.test_sync import PAGES, short, show, small

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's client is used here directly


def check(uri: str, folder: Path) -> None:
    show(records.baseline_only(folder), uri, pages={})
    record, pages = small(folder), dict(PAGES)
    last = show(record, uri, pages=pages)
    arm = last.runs["r1-a1.3 weight_decay=0.1"]
    assert arm.data.tags["verdict"] == "better"
    assert arm.data.metrics["val/loss.difference"] < 0
    trial = "r1-a1.4 weight_decay=1.0 seed 003"
    assert last.history(trial, "val/loss") == [(10, 4.0), (30, 3.5), (40, 3.25)]
    assert last.runs[trial].data.tags["ended"] == "DIVERGED"
    ablation = "r1-a1 weight_decay"
    assert "table.json" in last.artifacts(ablation)
    assert "report/report.html" in last.artifacts("campaign digits-overfitting", "report")
    assert "mlflow.sharedViewState.orchestrator" in last.experiment.tags
    again = show(record, uri, pages=pages)
    assert {r.info.run_id for r in again.runs.values()} == {
        r.info.run_id for r in last.runs.values()
    }


def test_a_server_shows_the_campaign_at_its_own_url(server_uri: str, tmp_path: Path) -> None:
    check(server_uri, tmp_path)
    pages: dict[str, Page] = dict(PAGES)
    way = sync(small(tmp_path), uri=server_uri, pages=pages, telemetry=short)
    assert way is not None
    assert way.startswith(f"{server_uri}/#/experiments/")


def test_a_postgresql_database_shows_the_campaign(postgres_uri: str, tmp_path: Path) -> None:
    check(postgres_uri, tmp_path)
    way = sync(records.healthy(tmp_path / "other"), uri=postgres_uri, pages={}, telemetry=short)
    assert way is not None
    assert "secret" not in way
    assert way.startswith("mlflow server --port 5000 --backend-store-uri postgresql+psycopg2://")


def test_the_scores_of_runs_are_the_same_through_a_server(server_uri: str) -> None:
    with connected(server_uri) as client:
        test_scores.sweep(client, "sweep")
    test_scores.check(server_uri)


def test_the_scores_of_runs_are_the_same_in_a_postgresql_database(postgres_uri: str) -> None:
    with connected(postgres_uri) as client:
        test_scores.sweep(client, "sweep")
    test_scores.check(postgres_uri)
