"""Quantiles that are drawn, as a strategy: scores by their definition, prices by the laws of neighbours, and ranges.

The oracle knows the records one by one. A block's score is how many records too few or too many lie below the numbers
in it, and the law of a draw is in proportion to exp(score/scale).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.measurements.noise import Noise
from app.measurements.pieces import Counts, counts_in
from app.measurements.pricing import Adjacency
from app.measurements.record import Measurement, Purchase
from app.measurements.strategies.drawn import MOST_BLOCKS, UNIT, DrawnQuantiles, most_blocks
from app.measurements.strategies.tables import TableStrategy
from app.privacy.costs import ExponentialChoice
from app.privacy.ledger import Amounts
from app.spaces.partition import Marginal, Partition
from tests.kit import noise as kit

pytestmark = pytest.mark.unit

ORDER = Decimal("3.5")
NOISE = Noise("laplace", Decimal(4), 0)
#: Two sexes and three regions, of which the last two are one; nine numbers and none.
SIZES = (2, 9 + 1, 3)
GROUPS = Marginal.of((2, 1, 3), {0: None, 2: Partition(np.array([0, 1, 1]))})


def strategy(**changes: Any) -> DrawnQuantiles:
    words: dict[str, Any] = {
        "groups": GROUPS,
        "axis": 1,
        "size": 10,
        "marks": (0, 1, 2, 4, 9),
        "blocks": 3,
        "places": 9,
        "levels": (250_000, 500_000),
        "scale": Decimal("1.7"),
        "near": (UNIT // 2, None, UNIT, 3),
        "most": 5,
    }
    return DrawnQuantiles.of_groups(**words | changes)


@dataclass
class Seen(kit.Noise):
    """No noise, and what it was asked to draw by."""

    asked: list[tuple[list[int], Fraction]] = field(default_factory=list)

    def choose(self, scores: Any, scale: Any) -> int:
        self.asked.append((scores.tolist(), scale))
        return super().choose(scores, scale)


def blocks_of(of: DrawnQuantiles) -> list[range]:
    """Between two marks so many blocks, or each number by itself where there are no more."""
    found = []
    for first, after in pairwise(of.marks):
        count = min(of.blocks, after - first)
        ends = [first + k * (after - first) // count for k in range(count + 1)]
        found += [range(a, b) for a, b in pairwise(ends)]
    return found


def laws(of: DrawnQuantiles, table: np.ndarray) -> list[np.ndarray]:
    """The law of each draw, by its definition, of records that are looked at one by one."""
    found = []
    for group in range(table.shape[0]):
        if of.near[group] is None:
            continue
        records = [place for place in range(of.places) for _ in range(table[group, place])]
        for level in of.levels:
            goal = Fraction(level, 10**6) * len(records)
            scores = []
            for block in blocks_of(of):
                before = sum(record < block.start for record in records)
                upto = sum(record < block.stop for record in records)
                scores.append(float(-max(before - goal, goal - upto, 0) / Fraction(of.scale)))
            weights = np.exp(np.array(scores) - max(scores))
            found.append(weights / weights.sum())
    return found


def drawn(of: DrawnQuantiles, table: np.ndarray) -> list[np.ndarray]:
    """The laws that the service asks for, from counts by blocks."""
    starts = [block.start for block in blocks_of(of)] + [of.places] * (table.shape[1] - of.places)
    seen = Seen()
    of.released(np.add.reduceat(table, starts, axis=1).reshape(-1), NOISE, seen)
    found = []
    for scores, scale in seen.asked:
        weights = np.exp((np.array(scores) - max(scores)) / float(scale))
        found.append(weights / weights.sum())
    return found


tables = st.lists(st.integers(0, 5), min_size=40, max_size=40).map(lambda cells: np.array(cells).reshape(4, 10))


@given(tables)
def test_draws_have_the_law_of_their_definition(table: np.ndarray) -> None:
    """Catches a score of the wrong side, blocks with another's records, and records without a number in the total."""
    for own, told in zip(laws(strategy(), table), drawn(strategy(), table), strict=True):
        assert own == pytest.approx(told, abs=1e-12)


def divergence(p: np.ndarray, q: np.ndarray) -> float:
    """At the ledger's order, of one draw."""
    order = float(ORDER)
    return math.log(float((p**order * q ** (1 - order)).sum())) / (order - 1)


def paid(of: DrawnQuantiles, gamma: int) -> tuple[float, float]:
    """What draws cost beside the counts, in both sums."""
    whole = Purchase.at(of, NOISE, Adjacency(gamma), ORDER).price
    counts = Purchase.at(TableStrategy.of(of.groups), NOISE, Adjacency(gamma), ORDER).price
    assert whole.pure is not None
    assert counts.pure is not None
    return float(whole.renyi - counts.renyi), float(whole.pure - counts.pure)


def told(of: DrawnQuantiles, table: np.ndarray, moved: list[tuple[int, int]]) -> tuple[float, float]:
    """What all draws tell of so many records more: the divergence, either way, and the largest logarithm of a ratio."""
    more = table.copy()
    for group, place in moved:
        more[group, place] += 1
    pairs = list(zip(drawn(of, table), drawn(of, more), strict=True))
    ways = (sum(divergence(p, q) for p, q in pairs), sum(divergence(q, p) for p, q in pairs))
    return max(ways), sum(float(np.abs(np.log(p / q)).max()) for p, q in pairs)


@given(tables, st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=3))
def test_a_units_records_tell_no_more_than_is_paid(table: np.ndarray, moved: list[tuple[int, int]]) -> None:
    """Of one record or several, of one group or more. Catches a price of one record for several, and of one level for
    two."""
    renyi, pure = told(strategy(), table, moved)
    charged = paid(strategy(), len(moved))
    assert renyi <= charged[0] + 1e-12
    assert pure <= charged[1] + 1e-12


def test_a_price_of_half_is_found() -> None:
    """Planted: draws are charged as if a record moved scores by half of what it does, and so half as much, and a
    quarter at the ledger's order. The first price is nearly met where all numbers between two are equally good, and a
    record more on one side makes them worse; the second one where as many get better as get worse."""
    words: dict[str, Any] = {"levels": (500_000,), "near": (1, None, None, None), "marks": tuple(range(10))}
    table = np.zeros((4, 10), np.int64)
    table[0, [0, 1, 8]] = 3, 3, 6
    of = strategy(scale=Decimal("0.5"), **words)
    pure, charged = told(of, table, [(0, 0)])[1], paid(of, 1)[1]
    assert charged / 2 < pure <= charged
    table[0] = 0
    table[0, [3, 8]] = 1
    of = strategy(scale=Decimal(20), **words)
    renyi, charged = told(of, table, [(0, 0)])[0], paid(of, 1)[0]
    assert 0.8 * charged < renyi <= charged


@pytest.mark.parametrize("gamma", [1, 3])
def test_the_price_is_that_of_counts_and_draws(gamma: int) -> None:
    """Levels compose, with what a record moves the score of each by; groups do not."""
    of = strategy()
    counts = Purchase.at(TableStrategy.of(of.groups), NOISE, Adjacency(gamma), ORDER).price
    first, second = (
        Amounts.of(ExponentialChoice(2 * gamma * Fraction(far, 4) / Fraction(of.scale)), ORDER) for far in (3, 2)
    )
    price = Purchase.at(of, NOISE, Adjacency(gamma), ORDER).price
    assert float(price.renyi) == pytest.approx(float(counts.renyi + first.renyi + second.renyi), abs=1e-20)


@given(tables, st.integers(0, 2**32 - 1))
@settings(max_examples=50)
def test_counts_are_those_of_ranges_around_what_was_drawn(table: np.ndarray, seed: int) -> None:
    """Released without noise but in the draws: every record is counted once, in a range of its own group; ranges begin
    at blocks, and no more of them than there may be; draws that cross are put in order. Catches ranges of another
    group, records that are lost between ranges, and those without a number among the others."""

    class Draws(kit.Noise):
        rng = np.random.default_rng(seed)

        def choose(self, scores: Any, scale: Any) -> int:
            return int(self.rng.integers(0, len(scores)))

    of = strategy()
    begins = [block.start for block in blocks_of(of)]
    exact = np.add.reduceat(table, [*begins, 9], axis=1).reshape(-1)
    made = Measurement(of, NOISE, of.released(exact, NOISE, Draws()))
    (counts,) = counts_in(made)
    assert counts.draws is not None
    assert counts.draws.levels == (0.25, 0.5)
    marginal = counts.marginal
    assert [marginal.partition(k).cells for k in (0, 2)] == [2, 2]
    own = marginal.partition(1)
    assert own.cells <= of.most + 1
    assert own.labels[9] == own.cells - 1
    assert set(own.members.tolist()) <= {*begins, 9}
    by_group = np.moveaxis(counts.values, 1, -1).reshape(4, -1)
    for group in range(4):
        for cell in range(own.cells):
            assert by_group[group, cell] == table[group, own.labels == cell].sum()
    places = [(block.start + block.stop - 1) // 2 for block in blocks_of(of)]
    assert np.isin(counts.draws.places[[0, 2, 3]], places).all()
    assert (counts.draws.places[1] == -1).all()
    assert (np.diff(counts.draws.places, axis=1) >= 0).all()
    again = Measurement.read(made.document())
    assert again.strategy == of
    assert again.document() == made.document()


def test_ranges_are_fine_around_what_was_drawn() -> None:
    """One group among a thousand numbers alike: ranges begin about where steps of half as much again lie, to both sides
    of the middle of what was drawn. Catches ranges around another place, and steps in another unit."""
    of = DrawnQuantiles.of_groups(
        Marginal.of((1,), {}),
        0,
        1000,
        tuple(range(0, 1001, 100)),
        100,
        places=1000,
        levels=(500_000,),
        scale=Decimal(1),
        near=(UNIT // 10,),
        most=32,
    )
    exact = np.zeros(1000, np.int64)
    exact[400] = 7
    (counts,) = counts_in(Measurement(of, NOISE, of.released(exact, NOISE, kit.Noise())))
    begins = counts.marginal.partition(0).members
    steps, expected = 10.0, []
    for k in range(20):
        expected += [400.5 - steps, 400.5 + steps]
        steps *= 1.5 if k < 4 else 2
    wanted = sorted(round(e) for e in expected if 0.5 < e < 999.5)
    assert len(begins) == len(wanted) + 1
    assert np.abs(begins[1:] - wanted).max() <= 2
    assert counts.draws is not None
    assert counts.draws.places.tolist() == [[400]]


@pytest.mark.parametrize(
    "changes",
    [
        {"marks": (0, 2, 2, 9)},
        {"marks": (1, 9)},
        {"marks": (0, 4)},
        {"marks": (0, 12)},
        {"blocks": 0},
        {"levels": ()},
        {"levels": (500_000, 250_000)},
        {"levels": (0,)},
        {"levels": (10**6,)},
        {"levels": (0.5,)},
        {"scale": Decimal(0)},
        {"scale": Decimal("NaN")},
        {"scale": Decimal("1e30")},
        {"scale": 1.7},
        {"near": (1, 1, 1)},
        {"near": (None, None, None, None)},
        {"near": (0, 1, 1, 1)},
        {"near": (True, 1, 1, 1)},
        {"near": (1 << 40, 1, 1, 1)},
        {"most": 1},
        {"most": 1000},
        {"places": 8},
        {"axis": 0},
        {"size": 12},
        {"marks": (0, 2 * 10**12, 9), "blocks": 2 * 10**12},
        {"marks": (9,)},
        {"groups": Marginal.of((600,), {0: None}), "near": (1,) * 600},
    ],
)
def test_what_is_none_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        strategy(**changes)


def test_too_many_blocks_are_refused() -> None:
    """And no more are looked for than are allowed: all numbers where they are few enough."""
    marks, groups = (0, 100, 100_000), 4
    blocks = most_blocks(marks, groups, 1)
    words = {"groups": Marginal.of((4,), {0: None}), "axis": 1, "size": 100_000, "marks": marks, "places": 100_000}
    rest = {"levels": (1,), "scale": Decimal(1), "near": (1,) * 4, "most": 2}
    fits = DrawnQuantiles.of_groups(**words, blocks=blocks, **rest)
    assert MOST_BLOCKS - 2 * groups <= fits.parts[0].cells <= MOST_BLOCKS
    with pytest.raises(ValueError, match="blocks"):
        DrawnQuantiles.of_groups(**words, blocks=blocks + 100, **rest)
    with pytest.raises(ValueError, match="for all levels"):
        DrawnQuantiles.of_groups(**words, blocks=blocks, **rest | {"levels": (1, 2, 3, 4, 5)})
    fits = DrawnQuantiles.of_groups(**words, blocks=most_blocks(marks, groups, 5), **rest | {"levels": (1, 2, 3, 4, 5)})
    assert 5 * fits.parts[0].marginal.cells <= 4 * MOST_BLOCKS
    assert most_blocks((0, 7, 9), 4, 1) == 7
    assert most_blocks((0, 1000), MOST_BLOCKS, 1) == 0


def planted(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    of = strategy(most=20)
    exact = np.ones(4 * (len(blocks_of(of)) + 1), np.int64)
    document = Measurement(of, NOISE, of.released(exact, NOISE, kit.Noise())).document()
    change(document)
    return document


def other_place(document: dict[str, Any]) -> None:
    document["values"][0] = 100


def between_blocks(document: dict[str, Any]) -> None:
    document["values"][0] = 6


def of_nobody(document: dict[str, Any]) -> None:
    document["values"][2] = 0


def out_of_order(document: dict[str, Any]) -> None:
    """The draws of two levels changed places, which cuts the same ranges."""
    document["values"][:2] = [8, 0]


def one_range_more(document: dict[str, Any]) -> None:
    document["values"][-1] = 1


def fewer(document: dict[str, Any]) -> None:
    document["values"].pop()


def other_words(document: dict[str, Any]) -> None:
    document["quantiles"]["scale"] = "1.70"


def much(document: dict[str, Any]) -> None:
    document["quantiles"]["size"] = 1 << 60


def falling(document: dict[str, Any]) -> None:
    """Blocks that would take terabytes."""
    document["quantiles"] |= {"marks": [0, 2 * 10**12, 9], "blocks": 2 * 10**12}


def words(document: dict[str, Any]) -> None:
    document["quantiles"]["scale"] = "half"


@pytest.mark.parametrize(
    "change",
    [
        other_place,
        between_blocks,
        of_nobody,
        out_of_order,
        one_range_more,
        fewer,
        other_words,
        much,
        falling,
        words,
    ],
)
def test_documents_of_no_measurement_are_refused(change: Callable[[dict[str, Any]], None]) -> None:
    """Catches a draw that is no block's middle, or one for a group that had none, which would decide the ranges."""
    with pytest.raises(ValueError, match=r"."):
        Measurement.read(planted(change))
    Measurement.read(planted(lambda document: None))


def test_sums_stay_within_62_bits() -> None:
    """Scores are records times a million."""
    assert strategy().is_exact(1 << 41)
    assert not strategy().is_exact(1 << 43)


def test_draws_serve_no_other_strategy() -> None:
    """Counts that were bought in any other way have none."""
    counts = Counts(GROUPS, NOISE, np.zeros(GROUPS.shape, np.int64))
    assert counts.draws is None
    assert replace(counts, multiplier=2).draws is None
