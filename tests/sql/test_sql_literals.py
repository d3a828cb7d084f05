"""Parameters of statements: the literal that the service reads is the value, and all around it stays what it was."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import Token, TokenType

from curator_client.sql_literals import bound, literal

pytestmark = pytest.mark.unit

_ODD = st.sampled_from("'\"\\;-/*?$%{}()eEuU&\n\r\0\u2019\u2028😀ñ")
_NASTY = st.text(st.one_of(_ODD, st.characters(exclude_categories=["Cs"])))
_VALUES = st.one_of(
    _NASTY,
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
    st.dates(),
)


def _read(node: exp.Expr) -> Any:
    """The value that sqlglot reads in a literal."""
    match node:
        case exp.Neg():
            return -_read(node.this)
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(node.this)
        case exp.Cast():
            assert node.to.is_type(exp.DType.DATE)
            return datetime.date.fromisoformat(node.this.this)
    assert isinstance(node, exp.Literal)
    return str(node.this) if node.is_string else Decimal(node.this)


@given(_VALUES)
@example("'; DROP TABLE survey; --")
@example("\\' OR 1=1 --")
@example("''")
@example(5e-324)
@example(Decimal("-1E+400"))
def test_a_parameter_is_read_as_its_value(value: Any) -> None:
    """Would catch a quote or a backslash that ends a text, a number that is rounded, and a date that is another."""
    statement = bound("SELECT COUNT(*) FROM t WHERE x =? AND y=1", [value])
    (tree,) = Postgres().parse(statement)
    assert isinstance(tree, exp.Select)
    both = tree.args["where"].this
    assert isinstance(both, exp.And)
    read = _read(both.this.expression)
    assert both.expression.sql() == "y = 1"
    if isinstance(value, float):
        assert float(read) == value
    elif value is None or isinstance(value, bool | str):
        assert type(read) is type(value)
        assert read == value
    else:
        assert read == value


#: Marks have room beside them in what is compared: two of them without are read as another sign.
_ENDS = ["'", "''", "'a ? '", '"', '"b ? "', "e'", "E'x'", "U&'", 'u&"', "\n", "\r", "--", "-- ? ", "/*", "*/"]
_SIGNS = [
    "/* ? */",
    "/**/",
    "$$",
    "$a$",
    "{#",
    "#}",
    "{{",
    "\\",
    "`",
    "(",
    ",",
    ";",
    "=",
    "-",
    "/",
    "*",
    "&",
    "%s",
    ":a",
]
_WORDS = [
    "1",
    "1E",
    "x",
    "ſe",
    "n'",
    "b'",
    "x'",
    "DATE'2020-01-01'",
    " ",
    "'a\\'",
    "'a' ? ",
    "x ? ",
    "1 ? ",
    "@",
    "#",
    "\0",
]
_PIECES = st.lists(st.sampled_from([" ? "] * 3 + _ENDS + _SIGNS + _WORDS), max_size=12).map("".join)


def _tokens(text: str) -> list[Token] | None:
    try:
        return list(Postgres().tokenize(text))
    except TokenError:
        return None


@settings(max_examples=400)
@given(_PIECES, st.lists(st.one_of(st.text("'\"\\?-/*\n\r x$", max_size=6), st.integers(0, 9)), max_size=3))
def test_what_stands_around_parameters_is_read_as_before(template: str, values: list[Any]) -> None:
    """Would catch an injection: a mark within a text, a name or a comment, as the service reads them, that becomes a
    literal, whose quotes then end it; and a literal that merges with what stands beside it."""
    before = _tokens(template)
    try:
        statement = bound(template, values)
    except ValueError:
        return
    if before is None:
        # What the service cannot read it cannot be made to read by a value.
        assert _tokens(statement) is None
        return
    marks = [token for token in before if token.token_type == TokenType.PLACEHOLDER]
    assert len(marks) == len(values)
    given_ = iter(values)
    expected = [
        (str(next(given_)) if token.token_type == TokenType.PLACEHOLDER else token.text, token.token_type)
        for token in before
    ]
    after = _tokens(statement)
    assert after is not None
    assert [token.text for token in after] == [text for text, _ in expected]
    kinds = {TokenType.STRING, TokenType.NUMBER}
    for token, (_, kind) in zip(after, expected, strict=True):
        assert token.token_type in kinds if kind == TokenType.PLACEHOLDER else token.token_type == kind


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.int64(3), "3"),
        (np.float64(0.5), "0.5"),
        (pd.Timestamp("2020-05-01"), "DATE '2020-05-01'"),
        (datetime.date(2020, 5, 1), "DATE '2020-05-01'"),
        (Decimal("1.50"), "1.50"),
        (True, "TRUE"),
    ],
)
def test_values_of_libraries(value: Any, expected: str) -> None:
    """Would catch numbers of NumPy and dates of pandas that are refused, or written as their names."""
    assert literal(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        *(float("nan"), float("inf"), Decimal("NaN"), b"x", [1], "\ud800", object(), 1j, pd.NaT),
        *(pd.Timestamp("2020-01-01 12:00"), datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)),
    ],
)
def test_what_has_no_literal(value: Any) -> None:
    """Would catch a value that is written as something that it is not."""
    with pytest.raises(ValueError):
        literal(value)


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        ("x = ?", []),
        ("x = ?", [1, 2]),
        ("x = '?'", [1]),
        ("x = $1 AND y = ?", [1]),
        ("x = '", [1]),
        ("/* /* */ ? */", [1]),
        ("x = E'\\'? --'", [1]),
    ],
)
def test_marks_and_values_belong_together(statement: str, values: list[int]) -> None:
    """Would catch a mark that is left, a value that is passed over, and quotes that are read in two ways."""
    with pytest.raises(ValueError):
        bound(statement, values)


@pytest.mark.parametrize("before", ["'a'", "E", "e", "U&", "N", "B", "X", "1", "-", "date", '"n"', "$"])
@pytest.mark.parametrize("behind", ["'a'", "x", "1", "::text", ""])
def test_a_literal_does_not_merge_with_what_stands_beside_it(before: str, behind: str) -> None:
    """Would catch E? with the text \\' that becomes E'\\'', and 'a'? that becomes one text with a quote in it."""
    value = "\\' OR 1 = 1 --"
    try:
        tokens = _tokens(bound(f"SELECT {before}?{behind}", [value]))
    except ValueError:
        assert before == "$"
        return
    assert tokens is not None
    assert [token.text for token in tokens if token.token_type == TokenType.STRING].count(value) == 1
