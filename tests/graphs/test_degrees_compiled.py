"""Histograms of degrees against degrees that are counted edge by edge, and what neighbouring graphs move them by."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import orjson
import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from app.spaces.errors import InvalidQuery
from app.spaces.queries.degrees import CompiledDegrees
from app.spaces.queries.registry import from_canonical
from tests.kit.strategies import BUDGET, Universe, Words, bipartites, data, graphs, universe

pytestmark = pytest.mark.unit

DIRECTED = universe({"name": "g", "kind": "graph", "nodes": 4, "directed": True, "budget": BUDGET})
FRIENDS = universe({"name": "g", "kind": "graph", "nodes": 4, "budget": BUDGET})
LIKES = universe({"name": "b", "kind": "bipartite", "left": 2, "right": 4, "budget": BUDGET})
WEIGHTED = universe({"name": "g", "kind": "graph", "nodes": 4, "weighted": True, "budget": BUDGET})
RATINGS = universe({"name": "m", "kind": "matrix", "rows": 3, "columns": 4, "lower": 0, "upper": 1, "budget": BUDGET})


def asked(u: Universe, words: Words) -> CompiledDegrees:
    query = u.compiled({"type": "degrees"} | words)
    assert isinstance(query, CompiledDegrees)
    return query


def sides(u: Universe) -> list[Words]:
    if u.undirected:
        return [{}]
    bipartite = u.declared["kind"] == "bipartite"
    return [{"side": side} for side in (["left", "right"] if bipartite else ["out", "in"])]


@st.composite
def questions(draw: st.DrawFn) -> tuple[Universe, Words]:
    u = draw(st.one_of(graphs(), bipartites()).filter(lambda u: u.space.data_bits == 0))
    words = draw(st.sampled_from(sides(u)))
    most = u.space.shape[words.get("side") not in ("right", "in")] - (u.declared["kind"] == "graph")
    if draw(st.booleans()):
        words = words | {"bins": [0, *sorted(draw(st.sets(st.integers(1, most), min_size=1)))]}
    return u, words


@given(st.data())
def test_nodes_are_counted_by_their_edges(d: st.DataObject) -> None:
    """In every layout; and the form is read back as the same question. Would catch the other side's degrees, an edge of
    an undirected graph that counts for one of its ends, and a bin that holds its upper edge."""
    u, words = d.draw(questions())
    query = asked(u, words)
    x = d.draw(data(u))
    axis = int(words.get("side") in ("right", "in"))
    degrees = [
        sum(value for cell, value in x.items() if cell[axis] == node or (u.undirected and cell[1] == node))
        for node in range(u.space.shape[axis])
    ]
    ends = [*query.edges[1:], 10**9]
    truth = [sum(low <= degree < high for degree in degrees) for low, high in zip(query.edges, ends, strict=True)]
    for tensor in u.tensors(u.array(x)):
        exact = query.exact(tensor)
        assert exact.dtype == np.int64
        assert exact.tolist() == query.ordered(exact).tolist() == truth
    assert query.numbers == len(query.labels[0]["labels"]) == len(truth)
    assert rfc8785.dumps(query.canonical) == query.canonical_bytes
    back = from_canonical(u.space, orjson.loads(query.canonical_bytes), {})
    assert isinstance(back, CompiledDegrees)
    assert (back.canonical, back.labels, back.nodes) == (query.canonical, query.labels, query.nodes)


def test_bins_in_words() -> None:
    """Single degrees, ranges, and the last bin without end; doubling where nothing is said."""
    u = universe({"name": "g", "kind": "graph", "nodes": 12, "budget": BUDGET})
    query = asked(u, {"bins": [0, 1, 2, 5, 10]})
    assert query.labels == [{"attribute": "degree", "labels": ["0", "1", "2-4", "5-9", "10+"]}]
    assert asked(u, {}).edges == (0, 1, 2, 4, 8)
    assert asked(u, {}).canonical == {"axis": 0, "bins": [0, 1, 2, 4, 8], "type": "degrees"}
    # A graph's node is no neighbour of its own, so that nobody has 4 of them; to the left of LIKES there may be 4.
    assert asked(FRIENDS, {}).edges == (0, 1, 2)
    assert asked(LIKES, {"side": "left"}).edges == (0, 1, 2, 4)
    assert asked(LIKES, {"side": "right"}).edges == (0, 1, 2)


def test_sides_of_a_directed_graph() -> None:
    """``out`` is left and ``in`` is right, and the two spellings are one question."""
    for one, other in (("out", "left"), ("in", "right")):
        assert asked(DIRECTED, {"side": one}).digest == asked(DIRECTED, {"side": other}).digest
    assert asked(DIRECTED, {"side": "out"}).digest != asked(DIRECTED, {"side": "in"}).digest


@pytest.mark.parametrize(
    ("u", "words", "says"),
    [
        (FRIENDS, {"side": "out"}, "leave it out"),
        (DIRECTED, {}, "side: say of which nodes: out, in, left, right"),
        (LIKES, {}, "side: say of which nodes: left, right"),
        (LIKES, {"side": "out"}, "side: say of which nodes: left, right"),
        (FRIENDS, {"side": "both"}, "side: must be"),
        (FRIENDS, {"bins": [1, 2]}, "bins ascend from 0"),
        (FRIENDS, {"bins": [0, 2, 2]}, "bins ascend from 0"),
        (FRIENDS, {"bins": [0]}, "bins: must have at least 2"),
        (FRIENDS, {"bins": [0, 4]}, "more than 3 neighbours"),
        (FRIENDS, {"bins": [0, 2**80]}, "bins"),
        (FRIENDS, {"bins": [0, 1.5]}, "bins"),
        (WEIGHTED, {}, "blocks or cuts"),
        (RATINGS, {"side": "left"}, "degrees query does not fit a matrix"),
    ],
)
def test_what_is_refused(u: Universe, words: Words, says: str) -> None:
    """Before anything is drawn, with what to change."""
    with pytest.raises(InvalidQuery, match=says):
        asked(u, words)


@pytest.mark.parametrize(
    ("u", "form"),
    [
        (FRIENDS, {"axis": 1, "bins": [0, 1]}),
        (FRIENDS, {"axis": 0, "bins": [0, 9]}),
        (FRIENDS, {"axis": 0, "bins": [1, 2]}),
        (FRIENDS, {"axis": 0, "bins": [0, 2, 1]}),
        (FRIENDS, {"axis": 0, "bins": [0]}),
        (FRIENDS, {"axis": False, "bins": [0, 1]}),
        (FRIENDS, {"axis": 0, "bins": []}),
        (FRIENDS, {"axis": 0, "bins": [0, 1.0]}),
        (DIRECTED, {"axis": 2, "bins": [0, 1]}),
        (WEIGHTED, {"axis": 0, "bins": [0, 1]}),
    ],
)
def test_other_forms_are_none(u: Universe, form: Words) -> None:
    with pytest.raises(InvalidQuery):
        from_canonical(u.space, {"type": "degrees"} | form, {})


# ---------------------------------------------------------------------------------------- what neighbours move them by


def all_bins(most: int) -> Iterator[tuple[int, ...]]:
    """Every way to cut the degrees into bins."""
    for cuts in itertools.chain.from_iterable(
        itertools.combinations(range(1, most + 1), k) for k in range(1, most + 1)
    ):
        yield (0, *cuts)


def histograms(query: CompiledDegrees, u: Universe, columns: list[np.ndarray]) -> np.ndarray:
    """The answer to a query for each array."""
    return np.array([query.exact(u.space.tensor(array)) for array in columns])


def worst(sensitivity: np.ndarray) -> tuple[int, int]:
    """The largest L1 norm and squared L2 norm of some differences."""
    return int(np.abs(sensitivity).sum(axis=1).max()), int((sensitivity**2).sum(axis=1).max())


@pytest.mark.slow
@pytest.mark.parametrize("u", [FRIENDS, DIRECTED, LIKES], ids=["undirected", "directed", "bipartite"])
def test_an_edge_moves_them_by_what_is_stated(u: Universe) -> None:
    """Over all graphs of four nodes (two and four on two sides), all bins and sides, the worst over neighbours is what
    is stated, no less and no more: 2 and 2, of undirected graphs 4 and 8. Would catch a sensitivity that counts one end
    of an undirected edge, or takes its two nodes to move to different bins."""
    cells = [cell for cell in u.cells if u.declared["kind"] == "bipartite" or cell[0] != cell[1]]
    arrays = [u.array({cell: mask >> k & 1 for k, cell in enumerate(cells)}) for mask in range(1 << len(cells))]
    for words in sides(u):
        most = u.space.shape[words.get("side") not in ("right", "in")] - (u.declared["kind"] == "graph")
        for edges in all_bins(most):
            query = asked(u, words | {"bins": list(edges)})
            found = histograms(query, u, arrays)
            masks = np.arange(len(arrays))
            pairs = [found[masks] - found[masks ^ (1 << k)] for k in range(len(cells))]
            assert worst(np.concatenate(pairs)) == (query.l1(1), query.squared(1))
            assert (query.l1(1), query.squared(1)) == ((4, 8) if u.undirected else (2, 2))


@pytest.mark.parametrize("gamma", [1, 2, 3])
@pytest.mark.parametrize("u", [FRIENDS, DIRECTED, LIKES], ids=["undirected", "directed", "bipartite"])
def test_several_edges(u: Universe, gamma: int) -> None:
    """What is stated of gamma edges bounds all pairs of graphs that are so near, and is met by some where bins end at
    each degree of one. Would catch a bound that grows slower than the number of edges."""
    cells = [cell for cell in u.cells if u.declared["kind"] == "bipartite" or cell[0] != cell[1]]
    rng = np.random.default_rng(gamma)
    masks = rng.integers(0, 1 << len(cells), 400)
    chosen = [sum(1 << int(k) for k in rng.choice(len(cells), gamma, replace=False)) for _ in masks]
    for words in sides(u):
        query = asked(u, words | {"bins": [0, 1]})

        def answers(found: list[int], query: CompiledDegrees = query) -> np.ndarray:
            return histograms(query, u, [u.array({c: m >> k & 1 for k, c in enumerate(cells)}) for m in found])

        near = answers([int(m) for m in masks]) - answers([int(m) ^ c for m, c in zip(masks, chosen, strict=True)])
        l1, squared = worst(near)
        assert l1 <= query.l1(gamma)
        assert squared <= query.squared(gamma)
        # From no edges to those of as many nodes as there are.
        if u.undirected:
            added = [(0, 1), (2, 3), (0, 2)][:gamma]
        else:
            ends = u.space.shape[::-1] if words["side"] in ("right", "in") else u.space.shape
            added = [(k % ends[0], (k + 1) % ends[1]) for k in range(gamma)]
            added = [pair[::-1] for pair in added] if words["side"] in ("right", "in") else added
        sensitivity = answers([0]) - answers([sum(1 << cells.index(cell) for cell in added)])
        assert worst(sensitivity) == (query.l1(gamma), query.squared(gamma))


@pytest.mark.parametrize(("u", "own", "other"), [(DIRECTED, "out", "in"), (LIKES, "left", "right")])
@pytest.mark.parametrize("m", [1, 2, 3])
def test_where_a_node_is_the_unit(u: Universe, own: str, other: str, m: int) -> None:
    """A node with up to m edges, absent or present, over all rows that it may have: of its own side one node moves, of
    the other side up to m, and both bounds are met. Would catch the bounds of the two sides exchanged."""
    cells = [cell for cell in u.cells if cell[0] == 0 and (u.declared["kind"] == "bipartite" or cell[1] != 0)]
    rows = [row for k in range(m + 1) for row in itertools.combinations(cells, k)]
    arrays = [u.array(dict.fromkeys(row, 1)) for row in rows]
    met = {}
    for side in (own, other):
        query = asked(u, {"side": side, "bins": [0, 1]})
        found = histograms(query, u, arrays)
        met[side] = worst(found - found[0])
        assert met[side] == (query.l1(m, "left"), query.squared(m, "left"))
        assert query.l1(m, "left") == query.l1(m, "source")
    assert met[own] == (2, 2)
    assert met[other] == (2 * m, 2 * m * m)
