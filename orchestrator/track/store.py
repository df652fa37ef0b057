"""The door to a tracking store: does it answer, is it initialised, where do artifacts lie.

Everything is said explicitly to one MlflowClient; neither MLFLOW_RUN_ID nor an active run of the
user's own has a say.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import socket
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Record

if TYPE_CHECKING:
    from mlflow.entities import Experiment
    from mlflow.tracking import MlflowClient

KEY = "orchestrator.campaign"
"""Experiment tag that says to which campaign folder an experiment belongs."""

OWN = Path("runs/mlflow.db")
"""Where our own campaigns write, from where one stands."""

KNOCK_SECONDS = 3.0
PORTS = {"http": 80, "https": 443, "postgresql": 5432, "mysql": 3306, "mssql": 1433}
QUICK = {
    # One retry and twenty seconds instead of MLflow's seven and two minutes: a campaign waits here.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    # Read at MLflow's import: it would report our use to its makers.
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


class Unreachable(OrchestratorError):  # noqa: N818 - read as "except track.Unreachable"
    """The tracking store does not answer; the campaign's own record is complete without it."""


def known_uri(asked: str, uri: str | None = None) -> str:
    """The store to read what is `asked` from: `uri`, MLFLOW_TRACKING_URI, or our own database.

    Raises an OrchestratorError if none is known, or if it would be a new SQLite file: MLflow makes
    one of a name that is only mistyped.
    """
    uri = (
        uri or os.environ.get("MLFLOW_TRACKING_URI") or (f"sqlite:///{OWN}" if OWN.exists() else "")
    )
    if not uri:
        raise OrchestratorError(
            f"{asked}: no tracking store is known, and there is no {OWN} here.",
            "set MLFLOW_TRACKING_URI; a folder of runs on disk is read by its path",
        )
    file = sqlite_file(uri)
    if file is not None and not file.is_file():
        raise OrchestratorError(f"{asked}: there is no file {file}", "check the tracking URI")
    return uri


@contextmanager
def connected(uri: str) -> Iterator[MlflowClient]:
    """A client for `uri`, quickly or not at all.

    Raises Unreachable for whatever goes wrong between here and the store, inside the block too.
    """
    _knock(uri)
    before = {name: os.environ.get(name) for name in QUICK}
    os.environ.update({k: v for k, v in QUICK.items() if before[k] is None})
    try:
        yield from _guarded(uri)
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)


def _guarded(uri: str) -> Iterator[MlflowClient]:
    # What MLflow's own parts deprecate in each other, and its migrations line by line, would be
    # printed into the middle of the campaign's display.
    for name in ("alembic", "mlflow.store.db.utils"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from mlflow.exceptions import MlflowException
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield _opened(uri)
        except (MlflowException, SQLAlchemyError, OSError, sqlite3.Error) as error:
            first = str(error).strip().partition("\n")[0]
            raise Unreachable(f"MLflow at {shown(uri)} failed: {first}", _REMEDY) from error


_REMEDY = "check tracking_uri and the server; `report` feeds MLflow from the record at any time"


def experiment(client: MlflowClient, record: Record, uri: str) -> Experiment:
    """The campaign's experiment, made if need be.

    It is called like the campaign; a second campaign of that name in another folder, or one whose
    experiment the user deleted under this name, gets the key of its folder behind it.
    """
    key = campaign_key(record.campaign.folder)
    for name in (record.campaign.name, f"{record.campaign.name}-{key}"):
        found = client.get_experiment_by_name(name)
        if found is None:
            made = client.create_experiment(name, _artifacts(record, uri, key), tags={KEY: key})
            return client.get_experiment(made)
        if found.tags.get(KEY) == key:
            if found.lifecycle_stage == "deleted":
                client.restore_experiment(found.experiment_id)
            return found
    raise Unreachable(
        f"experiments {record.campaign.name!r} and {name!r} of another campaign are in the way.",
        "rename the campaign, or name another tracking_uri",
    )


def campaign_key(folder: str) -> str:
    """What tells campaigns of one name apart: their folder, in eight characters."""
    return hashlib.sha256(folder.encode()).hexdigest()[:8]


def shown(uri: str) -> str:
    """The URI as it may be printed: no password, a file's path in full."""
    if sqlite_file(uri) is not None:
        return f"sqlite:///{sqlite_file(uri)}"
    parts = urlsplit(uri)
    if parts.password is None:
        return uri
    return uri.replace(f":{parts.password}@", ":***@")


def is_server(uri: str) -> bool:
    """Whether a browser can open the store itself."""
    return urlsplit(uri).scheme in ("http", "https")


def sqlite_file(uri: str) -> Path | None:
    """The database file of a SQLite URI, absolute; None for any other store."""
    scheme, _, path = uri.partition(":///")
    return Path(path).resolve() if scheme.startswith("sqlite") and path else None


def _knock(uri: str) -> None:
    """Fail within seconds where nobody listens: database drivers alone would try for minutes."""
    parts = urlsplit(uri)
    port = parts.port or PORTS.get(parts.scheme.partition("+")[0])
    if not parts.hostname or port is None:
        return
    try:
        socket.create_connection((parts.hostname, port), timeout=KNOCK_SECONDS).close()
    except OSError as error:
        raise Unreachable(f"MLflow at {shown(uri)} does not answer: {error}", _REMEDY) from error


def _opened(uri: str) -> MlflowClient:
    """A client whose store is there. MLflow makes a new store when its client is made.

    One process at a time: two that make a SQLite file at once both die. A database that refuses us
    is found out before MLflow, which would try for two minutes. Write-ahead logging is a property
    of the file and halves the waits of readers and writers.
    """
    from mlflow.tracking import MlflowClient

    file = sqlite_file(uri)
    if file is None:
        if not is_server(uri):
            _log_in(uri)
        return MlflowClient(tracking_uri=uri)
    file.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{file}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with contextlib.closing(sqlite3.connect(file)) as database:
            database.execute("PRAGMA journal_mode=WAL")
        client = MlflowClient(tracking_uri=uri)
        client.search_experiments(max_results=1)
        return client


def _log_in(uri: str) -> None:
    import sqlalchemy

    engine = sqlalchemy.create_engine(uri)
    try:
        engine.connect().close()
    finally:
        engine.dispose()


def _artifacts(record: Record, uri: str, key: str) -> str | None:
    """Where files go: a server decides itself; beside a SQLite file; else with the campaign."""
    if is_server(uri):
        return None
    file = sqlite_file(uri)
    folder = file.parent / "mlartifacts" if file else Path(record.campaign.folder) / "mlartifacts"
    return (folder / key).as_uri()
