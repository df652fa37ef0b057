"""What the numbers say, as sentences; where one claims, it carries n, unit and interval."""

from __future__ import annotations

import math

from orchestrator.nouns import (
    Ablation,
    AblationResult,
    Adoption,
    Comparison,
    Comparisons,
    Confirmation,
    Direction,
    Finding,
    Headline,
    Hypothesis,
    Look,
    Metric,
    Move,
    Record,
    Round,
    Verdict,
)
from orchestrator.report import words
from orchestrator.stats import flags
from orchestrator.stats.examples import example_noise


def effect(comparison: Comparison, comparisons: Comparisons) -> str:
    """`val/loss -0.148 nat [-0.202, -0.094] (90% interval, 5 common seeds, p<0.001)`."""
    metric = comparisons.metric
    places = words.places(comparisons)
    gap = words.signed(words.difference(comparison, metric), places)
    if gap == words.NOTHING:
        return f"{metric.name}: no pair of finished runs to compare"
    limits = words.bracket(words.difference_interval(comparison, metric), places)
    return (
        f"{metric.name} {gap}{words.unit(metric)} {limits} ({words.level(comparisons)} interval, "
        f"{comparison.n_pairs} common seeds, {words.p_value(words.p_in_its_direction(comparison))})"
    )


def finding(seen: Finding) -> str:
    """What a rule saw, where, how strongly, and what could mimic it."""
    where = f" in layer `{seen.layer}`" if seen.layer else ""
    text = (
        f"**{seen.rule}**{where}: {seen.summary}. Steps {seen.steps[0]}-{seen.steps[1]}, "
        f"{seen.seeds_fired} of {seen.seeds_seen} seeds, severity {seen.severity:.2f}"
    )
    if seen.evidence:
        text += f"; {words.evidence(seen.evidence)}"
    text += "."
    if seen.confounders:
        text += f" Could be mistaken for: {'; '.join(seen.confounders)}."
    if seen.consequences:
        text += f" Explains: {', '.join(seen.consequences)}."
    return text


def hypothesis(claim: Hypothesis, metric: Metric) -> str:
    """The claim, why, and what it predicts for metric and mechanism."""
    ways = {Move.UP: "rises", Move.DOWN: "falls", Move.EITHER: "moves"}
    better = "falls" if metric.direction is Direction.MIN else "rises"
    return (
        f"**{claim.factor}** {claim.move.value}: {claim.claim}, because {claim.why}. "
        f"Predicted: `{metric.name}` {better} and `{claim.signal}` {ways[claim.signal_move]}."
    )


def support(result: AblationResult) -> str:
    """What became of the hypothesis: metric and mechanism."""
    return words.sentence(f"Hypothesis {result.support.value}: {result.support_reason}")


def arm(
    comparison: Comparison, comparisons: Comparisons, verdict: Verdict | None, said: str
) -> list[str]:
    """Everything known of one arm, a sentence each; `said` is the verdict's word in the table."""
    metric = comparisons.metric
    lines = [effect(comparison, comparisons) + "."]
    if len(comparisons.looks) > 1:
        lines.append(
            f"Decided at look {comparison.look} of {len(comparisons.looks)} "
            f"({comparisons.seeds_of(comparison)} seeds), level "
            f"{comparisons.level_of(comparison):.2g}."
        )
    if comparison.p_exact_better is not None and comparison.p_exact_worse is not None:
        gains = comparison.mean_difference >= 0
        exact = comparison.p_exact_better if gains else comparison.p_exact_worse
        floor = 2.0**-comparison.n_pairs
        text = f"Exact sign-flip test, the second opinion: {words.p_value(exact)}"
        if floor > comparisons.level_of(comparison):
            text += f" (with {comparison.n_pairs} seeds it cannot fall below {floor:.3g})"
        lines.append(text + ".")
    lines.append(
        f"Effect sizes: Hedges g {_plain(comparison.hedges_g)}, Glass delta "
        f"{_plain(comparison.glass_delta)} (positive = better); chance that a single run beats "
        f"a single baseline run {_plain(comparison.probability_superior)}."
    )
    if math.isfinite(comparison.worst_seed_difference):
        sign = 1 if metric.direction is Direction.MAX else -1
        worst = words.signed(sign * comparison.worst_seed_difference, words.places(comparisons))
        lines.append(f"Worst seed: {worst}{words.unit(metric)} to the baseline.")
    lines += _limited_by_examples(comparison, comparisons)
    if comparison.n_diverged or comparison.n_only_baseline_diverged:
        lines.append(
            f"Diverged on {comparison.n_diverged} of {comparisons.seeds_of(comparison)} seeds, on "
            f"{comparison.n_only_arm_diverged} of them alone; only the baseline on "
            f"{comparison.n_only_baseline_diverged}."
        )
    if not comparison.pooled:
        lines.append("Judged by its own variance, not the pooled one.")
    lines += [words.sentence(f"Flag {flag}: {FLAGS[flag]}") for flag in comparison.flags]
    if verdict is not None:
        lines.append(words.sentence(f"Verdict: **{said}**: {verdict.reason}"))
        if verdict.next_act and said not in (words.CONFIRMED, words.REFUTED, words.UNPROVEN):
            lines.append(words.sentence(f"Next: {verdict.next_act}"))
    return lines


def _limited_by_examples(comparison: Comparison, comparisons: Comparisons) -> list[str]:
    """Told where the examples that all seeds share may matter more than the seeds do."""
    metric = comparisons.metric
    noise = example_noise(comparison.mean, comparisons.baseline_mean, resolution=metric.resolution)
    if noise is None or not noise.high > comparison.se:
        return []
    held = "is" if noise.low > comparison.se else "may be"
    return [
        f"The difference {held} limited by the validation set: its {1 / metric.resolution:.0f} "
        f"examples, the same for every seed, add {noise.low:.2g} to {noise.high:.2g} (standard "
        f"deviation) to the {comparison.se:.2g} of the seeds, so more seeds will not help much; "
        "more examples would."
    ]


def answer(record: Record) -> str:
    """The campaign's answer in one paragraph, or where it stands."""
    if record.headline is not None:
        return headline(record.headline, record.campaign.protocol.alpha)
    adopted = [r.adopted for r in record.rounds if r.adopted]
    if adopted:
        left = "was not run" if record.ending else "is still to come"
        step = "Adopted, unproven" if record.rounds[0].adoption else "Adopted"
        text = (
            f"{step}: {words.settings(adopted[-1].overrides)}. The headline, on seeds used "
            f"for nothing else, {left}."
        )
    elif record.ending:
        text = "Nothing was adopted: the original configuration stays."
    else:
        text = "Nothing is decided yet."
    return f"{text} The loop stopped: {record.ending}." if record.ending else text


def headline(last: Headline, alpha: float) -> str:
    """Final against original on the validation metric, on seeds used for nothing else."""
    compared = last.validation.arms[0]
    won = "beats" if compared.p_better <= alpha else "is not shown to beat"
    return (
        f"{words.settings(last.final.overrides)} {won} the original configuration: "
        f"{effect(compared, last.validation)}."
    )


def headline_test(last: Headline) -> str:
    """The test split, read for this comparison only, and the seeds."""
    text = f"Seeds {words.seeds(last.seeds)} were used for nothing else."
    if last.test is None:
        return text
    return f"On the test split, read once: {effect(last.test.arms[0], last.test)}. {text}"


def confirmation(asked: Confirmation) -> str:
    """What fresh seeds said of the screening winner, whether or not it passed."""
    compared = asked.comparisons.arms[0]
    text = (
        f"**{asked.arm.name}** on fresh seeds {words.seeds(asked.seeds)}: "
        f"{effect(compared, asked.comparisons)}: "
    )
    return text + ("confirmed and adopted." if asked.adopted else words.sentence(asked.reason))


def look(taken: Look) -> str:
    """`Look 1 of 4 (3 seeds, level 0.0045): dropout=0.1 goes on; dropout=0.4 candidate ...`."""
    compared = taken.comparisons
    told = [
        f"{v.arm} {'goes on' if v.arm in taken.going_on else words.call(v)}"
        for c, v in zip(compared.arms, taken.verdicts, strict=True)
        if c.look == compared.look
    ]
    return (
        f"Look {compared.look} of {len(compared.looks)} ({compared.looks[compared.look - 1]} "
        f"seeds, level {compared.levels[compared.look - 1]:.2g}): {'; '.join(told)}."
    )


def adoption(taken: Adoption) -> str:
    """What was adopted without a confirmation, and what that means."""
    return (
        f"**{taken.arm.name}** adopted, unproven: it had the largest gain of the round in the "
        "screening, which is optimistic; only the headline claims anything."
    )


def what_became(turn: Round, ablation: Ablation) -> str:
    """What became of an ablation's winner, or that the screening alone is known."""
    asked, taken = turn.confirmation, turn.adoption
    if asked is not None and asked.ablation == ablation.name:
        return confirmation(asked)
    if taken is not None and taken.ablation == ablation.name:
        return adoption(taken)
    return UNCONFIRMED


FLAGS = {
    flags.IDENTICAL: "every pair of runs is equal to the last bit: is the factor wired up?",
    flags.ZERO_VARIANCE: "the differences do not vary, so the exact sign-flip test decides",
    flags.COARSE: "one step of the metric is as large as the spread, so the exact sign-flip test "
    "decides",
    flags.FRAGILE: "the exact sign-flip test does not agree, although it could have",
    flags.NEGLIGIBLE: "the whole interval is smaller than the smallest difference worth acting on",
    flags.NOT_WORSE: "not worse by the smallest difference worth acting on: what the arm removes "
    "can be removed",
    flags.VARIANCE_OUTLIER: "its differences vary far more than the other arms', so it is judged "
    "by its own spread",
    flags.BASELINE_MISSING: "some of its seeds are unusable: the baseline has no result on them",
}
"""Every word of stats/flags.py as a reader needs it."""

UNCONFIRMED = (
    "From screening alone: the estimate of an arm picked because it looked best is optimistic."
)

OPTIMISM = (
    "Screening estimates are optimistic: an arm is picked because it looks best (of four arms "
    "that do nothing, on five seeds, the best looks 0.39 standard deviations better). Only the "
    "headline, on seeds used for nothing else, may be quoted."
)
"""0.39: docs/statistics.md, section 7, k = 4, n = 5, correlation 0.3."""


def _plain(value: float) -> str:
    return words.fixed(value, 2)
