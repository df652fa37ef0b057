"""The verb, from a CSV to the table, the plots and the next command."""

import json

import numpy as np

from orchestrator.cli import main


def record(tmp_path, norms):
    rows = [
        f"{i},{2 * np.exp(-i / 200) + 0.3:.4f},0.01,{v:.5f}" for i, v in enumerate(norms.tolist())
    ]
    path = tmp_path / "run.csv"
    path.write_text("step,loss,lr,grad_norm\n" + "\n".join(rows))
    return path


def spiky(rng, n=900):
    norms = np.exp(0.25 * rng.standard_normal(n))
    norms[[300, 500, 700]] *= 40
    return norms


def test_one_call_gives_an_answer_plots_and_the_next_command(tmp_path, rng, capsys):
    path = record(tmp_path, spiky(rng))
    assert main(["propose-clip", str(path), "--optimizer", "SGD", "--current", "1.0"]) == 0
    told = capsys.readouterr().out
    assert "Clip the gradient norm. 3 isolated spikes" in told
    assert "present" in told
    assert "--plan exp.yaml" in told.replace("\n", " ").replace("  ", " ")
    assert len(list((tmp_path / "run-clip").glob("*.png"))) == 5


def test_json_prints_one_object_and_writes_nothing(tmp_path, rng, capsys):
    path = record(tmp_path, spiky(rng))
    assert main(["propose-clip", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recommendation"] == "clip"
    assert list(tmp_path.iterdir()) == [path]


def test_a_refusal_says_why_and_draws_nothing(tmp_path, rng, capsys):
    path = record(tmp_path, np.minimum(spiky(rng), 1.0))
    assert main(["propose-clip", str(path)]) == 0
    assert "No threshold is proposed." in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [path]


def test_wrong_input_is_an_error_in_words(tmp_path, capsys):
    path = tmp_path / "run.csv"
    path.write_text("step,loss\n1,2\n")
    assert main(["propose-clip", str(path)]) == 2
    assert "no column grad_norm" in capsys.readouterr().err


def test_plan_writes_a_campaign_that_can_be_planned(tmp_path, rng, capsys):
    path = record(tmp_path, spiky(rng))
    (tmp_path / "toy.py").write_text("def main(config): return 0.0\n")
    conf = tmp_path / "exp.yaml"
    conf.write_text(
        "train: {call: toy.main, config: {lr: 0.1, clip: null, seed: 0}}\n"
        "factors: {lr: lr, clip: clip}\nmetric: {name: val/loss, direction: min}\n"
    )
    assert main(["propose-clip", str(path), "--plan", str(conf)]) == 0
    assert "exp-clip.yaml" in capsys.readouterr().out
    written = tmp_path / "exp-clip.yaml"
    assert main(["plan", f"conf={written}"]) == 0
    told = capsys.readouterr().out
    assert "clip=1." in told
    assert "lr=" not in told  # mapped for the matched control, and not varied by itself
    text = written.read_text()
    assert "ask:\n- clip" in text
    assert main(["propose-clip", str(path), "--plan", str(conf)]) == 0
    assert written.read_text() == text
    written.write_text("mine")
    assert main(["propose-clip", str(path), "--plan", str(conf)]) == 2
    assert "never overwritten" in capsys.readouterr().err
    assert written.read_text() == "mine"
