"""The demonstration's comparison: a baseline that is too noisy would flatter the curator."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event, rdp
from dp_accounting.pld import privacy_loss_distribution

from app.demo.baseline import (
    expected_largest,
    gaussian_sigma,
    gaussian_sigma_charged,
    least_largest,
    queries_to_overtake,
)

pytestmark = [pytest.mark.unit, pytest.mark.slow]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("queries", [1, 16])
def test_sigma_is_the_least_that_is_private(epsilon: float, queries: int) -> None:
    """Against dp-accounting, which composes the privacy loss distributions numerically: another method.

    It catches a calibration that forgets the composition, mixes up the tails or loses digits: sigma must keep
    the guarantee (to the library's discretisation), and a sigma 2% smaller must not.
    """
    delta = 1e-6

    def spent(sigma: float) -> float:
        one = privacy_loss_distribution.from_gaussian_mechanism(sigma, value_discretization_interval=1e-4)
        return float(one.self_compose(queries).get_delta_for_epsilon(epsilon))

    sigma = gaussian_sigma(epsilon, delta, queries)
    assert spent(sigma) <= delta * 1.02
    assert spent(0.98 * sigma) > delta * 1.05


@pytest.mark.parametrize("queries", [1, 2, 10, 2000])
def test_expected_largest_against_mpmath(queries: int) -> None:
    """The mean of the largest |Z|, by its density instead of its tail, in high precision."""
    mpmath.mp.dps = 30

    def density(t: mpmath.mpf) -> mpmath.mpf:
        inside = mpmath.erf(t / mpmath.sqrt(2))
        return t * queries * inside ** (queries - 1) * 2 * mpmath.npdf(t)

    oracle = mpmath.quad(density, [0, 1, 2, 3, 4, 5, 6, 8, 12])
    assert expected_largest(7.0, queries) == pytest.approx(7.0 * float(oracle), rel=1e-8)


@pytest.mark.parametrize("order", [2, 8, 30])
def test_a_charged_sigma_costs_what_was_spent(order: int) -> None:
    """Against dp-accounting's Renyi accountant: a factor of two lost would halve or double the comparison."""
    spent, queries = 0.218, 2000
    sigma = gaussian_sigma_charged(order, spent, queries)
    accountant = rdp.RdpAccountant([order])
    accountant.compose(dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(sigma), queries))
    assert accountant._rdp[0] == pytest.approx(spent, rel=1e-9)


def test_overtaking_is_where_the_two_curves_cross() -> None:
    """At the number told the Gaussian is the worse one, and one step of the search before it is not."""
    bound, at, beta, epsilon, delta = 3000.0, 2000, 0.05, 1.0, 1e-9
    k = queries_to_overtake(bound, at, beta, epsilon, delta)
    assert k is not None

    def worse(k: int) -> bool:
        curator = bound * math.log(k / beta) / math.log(at / beta)
        return expected_largest(gaussian_sigma(epsilon, delta, k), k) > curator

    assert worse(k)
    assert not worse(int(k / 1.02))
    assert queries_to_overtake(1e12, at, beta, epsilon, delta, limit=10**6) is None


def test_noise_of_many_answers_grows_with_the_root_of_their_number() -> None:
    sigmas = np.array([gaussian_sigma(1.0, 1e-9, k) for k in (1, 100, 10_000)])
    np.testing.assert_allclose(sigmas / sigmas[0], [1, 10, 100], rtol=1e-9)


@pytest.mark.parametrize(("queries", "beta"), [(1, 0.05), (50_000, 0.05), (1_000_000, 1e-6)])
def test_least_largest_against_mpmath(queries: int, beta: float) -> None:
    """All of so many errors stay below it with the probability stated. Catches one tail in the place of two."""
    mpmath.mp.dps = 40
    bound = least_largest(3.0, queries, beta)
    within = mpmath.erf(mpmath.mpf(bound) / 3 / mpmath.sqrt(2)) ** queries
    assert float(1 - within) == pytest.approx(beta, rel=1e-8)
