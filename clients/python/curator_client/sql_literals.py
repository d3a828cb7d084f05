"""Parameters of SQL statements: each ``?`` becomes a literal that means its value, and nothing else.

The service reads whole statements. So values are written into them here, where a text may hold any character.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from numbers import Integral, Real

#: What a statement is made of: texts, names and comments, in which no mark is a parameter, words, and all else by
#: itself. A text has a prefix where one stands before it.
_PART = re.compile(
    r"""[eE]'|[uU]&['"]|'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n\r]*|/\*(?:[^*/]|\*(?!/)|/(?!\*))*\*/|/\*|\w+|.""",
    re.DOTALL,
)
#: What begins a text of another kind, a comment with another in it, or a template, and a quote that is not closed.
_ODD = re.compile(r"""[eE]'\Z|[uU]&['"]\Z|['"]\Z|/\*\Z|[$\\`{]""")


def bound(statement: str, values: Sequence[object]) -> str:
    """A statement with its parameters, the marks ``?``, as literals.

    Raises:
        ValueError: when there are more or fewer values than marks, when a value has no literal, or when the statement
            has quotes of another kind than ``'text'`` and ``"name"``, within which a mark may or may not stand.
    """
    marks = 0
    found: list[str] = []
    for part in _PART.findall(statement):
        if part == "?":
            # Apart from what stands beside it: with a text or a letter it would be another literal.
            found.append(f" {literal(values[marks])} " if marks < len(values) else part)
            marks += 1
        elif _ODD.match(part):
            raise ValueError(
                f"a statement with parameters has 'texts' and \"names\" alone, and no {part[:2]} elsewhere"
            )
        else:
            found.append(part)
    if marks != len(values):
        raise ValueError(f"the statement has {marks} parameters, and {len(values)} values were given")
    return "".join(found)


def literal(value: object) -> str:
    """The literal of a value: a text, a number, a truth, a date, or None.

    Raises:
        ValueError: when it is something else, no finite number, a time of day, or a text that is no Unicode.
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            if any("\ud800" <= each <= "\udfff" for each in value):
                raise ValueError("half of a surrogate pair is no text")
            return "'{}'".format(value.replace("'", "''"))
        case datetime.datetime():
            if value.tzinfo is not None or value.time() != datetime.time():
                raise ValueError("columns have days and no times of day: give a date")
            return f"DATE '{value.date().isoformat()}'"
        case datetime.date():
            return f"DATE '{value.isoformat()}'"
        case Integral():
            return str(int(value))
        case Decimal() if value.is_finite():
            return str(value)
        case Real() if math.isfinite(value):
            return repr(float(value))
    raise ValueError(f"a {type(value).__name__} has no literal: give a text, a finite number, a truth, a date or None")
