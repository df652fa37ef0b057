import errno
import json
import logging
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Series
from orchestrator.telemetry import Writer, layout, read, read_metrics, writer

LAYERS = ("embed.weight", "head.weight", "head.bias")


def steps(*numbers: int) -> np.ndarray:
    return np.array(numbers, dtype=np.int64)


def floats(*numbers: float) -> np.ndarray:
    return np.array(numbers, dtype=np.float64)


def points(series: Series) -> dict[int, float]:
    return dict(zip(series.steps.tolist(), series.values.tolist(), strict=True))


def chunk(store: Writer, first: int, rows: int) -> None:
    """A chunk of each kind whose values tell their step."""
    at = np.arange(first, first + rows)
    store.write_steps(at, {"lr": at / 2, "grad_norm": at * 3.0})
    grid = (at[:, None] + np.arange(3) / 8).astype(np.float32)
    store.write_layers(at, LAYERS, {"update_ratio": grid, "param_norm": grid + 1})
    store.write_logged(at, ["train/loss"] * rows, at + 0.5)


def test_what_was_written_is_read(tmp_path):
    store = Writer(tmp_path, {"optimizer": "SGD"})
    chunk(store, 0, 3)
    chunk(store, 3, 2)
    store.close({"steps": 5})
    telemetry = read(tmp_path)
    assert telemetry.header == {"optimizer": "SGD", "steps": 5}
    assert points(telemetry["lr"]) == {0: 0, 1: 0.5, 2: 1, 3: 1.5, 4: 2}
    assert points(telemetry["train/loss"]) == {0: 0.5, 1: 1.5, 2: 2.5, 3: 3.5, 4: 4.5}
    assert points(telemetry["update_ratio/head.weight"]) == {i: i + 0.125 for i in range(5)}
    assert list(telemetry.layers("param_norm")) == list(LAYERS)
    for series in telemetry.series.values():
        assert (series.steps.dtype, series.values.dtype) == (np.int64, np.float64)


def test_series_have_units(tmp_path):
    store = Writer(tmp_path, {})
    store.write_steps(steps(0), {"step_seconds": floats(1), "lr/1": floats(1)})
    store.write_logged(steps(0, 0), ["val/loss", "f1"], floats(1, 1))
    units = {name: series.unit for name, series in read(tmp_path).series.items()}
    assert units == {"step_seconds": "s", "lr/1": "1", "val/loss": "loss", "f1": ""}


def test_a_trials_folder_is_as_good_as_its_telemetry(tmp_path):
    store = Writer(tmp_path / "telemetry", {})
    store.write_logged(steps(4), ["val/loss"], floats(0.25))
    assert points(read(tmp_path)["val/loss"]) == points(read(tmp_path / "telemetry")["val/loss"])
    assert read_metrics(tmp_path) == {"val/loss": 0.25}


def test_missing_is_not_nan(tmp_path):
    store = Writer(tmp_path, {})
    mask = [True, False, False]
    store.write_steps(steps(0, 1, 2), {"a": np.ma.array(floats(1, np.nan, np.inf), mask=mask)})
    grid = np.ma.array(np.ones((3, 3), dtype=np.float32), mask=[[0, 0, 1], [0, 1, 1], [0, 0, 1]])
    store.write_layers(steps(0, 1, 2), LAYERS, {"q": grid})
    telemetry = read(tmp_path)
    assert telemetry["a"].steps.tolist() == [1, 2]
    assert np.isnan(telemetry["a"].values[0])
    assert telemetry["a"].values[1] == np.inf
    assert telemetry["q/head.weight"].steps.tolist() == [0, 2]
    assert "q/head.bias" not in telemetry


def test_columns_and_layers_may_change(tmp_path):
    store = Writer(tmp_path, {})
    store.write_steps(steps(0), {"lr": floats(1)})
    store.write_layers(steps(0), ("a",), {"q": floats(1).reshape(1, 1)})
    store.write_steps(steps(1), {"lr": floats(2), "lr/1": floats(3)})
    store.write_layers(steps(1), ("a", "b"), {"q": floats(2, 3).reshape(1, 2)})
    store.write_steps(steps(2), {"lr": floats(4)})
    telemetry = read(tmp_path)
    assert points(telemetry["lr"]) == {0: 1, 1: 2, 2: 4}
    assert points(telemetry["lr/1"]) == {1: 3}
    assert points(telemetry["q/a"]) == {0: 1, 1: 2}
    assert points(telemetry["q/b"]) == {1: 3}


def test_the_last_value_at_a_step_stands_and_steps_ascend(tmp_path):
    store = Writer(tmp_path, {})
    store.write_logged(steps(5, 3, 5), ["m"] * 3, floats(1, 2, 3))
    store.write_logged(steps(4, 3), ["m"] * 2, floats(4, 5))
    assert points(read(tmp_path)["m"]) == {3: 5, 4: 4, 5: 3}
    assert read(tmp_path)["m"].steps.tolist() == [3, 4, 5]
    assert read_metrics(tmp_path) == {"m": 3}


def counts(*starts: int) -> np.ndarray:
    """A row for each start, of three layers: numbers that go on from there."""
    size = layout.HISTOGRAM_BINS + 2
    return np.array([np.arange(start, start + 3 * size).reshape(3, size) for start in starts])


def test_histograms_are_read_with_their_edges(tmp_path):
    store = Writer(tmp_path, {})
    grid = counts(0, 1000)
    store.write_histograms(steps(0, 100), LAYERS, {"grad": grid, "update": grid})
    is_missing = np.zeros(grid.shape, dtype=np.bool_)
    is_missing[0, 1] = True
    store.write_histograms(
        steps(200, 300), LAYERS, {"grad": np.ma.array(counts(2000, 3000), mask=is_missing)}
    )
    telemetry = read(tmp_path)
    assert set(telemetry.histograms) == {f"{k}/{n}" for k in ("grad", "update") for n in LAYERS}
    assert not telemetry.series
    seen = telemetry.histograms["grad/head.weight"]
    assert seen.steps.tolist() == [0, 100, 300]
    size = layout.HISTOGRAM_BINS + 2
    assert seen.zeros.tolist() == [size, 1000 + size, 3000 + size]
    assert seen.nonfinite.tolist() == [2 * size - 1, 1000 + 2 * size - 1, 3000 + 2 * size - 1]
    assert seen.counts[1].tolist() == list(range(1000 + size + 1, 1000 + 2 * size - 1))
    assert seen.counts.dtype == np.int64
    assert (seen.edges[0], seen.edges[-1], len(seen.edges)) == (2.0**-40, 2.0**20, size - 1)


def test_histograms_are_read_to_the_last_whole_chunk_and_overwritten_on_resumption(tmp_path):
    store = Writer(tmp_path, {})
    for step in (0, 100, 200):
        store.write_steps(steps(step), {"lr": floats(1)})
        store.write_histograms(steps(step), LAYERS, {"param": counts(step)})
    (file,) = tmp_path.glob("*-histograms-*")
    whole = file.read_bytes()
    file.write_bytes(whole[:-100])
    assert read(tmp_path).histograms["param/head.bias"].steps.tolist() == [0, 100]
    file.write_bytes(whole)
    again = Writer(tmp_path, {})
    again.write_steps(steps(100), {"lr": floats(1)})
    again.write_histograms(steps(100), LAYERS, {"param": counts(7)})
    seen = read(tmp_path).histograms["param/embed.weight"]
    assert (seen.steps.tolist(), seen.zeros.tolist()) == ([0, 100], [0, 7])


def test_a_resumed_trial_overwrites_what_came_after_its_checkpoint(tmp_path):
    first = Writer(tmp_path, {"attempt": 1})
    chunk(first, 0, 10)
    first.write_logged(steps(6, 10), ["val/loss"] * 2, floats(3, 7))
    second = Writer(tmp_path, {"attempt": 2})
    second.write_steps(np.arange(6, 8), {"lr": floats(60, 70)})
    telemetry = read(tmp_path)
    assert telemetry["lr"].steps.tolist() == list(range(8))
    assert telemetry["lr"].values[-2:].tolist() == [60, 70]
    assert telemetry["train/loss"].steps.tolist() == list(range(6))
    # One is of the weights that were resumed, the other of a continuation that never was.
    assert points(telemetry["val/loss"]) == {6: 3}
    assert telemetry.header["attempt"] == 2
    assert read_metrics(tmp_path) == {"train/loss": 5.5, "val/loss": 3}


def test_epochs_as_steps_do_not_pass_for_a_resume(tmp_path):
    first = Writer(tmp_path, {})
    chunk(first, 0, 4)
    Writer(tmp_path, {}).write_logged(steps(0), ["epoch_metric"], floats(1))
    assert len(read(tmp_path)["lr"]) == 4


def test_a_users_own_lr_does_not_mix_with_ours(tmp_path):
    store = Writer(tmp_path, {})
    store.write_steps(steps(0), {"lr": floats(1)})
    store.write_logged(steps(0), ["lr"], floats(9))
    telemetry = read(tmp_path)
    assert points(telemetry["lr"]) == {0: 1}
    assert points(telemetry["logged/lr"]) == {0: 9}
    assert read_metrics(tmp_path) == {"lr": 9}


def test_metrics_are_only_what_the_user_logged(tmp_path):
    chunk(Writer(tmp_path, {}), 0, 3)
    assert read_metrics(tmp_path) == {"train/loss": 2.5}


def test_a_diverged_metric_is_read_as_it_is(tmp_path):
    Writer(tmp_path, {}).write_logged(steps(0, 1), ["m", "m"], floats(1, np.nan))
    assert np.isnan(read_metrics(tmp_path)["m"])


def test_nothing_there_is_said(tmp_path):
    assert read_metrics(tmp_path / "none") == {}
    with pytest.raises(OrchestratorError, match=r"no telemetry in .*none"):
        read(tmp_path / "none")
    (tmp_path / "holiday.jpg").touch()
    with pytest.raises(OrchestratorError, match=r"orchestrator\.watch"):
        read(tmp_path)


def test_a_trial_killed_before_its_first_chunk_is_empty(tmp_path):
    (tmp_path / "telemetry").mkdir()
    assert read(tmp_path).series == {}
    Writer(tmp_path / "telemetry", {"optimizer": "SGD"})
    assert read(tmp_path).header == {"optimizer": "SGD"}


def test_steps_are_known_without_a_proper_end(tmp_path):
    Writer(tmp_path, {}).write_steps(steps(0, 1), {"step_seconds": floats(1, 1)})
    assert read(tmp_path).header["steps"] == 2


def test_names_may_hold_anything(tmp_path):
    names = ["", "a/b c", "Größe/ℓ²", 'x"\n']
    Writer(tmp_path, {}).write_logged(steps(0, 0, 0, 0), names, floats(0, 1, 2, 3))
    assert read_metrics(tmp_path) == {name: float(i) for i, name in enumerate(names)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> dict[str, bytes]:
    """A store of five chunks of four steps: its files."""
    folder = tmp_path_factory.mktemp("whole")
    store = Writer(folder, {})
    for first in range(0, 20, 4):
        chunk(store, first, 4)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@given(data=st.data())
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_store_cut_anywhere_is_read_to_its_last_whole_chunk(whole, tmp_path, data):
    for name, content in whole.items():
        length = data.draw(st.integers(0, len(content)), label=name)
        (tmp_path / name).write_bytes(content[:length])
    telemetry = read(tmp_path)
    for series in telemetry.series.values():
        assert len(series) % 4 == 0
        assert series.steps.tolist() == list(range(len(series)))
    if "train/loss" in telemetry:
        loss = telemetry["train/loss"]
        assert (loss.values == loss.steps + 0.5).all()
    for name, layer in telemetry.layers("update_ratio").items():
        assert (layer.values == layer.steps + LAYERS.index(name) / 8).all()


def test_only_the_cut_chunk_is_lost(whole, tmp_path):
    for name, content in whole.items():
        (tmp_path / name).write_bytes(content[:-1] if name.endswith(".arrow") else content)
    telemetry = read(tmp_path)
    assert {len(series) for series in telemetry.series.values()} == {16}


def test_garbage_after_the_last_chunk_is_not_read(whole, tmp_path):
    for name, content in whole.items():
        (tmp_path / name).write_bytes(content)
    for path in tmp_path.glob("*.arrow"):
        with path.open("ab") as file:
            file.write(b"\xff" * 37)
    assert {len(series) for series in read(tmp_path).series.values()} == {20}


def test_a_full_disk_costs_chunks_and_is_told_once(tmp_path, monkeypatch, caplog):
    store = Writer(tmp_path, {})
    chunk(store, 0, 4)
    real = os.write
    room = 2000  # bytes left on the disk

    def full(descriptor: int, data: memoryview) -> int:
        nonlocal room
        if room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = real(descriptor, data[:room])
        room -= written
        return written

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(writer.os, "write", full)
        chunk(store, 4, 100)
        chunk(store, 104, 100)
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text
    chunk(store, 204, 1)  # somebody has tidied up
    store.amend({})
    telemetry = read(tmp_path)
    assert telemetry["lr"].steps.tolist() == [0, 1, 2, 3, 204]
    assert telemetry["update_ratio/head.bias"].steps.tolist() == [0, 1, 2, 3, 204]
    assert telemetry.header["rows_lost"] == 600
    for path in tmp_path.glob("*.arrow"):  # nothing half-written was left behind
        assert pa.ipc.open_stream(path.read_bytes()).read_all().num_rows == 5
    assert "No space left" in str(telemetry.header["write_error"])


def test_a_disk_that_is_full_from_the_start_raises_nothing(tmp_path, monkeypatch, caplog):
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(writer.os, "write", full)
        patch.setattr(Path, "write_text", full)
        store = Writer(tmp_path, {})
        chunk(store, 0, 4)
        store.close({})
    assert store.rows_lost == 12
    assert len(caplog.records) == 1
    chunk(store, 4, 4)
    assert read(tmp_path)["lr"].steps.tolist() == [4, 5, 6, 7]


def test_a_folder_that_cannot_be_made_raises_nothing(tmp_path, caplog):
    (tmp_path / "file").touch()
    store = Writer(tmp_path / "file" / "telemetry", {})
    chunk(store, 0, 4)
    store.close({})
    assert store.rows_lost == 12
    assert len(caplog.records) == 1


def test_a_deleted_file_is_begun_anew(tmp_path, caplog):
    store = Writer(tmp_path, {})
    chunk(store, 0, 4)
    for path in tmp_path.glob("*-layers-*"):
        path.unlink()
    chunk(store, 4, 4)
    chunk(store, 8, 4)
    assert len(caplog.records) == 1
    telemetry = read(tmp_path)
    assert len(telemetry["lr"]) == len(telemetry["train/loss"]) == 12
    assert telemetry["update_ratio/head.bias"].steps.tolist() == [8, 9, 10, 11]


def test_the_header_is_never_half_written(tmp_path):
    store = Writer(tmp_path, {"a": 1})
    store.amend({"b": float("nan")})
    header = json.loads((tmp_path / layout.HEADER).read_text())
    assert header["a"] == 1
    assert np.isnan(header["b"])
    assert [path.name for path in tmp_path.iterdir()] == [layout.HEADER]
    (tmp_path / layout.HEADER).write_text('{"a": 1')
    assert read(tmp_path).header == {}


def test_unknown_kinds_of_a_later_version_are_skipped(tmp_path):
    store = Writer(tmp_path, {})
    chunk(store, 0, 4)
    (tmp_path / layout.file_name(1, "histograms", 9)).write_bytes(b"who knows")
    assert len(read(tmp_path)["lr"]) == 4


def test_chunks_are_made_safe_from_time_to_time_and_at_the_end(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(writer.os, "fsync", synced.append)
    store = Writer(tmp_path, {})
    chunk(store, 0, 1)
    assert synced == []
    monkeypatch.setattr(writer, "_SYNC_SECONDS", 0.0)
    chunk(store, 1, 1)
    assert len(synced) >= 3
    monkeypatch.undo()
    store.close({})
