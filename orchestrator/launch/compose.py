"""From overrides to configs: spelling, checking and resolving what an arm or a trial sets."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.core.singleton import Singleton
from hydra.errors import HydraException
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from orchestrator.errors import OrchestratorError, collect, nearest
from orchestrator.nouns import Overrides, Scalar, Training

RESERVED = ("hydra", "defaults")  # top-level keys that mean something to Hydra itself
VOLATILE = re.compile(r"\$\{\s*(hydra|now)\s*:")  # differ from job to job without anyone's doing


def hydra_override(key: str, value: Scalar) -> str:
    """`key=value` in Hydra's grammar, so that it is read back as exactly this value."""
    if value is None:
        return f"{key}=null"
    if isinstance(value, bool):
        return f"{key}={str(value).lower()}"
    if isinstance(value, str):
        return f"{key}={QuotedString(value, Quote.single).with_quotes()}"
    return f"{key}={value!r}"


def canonical(config: DictConfig, seed_key: str) -> str:
    """The resolved config without its seed as JSON text with sorted keys: equal means the same.

    The seed is held at 0 while interpolations are resolved, so that what is derived from it is
    equal over seeds; `${hydra:...}` and `${now:...}` are kept as text.
    """
    tree = _inert(OmegaConf.to_container(config, resolve=False, enum_to_str=True))
    fixed = OmegaConf.create(tree)
    OmegaConf.update(fixed, seed_key, 0, force_add=True)
    resolved = OmegaConf.to_container(fixed, resolve=True)
    *sections, last = seed_key.split(".")
    node: Any = resolved
    for section in sections:
        node = node[section]
    del node[last]
    return json.dumps(resolved, sort_keys=True, default=str)


def _inert(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {str(key): _inert(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_inert(value) for value in tree]
    if isinstance(tree, str) and VOLATILE.search(tree):
        return tree.replace("${", "$(")
    return tree


def differences(expected: str, found: str) -> str:
    """Which keys of two canonical configs differ, with both values; at most five are told."""
    old, new = dict(_leaves(json.loads(expected))), dict(_leaves(json.loads(found)))
    keys = [k for k in sorted(old.keys() | new.keys()) if old.get(k, ...) != new.get(k, ...)]
    told = [f"{k} was {old.get(k, 'absent')!r} and is {new.get(k, 'absent')!r}" for k in keys[:5]]
    return "; ".join(told)


def resolve_call(training: Training, overrides: Sequence[Overrides]) -> tuple[str, ...]:
    """The canonical config of each override tuple, for a program that gets its config from us."""
    config = OmegaConf.create(training.config)
    assert isinstance(config, DictConfig)
    collect(
        OrchestratorError(
            f"train.config.{key}: Hydra keeps the top-level key {key!r} for itself.",
            "give that section another name",
        )
        for key in RESERVED
        if key in config
    )
    return tuple(_with(config, training.seed_key, each) for each in overrides)


def _with(config: DictConfig, seed_key: str, overrides: Overrides) -> str:
    changed = config.copy()
    try:
        for key, value in overrides:
            OmegaConf.update(changed, key, value, merge=True)
        return canonical(changed, seed_key)
    except OmegaConfBaseException as error:
        text = " ".join(str(error).split())
        raise OrchestratorError(
            f"train.config with {dict(overrides)} cannot be resolved: {text}",
            "mend the interpolation or the value",
        ) from None


def check_overrides(training: Training, overrides: Sequence[Overrides]) -> None:
    """Raise one error for every key that the baseline's config lacks, or that Hydra cannot read.

    Nothing is ever added silently: an arm that set a new key would change nothing in the program.
    """
    tree = OmegaConf.to_container(OmegaConf.create(training.config), resolve=False)
    valid = dict(_leaves(tree))
    if training.kind == "script":
        valid |= dict(_sections(tree))  # a config group is chosen by the section's own key
    pairs = dict.fromkeys(pair for each in overrides for pair in each)
    collect(mistake for key, value in pairs for mistake in _mistakes(key, value, valid))
    if training.kind == "script" and training.seed_key not in valid:
        raise OrchestratorError(
            f"the config of {training.target} has no seed under train.seed_key="
            f"{training.seed_key!r}.",
            f"set train.seed_key; {nearest(training.seed_key, valid)}",
        )


def _mistakes(key: str, value: Scalar, valid: dict[str, Any]) -> Iterator[OrchestratorError]:
    if key not in valid:
        yield OrchestratorError(
            f"{key}={value!r}: the baseline's config has no key {key!r}.", nearest(key, valid)
        )
        return
    token = hydra_override(key, value)
    try:
        parsed = OverridesParser.create().parse_override(token)
        same = parsed.key_or_group == key and parsed.package is None
    except HydraException:
        same = False
    if not same:
        yield OrchestratorError(
            f"{token}: Hydra cannot read this override.",
            "rename the key: letters, digits, _ and -, sections separated by dots",
        )


def _leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(tree, dict):
        yield prefix.removesuffix("."), tree
        return
    for name, value in tree.items():
        yield from _leaves(value, f"{prefix}{name}.")


def _sections(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield f"{prefix}{name}", value
            yield from _sections(value, f"{prefix}{name}.")


@contextmanager
def hydra_aside() -> Iterator[None]:
    """Code that uses Hydra itself, inside or outside a Hydra job, as if it were the first to.

    GlobalHydra refuses a second user, and the version base chosen by one would hold for the other.
    """
    saved = dict(Singleton._instances)
    for kind in (GlobalHydra, VersionBase):
        Singleton._instances.pop(kind, None)
    try:
        yield
    finally:
        for kind in (GlobalHydra, VersionBase):
            Singleton._instances.pop(kind, None)
            if kind in saved:
                Singleton._instances[kind] = saved[kind]
