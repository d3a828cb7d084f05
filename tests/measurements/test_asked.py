"""Queries that were measured on their own: their documents, and what is none."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pytest

from app.declarations.spec import parse_spec
from app.measurements.noise import Noise
from app.measurements.record import Measurement
from app.measurements.strategies.asked import Asked
from app.spaces.factory import space_of
from app.spaces.queries.registry import parse_query
from app.spaces.space import Space

pytestmark = pytest.mark.unit

NOISE = Noise("gaussian", Decimal("2.5"), 3)
DIRECTED: dict[str, Any] = {"kind": "graph", "nodes": 6, "directed": True}
UNDIRECTED: dict[str, Any] = {"kind": "graph", "nodes": 6, "directed": False}
BIPARTITE: dict[str, Any] = {"kind": "bipartite", "left": 6, "right": 3}
MATRIX: dict[str, Any] = {"kind": "matrix", "rows": 5, "columns": 4, "lower": -1, "upper": 1}
TABLE: dict[str, Any] = {
    "kind": "table",
    "attributes": [{"name": n, "values": ["x", "y", "z"]} for n in "ab"],
}
CUT: dict[str, Any] = {"type": "cut", "left": [0, 2, 5], "right": [1, 2, 3]}
BLOCKS: dict[str, Any] = {"type": "blocks", "left": {"a": [0, 1], "b": [2, 3]}}
RANK_ONE: dict[str, Any] = {"type": "rank_one", "left": [0.5, 0, 1, 0.25, 0, 1], "right": [1, 0, 0.5, 0.5, 1, 0.125]}


def space(declared: Mapping[str, Any]) -> Space:
    return space_of(parse_spec({**declared, "name": "g", "budget": {"epsilon": 1, "delta": 1e-9}}))


@pytest.mark.parametrize("asked", [CUT, BLOCKS, RANK_ONE, {"type": "degrees"}])
@pytest.mark.parametrize("declared", [DIRECTED, UNDIRECTED])
def test_documents_read_back_as_they_were(asked: dict[str, Any], declared: dict[str, Any]) -> None:
    """A measurement comes back from JSON whatever the order of members there, and stands for the same question. Would
    catch a form that loses something, two that are one and are not equal, or equal with two hashes.
    """
    if asked["type"] == "degrees" and declared is DIRECTED:
        asked = asked | {"side": "out"}
    where = space(declared)
    query = parse_query(asked).compiled(where)
    made = Asked.of(query)
    made.check(where)
    assert made.cells == query.numbers
    assert made.query(where).digest == query.digest
    release = Measurement(made, NOISE, np.arange(made.cells) - 1)
    for option in (0, orjson.OPT_SORT_KEYS):
        read = Measurement.read(orjson.loads(orjson.dumps(release.document(), option=option)))
        assert read.document() == release.document()
        assert (read.noise, read.units.tolist()) == (NOISE, release.units.tolist())
        assert read.strategy == made
        assert hash(read.strategy) == hash(made)


def test_questions_that_differ_are_told_apart() -> None:
    """Would catch equality by the number of values alone."""
    where = space(DIRECTED)
    made = Asked.of(parse_query(CUT).compiled(where))
    other = Asked.of(parse_query(CUT | {"right": [1, 2]}).compiled(where))
    assert made != other
    assert made != Asked(made.form, 2)
    assert made != made.document()
    assert {made, other, Asked(dict(made.form), 1)} == {made, other}


@pytest.mark.parametrize(
    "change",
    [
        {"asked": None},
        {"asked": {"numbers": 1}},
        {"asked": {"query": {"type": "cut"}}},
        {"asked": {"numbers": 1, "query": "cut"}},
        {"asked": {"numbers": 1, "query": [["type", "cut"]]}},
        {"asked": {"numbers": 0, "query": {}}},
        {"asked": {"numbers": True, "query": {}}},
        {"asked": {"numbers": 1.0, "query": {}}},
        {"asked": {"numbers": 2, "query": {}}},
        {"noise": None},
        {"values": "AQIDBAU="},
    ],
)
def test_what_is_no_document_is_refused(change: dict[str, Any]) -> None:
    """Would catch values of another number, and anything raised but ValueError."""
    where = space(DIRECTED)
    document = Measurement(Asked.of(parse_query(CUT).compiled(where)), NOISE, np.array([1])).document()
    assert Measurement.read(document).units.tolist() == [1]
    with pytest.raises(ValueError, match=r".+"):
        Measurement.read(document | change)


@pytest.mark.parametrize("declared", [UNDIRECTED, BIPARTITE, MATRIX, TABLE, DIRECTED | {"nodes": 5}])
def test_a_query_of_another_space_is_refused(declared: dict[str, Any]) -> None:
    """The cut of a directed graph says nothing of other data. Would catch a record that is read for another data set,
    and a table whose counts would be asked.
    """
    query = parse_query(CUT).compiled(space(DIRECTED))
    with pytest.raises(ValueError, match=r"query|table"):
        Asked.of(query).check(space(declared))


def test_a_table_is_not_asked() -> None:
    """Not even of two attributes, by a query that is one of its own. Would catch a check of the shape alone."""
    where = space(TABLE)
    query = parse_query({"type": "predicate", "where": {"a": "x"}}).compiled(where)
    with pytest.raises(ValueError, match="table"):
        Asked.of(query).check(where)


def test_what_is_not_measured_by_itself_is_refused() -> None:
    """Queries that weigh nothing, weights of single cells that are too many for their form, forms that are not the
    canonical one, and numbers that are not the query's.
    """
    where = space(MATRIX)
    zero = parse_query(CUT | {"left": []}).compiled(where)
    assert zero.is_zero
    weights = np.random.default_rng(1).random((5, 4)).tolist()
    dense = parse_query({"type": "dense", "weights": weights}).compiled(where)
    assert dense.blob is not None
    cut = parse_query(CUT | {"left": [0, 2]}).compiled(where)
    wrong = [
        Asked.of(zero),
        Asked.of(dense),
        Asked(cut.canonical, 2),
        Asked(cut.canonical | {"more": 1}, 1),
        Asked({}, 1),
        Asked({"type": "cut"}, 1),
    ]
    for each in wrong:
        with pytest.raises(ValueError, match="not a query"):
            each.query(where)
