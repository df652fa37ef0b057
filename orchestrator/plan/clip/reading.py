"""Norms from what somebody already has: a CSV, a `trainer_state.json`, telemetry, other logs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path

import numpy as np

from orchestrator.clip_nouns import NormSeries
from orchestrator.errors import OrchestratorError, nearest
from orchestrator.nouns import Floats, Ints, Scalar, Series, Telemetry
from orchestrator.plan.clip import table
from orchestrator.telemetry import is_store, read, readers

NO_NORMS = (
    "record what clip_grad_norm_ returns, at every optimizer step: in the training, "
    "orchestrator.watch does; in the Hugging Face Trainer, logging_steps=1 (transformers 4.38 or "
    "later)"
)


def read_norms(path: Path, *, layers: str = "") -> tuple[NormSeries, ...]:
    """The unclipped norms in `path`, one series per run; an OrchestratorError where there are none.

    A CSV with columns step, loss, lr, grad_norm and maybe loss_scale, skipped, run; a
    `trainer_state.json` of the Hugging Face Trainer; a trial's folder or its telemetry; any other
    log that `telemetry.readers` knows. With `layers`, a pattern as of a shell, the norms of those
    layers together, which only telemetry holds.
    """
    if not path.exists():
        raise OrchestratorError(f"{path} does not exist.", "give a CSV, a JSON file or a folder")
    if path.is_dir() and is_store(path):
        return (from_telemetry(read(path), source=str(path), layers=layers),)
    if layers:
        raise OrchestratorError(
            f"--layers {layers}: {path} holds no norms per layer.",
            "give a trial's folder or a campaign, run with monitor.every=1",
        )
    if path.is_file() and path.suffix.lower() in (".csv", ".tsv"):
        return table.read_csv(path)
    if path.is_file() and path.suffix.lower() == ".json":
        history = _log_history(path)
        if history is not None:
            return (_from_history(history, path),)
    log = readers.read_log(path)
    return (from_telemetry(log.telemetry, source=str(path)),)


def from_telemetry(telemetry: Telemetry, *, source: str = "", layers: str = "") -> NormSeries:
    """The norms of one trial; loss, lr and loss scale are taken at the steps that have a norm.

    With `layers`, a pattern, the norm of those layers together, for who clips them by themselves.
    """
    norms = _of_layers(telemetry, layers, source) if layers else _total(telemetry, source)
    _refuse_negative(norms.steps, norms.values, source)

    def at(name: str) -> Floats | None:
        return _aligned(telemetry[name], norms.steps) if name in telemetry else None

    skipped = at("skipped")
    in_force = telemetry["max_norm"].values if "max_norm" in telemetry else np.empty(0)
    in_force = in_force[np.isfinite(in_force) & (in_force > 0)]
    eps = telemetry.header.get("eps")
    return NormSeries(
        steps=norms.steps,
        norms=norms.values,
        loss=at("train/loss"),
        lr=at("lr"),
        loss_scale=at("loss_scale"),
        skipped=None if skipped is None else skipped == 1,
        max_norm_in_force=float(in_force[-1]) if len(in_force) and not layers else None,
        source=f"{source}, layers {layers}" if layers else source,
        optimizer=str(telemetry.header.get("optimizer") or ""),
        n_parameters=None if layers else _count(telemetry.header.get("parameters")),
        eps=float(eps) if isinstance(eps, int | float) and eps > 0 else None,
    )


def _total(telemetry: Telemetry, source: str) -> Series:
    if "grad_norm" not in telemetry or not len(telemetry["grad_norm"]):
        has = ", ".join(telemetry.series) or "nothing"
        raise OrchestratorError(f"{source or 'the trial'}: no grad_norm among {has}.", NO_NORMS)
    return telemetry["grad_norm"]


def _of_layers(telemetry: Telemetry, pattern: str, source: str) -> Series:
    """Norm over the layers that match; one without a gradient in a step adds nothing."""
    every = telemetry.layers("grad_norm")
    wanted = [norms for name, norms in every.items() if fnmatch(name, pattern)]
    if not wanted:
        raise OrchestratorError(
            f"--layers {pattern}: {source} recorded the norm of no such layer.",
            nearest(pattern, every),
        )
    steps = np.unique(np.concatenate([norms.steps for norms in wanted]))
    each = np.stack([_aligned(norms, steps) for norms in wanted])  # [layers, steps]
    absent = np.stack([~np.isin(steps, norms.steps) for norms in wanted])
    return Series(steps, np.sqrt((np.where(absent, 0.0, each) ** 2).sum(axis=0)), wanted[0].unit)


def _count(fact: Scalar) -> int | None:
    return fact if isinstance(fact, int) and fact > 0 else None


def _aligned(series: Series, steps: Ints) -> Floats:
    """Values at `steps`, NaN where there is none: [n]."""
    out = np.full(len(steps), np.nan)
    if not len(series):
        return out
    place = np.minimum(np.searchsorted(series.steps, steps), len(series) - 1)
    hit = series.steps[place] == steps
    out[hit] = series.values[place[hit]]
    return out


def _refuse_negative(steps: Ints, norms: Floats, source: str) -> None:
    below = np.flatnonzero(norms < 0)
    if len(below):
        first = int(below[0])
        raise OrchestratorError(
            f"{source}: grad_norm is {norms[first]:g} at step {steps[first]}; {len(below)} of "
            f"{len(norms)} are negative, and a norm is not.",
            "give the norm itself, not its logarithm or a difference",
        )


# --- trainer_state.json -----------------------------------------------------------------------


def _log_history(path: Path) -> Sequence[Mapping[str, object]] | None:
    """The rows of a Hugging Face Trainer's state; None if the file is another one."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise OrchestratorError(
            f"{path} is no JSON: {error}.", "give the trainer_state.json of a checkpoint"
        ) from None
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        return None
    return [row for row in history if isinstance(row, dict)]


def _from_history(history: Sequence[Mapping[str, object]], path: Path) -> NormSeries:
    """Rows with a norm. The norm is the one before clipping; the loss is a mean."""
    rows = [row for row in history if row.get("grad_norm") is not None]
    if not rows:
        raise OrchestratorError(f"{path}: no row of log_history has a grad_norm.", NO_NORMS)
    columns = {
        ours: [row.get(theirs) for row in rows]
        for ours, theirs in (
            ("step", "step"), ("grad_norm", "grad_norm"), ("loss", "loss"), ("lr", "learning_rate"),
        )
    }  # fmt: skip
    texts = {
        name: ["" if v is None else str(v) for v in values] for name, values in columns.items()
    }
    return table.series(texts, source=str(path), row=lambda i: f"log_history entry {i + 1}")
