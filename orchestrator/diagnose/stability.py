"""Rules about updates that are too large: a loss that blows up, or jumps again and again."""

from __future__ import annotations

import math

import numpy as np

from orchestrator.diagnose.curves import (
    LARGE_UPDATE,
    active_span,
    early_update_peak,
    first_step,
    running_median,
    total_steps,
)
from orchestrator.diagnose.progress import progress
from orchestrator.diagnose.registry import rule
from orchestrator.nouns import Finding, Telemetry
from orchestrator.telemetry.robust import finite
from orchestrator.telemetry.signals import (
    CHANCE_SPIKE,
    early_update_ratio,
    grad_spike_steps,
    loss_jump_steps,
    loss_spike_steps,
)

PEAK = 5.0
DOUBLED = 2.0


@rule(
    needs=("train/loss|probe/loss",),
    tells="a learning rate that is too high from other failures",
    explains=(
        "non_finite",
        "exploding_gradients",
        "dead_units",
        "layer_imbalance",
        "logit_drift",
        "loss_spikes",
        "gradient_spike",
        "high_clip_ratio",
        "learning_rate_too_low",
        "plateau",
        "overfitting",
    ),
)
def instability(telemetry: Telemetry) -> Finding | None:
    """Updates so large that the loss blows up, swings, or forgets what it had learned.

    One of: (a) the median of 5 losses peaks above 5x the start; (b) the 90th percentile of the
    update ratio over the first 60 steps exceeds 5e-2 (50x the healthy 1e-3), and the run is
    underfit or the loss doubled; (c) the train loss ends above twice its best, having lost a
    quarter of all it had gained. A run that learned in the end is let off (a) and (c). Source: rows
    14 and 7 of docs/diagnosis.md, fault zoo; the percentile (a network that died in the first steps
    has a median of 0), the doubling and (c) are ours. Excluded: a first loss many times the second,
    steps that were skipped, matrices that start at zero, single outlying batches.
    """
    course = progress(telemetry)
    series = telemetry["train/loss" if "train/loss" in telemetry else "probe/loss"]
    loss, diverged = finite(series), not np.isfinite(series.values[-1])
    start = course.start if course else float(loss.values[0]) if len(loss) else 0.0
    if start <= 0 or not len(loss):
        return None
    smoothed = running_median(loss.values, min(5, len(loss))) / start
    peak, ratio = float(np.max(smoothed)), early_update_peak(telemetry)
    harmed = diverged or (course is not None and not course.is_learned)
    underfit = diverged or (course is not None and course.is_underfit)
    begins = int(loss.steps[np.argmax(smoothed > PEAK)])
    if ratio > LARGE_UPDATE and (underfit or peak > DOUBLED):
        begins = first_step(telemetry)
    elif course is not None and course.is_forgotten and harmed and peak <= PEAK:
        begins = int(course.steps[np.argmin(course.losses)])
    elif peak <= PEAK or not harmed:
        return None
    return _unstable(telemetry, begins, start, peak, ratio)


def _unstable(
    telemetry: Telemetry, begins: int, start: float, peak: float, ratio: float
) -> Finding:
    """The finding, in the words that its numbers ask for."""
    evidence: dict[str, float | str] = {"peak": peak, "start": start}
    says = []
    if peak > DOUBLED:
        says.append("the train loss peaked at {peak:.3g} times its start of {start:.3g}")
    if ratio > 0:
        evidence["early_update_peak"] = ratio
        evidence["early_update_ratio"] = early_update_ratio(telemetry) or 0.0
        says.append("early updates reached {early_update_peak:.2g} of the weights (healthy: 1e-3)")
    course = progress(telemetry)
    if course is not None:
        evidence |= {"best": float(np.min(course.losses)), "end": course.end}
        says.append("the train loss went from {start:.3g} to {end:.3g}, its best was {best:.3g}")
    excess = max(peak / PEAK, ratio / LARGE_UPDATE, 1.0)
    return Finding(
        rule="instability",
        severity=float(min(1.0, 0.6 + 0.2 * np.log10(excess))),
        summary="; ".join(says),
        steps=(begins, total_steps(telemetry) - 1),
        evidence=evidence,
        confounders=("bad batches", "inputs far from unit scale", "too wide an initialisation"),
    )


@rule(
    needs=("train/loss",),
    tells="loss spikes from a smooth course",
    explains=("instability", "non_finite", "gradient_spike"),
)
def loss_spikes(telemetry: Telemetry) -> Finding | None:
    """The train loss jumps, stays up for some steps, and comes back, again and again.

    Spikes as `telemetry.signals` defines them (median of 3 losses above 6 MAD of the 50 before and
    clear of all of them), at least a tenth of the start loss high, after the learning rate reached
    half its peak: three, more than independent batches would show by chance (1 %), or one whose
    median of 5 is 5x the start. Source: row 9 of docs/diagnosis.md; MAD rule of Leys et al. 2013;
    count and heights are ours, calibrated in scripts/bench_rules.py. Excluded: heavy-tailed
    batches, warm-up, the jitter of a converged loss. `grad_norm_ratio` is the largest gradient norm
    of the 4 steps up to a spike over the median of the 50 before.
    """
    course = progress(telemetry)
    if course is None or course.start <= 0:
        return None
    found = _high_spikes(telemetry, 0.1 * course.start)
    jumps = max(len(found), len(loss_jump_steps(telemetry)))
    is_often = len(found) >= 3 and at_least(len(found), jumps, CHANCE_SPIKE) < 0.01
    if not is_often and not _high_spikes(telemetry, 5 * course.start, width=5):
        return None
    evidence: dict[str, float | str] = {
        "spikes": float(len(found)),
        "height": float(np.median(list(found.values()))),
        "start": course.start,
    }
    says = "{spikes:.0f} loss spikes, {height:.2g} high in the median (start {start:.2g})"
    jump = _norm_before(telemetry, list(found))
    if jump is not None:
        evidence["grad_norm_ratio"] = jump
        says += "; gradient norm {grad_norm_ratio:.2g} times its level just before"
    return Finding(
        rule="loss_spikes",
        severity=float(min(1.0, 0.3 + 0.05 * len(found))),
        summary=says,
        steps=(min(found), max(found)),
        evidence=evidence,
        confounders=("bad batches", "a new data shard", "a change of the learning rate"),
    )


@rule(
    needs=("grad_norm", "train/loss"),
    tells="a gradient that warns of a loss spike",
    explains=("non_finite",),
)
def gradient_spike(telemetry: Telemetry) -> Finding | None:
    """A gradient norm far above its recent level, and a loss that jumps 1 to 3 steps later.

    The warning that locates step and batch: a norm of more than 10 times the median of the 50 steps
    before (mission: 10 to 100 times, 1 to 3 steps before the loss), then a spike as in
    `loss_spikes`, a tenth of the start loss high (row 9 of docs/diagnosis.md); of the spikes more
    are forewarned than by chance (1 %), given how often the norm jumps elsewhere. Excluded: single
    bad batches, whose loss and gradient jump in the same step and not after it; batches of a few
    samples, whose norms jump all the time; the first 50 steps.
    """
    course = progress(telemetry)
    if course is None or course.start <= 0:
        return None
    spikes = _high_spikes(telemetry, 0.1 * course.start)
    norm = finite(telemetry["grad_norm"])
    jumps = np.intersect1d(grad_spike_steps(telemetry), norm.steps)
    ahead = {s: jumps[(jumps >= s - 3) & (jumps < s)].tolist() for s in spikes}
    warned = {spike: steps[0] for spike, steps in ahead.items() if steps}
    elsewhere = [j for j in jumps.tolist() if not any(s - 3 <= j < s + 50 for s in spikes)]
    chance = min(1.0, 3 * len(elsewhere) / max(1, len(norm) - 53 * len(spikes)))
    if not warned or at_least(len(warned), len(spikes), chance) >= 0.01:
        return None
    spike, step = min(warned.items())
    at = int(np.searchsorted(norm.steps, step))
    jump = float(norm.values[at] / np.median(norm.values[max(0, at - 50) : at]))
    return _warning(telemetry, step, spike, jump, spikes[spike])


def _warning(telemetry: Telemetry, warned: int, spike: int, jump: float, height: float) -> Finding:
    """The finding, with the batches of the step that warned where the program told their ids."""
    batches = ", ".join(b.id for b in telemetry.batches if b.step == warned and b.id)
    evidence: dict[str, float | str] = {"step": float(warned), "jump": jump, "height": height}
    says = "the gradient norm of step {step:.0f} was {jump:.3g} times its recent level"
    if batches:
        evidence["batches"] = batches
        says += " (batch {batches})"
    return Finding(
        rule="gradient_spike",
        severity=0.4,
        summary=says + "; the loss jumped by {height:.2g} within 3 steps",
        steps=(warned, spike),
        evidence=evidence,
        confounders=("a bad batch", "a change of the learning rate"),
    )


def _high_spikes(telemetry: Telemetry, least: float, width: int = 3) -> dict[int, float]:
    """Step and height of every spike that is at least so high, as the median of `width` losses."""
    loss = finite(telemetry["train/loss"])
    begin, _ = active_span(telemetry, 0.5)
    found: dict[int, float] = {}
    for step in loss_spike_steps(telemetry).tolist():
        at = int(np.searchsorted(loss.steps, step))
        before, after = loss.values[max(0, at - 50) : at], loss.values[at : at + 20]
        if step >= begin and len(before) and len(after) >= width:
            height = float(np.max(running_median(after, width)) - np.median(before))
            if height >= least:
                found[step] = height
    return found


def at_least(k: int, n: int, p: float) -> float:
    """How probably `k` or more of `n` independent events happen that each have probability `p`."""
    return 1 - math.fsum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k))


def _norm_before(telemetry: Telemetry, steps: list[int]) -> float | None:
    """Median over spikes: highest gradient norm of the 4 steps up to it over the 50 before."""
    if "grad_norm" not in telemetry:
        return None
    norm = finite(telemetry["grad_norm"])
    jumps = []
    for step in steps:
        at = int(np.searchsorted(norm.steps, step))
        before, near = norm.values[max(0, at - 53) : at - 3], norm.values[max(0, at - 3) : at + 1]
        if at > 3 and len(near) and np.median(before) > 0:
            jumps.append(float(np.max(near) / np.median(before)))
    return float(np.median(jumps)) if jumps else None
