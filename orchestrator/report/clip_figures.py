"""The plots of a clip proposal: numbers in, PNGs out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from orchestrator.clip_nouns import Candidate, ClipEvidence, Proposal
from orchestrator.errors import OrchestratorError
from orchestrator.nouns import Floats
from orchestrator.report.figures import BASELINE, HARM, PALETTE, figure_with_axes, png

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEIGHT = 3.8
MOST_POINTS = 20_000  # drawn; spikes are drawn on their own and never thinned
ROLLING = 100  # steps of the rolling clip ratio


def write_plots(proposal: Proposal, folder: Path) -> tuple[Path, ...]:
    """The plots of `proposal` as files in `folder`; none where nothing is proposed."""
    pictures = plots(proposal)
    if not pictures:
        return ()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, image in pictures.items():
            (folder / name).write_bytes(image)
    except OSError as error:
        raise OrchestratorError(
            f"the plots cannot be written to {folder}: {error.strerror}.",
            "copy the record to a folder you may write to, or ask with --json, without plots",
        ) from None
    return tuple(folder / name for name in pictures)


def plots(proposal: Proposal) -> dict[str, bytes]:
    """PNG by file name."""
    e = proposal.evidence
    if e is None:
        return {}
    return {
        "norms.png": _norms(e, proposal.candidates),
        "ratio.png": _ratio(e, proposal.candidates),
        "rolling.png": _rolling(e, proposal),
        "histogram.png": _histogram(e, proposal.candidates),
        "level.png": _level(e, proposal),
    }


def _norms(e: ClipEvidence, candidates: Sequence[Candidate]) -> bytes:
    figure, axes = figure_with_axes(HEIGHT)
    thin = -(-len(e.steps) // MOST_POINTS)
    axes.plot(e.steps[::thin], e.norms[::thin], ".", color=BASELINE, markersize=2, alpha=0.5)
    axes.plot(e.steps[e.spikes], e.norms[e.spikes], "^", color=HARM, markersize=5, label="spikes")
    if e.ramp_end:
        axes.axvspan(e.steps[0], e.steps[e.ramp_end - 1], color="#EEEEEE", label="LR ramp")
    first, last = e.window
    axes.axvspan(
        e.steps[first],
        e.steps[last - 1],
        color=PALETTE[5],
        alpha=0.15,
        label="used for calibration",
    )
    _thresholds(axes.axhline, candidates)
    axes.set_yscale("log")
    if e.lr is not None:
        beside = axes.twinx()
        beside.plot(e.steps[::thin], e.lr[::thin], color=PALETTE[4], linewidth=1)
        beside.set_ylabel("LR", color=PALETTE[4])
    _labelled(axes, "optimizer step", "gradient norm before clipping (loss)")
    figure.suptitle("Unclipped gradient norm", x=0.01, ha="left", fontsize=10)
    return png(figure)


def _ratio(e: ClipEvidence, candidates: Sequence[Candidate]) -> bytes:
    figure, axes = figure_with_axes(HEIGHT)
    low, middle, high = (np.maximum(r, 1e-5) for r in e.forecast)
    axes.fill_between(
        e.thresholds, low, high, color=PALETTE[0], alpha=0.2, label="forecast, 90 % interval"
    )
    axes.plot(e.thresholds, middle, color=PALETTE[0], label="forecast, median")
    axes.plot(e.thresholds, _positive(e.pilot_ratio), "--", color=BASELINE, label="whole pilot")
    axes.plot(e.thresholds, _positive(e.window_ratio), color=BASELINE, label="window")
    _thresholds(axes.axvline, candidates)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(1e-4, 1.2)
    _labelled(axes, "max_norm (loss)", "share of steps clipped")
    figure.suptitle("Clip ratio against max_norm", x=0.01, ha="left", fontsize=10)
    return png(figure)


def _rolling(e: ClipEvidence, proposal: Proposal) -> bytes:
    figure, axes = figure_with_axes(HEIGHT)
    width = min(ROLLING, len(e.steps))
    thin = -(-len(e.steps) // MOST_POINTS)
    for c, colour in zip(proposal.candidates, PALETTE, strict=False):
        total = np.concatenate([[0.0], np.cumsum(e.norms > c.max_norm)])
        share = (total[width:] - total[:-width]) / width
        axes.plot(e.steps[width - 1 :][::thin], share[::thin], color=colour, label=c.name)
        ahead = (e.steps[-1], e.steps[-1] + max(1, proposal.horizon))
        axes.fill_between(ahead, c.clip_ratio.low, c.clip_ratio.high, color=colour, alpha=0.25)
    _labelled(axes, "optimizer step", f"share clipped, last {width} steps")
    figure.suptitle("Rolling clip ratio and its predicted band", x=0.01, ha="left", fontsize=10)
    return png(figure)


def _histogram(e: ClipEvidence, candidates: Sequence[Candidate]) -> bytes:
    figure, axes = figure_with_axes(HEIGHT)
    logs = np.log(e.norms[e.ramp_end :])
    is_spike = np.isin(np.arange(e.ramp_end, len(e.norms)), e.spikes)
    edges = np.linspace(logs.min() - 1e-6, logs.max() + 1e-6, 61)
    parts = [logs[~is_spike], logs[is_spike]]
    for part, colour, label in zip(parts, (BASELINE, HARM), ("body", "spikes"), strict=True):
        counts = np.histogram(part, edges)[0]
        axes.stairs(counts, np.exp(edges), color=colour, fill=True, alpha=0.7, label=label)
    _thresholds(axes.axvline, candidates)
    axes.set_xscale("log")
    axes.set_yscale("symlog", linthresh=10)
    _labelled(axes, "gradient norm (loss)", "steps")
    figure.suptitle("Norms after the ramp", x=0.01, ha="left", fontsize=10)
    return png(figure)


def _level(e: ClipEvidence, proposal: Proposal) -> bytes:
    figure, axes = figure_with_axes(HEIGHT)
    axes.plot(e.block_steps, e.block_norms, "o", color=BASELINE, label="block levels")
    axes.plot(e.block_steps, e.trend, color=PALETTE[0], label="fitted level")
    for held, marker, label in ((True, "o", "backtest held"), (False, "x", "backtest missed")):
        rows = [r for r in proposal.backtest if r.is_covered is held]
        at, norms = [r.origin for r in rows], [r.max_norm for r in rows]
        axes.plot(at, norms, marker, color=PALETTE[2] if held else HARM, label=label)
    axes.set_yscale("log")
    _labelled(axes, "optimizer step", "gradient norm (loss)")
    figure.suptitle("Level, drift and backtest", x=0.01, ha="left", fontsize=10)
    return png(figure)


def _thresholds(draw: object, candidates: Sequence[Candidate]) -> None:
    assert callable(draw)
    for c, colour in zip(candidates, PALETTE, strict=False):
        draw(c.max_norm, color=colour, linewidth=1.2, label=f"{c.name} {c.max_norm:.3g}")


def _positive(share: Floats) -> Floats:
    """Zeros left out, which a log axis cannot show."""
    return np.where(share > 0, share, np.nan)


def _labelled(axes: Axes, x: str, y: str) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.legend(fontsize=8, frameon=False)
