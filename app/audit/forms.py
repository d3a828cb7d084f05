"""The forms of a log's records, beside what chains and books look at: fields of the types that they must have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, TypeVar

import orjson

from app.audit.failures import Malformed, taking_apart
from app.privacy.ledger import Amounts
from curator_client.proofs import records
from curator_client.proofs.findings import Unfollowed

T = TypeVar("T")

#: Digits that a decimal has at most, and how large or small it may be (a power of ten).
_MOST_DIGITS, _GREATEST = 64, 40


def _no_record() -> Unfollowed:
    return Unfollowed("a line is not of the form that a record of its kind has")


def parse(line: bytes) -> dict[str, Any]:
    """A record from its line, as :func:`curator_client.proofs.records.parse` reads it, at a fraction of its time.

    Raises:
        ValueError: when it is no JSON object, or is nested too deep.
    """
    return records.parse(line, orjson.loads)


def field(record: Any, name: str, kind: type[T]) -> T:
    """A field of a type.

    Raises:
        Unfollowed: as all here, when it is not there, or of another type.
    """
    value = record.get(name) if isinstance(record, Mapping) else None
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise _no_record()
    return value


def number(value: Any) -> None:
    """Check that a value is a number of JSON."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _no_record()


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


def price(plan: Mapping[str, Any]) -> Amounts | None:
    """What each charged round of a plan costs, where all cost the same; else records tell each price."""
    told = plan.get("cost_per_update")
    return None if told is None or "mode" in plan else amounts(told, plan.get("cost_per_update_pure"))


def check(record: Mapping[str, Any]) -> None:
    """Check that a record has the form of its kind. One of a kind that is not known may be a later service's.

    Raises:
        Unfollowed: when it has not.
    """
    kind = record.get("record")
    look = _LOOKS.get(kind) if isinstance(kind, str) else None
    if look is not None:
        if records.second(record.get("opened_at" if kind == "header" else "recorded_at")) is None:
            raise Unfollowed("a line has no time")
        look(record)


def _principal(record: Mapping[str, Any]) -> None:
    if field(record, "event", str) not in ("created", "key replaced", "revoked"):
        raise Unfollowed("something became of a principal that is not known")
    field(record, "name", str)
    field(record, "role", str)


def _log_key(record: Mapping[str, Any]) -> None:
    """Whether the statement is signed as it should be is looked at when a checkpoint of the new key is taken."""
    if field(record, "statement", str).count("\n") < 4:
        raise Unfollowed("a change of the log's key has no statement")


def _dataset(record: Mapping[str, Any]) -> None:
    field(record, "name", str)
    field(record, "event", str)


def _header(record: Mapping[str, Any]) -> None:
    plan = field(record, "plan", dict)
    amounts(plan.get("reserved"), plan.get("reserved_pure"))
    price(plan)
    for fact in {} if plan.get("purchase") is None else field(plan, "purchase", dict).values():
        amounts(field(fact, "cost", str), None)


def _measurement(record: Mapping[str, Any]) -> None:
    cost = field(record, "cost", dict)
    amounts(cost.get("renyi"), cost.get("pure"))
    field(record, "sequence", int)
    noise = field(record, "measurement", dict).get("noise")
    if isinstance(noise, Mapping) and "scale" in noise:
        decimal(noise["scale"])


def _answer(record: Mapping[str, Any]) -> None:
    field(record, "source", str)
    bound, wish = record.get("error_bound"), record.get("wish")
    if bound is not None:
        number(bound)
    if isinstance(wish, Mapping) and wish.get("within") is not None:
        number(wish["within"])
    values = [record["value"]] if "value" in record else field(record, "values", list)
    if not _NUMBERS.issuperset(map(type, values)):
        raise _no_record()


def _forfeit(record: Mapping[str, Any]) -> None:
    if record.get("price") is not None:
        price = field(record, "price", dict)
        amounts(price.get("renyi"), price.get("pure"))


def _timed(_record: Mapping[str, Any]) -> None:
    """Nothing but its time."""


_NUMBERS = frozenset((int, float, type(None)))
_LOOKS: dict[str, Callable[[Mapping[str, Any]], None]] = {
    "principal": _principal,
    "log key": _log_key,
    "dataset": _dataset,
    "header": _header,
    "measurement": _measurement,
    "answer": _answer,
    "forfeit": _forfeit,
    "release": _timed,
}
