"""The largest of m equicorrelated t variables: the reference of comparisons with one control.

F(c) = E_s E_z [ Phi((c s - sqrt(r) z) / sqrt(1 - r))^m ],  z standard normal,  nu s^2 chi-squared
with nu df. Source: Dunnett 1955, JASA 50:1096. Both integrals are trapezoid sums, over z and over
log s, where the integrand is analytic and dies off at both ends, so the sum converges geometrically
(Trefethen & Weideman 2014).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.special import gammainccinv, gammaincinv, gammaln, log_ndtr, stdtr, stdtrit

from orchestrator.nouns import Floats

# 96 x 48 nodes: 0.15 ms; error against 1,000 x 400 nodes < 1e-10 for nu >= 2, < 3e-6 for nu = 1.
_Z = np.linspace(-7.5, 7.5, 48)  # [48], standard normal beyond 7.5: 6e-14
_Z_WEIGHTS = np.exp(-_Z * _Z / 2) / np.sqrt(2 * np.pi) * (_Z[1] - _Z[0])
_SCALE_NODES = 96
_SCALE_TAIL = 1e-13


@lru_cache(maxsize=512)
def _scale_nodes(nu: float) -> tuple[Floats, Floats]:
    """Nodes s [96] and weights [96] for the distribution of s = chi_nu / sqrt(nu)."""
    low = 0.5 * np.log(2 * gammaincinv(nu / 2, _SCALE_TAIL) / nu)
    high = 0.5 * np.log(2 * gammainccinv(nu / 2, _SCALE_TAIL) / nu)
    log_s = np.linspace(low, high, _SCALE_NODES)
    log_density = (
        np.log(2.0)
        + nu / 2 * np.log(nu / 2)
        - gammaln(nu / 2)
        + nu * log_s
        - nu / 2 * np.exp(2 * log_s)
    )  # of log s
    return np.exp(log_s), np.exp(log_density) * (log_s[1] - log_s[0])


def tail(c: float, *, m: int, nu: float, r: float) -> float:
    """P(the largest of `m` t variables on `nu` df, correlation `r` in [0, 1), exceeds `c`)."""
    if m == 1:
        return float(stdtr(nu, -c))
    if np.isinf(c):
        return 0.0 if c > 0 else 1.0
    s, weights = _scale_nodes(nu)
    argument = (c * s[:, None] - np.sqrt(r) * _Z) / np.sqrt(1 - r)  # [96, 48]
    exceeds = -np.expm1(m * log_ndtr(argument))  # 1 - Phi^m without cancellation
    return float(min(1.0, weights @ exceeds @ _Z_WEIGHTS))


@lru_cache(maxsize=4096)
def critical_value(alpha: float, *, m: int, nu: float, r: float) -> float:
    """The c with `tail(c) = alpha`, for 0 < alpha < 0.5.

    It lies between the single t quantile and Bonferroni's; found there by the Illinois rule (Dowell
    & Jarratt 1971) on log tail, which is nearly a straight line in c.
    """

    def excess(c: float) -> float:
        return float(np.log(max(tail(c, m=m, nu=nu, r=r), 1e-300) / alpha))

    low, high = (float(-stdtrit(nu, a)) for a in (alpha, alpha / m))
    if m == 1:
        return low
    at_low, at_high, last = excess(low), excess(high), 0.0
    if not at_low > 0 > at_high:  # at levels near rounding; Bonferroni is then exact
        return high
    while high - low > 1e-11 * high:
        c = (low * at_high - high * at_low) / (at_high - at_low)
        at = excess(c)
        if abs(at) < 1e-12:
            return c
        if at > 0:
            low, at_low = c, at
            at_high /= 2 if at * last > 0 else 1
        else:
            high, at_high = c, at
            at_low /= 2 if at * last > 0 else 1
        last = at
    return (low + high) / 2
