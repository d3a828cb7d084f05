"""The exact cost of measurements: how far neighbours are apart, and the events that follow for a ledger."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from app.measurements.noise import Law, Noise
from app.privacy.costs import DiscreteGaussianAnswer, DiscreteLaplaceAnswer, PrivacyEvent
from app.privacy.ledger import Amounts, total

#: Events that cost budget, and how many of each.
Events = tuple[tuple[PrivacyEvent, int], ...]


@dataclass(frozen=True)
class Adjacency:
    """How far neighbouring data sets are apart: ``cells * moved`` in L1, which is gamma.

    Attributes:
        sensitivity: how far a cell moves at most, in units of the data's grid.
        cells: that so many cells moved so far would be gamma. Where they are several, all cells that move are edges of
            one node.
        bits: data are whole units of 2^-bits.
        binary: whether every cell is 0 or 1.
        side: of the nodes that are the unit of privacy; None where the unit is no node.
    """

    sensitivity: int
    cells: int = 1
    bits: int = 0
    binary: bool = False
    side: str | None = None

    @property
    def gamma(self) -> int:
        """In units of the data's grid."""
        return self.sensitivity * self.cells


def adjacency_of(
    bits: int, unit: Fraction, largest: Fraction | None, *, signed: bool, side: str | None = None
) -> Adjacency:
    """How far neighbours are apart.

    Args:
        bits: of the data.
        unit: gamma in counts, a multiple of 2^-bits.
        largest: of the absolute entries, in counts.
        signed: whether entries may be negative.
        side: of the nodes that are the unit of privacy.
    """
    gamma = unit * (1 << bits)
    if gamma.denominator != 1:
        raise ValueError("gamma is a whole number of data units")
    # No entry of one sign moves by more than the largest can: where gamma is several of these, they are several
    # cells' (which are edges of one node: no other data have a gamma above their entries). Else one cell's.
    cells = int(unit / largest) if not signed and largest is not None and unit % largest == 0 else 1
    binary = not signed and bits == 0 and largest == 1 and unit == cells
    return Adjacency(gamma.numerator // cells, cells, bits, binary, side)


def answer(noise: Law, absolute: int, squared: int) -> PrivacyEvent:
    """Values released each with noise of its own.

    Args:
        noise: of each value.
        absolute: by how much the values of neighbours differ in the L1 norm at most, in units of the noise's grid.
        squared: the same in the square of the L2 norm.
    """
    assert isinstance(noise, Noise), "bits alone are turned over"
    units = Fraction(noise.scale) * (1 << noise.bits)
    if noise.kind == "gaussian":
        return DiscreteGaussianAnswer(units, squared)
    return DiscreteLaplaceAnswer(units, absolute)


def price_of(events: Events, order: Decimal) -> Amounts:
    """The cost of events together, in both sums of a ledger of this order.

    Raises:
        PrivacyError: when that is infinite at this order.
    """
    return total(_amounts(event, order).times(number) for event, number in events)


@lru_cache(maxsize=256)
def _amounts(event: PrivacyEvent, order: Decimal) -> Amounts:
    """An opening buys very many alike."""
    return Amounts.of(event, order)
