"""Fields of a stranger's records, each of the type that it must have."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, TypeVar

from app.audit.findings import Malformed, Unfollowed, taking_apart
from app.privacy.ledger import Amounts

T = TypeVar("T")

#: Digits that a decimal has at most, and how large or small it may be (a power of ten).
_MOST_DIGITS, _GREATEST = 64, 40


def _no_record() -> Unfollowed:
    return Unfollowed("a line is not of the form that a record of its kind has")


def field(record: Any, name: str, kind: type[T]) -> T:
    """A field of a type.

    Raises:
        Unfollowed: as all here, when it is not there, or of another type.
    """
    value = record.get(name) if isinstance(record, Mapping) else None
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _no_record()
    return value


def number(value: Any) -> float | int:
    """A number of JSON."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _no_record()
    return value


def decimal(value: Any) -> Decimal:
    """An exact number of ordinary size: a string as it stands, a number by its fewest digits."""
    try:
        with taking_apart():
            if isinstance(value, bool) or not isinstance(value, int | float | str) or len(str(value)) > _MOST_DIGITS:
                raise TypeError("no decimal")
            found = Decimal(str(value))
    except Malformed:
        raise _no_record() from None
    if not found.is_finite() or (found and abs(found.adjusted()) > _GREATEST):
        raise _no_record()
    return found


def amounts(renyi: Any, pure: Any) -> Amounts:
    """A cost, from its written form."""
    exact = decimal(renyi), None if pure is None else decimal(pure)
    try:
        with taking_apart():
            return Amounts.read({"renyi": str(exact[0]), "pure": None if exact[1] is None else str(exact[1])})
    except Malformed:
        raise _no_record() from None
