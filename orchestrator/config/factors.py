"""The factors of exp.yaml, checked against the training's own config."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from orchestrator import nouns
from orchestrator.config.schema import FactorConfig, field_names
from orchestrator.errors import OrchestratorError, nearest


def read_factors(
    given: DictConfig, training: nouns.Training
) -> tuple[tuple[nouns.Factor, ...], list[OrchestratorError]]:
    """The factors of exp.yaml with their baselines, and every mistake in them."""
    tree = OmegaConf.create(training.config)
    assert isinstance(tree, DictConfig)  # the schema has seen to it
    keys = tuple(_leaves(tree))
    factors, mistakes = [], []
    if not given:
        mistakes.append(
            OrchestratorError(
                "factors is empty.", "map one: factors: {lr: <your learning-rate key>}"
            )
        )
    for name, wanted in given.items():
        try:
            factors.append(_factor(str(name), wanted, tree, keys))
        except OrchestratorError as error:
            mistakes.append(error)
    return tuple(factors), mistakes


def _factor(name: str, given: Any, tree: DictConfig, keys: Sequence[str]) -> nouns.Factor:
    short = {"key": given} if isinstance(given, str) else given
    try:
        long = OmegaConf.merge(OmegaConf.structured(FactorConfig), short)
        key = long.key
    except (OmegaConfBaseException, ValueError, TypeError) as error:
        text = str(error).splitlines()[0]
        raise OrchestratorError(
            f"factors.{name}={given}: {text}",
            f"write {name}: <key>, or a mapping with {', '.join(field_names(FactorConfig))}",
        ) from None
    for wanted in (key, *long.moves_with):
        if wanted not in keys:
            raise OrchestratorError(
                f"factors.{name}: the training's config has no key {wanted}.",
                nearest(wanted, keys),
            )
    baseline = _value(name, key, tree)
    if not isinstance(baseline, nouns.Scalar):
        raise OrchestratorError(
            f"factors.{name}: {key} holds {baseline!r}, which is no single value.", "map a leaf key"
        )
    levels = tuple(long.levels)
    if baseline in levels:
        raise OrchestratorError(
            f"factors.{name}.levels={list(levels)} holds the baseline {baseline!r}.",
            "leave it out: that arm changes nothing, and the baseline is always run",
        )
    return nouns.Factor(
        name=name,
        key=key,
        baseline=baseline,
        levels=levels,
        scale=nouns.Scale(long.scale.value),
        role=nouns.Role(long.role.value),
        moves_with=tuple(long.moves_with),
    )


def _value(name: str, key: str, tree: DictConfig) -> Any:
    """The baseline, interpolations resolved within the training's own config."""
    try:
        return OmegaConf.select(tree, key)
    except OmegaConfBaseException as error:
        text = str(error).splitlines()[0]
        raise OrchestratorError(
            f"factors.{name}: {key} cannot be resolved: {text}", "map a key that holds a value"
        ) from None


def _leaves(tree: DictConfig, prefix: str = "") -> Iterator[str]:
    """Dotted leaf keys; nothing is resolved, for a script's resolvers are its own."""
    for name in map(str, tree):
        node = tree._get_node(name)
        if isinstance(node, DictConfig) and not node._is_interpolation() and not node._is_none():
            yield from _leaves(node, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"
