"""An adopted clip threshold watched: the baseline's norms against what its plan had predicted."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, median_low

from orchestrator import plan
from orchestrator.clip_nouns import ClipAlarm
from orchestrator.nouns import Arm, ClipForecast, Finding, Record, Telemetry

RULES = {
    "high": "high_clip_ratio",
    "inert": "inert_clip",
    "drift": "gradient_level_rose",
    "nonfinite": "non_finite_streak",
}
"""The finding that each kind of alarm becomes."""

SAYS = {
    "high": "{ratio:.0%} of steps are clipped, {high:.0%} at most were predicted",
    "inert": "no step is clipped: the norm fell below half of its predicted level",
    "drift": "the norm's level is over 25 % above the predicted one; {ratio:.0%} of steps are "
    "clipped, {high:.0%} at most were predicted",
    "nonfinite": "ten norms in a row, or more, are not finite",
}


def forecast_of(record: Record, baseline: Arm) -> ClipForecast | None:
    """What was predicted of the baseline when it was an arm of an earlier round, if it clips."""
    for turn in reversed(record.rounds):
        for ablation in turn.plan.ablations if turn.plan else ():
            arm = next((a for a in ablation.arms if a.overrides == baseline.overrides), None)
            if arm is not None and turn.plan is not None:
                return next((f for f in turn.plan.clipping if f.arm == arm.name), None)
    return None


def clip_findings(forecast: ClipForecast, recorded: Sequence[Telemetry]) -> tuple[Finding, ...]:
    """The alarms that more than half of the trials raise, as findings; causes as look-alikes."""
    by_trial = [plan.clip_alarms(forecast, telemetry) for telemetry in recorded]
    found = []
    for kind in RULES:
        first = [next((a for a in alarms if a.kind == kind), None) for alarms in by_trial]
        fired = [alarm for alarm in first if alarm is not None]
        if len(fired) > len(recorded) / 2:
            found.append(_finding(kind, fired, forecast, len(recorded)))
    return tuple(found)


def _finding(
    kind: str, fired: Sequence[ClipAlarm], forecast: ClipForecast, seen: int
) -> Finding:  # fmt: skip
    evidence: dict[str, float | str] = {
        "clip_ratio": median(a.ratio for a in fired),
        "predicted_low": median(a.expected.low for a in fired),
        "predicted_high": median(a.expected.high for a in fired),
        "max_norm": forecast.max_norm,
    }
    return Finding(
        rule=RULES[kind],
        severity=0.5,  # alarms are not ranked against rules
        summary=SAYS[kind].format(ratio=evidence["clip_ratio"], high=evidence["predicted_high"])
        + f" at the adopted max_norm {forecast.max_norm:.3g}",
        steps=(median_low(a.first for a in fired), median_low(a.last for a in fired)),
        evidence=evidence,
        confounders=fired[0].causes,
        seeds_fired=len(fired),
        seeds_seen=seen,
    )
