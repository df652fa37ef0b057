"""What sequential ablations and whole campaigns get wrong, find and cost, on known truth.

    python scripts/bench_campaign.py [repetitions] [words of the scenarios to run]

The campaign's own functions decide (`compare.compare`, `decide.at_look`, `decide.candidate`,
`decide.confirming_seeds`, `decide.confirmed`); only the training is a random number. Unit: standard
deviation of a single run; runs on one seed correlate by 0.3; one arm of a good ablation gains, the
others are equal to the baseline. Runs count the baseline's. Fixed seeds; 95 % intervals: Wilson's
for a rate, normal for a mean. The tables in docs/statistics.md are this program's output.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
from bench_statistics import ALPHA, look, table
from intervals import wilson
from rich.console import Console
from rich.progress import track
from rich.table import Table

from orchestrator.comparison import compare
from orchestrator.decide import at_look, candidate, confirmed, confirming_seeds
from orchestrator.nouns import AblationResult, Call, Direction, Floats, Look, Metric, Support
from orchestrator.stats import blocks, guarded
from orchestrator.stats.blocks import moments, paired_differences

LOOKS = (3, 5, 7, 10)
METRIC = Metric("score", Direction.MAX, delta=0.5)
"""With the smallest difference worth acting on at half a standard deviation."""

ABLATIONS, ARMS = 6, 3


@dataclass(frozen=True, slots=True)
class Screening:
    """One ablation of `k` arms, of which the first is better by `gain`; expected (rate, runs).

    Unguarded, as the expected figures were: neither the pool's mean variance nor outliers guard.
    """

    k: int
    gain: float
    rate: str
    runs: str
    is_guarded: bool = True

    @property
    def name(self) -> str:
        what = f"power, gain {self.gain:g} SD" if self.gain else "false better"
        return f"{'' if self.is_guarded else 'unguarded '}ablation, k={self.k}: {what}"


@dataclass(frozen=True, slots=True)
class Whole:
    """A campaign of six ablations, the first `good` of which have an arm that gains 1 SD.

    `confirm` is the number of fresh seeds, None where the screened gain chooses it.
    """

    looks: tuple[int, ...]
    confirm: int | None
    good: int
    rate: str
    runs: str

    @property
    def name(self) -> str:
        looks = "-".join(map(str, self.looks))
        what = f"true adoptions of {self.good}" if self.good else "any false adoption"
        return f"campaign, looks {looks}, {self.confirm or '5 to 15'} fresh seeds: {what}"


SCREENINGS = (
    Screening(1, 0.0, "0.045", "11.5"),
    Screening(1, 1.0, "0.73", "15.7"),
    Screening(1, 2.0, "1.00", "11.9"),
    Screening(2, 0.0, "0.041", "18.7"),
    Screening(2, 1.0, "0.64", "21.9"),
    Screening(2, 2.0, "0.99", "16.3"),
    Screening(4, 0.0, "0.046", "31.6"),
    Screening(4, 1.0, "0.56", "33.2"),
    Screening(4, 2.0, "0.99", "24.3"),
)

CAMPAIGNS = (
    Whole((5,), 5, 0, "0.039", ""),
    Whole((5,), 5, 2, "0.55", "138"),
    Whole((5,), 5, 6, "1.62", "156"),
    Whole((5,), 10, 0, "0.041", ""),
    Whole((5,), 10, 2, "0.92", "155"),
    Whole((5,), 10, 6, "2.77", "192"),
    Whole((3,), 10, 0, "0.039", ""),
    Whole((3,), 10, 2, "0.62", "100"),
    Whole((3,), 10, 6, "1.86", "123"),
    Whole(LOOKS, None, 0, "<= 0.05", ""),
    Whole(LOOKS, None, 2, "", ""),
    Whole(LOOKS, None, 6, "", ""),
)

UNGUARDED = (
    Screening(2, 1.0, "0.64", "21.9", is_guarded=False),
    Screening(4, 1.0, "0.56", "33.2", is_guarded=False),
)


def screened(values: Floats, looks: tuple[int, ...], alpha_screen: float) -> tuple[Look, int]:
    """The last look at `values` [k + 1, seeds], and how many runs it took to get there."""
    ran = np.full(len(values) - 1, looks[0])
    before: Look | None = None
    for number, n in enumerate(looks, start=1):
        arms = {
            f"arm{j}": dict(enumerate(map(float, row[: ran[j]])))
            for j, row in enumerate(values[1:])
        }
        baseline = dict(enumerate(map(float, values[0, :n])))
        compared = compare(METRIC, baseline, arms, alpha=ALPHA, looks=looks, look=number)
        before = at_look(compared, before, alpha_screen=alpha_screen)
        if not before.going_on:
            return before, n + int(ran.sum())
        for j in range(len(ran)):
            if f"arm{j}" in before.going_on:
                ran[j] = looks[number]
    raise AssertionError("the last look ends every arm")


@contextmanager
def unguarded() -> Iterator[None]:
    """In the block v_j = max(2 sigma^2, s_j^2), over all arms."""
    whole = guarded.look

    def look(values: Floats, *given: Any, **named: Any) -> guarded.Look:
        at = whole(values, *given, **named)
        n, _, own = moments(paired_differences(values))
        variance = np.maximum(own, 2 * at.pool.fit.variance)
        return replace(at, variance=variance, se=np.sqrt(variance / n))

    with mock.patch.object(guarded, "look", look), mock.patch.object(blocks, "OUTLIER_LEVEL", 0):
        yield


def screening(case: Screening, rng: np.random.Generator) -> tuple[float, float]:
    """Whether any arm (null) or the right one (gain) is called better, and the runs."""
    with nullcontext() if case.is_guarded else unguarded():
        last, runs = screened(table(rng, case.k, LOOKS[-1], gain=case.gain), LOOKS, ALPHA)
    calls = [v.call is Call.BETTER for v in last.verdicts]
    return float(calls[0] if case.gain else any(calls)), runs


def whole(case: Whole, rng: np.random.Generator) -> tuple[float, float]:
    """True adoptions (any adoption where nothing is to be found), and the runs."""
    adopted, runs = 0, 0
    for number in range(ABLATIONS):
        gain = 1.0 if number < case.good else 0.0
        values = table(rng, ARMS, case.looks[-1], gain=gain)
        last, spent = screened(values, case.looks, 1 / ABLATIONS)
        runs += spent
        result = AblationResult(
            "", last.comparisons, None, last.verdicts, Support.INCONCLUSIVE, "", ()
        )
        winner = candidate([result])
        if winner is None:
            continue
        m = case.confirm or confirming_seeds(last.comparisons, winner[1])
        is_good = gain > 0 and winner[1] == "arm0"
        held, _ = confirmed(look(table(rng, 1, m, gain=1.0 if is_good else 0.0), metric=METRIC))
        runs += 2 * m
        adopted += held and (is_good or not case.good)
    return float(adopted if case.good else adopted > 0), runs


def measured(cases: list[tuple[int, Screening | Whole]], n: int) -> Iterator[tuple[str, ...]]:
    for number, case in cases:
        rng = np.random.default_rng([number, 20_27])
        draws = track(range(n), case.name, transient=True, console=Console(stderr=True))
        one = screening if isinstance(case, Screening) else whole
        found = np.array([one(case, rng) for _ in draws])  # type: ignore[arg-type]
        rate, runs = found.mean(axis=0)
        half, half_runs = 1.96 * found.std(axis=0, ddof=1) / np.sqrt(n)
        low, high = rate - half, rate + half
        if set(np.unique(found[:, 0])) <= {0.0, 1.0} and "adoptions of" not in case.name:
            low, high = wilson(int(found[:, 0].sum()), n)
        yield (
            case.name,
            f"{rate:.3f}",
            f"{low:.3f} to {high:.3f}",
            case.rate,
            f"{runs:.1f} ± {half_runs:.1f}",
            case.runs,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("repetitions", nargs="?", type=int, default=2_000)
    parser.add_argument("words", nargs="*", help="of the scenarios to run")
    options = parser.parse_args()
    n, words = options.repetitions, options.words
    every = enumerate((*SCREENINGS, *CAMPAIGNS, *UNGUARDED))
    chosen = [(i, case) for i, case in every if all(w in case.name for w in words)]
    columns = ("scenario", "found", "95 % interval", "expected", "runs", "expected runs")
    shown = Table(*columns, title=f"{n} repetitions each")
    for row in measured(chosen, n):
        shown.add_row(*row)
    Console(width=140).print(shown)


if __name__ == "__main__":
    main()
