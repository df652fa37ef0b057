"""A trial's layers in one picture: what goes wrong with depth is seen along the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from orchestrator.nouns import Floats, Ints, Series, Telemetry
from orchestrator.report import figures

MOMENTS = 3
"""Lines over depth: the first sampled step, the middle one and the last."""

MOST_LAYERS = 12
"""Lines over time that an eye can tell apart; of more layers every n-th is drawn."""


@dataclass(frozen=True, slots=True, eq=False)
class Panel:
    """Lines by label, each (x [n], y [n]); over depth `names` tell the layers, first at x = 0."""

    title: str
    lines: Mapping[str, tuple[Floats | Ints, Floats]]
    names: tuple[str, ...] = ()


def panels(telemetry: Telemetry) -> tuple[Panel, ...]:
    """What there is of: gradient norm over depth, update ratio over time, activations over depth.

    Depth is the model's own order of its parameters or modules. Only finite values above 0 can be
    drawn on the log axes that all three have.
    """
    found = (
        _over_depth("gradient norm over depth", telemetry.layers("grad_norm")),
        _over_time("update ratio over time", _weights(telemetry)),
        _over_depth("activation std over depth", telemetry.layers("activation_std")),
    )
    return tuple(panel for panel in found if panel.lines)


def layer_picture(telemetry: Telemetry) -> bytes | None:
    """The panels as a PNG; None for a trial without layers."""
    from matplotlib.figure import Figure

    shown = panels(telemetry)
    if not shown:
        return None
    # A constrained layout would double the time, and there is a picture for many a trial.
    figure = Figure(figsize=(figures.WIDTH, 3.4), dpi=figures.DPI)
    figure.subplots_adjust(left=0.07, right=0.985, top=0.9, bottom=0.3, wspace=0.25)
    for number, panel in enumerate(shown, start=1):
        axes = figure.add_subplot(1, len(shown), number)
        style = "o-" if panel.names else "-"
        for (label, (x, y)), colour in zip(panel.lines.items(), cycle(figures.PALETTE)):
            axes.plot(x, y, style, color=colour, markersize=3, label=label)
        axes.set_yscale("log")
        axes.set_title(panel.title, fontsize=9)
        axes.tick_params(which="both", labelsize=6)
        if panel.names:
            places = range(0, len(panel.names), -(-len(panel.names) // MOST_LAYERS))
            names = [panel.names[i] for i in places]
            axes.set_xticks(places, names, rotation=60, ha="right", fontsize=6)
        else:
            axes.set_xlabel("optimizer step", fontsize=8)
        axes.legend(fontsize=6, frameon=False)
    return figures.png(figure)


def _weights(telemetry: Telemetry) -> dict[str, Series]:
    """Update ratios of the matrices and kernels, if the header names them."""
    ratios = telemetry.layers("update_ratio")
    named = str(telemetry.header.get("weight_layers") or "").split(",")
    return {name: ratios[name] for name in named if name in ratios} or ratios


def _over_time(title: str, layers: Mapping[str, Series]) -> Panel:
    kept = list(layers.items())[:: -(-len(layers) // MOST_LAYERS) or 1]
    lines = {name: (s.steps[_drawable(s)], s.values[_drawable(s)]) for name, s in kept}
    return Panel(title, {name: line for name, line in lines.items() if len(line[0])})


def _over_depth(title: str, layers: Mapping[str, Series]) -> Panel:
    """One line a moment: the value of every layer at the sampled step next to it."""
    series = [s for s in layers.values() if len(s)]
    if len(series) < 2:
        return Panel(title, {})
    steps = np.unique(np.concatenate([s.steps for s in series]))
    moments = steps[np.unique(np.linspace(0, len(steps) - 1, MOMENTS).round().astype(np.int64))]
    lines = {}
    for moment in moments:
        values = np.array([s.values[np.argmin(np.abs(s.steps - moment))] for s in series])
        seen = np.isfinite(values) & (values > 0)
        if seen.any():
            lines[f"step {moment}"] = (np.flatnonzero(seen), values[seen])
    return Panel(title, lines, tuple(name for name, s in layers.items() if len(s)))


def _drawable(series: Series) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return np.isfinite(series.values) & (series.values > 0)
