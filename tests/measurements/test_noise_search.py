"""The law and the scale that a share buys, against the exact prices of the ledger."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.measurements.noise import Noise, NoiseKind
from app.measurements.noise_search import LEAST_SCALE, cheapest_noise, laplace_cost, least_noise
from app.privacy.costs import DiscreteGaussianAnswer, DiscreteLaplaceAnswer, pure_cost, renyi_cost

pytestmark = pytest.mark.unit

#: What the grid takes off the variance of discrete Laplace noise at most: 1/(2 sinh(1/(2b))^2) is more than 2b^2 - 1/6.
GRID = 1 / 6
#: Scales are rounded up to four digits.
DIGITS = 1.0021

orders = st.decimals("1.1", 300, places=2)
shares = st.floats(-6, 1.5).map(lambda power: 10**power)


@st.composite
def parts(draw: st.DrawFn) -> tuple[list[int], int]:
    """By how much neighbours differ in each part, and the square of how much that is in all: cells that move by one
    each, or a number that moves by all at once.
    """
    sensitivity = draw(st.lists(st.one_of(st.integers(1, 5), st.integers(6, 4000)), min_size=1, max_size=3))
    return sensitivity, sum(sensitivity) if draw(st.booleans()) else sum(each**2 for each in sensitivity)


def price(kind: NoiseKind, scale: Decimal, order: Decimal, sensitivity: list[int], squared: int) -> Decimal:
    if kind == "gaussian":
        return renyi_cost(DiscreteGaussianAnswer(Fraction(scale), squared), order)
    return sum((renyi_cost(DiscreteLaplaceAnswer(Fraction(scale), by), order) for by in sensitivity), Decimal(0))


def cheapest(kind: NoiseKind, share: Decimal, order: Decimal, sensitivity: list[int], squared: int) -> Decimal:
    """The least scale that costs no more than a share, by bisection, to four digits and a half."""
    low, high = Decimal("0.001"), Decimal("1e14")
    while high / low > Decimal("1.00003"):
        middle = (low * high).sqrt()
        if price(kind, middle, order, sensitivity, squared) > share:
            low = middle
        else:
            high = middle
    return high


@pytest.mark.slow
@settings(max_examples=100)
@given(orders, shares, parts())
def test_a_share_buys_the_least_variance(order: Decimal, share: float, parts: tuple[list[int], int]) -> None:
    """What is bought costs no more than the share, and the other law has no lesser variance at that price, but for what
    the grid takes off. Would catch a scale that is rounded down, costs of parts that do not add up, and a choice by the
    scale.
    """
    sensitivity, squared = parts
    found = least_noise(share, float(order), sensitivity, float(squared), 1e12, pure=False)
    assert found is not None
    kind, scale = found
    held = Decimal(share)
    assert price(kind, scale, order, sensitivity, squared) <= held
    bought = Noise(kind, scale, 0)
    for law in ("laplace", "gaussian"):
        least = max(cheapest(law, held, order, sensitivity, squared), Decimal(LEAST_SCALE))  # type: ignore[arg-type]
        offered = Noise(law, least, 0)  # type: ignore[arg-type]
        assert bought.variance <= offered.variance * DIGITS + GRID


@given(shares, parts())
def test_pure_shares_buy_laplace_noise(share: float, parts: tuple[list[int], int]) -> None:
    """All of epsilon and no more. Would catch a part that is left out, and a scale that is rounded down."""
    found = least_noise(share, 30.0, parts[0], float(parts[1]), 1e12, pure=True)
    assert found is not None
    kind, scale = found
    assert kind == "laplace"
    costs = [pure_cost(DiscreteLaplaceAnswer(Fraction(scale), by)) for by in parts[0]]
    total = sum(each for each in costs if each is not None)
    assert total <= Decimal(share)
    assert float(total) >= share / DIGITS or scale < Decimal("0.126")


@settings(max_examples=100)
@given(orders, st.floats(-1, 6).map(lambda power: 10**power), st.integers(1, 3000))
def test_the_price_of_laplace_noise(order: Decimal, scale: float, sensitivity: int) -> None:
    """The floating-point price is the exact one, to the digits that scales are rounded up by. Would catch the price of
    continuous noise.
    """
    exact = float(renyi_cost(DiscreteLaplaceAnswer(Fraction(scale), sensitivity), order))
    # Of much noise the cost is the difference of far larger numbers.
    near = 1e-12 * (1 + sensitivity / scale) / (float(order) - 1)
    assert laplace_cost(scale, float(order), sensitivity) == pytest.approx(exact, rel=1e-9, abs=near)


@pytest.mark.parametrize("pure", [False, True])
def test_next_to_nothing_buys_nothing(pure: bool) -> None:
    """Would catch noise beyond the greatest scale, and noise for nothing."""
    assert least_noise(0.0, 30.0, [1], 1.0, 1e12, pure=pure) is None
    assert least_noise(-1.0, 30.0, [1], 1.0, 1e12, pure=pure) is None
    found = least_noise(1e-3, 30.0, [1], 1.0, 1e4, pure=pure)
    assert found is not None
    assert least_noise(1e-3, 30.0, [1], 1.0, 0.9 * float(found[1]), pure=pure) is None
    assert least_noise(1e-40, 30.0, [1], 1.0, 1e300, pure=pure) is None


@given(
    st.floats(0.5, 3).map(lambda power: 10**power),
    st.floats(-1, 1).map(lambda power: 10**power),
    st.sampled_from([0, 5]),
    st.sampled_from([("gaussian",), ("laplace",), ("gaussian", "laplace")]),
    st.floats(0.2, 5),
)
def test_the_cheapest_that_is_small_enough(
    most: float, off: float, bits: int, kinds: tuple[NoiseKind, ...], dearer: float
) -> None:
    """Against the scales at which the variances of both laws are what is allowed, wherever the search begins. Would
    catch a law that is dearer, noise that is too large, and noise that is smaller than it has to be by more than a few
    parts in a thousand.
    """

    def price(kind: NoiseKind, scale: float) -> float:
        return (dearer if kind == "laplace" else 1.0) / scale**2

    found = cheapest_noise(
        dict.fromkeys(kinds, most * off),
        lambda noise: noise.variance <= most**2,
        lambda noise: price(noise.kind, float(noise.scale)),
        bits,
    )
    # 1/(2 sinh(1/(2b))^2) is the variance of Laplace noise, in units of the grid.
    unit = 2.0**-bits
    largest = {"gaussian": most, "laplace": unit / (2 * math.asinh(unit / (math.sqrt(2) * most)))}
    assert found is not None
    assert found.variance <= most**2
    least = min(price(kind, largest[kind]) for kind in kinds)
    assert least * (1 - 1e-9) <= price(found.kind, float(found.scale)) <= least * 1.003


def test_noise_that_is_never_small_enough() -> None:
    """Would catch a search without end."""
    assert cheapest_noise({"gaussian": 7.0, "laplace": 1e-9}, lambda noise: False, lambda noise: noise.variance) is None


@given(st.floats(4, 12).map(lambda power: 10**power), orders, st.integers(1, 6))
def test_costs_of_large_noise_keep_their_digits(scale: float, order: Decimal, by: int) -> None:
    """Would catch a cost below nothing, which a budget pays for less than no times."""
    due = renyi_cost(DiscreteLaplaceAnswer(Fraction(scale), by), order)
    assert laplace_cost(scale, float(order), by) == pytest.approx(float(due), rel=1e-5, abs=2e-24)
