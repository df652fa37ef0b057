"""Stores of every kind the tracker claims, each started once: SQLite, a real server, PostgreSQL."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

ENVIRONMENT = {
    **os.environ,
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}


@pytest.fixture(scope="session")
def sqlite_uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('sqlite') / 'mlflow.db'}"


@pytest.fixture(scope="session")
def server_uri(sqlite_uri: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on the SQLite file that other tests write directly, at the same time."""
    folder = tmp_path_factory.mktemp("server")
    uri = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--workers", "1",
               "--port", uri.rpartition(":")[2],
               "--backend-store-uri", sqlite_uri,
               "--artifacts-destination", str(folder / "artifacts")]  # fmt: skip
    with (folder / "log.txt").open("w") as log:
        server = subprocess.Popen(
            command, cwd=folder, env=ENVIRONMENT, stdout=log, stderr=log, start_new_session=True
        )
    try:
        wait_for(lambda: urllib.request.urlopen(f"{uri}/health", timeout=5).close(), seconds=90)
        yield uri
    finally:
        os.killpg(server.pid, 15)
        server.wait(timeout=30)


@pytest.fixture(scope="session")
def postgres_uri() -> Iterator[str]:
    """A private cluster in its own folder. Debian: `apt-get install postgresql`."""
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    binaries = shutil.which("initdb") or next(iter(debian), None)
    if binaries is None:
        if "CI" in os.environ:
            pytest.fail("PostgreSQL is not installed, and a test claims it: scripts/setup dev")
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    where, folder = Path(os.path.realpath(binaries)).parent, Path(tempfile.mkdtemp())
    user = pwd.getpwnam("postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name)
    os.chown(folder, user.pw_uid, user.pw_gid)
    port = free_port()
    as_user = {"user": user.pw_uid, "group": user.pw_gid} if os.geteuid() == 0 else {}
    run = {"cwd": folder, "check": True, "capture_output": True, **as_user}
    data = str(folder / "data")
    subprocess.run(
        [where / "initdb", "-D", data, "-U", "me", "-A", "trust", "--no-sync", "-E", "UTF8"], **run
    )
    options = f"-p {port} -c listen_addresses=127.0.0.1 -c fsync=off -k {folder}"
    start = [where / "pg_ctl", "-D", data, "-w", "-l", str(folder / "log"), "-o", options, "start"]
    subprocess.run(start, **{**run, "capture_output": False, "stdout": subprocess.DEVNULL})
    try:
        yield f"postgresql+psycopg2://me:secret@127.0.0.1:{port}/postgres"
    finally:
        subprocess.run([where / "pg_ctl", "-D", data, "-m", "immediate", "stop"], **run)
        shutil.rmtree(folder)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(attempt, *, seconds: float) -> None:
    until = time.monotonic() + seconds
    while True:
        try:
            attempt()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
