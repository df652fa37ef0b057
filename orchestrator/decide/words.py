"""Reasons and next acts in words. None ends in a full stop: they go into other sentences."""

from __future__ import annotations

import math

from orchestrator.decide import rules
from orchestrator.nouns import FEWEST_SEEDS, Call, Comparison, Comparisons, Hypothesis, Move
from orchestrator.stats import flags, forecast


def p_is(p: float) -> str:
    """The p-value to two digits, as far as anyone should read it."""
    return "p < 0.0001" if p < 1e-4 else f"p = {p:.2g}"


def _amount(value: float, of: Comparisons) -> str:
    return f"{value:.4g} {of.metric.unit}".rstrip()


def numbers(c: Comparison, of: Comparisons) -> str:
    """Effect with unit, interval and n."""
    if c.n_pairs == 0:
        return f"{of.metric.name} has no common seed with a number in both arms"
    family = "simultaneous " if of.k > 1 else ""
    family += "repeated " if len(of.looks) > 1 else ""
    interval = (
        f"{family}{100 * (1 - 2 * of.alpha):.4g} % interval of the gain "
        f"{c.interval.low:+.4g} to {c.interval.high:+.4g}"
        if math.isfinite(c.interval.low)
        else "no interval at this n"
    )
    which = "better" if c.mean_difference >= 0 else "worse"
    return (
        f"{of.metric.name} is {which} by {_amount(abs(c.mean_difference), of)} "
        f"({interval}; n = {c.n_pairs} seed pairs)"
    )


def _method(c: Comparison, of: Comparisons) -> str:
    if rules.rescues(c):
        return "sign test on which runs diverged"
    if rules.decided_exactly(c):
        return "exact sign-flip test"
    if c.pooled or of.k == 1:
        return of.method
    return "paired t test on its own variance, Bonferroni"


def reason(call: Call, c: Comparison, of: Comparisons) -> str:
    """One sentence: effect, interval, n, p, method, and what else bears on the call."""
    better, worse = (p_is(p) for p in rules.deciding_p(c, of))
    told = [f"{better} for better, {worse} for worse"]
    if call is Call.BETTER:
        told = [better]
    elif call is Call.WORSE:
        told = [f"{worse} for worse"]
    elif call is Call.EQUIVALENT:
        beyond = f"for a difference beyond delta = {of.metric.delta}"
        told = [] if c.p_equivalent is None else [f"{p_is(c.p_equivalent)} {beyond}"]
    few = c.n_pairs < FEWEST_SEEDS
    if few and call is Call.WORSE:
        told = []
    elif few and not rules.rescues(c):
        told = [f"a claim needs {FEWEST_SEEDS} seed pairs"]
    elif told:
        family = f", adjusted for {of.k} arms" if of.k > 1 else ""
        told = [f"{told[0]} ({_method(c, of)}{family}{_look(c, of)})"]
    told += [text for flag, text in _FLAG_WORDS.items() if flag in c.flags]
    return "; ".join([numbers(c, of), *told]) + divergences(c)


def _look(c: Comparison, of: Comparisons) -> str:
    if len(of.looks) < 2:
        return ""
    return f"; level {of.level_of(c):.2g} at look {c.look} of {len(of.looks)}"


def divergences(c: Comparison) -> str:
    """On how many seeds one diverged and the other did not; empty if on none."""
    if not c.n_only_arm_diverged + c.n_only_baseline_diverged:
        return ""
    return (
        f"; diverged where the other did not on {c.n_only_arm_diverged} seeds (baseline "
        f"{c.n_only_baseline_diverged}; sign test {p_is(c.p_diverged)} for worse)"
    )


_FLAG_WORDS = {
    flags.IDENTICAL: "identical to the baseline on every seed: is the factor wired up?",
    flags.ZERO_VARIANCE: "the differences do not vary",
    flags.COARSE: "the metric's step is as large as the spread",
    flags.FRAGILE: "fragile: the exact sign-flip test does not agree",
    flags.NEGLIGIBLE: "the whole interval is smaller than delta",
    flags.VARIANCE_OUTLIER: "its spread is far from the other arms'",
    flags.BASELINE_MISSING: "some seeds are unusable: the baseline has no result on them",
}


def next_act(
    call: Call,
    c: Comparison,
    of: Comparisons,
    *,
    seeds: tuple[int, int] | None,
    is_candidate: bool,
    in_campaign: bool,
) -> str:
    """What to do now; `seeds` is how many more the forecast asks for."""
    if flags.IDENTICAL in c.flags and call is Call.EQUIVALENT:
        return "check that the factor's key reaches the training code"
    if is_candidate:
        return "candidate, unconfirmed: confirm on fresh seeds if no other gains more"
    if seeds is not None:
        return _more_seeds(c, of, seeds)
    if call is Call.BETTER and in_campaign:
        return "no candidate: it misses the level of this campaign's screening"
    return {
        Call.BETTER: "adopt it if the gain is worth its cost; fresh seeds give an unbiased gain",
        Call.WORSE: "leave it out",
        Call.EQUIVALENT: "choose by cost or simplicity",
        Call.UNSTABLE: "find out why those seeds diverge; it cannot be called better until then",
        Call.FAILED: "read the diverged trials' output before trying it again",
    }[call]


def _more_seeds(c: Comparison, of: Comparisons, seeds: tuple[int, int]) -> str:
    """The forecast, and what it rests on: a delta, or (optimistic) the observed difference."""
    low, high = seeds
    first = "run the missing baseline seeds, then " if flags.BASELINE_MISSING in c.flags else ""
    if low + c.n_pairs >= forecast.MOST_SEEDS:
        return f"{first}no affordable number of seeds would tell this difference from none"
    if low == high:
        return f"{first}run {low} more seeds: fewer cannot decide"
    end = f"{high}" if high + c.n_pairs < forecast.MOST_SEEDS else f"{forecast.MOST_SEEDS} or more"
    if of.metric.delta is None:
        return (
            f"{first}run about {low} to {end} more seeds to find this very difference again "
            "(optimistic); a delta, the smallest difference worth acting on, would allow equivalent"
        )
    return f"{first}run about {low} to {end} more seeds: the interval must then decide"


def mechanism(c: Comparison, of: Comparisons, hypothesis: Hypothesis) -> str:
    """By how much the signal moved, in its own direction, and with which p."""
    as_predicted, against = (p_is(p) for p in rules.deciding_p(c, of))
    sign = -1.0 if hypothesis.signal_move is Move.DOWN else 1.0
    return (
        f"{hypothesis.signal} by {sign * c.mean_difference:+.4g} (predicted: "
        f"{hypothesis.signal_move.value}; {as_predicted}, against it {against}; n = {c.n_pairs})"
    )
