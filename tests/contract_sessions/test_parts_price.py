"""What a measurement of several parts costs, against the divergence itself.

The joint law of everything that is released is written out for small strategies and noise: each value of each part with
its probability, on both of two neighbouring tables, at whatever record they differ in. The Renyi divergence and the
largest ratio are then sums over all outcomes, and what the service charges must not lie below them. For Gaussian noise
over long ranges the oracle is dp-accounting.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.rdp import rdp_privacy_accountant

from app.measurements.noise import Noise, NoiseKind
from app.measurements.pricing import Adjacency
from app.measurements.record import Purchase
from app.measurements.rows import Rows
from app.measurements.strategies.hierarchy import Hierarchy
from app.measurements.strategies.tables import Moment, Part, TableStrategy
from app.spaces.dense import CountsTensor
from app.spaces.partition import Marginal, Partition

pytestmark = [pytest.mark.unit, pytest.mark.slow]

#: An attribute of two values, and one of three numbers and a place for records without one.
SIZES = (2, 4)
ALL, SEXES = Marginal.of(SIZES, {}), Marginal.of(SIZES, {0: None})
FIRST, SECOND = Moment(1, 3, 1), Moment(1, 3, 2)
LEAST, GREATEST = Moment(1, 3, 1, end="least"), Moment(1, 3, 1, end="greatest")
HALVES = Partition.of(np.array([0, 1, 1, 0]))
#: The number and the sum beside each other; moments by group and the count of all; two moments and no count; a tree;
#: distances from both ends, by group and beside a square; and from one end twice.
STRATEGIES = [
    TableStrategy((Part(ALL, None, 2), Part(ALL, FIRST, 3))),
    TableStrategy((Part(SEXES, FIRST, 2), Part(ALL))),
    TableStrategy((Part(ALL, FIRST, 1), Part(ALL, SECOND, 2))),
    Hierarchy((Part(Marginal.of(SIZES, {1: HALVES}), multiplier=2), Part(Marginal.of(SIZES, {1: None}), multiplier=3))),
    TableStrategy((Part(SEXES, LEAST, 2), Part(SEXES, GREATEST, 2))),
    TableStrategy((Part(ALL, GREATEST, 2), Part(ALL, SECOND), Part(SEXES, LEAST, 3))),
    TableStrategy((Part(SEXES, LEAST), Part(ALL, LEAST, 2))),
]
#: Contrasts and rows, which a record moves in several values at once.
COMBINED = [
    TableStrategy((Part(Marginal.of(SIZES, {1: None}), residual=True), Part(SEXES, FIRST, 2))),
    TableStrategy((Part(SEXES, None, 2, rows=Rows.of(np.array([[1, 2], [0, -3], [1, 1]]))),)),
]
TABLE = np.array([[2, 1, 3, 1], [0, 2, 1, 1]])
ORDERS = ("1.3", "4", "17")


@cache
def law(kind: NoiseKind, scale: int) -> dict[int, mpmath.mpf]:
    """Discrete noise as it is defined, out to where nothing is left of it in 30 digits."""
    reach = 90 * scale if kind == "laplace" else 30 * scale
    weights = {
        n: mpmath.exp(-mpmath.mpf(abs(n)) / scale if kind == "laplace" else -mpmath.mpf(n * n) / (2 * scale * scale))
        for n in range(-reach, reach + 1)
    }
    whole = mpmath.fsum(weights.values())
    return {n: weight / whole for n, weight in weights.items()}


def neighbours(gamma: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The table, and it with so many equal records more; both ways round."""
    found = []
    for cell in itertools.product(*map(range, SIZES)):
        more = TABLE.copy()
        more[cell] += gamma
        found += [(TABLE, more), (more, TABLE)]
    return found


def sensitivity(strategy: TableStrategy, first: np.ndarray, second: np.ndarray) -> list[int]:
    """By how much each released value moves, as the service counts: the only thing that is asked of it here."""
    both = [strategy.exact(None, CountsTensor(table)) for table in (first, second)]
    return [int(d) for d in both[1] - both[0] if d]


def divergence(kind: NoiseKind, scale: int, shifts: Sequence[int], order: mpmath.mpf) -> mpmath.mpf:
    """Of the joint law: noise is drawn for each value by itself, so the sum over all outcomes is a product of sums."""
    return mpmath.log(mpmath.fprod(moment(kind, scale, shift, order) for shift in shifts)) / (order - 1)


@cache
def moment(kind: NoiseKind, scale: int, shift: int, order: mpmath.mpf) -> mpmath.mpf:
    """What one value that is shifted adds to the joint law as a factor: the sum over all that it may be.

    Where the shifted noise would reach beyond the table its ratio is that of the definition, and its weight nothing.
    """
    noise = law(kind, scale)
    return mpmath.fsum(noise[n] ** order * noise[n - shift] ** (1 - order) for n in noise if n - shift in noise)


def largest_ratio(noise: dict[int, mpmath.mpf], shifts: list[int]) -> mpmath.mpf:
    """The logarithm of the largest ratio of the joint law's probabilities."""
    return mpmath.fsum(
        mpmath.log(max(noise[n] / noise[n - shift] for n in range(-40, 41) if n - shift in noise)) for shift in shifts
    )


@mpmath.workdps(40)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("gamma", [1, 2])
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_the_price_is_no_less_than_the_joint_divergence(strategy: TableStrategy, gamma: int, kind: NoiseKind) -> None:
    """At every pair of neighbours, and at the worst of them it is that, to a part in a thousand. Catches a part that is
    not charged, one that is charged as a count, a multiplier left out, and a price far above what is lost; distances
    from both ends that are charged twice, and from one end that are charged once."""
    scale = 7
    # Many neighbours differ by the same shifts: their joint laws are one.
    shifts = {tuple(sensitivity(strategy, *pair)) for pair in neighbours(gamma)}
    for name in ORDERS:
        order = Decimal(name)
        price = Purchase.at(strategy, Noise(kind, Decimal(scale), 0), Adjacency(gamma), order).price
        worst = max(divergence(kind, scale, shifted, mpmath.mpf(name)) for shifted in shifts)
        assert worst <= mpmath.mpf(str(price.renyi))
        assert worst >= mpmath.mpf(str(price.renyi)) * (1 - mpmath.mpf("1e-3"))


@mpmath.workdps(40)
@pytest.mark.parametrize("strategy", COMBINED)
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_the_price_of_combinations_is_no_less_than_the_joint_divergence(
    strategy: TableStrategy, kind: NoiseKind
) -> None:
    """With Gaussian noise it is that, to a part in a thousand; with Laplace noise it is that of all in one value, which
    is more. Catches a norm in the place of another, and one over rows in the place of columns."""
    order = Decimal(4)
    price = mpmath.mpf(str(Purchase.at(strategy, Noise(kind, Decimal(9), 0), Adjacency(2), order).price.renyi))
    worst = max(divergence(kind, 9, sensitivity(strategy, *pair), mpmath.mpf(4)) for pair in neighbours(2))
    assert worst <= price
    assert worst >= price * (1 - mpmath.mpf("1e-3") if kind == "gaussian" else mpmath.mpf("0.3"))


@mpmath.workdps(40)
@pytest.mark.parametrize("strategy", STRATEGIES + COMBINED)
@pytest.mark.parametrize("gamma", [1, 2])
def test_the_pure_price_is_the_largest_ratio(strategy: TableStrategy, gamma: int) -> None:
    """Catches the largest epsilon of all parts in the place of their sum."""
    noise = law("laplace", 7)
    price = Purchase.at(strategy, Noise("laplace", Decimal(7), 0), Adjacency(gamma), Decimal(2)).price.pure
    assert price is not None
    worst = max(largest_ratio(noise, sensitivity(strategy, *pair)) for pair in neighbours(gamma))
    assert 0 <= mpmath.mpf(str(price)) - worst < mpmath.mpf("1e-20")


@mpmath.workdps(40)
@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (lambda sensitivity: sensitivity[:1], "gaussian"),
        (lambda sensitivity: [max(sensitivity)], "laplace"),
        (lambda sensitivity: [1 for _ in sensitivity], "gaussian"),
        (lambda sensitivity: [by / 2 for by in sensitivity], "laplace"),
    ],
    ids=["a part for nothing", "the largest part alone", "every part as a count", "one record of two"],
)
def test_a_price_that_is_too_low_is_found(fault: Any, kind: NoiseKind) -> None:
    """The same search: with any of these prices some neighbours lose more than was charged."""
    strategy, gamma, order, scale = STRATEGIES[0], 2, Decimal(4), 7
    charged = fault([gamma * 2, gamma * 3])
    if kind == "gaussian":
        price = mpmath.mpf(str(order)) * sum(by**2 for by in charged) / (2 * scale**2)
    else:
        price = mpmath.fsum(divergence(kind, scale, [round(by)], mpmath.mpf(4)) for by in charged)
    worst = max(divergence(kind, scale, sensitivity(strategy, *pair), mpmath.mpf(4)) for pair in neighbours(gamma))
    assert worst > price


@pytest.mark.parametrize("gamma", [1, 5])
@pytest.mark.parametrize("places", [81, 5001, 1 << 20])
def test_long_ranges_against_dp_accounting(places: int, gamma: int) -> None:
    """Gaussian noise on a count and two moments of ages, incomes, and of the longest attribute: three releases, each of
    which dp-accounting composes. Catches weights whose largest is not what a record weighs."""
    sizes = (places,)
    nothing = Marginal.of(sizes, {})
    parts = (Part(nothing, None, 1000), Part(nothing, Moment(0, places, 1), 16), Part(nothing, Moment(0, places, 2)))
    sigma, order = Decimal(10**12), 8
    accountant = rdp_privacy_accountant.RdpAccountant([float(order)])
    for part in parts:
        # What the place of a record weighs, by the definition of the moments, for every place.
        weighed = [1]
        if part.moment is not None:
            steps = np.arange(places, dtype=object) - (places - 1) // 2
            h = max(abs(steps[0]), abs(steps[-1]))
            weights = steps if part.moment.power == 1 else steps * steps - h * h // 2
            weighed = [max(abs(w) for w in weights) / 2**part.moment.shift + Fraction(part.moment.shift > 0, 2)]
        most = float(part.multiplier * weighed[0] * gamma)
        accountant.compose(GaussianDpEvent(float(sigma) / most))
    price = Purchase.at(TableStrategy(parts), Noise("gaussian", sigma, 0), Adjacency(gamma), Decimal(order)).price.renyi
    assert float(price) == pytest.approx(float(accountant._rdp[0]), rel=1e-6)
