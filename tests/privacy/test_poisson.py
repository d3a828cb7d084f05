"""Race parameters against mpmath's incomplete gamma function and brute force."""

from decimal import Decimal
from fractions import Fraction

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.privacy.errors import InvalidBudget
from app.privacy.poisson import cut_delta, distance_delta, race_cut, race_mean, session_part

pytestmark = pytest.mark.unit

QUERIES = st.integers(1, 10**9)
BETAS = st.integers(1, 12).map(lambda digits: Decimal(1).scaleb(-digits))
EPSILONS = st.decimals("0.01", 20, places=2)


@given(QUERIES, BETAS)
def test_the_mean_is_the_formula_rounded_up(queries: int, beta: Decimal) -> None:
    with mpmath.workdps(60):
        truth = max(mpmath.mpf(4), 2 * mpmath.log(2 * queries / mpmath.mpf(str(beta))))
        mean = race_mean(queries, beta)
        assert truth <= mpmath.mpf(str(mean)) <= truth + mpmath.mpf(1) / 1024
        # What it is for: a gap beyond the threshold passes each comparison with probability 1/2 or more.
        assert queries * mpmath.exp(-mpmath.mpf(str(mean)) / 2) <= mpmath.mpf(str(beta)) / 2
    assert Fraction(float(mean)) == Fraction(mean)


@pytest.mark.slow
@given(st.decimals(4, 200, places=3), st.integers(0, 400), QUERIES, EPSILONS)
def test_the_cost_of_a_cut_is_the_poisson_tail(mean: Decimal, cut: int, queries: int, epsilon: Decimal) -> None:
    """P[Poisson(M) > n] is the lower incomplete gamma function at n+1: catches a cut off by one."""
    with mpmath.workdps(60):
        tail = mpmath.gammainc(cut + 1, 0, mpmath.mpf(str(mean)), regularized=True)
        truth = (1 + mpmath.exp(mpmath.mpf(str(epsilon)))) * queries * tail
        cost = mpmath.mpf(str(cut_delta(mean, cut, queries, epsilon)))
        assert truth * (1 - mpmath.mpf("1e-40")) <= cost <= truth * (1 + mpmath.mpf("1e-40"))


@given(QUERIES, BETAS, EPSILONS, st.integers(4, 18), st.integers(1, 10**6))
def test_the_cut_is_the_least_that_is_paid_for(
    queries: int, beta: Decimal, epsilon: Decimal, digits: int, ordinal: int
) -> None:
    allowed = session_part(Decimal(1).scaleb(-digits), ordinal)
    mean = race_mean(queries, beta)
    cut = race_cut(mean, queries, epsilon, allowed)
    assert cut_delta(mean, cut, queries, epsilon) <= allowed
    assert cut == 0 or cut_delta(mean, cut - 1, queries, epsilon) > allowed


@given(st.fractions("1/1000000000000000000000000000000", 1), QUERIES, st.decimals("0.01", 1000, places=2))
def test_a_distance_costs_on_both_sides_of_every_draw(distance: Fraction, queries: int, epsilon: Decimal) -> None:
    """Up to the largest epsilon there is: catches a float exponential, which ends at 709."""
    with mpmath.workdps(60):
        tau = mpmath.mpf(distance.numerator) / distance.denominator
        truth = (1 + mpmath.exp(mpmath.mpf(str(epsilon)))) * queries * tau
        cost = mpmath.mpf(str(distance_delta(distance, queries, epsilon)))
        assert truth * (1 - mpmath.mpf("1e-40")) <= cost <= truth * (1 + mpmath.mpf("1e-40"))


def test_parts_of_all_sessions_keep_to_what_was_set_aside() -> None:
    whole = Fraction(1, 10**9)
    assert sum(session_part(whole, ordinal) for ordinal in range(1, 3000)) < whole


@pytest.mark.parametrize("beta", [Decimal(0), Decimal(1), Decimal(-1), Decimal("NaN"), 0.05])
def test_a_beta_without_meaning_is_refused(beta: Decimal) -> None:
    with pytest.raises(InvalidBudget):
        race_mean(100, beta)


def test_other_parameters_without_meaning_are_refused() -> None:
    for refused in (
        lambda: race_mean(0, Decimal("0.05")),
        lambda: cut_delta(0, 10, 10, 1),
        lambda: cut_delta(10, -1, 10, 1),
        lambda: cut_delta(10, 1, 0, 1),
        lambda: race_cut(10, 10, 1, 0),
        lambda: distance_delta(Fraction(1, 2), 0, 1),
        lambda: distance_delta(Fraction(1, 2), 1, 0),
        lambda: session_part(Decimal("1e-9"), 0),
    ):
        with pytest.raises(InvalidBudget):
            refused()
