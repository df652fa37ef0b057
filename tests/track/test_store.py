from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from orchestrator.errors import OrchestratorError
from orchestrator.track import Unreachable, histories, sync
from orchestrator.track.store import connected, shown, sqlite_file
from tests import records
from tests.track.conftest import ENVIRONMENT, free_port


def test_a_server_that_is_not_there_is_reported_within_seconds(tmp_path: Path) -> None:
    uri, began = f"http://127.0.0.1:{free_port()}", time.monotonic()
    with pytest.raises(Unreachable, match=r"does not answer.*\n.*feeds MLflow from the record"):
        sync(records.baseline_only(tmp_path), uri=uri, pages={}, telemetry=records.telemetry)
    assert time.monotonic() - began < 5


def test_a_server_that_answers_nonsense_is_reported_too(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        program = (
            "import http.server\n"
            "class Broken(http.server.BaseHTTPRequestHandler):\n"
            "    def do_POST(self): self.send_error(500)\n"
            "    do_GET = do_POST\n"
            "    def log_message(self, *_): pass\n"
            f"server = http.server.HTTPServer(('127.0.0.1', {port}), Broken, False)\n"
            "server.socket = __import__('socket').socket(fileno=0)\n"
            "server.serve_forever()\n"
        )
        broken = subprocess.Popen([sys.executable, "-c", program], stdin=listener.fileno())
        try:
            with pytest.raises(Unreachable, match="failed"):
                sync(
                    records.baseline_only(tmp_path),
                    uri=f"http://127.0.0.1:{port}",
                    pages={},
                    telemetry=records.telemetry,
                )
        finally:
            broken.kill()
            broken.wait()


def test_a_database_that_is_not_there_does_not_wait_for_its_driver(tmp_path: Path) -> None:
    uri, began = f"postgresql+psycopg2://me:secret@127.0.0.1:{free_port()}/db", time.monotonic()
    with pytest.raises(Unreachable) as told:
        sync(records.baseline_only(tmp_path), uri=uri, pages={}, telemetry=records.telemetry)
    assert time.monotonic() - began < 5
    assert "secret" not in str(told.value)
    assert isinstance(told.value, OrchestratorError)


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    uri = f"sqlite:///{tmp_path / 'file' / 'mlflow.db'}"
    with pytest.raises(Unreachable, match="file"):
        sync(records.baseline_only(tmp_path), uri=uri, pages={}, telemetry=records.telemetry)


def test_the_environment_is_as_it_was_afterwards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "7")
    before = dict(os.environ)
    uri = f"sqlite:///{tmp_path}"  # a folder, not a file
    with pytest.raises(Unreachable):
        sync(records.baseline_only(tmp_path), uri=uri, pages={}, telemetry=records.telemetry)
    assert dict(os.environ) == before


def test_a_new_sqlite_file_survives_several_processes_at_once(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'new' / 'mlflow.db'}"
    program = (
        "import sys; from pathlib import Path; from tests import records\n"
        "from orchestrator.track import sync\n"
        "record = records.baseline_only(Path(sys.argv[2]))\n"
        "sync(record, uri=sys.argv[1], pages={}, telemetry=lambda trial: None)\n"
    )
    root = Path(__file__).parents[2]
    both = [
        subprocess.Popen(
            [sys.executable, "-c", program, uri, str(tmp_path / name)],
            cwd=root,
            env=ENVIRONMENT,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name in ("one", "two")
    ]
    ended = [(p.communicate(timeout=120)[1], p.returncode) for p in both]
    assert [code for _, code in ended] == [0, 0], ended
    with sqlite3.connect(tmp_path / "new" / "mlflow.db") as database:
        ((mode,),) = database.execute("PRAGMA journal_mode")
        ((count,),) = database.execute("SELECT count(*) FROM experiments WHERE name LIKE 'digits%'")
    database.close()
    assert mode == "wal"
    assert count == 2, "the campaigns lie in two folders, so each has its experiment"


def test_a_password_is_never_shown() -> None:
    assert (
        shown("postgresql+psycopg2://me:secret@host/db") == "postgresql+psycopg2://me:***@host/db"
    )
    assert shown("http://host:5000") == "http://host:5000"


def test_a_sqlite_path_is_shown_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert sqlite_file("sqlite:///runs/mlflow.db") == tmp_path / "runs" / "mlflow.db"
    assert sqlite_file("http://host:5000") is None
    assert shown("sqlite:///mlflow.db") == f"sqlite:///{tmp_path / 'mlflow.db'}"


def test_a_database_that_refuses_us_is_reported_at_once(postgres_uri: str, tmp_path: Path) -> None:
    uri = postgres_uri.replace("/postgres", "/nowhere")
    began = time.monotonic()
    with pytest.raises(Unreachable, match="nowhere"):
        sync(records.baseline_only(tmp_path), uri=uri, pages={}, telemetry=records.telemetry)
    assert time.monotonic() - began < 10


def test_the_histories_of_anybodys_run_are_read_with_its_parameters(
    sqlite_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(sqlite_uri) as client:
        run_id = client.create_run(client.create_experiment("somebody's")).info.run_id
        client.log_param(run_id, "epochs", 3)
        for step in range(3):
            client.log_metric(run_id, "val loss", 1.0 / (1 + step), step=step)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", sqlite_uri)
    points, params = histories(run_id)
    assert [(step, value) for _, step, value in points["val loss"]] == [
        (0, 1),
        (1, 0.5),
        (2, 1 / 3),
    ]
    assert params == {"epochs": "3"}


def test_a_run_that_nobody_knows_is_an_error_that_names_the_store(
    sqlite_uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", sqlite_uri)
    with pytest.raises(OrchestratorError, match=r"mlflow:0123abc.*\n.*MLFLOW_TRACKING_URI"):
        histories("0123abc")
