"""What all private data keep to that are asked for exact counts: those in memory, of each kind, and a list of records
that is counted in plain Python."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from app.declarations.spec import parse_spec
from app.measurements.strategies.degrees import Degrees
from app.measurements.strategies.edges import Edges
from app.measurements.strategies.products import Products
from app.measurements.strategies.tables import Moment, Part, TableStrategy
from app.measurements.strategy import Strategy, exact_values
from app.services.errors import Unavailable
from app.services.registered import RegisteredCounts
from app.spaces import records as records_module
from app.spaces.counts import (
    AllEntries,
    ArrayCounts,
    BlockSums,
    CellCounts,
    Contraction,
    Entries,
    ExactCounts,
    InnerProduct,
    LineSums,
    Tally,
)
from app.spaces.dense import CountsTensor
from app.spaces.elements import ElementsTensor
from app.spaces.errors import InvalidQuery, NotOffered
from app.spaces.factory import space_of
from app.spaces.partition import Marginal, Partition
from app.spaces.queries.registry import parse_query
from app.spaces.records import RecordsTensor
from app.spaces.sparse import SparseTensor
from app.spaces.tensor import Axis, index_set
from app.storage.private_store import VaultStore
from app.storage.vault import Vault
from tests.kit.memory_private_store import MemoryPrivateStore
from tests.kit.plain_counts import PlainCounts
from tests.kit.strategies import BUDGET

pytestmark = pytest.mark.contract

SHAPES = {"table": (3, 4, 2), "matrix": (5, 5)}
#: Data of a shape, from an array of their entries.
HELD: dict[str, tuple[str, Callable[[Any], ExactCounts]]] = {
    "dense table": ("table", lambda array: CountsTensor(array)),
    "narrow dense table": ("table", lambda array: CountsTensor(array.astype(np.int16))),
    "records": ("table", lambda array: _records(array)),
    "plain records": ("table", lambda array: PlainCounts.of(array)),
    "dense matrix": ("matrix", lambda array: CountsTensor(array)),
    "sparse matrix": ("matrix", lambda array: SparseTensor(csr_array(array))),
    "plain matrix": ("matrix", lambda array: PlainCounts.of(array)),
}
#: The kinds of tallies that data of a shape must tell: what is asked of them.
OFFERED: dict[str, tuple[type[Tally], ...]] = {
    "table": (Contraction, Entries, InnerProduct, CellCounts, AllEntries),
    "matrix": (Contraction, Entries, InnerProduct, LineSums, BlockSums, AllEntries),
}
each_kind = pytest.mark.parametrize("held", HELD)


def _records(array: Any) -> RecordsTensor:
    """A table as records, one after another."""
    cells = np.repeat(np.stack(np.indices(array.shape)).reshape(array.ndim, -1), array.reshape(-1), axis=1)
    return RecordsTensor([np.ascontiguousarray(cells[k].astype(np.uint8)) for k in range(array.ndim)], array.shape)


# ------------------------------------------------------------------------------------------------ what is asked


@st.composite
def axes(draw: st.DrawFn, length: int) -> Axis | None:
    what = draw(st.sampled_from(["all", "some", "weights"]))
    if what == "all":
        return None
    if what == "weights":
        weights = draw(st.lists(st.integers(-(1 << 20), 1 << 20), min_size=length, max_size=length))
        return Axis(length, slice(0, length), np.array(weights, np.int64), 20)
    members = sorted(draw(st.sets(st.integers(0, length - 1), min_size=1)))
    return Axis(length, index_set(length, np.array(members)))


@st.composite
def groups(draw: st.DrawFn, length: int, least: int) -> Partition:
    """A division of some values (from -1) or of all (from 0)."""
    labels = draw(st.lists(st.integers(least, 2), min_size=length, max_size=length).filter(lambda told: max(told) >= 0))
    return Partition.some(np.array(labels))


@st.composite
def tallies(draw: st.DrawFn, shape: tuple[int, ...], kinds: Sequence[type[Tally]]) -> Tally:
    kind = draw(st.sampled_from(kinds))
    size = int(np.prod(shape))
    if kind is Contraction:
        return Contraction([draw(axes(length)) for length in shape])
    if kind is Entries:
        return Entries(np.array(sorted(draw(st.sets(st.integers(0, size - 1), min_size=1)))))
    if kind is InnerProduct:
        weights = draw(st.lists(st.integers(-(1 << 20), 1 << 20), min_size=size, max_size=size))
        return InnerProduct(np.array(weights, np.int32).reshape(shape), 20)
    if kind is LineSums:
        axis = draw(st.integers(0, 1))
        weights = draw(st.none() | st.lists(st.integers(-(1 << 20), 1 << 20), min_size=shape[0], max_size=shape[0]))
        return LineSums(axis, None if weights is None else np.array(weights, np.int64), draw(st.booleans()))
    if kind is BlockSums:
        left, right = (draw(groups(length, -1)) for length in shape)
        within = st.lists(st.integers(-1, left.cells - 1), min_size=shape[1], max_size=shape[1]).map(np.array)
        return BlockSums(left, right, draw(st.none() | within))
    if kind is AllEntries:
        return AllEntries()
    attributes = tuple(sorted(draw(st.sets(st.integers(0, len(shape) - 1)))))
    cells = tuple(draw(st.none() | groups(shape[axis], -1)) for axis in attributes)
    rest = [axis for axis in range(len(shape)) if axis not in attributes]
    where = tuple((k, found.index) for k in rest if draw(st.booleans()) and (found := draw(axes(shape[k]))) is not None)
    together = tuple(sorted(draw(st.sets(st.integers(0, len(shape) - 1), max_size=2))))
    chosen = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size))).reshape(shape)
    among = (together, chosen.any(axis=tuple(k for k in range(len(shape)) if k not in together))) if together else None
    factors = []
    weighed = draw(st.lists(st.sampled_from(range(len(shape))), unique=True, max_size=2))
    for axis in weighed:
        # Sums of products are 64-bit integers.
        length, most = draw(st.integers(1, shape[axis])), 1 << 40 // len(weighed)
        told_weights = draw(st.lists(st.integers(-most, most), min_size=length, max_size=length))
        factors.append((axis, np.array(told_weights, np.int64)))
    told = tuple(shape[a] if c is None else c.cells for a, c in zip(attributes, cells, strict=True))
    return CellCounts(attributes, cells, told, where, among, tuple(factors), again=draw(st.booleans()))


@st.composite
def plain_counts(draw: st.DrawFn, shape: tuple[int, ...]) -> CellCounts:
    """Counts of the cells of a marginal, as strategies ask for them."""
    named = sorted(draw(st.sets(st.integers(0, len(shape) - 1))))
    return CellCounts.of(Marginal.of(shape, {axis: draw(st.none() | groups(shape[axis], 0)) for axis in named}))


@st.composite
def arrays(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    size = int(np.prod(shape))
    return np.array(draw(st.lists(st.integers(0, 5), min_size=size, max_size=size)), np.int64).reshape(shape)


def brute(tally: Tally, entries: Any) -> Any:
    """What is asked for, by indicators and whole numbers of any length."""
    told = entries.astype(object)
    match tally:
        case Contraction(axes):
            for axis in reversed(axes):
                told = told.sum(axis=-1) if axis is None else told @ axis.vector().astype(object)
            return told
        case Entries(positions):
            return told.reshape(-1)[positions]
        case InnerProduct(weights):
            return (told * weights).sum()
        case LineSums(axis, weights, diagonal):
            if not diagonal:
                told = told * (1 - np.eye(len(told), dtype=object))
            lines = told if axis == 0 else told.T
            return lines.sum(axis=1) if weights is None else lines @ weights.astype(object)
        case BlockSums(left, right, within):
            rows = indicators(left.labels, left.cells)
            if within is None:
                return rows @ told @ indicators(right.labels, right.cells).T
            return np.diagonal(rows @ told @ indicators(within, left.cells).T)
        case CellCounts():
            for axis, members in tally.where:
                told = told * along(Axis(told.shape[axis], members).vector(), axis, told.ndim)
            if tally.among is not None:
                shape = [n if k in tally.among[0] else 1 for k, n in enumerate(told.shape)]
                told = told * tally.among[1].reshape(shape)
            for axis, weights in tally.factors:
                padded = [*weights.tolist(), *[0] * (told.shape[axis] - len(weights))]
                told = told * along(np.array(padded, object), axis, told.ndim)
            cells = dict(zip(tally.axes, tally.cells, strict=True))
            for axis in reversed(range(told.ndim)):
                if axis not in cells:
                    told = told.sum(axis=axis)
                elif (own := cells[axis]) is not None:
                    told = np.moveaxis(np.tensordot(indicators(own.labels, own.cells), told, (1, axis)), 0, axis)
            return told
    return told


def indicators(labels: Any, cells: int) -> Any:
    return (np.arange(cells)[:, None] == labels).astype(int).astype(object)


def along(vector: Any, axis: int, rank: int) -> Any:
    return vector.reshape([-1 if k == axis else 1 for k in range(rank)])


def same(found: Any, expected: Any) -> bool:
    found = found.toarray() if isinstance(found, csr_array) else np.asarray(found)
    return found.dtype.kind in "iu" and found.shape == np.shape(expected) and bool((found == expected).all())


# ------------------------------------------------------------------------------------------------ the contract


@pytest.mark.slow
@each_kind
@given(st.data())
def test_numbers_are_those_of_brute_force_and_together_those_of_each_alone(held: str, data: st.DataObject) -> None:
    """Would catch a record in another cell, a condition that is not kept, a weight of another value, what is counted
    together and handed out in another order, and one kind of data that differs from another."""
    what, made = HELD[held]
    shape = SHAPES[what]
    entries = data.draw(arrays(shape))
    counts = made(entries)
    asked = data.draw(st.lists(tallies(shape, OFFERED[what]), min_size=1, max_size=5))
    if what == "table":
        asked += data.draw(st.lists(plain_counts(shape), max_size=4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records_module, "PART", data.draw(st.sampled_from([3, 1 << 16])))
        patch.setattr(records_module, "MOST_GROUPED", data.draw(st.sampled_from([1, 10])))
        patch.setattr(records_module, "MOST_CELLS", data.draw(st.sampled_from([0, 1 << 20])))
        together = list(counts.tell(asked))
        alone = [next(counts.tell([tally])) for tally in asked]
    assert len(together) == len(asked)
    for tally, one, other in zip(asked, together, alone, strict=True):
        expected = brute(tally, entries)
        assert same(one, expected)
        assert same(other, expected)


@pytest.mark.parametrize("held", [name for name, (what, _) in HELD.items() if what == "table"])
def test_a_selection_beside_a_condition_on_the_same_attribute(held: str) -> None:
    """Both hold. Would catch one that makes the other forgotten, as where a selection is of all that is asked about."""
    entries = np.arange(24).reshape(SHAPES["table"])
    selection = np.array([False, True, True])
    asked = CellCounts((), (), (), where=((0, slice(0, 2)),), among=((0,), selection), again=True)
    assert list(HELD[held][1](entries).tell([asked])) == [entries[1].sum()]


@each_kind
@pytest.mark.parametrize("number", [2**62 - 1, 2**53 + 1])
def test_numbers_are_exact_to_the_last(held: str, number: int) -> None:
    """A sum of 2^62 - 1, of one huge number and small ones, or of weights of records. Would catch a sum that is made in
    floating point or in a narrow type."""
    what, made = HELD[held]
    shape = SHAPES[what]
    if held in ("narrow dense table", "records", "plain records"):
        entries = np.zeros(shape, np.int64)
        entries[0, 1, 0], entries[2, 1, 1] = 1, 2
        weights = np.array([number - 4, 0, 2])
        asked: list[Tally] = [
            CellCounts((), (), (), factors=((0, weights),)),
            CellCounts((1,), (None,), (4,), factors=((0, weights),)),
            CellCounts((0,), (None,), (3,), factors=((0, weights), (1, np.array([0, 1])))),
            Contraction([Axis(3, slice(0, 3), weights, 0), None, None]),
        ]
        total = number
    else:
        entries = np.zeros(shape, np.int64)
        entries.reshape(-1)[:4] = [number - 6, 1, 2, 3]
        total = number
        asked = [Contraction([None] * len(shape)), Contraction([Axis(n, slice(0, n)) for n in shape])]
        if what == "table":
            asked += [CellCounts((), (), ()), CellCounts((0,), (None,), (3,), factors=((2, np.ones(2, np.int64)),))]
        else:
            every = Partition.singles(5).labels * 0
            asked += [LineSums(0), LineSums(0, np.ones(5, np.int64)), BlockSums(Partition(every), Partition(every))]
    if held.startswith("dense"):
        counts: ExactCounts = CountsTensor(entries, wide=True)
        asked.append(InnerProduct(np.ones(shape, np.int32), 0))
    else:
        counts = made(entries)
    for tally, found in zip(asked, counts.tell(asked), strict=True):
        assert same(found, brute(tally, entries))
        assert int(np.sum(found)) == total


@each_kind
def test_what_is_not_offered_is_refused_before_anything_is_counted(held: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside what is offered. Would catch numbers that are counted first, and a kind of tally that is taken for one of
    another shape."""
    what, made = HELD[held]
    shape = SHAPES[what]
    counts, counting = made(np.ones(shape, np.int64)), list[Any]()
    monkeypatch.setattr(ArrayCounts, "counted", lambda self, asked: counting.append(asked))
    monkeypatch.setattr(PlainCounts, "_count", lambda self, tally: counting.append(tally))
    fine = Contraction([None] * len(shape))
    refused: list[Tally] = [
        Contraction([None]),
        InnerProduct(np.ones((2, 2), np.int32), 0),
        Entries(np.array(["text"], object)),
        BlockSums(Partition.singles(9), Partition.singles(9)),
        CellCounts((7,), (None,), (2,)),
    ]
    if what == "table":
        refused += [LineSums(0), BlockSums(Partition.singles(3), Partition.singles(4))]
    for tally in refused:
        assert not counts.offers(tally)
        with pytest.raises(NotOffered):
            counts.tell([fine, tally])
    assert counts.offers(fine)
    assert not counting
    assert issubclass(NotOffered, InvalidQuery), "whoever asks is told in a problem document"


@pytest.mark.parametrize("held", ["array", "plain"])
def test_elements(held: str) -> None:
    """Would catch counts of elements that are not there, and what a universe without axes has not."""
    there = {"": 2, "a": 1, "b": 2**61}
    counts: Any = PlainCounts((), list(there.items())) if held == "plain" else ElementsTensor(Counted(there))
    asked = [Entries(np.array(["b", "c", "", "a"], object)), Contraction(())]
    found = list(counts.tell(asked))
    assert found[0].tolist() == [2**61, 0, 2, 1]
    assert found[1] == 2**61 + 3
    for other in (AllEntries(), LineSums(0), CellCounts((), (), ()), Entries(np.array([0])), Contraction((None,))):
        assert not counts.offers(other)
        with pytest.raises(NotOffered):
            counts.tell([*asked, other])


class Counted:
    """A multiset as the private data have it."""

    def __init__(self, there: dict[str, int]) -> None:
        self._there = there
        self.mass, self.nbytes = sum(there.values()), 0

    def lookup(self, elements: Any) -> Any:
        return np.array([self._there.get(element, 0) for element in elements], np.int64)


TABLE = space_of(
    parse_spec(
        {
            "name": "t",
            "kind": "table",
            "attributes": [{"name": name, "size": size} for name, size in zip("abc", SHAPES["table"], strict=True)],
            "budget": BUDGET,
        }
    )
)
GRAPH = space_of(parse_spec({"name": "g", "kind": "graph", "nodes": 5, "directed": True, "budget": BUDGET}))
MARGINALS = [Marginal.of(SHAPES["table"], {0: None, 1: None}), Marginal.of(SHAPES["table"], {1: None, 2: None})]
EDGES = Edges.of(GRAPH)
STRATEGIES: dict[str, list[Strategy]] = {
    "table": [
        *map(TableStrategy.of, MARGINALS),
        TableStrategy((Part(MARGINALS[0], residual=True), Part(MARGINALS[1], Moment(1, 4, 2), 3))),
        TableStrategy.of(Marginal.of(SHAPES["table"], {})),
    ],
    "matrix": [Degrees(EDGES), EDGES, Products(EDGES, 4, None, np.arange(5)), Products(EDGES, 4, np.arange(5), None)],
}
QUERIES: dict[str, list[dict[str, Any]]] = {
    "table": [
        {"type": "predicate", "where": {"a": 1, "b": {"in": [0, 3]}}},
        {"type": "predicate", "where": {"any": [{"a": 0}, {"b": 2}]}},
        {"type": "marginal", "attributes": ["b", "a"], "where": {"c": 1}},
    ],
    "matrix": [
        {"type": "cut", "left": [0, 1, 2], "right": [1, 3]},
        {"type": "blocks", "left": {"x": [0, 4], "y": [2]}, "right": {"u": [1, 3], "v": [0]}},
        {"type": "degrees", "side": "out", "bins": [0, 1, 3]},
    ],
}


@each_kind
def test_queries_and_strategies_have_one_value_whoever_holds_the_data(held: str) -> None:
    """Together and one by one. Would catch a strategy or a query that knows how the data are held."""
    what, made = HELD[held]
    entries = np.random.default_rng(5).integers(0, 2, SHAPES[what])
    if what == "matrix":
        np.fill_diagonal(entries, 0)
    space = TABLE if what == "table" else GRAPH
    plain, counts = PlainCounts.of(entries), made(entries)
    together = list(exact_values(STRATEGIES[what], space, counts))
    for strategy, found in zip(STRATEGIES[what], together, strict=True):
        assert found.tolist() == strategy.exact(space, plain).tolist() == strategy.exact(space, counts).tolist()
    for words in QUERIES[what]:
        query = parse_query(words).compiled(space)
        assert np.asarray(query.exact(counts)).tolist() == np.asarray(query.exact(plain)).tolist()


def test_every_member_of_the_interface() -> None:
    """Would catch a method that one of them lacks, or whose parameters have drifted."""
    for name, method in inspect.getmembers(ExactCounts, inspect.isfunction):
        if not name.startswith("_"):
            for kept in (ArrayCounts, PlainCounts, RegisteredCounts):
                assert list(inspect.signature(getattr(kept, name)).parameters) == list(
                    inspect.signature(method).parameters
                )


# ------------------------------------------------------------------------------------------------ what was registered


@pytest.fixture(params=["memory", "vault", "sealed vault"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        return MemoryPrivateStore()
    key = bytes(range(32)) if request.param == "sealed vault" else None
    return VaultStore(Vault(tmp_path / "vault", key), 1 << 28, await_writers=lambda: None)


@pytest.mark.parametrize("change", ["altered", "gone"])
def test_numbers_are_told_only_while_they_are_what_was_registered(store: Any, change: str, tmp_path: Path) -> None:
    """The file is changed between a look and what is asked next. Would catch numbers that are told after one look for
    ever, and counting that begins before it."""
    spec = parse_spec(
        {
            "name": "t",
            "kind": "table",
            "attributes": [{"name": name, "size": size} for name, size in zip("abc", SHAPES["table"], strict=True)],
            "budget": BUDGET,
        }
    )
    entries = np.arange(24).reshape(SHAPES["table"])
    np.save(tmp_path / "counts.npy", entries)
    with store.registration():
        entry = store.put("t", store.read_upload(spec, "counts.npy", tmp_path / "counts.npy"))
    counts = store.counts(TABLE, entry)
    counts.check()
    assert same(next(counts.tell([AllEntries()])), entries)
    if isinstance(store, MemoryPrivateStore):
        kept = store.files.pop(entry["file_name"])
    else:
        (file,) = (path for path in (tmp_path / "vault").rglob(f"{entry['file_name']}*") if path.is_file())
        kept = file.read_bytes()
        if change == "gone":
            file.unlink()
        else:
            file.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    for _ in range(2):
        with pytest.raises(Unavailable):
            counts.tell([AllEntries()])
    if isinstance(store, MemoryPrivateStore):
        store.files[entry["file_name"]] = kept
        assert same(next(counts.tell([AllEntries()])), entries)
