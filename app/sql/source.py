"""A statement as it was written: what kind it is, its tree, and where each part of it stands.

sqlglot knows neither ``EXPLAIN`` nor ``WITH DIFFERENTIAL_PRIVACY OPTIONS(...)``. Both are read here and blanked out, so
that all else stays where it was.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from app.sql.errors import SqlRefused

#: Characters and opening parentheses of a statement, and how deep these may lie within one another: of deeper ones the
#: parser has no end.
MOST_CHARACTERS, MOST_PARENTHESES, MOST_NESTED = 10_000, 200, 30
#: Names of types with parentheses, ``DATE(...)`` or ``ARRAY[...]``, within one another: the parser reads each of them
#: twice, and so the innermost one of 30 a thousand million times.
MOST_TYPES = 4
#: What is counted as parentheses: a row of brackets costs the parser time by its square.
_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})
_QUOTED = frozenset({TokenType.STRING, TokenType.IDENTIFIER})
#: What stands where something else is read or changed, and its hint.
_OTHERS = "say SELECT, EXPLAIN SELECT, SHOW TABLES or DESCRIBE and a table"
_FORM = "a statement is SELECT what FROM a table WHERE conditions GROUP BY columns ORDER BY columns LIMIT rows"
_BOUNDS = "bounds are declared: leave it out"
#: Words of other dialects that make a statement unreadable, and their hints.
_FOREIGN = {
    "TOP": "say LIMIT behind all else",
    "CLAMPED": f"{_BOUNDS}, as in AVG(x)",
    "CONTRIBUTION_BOUNDS_PER_GROUP": _BOUNDS,
    "CONTRIBUTION_BOUNDS_PER_ROW": _BOUNDS,
}
#: What begins with a word of which the parser does not say where it stands.
_BEGINS = re.compile(r"\b(CAST|TRY_CAST|SAFE_CAST|CASE)\b[\s(]*(?:WHEN\b[\s(]*)?$", re.IGNORECASE)
Kind = Literal["select", "show", "describe"]
#: A wish of OPTIONS(...), and where its name and its value stand.
Option = tuple[str, Token, Token]


@dataclass(frozen=True, slots=True)
class Source:
    """A statement, read.

    Attributes:
        text: as it was written.
        kind: of statement.
        explain: whether its price is asked for, and no answer.
        tree: of a SELECT.
        table: what is described; None of other kinds.
        options: the wishes, each name in small letters with the tokens of it and of its value.
    """

    text: str
    kind: Kind
    explain: bool = False
    tree: exp.Select | None = None
    table: Token | None = None
    options: Sequence[Option] = ()

    def refuse(self, at: exp.Expr | Token, problem: str, hint: str | None = None) -> NoReturn:
        """Refuse a part of the statement.

        Raises:
            SqlRefused: always.
        """
        raise SqlRefused(self.text, *_span(self.text, at), problem, hint)

    def named(self, node: exp.Func) -> str:
        """A function's name in capitals, as it was written."""
        start, stop = _span(self.text, node)
        # Of what is written without its name that of its first part would be told.
        return self.text[start:stop].upper() if "start" in node.meta else node.sql_name()


def read(text: str) -> Source:
    """A statement, read.

    Raises:
        SqlRefused: when it is too long, cannot be read, is several, or no statement that there is here.
    """
    if len(text) > MOST_CHARACTERS:
        problem = f"a statement has at most {MOST_CHARACTERS:,} characters"
        raise SqlRefused(text, MOST_CHARACTERS, MOST_CHARACTERS + 1, problem, "ask for less in each of several ones")
    tokens = _tokens(text, text)
    rest, explain = text, False
    if tokens and tokens[0].text.upper() == "EXPLAIN":
        rest, explain = _blanked(text, tokens[0].start, tokens[0].end), True
        tokens = _tokens(text, rest)
    while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
        rest = _blanked(rest, tokens[-1].start, tokens[-1].end)
        tokens.pop()
    if not tokens:
        raise SqlRefused(text, 0, 1, "there is no statement", _OTHERS)
    parts = Source(text, "select", explain)
    opening = [token for token in tokens if token.token_type in _OPENING]
    if len(opening) > MOST_PARENTHESES:
        problem = f"a statement has at most {MOST_PARENTHESES} parentheses"
        parts.refuse(opening[MOST_PARENTHESES], problem, "leave out those that say nothing, or list values with IN")
    within: list[bool] = []
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.token_type in _OPENING:
            within.append(before is not None and before.token_type in Postgres.Parser.TYPE_TOKENS)
        elif token.token_type in _CLOSING and within:
            within.pop()
        if len(within) > MOST_NESTED:
            problem = f"parentheses lie within one another at most {MOST_NESTED} deep"
            parts.refuse(token, problem, "leave out those that say nothing")
        if sum(within) > MOST_TYPES:
            problem = f"names of types with parentheses lie within one another at most {MOST_TYPES} deep"
            parts.refuse(token, problem, "write constants out")
        if token.token_type == TokenType.SEMICOLON:
            parts.refuse(token, "several statements", "send one after the other")
    first = tokens[0].text.upper()
    if first in ("SHOW", "DESCRIBE", "DESC") and not explain:
        return _told(parts, first, tokens)
    if first == "WITH":
        parts.refuse(tokens[0], "WITH: there are no subqueries", "ask each statement by itself")
    if first == "(":
        parts.refuse(tokens[0], "a statement stands in parentheses", "leave them out")
    if first != "SELECT":
        parts.refuse(tokens[0], "data are neither changed nor shown as they are", _OTHERS)
    options, blanked = _options(parts, tokens)
    for begin, end in blanked:
        rest = _blanked(rest, begin, end)
    return Source(text, "select", explain, _parsed(text, rest), options=options)


def _told(parts: Source, first: str, tokens: Sequence[Token]) -> Source:
    if first == "SHOW":
        # The tokenizer gives all that follows as one string.
        if len(tokens) != 2 or tokens[1].text.strip().upper() != "TABLES":
            parts.refuse(tokens[-1], "only tables are shown", "say SHOW TABLES")
        return Source(parts.text, "show")
    named = tokens[1:]
    if named and named[0].text.upper() == "TABLE" and len(named) > 1:
        named = named[1:]
    if len(named) != 1:
        parts.refuse(tokens[-1], "DESCRIBE is followed by the name of a table", 'one of other characters stands in ""')
    return Source(parts.text, "describe", table=named[0])


def _options(parts: Source, tokens: Sequence[Token]) -> tuple[list[Option], list[tuple[int, int]]]:
    """The wishes of ``SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(...)``, and what is blanked out of it."""
    if len(tokens) < 3 or tokens[1].text.upper() != "WITH":
        return [], []
    if tokens[2].text.upper() != "DIFFERENTIAL_PRIVACY":
        parts.refuse(tokens[2], "WITH is followed by DIFFERENTIAL_PRIVACY", "or left out: every answer is private")
    if len(tokens) < 4 or tokens[3].text.upper() != "OPTIONS":
        return [], [(tokens[1].start, tokens[2].end)]
    form = "this is no list of options", "say OPTIONS(within = 50, confidence = 0.9), with constants alone"
    if len(tokens) < 5 or tokens[4].token_type != TokenType.L_PAREN:
        parts.refuse(tokens[3], *form)
    found: list[Option] = []
    place = 5
    while place < len(tokens) and tokens[place].token_type != TokenType.R_PAREN:
        if found and tokens[place].token_type == TokenType.COMMA:
            place += 1
        if place + 2 >= len(tokens) or tokens[place + 1].token_type != TokenType.EQ:
            parts.refuse(tokens[min(place, len(tokens) - 1)], *form)
        found.append((tokens[place].text.lower(), tokens[place], tokens[place + 2]))
        place += 3
    if place >= len(tokens):
        parts.refuse(tokens[4], "the parenthesis is not closed", "close it behind the last option")
    return found, [(tokens[1].start, tokens[place].end)]


def _tokens(text: str, rest: str) -> list[Token]:
    try:
        return list(Postgres().tokenize(rest))
    except TokenError as error:
        start = getattr(error, "start", 0) or 0
        raise SqlRefused(text, start, len(text), "it ends within a text, a name or a comment", "close it") from None
    except RecursionError:
        raise _deep(text) from None


def _parsed(text: str, rest: str) -> exp.Select:
    try:
        (tree,) = Postgres().parse(rest, error_level=ErrorLevel.IMMEDIATE)
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        line, col, near = first.get("line") or 1, first.get("col") or 1, first.get("highlight") or ""
        # The column is that of the last character.
        begin = sum(len(each) + 1 for each in text.split("\n")[: line - 1]) + max(0, col - max(1, len(near)))
        words = (token for token in _tokens(text, rest) if token.token_type not in _QUOTED)
        foreign = next((token for token in words if token.text.upper() in _FOREIGN), None)
        if foreign is not None:
            problem = f"{foreign.text.upper()} is no part of a statement"
            raise SqlRefused(text, *_span(text, foreign), problem, _FOREIGN[foreign.text.upper()]) from None
        problem = "cannot be read as SQL from here on"
        raise SqlRefused(text, begin, begin + len(near), problem, _FORM) from None
    except RecursionError:
        raise _deep(text) from None
    if isinstance(tree, exp.SetOperation):
        name = type(tree).__name__.upper()
        raise SqlRefused(text, 0, len(text), f"{name}: one SELECT is asked at a time", "ask each by itself")
    if not isinstance(tree, exp.Select):
        raise SqlRefused(text, 0, len(text), "not a SELECT", _OTHERS)
    return tree


def _deep(text: str) -> SqlRefused:
    return SqlRefused(text, 0, len(text), "it is nested too deep", "leave out parentheses and signs that say nothing")


def _blanked(text: str, first: int, last: int) -> str:
    blank = "".join("\n" if each == "\n" else " " for each in text[first : last + 1])
    return text[:first] + blank + text[last + 1 :]


def _span(text: str, at: exp.Expr | Token) -> tuple[int, int]:
    """Where a part stands: its own place, or that of the first of its parts, or of a word that begins it."""
    if isinstance(at, Token):
        return at.start, at.end + 1
    node: exp.Expr | None = at
    while node is not None:
        if "start" in node.meta:
            return node.meta["start"], node.meta["end"] + 1
        found = [each.meta for each in node.walk() if "start" in each.meta]
        if found:
            first = min(found, key=lambda meta: meta["start"])
            begins = _BEGINS.search(text, 0, first["start"]) if isinstance(node, exp.Cast | exp.Case) else None
            return (first["start"], first["end"] + 1) if begins is None else begins.span(1)
        node = node.parent
    return 0, 1
