"""Strategies: what is released at once, what one record moves, and documents that say all of it."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.measurements.noise import Noise
from app.measurements.pieces import Counts, counts_of, pieces_of
from app.measurements.pricing import Adjacency
from app.measurements.record import Measurement, Purchase
from app.measurements.strategies.tables import Moment, Part, TableStrategy, shares
from app.privacy.costs import DiscreteGaussianAnswer, DiscreteLaplaceAnswer, renyi_cost
from app.spaces.dense import CountsTensor
from app.spaces.partition import Marginal, Partition
from app.spaces.records import RecordsTensor
from app.spaces.table import TableSpace
from tests.evidence.tables import measurement_of

pytestmark = pytest.mark.unit

SIZES = (9, 2, 5)
EVENS = Partition.of(np.arange(9) % 2)


def release(strategy: TableStrategy | None = None) -> Measurement[TableStrategy]:
    """Of three parts, unless another strategy is given: counts, first and second moments of the first attribute."""
    if strategy is None:
        strategy = TableStrategy(
            (
                Part(Marginal.of(SIZES, {1: None}), None, 7),
                Part(Marginal.of(SIZES, {1: None, 0: EVENS}), Moment(0, 9, 1), 3),
                Part(Marginal.of(SIZES, {}), Moment(0, 8, 2)),
            )
        )
    return Measurement(strategy, Noise("gaussian", Decimal("12.5"), 0), np.arange(strategy.cells) - 4)


#: Distances from both ends of the second attribute, and of one end more.
ENDS = TableStrategy(
    (
        Part(Marginal.of(SIZES, {1: None}), Moment(2, 4, 1, end="greatest"), 3),
        Part(Marginal.of(SIZES, {0: EVENS}), Moment(2, 4, 1, end="least"), 5),
        Part(Marginal.of(SIZES, {}), Moment(2, 5, 1, end="least"), 2),
    )
)


@pytest.mark.parametrize(
    "one", [release(), release(ENDS), release(TableStrategy.of(Marginal.of(SIZES, {0: EVENS, 2: None})))]
)
def test_a_document_and_back(one: Measurement[TableStrategy]) -> None:
    """Through JSON text, to equal contents. Would catch a field that is not written, or read as another."""
    back = Measurement.read(json.loads(json.dumps(one.document())))
    assert (back.strategy, back.noise) == (one.strategy, one.noise)
    assert np.array_equal(back.units, one.units)


def test_pieces_are_what_was_counted() -> None:
    """Would catch parts that are cut in the wrong place, and a multiplier that divides values and not their noise."""
    one = release()
    (_, counts), (first, sums), (second, squares) = pieces_of(one)
    assert (first, second) == (Moment(0, 9, 1), Moment(0, 8, 2))
    assert counts.values.tolist() == [-4 / 7, -3 / 7]
    assert sums.values.tolist() == [[-2 / 3, -1 / 3], [0.0, 1 / 3]]
    assert squares.values.tolist() == 2
    assert [m.variance for m in (counts, sums, squares)] == pytest.approx([12.5**2 / 49, 12.5**2 / 9, 12.5**2])


PLAIN = {"marginal": {"attributes": [0], "partitions": [None], "sizes": [9]}, "values": [0] * 9}
NOISE = {"kind": "laplace", "bits": 0, "scale": "3"}
PART = {"marginal": {"attributes": [], "partitions": [], "sizes": []}, "moment": None, "multiplier": 2}
FROM = {"axis": 0, "places": 9, "power": 1}
TIMES = {"axis": 1, "least": 0, "places": 2}


@pytest.mark.parametrize(
    "document",
    [
        PLAIN | {"values": [1, 2], "noise": NOISE},
        PLAIN | {"values": [0.5] * 9, "noise": NOISE},
        PLAIN | {"values": [2**70] * 9, "noise": NOISE},
        PLAIN | {"values": "x", "noise": NOISE},
        PLAIN | {"noise": NOISE | {"scale": "0"}},
        PLAIN | {"noise": NOISE | {"scale": "0.06"}},
        PLAIN | {"noise": NOISE | {"scale": "NaN"}},
        PLAIN | {"noise": NOISE | {"scale": "x"}},
        PLAIN | {"noise": NOISE | {"kind": "cauchy"}},
        PLAIN | {"noise": NOISE | {"bits": 62}},
        PLAIN | {"noise": {"kind": "laplace", "scale": "1"}},
        PLAIN | {"noise": NOISE, "marginal": {"attributes": [0], "sizes": [9], "partitions": [[0.5] * 9]}},
        PLAIN | {"noise": NOISE, "marginal": {"attributes": ["0"], "sizes": [9], "partitions": [None]}},
        PLAIN | {"noise": NOISE, "marginal": {"attributes": [0], "sizes": [9]}},
        {"values": [0], "noise": NOISE},
        {"values": [], "noise": NOISE, "strategy": []},
        {"values": [0], "noise": NOISE, "strategy": [PART | {"multiplier": 1}]},  # has a shorter form
        {"values": [0], "noise": NOISE, "strategy": [PART | {"multiplier": 0}]},
        {"values": [0], "noise": NOISE, "strategy": [PART | {"multiplier": True}]},
        {"values": [0], "noise": NOISE, "strategy": [PART | {"multiplier": 2**40}]},
        {"values": [0], "noise": NOISE, "strategy": [PART | {"moment": {"axis": 0, "places": 9}}]},
        {"values": [0], "noise": NOISE, "strategy": [PART | {"moment": {"axis": 0, "places": 9, "power": 3}}]},
        {"values": [0], "noise": NOISE, "strategy": [PART | {"moment": {"axis": 0, "places": 9.0, "power": 1}}]},
        {"values": [0], "noise": NOISE, "strategy": [PART | {"moment": FROM | {"end": "middle"}}]},
        {"values": [0], "noise": NOISE, "strategy": [PART | {"moment": FROM | {"end": None}}]},
        {"values": [0], "noise": NOISE, "strategy": [PART | {"moment": FROM | {"end": "least", "power": 2}}]},
        {"values": [0], "noise": NOISE, "strategy": [PART | {"moment": FROM | {"end": "least", "times": TIMES}}]},
        {"values": [0] * 129, "noise": NOISE, "strategy": [PART] * 129},
    ],
)
def test_what_is_no_document(document: dict[str, Any]) -> None:
    """Would catch numbers that are rounded silently, two forms of one thing, and errors other than the documented."""
    with pytest.raises(ValueError):
        Measurement.read(document)


def table(sizes: tuple[int, ...]) -> TableSpace:
    return TableSpace("table", sizes, tuple(f"x{a}" for a in range(len(sizes))), 100)


def test_a_strategy_is_of_one_table() -> None:
    """Would catch a moment of an attribute that is not there, or of one with other numbers."""
    release().strategy.check(table(SIZES))
    for sizes in [(9, 3, 5), (8, 2, 5), (9,), (10, 2, 5)]:
        with pytest.raises(ValueError):
            release().strategy.check(table(sizes))


@given(st.integers(2, 3000), st.sampled_from([1, 2]))
def test_weights_of_moments(places: int, power: Any) -> None:
    """Against their definition in fractions. Would catch a middle or an offset that makes some weight larger than is
    charged, and rounding that passes half a unit."""
    moment = Moment(0, places, power)
    h = max(moment.middle, places - 1 - moment.middle)
    for place, weight in enumerate(moment.weights.tolist()):
        u = place - moment.middle
        exact = Fraction(u) if power == 1 else Fraction(u * u - h * h // 2, 2**moment.shift)
        assert abs(weight - exact) <= Fraction(1, 2)
        assert abs(weight) <= moment.largest
    assert moment.largest <= (h if power == 1 else -(-h * h // 2) + 1)


@given(st.integers(2, 3000))
def test_distances_from_both_ends(places: int) -> None:
    """Would catch an end that is taken for the other, and distances that add up to more than is charged."""
    least, greatest = (Moment(0, places, 1, end=end) for end in ("least", "greatest"))  # type: ignore[arg-type]
    assert least.weights.tolist() == list(range(places))
    assert greatest.weights.tolist() == list(range(places))[::-1]
    assert least.largest == greatest.largest == places - 1
    assert (least.opposite, greatest.opposite) == (greatest, least)


def test_a_record_moves_distances_from_both_ends_together() -> None:
    """Of every record the moves of the parts, by the definition. What one term of the sensitivity stands for is what
    the two parts move by together; a third one of the attribute is charged by itself. Would catch parts that are taken
    together though both count from the same end, or of other numbers, and a multiplier that is left out."""
    moves = [(3 * (3 - k), 5 * k) if k < 4 else (0, 0) for k in range(5)]
    both, alone = ENDS.sensitivity
    assert both.absolute == max(a + b for a, b in moves) == 15
    assert both.squared == max(a * a + b * b for a, b in moves) == 225
    assert (alone.absolute, alone.squared) == (8, 64)


@given(st.integers(2, 40), st.integers(0, 10**6))
def test_squares_of_long_ranges_keep_their_weights_small(bits: int, seed: int) -> None:
    """Would catch sums that pass 64 bits."""
    places = min(2 + seed * 2 ** (bits - 20) if bits > 20 else 2 + seed, 1 << 20)
    assert Moment(0, int(places), 2).largest.bit_length() <= 27


def brute(strategy: TableStrategy, rows: np.ndarray) -> list[int]:
    """What is released without noise, record by record."""
    found = []
    for part in strategy.parts:
        own = part.marginal
        cells = np.zeros(own.shape, dtype=object)
        for row in rows:
            cell = tuple(int(own.partition(k).labels[row[a]]) for k, a in enumerate(own.attributes))
            weight = 1
            if part.moment is not None:
                place = int(row[part.moment.axis])
                weight = int(part.moment.weights[place]) if place < part.moment.places else 0
            cells[cell] += weight * part.multiplier
        found += [int(v) for v in np.asarray(cells).reshape(-1)]
    return found


@pytest.mark.parametrize("strategy", [release().strategy, ENDS])
@given(seed=st.integers(0, 10**6))
def test_exact_values(strategy: TableStrategy, seed: int) -> None:
    """From records and from counts, against a loop over records; and one record moves each part by no more than is
    charged. Would catch a moment summed along the wrong axis, a place without a value that weighs, and a multiplier
    that is left out."""
    rng = np.random.default_rng(seed)
    rows = np.stack([rng.integers(0, n, 30) for n in SIZES], axis=1)
    expected = brute(strategy, rows)
    columns = [rows[:, a].astype(np.uint8) for a in range(len(SIZES))]
    assert strategy.exact(None, RecordsTensor(columns, SIZES)).tolist() == expected
    counts = np.zeros(SIZES, np.int64)
    np.add.at(counts, tuple(rows.T), 1)
    assert strategy.exact(None, CountsTensor(counts)).tolist() == expected
    without, start = np.array(brute(strategy, rows[1:])), 0
    for part in strategy.parts:
        stop = start + part.cells
        sensitivity = np.abs(np.array(expected)[start:stop] - without[start:stop])
        assert sensitivity.sum() <= part.sensitivity.absolute
        assert (sensitivity**2).sum() <= part.sensitivity.squared
        start = stop


@pytest.mark.parametrize("gamma", [1, 3])
def test_prices_compose(gamma: int) -> None:
    """The price of parts is the sum of theirs. Would catch a part that is not charged, or charged without what it is
    multiplied by, or without the number of records of a person."""
    strategy, order = release().strategy, Decimal(20)
    sensitivity = [gamma * 7 * 1, gamma * 3 * 4, gamma * Moment(0, 8, 2).largest]
    pure = Purchase.at(strategy, Noise("laplace", Decimal(100), 0), Adjacency(gamma), order).price
    assert pure.pure is not None
    assert pure.pure >= Decimal(sum(sensitivity)) / 100
    assert float(pure.pure) == pytest.approx(sum(sensitivity) / 100)
    costs = [renyi_cost(DiscreteLaplaceAnswer(Fraction(100), d), order) for d in sensitivity]
    assert float(pure.renyi) == pytest.approx(float(sum(costs)))
    gaussian = Purchase.at(strategy, Noise("gaussian", Decimal(100), 0), Adjacency(gamma), order).price
    assert gaussian.pure is None
    squared = sum(d * d for d in sensitivity)
    assert gaussian.renyi >= renyi_cost(DiscreteGaussianAnswer(Fraction(100), squared), order)
    assert float(gaussian.renyi) == pytest.approx(20 * squared / (2 * 100**2))


@given(
    st.lists(st.integers(1, 2**30), min_size=1, max_size=4),
    st.lists(st.floats(0.01, 1), min_size=4, max_size=4),
)
def test_shares_of_a_price(largest: list[int], parts: list[float]) -> None:
    """Would catch multipliers that give parts other shares than were meant, by more than rounding takes."""
    parts = parts[: len(largest)]
    multipliers = shares(largest, parts)
    squared = [(m * most) ** 2 for m, most in zip(multipliers, largest, strict=True)]
    for got, wanted in zip(squared, parts, strict=True):
        assert got / sum(squared) == pytest.approx(wanted / sum(parts), rel=0.1)
    assert all(math.isfinite(m) and m >= 1 for m in multipliers)


def test_counts_of_one_marginal() -> None:
    """Would catch parts that are taken for a plain count."""
    counts = Counts(Marginal.of(SIZES, {1: None}), Noise("laplace", Decimal(2), 0), np.array([1, 2]))
    assert counts_of(measurement_of(counts)).values.tolist() == [1, 2]
    with pytest.raises(ValueError, match="counts alone"):
        counts_of(release())
