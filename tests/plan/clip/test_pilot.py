"""`propose-clip conf=exp.yaml` and a campaign that asks for clip, from the command line."""

import json

import numpy as np
import pytest

from orchestrator import track
from orchestrator.cli import main
from orchestrator.record import load

PROGRAM = """
import os
from pathlib import Path
import numpy as np
from orchestrator.telemetry import Writer

def main(cfg):
    if cfg.fault:
        raise RuntimeError("no data")
    with open("starts", "a") as starts:
        print(cfg.seed, cfg.clip, file=starts)
    rng = np.random.default_rng(cfg.seed)
    steps = np.arange(900)
    norms = np.exp(0.05 * cfg.seed + 0.25 * rng.standard_normal(900))
    norms[[300, 500, 700]] *= 40
    if cfg.seed >= cfg.get("rises", 10_000):
        norms *= 3
    loss = 0.3 + 2 * np.exp(-steps / 200)
    if cfg.clip is None and cfg.get("dies"):
        norms[600:] *= 1e-3
        loss[600:] = 2.31
    folder = Path(os.environ["ORCHESTRATOR_TRIAL_FOLDER"], "telemetry")
    writer = Writer(folder, {"optimizer": "SGD"})
    for name, values in (("grad_norm", norms), ("train/loss", loss)):
        writer.write_logged(steps, [name] * 900, values)
    writer.close({"steps": 900})
    cost = 1.0 if cfg.clip is None else 0.2 / cfg.clip
    own = np.random.default_rng([cfg.seed, int(1000 * (cfg.clip or 0))])
    return 0.3 + cost + 0.01 * own.standard_normal()
"""
EXP = """
train: {{call: toy_norms.main, config: {{clip: {clip}, fault: false, seed: 0}}}}
factors: {{clip: clip}}
metric: {{name: val/loss, direction: min}}
tracking_uri: null
"""


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """From the baseline's clip setting to the words that ask for its pilot."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy_norms.py").write_text(PROGRAM)

    def written(clip="1.0", *tokens):
        (tmp_path / "exp.yaml").write_text(EXP.format(clip=clip))
        return ["propose-clip", "conf=exp.yaml", "hydra/launcher=basic", *tokens]

    return written


def test_the_pilot_runs_without_clipping_once_and_on_several_seeds(asked, tmp_path, capsys):
    assert main([*asked(), "--json"]) == 0
    first = capsys.readouterr()
    told = json.loads(first.out)
    assert (told["recommendation"], told["n_steps"]) == ("clip", 2700)
    assert "pilot without clipping x 3 seeds" in first.err
    assert (tmp_path / "starts").read_text().split() == ["0", "None", "1", "None", "2", "None"]
    assert main([*asked(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == told
    assert len((tmp_path / "starts").read_text().splitlines()) == 3
    arms = {t.arm for t in load(tmp_path / "runs" / tmp_path.name).trials.values()}
    assert arms == {"clip=none"}


def test_the_setting_in_force_is_shown_beside_and_the_next_command_tests_it(asked, capsys):
    assert main([*asked("1.0"), "--plan", "exp.yaml"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "present 1 " in told
    assert "run conf=exp-clip.yaml" in told


@pytest.mark.parametrize(
    ("clip", "words", "n_steps"),
    [
        ("1.0", "of the baseline, which clips at 1", 2700),
        ("null", "before each of them broke", 1794),
    ],
)
def test_a_training_that_dies_without_clipping_gets_its_thresholds_all_the_same(
    asked, capsys, clip, words, n_steps
):
    assert main(asked(clip, "+train.config.dies=true")) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert words in told
    assert "unhealthy: The pilot is not healthy" in told
    assert f"of {n_steps:,} steps used" in told
    assert "Clip the gradient norm." in told


def test_a_baseline_that_does_not_clip_is_its_own_pilot(asked, tmp_path):
    assert main([*asked("null"), "--json"]) == 0
    trials = load(tmp_path / "runs" / tmp_path.name).trials.values()
    assert {(t.arm, t.overrides) for t in trials} == {("baseline", ())}


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("train.config.fault=true", "no data"),
        ("~factors.clip", "factors is empty"),
        ("budget.trials=2", "budget.trials=2"),
    ],
)
def test_a_pilot_that_cannot_be_run_is_told(asked, capsys, token, words):
    assert main(asked("null", token)) == 2
    assert words in capsys.readouterr().err


def test_a_campaign_that_asks_for_clip_tests_predicts_adopts_and_watches_it(asked, tmp_path):
    asked("1.0")
    words = ["conf=exp.yaml", "hydra/launcher=basic", "ask=[clip]", "protocol=quick"]
    words += ["+train.config.lr=0.1", "+factors.lr=lr", "+train.config.rises=200"]
    assert main(["run", *words, "budget.rounds=2"]) == 0
    first, second = load(tmp_path / "runs" / tmp_path.name).rounds
    assert first.findings == ()
    assert [h.finding for h in first.hypotheses] == ["asked"]
    clip, control = first.plan.ablations
    assert clip.arms[-1].name == "clip=none"
    assert (control.name, control.factor.moves_with) == ("matched_lr", ("clip",))
    assert [f.arm for f in first.plan.clipping] == ["baseline", *(a.name for a in clip.arms[:-1])]
    assert first.adopted == clip.arms[1]
    (rule,) = {f.rule for f in second.findings} - {"gradient_level_rose"}
    assert rule == "high_clip_ratio"
    assert [(h.factor, h.move.value) for h in second.hypotheses] == [("lr", "down")]
    page = (tmp_path / "runs" / tmp_path.name / "report" / "r1-clip.md").read_text()
    assert "| predicted clip ratio | realised | held |" in page


def test_a_run_of_mlflow_is_read(monkeypatch, tmp_path, capsys):
    norms = np.exp(0.25 * np.random.default_rng(1).standard_normal(900))
    norms[[300, 500, 700]] *= 40
    points = {
        "grad_norm": [(0.0, i, v) for i, v in enumerate(norms.tolist())],
        "loss": [(0.0, i, 0.3 + 2 * float(np.exp(-i / 200))) for i in range(900)],
    }
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(track, "histories", lambda run_id: (points, {"optimizer": "SGD"}))
    assert main(["propose-clip", "mlflow:0123", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["spikes"] == [300, 500, 700]
