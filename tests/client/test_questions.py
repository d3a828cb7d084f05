"""Questions as values: the contract's JSON whatever they are made of, and errors where Python would guess."""

from __future__ import annotations

import datetime
import io
import itertools
import json
import sqlite3
from array import array
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.declarations.conditions import Where
from app.declarations.spec import parse_spec
from app.spaces.errors import InvalidQuery
from app.spaces.factory import space_of
from app.spaces.queries import conditions
from app.spaces.queries.registry import is_table, parse_query
from app.sql.errors import SqlRefused
from app.sql.statement import Select, translate
from app.sql.table import Table as SqlTable
from curator_client.conditions import Condition, col
from curator_client.questions import (
    Dense,
    Question,
    asked,
    blocks,
    by,
    chosen,
    cut,
    degrees,
    dense,
    elements,
    product,
    question,
    rank_one,
    sparse,
    where,
)

pytestmark = pytest.mark.unit

SPEC = parse_spec(
    {
        "name": "survey",
        "kind": "table",
        "budget": {"epsilon": 1.0, "delta": 1e-9},
        "attributes": [
            {"name": "sex", "values": ["female", "male"]},
            {"name": "age", "lower": 15, "upper": 95, "grid": 1, "bins": 16},
            {"name": "code", "size": 5, "missing": True},
            {"name": "income", "lower": 0, "upper": 1000, "grid": 100, "missing": True},
        ],
    }
)
SPACE = space_of(SPEC)


@pytest.mark.parametrize(
    ("asked", "spelled"),
    [
        (where().count(), '{"type": "predicate", "where": {}}'),
        (where(inlf=1).count(), '{"type": "predicate", "where": {"inlf": {"equals": 1}}}'),
        (where(a=None).count(), '{"type": "predicate", "where": {"a": {"equals": null}}}'),
        (where(a=[1, None]).count(), '{"type": "predicate", "where": {"a": {"in": [1, null]}}}'),
        (where(a={"y", "x"}).count(), '{"type": "predicate", "where": {"a": {"in": ["x", "y"]}}}'),
        (where(a=(30, 40)).count(), '{"type": "predicate", "where": {"a": {"ge": 30, "lt": 40}}}'),
        (where(a=(65, None)).count(), '{"type": "predicate", "where": {"a": {"ge": 65}}}'),
        (where(a=(None, 35)).count(), '{"type": "predicate", "where": {"a": {"lt": 35}}}'),
        (
            where(a=np.int64(3), b=np.array([1, 2]), c=pd.Series(["x"])).count(),
            '{"type": "predicate", "where": {"a": {"equals": 3}, "b": {"in": [1, 2]}, "c": {"in": ["x"]}}}',
        ),
        (
            where(a=datetime.date(2020, 5, 1), b=(pd.Timestamp("2020-05-01 12:00"), None), c=Decimal("1.5")).count(),
            '{"type": "predicate", "where": {"a": {"equals": "2020-05-01"}, "b": {"ge": "2020-05-01"}, '
            '"c": {"equals": 1.5}}}',
        ),
        (
            where(col("hrwage") >= 20, age=(None, 35)).count(),
            '{"type": "predicate", "where": {"hrwage": {"ge": 20}, "age": {"lt": 35}}}',
        ),
        (
            where((col("a") > 1) & (col("a") <= 5) & (col("b") == "x")).count(),
            '{"type": "predicate", "where": {"a": {"gt": 1, "le": 5}, "b": {"equals": "x"}}}',
        ),
        (
            where((col("a") > 1) & (col("a") >= 5)).count(),
            '{"type": "predicate", "where": {"a": {"gt": 1}, "all": [{"a": {"ge": 5}}]}}',
        ),
        (
            where((col("a") == 1) | (col("b") == 2) | (col("c") < 3), d=4).count(),
            '{"type": "predicate", "where": {"any": [{"a": {"equals": 1}}, {"b": {"equals": 2}}, {"c": {"lt": 3}}], '
            '"d": {"equals": 4}}}',
        ),
        (where(~(col("a") == 1)).count(), '{"type": "predicate", "where": {"not": {"a": {"equals": 1}}}}'),
        (where(~~(col("a") == 1)).count(), '{"type": "predicate", "where": {"a": {"equals": 1}}}'),
        (
            where(col("a") != 1, col("a") != 2).count(),
            '{"type": "predicate", "where": {"not": {"a": {"equals": 1}}, "all": [{"not": {"a": {"equals": 2}}}]}}',
        ),
        (where(col("a").isin(range(2))).count(), '{"type": "predicate", "where": {"a": {"in": [0, 1]}}}'),
        (where(col("a").missing()).count(), '{"type": "predicate", "where": {"a": {"equals": null}}}'),
        (where(col("a").at("upper")).count(), '{"type": "predicate", "where": {"a": {"at": "upper"}}}'),
        (where(col("a").between(1, 2)).count(), '{"type": "predicate", "where": {"a": {"ge": 1, "lt": 2}}}'),
        (where(30 <= col("a")).count(), '{"type": "predicate", "where": {"a": {"ge": 30}}}'),  # noqa: SIM300
        (where(a=1).where(b=2).count(), '{"type": "predicate", "where": {"a": {"equals": 1}, "b": {"equals": 2}}}'),
        (by("age", "sex").count(), '{"type": "marginal", "attributes": ["age", "sex"]}'),
        (
            where(inlf=1).by("educ", "kidlt6", bins={"educ": range(0, 20, 10)}).mean("faminc"),
            '{"type": "mean", "of": "faminc", "group_by": ["educ", "kidlt6"], "bins": {"educ": [0, 10]}, '
            '"where": {"inlf": {"equals": 1}}}',
        ),
        (
            by("work", bins={"work": {"paid": ["full", "part"], "not": [None]}}).where(a=1).count(),
            '{"type": "marginal", "attributes": ["work"], "bins": {"work": {"paid": ["full", "part"], "not": [null]}}, '
            '"where": {"a": {"equals": 1}}}',
        ),
        (where().sum("x"), '{"type": "sum", "of": "x"}'),
        (where().variance("x"), '{"type": "variance", "of": "x"}'),
        (where().median("x"), '{"type": "quantile", "of": "x", "q": 0.5}'),
        (where().quantile("x", np.array([0.25, 0.5])), '{"type": "quantile", "of": "x", "q": [0.25, 0.5]}'),
        (by("a").quantile("x", 0.1), '{"type": "quantile", "of": "x", "q": 0.1, "group_by": ["a"]}'),
        (
            where(a=1).share(col("b") > 0),
            '{"type": "share", "of": {"b": {"gt": 0}}, "where": {"a": {"equals": 1}}}',
        ),
        (by("a").share(b=2), '{"type": "share", "of": {"b": {"equals": 2}}, "group_by": ["a"]}'),
        (where().ratio("x", "y"), '{"type": "ratio", "of": "x", "per": "y"}'),
        (by("a").ratio("x", "y"), '{"type": "ratio", "of": "x", "per": "y", "group_by": ["a"]}'),
        (where(a=1).hierarchy("s"), '{"type": "hierarchy", "attribute": "s", "where": {"a": {"equals": 1}}}'),
        (where().mean("x").weighted(), '{"type": "mean", "of": "x", "weighted": true}'),
        (cut([0]).unverified(), '{"type": "cut", "left": [0], "right": "all", "unverified": true}'),
        (cut("all", np.array([4, 5])), '{"type": "cut", "left": "all", "right": [4, 5]}'),
        (
            blocks({"a": np.array([0, 1]), 7: iter([2])}, {"rest": "all"}),  # type: ignore[dict-item]
            '{"type": "blocks", "left": {"a": [0, 1], "7": [2]}, "right": {"rest": "all"}}',
        ),
        (
            blocks(np.array(["x", None, float("nan"), "y", "x"], object), only="within"),
            '{"type": "blocks", "left": {"x": [0, 4], "y": [3]}, "only": "within"}',
        ),
        (degrees("out", bins=range(3)), '{"type": "degrees", "side": "out", "bins": [0, 1, 2]}'),
        (product({"a b": np.array([1, -1])}), '{"type": "product", "weights": {"a b": [1.0, -1.0]}}'),
        (rank_one([1, 0], [0.5]), '{"type": "rank_one", "left": [1.0, 0.0], "right": [0.5]}'),
        (
            sparse(np.array([[0, 1], [2, 3]]), np.ones(2)),
            '{"type": "sparse", "indices": [[0, 1], [2, 3]], "weights": [1.0, 1.0]}',
        ),
        (elements({"the": 1}), '{"type": "elements", "weights": {"the": 1.0}}'),
        (dense([[1, 0], [0, 0.5]]), '{"type": "dense", "weights": [[1.0, 0.0], [0.0, 0.5]]}'),
        (dense(np.eye(2)[:, ::-1]), '{"type": "dense", "weights": [[0.0, 1.0], [1.0, 0.0]]}'),
        (dense(array("f", [1, 2])), '{"type": "dense", "weights": [1.0, 2.0]}'),
        (dense(memoryview(array("d", [1])).cast("B").cast("d")), '{"type": "dense", "weights": [1.0]}'),
        (dense([1]).unverified(), '{"type": "dense", "weights": [1.0], "unverified": true}'),
        (question({"type": "sum", "of": "x", "within": 5}), '{"type": "sum", "of": "x", "within": 5}'),
    ],
)
def test_spelling(asked: Question[Any], spelled: str) -> None:
    """Each question against the contract's text; the service's own reader takes it, and holds the same of which answers
    are tables. Would catch a word spelled otherwise, and a value that is no JSON."""
    assert asked.json == json.loads(spelled)
    parse_query(json.loads(json.dumps(asked.json)))
    assert asked.is_table == is_table(asked.json)


@pytest.mark.parametrize(
    "make",
    [
        lambda: bool(col("a") == 1),
        lambda: (col("a") == 1) and (col("b") == 2),
        lambda: not (col("a") == 1),  # noqa: SIM201
        lambda: 30 <= col("a") < 65,
        lambda: col("a") >= 3 & col("b"),
        lambda: (col("a") == 1) & 5,  # type: ignore[operator]
        lambda: col("a") == col("b"),
        lambda: col("a") == [1, 2],
        lambda: col("a") > None,
        lambda: col("a").isin("abc"),
        lambda: where(a=range(3)),
        lambda: where(a={"ge": 3}),
        lambda: where(a=True),
        lambda: where(a=b"x"),
        lambda: where(a=col("a") > 3),
        lambda: where(a=([1], 2)),
        lambda: where({"a": 1}),  # type: ignore[arg-type]
        lambda: where(a=pd.NA),
        lambda: col(3),  # type: ignore[arg-type]
        lambda: by(["a", "b"]),  # type: ignore[arg-type]
    ],
)
def test_what_python_would_guess_is_a_type_error(make: Any) -> None:
    """Would catch ``and`` that drops a condition, ``range`` that means two things, and true sent as one."""
    with pytest.raises(TypeError):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: where(a=(1, 2, 3)),
        lambda: where(a=(None, None)),
        lambda: where(a=[]),
        lambda: where(a=float("nan")),
        lambda: where(a=pd.NaT),
        lambda: col("any"),
        lambda: where(**{"not": 1}),
        lambda: by(),
        lambda: by("a", bins={"b": [1, 2]}),
        lambda: where().quantile("x", [0.5]),
        lambda: dense([[1, 2], [3]]),
        lambda: dense([1, [2]]),
        lambda: dense([]),
        lambda: dense([float("nan")]),
        lambda: question({"of": "x"}),
        lambda: question({"type": "sum", "of": float("inf")}),
        lambda: col("a").at("top"),  # type: ignore[arg-type]
    ],
)
def test_what_says_nothing_is_a_value_error(make: Any) -> None:
    """Would catch a condition that is dropped because it is empty, and numbers that JSON has not."""
    with pytest.raises(ValueError):
        make()


_VALUES: dict[str, list[Any]] = {
    "sex": ["female", "male"],
    "age": list(range(15, 96)),
    "code": [*range(5), None],
    "income": [*range(0, 1001, 100), None],
}
_OPERATORS: dict[str, Any] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
Held = tuple[Condition, Any]


@st.composite
def _compared(draw: st.DrawFn) -> Held:
    """A condition beside what plain Python says of a record."""
    name = draw(st.sampled_from(sorted(_VALUES)))
    values = _VALUES[name]
    if name in ("age", "code", "income") and draw(st.booleans()):
        word, value = draw(st.sampled_from(sorted(_OPERATORS))), draw(st.sampled_from([v for v in values if v]))
        holds = _OPERATORS[word]
        return holds(col(name), value), lambda row: row[name] is not None and holds(row[name], value)
    chosen = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
    if len(chosen) == 1 and draw(st.booleans()):
        return col(name) != chosen[0], lambda row: row[name] != chosen[0]
    return col(name).isin(chosen), lambda row: row[name] in chosen


_HELD = st.recursive(
    _compared(),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda two: (two[0][0] & two[1][0], lambda row: two[0][1](row) and two[1][1](row))),
        st.tuples(inner, inner).map(lambda two: (two[0][0] | two[1][0], lambda row: two[0][1](row) or two[1][1](row))),
        inner.map(lambda one: (~one[0], lambda row: not one[1](row))),
    ),
    max_leaves=6,
)


@given(_HELD)
def test_conditions_mean_what_python_means(held: Held) -> None:
    """The service's compiler selects exactly the records of a plain loop, missing values included. Would catch
    conditions that are lost where two are joined, and ``~`` that leaves missing values out."""
    condition, holds = held
    selection = where(condition)
    parsed = Where.model_validate(selection.json)
    try:
        axes, chosen = conditions.combinations(parsed, SPACE.named)
    except InvalidQuery as error:
        assert "empty" in str(error)  # a range beyond the last value  # noqa: PT017
        return
    names = [SPACE.names[axis] for axis in axes]
    fixed = {name: values[0] for name, values in _VALUES.items()}
    for place, is_chosen in np.ndenumerate(chosen):
        row = fixed | {name: _VALUES[name][i] for name, i in zip(names, place, strict=True)}
        assert bool(holds(row)) == bool(is_chosen), (selection, row)


def test_questions_are_values() -> None:
    """Would catch a question that changes after it was made, and equal ones that are asked twice."""
    first, second = where(a=1, b=2).mean("x"), where(b=2, a=1).mean("x")
    assert first == second
    assert hash(first) == hash(second)
    assert first != where(a=1).mean("x")
    assert first != "something else"
    assert first.weighted() != first
    told = first.json
    told["where"]["a"]["equals"] = 5
    assert first == second
    conditions = {"where": {"a": [1]}, "type": "predicate"}
    asked = question(conditions)
    conditions["where"]["a"].append(2)  # type: ignore[index]
    assert asked.json == {"where": {"a": [1]}, "type": "predicate"}


def test_selections_and_groups_are_immutable() -> None:
    """Would catch a condition that stays with the selection that it was added to."""
    base = where(a=1)
    base.where(b=2)
    assert base == where(a=1)
    assert base.by("c") == base.by("c") != base.by("d")
    assert len({base, where(a=1), base.by("c"), base.by("c")}) == 2


@pytest.mark.parametrize(
    "weights", [[1, 0.5], np.arange(6.0).reshape(2, 3) / 6, [[[1.0]]], np.eye(3, dtype=np.float32)]
)
def test_dense_weights_in_numpys_format(weights: Any) -> None:
    """NumPy reads what is written without it. Would catch a header of the wrong length, and transposed weights."""
    asked = dense(weights)
    assert isinstance(asked, Dense)
    told = asked.npy()
    assert told.index(b"\n") % 64 == 63
    np.testing.assert_array_equal(np.load(io.BytesIO(told), allow_pickle=False), np.asarray(weights, float))


@pytest.mark.parametrize(
    ("asked", "statement"),
    [
        (where().count(), "SELECT COUNT(*) FROM t"),
        (
            where(inlf=1).by("educ", "kidlt6", bins={"educ": [0, 12, 19]}).mean("faminc"),
            "SELECT BIN(educ, 0, 12, 19) AS educ, kidlt6, AVG(faminc) FROM t WHERE inlf = 1 "
            "GROUP BY BIN(educ, 0, 12, 19), kidlt6",
        ),
        (where(col("a") >= 1, col("a") < 5).sum("x"), "SELECT SUM(x) FROM t WHERE a >= 1 AND a < 5"),
        (
            where((col("a") == "it's") | (col("b") <= 2), c=None).variance("x"),
            "SELECT VAR_POP(x) FROM t WHERE (a = 'it''s' OR b <= 2) AND c IS NULL",
        ),
        (where(~(col("a") >= 5)).count(), "SELECT COUNT(*) FROM t WHERE (a < 5 OR a IS NULL)"),
        (where(~col("a").between(1, 5)).count(), "SELECT COUNT(*) FROM t WHERE (a < 1 OR a >= 5 OR a IS NULL)"),
        (where(~col("a").missing()).count(), "SELECT COUNT(*) FROM t WHERE a IS NOT NULL"),
        (where(a=[1, 2, None]).count(), "SELECT COUNT(*) FROM t WHERE (a IN (1, 2) OR a IS NULL)"),
        (where(~col("a").isin([1, 2])).count(), "SELECT COUNT(*) FROM t WHERE (a NOT IN (1, 2) OR a IS NULL)"),
        (where(~col("a").isin([1, None])).count(), "SELECT COUNT(*) FROM t WHERE a <> 1 AND a IS NOT NULL"),
        (where(d=("2020-05-31", None)).count(), "SELECT COUNT(*) FROM t WHERE d >= DATE '2020-05-31'"),
        (
            by("order").quantile('A "b"', [0.25, 0.5]),
            'SELECT "order", PERCENTILE_DISC(ARRAY[0.25, 0.5]) WITHIN GROUP (ORDER BY "A ""b""") FROM t '
            'GROUP BY "order"',
        ),
    ],
)
def test_sql(asked: Question[Any], statement: str) -> None:
    """Would catch names that are not quoted, a ``NOT`` that loses missing values, and a value that ends its quotes."""
    assert asked.sql("t") == statement


@pytest.mark.parametrize(
    "asked",
    [
        cut([0]),
        where().share(a=1),
        where().mean("x").weighted(),
        where(col("a").at("upper")).count(),
        by("a", bins={"a": {"x": [1]}}).count(),
        question({"type": "predicate", "where": {"a": {"between": [1, 2]}}}),
    ],
)
def test_no_sql_is_said_by_name(asked: Question[Any]) -> None:
    """Would catch a statement that asks something else."""
    with pytest.raises(ValueError, match="SQL has no words"):
        asked.sql("t")


@given(_HELD)
def test_sql_selects_the_same_records(held: Held) -> None:
    """SQLite, on one record a combination of values. Would catch a negation that SQL's rules of NULL turn into another
    question."""
    condition, holds = held
    statement = where(condition).count().sql("t")
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE t (sex, age, code, income)")
        rows = list(itertools.product(["female", "male"], [15, 16, 55, 95], [0, 1, 4, None], [0, 100, 1000, None]))
        database.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
        (counted,) = database.execute(statement).fetchone()
    named = [dict(zip(("sex", "age", "code", "income"), row, strict=True)) for row in rows]
    assert counted == sum(bool(holds(row)) for row in named)


_ASKED: list[Any] = [
    lambda records: records.count(),
    lambda records: records.mean("income"),
    lambda records: records.quantile("age", [0.25, 0.5]),
    lambda records: records.by("sex", "age", bins={"age": [15, 30, 95]}).count(),
    lambda records: records.by("code").variance("age"),
    lambda records: records.by("sex").median("income"),
]


@given(_HELD, st.sampled_from(_ASKED))
def test_the_service_reads_the_sql_as_the_same_question(held: Held, ask: Any) -> None:
    """What the service translates the statement to compiles to what the question compiles to. Would catch SQL that the
    service refuses, and one that asks for other records."""
    asked = ask(where(held[0]))
    try:
        meant = parse_query(asked.json).compiled(SPACE)
    except InvalidQuery:
        return
    try:
        read = translate(asked.sql("survey"), SqlTable(SPEC, SPACE))
    except SqlRefused:
        every = (dict(zip(_VALUES, row, strict=True)) for row in itertools.product(*_VALUES.values()))
        if any(held[1](row) for row in every):  # what asks of nobody is refused
            raise
        return
    assert isinstance(read, Select)
    (again,) = read.questions
    assert parse_query(again).compiled(SPACE).canonical == meant.canonical


def test_records_and_questions_in_whichever_form() -> None:
    """As people write them first. Catches an error from within the client, which says nothing of what to write."""
    assert chosen(None).mean("income") == where().mean("income")
    for form in ({"sex": "male"}, col("sex") == "male", where(sex="male")):
        assert chosen(form).mean("income") == where(sex="male").mean("income")
    mean = where().mean("income")
    assert asked({"type": "mean", "of": "income"}) == mean == asked(mean)
    for wrong in ("sex = 'male'", ["sex"], ("sex", "male"), 3):
        with pytest.raises(TypeError, match=r'say where\(sex="m"\)'):
            chosen(wrong)
    for other in ("SELECT COUNT(*) FROM survey", [mean], None):
        with pytest.raises(TypeError, match="say question"):
            asked(other)
    for bins in (5, "0, 18, 65"):
        with pytest.raises(TypeError, match="several values are given as a list"):
            by("age", bins={"age": bins}).count()  # type: ignore[dict-item]
