"""Writes a store (layout.py) from inside the training process, and never raises into it."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from orchestrator.nouns import Batch, Floats, Ints, Scalar
from orchestrator.telemetry import layout

if TYPE_CHECKING:
    import pyarrow as pa

_SYNC_SECONDS = 10.0
"""A killed process loses nothing that was written; fsync guards against a dying machine, and costs
milliseconds on a network disk, so it is not done for every chunk."""

_COUNTS = ("samples", "tokens")

_log = logging.getLogger(__name__)

Column = npt.NDArray[np.float32] | npt.NDArray[np.float64]
"""Values stored in their own precision; a masked entry (`np.ma.MaskedArray`) was not recorded."""


@dataclass(slots=True)
class _Segment:
    path: Path
    size: int


class Writer:
    """Appends chunks to a store: each `write_*` call is one chunk, on disk when it returns.

    Nothing is buffered here, so memory is bounded by the caller's chunk, and no file stays open. A
    failing disk costs the chunk: it is warned about once, the rows are counted, and the header says
    so as soon as it can be written.
    """

    def __init__(self, folder: Path, header: Mapping[str, Scalar]) -> None:
        self.folder = folder
        self.rows_lost = 0
        self._header = dict(header)
        self._segments: dict[tuple[str, bytes], _Segment] = {}
        self._unsynced: set[Path] = set()
        self._synced_at = time.monotonic()
        self._generation = 1
        self._files = 0
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._generation = 1 + max((f.generation for f in layout.files(folder)), default=0)
        except OSError as error:
            self._lose(0, error)
        self.amend({})

    def write_steps(self, steps: Ints, columns: Mapping[str, Column]) -> None:
        """Append one row per optimizer step: `steps` [n], each of `columns` [n]."""
        arrays = {name: _array(values) for name, values in columns.items()}
        self._append(layout.STEPS, {"step": _array(steps), **arrays})

    def write_layers(
        self, steps: Ints, layers: Sequence[str], columns: Mapping[str, Column]
    ) -> None:
        """Append one row per sampled step: `steps` [n], each of `columns` [n, len(layers)]."""
        self._append_layers(layout.LAYERS, steps, layers, columns)

    def write_histograms(
        self, steps: Ints, layers: Sequence[str], columns: Mapping[str, Ints]
    ) -> None:
        """Append one row per step: each of `columns` [n, len(layers), HISTOGRAM_BINS + 2]."""
        self._append_layers(layout.HISTOGRAMS, steps, layers, columns)

    def write_logged(self, steps: Ints, names: Sequence[str], values: Floats) -> None:
        """Append one row per logged value: `steps` [n], `names` [n], `values` [n]."""
        columns = {"step": _array(steps), "name": _strings(names), "value": _array(values)}
        self._append(layout.LOGGED, columns)

    def write_batches(self, batches: Sequence[Batch]) -> None:
        """Append one row per micro-batch."""
        columns = {name: _numbers([getattr(b, name) for b in batches]) for name in _COUNTS}
        self._append(
            layout.BATCHES,
            {
                "step": _array(np.array([batch.step for batch in batches])),
                "index": _array(np.array([batch.index for batch in batches])),
                "id": _strings([batch.id for batch in batches]),
                **columns,
            },
        )

    def amend(self, facts: Mapping[str, Scalar]) -> None:
        """Add `facts` to the header, or change them."""
        self._header.update(facts)
        if self.rows_lost:
            self._header["rows_lost"] = self.rows_lost
        aside = self.folder / f".{layout.HEADER}.{os.getpid()}"
        try:
            aside.write_text(json.dumps(self._header, indent=1), encoding="utf-8")
            aside.replace(self.folder / layout.HEADER)
        except OSError as error:
            with contextlib.suppress(OSError):
                aside.unlink()
            self._lose(0, error)

    def close(self, facts: Mapping[str, Scalar]) -> None:
        """Amend the header and make everything safe against a dying machine."""
        self.amend(facts)
        self._sync()

    def _append_layers(
        self, kind: str, steps: Ints, layers: Sequence[str], columns: Mapping[str, Column | Ints]
    ) -> None:
        import pyarrow as pa

        arrays = {
            name: pa.FixedSizeListArray.from_arrays(
                _array(values.reshape(-1)), int(np.prod(values.shape[1:]))
            )
            for name, values in columns.items()
        }
        metadata = layout.encode_layers(tuple(layers))
        self._append(kind, {"step": _array(steps), **arrays}, metadata)

    def _append(
        self,
        kind: str,
        arrays: Mapping[str, pa.Array],
        metadata: Mapping[bytes, bytes] | None = None,
    ) -> None:
        import pyarrow as pa

        batch = pa.record_batch(dict(arrays), metadata=metadata)
        key = (kind, batch.schema.serialize().to_pybytes())
        try:
            segment = self._segments.get(key) or self._open(key)
            with segment.path.open("r+b", buffering=0) as file:
                # What a failed write left is cut off: this chunk must follow a complete one.
                file.truncate(segment.size)
                file.seek(segment.size)
                segment.size += _write_all(file.fileno(), batch.serialize())
        except OSError as error:
            if isinstance(error, FileNotFoundError):
                self._segments.pop(key, None)
            self._lose(batch.num_rows, error)
            return
        self._unsynced.add(segment.path)
        if time.monotonic() - self._synced_at > _SYNC_SECONDS:
            self._sync()

    def _open(self, key: tuple[str, bytes]) -> _Segment:
        kind, schema = key
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / layout.file_name(self._generation, kind, self._files)
        with path.open("wb", buffering=0) as file:
            segment = _Segment(path, _write_all(file.fileno(), schema))
        self._files += 1
        self._segments[key] = segment
        return segment

    def _sync(self) -> None:
        self._synced_at = time.monotonic()
        for path in self._unsynced:
            try:
                with path.open("r+b") as file:
                    os.fsync(file.fileno())
            except OSError as error:
                self._lose(0, error)
        self._unsynced.clear()

    def _lose(self, rows: int, error: OSError) -> None:
        if not self._header.get("write_error"):
            _log.warning("telemetry in %s is incomplete: %s; training goes on", self.folder, error)
        self._header["write_error"] = str(error)
        self.rows_lost += rows


def _array(values: Column | Ints) -> pa.Array:
    """Made from the bytes: `pyarrow.array` would import pandas, 0.3 s in every trial."""
    import pyarrow as pa

    valid = None
    if isinstance(values, np.ma.MaskedArray):
        valid = pa.py_buffer(np.packbits(~np.ma.getmaskarray(values), bitorder="little"))
        values = values.data
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [valid, data])


def _numbers(values: Sequence[float | None]) -> pa.Array:
    numbers = np.array([0.0 if value is None else value for value in values])
    return _array(np.ma.array(numbers, mask=[value is None for value in values]))


def _strings(texts: Sequence[str]) -> pa.Array:
    import pyarrow as pa

    encoded = [text.encode() for text in texts]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = (pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))
    return pa.StringArray.from_buffers(len(texts), *buffers)


def _write_all(descriptor: int, data: bytes | pa.Buffer) -> int:
    """Write every byte or raise; a nearly full disk makes `os.write` write a part."""
    view = memoryview(data)
    written = 0
    while written < len(view):
        written += os.write(descriptor, view[written:])
    return written
