"""The noise of all cells: the least that can be paid, by exact prices, and the law that varies least."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.measurements.noise import FLIP_BITS, BitFlips, Noise
from app.measurements.pricing import Adjacency, adjacency_of
from app.measurements.record import Purchase
from app.measurements.strategies.degrees import Degrees
from app.measurements.strategies.edges import Edges
from app.privacy.ledger import NOTHING, Amounts, Budget
from app.releases.edge_designs import beside_degrees, best_noise, part_for_degrees
from app.releases.factorization import Unaffordable

pytestmark = [pytest.mark.unit, pytest.mark.slow]

EDGES = Edges((3, 3), "pairs")
BITS, FINE = Adjacency(1, bits=0, binary=True), Adjacency(1024, bits=10, binary=False)
#: Of neighbours that differ in all seven edges of a node.
NODE_BITS, NODE_FINE = Adjacency(1, 7, bits=0, binary=True), Adjacency(1024, 7, bits=10, binary=False)
GRIDS = [BITS, FINE, NODE_BITS, NODE_FINE]
BUDGET = Budget.of(Decimal(1), Decimal("1e-9"))


def price(noise: BitFlips | Noise, grid: Adjacency, order: Decimal) -> Amounts:
    return Purchase.at(EDGES, noise, grid, order).price


@settings(max_examples=25)
@given(
    st.sampled_from(GRIDS),
    st.decimals("1.1", 300, places=2),
    st.decimals("0.0001", 8, places=4),
)
def test_a_share_buys_the_least_noise(grid: Adjacency, order: Decimal, share: Decimal) -> None:
    """What is bought can be paid, and a little less noise of its law cannot. Would catch a search that rounds the wrong
    way, and a price by another formula than that which is charged.
    """
    bought = best_noise(EDGES, grid, order, share, None)
    noise, cost = bought.noise, bought.price
    assert cost == price(noise, grid, order)
    assert cost.renyi <= share
    less = (
        BitFlips(noise.flips - 1)
        if isinstance(noise, BitFlips)
        else Noise(noise.kind, noise.scale * Decimal("0.9989"), noise.bits)
    )
    assert price(less, grid, order).renyi > share


@pytest.mark.parametrize("epsilon", ["0.01", "0.5", "1", "3", "20"])
def test_all_of_epsilon_buys_warners_coin(epsilon: str) -> None:
    """The probability is ``1/(1 + e^epsilon)`` rounded up to a multiple of 2^-53. Would catch one that is rounded down,
    which would pass epsilon.
    """
    bought = best_noise(EDGES, BITS, BUDGET.order, Decimal("1e-6"), Decimal(epsilon))
    noise, cost = bought.noise, bought.price
    assert isinstance(noise, BitFlips)
    with_more = (1 / (1 + Decimal(epsilon).exp())) * 2**FLIP_BITS
    assert noise.flips - 1 <= with_more <= noise.flips
    assert cost.pure is not None
    assert Decimal(epsilon) * (1 - Decimal("1e-6")) <= cost.pure <= Decimal(epsilon)


@pytest.mark.parametrize(
    ("grid", "share", "pure", "law"),
    [
        (BITS, "0.33", None, "flips"),
        (FINE, "0.033", None, "gaussian"),
        (FINE, "0.33", None, "laplace"),
        (FINE, "0.033", "1", "laplace"),
    ],
)
def test_the_law_of_the_least_variance_is_taken(grid: Adjacency, share: str, pure: str | None, law: str) -> None:
    """Small shares buy Gaussian noise, larger ones Laplace noise, and bits are turned over. Would catch a choice by
    anything but the variance that is bought, as all candidates are found again here.
    """
    noise = best_noise(EDGES, grid, BUDGET.order, Decimal(share), None if pure is None else Decimal(pure)).noise
    assert noise.kind == law
    others = []
    for number in range(-100, 400):
        scale = Decimal(repr(round(math.exp(number / 50), 6)))
        for kind in ("laplace", "gaussian"):
            candidate = Noise(kind, scale, grid.bits)  # type: ignore[arg-type]
            cost = price(candidate, grid, BUDGET.order)
            by_pure = pure is not None and cost.pure is not None and cost.pure <= Decimal(pure)
            if cost.renyi <= Decimal(share) or by_pure:
                others.append(candidate.variance)
    # Scales have four digits.
    assert noise.variance <= min(others) * 1.002


def test_next_to_nothing_buys_nothing() -> None:
    """Would catch noise that passes what is held, and noise that cannot be drawn."""
    with pytest.raises(Unaffordable):
        best_noise(EDGES, FINE, Decimal(30), Decimal("1e-24"), None)


def test_what_a_cell_holds() -> None:
    """Would catch a matrix, weighted edges or signed entries that are taken for bits, and gamma in another unit."""
    one = Fraction(1)
    assert adjacency_of(0, one, one, signed=False) == BITS
    assert adjacency_of(10, one, one, signed=False) == FINE
    assert not adjacency_of(0, one, one, signed=True).binary
    assert not adjacency_of(0, Fraction(2), Fraction(2), signed=False).binary
    assert adjacency_of(2, Fraction(5, 2), Fraction(3), signed=True) == Adjacency(10, bits=2, binary=False)
    # A node's edges: each moves by one at most.
    assert adjacency_of(0, Fraction(7), one, signed=False) == NODE_BITS
    assert adjacency_of(10, Fraction(7), one, signed=False) == NODE_FINE
    # An entry of either sign may move by twice the largest there is.
    assert adjacency_of(0, Fraction(2), one, signed=True) == Adjacency(2, bits=0, binary=False)
    with pytest.raises(ValueError, match="whole number"):
        adjacency_of(1, Fraction(1, 4), one, signed=False)
    with pytest.raises(ValueError, match="moves by one"):
        EDGES.events(BitFlips(1 << 50), Adjacency(2))


@settings(max_examples=15)
@given(
    st.sampled_from(GRIDS),
    st.decimals("0.01", 4, places=4),
    st.booleans(),
    st.integers(50, 950).map(lambda part: Fraction(part, 1000)),
)
def test_degrees_and_cells_share_what_is_paid(grid: Adjacency, held: Decimal, by_pure: bool, part: Fraction) -> None:
    """Each gets its part of the sum that pays, to what scales of four digits leave, and both together no more than
    there is. Would catch a part of the wrong sum, a part that is paid twice, and degrees at the price of one answer.
    """
    order = BUDGET.order
    cells, sums = beside_degrees(EDGES, grid, order, held, held if by_pure else None, part)
    assert cells.price == price(cells.noise, grid, order)
    assert sums.price == Purchase.at(Degrees(EDGES), sums.noise, grid, order).price
    edges, degrees = (p.pure if by_pure else p.renyi for p in (cells.price, sums.price))
    assert edges is not None
    assert degrees is not None
    for one, most in ((edges, (1 - part) * Fraction(held)), (degrees, part * Fraction(held))):
        assert Fraction("0.995") * most <= Fraction(one) <= most


@pytest.mark.parametrize(("epsilon", "part"), [(0.3, 0.9), (1.0, 0.6), (1.5, 0.4), (4.0, 0.3)])
def test_the_part_of_degrees(epsilon: float, part: float) -> None:
    """Of epsilon it is the rule of the study, whatever the law of the noise that everything would buy; of the Renyi sum
    it is what the same noise costs there, by the formula for continuous noise (Mironov 2017, table II). Would catch a
    part of the one that is spent of the other, and an epsilon that is read off the noise in the wrong unit.
    """
    flips = BitFlips(round(2**FLIP_BITS / (1 + math.exp(epsilon))))
    laplace = Noise("laplace", Decimal(repr(round(2 / epsilon, 6))), 10)
    gaussian = Noise("gaussian", Decimal(repr(round(2 * 2**0.5 / epsilon, 6))), 10)
    twice = Adjacency(2048, bits=10, binary=False)

    def cost(rate: float, order: float) -> float:
        terms = order * math.exp((order - 1) * rate), (order - 1) * math.exp(-order * rate)
        return math.log(sum(terms) / (2 * order - 1)) / (order - 1)

    for order in (2.0, 40.0):
        degrees, cells = 2 * cost(part * epsilon / 2, order), cost((1 - part) * epsilon, order)
        for noise, grid in ((laplace, twice), (gaussian, twice), (flips, BITS)):
            assert float(
                part_for_degrees(Purchase(EDGES, noise, NOTHING), grid, Decimal(order), by_pure=True)
            ) == pytest.approx(part, abs=2e-3)
            found = part_for_degrees(Purchase(EDGES, noise, NOTHING), grid, Decimal(order), by_pure=False)
            # Noise of bits is told by that of whole numbers, which is a little narrower than the continuous.
            assert float(found) == pytest.approx(degrees / (degrees + cells), abs=0.1 if grid is BITS else 4e-3)
