"""`status` and `explain` as blocks: where a campaign stands, and why a verdict is what it is."""

from __future__ import annotations

from orchestrator.errors import OrchestratorError, nearest
from orchestrator.nouns import (
    Ablation,
    AblationResult,
    Plan,
    Record,
    Round,
    Status,
)
from orchestrator.report import sentences, tables, words
from orchestrator.report.blocks import Block, Bullets, Document, Heading, Text
from orchestrator.report.console import console, show


def status(record: Record) -> Document:
    """Where the campaign stands: stage, trials done and left, verdicts so far."""
    blocks: list[Block] = [
        Heading(record.campaign.name, 1),
        Text(sentences.answer(record), strong=True),
        Text(_trials(record)),
    ]
    if record.rounds and not record.ending:
        blocks.append(Text(_stage(record.rounds[-1], record)))
    for turn in record.rounds:
        found = ", ".join(f.rule for f in turn.findings) or "no finding"
        lines = [f"Round {turn.number}: {found}"]
        results = {r.ablation: r for r in turn.results}
        for ablation in turn.plan.ablations if turn.plan else ():
            result = results.get(ablation.name)
            lines.append(f"{ablation.name}: {_result_line(turn, result)}")
        if turn.confirmation is not None:
            lines.append(sentences.confirmation(turn.confirmation))
        if turn.adoption is not None:
            lines.append(sentences.adoption(turn.adoption))
        blocks.append(Bullets(tuple(lines)))
    return tuple(blocks)


def explain(record: Record, name: str) -> Document:
    """Every number behind the verdict `name`: an arm, an ablation, a factor or a finding.

    Raises OrchestratorError with the nearest valid name if the record holds nothing of that name.
    """
    blocks: list[Block] = []
    for turn in record.rounds:
        blocks += [Text(sentences.finding(f)) for f in turn.findings if f.rule == name]
        results = {r.ablation: r for r in turn.results}
        for ablation in turn.plan.ablations if turn.plan else ():
            hypothesis = ablation.hypothesis
            arms = {a.name for a in ablation.arms}
            asked = {ablation.name, hypothesis.factor, hypothesis.finding}
            if name in arms | asked:
                wanted = {name} if name in arms else arms
                blocks += _ablation(record, turn, ablation, results.get(ablation.name), wanted)
    if record.headline is not None and name == "headline":
        blocks += _headline(record)
    if not blocks:
        raise OrchestratorError(
            f"nothing in campaign {record.campaign.name!r} is called {name!r}.",
            nearest(name, _names(record)),
        )
    return (Heading(name, 1), *blocks)


def _ablation(
    record: Record, turn: Round, ablation: Ablation, result: AblationResult | None, arms: set[str]
) -> list[Block]:
    plan = turn.plan
    assert plan is not None, "an ablation comes with its plan"
    blocks: list[Block] = [
        Heading(f"Round {turn.number}: {ablation.factor.name} (`{ablation.factor.key}`)"),
        Text(sentences.hypothesis(ablation.hypothesis, record.campaign.metric)),
        Text(
            f"Seeds {words.seeds(plan.seeds)}{_looks(plan)} for every arm and for the baseline "
            f"({words.settings(plan.baseline.overrides)}). Test: {plan.test}. Screening level "
            f"{plan.alpha_screen:.3g}, family-wise over {len(ablation.arms)} arms; intervals and "
            f"verdicts at {plan.alpha:g} per direction."
        ),
    ]
    done = turn.looks.get(ablation.name, ())
    if len(plan.looks) > 1:
        blocks.append(Bullets(tuple(sentences.look(look) for look in done)))
    if result is None:
        ended = sum(len(record.of(a, plan.seeds)) for a in ablation.arms)
        most = "at most " if len(plan.looks) > 1 else ""
        total = f"{most}{len(ablation.arms) * len(plan.seeds)}"
        return [*blocks, Text(f"Not judged yet: {ended} of {total} trials have ended.")]
    blocks.append(tables.ablation_table(result, ablation, turn))
    said = tables.verdict_words(result, turn)
    for compared in result.comparisons.arms:
        if compared.arm not in arms:
            continue
        verdict = tables.verdict_of(result, compared.arm)
        told = said.get(compared.arm, words.NOTHING)
        lines = sentences.arm(compared, result.comparisons, verdict, told)
        arm = next(a for a in ablation.arms if a.name == compared.arm)
        lines += [
            f"Seed {t.seed}: {words.ending(o)} ({t.folder})"
            for t, o in record.of(arm, plan.seeds)
            if o.status is not Status.DONE
        ]
        blocks += [Heading(compared.arm, 3), Bullets(tuple(lines))]
    blocks.append(Text(sentences.support(result)))
    mechanism = tables.mechanism_table(result, ablation)
    if mechanism is not None:
        blocks += [Heading(f"Mechanism: {ablation.hypothesis.signal}", 3), mechanism]
    blocks.append(Text(sentences.what_became(turn, ablation)))
    return blocks


def _looks(plan: Plan) -> str:
    if len(plan.looks) < 2:
        return ""
    return f", judged after {words.numbers(plan.looks)} of them,"


def _headline(record: Record) -> list[Block]:
    assert record.headline is not None
    return [
        Text(sentences.headline(record.headline, record.campaign.protocol.alpha), strong=True),
        tables.headline_table(record.headline),
        Text(sentences.headline_test(record.headline)),
    ]


def _names(record: Record) -> set[str]:
    names = {"headline"} if record.headline is not None else set()
    for turn in record.rounds:
        names |= {f.rule for f in turn.findings}
        for ablation in turn.plan.ablations if turn.plan else ():
            names |= {ablation.name, ablation.hypothesis.factor}
            names |= {a.name for a in ablation.arms}
    return names


def _trials(record: Record) -> str:
    told = words.tally(o.status for o in record.outcomes.values()) or "none ended"
    left = len(record.trials) - len(record.outcomes)
    return (
        f"Trials: {told}; {left} launched and not ended; budget {record.campaign.budget.trials}. "
        f"Folder: {record.campaign.folder}"
    )


def _stage(turn: Round, record: Record) -> str:
    if turn.confirmation is not None or turn.adoption is not None:
        return f"Round {turn.number} is over."
    if turn.plan is None:
        done = len(record.of(turn.baseline, turn.seeds))
        return f"Now: baseline of round {turn.number}, {done} of {len(turn.seeds)} seeds."
    judged = len(turn.results)
    return f"Now: round {turn.number}, {judged} of {len(turn.plan.ablations)} ablations judged."


def _result_line(turn: Round, result: AblationResult | None) -> str:
    if result is None:
        return "not judged yet"
    said = tables.verdict_words(result, turn)
    arms = "; ".join(f"{arm} {said[arm]}" for arm in result.ranking if arm in said)
    return f"hypothesis {result.support.value}; {arms}"


def show_status(record: Record) -> None:
    """Print `status`."""
    show(status(record), console())


def show_explanation(record: Record, name: str) -> None:
    """Print `explain`."""
    show(explain(record, name), console())
