"""Which column is taken for which series, given all columns of a log together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from orchestrator.errors import OrchestratorError, nearest
from orchestrator.nouns import Direction
from orchestrator.telemetry.names import canonical
from orchestrator.telemetry.readers import naming
from orchestrator.telemetry.readers.table import Column

_SUMMARY = re.compile(r"(?:best|final|target|min|max|lowest|highest|last)(?:[_\s.\-/]|$)", re.I)
_ADVERSARIAL = re.compile(
    r"(?:^|_)(?:gen|generator|disc|discriminator|critic|g|d)_loss|loss_?(?:g|d|gen|disc|critic)(?:_|$)"
    r"|(?:generator|discriminator)"
)
_EVALUATORS = ("metrics/", "bbox/", "segm/", "keypoints/", "coco/", "pascal_voc/")
"""Prefixes under which YOLO, detectron2 and mmdetection log what they measured in validation."""

_FEW = 0.1
"""A column with under this share of a rival's points wins no role, however surely it is spelt."""


@dataclass(slots=True)
class Roles:
    """Result of `assign`: series -> column; series -> columns to be added up; the axis columns."""

    columns: dict[str, str] = field(default_factory=dict)
    sums: dict[str, tuple[str, ...]] = field(default_factory=dict)
    step: str | None = None
    epoch: str | None = None
    index: str | None = None
    is_adversarial: bool = False
    val_is_test: bool = False
    substitute: str = ""
    warnings: list[str] = field(default_factory=list)


def assign(
    columns: Mapping[str, Column], mapping: Mapping[str, str], *, bare_is_train: bool
) -> Roles:
    """Give each column a role: by the user's `mapping`, else by its name and its neighbours' names.

    `bare_is_train`: the format writes training metrics without a prefix (Keras).
    """
    wanted = _resolve(mapping, columns)
    roles = Roles()
    _find_axes(roles, columns, wanted)
    axes = {roles.step, roles.epoch, roles.index}
    rest = {n: c for n, c in columns.items() if n not in axes and n not in wanted.values()}
    claims = _claims(rest, bare_is_train=bare_is_train)
    roles.columns = _settle(claims, rest, wanted)
    roles.is_adversarial = any(_ADVERSARIAL.search(naming.normal(name)) for name in rest)
    _take_test_for_validation(roles, columns)
    for split in ("train", "val"):
        _complete_loss(roles, split, columns)
    return roles


def _resolve(mapping: Mapping[str, str], columns: Mapping[str, Column]) -> dict[str, str]:
    """The user's mapping with our role names and the file's own column names."""
    loose = {naming.normal(name): name for name in reversed(list(columns))}
    found = {}
    for role, name in mapping.items():
        column = name if name in columns else loose.get(naming.normal(name))
        if column is None:
            problem = f"map {role}={name}: the log has no column of numbers called {name!r}"
            raise OrchestratorError(problem, nearest(name, columns))
        found[canonical(role)] = column
    return found


def _find_axes(roles: Roles, columns: Mapping[str, Column], wanted: Mapping[str, str]) -> None:
    free = [name for name in columns if name not in wanted.values()]
    roles.step = wanted.get("step") or _ranked(free, naming.STEP_NAMES, columns)
    roles.epoch = wanted.get("epoch") or _ranked(free, naming.EPOCH_NAMES, columns)
    for name in free:
        first = columns[name].values[:1]
        if naming.normal(name) in naming.INDEX_NAMES and first.size and first[0] in (0.0, 1.0):
            roles.index = name
            return


def _ranked(
    names: list[str], table: tuple[tuple[str, ...], ...], columns: Mapping[str, Column]
) -> str | None:
    """The surest axis column. One of plural name that falls counts nothing."""
    found = []
    for order, name in enumerate(names):
        rank = naming.rank_in(name, table)
        values = columns[name].values
        if rank is None:
            continue
        if naming.normal(name) == "epochs" and (np.diff(values) < 0).any():
            continue
        found.append((len(values) < _FEW * max(map(len, columns.values())), rank, order, name))
    return min(found)[-1] if found else None


Claim = tuple[str, int, str]
"""(role, rank, column): smaller ranks win."""


def _claims(columns: Mapping[str, Column], *, bare_is_train: bool) -> list[Claim]:
    apart = {name: naming.take_apart(name) for name in columns}
    splits = {split for split, _ in apart.values()}
    twins = {naming.normal(rest) for split, rest in apart.values() if split == "val"}
    claims = []
    for name, (split, rest) in apart.items():
        if naming.normal(name) in naming.EXACT:
            claims.append((naming.EXACT[naming.normal(name)], 0, name))
            continue
        if not split:
            split, rest = _implied_split(
                name, is_twin=bare_is_train or naming.normal(name) in twins, splits=splits
            )
        claims.append((*_role(split, rest, name), name))
    return claims


def _implied_split(name: str, *, is_twin: bool, splits: set[str]) -> tuple[str, str]:
    """Split of a bare name, or "": an evaluator's, a twin of `val_...`, a loss, a lone metric."""
    for prefix in _EVALUATORS:
        if name.strip().startswith(prefix):
            return "val", name.strip().removeprefix("metrics/")
    if _SUMMARY.match(name.strip()) or _is_ours(name):
        return "", name
    if is_twin or naming.is_loss(name) or (naming.quantity(name) or ("",))[0] == "loss":
        return "train", name
    if naming.direction_of(name) is Direction.MAX and {"train", "val"} <= splits:
        return "val", name
    return ("train", name) if naming.quantity(name) and "val" not in splits else ("", name)


def _is_ours(name: str) -> bool:
    """Whether the name stands for a quantity of the training itself, which has no split."""
    known = naming.quantity(name)
    return naming.lr_group(name) is not None or (known or ("",))[0] in ("grad_norm", "loss_scale")


def _role(split: str, rest: str, name: str) -> tuple[str, int]:
    group = naming.lr_group(rest)
    if group is not None and split in ("", "train"):
        return (f"lr/{group}" if group else "lr"), 0
    known = naming.quantity(rest)
    if known and known[0] in ("grad_norm", "loss_scale") and split in ("", "train"):
        return known
    if known and split:
        return f"{split}/{known[0]}", known[1]
    return (_written(split, rest) if split and rest.strip() else name.strip()), 0


def _written(split: str, rest: str) -> str:
    rest = rest.strip().removeprefix("epoch_")
    return f"{split}/{'_'.join(rest.split())}"


def _settle(
    claims: list[Claim], columns: Mapping[str, Column], wanted: Mapping[str, str]
) -> dict[str, str]:
    """One column per role, the `wanted` one first; a column that loses keeps its own name."""
    rivals: dict[str, list[tuple[int, int, str]]] = {}
    for order, (role, rank, name) in enumerate(claims):
        rivals.setdefault(role, []).append((rank, order, name))
    settled = {role: name for role, name in wanted.items() if role not in ("step", "epoch")}
    losers = []
    for role, candidates in rivals.items():
        most = max(len(columns[name]) for _, _, name in candidates)
        ranked = sorted(
            candidates,
            key=lambda c: (len(columns[c[2]]) < _FEW * most, c[0], -len(columns[c[2]]), c[1]),
        )
        losers += [name for _, _, name in ranked if settled.setdefault(role, name) != name]
    for name in losers:
        split, rest = naming.take_apart(name)
        role = _written(split or "train", rest)
        if role == "train/loss" and _is_probe(name, columns, settled):
            role = "probe/loss"
        settled[role if role not in settled else name] = name
    return settled


def _is_probe(name: str, columns: Mapping[str, Column], settled: Mapping[str, str]) -> bool:
    """Whether a train loss was measured with each validation loss, as nanoGPT does in eval mode."""
    if "val/loss" not in settled:
        return False
    return np.array_equal(columns[name].rows, columns[settled["val/loss"]].rows)


def _take_test_for_validation(roles: Roles, columns: Mapping[str, Column]) -> None:
    """A test set that was evaluated repeatedly, where no validation set was, is used as one."""
    tested = {r: c for r, c in roles.columns.items() if r.startswith("test/")}
    repeated = any(len(columns[c]) > 1 for c in tested.values())
    validated = [c for r, c in roles.columns.items() if r.startswith("val/")]
    if not repeated or any(len(columns[c]) > 1 for c in validated):
        return
    for role, column in tested.items():
        del roles.columns[role]
        roles.columns.setdefault("val/" + role.removeprefix("test/"), column)
    roles.val_is_test = True
    roles.warnings.append("no validation metrics: the test metrics are taken for them")


def _complete_loss(roles: Roles, split: str, columns: Mapping[str, Column]) -> None:
    """Find the loss of a split that has no column called so: a sum, or the one that must be it."""
    role = f"{split}/loss"
    if role in roles.columns or roles.is_adversarial:
        return
    own = {r: c for r, c in roles.columns.items() if r.startswith(f"{split}/")}
    named = {r: c for r, c in own.items() if _has_word_loss(r.split("/", 1)[1])}
    if len(named) > 1 and (split == "train" or "train/loss" in roles.sums):
        most = max(len(columns[c]) for c in named.values())
        whole = tuple(c for c in named.values() if len(columns[c]) == most)
        roles.sums[role] = whole
        roles.warnings.append(f"{role} is the sum of {', '.join(whole)}: no total was logged")
    elif named:
        chosen = next(iter(named))
        roles.columns[role] = roles.columns.pop(chosen)
        if len(named) > 1:
            others = ", ".join(repr(c) for c in list(named.values())[1:4])
            taken = f"{role} is taken from {roles.columns[role]!r}, the first of several"
            roles.warnings.append(f"{taken} (also {others})")
    else:
        _substitute(roles, split, own)


def _has_word_loss(rest: str) -> bool:
    return not _SUMMARY.match(rest) and any(t.endswith("loss") for t in naming.tokens(rest))


def _substitute(roles: Roles, split: str, own: Mapping[str, str]) -> None:
    """Take a squared error, a perplexity, ... for the loss, the same one in both splits.

    Not for validation if training has a loss of its own: then they are different quantities.
    """
    if split == "val" and "train/loss" in roles.columns and not roles.substitute:
        for word in naming.SUBSTITUTES:
            if f"val/{word}" in own:
                hint = f"map val_loss={own[f'val/{word}']} if it is the loss that is trained"
                roles.warnings.append(f"no validation loss; {hint}")
                return
        return
    words = (roles.substitute,) if roles.substitute else naming.SUBSTITUTES
    for word in words:
        found = next((r for r in own if word in naming.tokens(r.split("/", 1)[1])), None)
        if found:
            roles.columns[f"{split}/loss"] = roles.columns.pop(found)
            roles.substitute = word
            taken = f"{split}/loss is taken from {roles.columns[f'{split}/loss']!r}"
            roles.warnings.append(f"{taken}: no column is called loss")
            return
