"""What YOLO trainers write (`results.csv`): padded names, the loss in parts without a total."""

from __future__ import annotations

from pathlib import Path

from orchestrator.telemetry.readers.delimited import read_table, sniff_shape
from orchestrator.telemetry.readers.log import Raw
from orchestrator.telemetry.readers.registry import reader

_MEASURED = "metrics/"


def _sniff(head: bytes, _: Path) -> float:
    shape = sniff_shape(head)
    if shape is None or "epoch" not in shape.names:
        return 0.0
    has_metrics = any(name.startswith(_MEASURED) for name in shape.names)
    has_losses = any(name.startswith("train/") and name.endswith("loss") for name in shape.names)
    return 0.9 if has_metrics and has_losses else 0.0


@reader("ultralytics_csv", sniff=_sniff)
def read(path: Path) -> Raw:
    """A table; `metrics/...` are measured on the validation set, each epoch."""
    return read_table(path)
