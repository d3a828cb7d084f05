"""Numbers, amounts and JSON in words for a page. Those in :data:`FILTERS` are filters of its templates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Context, Decimal
from typing import Any

#: Shares of epsilon that are smaller are not told apart.
_LEAST_SHARE = Decimal("0.000001")
#: Beyond so many zeros a number is written as it came.
_MOST_DIGITS = 40
#: Items of a list that are shown on a line.
_MOST_ITEMS = 12


def text_of(value: Decimal) -> str:
    """An exact number in digits, without an exponent and without zeros that say nothing."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


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


def laid_out(value: object) -> str:
    """A JSON value over several lines."""
    cut = isinstance(value, str) or (isinstance(value, Mapping) and set(value) == {"cut", "bytes"})
    return spelled(value) if cut else json.dumps(value, ensure_ascii=False, indent=1)


def listed(value: object) -> str:
    """A JSON value on one line; of a list of names or numbers no more than the first."""
    if isinstance(value, list) and all(isinstance(each, str | int | float) for each in value):
        more = f" and {len(value) - _MOST_ITEMS:,} more" if len(value) > _MOST_ITEMS else ""
        return ", ".join(map(str, value[:_MOST_ITEMS])) + more
    return spelled(value)


def share(value: str, budget: Mapping[str, Any]) -> str:
    """About which part of a data set's epsilon an amount is; a dash where its limit is not known."""
    if budget["limit"] is None:
        return "–"
    part = Decimal(budget["epsilon"]) * Decimal(value) / Decimal(budget["limit"])
    return f"< {_LEAST_SHARE:f}" if 0 < part < _LEAST_SHARE else amount(part, 4)


def share_of(value: str | None, budget: Mapping[str, Any]) -> str | None:
    """An amount, and about which part of a data set's epsilon it is; None for None."""
    if value is None or budget["limit"] is None:
        return value
    return f"{value} ≈ {share(value, budget)} of epsilon" if Decimal(value) else "0"


def used(budget: Mapping[str, Any], what: str) -> str:
    """How much of a budget is ``spent`` or ``reserved``, in the sum that it is kept in."""
    about = budget[f"{what}_epsilon"]
    if budget["regime"] == "pure":
        return f"{budget[f'pure_{what}']} of epsilon (pure)"
    exact = budget[what]
    return str(exact) if about is None else f"{exact} ≈ {amount(about, 6)} of epsilon {budget['epsilon']}"


def values(shown: list[float | None], in_all: int) -> str:
    """The first of so many values of an answer, rounded."""
    told = ", ".join("none" if value is None else f"{value:.6g}" for value in shown)
    return told + (f" and {in_all - len(shown):,} more" if in_all > len(shown) else "")


def counted(counts: Mapping[str, int]) -> str:
    """How many of what."""
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def given(told: list[Mapping[str, Any]]) -> str:
    """To whom something was given, and when."""
    return "; ".join(f"{each['by']}, {each['recorded_at']}" for each in told)


#: What templates call by their names.
FILTERS = (amount, counted, given, laid_out, listed, number, share, share_of, spelled, used, values, words)
