"""Scores that somebody already has, as a long CSV, and the comparison as plain JSON data."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.comparison.arms import compare
from orchestrator.errors import OrchestratorError, collect, nearest
from orchestrator.nouns import FEWEST_SEEDS, Comparison, Comparisons, Direction, Metric, Verdict

COLUMNS = ("arm", "seed", "value", "status")
STATUSES = ("done", "diverged", "missing")

Scores = dict[str, dict[int, float]]
"""arm -> seed -> value, NaN for diverged; a missing run has no entry. Arms in order of the file."""


def compare_file(
    path: Path,
    *,
    baseline: str,
    direction: Direction,
    alpha: float,
    delta: float | None = None,
    resolution: float = 0.0,
    looks: tuple[int, ...] = (),
) -> Comparisons:
    """Compare the arms of a CSV with columns arm, seed, value and, if need be, status.

    `status` is done (or empty), diverged or missing. `looks` are the numbers of seeds at which one
    looks, if more than once: the level is then the one for as many seeds as the baseline has now.
    Every mistake in file and options is told at once.
    """
    mistakes = _option_mistakes(alpha, delta, resolution, looks)
    scores: Scores = {}
    try:
        scores = _read(path, mistakes)
    except OrchestratorError as error:  # not a table at all: no use looking further into it
        mistakes.append(error)
    else:
        if baseline not in scores:
            mistakes.append(
                OrchestratorError(f"{path} has no arm {baseline!r}", nearest(baseline, scores))
            )
        elif len(scores) == 1:
            mistakes.append(
                OrchestratorError(f"{path} has only the baseline", "add the runs of other arms")
            )
        elif looks and (n := len(scores[baseline])) not in looks:
            mistakes.append(
                OrchestratorError(
                    f"the baseline has {n} seeds, which is none of looks={_listed(looks)}",
                    "look only when planned: looking more often finds more that is not there",
                )
            )
    collect(mistakes)
    metric = Metric("value", direction, delta=delta, resolution=resolution)
    arms = {name: cells for name, cells in scores.items() if name != baseline}
    look = looks.index(len(scores[baseline])) + 1 if looks else 1
    found = compare(metric, scores[baseline], arms, alpha=alpha, looks=looks, look=look)
    return replace(found, baseline=baseline)


def _listed(looks: Sequence[int]) -> str:
    return ",".join(map(str, looks))


def _option_mistakes(
    alpha: float, delta: float | None, resolution: float, looks: tuple[int, ...]
) -> list[OrchestratorError]:
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


def _read(path: Path, mistakes: list[OrchestratorError]) -> Scores:
    """The scores of a file; what is wrong with single lines is added to `mistakes`."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file, strict=True, skipinitialspace=True)
            _check_columns(path, table.fieldnames or ())
            rows = [(table.line_num, row) for row in table]
    except OSError as error:
        raise OrchestratorError(f"cannot read {path}: {error.strerror}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise OrchestratorError(f"{path} is not a CSV file: {error}") from error
    scores: Scores = {}
    lines: dict[tuple[str, int], int] = {}
    for line, row in rows:
        try:
            arm, seed, value = _cell(row)
            if (arm, seed) in lines:
                raise OrchestratorError(
                    f"arm {arm!r} has seed {seed} twice (first in line {lines[arm, seed]})",
                    "a pair of runs needs one value each: keep one, or give them different seeds",
                )
        except OrchestratorError as error:
            mistakes.append(OrchestratorError(f"{path}:{line}: {error.problem}", error.remedy))
            continue
        lines[arm, seed] = line
        runs = scores.setdefault(arm, {})
        if value is not None:
            runs[seed] = value
    return scores


def _check_columns(path: Path, found: Sequence[str]) -> None:
    names = [name.strip() for name in found]
    problems = [
        OrchestratorError(f"{path} has no column {name!r}", nearest(name, names))
        for name in COLUMNS[:3]
        if name not in names
    ]
    problems += [
        OrchestratorError(f"{path} has an unknown column {name!r}", nearest(name, COLUMNS))
        for name in names
        if name not in COLUMNS
    ]
    if len(set(names)) < len(names):
        problems.append(OrchestratorError(f"{path} has a column twice: {', '.join(names)}"))
    collect(problems)


def _cell(row: Mapping[str, str | None]) -> tuple[str, int, float | None]:
    """(arm, seed, value) of one line; NaN for diverged, None for missing."""
    if None in row or None in [row[name] for name in row if name.strip() != "status"]:
        raise OrchestratorError("the line does not have one field for each column")
    fields = {name.strip(): (text or "").strip() for name, text in row.items()}
    if not fields["arm"]:
        raise OrchestratorError("the arm has no name", "name the arm in every line")
    seed = _number(fields["seed"])
    if not seed.is_integer():
        raise OrchestratorError(
            f"seed={fields['seed']!r} is not a whole number", "pairs are joined on the seed"
        )
    status = fields.get("status", "").lower() or "done"
    if status not in STATUSES:
        raise OrchestratorError(f"status={status!r} is unknown", nearest(status, STATUSES))
    if status != "done":
        return fields["arm"], int(seed), math.nan if status == "diverged" else None
    value = _number(fields["value"])
    if not math.isfinite(value):
        raise OrchestratorError(
            f"value={fields['value']!r} is not a finite number",
            "a run that blew up has status diverged, one that never ended missing",
        )
    return fields["arm"], int(seed), value


def _number(text: str) -> float:
    """The number in `text`, NaN if it is none; spreadsheets write the seed 3 as 3.0."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def as_json(
    comparisons: Comparisons, verdicts: Sequence[Verdict], ranking: Sequence[str]
) -> dict[str, Any]:
    """The comparison as plain data: keys of the `compare --json` contract in docs/statistics.md.

    What is undefined or infinite is null: JSON has no NaN.
    """
    return {
        "k": comparisons.k,
        "n": comparisons.n,
        "nu": comparisons.nu,
        "critical_value": _finite(comparisons.critical_value),
        "seed_correlation": _finite(comparisons.seed_correlation),
        "baseline": {
            "mean": _finite(comparisons.baseline_mean),
            "sd": _finite(comparisons.baseline_sd),
            "n": comparisons.baseline_n,
        },
        "arms": [_arm(c, verdict) for c, verdict in zip(comparisons.arms, verdicts, strict=True)],
        "ranking": list(ranking),
    }


def _arm(c: Comparison, verdict: Verdict) -> dict[str, Any]:
    more = verdict.seeds_needed
    return {
        "arm": c.arm,
        "n_pairs": c.n_pairs,
        "n_diverged": c.n_diverged,
        "mean_difference": _finite(c.mean_difference),
        "se": _finite(c.se),
        "t": _finite(c.t),
        "p_better": _finite(c.p_better),
        "p_worse": _finite(c.p_worse),
        "p_exact_better": c.p_exact_better,
        "p_exact_worse": c.p_exact_worse,
        "interval": [_finite(c.interval.low), _finite(c.interval.high)],
        "p_equivalent": c.p_equivalent,
        "hedges_g": _finite(c.hedges_g),
        "glass_delta": _finite(c.glass_delta),
        "probability_superior": _finite(c.probability_superior),
        "pooled": c.pooled,
        "flags": list(c.flags),
        "verdict": verdict.call.value,
        # N and N+ are totals per arm; the verdict's own field is what is still to run
        "seeds_needed": None if more is None else [c.n_pairs + n for n in more],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
