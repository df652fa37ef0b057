"""Numbers and names as a reader wants them: decimals, signs, intervals, p-values, verdicts."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce

from orchestrator.nouns import (
    Arm,
    Call,
    Comparison,
    Comparisons,
    Direction,
    Interval,
    Metric,
    Outcome,
    Scalar,
    Status,
    Verdict,
)

NOTHING = "-"
"""What a cell holds when there is no such number."""


def decimals(scale: float) -> int:
    """Decimals that show a spread of `scale` with one or two digits: 0.006 -> 3, 0.035 -> 3."""
    if not math.isfinite(scale) or scale <= 0:
        return 4
    return min(8, max(0, -math.floor(math.log10(scale / 5))))


def fixed(value: float, places: int) -> str:
    """`value` with `places` decimals; what is not finite becomes NOTHING."""
    return f"{value:.{places}f}" if math.isfinite(value) else NOTHING


def signed(value: float, places: int) -> str:
    """`fixed` with its sign, without a minus before zero."""
    return f"{round(value, places) + 0.0:+.{places}f}" if math.isfinite(value) else NOTHING


def mean_and_sd(mean: float, sd: float, places: int) -> str:
    """`0.933 ± 0.006`, or the mean alone where one run gives no spread."""
    spread = f" ± {fixed(sd, places)}" if math.isfinite(sd) else ""
    return fixed(mean, places) + spread


def bracket(interval: Interval, places: int) -> str:
    """`[-0.140, -0.060]`; an infinite end says that nothing is known."""
    if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return "[unknown]"
    return f"[{signed(interval.low, places)}, {signed(interval.high, places)}]"


def p_value(p: float) -> str:
    """`p=0.002` with what a reader can use of it."""
    if not math.isfinite(p):
        return NOTHING
    return "p<0.001" if p < 0.0005 else f"p={p:.3f}"


def scalar(value: Scalar) -> str:
    """A config value as it would be typed."""
    if isinstance(value, float):
        return f"{value:g}"
    return (
        "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )


def seconds(value: float) -> str:
    """A duration in the largest unit that keeps it above one."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if value >= 1.5 * size:
            return f"{value / size:.1f} {unit}"
    return f"{value:.0f} s" if value >= 10 else f"{value:.1f} s"


def seeds(numbers: tuple[int, ...]) -> str:
    """`0-4` for a run of seeds, `0, 2, 5` otherwise."""
    if len(numbers) > 2 and numbers == tuple(range(numbers[0], numbers[0] + len(numbers))):
        return f"{numbers[0]}-{numbers[-1]}"
    return ", ".join(str(n) for n in numbers)


def numbers(values: Sequence[int]) -> str:
    """`3, 5, 7 and 10`."""
    *first, last = map(str, values)
    return f"{', '.join(first)} and {last}" if first else last


def sentence(text: str) -> str:
    """`text` with the full stop it lacks; reasons of other rooms have none."""
    return text if text.endswith((".", "?", "!")) else f"{text}."


def ending(outcome: Outcome) -> str:
    """`FAILED: RuntimeError: ...`: how a trial ended, and the first line of why."""
    return ": ".join([outcome.status.value, *outcome.reason.splitlines()[:1]])


def tally(ended: Iterable[Status]) -> str:
    """`62 DONE, 1 DIVERGED`, in the order of the life of a trial."""
    counts = Counter(ended)
    return ", ".join(f"{counts[s]} {s.value}" for s in Status if counts[s])


def percent(share: float) -> str:
    """A share as a whole percentage."""
    return f"{100 * share:.0f}%"


def settings(overrides: tuple[tuple[str, Scalar], ...]) -> str:
    """`optimizer.lr=0.001, clip=null`, or that it is the original configuration."""
    return ", ".join(f"{k}={scalar(v)}" for k, v in overrides) or "original configuration"


def changes(arm: Arm, baseline: Arm) -> str:
    """`model.dropout: 0 → 0.2`: what the arm sets otherwise than the baseline."""
    kept = dict(baseline.overrides)
    config = json.loads(baseline.config) if baseline.config else {}
    told = []
    for key, value in arm.overrides:
        if key in kept and kept[key] == value:
            continue
        *sections, leaf = key.split(".")
        old = reduce(lambda tree, name: tree.get(name, {}), sections, config).get(leaf)
        told.append(f"{key}: {scalar(old)} → {scalar(value)}")
    return ", ".join(told)


def evidence(values: Mapping[str, float | str]) -> str:
    """The numbers of a finding on one line."""
    return ", ".join(f"{k} {scalar(v)}" for k, v in values.items())


CONFIRMED, REFUTED = "better (confirmed)", "not confirmed"
"""What fresh seeds say of a screening winner."""

UNPROVEN = "adopted, unproven"
"""What is said of a winner that no fresh seeds were asked about."""

FEW = 30
"""More seeds than somebody would still run; beyond it their exact number says nothing."""

# --- a comparison, turned back into the metric's own direction ------------------------------------


def difference(comparison: Comparison, metric: Metric) -> float:
    """Arm minus baseline in the metric's own direction; a Comparison has positive = better."""
    sign = 1.0 if metric.direction is Direction.MAX else -1.0
    return sign * comparison.mean_difference


def difference_interval(comparison: Comparison, metric: Metric) -> Interval:
    """The simultaneous interval of `difference`."""
    low, high = comparison.interval.low, comparison.interval.high
    return Interval(low, high) if metric.direction is Direction.MAX else Interval(-high, -low)


def p_in_its_direction(comparison: Comparison) -> float:
    """The adjusted one-sided p-value of the direction in which the difference points."""
    is_gain = comparison.mean_difference >= 0
    return comparison.p_better if is_gain else comparison.p_worse


def places(comparisons: Comparisons) -> int:
    """Decimals for everything said of these comparisons: they show the spread, and delta."""
    spreads = (comparisons.sigma, comparisons.baseline_sd, *(c.se for c in comparisons.arms))
    spread = next((s for s in spreads if math.isfinite(s) and s > 0), math.nan)
    delta = comparisons.metric.delta
    return decimals(spread if not delta or spread < delta else delta)


def level(comparisons: Comparisons) -> str:
    """`90%`: the simultaneous level of the intervals, 1 - 2 alpha."""
    return f"{100 * (1 - 2 * comparisons.alpha):.3g}%"


def good(metric: Metric) -> str:
    """`lower is better`, with the unit where there is one."""
    return "lower is better" if metric.direction is Direction.MIN else "higher is better"


def unit(metric: Metric) -> str:
    """` nat`, or nothing for a metric without a unit."""
    return f" {metric.unit}" if metric.unit and metric.unit != "1" else ""


def call(verdict: Verdict) -> str:
    """The verdict's word. A screening winner is a candidate until fresh seeds have spoken."""
    if verdict.is_candidate:
        return "candidate (unconfirmed)"
    if verdict.is_dropped:
        return f"{verdict.call.value} (dropped)"
    if verdict.call is not Call.INCONCLUSIVE or verdict.seeds_needed is None:
        return verdict.call.value
    more = verdict.seeds_needed[0]
    return f"inconclusive (+{more} seeds)" if more <= FEW else f"inconclusive (>{FEW} more seeds)"
