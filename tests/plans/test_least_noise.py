"""What every search for the least noise that a share pays for must keep, whatever the grid of its scales.

Costs fall as noise grows. So there is a least scale that is affordable: it is found, its exact price is no more than
the share, and the next smaller one that is offered costs more than that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.curator.planners.direct import _least_scale, event_of
from app.measurements.noise import BitFlips, Law
from app.measurements.noise_search import least_affordable, noise_on_grid
from app.measurements.pricing import answer, price_of
from app.measurements.strategies.tables import TableStrategy
from app.privacy.calibration import scale_for_cost
from app.privacy.costs import ConditionalRelease, RandomisedResponse, Release, renyi_cost
from app.privacy.errors import InfiniteCost
from app.releases.factorization import Paying
from app.spaces.partition import Marginal

pytestmark = pytest.mark.contract

MARGINAL = TableStrategy.of(Marginal.of((4, 3), {0: None, 1: None}))
#: How far neighbours are apart, in units of the grid.
MOVED = 5


@dataclass(frozen=True)
class Search:
    """One of the searches.

    Attributes:
        least: the scale that is found for a share at an order; None where none is offered.
        cost: the exact price of a scale at an order.
        below: the next smaller scale that is offered; None where there is none. Where the search is one of floats this
            is as much smaller as it may round up by.
    """

    least: Callable[[Decimal, Decimal], Fraction | None]
    cost: Callable[[Fraction, Decimal], Decimal]
    below: Callable[[Fraction], Fraction | None]


def digits(number: int, bits: int = 0, least: str = "0") -> Callable[[Fraction], Fraction | None]:
    """The next smaller decimal of so many digits, in units of 2^-bits; None from the least one on."""

    def below(scale: Fraction) -> Fraction | None:
        units = scale * (1 << bits)
        if units <= Fraction(least):
            return None
        exact = Decimal(units.numerator) / Decimal(units.denominator)
        step = Decimal(1).scaleb(exact.adjusted() - number + 1)
        finer = step if exact - step >= Decimal(1).scaleb(exact.adjusted()) else step / 10
        return (units - Fraction(finer)) / (1 << bits)

    return below


def law_cost(kind: str, bits: int) -> Callable[[Fraction, Decimal], Decimal]:
    def cost(scale: Fraction, order: Decimal) -> Decimal:
        event = event_of(kind, scale * (1 << bits), MOVED)  # type: ignore[arg-type]
        return renyi_cost(event, order)

    return cost


def affordable(kind: str, bits: int) -> Search:
    def least(share: Decimal, order: Decimal) -> Fraction | None:
        def cost(noise: Law) -> Decimal:
            return price_of(((answer(noise, MOVED, MOVED**2), 1),), order).renyi

        found = least_affordable(kind, bits, cost, share)  # type: ignore[arg-type]
        return None if found is None else Fraction(found.scale)

    return Search(least, law_cost(kind, bits), digits(4, bits, "0.1"))


def flips() -> Search:
    def least(share: Decimal, order: Decimal) -> Fraction | None:
        def cost(noise: Law) -> Decimal:
            assert isinstance(noise, BitFlips)
            return renyi_cost(RandomisedResponse(noise.probability), order)

        found = least_affordable("flips", 0, cost, share)
        return None if found is None else Fraction(found.scale)

    def below(probability: Fraction) -> Fraction | None:
        return probability - Fraction(1, 1 << 53) if probability > Fraction(1, 1 << 53) else None

    return Search(least, lambda p, order: renyi_cost(RandomisedResponse(p), order), below)


def conditional(release: Release) -> Search:
    def cost(scale: Fraction, order: Decimal) -> Decimal:
        try:
            return renyi_cost(ConditionalRelease(scale, release), order)
        except InfiniteCost:
            return Decimal("Infinity")

    return Search(
        lambda share, order: Fraction(scale_for_cost(share, order, release)), cost, digits(15, least="0.015625")
    )


def direct(kind: str) -> Search:
    def least(share: Decimal, order: Decimal) -> Fraction | None:
        return _least_scale(kind, share, order, MOVED)

    def below(scale: Fraction) -> Fraction | None:
        return scale - Fraction(1, 1 << 16) if scale > Fraction(1, 1 << 16) else None

    return Search(least, law_cost(kind, 0), below)


def paying() -> Search:
    def least(share: Decimal, order: Decimal) -> Fraction | None:
        (buy,) = Paying("gaussian", share, order, MOVED).fitted([MARGINAL], [1.0])
        return Fraction(buy.added.scale)

    return Search(least, law_cost("gaussian", 0), digits(15, least="0.125"))


def in_floats() -> Search:
    """Of the laws the one that varies least; priced exactly afterwards."""
    kinds: dict[Fraction, str] = {}

    def least(share: Decimal, order: Decimal) -> Fraction | None:
        found = noise_on_grid(float(share), float(order), MOVED, MOVED**2, 3, pure=False)
        if found is None:
            return None
        kinds[Fraction(found.scale)] = found.kind
        return Fraction(found.scale)

    def cost(scale: Fraction, order: Decimal) -> Decimal:
        kind = kinds.get(scale) or kinds[min(kinds, key=lambda known: abs(known - scale))]
        return law_cost(kind, 3)(scale, order)

    def below(scale: Fraction) -> Fraction | None:
        # Scales are rounded up to four digits twice.
        return scale * Fraction("0.9979") if scale > Fraction(126, 8000) else None

    return Search(least, cost, below)


SEARCHES = {
    **{f"{kind}, prices, {bits} bits": affordable(kind, bits) for kind in ("laplace", "gaussian") for bits in (0, 10)},
    "flips": flips(),
    **{f"{release} hit": conditional(release) for release in ("single", "race")},
    **{f"{kind} question": direct(kind) for kind in ("laplace", "gaussian")},
    "measurements of a release": paying(),
    "least variance, in floats": in_floats(),
}

orders = st.decimals("1.1", 300, places=2)
shares = st.floats(-5, 1.2).map(lambda power: Decimal(f"{10**power:.12f}"))


@pytest.mark.slow
@pytest.mark.parametrize("name", SEARCHES)
@settings(max_examples=25)
@given(order=orders, share=shares)
def test_the_least_that_is_affordable(name: str, order: Decimal, share: Decimal) -> None:
    """Would catch a price above the share, by however little, and noise that is larger than it need be."""
    search = SEARCHES[name]
    found = search.least(share, order)
    assert found is not None
    assert search.cost(found, order) <= share
    less = search.below(found)
    assert less is None or search.cost(less, order) > share


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SEARCHES if "floats" not in name])
@settings(max_examples=15)
@given(order=orders, share=shares, more=st.integers(1, 1000))
def test_a_larger_share_never_buys_more_noise(name: str, order: Decimal, share: Decimal, more: int) -> None:
    """Would catch a search that begins in the wrong place and ends there."""
    found = [SEARCHES[name].least(each, order) for each in (share, share + share * more / 100)]
    assert found[0] is not None
    assert found[1] is not None
    assert found[1] <= found[0]


def test_a_share_of_next_to_nothing_buys_none() -> None:
    """Would catch a search without end, and the largest noise at a price above the share."""
    assert SEARCHES["gaussian, prices, 0 bits"].least(Decimal("1e-24"), Decimal(300)) is not None
    assert least_affordable("gaussian", 0, lambda noise: Decimal(1), Decimal("0.5")) is None
    assert least_affordable("laplace", 0, lambda noise: None, Decimal("0.5")) is None
    assert noise_on_grid(1e-300, 300.0, 1, 1, 0, pure=False) is None
