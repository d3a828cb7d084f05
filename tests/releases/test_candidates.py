"""What rounds choose from: errors as whole numbers, against a table that is written out cell by cell."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.measurements.strategies.tables import TableStrategy
from app.releases.candidates import BITS, Candidates, merged
from app.releases.workloads import Marginals, Ranges, Sums, TableWorkload
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Cells, Product

pytestmark = pytest.mark.unit

SIZES = (2, 3, 4)
UNIT = 2**BITS


def marginals() -> Marginals:
    """All of two attributes, the last one in two cells of two values where it stands with the first."""
    halves = Partition.of(np.array([0, 0, 1, 1]))
    return Marginals(
        (
            Marginal.of(SIZES, {0: None, 1: None}),
            Marginal.of(SIZES, {0: None, 2: halves}),
            Marginal.of(SIZES, {1: None, 2: None}),
        )
    )


def sums() -> Sums:
    """A predicate, a query with real weights of either sign, the number of records, and a whole marginal."""
    return Sums(
        (
            Product.over({0: np.array([0.0, 1.0]), 2: np.array([1.0, 0.0, 0.0, 1.0])}),
            Product.over({1: np.array([-1.0, 0.3, 0.25])}),
            Product.over({}),
            Cells(Marginal.of(SIZES, {2: None})),
        )
    )


def ranges() -> Ranges:
    return Ranges(2, Partition.singles(4))


def written_out(workload: TableWorkload) -> list[list[np.ndarray]]:
    """For each candidate its weights on all cells, or of a whole marginal those of all its cells."""
    shape = np.indices(SIZES)
    if isinstance(workload, Ranges):
        found = []
        for first, last in itertools.combinations(range(5), 2):
            if last - first < 4:
                found.append([((shape[2] >= first) & (shape[2] < last)).astype(float)])
        return found
    found = []
    for question in workload.questions:
        if isinstance(question, Product):
            weights = np.full(SIZES, question.scale)
            for attribute, vector in zip(question.attributes, question.vectors, strict=True):
                weights = weights * np.rint(vector * UNIT)[shape[attribute]] / UNIT
            if question.attributes:
                found.append([weights])
            continue
        assert isinstance(question, Cells)
        own = question.marginal
        labels = [own.partition(k).labels[shape[a]] for k, a in enumerate(own.attributes)]
        found.append(
            [
                np.all([each == place for each, place in zip(labels, cell, strict=True)], axis=0).astype(float)
                for cell in np.ndindex(own.shape)
            ]
        )
    return found


def scores(workload: TableWorkload, table: Any, near: Any, deviation: float = 0.0) -> np.ndarray:
    candidates = Candidates.of(workload, SIZES)
    counts = [_of(table, family.marginal).astype(np.int64) for family in candidates.families]
    return candidates.scores(counts, lambda marginal: _of(near, marginal).astype(float), deviation)


def _of(table: Any, marginal: Marginal) -> Any:
    return merged(table.sum(axis=tuple(a for a in range(3) if a not in marginal.attributes)), marginal)


WORKLOADS = [marginals, sums, ranges]


@pytest.mark.parametrize("make", WORKLOADS)
def test_scores_are_the_errors_of_the_candidates(make: Any) -> None:
    """Against sums over all cells, each with its weight. Would catch cells that are merged wrongly, weights in another
    unit, candidates in another order, and ranges with wrong ends. What a hypothesis' values are rounded by is half of a
    unit each.
    """
    rng = np.random.default_rng(0)
    table, near = rng.integers(0, 50, SIZES), rng.random(SIZES) * 50
    found = scores(make(), table, near)
    expected = [sum(abs(((table - near) * w).sum()) for w in cells) for cells in written_out(make())]
    rounding = [len(cells) for cells in written_out(make())]
    assert len(found) == len(expected)
    assert np.all(np.abs(found / UNIT - expected) <= np.array(rounding) / UNIT)


@pytest.mark.slow
@pytest.mark.parametrize("make", WORKLOADS)
@settings(max_examples=40)
@given(data=st.data())
def test_a_record_moves_a_score_by_no_more_than_is_paid_for(make: Any, data: st.DataObject) -> None:
    """One record more, anywhere, whatever the hypothesis. Would catch a sensitivity that is too small: the privacy of a
    choice rests on it.
    """
    table = np.array(data.draw(st.lists(st.integers(0, 5), min_size=24, max_size=24))).reshape(SIZES)
    near = np.array(data.draw(st.lists(st.floats(-9, 9), min_size=24, max_size=24))).reshape(SIZES)
    cell = data.draw(st.integers(0, 23))
    more = table.copy()
    more.reshape(-1)[cell] += 1
    moved = np.abs(scores(make(), more, near, 3.7) - scores(make(), table, near, 3.7))
    assert moved.max() <= Candidates.of(make(), SIZES).largest


@pytest.mark.parametrize("make", WORKLOADS)
def test_what_is_paid_for_is_attained(make: Any) -> None:
    """Would catch a sensitivity that is larger than it need be."""
    candidates = Candidates.of(make(), SIZES)
    table, near = np.zeros(SIZES, np.int64), np.zeros(SIZES)
    most = 0
    for cell in range(24):
        more = table.copy()
        more.reshape(-1)[cell] += 1
        most = max(most, int(np.abs(scores(make(), more, near) - scores(make(), table, near)).max()))
    assert most == candidates.largest == UNIT


def test_what_noise_leaves_is_taken_off() -> None:
    """A whole marginal loses the mean magnitude of normal noise a cell, a sum that of its weighted noise. Would catch
    marginals of many cells that are chosen for being large.
    """
    table = np.zeros(SIZES, np.int64)
    mean = math.sqrt(2 / math.pi)
    found = scores(sums(), table, np.zeros(SIZES), 5.0)
    weights = [np.ones(4), np.array([-1.0, 0.3, 0.25])]  # of the cells that the predicate and the query tell apart
    cells = [mean * 5 * math.sqrt(float((w**2).sum())) for w in (weights[0][:1], weights[1])]
    assert found == pytest.approx([-cells[0] * UNIT, -cells[1] * UNIT, -mean * 5 * 4 * UNIT], abs=2)


@pytest.mark.parametrize("make", WORKLOADS)
def test_each_candidate_owns_its_strategy(make: Any) -> None:
    """Would catch an audit that refuses what an honest round measures, and one that accepts whatever is measured."""
    candidates = Candidates.of(make(), SIZES)
    for number in range(candidates.number):
        assert candidates.owns(candidates.strategy(number))
    assert candidates.number == len(written_out(make()))
    strangers = [
        TableStrategy.of(Marginal.of(SIZES, {0: None})),
        TableStrategy.of(Marginal.of(SIZES, {1: Partition.of(np.array([0, 1, 1]))})),
        TableStrategy.of(Marginal.of(SIZES, {0: None, 1: None, 2: None})),
    ]
    for stranger in strangers:
        assert not candidates.owns(stranger)


def test_sides_that_are_no_range_are_no_candidates() -> None:
    """Every second value is no range, nor is what is left of it. Would catch an audit of ranges by their number of
    cells alone.
    """
    candidates = Candidates.of(ranges(), SIZES)
    for labels in itertools.product((0, 1), repeat=4):
        if len(set(labels)) == 2:
            marginal = Marginal.of(SIZES, {2: Partition.of(np.array(labels))})
            runs = sum(a != b for a, b in itertools.pairwise(labels))
            assert candidates.owns(TableStrategy.of(marginal)) == (runs <= 2)
