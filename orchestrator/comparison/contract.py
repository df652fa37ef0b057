"""The comparison as plain JSON data, for `compare --json`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from orchestrator.nouns import Comparison, Comparisons, Verdict


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
