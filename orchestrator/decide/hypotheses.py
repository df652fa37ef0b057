"""The verdict on a hypothesis: metric and mechanism."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.decide import rules, words
from orchestrator.nouns import (
    FEWEST_SEEDS,
    Call,
    Comparison,
    Comparisons,
    Hypothesis,
    Move,
    Support,
    Verdict,
)
from orchestrator.stats import flags


def support(
    hypothesis: Hypothesis,
    verdicts: Sequence[Verdict],
    comparisons: Comparisons,
    mechanism: Comparisons | None,
) -> tuple[Support, str]:
    """Whether metric *and* mechanism went as the hypothesis says, and the numbers.

    `mechanism` compares the predicted signal, oriented so that the predicted move is positive.
    """
    good = [v.arm for v in verdicts if v.call is Call.BETTER or v.is_candidate]
    if not good:
        if comparisons.arms and all(flags.IDENTICAL in c.flags for c in comparisons.arms):
            # Nothing was varied, so nothing was tested.
            return Support.INCONCLUSIVE, (
                "every arm is identical to the baseline on every seed: is the factor wired up?"
            )
        if verdicts and all(v.call in (Call.WORSE, Call.EQUIVALENT) for v in verdicts):
            calls = ", ".join(f"{v.arm} {v.call.value}" for v in verdicts)
            return Support.REFUTED, f"no arm improves {comparisons.metric.name}: {calls}"
        return Support.INCONCLUSIVE, f"no arm shows an improvement of {comparisons.metric.name}"
    if mechanism is None:
        return Support.INCONCLUSIVE, (
            f"{', '.join(good)} improves {comparisons.metric.name}, but {hypothesis.signal} was "
            "not recorded, so why remains open"
        )
    moved = {c.arm: _moved(c, mechanism, hypothesis) for c in mechanism.arms}
    stated = {c.arm: words.mechanism(c, mechanism, hypothesis) for c in mechanism.arms}
    for arm in good:
        if moved.get(arm) is True:
            return Support.SUPPORTED, (
                f"{arm} improves {comparisons.metric.name} and moves {stated[arm]}, as predicted"
            )
    told = "; ".join(f"{arm} moves {stated[arm]}" for arm in good if arm in stated)
    if all(moved.get(arm) is False for arm in good):
        return Support.REFUTED, (
            f"{comparisons.metric.name} improves, but against the prediction {told}: "
            "the improvement has another cause"
        )
    return Support.INCONCLUSIVE, (
        f"{', '.join(good)} improves {comparisons.metric.name}, but no predicted move of "
        f"{hypothesis.signal} is significant ({told or 'too few recordings'})"
    )


def _moved(c: Comparison, of: Comparisons, hypothesis: Hypothesis) -> bool | None:
    """True: as predicted. False: significantly the other way. None: cannot be told."""
    if c.n_pairs < FEWEST_SEEDS:
        return None
    as_predicted, against = rules.deciding_p(c, of)
    level = of.level_of(c)
    if hypothesis.signal_move is Move.EITHER:
        return True if 2 * min(as_predicted, against) <= level else None
    if as_predicted <= level:
        return True
    return False if against <= level else None
