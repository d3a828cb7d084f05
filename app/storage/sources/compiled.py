"""What is asked of a source as text of SQL: made of the declaration and of the question, both of which are public.

By its expression a record is in one class, whatever it holds: each of its values is held within the axis before places
are put together, and before it weighs anything. Nothing filters: every record is counted in one class or another.
Floats are compared and nothing else, integers are cast to 64 bits before they are calculated with, and divisions are of
what is not negative. Columns are called by their positions, c0 and so on, so that no name is text of a query.

Engines differ in few words (:class:`Dialect`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from app.declarations.attributes import Attribute, day
from app.declarations.errors import InvalidDataset
from app.declarations.spec import MOST_COMPARED, TableSpec, elsewhere
from app.spaces.counts import CellCounts
from app.storage.readers.report import Report

#: Where a value is that has no place: not what is declared, below the least, above the largest.
_OUTSIDE, _BELOW, _ABOVE = -1, -2, -3
#: Numbers that change at so few places are made by comparisons.
_COMPARED = 8
#: The most categories of an attribute where each record's is looked for among them.
MOST_CATEGORIES = 4096
_TRUTH = (("false", "true"), ("0", "1"))

#: What a column holds, as far as it is counted: integers, those of 64 bits without a sign, floats, text, Booleans,
#: dates or times without a zone.
Kind = Literal["integer", "wide", "float", "text", "truth", "time"]
_INTEGERS: tuple[Kind, ...] = ("integer", "wide")


class Damaged(Exception):
    """An engine could not read records, or told what makes no sense."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table as the engine knows it: by its position; None where it holds what is not counted."""

    name: str
    kind: Kind | None


class Dialect(ABC):
    """The words of an engine.

    Attributes:
        real: the type of floats of 64 bits.
        huge: an integer type that holds what 64 bits with a sign do not.
        over: divides a whole number, {0}, which is not negative, by another, {1}, and drops what is left.
        text: the type of text.
    """

    real: str
    huge: str
    over: str
    text: str = "VARCHAR"

    @abstractmethod
    def word(self, axis: int, text: str) -> str:
        """The place of a text among the categories of an axis, null where it is none."""

    @abstractmethod
    def is_nan(self, column: str) -> str:
        """Whether a float is no number."""

    @abstractmethod
    def is_infinite(self, column: str) -> str:
        """Whether a float has no end."""

    @abstractmethod
    def looked_up(self, axis: int, place: str, numbers: NDArray[np.int64]) -> str:
        """One of these numbers, by a place among them. It takes the same time whichever it is."""

    def named(self, table: str, columns: Sequence[Column]) -> str:
        """A table as what a query is made from, its columns called by their positions."""
        return f"{table} AS records({', '.join(f'c{position}' for position in range(len(columns)))})"

    def held(self, value: str, low: object, high: object) -> str:
        """A value held between bounds, and one of these where it is null."""
        return f"greatest(least({value}, {high}), {low})"

    def days(self, first: str, date: str) -> str:
        """The days from one date to another."""
        return f"({date} - {first})"

    def joined(self) -> str:
        """What a query is joined with for the numbers that were last looked up."""
        return ""


def records(
    dialect: Dialect, spec: TableSpec, columns: Sequence[Column], table: str, axes: Iterable[int], *, reasons: bool
) -> str:
    """A query for the place of each record on some axes, or with ``reasons`` why it has none.

    Args:
        dialect: of the engine.
        spec: what is declared.
        columns: those of the table.
        table: the table, as text.
        axes: which are asked for.
        reasons: whether it is told where a value has no place.

    Raises:
        InvalidDataset: when a column is not there, or not of a type that is counted.
    """
    at = {column.name: position for position, column in enumerate(columns)}
    found = []
    for axis in axes:
        attribute = spec.attributes[axis]
        position = at.get(attribute.column or attribute.name)
        if position is None:
            raise InvalidDataset(
                f'source: a table of it has no column "{attribute.column or attribute.name}": let column of attribute '
                f'"{attribute.name}" be its name',
                attribute=attribute.name,
            )
        place = _place(dialect, attribute, axis, columns[position].kind, f"c{position}", reasons=reasons)
        if place is None:
            raise InvalidDataset(
                f'source: attribute "{attribute.name}" needs {_needed(attribute)}: write the column so, declare '
                f"the attribute otherwise, or {elsewhere(spec.source)}",
                attribute=attribute.name,
            )
        found.append(f"{place} AS p{axis}")
    return f"SELECT {', '.join(found) or '0 AS p'} FROM {dialect.named(table, columns)}"


def held(spec: TableSpec, places: str, axes: Iterable[int], beside: Mapping[str, str]) -> str:
    """A query for the places of records within some axes, whatever they hold, made of one that tells reasons, and for
    what else is made of those reasons.

    Args:
        spec: what is declared.
        places: a query for all places, with reasons.
        axes: those that are asked for.
        beside: by its name what else is told of a record.
    """
    found = [f"{what} AS {name}" for name, what in beside.items()]
    for axis in axes:
        last = spec.attributes[axis].places - 1
        found.append(f"CASE WHEN p{axis} = {_ABOVE} THEN {last} WHEN p{axis} < 0 THEN 0 ELSE p{axis} END AS p{axis}")
    return f"SELECT {', '.join(found)} FROM ({places}) AS s"


def labels(attribute: Attribute, way: str = elsewhere(None)) -> list[str]:
    """The categories as text, where each record's is looked for among them; ``way`` is what to do where they are too
    many.

    Raises:
        InvalidDataset: when they are too many for that.
    """
    found = list(map(str, attribute.values or ()))
    if len(found) > MOST_CATEGORIES:
        raise InvalidDataset(
            f'source: attribute "{attribute.name}" has {len(found):,} categories, and in a database at most '
            f"{MOST_CATEGORIES:,} are told apart: declare codes (size), or {way}",
            attribute=attribute.name,
        )
    return found


def survey(spec: TableSpec, places: str, beside: Sequence[str] = ()) -> str:
    """A query for how many records there are, and of each attribute how many are outside, clamped or without a value.

    Args:
        spec: what is declared.
        places: a query for all places, with reasons.
        beside: what is made of a record's places and added up, too.
    """
    asked, clamped = ["count(*)"], ["false"]
    for axis, attribute in enumerate(spec.attributes):
        clamps = attribute.outside == "clamp"
        moved = f"p{axis} < {_OUTSIDE}" if clamps else "false"
        outside = f"p{axis} = {_OUTSIDE}" if clamps else f"p{axis} < 0"
        clamped.append(f"({moved})")
        asked += [_number_of(outside), _number_of(moved), _number_of(f"p{axis} = {attribute.places}")]
    asked.append(_number_of(" OR ".join(clamped)))
    asked += [f"COALESCE(sum({what}), 0)" for what in beside]
    return f"SELECT {', '.join(asked)} FROM ({places}) AS t"


def surveyed(spec: TableSpec, told: Sequence[Any], report: Report) -> int:
    """Take what :func:`survey` told into a report; how many records there are.

    Raises:
        Damaged: when it is no whole numbers.
    """
    if not all(type(number) is int and number >= 0 for number in told):
        raise Damaged
    number, *single, moved = told
    report.count(number, {})
    report.clamped += moved
    for axis, attribute in enumerate(spec.attributes):
        outside, clamped, missing = single[3 * axis : 3 * axis + 3]
        tally = report.attributes[attribute.name]
        tally.clamped += clamped
        tally.missing += missing
        if outside:
            report.outside[attribute.name] = report.outside.get(attribute.name, 0) + outside
    return int(number)


def counts(dialect: Dialect, spec: TableSpec, places: str, asked: CellCounts, beside: Sequence[str] = ()) -> str:
    """A query for the cell, the number of records and the number of each class that is not empty, and for sums beside.

    Args:
        dialect: of the engine.
        spec: what is declared.
        places: a query for the places on the axes that are asked about.
        asked: counts of every record by classes.
        beside: columns of that query that are added up, too.
    """
    cell, stride = ["CAST(0 AS BIGINT)"], 1
    for axis, cells, length in reversed(list(zip(asked.axes, asked.cells, asked.shape, strict=True))):
        cell.append(f"{_looked_up(dialect, axis, None if cells is None else cells.labels)} * {stride}")
        stride *= length
    weights = []
    for axis, told in asked.factors:
        rest = np.zeros(spec.attributes[axis].length - len(told), np.int64)
        weights.append(_looked_up(dialect, axis, np.append(told, rest)))
    total = "CAST(sum(w) AS BIGINT)" if weights else "count(*)"
    summed = "".join(f", sum({name}) AS {name}" for name in beside)
    named = "".join(f", {name}" for name in beside)
    return (
        f"SELECT cell, count(*) AS n, {total} AS total{summed} FROM (SELECT {' + '.join(cell)} AS cell, "
        f"{' * '.join(weights or ['0'])} AS w{named} FROM ({places}) AS t{dialect.joined()}) AS u GROUP BY cell"
    )


def add(numbers: NDArray[np.int64], cells: NDArray[np.int64], totals: NDArray[np.int64]) -> None:
    """Add what :func:`counts` told to the numbers of all classes; what lies beyond them is left out."""
    inside = (cells >= 0) & (cells < len(numbers))
    np.add.at(numbers, cells[inside], totals[inside])


def _looked_up(dialect: Dialect, axis: int, numbers: NDArray[np.int64] | None) -> str:
    """The number of a record's place on an axis; the place itself where there are none."""
    if numbers is None:
        return f"p{axis}"
    starts = np.flatnonzero(np.diff(numbers)) + 1
    if len(starts) > _COMPARED:
        return dialect.looked_up(axis, f"p{axis}", numbers)
    # Each is compared with, whatever the one before was.
    steps = [
        f" + CAST({numbers[start] - numbers[start - 1]} AS BIGINT) * CAST(p{axis} >= {start} AS INTEGER)"
        for start in starts
    ]
    return f"(CAST({numbers[0]} AS BIGINT){''.join(steps)})"


def _number_of(condition: str) -> str:
    return f"count(CASE WHEN {condition} THEN 1 END)"


def _place(
    dialect: Dialect, attribute: Attribute, axis: int, kind: Kind | None, column: str, *, reasons: bool
) -> str | None:
    """The expression of an attribute's place, a whole number of 64 bits; None where the column's kind is not counted.

    Without reasons it lies within the axis, whatever the column holds: each form of it is bounded by itself. With them
    it is below zero where a value has no place (:data:`_OUTSIDE`, :data:`_BELOW`, :data:`_ABOVE`).
    """
    none = _OUTSIDE if reasons else 0
    empty = attribute.places if attribute.missing else none
    found: str | None = None

    def between(value: str, low: object, high: object, place: Callable[[str], str], *, strays: bool = True) -> str:
        """A place that is calculated from a value held between bounds; or on which side of them the value is."""
        held = place(dialect.held(value, low, high))
        if not reasons:
            return held
        below, above = (_BELOW, _ABOVE) if strays else (_OUTSIDE, _OUTSIDE)
        return f"CASE WHEN {value} < {low} THEN {below} WHEN {value} > {high} THEN {above} ELSE {held} END"

    whole = f"CAST({column} AS {dialect.huge if kind == 'wide' else 'BIGINT'})"
    match attribute.kind:
        case "codes" if kind in _INTEGERS:
            found = between(whole, 0, attribute.places - 1, lambda held: held, strays=False)
        case "codes" if kind == "truth" and attribute.places == 2:
            found = f"COALESCE(CAST({column} AS INTEGER), {none})"
        case "categories" if kind == "text":
            word = dialect.word(axis, column)
            # By its length: where a column has a collation others may equal the empty text.
            found = f"COALESCE({word}, CASE WHEN length({column}) = 0 THEN {empty} ELSE {none} END)"
        case "categories" if kind in _INTEGERS:
            found = f"COALESCE({dialect.word(axis, f'CAST({column} AS {dialect.text})')}, {none})"
        case "categories" if kind == "truth":
            found = _truth(attribute, column)
        case "dates" if kind == "time":
            low, high, place = _date(dialect, attribute)
            found = between(f"CAST({column} AS DATE)", low, high, place)
        case "numbers" if kind in _INTEGERS:
            least, most, step = map(int, (*attribute.bounds, attribute.step))
            found = between(
                whole,
                least,
                most,
                lambda held: f"({dialect.over.format(f'(({held} - {least}) * 2 + {step})', 2 * step)})",
            )
        case "bins" if attribute.unit_bins and kind in _INTEGERS:
            least, most = map(int, attribute.bounds)
            last = attribute.places - 1
            found = between(whole, least, most, lambda held: f"least({held} - {least}, {last})")
        case "bins" if kind in (*_INTEGERS, "float") and attribute.places <= MOST_COMPARED:
            found = _bin(dialect, attribute, f"CAST({column} AS {dialect.real})", reasons=reasons)
    if found is None:
        return None
    if kind == "float" and (reasons or attribute.missing):
        # Engines hold NaN to be above all numbers.
        found = (
            f"CASE WHEN {dialect.is_nan(column)} THEN {empty} WHEN {dialect.is_infinite(column)} THEN {none} "
            f"ELSE {found} END"
        )
    if not reasons and not attribute.missing:
        return f"CAST({found} AS BIGINT)"  # no form above lets null pass
    return f"CAST(CASE WHEN {column} IS NULL THEN {empty} ELSE {found} END AS BIGINT)"


def _truth(attribute: Attribute, column: str) -> str | None:
    """The place of false and true, where these are the categories."""
    words = [str(value).lower() for value in attribute.values or ()]
    for false, true in _TRUTH if all(isinstance(value, int) for value in attribute.values or ()) else _TRUTH[:1]:
        if sorted(words) == [false, true]:
            return f"CASE WHEN {column} THEN {words.index(true)} ELSE {words.index(false)} END"
    return None


def _date(dialect: Dialect, attribute: Attribute) -> tuple[str, str, Callable[[str], str]]:
    """The first and the last date, and the place of one between them. Of a time the day is what is cast."""
    assert attribute.dates is not None
    first, last = (attribute.period(day(text)) for text in attribute.dates)
    low, high = attribute.begins(first), date.max
    if last < attribute.period(date.max):
        high = attribute.begins(last + 1) - timedelta(days=1)
    begin = f"DATE '{low}'"

    def place(held: str) -> str:
        if attribute.by == "day":
            return dialect.days(begin, held)
        year = f"CAST(EXTRACT(year FROM {held}) AS BIGINT)"
        months = f"({year} * 12 + CAST(EXTRACT(month FROM {held}) AS BIGINT) - 1 - {first})"
        return months if attribute.by == "month" else f"({year} - {first})"

    return begin, f"DATE '{high}'", place


def _bin(dialect: Dialect, attribute: Attribute, value: str, *, reasons: bool) -> str:
    """The half-open bin of a number, the last one closed, by comparisons alone; the nearest one, or with ``reasons`` on
    which side of all of them the number is.
    """
    edge_at = attribute.edge_at()

    def edge(number: int) -> str:
        # Correctly rounded: as a decimal it would be another number.
        return f"CAST('{float(edge_at(number))!r}' AS {dialect.real})"

    def among(low: int, high: int) -> str:
        if high - low == 1:
            return str(low)
        middle = (low + high) // 2
        return f"CASE WHEN {value} >= {edge(middle)} THEN {among(middle, high)} ELSE {among(low, middle)} END"

    bins = attribute.places
    if not reasons:
        return among(0, bins)
    sides = f"WHEN {value} < {edge(0)} THEN {_BELOW} WHEN {value} > {edge(bins)} THEN {_ABOVE}"
    return f"CASE {sides} ELSE {among(0, bins)} END"


def _needed(attribute: Attribute) -> str:
    """The columns that an attribute is counted of, in words."""
    return {
        "codes": "a column of integers" + (" or Booleans" if attribute.places == 2 else ""),
        "categories": "a column of text or integers, or of Booleans for false and true",
        "dates": "a column of dates, or of times without a zone",
        "numbers": "a column of integers",
        "bins": "a column of integers"
        + (
            ", or of floats" if attribute.places <= MOST_COMPARED else f" (of floats in at most {MOST_COMPARED:,} bins)"
        ),
    }[attribute.kind]
