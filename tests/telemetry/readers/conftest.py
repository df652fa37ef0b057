from pathlib import Path

import pytest

from orchestrator.telemetry import readers


@pytest.fixture
def read(tmp_path):
    """Writes a file of the given name and content, and reads it."""

    def write_and_read(name, content, **arguments) -> readers.Log:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return readers.read_log(path, **arguments)

    return write_and_read


@pytest.fixture
def fill(tmp_path):
    """Writes several files under one folder and returns the folder."""

    def write(files: dict[str, str | bytes]) -> Path:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path

    return write
