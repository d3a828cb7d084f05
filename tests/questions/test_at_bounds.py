"""What lies at a bound: conditions that select where clamped values count, as files have them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from app.declarations.errors import InvalidRequest
from app.declarations.spec import parse_spec
from app.spaces.errors import InvalidQuery
from app.spaces.factory import space_of
from app.spaces.partition import Partition
from app.spaces.queries.registry import parse_query
from app.spaces.table import TableSpace
from tests.kit.service import JSON, Service, ask, register, unique
from tests.statistics.test_statistics_over_http import opened

NUMBERS = {"name": "n", "lower": -5, "upper": 20, "grid": 0.5, "bins": 5}
BINS = {"name": "n", "lower": 0, "upper": 50, "bins": 10}
EDGES = {"name": "n", "edges": [0, 1, 7, 30]}
MONTHS = {"name": "n", "dates": ["2020-01-15", "2021-06-02"], "by": "month"}
KINDS: list[JSON] = [NUMBERS, BINS, EDGES, MONTHS]


def space_with(attribute: JSON, **more: Any) -> TableSpace:
    budget = {"epsilon": 1.0, "delta": 1e-9}
    attributes = [{**attribute, **more}, {"name": "other", "size": 3}]
    found = space_of(parse_spec({"name": "t", "kind": "table", "budget": budget, "attributes": attributes}))
    assert isinstance(found, TableSpace)
    return found


@pytest.mark.unit
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("attribute", KINDS, ids=lambda attribute: "-".join(attribute))
def test_the_outermost_place_is_selected(attribute: JSON, missing: bool) -> None:
    """Of every kind with an order and bounds, by the place that values beyond are clamped to (0 and the last declared,
    by docs/datasets.md). Catches the place of no value, and one that is off."""
    space = space_with(attribute, **({"missing": True} if missing else {}))
    singles = [Partition.singles(space.shape[0])]
    for bound, place in (("lower", 0), ("upper", space.shape[0] - 1 - missing)):
        question = parse_query({"type": "predicate", "where": {"n": {"at": bound}}}).compiled(space).question
        there = np.eye(space.shape[0])[place]
        assert float(question.of(there, singles)) == 1
        assert float(question.of(1 - there, singles)) == 0


@pytest.mark.unit
def test_it_is_the_question_that_comparisons_ask() -> None:
    """Catches a second form of one question, which would be paid for twice."""
    space = space_with(NUMBERS)
    for one, other in (({"at": "upper"}, {"ge": 20}), ({"at": "lower"}, {"le": -5}), ({"at": "upper"}, 20)):
        first, second = (
            parse_query({"type": "predicate", "where": {"n": each}}).compiled(space) for each in (one, other)
        )
        assert first.canonical == second.canonical


@pytest.mark.unit
@pytest.mark.parametrize(
    ("condition", "attribute", "problem"),
    [
        ({"at": "upper"}, {"name": "n", "size": 4}, "n: at: only numbers and dates have a lower and an upper bound"),
        ({"at": "lower"}, {"name": "n", "values": ["a", "b"]}, "n: at: only numbers and dates have"),
        ({"at": "middle"}, NUMBERS, "where.n.at"),
        ({"at": "upper", "ge": 3}, NUMBERS, "give exactly one of between, in, equals, at, or comparisons"),
        ({"at": None}, NUMBERS, "give exactly one of"),
    ],
)
def test_what_has_no_bounds_is_refused(condition: JSON, attribute: JSON, problem: str) -> None:
    """Catches codes and categories that are taken to have an order, and words that say nothing."""
    with pytest.raises((InvalidQuery, InvalidRequest)) as refused:
        parse_query({"type": "predicate", "where": {"n": condition}}).compiled(space_with(attribute))
    assert problem in refused.value.detail


@pytest.mark.api
def test_what_was_clamped_is_among_it(exact: Service) -> None:
    """Of a file with values at its bounds, beyond and within: all that were moved there, those that were there, and no
    other; and the note of a mean names questions that are taken. Catches a count of one of the two alone."""
    values = [-9.0, -5.0, -4.5, 0.0, 3.0, 19.5, 20.0, 20.0, 21.0, 99.0]
    data = "n,other\n" + "".join(f"{value},{k % 3}\n" for k, value in enumerate(values)) + ",1\n"
    name = unique("bounds")
    spec = {
        "kind": "table",
        "name": name,
        "budget": {"epsilon": 5.0, "delta": 1e-9},
        "attributes": [{**NUMBERS, "outside": "clamp", "missing": True}, {"name": "other", "size": 3}],
    }
    reply = register(exact.admin, spec, data.encode(), "bounds.csv")
    assert reply.status_code == 201, reply.text
    assert reply.json()["report"]["attributes"]["n"]["clamped"] == 3
    id = opened(exact.admin, name, max_queries=50, mechanism={"construction": "laplace"})["id"]
    for bound, count in (("upper", 4), ("lower", 2)):
        found = ask(exact.admin, id, {"type": "predicate", "where": {"n": {"at": bound}}})
        assert found["value"] == count
    id = opened(exact.admin, name, max_queries=50)["id"]
    note = ask(exact.admin, id, {"type": "mean", "of": "n"})["note"]
    named = json.loads(note[note.index("{") : note.rindex("}") + 1])
    assert named == {"type": "share", "of": {"n": {"at": "upper"}}}
    assert "value" in ask(exact.admin, id, named)
