"""CSV or TSV that somebody's own script wrote."""

from __future__ import annotations

from pathlib import Path

from orchestrator.telemetry.readers.delimited import BLANKS, read_table, sniff_shape
from orchestrator.telemetry.readers.log import Raw
from orchestrator.telemetry.readers.registry import reader


def _sniff(head: bytes, _: Path) -> float:
    shape = sniff_shape(head)
    if shape is None:
        return 0.0
    if shape.delimiter == BLANKS or len(shape.names) == 1:
        return 0.4
    return 0.6


@reader("plain_csv", sniff=_sniff)
def read(path: Path) -> Raw:
    """A table with a header; columns are told by their names (naming.py)."""
    return read_table(path)
