import json
import math

import pytest

from orchestrator.launch.files import Job, TrialFiles, write_json
from orchestrator.nouns import Outcome, Status, Training, Trial

JOB = Job(
    trial=Trial("abc", "arm", 3, (("lr", 0.1), ("clip", None), ("name", "a")), "{}", "/runs/abc"),
    training=Training("call", "train.main", "lr: 0.1", "seed", "/project", "code"),
    metric="val/loss",
    workers=2,
    limit_seconds=1.5,
    level="norms",
    every=50,
    histograms=500,
)


def test_a_job_is_read_back_as_it_was_frozen(tmp_path):
    files = TrialFiles(tmp_path / "abc")
    files.prepare(JOB)
    assert files.read_job() == JOB


def test_an_outcome_is_read_back_with_its_lost_numbers(tmp_path):
    metrics = {"val/loss": math.nan, "train/loss": math.inf, "acc": 0.1}
    outcome = Outcome("abc", Status.DIVERGED, metrics, 1.5, 2, "val/loss is nan", 12.5)
    files = TrialFiles(tmp_path)
    assert files.read_outcome() is None
    files.write_outcome(outcome)
    read = files.read_outcome()
    assert repr(read) == repr(outcome)


def test_a_half_attempt_is_wiped_and_still_counted(tmp_path):
    files = TrialFiles(tmp_path)
    files.set_attempts(1)
    files.telemetry.mkdir()
    (files.telemetry / "chunk").touch()
    files.output.touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    files.prepare(JOB)
    assert {path.name for path in tmp_path.iterdir()} == {"attempts.json", "trial.json"}
    assert files.count_attempts() == 1


def test_a_write_that_fails_leaves_the_old_file_whole(tmp_path):
    path = tmp_path / "it.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert json.loads(path.read_text()) == {"a": 1}
