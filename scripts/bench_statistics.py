"""What the verdicts get wrong, and what they find: rates on simulated ablations with known truth.

    python scripts/bench_statistics.py [repetitions] [words of the scenarios to run]

Each scenario draws `repetitions` independent ablations (or campaigns) and sends them through the
very functions a campaign uses: `compare.compare`, `decide.judge`, `decide.confirmed`. Values are in
standard deviations of a single run; runs on one seed correlate by 0.3. Fixed seeds; 95 % Wilson
intervals. The table in docs/statistics.md is this program's output.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from intervals import wilson
from rich.console import Console
from rich.progress import track
from rich.table import Table
from scipy.special import ndtri

from orchestrator.comparison import compare
from orchestrator.decide import candidate, confirmed, judge
from orchestrator.nouns import (
    AblationResult,
    Call,
    Comparisons,
    Direction,
    Floats,
    Metric,
    Support,
)
from orchestrator.stats import sequential

ALPHA, RHO = 0.05, 0.3
METRIC = Metric("score", Direction.MAX)

Noise = Callable[[np.random.Generator, tuple[int, int]], Floats]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A yes-or-no question put to one simulated data set, and what a right answer would give."""

    name: str
    target: str
    happens: Callable[[np.random.Generator], bool]


# --- noise, variance one, mean zero ---------------------------------------------------------------


def normal(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    return rng.standard_normal(shape)


def student_3(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    draws: Floats = rng.standard_t(3, shape)
    return draws / math.sqrt(3)


def log_normal(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    mean, std = math.exp(0.5), math.sqrt((math.e - 1) * math.e)
    draws: Floats = rng.lognormal(0, 1, shape)
    return (draws - mean) / std


# --- ablations ------------------------------------------------------------------------------------


def table(
    rng: np.random.Generator, k: int, n: int, *, noise: Noise = normal, gain: float = 0.0
) -> Floats:
    """Scores [k + 1, n], baseline first; the first arm is better by `gain`."""
    seeds = rng.standard_normal(n)
    values: Floats = math.sqrt(RHO) * seeds + math.sqrt(1 - RHO) * noise(rng, (k + 1, n))
    values[1] += gain
    return values


def look(values: Floats, *, alpha: float = ALPHA, metric: Metric = METRIC) -> Comparisons:
    rows = [dict(enumerate(map(float, row))) for row in values]
    return compare(metric, rows[0], {f"arm{j}": r for j, r in enumerate(rows[1:])}, alpha=alpha)


def better(found: Comparisons) -> list[bool]:
    return [verdict.call is Call.BETTER for verdict in judge(found)]


def null(k: int, n: int, noise: Noise = normal) -> Callable[[np.random.Generator], bool]:
    return lambda rng: any(better(look(table(rng, k, n, noise=noise))))


def power(k: int, n: int, gain: float) -> Callable[[np.random.Generator], bool]:
    return lambda rng: better(look(table(rng, k, n, gain=gain)))[0]


def unequal(row: int, factor: float) -> Callable[[np.random.Generator], bool]:
    """Four null arms at five seeds; the noise of one row is `factor` times the others'."""

    def happens(rng: np.random.Generator) -> bool:
        values = table(rng, 4, 5)
        values[row] *= factor
        return any(better(look(values)))

    return happens


def bad_skew(k: int) -> Callable[[np.random.Generator], bool]:
    """One arm equals the baseline on average, but is usually good and rarely very bad."""

    def happens(rng: np.random.Generator) -> bool:
        values = table(rng, k, 5)
        values[1] = -2 * log_normal(rng, (1, 5))[0]
        return any(better(look(values)))

    return happens


def coarse(rng: np.random.Generator) -> bool:
    """A metric that moves in steps of one standard deviation."""
    return any(
        better(look(np.round(table(rng, 4, 5)), metric=Metric("", Direction.MAX, resolution=1.0)))
    )


def covered(rng: np.random.Generator) -> bool:
    return all(c.interval.low <= 0 <= c.interval.high for c in look(table(rng, 4, 5)).arms)


def diverging(rng: np.random.Generator) -> Comparisons:
    """One arm, ten seeds; the arm equals the baseline, but its worst fifth of runs diverges."""
    values = table(rng, 1, 10)
    values[1, values[1] < ndtri(0.2)] = np.nan
    return look(values)


def at_some_look(rng: np.random.Generator) -> bool:
    """One null arm, looked at after 3, 5, 7 and 10 seeds."""
    values, looks = table(rng, 1, 10), (3, 5, 7, 10)
    levels = sequential.levels(looks, ALPHA)
    return any(
        better(look(values[:, :n], alpha=alpha))[0] for n, alpha in zip(looks, levels, strict=True)
    )


def decided_as_forecast(which: int, pilot: int) -> Callable[[np.random.Generator], bool]:
    """Whether a null arm has a verdict at N (0) or N+ (1), as a pilot forecast; delta is 1 SD."""
    metric = Metric("", Direction.MAX, delta=1.0)

    def happens(rng: np.random.Generator) -> bool:
        values = table(rng, 1, pilot)
        (verdict,) = judge(look(values, metric=metric))
        if verdict.seeds_needed is None:
            return True
        more = table(rng, 1, verdict.seeds_needed[which])
        (verdict,) = judge(look(np.hstack([values, more]), metric=metric))
        return verdict.call is not Call.INCONCLUSIVE

    return happens


def adoptions(rng: np.random.Generator, good: int) -> list[bool]:
    """Which of six ablations (3 arms, 5 seeds) confirm their winner on 10 fresh seeds.

    The first `good` have one arm that is better by one standard deviation; a list of whether each
    adopted the right arm (in the good ones), or any arm (in the others).
    """
    adopted = []
    for number in range(6):
        gain = 1.0 if number < good else 0.0
        found = look(table(rng, 3, 5, gain=gain))
        verdicts = judge(found, alpha_screen=1 / 6)
        result = AblationResult("", found, None, verdicts, Support.INCONCLUSIVE, "", ())
        winner = candidate([result])
        if winner is None:
            adopted.append(False)
            continue
        is_good = gain > 0 and winner[1] == "arm0"
        held, _ = confirmed(look(table(rng, 1, 10, gain=gain if is_good else 0.0)))
        adopted.append(held and (is_good or not gain))
    return adopted


SCENARIOS = (
    *(
        Scenario(f"false better, k={k}, n={n}", "<= 0.05", null(k, n))
        for k in (1, 4)
        for n in (3, 5, 10)
    ),
    Scenario("false better, k=4, n=5, Student t 3 df", "<= 0.05", null(4, 5, student_3)),
    Scenario("false better, k=4, n=5, log-normal", "<= 0.05", null(4, 5, log_normal)),
    Scenario("false better, k=4, n=5, one arm SD x 3", "0.06", unequal(1, 3.0)),
    Scenario("false better, k=4, n=5, baseline SD x 3", "0.05", unequal(0, 3.0)),
    Scenario("false better, k=4, n=5, step of 1 SD", "<= 0.062", coarse),
    Scenario("false better, k=4, n=5, bad skew (known weakness)", "0.06", bad_skew(4)),
    Scenario("false better, k=1, looks 3-5-7-10", "0.05", at_some_look),
    Scenario(
        "false better, k=1, n=10, worst 20 % diverge", "0.02", lambda rng: better(diverging(rng))[0]
    ),
    Scenario(
        "the same, had the diverged seeds been dropped",
        "0.14",
        lambda rng: diverging(rng).arms[0].p_better <= ALPHA,
    ),
    Scenario("all intervals cover, k=4, n=5", ">= 0.90", covered),
    Scenario("power, k=1, n=5, gain 1 SD", "0.47", power(1, 5, 1.0)),
    Scenario("power, k=4, n=5, gain 1 SD", "0.28", power(4, 5, 1.0)),
    Scenario("power, k=4, n=3, gain 2 SD", "0.54", power(4, 3, 2.0)),
    Scenario("power, k=4, n=5, gain 2 SD", "0.85", power(4, 5, 2.0)),
    Scenario(
        "campaign, 6 null ablations: any adoption", "<= 0.05", lambda rng: any(adoptions(rng, 0))
    ),
    Scenario(
        "campaign, 6 ablations with 1 SD: first adopted", "0.46", lambda rng: adoptions(rng, 6)[0]
    ),
    *(
        Scenario(
            f"decided at {name} forecast from {pilot} seeds, k=1",
            target,
            decided_as_forecast(w, pilot),
        )
        for pilot in (3, 5)
        for w, (name, target) in enumerate((("N", "0.69 to 1"), ("N+", "0.91 to 1")))
    ),
    Scenario("false better, k=1, n=5, bad skew (known weakness)", "0.13", bad_skew(1)),
)


def measured(scenarios: list[tuple[int, Scenario]], n: int) -> Iterator[tuple[str, ...]]:
    for number, scenario in scenarios:
        rng = np.random.default_rng([number, 20_26])
        draws = track(range(n), scenario.name, transient=True, console=Console(stderr=True))
        count = sum(scenario.happens(rng) for _ in draws)
        low, high = wilson(count, n)
        yield scenario.name, f"{count / n:.3f}", f"{low:.3f} to {high:.3f}", scenario.target


def main(arguments: list[str]) -> None:
    n = int(arguments[0]) if arguments else 2_000
    words = arguments[1:]
    chosen = [(i, s) for i, s in enumerate(SCENARIOS) if all(w in s.name for w in words)]
    shown = Table("scenario", "rate", "95 % interval", "expected", title=f"{n} repetitions each")
    for row in measured(chosen, n):
        shown.add_row(*row)
    Console(width=110).print(shown)


if __name__ == "__main__":
    main(sys.argv[1:])
