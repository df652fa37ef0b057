"""A sweep's configs are those that Hydra composes, to the last key."""

from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from orchestrator.launch.sweep import Sweep

CONFIG = """
defaults: [_self_, model: small]
lr: 0.1
warmup: null
name: "lr-${lr}"
where: ${hydra:sweep.subdir}
stamp: ${now:%f}
layers: [1, 2]
optimizer: {name: sgd, betas: {first: 0.9}}
"""


@pytest.fixture
def master(tmp_path: Path):
    (tmp_path / "model").mkdir()
    (tmp_path / "conf.yaml").write_text(CONFIG)
    (tmp_path / "model" / "small.yaml").write_text("width: 8")
    (tmp_path / "model" / "large.yaml").write_text("width: 64")
    with initialize_config_dir(str(tmp_path), version_base="1.3", job_name="conf"):
        words = ["hydra.output_subdir=null", "hydra.sweep.dir='/tmp/some where'", "lr=0.5"]
        yield compose("conf", overrides=words, return_hydra_config=True)


def plain(config: DictConfig) -> object:
    return OmegaConf.to_container(config, resolve=False)


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["lr=0.2", "++seed=3", "hydra.sweep.subdir=a1"],
        ["optimizer.betas.first=0.5", "optimizer.name='a, b'", "warmup=3"],
        ["lr='${optimizer.betas.first}'", "name=1e5"],
        ["layers=[3]", "optimizer={name: adam}", "+more.of.it=true"],
        ["~optimizer", "lr=null"],
        ["model=large", "lr=0.3"],
        ["model=large", "model.width=3"],
        ["hydra.job.name=other", "hydra.job.config.override_dirname.kv_sep=':'", "lr=3"],
        ["hydra/job_logging=none", "lr=1e-3"],
        ["lr=1", "lr=2"],
    ],
    ids=" ".join,
)
def test_each_config_is_what_hydra_composes(master, overrides):
    loader = GlobalHydra.instance().config_loader()
    sweep = Sweep(loader, master)
    sweep.config(["lr=99.0", "++seed=99", "optimizer.name=other"])  # leaves nothing behind
    for _ in range(2):
        expected, found = loader.load_sweep_config(master, overrides), sweep.config(overrides)
        assert plain(found) == plain(expected)
        assert OmegaConf.get_cache(found) == OmegaConf.get_cache(master)
        with pytest.raises(Exception, match="is not in struct"):
            found.unknown  # noqa: B018


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["rl=0.2"], "Could not override 'rl'"),
        (["+lr=0.2"], "An item is already at 'lr'"),
        (["~momentum"], "does not exist"),
        (["lr=0.2", "model=huge"], "Could not find 'model/huge'"),
        (["lr=[1"], "LexerNoViableAltException|missing|no viable|mismatched"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_told_as_hydra_tells_them(master, overrides, reason):
    loader = GlobalHydra.instance().config_loader()
    with pytest.raises(HydraException, match=reason):
        loader.load_sweep_config(master, overrides)
    with pytest.raises(HydraException, match=reason):
        Sweep(loader, master).config(overrides)
