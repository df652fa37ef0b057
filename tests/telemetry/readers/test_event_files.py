import builtins
import struct

import pytest

from orchestrator.errors import OrchestratorError
from orchestrator.telemetry import readers

pytest.importorskip("tensorboard")


def events(*points, as_tensor=False):
    """An event file with (tag, step, value) points."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto

    records = [Event(wall_time=1.0, file_version="brain.Event:2")]
    for tag, step, value in points:
        stored = {"simple_value": value}
        if as_tensor:
            stored = {"tensor": TensorProto(dtype=1, tensor_content=struct.pack("<f", value))}
        summary = Summary(value=[Summary.Value(tag=tag, **stored)])
        records.append(Event(wall_time=2.0, step=step, summary=summary))
    return b"".join(frame(record.SerializeToString()) for record in records)


def frame(data):
    return struct.pack("<Q", len(data)) + bytes(4) + data + bytes(4)


def curve(tag, values, stride=1):
    return [(tag, stride * i, value) for i, value in enumerate(values)]


NAME = "events.out.tfevents.1.host"


def test_scalars_of_one_file(read):
    points = (
        curve("train_loss", [3, 2, 1], 50) + curve("val_loss", [4], 100) + [("hp_metric", 0, -1)]
    )
    log = read(NAME, events(*points))
    assert (log.format, log.axis, log.n_points) == ("tensorboard", "optimizer step", 3)
    assert log.telemetry["train/loss"].steps.tolist() == [0, 50, 100]
    assert "placeholder" in log.warnings[0]


def test_keras_writes_tensors_by_epoch_in_a_folder_per_split(fill):
    folder = fill(
        {
            f"train/{NAME}": events(*curve("epoch_loss", [3, 2, 1]), as_tensor=True),
            "train/events.out.tfevents.2.host": events(),
            f"validation/{NAME}": events(
                *curve("epoch_loss", [4, 3, 2]),
                ("evaluation_loss_vs_iterations", 56, 4.0),
                as_tensor=True,
            ),
        }
    )
    log = readers.read_log(folder)
    assert log.axis == "epoch"
    assert log.columns == {
        "train/loss": "train/epoch_loss",
        "val/loss": "validation/epoch_loss",
        "epoch": "epoch",
    }
    assert log.telemetry["val/loss"].values.tolist() == [4, 3, 2]
    assert "counts iterations" in "".join(log.warnings)
    assert "no scalars" in "".join(log.warnings)


def test_a_folder_per_series_and_split(fill):
    folder = fill(
        {
            f"loss_{split}/{NAME}": events(*curve("loss", [v, v]))
            for split, v in (("train", 1), ("val", 2))
        }
    )
    log = readers.read_log(folder)
    assert log.telemetry["train/loss"].values.tolist() == [1, 1]
    assert log.telemetry["val/loss"].values.tolist() == [2, 2]
    alone = readers.read_log(folder / "loss_val" / NAME)
    assert set(alone.columns) == {"val/loss", "step"}


def test_versions_are_runs(fill):
    folder = fill(
        {
            f"version_0/{NAME}": events(*curve("train_loss", [3, 2, 1, 1])),
            f"version_1/{NAME}": events(*curve("train_loss", [5, 4])),
        }
    )
    log = readers.read_log(folder)
    assert (log.runs, log.run) == (("version_0", "version_1"), "version_0")
    assert readers.read_log(folder, run="version_1").telemetry["train/loss"].values[0] == 5
    assert readers.read_log(folder / "version_1").runs == ("1",)


def test_a_file_cut_off_is_read_up_to_there(read):
    data = events(*curve("loss", [3, 2, 1]))
    log = read(NAME, data[:-10])
    assert len(log.telemetry["train/loss"]) == 2
    assert "cut off or damaged" in log.warnings[0]


def test_a_damaged_record_is_skipped(read):
    good = events(*curve("loss", [3, 2, 1]))
    log = read(NAME, good + frame(b"\xff\xff\xff\xff") + events(("loss", 3, 0.5)))
    assert log.telemetry["train/loss"].values.tolist() == [3, 2, 1, 0.5]
    assert "damaged record" in log.warnings[0]


def test_a_pointer_among_event_files_is_told(fill):
    pointer = "version https://git-lfs.github.com/spec/v1\n"
    folder = fill({f"a/{NAME}": pointer, f"b/{NAME}": events(*curve("loss", [3, 2]))})
    assert "not its content" in readers.read_log(folder).warnings[0]
    with pytest.raises(OrchestratorError, match="not a training curve"):
        readers.read_log(folder / "a")


def test_what_tensorboard_itself_wrote_is_read_alike(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(tmp_path))
    for i in range(50):
        summary = Summary(value=[Summary.Value(tag="train/loss", simple_value=1 / (i + 1))])
        writer.add_event(Event(step=3 * i, wall_time=1.0, summary=summary))
    writer.close()
    expected = EventAccumulator(str(tmp_path)).Reload().Scalars("train/loss")
    series = readers.read_log(tmp_path).telemetry["train/loss"]
    assert series.steps.tolist() == [point.step for point in expected]
    assert series.values.tolist() == [point.value for point in expected]


def test_without_tensorboard_the_extra_is_named(read, monkeypatch):
    real = builtins.__import__

    def fake(name, *rest):
        if name.startswith("tensorboard"):
            raise ImportError(name)
        return real(name, *rest)

    data = events(*curve("loss", [3, 2, 1]))
    monkeypatch.setattr(builtins, "__import__", fake)
    with pytest.raises(OrchestratorError, match="tensorboard is not installed") as error:
        read(NAME, data)
    assert "orchestrator[tensorboard]" in error.value.remedy
