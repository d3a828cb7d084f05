"""Small parts of a report's page: numbers, texts, tables and lists of facts."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

from app.audit.report_books import text_of
from app.audit.report_markup import Markup, tag

#: Shares of epsilon that are smaller are not told apart.
_LEAST_SHARE = Decimal("0.000001")
#: Beyond so many zeros a number is written as it came.
_MOST_DIGITS = 40


def words(count: int, one: str, many: str | None = None) -> str:
    """How many of something."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def number(value: object) -> str:
    """A whole number for a person; nothing for None."""
    return "" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def amount(value: object, digits: int | None = None) -> str:
    """A number as it stands, in digits and without an exponent, or rounded to so many digits; a dash for None."""
    try:
        exact = Decimal(str(value))
        if not exact.is_finite() or abs(exact.adjusted()) > _MOST_DIGITS:
            return spelled(value)
    except ArithmeticError:
        return "–" if value is None else spelled(value)
    return text_of(exact if digits is None else exact.normalize(Context(prec=digits)))


def spelled(value: object) -> str:
    """A JSON value on one line; texts as they are, what was cut with its whole length."""
    if isinstance(value, Mapping) and set(value) == {"cut", "bytes"}:
        return f"{value['cut']}… ({value['bytes']:,} bytes in all)"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def laid_out(value: object) -> Markup:
    """A JSON value over several lines."""
    cut = isinstance(value, str) or (isinstance(value, Mapping) and set(value) == {"cut", "bytes"})
    return tag("pre", spelled(value) if cut else json.dumps(value, ensure_ascii=False, indent=1))


def share(value: str, budget: Mapping[str, Any]) -> str:
    """About which part of a data set's epsilon an amount is; a dash where its limit is not known."""
    if budget["limit"] is None:
        return "–"
    part = Decimal(budget["epsilon"]) * Decimal(value) / Decimal(budget["limit"])
    return f"< {_LEAST_SHARE:f}" if 0 < part < _LEAST_SHARE else amount(part, 4)


def code(value: object) -> Markup | None:
    """A text as it stands."""
    return None if value is None else tag("code", value)


def moment(value: object) -> Markup | None:
    """A time as it stands, on one line."""
    return None if value is None else tag("time", value)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Collection[int] = (), long: int | None = None
) -> Markup:
    """A table that scrolls by itself; ``numbers`` are the columns that stand to the right, ``long`` the one that takes
    what room there is and has several lines.
    """

    def styles(place: int) -> str | None:
        return "number" if place in numbers else "long" if place == long else None

    head = tag("tr", *(tag("th", name, scope="col", class_=styles(n)) for n, name in enumerate(columns)))
    body = (tag("tr", *(tag("td", cell, class_=styles(n)) for n, cell in enumerate(row))) for row in rows)
    # It can be reached, and moved, by the keyboard.
    return tag("div", tag("table", tag("thead", head), tag("tbody", *body)), class_="scroll", tabindex="0")


def facts(told: Mapping[str, object]) -> Markup:
    """A list of facts by their names; None is left out."""
    return tag(
        "dl",
        *(
            tag("div", tag("dt", name), tag("dd", value))
            for name, value in told.items()
            if value is not None and value != ""
        ),
    )
