"""From findings to hypotheses: which factor to move which way, and what must move with the metric.

The table is the "What may be tried" of the mission, in its order, with the direction that the
numbers of the finding ask for. A finding proposes; only the ablation proves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.diagnose.curves import LARGE_UPDATE, TINY_UPDATE
from orchestrator.diagnose.remedies import blocking, remedies
from orchestrator.nouns import Factor, Finding, Hypothesis, Move, Role

Evidence = Mapping[str, float | str]


def _always(_: Evidence) -> bool:
    return True


def _ratio(evidence: Evidence) -> float | None:
    value = evidence.get("update_ratio")
    return None if value is None else float(value)


def _tiny(evidence: Evidence) -> bool:
    ratio = _ratio(evidence)
    return ratio is not None and ratio < TINY_UPDATE


def _large(evidence: Evidence) -> bool:
    """From a fifth of the alarm on; on a plateau that is ten times the healthy 1e-3."""
    ratio = _ratio(evidence)
    return ratio is not None and ratio > LARGE_UPDATE / 5


def _undecided(evidence: Evidence) -> bool:
    return not _tiny(evidence) and not _large(evidence)


def _large_early(evidence: Evidence) -> bool:
    return float(evidence.get("early_update_ratio", 0.0)) > LARGE_UPDATE


def _unpredicted(evidence: Evidence) -> bool:
    """An adopted threshold clips more than its forecast: the training has changed, not the norm."""
    return "predicted_high" in evidence


def _of_unknown_size(evidence: Evidence) -> bool:
    return _ratio(evidence) is None and not _unpredicted(evidence)


def _not_large(evidence: Evidence) -> bool:
    return not _large(evidence) and not _unpredicted(evidence)


@dataclass(frozen=True, slots=True)
class Row:
    """One entry of the table: `factor` is moved by `move`, because `signal` then goes its way."""

    factor: str
    move: Move
    signal: str
    signal_move: Move
    because: str
    when: Callable[[Evidence], bool] = _always


# Larger updates are read off the first steps: later on, what has converged moves little again.
UP, DOWN, EITHER = Move.UP, Move.DOWN, Move.EITHER

_CALM = "the train loss falls again"
_FINITE = "the loss stays finite"
_FREED = "more is left to learn with"
_FEWER = "fewer loss spikes throw the weights back"
_NARROW = "the gap between validation and train loss narrows"
_FEWER_CLIPPED = "gradients grow less, and fewer of them are clipped"
_FASTER = "larger updates get the weights further within the budget"

_SMALLER = Row("lr", DOWN, "train_loss", DOWN, _CALM)
_GENTLER = Row("warmup", UP, "train_loss", DOWN, "the first updates no longer wreck the weights")

TABLE: dict[str, tuple[Row, ...]] = {
    "overfitting": (
        Row("weight_decay", UP, "generalisation_gap", DOWN, _NARROW),
        Row("dropout", UP, "generalisation_gap", DOWN, _NARROW),
    ),
    "plateau": (
        Row("lr", UP, "early_update_ratio", UP, _FASTER, when=_tiny),
        Row("lr", DOWN, "update_ratio", DOWN, "smaller updates settle lower", when=_large),
        Row("lr", EITHER, "train_loss", DOWN, _CALM, when=_undecided),
        Row("warmup", UP, "train_loss", DOWN, _CALM, when=lambda e: not _tiny(e)),
    ),
    "learning_rate_too_low": (Row("lr", UP, "early_update_ratio", UP, _FASTER),),
    "schedule_collapse": (
        # Not loss_drop: by the first evaluation the rate may be gone, and nothing drops after it.
        Row("schedule", EITHER, "train_loss", DOWN, "training goes on to the end of the budget"),
        Row("lr", EITHER, "train_loss", DOWN, "more is learned before the rate is gone"),
    ),
    "instability": (
        Row("lr", DOWN, "early_update_ratio", DOWN, "early updates are tamed", when=_large_early),
        Row("lr", DOWN, "train_loss", DOWN, _CALM, when=lambda e: not _large_early(e)),
        _GENTLER,
        Row("clip", DOWN, "train_loss", DOWN, "outlying gradients no longer wreck the weights"),
    ),
    "loss_spikes": (
        Row("lr", DOWN, "loss_spikes", DOWN, _FEWER),
        Row("warmup", UP, "loss_spikes", DOWN, _FEWER),
        Row("clip", DOWN, "loss_spikes", DOWN, _FEWER),
    ),
    "gradient_spike": (
        Row("lr", DOWN, "loss_spikes", DOWN, _FEWER),
        Row("warmup", UP, "loss_spikes", DOWN, _FEWER),
        Row("clip", DOWN, "loss_spikes", DOWN, _FEWER),
    ),
    "over_regularised": (
        Row("weight_decay", DOWN, "train_loss", DOWN, _FREED, when=lambda e: "norm_left" in e),
        Row("dropout", DOWN, "train_loss", DOWN, _FREED, when=lambda e: "dropout" in e),
    ),
    "exploding_gradients": (
        _SMALLER,
        _GENTLER,
        Row("clip", DOWN, "train_loss", DOWN, "growing gradients no longer wreck the weights"),
    ),
    "dead_units": (_SMALLER, _GENTLER),
    "attention_saturation": (_SMALLER,),
    "logit_scale": (_SMALLER,),
    "logit_drift": (_SMALLER,),
    "noise_dominated": (_SMALLER,),
    "loss_scale_collapse": (_SMALLER,),
    "epsilon_too_large": (Row("lr", UP, "early_update_ratio", UP, _FASTER),),
    "non_finite": (
        Row("lr", DOWN, "train_loss", DOWN, _FINITE),
        Row("warmup", UP, "train_loss", DOWN, _FINITE),
        Row("clip", DOWN, "train_loss", DOWN, _FINITE),
    ),
    # Under SGD a threshold inside the body of the norms is a hidden cut of the learning rate
    # (docs/clip.md): where updates are not large, it is the threshold that is to be moved first.
    "high_clip_ratio": (
        Row("lr", DOWN, "clip_ratio", DOWN, _FEWER_CLIPPED, when=_unpredicted),
        Row("warmup", UP, "clip_ratio", DOWN, _FEWER_CLIPPED, when=_unpredicted),
        Row("clip", UP, "early_update_ratio", UP, _FASTER, when=lambda e: _ratio(e) is not None),
        Row("clip", UP, "clip_ratio", DOWN, _FASTER, when=_of_unknown_size),
        Row("lr", UP, "early_update_ratio", UP, _FASTER, when=_not_large),
        Row("lr", DOWN, "clip_ratio", DOWN, "smaller updates need less clipping", when=_large),
        Row("warmup", UP, "clip_ratio", DOWN, "a gentler start needs less clipping", when=_large),
    ),
}
"""Rows of every finding in the order of trying; at most one row per factor applies at a time."""

FACTORS = frozenset({"lr", "weight_decay", "dropout", "warmup", "clip", "schedule"})
"""Names with a meaning of ours; every other factor is the user's, and is tried after these."""

_VERBS = {UP: "raising", DOWN: "lowering", EITHER: "changing"}


def hypothesise(
    findings: Sequence[Finding],
    factors: Sequence[Factor],
    *,
    tried: Collection[tuple[str, Move]] = (),
) -> tuple[tuple[Hypothesis, ...], tuple[str, ...]]:
    """What may be tested about the findings, in order, and what cannot be, as sentences.

    A (factor, move) that was `tried` or that an earlier finding asks for is not proposed again.
    Nothing is while the program itself is wrong: a trial would tune the mistake.
    """
    if blocking(findings):
        return (), blocking(findings)
    mapped = {factor.name: factor for factor in factors}
    done, raised = set(tried), list[Hypothesis]()
    untestable: list[str] = [*remedies(findings)]
    for finding in findings:
        untestable += _untestable(finding, mapped)
        for row in (*_rows(finding), *_of_the_user(finding, factors)):
            factor = mapped.get(row.factor)
            testable = factor is not None and factor.role is Role.SCIENTIFIC
            if factor is not None and testable and (row.factor, row.move) not in done:
                done.add((row.factor, row.move))
                raised.append(_hypothesis(finding, factor, row))
    return tuple(raised), tuple(dict.fromkeys(untestable))


def _rows(finding: Finding) -> list[Row]:
    return [row for row in TABLE.get(finding.rule, ()) if row.when(finding.evidence)]


def _of_the_user(finding: Finding, factors: Sequence[Factor]) -> Iterator[Row]:
    """The user's own factors: what they mean is not ours to know, so both sides are tried."""
    signal = "generalisation_gap" if finding.rule == "overfitting" else "train_loss"
    because = _NARROW if finding.rule == "overfitting" else _CALM
    for factor in factors:
        if factor.name not in FACTORS and factor.levels:
            yield Row(factor.name, EITHER, signal, DOWN, because)


def _hypothesis(finding: Finding, factor: Factor, row: Row) -> Hypothesis:
    return Hypothesis(
        finding=finding.rule,
        factor=factor.name,
        move=row.move,
        claim=f"{_VERBS[row.move]} {factor.name} improves the metric: {row.because}",
        why=f"{finding.summary} ({finding.seeds_fired} of {finding.seeds_seen} seeds)",
        signal=row.signal,
        signal_move=row.signal_move,
    )


def _untestable(finding: Finding, mapped: Mapping[str, Factor]) -> Iterator[str]:
    """Sentences about the factors that the finding asks for and the campaign does not vary."""
    names = list(dict.fromkeys(row.factor for row in _rows(finding)))
    absent = [name for name in names if name not in mapped]
    if names and len(absent) == len(names):
        them = absent[0] if len(absent) == 1 else f"{', '.join(absent[:-1])} or {absent[-1]}"
        yield (
            f"{finding.rule}: nothing known to help is mapped under factors; map {them} to test it"
        )
    else:
        for name in absent:
            yield f"{finding.rule}: {name} is not mapped under factors, so it cannot be tested"
    for name in names:
        if name in mapped and mapped[name].role is not Role.SCIENTIFIC:
            role = mapped[name].role.value
            yield f"{finding.rule}: {name} is declared {role} under factors, so it is not varied"
    for factor in mapped.values():
        if factor.name not in FACTORS and not factor.levels:
            yield (
                f"{factor.name} has no levels, so it cannot be tested; "
                f"give some under factors.{factor.name}.levels"
            )
