"""After adoption: whether the clip ratio stays where it was predicted, both ways, with causes.

A low ratio is no sign of health and a high one no reason to raise the threshold (docs/clip.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from orchestrator.clip_nouns import ClipAlarm, NormSeries
from orchestrator.nouns import ClipForecast, ClipRatio, ClipStage

WINDOW = 150  # steps; clip.md: 100 to 200
IN_A_ROW = 2  # windows that must agree: one bad epoch is none
HIGH = 0.20  # a ratio below this is never called high
INERT = 0.5  # of the predicted level, under which a threshold that clips nothing does nothing
RISEN = 1.25
"""Of the predicted level; a level within 25 % is the same level (stable.TOLERANCE)."""

STREAK = 10
"""Norms in a row that are not finite; GradScaler's search for a scale makes fewer at a time."""

MOST_NAMED = 8  # steps told in a sentence
TOLERANCE = 0.25  # of the LR within a stage: a schedule moves it


@dataclass(frozen=True, slots=True)
class _Seen:
    """Rows [first, last) of a series: share clipped, median norm, and what was predicted there."""

    first: int
    last: int
    ratio: float
    level: float
    predicted: ClipStage


def watch(forecast: ClipForecast, series: NormSeries) -> tuple[ClipAlarm, ...]:
    """Alarms on the norms of a training under an adopted threshold; one for each kind and stretch.

    `series` holds the norms before clipping of a whole training of the forecast's recipe; its
    warm-up and what comes after the last predicted step are not judged.
    """
    seen = tuple(_windows(forecast, series))

    def is_high(w: _Seen) -> bool:
        return w.ratio > max(w.predicted.ratio.high, HIGH)

    def is_inert(w: _Seen) -> bool:
        return w.ratio == 0 and w.level < INERT * w.predicted.level

    def has_risen(w: _Seen) -> bool:
        return w.level > RISEN * w.predicted.level

    def alarm(kind: str, first: int, last: int, predicted: ClipStage) -> ClipAlarm:
        clipped = series.norms[first:last] > forecast.max_norm
        return ClipAlarm(
            kind=kind,
            first=int(series.steps[first]),
            last=int(series.steps[last - 1]),
            ratio=float(clipped.mean()),
            expected=predicted.ratio,
            causes=_causes(predicted, series, forecast.max_norm, first, last),
        )

    alarms = [
        alarm(kind, run[0].first, run[-1].last, run[0].predicted)
        for kind, holds in (("high", is_high), ("inert", is_inert), ("drift", has_risen))
        for run in _stretches(seen, holds)
    ]
    for first, last in _streaks(series):
        ends = int(series.steps[first]), int(series.steps[last - 1])
        predicted = _predicted(forecast, *ends) or forecast.stages[-1]
        alarms.append(alarm("nonfinite", first, last, predicted))
    return tuple(sorted(alarms, key=lambda a: (a.first, a.kind)))


def _windows(forecast: ClipForecast, series: NormSeries) -> Iterator[_Seen]:
    """Whole windows of the predicted steps; those without a finite norm are left to the streaks."""
    start = int(np.searchsorted(series.steps, forecast.stages[0].first))
    for first in range(start, len(series) - WINDOW + 1, WINDOW):
        norms = series.norms[first : first + WINDOW]
        finite = norms[np.isfinite(norms)]
        ends = int(series.steps[first]), int(series.steps[first + WINDOW - 1])
        predicted = _predicted(forecast, *ends)
        if len(finite) and predicted is not None:
            ratio = float(np.mean(finite > forecast.max_norm))
            yield _Seen(first, first + WINDOW, ratio, float(np.median(finite)), predicted)


def _predicted(forecast: ClipForecast, first: int, last: int) -> ClipStage | None:
    """What is predicted of the steps `first` to `last`; None beyond the last predicted one.

    Over several stages the widest: the level may move from one to the next.
    """
    parts = [s for s in forecast.stages if s.first <= last and s.last >= first]
    if not parts or last > forecast.stages[-1].last:
        return None
    rates = [s.lr for s in parts if s.lr is not None]
    ratios = [s.ratio for s in parts]
    return ClipStage(
        first,
        last,
        ClipRatio(
            min(r.low for r in ratios),
            float(np.mean([r.median for r in ratios])),
            max(r.high for r in ratios),
        ),
        float(np.exp(np.mean([np.log(s.level) for s in parts]))),
        float(np.median(rates)) if rates else None,
    )


def _stretches(seen: tuple[_Seen, ...], holds: Callable[[_Seen], bool]) -> Iterator[list[_Seen]]:
    """Runs of windows, IN_A_ROW or more, in which `holds` is true."""
    run: list[_Seen] = []
    for w in (*seen, None):
        if w is not None and holds(w):
            run.append(w)
            continue
        if len(run) >= IN_A_ROW:
            yield run
        run = []


def _streaks(series: NormSeries) -> Iterator[tuple[int, int]]:
    """Rows [first, last) of runs of STREAK or more norms that are not finite."""
    bad = np.concatenate([[False], ~np.isfinite(series.norms), [False]])
    edges = np.flatnonzero(bad[1:] != bad[:-1])
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        if last - first >= STREAK:
            yield int(first), int(last)


def _causes(
    predicted: ClipStage, series: NormSeries, max_norm: float, first: int, last: int
) -> tuple[str, ...]:
    """What the record says on each cause, in the order in which to look."""
    return (
        _lr(predicted, series, first, last),
        _data(series, max_norm, first, last),
        _numerics(series, first, last),
        "batch size: 16 times more accumulation shrank recorded norms 1.7 to 3.6 times; a change "
        "of it voids the calibration",
    )


def _lr(predicted: ClipStage, series: NormSeries, first: int, last: int) -> str:
    if predicted.lr is None or series.lr is None:
        return "LR: not recorded"
    now, then = float(np.median(series.lr[first:last])), predicted.lr
    if abs(now - then) <= TOLERANCE * then:
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
