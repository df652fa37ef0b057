"""Guarded block Dunnett once more, slow and literal, from other building blocks than the package.

statsmodels for the fit, scipy.stats for the distributions, a 100 x 400 quadrature.
"""

import itertools
import math
import warnings

import numpy as np
import statsmodels.api as sm
from scipy import stats

Z, ZW = np.polynomial.hermite_e.hermegauss(100)
ZW = ZW / ZW.sum()
U, UW = np.polynomial.legendre.leggauss(400)
U, UW = (U + 1) / 2, UW / 2


def largest_t_cdf(c, m, nu, r):
    if m == 1:
        return stats.t.cdf(c, nu)
    s = np.sqrt(stats.chi2.ppf(U, nu) / nu)
    inner = stats.norm.cdf((c * s[:, None] - math.sqrt(r) * Z) / math.sqrt(1 - r)) ** m
    return float(UW @ inner @ ZW)


def least_squares(values):
    """(variance, nu) of y ~ arm + seed on the finite cells of values [arms, seeds]."""
    cells = [(a, s, values[a, s]) for a, s in np.ndindex(values.shape) if np.isfinite(values[a, s])]
    arm, seed, y = (np.array(column) for column in zip(*cells, strict=True))
    design = np.column_stack(
        [arm == a for a in np.unique(arm)] + [seed == s for s in np.unique(seed)]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rank-deficient on purpose: arms and seeds both sum to one
        fit = sm.OLS(y, design.astype(float)).fit()
    nu = int(fit.df_resid)
    return (fit.ssr / nu if nu else math.nan), nu


def guarded(values, diverged, k, alpha, delta=None, resolution=0.0):
    """Dict of lists per arm; values [arms + 1, seeds], larger is better."""
    d = values[1:] - values[0]
    own = [row[np.isfinite(row)] for row in d]
    n = [len(row) for row in own]
    mean = [row.mean() for row in own]
    var = [row.var(ddof=1) if len(row) > 1 else math.nan for row in own]
    pool = [j for j in range(len(d)) if n[j] >= 2 and not diverged[j + 1].any()]
    while len(pool) >= 2:
        widest = max(pool, key=lambda j: var[j])
        rest = [j for j in pool if j != widest]
        s2, nu = least_squares(values[[0] + [j + 1 for j in rest]])
        if var[widest] / (2 * s2) <= stats.f.ppf(1 - 0.01 / k, n[widest] - 1, nu):
            break
        pool = rest
    s2, nu = least_squares(values[[0] + [j + 1 for j in pool]]) if pool else (math.nan, 0)
    v = [
        max(2 * s2, var[j], np.mean([var[i] for i in pool]), resolution**2 / 6)
        if j in pool
        else max(var[j], resolution**2 / 6)
        for j in range(len(d))
    ]
    se = [math.sqrt(v[j] / n[j]) for j in range(len(d))]
    present = np.isfinite(d)
    shared = [
        (present[i] & present[j]).sum() / (2 * math.sqrt(n[i] * n[j]))
        for i, j in itertools.combinations(pool, 2)
    ]
    r = min([0.5, *shared])

    def p(j, m, t):
        if j in pool:
            return 1 - largest_t_cdf(t, m, nu, r)
        return min(1.0, m * stats.t.sf(t, n[j] - 1))

    def step_down(sign):
        adjusted, left, previous = [0.0] * len(d), list(range(len(d))), 0.0
        for m in range(k, k - len(d), -1):
            j = min(left, key=lambda j: p(j, m, sign * mean[j] / se[j]))
            previous = adjusted[j] = max(previous, p(j, m, sign * mean[j] / se[j]))
            left.remove(j)
        return adjusted

    return {
        "mean": mean,
        "se": se,
        "nu": nu,
        "sigma": math.sqrt(s2),
        "pooled": [j in pool for j in range(len(d))],
        "r": r,
        "better": step_down(1),
        "worse": step_down(-1),
        "equivalent": None
        if delta is None
        else [p(j, k, (delta - abs(mean[j])) / se[j]) for j in range(len(d))],
        "beyond": lambda j, c: p(j, k, c) - alpha,  # zero at the critical value
    }


def sign_flips(d):
    """Step-down exact p by brute force over all sign vectors; d [arms, seeds] complete."""
    signs = list(itertools.product((1, -1), repeat=d.shape[1]))
    with np.errstate(invalid="ignore"):
        norm = np.sqrt((d**2).sum(axis=1))
        table = [
            [float((np.array(s) * row).sum() / w) for row, w in zip(d, norm, strict=True)]
            for s in signs
        ]
    observed = table[0]
    left, previous, adjusted = set(range(len(d))), 0.0, [0.0] * len(d)
    for j in sorted(left, key=lambda j: -observed[j]):
        count = sum(max(row[i] for i in left) >= observed[j] - 1e-9 for row in table)
        previous = adjusted[j] = max(previous, count / len(signs))
        left.remove(j)
    return adjusted
