"""Files with the right name and the wrong content: tables of trials, of items, of events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from orchestrator.telemetry.readers import naming
from orchestrator.telemetry.readers.log import Record, not_a_curve
from orchestrator.telemetry.readers.roles import Roles
from orchestrator.telemetry.readers.table import Column, texts_of

_HYPERPARAMETER = re.compile(
    r"(?:batch_?size|bs|dropout\w*|weight_decay|wd|momentum|d_model|n_?params|num_params|"
    r"(?:n|num)_?(?:layers|heads|units|blocks|estimators)|hidden\w*|embed\w*_?dim|units|depth|width|"
    r"patch_size|kernel_size|optimi[sz]er|activation|seed|warmup\w*|(?:params?|config|hparams?)_\w+|"
    r"lr|learning_rate)"
)
_TURNS = 0.15
"""A setting that turns in more than this share of the rows follows no schedule."""

_EVENTS, _MANY = 2, 10
"""If no series has more than so many values in so many rows or more, the rows are events."""

_NAMED = 12


def refuse_other_tables(
    path: Path,
    records: Sequence[Record],
    columns: Mapping[str, Column],
    roles: Roles,
    *,
    is_table: bool,
) -> None:
    """Raise if the rows are not the steps of a training."""
    curve = "give a log with one row per step or epoch"
    if is_table and roles.step is None and roles.epoch is None:
        if varied := _varied_hyperparameters(columns):
            seen = f"has one row per trial, not per step ({_listed(varied)} change from row to row)"
            raise not_a_curve(path, seen, f"{curve}: the log of one of these trials")
        if name := _item_names(records):
            raise not_a_curve(path, f"has one row per item of {name!r}, not per step", curve)
    measured = [role for role in (*roles.columns, *roles.sums) if is_measured(role)]
    if not measured:
        seen = f"has no column that is a loss or a metric by its name ({_listed(columns)})"
        hint = "say which is which: --map train_loss=NAME --map val_loss=NAME"
        raise not_a_curve(path, seen, f"{hint}, if it is a training log")
    most = max((len(columns[roles.columns[r]]) for r in measured if r in roles.columns), default=0)
    if is_table and len(records) >= _MANY and not roles.sums and most <= _EVENTS:
        seen = f"tells a loss or a metric in {most} of its {len(records)} rows: an event log?"
        raise not_a_curve(path, seen, curve)


def is_measured(role: str) -> bool:
    """Whether a series tells how the training goes, not only what was set or how long it took."""
    return (
        role.startswith(("train/loss", "val/loss"))
        or role == "grad_norm"
        or (naming.direction_of(role) is not None and not role.startswith("lr"))
    )


def _varied_hyperparameters(columns: Mapping[str, Column]) -> list[str]:
    """Two hyper-parameters or more that change, one of them up and down as no schedule does."""
    varied = []
    is_wild = False
    for name, column in columns.items():
        moves = np.sign(np.diff(column.values))
        moves = moves[moves != 0]
        if len(moves) and _HYPERPARAMETER.fullmatch(naming.normal(name)):
            varied.append(name)
            turns = int((np.diff(moves) != 0).sum())
            is_wild = is_wild or turns > _TURNS * len(column)
    return varied if is_wild and len(varied) > 1 else []


def _item_names(records: Sequence[Record]) -> str:
    """A column with another word in every row; dates and numbered names are no items."""
    for name, words in texts_of(records).items():
        numbered = sum(1 for word in words if re.search(r"\d", word))
        if len(words) == len(records) == len(set(words)) >= 2 and 2 * numbered < len(words):
            return name or "the first column"
    return ""


def _listed(names: Iterable[str]) -> str:
    shown = list(names)
    more = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    return ", ".join(repr(n[:60]) for n in shown[:_NAMED]) + more
