"""Valid files, cut anywhere and with bytes changed: a log or an error in words, and soon."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.errors import OrchestratorError
from orchestrator.telemetry import readers
from tests.telemetry.readers.test_event_files import curve, events
from tests.telemetry.readers.test_json_logs import history, state

ROWS = [(e, 3 / (e + 1), 0.1 * e, 4 / (e + 1), 0.05) for e in range(12)]
FILES = {
    "plain.csv": "epoch,train_loss,val_acc,val_loss,lr\n"
    + "".join(",".join(map(str, row)) + "\n" for row in ROWS),
    "german.csv": "epoch;loss;val_loss\n" + "".join(f"{e};0,{e}1;0,{e}2\n" for e in range(12)),
    "metrics.csv": "epoch,step,train_loss,val_loss\r\n"
    + "".join(f"{e},{10 * e},{3 / (e + 1)},\r\n{e},{10 * e},,2\r\n" for e in range(12)),
    "utf16.csv": ("loss,accuracy,val_loss,val_accuracy\n" + "1,2,3,4\n" * 9).encode("utf-16"),
    "trainer_state.json": json.dumps(state(history()), indent=1),
    "history.json": json.dumps({"loss": [3, 2, 1], "val_loss": [4, 3, 2]}),
    "log.jsonl": "".join(json.dumps(row) + "\n" for row in history()),
    "train.log": "".join(
        f"2024-01-01 10:00:0{e},123 - INFO - Epoch [{e}/12] Step: {e}0 | "
        f"Train loss: {3 / (e + 1):.4f} | val_loss {e}.5, acc=0.{e}\n"
        for e in range(10)
    ),
    "events.out.tfevents.1.host": events(*curve("loss", [3, 2] * 5), *curve("val_loss", [1] * 4)),
}  # fmt: skip


@st.composite
def damaged(draw, data: bytes) -> bytes:
    """A piece of `data` with some bytes replaced, left out or put in."""
    begin = draw(st.integers(0, len(data) // 4) | st.just(0))
    changed = bytearray(data[begin : draw(st.integers(begin, len(data)) | st.just(len(data)))])
    for _ in range(draw(st.integers(0, 8))):
        at = draw(st.integers(0, max(0, len(changed) - 1)))
        changed[at : at + draw(st.integers(0, 3))] = draw(st.binary(max_size=3))
    return bytes(changed)


def check(name, content):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        try:
            log = readers.read_log(path)
        except OrchestratorError:
            return
    assert log.telemetry.series
    for role, series in log.telemetry.series.items():
        assert role in log.columns
        assert len(series.steps) == len(series.values) > 0
        assert (series.steps[1:] > series.steps[:-1]).all()


@pytest.mark.parametrize("name", FILES)
def test_the_valid_file_is_read(name, tmp_path):
    content = FILES[name]
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert "train/loss" in readers.read_log(tmp_path / name).telemetry


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=60, deadline=2000)
@given(data=st.data())
def test_a_damaged_file_is_read_or_refused(name, data):
    content = FILES[name]
    check(name, data.draw(damaged(content if isinstance(content, bytes) else content.encode())))


@settings(max_examples=100, deadline=2000)
@given(content=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(content):
    check("x.csv", content)


@settings(max_examples=100, deadline=2000)
@given(
    names=st.lists(st.text(max_size=12), min_size=1, max_size=4),
    rows=st.lists(st.lists(st.text(max_size=6) | st.floats().map(str), max_size=5), max_size=8),
)
def test_any_table_is_read_or_refused(names, rows):
    text = "\n".join(",".join(row) for row in [["loss", *names], *rows])
    check("x.csv", text.encode(errors="surrogatepass"))


@settings(max_examples=100, deadline=2000)
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["loss", "step", "epoch", "0", "val"]), inner, max_size=4
            )
        ),
        max_leaves=20,
    )
)
def test_any_json_is_read_or_refused(value):
    check("x.json", json.dumps(value).encode())
