"""(epsilon, delta) and Renyi divergence, against dp-accounting and mpmath."""

from decimal import Decimal
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant as oracle
from hypothesis import given
from hypothesis import strategies as st

from app.privacy.conversion import epsilon_alone, epsilon_of, order_at, orders, rdp_budget
from app.privacy.costs import (
    ConditionalRelease,
    DiscreteGaussianAnswer,
    DiscreteLaplaceAnswer,
    PureStep,
    renyi_cost,
)
from app.privacy.errors import InfiniteCost, InvalidBudget

pytestmark = pytest.mark.unit

ORDERS = st.decimals(min_value="1.001", max_value="5000", places=3)
EPSILONS = st.decimals(min_value="0.001", max_value="50", places=3)
DELTAS = st.integers(1, 30).map(lambda digits: Decimal(1).scaleb(-digits))


@given(
    st.decimals(min_value="0.0001", max_value="30", places=4),
    DELTAS,
    ORDERS.filter(lambda order: order > Decimal("1.01")),
)
def test_epsilon_is_that_of_dp_accounting(rdp: Decimal, delta: Decimal, order: Decimal) -> None:
    ours = float(epsilon_of(rdp, delta, order))
    theirs, _ = oracle.compute_epsilon([float(order)], [float(rdp)], float(delta))
    # Theirs also clips by total variation at delta near the divergence (Canonne, Kamath, Steinke do
    # not): ours is never less.
    assert ours >= theirs - 1e-9 * (1 + theirs)
    if theirs > 0:
        assert ours == pytest.approx(theirs, rel=1e-9)


@given(EPSILONS, DELTAS, ORDERS)
def test_rounding_goes_against_the_spender(epsilon: Decimal, delta: Decimal, order: Decimal) -> None:
    """The budget is at most the true one and within 1.1e-24 of it; spending it all guarantees epsilon."""
    budget = rdp_budget(epsilon, delta, order)
    with mpmath.workdps(80):
        e, d, a = (mpmath.mpf(str(number)) for number in (epsilon, delta, order))
        truth = e - mpmath.log(1 - 1 / a) + (mpmath.log(d) + mpmath.log(a)) / (a - 1)
        assert 0 <= truth - mpmath.mpf(str(budget)) <= mpmath.mpf("1.1e-24")
    if budget >= 0:
        assert epsilon - Decimal("3e-24") <= epsilon_of(budget, delta, order) <= epsilon + Decimal("1e-24")


def test_composition_of_gaussians_is_that_of_dp_accounting() -> None:
    """Three Gaussian answers, best order on one common grid. Would catch costs that do not add."""
    grid = [float(order_at(index, 3)) for index in range(900 * 2, 900 * 6)]
    rho = sum(1 / (2 * sigma**2) for sigma in (20, 30, 50))
    theirs, _ = oracle.compute_epsilon(grid, np.array(grid) * rho, 1e-6)
    ours, _ = epsilon_alone([(DiscreteGaussianAnswer(sigma, 1), 1) for sigma in (20, 30, 50)], Decimal("1e-6"))
    assert float(ours) == pytest.approx(theirs, rel=1e-5)


def test_composition_of_laplace_answers_is_that_of_dp_accounting() -> None:
    from dp_accounting import LaplaceDpEvent

    grid = [float(order_at(index, 3)) for index in range(900 * 2, 900 * 6, 7)]
    accountant = oracle.RdpAccountant(grid)
    accountant.compose(LaplaceDpEvent(50), 100)
    ours, _ = epsilon_alone([(DiscreteLaplaceAnswer(50 * 2**20, 2**20), 100)], Decimal("1e-6"))
    assert float(ours) == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-4)


@pytest.mark.slow
@given(
    st.lists(
        st.sampled_from([ConditionalRelease(70), ConditionalRelease(30, "race"), PureStep(Fraction(1, 20))]),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 50),
    ORDERS,
)
def test_epsilon_alone_is_no_worse_than_any_order(steps: list[ConditionalRelease], count: int, order: Decimal) -> None:
    """The search finds the minimum over all orders, up to the step of its grid (three digits of a-1: 1%)."""
    delta = Decimal("1e-8")
    best, at = epsilon_alone([(step, count) for step in steps], delta)
    spent = count * sum(renyi_cost(step, at) for step in steps)
    assert best >= epsilon_of(spent, delta, at) - Decimal("1e-20")
    try:
        elsewhere = epsilon_of(count * sum(renyi_cost(step, order) for step in steps), delta, order)
    except InfiniteCost:
        return
    assert best <= elsewhere * Decimal("1.005")


def test_epsilon_alone_refuses_what_no_order_pays() -> None:
    assert epsilon_alone([], Decimal("1e-6"))[0] >= 0
    with pytest.raises(InvalidBudget):
        epsilon_alone([(PureStep(1), -1)], Decimal("1e-6"))


def test_the_grid_of_orders_is_published() -> None:
    assert [order_at(index, 2) for index in (0, 1, 90, 360, 361, 450)] == [
        Decimal(text) for text in ("1.001", "1.0011", "1.01", "11", "12", "101")
    ]
    grid = [order_at(index, 2) for index in range(orders(2))]
    assert grid == sorted(set(grid))
    assert all((grid[i + 1] - 1) / (grid[i] - 1) <= Decimal("1.1") for i in range(len(grid) - 1))


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        ("0", "1e-6"),
        ("-1", "1e-6"),
        ("NaN", "1e-6"),
        ("Infinity", "1e-6"),
        ("1", "0"),
        ("1", "1"),
        ("1", "-1"),
        ("1", "NaN"),
    ],
)
def test_guarantees_without_meaning_are_refused(epsilon: str, delta: str) -> None:
    with pytest.raises(InvalidBudget):
        rdp_budget(Decimal(epsilon), Decimal(delta), Decimal(20))
