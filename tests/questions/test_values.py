"""Conditions on numbers, dates and no value against their meaning in plain Python, and what is refused."""

from __future__ import annotations

import calendar
import datetime
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from app.declarations.attributes import Attribute
from app.declarations.conditions import Condition
from app.spaces.errors import InvalidQuery
from app.spaces.values import Values, values_of

pytestmark = [pytest.mark.unit, pytest.mark.slow]

Words = dict[str, Any]

#: Comparisons of which there may be one, or two.
COMPARED = [("ge",), ("gt", "lt"), ("le",), ("ge", "le")]
#: What is said of null where there is none.
NO_MISSING = 'a: null: every record has a value, as "missing" is not declared'


def made(**declared: Any) -> Values:
    return values_of(Attribute.model_validate({"name": "a", **declared}))


def members(values: Values, condition: Words) -> list[int]:
    found = values.members(Condition.model_validate(condition))
    return list(range(found.start, found.stop)) if isinstance(found, slice) else found.tolist()


# Numbers.


def numbers(declared: Words) -> list[Fraction | None]:
    """Every number of a declaration, by addition, and None where there may be none."""
    low, high, step = (Fraction(Decimal(str(declared[word]))) for word in ("lower", "upper", "grid"))
    found: list[Fraction | None] = []
    while low <= high:
        found.append(low)
        low += step
    return [*found, None] if declared.get("missing") else found


@st.composite
def grids(draw: st.DrawFn) -> Words:
    step = draw(st.sampled_from([1, 5, 0.5, 0.01, 0.1, 2.5, 0.125]))
    places, first = draw(st.integers(2, 12)), draw(st.integers(-20, 20))
    low = Decimal(str(step)) * first
    high = low + Decimal(str(step)) * (places - 1)
    declared = {"lower": float(low), "upper": float(high), "grid": step}
    return declared | ({"missing": True} if draw(st.booleans()) else {})


def near(draw: st.DrawFn, declared: Words) -> Any:
    """A number of the grid, one beside it, or one beyond."""
    of_grid = [float(v) for v in numbers(declared) if v is not None]
    beside = [v + declared["grid"] / 3 for v in of_grid] + [of_grid[0] - 1000, of_grid[-1] + 1000]
    return draw(st.sampled_from([*of_grid, *of_grid, *beside]))


@st.composite
def number_conditions(draw: st.DrawFn, declared: Words) -> Words:
    match draw(st.sampled_from(["equals", "in", "between", "compared", "null"])):
        case "equals":
            return {"equals": near(draw, declared)}
        case "in":
            listed = [near(draw, declared) for _ in range(draw(st.integers(1, 3)))]
            return {"in": [*listed, None] if draw(st.booleans()) else listed}
        case "between":
            return {"between": [near(draw, declared), near(draw, declared)]}
        case "null":
            return {"equals": None}
    return {word: near(draw, declared) for word in draw(st.sampled_from(COMPARED))}


def number_holds(value: Fraction | None, condition: Words, declared: Words) -> bool:
    """Whether a number satisfies the words, from docs/asking.md alone."""

    def exact(number: Any) -> Fraction:
        return Fraction(Decimal(repr(number)))

    if "in" in condition:
        return any(number_holds(value, {"equals": one}, declared) for one in condition["in"])
    if "equals" in condition:
        asked = condition["equals"]
        return value is None if asked is None else value is not None and value == exact(asked)
    if value is None:
        return False
    if "between" in condition:
        low, high = map(exact, condition["between"])
        return low <= value < high or (value == high == exact(declared["upper"]) and low <= value)
    tests = {"ge": value.__ge__, "gt": value.__gt__, "le": value.__le__, "lt": value.__lt__}
    return all(tests[word](exact(bound)) for word, bound in condition.items())


def sayable(condition: Words, declared: Words) -> bool:
    """Whether every single value that is named is one."""
    own = numbers(declared)
    named = condition.get("in", [condition["equals"]] if "equals" in condition else [])
    return all((None if v is None else Fraction(Decimal(repr(v)))) in own for v in named)


@settings(max_examples=500)
@given(st.data())
def test_conditions_on_numbers(d: st.DataObject) -> None:
    """Would catch a bound that belongs to the other side, decimals that are taken for the nearest float, a record
    without a value in a range, and a range that is empty and not refused."""
    declared = d.draw(grids())
    condition = d.draw(number_conditions(declared))
    expected = [k for k, value in enumerate(numbers(declared)) if number_holds(value, condition, declared)]
    values = made(**declared)
    if sayable(condition, declared) and expected:
        assert members(values, condition) == expected
        return
    with pytest.raises(InvalidQuery):
        members(values, condition)


@given(st.data())
def test_bins_of_numbers(d: st.DataObject) -> None:
    """Each number is in the bin that it lies in, the upper bound in the last one. Would catch a bin that begins a
    place late, and one that nothing is in."""
    declared = d.draw(grids())
    edges = sorted({near(d.draw, declared) for _ in range(d.draw(st.integers(2, 5)))})
    values = made(**declared)
    assume(len(edges) > 1)
    inside = [
        [k for k, v in enumerate(numbers(declared)) if number_holds(v, {"ge": a, "lt": b}, declared)]
        for a, b in pairwise(edges)
    ]
    if edges[-1] == declared["upper"]:
        inside[-1].append(values.places - 1)
    if not all(inside):
        with pytest.raises(InvalidQuery, match="must ascend"):
            values.bins(edges)
        return
    assert [list(range(a, b)) for a, b in pairwise(values.bins(edges).tolist())] == inside


# Dates.


def periods(declared: Words) -> list[tuple[datetime.date, datetime.date] | None]:
    """The first and the last day of every place, day by day."""
    day, last = (datetime.date.fromisoformat(text) for text in declared["dates"])
    found: dict[tuple[int, ...], tuple[datetime.date, datetime.date] | None] = {}
    while day <= last:
        key = {"day": (day.year, day.month, day.day), "month": (day.year, day.month), "year": (day.year,)}
        found[key[declared["by"]]] = _whole(key[declared["by"]])
        day += datetime.timedelta(1)
    return [*found.values(), None] if declared.get("missing") else list(found.values())


def _whole(key: tuple[int, ...]) -> tuple[datetime.date, datetime.date]:
    """The first and the last day of a day, a month or a year."""
    if len(key) == 3:
        return datetime.date(*key), datetime.date(*key)  # type: ignore[arg-type]
    months = (key[1], key[1]) if len(key) == 2 else (1, 12)
    last = calendar.monthrange(key[0], months[1])[1]
    return datetime.date(key[0], months[0], 1), datetime.date(key[0], months[1], last)


def days(text: str) -> tuple[datetime.date, datetime.date]:
    return _whole(tuple(map(int, text.split("-"))))


@st.composite
def calendars(draw: st.DrawFn) -> Words:
    by = draw(st.sampled_from(["day", "month", "year"]))
    first = datetime.date(2019, 11, 1) + datetime.timedelta(draw(st.integers(0, 100)))
    last = first + datetime.timedelta(draw(st.integers(0, {"day": 40, "month": 500, "year": 1500}[by])))
    declared = {"dates": [first.isoformat(), last.isoformat()], "by": by}
    return declared | ({"missing": True} if draw(st.booleans()) else {})


def text(draw: st.DrawFn, declared: Words) -> str:
    first, last = (datetime.date.fromisoformat(t) for t in declared["dates"])
    day = first + datetime.timedelta(draw(st.integers(-40, (last - first).days + 40)))
    return day.isoformat()[: draw(st.sampled_from([4, 7, 10]))]


@st.composite
def date_conditions(draw: st.DrawFn, declared: Words) -> Words:
    match draw(st.sampled_from(["equals", "in", "between", "compared", "null"])):
        case "equals":
            return {"equals": text(draw, declared)}
        case "in":
            listed = [text(draw, declared) for _ in range(draw(st.integers(1, 3)))]
            return {"in": [*listed, None] if draw(st.booleans()) else listed}
        case "between":
            return {"between": [text(draw, declared), text(draw, declared)]}
        case "null":
            return {"equals": None}
    return {word: text(draw, declared) for word in draw(st.sampled_from(COMPARED))}


def date_judged(condition: Words, declared: Words) -> list[int] | None:
    """The places that satisfy the words; None where they cut one, or name a single value that there is not."""
    own = periods(declared)
    told = [p for p in own if p is not None]

    def cuts(one: str, *, first: bool = False, last: bool = False) -> bool:
        """Whether a period has days on both sides of the first day of a text, or of its last."""
        begin, end = days(one)
        key = {"day": 3, "month": 2, "year": 1}[declared["by"]]
        low = _whole((begin.year, begin.month, begin.day)[:key])
        high = _whole((end.year, end.month, end.day)[:key])
        return (first and low[0] != begin) or (last and high[1] != end)

    def single(one: str | None) -> list[int] | None:
        if one is None:
            return [len(told)] if declared.get("missing") else None
        begin, end = days(one)
        # All of it is declared.
        if cuts(one, first=True, last=True) or begin < told[0][0] or end > told[-1][1]:
            return None
        return [k for k, p in enumerate(told) if begin <= p[0] and p[1] <= end]

    if "equals" in condition or "in" in condition:
        found = [single(one) for one in condition.get("in", [condition.get("equals")])]
        return None if any(f is None for f in found) else sorted({k for f in found for k in f or []})
    if "between" in condition:
        condition = {"ge": condition["between"][0], "le": condition["between"][1]}
    for word, bound in condition.items():
        if cuts(bound, first=word in ("ge", "lt"), last=word in ("gt", "le")):
            return None
    tests = {
        "ge": lambda p, b: p[0] >= days(b)[0],
        "gt": lambda p, b: p[0] > days(b)[1],
        "le": lambda p, b: p[1] <= days(b)[1],
        "lt": lambda p, b: p[1] < days(b)[0],
    }
    return [k for k, p in enumerate(told) if all(tests[w](p, b) for w, b in condition.items())] or None


@settings(max_examples=500)
@given(st.data())
def test_conditions_on_dates(d: st.DataObject) -> None:
    """Would catch a month of another length, a bound that is taken for its first day where its last is meant, a text
    that cuts a period, and a record without a date in a range."""
    declared = d.draw(calendars())
    condition = d.draw(date_conditions(declared))
    expected, values = date_judged(condition, declared), made(**declared)
    if expected:
        assert members(values, condition) == expected
        return
    with pytest.raises(InvalidQuery):
        members(values, condition)


NUMBERS = {"lower": -1, "upper": 2, "grid": 0.5}
MONTHS = {"dates": ["2019-11-03", "2020-02-10"], "by": "month"}
DAYS = {"dates": ["2020-02-27", "2020-03-02"], "by": "day"}
YEARS = {"dates": ["2018-01-01", "2020-12-31"], "by": "year"}


@pytest.mark.parametrize(
    ("declared", "cells", "labels"),
    [
        (NUMBERS, [[0], [1], [2], [6]], (-1, -0.5, 0, 2)),
        (NUMBERS, [[0, 1], [2, 3, 4]], ("[-1, 0)", "[0, 1.5)")),
        (NUMBERS, [[0, 1], [2]], ("[-1, 0)", "[0, 0.5)")),
        (NUMBERS, [[0, 2, 3], [5, 6]], ("[-1, -0.5), [0, 1)", "[1.5, 2]")),
        (NUMBERS | {"missing": True}, [[0], [7]], (-1, None)),
        (NUMBERS | {"missing": True}, [[5, 6, 7], [0, 1]], ("[1.5, 2], missing", "[-1, 0)")),
        ({"lower": 0.01, "upper": 0.05, "grid": 0.01}, [[2], [4]], (0.03, 0.05)),
        ({"lower": 0.01, "upper": 0.05, "grid": 0.01}, [[0, 1], [2, 3, 4]], ("[0.01, 0.03)", "[0.03, 0.05]")),
        (MONTHS, [[0], [3]], ("2019-11", "2020-02")),
        (MONTHS, [[0, 1], [2]], ("[2019-11, 2020-01)", "[2020-01, 2020-02)")),
        (DAYS, [[1], [2], [3]], ("2020-02-28", "2020-02-29", "2020-03-01")),
        (DAYS, [[0, 1, 2], [3, 4]], ("[2020-02-27, 2020-03-01)", "[2020-03-01, 2020-03-03)")),
        (YEARS | {"missing": True}, [[0, 1], [3]], ("[2018, 2020)", None)),
        ({"values": ["x", "y"], "missing": True}, [[0], [1], [2]], ("x", "y", None)),
        ({"values": ["x", "y"], "missing": True}, [[0, 2], [1]], ("x, missing", "y")),
        ({"size": 3, "missing": True}, [[0], [3]], (0, None)),
    ],
)
def test_labels(declared: Words, cells: list[list[int]], labels: tuple[Any, ...]) -> None:
    """Would catch a last bin that is not closed, a leap day that is left out, a decimal written as the nearest float,
    and a column of some numbers and some ranges."""
    assert made(**declared).labels([np.array(c, np.int64) for c in cells]) == labels


@pytest.mark.parametrize(
    ("declared", "condition", "says"),
    [
        (NUMBERS, {"equals": 0.3}, "a: 0.3 is not on the grid of 0.5: 0 and 0.5 are"),
        (NUMBERS, {"equals": 2.5}, "a: numbers lie from -1 to 2"),
        (NUMBERS, {"in": [0, -1.5]}, "a: numbers lie from -1 to 2"),
        (NUMBERS, {"equals": "0"}, "a: a condition needs numbers"),
        (NUMBERS, {"ge": "x"}, "a: ge needs numbers"),
        (NUMBERS, {"lt": "x"}, "a: lt needs numbers"),
        (NUMBERS, {"gt": "x"}, "a: gt needs numbers"),
        (NUMBERS, {"le": "x"}, "a: le needs numbers"),
        (NUMBERS, {"between": [0, "x"]}, "a: a range needs numbers"),
        (NUMBERS, {"ge": 3}, "a: the range is reversed or empty, of values from"),
        (NUMBERS, {"ge": 1, "lt": 1}, "a: the range is reversed or empty"),
        (NUMBERS, {"gt": 0, "lt": 0.5}, "a: the range is reversed or empty"),
        (NUMBERS, {"equals": None}, NO_MISSING),
        (NUMBERS, {"in": [0, None]}, NO_MISSING),
        (MONTHS, {"equals": None}, NO_MISSING),
        (MONTHS, {"equals": "2019-11-03"}, "a: 2019-11-03 would cut a month: dates are told apart by month"),
        (MONTHS, {"ge": "2019-11-03"}, "a: 2019-11-03 would cut a month: dates are told apart by month"),
        (MONTHS, {"equals": "2019-10"}, "a: dates lie from 2019-11-03 to 2020-02-10"),
        (MONTHS, {"equals": "2019"}, "a: dates lie from 2019-11-03 to 2020-02-10"),
        (MONTHS, {"equals": 2019}, "a: dates lie from 2019-11-03 to 2020-02-10"),
        (MONTHS, {"equals": 20190}, "a: dates are written as 2020-01-31, 2020-01 or 2020"),
        (MONTHS, {"lt": "soon"}, "a: dates are written as 2020-01-31, 2020-01 or 2020"),
        (MONTHS, {"lt": "2020-13"}, "a: dates are written as 2020-01-31, 2020-01 or 2020"),
        (MONTHS, {"lt": "0000"}, "a: dates are written as 2020-01-31, 2020-01 or 2020"),
        (DAYS, {"equals": "2020-02-30"}, "a: dates are written as 2020-01-31, 2020-01 or 2020"),
        (DAYS, {"gt": "2020-03-02"}, "a: the range is reversed or empty, of values from 20"),
        (YEARS, {"le": "2019-06"}, "a: 2019-06 would cut a year: dates are told apart by year"),
        (YEARS, {"between": ["2020", "2018"]}, "a: the range is reversed or empty"),
        ({"size": 3}, {"equals": None}, NO_MISSING),
        (
            {"values": ["x", "y"]},
            {"in": ["x", None]},
            'a: null: every record has a value, as "missing" is not declared',
        ),
        ({"values": ["x", "y"], "missing": True}, {"ge": "x"}, "a: comparisons need numeric values, dates or codes"),
        ({"lower": 0, "upper": 4, "bins": 2, "missing": True}, {"lt": 4}, "a: the last bin holds its upper edge"),
    ],
)
def test_what_is_refused(declared: Words, condition: Words, says: str) -> None:
    """Each refusal names the attribute and what is allowed. Would catch one that does not say what to change."""
    with pytest.raises(InvalidQuery) as refused:
        members(made(**declared), condition)
    assert str(refused.value).startswith(says)


@pytest.mark.parametrize(
    ("declared", "edges", "says"),
    [
        (NUMBERS, [0, 0], "a: the edges of bins must ascend, with a value in each bin"),
        (NUMBERS, [0.1, 0.2], "a: the edges of bins must ascend, with a value in each bin"),
        (NUMBERS, [0, "x"], "a: a range needs numbers"),
        (MONTHS, ["2019-12", "2019-12-31"], "a: 2019-12-31 would cut a month"),
        (MONTHS, ["2020-02", "2020-01"], "a: the edges of bins must ascend"),
        ({"values": ["x", "y"]}, ["x", "y"], "a: bins need numeric values, dates or codes"),
    ],
)
def test_bins_that_are_refused(declared: Words, edges: list[Any], says: str) -> None:
    """Would catch a bin of nothing, which is told as zero for ever."""
    with pytest.raises(InvalidQuery) as refused:
        made(**declared).bins(edges)
    assert str(refused.value).startswith(says)


def test_the_places_of_bins() -> None:
    """By hand: of months from November 2019 the bins of two years, and of days those of a month each."""
    assert made(**MONTHS).bins(["2019", "2020", "2021"]).tolist() == [0, 2, 4]
    assert made(**DAYS).bins(["2020-02", "2020-03", "2020-04"]).tolist() == [0, 3, 5]
    assert made(**NUMBERS).bins([-1, 0, 2]).tolist() == [0, 2, 7]
    assert made(**NUMBERS).bins([-1, 0, 1.9]).tolist() == [0, 2, 6]
