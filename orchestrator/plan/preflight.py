"""One variable differs: checked on resolved configs before anything is launched."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.errors import OrchestratorError, collect
from orchestrator.nouns import Ablation, Arm, Overrides, Plan, Training

Resolve = Callable[[Sequence[Overrides]], tuple[str, ...]]
"""The canonical JSON of the resolved config under each tuple of overrides."""

ABSENT = "(absent)"


def freeze(plan: Plan, training: Training, resolve: Resolve) -> Plan:
    """The plan with every arm's resolved config, after checking that one variable differs.

    Every arm must differ from the baseline in its factor's key, and in nothing else but the keys
    declared under `moves_with`: `clip: ${optimizer.lr}` moves with the learning rate. All
    violations are told at once.
    """
    arms = [arm for ablation in plan.ablations for arm in ablation.arms]
    configs = resolve([plan.baseline.overrides, *(arm.overrides for arm in arms)])
    resolved = dict(zip([id(arm) for arm in arms], configs[1:], strict=True))
    baseline = replace(plan.baseline, config=configs[0])
    ablations = []
    for ablation in plan.ablations:
        filled = tuple(replace(arm, config=resolved[id(arm)]) for arm in ablation.arms)
        ablations.append(replace(ablation, arms=filled))
    collect(e for ablation in ablations for e in _violations(baseline, ablation, training))
    return replace(plan, baseline=baseline, ablations=tuple(ablations))


def diff(a: str, b: str) -> tuple[tuple[str, str, str], ...]:
    """(dotted key, value in `a`, value in `b`) wherever two canonical configs differ, as JSON text.

    Numbers are compared as numbers: 1 and 1.0 are the same. A key that is missing is `(absent)`.
    """
    old, new = dict(_leaves(json.loads(a))), dict(_leaves(json.loads(b)))
    changed = [k for k in sorted(old.keys() | new.keys()) if not _same(k, old, new)]
    return tuple((k, _told(k, old), _told(k, new)) for k in changed)


def _violations(
    baseline: Arm, ablation: Ablation, training: Training
) -> Iterator[OrchestratorError]:
    factor = ablation.factor
    if _within(training.seed_key, factor.key):
        yield OrchestratorError(
            f"factors.{factor.name}: {factor.key} is the seed ({training.seed_key}), which every "
            "arm shares with the baseline.",
            f"remove factors.{factor.name}",
        )
        return
    seen: dict[str, str] = {baseline.config: "the baseline"}
    for arm in ablation.arms:
        changes = diff(baseline.config, arm.config)
        others = [c for c in changes if not any(_within(c[0], k) for k in _allowed(ablation))]
        if others:
            yield _confounded(arm, ablation, others)
        elif not any(_within(key, factor.key) for key, _, _ in changes):
            yield OrchestratorError(
                f"arm {arm.name!r} was to change {factor.key}, but its resolved config is that of "
                f"{seen.get(arm.config, 'the baseline')}.",
                f"is {factor.key} set again further on, or is the level the baseline's own? "
                f"mend the config, or factors.{factor.name}.levels",
            )
        elif arm.config in seen:
            yield OrchestratorError(
                f"arms {arm.name!r} and {seen[arm.config]!r} have the same resolved config.",
                f"remove one of them from factors.{factor.name}.levels",
            )
        seen.setdefault(arm.config, arm.name)


def _confounded(
    arm: Arm, ablation: Ablation, others: Sequence[tuple[str, str, str]]
) -> OrchestratorError:
    factor = ablation.factor
    told = ", ".join(f"{key} ({old} -> {new})" for key, old, new in others)
    keys = ", ".join(key for key, _, _ in others)
    return OrchestratorError(
        f"arm {arm.name!r} was to change only {factor.key}, but also changes {told}.",
        f"pin {keys} in the baseline, or declare it under factors.{factor.name}.moves_with.",
    )


def _allowed(ablation: Ablation) -> tuple[str, ...]:
    return (ablation.factor.key, *ablation.factor.moves_with)


def _within(key: str, section: str) -> bool:
    """Whether a key is the section's own or lies in it: a config group changes a whole section."""
    return key == section or key.startswith(section + ".")


def _leaves(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Values that are no sections, by dotted key; lists are values, and so is an empty section."""
    if isinstance(tree, dict) and tree:
        for name, value in tree.items():
            yield from _leaves(value, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield prefix, tree


def _same(key: str, old: dict[str, Any], new: dict[str, Any]) -> bool:
    if key not in old or key not in new:
        return False
    a, b = old[key], new[key]
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _told(key: str, values: dict[str, Any]) -> str:
    return json.dumps(values[key]) if key in values else ABSENT
