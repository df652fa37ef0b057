import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from orchestrator.stats.dunnett import critical_value, tail
from tests.stats.reference import largest_t_cdf


def nested_quadrature(c, m, nu, r):
    """P(max <= c) by adaptive integration over z inside adaptive integration over s."""

    def given_scale(s):
        def integrand(z):
            phi = stats.norm.cdf((c * s - np.sqrt(r) * z) / np.sqrt(1 - r))
            return np.exp(-z * z / 2) / np.sqrt(2 * np.pi) * phi**m

        return integrate.quad(integrand, -9, 9, epsabs=1e-11, limit=200)[0]

    law = stats.chi(nu, scale=1 / np.sqrt(nu))
    return integrate.quad(
        lambda s: law.pdf(s) * given_scale(s), 0, law.isf(1e-14), epsabs=1e-9, limit=100
    )[0]


@pytest.mark.parametrize(
    ("c", "m", "nu", "r"),
    [(2.0, 4, 8, 0.5), (0.3, 2, 3, 0.5), (-0.5, 3, 16, 0.2), (4.0, 5, 2, 0.4)],
)
def test_the_tail_agrees_with_adaptive_integration(c, m, nu, r):
    assert tail(c, m=m, nu=nu, r=r) == pytest.approx(1 - nested_quadrature(c, m, nu, r), abs=1e-7)


@pytest.mark.parametrize("nu", [2, 5, 16, 120])
@pytest.mark.parametrize("m", [2, 4, 12])
@pytest.mark.parametrize("r", [0.0, 0.3, 0.5])
def test_the_tail_agrees_with_the_quadrature_of_the_protocol(m, nu, r):
    for c in (-1.5, 0.0, 1.0, 2.5, 5.0):
        assert tail(c, m=m, nu=nu, r=r) == pytest.approx(1 - largest_t_cdf(c, m, nu, r), abs=1e-4)


def test_the_tail_agrees_with_simulated_differences_to_one_control():
    rng = np.random.default_rng(3)
    means = rng.standard_normal((400_000, 5))
    s = np.sqrt(rng.chisquare(8, 400_000) / 8)
    largest = ((means[:, 1:] - means[:, :1]) / np.sqrt(2)).max(axis=1) / s
    for c in (0.5, 1.5, 2.5):
        assert tail(c, m=4, nu=8, r=0.5) == pytest.approx((largest > c).mean(), abs=0.003)


def test_critical_values_agree_with_the_published_table():
    # Dunnett 1955, table 1a: one-sided, joint confidence 95 %
    published = {
        5: (2.02, 2.44, 2.68, 2.85),
        10: (1.81, 2.15, 2.34, 2.47),
        20: (1.72, 2.03, 2.19, 2.30),
    }
    for nu, row in published.items():
        for m, c in enumerate(row, start=1):
            assert critical_value(0.05, m=m, nu=nu, r=0.5) == pytest.approx(c, abs=0.006)


@pytest.mark.parametrize("nu", [1, 2, 7, 1000])
@pytest.mark.parametrize("m", [2, 6, 40])
@pytest.mark.parametrize("alpha", [1e-4, 0.05, 0.4])
def test_the_critical_value_inverts_the_tail(m, nu, alpha):
    c = critical_value(alpha, m=m, nu=nu, r=0.5)
    assert tail(c, m=m, nu=nu, r=0.5) == pytest.approx(alpha, rel=1e-8)


def test_one_comparison_is_the_t_distribution():
    assert critical_value(0.05, m=1, nu=7, r=0.5) == pytest.approx(stats.t.isf(0.05, 7), abs=1e-12)
    assert tail(1.3, m=1, nu=7, r=0.5) == pytest.approx(stats.t.sf(1.3, 7), abs=1e-14)


@settings(max_examples=40, deadline=None)
@given(st.floats(-8, 60), st.integers(1, 10), st.integers(2, 200), st.floats(0, 0.5))
def test_the_tail_is_a_probability_that_grows_with_the_family_and_falls_with_c(c, m, nu, r):
    p = tail(c, m=m, nu=nu, r=r)
    assert 0 <= p <= 1
    assert tail(c, m=m + 1, nu=nu, r=r) >= p - 1e-8
    assert tail(c + 0.5, m=m, nu=nu, r=r) <= p + 1e-8


def test_infinite_and_absurd_arguments_give_the_limits():
    assert tail(np.inf, m=3, nu=4, r=0.5) == 0
    assert tail(-np.inf, m=3, nu=4, r=0.5) == 1
    assert np.isfinite(critical_value(1e-30, m=3, nu=1, r=0.5))
