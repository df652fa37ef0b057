"""What Keras's CSVLogger writes: one row per epoch, train metrics bare, the others `val_`."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from orchestrator.telemetry.readers.delimited import read_table, sniff_shape
from orchestrator.telemetry.readers.log import Raw
from orchestrator.telemetry.readers.registry import reader


def _sniff(head: bytes, _: Path) -> float:
    """Keras sorts names behind `epoch`; old versions and imitators have a twin for each name."""
    shape = sniff_shape(head)
    if shape is None or "loss" not in shape.names or len(shape.names) < 3:
        return 0.0
    if "epoch" in shape.names[1:] or not all(re.fullmatch(r"\w+", n) for n in shape.names):
        return 0.0
    metrics = [name for name in shape.names if name != "epoch"]
    is_sorted = shape.names[0] == "epoch" and metrics == sorted(metrics)
    train = {name for name in metrics if not name.startswith("val_") and name not in _RATES}
    twins = {name.removeprefix("val_") for name in metrics if name.startswith("val_")}
    return 0.8 if is_sorted or (twins and train == twins) else 0.0


_RATES = ("lr", "learning_rate")


@reader("keras_csv", sniff=_sniff)
def read(path: Path) -> Raw:
    """A table whose bare columns were measured on the training set."""
    return replace(read_table(path), bare_is_train=True)
