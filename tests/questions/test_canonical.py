"""The canonical form: one for equal weights however spelled, another for other weights, and read back strictly."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import numpy as np
import orjson
import pytest
import rfc8785
from hypothesis import given, settings
from hypothesis import strategies as st

from app.spaces.errors import InvalidQuery
from app.spaces.queries.linear import CompiledLocal, CompiledPair
from app.spaces.queries.registry import from_canonical
from app.spaces.query import Query
from tests.kit.strategies import BUDGET, Universe, Words, bipartites, graphs, queries, tables, universe, universes

pytestmark = pytest.mark.unit

AGES = [0.1 * i for i in range(4)]
TABLE = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [
            {"name": "code", "size": 4},
            {"name": "sex", "values": ["f", "m"]},
            {"name": "age", "lower": 0, "upper": 0.3, "bins": 3},
        ],
        "budget": BUDGET,
    }
)


def blobs(query: Query) -> dict[str, bytes]:
    return {} if query.blob is None else {query.canonical["sha256"]: query.blob}


def one_digest(u: Universe, spellings: list[Words]) -> None:
    digests = {u.compiled(words).digest for words in spellings}
    assert len(digests) == 1, [u.compiled(words).canonical for words in spellings]


def dense(u: Universe, query: Query) -> Words:
    """The same weights spelled cell by cell."""
    weights = np.zeros(u.space.shape)
    for cell, weight in u.weights(query).items():
        weights[cell] = float(weight)
        if u.undirected:
            weights[cell[::-1]] = float(weight)
    return {"type": "dense", "weights": weights.tolist()}


def sparse(u: Universe, query: Query, order: Any = sorted) -> Words:
    cells = order([c for c, w in u.weights(query).items() if w])
    weights = u.weights(query)
    return {"type": "sparse", "indices": [list(c) for c in cells], "weights": [float(weights[c]) for c in cells]}


@given(st.data())
def test_a_form_read_back_is_the_same_query(d) -> None:
    """Would catch a canonical form that loses something: a bit, a side, the order of indices."""
    u = d.draw(universes())
    query = u.compiled(d.draw(queries(u)))
    again = from_canonical(u.space, orjson.loads(query.canonical_bytes), blobs(query))
    assert again.canonical_bytes == query.canonical_bytes
    assert u.weights(again) == u.weights(query)
    assert again.grid_bits == query.grid_bits


@given(st.data())
def test_forms_are_rfc8785_bytes_of_integers_and_ascii(d) -> None:
    """Entries embed these bytes: would catch a form that the RFC 8785 library would write otherwise."""
    u = d.draw(universes())
    query = u.compiled(d.draw(queries(u)))
    assert rfc8785.dumps(query.canonical) == query.canonical_bytes
    assert query.canonical_bytes.isascii()


@pytest.mark.slow
@settings(max_examples=100)
@given(st.data())
def test_one_digest_means_equal_weights(d) -> None:
    """Would catch two queries of different weights under one digest: the second would get the first's answer."""
    u = d.draw(universes())
    first, second = (u.compiled(d.draw(queries(u))) for _ in range(2))
    if first.digest == second.digest:
        assert u.weights(first) == u.weights(second)
    if u.weights(first) != u.weights(second):
        assert first.canonical != second.canonical


def simple(query: Query) -> bool:
    """Not one of the forms that are known by their sides, or by what some attributes' values weigh, alone."""
    return not (isinstance(query, CompiledPair) and query.grid_bits) and not isinstance(query, CompiledLocal)


def on_the_cells_grid(u: Universe, query: Query) -> bool:
    """Whether the weights survive being spelled cell by cell: products of several weighted axes may be finer."""
    grid = 2 ** u.space.axis_bits(1)
    return all((w * grid).denominator == 1 for w in u.weights(query).values())


@pytest.mark.slow
@settings(max_examples=120)
@given(st.data())
def test_equal_weights_have_one_digest_cell_by_cell_too(d) -> None:
    """Any product and any cut is recognised when it is spelled as a list of cells or as an array. Would catch a
    repeated question that is paid for again."""
    u = d.draw(universes())
    query = u.compiled(d.draw(queries(u)))
    if not simple(query) or not on_the_cells_grid(u, query):
        return
    shuffled = d.draw(st.permutations([c for c, w in u.weights(query).items() if w]))
    one_digest(u, [dense(u, query), sparse(u, query), sparse(u, query, lambda _: shuffled)])
    assert u.compiled(dense(u, query)).digest == query.digest


def test_spellings_of_a_predicate() -> None:
    """equals, in, between; repeated and permuted values; products and arrays of 0 and 1; attributes named in vain."""
    for where in (
        [{"code": {"equals": 2}}, {"code": {"in": [2]}}, {"code": {"in": [2, 2]}}, {"code": {"between": [2, 2]}}],
        [{"code": {"between": [1, 3]}}, {"code": {"in": [3, 1, 2]}}, {"code": {"in": [1, 2, 3, 3, 1]}}],
        [{}, {"sex": {"in": ["m", "f"]}}, {"code": {"between": [0, 3]}}, {"age": {"between": [0, 0.3]}}],
        [{"sex": {"equals": "m"}, "code": {"in": [0]}}, {"code": {"equals": 0}, "sex": {"in": ["m"]}}],
        [{"age": {"between": [0.1, 0.3]}}, {"age": {"between": [0.1, 0.3]}, "sex": {"in": ["f", "m"]}}],
    ):
        spellings = [{"type": "predicate", "where": w} for w in where]
        query = TABLE.compiled(spellings[0])
        vectors = {
            name: [float(i in chosen) for i in range(n)]
            for axis, (name, n) in enumerate(zip(TABLE.space.names, TABLE.space.shape, strict=True))
            if (chosen := {c[axis] for c, w in TABLE.weights(query).items() if w}) is not None
        }
        product = {"type": "product", "weights": vectors}
        one_digest(TABLE, [*spellings, product, dense(TABLE, query), sparse(TABLE, query)])


def test_products_with_a_weighted_axis() -> None:
    """A factor of one, a constant factor on another axis, and one that rounds to 0 and 1 change nothing; the axis
    that keeps its weights gets the same bits however many were given."""
    weights = [0.5, 0.25, 1.0, -0.125]
    for plain, others in (
        ({"code": weights}, [{"code": weights, "sex": [1, 1]}, {"code": weights, "sex": [1.0, 1 - 1e-12]}]),
        ({"code": weights, "sex": [0, 1]}, [{"code": weights, "sex": [1e-12, 1.0]}]),
        ({"code": [0.5] * 4}, [{"sex": [0.5] * 2}, {"age": [0.5] * 3}]),
        ({"code": [0.5, 0, 0, 0], "sex": [0, 1]}, [{"code": [1, 0, 0, 0], "sex": [0, 0.5]}]),
        # two weighted axes, whose common factor may stand on either
        ({"code": weights, "sex": [1, -0.5]}, [{"sex": [1, -0.5], "code": weights}]),
        ({"code": [0.5, 1, 0, 1], "sex": [0.5, 0.25]}, [{"code": [0.25, 0.5, 0, 0.5], "sex": [1, 0.5]}]),
        ({"code": [0.5, 1, 0, 1], "sex": [0.5, 0.25]}, [{"code": [-0.5, -1, 0, -1], "sex": [-0.5, -0.25]}]),
        ({"code": [0.75] * 4, "sex": [0.5] * 2}, [{"age": [0.375] * 3}]),
        ({"code": [0.75, 0, 0, 0], "sex": [0.5, 0.25]}, [{"code": [0.5, 0, 0, 0], "sex": [0.75, 0.375]}]),
        # signs that cancel: a predicate
        ({"code": [0, 1, 1, 0]}, [{"code": [0, -1, -1, 0], "sex": [-1, -1]}]),
        ({"code": [-1] * 4}, [{"sex": [-1, -1]}, {"sex": [-1, -1], "age": [-1] * 3, "code": [-1] * 4}]),
    ):
        spelled = [{"type": "product", "weights": w} for w in (plain, *others)]
        query = TABLE.compiled(spelled[0])
        one_digest(TABLE, [*spelled, dense(TABLE, query), sparse(TABLE, query)])


def test_nearly_a_product_is_none() -> None:
    """A product in all cells but one, with small weights: would catch an array that is taken for a product by its
    first row and column."""
    outer = np.multiply.outer([0.5, 0.25, 0.75, 1.0], np.multiply.outer([0.5, -1.0], [0.25, 0.5, 1.0]))
    product = TABLE.compiled({"type": "dense", "weights": outer.tolist()})
    assert product.canonical["type"] == "product"
    for cell in TABLE.cells:
        changed_ = outer.copy()
        changed_[cell] = 0.375 if outer[cell] != 0.375 else 0.625
        query = TABLE.compiled({"type": "dense", "weights": changed_.tolist()})
        assert query.canonical["type"] == "dense"
        assert [float(w) for w in TABLE.weights(query).values()] == changed_.reshape(-1).tolist()


@given(st.data())
def test_spellings_of_a_cut(d) -> None:
    """'all' or every node, ids repeated or permuted, labels, 0/1 rank-one, cells; undirected (S, T) and (T, S)."""
    u = d.draw(st.one_of(bipartites(), graphs()))
    bipartite = u.declared["kind"] == "bipartite"
    names = [
        u.declared.get("left_labels" if bipartite else "labels", list(range(u.space.shape[0]))),
        u.declared.get("right_labels" if bipartite else "labels", list(range(u.space.shape[1]))),
    ]
    sides = [d.draw(st.lists(st.sampled_from(n), unique=True)) for n in names]
    if d.draw(st.booleans()):
        sides[0] = names[0]

    def messy(side: list[Any]) -> list[Any]:
        return d.draw(st.permutations(side + side[: d.draw(st.integers(0, len(side)))]))

    bits = [[float(n in side) for n in all_] for all_, side in zip(names, sides, strict=True)]
    spellings: list[Words] = [
        {"type": "cut", "left": sides[0], "right": sides[1]},
        {"type": "cut", "left": messy(sides[0]), "right": messy(sides[1])},
        {"type": "rank_one", "left": bits[0], "right": bits[1]},
    ]
    if sides[0] == names[0]:
        spellings.append({"type": "cut", "left": "all", "right": sides[1]})
    if u.undirected:
        spellings.append({"type": "cut", "left": sides[1], "right": sides[0]})
        spellings.append({"type": "rank_one", "left": bits[1], "right": bits[0]})
    query = u.compiled(spellings[0])
    one_digest(u, [*spellings, dense(u, query), sparse(u, query)])


@pytest.mark.parametrize("nodes", [2, 3, 4])
def test_undirected_cuts_have_one_digest_exactly_when_they_cut_the_same_edges(nodes: int) -> None:
    """All cuts of small graphs: S = {a}, T = {b} and S = T = {a, b} cut the same edge. Would catch any other such
    coincidence that the form does not know, and any cut that an array of 0 and 1 is mistaken for."""
    u = universe({"name": "g", "kind": "graph", "nodes": nodes, "budget": BUDGET})
    subsets = [list(s) for k in range(nodes + 1) for s in itertools.combinations(range(nodes), k)]
    by_weights: dict[tuple[Any, ...], set[bytes]] = {}
    for left, right in itertools.product(subsets, subsets):
        query = u.compiled({"type": "cut", "left": left, "right": right})
        by_weights.setdefault(tuple(u.weights(query).items()), set()).add(query.digest)
    assert all(len(digests) == 1 for digests in by_weights.values())
    assert len(set.union(*by_weights.values())) == len(by_weights)
    # Every graph on these nodes, cells listed: a cut is recognised as one, and nothing else is.
    for chosen in itertools.product([0, 1], repeat=len(u.cells)):
        cells = [list(c) for c, on in zip(u.cells, chosen, strict=True) if on]
        query = u.compiled({"type": "sparse", "indices": cells, "weights": [1.0] * len(cells)})
        key = tuple(u.weights(query).items())
        assert [float(w) for _, w in key] == [float(on) for on in chosen]
        assert {query.digest} == by_weights.get(key, {query.digest})


@given(tables(), st.data())
def test_weighted_undirected_and_product_sides_commute(u: Universe, d) -> None:
    """The order in which attributes are named changes nothing."""
    words = d.draw(queries(u).filter(lambda w: w["type"] in ("predicate", "product")))
    key = "where" if words["type"] == "predicate" else "weights"
    turned = words | {key: dict(reversed(words[key].items()))}
    one_digest(u, [words, turned])


@pytest.mark.slow
@given(graphs(directed=False), st.data())
def test_an_undirected_rank_one_query_and_its_mirror_are_one(u: Universe, d) -> None:
    """(u, v) and (v, u) weigh every pair alike."""
    words = d.draw(queries(u).filter(lambda w: w["type"] == "rank_one"))
    one_digest(u, [words, words | {"left": words["right"], "right": words["left"]}])


def test_a_pair_of_an_undirected_graph_may_be_written_either_way() -> None:
    """As a cell above or below the diagonal, flat or per axis, in any order."""
    u = universe({"name": "g", "kind": "graph", "nodes": 9, "budget": BUDGET})
    one_digest(
        u,
        [
            {"type": "sparse", "indices": [[0, 1], [2, 7], [3, 8]], "weights": [0.5, -1.0, 0.25]},
            {"type": "sparse", "indices": [[1, 0], [7, 2], [8, 3]], "weights": [0.5, -1.0, 0.25]},
            {"type": "sparse", "indices": [[8, 3], [2, 7], [1, 0]], "weights": [0.25, -1.0, 0.5]},
            {"type": "sparse", "indices": [9, 25, 75], "weights": [0.5, -1.0, 0.25]},
        ],
    )


# ---------------------------------------------------------------------------------- forms that are not canonical

GRAPH = universe({"name": "g", "kind": "graph", "nodes": 6, "budget": BUDGET})
WEIGHTED = [0, {"bits": 3, "weights": [4, 2, 8, -1]}]
assert TABLE.compiled({"type": "product", "weights": {"code": [0.5, 0.25, 1.0, -0.125]}}).canonical == {
    "axes": [WEIGHTED],
    "type": "product",
}
TWO = [[0, {"bits": 2, "weights": [2, 1, 4, 0]}], [1, {"bits": 1, "weights": [2, 1]}]]
assert TABLE.compiled({"type": "product", "weights": {"code": [0.5, 0.25, 1, 0], "sex": [1, 0.5]}}).canonical == {
    "axes": TWO,
    "type": "product",
}
SIDES = [0.5, 1, 0.25, 0, 0, 0], [1, 0.5, 0, 0.25, 0, 0]
PAIR = GRAPH.compiled({"type": "rank_one", "left": SIDES[0], "right": SIDES[1]}).canonical
DENSE_WORDS = {"type": "dense", "weights": np.arange(24).reshape(4, 2, 3).astype(float) / 24}
DENSE_WORDS["weights"] = DENSE_WORDS["weights"].tolist()
LEAST = -(2**63)


def changed(form: Any, **changes: Any) -> dict[str, Any]:
    return copy.deepcopy(form) | changes


def one(bits: int) -> int:
    return 1 << bits


def weighted(axis: dict[str, Any]) -> dict[str, Any]:
    return {"type": "product", "axes": [[0, axis]]}


@pytest.mark.parametrize(
    "form",
    [
        None,
        [],
        "zero",
        5,
        {},
        {"type": "unknown"},
        {"type": []},
        {"type": "zero", "bits": 0},
        {"type": "product"},
        {"type": "product", "axes": 5},
        {"type": "product", "axes": [5]},
        {"type": "product", "axes": [[0, 5]]},
        {"type": "product", "axes": [[3, {"in": [0]}]]},
        {"type": "product", "axes": [[-1, {"in": [0]}]]},
        {"type": "product", "axes": [["0", {"in": [0]}]]},
        {"type": "product", "axes": [[0, {"in": [0]}]]},  # contiguous: a range
        {"type": "product", "axes": [[0, {"range": [0, 4]}]]},  # all of the axis
        {"type": "product", "axes": [[0, {"range": [2, 2]}]]},
        {"type": "product", "axes": [[0, {"range": [3, 1]}]]},
        {"type": "product", "axes": [[0, {"range": [0, 5]}]]},
        {"type": "product", "axes": [[0, {"range": [-1, 2]}]]},
        {"type": "product", "axes": [[0, {"range": [0, 2, 1]}]]},
        {"type": "product", "axes": [[0, {"range": [0, 10**15]}]]},  # would fill the memory
        {"type": "product", "axes": [[0, {"range": [-(10**15), 2]}]]},
        {"type": "product", "axes": [[0, {"range": [0.5, 2]}]]},
        {"type": "product", "axes": [[0, {"range": [0, 2]}], [0, {"range": [0, 2]}]]},
        {"type": "product", "axes": [[1, {"range": [0, 1]}], [0, {"range": [0, 1]}]]},
        {"type": "product", "axes": [[0, {"in": [2, 0]}]]},
        {"type": "product", "axes": [[0, {"in": [0, 0, 2]}]]},
        {"type": "product", "axes": [[0, {"in": [0, 4]}]]},
        {"type": "product", "axes": [[0, {"in": [-1, 2]}]]},
        weighted({"weights": [4, 2, 8, -1]}),  # no bits
        weighted({"bits": 3, "weights": [4, 2, 8, -1], "more": 1}),
        weighted({"bits": 3, "weights": [4, 2, 8, -1]}) | {"bits": 3},
        weighted({"bits": 4, "weights": [8, 4, 16, -2]}),  # not in lowest terms
        weighted({"bits": 2, "weights": [4, 2, 8, -1]}),  # above one
        weighted({"bits": "3", "weights": [4, 2, 8, -1]}),
        weighted({"bits": 3.0, "weights": [4, 2, 8, -1]}),
        weighted({"bits": None, "weights": [4, 2, 8, -1]}),
        weighted({"bits": -1, "weights": [4, 2, 8, -1]}),
        weighted({"bits": 31, "weights": [1, 2, 3, 4]}),  # more than the capacity leaves
        weighted({"bits": 10**9, "weights": [1, 2, 3, 4]}),
        weighted({"bits": 20, "weights": [2**20 + 1, 0, 0, 1]}),
        weighted({"bits": 20, "weights": [LEAST, 0, 0, 1]}),
        weighted({"bits": 20, "weights": [2**70, 0, 0, 1]}),
        weighted({"bits": 3, "weights": [1, 2, 3]}),
        weighted({"bits": 3, "weights": [1, 2, 3, 0.5]}),
        weighted({"bits": 3, "weights": [0, 0, 0, 0]}),
        weighted({"bits": 0, "weights": [0, 1, 1, 0]}),  # an index set
        weighted({"bits": 0, "weights": [0, 1, 1, 1]}),
        {"type": "product", "axes": [[2, {"bits": 3, "weights": [5, 5, 5]}]]},  # constant: on the first axis
        {"type": "product", "axes": [[0, {"bits": 1, "weights": [2, 1, 4, 0]}], [1, {"bits": 2, "weights": [2, 1]}]]},
        {"type": "product", "axes": [[0, {"bits": 2, "weights": [2, 1, 4, 0]}], [1, {"bits": 2, "weights": [4, 2]}]]},
        {"type": "product", "axes": [[0, {"bits": 2, "weights": [2, 1, 4, 0]}], [1, {"bits": 1, "weights": [-2, 1]}]]},
        {"type": "product", "axes": TWO[::-1]},
        {"type": "product", "axes": TWO + TWO},
        {"type": "pair", "sides": [{"range": [0, 1]}, {"range": [1, 2]}]},  # no undirected graph
        {"type": "sparse", "bits": 20, "indices": [], "weights": []},
        {"type": "sparse", "bits": 20, "indices": [3, 1], "weights": [1, 2]},
        {"type": "sparse", "bits": 20, "indices": [1, 1], "weights": [1, 2]},
        {"type": "sparse", "bits": 20, "indices": [1, 24], "weights": [1, 2]},
        {"type": "sparse", "bits": 20, "indices": [-1, 1], "weights": [1, 2]},
        {"type": "sparse", "bits": 20, "indices": [0, 5, 10], "weights": [1, 2]},
        {"type": "sparse", "bits": 20, "indices": [0, 2**63 - 1, -(2**63) + 5], "weights": [1, 2, 3]},  # steps wrap
        {"type": "product", "axes": [[-1, {"range": [0, 1]}]]},
        {"type": ["product"], "axes": []},
        {"type": "sparse", "bits": 20, "indices": [0, 10], "weights": [1, LEAST]},
        {"type": "sparse", "bits": 20, "indices": [0, 10], "weights": [1, 2**20 + 1]},
        {"type": "sparse", "bits": 20, "indices": [0, 10], "weights": [0, 7]},
        {"type": "sparse", "bits": 20, "indices": [[0, 0, 0], [1, 1, 1]], "weights": [1, 2]},
        {"type": "sparse", "bits": 20, "indices": 7, "weights": 7},
        {"type": "sparse", "bits": 19, "indices": [0, 10], "weights": [1, 2]},
        {"type": "sparse", "bits": 20, "indices": list(range(24)), "weights": list(range(1, 25))},  # an array
        {"type": "dense", "bits": 20, "sha256": "absent"},
        {"type": "dense", "bits": 20, "sha256": ["absent"]},
        {"type": "dense", "bits": 20},
    ],
)
def test_what_is_not_canonical_is_refused(form: Any) -> None:
    """An audit reads these from a stranger's file: would catch a second form of one query, a weight out of range
    (also the integer whose absolute value is negative), an index outside, and anything that ends in another
    exception or fills the memory."""
    with pytest.raises(InvalidQuery):
        from_canonical(TABLE.space, form, {})


@pytest.mark.parametrize(
    "form",
    [
        changed(PAIR, bits=PAIR["bits"] - 1),
        changed(PAIR, sides=PAIR["sides"][::-1]),
        changed(PAIR, sides=PAIR["sides"][:1]),
        changed(PAIR, sides=PAIR["sides"] * 2),
        changed(PAIR, sides=[{"weights": [-5, 1, 1, 1, 1, 1]}, {"weights": [1, 2, 3, 4, 5, 6]}]),
        changed(PAIR, sides=[{"weights": [LEAST, 1, 1, 1, 1, 1]}, {"weights": [1, 2, 3, 4, 5, 6]}]),
        changed(PAIR, sides=[{"in": [0, 1, 2, 3, 4, 5]}, {"weights": [1, 2, 3, 4, 5, 6]}]),
        changed(
            PAIR, sides=[{"weights": [one(PAIR["bits"]), *[0] * 5]}, {"weights": [0, one(PAIR["bits"]), *[0] * 4]}]
        ),
        {"type": "pair", "sides": [{"range": [0, 1]}, {"range": [1, 2]}]},  # always on both sides
        {"type": "pair", "sides": [{"range": [0, 2]}, {"range": [0, 2]}], "bits": 20},
        {"type": "pair", "sides": [{"weights": [1, 0, 0, 0, 0, 0]}, {"weights": [0, 1, 0, 1, 0, 0]}]},
        {"type": "pair", "sides": [{"range": [0, 10**15]}, {"range": [0, 2]}]},
        {"type": "product", "axes": []},
        {"type": "sparse", "bits": 20, "indices": [6], "weights": [7]},  # row 1, column 0
        {"type": "sparse", "bits": 20, "indices": [7], "weights": [7]},  # the diagonal
    ],
)
def test_what_is_not_canonical_of_an_undirected_graph_is_refused(form: Any) -> None:
    """As above; and weights of an undirected rank-one query that are below 0, where the weight of a pair could reach
    3, and a pair written the other way round or on the diagonal."""
    with pytest.raises(InvalidQuery):
        from_canonical(GRAPH.space, form, {})


def blob_form(u: Universe, array: np.ndarray, bits: int = 20) -> tuple[dict[str, Any], dict[str, bytes]]:
    import hashlib

    blob = array.astype("<i4").tobytes()
    name = hashlib.sha256(blob).hexdigest()
    return {"bits": bits, "sha256": name, "type": "dense"}, {name: blob}


@pytest.mark.parametrize(
    ("u", "array"),
    [
        (TABLE, np.arange(23)),
        (TABLE, np.where(np.arange(24) == 3, -(2**31), np.arange(24))),
        (TABLE, np.where(np.arange(24) == 3, 2**20 + 1, np.arange(24))),
        (TABLE, np.zeros(24)),
        (TABLE, np.full(24, 7)),
        (GRAPH, np.arange(36)),
        (GRAPH, np.arange(36).reshape(6, 6) + np.arange(36).reshape(6, 6).T),
    ],
)
def test_dense_weights_that_are_not_canonical_are_refused(u: Universe, array: np.ndarray) -> None:
    """Would catch a wrong length, a weight past one (also -2^31, whose absolute value is itself in 32 bits), a
    product spelled as an array, and an undirected array that is not symmetric with zero diagonal."""
    form, named = blob_form(u, array)
    with pytest.raises(InvalidQuery):
        from_canonical(u.space, form, named)


def test_dense_weights_are_read_from_their_blob() -> None:
    """The other side of the refusals above: what they look like when they are right."""
    query = TABLE.compiled(DENSE_WORDS)
    form, named = blob_form(TABLE, np.rint(np.arange(24) / 24 * 2**20))
    assert form == query.canonical
    assert from_canonical(TABLE.space, form, named).digest == query.digest


@pytest.mark.slow
@settings(max_examples=200)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=4)
            | st.dictionaries(
                st.sampled_from(["type", "axes", "sides", "bits", "in", "range", "weights", "indices", "sha256"]), inner
            )
        ),
        max_leaves=12,
    ),
    st.sampled_from(["product", "pair", "sparse", "dense", "zero"]),
    st.sampled_from([TABLE, GRAPH]),
)
def test_no_form_ends_in_another_exception(form: Any, kind: str, u: Universe) -> None:
    """Whatever stands in a file, the reader refuses it or takes it."""
    if isinstance(form, dict):
        form = {**form, "type": kind}
    try:
        query = from_canonical(u.space, form, {})
    except InvalidQuery:
        return
    assert query.canonical == form


@pytest.mark.slow
@settings(max_examples=150)
@given(st.data())
def test_no_query_is_rounded_by_more_than_the_space_says(d) -> None:
    """Of whatever form and spelling. Would catch a bound of a replay that calls honest transcripts forged."""
    u = d.draw(universes())
    assert u.compiled(d.draw(queries(u))).rounding <= u.space.most_rounding


@pytest.mark.parametrize("axes", [1, 2, 5, 12, 26])
def test_the_worst_rounding_of_many_axes(axes: int) -> None:
    """Every weight half a unit off on as many axes as can be weighted at all: as much as is said, and hardly less."""
    attributes = [{"name": f"x{i}", "size": 2} for i in range(axes)]
    u = universe({"name": "t", "kind": "table", "attributes": attributes, "budget": BUDGET})
    off = 1 - 2.0 ** -(u.space.axis_bits(axes) + 1)
    query = u.compiled({"type": "product", "weights": {a["name"]: [1.0, off] for a in attributes}})
    assert 0.5 * u.space.most_rounding < query.rounding <= u.space.most_rounding


def test_the_worst_rounding_of_pairs() -> None:
    """A graph's weights on both sides, each half a unit off."""
    u = universe({"name": "g", "kind": "graph", "nodes": 4, "budget": BUDGET})
    half = 2.0 ** -(u.space.axis_bits(2) + 1)
    sides = [1 - half, 0.5 + half, 1 - 3 * half, 0.25 + half]
    query = u.compiled({"type": "rank_one", "left": sides, "right": sides[::-1]})
    assert 0.5 * u.space.most_rounding < query.rounding <= u.space.most_rounding
