"""`python -m orchestrator diagnose`: exit codes, the contract, files it writes, what it imports."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator import cli
from orchestrator.diagnose.logs import as_json, diagnose_log
from orchestrator.errors import OrchestratorError
from orchestrator.telemetry import Writer
from orchestrator.telemetry.readers import read_log


def overfitted(folder):
    steps = np.arange(40)
    train = 0.2 + 1.8 * np.exp(-steps / 8)
    val = train + 0.03 * np.maximum(0, steps - 12)
    rows = [f"{i},{a:.4f},{b:.4f}" for i, a, b in zip(steps, train, val, strict=True)]
    file = folder / "log.csv"
    file.write_text("\n".join(["epoch,L_total,L_held", *rows]) + "\n")
    return file


MAPPED = ["--map", "train_loss=L_total", "val_loss=L_held"]


def answer(capsys, *arguments):
    code = cli.main(["diagnose", *map(str, arguments), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_json_is_the_contract_and_nothing_else(tmp_path, capsys):
    code, found = answer(capsys, overfitted(tmp_path), *MAPPED)
    assert code == 0
    assert found["label"] == "overfitting"
    assert found["labels"][0] == found["label"]
    assert found["series"] == {"train/loss": "L_total", "val/loss": "L_held", "epoch": "epoch"}
    assert found["n_points"] == 40
    assert found["hypotheses"][0]["prediction"] == {
        "val/loss": "improves",
        "generalisation_gap": "down",
    }


def test_the_page_says_what_was_taken_for_what_and_what_to_try(tmp_path, capsys):
    assert cli.main(["diagnose", str(overfitted(tmp_path)), *MAPPED]) == 0
    text = " ".join(capsys.readouterr().out.split())
    for words in ("overfitting:", "L_held", "could also be", "weight_decay", "must also hold"):
        assert words in text


def test_what_is_no_curve_exits_2_and_still_answers_in_json(tmp_path, capsys):
    table = tmp_path / "trials.csv"
    rows = ["1e-3,32,0.5,0.1", "1e-2,64,0.6,0.3", "1e-4,32,0.7,0.2", "1e-1,16,0.8,0.0"]
    table.write_text("\n".join(["lr,batch_size,val_loss,dropout", *rows]) + "\n")
    code = cli.main(["diagnose", str(table), "--json"])
    told = capsys.readouterr()
    assert code == 2
    assert json.loads(told.out)["label"] == "insufficient_data"
    assert "not a training curve" in told.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.csv"], "nowhere.csv"),
        (["{log}", "--map", "train_loss=L_totl"], "did you mean 'L_total'"),
        (["{log}", *MAPPED, "--run", "7"], "no run '7'"),
        (["{log}", "--every", "0"], "every=0"),
        (["{log}", *MAPPED, "--html", "page.csv"], "end it in .html"),
        (["mlflow:0123"], "mlflow:0123"),
    ],
)
def test_mistakes_exit_2_with_what_is_valid(tmp_path, capsys, monkeypatch, arguments, words):
    log = overfitted(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert cli.main(["diagnose", *(a.format(log=log) for a in arguments)]) == 2
    assert words in capsys.readouterr().err


def test_the_plan_is_accepted_once_the_program_is_filled_in(tmp_path, capsys, monkeypatch):
    plan = tmp_path / "exp.yaml"
    assert cli.main(["diagnose", str(overfitted(tmp_path)), *MAPPED, "--plan", str(plan)]) == 0
    text = plan.read_text()
    assert "call: ???" in text
    (tmp_path / "program.py").write_text("def main(config):\n    return {'val/loss': 1.0}\n")
    plan.write_text(text.replace("???", "program.main"))
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plan", f"conf={plan}", "tracking_uri=null"]) == 0
    assert "weight_decay" in capsys.readouterr().out


def test_a_plan_is_never_overwritten(tmp_path, capsys):
    plan = tmp_path / "exp.yaml"
    plan.write_text("mine")
    assert cli.main(["diagnose", str(overfitted(tmp_path)), *MAPPED, "--plan", str(plan)]) == 2
    assert plan.read_text() == "mine"
    assert "never overwritten" in capsys.readouterr().err


def test_no_plan_is_written_where_nothing_asks_for_one(tmp_path, capsys):
    log = tmp_path / "log.csv"
    log.write_text("epoch,train_loss\n" + "".join(f"{i},{2 * 0.8**i}\n" for i in range(12)))
    assert cli.main(["diagnose", str(log), "--plan", str(tmp_path / "exp.yaml")]) == 2
    assert not (tmp_path / "exp.yaml").exists()
    assert "healthy" in capsys.readouterr().out


def test_html_stands_alone_with_the_curves(tmp_path):
    page = tmp_path / "diagnosis.html"
    assert cli.main(["diagnose", str(overfitted(tmp_path)), *MAPPED, "--html", str(page)]) == 0
    text = page.read_text()
    assert "data:image/png;base64," in text
    assert "overfitting" in text
    assert "http://" not in text
    assert "https://" not in text


def test_the_telemetry_of_a_trial_is_read_by_the_rules_for_trials(tmp_path, capsys):
    writer = Writer(tmp_path / "telemetry", {"optimizer": "SGD"})
    loss = np.where(np.arange(60) > 40, np.nan, 2.0 - 0.01 * np.arange(60))
    writer.write_steps(np.arange(60), {"train/loss": loss})
    writer.close({"steps": 60})
    code, found = answer(capsys, tmp_path)
    assert code == 0
    assert found["format"] == "telemetry"
    assert found["label"] == "divergence"
    assert any("cannot tell" in warning for warning in found["warnings"])


def test_a_csv_needs_nothing_heavy(tmp_path):
    program = (
        "import sys\nfrom orchestrator import cli\n"
        f"cli.main(['diagnose', {str(overfitted(tmp_path))!r}, *{MAPPED!r}])\n"
        "heavy = {'torch', 'mlflow', 'matplotlib', 'scipy.stats', 'optuna', 'hydra', 'pyarrow'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


CELL = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True).map(repr),
    st.sampled_from(["", "nan", "0", "1e-300", "-1", "x", "1e308"]),
)
HEADS = st.sampled_from(
    ["epoch", "step", "loss", "val_loss", "lr", "grad_norm", "learning_rate", "acc", "val_acc", "G"]
)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.data())
def test_any_small_table_gets_an_answer_or_a_clear_error(tmp_path, data):
    heads = data.draw(st.lists(HEADS, min_size=1, max_size=5, unique=True))
    row = st.lists(CELL, min_size=len(heads), max_size=len(heads)).map(",".join)
    rows = data.draw(st.lists(row, max_size=14))
    file = tmp_path / "fuzzed.csv"
    file.write_text("\n".join([",".join(heads), *rows]) + "\n")
    try:
        found = diagnose_log(read_log(file), source="fuzzed")
    except OrchestratorError:
        return
    json.dumps(as_json(found), allow_nan=False)
