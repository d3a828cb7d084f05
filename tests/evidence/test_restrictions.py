"""Measurements as seen from a few attributes, against explicit matrices over all cells."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.estimation.tables.restrictions import Restriction, values_on
from app.measurements.pieces import Counts
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Cells, Product
from tests.evidence.tables import matrix, measured

pytestmark = pytest.mark.unit

SIZES = (3, 4, 5)
LABELS = {0: [[0, 1, 0]], 1: [[0, 0, 1, 1], [0, 1, 1, 1]], 2: [[0, 0, 1, 2, 2], [0, 1, 0, 1, 0]]}


@st.composite
def measurements(draw: st.DrawFn) -> list[Counts]:
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    taken = []
    for _ in range(draw(st.integers(1, 5))):
        chosen = draw(st.lists(st.sampled_from(range(3)), unique=True))
        cells = {a: draw(st.sampled_from([None, *(Partition.of(np.array(p)) for p in LABELS[a])])) for a in chosen}
        marginal = Marginal.of(SIZES, cells)
        taken.append(measured(marginal, draw(st.sampled_from([1.0, 2.0])), rng.uniform(0, 9, marginal.shape)))
    return taken


@given(measurements(), st.lists(st.sampled_from(range(3)), unique=True, min_size=1).map(sorted), st.integers(0, 4))
def test_restricted_to_some_attributes(taken: list[Counts], attributes: list[int], cut: int) -> None:
    """Each restricted value is the precision-weighted average of sums over what lies outside, taken in at once or in
    two parts. Would catch sums whose variance is that of one cell, and measurements taken in twice or not at all."""
    restriction = Restriction(attributes)
    restriction.take(taken[:cut])
    restriction.take(taken)
    expected: dict[Marginal, list[tuple[np.ndarray, float]]] = {}
    for m in taken:
        inside = m.marginal.onto(frozenset(attributes))
        if inside.attributes:
            # Counts of the finer marginal's cells taken to the coarser one's: both are rows over all cells.
            rows, fine = matrix(SIZES, inside), matrix(SIZES, m.marginal)
            onto = (rows @ fine.T > 0).astype(float)
            variance = m.variance * onto.sum(axis=1)
            assert (variance == variance[0]).all()
            expected.setdefault(inside, []).append((onto @ m.values.reshape(-1), float(variance[0])))
    assert [known.marginal for known in restriction.known] == list(expected)
    for known in restriction.known:
        told = expected[known.marginal]
        precision = sum(1 / v for _, v in told)
        assert known.variance == pytest.approx(1 / precision)
        assert known.values.reshape(-1) == pytest.approx(sum(y / v for y, v in told) / precision)
    several = [k.variance for k in restriction.known if len(k.marginal.attributes) > 1]
    every = several or [k.variance for k in restriction.known] or [1.0]
    assert restriction.strength() == pytest.approx(math.prod(v**-0.5 for v in every) ** (1 / len(every)))


@pytest.mark.slow
@given(measurements(), st.data())
def test_in_terms_of_any_cells(taken: list[Counts], data: st.DataObject) -> None:
    """Values merged until each is the count of whole cells of the fit: that is so for every count vector, merged as
    little as possible. Would catch cells that straddle, and variances that are not summed."""
    attributes = (0, 1, 2)
    cells = [
        Partition.of(np.array(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)), dtype=np.int64))
        for n in SIZES
    ]
    restriction = Restriction(attributes)
    restriction.take(taken)
    fitted = np.stack([np.ravel(m) for m in cell_rows(cells)])
    for known in restriction.known:
        found = values_on(known, attributes, cells)
        own = matrix(SIZES, known.marginal)
        # Values that share a cell of the fit are one, along each attribute by itself.
        if found is None:
            assert all(
                joined(cells[a], known.marginal.partition(k)) == 1 for k, a in enumerate(known.marginal.attributes)
            )
            continue
        counted = np.eye(len(found.values))[:, found.labels] @ fitted
        merged = (counted @ own.T > 0).astype(float)
        assert np.array_equal(merged @ own, counted)
        assert found.values == pytest.approx(merged @ known.values.reshape(-1))
        assert found.variances == pytest.approx(known.variance * merged.sum(axis=1))
        assert len(found.values) == math.prod(
            joined(cells[a], known.marginal.partition(k)) for k, a in enumerate(known.marginal.attributes)
        )


def cell_rows(cells: list[Partition]) -> list[np.ndarray]:
    """For each cell of a fit the 0/1 array of the values in it."""
    rows = []
    for place in np.ndindex(*(p.cells for p in cells)):
        row = np.ones(())
        for c, p in zip(place, cells, strict=True):
            row = row[..., None] * (p.labels == c)
        rows.append(row)
    return rows


def joined(one: Partition, other: Partition) -> int:
    """How many groups are left when values that share a cell of either are put together: a slow search."""
    left, groups = set(range(one.size)), 0
    while left:
        groups += 1
        reached = {left.pop()}
        while True:
            more = {
                v for v in left for r in reached if one.labels[v] == one.labels[r] or other.labels[v] == other.labels[r]
            }
            if not more:
                break
            reached |= more
            left -= more
    return groups


def half(size: int) -> np.ndarray:
    return (np.arange(size) < size // 2).astype(float)


def test_what_is_told_apart() -> None:
    """Values of a hundred are merged unless a question or a measurement of several attributes tells them apart."""
    sizes = (100, 100, 100)
    question = Product.over({a: half(100) for a in range(3)})
    restriction = Restriction((0, 1, 2))
    rng = np.random.default_rng(0)
    thirds = Partition.of(np.arange(100) // 34)
    taken = [measured(Marginal.of(sizes, {a: None}), 5.0, rng.normal(10, 5, 100)) for a in range(3)]
    taken.append(measured(Marginal.of(sizes, {0: thirds, 1: thirds}), 5.0, np.zeros((3, 3))))
    restriction.take(taken)
    singles = {a: (Partition.singles(100), 25.0) for a in range(3)}
    # 0..33, 34..49, 50..67, 68..99
    assert [p.cells for p in restriction.cells(question, singles, 1 << 14)] == [4, 4, 2]
    # A division of one attribute alone counts where it is known better than the sums of single values.
    halves = Partition.of(np.arange(100) % 2)
    for sigma, cells in ((9.0, 4), (11.0, 2)):
        other = Restriction((0, 2))
        other.take([*taken, measured(Marginal.of(sizes, {2: halves}), sigma, np.zeros(2))])
        told = other.cells(Product.over({0: half(100), 2: half(100)}), singles, 1 << 14)
        assert told[1].cells == cells
    # Where values are counted in cells at first these tell nothing apart either, and finer ones do.
    tenths = Partition.of(np.arange(100) // 10)
    for begins, cells in ((tenths, 2), (halves, 11)):
        other = Restriction((0, 2))
        other.take([measured(Marginal.of(sizes, {2: tenths}), 3.0, np.zeros(10))])
        told = other.cells(
            Product.over({0: half(100), 2: half(100) + (np.arange(100) < 5)}), {0: None, 2: (begins, 9.0)}, 1 << 14
        )
        assert told[1].cells == (3 if cells == 2 else cells)
    # Alone an attribute has all that it was measured in.
    alone = Restriction((0,))
    alone.take(taken)
    assert alone.cells(Product.over({0: half(100)}), singles, 1 << 14)[0].cells == 100


def test_no_more_cells_than_are_allowed() -> None:
    """Beyond the limit what is known best tells values apart first, and the question's own cells are always kept."""
    sizes = (100, 100, 100)
    restriction = Restriction((0, 1, 2))
    thirds = Partition.of(np.arange(100) // 34)
    taken = [
        measured(Marginal.of(sizes, {0: None, 1: None}), 5.0, np.zeros((100, 100))),
        measured(Marginal.of(sizes, {1: None, 2: thirds}), 5.0, np.zeros((100, 3))),
    ]
    restriction.take(taken)
    question = Product.over({a: half(100) for a in range(3)})
    singles = dict.fromkeys(range(3))
    for most, cells in (
        (40_000, [100, 100, 4]),
        (39_999, [100, 100, 2]),
        (19_999, [2, 100, 4]),
        (799, [2, 2, 2]),
        (1, [2, 2, 2]),
    ):
        assert [p.cells for p in restriction.cells(question, singles, most)] == cells
    every = Cells(Marginal.of(sizes, dict.fromkeys(range(3))))
    assert [p.cells for p in restriction.cells(every, singles, 1)] == [100, 100, 100]
