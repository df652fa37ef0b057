"""One JSON object per line: detectron2's metrics.json, mmengine's scalars.json, DETR's log.txt."""

from __future__ import annotations

from pathlib import Path

from orchestrator.telemetry.readers import json_text
from orchestrator.telemetry.readers.hf_trainer_state import rows_of
from orchestrator.telemetry.readers.json_text import Json
from orchestrator.telemetry.readers.log import Raw, not_a_curve
from orchestrator.telemetry.readers.registry import reader
from orchestrator.telemetry.readers.source import read_text, sniffed


def _sniff(head: bytes, _: Path) -> float:
    """Half of the lines are objects; the last may be cut off. One line alone must hold numbers."""
    lines = [line.strip() for line in sniffed(head).split("\n") if line.strip()]
    whole = sum(1 for line in lines if line.startswith('{"') and line.endswith("}"))
    if not whole or whole < 0.5 * (len(lines) - 1):
        return 0.0
    only = json_text.parse(lines[0]) if len(lines) == 1 else {"several": 1}
    is_row = isinstance(only, dict) and any(isinstance(v, int | float) for v in only.values())
    return 0.8 if is_row else 0.0


@reader("jsonl", sniff=_sniff)
def read(path: Path) -> Raw:
    """The objects, in file order. Lines that are none are skipped and counted."""
    text, warnings = read_text(path)
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    values: list[Json] = [json_text.parse(line) for line in lines]
    spoilt = [i for i, value in enumerate(values) if not isinstance(value, dict)]
    if spoilt and spoilt[-1] == len(lines) - 1 and lines[-1].startswith("{"):
        warnings += ("the last line is cut in the middle and was dropped",)
        spoilt.pop()
    if spoilt:
        warnings += (f"{len(spoilt)} line(s) are no JSON objects and were skipped",)
    records = rows_of(values)
    if not records:
        raise not_a_curve(path, "has no line with a number", "give a log with a loss per step")
    return Raw({"": records}, warnings)
