"""``GROUP BY``: attributes of the contract with their bins, and what their labels are as values of a column."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any, Literal

from sqlglot import exp

from app.spaces.errors import InvalidQuery
from app.spaces.values import Label, Values
from app.sql.source import Source
from app.sql.table import Table, as_json, constant, number

Type = Literal["integer", "double", "text", "date", "boolean", "double[]"]
#: The most bins that a width makes.
MOST_BINS = 1 << 16
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}


@dataclass(frozen=True, slots=True)
class Group:
    """What records are grouped by.

    Attributes:
        values: of the attribute.
        written: the expression, to be found again among what is selected.
        name: of the column, where nothing else is said.
        type: of the column.
        bins: the edges of its bins; None where nothing is merged.
        value: what a label is in the column.
        ranged: whether labels stand in an order of their own and not that of texts.
        notice: for who asks, where a bin holds what its name does not say.
    """

    values: Values
    written: exp.Expr
    name: str
    type: Type
    bins: list[Any] | None
    value: Callable[[Label], Any]
    ranged: bool
    notice: str | None = None


def group(source: Source, table: Table, node: exp.Expr) -> Group:
    """One part of a ``GROUP BY``.

    Raises:
        SqlRefused: when records are not grouped like that.
    """
    while isinstance(node, exp.Paren):
        node = node.this
    match node:
        case exp.Column():
            return _plain(table.column(source, node, at=node), node)
        case exp.Anonymous() if str(node.this).upper() == "BIN":
            return _binned(source, table, node)
        case exp.Mul():
            return _floored(source, table, node)
        case exp.TimestampTrunc() | exp.DateTrunc():
            return _truncated(source, table, node)
        case exp.Coalesce():
            hint = "GROUP BY the column: one row is that of records without a value"
        case exp.Case():
            hint = "say BIN(x, 0, 10, 20)"
        case exp.Extract() | exp.Year() | exp.Month():
            hint = "say DATE_TRUNC('year', d)"
        case exp.WidthBucket():
            hint = "say FLOOR(x / 10) * 10, or BIN(x, 0, 10, 20)"
        case _:
            hint = "by a column, BIN(x, 0, 10, 20), FLOOR(x / 10) * 10 or DATE_TRUNC('year', d)"
    return source.refuse(node, "records are not grouped by this", hint)


def _plain(values: Values, node: exp.Expr) -> Group:
    attribute = values.attribute
    kind: Type = "text"
    if attribute.kind == "codes" or (
        attribute.values is not None and all(isinstance(value, int) for value in attribute.values)
    ):
        kind = "integer"
    elif attribute.kind == "numbers" and not attribute.bin_count:
        kind = "integer" if attribute.step.denominator == attribute.bounds[0].denominator == 1 else "double"
    elif attribute.kind == "dates" and attribute.by == "day":
        kind = "date"
    value = _text if kind == "text" else _same
    return Group(values, node, attribute.name, kind, None, value, ranged=attribute.kind != "categories")


def _binned(source: Source, table: Table, node: exp.Anonymous) -> Group:
    if len(node.expressions) < 3:
        source.refuse(node, "BIN has a column and two edges or more", "say BIN(x, 0, 10, 20)")
    values = table.column(source, node.expressions[0], at=node)
    edges = [constant(source, each, values.attribute) for each in node.expressions[1:]]
    return _merged(source, node, values, edges, "text", _text)


def _floored(source: Source, table: Table, node: exp.Mul) -> Group:
    sides = [_inner(node.this), _inner(node.expression)]
    floor, factor = sides if isinstance(sides[0], exp.Floor) else reversed(sides)
    divided = _inner(floor.this) if isinstance(floor, exp.Floor) else floor
    if not isinstance(floor, exp.Floor) or not isinstance(divided, exp.Div):
        source.refuse(node, "records are not grouped by this product", "say FLOOR(x / 10) * 10")
    if any(part for name, part in floor.args.items() if name != "this"):
        source.refuse(floor, "FLOOR has one number", "say FLOOR(x / 10) * 10")
    width = Fraction(repr(number(source, divided.expression, at=node)))
    if width <= 0 or width != Fraction(repr(number(source, factor, at=node))):
        source.refuse(node, "the same number above zero is divided and multiplied by", "say FLOOR(x / 10) * 10")
    values = table.column(source, divided.this, at=node)
    attribute = values.attribute
    if attribute.kind not in ("codes", "bins", "numbers"):
        source.refuse(divided.this, f"{attribute.name} has no numbers", "GROUP BY the column")
    low, high = (Fraction(0), Fraction(attribute.places)) if attribute.kind == "codes" else attribute.bounds
    first, last = math.floor(low / width), math.floor(high / width)
    if last - first >= MOST_BINS:
        source.refuse(node, f"this makes more than {MOST_BINS:,} bins", "divide by more")
    edges = [k * width for k in range(first, last + 2)]
    if attribute.kind != "numbers":
        # They lie between the declared bounds; the last bin holds its upper edge.
        edges = [low, *(edge for edge in edges if low < edge < high), high]
    told = [as_json(edge) for edge in edges]
    kind: Type = "integer" if width.denominator == 1 else "double"
    found = _merged(source, node, values, told, kind, partial(_floor, width))
    if attribute.kind == "bins" and high % width == 0:
        most = as_json(high)
        return replace(
            found, notice=f"{attribute.name} = {most} is counted in the bin before, which holds its upper edge"
        )
    return found


def _truncated(source: Source, table: Table, node: exp.TimestampTrunc | exp.DateTrunc) -> Group:
    values = table.column(source, node.this, at=node)
    attribute, unit = values.attribute, node.text("unit").upper()
    if attribute.dates is None:
        source.refuse(node.this, f"{attribute.name} has no dates", "say FLOOR(x / 10) * 10 of numbers")
    if node.args.get("zone"):
        source.refuse(node, "dates have no time zone", f"say DATE_TRUNC('{unit.lower()[:16]}', {attribute.name})")
    if unit == "DAY" and attribute.by == "day":
        return Group(values, node, "date_trunc", "date", None, _same, ranged=True)
    step = _MONTHS.get(unit)
    if step is None or (attribute.by == "year" and step < 12):
        source.refuse(
            node, f"{attribute.name} is told apart by {attribute.by}", "its units are day, month, quarter, year"
        )
    first, last = (datetime.date.fromisoformat(text) for text in attribute.dates)
    begin, end = (_months(date) // step for date in (first, last))
    if end - begin >= MOST_BINS or (end + 1) * step // 12 > datetime.MAXYEAR:
        problem = f"this makes more than {MOST_BINS:,} parts, or passes the year 9999"
        source.refuse(node, problem, "truncate to years")
    if attribute.by == unit.lower():
        return Group(values, node, "date_trunc", "date", None, partial(_trunc, step), ranged=True)
    edges = [_of_months(k * step).isoformat() for k in range(begin, end + 2)]
    return _merged(source, node, values, edges, "date", partial(_trunc, step))


def _merged(
    source: Source, node: exp.Expr, values: Values, edges: list[Any], kind: Type, value: Callable[[Label], Any]
) -> Group:
    try:
        values.bins(edges)
    except InvalidQuery as error:
        source.refuse(node, error.detail, "DESCRIBE tells the bins, or the numbers, that there are")
    name = {"integer": "floor", "double": "floor", "date": "date_trunc"}.get(kind, "bin")
    return Group(values, node, name, kind, edges, value, ranged=True)


def _inner(node: exp.Expr) -> exp.Expr:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _same(label: Label) -> Any:
    return label


def _text(label: Label) -> Any:
    return None if label is None else str(label)


def _first(label: Label) -> str:
    """Where what a label calls begins: of a range its lower end."""
    return str(label).lstrip("[").split(",")[0]


def _floor(width: Fraction, label: Label) -> Any:
    return None if label is None else as_json(Fraction(_first(label)) // width * width)


def _trunc(step: int, label: Label) -> Any:
    if label is None:
        return None
    year, month, *_ = [*map(int, _first(label).split("-")), 1]
    return _of_months((year * 12 + month - 1) // step * step).isoformat()


def _months(date: datetime.date) -> int:
    return date.year * 12 + date.month - 1


def _of_months(months: int) -> datetime.date:
    return datetime.date(months // 12, months % 12 + 1, 1)
