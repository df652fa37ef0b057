"""A table of scores that somebody already has -> Comparisons; options and cells checked at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.comparison.arms import compare
from orchestrator.comparison.scores import read_scores
from orchestrator.errors import OrchestratorError, collect, nearest
from orchestrator.nouns import FEWEST_SEEDS, Direction, Metric
from orchestrator.score_nouns import Compared, Scores, ScoreTable


def compare_table(
    table: ScoreTable,
    *,
    baseline: str | None = None,
    direction: str | None = None,
    alpha: float = 0.05,
    delta: float | None = None,
    resolution: float = 0.0,
    looks: tuple[int, ...] = (),
) -> Compared:
    """Compare the arms of `table` with its `baseline`.

    `baseline` and `direction` (max or min) are needed unless the table knows them. `looks` are the
    numbers of seeds at which one looks, if more than once: the level is then the one for as many
    seeds as the baseline has now. Every mistake in table and options is told at once.
    """
    baseline = baseline or table.baseline or None
    found = read_scores(table)
    scores = found.scores
    way, mistakes = _direction(direction, table.direction)
    mistakes += option_mistakes(alpha, delta, resolution, looks)
    mistakes += found.mistakes
    if scores or not found.mistakes:  # without any scores there is no arm to miss
        mistakes += _arm_mistakes(table.name, scores, baseline, looks)
    collect(mistakes)
    assert baseline is not None, "told above"
    assert way is not None, "told above"
    metric = Metric(table.metric or table.names.value, way, delta=delta, resolution=resolution)
    arms = {name: cells for name, cells in scores.items() if name != baseline}
    look = looks.index(len(scores[baseline])) + 1 if looks else 1
    compared = compare(metric, scores[baseline], arms, alpha=alpha, looks=looks, look=look)
    return Compared(replace(compared, baseline=baseline), scores, found.notes)


def _direction(
    asked: str | None, known: Direction | None
) -> tuple[Direction | None, list[OrchestratorError]]:
    names = [d.value for d in Direction]
    if asked is None:
        if known is not None:
            return known, []
        remedy = "give max if higher values are better, min if lower ones are"
        return None, [OrchestratorError("the direction of the metric is not known", remedy)]
    if asked not in names:
        return None, [OrchestratorError(f"direction={asked!r} is unknown", nearest(asked, names))]
    return Direction(asked), []


def _arm_mistakes(
    table: str, scores: Scores, baseline: str | None, looks: Sequence[int]
) -> list[OrchestratorError]:
    if baseline is None:
        return [OrchestratorError(f"{table}: which arm is the baseline?", nearest("", scores))]
    if baseline not in scores:
        return [OrchestratorError(f"{table} has no arm {baseline!r}", nearest(baseline, scores))]
    if len(scores) == 1:
        return [OrchestratorError(f"{table} has only the baseline", "add the runs of other arms")]
    mistakes = []
    twins = [name for name in scores if _plain(name) == _plain(baseline) and name != baseline]
    if twins:
        told = ", ".join(map(repr, twins))
        problem = f"{table} names the baseline twice: {baseline!r} and {told}"
        mistakes.append(OrchestratorError(problem, "spell it in one way, or rename the arm"))
    n = len(scores[baseline])
    if looks and n not in looks:
        problem = f"the baseline has {n} seeds, which is none of looks={_listed(looks)}"
        remedy = "look only when planned: looking more often finds more that is not there"
        mistakes.append(OrchestratorError(problem, remedy))
    return mistakes


def _plain(name: str) -> str:
    return "".join(name.casefold().split())


def option_mistakes(
    alpha: float, delta: float | None, resolution: float, looks: tuple[int, ...]
) -> list[OrchestratorError]:
    """What is wrong with the numbers a comparison is asked for."""
    mistakes = []
    if not 0 < alpha < 0.5:
        mistakes.append(
            OrchestratorError(
                f"alpha={alpha} is not between 0 and 0.5",
                "give the one-sided level, for example 0.05",
            )
        )
    if delta is not None and not (0 < delta < math.inf):
        mistakes.append(
            OrchestratorError(
                f"delta={delta} is not above 0",
                "give the smallest difference worth acting on, in the unit of the values",
            )
        )
    if not 0 <= resolution < math.inf:
        mistakes.append(
            OrchestratorError(
                f"resolution={resolution} is not 0 or more",
                "give the step of the values, 1/N for an accuracy over N examples",
            )
        )
    if looks and (looks[0] < FEWEST_SEEDS or sorted(set(looks)) != list(looks)):
        mistakes.append(
            OrchestratorError(
                f"looks={_listed(looks)} is not an ascending list from {FEWEST_SEEDS} on",
                "for example 3,5,7,10",
            )
        )
    return mistakes


def _listed(looks: Sequence[int]) -> str:
    return ",".join(map(str, looks))
