"""What a design can find, before any seed is spent: power and the smallest detectable effect."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from orchestrator.nouns import Floats
from orchestrator.stats import dunnett

_BLOCKS, _DRAWS = 20, 1_000  # standard error of a power: under 0.002, as only variances are drawn
_LARGEST_EFFECT = 1e3  # in sigma; three seeds at any level in use find less


def power(effect: float, *, n: int, k: int, alpha: float, rho: float) -> float:
    """Chance that one arm of `k`, better by `effect`, is found at `n` seeds; the others are equal.

    `effect` is in standard deviations of single runs, `rho` the correlation of runs that share a
    seed, noise normal. Given the guarded variance, the mean difference is normal, so only the
    variance is drawn (fixed stream) and the rest is exact. The step-down's later steps and the
    removal of variance outliers are left out: both act in under 1 % of such data.
    """
    limits = _limits(n, k, alpha)
    return float(ndtr(effect * np.sqrt(n / (2 * (1 - rho))) - limits).mean())


def detectable_effect(*, n: int, k: int, alpha: float, rho: float, power: float = 0.8) -> float:
    """The smallest effect, in standard deviations of single runs, found with chance `power`."""
    limits = _limits(n, k, alpha)
    low, high = 0.0, _LARGEST_EFFECT
    while high - low > 1e-6 * high:
        shift = (low + high) / 2
        low, high = (low, shift) if ndtr(shift - limits).mean() >= power else (shift, high)
    return high * float(np.sqrt(2 * (1 - rho) / n))


@lru_cache(maxsize=64)
def _limits(n: int, k: int, alpha: float) -> Floats:
    """Draws of c sqrt(v_j), in units of the true standard deviation of a difference; n >= 2.

    v_j = max(2 sigma^2, s_j^2, mean s_i^2) of pure noise; scale-free, so residuals have variance 1
    and a difference 2.
    """
    rng = np.random.default_rng(0)
    c = dunnett.critical_value(alpha, m=k, nu=k * (n - 1), r=0.5)
    blocks = [_guarded_variances(rng.standard_normal((_DRAWS, k + 1, n))) for _ in range(_BLOCKS)]
    limits: Floats = c * np.sqrt(np.concatenate(blocks) / 2)
    return limits


def _guarded_variances(noise: Floats) -> Floats:
    """Draws of v_j [draws] from `noise` [draws, arms + 1, seeds]."""
    _, rows, n = noise.shape
    residual = noise - noise.mean(axis=1, keepdims=True)
    residual -= residual.mean(axis=2, keepdims=True)
    pooled = (residual**2).sum(axis=(1, 2)) / ((rows - 1) * (n - 1))
    own = (noise[:, 1:] - noise[:, :1]).var(axis=2, ddof=1)  # [draws, k]
    guarded: Floats = np.maximum(2 * pooled, np.maximum(own[:, 0], own.mean(axis=1)))
    return guarded
