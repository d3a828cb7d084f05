"""Exact counts of marginals: from every kind of table, held against counting one record after another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.spaces import records as records_module
from app.spaces.counts import CellCounts
from app.spaces.dense import CountsTensor
from app.spaces.partition import Marginal, Partition
from app.spaces.records import RecordsTensor

pytestmark = pytest.mark.unit

SIZES = (3, 5, 2, 4)


@pytest.mark.slow
@given(st.data())
def test_every_record_is_counted_in_its_cell(data: st.DataObject) -> None:
    """Would catch a record in another cell, one that is lost, and dense counts that differ from records."""
    number = data.draw(st.integers(0, 40))
    records = np.array(
        [[data.draw(st.integers(0, size - 1)) for size in SIZES] for _ in range(number)], np.uint8
    ).reshape(number, len(SIZES))
    cells: dict[int, Partition | None] = {}
    for attribute in data.draw(st.sets(st.integers(0, len(SIZES) - 1))):
        labels = data.draw(arrays.arrays(np.int64, SIZES[attribute], elements=st.integers(0, 2)))
        cells[attribute] = data.draw(st.sampled_from([None, Partition.of(labels)]))
    marginal = Marginal.of(SIZES, cells)
    expected = np.zeros(marginal.shape, np.int64)
    for record in records:
        expected[tuple(marginal.partition(k).labels[record[a]] for k, a in enumerate(marginal.attributes))] += 1
    dense = np.zeros(SIZES, np.int64)
    np.add.at(dense, tuple(records.T), 1)
    for tensor in (RecordsTensor(list(records.T), SIZES), CountsTensor(dense)):
        (found,) = tensor.tell([CellCounts.of(marginal)])
        assert found.shape == marginal.shape
        assert np.array_equal(found, expected)


@pytest.mark.slow
@given(st.data())
def test_marginals_are_counted_together_as_alone(data: st.DataObject) -> None:
    """However attributes are grouped, and in parts of any size. Would catch groups whose cells are swapped, a part that
    is lost, and one partition of an attribute taken for another."""
    number = data.draw(st.integers(0, 40))
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    tensor = RecordsTensor([rng.integers(0, size, number).astype(np.uint8) for size in SIZES], SIZES)
    marginals = []
    for _ in range(data.draw(st.integers(0, 8))):
        cells: dict[int, Partition | None] = {}
        for attribute in data.draw(st.sets(st.integers(0, len(SIZES) - 1), max_size=3)):
            labels = data.draw(arrays.arrays(np.int64, SIZES[attribute], elements=st.integers(0, 2)))
            cells[attribute] = data.draw(st.sampled_from([None, Partition.of(labels)]))
        marginals.append(Marginal.of(SIZES, cells))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records_module, "PART", data.draw(st.sampled_from([3, 1 << 16])))
        patch.setattr(records_module, "MOST_GROUPED", data.draw(st.sampled_from([1, 10, 64])))
        found = list(tensor.tell([CellCounts.of(marginal) for marginal in marginals]))
    assert len(found) == len(marginals)
    for marginal, counts in zip(marginals, found, strict=True):
        assert counts.shape == marginal.shape
        assert np.array_equal(counts, next(tensor.tell([CellCounts.of(marginal)])))
