"""Logs that other tools wrote -> `Telemetry`, and what was taken for what.

```python
log = readers.read_log(Path("trainer_state.json"))
log.columns          # {"train/loss": "loss", "val/loss": "eval_loss", "lr": "learning_rate", ...}
log.telemetry["val/loss"].values
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from orchestrator.errors import OrchestratorError
from orchestrator.telemetry.readers import folders, mlflow_files, registry, source
from orchestrator.telemetry.readers.assemble import assemble
from orchestrator.telemetry.readers.log import Log, NotACurve, Raw, Record
from orchestrator.telemetry.readers.naming import direction_of
from orchestrator.telemetry.readers.registry import reader

__all__ = [
    "Log",
    "NotACurve",
    "Raw",
    "Record",
    "direction_of",
    "from_histories",
    "read_log",
    "reader",
]


def read_log(
    path: Path,
    *,
    mapping: Mapping[str, str] = {},
    run: str | None = None,
    every: int | None = None,
) -> Log:
    """What a log says, whichever tool wrote it; an OrchestratorError if it is no training log.

    `path` is a file, or a folder that holds one. `mapping` says which column a series is taken
    from (`{"train_loss": "L_total"}`), against all guesses. `run` chooses one of several runs;
    else it is the longest, of equally long ones the last. `every` thins series to each n-th point.
    """
    if every is not None and every < 1:
        raise OrchestratorError(f"every={every}: points are kept each n-th", "give 1 or more")
    path = folders.log_in(path)
    head = source.head_of(path)
    if not path.is_dir():
        source.refuse_foreign(head, path)
    form = registry.detect(head, path)
    if form is None:
        raise folders.unknown(path)
    raw = form.read(path)
    with np.errstate(all="ignore"):  # a log may hold any number
        return assemble(path, raw, form.name, mapping=mapping, run=run, every=every)


def from_histories(
    name: str,
    histories: Mapping[str, Sequence[mlflow_files.Point]],
    *,
    params: Mapping[str, str] = {},
    mapping: Mapping[str, str] = {},
    every: int | None = None,
) -> Log:
    """The log of an MLflow run whose metrics somebody fetched: `histories` by name of the metric.

    `name` is what an error calls it, such as "mlflow:RUN_ID"; `params` are the run's parameters.
    """
    raw = Raw(
        {name: mlflow_files.records_of(histories)},
        facts=mlflow_files.facts_of(params),
        is_table=False,
    )
    with np.errstate(all="ignore"):
        return assemble(Path(name), raw, "mlflow", mapping=mapping, run=None, every=every)
