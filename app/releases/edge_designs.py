"""The noise with which all cells of a graph or a matrix are measured, and the degrees of a graph beside them: that of
the least variance which can be paid.

It follows from public things alone. Every candidate is found by bisection over exact prices, so that no rounding of a
float decides what is paid.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import get_args

from app.bisection import least_integer
from app.measurements.noise import FLIP_BITS, BitFlips, Noise, NoiseKind
from app.measurements.strategies.edges import Edges
from app.measurements.strategies.products import Products
from app.privacy.errors import PrivacyError
from app.privacy.exactness import EXACT, floor_to
from app.privacy.ledger import Amounts
from app.releases.factorization import Unaffordable
from app.releases.pricing import Apart, event_of_products, price_of_degrees, price_of_edges
from app.releases.synthetic_graph import degrees_share

#: Scales have so many digits, from a tenth of a grid unit on, and below 10^15 of them.
_DIGITS, _LEAST, _GREATEST = 4, -1, 15
_TOO_SMALL = "so small a share pays for no noise that can be drawn: raise epsilon"
_NONE = Decimal(0)
#: Where noise is so large that in floating point its epsilon is none.
_LEAST_EPSILON = 1e-9
#: Degrees are measured where they vary by no more than this part of the sums of cells.
_WORTH = 0.5


@dataclass(frozen=True)
class Grid:
    """What a cell holds.

    Attributes:
        bits: data are whole units of 2^-bits.
        apart: how far neighbours are apart, in these units.
        binary: whether every cell is 0 or 1.
    """

    bits: int
    apart: Apart
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
        return price_of_edges(noise, grid.apart, order)

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
        raise Unaffordable(_TOO_SMALL)
    best = min(offered, key=lambda noise: noise.variance)
    return best, price(best)


@dataclass(frozen=True)
class Beside:
    """Noise of the cells of a graph and noise of its degrees, which are paid together, and their prices."""

    edges: BitFlips | Noise
    edges_price: Amounts
    degrees: Noise
    degrees_price: Amounts


def beside_degrees(grid: Grid, order: Decimal, share: Decimal, pure: Decimal | None, part: Fraction) -> Beside:
    """The noise of degrees for a part of what may be paid, and that of cells for the rest.

    Args:
        grid: what the cells hold.
        order: of the ledger, its Renyi order.
        share: what may be paid of the Renyi sum, where ``pure`` is None.
        pure: what may be paid of the pure sum instead, whatever the price in the other.
        part: of whichever is paid, for degrees.

    Raises:
        Unaffordable: when no noise that is offered is cheap enough.
    """
    held = share if pure is None else pure
    first = floor_to(Fraction(held) * part)
    rest = EXACT.subtract(held, first)
    degrees, degrees_price = degrees_noise(grid, order, first, by_pure=pure is not None)
    # By the pure sum nothing is paid as part of a Renyi share.
    edges, edges_price = best_noise(grid, order, rest, None) if pure is None else best_noise(grid, order, _NONE, rest)
    return Beside(edges, edges_price, degrees, degrees_price)


def part_for_degrees(noise: BitFlips | Noise, grid: Grid, order: Decimal, *, by_pure: bool) -> Fraction:
    """The part of a price that is spent on degrees, where the rest is spent on cells, in thousandths.

    Cells are always measured too, although degrees alone serve as well where epsilon is small: with nine tenths of it
    their noise is a tenth larger, which is less than graphs differ by, and cells are needed for the bound that a
    release states of all cuts, and for later releases, which average them.

    The rule of :func:`degrees_share` is one of epsilon, of pure noise. Its epsilon here is that at which pure noise
    would vary as the noise does which everything would buy of cells alone. Pure noise of both in the rule's parts of
    that epsilon has two prices, in whichever sum pays: theirs is the part. Of the pure sum it is the rule's.

    Args:
        noise: of the cells, were everything spent on them.
        grid: what the cells hold.
        order: of the ledger, its Renyi order.
        by_pure: whether the pure sum pays, or the Renyi sum.

    Raises:
        PrivacyError: when such noise has no price.
    """
    # Of a cell: where neighbours differ in several, noise of cells and of degrees grows alike.
    unit = math.ldexp(grid.apart.moved, -grid.bits)
    if isinstance(noise, BitFlips):
        epsilon = math.log(1 / float(noise.probability) - 1)
    else:
        # The variance of Laplace noise is 2 (unit/epsilon)^2.
        epsilon = unit * math.sqrt(2 / noise.variance)
    epsilon = max(epsilon, _LEAST_EPSILON)
    part = degrees_share(epsilon)
    degrees = price_of_degrees(_laplace(2 * unit / (part * epsilon), grid.bits), grid.apart, order)
    cells = price_of_edges(_laplace(unit / ((1 - part) * epsilon), grid.bits), grid.apart, order)
    one, other = (degrees.pure, cells.pure) if by_pure else (degrees.renyi, cells.renyi)
    assert one is not None
    assert other is not None
    return Fraction(round(1000 * float(one / (one + other))), 1000)


def degrees_pay(degrees: Noise, alone: BitFlips | Noise, edges: Edges) -> bool:
    """Whether degrees are worth their part of a price: where they vary by at most half as much as the sums of cells,
    were everything spent on cells.

    In graphs of few nodes, and where epsilon is large, such sums are as good. By `benchmarks/synthetic_graphs.py`,
    degrees that vary by three tenths make the largest error of a cut a fifth less, and degrees that vary by as much
    make it a fifth larger, as cells have less left.

    Args:
        degrees: their noise.
        alone: of the cells, were everything spent on them.
        edges: the cells.
    """
    return degrees.variance <= _WORTH * max(edges.shape) * alone.variance


def _laplace(scale: float, bits: int) -> Noise:
    """Laplace noise of a scale that was found in floating point, rounded so that it is the same on every machine."""
    return Noise("laplace", Decimal(f"{scale:.6g}"), bits)


def degrees_noise(grid: Grid, order: Decimal, held: Decimal, *, by_pure: bool) -> tuple[Noise, Amounts]:
    """The noise of the least variance that degrees can get for so much of either sum, and its price."""

    def affords(noise: Noise) -> bool:
        price = price_of_degrees(noise, grid.apart, order)
        paid = price.pure if by_pure else price.renyi
        return paid is not None and paid <= held

    found = [_scaled(kind, grid.bits, affords) for kind in get_args(NoiseKind)]
    offered = [noise for noise in found if noise is not None]
    if not offered:
        raise Unaffordable(_TOO_SMALL)
    best = min(offered, key=lambda noise: noise.variance)
    return best, price_of_degrees(best, grid.apart, order)


def product_noise(products: Products, data_bits: int, moved: int, order: Decimal, share: Decimal) -> Noise:
    """The Gaussian noise of the least variance that products of cells with weights can get for a share.

    Args:
        products: what is measured; the noise is the same whatever the weights are.
        data_bits: data are whole units of 2^-data_bits.
        moved: gamma in these units.
        order: of the ledger, its Renyi order.
        share: what may be paid of the Renyi sum.

    Raises:
        Unaffordable: when no noise that is offered is cheap enough.
    """

    def affords(noise: Noise) -> bool:
        return Amounts.of(event_of_products(noise, products, moved), order).renyi <= share

    noise = _scaled("gaussian", data_bits + products.grid_bits, affords)
    if noise is None:
        raise Unaffordable(_TOO_SMALL)
    return noise


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
    gamma = unit * (1 << bits)
    if gamma.denominator != 1:
        raise ValueError("gamma is a whole number of data units")
    # No entry of one sign moves by more than the largest can: where gamma is several of these, they are several
    # cells' (which are edges of one node: no other data have a gamma above their entries). Else one cell's.
    cells = int(unit / largest) if not signed and largest is not None and unit % largest == 0 else 1
    binary = not signed and bits == 0 and largest == 1 and unit == cells
    return Grid(bits, Apart(gamma.numerator // cells, cells), binary)
