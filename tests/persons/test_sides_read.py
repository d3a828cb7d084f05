"""A node of one side as the unit: which of its edges a graph keeps.

The oracle is the plain one: a dictionary of nodes, each with a list of ends that is sorted by their enciphered blocks,
one block at a time. Neighbours are made by giving one node every set of edges and none, and what is kept is compared
cell by cell. That would catch edges beyond the cap, a rank that hangs on other nodes' edges, on weights, or on where in
the file an edge stands, and a cap on the wrong side.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from app.declarations.errors import InvalidDataset
from app.declarations.spec import BipartiteSpec, GraphSpec, OneSide, Sources, parse_spec, written
from app.spaces.factory import space_of
from app.storage.private_data import CsrData
from app.storage.readers import edges as edges_module
from app.storage.readers import read_private
from app.storage.readers import sides as sides_module
from app.storage.readers.sides import kept_of_each

pytestmark = pytest.mark.unit

KEY = b"k" * 32
#: (node of the protected side, other end)
Edge = tuple[int, int]
EDGES = st.sets(st.tuples(st.integers(0, 3), st.integers(0, 9)), max_size=30)
BUDGET = {"epsilon": 1.0, "delta": 1e-9}
LEFT: dict[str, Any] = {
    "name": "g",
    "kind": "bipartite",
    "left": 8,
    "right": 10,
    "unit": {"side": "left", "max_edges": 2},
    "budget": BUDGET,
}
RIGHT = LEFT | {"left": 10, "right": 8, "unit": {"side": "right", "max_edges": 2}}
SOURCE: dict[str, Any] = {
    "name": "g",
    "kind": "graph",
    "directed": True,
    "nodes": 10,
    "unit": {"side": "source", "max_edges": 2},
    "budget": BUDGET,
}


def plain(edges: Iterable[Edge], most: int, key: bytes = KEY) -> set[Edge]:
    """The edges that are kept: both ends in eight bytes each, least first, enciphered block by block."""
    own: dict[int, list[tuple[bytes, Edge]]] = {}
    for node, end in edges:
        cipher = Cipher(algorithms.AES256(key), modes.ECB()).encryptor()
        rank = cipher.update(node.to_bytes(8, "little") + end.to_bytes(8, "little"))
        own.setdefault(node, []).append((rank, (node, end)))
    return {edge for ranked in own.values() for _, edge in sorted(ranked)[:most]}


def capped(edges: Iterable[Edge], most: int, key: bytes = KEY) -> set[Edge]:
    """The same by the reader's part."""
    listed = np.array(sorted(edges), np.int64).reshape(-1, 2)
    kept = kept_of_each(listed[:, 0], listed[:, 1], most, key)
    return {(int(node), int(end)) for node, end in listed[kept]}


@given(EDGES, st.integers(1, 4))
def test_the_first_of_each_node_are_kept(edges: set[Edge], most: int) -> None:
    """Against the oracle. Would catch another ranking than the documented one, and numbers read in the wrong order."""
    assert capped(edges, most) == plain(edges, most)


@given(EDGES, st.integers(1, 4))
def test_many_edges_are_ranked_in_parts(edges: set[Edge], most: int) -> None:
    """Parts of three edges. Would catch a cipher that chains the blocks, so that ranks hang on those before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sides_module, "BATCH_ROWS", 3)
        assert capped(edges, most) == plain(edges, most)


@given(EDGES, EDGES, st.integers(1, 4), st.integers(0, 3))
def test_other_nodes_decide_nothing(edges: set[Edge], others: set[Edge], most: int, node: int) -> None:
    """Of one node the same edges are kept whatever all others have. Would catch a rank by position, a cap on all edges
    together, and a rank by the other end's own edges."""
    own = {edge for edge in edges if edge[0] == node}
    mixed = own | {edge for edge in others if edge[0] != node}
    assert {edge for edge in capped(mixed, most) if edge[0] == node} == capped(own, most)


@given(EDGES, st.integers(1, 3))
def test_one_edge_more_moves_one_other_at_most(edges: set[Edge], most: int) -> None:
    """Would catch a hash of all edges that a node has."""
    whole = capped(edges, most)
    for edge in edges:
        without = capped(edges - {edge}, most)
        assert len(whole - without) <= 1
        assert len(without - whole) <= 1


def turned(edges: Iterable[Edge]) -> set[Edge]:
    """With its ends exchanged."""
    return {(end, node) for node, end in edges}


def subsets(ends: int) -> list[tuple[int, ...]]:
    """Every set of other ends."""
    return [chosen for count in range(ends + 1) for chosen in itertools.combinations(range(ends), count)]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_neighbours_are_the_cap_apart_and_no_more(most: int) -> None:
    """Every graph of two nodes with four ends, by brute force: a node with all of its edges added or removed moves the
    cells by the cap at most, which is reached; a node that has others is two such steps away, and as far as that where
    two sets of the cap are disjoint. Would catch a gamma below what the proof says, and one that could be smaller."""
    added, changed = [], []
    for others in subsets(4):
        rest = {(1, end) for end in others}
        kept = {own: capped(rest | {(0, end) for end in own}, most) for own in subsets(4)}
        added += [len(kept[own] ^ kept[()]) for own in kept]
        changed += [len(kept[one] ^ kept[other]) for one, other in itertools.combinations(kept, 2)]
    assert max(added) == most
    assert max(changed) == min(2 * most, 4)


def test_a_rank_by_position_would_be_found() -> None:
    """The planted fault: where an edge stands is enciphered in the place of its end. One node more, before all others,
    then moves far more edges than the cap."""
    rng = np.random.default_rng(0)
    rest = sorted({(int(node) + 1, int(end)) for node, end in rng.integers(0, 40, (800, 2))})

    def by_position(edges: list[Edge]) -> set[Edge]:
        ranked = plain([(node, row) for row, (node, _) in enumerate(edges)], 2)
        return {edges[row] for _, row in ranked}

    def apart(kept: Any) -> int:
        return len(kept(rest) ^ kept([(0, 7), *rest]))

    assert apart(lambda edges: capped(edges, 2)) == 1
    assert apart(by_position) > 40


def test_both_ends_capped_would_move_far_more() -> None:
    """Why a unit of both ends is refused: in a ring of forty nodes each has its two edges; where an edge stays that is
    among the first two of either end, or of both, one node more with edges to all others moves many more edges than its
    own two. Would catch a refusal that has no reason."""
    rest = {(node, node + 1) for node in range(1, 40)} | {(1, 40)}
    star = {(0, node) for node in range(1, 41)}

    def both(edges: set[Edge], *, either: bool) -> set[Edge]:
        ends = edges | turned(edges)
        kept = capped(ends, 2)
        return {(a, b) for a, b in edges if ((a, b) in kept) + ((b, a) in kept) > (0 if either else 1)}

    for either in (False, True):
        one, other = both(rest, either=either), both(rest | star, either=either)
        assert one == rest
        assert len(one ^ other) > 10


@pytest.mark.slow
def test_each_edge_is_as_likely_to_be_kept() -> None:
    """Over 3,000 keys, one of three edges is kept, each a third of the time: a wrong alarm has a probability of some
    1e-9. Would catch a rank that favours small numbers."""
    edges = [(2, 0), (2, 1), (2, 9)]
    for due in edges:
        found = sum(capped(edges, 1, n.to_bytes(32, "big")) == {due} for n in range(3000))
        assert abs(found - 1000) < 6.5 * (3000 * 2 / 9) ** 0.5


# Through the reader.


def read(tmp_path: Path, spec: dict[str, Any], content: bytes, suffix: str = ".csv") -> Any:
    path = tmp_path / f"data{suffix}"
    path.write_bytes(content)
    return read_private(parse_spec({"weighted": False} | spec), path.name, path, memory_limit=1 << 30)


def csv(edges: Iterable[tuple[Any, ...]]) -> bytes:
    return "\n".join(["a,b,w"[: 2 * len(next(iter(edges))) - 1], *(",".join(map(str, e)) for e in edges)]).encode()


def cells(data: Any) -> dict[Edge, int]:
    """What is kept, by row and column."""
    matrix = data.matrix().toarray() if isinstance(data, CsrData) else data.array
    return {(int(i), int(j)): int(matrix[i, j]) for i, j in np.argwhere(matrix)}


@pytest.fixture
def known_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges_module.secrets, "token_bytes", lambda length: KEY[:length])


RANDOM = np.random.default_rng(3)
MANY = sorted({(int(node), int(end)) for node, end in RANDOM.integers(0, (8, 10), (50, 2)) if node != end})
DUE = plain(MANY, 2)


@pytest.mark.usefixtures("known_key")
@pytest.mark.parametrize("spec", [LEFT, RIGHT, SOURCE], ids=["left", "right", "source"])
def test_every_format_keeps_the_same(tmp_path: Path, spec: dict[str, Any]) -> None:
    """From lists in another order with edges twice, from Parquet and from an array; the report counts what is left
    out. Would catch sides that change places, and an edge that counts as often as it stands there."""
    edges = sorted(turned(MANY)) if spec is RIGHT else MANY
    due = dict.fromkeys(turned(DUE) if spec is RIGHT else DUE, 1)
    shape = space_of(parse_spec(spec)).shape
    array = np.zeros(shape, np.int8)
    array[tuple(np.array(edges).T)] = 1
    sink, table = io.BytesIO(), io.BytesIO()
    np.save(sink, array)
    pq.write_table(pa.table(dict(zip("ab", zip(*edges, strict=True), strict=True))), table)
    for content, suffix in (
        (csv([*reversed(edges), *edges[:9]]), ".csv"),
        (table.getvalue(), ".parquet"),
        (sink.getvalue(), ".npy"),
    ):
        found = read(tmp_path, spec, content, suffix)
        assert cells(found.data) == due
        assert found.data.mass == len(due)
        view = found.report.view()
        assert (view["read"], view["kept"], view["beyond_cap"]) == (len(MANY), len(DUE), len(MANY) - len(DUE))
        assert (view["dropped"], view["clamped"], view["attributes"]) == (0, 0, {})


@pytest.mark.usefixtures("known_key")
def test_what_is_no_edge_takes_no_place(tmp_path: Path) -> None:
    """Loops that are dropped, and weights that are or round to zero. Would catch an edge that is kept nowhere and takes
    another's place."""
    listed = [(*edge, 0.5) for edge in MANY]
    none = [(node, end, 0.0001) for node in range(8) for end in range(10) if node != end and (node, end) not in MANY]
    loops = [(node, node, 1) for node in range(10)]
    spec = SOURCE | {"weighted": True, "loops": "drop", "grid": 0.25}
    found = read(tmp_path, spec, csv([*loops, *none, *listed]))
    assert cells(found.data) == dict.fromkeys(DUE, 2)
    assert found.report.view()["read"] == len(MANY)


@pytest.mark.usefixtures("known_key")
@pytest.mark.parametrize("weight", [0.25, 1])
def test_weights_decide_nothing(tmp_path: Path, weight: float) -> None:
    """Would catch a rank by weights, by which a node whose weights change would keep other edges."""
    found = read(tmp_path, LEFT | {"weighted": True, "grid": 0.25}, csv([(*edge, weight) for edge in MANY]))
    assert cells(found.data) == dict.fromkeys(DUE, int(weight * 4))


def test_the_key_is_fresh(tmp_path: Path) -> None:
    """Two readings of one file keep different edges. Would catch a key that is fixed, or made of the file."""
    spec = LEFT | {"right": 3000, "unit": {"side": "left", "max_edges": 5}}
    kept = [set(cells(read(tmp_path, spec, csv([(0, end) for end in range(3000)])).data)) for _ in range(2)]
    assert len(kept[0]) == len(kept[1]) == 5
    assert kept[0] != kept[1]


def test_an_edge_as_the_unit_has_no_report(tmp_path: Path) -> None:
    """Nothing is left out of such a graph. Would catch a cap that is always there."""
    without = {name: value for name, value in LEFT.items() if name != "unit"}
    found = read(tmp_path, without, csv(MANY))
    assert found.report is None
    assert set(cells(found.data)) == set(MANY)


# Declarations.


@pytest.mark.parametrize(
    ("spec", "unit", "told"),
    [
        (LEFT, {"side": "left", "max_edges": 0}, "unit.max_edges"),
        (LEFT, {"side": "left", "max_edges": 1.5}, "unit.max_edges"),
        (LEFT, {"side": "left"}, "unit.max_edges"),
        (LEFT, {"max_edges": 2}, "unit.side"),
        (LEFT, {"side": "source", "max_edges": 2}, "unit.side"),
        (LEFT, {"side": "both", "max_edges": 2}, "unit.side"),
        (LEFT, {"side": "left", "max_edges": 2, "column": "x"}, "unit: unknown field 'column'"),
        (LEFT, {"side": "left", "max_edges": 11}, "at most 10 edges"),
        (LEFT, {"side": "right", "max_edges": 9}, "at most 8 edges"),
        (LEFT, "left", "unit"),
        (SOURCE, {"side": "left", "max_edges": 2}, "unit.side"),
        (SOURCE, {"side": "source", "max_edges": 10}, "at most 9 edges"),
        (SOURCE | {"directed": False}, {"side": "source", "max_edges": 2}, "belongs to two nodes"),
        (
            {"name": "m", "kind": "matrix", "rows": 2, "columns": 2, "lower": 0, "upper": 1, "budget": BUDGET},
            {"side": "left", "max_edges": 1},
            "unknown field 'unit'",
        ),
    ],
)
def test_what_is_no_unit_is_refused(spec: dict[str, Any], unit: Any, told: str) -> None:
    """With what is wrong of it. Would catch a general graph that is said to hide whole nodes, and a side that is
    mistaken for the other."""
    with pytest.raises(InvalidDataset) as caught:
        parse_spec(spec | {"unit": unit})
    assert told in caught.value.detail


def test_a_unit_stands_in_the_declaration() -> None:
    """It is read back as it was written, and is what neighbours differ in; no graph has more edges than are kept. Would
    catch a gamma of one edge."""
    left, source = parse_spec(LEFT), parse_spec(SOURCE)
    assert isinstance(left, BipartiteSpec)
    assert isinstance(source, GraphSpec)
    assert left.unit == OneSide(side="left", max_edges=2)
    assert source.unit == Sources(side="source", max_edges=2)
    for declared, capacity in ((LEFT, 16), (RIGHT, 16), (SOURCE, 20), (LEFT | {"unit": None}, 80)):
        spec = parse_spec(declared)
        assert parse_spec(written(spec)) == spec
        assert space_of(spec).capacity == capacity
        assert space_of(spec).unit == (1 if declared["unit"] is None else 2)
