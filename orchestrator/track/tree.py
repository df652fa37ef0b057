"""Record -> the runs that MLflow should show: campaign > ablation > arm > trial, in reading order.

Pure: no MLflow in here. `sync` makes a store equal to this tree.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from orchestrator.nouns import (
    Ablation,
    AblationResult,
    Arm,
    Overrides,
    Page,
    Plan,
    Record,
    Round,
    Status,
    Verdict,
)
from orchestrator.track.node import Node, spanned
from orchestrator.track.values import control, effect, last_values

RUN_STATUS = {
    Status.DONE: "FINISHED",
    Status.DIVERGED: "FINISHED",  # a result, not an accident: its tag `ended` says what it was
    Status.TIMED_OUT: "KILLED",
    Status.FAILED: "FAILED",
    Status.LOST: "KILLED",
}


def tree(record: Record, pages: Mapping[str, Page]) -> tuple[Node, ...]:
    """Every run of the campaign, parents first; times of parents span those of their trials."""
    nodes = [_campaign(record, pages)]
    for turn in record.rounds:
        nodes += [*_baseline(record, turn), *_ablations(record, turn, pages)]
        nodes += _confirmation(record, turn)
    nodes += _headline(record)
    return spanned(nodes)


def _campaign(record: Record, pages: Mapping[str, Page]) -> Node:
    training, last = record.campaign.training, record.headline
    metrics: dict[str, float] = {}
    if last is not None:
        for compared in (last.validation, last.test):
            if compared is not None:
                metrics |= effect(compared.arms[0], compared)
    shown: dict[str, bytes] = {}
    for name, page in pages.items():
        shown[f"report/{name or 'report'}.html"] = page.html.encode()
    return _with_page(
        Node(
            id="campaign",
            parent=None,
            kind="campaign",
            name=f"campaign {record.campaign.name}",
            status="FINISHED" if record.ending else "RUNNING",
            tags={
                "program": f"{training.kind}: {training.target}",
                "code": training.code,
                "folder": record.campaign.folder,
                "ending": record.ending,
                "verdict": _adopted(record),
                "metric": record.campaign.metric.name,
                "direction": record.campaign.metric.direction.value,
            },
            metrics=metrics,
            files=shown,
        ),
        pages.get(""),
    )


def _adopted(record: Record) -> str:
    """What was adopted in one line, or that nothing was; empty while the campaign goes on."""
    adopted = [r.adopted.name for r in record.rounds if r.adopted]
    if not adopted:
        return "nothing adopted" if record.ending else ""
    word = "adopted, unproven:" if any(r.adoption for r in record.rounds) else "adopted"
    return f"{word} {', '.join(adopted)}"


def _headline(record: Record) -> Iterator[Node]:
    last = record.headline
    if last is None:
        return
    top = Node("headline", "campaign", "headline", "headline final against original", "FINISHED")
    compared = last.validation.arms[0]
    metrics = effect(compared, last.validation)
    if last.test is not None:
        metrics |= effect(last.test.arms[0], last.test)
    yield replace(top, metrics=metrics)
    sides = (("original", last.original, control(last.validation)), ("final", last.final, metrics))
    for number, (name, arm, values) in enumerate(sides, start=1):
        label = f"headline.{number}"
        node = _arm(record, "headline", label, name, arm, last.original, last.seeds)
        yield replace(node, metrics=values)
        yield from _trials(record, node, arm, last.original, last.seeds, with_test=True)


def _baseline(record: Record, turn: Round) -> Iterator[Node]:
    """The round's baseline: it belongs to all of the round's ablations."""
    label = f"r{turn.number}-a0"
    seeds = turn.seeds
    if turn.plan is not None:  # later looks take more of them, as long as an arm goes on
        ran = {t.seed for t, _ in record.of(turn.baseline, turn.plan.seeds)}
        seeds = tuple(s for s in turn.plan.seeds if s in ran | set(seeds))
    node = _arm(record, "campaign", label, "baseline", turn.baseline, turn.baseline, seeds)
    findings = ", ".join(f.rule for f in turn.findings)
    if turn.results:
        node = replace(node, metrics=control(turn.results[0].comparisons))
    yield replace(node, tags={**node.tags, "findings": findings or "none"})
    yield from _trials(record, node, turn.baseline, turn.baseline, seeds)


def _ablations(record: Record, turn: Round, pages: Mapping[str, Page]) -> Iterator[Node]:
    results = {r.ablation: r for r in turn.results}
    if turn.plan is None:
        return
    for number, ablation in enumerate(turn.plan.ablations, start=1):
        label, result = f"r{turn.number}-a{number}", results.get(ablation.name)
        tags = {"factor": ablation.factor.name, "hypothesis": ablation.hypothesis.claim}
        if result is not None:
            tags |= {
                "verdict": f"hypothesis {result.support.value}",
                "reason": result.support_reason,
            }
        top = Node(
            id=f"r{turn.number}/{ablation.name}",
            parent="campaign",
            kind="ablation",
            name=f"{label} {ablation.factor.name}",
            status="RUNNING" if result is None else "FINISHED",
            tags=tags,
        )
        page = pages.get(turn.plan.page_of(ablation))
        yield _with_page(top, page)
        yield from _arms(record, turn.plan, ablation, result, page, top.id, label)


def _arms(
    record: Record, plan: Plan, ablation: Ablation, result: AblationResult | None,
    page: Page | None, parent: str, label: str,
) -> Iterator[Node]:  # fmt: skip
    verdicts = {v.arm: v for v in result.verdicts} if result else {}
    compared = {c.arm: c for c in result.comparisons.arms} if result else {}
    for number, arm in enumerate(ablation.arms, start=1):
        node = _arm(record, parent, f"{label}.{number}", arm.name, arm, plan.baseline, plan.seeds)
        if result is not None and arm.name in compared:
            node = replace(
                node,
                status="FINISHED",
                metrics=effect(compared[arm.name], result.comparisons),
                tags={**node.tags, **_verdict(verdicts.get(arm.name), page)},
            )
        yield node
        yield from _trials(record, node, arm, plan.baseline, plan.seeds)


def _confirmation(record: Record, turn: Round) -> Iterator[Node]:
    asked = turn.confirmation
    if asked is None:
        return
    label, said = f"r{turn.number}-b", "confirmed" if asked.adopted else "not confirmed"
    top = Node(
        id=f"r{turn.number}/confirmation",
        parent="campaign",
        kind="confirmation",
        name=f"{label} confirmation of {asked.arm.name}",
        status="FINISHED",
        tags={"verdict": said, "reason": asked.reason},
        metrics=effect(asked.comparisons.arms[0], asked.comparisons),
    )
    yield top
    sides = (
        ("baseline", asked.baseline, control(asked.comparisons)),
        (asked.arm.name, asked.arm, top.metrics),
    )
    for number, (name, arm, values) in enumerate(sides, start=1):
        tag = f"{label}.{number}"
        node = _arm(record, top.id, tag, name, arm, asked.baseline, asked.seeds)
        yield replace(node, metrics=values)
        yield from _trials(record, node, arm, asked.baseline, asked.seeds)


def _arm(
    record: Record, parent: str, label: str, name: str, arm: Arm, baseline: Arm,
    seeds: tuple[int, ...],
) -> Node:  # fmt: skip
    ended = record.of(arm, seeds)
    config = json.dumps(json.loads(arm.config), indent=2).encode() if arm.config else b""
    return Node(
        id=f"{parent}/{label}",
        parent=parent,
        kind="arm",
        name=f"{label} {name}",
        status="FINISHED" if seeds and len(ended) == len(seeds) else "RUNNING",
        params=_params(arm.overrides, baseline.overrides),
        files={"config.json": config} if config else {},
    )


def _trials(
    record: Record, parent: Node, arm: Arm, baseline: Arm, seeds: tuple[int, ...],
    *, with_test: bool = False,
) -> Iterator[Node]:  # fmt: skip
    """The ended trials of an arm. Only the headline shows the test split, which is read once.

    Layers are shown of the first and of those that diverged: other seeds look alike, and the curves
    of layers would be most of what a store has to hold.
    """
    metric = record.campaign.metric
    for number, (trial, outcome) in enumerate(record.of(arm, seeds)):
        tags = {"arm": parent.name, "ended": outcome.status.value, "identity": trial.identity}
        if outcome.reason:
            tags["reason"] = outcome.reason
        yield Node(
            id=f"{parent.id}/{trial.seed}",
            parent=parent.id,
            kind="trial",
            name=f"{parent.name} seed {trial.seed:03d}",
            status=RUN_STATUS[outcome.status],
            start=outcome.started or None,
            end=outcome.started + outcome.seconds if outcome.started else None,
            params=_params(arm.overrides, baseline.overrides) | {"seed": str(trial.seed)},
            tags=tags,
            metrics=last_values(outcome, None if with_test else metric),
            trial=trial if outcome.status.is_result else None,
            with_test=with_test,
            with_layers=number == 0 or outcome.status in (Status.DIVERGED, Status.TIMED_OUT),
        )


def _verdict(verdict: Verdict | None, page: Page | None) -> dict[str, str]:
    """The verdict as tags, in the words of the page's own table."""
    if verdict is None:
        return {}
    said = verdict.call.value
    if page is not None and page.columns and page.columns[-1] == "verdict":
        said = next((row[-1] for row in page.rows if row[0] == verdict.arm), said)
    return {"verdict": said, "reason": verdict.reason, "next": verdict.next_act}


def _params(overrides: Overrides, baseline: Overrides) -> dict[str, str]:
    return {
        key: "null" if value is None else str(value)
        for key, value in overrides
        if (key, value) not in baseline
    }


def _with_page(node: Node, page: Page | None) -> Node:
    if page is None:
        return node
    name = "report.html" if node.kind == "campaign" else f"{page.name}.html"
    shown = dict(page.figures) | ({} if node.kind == "campaign" else {name: page.html.encode()})
    return replace(
        node,
        note=page.summary,
        files={**node.files, **shown},
        columns=page.columns,
        rows=page.rows,
    )
