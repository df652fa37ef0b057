"""The pages of a report: the campaign's and one per ablation, as blocks.

Diagnosis comes first: what was seen, which hypothesis it led to, what that predicted for metric and
mechanism, and what came out of both. Negative results are kept.
"""

from __future__ import annotations

from orchestrator.nouns import (
    CONFIRMING,
    Ablation,
    AblationResult,
    Arm,
    Plan,
    Policy,
    Record,
    Round,
    Status,
)
from orchestrator.report import pictures, sentences, tables, words
from orchestrator.report.blocks import Block, Bullets, Document, Heading, Link, Text
from orchestrator.report.clip_check import clip_table
from orchestrator.report.pictures import Reader


def campaign_page(record: Record) -> Document:
    """The whole campaign: answer, rounds, confirmations, headline, accidents, method."""
    blocks: list[Block] = [Heading(record.campaign.name, 1), *campaign_summary(record)]
    last = record.headline
    if last is not None:
        blocks += _throughput(record, last.original, last.final, last.seeds)
    picture = pictures.estimates(record)
    if picture is not None:
        blocks.append(picture)
    for turn in record.rounds:
        blocks += _round(record, turn)
    return (*blocks, *_reliability(record), *_method(record))


def campaign_summary(record: Record) -> Document:
    """The answer, the question, and the numbers of the headline: what one should see first."""
    metric = record.campaign.metric
    factors = ", ".join(f"{f.name} (`{f.key}`)" for f in record.campaign.factors) or "no factor"
    question = (
        f"Asked: which of {factors} improves `{metric.name}`{words.unit(metric)} "
        f"({words.good(metric)}) of `{record.campaign.training.target}`?"
    )
    answer = Text(sentences.answer(record), strong=True)
    last = record.headline
    if last is None:
        return (answer, Text(question))
    test = Text(sentences.headline_test(last))
    return (answer, test, Text(question), tables.headline_table(last))


def ablation_page(
    record: Record, turn: Round, ablation: Ablation, result: AblationResult | None,
    telemetry: Reader,
) -> Document:  # fmt: skip
    """One ablation: its question, table, plots, every arm in words, every trial."""
    plan, hypothesis = turn.plan, ablation.hypothesis
    assert plan is not None, "an ablation comes with its plan"
    blocks: list[Block] = [
        Heading(f"Round {turn.number}: {ablation.factor.name} (`{ablation.factor.key}`)", 1),
        *ablation_summary(turn, ablation, result),
        *clip_blocks(record, plan, ablation, telemetry),
        Text(sentences.hypothesis(hypothesis, record.campaign.metric)),
    ]
    if result is not None:
        blocks.append(pictures.ablation_forest(record, plan, ablation, result, turn))
    drawn = pictures.ablation_curves(record, plan, ablation, telemetry)
    if drawn is not None:
        blocks.append(drawn)
    if result is not None:
        blocks += _mechanism(result, ablation)
        blocks += _arms(turn, result, ablation)
    finished = [p for a in (plan.baseline, *ablation.arms) for p in record.of(a, plan.seeds)]
    blocks += [
        Heading("Every trial"),
        tables.trials_table(finished, record),
        Heading("What each arm changes"),
        Bullets(tuple(_change(a, plan) for a in ablation.arms)),
        Link("The whole campaign", "report"),
    ]
    return tuple(blocks)


def clip_blocks(record: Record, plan: Plan, ablation: Ablation, telemetry: Reader) -> Document:
    """What clipping did and cost, for an ablation of it; nothing for others."""
    table = clip_table(record, plan, ablation, telemetry)
    return () if table is None else (table,)


def ablation_summary(turn: Round, ablation: Ablation, result: AblationResult | None) -> Document:
    """The answer and the table: what one should see first."""
    if result is None:
        planned = len(turn.plan.seeds) * len(ablation.arms) if turn.plan else 0
        most = "at most " if turn.plan and len(turn.plan.looks) > 1 else ""
        return (Text(f"Not finished: {most}{planned} trials planned.", strong=True),)
    blocks: list[Block] = [
        Text(sentences.support(result), strong=True),
        tables.ablation_table(result, ablation, turn),
    ]
    blocks.append(Text(sentences.what_became(turn, ablation)))
    return tuple(blocks)


def _round(record: Record, turn: Round) -> list[Block]:
    blocks: list[Block] = [
        Heading(f"Round {turn.number}"),
        Text(
            f"Baseline: {words.settings(turn.baseline.overrides)}, seeds {words.seeds(turn.seeds)}."
        ),
        Heading("What was seen", 3),
    ]
    if turn.findings:
        blocks.append(Bullets(tuple(sentences.finding(f) for f in turn.findings)))
    elif len(record.of(turn.baseline, turn.seeds)) < len(turn.seeds):
        blocks.append(Text("The baseline is still running."))
    else:
        blocks.append(Text("No finding: no rule fired on the baseline."))
    if turn.hypotheses:
        metric = record.campaign.metric
        blocks.append(Heading("What it may mean", 3))
        blocks.append(Bullets(tuple(sentences.hypothesis(h, metric) for h in turn.hypotheses)))
    if turn.untestable:
        blocks.append(Text("Not testable with the declared factors:"))
        blocks.append(Bullets(turn.untestable))
    blocks += _tested(turn)
    if turn.confirmation is not None:
        asked = turn.confirmation
        blocks.append(Heading("Confirmation on fresh seeds", 3))
        blocks.append(Text(sentences.confirmation(asked), strong=True))
        blocks.append(tables.confirmation_table(asked))
        blocks += _throughput(record, asked.baseline, asked.arm, asked.seeds)
    if turn.adoption is not None:
        blocks.append(Text(sentences.adoption(turn.adoption), strong=True))
    return blocks


def _tested(turn: Round) -> list[Block]:
    """The ablations of a round, each with what one should see first and the way to its page."""
    if turn.plan is None:
        return []
    blocks: list[Block] = []
    results = {r.ablation: r for r in turn.results}
    for ablation in turn.plan.ablations:
        blocks.append(Heading(f"Ablation {ablation.name}", 3))
        blocks += ablation_summary(turn, ablation, results.get(ablation.name))
        page = turn.plan.page_of(ablation)
        blocks.append(Link(f"Plots, every arm and every trial of {ablation.name}", page))
    return blocks


def _mechanism(result: AblationResult, ablation: Ablation) -> list[Block]:
    table = tables.mechanism_table(result, ablation)
    predicted = f"`{ablation.hypothesis.signal}` {ablation.hypothesis.signal_move.value}"
    if table is None:
        return [Heading("Mechanism"), Text(f"Predicted {predicted}; it was not recorded.")]
    return [Heading("Mechanism"), Text(f"Predicted: {predicted}."), table]


def _arms(turn: Round, result: AblationResult, ablation: Ablation) -> list[Block]:
    blocks: list[Block] = [Heading("Each arm")]
    compared = {c.arm: c for c in result.comparisons.arms}
    said = tables.verdict_words(result, turn)
    for arm in ablation.arms:
        if arm.name in compared:
            verdict = tables.verdict_of(result, arm.name)
            told = said.get(arm.name, words.NOTHING)
            lines = sentences.arm(compared[arm.name], result.comparisons, verdict, told)
            blocks += [Heading(arm.name, 3), Bullets(tuple(lines))]
    return blocks


def _change(arm: Arm, plan: Plan) -> str:
    return f"**{arm.name}**: {words.changes(arm, plan.baseline)}"


def _throughput(record: Record, baseline: Arm, arm: Arm, seeds: tuple[int, ...]) -> list[Block]:
    """Time per finished trial beside the effect: a remedy that costs speed is not free."""
    times = []
    for side in (arm, baseline):
        done = [o.seconds for _, o in record.of(side, seeds) if o.status is Status.DONE]
        times.append(sum(done) / len(done) if done else 0.0)
    own, control = times
    if not (own and control) or arm.overrides == baseline.overrides:
        return []
    share = f"{100 * (own / control - 1):+.0f}%"
    text = f"Time per trial: {words.seconds(own)} against {words.seconds(control)} ({share})."
    return [Text(text)]


def _reliability(record: Record) -> list[Block]:
    spent = sum(o.seconds for o in record.outcomes.values())
    told = words.tally(o.status for o in record.outcomes.values()) or "none yet"
    blocks: list[Block] = [
        Heading("Trials"),
        Text(
            f"{len(record.outcomes)} of {len(record.trials)} launched trials ended ({told}), "
            f"budget {record.campaign.budget.trials}; {words.seconds(spent)} of training."
        ),
    ]
    if record.outcomes:
        blocks.append(tables.accidents_table(record))
    lost = [
        f"{t.arm}, seed {t.seed}: {words.ending(record.outcomes[t.identity])}"
        for t in record.trials.values()
        if t.identity in record.outcomes and record.outcomes[t.identity].status is not Status.DONE
    ]
    if lost:
        blocks.append(Bullets(tuple(lost)))
    return blocks


def _method(record: Record) -> list[Block]:
    protocol = record.campaign.protocol
    looks = protocol.looks
    seeds = f"on {looks[0]} seeds"
    if len(looks) > 1:
        seeds = (
            f"after {words.numbers(looks)} seeds, at levels that add up to it, and each arm gets "
            "no more seeds once it is decided, or once a gain worth having is unlikely"
        )
    level = f"the one-sided family-wise level {protocol.alpha_screen:.3g}"
    return [
        Heading("Method and limits"),
        Bullets(
            (
                "The unit of replication is the seed. Arm and baseline share seeds; differences "
                "are paired on them.",
                f"Each ablation is screened at {level} (min(1/4, 1/H) for H = "
                f"{protocol.max_ablations} ablations at most) {seeds}.",
                *_adopting(record),
                "`worse` and `equivalent` are controlled per ablation, not over the campaign.",
                sentences.OPTIMISM,
                "No comparison of means sees an arm with rare very bad runs: read the worst seed "
                "and the divergence beside it.",
                "All of this is about this validation set and these data: more seeds do not make "
                "them larger.",
                "The test split is read once, for the headline.",
            )
        ),
    ]


def _adopting(record: Record) -> tuple[str, ...]:
    """What an adoption means under the campaign's policy."""
    protocol = record.campaign.protocol
    if protocol.policy is Policy.OPTIMISE:
        return (
            "Policy `optimise`: the arm with the largest screened gain of a round is adopted at "
            "once. No single step is proven; only the headline, final against original, is a "
            f"claim, wrong with probability {protocol.alpha:g} at most.",
        )
    fewest, most = CONFIRMING
    m = protocol.confirm_seeds or f"{fewest} to {most}, as many as its gain needs,"
    return (
        f"Only the best candidate is tested on fresh seeds ({m} at {protocol.alpha:g}), and "
        "adopted if that passes. Over the campaign a false adoption has probability "
        f"{protocol.alpha:g} at most.",
        "A confirmation is printed whether or not it passed; quoted because it passed, it would "
        "be optimistic too.",
    )
