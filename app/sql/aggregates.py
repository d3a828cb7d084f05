"""Aggregates: what each becomes of the contract's questions, or why it is refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NoReturn

from sqlglot import exp

from app.spaces.values import Values
from app.sql.conditions import has_value
from app.sql.source import Source
from app.sql.table import Table, number

_STATISTICS: dict[type[exp.Expr], str] = {exp.Sum: "sum", exp.Avg: "mean", exp.VariancePop: "variance"}
_NAMES = {"predicate": "count", "sum": "sum", "mean": "avg", "variance": "var_pop"}
#: The quantiles of one aggregate, at most.
MOST_QUANTILES = 100
_INTERPOLATED = "a quantile is a value of the grid, and none is made up between two: say PERCENTILE_DISC"
_SAMPLE = "what is known of a sample is not corrected: say VAR_POP(x)"
_ROOT = "say VAR_POP(x), and take its root"
_DISTINCT = "how many values there are is not asked: GROUP BY x tells how often each of them is"
_WHERE = "say it with WHERE, and COUNT(*)"
_ROUND = "select the aggregate, and round the answer and its interval"
_TOGETHER = "how two columns vary together is not asked: GROUP BY one of them, and select AVG of the other"
_PRIVATE = "every answer is private"
#: Functions that others have, by their names in capitals, and what to say instead.
REFUSED = {
    "VARIANCE": _SAMPLE,
    "VAR_SAMP": _SAMPLE,
    "STDDEV": _ROOT,
    "STDDEV_POP": _ROOT,
    "STDDEV_SAMP": _ROOT,
    "PERCENTILE_CONT": _INTERPOLATED,
    "QUANTILE": _INTERPOLATED,
    "APPROX_QUANTILE": _INTERPOLATED,
    "APPROX_QUANTILES": _INTERPOLATED,
    "APPROX_DISTINCT": _DISTINCT,
    "APPROX_COUNT_DISTINCT": _DISTINCT,
    "MIN": "one record decides it: say PERCENTILE_DISC(0.01) WITHIN GROUP (ORDER BY x)",
    "MAX": "one record decides it: say PERCENTILE_DISC(0.99) WITHIN GROUP (ORDER BY x)",
    "COUNT_IF": _WHERE,
    "COUNTIF": _WHERE,
    "ROUND": _ROUND,
    "CAST": _ROUND,
    "FLOOR": _ROUND,
    "CEIL": _ROUND,
    "CORR": _TOGETHER,
    "COVAR_POP": _TOGETHER,
    "COVAR_SAMP": _TOGETHER,
    "ANON_COUNT": f"{_PRIVATE}: say COUNT",
    "ANON_SUM": f"{_PRIVATE}: say SUM",
    "ANON_AVG": f"{_PRIVATE}: say AVG",
    "ANON_VAR_POP": f"{_PRIVATE}: say VAR_POP",
    "ANON_STDDEV_POP": f"{_PRIVATE}: {_ROOT}",
    "ANON_PERCENTILE_CONT": f"{_PRIVATE}: {_INTERPOLATED}",
}
FUNCTIONS = "aggregates are COUNT, SUM, AVG, VAR_POP, MEDIAN and PERCENTILE_DISC"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """What is asked by an aggregate.

    Attributes:
        kind: of the question; ``predicate`` of all counts, with groups or without.
        name: of its column, where nothing else is said.
        asked: of the contract's words all but the groups and the conditions of the statement.
        there: conditions of its own: that there is a value that is counted.
        several: whether each of its values is a list, of several quantiles.
    """

    kind: str
    name: str
    asked: dict[str, Any]
    there: dict[str, Any] = field(default_factory=dict)
    several: bool = False


def aggregate(source: Source, table: Table, node: exp.Expr) -> Aggregate:
    """What an aggregate asks.

    Raises:
        SqlRefused: when it is none that there is here.
    """
    match node:
        case exp.Count():
            return _count(source, table, node)
        case exp.Median():
            _check_said(source, node, {"this"})
            return _statistic(source, table, node, "quantile", "median", node.this, {"q": 0.5})
        case exp.WithinGroup():
            return _quantile(source, table, node)
        case exp.Sum() | exp.Avg() | exp.VariancePop():
            _check_said(source, node, {"this"})
            kind = _STATISTICS[type(node)]
            return _statistic(source, table, node, kind, _NAMES[kind], node.this, {})
    return refuse(source, node)


def refuse(source: Source, node: exp.Expr) -> NoReturn:
    """Refuse a part of what is selected that is no aggregate, by what it is.

    Raises:
        SqlRefused: always.
    """
    match node:
        case exp.Star():
            source.refuse(node, "SELECT *: records are not shown", f"name columns to group by; {FUNCTIONS}")
        case exp.Window():
            source.refuse(node, "there are no windows (OVER)", "use GROUP BY")
        case exp.Filter():
            source.refuse(node, "there is no FILTER", "say it with WHERE, in a statement of its own")
        case exp.Subquery() | exp.Select():
            source.refuse(node, "there are no subqueries", "ask each statement by itself")
        case exp.Div(this=exp.Sum(), expression=exp.Count()):
            source.refuse(node, "there is no arithmetic on what is selected", "say AVG(x), which has its own interval")
        case exp.Binary() | exp.Neg() if not isinstance(node, exp.Func):
            source.refuse(
                node,
                "there is no arithmetic on what is selected",
                "select each aggregate, and compute with the answers: their intervals do not follow",
            )
        case exp.Case():
            source.refuse(node, "there is no CASE", "say it with WHERE, or group with BIN")
        case exp.PercentileDisc():
            source.refuse(node, "it has no order", "say PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY x)")
        case exp.Func():
            name = source.named(node)
            source.refuse(node, f"{name} is no function that there is here", REFUSED.get(name, FUNCTIONS))
    source.refuse(node, "this cannot be selected", f"columns of GROUP BY can, and aggregates: {FUNCTIONS}")


def _check_said(source: Source, node: exp.Expr, known: set[str]) -> None:
    """Refuse a part of an aggregate that would be passed over."""
    if isinstance(node.this, exp.Distinct):
        source.refuse(node, "DISTINCT: values are not told apart", "leave DISTINCT out")
    if {name for name, part in node.args.items() if part} - known - {"big_int"}:
        source.refuse(node, "the aggregate says more than is understood", "give it one column")


def _count(source: Source, table: Table, node: exp.Count) -> Aggregate:
    counted = node.this
    if isinstance(counted, exp.Distinct):
        _check_person(source, table, node, counted)
        return Aggregate("predicate", "count", {})
    _check_said(source, node, {"this"})
    if isinstance(counted, exp.Star) and any(counted.args.values()):
        source.refuse(node, "records are counted, and not their columns", "say COUNT(*)")
    if isinstance(counted, exp.Star) or (isinstance(counted, exp.Literal) and not counted.is_string):
        return Aggregate("predicate", "count", {})
    values = table.column(source, counted, at=node)
    return Aggregate("predicate", "count", {}, has_value(values))


def _check_person(source: Source, table: Table, node: exp.Count, counted: exp.Distinct) -> None:
    unit = table.spec.unit
    (column, *others) = counted.expressions or [None]
    named = (
        isinstance(column, exp.Column)
        and not others
        and unit is not None
        and column.name.lower() == unit.column.lower()
    )
    if not named:
        source.refuse(
            node, "DISTINCT: values are not told apart", "count records with COUNT(*), or GROUP BY the column"
        )
    assert unit is not None
    if unit.max_records > 1:
        source.refuse(
            node, f"whose records they are is not kept, and somebody may have {unit.max_records}", "count with COUNT(*)"
        )


def _statistic(
    source: Source, table: Table, node: exp.Expr, kind: str, name: str, of: exp.Expr, asked: dict[str, Any]
) -> Aggregate:
    values: Values = table.column(source, of, at=node, otherwise=_computed(of))
    attribute = values.attribute
    if attribute.kind != "numbers":
        source.refuse(of, f"{attribute.name} has no numbers on a grid", "columns with one are told by DESCRIBE")
    several = isinstance(asked.get("q"), list)
    return Aggregate(kind, name, {"type": kind, "of": attribute.name, **asked}, several=several)


def _computed(of: exp.Expr) -> str | None:
    """What to say instead of what is computed of columns; None where nothing better is known."""
    match of:
        case exp.Case() | exp.If():
            return "say it with WHERE, in a statement of its own"
        case exp.Greatest() | exp.Least():
            return "bounds are declared, and clamp where the declaration says so"
        case exp.Mul() | exp.Div() | exp.Add() | exp.Sub() if isinstance(of.expression, exp.Literal):
            return "select the aggregate of the column, and compute with the answer and its interval"
    return None


def _quantile(source: Source, table: Table, node: exp.WithinGroup) -> Aggregate:
    inner, order = node.this, node.expression
    if not isinstance(inner, exp.PercentileDisc):
        refuse(source, inner)
    _check_said(source, inner, {"this"})
    ordered = order.expressions if isinstance(order, exp.Order) else []
    if len(ordered) != 1 or ordered[0].args.get("desc"):
        source.refuse(node, "one column is ordered by, ascending", "say WITHIN GROUP (ORDER BY x)")
    parts = inner.this
    levels: Any
    if isinstance(parts, exp.Array):
        levels = [number(source, each, at=inner) for each in parts.expressions]
        if not levels or any(b <= a for a, b in pairwise(levels)):
            source.refuse(inner, "several quantiles ascend", "say ARRAY[0.25, 0.5, 0.75]")
        if len(levels) > MOST_QUANTILES:
            source.refuse(inner, f"{len(levels)} quantiles", f"ask {MOST_QUANTILES} at once, at most")
    else:
        levels = number(source, parts, at=inner)
    if not all(0 < level < 1 for level in (levels if isinstance(levels, list) else [levels])):
        source.refuse(inner, "a quantile lies between 0 and 1, without them", "say PERCENTILE_DISC(0.5)")
    return _statistic(source, table, node, "quantile", "percentile_disc", ordered[0].this, {"q": levels})
