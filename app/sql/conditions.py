"""``WHERE``: the records of which a condition is true, as the contract's ``where``.

SQL has three truths: of a record without the value a comparison is neither true nor false, and so is its opposite. What
is denied is therefore said of the parts (``NOT (x >= 5)`` is ``x < 5``), and each part leaves out records without a
value, whether it is denied or not.
"""

from __future__ import annotations

import datetime
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
from sqlglot import exp

from app.declarations.attributes import CONNECTIVES, Attribute
from app.declarations.conditions import Condition
from app.spaces.errors import InvalidQuery
from app.spaces.tensor import Members
from app.spaces.values import Values
from app.sql.source import Source
from app.sql.table import Constant, Table, as_json, constant, number, truth, whole_date

#: Comparisons as the contract calls them, what they are when they are denied, and when the sides change places.
_WORDS: dict[type[exp.Expr], str] = {exp.GTE: "ge", exp.GT: "gt", exp.LT: "lt", exp.LTE: "le"}
_DENIED = {"ge": "lt", "lt": "ge", "gt": "le", "le": "gt"}
_TURNED = {"ge": "le", "le": "ge", "gt": "lt", "lt": "gt"}
#: What is not equal to a value is listed where there are so many values at most: of combinations fewer are looked at.
_MOST_LISTED = 1000
_LOWER, _UPPER = frozenset({"ge", "gt"}), frozenset({"lt", "le"})


@dataclass(frozen=True, slots=True)
class Never:
    """A condition that no record satisfies, and where it stands."""

    at: exp.Expr


#: Conditions in the contract's words; none at all holds always.
Found = dict[str, Any] | Never


def where(source: Source, table: Table, node: exp.Expr | None) -> dict[str, Any]:
    """The conditions of a ``WHERE`` in the contract's words; none where there is none.

    Raises:
        SqlRefused: when one has no meaning here, or none can be satisfied.
    """
    if node is None:
        return {}
    found = _Reading(source, table).holds(node, True)
    if isinstance(found, Never):
        source.refuse(
            found.at, "no record satisfies this, whatever the data", "see DESCRIBE for the values that there are"
        )
    return found


def is_never(source: Source, node: exp.Expr) -> bool:
    """Whether a ``WHERE`` says in so many words that no record is wanted: ``FALSE``, or ``1 = 0``."""
    while isinstance(node, exp.Paren):
        node = node.this
    if isinstance(node, exp.Boolean):
        return not node.this
    return _both_constant(node) and _equal(source, node) != isinstance(node, exp.EQ)


def has_value(values: Values) -> dict[str, Any]:
    """That a record has a value, without a ``not``: with one fewer attributes can be named."""
    attribute = values.attribute
    if not attribute.missing:
        return {}
    if attribute.values is not None:
        return {attribute.name: list(attribute.values)}
    least: Constant = 0
    if attribute.dates is not None:
        least = attribute.dates[0][: {"day": 10, "month": 7, "year": 4}[attribute.by or "day"]]
    elif attribute.kind != "codes":
        least = as_json(attribute.bounds[0])
    return {attribute.name: {"ge": least}}


def joined(*parts: dict[str, Any]) -> dict[str, Any]:
    """Conditions of which all hold, each attribute's in one place where that says the same."""
    found: dict[str, Any] = {}
    others: list[dict[str, Any]] = []
    for part in _flat("all", parts):
        clash = found.keys() & part.keys()
        if not clash:
            found |= part
        elif len(part) == 1 and (both := _range(found, part)) is not None:
            found |= both
        else:
            others.append(part)
    # One of the parts may have an "all" of its own.
    others = [*found.pop("all", []), *others]
    return found | {"all": others} if others else found


def _range(found: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any] | None:
    """A bound from below and one from above as one range."""
    ((name, given),) = part.items()
    if name in CONNECTIVES:
        return None
    there = found[name]
    if not isinstance(there, dict) or not isinstance(given, dict) or len(there) + len(given) != 2:
        return None
    words = there.keys() | given.keys()
    return {name: there | given} if len(words & _LOWER) == 1 and len(words & _UPPER) == 1 else None


def _flat(word: Literal["all", "any"], parts: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for part in parts:
        if part.keys() == {word}:
            yield from part[word]
        elif part:
            yield part


class _Reading:
    """Reads the conditions of one statement."""

    def __init__(self, source: Source, table: Table) -> None:
        self._source, self._table = source, table

    def holds(self, node: exp.Expr, true: bool) -> Found:
        """The records of which a condition is true, or, of one that is denied, false."""
        while isinstance(node, exp.Paren | exp.Not):
            true ^= isinstance(node, exp.Not)
            node = node.this
        match node:
            case exp.And() | exp.Or():
                parts = [self.holds(part, true) for part in _operands(node)]
                return self._all(node, parts) if isinstance(node, exp.And) == true else self._any(node, parts)
            case exp.Binary() if _both_constant(node):
                # What tools write before conditions that they join, and where they ask for no rows.
                return {} if _equal(self._source, node) == (true == isinstance(node, exp.EQ)) else Never(node)
            case exp.EQ() | exp.NEQ():
                values, given = self._sides(node)
                return self._listed(node, values, [given], true == isinstance(node, exp.EQ))
            case exp.GTE() | exp.GT() | exp.LT() | exp.LTE():
                values, given = self._sides(node)
                word = _WORDS[type(node)]
                word = word if self._is_column(node.this) else _TURNED[word]
                return self._compared(node, values, word if true else _DENIED[word], given)
            case exp.Between():
                return self._between(node, true)
            case exp.In():
                if set(_said(node)) - {"this", "expressions"} or not node.expressions:
                    at = node.args.get("query") or node
                    self._source.refuse(at, "IN is followed by constants", "there are no subqueries: list the values")
                values = self._table.column(self._source, node.this, at=node)
                told = [each for each in node.expressions if not isinstance(each, exp.Null)]
                listed = [constant(self._source, each, values.attribute) for each in told]
                if not listed or (not true and len(told) < len(node.expressions)):
                    # Nothing equals NULL, and nothing is known to differ from it.
                    return Never(node)
                return self._listed(node, values, listed, true)
            case exp.Is() if isinstance(node.expression, exp.Null):
                return self._null(node, true ^ bool(node.args.get("negate")))
            case exp.Is() if isinstance(node.expression, exp.Boolean):
                return self._is(node, true ^ bool(node.args.get("negate")))
            case exp.Boolean():
                return {} if bool(node.this) == true else Never(node)
            case exp.Column():
                return self._alone(node, true)
            case exp.Like() | exp.ILike() | exp.RegexpLike() | exp.SimilarTo():
                self._source.refuse(node, "texts are not searched", "list the values with IN")
        return self._source.refuse(
            node,
            "no condition that there is here",
            "conditions are = <> < <= > >=, BETWEEN, IN and IS NULL of a column, joined by AND, OR and NOT",
        )

    def _all(self, node: exp.Expr, parts: list[Found]) -> Found:
        said = [part for part in parts if not isinstance(part, Never)]
        if len(said) < len(parts):
            return next(part for part in parts if isinstance(part, Never))
        found = joined(*said)
        return Never(node) if any(self._is_empty(*part) for part in found.items()) else found

    def _is_empty(self, name: str, condition: Any) -> bool:
        """Whether it is a range of two ends with nothing between them, each of which was checked by itself."""
        if name in CONNECTIVES or not isinstance(condition, dict) or len(condition) < 2:
            return False
        try:
            self._table.space.named(name)[1].members(Condition.model_validate(condition))
        except InvalidQuery:
            return True
        return False

    def _any(self, node: exp.Expr, parts: list[Found]) -> Found:
        said = [part for part in parts if not isinstance(part, Never)]
        if not said:
            return Never(node)
        if not all(said):
            return {}
        return said[0] if len(said) == 1 else {"any": list(_flat("any", said))}

    def _is_column(self, node: exp.Expr) -> bool:
        while isinstance(node, exp.Paren):
            node = node.this
        return isinstance(node, exp.Column)

    def _sides(self, node: exp.Expr) -> tuple[Values, Constant]:
        column, other = (node.this, node.expression) if self._is_column(node.this) else (node.expression, node.this)
        if self._is_column(other):
            self._source.refuse(other, "two columns are compared", "compare each with a constant")
        values = self._table.column(self._source, column, at=node)
        return values, constant(self._source, other, values.attribute)

    def _between(self, node: exp.Between, true: bool) -> Found:
        if set(_said(node)) - {"this", "low", "high"}:
            self._source.refuse(node, "BETWEEN is written with its lower end first", "leave SYMMETRIC out")
        values = self._table.column(self._source, node.this, at=node)
        low, high = (constant(self._source, node.args[end], values.attribute) for end in ("low", "high"))
        if values.attribute.kind == "bins":
            self._check_whole(node, values, low, high)
        ends = (("ge", low), ("le", high)) if true else (("lt", low), ("gt", high))
        found = [self._compared(node, values, word, given) for word, given in ends]
        return self._all(node, found) if true else self._any(node, found)

    def _listed(self, node: exp.Expr, values: Values, given: list[Constant], true: bool) -> Found:
        name = values.attribute.name
        told: Any = given[0] if len(given) == 1 else given
        found = self._check(node, values, {"in": given})
        if true:
            return {name: told}
        if values.attribute.kind == "bins" or values.places > _MOST_LISTED:
            return joined({"not": {name: told}}, has_value(values))
        others = np.setdiff1d(np.arange(values.places), np.arange(values.places + 1)[found])
        return (
            {name: list(values.labels([np.array([place]) for place in others.tolist()]))}
            if len(others)
            else Never(node)
        )

    def _alone(self, node: exp.Column, true: bool) -> Found:
        """A column of truth values."""
        values = self._table.column(self._source, node, at=node)
        told = truth(values.attribute, True)
        if told is None:
            self._source.refuse(node, "a column alone is no condition", "compare it with a value that it has")
        return self._listed(node, values, [told], true)

    def _is(self, node: exp.Is, true: bool) -> Found:
        """``IS TRUE`` and ``IS FALSE``, of which a record without a value is neither."""
        values = self._table.column(self._source, node.this, at=node)
        found = self._listed(node, values, [constant(self._source, node.expression, values.attribute)], true)
        if true or not values.attribute.missing:
            return found
        return self._any(node, [found, {values.attribute.name: None}])

    def _null(self, node: exp.Is, true: bool) -> Found:
        values = self._table.column(self._source, node.this, at=node)
        if not values.attribute.missing:
            return Never(node) if true else {}
        return {values.attribute.name: None} if true else has_value(values)

    def _compared(self, node: exp.Expr, values: Values, word: str, given: Constant) -> Found:
        attribute = values.attribute
        beyond = _beyond(attribute, word, given)
        if beyond is not None:
            return has_value(values) if beyond else Never(node)
        if attribute.kind == "codes" and isinstance(given, float):
            # Between two integers.
            given = math.floor(given) if word in ("gt", "le") else math.ceil(given)
        self._check(node, values, {word: given})
        return {attribute.name: {word: given}}

    def _check(self, node: exp.Expr, values: Values, condition: dict[str, Any]) -> Members:
        """The values that satisfy a condition; one that the attribute does not have is refused, at its column."""
        try:
            return values.members(Condition.model_validate(condition))
        except InvalidQuery as error:
            hint = _edges(values, next(iter(condition.values()))) if values.attribute.kind == "bins" else None
            problem = error.detail.split(", which are ")[0] if hint else error.detail
            self._source.refuse(_column(node), problem, hint or "DESCRIBE tells the values that there are")

    def _check_whole(self, node: exp.Expr, values: Values, low: Constant, high: Constant) -> None:
        """Refuse a range of both ends that cuts a bin, with the whole bins that it is in."""
        try:
            for word, end in (("ge", low), ("le", high)):
                if _beyond(values.attribute, word, end) is None:
                    values.members(Condition.model_validate({word: end}))
        except InvalidQuery:
            first, last = _bin(values, low), _bin(values, high)
            closing = "<=" if last is not None and last[2] else "<"
            hint = (
                first
                and last
                and f"say {values.attribute.name} >= {first[0]} AND {values.attribute.name} {closing} {last[1]}"
            )
            self._source.refuse(
                _column(node),
                f"{values.attribute.name} is counted in bins, and BETWEEN has both of its ends",
                hint or None,
            )


def _both_constant(node: exp.Expr) -> bool:
    """Whether two numbers are compared, as in ``1 = 1``."""
    sides = (node.this, node.args.get("expression"))
    numbers = [isinstance(side, exp.Literal) and not side.is_string for side in sides]
    return isinstance(node, exp.EQ | exp.NEQ) and all(numbers)


def _equal(source: Source, node: exp.Expr) -> bool:
    return number(source, node.this, at=node) == number(source, node.args["expression"], at=node)


def _operands(node: exp.Expr) -> list[exp.Expr]:
    """What one connective joins, in order. A long row of them is a deep tree."""
    found: list[exp.Expr] = []
    left: exp.Expr = node
    while type(left) is type(node):
        found.append(left.args["expression"])
        left = left.this
    return [left, *reversed(found)]


def _said(node: exp.Expr) -> list[str]:
    """The parts of a node that are there."""
    return [name for name, part in node.args.items() if part]


def _column(node: exp.Expr) -> exp.Expr:
    return next(iter(node.find_all(exp.Column)), node)


def _beyond(attribute: Attribute, word: str, given: Constant) -> bool | None:
    """Whether all values satisfy a comparison (True), or none does (False), as it is with what lies beyond a bound."""
    least: Any
    largest: Any
    number: Any
    if attribute.kind == "dates":
        number = whole_date(given)
        least, largest = _days(attribute)
    elif attribute.kind == "categories" or isinstance(given, str):
        return None
    else:
        number = Fraction(repr(given))
        least, largest = (0, attribute.places - 1) if attribute.kind == "codes" else attribute.bounds
    if number is None:
        return None
    match word:
        case "ge":
            return True if number <= least else False if number > largest else None
        case "gt":
            return True if number < least else False if number >= largest else None
        case "lt":
            return True if number > largest else False if number <= least else None
    return True if number >= largest else False if number < least else None


def _days(attribute: Attribute) -> tuple[datetime.date, datetime.date]:
    """The first day of the first date, and the last of the last one, of which a month or a year has several."""
    assert attribute.dates is not None
    first, last = (datetime.date.fromisoformat(text) for text in attribute.dates)
    begin = attribute.begins(attribute.period(first))
    if last.year == datetime.MAXYEAR:
        return begin, datetime.date.max
    return begin, attribute.begins(attribute.period(last) + 1) - datetime.timedelta(1)


def _bin(values: Values, given: Any) -> tuple[str, str, bool] | None:
    """The edges of the bin that a number lies in, and whether it is the last; None where it lies in none."""
    attribute, edge_at = values.attribute, values.attribute.edge_at()
    low, high = attribute.bounds
    if isinstance(given, str) or not low <= Fraction(repr(given)) <= high:
        return None
    place = min(bisect_right(range(values.places + 1), Fraction(repr(given)), key=edge_at), values.places) - 1
    return _plain(edge_at(place)), _plain(edge_at(place + 1)), place + 1 == values.places


def _edges(values: Values, given: Any) -> str | None:
    found = _bin(values, given[0] if isinstance(given, list) else given)
    if found is None:
        return None
    closing = "<=" if found[2] else "<"
    name = values.attribute.name
    return f"say {name} >= {found[0]} AND {name} {closing} {found[1]}, or any other of its edges"


def _plain(number: Fraction) -> str:
    return repr(as_json(number))
