"""Signals: one scalar each out of a Telemetry, for rules, for mechanisms and for tables.

A signal is absent when its series are, when they are too short, or when nothing in them is finite;
one that is present is finite.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from orchestrator.nouns import Floats, Ints, Series, Signal, Telemetry
from orchestrator.telemetry import network_signals
from orchestrator.telemetry.robust import NORMAL, finite, theil_sen

_EARLY_STEPS = 60
"""The fault zoo's window for a learning rate that is too high (docs/diagnosis.md, row 14)."""

_WINDOW = 50
"""Steps a running median looks back, as in row 8 of docs/diagnosis.md."""

_BLOCK = 10_000
"""Windows held at once: a million steps are 400 MB of windows."""

_FINAL_SHARE = 0.05
_LATE_SHARE = 0.3
_MOST_POINTS = 400
"""Theil-Sen looks at all pairs; 400 points are 80,000 of them."""

Formula = Callable[[Telemetry], float | None]
_FORMULAS: dict[str, tuple[Formula, str]] = {}


def signals(telemetry: Telemetry) -> dict[str, Signal]:
    """Every signal that `telemetry` allows, by name."""
    found = {}
    for name, (formula, unit) in (_FORMULAS | network_signals.FORMULAS).items():
        value = formula(telemetry)
        if value is not None and np.isfinite(value):
            found[name] = Signal(name, float(value), unit)
    return found


def _signal(unit: str) -> Callable[[Formula], Formula]:
    def register(formula: Formula) -> Formula:
        _FORMULAS[formula.__name__] = (formula, unit)
        return formula

    return register


@_signal("loss")
def train_loss(telemetry: Telemetry) -> float | None:
    """Last loss on the train probe; without a probe, mean of the last 5 % of `train/loss`.

    The latter is measured in train mode on moving weights: dropout and augmentation raise it.
    """
    if "probe/loss" in telemetry:
        return float(telemetry["probe/loss"].values[-1])
    if "train/loss" not in telemetry:
        return None
    return float(np.mean(_last(telemetry["train/loss"], _FINAL_SHARE).values))


@_signal("loss")
def generalisation_gap(telemetry: Telemetry) -> float | None:
    """`val/loss` minus the train loss at the last step where both were measured.

    The train loss is `probe/loss` at that very step, so that dropout and moving weights cannot
    mimic a gap; without a probe it is `train_loss`, and a negative gap is then no surprise.
    """
    if "val/loss" not in telemetry:
        return None
    val = telemetry["val/loss"]
    if "probe/loss" not in telemetry:
        train = train_loss(telemetry)
        return None if train is None else float(val.values[-1]) - train
    probe = telemetry["probe/loss"]
    common, at_val, at_probe = np.intersect1d(val.steps, probe.steps, return_indices=True)
    if not len(common):
        return None
    return float(val.values[at_val[-1]] - probe.values[at_probe[-1]])


@_signal("loss")
def loss_drop(telemetry: Telemetry) -> float | None:
    """How far the train loss fell: first minus last probe, else first minus last 5 % of steps."""
    if "probe/loss" in telemetry:
        probe = telemetry["probe/loss"]
        return float(probe.values[0] - probe.values[-1]) if len(probe) > 1 else None
    if "train/loss" not in telemetry or len(telemetry["train/loss"]) < 2:
        return None
    loss = telemetry["train/loss"]
    first = loss.values[: _share(loss, _FINAL_SHARE)]
    return float(np.mean(first) - np.mean(_last(loss, _FINAL_SHARE).values))


@_signal("loss/step")
def late_slope(telemetry: Telemetry) -> float | None:
    """Slope over the last 30 % of steps of `probe/loss`, else `val/loss`, else `train/loss`.

    Theil-Sen: the median slope over all pairs of points (Sen 1968); negative: still improving.
    """
    for name in ("probe/loss", "val/loss", "train/loss"):
        if name in telemetry:
            late = finite(_from_step(telemetry[name], 1 - _LATE_SHARE))
            return _slope(late) if len(late) >= 3 else None
    return None


@_signal("1")
def clip_ratio(telemetry: Telemetry) -> float | None:
    """Share of optimizer steps whose gradient was clipped."""
    if "clip_coefficient" not in telemetry:
        return None
    return float(np.mean(telemetry["clip_coefficient"].values < 1))


@_signal("1")
def update_ratio(telemetry: Telemetry) -> float | None:
    """Median of ‖Δθ‖/‖θ‖ over weight matrices and over sampled steps of the second half."""
    halves = [_from_step(series, 0.5).values for series in update_ratios(telemetry)]
    return _median(halves)


@_signal("1")
def early_update_ratio(telemetry: Telemetry) -> float | None:
    """Median of ‖Δθ‖/‖θ‖ over weight matrices and over the sampled ones of the first 60 steps.

    The root-cause signal of a learning rate that is too high: above 5e-2 in the fault zoo.
    """
    layers = update_ratios(telemetry)
    if not layers:
        return None
    first = min(int(series.steps[0]) for series in layers)
    return _median([series.values[series.steps < first + _EARLY_STEPS] for series in layers])


@_signal("count")
def loss_spikes(telemetry: Telemetry) -> float | None:
    """How often the train loss jumped far above its recent level: see `loss_spike_steps`."""
    if "train/loss" not in telemetry or len(telemetry["train/loss"]) < _WINDOW + 3:
        return None
    return float(len(loss_spike_steps(telemetry)))


def loss_spike_steps(telemetry: Telemetry) -> Ints:
    """Steps at which the train loss jumped far above its recent level.

    The median of three steps (one bad batch is no spike) exceeds the median of the 50 steps before
    by 6 standard deviations, taken as 1.4826 MAD (Leys et al. 2013) or 1 % of the level, and by 1.5
    times as much as any of the 50 did, which needs no assumption about tails. Jumps within 50 steps
    are one spike; a loss that is not finite is a jump. False alarms: tests/telemetry.
    """
    return _jumps(telemetry, 3)


def loss_jump_steps(telemetry: Telemetry) -> Ints:
    """Steps whose loss alone is as far above its recent level as a spike: bad batches, and spikes.

    Were all losses independent, at most `CHANCE_SPIKE` of them would be spikes.
    """
    return _jumps(telemetry, 1)


CHANCE_SPIKE = 4 / 52
"""How probably one of the two losses on either side of a jump is above the same 50 as well.

Of 52 exchangeable losses the last two are the highest once in 52 * 51 / 2; that the last of 51 is,
happens once in 51; the ratio, 2 / 52, for each of two. A margin over the 50 makes it rarer still.
"""


def _jumps(telemetry: Telemetry, width: int) -> Ints:
    """First steps of the jumps of the median of `width` losses, at least 50 steps apart."""
    if "train/loss" not in telemetry or len(telemetry["train/loss"]) < _WINDOW + width:
        return np.empty(0, dtype=np.int64)
    loss = np.nan_to_num(telemetry["train/loss"].values, nan=np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(loss, _WINDOW)[:-width]  # [n - 49 - w, 50]
    ahead = np.lib.stride_tricks.sliding_window_view(loss[_WINDOW:], width)
    medians, highest = np.median(ahead, axis=1), windows.max(axis=1)
    above = np.flatnonzero(medians > highest)  # the others cannot be, and medians are slow
    level, mad = _recent(windows, above)
    spread = np.maximum(NORMAL * mad, 0.01 * np.abs(level))
    far = np.maximum(6 * spread, 1.5 * (highest[above] - level))
    jumps = above[medians[above] - level > far]
    first = np.diff(jumps, prepend=-_WINDOW - 1) > _WINDOW
    steps: Ints = telemetry["train/loss"].steps[_WINDOW + jumps[first]]
    return steps


@_signal("count")
def grad_spikes(telemetry: Telemetry) -> float | None:
    """How often the gradient norm jumped far above its recent level: see `grad_spike_steps`."""
    if "grad_norm" not in telemetry or len(telemetry["grad_norm"]) <= _WINDOW:
        return None
    return float(len(grad_spike_steps(telemetry)))


def grad_spike_steps(telemetry: Telemetry) -> Ints:
    """Steps whose gradient norm is above ten times the median of the 50 steps before, or infinite.

    10 to 100 times the running median is what precedes a loss spike by 1 to 3 steps.
    """
    if "grad_norm" not in telemetry or len(telemetry["grad_norm"]) <= _WINDOW:
        return np.empty(0, dtype=np.int64)
    norm = telemetry["grad_norm"].values
    windows = np.lib.stride_tricks.sliding_window_view(norm, _WINDOW)[:-1]  # [n - 50, 50]
    above = np.flatnonzero(norm[_WINDOW:] > 10 * windows.min(axis=1))
    level, _ = _recent(windows, above)
    steps: Ints = telemetry["grad_norm"].steps[_WINDOW:][above[norm[_WINDOW:][above] > 10 * level]]
    return steps


@_signal("s")
def step_seconds(telemetry: Telemetry) -> float | None:
    """Median time from one optimizer step to the next, on the host's clock."""
    return _median([telemetry["step_seconds"].values]) if "step_seconds" in telemetry else None


@_signal("1/s")
def samples_per_second(telemetry: Telemetry) -> float | None:
    """Median throughput of a step, in samples that counted in the loss; see `step_seconds`."""
    return _per_second(telemetry, "samples")


@_signal("1/s")
def tokens_per_second(telemetry: Telemetry) -> float | None:
    """Median throughput of a step, in tokens that counted in the loss; see `step_seconds`."""
    return _per_second(telemetry, "tokens")


def update_ratios(telemetry: Telemetry) -> list[Series]:
    """Update ratios of the weight matrices; of all layers if the header does not name them."""
    layers = telemetry.layers("update_ratio")
    named = str(telemetry.header.get("weight_layers") or "").split(",")
    return [layers[name] for name in named if name in layers] or list(layers.values())


def _per_second(telemetry: Telemetry, name: str) -> float | None:
    """Median over steps: one with an evaluation or a checkpoint before it is slow for no reason."""
    if name not in telemetry or "step_seconds" not in telemetry:
        return None
    count, seconds = telemetry[name], telemetry["step_seconds"]
    _, of_count, of_seconds = np.intersect1d(count.steps, seconds.steps, return_indices=True)
    took = seconds.values[of_seconds]
    return _median([count.values[of_count][took > 0] / took[took > 0]])


def _median(parts: list[Floats]) -> float | None:
    values = np.concatenate(parts) if parts else np.empty(0)
    values = values[np.isfinite(values)]
    return float(np.median(values)) if len(values) else None


def _recent(windows: Floats, rows: npt.NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Median [k] and MAD [k] of k `rows` of `windows` [n, 50]."""
    level, mad = np.empty(len(rows)), np.empty(len(rows))
    for start in range(0, len(rows), _BLOCK):
        part = slice(start, start + _BLOCK)
        values = windows[rows[part]]
        level[part] = np.median(values, axis=1)
        with np.errstate(invalid="ignore"):  # inf - inf
            mad[part] = np.median(np.abs(values - level[part, None]), axis=1)
    return level, mad


def _share(series: Series, share: float) -> int:
    return max(1, round(share * len(series)))


def _last(series: Series, share: float) -> Series:
    count = _share(series, share)
    return Series(series.steps[-count:], series.values[-count:])


def _from_step(series: Series, share: float) -> Series:
    first, last = series.steps[0], series.steps[-1]
    late = series.steps >= first + share * (last - first)
    return Series(series.steps[late], series.values[late])


def _slope(series: Series) -> float:
    rows = np.unique(np.linspace(0, len(series) - 1, _MOST_POINTS).round().astype(np.int64))
    return theil_sen(series.steps[rows], series.values[rows])
