import json
import os
import zipfile

import pytest

from orchestrator.errors import OrchestratorError
from orchestrator.telemetry import readers


def refused(read, name, content):
    with pytest.raises(OrchestratorError, match="not a training curve") as error:
        read(name, content)
    assert error.value.remedy
    return error.value.problem


def test_a_pointer_file(read):
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 37748\n"
    assert "Git LFS pointer" in refused(read, "events.out.tfevents.1.host", text)
    assert "Git LFS pointer" in refused(read, "trainer_state.json", text)


def test_a_table_of_trials(read):
    rows = ["0.1,32,0.1,0.9", "0.01,64,0.2,0.8", "0.1,32,0.3,0.7", "0.001,16,0.4,0.6"]
    problem = refused(read, "results.csv", "lr,batch_size,val_loss,val_acc\n" + "\n".join(rows))
    assert "one row per trial" in problem


def test_a_schedule_of_the_learning_rate_is_no_table_of_trials(read):
    log = read("x.csv", "lr,batch_size,loss\n0.1,32,3\n0.05,32,2\n0.01,32,1\n")
    assert len(log.telemetry["train/loss"]) == 3


def test_a_one_cycle_schedule_is_no_table_of_trials(read):
    rows = [f"{0.1 * min(i, 20 - i)},{0.9 - 0.01 * min(i, 20 - i)},{3 - i / 10}" for i in range(20)]
    log = read("x.csv", "lr,momentum,loss\n" + "\n".join(rows))
    assert len(log.telemetry["train/loss"]) == 20


def test_a_report_by_class(read):
    text = "class,precision,recall,f1-score\ncat,0.5,0.6,0.5\ndog,0.7,0.8,0.7\nbird,0.1,0.2,0.1\n"
    assert "one row per item of 'class'" in refused(read, "metrics.csv", text)


def test_predictions(read):
    text = "id,label,prediction\n" + "".join(f"{i},{i % 2},0.{i}\n" for i in range(9))
    problem = refused(read, "val_predictions.csv", text)
    assert "no column that is a loss or a metric" in problem
    assert "'prediction'" in problem


def test_an_event_log(read):
    rows = ['{"type": "job", "duration": 3.0, "status": "ok"}'] * 30
    rows.insert(9, '{"type": "done", "final_loss": 0.5}')
    assert "event log" in refused(read, "training_log.jsonl", "\n".join(rows))


@pytest.mark.parametrize("content", ["", "\n\n \n", "\0" * 100, "\ufeff"])
def test_an_empty_file(read, content):
    assert "is empty" in refused(read, "log.csv", content)


def test_a_header_without_rows(read):
    refused(read, "log.csv", "epoch,train_loss,val_loss\n")


@pytest.mark.parametrize(
    ("content", "seen"),
    [
        (b"\x1f\x8b\x08" + bytes(50), "gzip"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "picture"),
        (b"SQLite format 3\0" + bytes(50), "SQLite"),
        (b"\x80\x04\x95" + bytes(50), "pickle"),
        (b"<!DOCTYPE html><html>loss: 3</html>", "web page"),
        (bytes(range(256)) * 20, "binary"),
        (os.urandom(5000), ""),
    ],
)
def test_other_kinds_of_files(read, content, seen):
    assert seen in refused(read, "metrics.csv", content)


def test_an_archive(tmp_path):
    path = tmp_path / "log.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("log.csv", "epoch,loss\n1,2\n")
    with pytest.raises(OrchestratorError, match="zip archive"):
        readers.read_log(path)


def test_no_such_file_and_no_regular_file(tmp_path):
    with pytest.raises(OrchestratorError, match="no such file"):
        readers.read_log(tmp_path / "gone.csv")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OrchestratorError, match="not a regular file"):
        readers.read_log(tmp_path / "pipe")


def test_a_folder_is_searched_for_its_log(fill):
    state = '{"log_history": [{"loss": 1.0, "step": 1}, {"loss": 0.5, "step": 2}%s]}'
    folder = fill(
        {
            "run/checkpoint-2/trainer_state.json": state % "",
            "run/checkpoint-3/trainer_state.json": state % ', {"loss": 0.4, "step": 3}',
            "run/notes.txt": "nothing",
        }
    )
    assert readers.read_log(folder / "run").n_points == 3


def test_a_folder_called_metrics_need_not_be_of_mlflow(fill):
    folder = fill({"metrics/loss.csv": "epoch,loss\n1,2\n2,1\n", "notes.txt": "x"})
    assert readers.read_log(folder).format == "plain_csv"


def test_a_folder_without_a_log_or_with_several(fill):
    folder = fill({"empty/notes.md": "x", "two/a.csv": "epoch,loss\n1,2\n", "two/b.csv": "x"})
    with pytest.raises(OrchestratorError, match="holds no log"):
        readers.read_log(folder / "empty")
    with pytest.raises(OrchestratorError, match=r"2 files that may be logs \(a.csv, b.csv\)"):
        readers.read_log(folder / "two")


def test_the_one_json_file_of_a_folder_is_its_log(tmp_path):
    rows = [{"step": i, "loss": 2.0 * 0.9**i} for i in range(8)]
    (tmp_path / "training_history.json").write_text(json.dumps(rows))
    (tmp_path / "notes.md").write_text("nothing")
    assert len(readers.read_log(tmp_path).telemetry["train/loss"]) == 8
