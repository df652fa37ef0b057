"""Ledger -> Record: where a campaign stands, read back from what was written down."""

from __future__ import annotations

import dataclasses
from enum import Enum
from itertools import count, takewhile
from pathlib import Path
from typing import TypeVar

from orchestrator.errors import OrchestratorError
from orchestrator.ledger import FILE, Ledger
from orchestrator.nouns import (
    Ablation,
    AblationResult,
    Adoption,
    Arm,
    Campaign,
    Confirmation,
    Finding,
    Headline,
    Hypothesis,
    Look,
    Outcome,
    Plan,
    Record,
    Round,
    Trial,
)

T = TypeVar("T")

# The names of the steps, spelled here and nowhere else.
CAMPAIGN = "campaign"
TRIAL = "trial/"
OUTCOME = "outcome/"
ACCIDENT = "accident/"
HEADLINE = "headline"
ENDING = "ending"


def step(number: int, name: str) -> str:
    """The name of a step of round `number`."""
    return f"round/{number}/{name}"


# What may change between a run and its resumption without changing what is being asked.
FREE_FIELDS = ("launcher", "launcher_overrides", "workers", "tracking_uri", "budget")


def load(folder: Path) -> Record:
    """The record in a campaign's folder, without touching it."""
    if not (folder / FILE).exists():
        raise OrchestratorError(
            f"{folder} holds no campaign: there is no {FILE}.",
            "name the folder of a campaign that was run, or start it with `run`",
        )
    ledger = Ledger(folder, writable=False)
    if CAMPAIGN not in ledger:
        raise OrchestratorError(f"{folder / FILE} is empty.", "start the campaign with `run`")
    return assemble(ledger)


def assemble(ledger: Ledger) -> Record:
    """The Record of everything done so far."""
    trials = {n.removeprefix(TRIAL): ledger.get(n, Trial) for n in ledger.steps(TRIAL)}
    accidents = {n.split("/")[1]: ledger.get(n, Outcome) for n in ledger.steps(ACCIDENT)}
    results = {n.removeprefix(OUTCOME): ledger.get(n, Outcome) for n in ledger.steps(OUTCOME)}
    return Record(
        campaign=ledger.get(CAMPAIGN, Campaign),
        rounds=_rounds(ledger),
        trials=trials,
        outcomes=accidents | results,
        headline=ledger.get(HEADLINE, Headline) if HEADLINE in ledger else None,
        ending=ledger.get(ENDING, str) if ENDING in ledger else "",
    )


def _rounds(ledger: Ledger) -> tuple[Round, ...]:
    rounds: list[Round] = []
    for number in count(1):
        if step(number, "seeds") not in ledger:
            return tuple(rounds)
        rounds.append(_round(ledger, number))
    raise AssertionError("count() never ends")


def _round(ledger: Ledger, number: int) -> Round:
    def has(name: str) -> bool:
        return step(number, name) in ledger

    plan = ledger.get(step(number, "plan"), Plan) if has("plan") else None
    results = [step(number, f"result/{a.name}") for a in (plan.ablations if plan else ())]
    return Round(
        number=number,
        baseline=ledger.get(step(number, "baseline"), Arm),
        seeds=ledger.get(step(number, "seeds"), tuple[int, ...]),
        findings=_tuple(ledger, step(number, "findings"), tuple[Finding, ...]),
        hypotheses=_tuple(ledger, step(number, "hypotheses"), tuple[Hypothesis, ...]),
        untestable=_tuple(ledger, step(number, "untestable"), tuple[str, ...]),
        plan=plan,
        results=tuple(ledger.get(r, AblationResult) for r in results if r in ledger),
        confirmation=ledger.get(step(number, "confirmation"), Confirmation)
        if has("confirmation")
        else None,
        adoption=ledger.get(step(number, "adoption"), Adoption) if has("adoption") else None,
        looks={a.name: looks_at(ledger, number, a) for a in (plan.ablations if plan else ())},
    )


def look_step(number: int, look: int, ablation: Ablation) -> str:
    """The name of the step of one look (from 1) at an ablation of round `number`."""
    return step(number, f"look/{look}/{ablation.name}")


def looks_at(ledger: Ledger, number: int, ablation: Ablation) -> tuple[Look, ...]:
    """The looks that were taken at an ablation of round `number`."""
    names = (look_step(number, look, ablation) for look in count(1))
    return tuple(ledger.get(n, Look) for n in takewhile(lambda n: n in ledger, names))


def _tuple(ledger: Ledger, name: str, kind: type[tuple[T, ...]]) -> tuple[T, ...]:
    return ledger.get(name, kind) if name in ledger else ()


def opened(campaign: Campaign) -> Ledger:
    """The campaign's ledger with the campaign frozen in it; refuse a folder that asks otherwise."""
    folder = Path(campaign.folder)
    ledger = Ledger(folder)
    if CAMPAIGN not in ledger:
        ledger.add(CAMPAIGN, campaign)
        return ledger
    changes = list(_changes(ledger.get(CAMPAIGN, Campaign), campaign))
    if not changes:
        return ledger
    if any(ledger.steps(OUTCOME)):
        ledger.close()
        raise OrchestratorError(
            f"{folder} belongs to another campaign:\n" + "\n".join(f"  {c}" for c in changes),
            "put these back to resume it, or start afresh with another folder=...",
        )
    # Nothing was measured yet, so nothing is lost by asking anew: the user has mended a mistake.
    ledger.close()
    aside = next(p for n in range(1, 10**6) if not (p := folder / f"{FILE}.{n}").exists())
    (folder / FILE).rename(aside)
    return opened(campaign)


def _changes(old: object, new: object, prefix: str = "") -> list[str]:
    """Which fields of two campaigns differ, leaf by leaf, but for those that may."""
    if dataclasses.is_dataclass(old) and type(old) is type(new):
        names = [f.name for f in dataclasses.fields(old) if f.name not in FREE_FIELDS]
        pairs = [(getattr(old, n), getattr(new, n), f"{prefix}.{n}".lstrip(".")) for n in names]
        return [change for a, b, name in pairs for change in _changes(a, b, name)]
    return [] if old == new else [f"{prefix} was {_said(old)} and is now {_said(new)}"]


def _said(value: object) -> str:
    return str(value.value) if isinstance(value, Enum) else repr(value)
