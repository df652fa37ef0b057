import json

import numpy as np
import pytest

from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Series, Telemetry
from orchestrator.plan.clip import from_telemetry, read_norms


def write(tmp_path, text, name="run.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_csv_is_read_with_all_its_columns(tmp_path):
    path = write(
        tmp_path, "step,loss,lr,grad_norm,loss_scale,skipped\n0,2,0.1,1.5,8,0\n1,1,0.1,inf,4,1\n"
    )
    (series,) = read_norms(path)
    assert series.norms.tolist() == [1.5, np.inf]
    assert series.skipped.tolist() == [False, True]
    assert series.loss_scale.tolist() == [8, 4]


def test_rows_without_a_norm_are_no_steps(tmp_path):
    (series,) = read_norms(write(tmp_path, "step;grad_norm\n0;1.0\n1;\n2;3.0\n"))
    assert series.steps.tolist() == [0, 2]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("step,loss\n0,1\n", "no column grad_norm"),
        ("step,grad_norm\n0,1\n1,-2\n", "negative"),
        ("step,grad_norm\n0,1\n1,high\n", "line 3: grad_norm is 'high'"),
        ("step,grad_norm\n0,1\n0.5,1\n", "step is 0.5"),
        ("step,grad_norm\n0,1\n,1\n", "step is nan"),
        ("step,grad_norm,skipped\n0,1,maybe\n", "skipped is 'maybe'"),
        ("step,grad_norm\n0,1\n1,1\n0,2\n1,2\n", "several runs"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_place(tmp_path, text, said):
    with pytest.raises(OrchestratorError, match=said):
        read_norms(write(tmp_path, text))


def test_bytes_that_are_no_text_are_told(tmp_path):
    path = tmp_path / "run.csv"
    path.write_bytes(b"\xff\xfe\x00step\x00")
    with pytest.raises(OrchestratorError):
        read_norms(path)
    with pytest.raises(OrchestratorError, match="does not exist"):
        read_norms(tmp_path / "nothing.csv")


def test_unsorted_and_repeated_steps_are_put_right_and_told(tmp_path):
    (series,) = read_norms(write(tmp_path, "step,grad_norm\n2,3\n1,2\n4,9\n3,4\n3,5\n"))
    assert series.steps.tolist() == [1, 2, 3, 4]
    assert series.norms.tolist() == [2, 3, 5, 9]
    assert {f.name for f in series.flags} == {"unsorted_steps", "repeated_steps"}


def test_a_column_run_tells_runs_apart(tmp_path):
    found = read_norms(write(tmp_path, "run,step,grad_norm\na,0,1\nb,0,3\na,1,2\nb,1,4\n"))
    assert [s.norms.tolist() for s in found] == [[1, 2], [3, 4]]


def test_a_trainer_state_is_read(tmp_path):
    history = [
        {"step": 1, "loss": 2.0, "grad_norm": 3.0, "learning_rate": 1e-3},
        {"step": 1, "eval_loss": 2.0},
        {"step": 2, "loss": 1.0, "grad_norm": float("nan"), "learning_rate": 1e-3},
    ]
    text = json.dumps({"log_history": history})
    (series,) = read_norms(write(tmp_path, text, "trainer_state.json"))
    assert series.steps.tolist() == [1, 2]
    assert series.loss.tolist() == [2, 1]
    assert np.isnan(series.norms[1])


@pytest.mark.parametrize("text", ["{", '{"log_history": [{"step": 1, "loss": 2}]}'])
def test_a_trainer_state_without_norms_is_told(tmp_path, text):
    with pytest.raises(OrchestratorError):
        read_norms(write(tmp_path, text, "trainer_state.json"))


def test_telemetry_is_aligned_on_the_steps_that_have_a_norm():
    telemetry = Telemetry(
        {
            "grad_norm": Series(np.array([1, 2, 4]), np.array([1.0, 2.0, 4.0])),
            "train/loss": Series(np.array([0, 2, 4]), np.array([9.0, 7.0, 5.0])),
            "max_norm": Series(np.array([1, 2]), np.array([np.inf, 0.5])),
        },
        {"optimizer": "AdamW"},
    )
    series = from_telemetry(telemetry)
    assert np.isnan(series.loss[0])
    assert series.loss[1:].tolist() == [7, 5]
    assert (series.max_norm_in_force, series.optimizer) == (0.5, "AdamW")
    with pytest.raises(OrchestratorError, match="grad_norm"):
        from_telemetry(Telemetry({}))


def test_layers_that_are_clipped_by_themselves_have_a_norm_of_their_own(tmp_path):
    telemetry = Telemetry(
        {
            "grad_norm": Series(np.arange(3), np.array([9.0, 9.0, 9.0])),
            "grad_norm/encoder.0": Series(np.arange(3), np.array([3.0, 1.0, np.inf])),
            "grad_norm/encoder.1": Series(np.array([0, 2]), np.array([4.0, 1.0])),
            "grad_norm/head": Series(np.arange(3), np.array([5.0, 5.0, 5.0])),
            "lr": Series(np.arange(3), np.array([0.3, 0.2, 0.1])),
        },
        {"optimizer": "AdamW", "parameters": 100, "eps": 1e-6},
    )
    series = from_telemetry(telemetry, layers="encoder.*")
    assert series.norms.tolist() == [5.0, 1.0, np.inf]
    assert series.lr.tolist() == [0.3, 0.2, 0.1]
    assert (series.n_parameters, series.eps) == (None, 1e-6)
    assert from_telemetry(telemetry).n_parameters == 100
    with pytest.raises(OrchestratorError, match="no such layer") as error:
        from_telemetry(telemetry, layers="encodr.*")
    assert "encoder.0" in error.value.remedy
    with pytest.raises(OrchestratorError, match="no norms per layer"):
        read_norms(write(tmp_path, "step,grad_norm\n0,1\n"), layers="encoder.*")
