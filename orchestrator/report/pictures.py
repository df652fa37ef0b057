"""The record's pictures: numbers taken from a Record and Telemetry, drawn by `figures`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from orchestrator.nouns import (
    Ablation,
    AblationResult,
    Arm,
    Comparison,
    Direction,
    Metric,
    Plan,
    Record,
    Round,
    Status,
    Telemetry,
    Trial,
)
from orchestrator.report import figures, words
from orchestrator.report.blocks import Picture
from orchestrator.report.figures import Band, ForestRow
from orchestrator.report.tables import verdict_words

Reader = Callable[[Trial], Telemetry | None]
"""Telemetry of a trial, None where it recorded nothing."""


def ablation_forest(
    record: Record, plan: Plan, ablation: Ablation, result: AblationResult, turn: Round,
) -> Picture:  # fmt: skip
    """Difference to the baseline per arm, best first."""
    metric, compared = result.comparisons.metric, result.comparisons
    by_name = {a.name: a for a in ablation.arms}
    said = verdict_words(result, turn)
    by_arm = {c.arm: c for c in compared.arms}
    rows = [
        _row(name, by_arm[name], metric, said.get(name, ""),
             paired_differences(record, by_name[name], plan.baseline,
                                  plan.seeds[: compared.seeds_of(by_arm[name])], metric.name))
        for name in result.ranking
        if name in by_arm and name in by_name
    ]  # fmt: skip
    title = (
        f"{ablation.factor.name}: difference to the baseline (diamond), {words.level(compared)} "
        f"interval, paired seeds (dots, n = {compared.n})"
    )
    return Picture(
        f"{plan.page_of(ablation)}-forest.png",
        f"Screening of {ablation.factor.name}: {compared.method}, intervals simultaneous over "
        f"{compared.k} arms. Grey: the interval holds zero. " + _band_words(metric),
        _forest(rows, metric, title),
    )


def ablation_curves(
    record: Record, plan: Plan, ablation: Ablation, telemetry: Reader
) -> Picture | None:
    """Validation metric and train probe of all arms by optimizer step; None without telemetry."""
    metric = record.campaign.metric
    read = {
        arm.name: [t for trial, _ in record.of(arm, plan.seeds) if (t := telemetry(trial))]
        for arm in (*ablation.arms, plan.baseline)
    }
    probe = _probe_name(metric, [t for ts in read.values() for t in ts])
    panels = []
    for name in (metric.name, probe):
        bands = [
            Band(arm, tuple(t[name] for t in ts if name in t), arm == plan.baseline.name)
            for arm, ts in read.items()
        ]
        if name and any(b.curves for b in bands):
            unit = metric.unit or next(c.unit for b in bands for c in b.curves)
            panels.append((f"{name} [{unit or '1'}]", bands))
    if not panels:
        return None
    title = f"{ablation.factor.name}: median over seeds (line) and their range (band)"
    return Picture(
        f"{plan.page_of(ablation)}-curves.png",
        f"Seeds {words.seeds(plan.seeds)}; a step is drawn where at least half of an arm's seeds "
        "have a finite value, so a diverged run ends early.",
        figures.curves(panels, title=title),
    )


def estimates(record: Record) -> Picture | None:
    """How the estimate of what was adopted changed from screening to fresh seeds and test."""
    metric = record.campaign.metric
    rows: list[ForestRow] = []
    for turn in record.rounds:
        asked = turn.confirmation
        if asked is None:
            continue
        screened = next((r for r in turn.results if r.ablation == asked.ablation), None)
        if screened is not None:
            rows += [
                _row(f"round {turn.number}: {asked.arm.name}, screening", c, metric, "optimistic")
                for c in screened.comparisons.arms
                if c.arm == asked.arm.name
            ]
        dots = paired_differences(record, asked.arm, asked.baseline, asked.seeds, metric.name)
        said = "adopted" if asked.adopted else "not confirmed"
        rows.append(
            _row(
                f"round {turn.number}: {asked.arm.name}, fresh seeds",
                asked.comparisons.arms[0],
                metric,
                said,
                dots,
            )
        )
    last = record.headline
    if last is not None:
        for split, compared in (("validation", last.validation), ("test", last.test)):
            if compared is None:
                continue
            dots = paired_differences(
                record, last.final, last.original, last.seeds, compared.metric.name
            )
            rows.append(_row(f"final, {split}", compared.arms[0], metric, "headline", dots))
    if not rows:
        return None
    return Picture(
        "estimates.png",
        "Screening picks the arm that looked best, so its estimate is optimistic; the headline "
        "compares the final with the original configuration on seeds used for nothing else.",
        _forest(rows, metric, "From screening to headline: difference to the baseline of the day"),
    )


def paired_differences(
    record: Record, arm: Arm, baseline: Arm, seeds: Sequence[int], metric: str
) -> tuple[float, ...]:
    """Arm minus baseline per seed on which both are DONE with a finite value of `metric`."""
    own, control = (
        {
            t.seed: o.metrics.get(metric, math.nan)
            for t, o in record.of(side, tuple(seeds))
            if o.status is Status.DONE
        }
        for side in (arm, baseline)
    )
    gaps = [own[s] - control[s] for s in seeds if s in own and s in control]
    return tuple(g for g in gaps if math.isfinite(g))


def _row(
    label: str, c: Comparison, metric: Metric, verdict: str, dots: tuple[float, ...] = ()
) -> ForestRow:
    return ForestRow(
        label, words.difference(c, metric), words.difference_interval(c, metric), dots, verdict
    )


def _forest(rows: Sequence[ForestRow], metric: Metric, title: str) -> bytes:
    return figures.forest(
        rows,
        title=title,
        axis=f"difference in {metric.name} [{metric.unit or '1'}]",
        delta=metric.delta,
        lower_is_better=metric.direction is Direction.MIN,
    )


def _band_words(metric: Metric) -> str:
    if not metric.delta:
        return ""
    size = f"±{metric.delta:g}{words.unit(metric)}"
    return f"Grey band: differences below {size} are not worth acting on."


def _probe_name(metric: Metric, read: Sequence[Telemetry]) -> str:
    """The train side of the metric: the same quantity on the probe, else as trained."""
    quantity = metric.name.split("/", 1)[-1]
    names = (f"probe/{quantity}", f"train/{quantity}")
    return next((n for n in names if any(n in t for t in read)), "")
