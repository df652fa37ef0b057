"""What Lightning's CSVLogger writes: `step` and `epoch`, and a row for each call of `log`."""

from __future__ import annotations

import math
from pathlib import Path

from orchestrator.telemetry.readers.cells import cell
from orchestrator.telemetry.readers.delimited import read_table, sniff_shape
from orchestrator.telemetry.readers.log import Raw
from orchestrator.telemetry.readers.registry import reader


def _sniff(head: bytes, path: Path) -> float:
    """Its rows are sparse. A dense file with both columns in front was written by hand."""
    shape = sniff_shape(head)
    if shape is None or not {"step", "epoch"} <= set(shape.names):
        return 0.0
    cells = [cell(text) for row in shape.sample for text in row]
    has_gaps = any(c is None or (isinstance(c, float) and math.isnan(c)) for c in cells)
    by_hand = set(shape.names[:2]) == {"step", "epoch"} and path.name != "metrics.csv"
    return 0.8 if has_gaps or not by_hand else 0.0


@reader("lightning_csv", sniff=_sniff)
def read(path: Path) -> Raw:
    """A sparse table; an empty cell means that the row is of another kind."""
    return read_table(path)
