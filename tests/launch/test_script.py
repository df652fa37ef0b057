"""A Hydra app that knows nothing of us."""

from dataclasses import replace
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from orchestrator import launch
from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Status

APP = """
    from dataclasses import dataclass, field

    import hydra
    from hydra.core.config_store import ConfigStore
    from omegaconf import DictConfig, OmegaConf

    OmegaConf.register_new_resolver("twice", lambda x: 2 * x, replace=True)

    @dataclass
    class Optimizer:
        lr: float = 0.1
        decay: float = "${twice:${.lr}}"

    @dataclass
    class Config:
        seed: int = 0
        optimizer: Optimizer = field(default_factory=Optimizer)
        save: str = "${hydra:runtime.output_dir}/model.pt"
        today: str = "${now:%H%M%S%f}"
        mode: str = "fine"

    ConfigStore.instance().store(name="app", node=Config)

    @hydra.main(version_base=None, config_name="app")
    def main(config: DictConfig):
        print("trains with", config.seed)
        if config.mode == "raise":
            raise ArithmeticError("does not add up")
        if config.mode == "exit":
            raise SystemExit
        open(config.save, "w").close()
        return config.optimizer.decay + config.seed

    if __name__ == "__main__":
        main()
"""


@pytest.fixture
def app(bench):
    def make(program: str = APP, **changes):
        it = bench(program, "{seed: 0}", kind="script", target="program.py", **changes)
        config = launch.baseline_config(it.campaign.training)
        it.campaign = replace(it.campaign, training=replace(it.campaign.training, config=config))
        return it

    return make


def test_the_apps_own_config_is_asked_for_with_its_interpolations(app):
    config = OmegaConf.create(app().campaign.training.config)
    assert OmegaConf.to_container(config, resolve=False) == {
        "seed": 0,
        "optimizer": {"lr": 0.1, "decay": "${twice:${.lr}}"},
        "save": "${hydra:runtime.output_dir}/model.pt",
        "today": "${now:%H%M%S%f}",
        "mode": "fine",
    }


@pytest.mark.parametrize("launcher", ["isolated", "basic"])
def test_an_unmodified_app_is_run_as_a_trial(app, launcher):
    it = app(launcher=launcher, attempts=1)
    planned = it.trials(
        ((), 3), ((("optimizer.lr", 0.5),), 4), ((("mode", "raise"),), 1), ((("mode", "exit"),), 1)
    )
    fine, other, raised, left = it.run(*planned)
    assert fine.status is other.status is Status.DONE
    assert fine.metrics == {"val/loss": 3.2}
    assert other.metrics == {"val/loss": 5.0}
    assert raised.status is Status.FAILED
    assert raised.reason.startswith("ArithmeticError: does not add up")
    assert "never logged" in left.reason
    assert Path(planned[0].folder, "app", "model.pt").exists()


def test_each_arm_is_resolved_by_the_app_itself(app):
    training = app().campaign.training
    plain, faster = launch.resolve(training, [(), (("optimizer.lr", 0.5),)])
    assert '"decay": 0.2' in plain
    assert '"decay": 1.0' in faster
    assert "seed" not in faster


def test_a_value_that_the_apps_schema_refuses_is_told_before_anything_runs(app):
    with pytest.raises(OrchestratorError, match=r"refuses.*'optimizer.lr': 'fast'.*could not be"):
        launch.resolve(app().campaign.training, [(("optimizer.lr", "fast"),)])


def test_an_app_without_the_seed_key_says_to_set_it(app):
    it = app(seed_key="random_seed")
    with pytest.raises(OrchestratorError, match=r"set train.seed_key; did you mean 'seed'"):
        it.trial()


def test_a_script_that_is_no_hydra_app_is_told_apart(bench):
    it = bench("print('hello')", kind="script", target="program.py")
    with pytest.raises(OrchestratorError, match=r"never called a function under @hydra.main"):
        launch.baseline_config(it.campaign.training)


def test_a_script_that_breaks_while_it_is_imported_says_why(bench):
    it = bench("import nowhere_to_be_found", kind="script", target="program.py")
    with pytest.raises(OrchestratorError, match="ModuleNotFoundError: No module named 'nowhere_to"):
        launch.baseline_config(it.campaign.training)


def test_a_plain_program_may_use_hydra_itself(bench):
    program = """
        from hydra import compose, initialize_config_dir

        def main(config):
            with initialize_config_dir(config.folder, version_base=None):
                return compose("extra").value + config.lr
    """
    for launcher in ("basic", "isolated"):
        it = bench(program, "{lr: 0.5, folder: ''}", launcher=launcher)
        (it.folder / "extra.yaml").write_text("value: 2")
        first, second = it.run(*(it.trial((("folder", str(it.folder)),), s) for s in (1, 2)))
        assert first.metrics == second.metrics == {"val/loss": 2.5}, first.reason
