"""The tables: one row model for terminal, Markdown, HTML and MLflow; seven columns at most."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.nouns import (
    Ablation,
    AblationResult,
    Comparison,
    Comparisons,
    Confirmation,
    Headline,
    Outcome,
    Plan,
    Record,
    Round,
    Status,
    Trial,
    Verdict,
)
from orchestrator.report import words
from orchestrator.report.blocks import Table


def verdict_words(result: AblationResult, turn: Round | None = None) -> dict[str, str]:
    """The word in the verdict column by arm, with what its round made of the winner."""
    said = {v.arm: words.call(v) for v in result.verdicts}
    asked, adoption = (turn.confirmation, turn.adoption) if turn else (None, None)
    if asked is not None and asked.ablation == result.ablation:
        said[asked.arm.name] = words.CONFIRMED if asked.adopted else words.REFUTED
    if adoption is not None and adoption.ablation == result.ablation:
        said[adoption.arm.name] = words.UNPROVEN
    return said


def ablation_table(result: AblationResult, ablation: Ablation, turn: Round | None = None) -> Table:
    """The baseline's row, then the arms from best to worst."""
    known = {a.name for a in ablation.arms}
    order = [name for name in result.ranking if name in known]
    order += [a.name for a in ablation.arms if a.name not in order]
    return comparison_table(result.comparisons, order, verdict_words(result, turn))


def confirmation_table(confirmation: Confirmation) -> Table:
    """The winner against the baseline on fresh seeds."""
    arm = confirmation.arm.name
    said = "confirmed, adopted" if confirmation.adopted else "not confirmed"
    compared = {c.arm for c in confirmation.comparisons.arms}
    verdicts = dict.fromkeys(compared, said)
    return comparison_table(confirmation.comparisons, [arm, *sorted(compared - {arm})], verdicts)


def headline_table(headline: Headline) -> Table:
    """Original and final configuration on seeds used for nothing else, per split."""
    rows: list[tuple[str, ...]] = []
    for split, compared in (("validation", headline.validation), ("test", headline.test)):
        if compared is None:
            continue
        table = comparison_table(compared, [c.arm for c in compared.arms], {})
        names = ("original", *("final" for _ in table.rows[1:]))
        rows += [(split, name, *row[1:5]) for name, row in zip(names, table.rows, strict=True)]
    columns = ("split", "configuration", "n", "mean ± sd", "difference", "p")
    return Table(columns, tuple(rows), note(headline.validation))


def comparison_table(
    comparisons: Comparisons, order: Sequence[str], verdicts: dict[str, str]
) -> Table:
    """Rows for the baseline and the arms in `order`; divergence is a column where there is any."""
    by_arm = {c.arm: c for c in comparisons.arms}
    arms = [by_arm[name] for name in order if name in by_arm]
    places = words.places(comparisons)
    columns = [
        "arm",
        "n",
        f"{comparisons.metric.name}{words.unit(comparisons.metric)}",
        f"difference [{words.level(comparisons)}]",
        "p",
    ]
    called = comparisons.baseline
    baseline = [
        called if called == "baseline" else f"{called} (baseline)",
        str(comparisons.baseline_n),
        words.mean_and_sd(comparisons.baseline_mean, comparisons.baseline_sd, places),
        words.NOTHING,
        words.NOTHING,
    ]
    rows = [baseline, *(_cells(c, comparisons, places) for c in arms)]
    if any(c.n_diverged or c.n_only_baseline_diverged for c in arms):
        columns.append("diverged")
        # The baseline's own: seeds it lost alone, and those it lost together with the arm.
        lost = (c.n_only_baseline_diverged + c.n_diverged - c.n_only_arm_diverged for c in arms)
        rows[0].append(str(max(lost)))
        for row, c in zip(rows[1:], arms, strict=True):
            row.append(str(c.n_diverged))
    if verdicts:
        columns.append("verdict")
        rows[0].append(words.NOTHING)
        for row, c in zip(rows[1:], arms, strict=True):
            row.append(verdicts.get(c.arm, words.NOTHING))
    return Table(tuple(columns), tuple(tuple(r) for r in rows), note(comparisons))


def note(comparisons: Comparisons, sense: str = "") -> str:
    """What a reader needs below a table: orientation, unit, n, interval, p and method.

    `sense` says which way is which where it is not better and worse.
    """
    metric, k = comparisons.metric, comparisons.k
    family = (
        f"simultaneous over k = {k} arms; p is one-sided, step-down adjusted, in the direction of "
        "the difference"
        if k > 1
        else "p is one-sided, in the direction of the difference"
    )
    text = (
        f"Difference = arm minus baseline{words.unit(metric) and ' in'}{words.unit(metric)} over "
        f"common seeds ({sense or words.good(metric)}). Intervals at {words.level(comparisons)}, "
        f"{family}. Method: {comparisons.method}; {_looks(comparisons)}"
    )
    if math.isfinite(comparisons.seed_correlation):
        text += f", correlation of runs sharing a seed {comparisons.seed_correlation:.2f}"
    if metric.delta is not None:
        text += f"; smallest difference worth acting on {metric.delta:g}{words.unit(metric)}"
    return text + "."


def _looks(comparisons: Comparisons) -> str:
    """How many seeds, and at which look and level if there is more than one."""
    if len(comparisons.looks) < 2:
        return f"{comparisons.n} seeds planned"
    level = comparisons.levels[comparisons.look - 1]
    text = (
        f"look {comparisons.look} of {len(comparisons.looks)} "
        f"({comparisons.looks[comparisons.look - 1]} seeds), level {level:.2g}; intervals "
        f"hold over all looks, at {words.numbers(comparisons.looks)} seeds"
    )
    if any(c.look < comparisons.look for c in comparisons.arms):
        text += "; an arm that ended at an earlier look keeps its numbers"
    return text


def plan_table(planned: Plan) -> Table:
    """Every arm of a plan, what it changes against the baseline, and its trials."""
    several = len(planned.looks) > 1
    trials = f"{planned.looks[0]} to {planned.looks[-1]}" if several else str(len(planned.seeds))
    rows = [("baseline", words.settings(planned.baseline.overrides), trials)]
    for ablation in planned.ablations:
        rows += [(a.name, words.changes(a, planned.baseline), trials) for a in ablation.arms]
    most, fewest = len(planned.confirm_seeds), planned.confirm_from
    count = f"{fewest} to {most}" if fewest else f"{most}"
    confirming = f", then {count} fresh ones for the best candidate" if most else ""
    looks = ""
    if len(planned.looks) > 1:
        looks = f", looked at after {words.numbers(planned.looks)}, each arm until it is decided"
    return Table(
        ("arm", "changes", "trials"),
        tuple(rows),
        f"Seeds {words.seeds(planned.seeds)}{looks}{confirming}. Test: "
        f"{planned.test}, one-sided alpha {planned.alpha:g}, screening at "
        f"{planned.alpha_screen:.3g}.",
    )


def mechanism_table(result: AblationResult, ablation: Ablation) -> Table | None:
    """The registered mechanism signal per arm over the same trials."""
    if result.mechanism is None:
        return None
    order = [name for name in result.ranking if name in {a.name for a in ablation.arms}]
    table = comparison_table(result.mechanism, order, {})
    way = words.good(result.mechanism.metric).replace("is better", "was predicted")
    return replace(table, note=note(result.mechanism, way))


def trials_table(pairs: Sequence[tuple[Trial, Outcome]], record: Record) -> Table:
    """Every trial, as it ended: nothing is dropped silently."""
    metric = record.campaign.metric
    scores = [o.metrics[metric.name] for _, o in pairs if metric.name in o.metrics]
    places = words.decimals(max(scores) - min(scores)) + 1 if len(scores) > 1 else 4
    rows = tuple(
        (
            t.arm,
            str(t.seed),
            words.fixed(o.metrics.get(metric.name, math.nan), places),
            words.ending(o),
            str(o.attempts),
            words.seconds(o.seconds),
        )
        for t, o in pairs
    )
    return Table(("arm", "seed", metric.name, "ended", "attempts", "time"), rows)


def accidents_table(record: Record) -> Table:
    """Per configuration over the whole campaign: results, diverged with limits, accidents."""
    from orchestrator.stats.divergence import clopper_pearson  # scipy: not at start-up

    by_arm: dict[str, list[Status]] = {}
    for trial in record.trials.values():
        if trial.identity in record.outcomes:
            status = record.outcomes[trial.identity].status
            by_arm.setdefault(words.settings(trial.overrides), []).append(status)
    rows = []
    for arm, ended in by_arm.items():
        results = [s for s in ended if s.is_result]
        diverged = sum(s is not Status.DONE for s in results)
        limits = clopper_pearson(diverged, len(results), alpha=0.05) if results else None
        share = f"{words.percent(limits.low)} to {words.percent(limits.high)}" if limits else "-"
        accidents = sum(not s.is_result for s in ended)
        timed_out = sum(s is Status.TIMED_OUT for s in ended)
        rows.append((arm, str(len(results)), str(diverged), share, str(timed_out), str(accidents)))
    columns = ("configuration", "results", "diverged", "95% limits", "of these timed out",
               "failed or lost")  # fmt: skip
    return Table(
        columns,
        tuple(rows),
        "A timeout counts as diverged. Limits: Clopper-Pearson, each one-sided 95%. Failed and "
        "lost trials are accidents: tried again, then reported, and no part of a comparison.",
    )


def verdict_of(result: AblationResult, arm: str) -> Verdict | None:
    """The verdict on `arm`, if there is one."""
    return next((v for v in result.verdicts if v.arm == arm), None)


def _cells(c: Comparison, comparisons: Comparisons, places: int) -> list[str]:
    metric = comparisons.metric
    gap = words.signed(words.difference(c, metric), places)
    limits = words.bracket(words.difference_interval(c, metric), places)
    return [
        c.arm,
        str(c.n_pairs),
        words.mean_and_sd(c.mean, c.sd, places),
        f"{gap} {limits}" if gap != words.NOTHING else words.NOTHING,
        words.p_value(words.p_in_its_direction(c)),
    ]
