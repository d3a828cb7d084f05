"""What statements mean: their questions, told exactly of made-up records, say what DuckDB says of the same records."""

from __future__ import annotations

import calendar
import datetime
import math
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from app.declarations.spec import parse_spec
from app.spaces.queries.registry import parse_query
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.table import table_space
from app.sql.errors import SqlRefused
from app.sql.statement import Select, translate
from app.sql.table import Table
from tests.kit.plain_counts import PlainCounts

pytestmark = pytest.mark.unit

_SPEC = parse_spec(
    {
        "name": "made-up",
        "kind": "table",
        "records_public": True,
        "budget": {"epsilon": 1.0, "delta": 1e-9},
        "attributes": [
            {"name": "sex", "values": ["female", "male", "other"], "missing": True},
            {"name": "region", "values": [3, 1, 2]},
            {"name": "age", "lower": 15, "upper": 45, "bins": 6, "missing": True},
            {"name": "kids", "lower": 0, "upper": 6},
            {"name": "code", "size": 5, "missing": True},
            {"name": "hours", "lower": 0, "upper": 40, "grid": 1, "missing": True},
            {"name": "Score", "lower": -2, "upper": 2, "grid": 0.5},
            {"name": "joined", "dates": ["2019-03-01", "2020-06-30"], "by": "month", "missing": True},
            {"name": "born", "dates": ["2019-12-20", "2020-02-10"], "by": "day", "missing": True},
            {"name": "since", "dates": ["2010-01-01", "2013-12-31"], "by": "year"},
            {"name": "active", "values": ["true", "false"], "missing": True},
        ],
    }
)
TABLE = Table(_SPEC, table_space(_SPEC))  # type: ignore[arg-type]
_TYPES = {"sex": "VARCHAR", "Score": "DOUBLE", "joined": "DATE", "born": "DATE", "since": "DATE", "active": "BOOLEAN"}
_MISSING = ("sex", "age", "code", "hours", "joined", "born", "active")
#: Refusals of statements that select nothing, and of such that the contract does not answer as one table.
_NOTHING = ("whatever the data", "reversed or empty", "selects none of the records")
_UNASKED = ("combinations of values", "single group", "two cells or more")

Record = dict[str, Any]


def _first(date: datetime.date) -> datetime.date:
    return date.replace(day=1)


def _last(date: datetime.date) -> datetime.date:
    return date.replace(day=calendar.monthrange(date.year, date.month)[1])


def _dates(first: str, last: str) -> st.SearchStrategy[datetime.date]:
    return st.dates(datetime.date.fromisoformat(first), datetime.date.fromisoformat(last))


# ------------------------------------------------------------------------------------------------------ records

#: Few, so that comparisons meet the values themselves.
_HOURS = (0, 5, 7, 12, 15, 30, 40)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "sex": st.sampled_from(["female", "male", "other"]),
    "region": st.integers(1, 3),
    "age": st.integers(15, 45),
    "kids": st.integers(0, 6),
    "code": st.integers(0, 4),
    "hours": st.sampled_from(_HOURS),
    "Score": st.integers(-4, 4).map(lambda k: k / 2),
    "joined": _dates("2019-03-01", "2020-06-30"),
    "born": _dates("2019-12-20", "2020-02-10"),
    "since": _dates("2010-01-01", "2013-12-31"),
    "active": st.booleans(),
}


def _drawn(seed: int) -> list[Record]:
    """Records of every kind; drawn by a seed, as lists of draws would take a second."""
    random = Random(seed)
    days = {
        "joined": ("2019-03-01", "2020-06-30"),
        "born": ("2019-12-20", "2020-02-10"),
        "since": ("2010-01-01", "2013-12-31"),
    }

    def value(name: str) -> Any:
        if name in _MISSING and random.random() < 0.25:
            return None
        if name in days:
            first, last = (datetime.date.fromisoformat(text).toordinal() for text in days[name])
            return datetime.date.fromordinal(random.randint(first, last))
        if name == "active":
            return random.random() < 0.5
        if name in ("sex", "hours"):
            return random.choice(_HOURS if name == "hours" else ["female", "male", "other"])
        low, high = {"region": (1, 3), "age": (15, 45), "kids": (0, 6), "code": (0, 4), "Score": (-4, 4)}[name]
        return random.randint(low, high) / (2 if name == "Score" else 1)

    return [{name: value(name) for name in _VALUES} for _ in range(random.randint(1, 25))]


def _place(name: str, value: Any) -> int:
    """The place of a value on its axis, told from the declaration by hand."""
    lengths = {"sex": 3, "age": 6, "code": 5, "hours": 41, "joined": 16, "born": 53, "active": 2}
    if value is None:
        return lengths[name]
    match name:
        case "sex":
            return ["female", "male", "other"].index(value)
        case "region":
            return [3, 1, 2].index(value)
        case "age":
            return min(int(value - 15) // 5, 5)
        case "kids":
            return min(int(value), 5)
        case "Score":
            return int((value + 2) * 2)
        case "joined":
            return (value.year - 2019) * 12 + value.month - 3
        case "born":
            return (value - datetime.date(2019, 12, 20)).days
        case "since":
            return int(value.year - 2010)
        case "active":
            return int(not value)
    return int(value)


# --------------------------------------------------------------------------------------------------- statements

_COMPARISONS = st.sampled_from(["=", "<>", "!=", "<", "<=", ">", ">="])


@st.composite
def _leaf(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(sorted(_VALUES)))
    column = {"Score": '"Score"'}.get(name, name)
    form = draw(st.sampled_from(["compare", "compare", "between", "in", "null", "turned"] * 3 + ["constant"]))
    if form == "constant":
        return draw(st.sampled_from(["1 = 1", "1 = 0", "1 <> 1", "0.5 <> 1", "TRUE", "FALSE", f"{column} IN (NULL)"]))
    if form == "null":
        return f"{column} IS {draw(st.sampled_from(['', 'NOT ']))}NULL"
    if name == "active":
        word = draw(st.sampled_from(["", "= TRUE", "<> FALSE", "= FALSE", "IS TRUE", "IS NOT TRUE", "IS NOT FALSE"]))
        return f"{column} {word}"
    if name == "sex":
        listed = ", ".join(f"'{v}'" for v in draw(st.lists(_VALUES["sex"], min_size=1, max_size=3)))
        listed += draw(st.sampled_from(["", "", ", NULL"]))
        return f"{column} {draw(st.sampled_from(['', 'NOT ']))}IN ({listed})"
    if name == "region" or (form == "in" and name in ("code", "hours", "Score", "born")):
        drawn = draw(st.lists(_VALUES[name], min_size=1, max_size=3))
        listed = ", ".join(map(_written, drawn)) + draw(st.sampled_from(["", "", ", NULL"]))
        return f"{column} {draw(st.sampled_from(['', 'NOT ']))}IN ({listed})"
    return draw(_ordered(name, column, form))


@st.composite
def _ordered(draw: st.DrawFn, name: str, column: str, form: str) -> str:
    """A comparison of an attribute with an order that cuts no bin and no month."""
    whole = name in ("age", "joined", "since")
    lower = ["<", ">="] if whole else ["<", ">=", "<=", ">"]
    if name == "age":
        # Its last bin holds its upper edge.
        constant: st.SearchStrategy[Any] = st.sampled_from([10, 15, 20, 25, 30, 35, 40, 50])
    elif name == "kids":
        lower, constant = ["<", ">=", "<=", ">"], st.sampled_from([-1, 0, 1, 2, 3, 4, 7])
    elif name in ("joined", "since"):
        around = _dates("2018-12-01", "2020-09-01") if name == "joined" else _dates("2009-01-01", "2015-01-01")
        constant = around.map(_first) if name == "joined" else around.map(lambda d: d.replace(month=1, day=1))
    elif name == "born":
        constant = _dates("2019-12-15", "2020-02-15")
    elif name == "code":
        constant = st.one_of(st.integers(-2, 7), st.sampled_from([0.5, 2.5, 3.0]))
    else:
        constant = st.one_of(_VALUES[name], st.sampled_from([-7, 1.25, -1.75, 43]))
    if form == "between":
        low, high = draw(constant), draw(constant)
        if name == "kids":
            high = draw(st.sampled_from([0, 1, 2, 3, 4, 6, 9]))
        if name == "age":
            high = draw(st.sampled_from([10, 45, 50]))
        if name == "joined":
            high = _last(high)
        if name == "since":
            high = high.replace(month=12, day=31)
        return f"{column} {draw(st.sampled_from(['', 'NOT ']))}BETWEEN {_written(low)} AND {_written(high)}"
    if form == "compare" and name in ("code", "hours", "Score", "born") and draw(st.booleans()):
        return f"{column} {draw(st.sampled_from(['=', '<>']))} {_written(draw(_VALUES[name]))}"
    word, number = draw(st.sampled_from(lower)), draw(constant)
    if form == "turned":
        turned = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
        return f"{_written(number)} {turned[word]} {column}"
    return f"{column} {word} {_written(number)}"


def _written(value: Any) -> str:
    return f"DATE '{value}'" if isinstance(value, datetime.date) else str(value)


_CONDITIONS = st.recursive(
    _leaf(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        inner.map(lambda text: f"NOT ({text})"),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner, inner).map(
            lambda p: f"({p[0]} {p[1]} {p[2]} {p[1]} {p[3]})"
        ),
    ),
    max_leaves=4,
)


@dataclass(frozen=True)
class Grouped:
    """A way to group: as it is said here, as DuckDB is told, and the edges where labels are ranges."""

    said: str
    told: str
    edges: tuple[float, ...] = ()
    #: Whether records without a value are in no group.
    valued: bool = False

    @property
    def column(self) -> str:
        """What it groups by: of all names the one that it has."""
        return next(name for name in _VALUES if name in self.said)


def _cases(column: str, edges: tuple[float, ...], last: str = "<") -> str:
    ranges = pairwise(edges)
    words = [f"WHEN {column} >= {a} AND {column} {last if b == edges[-1] else '<'} {b} THEN {a}" for a, b in ranges]
    return f"CASE {' '.join(words)} END"


_AGES = (15, 20, 25, 30, 35, 40, 45)
_GROUPS = [
    Grouped("sex", "sex"),
    Grouped("region", "region"),
    Grouped("age", _cases("age", _AGES, "<="), _AGES),
    Grouped("kids", _cases("kids", (0, 1, 2, 3, 4, 5, 6), "<="), (0, 1, 2, 3, 4, 5, 6)),
    Grouped("code", "code"),
    Grouped('"Score"', '"Score"'),
    Grouped("hours", "hours"),
    Grouped("born", "born"),
    Grouped("BIN(hours, 5, 12.5, 40)", _cases("hours", (5, 12.5, 40), "<="), (5, 12.5, 40), True),
    Grouped("BIN(code, 1, 3, 5)", _cases("code", (1, 3, 5)), (1, 3, 5), True),
    Grouped("BIN(age, 20, 30, 45)", _cases("age", (20, 30, 45), "<="), (20, 30, 45), True),
    Grouped("FLOOR(hours / 15) * 15", "FLOOR(hours / 15) * 15", valued=True),
    Grouped("FLOOR(hours / 10) * 10", "FLOOR(hours / 10) * 10", valued=True),
    Grouped('0.75 * FLOOR("Score" / 0.75)', '0.75 * FLOOR("Score" / 0.75)'),
    Grouped("DATE_TRUNC('year', joined)", "DATE_TRUNC('year', joined)", valued=True),
    Grouped("DATE_TRUNC('month', joined)", "DATE_TRUNC('month', joined)"),
    Grouped("DATE_TRUNC('quarter', joined)", "DATE_TRUNC('quarter', joined)", valued=True),
    Grouped("DATE_TRUNC('month', born)", "DATE_TRUNC('month', born)", valued=True),
    Grouped("DATE_TRUNC('year', since)", "DATE_TRUNC('year', since)"),
]
_AGGREGATES = [
    ("COUNT(*)", None),
    ("COUNT(hours)", None),
    ("COUNT(sex)", None),
    ("COUNT(born)", None),
    ("COUNT(age)", None),
    ('SUM("Score")', None),
    ("SUM(hours)", None),
    ("AVG(hours)", None),
    ("VAR_POP(hours)", None),
    ("PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY hours)", None),
    ("MEDIAN(hours)", "PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY hours)"),
    ('PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY "Score")', None),
    ('AVG("Score")', None),
    ("PERCENTILE_DISC(ARRAY[0.25, 0.5]) WITHIN GROUP (ORDER BY hours)", "QUANTILE_DISC(hours, [0.25, 0.5])"),
]

# -------------------------------------------------------------------------------------------------- both answers


def _exactly(question: dict[str, Any], records: list[Record]) -> dict[str, Any]:
    """The answer to a question without noise: which records it is asked of is told one record after another, and what
    follows from these by plain formulas."""
    query = parse_query(question).compiled(TABLE.space)
    base = query.counts if isinstance(query, CompiledStatistic) else query
    cells = [tuple(_place(a.name, record[a.name]) for a in TABLE.spec.attributes) for record in records]
    own = [np.reshape(base.exact(PlainCounts(TABLE.space.shape, [(cell, 1)])), -1) for cell in cells]
    of = question.get("of")
    levels = question.get("q", ())
    values: list[Any] = []
    for group in range(base.numbers):
        chosen = [record for record, counts in zip(records, own, strict=True) if counts[group]]
        if of is None:
            values.append(len(chosen))
            continue
        told = sorted(record[of] for record in chosen if record[of] is not None)
        for level in levels if isinstance(levels, list) else (levels,):
            values.append(_statistic(question["type"], told, level))
    ordered = [values[place] for place in query.ordered(np.arange(query.numbers)).tolist()] if query.labels else values
    if query.labels:
        return {"axes": query.labels, "values": ordered, "standard_errors": None, "intervals": None}
    return {"value": values[0], "standard_error": None, "interval": None}


def _statistic(kind: str, told: list[Any], level: Any) -> Any:
    if kind == "sum":
        return sum(told)
    if not told:
        return None
    if kind == "quantile":
        return told[math.ceil(Fraction(level) * len(told)) - 1]
    mean = Fraction(sum(map(Fraction, told)), len(told))
    if kind == "mean":
        return float(mean)
    return float(sum((value - mean) ** 2 for value in told) / len(told))


@pytest.fixture(scope="module")
def oracle() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        columns = ", ".join(f'"{name}" {_TYPES.get(name, "INTEGER")}' for name in _VALUES)
        connection.execute(f'CREATE TABLE "made-up" ({columns})')
        yield connection


def _told(oracle: duckdb.DuckDBPyConnection, records: list[Record], statement: str) -> list[tuple[Any, ...]]:
    oracle.execute('DELETE FROM "made-up"')
    marks = ", ".join("?" * len(_VALUES))
    values = [value for record in records for value in record.values()]
    oracle.execute(f'INSERT INTO "made-up" VALUES {", ".join([f"({marks})"] * len(records))}', values)
    return oracle.execute(statement).fetchall()


def _key(value: Any, group: Grouped) -> Any:
    """A group's value, however it is written; a range by where it begins among the edges."""
    if value is None:
        return None
    if group.edges:
        number = float(str(value).lstrip("[").split(",")[0])
        return bisect_right(group.edges, number)
    if isinstance(value, datetime.date):
        return value.isoformat()[:10]
    return value if isinstance(value, str) else float(value)


@settings(max_examples=200)
@given(
    seed=st.integers(0, 10**9),
    condition=st.none() | _CONDITIONS,
    groups=st.lists(st.sampled_from(_GROUPS), max_size=2, unique_by=lambda group: group.column),
    aggregate=st.sampled_from(_AGGREGATES),
)
def test_statements_say_what_they_say_elsewhere(
    oracle: duckdb.DuckDBPyConnection,
    seed: int,
    condition: str | None,
    groups: list[Grouped],
    aggregate: tuple[str, str | None],
) -> None:
    """Would catch records without a value that are counted where SQL leaves them out, NOT that is not the opposite, a
    BETWEEN without one of its ends, a bin that begins elsewhere, and rows that stand beside another's labels."""
    records = _drawn(seed)
    said, theirs = aggregate
    where = f" WHERE {condition}" if condition else ""
    names = ", ".join(group.said for group in groups)
    statement = f'SELECT {names + ", " if names else ""}{said} AS answer FROM "made-up"{where}'
    statement += f" GROUP BY {names}" if names else ""
    told = ", ".join(group.told for group in groups)
    elsewhere = f'SELECT {told + ", " if told else ""}{theirs or said} AS answer FROM "made-up"{where}'
    elsewhere += f" GROUP BY {told}" if told else ""
    try:
        select = translate(statement, TABLE)
    except SqlRefused as refused:
        detail = refused.detail
        select = None
    if select is None:
        if any(words in detail for words in _UNASKED):
            event("not one question")
            return
        assert any(words in detail for words in _NOTHING), detail
        event("selects nothing")
        assert not where or _nothing(oracle, records, where, groups, said)
        return
    event("asked")
    assert isinstance(select, Select)
    rows = select.rows([_exactly(question, records) for question in select.questions])
    count = len(groups)
    expected = {
        tuple(_key(value, group) for value, group in zip(row, groups, strict=False)): row[count]
        for row in _told(oracle, records, elsewhere)
    }
    found = {tuple(_key(value, group) for value, group in zip(row, groups, strict=False)): row[count] for row in rows}
    assert len(found) == len(rows)
    # Without a group DuckDB tells of nothing too; a record in no bin is in no row.
    expected = {
        key: value
        for key, value in expected.items()
        if not any(part is None and group.valued for part, group in zip(key, groups, strict=True))
    }
    for key, value in found.items():
        empty = value in (0, None) or value == [None, None]
        assert _same(value, expected.pop(key, None)) or empty, key
    # Groups that conditions leave nothing of have no row.
    assert all(value in (0, None) for value in expected.values()), (select.questions, expected)


def _nothing(
    oracle: duckdb.DuckDBPyConnection, records: list[Record], where: str, groups: list[Grouped], said: str
) -> bool:
    """Whether there are no records in the groups that are counted, with a value of what is counted of them."""
    counted = [f'"{name}" IS NOT NULL' for name in _VALUES if re.search(rf"\b{name}\b", said)]
    valued = counted + [f"({group.told}) IS NOT NULL" for group in groups if group.valued]
    condition = " AND ".join([f"({where.removeprefix(' WHERE ')})", *valued])
    return _told(oracle, records, f'SELECT COUNT(*) FROM "made-up" WHERE {condition}') == [(0,)]


def _same(found: Any, expected: Any) -> bool:
    if isinstance(found, list):
        theirs = expected if expected is not None else [None] * len(found)
        return len(found) == len(theirs) and all(map(_same, found, theirs))
    if found is None or expected is None:
        return found is expected
    return math.isclose(found, float(expected), rel_tol=1e-9, abs_tol=1e-9)


@pytest.mark.parametrize(
    ("name", "condition", "label"),
    [
        ("sex", "sex = 'male'", "male"),
        ("sex", "sex IS NULL", None),
        ("code", "code BETWEEN 2 AND 2", 2),
        ("hours", "hours = 5", 5),
        ("age", "age >= 20 AND age < 25", "[20, 25)"),
        ("joined", "joined BETWEEN DATE '2020-01-01' AND DATE '2020-01-31'", "2020-01"),
        ("sex, code", "code = 1 AND sex NOT IN ('female', 'other')", "male"),
    ],
)
@pytest.mark.parametrize("aggregate", ["COUNT(*)", 'PERCENTILE_DISC(ARRAY[0.25, 0.5]) WITHIN GROUP (ORDER BY "Score")'])
def test_a_filter_by_what_is_grouped_by_leaves_one_row(
    oracle: duckdb.DuckDBPyConnection, name: str, condition: str, label: Any, aggregate: str
) -> None:
    """Would catch a filter of a dashboard that is refused as it leaves one group, a row beside another label, and
    quantiles that are taken for groups."""
    told = f'SELECT {name}, {aggregate} AS n FROM "made-up" WHERE {condition} GROUP BY {name} ORDER BY {name}, n'
    select = translate(told, TABLE)
    assert isinstance(select, Select)
    records = [record for seed in range(12) for record in _drawn(seed)]
    (row,) = select.rows([_exactly(select.questions[0], records)])
    theirs = aggregate if aggregate == "COUNT(*)" else 'QUANTILE_DISC("Score", [0.25, 0.5])'
    ((expected,),) = _told(oracle, records, f'SELECT {theirs} FROM "made-up" WHERE {condition}')
    assert expected
    assert row[0] == label
    assert _same(row[len(name.split(","))], expected)


_TOGETHER = ["COUNT(*)", "COUNT(sex)", "COUNT(hours)", "SUM(hours)", "AVG(hours)", "COUNT(age)"]


@pytest.mark.parametrize(
    ("groups", "condition"),
    [
        ("code, sex", ""),
        ("sex", ""),
        ("region, hours", "WHERE hours < 8 OR hours IS NULL"),
        ("sex, region", "WHERE hours IS NULL AND sex IS NULL OR region = 1"),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_several_aggregates_stand_beside_their_labels(
    oracle: duckdb.DuckDBPyConnection, groups: str, condition: str, seed: int
) -> None:
    """One that is of records with a value has no group without one. Would catch a number of another group, and a row
    that is missing as one aggregate has nothing there."""
    random = Random(seed)
    records = [record for number in range(10) for record in _drawn(100 * seed + number)]
    for _ in range(6):
        chosen = random.sample(_TOGETHER, random.randint(2, 4))
        named = ", ".join(f"{each} AS a{number}" for number, each in enumerate(chosen))
        told = f'SELECT {groups}, {named} FROM "made-up" {condition} GROUP BY {groups}'
        select = translate(told, TABLE)
        assert isinstance(select, Select)
        rows = select.rows([_exactly(question, records) for question in select.questions])
        width = len(groups.split(", "))
        values = [place for place, column in enumerate(select.columns) if column.role == "value"]
        theirs = {tuple(row[:width]): row[width:] for row in _told(oracle, records, told)}
        whole = any(each in ("COUNT(*)", "COUNT(age)") for each in chosen)
        found = {tuple(row[:width]): [row[place] for place in values] for row in rows}
        assert set(found) >= set(theirs) or not whole
        for labels, own in found.items():
            if labels not in theirs:
                # A combination that nobody has, which SQL does not tell.
                assert not any(own)
                continue
            for each, value, expected in zip(chosen, own, theirs[labels], strict=True):
                # Of nobody a sum is 0 here, and there is none elsewhere.
                assert _same(
                    value or (0 if each.startswith("SUM") else value),
                    0 if expected is None and each.startswith("SUM") else expected,
                ), (told, labels, each)


def test_a_bin_that_holds_more_than_its_name_says_is_told() -> None:
    """The upper bound has no bin of its own. Would catch a number that is counted below its own floor, unsaid."""
    told = translate('SELECT FLOOR(kids / 2) * 2 AS k, COUNT(*) FROM "made-up" GROUP BY k', TABLE)
    assert isinstance(told, Select)
    assert told.notices == ("kids = 6 is counted in the bin before, which holds its upper edge",)
    for quiet in ("FLOOR(kids / 4) * 4", "FLOOR(hours / 10) * 10"):
        select = translate(f'SELECT {quiet} AS k, COUNT(*) FROM "made-up" GROUP BY k', TABLE)
        assert isinstance(select, Select)
        assert not any("upper edge" in notice for notice in select.notices)
    with pytest.raises(SqlRefused, match="one number"):
        translate('SELECT FLOOR(hours / 10, 1) * 10 AS k, COUNT(*) FROM "made-up" GROUP BY k', TABLE)


def test_names_that_are_given_are_kept() -> None:
    """Would catch rows that are ordered by another column than the one that has the name."""
    told = 'SELECT sex, COUNT(*) AS n, AVG(hours) AS n_low FROM "made-up" GROUP BY sex ORDER BY n_low'
    select = translate(told, TABLE)
    assert isinstance(select, Select)
    names = {column.name: (column.role, column.place) for column in select.columns}
    assert names["n_low"] == ("value", 1)
    assert select._order[0].column.place == 1
    assert len(names) == len(select.columns)
    with pytest.raises(SqlRefused, match="several columns are called so"):
        translate('SELECT COUNT(*) AS "n", AVG(hours) AS "N" FROM "made-up" ORDER BY n', TABLE)


def test_columns_that_differ_by_case_are_told_apart() -> None:
    """Would catch labels of one beside those of another, and a column that is selected and not grouped by."""
    spec = parse_spec(
        {
            "name": "t",
            "kind": "table",
            "budget": {"epsilon": 1.0, "delta": 1e-9},
            "attributes": [{"name": "sex", "size": 2}, {"name": "Sex", "size": 3}],
        }
    )
    both = Table(spec, table_space(spec))  # type: ignore[arg-type]
    select = translate('SELECT "sex", "Sex", COUNT(*) FROM t GROUP BY "Sex", "sex"', both)
    assert isinstance(select, Select)
    assert [column.place for column in select.columns[:2]] == [1, 0]
    with pytest.raises(SqlRefused, match="not shown one by one"):
        translate('SELECT "Sex", COUNT(*) FROM t GROUP BY "sex"', both)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("NOT (hours >= 5)", {"hours": {"lt": 5}}),
        ("NOT (hours >= 5 OR hours IS NULL)", {"hours": {"lt": 5, "ge": 0}}),
        ("hours BETWEEN 5 AND 7", {"hours": {"ge": 5, "le": 7}}),
        ("sex <> 'male'", {"sex": ["female", "other"]}),
        ("hours IS NULL", {"hours": None}),
        ("NOT (hours > 5)", {"hours": {"le": 5}}),
        ("NOT (hours <= 5)", {"hours": {"gt": 5}}),
        ("NOT hours BETWEEN 0 AND 7", {"hours": {"gt": 7}}),
        ("code = 1 OR hours BETWEEN 7 AND 5", {"code": 1}),
        ("code = 1 OR hours > 5 AND hours < 6", {"code": 1}),
        ("hours < 100", {"hours": {"ge": 0}}),
        ("region IS NOT NULL", {}),
        ("code IN (1, NULL)", {"code": 1}),
        ("code = 1 OR code NOT IN (2, NULL)", {"code": 1}),
        ("1 = 1 AND code = 1", {"code": 1}),
        ("(code = 1 AND code < 4) AND code < 3", {"code": 1, "all": [{"code": {"lt": 4}}, {"code": {"lt": 3}}]}),
        ("NOT (1 = 1) OR code = 1", {"code": 1}),
        ("5 < hours", {"hours": {"gt": 5}}),
        ("sex = 'male' AND (code = 1 OR kids = 2)", {"sex": "male", "any": [{"code": 1}, {"kids": 2}]}),
    ],
)
def test_conditions_are_said_plainly(condition: str, expected: dict[str, Any]) -> None:
    """Would catch a translation that means the same and that nobody could read in a transcript."""
    select = translate(f'SELECT COUNT(*) FROM "made-up" WHERE {condition}', TABLE)
    assert isinstance(select, Select)
    assert select.questions[0]["where"] == expected


@pytest.mark.parametrize(
    ("condition", "value"),
    [("flag", 1), ("NOT flag", 0), ("flag = TRUE", 1), ("flag IS FALSE", 0), ("flag <> TRUE", 0)],
)
def test_codes_of_two_are_truth_values(condition: str, value: int) -> None:
    """As a file's false and true are read as these. Would catch one that is turned round."""
    spec = parse_spec(
        {
            "name": "t",
            "kind": "table",
            "budget": {"epsilon": 1.0, "delta": 1e-9},
            "attributes": [{"name": "flag", "size": 2}],
        }
    )
    table = Table(spec, table_space(spec))  # type: ignore[arg-type]
    found = translate(f"SELECT COUNT(*) FROM t WHERE {condition}", table)
    assert isinstance(found, Select)
    assert [dict(question["where"]) for question in found.questions] in ([{"flag": value}], [{"flag": [value]}])


@pytest.mark.parametrize(
    ("condition", "where"),
    [
        ("active IS NOT TRUE", {"not": {"active": "true"}}),
        ("active IS NOT FALSE", {"not": {"active": "false"}}),
        ("NOT (active IS TRUE)", {"not": {"active": "true"}}),
        ("active IS TRUE", {"active": "true"}),
        ("NOT active", {"active": "false"}),
        ("active <> TRUE", {"active": "false"}),
    ],
)
def test_what_has_no_value_is_neither_true_nor_false(condition: str, where: dict[str, Any]) -> None:
    """Would catch records without a value among those that a comparison is true of, or left out where it is denied."""
    found = translate(f'SELECT COUNT(*) FROM "made-up" WHERE {condition}', TABLE)
    assert isinstance(found, Select)
    (asked,) = (parse_query(question).compiled(TABLE.space) for question in found.questions)
    assert asked.canonical == parse_query({"type": "predicate", "where": where}).compiled(TABLE.space).canonical
