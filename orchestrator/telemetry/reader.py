"""Reads a store (layout.py) into a `Telemetry`, as far as it is whole."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Batch, Floats, Histograms, Ints, Scalar, Series, Telemetry
from orchestrator.telemetry import layout
from orchestrator.telemetry.names import unit

if TYPE_CHECKING:
    import pyarrow as pa

Piece = tuple[str, Ints, Floats]
"""A series' name with some of its points, in the order in which they were written; of histograms
the counts [n, HISTOGRAM_BINS + 2]."""


def read(folder: Path) -> Telemetry:
    """What a trial recorded, as far as it was written completely.

    `folder` is the trial's or its `telemetry`; an empty one is a trial that recorded nothing. A
    resumed trial's older points from where it resumed on are dropped; of several points at one step
    the last written stands. What a user logged under a name that is recorded anyway (`lr`) is
    called `logged/<name>`. The header's `steps` is filled in if the process died before it could.
    """
    store = _store(folder)
    generations = _generations(store)
    is_store = generations or (store / layout.HEADER).exists()
    if not is_store and not (store.is_dir() and _is_empty(store)):
        raise OrchestratorError(
            f"no telemetry in {folder}", "give the folder of a trial that called orchestrator.watch"
        )
    resumed = _resumed_at(generations)
    recorded = _series(_collect(generations, resumed, (layout.STEPS, layout.LAYERS)))
    logged = _series(_collect(generations, resumed, (layout.LOGGED,)))
    counted = _collect(generations, resumed, (layout.HISTOGRAMS,))
    series = dict(recorded)
    for name, points in logged.items():
        series[f"logged/{name}" if name in recorded else name] = points
    header = _header(store)
    if "steps" not in header and "step_seconds" in recorded:
        header["steps"] = int(recorded["step_seconds"].steps[-1]) + 1
    histograms = {name: _histograms(*points) for name, points in counted.items()}
    return Telemetry(series, header, _micro_batches(generations, resumed), histograms)


def read_metrics(folder: Path) -> dict[str, float]:
    """Last value of each series the user logged, under its logged name; empty if none was."""
    store = _store(folder)
    if not store.is_dir():
        return {}
    generations = _generations(store)
    logged = _collect(generations, _resumed_at(generations), (layout.LOGGED,))
    return {name: float(values[-1]) for name, (_, values) in logged.items()}


def steps_written(folder: Path) -> int:
    """Optimizer steps that the store in `folder` goes up to; 0 if there is none."""
    steps = _header(_store(folder)).get("steps", 0)
    return int(steps) if isinstance(steps, int | float) else 0


def _store(folder: Path) -> Path:
    inner = folder / layout.FOLDER
    return inner if inner.is_dir() else folder


def _is_empty(folder: Path) -> bool:
    """Whether a trial was killed, or the disk full, before a first byte was written."""
    return next(folder.iterdir(), None) is None


def _header(store: Path) -> dict[str, Scalar]:
    try:
        facts = json.loads((store / layout.HEADER).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # the disk was full when it was to be written
        return {}
    return facts if isinstance(facts, dict) else {}


def _generations(store: Path) -> dict[int, list[layout.StoreFile]]:
    found: dict[int, list[layout.StoreFile]] = {}
    if store.is_dir():
        for file in layout.files(store):
            found.setdefault(file.generation, []).append(file)
    return found


def _resumed_at(generations: dict[int, list[layout.StoreFile]]) -> dict[int, float]:
    """For each generation, the first step of any later one: from there on it is overwritten.

    Only optimizer steps say where a process began; what a user logged may be numbered in epochs.
    """
    if len(generations) < 2:
        return dict.fromkeys(generations, np.inf)
    limits = {}
    limit = np.inf
    for generation in sorted(generations, reverse=True):
        limits[generation] = limit
        for file in generations[generation]:
            first = next(_batches(file.path), None) if file.kind == layout.STEPS else None
            if first is not None and len(first):
                limit = min(limit, first.column(0)[0].as_py())
    return limits


def _collect(
    generations: dict[int, list[layout.StoreFile]],
    resumed: dict[int, float],
    kinds: tuple[str, ...],
) -> dict[str, tuple[Ints, Floats]]:
    pieces: dict[str, list[tuple[Ints, Floats]]] = {}
    for generation in sorted(generations):
        limit = resumed[generation]
        for file in generations[generation]:
            if file.kind not in kinds:
                continue
            for name, steps, values in _PIECES[file.kind](file.path):
                # What was evaluated at the step of a resumption is of the weights it began with.
                is_evaluation = file.kind == layout.LOGGED and not name.startswith("train/")
                keep = steps <= limit if is_evaluation else steps < limit
                if keep.any():
                    pieces.setdefault(name, []).append((steps[keep], values[keep]))
    return {name: _merged(parts) for name, parts in pieces.items()}


def _micro_batches(
    generations: dict[int, list[layout.StoreFile]], resumed: dict[int, float]
) -> tuple[Batch, ...]:
    found = {}
    for generation in sorted(generations):
        for file in generations[generation]:
            table = _table(file.path) if file.kind == layout.BATCHES else None
            for row in table.to_pylist() if table is not None else ():
                if row["step"] < resumed[generation]:
                    found[row["step"], row["index"]] = Batch(**row)
    return tuple(found[key] for key in sorted(found))


def _merged(parts: Iterable[tuple[Ints, Floats]]) -> tuple[Ints, Floats]:
    """All points, by step; of several at one step the last that was written."""
    steps, values = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    if not (np.diff(steps) > 0).all():
        order = np.argsort(steps, kind="stable")
        steps, values = steps[order], values[order]
        last = np.append(np.diff(steps) > 0, True)
        steps, values = steps[last], values[last]
    return steps, values


def _series(points: Mapping[str, tuple[Ints, Floats]]) -> dict[str, Series]:
    return {name: Series(steps, values, unit(name)) for name, (steps, values) in points.items()}


def _histograms(steps: Ints, counts: Floats) -> Histograms:
    exponents = np.arange(layout.HISTOGRAM_LOW, layout.HISTOGRAM_HIGH + 1, dtype=np.float64)
    whole = counts.astype(np.int64)
    return Histograms(steps, np.exp2(exponents), whole[:, 1:-1], whole[:, 0], whole[:, -1])


def _steps_pieces(path: Path) -> Iterator[Piece]:
    table = _table(path)
    if table is not None:
        steps = table.column("step").to_numpy()
        for name in table.column_names[1:]:
            values, is_recorded = _floats(table.column(name).combine_chunks())
            yield name, steps[is_recorded], values[is_recorded]


def _layers_pieces(path: Path) -> Iterator[Piece]:
    table = _table(path)
    if table is not None:
        steps = table.column("step").to_numpy()
        layers = layout.decode_layers(table.schema.metadata)
        for quantity in table.column_names[1:]:
            flat = table.column(quantity).combine_chunks().flatten()
            values, is_recorded = (a.reshape(len(steps), len(layers)).T for a in _floats(flat))
            for layer, row, seen in zip(layers, values, is_recorded, strict=True):
                yield f"{quantity}/{layer}", steps[seen], row[seen]


def _histograms_pieces(path: Path) -> Iterator[Piece]:
    table = _table(path)
    if table is not None:
        steps = table.column("step").to_numpy()
        layers = layout.decode_layers(table.schema.metadata)
        for what in table.column_names[1:]:
            flat = table.column(what).combine_chunks().flatten()
            shape = (len(steps), len(layers), -1)
            counts, is_recorded = (array.reshape(shape) for array in _floats(flat))
            for i, layer in enumerate(layers):
                seen = is_recorded[:, i, 0]
                yield f"{what}/{layer}", steps[seen], counts[seen, i]


def _logged_pieces(path: Path) -> Iterator[Piece]:
    table = _table(path)
    if table is not None:
        steps, values = table.column("step").to_numpy(), table.column("value").to_numpy()
        names = table.column("name").combine_chunks().dictionary_encode()
        codes = names.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        bounds = np.searchsorted(codes[order], np.arange(len(names.dictionary) + 1))
        for code, name in enumerate(names.dictionary.to_pylist()):
            rows = order[bounds[code] : bounds[code + 1]]
            yield name, steps[rows], values[rows]


_PIECES = {
    layout.STEPS: _steps_pieces,
    layout.LAYERS: _layers_pieces,
    layout.HISTOGRAMS: _histograms_pieces,
    layout.LOGGED: _logged_pieces,
}


def _floats(array: pa.Array) -> tuple[Floats, np.ndarray[tuple[int, ...], np.dtype[np.bool_]]]:
    """Values [n] as float64 and which of them were recorded [n]."""
    values = array.to_numpy(zero_copy_only=False).astype(np.float64)
    if array.null_count == 0:
        return values, np.ones(len(values), dtype=np.bool_)
    return values, array.is_valid().to_numpy(zero_copy_only=False)


def _table(path: Path) -> pa.Table | None:
    import pyarrow as pa

    batches = list(_batches(path))
    return pa.Table.from_batches(batches) if batches else None


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """The file's complete chunks; what follows was cut off by a kill or a full disk."""
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as stream:
            while True:
                yield stream.read_next_batch()
    except (StopIteration, pa.ArrowInvalid, OSError):
        return
