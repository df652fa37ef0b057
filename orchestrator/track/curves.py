"""Telemetry -> the points that MLflow draws: thinned so that nothing a reader could see is lost."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

from orchestrator.nouns import Ints, Metric, Series, Telemetry
from orchestrator.telemetry.names import is_of_layer, is_of_module
from orchestrator.track.values import is_test

MOST_POINTS = 200
"""Points per series. MLflow draws 320 of a curve at most; with 200 a campaign of 105 trials and
ten series each took 26 s of CPU into SQLite, at 1,000 it would take minutes."""

MOST_LAYERS = 24
"""Series of weight layers, and series of modules, shown of one trial; the telemetry keeps all,
those of biases and of normalisations too."""


def points(
    telemetry: Telemetry, metric: Metric, *, with_test: bool, with_layers: bool
) -> Iterator[tuple[str, int, float]]:
    """(name, optimizer step, value) of every series to show, finite values only.

    Series on the test split are left out unless `with_test`, those of layers and modules unless
    `with_layers`; then the first MOST_LAYERS of weight layers are kept, and as many of modules.
    """
    weights = {w for w in str(telemetry.header.get("weight_layers") or "").split(",") if w}
    shown = Counter[str]()
    for name, series in telemetry.series.items():
        if is_test(name, metric) and not with_test:
            continue
        is_layers = is_of_layer(name)
        if is_layers or is_of_module(name):
            if not with_layers or (is_layers and name.partition("/")[2] not in weights):
                continue
            shown["layers" if is_layers else "modules"] += 1
            if shown["layers" if is_layers else "modules"] > MOST_LAYERS:
                continue
        kept = thinned(series)
        for index in kept:
            yield valid_name(name), int(series.steps[index]), float(series.values[index])


def thinned(series: Series, limit: int = MOST_POINTS) -> Ints:
    """Indices [<= limit] of the points to draw, ascending: per bucket the lowest and the highest.

    Of a longer curve, what lies between equal neighbours goes first: lines join the points. First
    and last stay, so do spikes: the envelope of the curve is the same to the eye. What is not
    finite cannot be drawn and goes.
    """
    finite = np.flatnonzero(np.isfinite(series.values))
    if len(finite) > limit:
        differs = np.diff(series.values[finite]) != 0
        finite = finite[np.append(True, differs) | np.append(differs, True)]
    if len(finite) <= limit:
        return finite.astype(np.int64)
    inner = np.array_split(finite[1:-1], (limit - 2) // 2)
    extremes = [
        bucket[[series.values[bucket].argmin(), series.values[bucket].argmax()]] for bucket in inner
    ]
    kept = np.concatenate([finite[:1], *extremes, finite[-1:]])
    return np.unique(kept).astype(np.int64)


def valid_name(name: str) -> str:
    """`name` with what MLflow refuses replaced; it must also be a plain relative path."""
    safe = re.sub(r"[^\w\-. :/]", "_", name, flags=re.ASCII)
    return posixpath.normpath(safe).lstrip("./") or "_"
