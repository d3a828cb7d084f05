"""The noise with which all cells of a graph or a matrix are measured, and the degrees of a graph beside them: that of
the least variance which can be paid.

It follows from public things alone. Every candidate is found by exact prices, so that no rounding of a float decides
what is paid.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import TypeVar

from app.measurements.noise import BitFlips, Law, Noise, least_scale
from app.measurements.noise_search import LawName, least_affordable
from app.measurements.pricing import Adjacency
from app.measurements.record import Purchase
from app.measurements.strategies.degrees import Degrees
from app.measurements.strategies.edges import Edges
from app.measurements.strategies.products import Products
from app.measurements.strategy import Strategy
from app.privacy.exactness import EXACT, floor_to
from app.privacy.ledger import Regime
from app.releases.factorization import Unaffordable
from app.releases.synthetic_graph import degrees_share

#: A law, and how much of which sum pays for it.
_Offer = tuple[LawName, Regime, Decimal]
S = TypeVar("S", bound=Strategy)

_NONE = Decimal(0)
#: Where noise is so large that in floating point its epsilon is none.
_LEAST_EPSILON = 1e-9
#: Degrees are measured where they vary by no more than this part of the sums of cells.
_WORTH = 0.5


def best_noise(
    edges: Edges, adjacency: Adjacency, order: Decimal, share: Decimal, pure: Decimal | None
) -> Purchase[Edges]:
    """The cells with the noise of the least variance that can be paid.

    Args:
        edges: the cells.
        adjacency: how far neighbours are apart.
        order: of the ledger, its Renyi order.
        share: what may be paid of the Renyi sum.
        pure: what may be paid of the pure sum instead, whatever its price in the other; None where it is not admitted.

    Raises:
        Unaffordable: when no noise that is offered is cheap enough.
    """
    # Of bits Laplace noise tells no less than randomised response of the same epsilon, and varies by twice as much.
    own: LawName = "flips" if adjacency.binary else "laplace"
    offers: list[_Offer] = [] if pure is None else [(own, "pure", pure)]
    offers += [(own, "renyi", share), ("gaussian", "renyi", share)]
    return _least_varied(edges, adjacency.bits, adjacency, order, offers)


def beside_degrees(
    edges: Edges, adjacency: Adjacency, order: Decimal, share: Decimal, pure: Decimal | None, part: Fraction
) -> tuple[Purchase[Edges], Purchase[Degrees]]:
    """The cells, and their degrees for a part of what may be paid.

    Args:
        edges: the cells.
        adjacency: how far neighbours are apart.
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
    degrees = degrees_noise(edges, adjacency, order, first, by_pure=pure is not None)
    # By the pure sum nothing is paid as part of a Renyi share.
    sums = (rest, None) if pure is None else (_NONE, rest)
    return best_noise(edges, adjacency, order, *sums), degrees


def part_for_degrees(cells: Purchase[Edges], adjacency: Adjacency, order: Decimal, *, by_pure: bool) -> Fraction:
    """The part of a price that is spent on degrees, where the rest is spent on cells, in thousandths.

    Cells are always measured too, although degrees alone serve as well where epsilon is small: with nine tenths of it
    their noise is a tenth larger, which is less than graphs differ by, and cells are needed for the bound that a
    release states of all cuts, and for later releases, which average them.

    The rule of :func:`degrees_share` is one of epsilon, of pure noise. Its epsilon here is that at which pure noise
    would vary as the noise does which everything would buy of cells alone. Pure noise of both in the rule's parts of
    that epsilon has two prices, in whichever sum pays: theirs is the part. Of the pure sum it is the rule's.

    Args:
        cells: were everything spent on them.
        adjacency: how far neighbours are apart.
        order: of the ledger, its Renyi order.
        by_pure: whether the pure sum pays, or the Renyi sum.

    Raises:
        PrivacyError: when such noise has no price.
    """
    # Of a cell: where neighbours differ in several, noise of cells and of degrees grows alike.
    unit, noise = math.ldexp(adjacency.sensitivity, -adjacency.bits), cells.noise
    if isinstance(noise, BitFlips):
        epsilon = math.log(1 / float(noise.probability) - 1)
    else:
        # The variance of Laplace noise is 2 (unit/epsilon)^2.
        epsilon = unit * math.sqrt(2 / noise.variance)
    epsilon = max(epsilon, _LEAST_EPSILON)
    part, edges = degrees_share(epsilon), cells.strategy
    degrees = Purchase.at(Degrees(edges), _laplace(2 * unit / (part * epsilon), adjacency.bits), adjacency, order).price
    others = Purchase.at(edges, _laplace(unit / ((1 - part) * epsilon), adjacency.bits), adjacency, order).price
    one, other = (degrees.pure, others.pure) if by_pure else (degrees.renyi, others.renyi)
    assert one is not None
    assert other is not None
    return Fraction(round(1000 * float(one / (one + other))), 1000)


def degrees_pay(degrees: Noise, alone: Law, edges: Edges) -> bool:
    """Whether degrees are worth their part of a price: where they vary by at most half as much as the sums of cells,
    were everything spent on cells.

    In graphs of few nodes, and where epsilon is large, such sums are as good. By
    `benchmarks/research/synthetic_graphs.py`, degrees that vary by three tenths make the largest error of a cut a fifth
    less, and degrees that vary by as much make it a fifth larger, as cells have less left.

    Args:
        degrees: their noise.
        alone: of the cells, were everything spent on them.
        edges: the cells.
    """
    return degrees.variance <= _WORTH * max(edges.shape) * alone.variance


def _laplace(scale: float, bits: int) -> Noise:
    """Laplace noise of a scale that was found in floating point, rounded so that it is the same on every machine; of
    the least that there is where it would be less."""
    return Noise("laplace", max(Decimal(f"{scale:.6g}"), least_scale(bits)), bits)


def degrees_noise(
    edges: Edges, adjacency: Adjacency, order: Decimal, held: Decimal, *, by_pure: bool
) -> Purchase[Degrees]:
    """The degrees with the noise of the least variance that they can get for so much of either sum.

    Raises:
        Unaffordable: when no noise that is offered is cheap enough.
    """
    regime: Regime = "pure" if by_pure else "renyi"
    offers: list[_Offer] = [("laplace", regime, held), ("gaussian", regime, held)]
    return _least_varied(Degrees(edges), adjacency.bits, adjacency, order, offers)


def product_noise(products: Products, adjacency: Adjacency, order: Decimal, share: Decimal) -> Purchase[Products]:
    """Products of cells with weights, with the Gaussian noise of the least variance that they can get for a share.

    Args:
        products: what is measured; noise and price are the same whatever the weights are.
        adjacency: how far neighbours are apart.
        order: of the ledger, its Renyi order.
        share: what may be paid of the Renyi sum.

    Raises:
        Unaffordable: when no noise that is offered is cheap enough.
    """
    return _least_varied(
        products, adjacency.bits + products.grid_bits, adjacency, order, [("gaussian", "renyi", share)]
    )


def _least_varied(
    strategy: S, bits: int, adjacency: Adjacency, order: Decimal, offers: Iterable[_Offer]
) -> Purchase[S]:
    """The purchase of the noise that varies least, among the least of each law that is offered.

    Raises:
        Unaffordable: when none is cheap enough.
    """

    def cost(regime: Regime, noise: Law) -> Decimal | None:
        price = Purchase.at(strategy, noise, adjacency, order).price
        return price.pure if regime == "pure" else price.renyi

    tried = (least_affordable(law, bits, partial(cost, regime), held) for law, regime, held in offers)
    found = [noise for noise in tried if noise is not None]
    if not found:
        raise Unaffordable("so small a share pays for no noise that can be drawn: raise epsilon")
    return Purchase.at(strategy, min(found, key=lambda noise: noise.variance), adjacency, order)
