"""What seeds cannot average out: the validation examples that all of them share."""

from __future__ import annotations

import math

from orchestrator.nouns import Interval


def disagreement(arm: float, baseline: float) -> Interval:
    """Limits of the share of examples that two models of accuracies `arm`, `baseline` differ on.

    They differ at least where one is better, and at most if they never err on the same example
    (Frechet's bounds). Error rates give the same limits; per-example scores would give the share.
    """
    return Interval(abs(arm - baseline), min(arm + baseline, 2 - arm - baseline))


def example_noise(arm: float, baseline: float, *, resolution: float) -> Interval | None:
    """Limits of the standard deviation that N = 1 / `resolution` shared examples give a difference.

    sqrt(q / N) for a share q of examples judged differently, between the limits of `disagreement`
    (../docs/statistics.md, "What it cannot see"). None unless the metric is a share of examples.
    """
    if not (resolution > 0 and 0 <= arm <= 1 and 0 <= baseline <= 1):
        return None
    share = disagreement(arm, baseline)
    return Interval(math.sqrt(share.low * resolution), math.sqrt(share.high * resolution))
