"""Rules about tokens: what a sequence model is given, what it is to predict, what it may see."""

from __future__ import annotations

from orchestrator.diagnose.curves import whole_run
from orchestrator.diagnose.evaluation import DIFFERS
from orchestrator.diagnose.registry import ANYTHING, rule
from orchestrator.nouns import Finding, Telemetry

NEARLY_ALL = 0.99
A_FEW = 0.05
"""Padded places that may count: a first token that starts the sequence is one of 20 or more."""


def _told(telemetry: Telemetry, name: str, says: str, amount: float, *confounders: str) -> Finding:
    return Finding(
        rule=name,
        severity=1.0,
        summary=says,
        steps=whole_run(telemetry),
        evidence={"amount": amount},
        confounders=confounders,
    )


def _fact(telemetry: Telemetry, name: str) -> float:
    """A number of the header; 0 where the probe set is not one of tokens."""
    return float(telemetry.header.get(name) or 0.0)


def _change(telemetry: Telemetry, name: str) -> float | None:
    """How much outputs change in a test of the header's; None if they change by themselves too."""
    if max(telemetry["eval_inconsistency"].values, default=0.0) > DIFFERS:
        return None
    return _fact(telemetry, name)


@rule(
    extra=True,
    needs=("eval_inconsistency",),
    tells="a model that sees what it is to predict",
    explains=(ANYTHING,),
    exact=True,
)
def future_leak(telemetry: Telemetry) -> Finding | None:
    """A model that is to predict the next token is shown it.

    99 % of the probe's targets are the input one place on, and another last token changes outputs
    before it by more than 1e-3 of the largest (section 3 of docs/diagnosis.md, "to add": a causal
    mask that leaks, DEFault++; the test is ours). Excluded: models that are to see both sides,
    whose targets are no next tokens; outputs that differ by themselves (`evaluation_inconsistent`).
    """
    change = _change(telemetry, "future_leak")
    if change is None or change <= DIFFERS:
        return None
    if _fact(telemetry, "targets_are_next_inputs") < NEARLY_ALL:
        return None
    says = (
        "the targets are the next tokens, and another last token changes the outputs before it by "
        "{amount:.1%} of the largest: the model sees what it is to predict"
    )
    return _told(telemetry, "future_leak", says, change, "normalisation over the sequence")


@rule(
    extra=True,
    needs=("eval_inconsistency",),
    tells="targets that are the inputs",
    explains=(ANYTHING,),
    exact=True,
)
def targets_unshifted(telemetry: Telemetry) -> Finding | None:
    """A causal model's targets are its inputs at the same place: it learns to copy.

    99 % of the probe's targets, and no output changes with a later token (section 3 of
    docs/diagnosis.md, "to add": off-by-one targets; the test is ours). Excluded: autoencoders,
    which see the whole sequence; models that shift their `labels` themselves.
    """
    same, change = _fact(telemetry, "targets_are_inputs"), _change(telemetry, "future_leak")
    if same < NEARLY_ALL or change is None or change > DIFFERS:
        return None
    if _fact(telemetry, "targets_are_next_inputs") >= NEARLY_ALL:  # one token throughout
        return None
    says = "{amount:.0%} of the targets are the input at the same place: a causal model copies it"
    return _told(telemetry, "targets_unshifted", says, same, "a model that is to copy on purpose")


@rule(
    extra=True,
    needs=("eval_inconsistency",),
    tells="padding that counts in the loss",
    explains=("plateau", "overfitting", "padding_seen"),
    exact=True,
)
def padding_counts(telemetry: Telemetry) -> Finding | None:
    """Targets count whose input is the token that an embedding's `padding_idx` never trains.

    More than 5 % of the probe's targets: either padding is not left out of the loss (-100), or
    `padding_idx` is a token that means something, whose vector stays zero (section 3 of
    docs/diagnosis.md, "to add"; the test is ours). Excluded: a start token that is also padding.
    """
    share = _fact(telemetry, "padding_counts")
    if share <= A_FEW:
        return None
    says = (
        "{amount:.0%} of the targets that count belong to the token of padding_idx: padding is in "
        "the loss, or a token that means something is not trained"
    )
    return _told(telemetry, "padding_counts", says, share, "padding that is predicted on purpose")


@rule(
    extra=True,
    needs=("eval_inconsistency",),
    tells="padding that is not masked",
    explains=("plateau", "overfitting"),
    exact=True,
)
def padding_seen(telemetry: Telemetry) -> Finding | None:
    """What the model says of a sequence depends on how much padding follows it.

    Cutting the last quarter off the probe's sequences that have only padding there changes outputs
    at real places by more than 1e-3 of the largest (section 3 of docs/diagnosis.md, "to add": a
    wrong padding mask, DEFault++; the test is ours). Excluded: recurrent layers; convolutions over
    vectors of zeros, which change nothing; embeddings without a `padding_idx`; models of one
    length; outputs that differ by themselves (`evaluation_inconsistent`).
    """
    change = _change(telemetry, "padding_seen")
    if change is None or change <= DIFFERS:
        return None
    says = (
        "with less padding behind them, outputs at real places change by {amount:.1%} of the "
        "largest: padding is attended to"
    )
    return _told(telemetry, "padding_seen", says, change, "pooling over the sequence on purpose")
