"""The table that statements are about: its name, its columns, and the constants that they are compared with."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from sqlglot import exp

from app.declarations.attributes import Attribute
from app.declarations.naming import cut, meant
from app.declarations.spec import TableSpec
from app.spaces.table import TableSpace
from app.spaces.values import Values
from app.sql.source import Source

#: Of a constant: what it is for a condition of the contract.
Constant = int | float | str


@dataclass(frozen=True, slots=True)
class Table:
    """A data set as statements see it.

    Attributes:
        spec: its declaration.
        space: of it.
    """

    spec: TableSpec
    space: TableSpace

    def check_named(self, source: Source, name: str, *, quoted: bool, at: Any) -> None:
        """Refuse the name of another table.

        Raises:
            SqlRefused: when it is not this one's.
        """
        if _resolved(name, quoted, [self.spec.name]) is None:
            source.refuse(at, f"the table is called {self.spec.name}", f'say FROM "{self.spec.name}"')

    def column(self, source: Source, node: exp.Expr | None, *, at: exp.Expr, otherwise: str | None = None) -> Values:
        """The attribute that a part of the statement names; ``otherwise`` is the hint where it is no name.

        Raises:
            SqlRefused: when it is no name, or none of the table's.
        """
        while isinstance(node, exp.Paren):
            node = node.this
        if not isinstance(node, exp.Column) or not isinstance(node.this, exp.Identifier):
            problem = "the name of a column is meant to stand here"
            hint = otherwise or "nothing is computed of columns: their bounds and grids are declared"
            source.refuse(node or at, problem, hint)
        names = [attribute.name for attribute in self.spec.attributes]
        found = _resolved(node.this.name, bool(node.this.quoted), names)
        if found is None:
            near = meant(node.this.name, names).removeprefix(": ")
            told = f"the columns are {', '.join(map(cut, names[:20]))}"
            source.refuse(node.this, f"there is no column {cut(node.this.name)!r}", near or told)
        return self.space.named(found)[1]

    def named(self, identifier: exp.Identifier) -> str:
        """The name of the column that is meant, or what is written where there is none."""
        names = [attribute.name for attribute in self.spec.attributes]
        return _resolved(identifier.name, bool(identifier.quoted), names) or identifier.name


def _resolved(name: str, quoted: bool, names: list[str]) -> str | None:
    """Which of some names is meant: as it is written; without quotes also in other letters, if one alone fits."""
    if name in names:
        return name
    alike = [] if quoted else [each for each in names if each.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def constant(source: Source, node: exp.Expr, attribute: Attribute) -> Constant:
    """What a part of the statement says that a column is compared with.

    Raises:
        SqlRefused: when it is no constant, or none that the column can be compared with.
    """
    sign, inner = 1, node
    while isinstance(inner, exp.Paren | exp.Neg):
        sign *= -1 if isinstance(inner, exp.Neg) else 1
        inner = inner.this
    if isinstance(inner, exp.Null):
        source.refuse(node, "nothing equals NULL, or is more or less", f"say {attribute.name} IS NULL, or IS NOT NULL")
    if isinstance(inner, exp.Cast) and isinstance(inner.this, exp.Literal) and inner.this.is_string:
        # Texts of another type than DATE are no values of any column.
        if not inner.to.is_type(exp.DType.DATE):
            source.refuse(node, "of types there is DATE alone", "say DATE '2020-01-31', or leave the type out")
        inner = inner.this
    if isinstance(inner, exp.Boolean):
        told = truth(attribute, bool(inner.this))
        if told is None:
            hint = "write a value that DESCRIBE tells, a text in quotes"
            source.refuse(node, f"{attribute.name} has not TRUE and FALSE", hint)
        return told
    if not isinstance(inner, exp.Literal):
        source.refuse(node, "a column is compared with a constant", "write a number, a text or DATE '2020-01-31'")
    text = str(inner.this)
    numeric = attribute.kind in ("codes", "bins", "numbers") or (
        attribute.values is not None and all(isinstance(value, int) for value in attribute.values)
    )
    if not inner.is_string or (numeric and _decimal(text) is not None):
        return _number(source, node, text, sign)
    if numeric or sign < 0:
        source.refuse(node, f"{attribute.name} has numbers", "compare it with a number, without quotes")
    return text


def truth(attribute: Attribute, value: bool) -> Constant | None:
    """What stands for true or false among an attribute's values: a text that says so, or a code of two; None where
    nothing does."""
    if attribute.kind == "codes":
        return int(value) if attribute.places == 2 else None
    said = {text.lower(): text for text in attribute.values or () if isinstance(text, str)}
    return said[str(value).lower()] if said.keys() == {"false", "true"} else None


def as_json(number: Fraction) -> int | float:
    """A number as JSON writes the nearest one."""
    return number.numerator if number.denominator == 1 else float(number)


def whole_date(text: Constant) -> datetime.date | None:
    """The day that a constant says; None where it says something else, or a month or a year."""
    try:
        return datetime.date.fromisoformat(text) if isinstance(text, str) and len(text) == 10 else None
    except ValueError:
        return None


def number(source: Source, node: exp.Expr | None, *, at: exp.Expr) -> int | float:
    """The number that a part of the statement says.

    Raises:
        SqlRefused: when it says something else.
    """
    sign = 1
    while isinstance(node, exp.Paren | exp.Neg):
        sign *= -1 if isinstance(node, exp.Neg) else 1
        node = node.this
    if not isinstance(node, exp.Literal) or node.is_string:
        source.refuse(node or at, "a number is meant to stand here", "write it out: 0.5")
    return _number(source, node, str(node.this), sign)


def _decimal(text: str) -> Decimal | None:
    try:
        found = Decimal(text)
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def _number(source: Source, node: exp.Expr, text: str, sign: int) -> int | float:
    """A number as JSON keeps it, without a change."""
    found = _decimal(text)
    # An exponent of a thousand digits would be written out.
    if found is None or found.adjusted() > 300 or abs(float(found)) > 2.0**53:
        source.refuse(node, "the number cannot be read, or lies beyond 2^53", "no declared value is as large")
    if found == found.to_integral_value():
        return sign * int(found)
    if Decimal(repr(float(found))) != found:
        source.refuse(node, "the number has more digits than are kept", "write 15 digits at most")
    return sign * float(found)
