import dataclasses
from pathlib import Path

import pytest

from orchestrator.config import parse_tokens, read, whereabouts
from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Campaign, Direction, Factor, Level, Monitoring, Policy

GOOD = """
train:
  call: train.main
  config: {optimizer: {lr: 3e-3, weight_decay: 0.0}, model: {dropout: 0.0}, epochs: 30, clip: null}
factors: {lr: optimizer.lr, dropout: {key: model.dropout, levels: [0.1, 0.3]}, clip: clip}
metric: {name: val/loss, direction: min}
"""


@pytest.fixture
def exp(tmp_path: Path) -> Path:
    folder = tmp_path / "my-question"
    folder.mkdir()
    (folder / "exp.yaml").write_text(GOOD)
    return folder / "exp.yaml"


def campaign(*tokens: str) -> Campaign:
    return read(parse_tokens(tokens), complete=lambda training: training)


def complaint(*tokens: str) -> str:
    with pytest.raises(OrchestratorError) as caught:
        campaign(*tokens)
    return str(caught.value)


def test_a_short_file_gives_a_whole_campaign(exp, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    read_back = campaign(f"conf={exp}")
    assert read_back.name == "my-question"
    assert read_back.folder == str(tmp_path / "runs" / "my-question")
    assert read_back.metric.direction is Direction.MIN
    assert read_back.factors == (
        Factor("lr", "optimizer.lr", 0.003),
        Factor("dropout", "model.dropout", 0.0, levels=(0.1, 0.3)),
        Factor("clip", "clip", None),
    )
    assert read_back.protocol.looks == (3, 5, 7, 10)
    assert read_back.protocol.confirm_seeds is None
    assert read_back.protocol.policy is Policy.PRODUCT
    assert read_back.tracking_uri == f"sqlite:///{tmp_path}/runs/mlflow.db"


@pytest.mark.parametrize("spelling", ["exp.yaml", "exp", ".", "../my-question/exp.yaml"])
def test_conf_is_found_from_where_one_stands(exp, monkeypatch, spelling):
    monkeypatch.chdir(exp.parent)
    assert campaign(f"conf={spelling}").name == "my-question"


def test_conf_may_end_in_yml(exp):
    other = exp.rename(exp.with_suffix(".yml"))
    assert campaign(f"conf={other}").name == "my-question"


def test_the_command_line_beats_the_file_and_a_chosen_group_beats_it_too(exp):
    exp.write_text(GOOD + "protocol: {looks: [4, 7], policy: optimise}\n")
    assert campaign(f"conf={exp}").protocol.looks == (4, 7)
    assert campaign(f"conf={exp}").protocol.policy is Policy.OPTIMISE
    assert campaign(f"conf={exp}", "protocol=quick").protocol.looks == (3,)
    fixed = campaign(f"conf={exp}", "protocol=quick", "protocol.looks=[4]")
    assert fixed.protocol.looks == (4,)
    assert "epochs: 2" in campaign(f"conf={exp}", "train.config.epochs=2").training.config


@pytest.mark.parametrize("level", ["off", "norms", "default", "full"])
def test_a_level_of_monitoring_is_chosen_in_the_file_or_on_the_command_line(exp, level):
    assert campaign(f"conf={exp}").monitor == Monitoring(Level.DEFAULT, None)
    assert campaign(f"conf={exp}", f"monitor.level={level}").monitor == Monitoring(Level(level))
    exp.write_text(GOOD + f"monitor: {{level: {level}, every: 50}}\n")
    assert campaign(f"conf={exp}").monitor == Monitoring(Level(level), 50)


def test_a_wrong_level_names_the_nearest(exp):
    exp.write_text(GOOD + "monitor: {level: norm, evry: 3}\n")
    said = complaint(f"conf={exp}")
    assert "monitor.level='norm'" in said
    assert "did you mean 'norms'?" in said
    assert "unknown key monitor.evry (value 3)" in said


def test_whoever_writes_seeds_in_the_file_is_told_of_looks(exp):
    exp.write_text(GOOD + "protocol: {seeds: 5}\n")
    said = complaint(f"conf={exp}")
    assert "unknown key protocol.seeds (value 5)" in said
    assert "[5] is a fixed design of 5 seeds" in said


def test_launcher_tokens_reach_the_launcher(exp):
    read_back = campaign(f"conf={exp}", "hydra/launcher=joblib", "hydra.launcher.verbose=5")
    assert read_back.launcher == "joblib"
    assert read_back.launcher_overrides == ("hydra.launcher.verbose=5",)


def test_interpolations_of_the_training_stay_its_own(exp):
    exp.write_text(GOOD.replace("clip: null", "clip: '${optimizer.lr}'"))
    read_back = campaign(f"conf={exp}")
    assert "clip: ${optimizer.lr}" in read_back.training.config
    assert read_back.factors[2].baseline == 0.003


def test_several_mistakes_are_told_at_once_each_with_the_nearest_name(exp):
    exp.write_text(
        GOOD.replace("call:", "cal:").replace("direction: min", "direction: mim")
        + "budgets: {rounds: 1}\nprotocol: {headline_seeds: many}\n"
    )
    said = complaint(f"conf={exp}")
    for words in ("4 mistakes", "train.cal", "'call'", "mim", "budgets", "'budget'", "many"):
        assert words in said


def test_values_that_mean_nothing_are_told_at_once(exp):
    exp.write_text(
        GOOD.replace("lr: optimizer.lr", "lr: optimizer.lrr").replace("[0.1, 0.3]", "[0.0]")
        + "protocol: {looks: [1], alpha: 0.7}\nbudget: {trials: 0}\n"
    )
    said = complaint(f"conf={exp}")
    for words in ("5 mistakes", "optimizer.lrr", "did you mean 'optimizer.lr'", "levels=[0.0]"):
        assert words in said
    for words in ("protocol.looks=[1]", "protocol.alpha=0.7", "budget.trials=0"):
        assert words in said


@pytest.mark.parametrize(
    ("token", "words"),
    [
        ("protcol=quick", "did you mean 'protocol'"),
        ("protocol=quik", "quick"),
        ("train.config.epoch=3", "train.config.epoch"),
        ("budget.trials=abc", "abc"),
        ("protocol", "no override"),
        ("conf=other.yaml", "2 conf="),
        ("metric.delta=-1", "metric.delta"),
        ("workers=0", "workers=0"),
        ("protocol.looks=[0]", "protocol.looks=[0]: fewer than 3"),
        ("protocol.looks=[]", "protocol.looks=[] is not an ascending list"),
        ("protocol.looks=[5,3]", "protocol.looks=[5,3] is not an ascending list"),
        ("protocol.looks=5", "protocol.looks"),
        ("protocol.seeds=5", "write protocol.looks"),
        ("protocol.confirm_seeds=2", "protocol.confirm_seeds=2: fewer than 3"),
        ("protocol.policy=greedy", "greedy"),
    ],
)
def test_a_wrong_token_names_itself(exp, token, words):
    assert words in complaint(f"conf={exp}", token)


def test_a_file_that_is_missing_broken_or_no_mapping_is_named(exp):
    assert "exp.yaml" in complaint(f"conf={exp.parent}/epx.yaml")
    exp.write_text("train: [")
    assert "not valid YAML" in complaint(f"conf={exp}")
    exp.write_text("- a\n- b\n")
    assert "not a mapping" in complaint(f"conf={exp}")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("  call: train.main\n", "", "exactly one"),
        ("  call: train.main\n", "  call: a.b\n  script: c.py\n", "exactly one"),
        ("call: train.main", "script: nowhere.py", "nowhere.py"),
        ("call: train.main", "call: train", "module.function"),
        ("name: val/loss, ", "", "metric.name is missing"),
        ("lr: optimizer.lr", "lr: optimizer", "optimizer"),
        ("lr: optimizer.lr", "lr: {keys: optimizer.lr}", "keys"),
        ("lr: optimizer.lr", "lr: 3", "factors.lr"),
    ],
)
def test_a_wrong_value_names_its_key(exp, old, new, words):
    exp.write_text(GOOD.replace(old, new))
    assert words in complaint(f"conf={exp}")


def test_a_resolver_only_the_program_knows_is_left_to_it(exp):
    exp.write_text(GOOD.replace("epochs: 30", "epochs: 30, out: '${hydra:run.dir}'"))
    assert "${hydra:run.dir}" in campaign(f"conf={exp}").training.config
    exp.write_text(exp.read_text().replace("lr: optimizer.lr", "lr: out"))
    assert "factors.lr: out cannot be resolved" in complaint(f"conf={exp}")


def test_no_factors_is_a_mistake(exp):
    exp.write_text(GOOD[: GOOD.index("factors")] + "metric: {name: val/loss, direction: min}\n")
    assert "factors is empty" in complaint(f"conf={exp}")


def test_folder_and_tracking_can_be_found_without_the_program(exp, tmp_path):
    tokens = [f"conf={exp}", f"folder={tmp_path}/x", "tracking_uri=http://localhost:5000"]
    assert whereabouts(parse_tokens(tokens)) == (tmp_path / "x", "http://localhost:5000")


def test_what_the_launcher_completes_is_kept(exp):
    filled = read(
        parse_tokens([f"conf={exp}"]), complete=lambda t: dataclasses.replace(t, code="abc")
    )
    assert filled.training.code == "abc"
