"""Records that are kept as they are: the same answers as their counts give, and those of universes beyond counting."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from app.curator.facts import measure
from app.declarations.spec import parse_spec
from app.spaces import records
from app.spaces.counts import LineSums
from app.spaces.factory import space_of
from app.spaces.queries.registry import from_canonical, parse_query
from app.spaces.records import RecordsTensor
from tests.kit.strategies import BUDGET, answer, asked, queries, universe

pytestmark = pytest.mark.unit

TABLE = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [{"name": "x0", "size": 4}, {"name": "x1", "size": 3}, {"name": "x2", "size": 2}],
        "budget": BUDGET,
    }
)
SHAPE = TABLE.space.shape
RECORDS = st.lists(st.tuples(*(st.integers(0, length - 1) for length in SHAPE)), max_size=40)


def tensor(rows: list[tuple[int, ...]]) -> RecordsTensor:
    columns = np.array(rows, np.uint8).reshape(len(rows), len(SHAPE)).T
    return RecordsTensor([np.ascontiguousarray(column) for column in columns], SHAPE)


def counted(rows: list[tuple[int, ...]]) -> dict[tuple[int, ...], int]:
    return {row: rows.count(row) for row in rows}


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(RECORDS, st.data(), st.booleans(), st.integers(1, 7))
def test_queries_are_answered_as_by_counts(
    rows: list[tuple[int, ...]], d: st.DataObject, kept: bool, part: int
) -> None:
    """Every form of query, from kept marginals and record by record, in parts of any size. The judge expands the words
    cell by cell. Would catch a part that is passed over, weights of another axis, and a marginal that goes stale."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "PART", part)
        patch.setattr(records, "MOST_CELLS", 100 if kept else 0)
        data = tensor(rows)
        for _ in range(3):
            words = d.draw(queries(TABLE))
            query = TABLE.compiled(words)
            found = Fraction(query.exact(data), 1 << query.grid_bits)
            assert abs(found - answer(asked(TABLE, words), counted(rows))) <= Fraction(query.rounding) * len(rows)
            assert query.exact(data) == query.exact(TABLE.space.tensor(TABLE.array(counted(rows))))


@given(RECORDS, st.sets(st.integers(0, 2)), st.integers(1, 7))
def test_marginals(rows: list[tuple[int, ...]], named: set[int], part: int) -> None:
    """Of records and of counts the same, counted by hand. Would catch axes in another order, and a last part lost."""
    axes = tuple(sorted(named))
    truth = np.zeros([SHAPE[i] for i in axes], np.int64)
    for row in rows:
        truth[tuple(row[i] for i in axes)] += 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "PART", part)
        assert np.array_equal(tensor(rows).marginal(axes), truth)
    dense = TABLE.space.tensor(TABLE.array(counted(rows)).astype(np.int16))
    assert np.array_equal(dense.marginal(axes), truth)
    assert measure(TABLE.space, tensor(rows), "mass") == measure(TABLE.space, dense, "mass") == len(rows)


@pytest.mark.parametrize("axis", [0, 1])
def test_lines_of_sparse_counts(axis: int) -> None:
    """Would catch sums that are made in the narrow type of the entries."""
    array = np.array([[100, 0, 100], [0, 0, 0], [120, 7, 0]], np.int8)
    u = universe({"name": "g", "kind": "bipartite", "left": 3, "right": 3, "budget": BUDGET})
    (found,) = u.space.tensor(csr_array(array)).tell([LineSums(axis)])
    assert np.array_equal(found, array.astype(object).sum(axis=1 - axis))


def test_marginals_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a store that grows with every set of attributes that was ever asked for."""
    monkeypatch.setattr(records, "KEPT_BYTES", 8 * 20)
    data = tensor([(1, 2, 0)] * 5)
    space = TABLE.space
    for where in ({"x0": {"equals": 1}}, {"x0": {"equals": 1}, "x1": {"equals": 2}}, {"x1": {"equals": 2}}) * 2:
        assert parse_query({"type": "predicate", "where": where}).compiled(space).exact(data) == 5
        assert data._held <= 8 * 20


def test_a_universe_beyond_all_counting() -> None:
    """Fifty attributes of eight values, 10^45 cells, and one of a hundred. Would catch positions that leave 64 bits,
    and anything that is made of all cells."""
    attributes: list[dict[str, Any]] = [{"name": f"x{i}", "size": 8} for i in range(50)]
    attributes.append({"name": "y", "lower": 0, "upper": 100, "bins": 100})
    space = space_of(parse_spec({"name": "w", "kind": "table", "attributes": attributes, "budget": BUDGET}))
    rng = np.random.default_rng(3)
    columns = [rng.integers(0, length, 1000).astype(np.uint8) for length in space.shape]
    data = RecordsTensor(columns, space.shape)
    where = {"x0": {"in": [1, 2]}, "x49": {"equals": 7}, "y": {"between": [0, 50]}}
    query = parse_query({"type": "predicate", "where": where}).compiled(space)
    truth = sum(a in (1, 2) and b == 7 and c < 50 for a, b, c in zip(columns[0], columns[49], columns[50], strict=True))
    assert query.exact(data) == truth
    every = parse_query({"type": "predicate", "where": {f"x{i}": {"in": [0, 1, 2]} for i in range(50)}}).compiled(space)
    assert every.exact(data) == sum(all(columns[i][r] < 3 for i in range(50)) for r in range(1000))
    assert math.prod(data.marginal((0, 25, 50)).shape) == 8 * 8 * 100
    assert from_canonical(space, query.canonical, {}).digest == query.digest
