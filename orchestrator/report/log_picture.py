"""The curves of one log, drawn."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

from orchestrator.log_nouns import Diagnosis
from orchestrator.nouns import Series, Telemetry
from orchestrator.report.figures import DPI, PALETTE, WIDTH

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE = 30.0
"""A range of losses beyond this many to one goes on a log axis."""

MOST_METRICS = 3


def picture(diagnosis: Diagnosis) -> bytes | None:
    """A PNG with a panel for losses and one each for metrics and for norm and rate, as there are.

    None if there is nothing to draw. The steps of the first finding are grey.
    """
    from matplotlib.figure import Figure

    panels = [names for names in _panels(diagnosis.telemetry) if names]
    if not panels:
        return None
    figure = Figure(figsize=(WIDTH, 2.4 * len(panels) + 0.4), dpi=DPI, layout="constrained")
    for index, names in enumerate(panels):
        axes = figure.add_subplot(len(panels), 1, index + 1)
        _draw(axes, {name: diagnosis.telemetry[name] for name in names})
        if diagnosis.findings:
            first, last = diagnosis.findings[0].steps
            axes.axvspan(first, max(last, first + 1), color="#000000", alpha=0.06, zorder=0)
    axes.set_xlabel(diagnosis.axis)
    figure.suptitle(f"{diagnosis.label}: {diagnosis.source}", x=0.01, ha="left", fontsize=10)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _panels(telemetry: Telemetry) -> list[list[str]]:
    drawable = [n for n, s in telemetry.series.items() if np.isfinite(s.values).any()]
    losses = [n for n in drawable if n in ("train/loss", "probe/loss", "val/loss")]
    others = [n for n in drawable if n.startswith("val/") and "loss" not in n]
    return [losses, others[:MOST_METRICS], [n for n in drawable if n in ("grad_norm", "lr")]]


def _draw(axes: Axes, series: dict[str, Series]) -> None:
    known = []
    for number, (name, one) in enumerate(series.items()):
        finite = np.isfinite(one.values)
        known.append(one.values[finite])
        mark = "." if finite.sum() < 60 else ""
        axes.plot(
            one.steps[finite],
            one.values[finite],
            mark + "-",
            color=PALETTE[number % len(PALETTE)],
            linewidth=1.2,
            label=name,
        )
    values = np.concatenate(known)
    if values.min() > 0 and values.max() > WIDE * values.min():
        axes.set_yscale("log")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="both", color="#E6E6E6", linewidth=0.6)
    axes.tick_params(labelsize=9)
    axes.legend(fontsize=8, frameon=False)
