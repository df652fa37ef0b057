"""After adoption: whether the clip ratio stays where it was predicted, both ways, with causes.

A low ratio is no sign of health and a high one no reason to raise the threshold (docs/clip.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from orchestrator.clip_nouns import Candidate, ClipAlarm, NormSeries, Proposal
from orchestrator.errors import OrchestratorError, nearest

WINDOW = 150  # steps; clip.md: 100 to 200
IN_A_ROW = 2  # windows that must agree: one bad epoch is none
HIGH = 0.20  # a ratio below this is never called high
INERT = 0.5  # of the calibrated level, under which a threshold that clips nothing does nothing
RISEN = 1.25
"""Of the calibrated level; a level within 25 % is the same level (stable.TOLERANCE)."""

STREAK = 10
"""Norms in a row that are not finite; GradScaler's search for a scale makes fewer at a time."""

MOST_NAMED = 8  # steps told in a sentence


@dataclass(frozen=True, slots=True)
class _Seen:
    """Rows [first, last) of a series: share clipped, median norm."""

    first: int
    last: int
    ratio: float
    level: float


def watch(
    proposal: Proposal, series: NormSeries, *, adopted: str | None = None
) -> tuple[ClipAlarm, ...]:
    """Alarms on the norms of a training under an adopted threshold; one for each kind and stretch.

    `adopted` names the candidate in force (None: the default). `series` holds unclipped norms of
    the adopted training from its calibrated stage on, not from its warm-up.
    """
    candidate = _adopted(proposal, adopted)
    assert proposal.evidence is not None
    level = float(proposal.evidence.trend[-1])
    seen = tuple(_windows(series, candidate.max_norm))
    expected = candidate.clip_ratio

    def is_high(w: _Seen) -> bool:
        return w.ratio > max(expected.high, HIGH)

    def is_inert(w: _Seen) -> bool:
        return w.ratio == 0 and w.level < INERT * level

    def has_risen(w: _Seen) -> bool:
        return w.level > RISEN * level

    alarms = [
        ClipAlarm(
            kind,
            int(series.steps[first]),
            int(series.steps[last - 1]),
            float(np.mean([w.ratio for w in seen if first <= w.first < last])),
            expected,
            _causes(proposal, series, candidate, first, last),
        )
        for kind, holds in (("high", is_high), ("inert", is_inert), ("drift", has_risen))
        for first, last in _stretches(seen, holds)
    ]
    for first, last in _streaks(series):
        share = float(np.mean(series.norms[first:last] > candidate.max_norm))
        causes = _causes(proposal, series, candidate, first, last)
        alarms.append(
            ClipAlarm(
                "nonfinite",
                int(series.steps[first]),
                int(series.steps[last - 1]),
                share,
                expected,
                causes,
            )
        )
    return tuple(sorted(alarms, key=lambda a: (a.first, a.kind)))


def _adopted(proposal: Proposal, name: str | None) -> Candidate:
    wanted = name or proposal.default
    shown = [*proposal.candidates, *([proposal.present] if proposal.present else [])]
    for candidate in shown:
        if candidate.name == wanted:
            return candidate
    raise OrchestratorError(
        f"the proposal has no candidate {wanted!r}",
        nearest(str(wanted), (c.name for c in shown)),
    )


def _windows(series: NormSeries, max_norm: float) -> Iterator[_Seen]:
    """Whole windows of the series; those without a finite norm are left to the streaks."""
    for first in range(0, len(series) - WINDOW + 1, WINDOW):
        norms = series.norms[first : first + WINDOW]
        finite = norms[np.isfinite(norms)]
        if len(finite):
            ratio = float(np.mean(finite > max_norm))
            yield _Seen(first, first + WINDOW, ratio, float(np.median(finite)))


def _stretches(
    seen: tuple[_Seen, ...], holds: Callable[[_Seen], bool]
) -> Iterator[tuple[int, int]]:
    """Rows [first, last) of runs of windows, IN_A_ROW or more, in which `holds` is true."""
    run: list[_Seen] = []
    for w in (*seen, None):
        if w is not None and holds(w):
            run.append(w)
            continue
        if len(run) >= IN_A_ROW:
            yield run[0].first, run[-1].last
        run = []


def _streaks(series: NormSeries) -> Iterator[tuple[int, int]]:
    """Rows [first, last) of runs of STREAK or more norms that are not finite."""
    bad = np.concatenate([[False], ~np.isfinite(series.norms), [False]])
    edges = np.flatnonzero(bad[1:] != bad[:-1])
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        if last - first >= STREAK:
            yield int(first), int(last)


def _causes(
    proposal: Proposal, series: NormSeries, candidate: Candidate, first: int, last: int
) -> tuple[str, ...]:
    """What the record says on each cause, in the order in which to look."""
    return (
        _lr(proposal, series, first, last),
        _data(series, candidate.max_norm, first, last),
        _numerics(series, first, last),
        "batch size: 16 times more accumulation shrank recorded norms 1.7 to 3.6 times; a change "
        "of it voids the calibration",
    )


def _lr(proposal: Proposal, series: NormSeries, first: int, last: int) -> str:
    calibrated = None if proposal.evidence is None else proposal.evidence.lr
    if calibrated is None or series.lr is None:
        return "LR: not recorded"
    now, then = float(np.median(series.lr[first:last])), float(calibrated[-1])
    if abs(now - then) <= 0.01 * abs(then):
        return f"LR: as in the calibration, {then:.3g}"
    return f"LR: {now:.3g}, calibrated at {then:.3g}"


def _data(series: NormSeries, max_norm: float, first: int, last: int) -> str:
    clipped = series.steps[first:last][series.norms[first:last] > max_norm]
    if not len(clipped):
        return "data: no step was clipped"
    named = ", ".join(str(s) for s in clipped[:MOST_NAMED])
    more = f" and {len(clipped) - MOST_NAMED} more" if len(clipped) > MOST_NAMED else ""
    return f"data: look at the batches of the clipped steps {named}{more}"


def _numerics(series: NormSeries, first: int, last: int) -> str:
    bad = int((~np.isfinite(series.norms[first:last])).sum())
    told = f"numerics: {bad} of {last - first} norms are not finite"
    if series.loss_scale is None:
        return told
    scale = series.loss_scale[first:last]
    return f"{told}, loss scale {np.nanmin(scale):.3g} to {np.nanmax(scale):.3g}"
