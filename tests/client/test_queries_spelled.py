"""The words for queries spell the contract's JSON, whatever Python or NumPy values they are given."""

from __future__ import annotations

import datetime
import io
import json
from typing import Any

import numpy as np
import pytest

from app.spaces.queries.registry import is_table, parse_query
from curator_client import (
    blocks,
    cut,
    degrees,
    dense,
    elements,
    marginal,
    predicate,
    product,
    rank_one,
    sparse,
    statistic,
    unverified,
    weighted,
    where,
)
from curator_client.queries import asks_table

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("query", "spelled"),
    [
        (
            predicate({"marital-status": 3}, age={"between": [30, 40]}, sex=["female"]),
            '{"type": "predicate", "where": {"marital-status": {"equals": 3}, "age": {"between": [30, 40]}, '
            '"sex": {"in": ["female"]}}}',
        ),
        (
            predicate(a=np.int64(3), b=np.array([1, 2]), c=range(2), d={"in": np.array([4])}),
            '{"type": "predicate", "where": {"a": {"equals": 3}, "b": {"in": [1, 2]}, "c": {"in": [0, 1]}, '
            '"d": {"in": [4]}}}',
        ),
        (
            predicate(where({"a b": 1}, c={"ge": np.float64(0.5), "lt": 2})),
            '{"type": "predicate", "where": {"a b": {"equals": 1}, "c": {"ge": 0.5, "lt": 2}}}',
        ),
        (
            predicate(where(any=[where(a=1), {"b": (2, 3)}], c=4), all=({"d": 5},)),
            '{"type": "predicate", "where": {"any": [{"a": {"equals": 1}}, {"b": {"in": [2, 3]}}], "c": {"equals": 4}, '
            '"all": [{"d": {"equals": 5}}]}}',
        ),
        (predicate({"not": {"a": 1}}), '{"type": "predicate", "where": {"not": {"a": {"equals": 1}}}}'),
        (marginal("age"), '{"type": "marginal", "attributes": ["age"]}'),
        (
            marginal(["age", "sex"], bins={"age": range(15, 96, 40)}, where=where(sex="m", code=(1, 2))),
            '{"type": "marginal", "attributes": ["age", "sex"], "bins": {"age": [15, 55, 95]}, '
            '"where": {"sex": {"equals": "m"}, "code": {"in": [1, 2]}}}',
        ),
        (
            marginal(iter(("a",)), bins={"a": np.array([0, 2, 4])}, where={"b": {3}}),
            '{"type": "marginal", "attributes": ["a"], "bins": {"a": [0, 2, 4]}, "where": {"b": {"in": [3]}}}',
        ),
        (
            predicate(a=None, b=[None, 3], c={"ge": datetime.date(2020, 5, 1)}, d=datetime.datetime(2020, 5, 1, 12)),  # noqa: DTZ001
            '{"type": "predicate", "where": {"a": {"equals": null}, "b": {"in": [null, 3]}, "c": {"ge": "2020-05-01"}, '
            '"d": {"equals": "2020-05-01"}}}',
        ),
        (statistic("mean", "income"), '{"type": "mean", "of": "income"}'),
        (
            statistic("sum", "income", where={"sex": "m"}, group_by="age", bins={"age": (15, 40)}),
            '{"type": "sum", "of": "income", "group_by": ["age"], "bins": {"age": [15, 40]}, '
            '"where": {"sex": {"equals": "m"}}}',
        ),
        (statistic("quantile", "x", q=np.float64(0.5)), '{"type": "quantile", "of": "x", "q": 0.5}'),
        (
            statistic("quantile", "x", q=np.array([0.25, 0.5]), group_by=iter("ab")),
            '{"type": "quantile", "of": "x", "q": [0.25, 0.5], "group_by": ["a", "b"]}',
        ),
        (predicate(), '{"type": "predicate", "where": {}}'),
        (
            blocks({"a": np.array([0, 1]), 7: iter([2])}, {"rest": "all"}),
            '{"type": "blocks", "left": {"a": [0, 1], "7": [2]}, "right": {"rest": "all"}}',
        ),
        (
            blocks(["x", None, "y", "x"], np.array([1, 0, 1]), "within"),
            '{"type": "blocks", "left": {"x": [0, 3], "y": [2]}, "right": {"1": [0, 2], "0": [1]}, "only": "within"}',
        ),
        (
            blocks(np.array(["x", None, float("nan"), "y"], object)),
            '{"type": "blocks", "left": {"x": [0], "y": [3]}}',
        ),
        (degrees(), '{"type": "degrees"}'),
        (degrees("out", range(3)), '{"type": "degrees", "side": "out", "bins": [0, 1, 2]}'),
        (degrees(bins=np.array([0, 5])), '{"type": "degrees", "bins": [0, 5]}'),
        (
            product({"hours-per-week": [0, 1]}, sex=np.array([1, -1])),
            '{"type": "product", "weights": {"hours-per-week": [0.0, 1.0], "sex": [1.0, -1.0]}}',
        ),
        (cut("all", np.array([4, 5])), '{"type": "cut", "left": "all", "right": [4, 5]}'),
        (cut([], ["a"]), '{"type": "cut", "left": [], "right": ["a"]}'),
        (rank_one([1, 0], [0.5]), '{"type": "rank_one", "left": [1.0, 0.0], "right": [0.5]}'),
        (sparse([3, 7], [1, -0.5]), '{"type": "sparse", "indices": [3, 7], "weights": [1.0, -0.5]}'),
        (
            sparse(np.array([[0, 1], [2, 3]]), np.ones(2)),
            '{"type": "sparse", "indices": [[0, 1], [2, 3]], "weights": [1.0, 1.0]}',
        ),
        (elements({"the": 1}), '{"type": "elements", "weights": {"the": 1.0}}'),
        (
            unverified(cut([0], "all")),
            '{"type": "cut", "left": [0], "right": "all", "unverified": true}',
        ),
        (dense([1, 0]).as_json(), '{"type": "dense", "weights": [1.0, 0.0]}'),
        (unverified(dense([1])), '{"type": "dense", "weights": [1.0], "unverified": true}'),
    ],
)
def test_spelling(query: dict[str, Any], spelled: str) -> None:
    """Each word against the contract's text; and the service's own reader takes what was serialised."""
    assert query == json.loads(spelled)
    parse_query(json.loads(json.dumps(query)))


def test_dense_body_is_a_float_array_without_pickles() -> None:
    loaded = np.load(io.BytesIO(dense([[True, False]]).body()), allow_pickle=False)
    assert loaded.dtype == np.float64
    np.testing.assert_array_equal(loaded, [[1.0, 0.0]])


def test_a_query_is_not_changed_by_its_weights() -> None:
    """Catches a question that is weighted from then on."""
    query = marginal("a")
    assert weighted(query) == {"type": "marginal", "attributes": ["a"], "weighted": True}
    assert "weighted" not in query


def test_a_query_is_not_changed_by_unverified() -> None:
    query = cut([0], [1])
    unverified(query)
    assert "unverified" not in query


@pytest.mark.parametrize(
    ("query", "table"),
    [
        (marginal("a"), True),
        (blocks({"a": [0], "b": [1]}), True),
        (degrees(), True),
        ({"type": "hierarchy", "attribute": "a"}, True),
        ({"type": "share", "of": {"a": 1}}, False),
        ({"type": "share", "of": {"a": 1}, "group_by": ["b"]}, True),
        ({"type": "ratio", "of": "a", "per": "b"}, False),
        ({"type": "ratio", "of": "a", "per": "b", "group_by": ["c"]}, True),
        (predicate(a=1), False),
        (statistic("mean", "a"), False),
        (statistic("mean", "a", group_by="b"), True),
        (statistic("quantile", "a", q=0.5), False),
        (statistic("quantile", "a", q=[0.5]), False),
        (statistic("quantile", "a", q=[0.25, 0.5]), True),
        (statistic("quantile", "a", q=0.5, group_by=["b"]), True),
    ],
)
def test_which_answers_are_tables(query: dict[str, Any], table: bool) -> None:
    """Would catch a table that is taken for a number, before it was paid for; the service holds the same."""
    assert asks_table(query) == table
    assert is_table(query) == table
