"""How a store lies on disk; the writer and the reader share this file and nothing else.

```
<folder>/
  header.json                      facts, as one JSON object; replaced atomically
  0001-steps-0.arrow               <generation>-<kind>-<number>.arrow, each an Arrow IPC stream:
  0001-layers-1.arrow              one schema, then chunks, each readable once it is complete
  0001-logged-2.arrow
  0002-steps-0.arrow               written by the process that resumed the trial
```

A *generation* is one writer's life. A new set of columns or layers is a new schema, hence a new
file; `<number>` counts a generation's files. Kinds:

- `steps`: one row per optimizer step, column `step` and one nullable column per series.
- `layers`: one row per sampled step, column `step` and one fixed-size list per quantity, over the
  layers named in the schema's metadata.
- `histograms`: one row per step, column `step` and one fixed-size list per kind (`grad`, `param`,
  `update`): counts over the layers named in the schema's metadata, and of each layer over zeros,
  HISTOGRAM_BINS magnitudes, and what is NaN or infinite.
- `logged`: what the user logged, one row per value: `step`, `name`, `value`. Long, because its
  columns are known only at the end.
- `batches`: the micro-batches up to an unusual step, one row each: `step`, `index` in it, `id`,
  `samples`, `tokens`.

A null is "not recorded"; NaN and inf are values. A reader skips kinds it does not know.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

HEADER = "header.json"
FOLDER = "telemetry"
FOLDER_VARIABLE = "ORCHESTRATOR_TRIAL_FOLDER"
"""Environment variable that names a trial's folder to the process that trains."""
LEVEL_VARIABLE = "ORCHESTRATOR_MONITOR_LEVEL"
EVERY_VARIABLE = "ORCHESTRATOR_MONITOR_EVERY"
HISTOGRAMS_VARIABLE = "ORCHESTRATOR_MONITOR_HISTOGRAMS"
"""Environment variables that say how much it is to record, and every how many steps: Monitoring."""
FACTS_VARIABLE = "ORCHESTRATOR_TRIAL_FACTS"
"""Environment variable with what a campaign knows of a trial, for its header: a JSON object."""

STEPS, LAYERS, HISTOGRAMS = "steps", "layers", "histograms"
LOGGED, BATCHES = "logged", "batches"
LAYER_NAMES = b"layers"

HISTOGRAM_LOW, HISTOGRAM_HIGH = -40, 20
"""Histograms have a bin for each power of two, [2 ** k, 2 ** (k + 1)) for LOW <= k < HIGH, about
1e-12 to 1e6. The first and the last hold also what is beyond."""
HISTOGRAM_BINS = HISTOGRAM_HIGH - HISTOGRAM_LOW

_FILE = re.compile(r"(\d{4,})-([a-z]+)-(\d+)\.arrow")


@dataclass(frozen=True, slots=True, order=True)
class StoreFile:
    """One Arrow file of a store; files sort by age."""

    generation: int
    number: int
    kind: str
    path: Path


def files(folder: Path) -> list[StoreFile]:
    """The store's files, oldest generation first."""
    found = [(match, path) for path in folder.iterdir() if (match := _FILE.fullmatch(path.name))]
    return sorted(StoreFile(int(m[1]), int(m[3]), m[2], path) for m, path in found)


def is_store(folder: Path) -> bool:
    """Whether a folder is a trial's with telemetry in it, or that telemetry itself."""
    store = folder / FOLDER if (folder / FOLDER).is_dir() else folder
    return store.is_dir() and ((store / HEADER).is_file() or bool(files(store)))


def file_name(generation: int, kind: str, number: int) -> str:
    """Name of a store's file."""
    return f"{generation:04d}-{kind}-{number}.arrow"


def encode_layers(names: tuple[str, ...]) -> dict[bytes, bytes]:
    """Schema metadata that names the layers of the fixed-size lists, in their order."""
    return {LAYER_NAMES: json.dumps(names).encode()}


def decode_layers(metadata: dict[bytes, bytes]) -> tuple[str, ...]:
    """Inverse of `encode_layers`."""
    return tuple(json.loads(metadata[LAYER_NAMES]))
