"""A synthetic training as the log that another tool would have written of it."""

from __future__ import annotations

import numpy as np

from orchestrator.nouns import Series, Telemetry
from orchestrator.telemetry.readers import Log, direction_of
from orchestrator.telemetry.readers.facts import facts_of

WRITTEN = ("train/loss", "train/accuracy", "val/loss", "val/accuracy", "lr", "grad_norm")
STEPWISE = ("train/loss", "lr", "grad_norm")


def as_log(telemetry: Telemetry, *, every: int = 1) -> Log:
    """What a tool logs that knows nothing of layers, with each n-th step written only."""
    series = {name: one for name, one in telemetry.series.items() if name in WRITTEN}
    for name in set(series) & set(STEPWISE):
        kept = slice(every - 1, None, every)
        series[name] = Series(series[name].steps[kept], series[name].values[kept])
    with np.errstate(all="ignore"):
        facts = facts_of(series, "optimizer step", {})
    return Log(
        format="synthetic",
        columns={name: name for name in series},
        telemetry=Telemetry(series),
        n_points=max(map(len, series.values())),
        axis="optimizer step",
        directions={n: d for n in series if (d := direction_of(n)) is not None},
        facts=facts,
    )
