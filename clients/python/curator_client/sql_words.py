"""Questions as SQL statements that ask the same, for those that SQL has words for.

The contract's ``not`` holds for records without a value, SQL's ``NOT`` does not: the statement says ``IS NULL`` there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from curator_client.sql_literals import literal

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_DATE = re.compile(r"(\d{4})(-\d{2})?(-\d{2})?")
_FUNCTIONS = {"sum": "SUM", "mean": "AVG", "variance": "VAR_POP"}
_SIGNS = {"ge": ">=", "gt": ">", "lt": "<", "le": "<="}
_OPPOSITES = {"ge": "<", "gt": "<=", "lt": ">=", "le": ">"}
#: Words that PostgreSQL reserves: as names they are quoted.
_RESERVED = frozenset(
    re.findall(
        r"\w+",
        """
        all analyse analyze and any array as asc asymmetric authorization between bigint binary bit boolean both case
        cast char character check coalesce collate collation column concurrently constraint create cross current_date
        current_role current_time current_timestamp current_user date dec decimal default deferrable desc distinct do
        else end except exists extract false fetch float for foreign freeze from full grant greatest group grouping
        having ilike in initially inner inout int integer intersect interval into is isnull join lateral leading least
        left like limit localtime localtimestamp national natural nchar none not notnull null nullif numeric offset on
        only or order out outer overlaps overlay placing position precision primary real references returning right row
        select session_user setof similar smallint some substring symmetric table tablesample then time timestamp to
        trailing treat trim true union unique user using values varchar variadic verbose when where window with
        """,
    )
)


def statement(question: Mapping[str, Any], dataset: str) -> str:
    """The statement that asks a question of a data set.

    Raises:
        ValueError: where SQL has no words for it.
    """
    if question.get("weighted") or question.get("unverified"):
        raise _no_words("weighted and unverified questions")
    names: list[str] = list(question.get("attributes") or question.get("group_by") or ())
    bins: Mapping[str, Any] = question.get("bins") or {}
    groups = [_group(name, bins.get(name)) for name in names]
    shown = [
        f"{group} AS {_identifier(name)}" if name in bins else group for name, group in zip(names, groups, strict=True)
    ]
    told = f"SELECT {', '.join([*shown, _aggregate(question)])} FROM {_identifier(dataset)}"  # noqa: S608
    if question.get("where"):
        told += f" WHERE {_where(question['where'], positive=True)}"
    return f"{told} GROUP BY {', '.join(groups)}" if groups else told


def _aggregate(question: Mapping[str, Any]) -> str:
    kind = question.get("type")
    if kind in ("predicate", "marginal"):
        return "COUNT(*)"
    if kind in _FUNCTIONS:
        return f"{_FUNCTIONS[kind]}({_identifier(question['of'])})"
    if kind == "quantile":
        parts = question["q"]
        told = f"ARRAY[{', '.join(map(_literal, parts))}]" if isinstance(parts, list) else _literal(parts)
        return f"PERCENTILE_DISC({told}) WITHIN GROUP (ORDER BY {_identifier(question['of'])})"
    raise _no_words(f"questions of the type {kind}")


def _group(name: str, bins: Any) -> str:
    if bins is None:
        return _identifier(name)
    if isinstance(bins, Mapping):
        raise _no_words("groups of values")
    return f"BIN({', '.join([_identifier(name), *map(_literal, bins)])})"


def _where(where: Mapping[str, Any], *, positive: bool) -> str:
    """Conditions, or what does not satisfy them: with SQL's rules of NULL ``NOT`` would say something else."""
    parts: list[str] = []
    for name, condition in where.items():
        if name == "all":
            parts += [_where(inner, positive=positive) for inner in condition]
        elif name == "any":
            parts.append(_joined([_where(inner, positive=positive) for inner in condition], conjunction=not positive))
        elif name == "not":
            parts.append(_where(condition, positive=not positive))
        else:
            parts.append(_condition(_identifier(name), condition, positive=positive))
    return _joined(parts, conjunction=positive)


def _joined(parts: list[str], *, conjunction: bool) -> str:
    if not parts:
        return "TRUE" if conjunction else "FALSE"
    if len(parts) == 1:
        return parts[0]
    return " AND ".join(parts) if conjunction else f"({' OR '.join(f'({p})' if ' AND ' in p else p for p in parts)})"


def _condition(name: str, condition: Any, *, positive: bool) -> str:
    if not isinstance(condition, Mapping):
        condition = {"in": condition} if isinstance(condition, list) else {"equals": condition}
    if "equals" in condition or "in" in condition:
        return _among(name, condition["in"] if "in" in condition else [condition["equals"]], positive=positive)
    compared = {word: value for word, value in condition.items() if word in _SIGNS}
    if len(compared) < len(condition):
        raise _no_words(f"the condition {', '.join(condition)}")
    if positive:
        return " AND ".join(f"{name} {_SIGNS[word]} {_ordered(value)}" for word, value in compared.items())
    beyond = [f"{name} {_OPPOSITES[word]} {_ordered(value)}" for word, value in compared.items()]
    return _joined([*beyond, f"{name} IS NULL"], conjunction=False)


def _among(name: str, values: list[Any], *, positive: bool) -> str:
    known = [_literal(value) for value in values if value is not None]
    with_missing = len(known) < len(values)
    if positive:
        told = [f"{name} = {known[0]}"] if len(known) == 1 else [f"{name} IN ({', '.join(known)})"] if known else []
        return _joined([*told, *([f"{name} IS NULL"] if with_missing else [])], conjunction=False)
    if with_missing:
        told = [f"{name} <> {value}" for value in known] if len(known) == 1 else []
        told += [f"{name} NOT IN ({', '.join(known)})"] if len(known) > 1 else []
        return _joined([*told, f"{name} IS NOT NULL"], conjunction=True)
    told = [f"{name} <> {known[0]}"] if len(known) == 1 else [f"{name} NOT IN ({', '.join(known)})"]
    return _joined([*told, f"{name} IS NULL"], conjunction=False)


def _ordered(value: Any) -> str:
    """A value that others are more or less than: a string is a date, of which a month or a year is the first day."""
    if not isinstance(value, str):
        return _literal(value)
    found = _DATE.fullmatch(value)
    if found is None:
        raise _no_words("an order of labels")
    year, month, day = found.groups()
    if day is None:
        raise _no_words("comparisons with a month or a year: name the day")
    return f"DATE '{year}{month}{day}'"


def _literal(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _no_words(f"the value {value!r}")
    return literal(value)


def _identifier(name: str) -> str:
    if _PLAIN.fullmatch(name) and name not in _RESERVED:
        return name
    return '"{}"'.format(name.replace('"', '""'))


def _no_words(what: str) -> ValueError:
    return ValueError(f"SQL has no words for {what}: ask it as a question")
