"""What measurements cost, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from app.measurements.noise import BitFlips, Noise, NoiseKind
from app.measurements.strategies.products import Products
from app.measurements.strategies.tables import TableStrategy
from app.privacy.costs import DiscreteGaussianAnswer, DiscreteLaplaceAnswer, PrivacyEvent, RandomisedResponse
from app.privacy.ledger import Amounts, total


def price_of(strategy: TableStrategy, kind: NoiseKind, scale: Fraction, order: Decimal, gamma: int) -> Amounts:
    """What a measurement with noise of this scale costs in both sums of a ledger of this order.

    Neighbours differ in at most gamma records: a part moves by at most gamma times what one record moves it by, in L1
    and in L2, by the triangle inequality. The parts compose (docs/privacy.md, 9.4 and 9.5).
    """
    if kind == "gaussian":
        return _amounts(kind, scale, gamma**2 * sum(moved.squared for moved in strategy.moved), order)
    return total(_amounts(kind, scale, gamma * moved.absolute, order) for moved in strategy.moved)


@dataclass(frozen=True)
class Apart:
    """How far neighbouring graphs or matrices are apart: ``cells * moved`` in L1, which is gamma.

    Attributes:
        moved: how far a cell moves at most, in units of the data's grid.
        cells: that so many cells moved so far would be gamma. Where they are several, all cells that move are edges of
            one node.
    """

    moved: int
    cells: int = 1

    @property
    def gamma(self) -> int:
        """In units of the data's grid."""
        return self.moved * self.cells


#: Events that cost budget, and how many of each.
Events = tuple[tuple[PrivacyEvent, int], ...]


def events_of_edges(noise: Noise | BitFlips, apart: Apart) -> Events:
    """What the cells of a graph or a matrix, each released with noise of its own, cost budget by.

    The cost of a move is convex in it, zero at zero, and of Gaussian noise its square. So moves of at most ``moved``
    that add up to gamma cost no more than ``cells`` moves by ``moved`` (docs/privacy.md, 9.6). Bits that differ are
    no more than ``cells``.

    Args:
        noise: of each cell; of bits, ``moved`` is 1.
        apart: how far neighbours are apart.

    Raises:
        ValueError: for bits that move farther.
    """
    if isinstance(noise, BitFlips):
        if apart.moved != 1:
            raise ValueError("a bit moves by one")
        return ((RandomisedResponse(noise.probability), apart.cells),)
    units = Fraction(noise.scale) * (1 << noise.bits)
    if noise.kind == "gaussian":
        return ((DiscreteGaussianAnswer(units, apart.cells * apart.moved**2), 1),)
    return ((DiscreteLaplaceAnswer(units, apart.moved), apart.cells),)


def events_of_degrees(noise: Noise, apart: Apart) -> Events:
    """What the degrees of a graph, each released with noise of its own, cost budget by.

    A cell is counted by two degrees. Of the cells that move one end is the same: its degree moves by gamma at most,
    those of the other ends by ``moved`` at most and by gamma together, which costs as cells do.

    Args:
        noise: of each degree.
        apart: how far neighbours are apart.
    """
    units = Fraction(noise.scale) * (1 << noise.bits)
    if noise.kind == "gaussian":
        return ((DiscreteGaussianAnswer(units, apart.gamma**2 + apart.cells * apart.moved**2), 1),)
    return ((DiscreteLaplaceAnswer(units, apart.gamma), 1), (DiscreteLaplaceAnswer(units, apart.moved), apart.cells))


def price_of_edges(noise: Noise | BitFlips, apart: Apart, order: Decimal) -> Amounts:
    """What all cells cost, in both sums of a ledger of this order.

    Raises:
        PrivacyError: when that is infinite at this order.
    """
    return _price(events_of_edges(noise, apart), order)


def price_of_degrees(noise: Noise, apart: Apart, order: Decimal) -> Amounts:
    """What all degrees cost, in both sums of a ledger of this order.

    Raises:
        PrivacyError: when that is infinite at this order.
    """
    return _price(events_of_degrees(noise, apart), order)


def _price(events: Events, order: Decimal) -> Amounts:
    return total(Amounts.of(event, order).times(number) for event, number in events)


def event_of_products(noise: Noise, products: Products, moved: int) -> DiscreteGaussianAnswer:
    """What products of a graph's or a matrix's cells with weights, each released with noise of its own, cost budget by.

    Values are linear in the cells, so neighbours are no farther apart in L2 than where all of gamma is in one cell, by
    the triangle inequality (docs/privacy.md, 9.7), and edges of one node with weights of 1 are as far. The price is the
    same whatever the weights are.

    Args:
        noise: of each value, Gaussian, on the grid of data and weights together.
        products: what is measured.
        moved: gamma in units of the data's grid: neighbours differ by so much in L1 over all cells.
    """
    units = Fraction(noise.scale) * (1 << noise.bits)
    return DiscreteGaussianAnswer(units, moved**2 * products.moved_squared)


def price_of_asked(noise: Noise, absolute: int, squared: int, order: Decimal) -> Amounts:
    """What a query costs whose values are released each with noise, in both sums of a ledger of this order.

    Args:
        noise: of each value, on the answer grid.
        absolute: by how much the values of neighbours differ in the L1 norm at most, in units of that grid.
        squared: the same in the square of the L2 norm.
    """
    moved = squared if noise.kind == "gaussian" else absolute
    return _amounts(noise.kind, Fraction(noise.scale) * (1 << noise.bits), moved, order)


@lru_cache(maxsize=256)
def _amounts(kind: NoiseKind, scale: Fraction, moved: int, order: Decimal) -> Amounts:
    """What one sum or many of the same sensitivity cost; an opening buys very many alike.

    ``moved`` is what they move by: in the square of the L2 norm where noise is Gaussian, else in the L1 norm.
    """
    event = DiscreteGaussianAnswer(scale, moved) if kind == "gaussian" else DiscreteLaplaceAnswer(scale, moved)
    return Amounts.of(event, order)
