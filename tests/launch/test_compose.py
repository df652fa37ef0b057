import json

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from orchestrator import launch
from orchestrator.errors import OrchestratorError
from orchestrator.launch.compose import canonical, differences, hydra_aside, hydra_override
from orchestrator.nouns import Training

text = st.text(st.characters(exclude_categories=["Cs"])).filter(
    lambda t: "${" not in t and t != "???"
)
nasty = st.sampled_from(
    ["null", "true", "1e-3", "a,b", "{a: 1}", "[1]", "x=y", "\\", "it's", '"', "\\'", " ", "", "#"]
)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    text,
    nasty,
)


def training(config: str, **changes: str) -> Training:
    fields = {
        "kind": "call",
        "target": "program.main",
        "seed_key": "seed",
        "folder": "",
        "code": "",
    }
    return Training(config=config, **{**fields, **changes})


def resolved(config: str, *overrides: tuple[str, object]) -> dict[str, object]:
    [text] = launch.resolve(training(config), [overrides])
    return json.loads(text)


@given(value=scalars)
@settings(max_examples=300, deadline=None)
def test_hydra_reads_back_the_value_meant(value):
    parsed = OverridesParser.create().parse_override(hydra_override("a.b", value)).value()
    assert (type(parsed), parsed) == (type(value), value) or str(parsed) == value


leaves = st.one_of(scalars, st.lists(scalars, max_size=2))
keys = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True).filter(
    lambda k: k not in ("hydra", "defaults", "seed")
)
trees = st.dictionaries(
    keys, st.one_of(leaves, st.dictionaries(keys, leaves, max_size=2)), max_size=3
)


@given(tree=trees, value=scalars)
@settings(max_examples=25, deadline=None)
def test_a_job_is_composed_to_what_was_resolved_when_it_was_planned(tmp_path_factory, tree, value):
    folder = tmp_path_factory.mktemp("config")
    config = OmegaConf.to_yaml(OmegaConf.create({**tree, "here": {"key": 1}}))
    (folder / "it.yaml").write_text(config)
    [planned] = launch.resolve(training(config), [(("here.key", value),)])
    tokens = [hydra_override("here.key", value), "++seed=5"]
    with hydra_aside(), initialize_config_dir(str(folder), version_base="1.3"):
        assert canonical(compose("it", overrides=tokens), "seed") == planned


def test_numbers_are_read_as_yaml_1_2_does():
    assert resolved("lr: 1e-3")["lr"] == 1e-3


def test_an_interpolated_key_moves_along_and_is_seen_to():
    assert resolved("{lr: 0.1, clip: '${lr}'}", ("lr", 0.2)) == {"lr": 0.2, "clip": 0.2}


def test_what_is_derived_from_the_seed_does_not_tell_trials_apart():
    config = OmegaConf.create({"seed": 1, "data": {"seed": "${seed}"}, "lr": 0.1})
    other = OmegaConf.create({"seed": 2, "data": {"seed": "${seed}"}, "lr": 0.1})
    assert canonical(config, "seed") == canonical(other, "seed")
    assert json.loads(canonical(config, "seed")) == {"data": {"seed": 0}, "lr": 0.1}


def test_a_seed_deep_in_the_config_is_left_out_alone():
    config = OmegaConf.create({"run": {"seed": 1, "epochs": 3}})
    assert json.loads(canonical(config, "run.seed")) == {"run": {"epochs": 3}}


def test_what_differs_from_job_to_job_anyway_is_kept_as_text():
    config = {"out": "${hydra:runtime.output_dir}/x", "at": "${now:%H}", "save": "${out}/y"}
    found = json.loads(canonical(OmegaConf.create(config), "seed"))
    assert found["save"] == "$(hydra:runtime.output_dir}/x/y"


def test_an_unknown_key_names_the_nearest_and_all_mistakes_are_told_at_once():
    with pytest.raises(OrchestratorError) as caught:
        launch.resolve(
            training("optimizer: {lr: 0.1}"),
            [(("optimizer.rl", 0.2),), (("optim.lr", 0.3),), ()],
        )
    assert "no key 'optimizer.rl'" in str(caught.value)
    assert "did you mean 'optimizer.lr'?" in str(caught.value)
    assert "no key 'optim.lr'" in str(caught.value)


def test_a_section_is_not_replaced_by_a_value():
    with pytest.raises(OrchestratorError, match="no key 'optimizer'"):
        resolved("optimizer: {lr: 0.1}", ("optimizer", "sgd"))


def test_a_key_set_to_null_in_the_baseline_exists():
    assert resolved("clip: null", ("clip", 1.0)) == {"clip": 1.0}


def test_a_key_that_hydra_cannot_spell_is_refused():
    with pytest.raises(OrchestratorError, match="Hydra cannot read"):
        resolved("{learning rate: 0.1}", ("learning rate", 0.2))


def test_a_section_that_hydra_keeps_for_itself_is_refused():
    with pytest.raises(OrchestratorError, match="top-level key 'defaults'"):
        resolved("{defaults: {lr: 0.1}}")


def test_a_broken_interpolation_is_the_users_mistake():
    with pytest.raises(OrchestratorError, match=r"cannot be resolved.*'nothing'"):
        resolved("{lr: '${nothing}'}")


def test_differences_name_keys_and_values():
    assert differences('{"a": 1, "b": 2}', '{"a": 3, "c": 2}') == (
        "a was 1 and is 3; b was 2 and is 'absent'; c was 'absent' and is 2"
    )
