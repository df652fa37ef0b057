"""Norms on the wrong scale: multiplied by an AMP loss scale, or taken between micro-batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from orchestrator.clip_nouns import Bools, Flag, NormSeries
from orchestrator.nouns import Floats, Ints
from orchestrator.plan.clip.robust import rolling_median
from orchestrator.telemetry.robust import robust_std

SUSPICIOUS_LEVEL = 1e3
"""Norm from which an undone loss scale is thought of; GradScaler starts at 2**16."""

EVENLY = 20
"""Steps between overflows, all equal, from which they are a scale that grows too far and falls
back; GradScaler's growth_interval is 2,000 unless set."""

EVENT_WINDOW = 30  # steps on each side of an event whose medians are compared
DOUBLING = 0.35  # |log2 of a level step| within 1 +- this counts as x2 or x0.5
FOLLOWS = 0.7  # slope of the log norm on the log scale from which the norm follows the scale
GROWTH = (0.35, 1.15)
"""Power of k with which a gradient grows over k micro-batches: 1/2 if all noise, 1 if all
signal."""

ENOUGH_ROWS = 20_000  # a cycle that is there shows in these
LONGEST_CYCLE = 64  # micro-batches per optimizer step that are looked for


@dataclass(frozen=True, slots=True, eq=False)
class Scaled:
    """Norms carry the loss scale. `divide_by` [n] undoes it; None where nobody knows the scale."""

    flag: Flag
    divide_by: Floats | None


@dataclass(frozen=True, slots=True, eq=False)
class MicroStep:
    """Norms were taken per micro-batch; `is_last` [n] marks the last of each cycle."""

    flag: Flag
    is_last: npt.NDArray[np.bool_]


def amp_scaled(series: NormSeries, valid: Bools) -> Scaled | None:
    """Norms that jump with the loss scale; without a record of it, norms that look so."""
    if series.loss_scale is not None and np.isfinite(series.loss_scale).any():
        return _against_column(series, valid)
    return _without_column(series.norms, valid)


def _against_column(series: NormSeries, valid: Bools) -> Scaled | None:
    assert series.loss_scale is not None
    scale = series.loss_scale
    with np.errstate(divide="ignore", invalid="ignore"):
        log_scale, z = np.log2(scale), np.log2(series.norms)
    usable = valid & np.isfinite(log_scale)
    at = np.flatnonzero(usable)
    log_scale, z = log_scale[at], z[at]
    moved = np.flatnonzero(np.abs(np.diff(log_scale)) > 0.5) + 1
    if not len(moved):
        return _constant_scale(z, log_scale)
    jumps = _level_steps(z, moved)
    steps = log_scale[moved] - log_scale[moved - 1]
    known = np.isfinite(jumps)
    if not known.any():
        return None
    slope = float((jumps[known] @ steps[known]) / (steps[known] @ steps[known]))
    if slope < FOLLOWS:
        return None
    return Scaled(
        Flag(
            "amp_scaled",
            f"The norm jumps with the loss scale ({len(moved)} changes; it takes {slope:.0%} of "
            f"each): "
            "it was recorded before unscale_. It was divided by the loss scale here; call "
            "scaler.unscale_(optimizer) before recording and clipping.",
        ),
        np.where(np.isfinite(scale) & (scale > 0), scale, np.nan),
    )


def _constant_scale(z: Floats, log_scale: Floats) -> Scaled | None:
    """A scale that never moved proves nothing; with norms as large as it, the user must say."""
    if not len(z):
        return None
    level, scale = float(np.exp2(np.median(z))), float(np.exp2(np.median(log_scale)))
    if level < SUSPICIOUS_LEVEL or scale < SUSPICIOUS_LEVEL:
        return None
    return Scaled(
        Flag(
            "amp_scaled",
            f"The median norm is {level:.3g} while the loss scale stays at {scale:.3g}: probably "
            f"recorded before unscale_ (then the true norm is about {level / scale:.2g}). Record "
            "after scaler.unscale_(optimizer), or divide grad_norm by the loss scale.",
        ),
        None,
    )


def _without_column(norms: Floats, valid: Bools) -> Scaled | None:
    """Norms above 1e3 for a tenth of the pilot, whose level moves as a loss scale does.

    It halves after overflows, doubles now and then, or overflows come at equal distances.
    """
    if not valid.any() or float(np.quantile(norms[valid], 0.9)) < SUSPICIOUS_LEVEL:
        return None
    at = np.flatnonzero(valid)
    z = np.log2(norms[at])
    overflows = np.flatnonzero(~np.isfinite(norms))
    after = np.unique(np.searchsorted(at, overflows))
    after = after[(after > 0) & (after < len(at))]
    halvings = _level_steps(z, after)
    halved = int(np.sum(np.abs(halvings + 1) < DOUBLING))
    doublings = _doublings(z)
    apart = np.diff(overflows)
    is_even = len(apart) >= 2 and apart.min() >= EVENLY and apart.max() - apart.min() <= 2
    if halved == 0 and len(doublings) < 2 and not is_even:
        return None
    return Scaled(
        Flag(
            "amp_scaled",
            f"Norms reach {np.quantile(norms[valid], 0.9):.3g}; their level halves after "
            f"{halved} of "
            f"{len(after)} overflows and doubles or halves {len(doublings)} times by itself"
            f"{', and overflows come at equal distances' if is_even else ''}: it looks "
            f"multiplied by an "
            "AMP loss scale. Record after scaler.unscale_(optimizer), or give the loss scale in "
            "a column "
            "loss_scale; nothing is proposed until then.",
        ),
        None,
    )


def _level_steps(z: Floats, events: Ints) -> Floats:
    """Median after minus median before each event, up to its neighbours: [events], or NaN."""
    bounds: list[int] = [0, *events.tolist(), len(z)]
    steps = np.full(len(events), np.nan)
    for i in range(len(events)):
        first, at, last = bounds[i : i + 3]
        before = z[max(first, at - EVENT_WINDOW) : at]
        after = z[at : min(last, at + EVENT_WINDOW)]
        if min(len(before), len(after)) >= 3:
            steps[i] = np.median(after) - np.median(before)
    return steps


def _doublings(z: Floats) -> Ints:
    """Places at which the level of `z` (log2) steps by one, clear of the noise of the medians."""
    width = 2 * EVENT_WINDOW + 1
    if len(z) < 2 * width:
        return np.empty(0, np.int64)
    level = rolling_median(z, width)
    half = width // 2
    step = level[width:] - level[:-width]  # [n - width]: one window after against one before
    noise = 1.25 * robust_std(z - level) * np.sqrt(2 / width)
    near = (np.abs(np.abs(step) - 1) < DOUBLING) & (np.abs(step) > 5 * noise)
    found: list[int] = []
    for i in map(int, np.flatnonzero(near)):
        around = np.abs(step[max(0, i - half) : i + half + 1])
        is_flat = abs(level[i] - level[max(0, i - half)]) < 0.25 and (
            abs(level[min(len(level) - 1, i + width + half)] - level[i + width]) < 0.25
        )
        if is_flat and abs(step[i]) >= around.max() and (not found or i - found[-1] > width):
            found.append(i)
    return np.array(found, dtype=np.int64)


def micro_step(norms: Floats) -> MicroStep | None:
    """The norm grows through every cycle of N rows: it was recorded while gradients accumulated.

    `norms` [n], NaN where not valid. Only a rise that is monotone over the phases of the cycle and
    between sqrt(k) and k at the k-th counts: every fifth batch being a larger one is none.
    """
    valid = np.isfinite(norms[:ENOUGH_ROWS])
    z = np.log(norms[:ENOUGH_ROWS][valid])
    row = np.flatnonzero(valid)
    r = z - _rolling_mean(z, 2 * LONGEST_CYCLE)  # a median would bend the phases of a cycle of 2
    total = float(np.mean(np.abs(r - np.median(r))))
    best: tuple[float, int, int] | None = None
    for cycle in range(2, min(LONGEST_CYCLE, len(z) // 6) + 1):
        phase = row % cycle
        if not np.bincount(phase, minlength=cycle).all():
            continue
        levels = np.array([np.median(r[phase == p]) for p in range(cycle)])
        start = (int(np.argmax(levels)) + 1) % cycle
        rising = np.roll(levels, -start)
        if not (np.diff(rising) > 0).all():
            continue
        growth = (rising[1:] - rising[0]) / np.log(np.arange(2, cycle + 1))
        if growth.min() < GROWTH[0] or growth.max() > GROWTH[1]:
            continue
        unexplained = float(np.mean(np.abs(r - levels[phase]))) / max(total, 1e-300)
        if _sawtooth(z, row, phase, start) and (best is None or unexplained < 0.95 * best[0]):
            best = (unexplained, cycle, int(np.argmax(levels)))
    if best is None:
        return None
    _, cycle, last = best
    flag = Flag(
        "micro_step",
        f"The norm grows through every cycle of {cycle} rows and falls back: it was recorded per "
        f"micro-batch, {cycle} to an optimizer step. Only the last of each cycle was used; record "
        "once per optimizer step, after accumulation.",
    )
    return MicroStep(flag, np.arange(len(norms)) % cycle == last)


def _sawtooth(z: Floats, row: Ints, phase: Ints, start: int) -> bool:
    """Whether neighbours in a cycle rise, and the last falls to the first, far oftener than not.

    They share the micro-batches before, so that they hardly differ by chance, however much cycles
    do. Of all pairs 65 %, and 3 standard errors above what 6 of independent norms would reach.
    """
    follows = np.diff(row) == 1
    is_first = phase[1:][follows] == start
    as_it_should = (np.diff(z)[follows] > 0) != is_first
    n = len(as_it_should)
    return n > 0 and float(np.mean(as_it_should)) >= max(0.65, 0.5 + 3 / np.sqrt(n))


def _rolling_mean(z: Floats, width: int) -> Floats:
    """Mean over about `width` values around each one, fewer at the ends: [n] -> [n]."""
    total = np.concatenate([[0.0], np.cumsum(z)])
    index = np.arange(len(z))
    first, last = np.maximum(0, index - width // 2), np.minimum(len(z), index + width // 2)
    means: Floats = (total[last] - total[first]) / (last - first)
    return means
