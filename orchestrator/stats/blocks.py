"""Runs as a randomized block design: arms as treatments, seeds as blocks, one residual variance.

Everywhere `values` is [arms + 1, seeds] with the baseline in row 0, oriented so that larger is
better, and NaN where a run gave no number; `diverged` has the same shape and is true where that was
the run's own doing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import fdtri

from orchestrator.nouns import Floats, Ints

Bools = npt.NDArray[np.bool_]

FLOAT_NOISE = 1e-12
"""Of the larger of two values: smaller differences are rounding. Subtraction leaves 1e-16."""

OUTLIER_LEVEL = 0.01
"""Chance, over the family, of calling an arm's variance an outlier when all are equal."""


def noise_floor(values: Floats) -> Floats:
    """Spread below which an arm's differences to the baseline are equal [arms], in the unit."""
    largest: Floats = np.nan_to_num(_larger(values)).max(axis=1, initial=0.0)
    return FLOAT_NOISE * largest


def paired_differences(values: Floats) -> Floats:
    """Arm minus baseline on the same seed [arms, seeds]; NaN without a pair, 0 for rounding."""
    differences: Floats = values[1:] - values[0]
    differences[np.abs(differences) <= FLOAT_NOISE * _larger(values)] = 0.0
    return differences


def _larger(values: Floats) -> Floats:
    larger: Floats = np.maximum(np.abs(values[1:]), np.abs(values[0]))
    return larger


def moments(rows: Floats) -> tuple[Ints, Floats, Floats]:
    """Count, mean and variance (ddof 1) of the finite part of each row; NaN where undefined."""
    finite = np.isfinite(rows)
    n = finite.sum(axis=1)
    mean = _ratio(np.where(finite, rows, 0.0).sum(axis=1), n)
    squares = np.where(finite, rows - mean[:, None], 0.0) ** 2
    return n, mean, _ratio(squares.sum(axis=1), n - 1)


def _ratio(numerator: Floats, n: Ints) -> Floats:
    ratio: Floats = np.full(len(n), np.nan)
    np.divide(numerator, n, out=ratio, where=n > 0)
    return ratio


@dataclass(frozen=True, slots=True)
class Fit:
    """Least squares of y ~ row + column. `nu` is 0, and `variance` NaN, if nothing is left over."""

    variance: float
    nu: int
    column_correlation: float


def additive_fit(values: Floats) -> Fit:
    """Fit row and column effects to the finite cells of `values` [rows, columns].

    Columns are swept out first (Frisch, Waugh & Lovell), so the regression has only one column per
    row. A column with one cell then adds neither a residual nor a degree of freedom.
    `column_correlation` is the intra-class correlation of cells that share a column, (MS_c - MSE) /
    (MS_c + (a - 1) MSE), with a the mean number of cells per column (weighted as in unbalanced
    one-way ANOVA if some are absent).
    """
    finite = np.isfinite(values)
    row, column = np.nonzero(finite)
    if len(row) == 0:
        return Fit(np.nan, 0, np.nan)
    y = values[finite] - values[finite].mean()
    per_column = finite.sum(axis=0)
    used = per_column > 0
    column_mean = np.zeros(values.shape[1])
    np.add.at(column_mean, column, y / per_column[column])
    share = finite / np.maximum(per_column, 1)  # [rows, columns]
    design = np.eye(values.shape[0])[row] - share[:, column].T  # [cells, rows]
    swept = y - column_mean[column]
    effects, _, rank, _ = np.linalg.lstsq(design, swept)
    error = float(((swept - design @ effects) ** 2).sum())
    nu = len(y) - int(used.sum()) - int(rank)
    if nu <= 0:
        return Fit(np.nan, 0, np.nan)
    return Fit(error / nu, nu, _column_correlation(values, error / nu, error))


def _column_correlation(values: Floats, mse: float, error: float) -> float:
    finite = np.isfinite(values)
    per_column = finite.sum(axis=0)
    cells, columns = int(per_column.sum()), int((per_column > 0).sum())
    if columns < 2:
        return np.nan
    _, row_mean, _ = moments(values)
    rows_only = float((np.where(finite, values - row_mean[:, None], 0.0) ** 2).sum())
    between = max(0.0, rows_only - error) / (columns - 1)
    size = (cells - float((per_column**2).sum()) / cells) / (columns - 1)
    total = between + (size - 1) * mse
    rounding = (FLOAT_NOISE * float(np.abs(values[finite]).max())) ** 2
    return (between - mse) / total if total > rounding else np.nan


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Arms that share one residual variance. `members` and `outliers` are [arms].

    `correlation` is that of two members' differences to the baseline, at its smallest over pairs.
    """

    members: Bools
    outliers: Bools
    fit: Fit
    correlation: float


def pool(values: Floats, diverged: Bools, *, k: int) -> Pool:
    """Choose the arms to pool: two pairs or more, no diverged run, no outlying variance.

    The arm with the largest variance of differences s_j^2 leaves while s_j^2 / (2 sigma^2), sigma^2
    fitted without it, exceeds the F quantile at 1 - 0.01 / k. `k` is the registered family size.
    """
    differences = paired_differences(values)
    n, _, variance = moments(differences)
    members = (n >= 2) & ~diverged[1:].any(axis=1)
    outliers = np.zeros_like(members)
    floor = noise_floor(values) ** 2
    while members.sum() >= 2:
        widest = int(np.argmax(np.where(members, variance, -np.inf)))
        others = members.copy()
        others[widest] = False
        rest = _fit(values, others)
        limit = float(fdtri(n[widest] - 1, rest.nu, 1 - OUTLIER_LEVEL / k))
        if variance[widest] <= max(floor[widest], limit * 2 * rest.variance):
            break
        members, outliers[widest] = others, True
    return Pool(members, outliers, _fit(values, members), _correlation(differences[members]))


def _fit(values: Floats, members: Bools) -> Fit:
    return additive_fit(values[np.concatenate([[True], members])])


def _correlation(differences: Floats) -> float:
    """Smallest |S_i and S_j| / (2 sqrt(n_i n_j)) over pairs of rows; 1/2 if complete."""
    if len(differences) < 2:
        return 0.5
    present = np.isfinite(differences).astype(float)
    n = present.sum(axis=1)
    return float(min(0.5, (present @ present.T / (2 * np.sqrt(np.outer(n, n)))).min()))
