"""The plots: plain numbers in, a PNG out; matplotlib's global state is never touched.

Colours: Okabe and Ito 2008 (readable with colour blindness), the baseline always dark grey.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from orchestrator.nouns import Interval, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#F0E442")
BASELINE = "#4D4D4D"
GAIN, HARM, OPEN = "#0072B2", "#D55E00", "#767676"
DPI = 100
WIDTH = 9.0
"""Inches: 900 pixels, the width at which a report is read."""


@dataclass(frozen=True, slots=True)
class ForestRow:
    """A line of a forest plot, in the metric's own direction; `dots` are paired differences."""

    label: str
    difference: float
    interval: Interval
    dots: tuple[float, ...] = ()
    verdict: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Band:
    """The curves of one arm's seeds, for one panel."""

    label: str
    curves: tuple[Series, ...]
    is_baseline: bool = False


def forest(
    rows: Sequence[ForestRow],
    *,
    title: str,
    axis: str,
    delta: float | None,
    lower_is_better: bool,
    form: str = "png",
) -> bytes:
    """Differences to the baseline with their intervals, seeds as dots, the verdict at the right.

    A difference is coloured when its interval excludes zero; the grey band is ±`delta`. `form` is
    png, svg or pdf.
    """
    figure, axes = figure_with_axes(0.9 + 0.55 * len(rows) + 0.5)
    if delta:
        axes.axvspan(-delta, delta, color="#DDDDDD", zorder=0, label="smaller than delta")
    axes.axvline(0.0, color=BASELINE, linewidth=1.2, zorder=1)
    for y, row in enumerate(rows):
        colour = _colour(row, lower_is_better)
        low, high = row.interval.low, row.interval.high
        if np.isfinite([low, high]).all():
            axes.plot([low, high], [y, y], color=colour, linewidth=2.4, solid_capstyle="butt")
        spread = y + 0.22 + np.zeros(len(row.dots))
        axes.plot(row.dots, spread, "o", color=colour, markersize=4, alpha=0.55, markeredgewidth=0)
        axes.plot([row.difference], [y], "D", color=colour, markersize=7)
        axes.annotate(
            _literal(row.verdict),
            (1.015, y),
            xycoords=("axes fraction", "data"),
            va="center",
            color=colour,
            fontsize=9,
        )
    axes.set_yticks(range(len(rows)), [_literal(row.label) for row in rows])
    axes.set_ylim(len(rows) - 0.45, -0.6)
    name = _literal(axis)
    axes.set_xlabel(f"← better    {name}" if lower_is_better else f"{name}    better →")
    figure.suptitle(_literal(title), x=0.01, ha="left", fontsize=10)
    return saved(figure, form)


def _literal(text: str) -> str:
    """Text that matplotlib does not take for mathematics."""
    return text.replace("$", r"\$")


def curves(panels: Sequence[tuple[str, Sequence[Band]]], *, title: str) -> bytes:
    """Learning curves over the optimizer step: median over seeds as a line, min to max as a band.

    `panels` are (label of the y axis with unit, bands). Values that are not finite are left out.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, 3.6), dpi=DPI, layout="constrained")
    for index, (label, bands) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), index + 1)
        medians = []
        for number, band in enumerate(bands):
            steps, low, middle, high = _envelope(band.curves)
            if not len(steps):
                continue
            medians.append(middle)
            colour = BASELINE if band.is_baseline else PALETTE[number % len(PALETTE)]
            style = "--" if band.is_baseline else "-"
            axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
            axes.plot(steps, middle, style, color=colour, linewidth=1.6, label=band.label)
        _limit(axes, medians)
        axes.set_xlabel("optimizer step")
        axes.set_ylabel(label)
        _plain(axes)
        if index == 0:
            axes.legend(fontsize=8, frameon=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    return png(figure)


def _envelope(series: Sequence[Series]) -> tuple[np.ndarray, ...]:
    """Steps [n] at which half of the seeds or more are finite, and min, median, max there [n]."""
    steps = np.unique(np.concatenate([s.steps for s in series])) if series else np.empty(0)
    table = np.full((len(series), len(steps)), np.nan)
    for row, one in zip(table, series, strict=True):
        finite = np.isfinite(one.values)
        row[np.searchsorted(steps, one.steps[finite])] = one.values[finite]
    enough = np.isfinite(table).sum(axis=0) * 2 >= max(1, len(series))
    if not enough.any():
        return steps[:0], steps[:0], steps[:0], steps[:0]
    kept = table[:, enough]
    return (
        steps[enough],
        np.nanmin(kept, axis=0),
        np.nanmedian(kept, axis=0),
        np.nanmax(kept, axis=0),
    )


def _limit(axes: Axes, medians: Sequence[np.ndarray]) -> None:
    """Show the medians after the first tenth of the steps, whose fall would flatten the rest.

    A band that explodes may leave the picture; a range beyond 50 to 1 goes to a log axis.
    """
    settled = [m[len(m) // 10 :] for m in medians]
    if not settled:
        return
    values = np.concatenate(settled)
    low, high = float(values.min()), float(values.max())
    if low > 0 and high / np.median(values) > 50:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.3, high * 1.3)
    elif high > low:
        axes.set_ylim(low - 0.08 * (high - low), high + 0.08 * (high - low))


def _colour(row: ForestRow, lower_is_better: bool) -> str:
    if row.interval.low <= 0 <= row.interval.high or not np.isfinite(row.difference):
        return OPEN
    return GAIN if (row.difference < 0) == lower_is_better else HARM


def figure_with_axes(height: float) -> tuple[Figure, Axes]:
    """A plain figure of the report's width, `height` in inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), dpi=DPI, layout="constrained")
    axes = figure.add_subplot()
    _plain(axes)
    return figure, axes


def _plain(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="both", color="#E6E6E6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9)


def png(figure: Figure) -> bytes:
    """The figure as a file."""
    return saved(figure, "png")


def saved(figure: Figure, form: str) -> bytes:
    """The figure as a png, svg or pdf file."""
    buffer = io.BytesIO()
    # No software version and no date in the file: the same numbers give the same bytes.
    undated = {"png": "Software", "svg": "Date", "pdf": "CreationDate"}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing")  # a name in a script of its own
        figure.savefig(buffer, format=form, metadata={undated[form]: None})
    return buffer.getvalue()
