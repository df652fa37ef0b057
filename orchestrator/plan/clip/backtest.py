"""The proposal as it would have been made earlier, against what then came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.clip_nouns import BacktestRow
from orchestrator.nouns import Floats
from orchestrator.plan.clip import forecast
from orchestrator.plan.clip.calibration import Calibration, calibrate, prefix_residuals, segment
from orchestrator.plan.clip.candidates import Threshold, thresholds
from orchestrator.plan.clip.checks import Checked

ORIGINS = (0.4, 0.5, 0.6, 0.7, 0.8)
"""Shares of the last regime at which a proposal is made again."""

SMALLEST = 100  # steps a proposal is made from, here
SHORTEST = 25  # steps over which it is then judged
ENOUGH_ORIGINS = 3
EXPLORATORY = 0.70  # coverage under which a proposal is called exploratory
HEAVY_WIDENING = 1.5
"""Interval of a heavy tail, stretched: its mean excess is known to 1/sqrt(exceedances) only."""


@dataclass(frozen=True, slots=True)
class Backtest:
    """`rows`, and `level_errors`: realised less predicted log level of each origin's horizon."""

    rows: tuple[BacktestRow, ...]
    level_errors: tuple[float, ...]


def backtest(checked: Checked, residuals: Floats, rng: np.random.Generator) -> Backtest:
    """Propose at earlier origins of the last regime, each from what was known then.

    `residuals` [n] are those of all steps over their rolling median.
    """
    steps, log_norms, lr, loss = checked.steps, checked.log_norms, checked.lr, checked.loss
    first, _, _ = segment(lr, len(log_norms))
    rows: list[BacktestRow] = []
    errors: list[float] = []
    for share in ORIGINS:
        end = first + int(share * (len(log_norms) - first))
        if end - first < SMALLEST:
            continue
        known = prefix_residuals(log_norms, residuals, end)
        c = calibrate(
            log_norms[:end],
            None if lr is None else lr[:end],
            known,
            None if loss is None else loss[:end],
        )
        future = log_norms[end : end + default_horizon(c)]
        found = thresholds(c)
        if len(future) < SHORTEST or not found:
            continue
        simulated = forecast.ratios(
            c.residuals,
            c.level,
            np.array([t.log_norm for t in found]),
            horizon=len(future),
            extra=level_spread(c, errors, len(future)),
            rng=rng,
        )
        rows += _rows(int(steps[end - 1]), c, found, simulated, future)
        middle = c.level.value + c.level.slope * len(future) / 2
        errors.append(float(np.median(future)) - middle)
    return Backtest(tuple(rows), tuple(errors))


def _rows(
    origin: int, c: Calibration, found: Sequence[Threshold], simulated: Floats, future: Floats
) -> list[BacktestRow]:
    """Predicted from `simulated` [replicates, thresholds], realised in the log norms `future`."""
    return [
        BacktestRow(
            origin,
            t.name,
            float(np.exp(t.log_norm)),
            forecast.interval(simulated[:, i], widen=widening(c)),
            float(np.mean(future > t.log_norm)),
        )
        for i, t in enumerate(found)
    ]


def default_horizon(c: Calibration) -> int:
    """Half the window: as far as intervals held on recorded trainings."""
    return len(c.window) // 2


def widening(c: Calibration) -> float:
    """How much the interval is stretched."""
    return HEAVY_WIDENING if c.heavy is not None else 1.0


def level_spread(c: Calibration, errors: list[float], horizon: int) -> float:
    """Standard deviation of the level that rolling origins show beyond the model's."""
    if len(errors) < ENOUGH_ORIGINS:
        return 0.0
    seen = float(np.mean(np.square(errors)))
    walked = max(0.0, c.level.walk) * horizon / c.level.block / 3  # variance of the mean of a walk
    drifted = (c.level.slope * horizon / 2) ** 2 / 4
    return float(np.sqrt(max(0.0, seen - c.level.error**2 - walked - drifted)))


def coverage(rows: tuple[BacktestRow, ...]) -> float | None:
    """Share of realised ratios within their interval; None with fewer than three origins."""
    if len({row.origin for row in rows}) < ENOUGH_ORIGINS:
        return None
    return float(np.mean([row.is_covered for row in rows]))
