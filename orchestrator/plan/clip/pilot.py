"""One pilot read to the end: checks, calibration, flags, backtest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from orchestrator.clip_nouns import Flag, NormSeries
from orchestrator.plan.clip import shape, stable
from orchestrator.plan.clip.backtest import Backtest, backtest
from orchestrator.plan.clip.calibration import Calibration, calibrate, segment
from orchestrator.plan.clip.checks import Checked, check, too_short
from orchestrator.plan.clip.stable import TOLERANCE

NO_BACKTEST = Backtest((), ())


@dataclass(frozen=True, slots=True, eq=False)
class Pilot:
    """What one series says. Without `calibration` there is a `refusal`."""

    series: NormSeries
    checked: Checked
    flags: tuple[Flag, ...]
    refusal: str | None = None
    calibration: Calibration | None = None
    backtest: Backtest = NO_BACKTEST


def examine(series: NormSeries, rng: np.random.Generator) -> Pilot:
    """Check a series and calibrate on it; a refusal stops at the first reason."""
    checked = check(series)
    if checked.refusal is not None:
        return Pilot(series, checked, checked.flags, checked.refusal)
    n = len(checked.log_norms)
    first, ramp, jumps = segment(checked.lr, n)
    flags = list(checked.flags)
    if ramp:
        flags.append(_transient(int(checked.steps[ramp - 1]), "the LR rises until then"))
    if len(jumps):
        flags.append(_regime_change(checked, int(jumps[-1])))
    short = too_short(n - first)
    if short is not None:
        since = "the LR jumped" if len(jumps) else "the warm-up"
        text = (
            f"Only {n - first} steps since {since} (step {int(checked.steps[min(first, n - 1)])}). "
        )
        flags.append(Flag(short.name, text + "Record a longer pilot."))
        return Pilot(series, checked, tuple(flags), flags[-1].text)
    c = calibrate(checked.log_norms, checked.lr, loss=checked.loss)
    flags.extend(_flags(c, checked, has_ramp=ramp > 0))
    tested = backtest(checked, _all_residuals(c), rng)
    return Pilot(series, checked, tuple(flags), None, c, tested)


def _all_residuals(c: Calibration) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Residuals [n] of every step; those of the ramp, which nothing uses, are zero."""
    return np.concatenate([np.zeros(c.ramp_end), c.spikes.residuals])


def _transient(last: int, why: str) -> Flag:
    return Flag("transient", f"The start of the pilot up to step {last} was left out: {why}.")


def _regime_change(checked: Checked, jump: int) -> Flag:
    assert checked.lr is not None
    before, after = checked.lr[jump - 1], checked.lr[jump]
    return Flag(
        "regime_change",
        f"The LR jumped from {before:.3g} to {after:.3g} at step {int(checked.steps[jump])}; "
        f"only what "
        "came after counts. Another jump voids the proposal.",
    )


def _flags(c: Calibration, checked: Checked, *, has_ramp: bool) -> list[Flag]:
    steps, w = checked.steps, c.window
    segment_length = len(c.log_norms) - c.first
    drift = stable.drift(w, segment_length)
    flags = []
    if drift is None and w.first > c.first and not has_ramp and _starts_elsewhere(c):
        flags.append(
            _transient(int(steps[w.first - 1]), "the level of the norm was different until then")
        )
    if len(c.spikes.indices):
        flags.append(_spikes(c, checked))
    if drift is not None:
        flags.append(drift)
    correlated = shape.autocorrelated(w.phi, len(w))
    if c.modes is not None:
        flags.append(shape.bimodal(c.modes, steps[w.first : w.last]))
    elif correlated is not None:
        flags.append(correlated)
    if c.heavy is not None:
        flags.append(c.heavy)
    return flags


def _starts_elsewhere(c: Calibration) -> bool:
    """Whether the left-out steps before the window lie on another level than the window."""
    before = c.log_norms[c.first : c.window.first]
    inside = c.log_norms[c.window.first : c.window.last]
    return bool(abs(np.median(before) - np.median(inside)) > TOLERANCE)


def _spikes(c: Calibration, checked: Checked) -> Flag:
    at = c.spikes.indices
    sizes = np.exp(c.spikes.residuals[at - c.ramp_end])
    where = ", ".join(str(s) for s in checked.steps[at][:8]) + (", ..." if len(at) > 8 else "")
    return Flag(
        "spikes",
        f"{len(at)} isolated spikes of {sizes.min():.1f} to {sizes.max():.0f} times the level "
        f"(steps "
        f"{where}). Look at the batches of these steps.",
    )
