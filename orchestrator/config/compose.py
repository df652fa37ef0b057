"""exp.yaml, conf/ groups and command-line overrides -> one composed config.

Order of precedence, weakest first: conf/ groups, exp.yaml, groups chosen on the command line,
single keys on the command line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, EnumNode, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from orchestrator.config.schema import CampaignConfig, field_names
from orchestrator.errors import OrchestratorError, collect, nearest

GROUPS = {"budget": "standard", "protocol": "standard"}

RENAMED = {
    "protocol.seeds": "write protocol.looks, the numbers of seeds at which to judge: [3,5,7,10] "
    "stops as soon as it can, [5] is a fixed design of 5 seeds"
}
"""What somebody may well write, and what it is called here."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The command line after the verb, by kind."""

    conf: Path
    overrides: tuple[str, ...]
    launcher_overrides: tuple[str, ...]


def parse_tokens(tokens: Sequence[str]) -> Tokens:
    """Split `conf=`, `hydra/launcher=` and `hydra.launcher.*`, and our own overrides."""
    confs = [t.removeprefix("conf=") for t in tokens if t.startswith("conf=")]
    if len(confs) != 1:
        raise OrchestratorError(
            f"{len(confs)} conf=... tokens given, one is needed.",
            "name your campaign file: conf=path/to/exp.yaml",
        )
    hydra = tuple(t for t in tokens if t.lstrip("+~").startswith("hydra."))
    ours = [t for t in tokens if t not in hydra and not t.startswith("conf=")]
    ours = [re.sub(r"^hydra/launcher=", "launcher=", t) for t in ours]
    for token in ours:
        if "=" not in token and not token.startswith("~"):
            raise OrchestratorError(f"{token!r} is no override.", "write key=value")
    return Tokens(_campaign_file(confs[0]), tuple(ours), hydra)


def _campaign_file(text: str) -> Path:
    path = Path(text).expanduser()
    if path.is_dir():
        path = path / "exp.yaml"
    candidates = [path, path.with_suffix(".yaml"), path.with_suffix(".yml")]
    for candidate in candidates:
        if candidate.is_file():
            return candidate.resolve()
    folder = path.parent
    there = [p.name for p in sorted(folder.glob("*.y*ml"))] if folder.is_dir() else []
    raise OrchestratorError(
        f"conf={text}: there is no such file.",
        f"campaign files in {folder}: {', '.join(there) or 'none'}",
    )


def conf_folder() -> Path:
    """Where the config groups lie: inside the installed package, or beside it in a clone."""
    package = Path(__file__).parent.parent
    return package / "conf" if (package / "conf").is_dir() else package.parent / "conf"


def composed(tokens: Tokens) -> DictConfig:
    """The whole config as OmegaConf checked it; interpolations are left as they are."""
    exp = _load(tokens.conf)
    collect([*_unknown_keys(exp), *_unknown_overrides(tokens.overrides)])
    chosen = [t.split("=", 1)[0] for t in tokens.overrides if t.split("=", 1)[0] in GROUPS]
    defaults: list[Any] = ["schema", "base"]
    defaults += [{g: choice} for g, choice in GROUPS.items() if g not in chosen]
    defaults += ["_self_", *({g: GROUPS[g]} for g in chosen)]
    store = ConfigStore.instance()
    store.store(name="schema", node=CampaignConfig)
    store.store(
        name="campaign", node={"name": tokens.conf.parent.name, **exp, "defaults": defaults}
    )
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(str(conf_folder()), version_base="1.3"):
            return compose("campaign", overrides=list(tokens.overrides))
    except (HydraException, OmegaConfBaseException) as error:
        cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
        text = " ".join(str(cause).split())
        raise OrchestratorError(
            f"{tokens.conf.name} with {list(tokens.overrides)}: {text}", "mend that key"
        ) from None


def _load(path: Path) -> dict[str, Any]:
    try:
        loaded = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    except Exception as error:  # yaml and omegaconf raise many kinds, each of them the user's text
        text = " ".join(str(error).split())
        raise OrchestratorError(f"{path} is not valid YAML: {text}", "mend it there") from None
    if not isinstance(loaded, dict) or not loaded:
        raise OrchestratorError(
            f"{path} is not a mapping of keys.", "begin with train:, factors: and metric:"
        )
    monitor = loaded.get("monitor")
    if isinstance(monitor, dict) and monitor.get("level") is False:
        monitor["level"] = "off"  # which YAML reads as a boolean
    return {str(k): v for k, v in loaded.items()}


def _unknown_keys(exp: dict[str, Any]) -> Iterator[OrchestratorError]:
    """All keys of exp.yaml that the schema lacks and all values it refuses, not only the first."""
    schema = OmegaConf.structured(CampaignConfig)
    for key, value in _leaves(exp):
        names = key.split(".")
        node, valid = schema, field_names(CampaignConfig)
        for depth, name in enumerate(names):
            if name not in valid:
                where = ".".join([*names[:depth], ""])
                yield OrchestratorError(
                    f"unknown key {where}{name} (value {value!r}).",
                    RENAMED.get(f"{where}{name}", nearest(name, valid)),
                )
                break
            node = node._get_node(name)
            valid = [str(k) for k in node] if isinstance(node, DictConfig) else []
        else:
            yield from _refused(schema, key, value)


def _leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and key not in ("train.config", "factors"):
            yield from _leaves(value, f"{key}.")
        else:
            yield key, value


def _refused(schema: DictConfig, key: str, value: Any) -> Iterator[OrchestratorError]:
    if isinstance(value, str) and "${" in value:
        return
    try:
        OmegaConf.update(schema, key, value)
    except OmegaConfBaseException as error:
        text = str(error).splitlines()[0]
        kind = _kind(schema, key)
        remedy = nearest(str(value), kind.__members__) if kind else "give a value of that kind"
        yield OrchestratorError(f"{key}={value!r}: {text}", remedy)


def _kind(schema: DictConfig, key: str) -> type[Enum] | None:
    """The Enum that the value of `key` is one of, if it is."""
    parent, _, name = key.rpartition(".")
    node = (OmegaConf.select(schema, parent) if parent else schema)._get_node(name)
    return node.enum_type if isinstance(node, EnumNode) else None


def _unknown_overrides(overrides: Sequence[str]) -> Iterator[OrchestratorError]:
    for token in overrides:
        key = token.lstrip("+~").partition("=")[0]
        if key in RENAMED:
            yield OrchestratorError(f"unknown key {key} in {token!r}.", RENAMED[key])
        name = re.split(r"[.=@]", token.lstrip("+~"), maxsplit=1)[0]
        if name not in field_names(CampaignConfig):
            valid = [*field_names(CampaignConfig), "hydra/launcher"]
            yield OrchestratorError(f"unknown key {name} in {token!r}.", nearest(name, valid))
