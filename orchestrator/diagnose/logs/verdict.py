"""From a log to its diagnosis: findings, causes first; the label; what may be tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from orchestrator.diagnose.hypotheses import hypothesise
from orchestrator.diagnose.logs.course import FEWEST, longest
from orchestrator.diagnose.logs.registry import LOG_RULES
from orchestrator.diagnose.logs.remarks import remarks
from orchestrator.diagnose.registry import RULES, rendered
from orchestrator.diagnose.seeds import diagnose, missing
from orchestrator.log_nouns import Diagnosis
from orchestrator.nouns import Factor, Finding, Hypothesis, Role, Scale, Telemetry
from orchestrator.telemetry.readers import Log

HEALTHY, TOO_SHORT = "healthy", "insufficient_data"

EXACT = ("no_gradient", "loss_not_finite")
"""Rules without a threshold: they hold however short a log is."""

GENERIC = (
    Factor("lr", "optimizer.lr", None, scale=Scale.LOG, role=Role.SCIENTIFIC),
    Factor("weight_decay", "optimizer.weight_decay", None, scale=Scale.LOG),
    Factor("dropout", "model.dropout", None),
    Factor("warmup", "schedule.warmup", None),
    Factor("clip", "clip", None, scale=Scale.LOG),
)
"""What nearly every training can vary; nobody has mapped the factors of a foreign log."""

LABEL_OF_RULE = {
    "non_finite": "divergence",
    "loss_spikes": "instability",
    "schedule_collapse": "plateau",
    "learning_rate_too_low": "underfitting",
}
LABEL_OF_THEME = {
    "numerics": "divergence",
    "stability": "instability",
    "clipping": "high_clip_ratio",
    "optimisation": "plateau",
    "generalisation": "overfitting",
}
"""What a trial is called on which a rule for trials fires: by rule, else by name, else by theme."""


def diagnose_log(log: Log, *, source: str) -> Diagnosis:
    """What a foreign log says; `source` is what the user called it."""
    with np.errstate(all="ignore"):  # a log may hold any number, 1e308 too
        return _diagnosed(log, source)


def _diagnosed(log: Log, source: str) -> Diagnosis:
    is_short = longest(log) < FEWEST
    found = [
        rendered(finding)
        for rule in LOG_RULES.values()
        if (rule.name in EXACT or not is_short) and (finding := rule.check(log)) is not None
    ]
    roots = _roots(found)
    labels = [LOG_RULES[f.rule].label for f in roots] + [TOO_SHORT] * is_short
    asked = [replace(f, rule=LOG_RULES[f.rule].asks) for f in roots if LOG_RULES[f.rule].asks]
    return Diagnosis(
        source=source,
        format=log.format,
        axis=log.axis,
        columns=log.columns,
        n_points=log.n_points,
        telemetry=log.telemetry,
        labels=tuple(dict.fromkeys(labels)) or (HEALTHY,),
        findings=tuple(roots),
        hypotheses=_hypotheses(asked),
        remarks=remarks(log),
        warnings=log.warnings,
    )


def diagnose_own(telemetry: Telemetry, *, source: str) -> Diagnosis:
    """What the telemetry of a trial says, by the rules for trials."""
    findings = diagnose([telemetry])
    losses = [n for n in ("train/loss", "probe/loss", "val/loss") if n in telemetry]
    points = max((len(telemetry[n]) for n in losses), default=0)
    exact = [f for f in findings if RULES[f.rule].exact]
    kept = findings if points >= FEWEST else tuple(exact)
    labels = [_label(f.rule) for f in kept] + [TOO_SHORT] * (points < FEWEST)
    return Diagnosis(
        source=source,
        format="telemetry",
        axis="optimizer step",
        columns={name: name for name in telemetry.series if "/" not in name or name in losses},
        n_points=max((len(s) for s in telemetry.series.values()), default=0),
        telemetry=telemetry,
        labels=tuple(dict.fromkeys(labels)) or (HEALTHY,),
        findings=kept,
        hypotheses=_hypotheses(kept),
        remarks=missing([telemetry]),
        warnings=(),
    )


def _label(rule: str) -> str:
    if rule in LABEL_OF_RULE:
        return LABEL_OF_RULE[rule]
    return rule if rule in LABEL_OF_THEME.values() else LABEL_OF_THEME[RULES[rule].theme]


def _roots(found: Sequence[Finding]) -> list[Finding]:
    """Findings that no other one explains, with what they explain as consequences."""
    effects = {
        f.rule: [e.rule for e in found if e.rule in LOG_RULES[f.rule].explains] for f in found
    }
    explained = {name for names in effects.values() for name in names}
    return [
        replace(f, consequences=tuple(effects[f.rule])) for f in found if f.rule not in explained
    ]


def _hypotheses(findings: Sequence[Finding]) -> tuple[Hypothesis, ...]:
    raised, _ = hypothesise(findings, GENERIC)
    return tuple(replace(h, why=h.why.removesuffix(" (1 of 1 seeds)")) for h in raised)
