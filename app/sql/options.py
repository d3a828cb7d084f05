"""``WITH DIFFERENTIAL_PRIVACY OPTIONS(...)``: what is wanted of the answers, and what they may cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot.tokenizer_core import Token, TokenType

from app.spaces.errors import InvalidQuery
from app.spaces.queries.request import parse_wanted
from app.sql.source import Source
from app.sql.table import Table

_KNOWN = "the options are within, confidence, adaptive, epsilon, errors = 'none' and privacy_unit_column"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is wanted.

    Attributes:
        fields: of every question, in the contract's words.
        at_most: of epsilon that all answers together may cost; None where nothing is said.
    """

    fields: dict[str, Any]
    at_most: float | None


def wishes(source: Source, table: Table) -> Wishes:
    """The options of a statement.

    Raises:
        SqlRefused: when one is unknown, given twice, or out of range.
    """
    fields: dict[str, Any] = {}
    at_most: float | None = None
    named: set[str] = set()
    for name, at, value in source.options:
        if name in named:
            source.refuse(at, f"{name} is said twice", "say it once")
        named.add(name)
        match name:
            case "within" | "confidence":
                fields[name] = _number(source, name, value)
                _check(source, value, {name: fields[name]})
            case "epsilon":
                at_most = _number(source, name, value)
            case "adaptive":
                fields[name] = _truth(source, value)
            case "errors":
                if value.text.lower() != "none":
                    source.refuse(value, "intervals are part of every answer", "leave errors out")
            case "privacy_unit_column":
                _check_unit(source, table, value)
            case "delta" | "noise_kind" | "max_groups_contributed" | "group_selection_strategy":
                source.refuse(at, f"{name} is the data set's, and not the question's", "leave it out")
            case _:
                source.refuse(at, f"there is no option {name[:64]!r}", _KNOWN)
    # An interval that is not asked for is told all the same: columns of it are left out by naming others.
    return Wishes({name: value for name, value in fields.items() if value is not False}, at_most)


def _number(source: Source, name: str, value: Token) -> float:
    try:
        found = float(value.text) if value.token_type == TokenType.NUMBER else 0.0
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        source.refuse(value, f"{name} is a number above zero", f"say {name} = 0.5")
    return found


def _truth(source: Source, value: Token) -> bool:
    if value.text.upper() not in ("TRUE", "FALSE"):
        source.refuse(value, "adaptive is TRUE or FALSE", "say adaptive = TRUE")
    return value.text.upper() == "TRUE"


def _check(source: Source, value: Token, fields: dict[str, Any]) -> None:
    try:
        parse_wanted(fields)
    except InvalidQuery as error:
        source.refuse(value, error.detail, "say within = 50, confidence = 0.9")


def _check_unit(source: Source, table: Table, value: Token) -> None:
    unit = table.spec.unit
    if unit is None:
        source.refuse(value, "the privacy unit is a record", "leave privacy_unit_column out")
    if value.text.lower() != unit.column.lower():
        source.refuse(
            value, f"whose records they are is told by {unit.column}", f"say privacy_unit_column = {unit.column}"
        )
