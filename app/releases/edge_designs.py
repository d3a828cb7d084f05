"""The noise with which all cells of a graph or a matrix are measured: that of the least variance which can be paid.

It follows from public things alone. Every candidate is found by bisection over exact prices, so that no rounding of a
float decides what is paid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from app.bisection import least_integer
from app.evidence.edges import FLIP_BITS, BitFlips
from app.evidence.measurements import Noise, NoiseKind
from app.privacy.errors import PrivacyError
from app.privacy.exactness import EXACT
from app.privacy.ledger import Amounts
from app.releases.factorization import Unaffordable
from app.releases.pricing import event_of_edges

#: Scales have so many digits, from a tenth of a grid unit on, and below 10^15 of them.
_DIGITS, _LEAST, _GREATEST = 4, -1, 15


@dataclass(frozen=True)
class Grid:
    """What a cell holds.

    Attributes:
        bits: data are whole units of 2^-bits.
        moved: gamma in these units.
        binary: whether every cell is 0 or 1.
    """

    bits: int
    moved: int
    binary: bool


def best_noise(grid: Grid, order: Decimal, share: Decimal, pure: Decimal | None) -> tuple[BitFlips | Noise, Amounts]:
    """The noise of the least variance that can be paid, and its price.

    Args:
        grid: what the cells hold.
        order: of the ledger, its Renyi order.
        share: what may be paid of the Renyi sum.
        pure: what may be paid of the pure sum instead, whatever its price in the other; None where it is not admitted.

    Raises:
        Unaffordable: when no noise that is offered is cheap enough.
    """

    def price(noise: BitFlips | Noise) -> Amounts:
        return Amounts.of(event_of_edges(noise, grid.moved), order)

    def by_renyi(noise: BitFlips | Noise) -> bool:
        return price(noise).renyi <= share

    def by_pure(noise: BitFlips | Noise) -> bool:
        own = price(noise).pure
        return pure is not None and own is not None and own <= pure

    found: list[BitFlips | Noise | None] = []
    for affords in (by_pure, by_renyi) if pure is not None else (by_renyi,):
        # Of bits Laplace noise tells no less than randomised response of the same epsilon, and varies by twice as much.
        found.append(_flips(affords) if grid.binary else _scaled("laplace", grid.bits, affords))
    found.append(_scaled("gaussian", grid.bits, by_renyi))
    offered = [noise for noise in found if noise is not None]
    if not offered:
        raise Unaffordable("so small a share pays for no noise that can be drawn: raise epsilon")
    best = min(offered, key=lambda noise: noise.variance)
    return best, price(best)


def _flips(affords: Callable[[BitFlips], bool]) -> BitFlips | None:
    """The least probability of turning a bit over that can be paid."""
    most = (1 << (FLIP_BITS - 1)) - 1
    if not affords(BitFlips(most)):
        return None
    return BitFlips(least_integer(lambda flips: affords(BitFlips(flips)), 0, most))


def _scaled(kind: NoiseKind, bits: int, affords: Callable[[Noise], bool]) -> Noise | None:
    """The noise of the least scale that can be paid."""
    first = 10 ** (_DIGITS - 1)
    decade = 9 * first

    def noise(number: int) -> Noise:
        """Scales of four digits, numbered as they ascend."""
        units = Decimal(first + number % decade).scaleb(_LEAST + 1 - _DIGITS + number // decade)
        return Noise(kind, EXACT.multiply(units, Decimal(0.5**bits)), bits)

    def pays(number: int) -> bool:
        try:
            return affords(noise(number))
        except PrivacyError:  # such as a price that is infinite
            return False

    most = decade * (_GREATEST - _LEAST) - 1
    return noise(least_integer(pays, -1, most)) if pays(most) else None


def grid_of(bits: int, unit: Fraction, largest: Fraction | None, *, signed: bool) -> Grid:
    """What the cells of a space hold.

    Args:
        bits: of the data.
        unit: gamma in counts, a multiple of 2^-bits.
        largest: of the absolute entries, in counts.
        signed: whether entries may be negative.
    """
    moved = unit * (1 << bits)
    if moved.denominator != 1:
        raise ValueError("gamma is a whole number of data units")
    return Grid(bits, moved.numerator, not signed and bits == 0 and unit == largest == 1)
