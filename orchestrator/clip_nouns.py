"""The nouns of the clip proposal: made in `plan/clip`, shown in `report`, handed on by the loop.

A ratio is a share of optimizer steps in [0, 1]; norms and thresholds are in the loss's unit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from orchestrator.nouns import ClipRatio, Floats, Ints

Bools = npt.NDArray[np.bool_]

CONTROL = 0.1
"""Share of SGD's update removed from which a candidate needs its LR-matched control
(docs/clip.md)."""


MATCHED_LR = "matched_lr"
"""The ablation that is this control of `clip`: no clipping, at the learning rate that moves as far
as clipping does."""


@dataclass(frozen=True, slots=True, eq=False)
class NormSeries:
    """The unclipped total gradient norm of one trial, one row per optimizer step.

    All arrays are [n] and aligned with `steps` (ascending); `norms`, `loss` and `lr` may hold NaN
    and inf; None where nothing was recorded. `max_norm_in_force` is the threshold the pilot itself
    was clipped with (the norms are still those before clipping). `flags` were raised while reading;
    `optimizer` is its class name, `n_parameters` what it trains and `eps` its own, where known.
    """

    steps: Ints
    norms: Floats
    loss: Floats | None = None
    lr: Floats | None = None
    loss_scale: Floats | None = None
    skipped: Bools | None = None
    max_norm_in_force: float | None = None
    source: str = ""
    flags: tuple[Flag, ...] = ()
    optimizer: str = ""
    n_parameters: int | None = None
    eps: float | None = None

    def __len__(self) -> int:
        return len(self.steps)


@dataclass(frozen=True, slots=True)
class Flag:
    """One of the checks fired: its name (docs/clip.md) and, in words, what was seen."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Stage:
    """A part of the pilot, or the steps after it; `first` and `last` are optimizer steps."""

    name: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """One threshold and what it would do.

    `max_norm` is for the steps to come, `from_start` for a training that clips from its first step
    on: raised to the part with the highest level, where the two differ by over 25 %. `quantile` is
    the quantile of the body it stands for, None where it comes from another formula. `clip_ratio`
    is predicted for the horizon; `stage_ratios` belong to `Proposal.stages`.
    `spikes_to` is what the largest spike is reduced to, as a multiple of the level then (None
    without spikes); `update_removed` and `lr_factor` = E[min(1, max_norm / norm)] are over the
    window: the learning rate of a control without clipping that moves as far.
    """

    name: str
    max_norm: float
    quantile: float | None
    clip_ratio: ClipRatio
    from_start: float = math.nan
    stage_ratios: tuple[ClipRatio, ...] = ()
    spikes_to: float | None = None
    update_removed: float = 0.0
    lr_factor: float = 1.0
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BacktestRow:
    """A candidate as it would have been proposed at step `origin`, and what then came."""

    origin: int
    candidate: str
    max_norm: float
    predicted: ClipRatio
    realised: float

    @property
    def is_covered(self) -> bool:
        """Whether the realised ratio lies in the predicted interval."""
        return self.predicted.low <= self.realised <= self.predicted.high


@dataclass(frozen=True, slots=True, eq=False)
class ClipEvidence:
    """The plain arrays behind a proposal, for plots.

    `steps`, `norms` [n] are the valid steps of the first usable pilot, `lr` [n] or None; `spikes`
    [k] and `window` (first, last) index them. `blocks` are (steps, norms) of block medians [b]
    each, `trend` the fitted level at these steps. `thresholds` [g] with the ratio over the whole
    pilot, over the window, and the forecast's low, median and high [g] each.
    """

    steps: Ints
    norms: Floats
    lr: Floats | None
    spikes: Ints
    window: tuple[int, int]
    ramp_end: int
    block_steps: Ints
    block_norms: Floats
    trend: Floats
    thresholds: Floats
    pilot_ratio: Floats
    window_ratio: Floats
    forecast: tuple[Floats, Floats, Floats]


@dataclass(frozen=True, slots=True)
class Proposal:
    """What is proposed for `max_norm`, why, and for how long it holds.

    `recommendation` is "clip", "no_clipping_needed" or "refused". `stable` is None where no stable
    interval was found and the last steps were taken, re-based; `window` is what was used.
    `present` is the setting in force today, forecast like a candidate. `is_exploratory`: the
    backtest failed.
    """

    flags: tuple[Flag, ...]
    n_steps: int
    n_used: int
    recommendation: str
    reason: str
    dropped: Mapping[str, int] = field(default_factory=dict)
    stable: tuple[int, int] | None = None
    window: tuple[int, int] | None = None
    spikes: tuple[int, ...] = ()
    spike_sizes: tuple[float, ...] = ()
    drift_per_1000_steps: float | None = None
    default: str | None = None
    valid_until_step: int | None = None
    horizon: int = 0
    candidates: tuple[Candidate, ...] = ()
    present: Candidate | None = None
    stages: tuple[Stage, ...] = ()
    backtest: tuple[BacktestRow, ...] = ()
    is_exploratory: bool = False
    remarks: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    optimizer: str | None = None
    evidence: ClipEvidence | None = None


@dataclass(frozen=True, slots=True)
class ClipAlarm:
    """The clip ratio left what was predicted for it.

    `kind` is "high", "inert", "drift" or "nonfinite"; `ratio` was seen in steps `first` to `last`;
    `causes` are listed with what the record says for each, never the advice to raise the threshold.
    """

    kind: str
    first: int
    last: int
    ratio: float
    expected: ClipRatio
    causes: tuple[str, ...]
