"""From one finding per trial to the findings of a campaign's baseline: all seeds, roots first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median, median_low, mode

from orchestrator.diagnose.registry import ANYTHING, RULES, Rule, rendered
from orchestrator.errors import OrchestratorError, nearest
from orchestrator.nouns import Finding, Telemetry


def diagnose(telemetries: Sequence[Telemetry], *, skip: Sequence[str] = ()) -> tuple[Finding, ...]:
    """What is wrong with trials that differ only in their seed; root causes first.

    A rule must fire on more than half of the trials, an exact one on any. What a root cause
    explains is not told again: it is among the root's consequences. `skip` names rules to leave
    out.
    """
    unknown = sorted(set(skip) - set(RULES))
    if unknown:
        raise OrchestratorError(
            f"skip_rules: no rule is called {', '.join(unknown)}.", nearest(unknown[0], RULES)
        )
    found = []
    for rule in RULES.values():
        if rule.name not in skip:
            fired = _fired(rule, telemetries)
            if len(fired) > (0 if rule.exact else len(telemetries) / 2):
                found.append(_merged(fired, len(telemetries)))
    return tuple(rendered(finding) for finding in _roots(found))


def missing(telemetries: Sequence[Telemetry]) -> tuple[str, ...]:
    """What cannot be told because no trial recorded the series that it takes, as sentences.

    All that only some trainings can record is one sentence, the last.
    """
    sentences, extras = list[str](), list[str]()
    for rule in RULES.values():
        lacks = [rule.lacks(telemetry) for telemetry in telemetries]
        if lacks and all(lacks):
            names = ", ".join(" or ".join(n.rstrip("/") for n in s.split("|")) for s in lacks[0])
            if rule.extra:
                extras.append(f"{rule.tells} ({names})")
            else:
                sentences.append(f"cannot tell {rule.tells}: no {names}")
    if extras:
        sentences.append(f"could be told as well, where it is recorded: {', '.join(extras)}")
    return tuple(sentences)


def _fired(rule: Rule, telemetries: Sequence[Telemetry]) -> list[Finding]:
    findings = (rule.check(t) for t in telemetries if not rule.lacks(t))
    return [finding for finding in findings if finding is not None]


def _merged(fired: Sequence[Finding], seen: int) -> Finding:
    """One finding for several seeds: medians of the evidence, in the words of the median seed."""
    spokesman = sorted(fired, key=lambda f: f.severity)[(len(fired) - 1) // 2]
    evidence: dict[str, float | str] = {}
    for name in dict.fromkeys(name for finding in fired for name in finding.evidence):
        values = [f.evidence[name] for f in fired if name in f.evidence]
        numbers = [v for v in values if not isinstance(v, str)]
        evidence[name] = median(numbers) if numbers else mode(values)
    return replace(
        spokesman,
        severity=median(f.severity for f in fired),
        steps=(median_low(f.steps[0] for f in fired), median_low(f.steps[1] for f in fired)),
        evidence=evidence,
        seeds_fired=len(fired),
        seeds_seen=seen,
    )


def _roots(found: Sequence[Finding]) -> list[Finding]:
    """Findings that no other one explains, exact and severe ones first, with what they explain."""
    explained = {
        effect.rule: cause.rule for cause in found for effect in found if _explains(cause, effect)
    }
    roots = []
    for finding in found:
        if finding.rule not in explained:
            effects = [n for n in explained if finding.rule in _causes(n, explained)]
            roots.append(replace(finding, consequences=tuple(effects)))
    return sorted(roots, key=lambda f: (not RULES[f.rule].exact, -f.severity))


def _explains(cause: Finding, effect: Finding) -> bool:
    """A cause begins before its effect; if both begin at once, it is registered before it."""
    order = list(RULES)
    before = (cause.steps[0], order.index(cause.rule)) < (effect.steps[0], order.index(effect.rule))
    explains = RULES[cause.rule].explains
    later = order.index(effect.rule) > order.index(cause.rule)
    return before and (effect.rule in explains or (ANYTHING in explains and later))


def _causes(name: str, explained: dict[str, str]) -> list[str]:
    """The chain of causes above a finding."""
    chain = []
    while name in explained and explained[name] not in chain:
        name = explained[name]
        chain.append(name)
    return chain
