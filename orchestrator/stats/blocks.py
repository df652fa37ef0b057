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

_BLOCK = 1 << 22
"""Numbers held at once where pairs of arms are looked at: 32 MB."""

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

    `nu` counts cells less row and column effects, plus one for each part of the table that shares
    neither rows nor columns with the rest: a column with one cell adds nothing to it.
    `column_correlation` is the intra-class correlation of cells that share a column, (MS_c - MSE) /
    (MS_c + (a - 1) MSE), with a the mean number of cells per column (weighted as in unbalanced
    one-way ANOVA if some are absent).
    """
    finite = np.isfinite(values)
    cells = int(finite.sum())
    if cells == 0:
        return Fit(np.nan, 0, np.nan)
    rows, columns = finite.any(axis=1), finite.any(axis=0)
    present = finite[np.ix_(rows, columns)]
    y = np.where(present, values[np.ix_(rows, columns)] - values[finite].mean(), 0.0)
    if present.all():
        residual, parts = y - y.mean(axis=1, keepdims=True) - y.mean(axis=0), 1
        residual += y.mean()
    elif present.shape[0] >= present.shape[1]:
        residual, parts = _residual(y, present)
    else:
        transposed, parts = _residual(y.T, present.T)
        residual = transposed.T
    error = float((residual**2).sum())
    nu = cells - sum(present.shape) + parts
    if nu <= 0:
        return Fit(np.nan, 0, np.nan)
    return Fit(error / nu, nu, _column_correlation(values, error / nu, error))


def _residual(y: Floats, present: Bools) -> tuple[Floats, int]:
    """What rows and columns leave of `y` [rows, columns], 0 where absent; the number of its parts.

    Rows are swept out (Frisch, Waugh & Lovell), which leaves as many normal equations as there are
    columns, of which one in each part is redundant.
    """
    weight = present / present.sum(axis=1, keepdims=True)
    normal = np.diag(present.sum(axis=0)) - present.T @ weight
    swept = np.where(present, y - (y * weight).sum(axis=1, keepdims=True), 0.0)
    part = _parts(normal)
    free = part != np.arange(len(part))  # the first column of a part has effect 0
    effects = np.zeros(len(part))
    effects[free] = np.linalg.solve(normal[np.ix_(free, free)], swept.sum(axis=0)[free])
    left = np.where(present, y - effects, 0.0)
    return np.where(present, left - (left * weight).sum(axis=1, keepdims=True), 0.0), len(
        np.unique(part)
    )


def _parts(linked: Floats) -> Ints:
    """The first column of the part each column belongs to [columns]; not 0 where two are linked."""
    part, neighbour = np.arange(len(linked)), linked != 0
    while True:
        nearest = np.where(neighbour, part, len(part)).min(axis=1)
        lowest = np.minimum(part, nearest)
        lowest = lowest[lowest]
        if (lowest == part).all():
            return part
        part = lowest


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
    patterns = np.unique(np.isfinite(differences), axis=0).astype(float)
    if len(patterns) < 2:
        return 0.5
    root = np.sqrt(patterns.sum(axis=1))
    size = max(1, _BLOCK // len(patterns))
    return float(
        min(
            (some @ patterns.T / (2 * np.outer(own, root))).min()
            for some, own in (
                (patterns[i : i + size], root[i : i + size]) for i in range(0, len(root), size)
            )
        )
    )
