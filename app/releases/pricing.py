"""What measurements cost, exactly."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from app.evidence.edges import BitFlips
from app.evidence.measurements import Noise, NoiseKind
from app.evidence.products import Products
from app.evidence.strategies import Strategy
from app.privacy.costs import DiscreteGaussianAnswer, DiscreteLaplaceAnswer, RandomisedResponse
from app.privacy.ledger import Amounts, total


def price_of(strategy: Strategy, kind: NoiseKind, scale: Fraction, order: Decimal, gamma: int) -> Amounts:
    """What a measurement with noise of this scale costs in both sums of a ledger of this order.

    Neighbours differ in at most gamma records: a part moves by at most gamma times what one record moves it by, in L1
    and in L2, by the triangle inequality. The parts compose (docs/privacy.md, 9.4 and 9.5).
    """
    if kind == "gaussian":
        return _amounts(kind, scale, gamma**2 * sum(moved.squared for moved in strategy.moved), order)
    return total(_amounts(kind, scale, gamma * moved.absolute, order) for moved in strategy.moved)


def event_of_edges(
    noise: Noise | BitFlips, moved: int
) -> RandomisedResponse | DiscreteLaplaceAnswer | DiscreteGaussianAnswer:
    """What the cells of a graph or a matrix, each released with noise of its own, cost budget by.

    Args:
        noise: of each cell.
        moved: gamma in units of the noise's grid: neighbours differ by so much in L1 over all cells, and by no more in
            L2. Bits differ in one.

    Raises:
        ValueError: for bits that are farther apart.
    """
    if isinstance(noise, BitFlips):
        if moved != 1:
            raise ValueError("neighbours differ in one bit")
        return RandomisedResponse(noise.probability)
    units = Fraction(noise.scale) * (1 << noise.bits)
    return DiscreteGaussianAnswer(units, moved**2) if noise.kind == "gaussian" else DiscreteLaplaceAnswer(units, moved)


def events_of_degrees(
    noise: Noise, moved: int
) -> tuple[tuple[DiscreteLaplaceAnswer | DiscreteGaussianAnswer, int], ...]:
    """What the degrees of a graph, each released with noise of its own, cost budget by: events, and how many of each.

    A cell is counted by two degrees. So of squares of moves there are ``2 gamma^2`` at most. Of absolute moves there
    are ``2 gamma``, and no degree moves by more than gamma: as the cost of a move is convex in it and zero at zero,
    all of them cost no more than two moves by gamma, which in the Renyi sum is less than one by ``2 gamma``.

    Args:
        noise: of each degree.
        moved: gamma in units of the noise's grid: neighbours differ by so much in L1 over all cells.
    """
    units = Fraction(noise.scale) * (1 << noise.bits)
    if noise.kind == "gaussian":
        return ((DiscreteGaussianAnswer(units, 2 * moved**2), 1),)
    return ((DiscreteLaplaceAnswer(units, moved), 2),)


def price_of_degrees(noise: Noise, moved: int, order: Decimal) -> Amounts:
    """What these events cost together, in both sums of a ledger of this order.

    Raises:
        PrivacyError: when that is infinite at this order.
    """
    priced = ((Amounts.of(event, order), times) for event, times in events_of_degrees(noise, moved))
    return total(price for price, times in priced for _ in range(times))


def event_of_products(noise: Noise, products: Products, moved: int) -> DiscreteGaussianAnswer:
    """What products of a graph's or a matrix's cells with weights, each released with noise of its own, cost budget by.

    Values are linear in the cells, so neighbours are no farther apart in L2 than where all of gamma is in one cell, by
    the triangle inequality (docs/privacy.md, 9.7). The price is the same whatever the weights are.

    Args:
        noise: of each value, Gaussian, on the grid of data and weights together.
        products: what is measured.
        moved: gamma in units of the data's grid: neighbours differ by so much in L1 over all cells.
    """
    units = Fraction(noise.scale) * (1 << noise.bits)
    return DiscreteGaussianAnswer(units, moved**2 * products.moved_squared)


@lru_cache(maxsize=256)
def _amounts(kind: NoiseKind, scale: Fraction, moved: int, order: Decimal) -> Amounts:
    """What one sum or many of the same sensitivity cost; an opening buys very many alike."""
    event = DiscreteGaussianAnswer(scale, moved) if kind == "gaussian" else DiscreteLaplaceAnswer(scale, moved)
    return Amounts.of(event, order)
