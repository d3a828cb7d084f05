"""Exact sums at the largest sizes a space allows, and the store of marginals."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from app.constructions.dense import add_to
from app.spaces import sparse
from app.spaces import tensor as tensor_module
from app.spaces.errors import InvalidQuery
from app.spaces.queries.cells import dense_of
from app.spaces.queries.linear import CompiledDense
from app.spaces.queries.registry import parse_query
from app.spaces.queries.weights import product
from app.spaces.sided import axis_members, distinct
from app.spaces.sparse import SparseTensor
from app.spaces.tensor import Axis, DenseTensor, IntArray, index_set
from tests.kit.strategies import BUDGET, Universe, universe

pytestmark = pytest.mark.unit

CELLS = 70_000  # several chunks of the fused kernel, the last one short


def flat_table(capacity: int, cells: int = CELLS) -> Universe:
    """Two attributes, so that weights of every cell are no product of any."""
    attributes = [{"name": "x", "size": cells // 10}, {"name": "y", "size": 10}]
    return universe({"name": "t", "kind": "table", "attributes": attributes, "capacity": capacity, "budget": BUDGET})


def full(capacity: int, cells: int, rng: np.random.Generator) -> np.ndarray:
    """Counts that add up to the capacity exactly, most of it in few cells."""
    counts = rng.multinomial(min(capacity, 2**31), np.ones(cells) / cells).astype(np.int64)
    counts[rng.integers(cells)] += capacity - counts.sum()
    return counts


@pytest.mark.parametrize("capacity", [2**20, 2**33 - 1, 2**33, 2**34 - 1, 2**40 - 1, 2**40])
@pytest.mark.parametrize("sign", [1, -1])
def test_dense_queries_are_exact_up_to_the_capacity(capacity: int, sign: int) -> None:
    """Either side of 2^53, where float64 sums of integers stop being exact. Would catch a float path taken one
    capacity too far: the largest odd sums are lost there first."""
    u, rng = flat_table(capacity), np.random.default_rng(capacity)
    counts = full(capacity, CELLS, rng).reshape(u.space.shape)
    bits = u.space.axis_bits(1)
    integers = rng.integers((1 << bits) - 999, (1 << bits) - 1, CELLS) * sign
    query = dense_of(u.space, np.ldexp(integers.astype(np.float64), -bits))
    truth = sum(a * b for a, b in zip(counts.reshape(-1).tolist(), integers.tolist(), strict=True))
    assert isinstance(query, CompiledDense)
    assert query.grid_bits == bits
    assert query.exact(u.space.tensor(counts)) == truth
    assert query.exact(u.space.tensor(counts.astype(np.uint64))) == truth


@pytest.mark.parametrize(("left", "odd"), [(2**33 - 1, 1), (2**33 - 1, 3), (2**33, 1), (2**40, 1)])
def test_a_single_odd_unit_beside_everything_else_is_seen(left: int, odd: int) -> None:
    """All the mass in one cell at nearly full weight, one record in another at the least weight: the sum differs from
    the nearest float64 by one. Would catch any path that goes through floats."""
    u = flat_table(left, 1000)
    bits = u.space.axis_bits(1)
    counts = np.zeros(1000, dtype=np.int64)
    counts[3], counts[700] = left - odd, odd
    integers = np.arange(1000)
    integers[3], integers[700] = (1 << bits) - 1, 1
    query = dense_of(u.space, np.ldexp(integers.astype(np.float64), -bits))
    assert isinstance(query, CompiledDense)
    counts = counts.reshape(u.space.shape)
    assert query.exact(u.space.tensor(counts)) == (left - odd) * ((1 << bits) - 1) + odd


@pytest.mark.parametrize("axes", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("capacity", [1, 2**31 - 1, 2**40])
def test_several_weighted_axes_stay_below_64_bits(axes: int, capacity: int) -> None:
    """All mass in the cell of the largest weights: the sum is the largest there can be. Would catch bits that do not
    shrink with the number of weighted axes."""
    attributes = [{"name": f"x{i}", "size": 3} for i in range(axes)]
    u = universe({"name": "t", "kind": "table", "attributes": attributes, "capacity": capacity, "budget": BUDGET})
    bits = u.space.axis_bits(axes)
    assert capacity << bits * axes < 2**62
    assert bits == 20 or capacity << (bits + 1) * axes >= 2**60 or (bits + 1) * axes > 53
    weights = {f"x{i}": [-1.0, 0.4, 1 - 2.0**-bits] for i in range(axes)}
    query = u.compiled({"type": "product", "weights": weights})
    for cell in itertools.product(range(3), repeat=axes):
        array = np.zeros(u.space.shape, dtype=np.int64)
        array[cell] = capacity
        rounded = [-(1 << bits), round(Fraction(0.4) * 2**bits), (1 << bits) - 1]
        assert query.exact(u.space.tensor(array)) == capacity * math.prod(rounded[i] for i in cell)


def test_the_largest_graphs_are_exact_for_cuts_and_refuse_weights() -> None:
    """2^20 nodes at weights of 2^-20: every pair at full weight would be 2^60 units. Would catch a cut that overflows
    there, and weighted sides that are answered on a grid of no bits."""
    u = universe(
        {
            "name": "g",
            "kind": "graph",
            "nodes": 2**20,
            "directed": True,
            "weighted": True,
            "grid": 2.0**-20,
            "budget": BUDGET,
        }
    )
    rows, columns, values = [0, 5, 2**20 - 1], [2**20 - 1, 6, 0], [2**20, 2**20 - 1, 1]
    matrix = csr_array((np.array(values, dtype=np.int32), (rows, columns)), shape=u.space.shape)
    query = u.compiled({"type": "cut", "left": "all", "right": [0, 6]})
    assert query.exact(u.space.tensor(matrix)) == 2**20
    assert u.space.capacity_units < 2**61
    sides = np.full(2**20, 0.5)
    with pytest.raises(InvalidQuery, match="use 0/1 weights"):
        product(u.space, {0: sides, 1: sides})
    halves = product(u.space, {0: sides})
    assert halves.exact(u.space.tensor(matrix)) == sum(values)
    assert halves.grid_bits == 1


def side(draw: st.DrawFn, length: int) -> Axis | None:
    """All of an axis, some that stand together or not, few or many, or weights."""
    if draw(st.booleans()):
        return draw(st.sampled_from([None, Axis(length, slice(0, length), np.arange(length) - 7, 4)]))
    if draw(st.booleans()):
        start, stop = sorted(draw(st.tuples(st.integers(0, length - 1), st.integers(0, length - 1))))
        return Axis(length, slice(start, stop + 1))
    chosen = draw(st.sets(st.integers(0, length - 1), min_size=1, max_size=draw(st.sampled_from([2, length]))))
    return Axis(length, index_set(length, np.array(sorted(chosen))))


@st.composite
def contractions(draw: st.DrawFn) -> tuple[IntArray, Axis | None, Axis | None]:
    """A matrix with few entries, some rows empty, and two sides."""
    rows, columns = draw(st.tuples(st.integers(1, 40), st.integers(1, 40)))
    matrix = np.zeros((rows, columns), draw(st.sampled_from([np.uint8, np.int32])))
    for _ in range(draw(st.integers(0, 60))):
        matrix[draw(st.integers(0, rows - 1)), draw(st.integers(0, columns - 1))] = draw(st.sampled_from([1, 3, 255]))
    return matrix, side(draw, rows), side(draw, columns)


@given(contractions(), st.sampled_from([3, 1 << 16]))
def test_sparse_sums_are_those_of_the_whole_matrix(asked: tuple[IntArray, Axis | None, Axis | None], part: int) -> None:
    """Whichever rows and columns, in parts of three edges and rows or all at once. Would catch marks in a type that
    runs over, rows that are cut at the end of a part, and few rows and many taken by different rules."""
    matrix, left, right = asked
    first, second = (
        np.ones(length, np.int64) if axis is None else axis.vector()
        for axis, length in zip((left, right), matrix.shape, strict=True)
    )
    with pytest.MonkeyPatch.context() as patch:
        for module in (tensor_module, sparse):
            patch.setattr(module, "BLOCK", part)
        patch.setattr(tensor_module, "CHUNK", part)
        found = SparseTensor(csr_array(matrix)).contract((left, right))
    assert found == int(first @ matrix.astype(np.int64) @ second)


@given(st.lists(st.integers(0, 299), max_size=12), st.integers(300, 5000))
def test_positions_are_sorted_and_distinct(numbers: list[int], length: int) -> None:
    """Of short axes and long ones. Would catch two rules that differ in what they make of one list."""
    assert axis_members(numbers, length, "nodes").tolist() == sorted(set(numbers))
    assert distinct(np.array(numbers, np.int64), length).tolist() == sorted(set(numbers))


@pytest.mark.parametrize("wrong", [[5], [-1], [0, 2**63], [0, -(2**70)], [0, "1"], ["x" * 1000, 0]])
def test_what_is_no_position_is_refused(wrong: list[int | str]) -> None:
    """Would catch a number of more than 64 bits that ends in an error of its own, and texts that are taken for
    numbers."""
    with pytest.raises(InvalidQuery, match=r"nodes are the integers 0\.\.4"):
        axis_members(wrong, 5, "nodes")


def test_answers_are_coarser_where_the_capacity_is_large() -> None:
    """Would catch an answer grid on which a hypothesis' float64 answer would not be good to a unit."""
    for bits in range(1, 41):
        space = flat_table(2**bits, 40).space
        assert space.capacity << space.answer_bits <= 2**46
        assert space.answer_bits == 20 or space.capacity << (space.answer_bits + 2) > 2**46


# ------------------------------------------------------------------------------------------- store of marginals


def cube(axes: int) -> Universe:
    attributes = [{"name": f"x{i}", "size": 2} for i in range(axes)]
    return universe({"name": "t", "kind": "table", "attributes": attributes, "budget": BUDGET})


@pytest.mark.slow
@given(st.data())
def test_marginals_of_a_wide_table_never_change_an_answer(d) -> None:
    """Large enough for the store to be used and to throw away: would catch a marginal narrowed from one that lacks an
    axis, or a stale one."""
    u = cube(14)
    rng = np.random.default_rng(d.draw(st.integers(0, 99)))
    array = rng.integers(0, 200, u.space.shape).astype(np.uint8)
    shared = u.space.tensor(array)
    for _ in range(6):
        named = d.draw(st.lists(st.integers(0, 13), unique=True, max_size=13))
        where = {f"x{i}": {"equals": d.draw(st.integers(0, 1))} for i in named}
        query = parse_query({"type": "predicate", "where": where}).compiled(u.space)
        cells = tuple(where[f"x{i}"]["equals"] if f"x{i}" in where else slice(None) for i in range(14))
        assert query.exact(shared) == int(array[cells].sum(dtype=object))


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_the_store_of_marginals_is_bounded(dtype: type) -> None:
    """At most a quarter of the array, or 4 MiB. Would catch a store that grows with the number of attribute sets
    asked for, or that keeps wide marginals of a narrow array whole."""
    u = cube(23)
    array = np.zeros(u.space.shape, dtype=dtype)
    array[(1,) * 23] = 7
    tensor = u.space.tensor(array)
    limit = max(array.nbytes // 4, 1 << 22)
    for axes in (20, 19, 21, 5, 22, 18):
        where = {f"x{i}": {"equals": 1} for i in range(23 - axes, 23)}
        query = parse_query({"type": "predicate", "where": where}).compiled(u.space)
        assert query.exact(tensor) == 7
        assert sum(m.nbytes for m in tensor._marginals.values()) <= limit
        assert tensor._held == sum(m.nbytes for m in tensor._marginals.values())


def test_a_changed_hypothesis_forgets_its_marginals() -> None:
    """Would catch an answer from before an update."""
    u = cube(13)
    h = DenseTensor(np.ones(u.space.shape))
    query = parse_query({"type": "predicate", "where": {"x3": {"equals": 1}}}).compiled(u.space)
    assert query.inner(h) == 2**12
    add_to(query, h.array, 1.0)
    h.touch()
    assert query.inner(h) == 2**13


def test_no_tensor_shows_its_numbers() -> None:
    """Private arrays end up in tracebacks: their repr may show a shape and nothing else."""
    marked = np.full((3, 3), 4242, dtype=np.int64)
    space = universe({"name": "b", "kind": "bipartite", "left": 3, "right": 3, "budget": BUDGET}).space
    for tensor in (space.tensor(marked), space.tensor(csr_array(marked))):
        assert "4242" not in repr(tensor)
