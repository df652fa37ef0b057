"""Verdicts on arms, what is confirmed, and what holds up."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from orchestrator.decide import rules, words
from orchestrator.nouns import (
    CONFIRMING,
    FEWEST_SEEDS,
    AblationResult,
    Call,
    Comparison,
    Comparisons,
    Direction,
    Verdict,
)
from orchestrator.stats import exact, forecast


def judge(comparisons: Comparisons, *, alpha_screen: float | None = None) -> tuple[Verdict, ...]:
    """One verdict per arm; in a campaign, `alpha_screen` says who may be confirmed."""
    pooled = sum(c.pooled for c in comparisons.arms)
    return tuple(_verdict(c, comparisons, alpha_screen, pooled) for c in comparisons.arms)


def _verdict(
    c: Comparison, of: Comparisons, alpha_screen: float | None, pooled_arms: int
) -> Verdict:
    call = rules.call(c, of)
    barred = call in (Call.WORSE, Call.UNSTABLE, Call.FAILED) or _says_nothing(c)
    is_candidate = (
        alpha_screen is not None and not barred and rules.deciding_p(c, of)[0] <= alpha_screen
    )
    seeds = None
    if call is Call.INCONCLUSIVE:
        low, high = rules.seeds_needed(c, of, pooled_arms=pooled_arms)
        seeds = (low - c.n_pairs, high - c.n_pairs)
    return Verdict(
        arm=c.arm,
        call=call,
        reason=words.reason(call, c, of),
        next_act=words.next_act(
            call,
            c,
            of,
            seeds=seeds,
            is_candidate=is_candidate,
            in_campaign=alpha_screen is not None,
        ),
        seeds_needed=seeds,
        is_candidate=is_candidate,
    )


def _says_nothing(c: Comparison) -> bool:
    return c.n_pairs < FEWEST_SEEDS and not rules.rescues(c)


def ranking(comparisons: Comparisons, verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """Arms and the baseline, best first, by mean difference on common seeds.

    Arms that live where the baseline diverges come first; unstable and failed arms come last,
    whatever their surviving seeds say: those with fewer diverged runs before those with more. Of
    equals the baseline is first, then it goes by name, for the order of a table says nothing.
    """
    last = {v.arm for v in verdicts if v.call in (Call.UNSTABLE, Call.FAILED)}
    places = [(0, 0.0, "", comparisons.baseline)]
    for c in comparisons.arms:
        rescued, gain = _gain(c, comparisons)
        sinks = c.arm in last or math.isnan(gain)
        group, within = (1, float(c.n_diverged)) if sinks else (-1 if rescued else 0, -gain)
        places.append((group, within, c.arm, c.arm))
    return tuple(name for *_, name in sorted(places))


def best(results: Sequence[AblationResult]) -> tuple[str, str] | None:
    """(ablation, arm) with the largest gain of all that may be adopted without a confirmation.

    Nothing is claimed of it. Arms that are worse, equivalent, unstable, failed or dropped do not
    take part, nor do arms without a gain.
    """

    def may_be_adopted(c: Comparison, verdict: Verdict) -> bool:
        return (
            verdict.call in (Call.BETTER, Call.INCONCLUSIVE)
            and not verdict.is_dropped
            and not _says_nothing(c)
            and (rules.rescues(c) or c.mean_difference > 0)
        )

    return _largest_gain(results, may_be_adopted)


def candidate(results: Sequence[AblationResult]) -> tuple[str, str] | None:
    """(ablation, arm) with the largest mean difference of all candidates; only it is confirmed."""
    return _largest_gain(results, lambda _, verdict: verdict.is_candidate)


def _largest_gain(
    results: Sequence[AblationResult], takes_part: Callable[[Comparison, Verdict], bool]
) -> tuple[str, str] | None:
    found = [
        (_gain(c, result.comparisons), result.ablation, c.arm)
        for result in results
        for c, verdict in zip(result.comparisons.arms, result.verdicts, strict=True)
        if takes_part(c, verdict)
    ]
    if not found:
        return None
    _, ablation, arm = max(found, key=lambda place: place[0])
    return ablation, arm


def _gain(c: Comparison, of: Comparisons) -> tuple[bool, float]:
    """What arms of one baseline are ranked by: the difference, or the mean where it has none."""
    if not rules.rescues(c) or rules.diverges_more(c):
        return False, c.mean_difference
    return True, c.mean if of.metric.direction is Direction.MAX else -c.mean


def confirming_seeds(comparisons: Comparisons, arm: str) -> int:
    """How many fresh seeds confirm `arm`: the fewest with power 0.8, within 5 to 15.

    For a gain of delta or of the screened gain less one standard error, whichever is larger: a
    screening winner's gain is optimistic. The most where no gain could be estimated.
    """
    c = next(c for c in comparisons.arms if c.arm == arm)
    alpha = comparisons.alpha
    fewest, most = CONFIRMING
    fewest = min(most, max(fewest, exact.seeds_to_reach(alpha)))
    if rules.rescues(c) or math.isnan(c.se):
        return most
    gain = max(comparisons.metric.delta or 0.0, c.mean_difference - c.se)
    if c.se == 0:
        return fewest
    effect = gain / (c.se * math.sqrt(c.n_pairs))
    if effect <= 0:
        return most
    return min(most, max(fewest, forecast.seeds_to_detect(effect, alpha=alpha)))


def confirmed(comparisons: Comparisons) -> tuple[bool, str]:
    """Whether the one arm holds up on fresh seeds alone, one-sided at alpha, and why.

    Both stages use different seeds, so a false adoption needs two accidents in a row.
    """
    (c,) = comparisons.arms
    numbers = words.numbers(c, comparisons)
    if rules.diverges_more(c):
        return False, (
            f"it diverged on {c.n_only_arm_diverged} fresh seeds where the baseline did not "
            f"(the reverse: {c.n_only_baseline_diverged}); {numbers}"
        )
    if _says_nothing(c):
        return False, f"{c.n_pairs} fresh seed pairs are too few for any claim; {numbers}"
    p = rules.deciding_p(c, comparisons)[0]
    held = p <= comparisons.alpha
    word = "confirmed" if held else "not confirmed"
    level = f"{words.p_is(p)}, level {comparisons.alpha:g}"
    return held, f"{word} on fresh seeds ({level}); {numbers}{words.divergences(c)}"
