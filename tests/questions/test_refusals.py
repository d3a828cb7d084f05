"""Every query that does not fit is refused as such, in a sentence that says what to change."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from app.spaces.errors import InvalidQuery
from app.spaces.queries import registry
from app.spaces.queries.cells import dense_of
from app.spaces.queries.registry import parse_query
from tests.kit.strategies import BUDGET, Universe, queries, universe, universes

pytestmark = pytest.mark.unit

TABLE = universe(
    {
        "name": "t",
        "kind": "table",
        "attributes": [
            {"name": "sex", "values": ["female", "male"]},
            {"name": "class", "size": 4},
            {"name": "age", "lower": 15, "upper": 95, "bins": 16},
            {"name": "width", "lower": 0, "upper": 1, "bins": 10},
            {"name": "year", "lower": 2000, "upper": 2004},
        ],
        "budget": BUDGET,
    }
)
BIPARTITE = universe({"name": "b", "kind": "bipartite", "left": 2, "right": 3, "budget": BUDGET})
LABELLED = universe({"name": "l", "kind": "graph", "nodes": 2, "labels": ["a", "b"], "budget": BUDGET})
GRAPH = universe({"name": "g", "kind": "graph", "nodes": 3, "budget": BUDGET})
MATRIX = universe(
    {"name": "m", "kind": "matrix", "rows": 2, "columns": 2, "lower": 0, "upper": 1, "budget": BUDGET},
)
MULTISET = universe({"name": "w", "kind": "multiset", "budget": BUDGET})
DIRECTED = universe({"name": "d", "kind": "graph", "nodes": 3, "directed": True, "budget": BUDGET})


def where(**conditions: Any) -> dict[str, Any]:
    return {"type": "predicate", "where": conditions}


def marginal(*attributes: str, **more: Any) -> dict[str, Any]:
    return {"type": "marginal", "attributes": list(attributes), **more}


def weights(**given_: Any) -> dict[str, Any]:
    return {"type": "product", "weights": given_}


def sparse(indices: Any, given_: Any) -> dict[str, Any]:
    return {"type": "sparse", "indices": indices, "weights": given_}


def dense(given_: Any) -> dict[str, Any]:
    return {"type": "dense", "weights": given_}


def cut(left: Any, right: Any) -> dict[str, Any]:
    return {"type": "cut", "left": left, "right": right}


def rank_one(left: Any, right: Any) -> dict[str, Any]:
    return {"type": "rank_one", "left": left, "right": right}


NAN, INF = math.nan, math.inf

REFUSED: list[tuple[Universe, Any, str]] = [
    # what is no query at all
    (TABLE, None, "."),
    (TABLE, [], "."),
    (TABLE, {}, "type"),
    (TABLE, {"type": "unknown"}, "predicate"),
    (TABLE, where(sex={"equals": "male"}) | {"more": 1}, "more"),
    (TABLE, where(sex={"equals": "male"}) | {"unverified": 1}, "unverified"),
    (TABLE, where(sex="male") | {"within": 0}, "within"),
    (TABLE, where(sex="male") | {"within": INF}, "within"),
    (TABLE, where(sex="male") | {"within": "50"}, "within"),
    (TABLE, where(sex="male") | {"within": True}, "within"),
    (TABLE, where(sex="male") | {"confidence": 1}, "confidence"),
    (TABLE, where(sex="male") | {"confidence": 0}, "confidence"),
    (TABLE, where(sex="male") | {"confidence": NAN}, "confidence"),
    (TABLE, where(sex="male") | {"adaptive": 1}, "adaptive"),
    (TABLE, where(sex="male") | {"within": 5, "unverified": True}, "an unverified answer has no interval"),
    (TABLE, {"type": "predicate"}, "where"),
    # predicates
    (TABLE, where(height={"equals": 1}), "unknown attribute 'height': the attributes are sex, class"),
    (TABLE, where(sex={"equals": "other"}), "sex: not one of the declared values"),
    (TABLE, where(sex={"equals": 1}), "sex: not one of the declared values"),
    (TABLE, where(sex={"in": []}), "sex.in"),
    (TABLE, where(sex={"in": "male"}), "sex.in"),
    (TABLE, where(sex={"between": ["female", "male"]}), "sex: between needs numeric values, dates or codes; use in"),
    (TABLE, where(sex={}), "exactly one of between, in, equals"),
    (TABLE, where(sex={"equals": "male", "in": ["male"]}), "exactly one of between, in, equals"),
    (TABLE, where(sex={"equals": None}), "sex: null: every record has a value"),
    (TABLE, where(sex={"equals": True}), "sex.equals"),
    (TABLE, where(sex={"like": "m"}), "like"),
    (TABLE, where(sex=None), "sex"),
    (TABLE, where(sex="other"), "sex: not one of the declared values"),
    (TABLE, where(sex=[]), "where.sex: must not be empty"),
    (TABLE, where(sex=[["male"]]), "where.sex.0: must be a text or a number"),
    (TABLE, where(sex=True), "where.sex: must be a text or a number"),
    (TABLE, where(sex={"ge": "female"}), "sex: comparisons need numeric values, dates or codes; use in"),
    (TABLE, where(age={"ge": 30, "gt": 30}), "at most one of ge and gt"),
    (TABLE, where(age={"lt": 30, "le": 30}), "one of lt and le"),
    (TABLE, where(age={"ge": 30, "equals": 30}), "exactly one of between, in, equals, at, or comparisons"),
    (TABLE, where(age={"ge": 31}), "age: ge must fall on bin edges"),
    (TABLE, where(age={"ge": "30"}), "age: ge needs numbers"),
    (TABLE, where(age={"ge": 60, "lt": 30}), "age: the range is reversed or empty"),
    (TABLE, where(age={"ge": 95}), "age: the range is reversed or empty"),
    (TABLE, where(age={"gt": 95}), "age: the range is reversed or empty"),
    (TABLE, where(age={"lt": 15}), "age: the range is reversed or empty"),
    (TABLE, where(age={"lt": 95}), "age: the last bin holds its upper edge, which lt would leave out: use le"),
    (TABLE, where(age={"gt": 30}), "age: gt would cut a bin"),
    (TABLE, where(age={"le": 30}), "age: le would cut a bin"),
    (TABLE, where(year={"gt": 2003}), "year: gt would cut a bin"),  # the last is [2003, 2004]
    (TABLE, where(year={"le": 2003}), "year: le would cut a bin"),
    (TABLE, where(**{"class": {"ge": 5}}), "class: codes are the integers 0..3"),
    (TABLE, where(**{"class": {"ge": 4}}), "class: the range is reversed or empty"),
    (TABLE, where(**{"class": {"lt": 0}}), "class: the range is reversed or empty"),
    (TABLE, where(**{"class": {"le": 4}}), "class: codes are the integers 0..3"),
    (TABLE, where(**{"class": {"ge": 1.5}}), "class: codes are the integers 0..3"),
    (TABLE, where(**{"class": {"gt": "1"}}), "class: codes are the integers 0..3"),
    (TABLE, where(**{"class": {"equals": 4}}), "class: codes are the integers 0..3"),
    (TABLE, where(**{"class": {"equals": -1}}), "class: codes are the integers 0..3"),
    (TABLE, where(**{"class": {"equals": 1.5}}), "class: codes are the integers 0..3"),
    (TABLE, where(**{"class": {"equals": "1"}}), "class: codes are the integers 0..3"),
    (TABLE, where(**{"class": {"in": [0, 4]}}), "class: codes are the integers 0..3"),
    (TABLE, where(**{"class": {"in": [-1]}}), "class: codes are the integers 0..3"),
    (TABLE, where(**{"class": {"in": [1, 1.0]}}), "class: codes are the integers 0..3"),
    (TABLE, where(**{"class": {"in": [1, "1"]}}), "class: codes are the integers 0..3"),
    (TABLE, where(**{"class": {"equals": 10**30}}), "class"),
    (TABLE, where(**{"class": {"between": [0, 4]}}), "class: codes are the integers 0..3"),
    (TABLE, where(**{"class": {"between": [2, 1]}}), "class: the range is reversed or empty"),
    (TABLE, where(**{"class": {"between": [2]}}), "between"),
    (TABLE, where(**{"class": {"between": [0, 1, 2]}}), "between"),
    (TABLE, where(age={"between": [30, 41]}), r"age: between must fall on bin edges, which are 15, 20, 25"),
    (TABLE, where(age={"between": [30, 100]}), "age: between must fall on bin edges"),
    (TABLE, where(age={"between": [40, 30]}), "age: the range is reversed or empty"),
    (TABLE, where(age={"between": [30, 30]}), "age: the range is reversed or empty"),
    (TABLE, where(age={"between": ["30", "40"]}), "age: between needs numbers"),
    (TABLE, where(age={"between": [30, NAN]}), "age"),
    (TABLE, where(age={"between": [30, INF]}), "age"),
    (TABLE, where(age={"between": [30, 1e300]}), "age: between must fall on bin edges"),
    (TABLE, where(age={"equals": 30}), "age: a single value would cut a bin: use between with bin edges"),
    (TABLE, where(age={"in": [30, 35]}), "age: a single value would cut a bin: use between with bin edges"),
    (TABLE, where(age={"equals": "30"}), "age"),
    (TABLE, where(width={"between": [0.25, 0.5]}), "width: between must fall on bin edges"),
    (TABLE, where(width={"between": [0.1 + 0.2, 0.5]}), "width: between must fall on bin edges"),
    (TABLE, where(year={"equals": 2003}), "year: a single value would cut a bin"),  # the last is [2003, 2004]
    (TABLE, where(year={"equals": 2000.5}), "year: a single value would cut a bin"),
    # marginals
    (TABLE, {"type": "marginal"}, "attributes"),
    (TABLE, marginal(), "attributes"),
    (TABLE, {"type": "marginal", "attributes": "sex"}, "attributes"),
    (TABLE, {"type": "marginal", "attributes": [0]}, "attributes.0"),
    (TABLE, marginal("height"), "unknown attribute 'height'"),
    (TABLE, marginal("sex", "sex"), "attributes must be distinct"),
    (TABLE, marginal("sex", where={"height": 1}), "unknown attribute 'height'"),
    (TABLE, marginal("sex", where={"sex": "other"}), "sex: not one of the declared values"),
    (TABLE, marginal("sex", where={"sex": "male"}), "two cells or more: ask for a single count with a predicate"),
    (TABLE, marginal("age", bins={"age": [15, 95]}), "two cells or more"),
    (TABLE, marginal("age", bins={"age": [15, 30]}, where={"age": {"ge": 30}}), "where selects none of the records"),
    (TABLE, marginal("sex", bins={"age": [15, 95]}), "bins are of attributes that are asked for"),
    (TABLE, marginal("sex", bins={"sex": [0, 1]}), "sex: bins need numeric values, dates or codes"),
    (TABLE, marginal("sex", bins={"sex": {}}), "bins.sex: must not be empty"),
    (TABLE, marginal("sex", bins={"sex": {"a": [], "b": ["male"]}}), "bins.sex.a: must not be empty"),
    (TABLE, marginal("sex", bins={"sex": {"": ["male"], "b": ["female"]}}), "bins.sex.: must not be empty"),
    (TABLE, marginal("sex", bins={"sex": {"a" * 129: ["male"]}}), "must have at most 128 characters"),
    (TABLE, marginal("sex", bins={"sex": {"a": "male", "b": ["female"]}}), "bins.sex.a: must be a list"),
    (TABLE, marginal("sex", bins={"sex": {"a": [True], "b": ["female"]}}), "bins.sex.a.0"),
    (TABLE, marginal("sex", bins={"sex": {"a": [["male"]], "b": ["female"]}}), "bins.sex.a.0"),
    (TABLE, marginal("sex", bins={"sex": {"a": ["mal"], "b": ["female"]}}), "sex: .*did you mean 'male'"),
    (TABLE, marginal("sex", bins={"sex": {"a": [None], "b": ["female"]}}), "sex: null: every record has a value"),
    (TABLE, marginal("class", bins={"class": {"a": [0, 4]}}), r"class: codes are the integers 0\.\.3"),
    (TABLE, marginal("class", bins={"class": {"a": [0.0], "b": [1]}}), "class: codes are the integers"),
    (TABLE, marginal("class", bins={"class": {"a": [2, 0], "b": [1, 2]}}), "2 is in 'a' and in 'b': name each value"),
    (TABLE, marginal("age", bins={"age": {"a": [15], "b": [20]}}), "age: groups of single values would cut bins"),
    (TABLE, marginal("class", bins={"class": {"a": [2, 0]}}), "two cells or more"),
    (TABLE, marginal("class", bins={"class": {"a": [2], "b": [1]}}, where={"class": 0}), "where selects none"),
    (TABLE, marginal("sex", bins={"class": {"a": [2], "b": [1]}}), "bins are of attributes that are asked for"),
    (TABLE, marginal("age", bins={"age": [15]}), "bins.age"),
    (TABLE, marginal("age", bins={"age": 15}), "bins.age"),
    (TABLE, marginal("age", bins={"age": [15, "30"]}), "age: bins needs numbers"),
    (TABLE, marginal("age", bins={"age": [15, 31, 95]}), "age: bins must fall on bin edges"),
    (TABLE, marginal("age", bins={"age": [30, 15, 95]}), "age: the edges of bins must ascend"),
    (TABLE, marginal("age", bins={"age": [15, 30, 30]}), "age: the edges of bins must ascend"),
    (TABLE, marginal("class", bins={"class": [0, 5]}), r"class: bins of codes have the integers 0\.\.4 as edges"),
    (TABLE, marginal("class", bins={"class": [0.5, 2, 3]}), "class: bins of codes have the integers"),
    (TABLE, marginal("class", bins={"class": [0, True, 3]}), "bins.class.1"),
    (BIPARTITE, marginal("left"), "marginals are of the attributes of a table, and this is a bipartite data set"),
    (GRAPH, marginal("left"), "marginals are of the attributes of a table, and this is a graph data set"),
    (MATRIX, marginal("rows"), "marginals are of the attributes of a table, and this is a matrix data set"),
    (MULTISET, marginal("x"), "marginals are of the attributes of a table, and this is a multiset data set"),
    # products
    (TABLE, weights(height=[1.0]), "unknown attribute 'height'"),
    (TABLE, weights(sex=[1.0]), "sex: 2 weights are needed, 1 are given"),
    (TABLE, weights(sex=[1.0, 1.0, 1.0]), "sex: 2 weights are needed, 3 are given"),
    (TABLE, weights(sex=[]), "sex: 2 weights are needed, 0 are given"),
    (TABLE, weights(sex=[1.0, 1.0 + 1e-15]), r"weights must be finite and lie in \[-1, 1\]"),
    (TABLE, weights(sex=[-1.5, 1.0]), r"weights must be finite and lie in \[-1, 1\]"),
    (TABLE, weights(sex=[NAN, 1.0]), "finite"),
    (TABLE, weights(sex=[INF, 1.0]), "finite"),
    (TABLE, weights(sex=["1", 1.0]), "sex.0"),
    (TABLE, weights(sex=[True, 1.0]), "sex.0"),
    (TABLE, weights(sex=[[1.0], [1.0]]), "sex.0"),
    (TABLE, weights(sex=[10**400, 1.0]), "."),
    # cells
    (TABLE, sparse([0, 1], [1.0]), "indices and weights must be of one length"),
    (TABLE, sparse([0, 0], [1.0, 0.5]), "a cell is listed twice"),
    (TABLE, sparse([-1], [1.0]), r"flat indices must lie in 0\.\.5119"),
    (TABLE, sparse([5120], [1.0]), r"flat indices must lie in 0\.\.5119"),
    (TABLE, sparse([10**30], [1.0]), "indices"),
    (TABLE, sparse([0.5], [1.0]), "indices"),
    (TABLE, sparse([True], [1.0]), "indices"),
    (TABLE, sparse([0], [1.5]), r"\[-1, 1\]"),
    (TABLE, sparse([0], [NAN]), "finite"),
    (TABLE, sparse([[0, 0, 0, 0, 0], [0, 0, 0, 0, 0]], [1.0, 1.0]), "a cell is listed twice"),
    (TABLE, sparse([[0, 0, 0, 0, 4]], [1.0]), r"per-axis indices must lie within the shape \[2, 4, 16, 10, 4\]"),
    (TABLE, sparse([[0, 0, 0, 0, -1]], [1.0]), "per-axis indices must lie within the shape"),
    (TABLE, sparse([[0, 0]], [1.0]), "per-axis indices must lie within the shape"),
    (TABLE, sparse([[]], [1.0]), "per-axis indices must lie within the shape"),
    (TABLE, sparse([[0, 0, 0, 0, 0], [0, 0]], [1.0, 1.0]), "indices must be in range and of one form"),
    (TABLE, sparse([[10**30, 0, 0, 0, 0]], [1.0]), "indices must be in range and of one form"),
    (TABLE, sparse([0, [0, 0, 0, 0, 0]], [1.0, 1.0]), "indices"),
    # arrays
    (BIPARTITE, dense([1.0] * 5), r"6 weights in the shape \[2, 3\] are needed"),
    (BIPARTITE, dense([[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]), r"6 weights in the shape \[2, 3\] are needed"),
    (BIPARTITE, dense([[1.0, 1.0, 1.0], [1.0, 1.0]]), "flat or nested as the shape"),
    (BIPARTITE, dense([]), "6 weights"),
    (BIPARTITE, dense([None] * 6), "weights must be numbers"),
    (BIPARTITE, dense(["1"] * 6), "weights must be numbers"),
    (BIPARTITE, dense([True] * 6), "weights must be numbers"),
    (BIPARTITE, dense([True, 0.5, 0, 0, 0, 0]), "weights must be numbers"),
    (BIPARTITE, dense([1, 0, 0, 0, 0, False]), "weights must be numbers"),
    (BIPARTITE, dense([[1, 0, 0], [0.5, True, 0]]), "weights must be numbers"),
    (BIPARTITE, dense([{}] * 6), "weights must be numbers"),
    (BIPARTITE, dense([10**30] * 6), "."),
    (BIPARTITE, dense([10**400, 0.5, 0, 0, 0, 0]), "."),
    (BIPARTITE, dense([1.5, 0, 0, 0, 0, 0]), r"\[-1, 1\]"),
    (BIPARTITE, dense([NAN, 0, 0, 0, 0, 0]), "finite"),
    (BIPARTITE, dense([-INF, 0, 0, 0, 0, 0]), "finite"),
    (GRAPH, dense([[0, 1, 0], [0, 0, 0], [0, 0, 0]]), "symmetric with zero diagonal"),
    (GRAPH, dense([[1, 1, 0], [1, 0, 0], [0, 0, 0]]), "symmetric with zero diagonal"),
    # graphs
    (BIPARTITE, cut([2], [0]), r"left: nodes are the integers 0\.\.1"),
    (BIPARTITE, cut([0], [3]), r"right: nodes are the integers 0\.\.2"),
    (BIPARTITE, cut([-1], [0]), r"left: nodes are the integers 0\.\.1"),
    (BIPARTITE, cut([10**30], [0]), "left"),
    (BIPARTITE, cut(["0"], [0]), r"left: nodes are the integers 0\.\.1"),
    (BIPARTITE, cut([True], [0]), "left"),
    (BIPARTITE, cut([0.0], [0]), "left"),
    (BIPARTITE, cut("some", [0]), "left"),
    (BIPARTITE, {"type": "cut", "left": [0]}, "right"),
    (LABELLED, cut(["c"], ["a"]), "left: not one of the declared labels"),
    (LABELLED, cut(["a"], [0]), "right: not one of the declared labels"),
    (BIPARTITE, rank_one([1.0], [1.0] * 3), "left: 2 weights are needed, 1 are given"),
    (BIPARTITE, rank_one([1.0] * 2, [1.0] * 2), "right: 3 weights are needed, 2 are given"),
    (BIPARTITE, rank_one([-1.1, 1.0], [1.0] * 3), r"\[-1, 1\]"),
    (DIRECTED, rank_one([1.0, 1.0, NAN], [1.0] * 3), "finite"),
    (GRAPH, rank_one([-0.5, 1.0, 1.0], [1.0] * 3), r"weights must be finite and lie in \[0, 1\]"),
    (GRAPH, rank_one([1.0] * 3, [1.0, 1.0, 1.5]), r"\[0, 1\]"),
    (GRAPH, rank_one([0.0] * 3, [1.0, 1.0, 1.5]), r"\[0, 1\]"),
    (GRAPH, sparse([[1, 1]], [1.0]), "the diagonal is no part of an undirected graph"),
    (GRAPH, sparse([4], [1.0]), "the diagonal is no part of an undirected graph"),
    (GRAPH, sparse([[0, 1], [1, 0]], [1.0, 1.0]), "a cell is listed twice"),
    # words of another kind of data
    (TABLE, cut([0], [0]), "a cut query does not fit a table data set"),
    (TABLE, rank_one([1.0], [1.0]), "a rank_one query does not fit a table data set"),
    (TABLE, {"type": "elements", "weights": {"the": 1.0}}, "a elements query does not fit a table data set"),
    (GRAPH, where(left={"equals": 0}), "a predicate query does not fit a graph data set"),
    (BIPARTITE, weights(left=[1.0, 1.0]), "a product query does not fit a bipartite data set"),
    (BIPARTITE, {"type": "elements", "weights": {}}, "weights"),
]


@pytest.mark.parametrize(("u", "words", "says"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_what_does_not_fit_is_refused(u: Universe, words: Any, says: str) -> None:
    """Would catch a query that is answered though it was not understood, one that ends in another exception (a 500),
    and a refusal that does not say what to change."""
    with pytest.raises(InvalidQuery, match=says) as refused:
        parse_query(words).compiled(u.space)
    assert refused.value.code == "invalid-query"
    assert len(refused.value.detail) < 400


@pytest.mark.parametrize(
    "array",
    [
        np.ones((2, 3), dtype=bool),
        np.ones((2, 3), dtype=complex),
        np.full((2, 3), "1"),
        np.full((2, 3), None),
        np.ones((2, 3), dtype="M8[s]"),
        np.ones((3, 2)),
        np.ones((2, 3, 1)),
        np.ones(()),
        np.ones(0),
        np.full((2, 3), 2),
        np.full((2, 3), 2, dtype=np.uint64),
        np.full((2, 3), np.inf, dtype=np.float16),
        np.full((2, 3), np.nan, dtype=np.longdouble),
        np.full((2, 3), np.longdouble(2) ** -2000),
        np.full((2, 3), 1 + np.longdouble(2) ** -60),
        np.full((2, 3), -(2**63)),
    ],
)
def test_arrays_that_do_not_fit_are_refused(array: np.ndarray) -> None:
    """Bodies in .npy and Arrow come as arrays of any type: would catch one that is converted instead of refused."""
    with pytest.raises(InvalidQuery):
        dense_of(BIPARTITE.space, array)


@pytest.mark.parametrize("kind", ["<f8", ">f8", "<f4", "<f2", "<i8", ">i4", "u1", "g"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_any_number_type_and_layout_are_the_same_query(kind: str, order: str) -> None:
    """Would catch a weight taken from the wrong cell of a column-major array, or bytes in the wrong order."""
    array = np.array([[1, 0, 0], [0, 1, 1]]).astype(kind)
    words = dense([[1, 0, 0], [0, 1, 1]])
    compiled = dense_of(BIPARTITE.space, np.asarray(array, order=order))
    assert compiled.digest == BIPARTITE.compiled(words).digest
    assert dense_of(BIPARTITE.space, array.reshape(-1)).digest == compiled.digest


@pytest.mark.slow
@settings(max_examples=200)
@given(st.data())
def test_a_damaged_query_is_refused_or_answered_but_never_fails(d) -> None:
    """Any one value of a query replaced by any other: would catch an exception that no client can make sense of."""
    u = d.draw(universes())
    words = d.draw(queries(u))
    odd = d.draw(
        st.sampled_from(
            [None, True, -1, 0, 7, 2**31, 2**63, 10**40, 0.5, -2.0, NAN, INF, 1e-320, "", "x", "all", [], [[]], {}]
        )
    )
    paths: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in node if isinstance(node, dict) else range(len(node)):
            paths.append((node, key))
            if isinstance(node[key], dict | list):
                walk(node[key])

    walk(words)
    node, key = d.draw(st.sampled_from(paths))
    node[key] = odd
    try:
        query = parse_query(words).compiled(u.space)
    except InvalidQuery:
        return
    assert -1 <= query.range[0] <= query.range[1] <= 1


@pytest.mark.parametrize(
    "asked",
    [
        where(sex={"in": [[]] * 5000}),
        where(sex=[[]] * 5000),
        marginal("sex", bins={"sex": [[]] * 5000}),
        {"type": "marginal", "attributes": [0] * 5000},
        {"type": "cut", "left": [[]] * 5000, "right": [None] * 5000},
        {"type": "rank_one", "left": ["x"] * 5000, "right": [{}] * 5000},
        {"type": "product", "weights": {"sex": [None] * 5000}},
        {"type": "sparse", "indices": ["x"] * 5000, "weights": [[]] * 5000},
    ],
)
def test_of_a_wrong_list_the_first_item_is_told(asked: Any) -> None:
    """Each problem takes about a kilobyte. Would catch a body of some megabytes that takes gigabytes to refuse."""
    with pytest.raises(ValidationError) as refused:
        registry._ADAPTER.validate_python(asked)
    assert refused.value.error_count() < 12
    with pytest.raises(InvalidQuery) as told:
        parse_query(asked)
    assert "0" in told.value.detail


def test_many_wrong_fields_are_counted() -> None:
    """An object has no first field to stop at: its problems are not spelled out."""
    with pytest.raises(InvalidQuery, match=r"5,000 fields"):
        parse_query({"type": "elements", "weights": {str(i): "x" for i in range(5000)}})
