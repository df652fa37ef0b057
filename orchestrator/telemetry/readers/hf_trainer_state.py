"""`trainer_state.json` of a Hugging Face Trainer: its `log_history`, and what was planned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.telemetry.readers import json_text
from orchestrator.telemetry.readers.json_text import Json
from orchestrator.telemetry.readers.log import Raw, Record, not_a_curve
from orchestrator.telemetry.readers.registry import reader
from orchestrator.telemetry.readers.source import read_text, sniffed

_FACTS = {
    "max_steps": "max_steps",
    "global_step": "last_step",
    "num_train_epochs": "max_epochs",
    "logging_steps": "logging_steps",
    "train_batch_size": "batch_size",
    "best_metric": "best_metric",
}


def _sniff(head: bytes, _: Path) -> float:
    text = sniffed(head).lstrip()
    if not text.startswith("{"):
        return 0.0
    if '"log_history"' in text:
        return 1.0
    return 0.9 if '"global_step"' in text and '"best_metric"' in text else 0.0


@reader("hf_trainer_state", sniff=_sniff)
def read(path: Path) -> Raw:
    """The records of `log_history`: training, evaluation, prediction and summary rows mixed."""
    text, warnings = read_text(path)
    state = json_text.parse(text)
    if isinstance(state, dict):
        history = state.get("log_history")
        facts = {
            ours: value
            for theirs, ours in _FACTS.items()
            if isinstance(value := state.get(theirs), str | int | float)
        }
    else:
        history = list(json_text.salvage(text[max(0, text.find('"log_history"')) :]))
        facts = {}
        warnings += (f"damaged or cut off: {len(history)} rows of log_history could be read",)
    records = rows_of(history) if isinstance(history, list) else []
    if not records:
        needed = "train with logging_steps set, or give the state of a later checkpoint"
        raise not_a_curve(path, "has a log_history without a row", needed)
    return Raw({"": records}, warnings, facts)


def rows_of(values: Sequence[Json]) -> list[Record]:
    """Records of those values that are objects with at least one number."""
    records = [json_text.record(value) for value in values if isinstance(value, dict)]
    return [r for r in records if any(isinstance(c, float) for c in r.values())]
