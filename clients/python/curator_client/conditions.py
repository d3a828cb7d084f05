"""Conditions on records, as values: ``col("age") >= 65``, joined by ``&``, ``|`` and ``~``.

Missing values. A comparison never holds for a record without a value of its attribute. ``~`` and ``!=`` are the
contract's ``not``: they hold wherever what stands behind them does not, and so for records without a value too, other
than in SQL. ``(col("income") < 5) & ~col("income").missing()`` says whom else is meant.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, ClassVar, Literal, NoReturn

from curator_client.errors import NoValue

#: Names that join conditions in the contract, and so are none of attributes.
CONNECTIVES = ("all", "any", "not")
_LOWER, _UPPER = frozenset(("ge", "gt")), frozenset(("lt", "le"))

Where = dict[str, Any]


class Condition:
    """What records have to satisfy. Join conditions with ``&``, ``|`` and ``~``, each comparison in parentheses.

    ``~`` holds wherever the condition does not, for records without a value too.
    """

    __slots__ = ("_where",)

    def __init__(self, where: Mapping[str, Any]) -> None:
        self._where = dict(where)

    @property
    def json(self) -> Where:
        """As the contract has it under ``where``."""
        return {name: copied(condition) for name, condition in self._where.items()}

    def __and__(self, other: Condition) -> Condition:
        return Condition(joined(self._where, other._where)) if isinstance(other, Condition) else NotImplemented

    def __or__(self, other: Condition) -> Condition:
        if not isinstance(other, Condition):
            return NotImplemented
        return Condition({"any": [*_alternatives(self._where), *_alternatives(other._where)]})

    def __invert__(self) -> Condition:
        if len(self._where) == 1 and "not" in self._where:
            return Condition(self._where["not"])
        return Condition({"not": self._where})

    def __bool__(self) -> bool:
        raise TypeError(
            "a condition is neither true nor false: join conditions with &, | and ~ in place of and, or and not, each "
            "in parentheses, and write col(name).between(low, high) for a chained comparison"
        )

    def __eq__(self, other: object) -> bool:
        return self._where == other._where if isinstance(other, Condition) else NotImplemented

    def __hash__(self) -> int:
        return hash(json.dumps(self._where, sort_keys=True))

    def __repr__(self) -> str:
        from curator_client.words import conditions_in_words

        return f"<Condition: {conditions_in_words(self._where)}>"


class col:  # noqa: N801
    """An attribute: ``col("age") >= 65``, ``col("sex") == "female"``, ``col("income").missing()``.

    Values are those that the data set declares: its labels, codes, numbers; dates of the standard library, or their
    text. None is no value. ``!=`` holds for records without a value, as ``~`` does; all other comparisons do not.
    """

    __slots__ = ("_name",)
    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        self._name = attribute(name)

    def __eq__(self, value: object) -> Condition:  # type: ignore[override]
        return self._is({"equals": self._value(value, "col(...).isin(values)")})

    def __ne__(self, value: object) -> Condition:  # type: ignore[override]
        return ~self.__eq__(value)

    def __lt__(self, value: Any) -> Condition:
        return self._is({"lt": self._bound(value)})

    def __le__(self, value: Any) -> Condition:
        return self._is({"le": self._bound(value)})

    def __gt__(self, value: Any) -> Condition:
        return self._is({"gt": self._bound(value)})

    def __ge__(self, value: Any) -> Condition:
        return self._is({"ge": self._bound(value)})

    def isin(self, values: Iterable[Any]) -> Condition:
        """Any of some values; None among them is no value."""
        return self._is({"in": listed(values, self._name)})

    def between(self, low: Any, high: Any) -> Condition:
        """From ``low`` and below ``high``, as bins are; one of them may be None, which is no end."""
        return self._is(_range(low, high, self._name))

    def missing(self) -> Condition:
        """The records without a value."""
        return self._is({"equals": None})

    def at(self, bound: Literal["lower", "upper"]) -> Condition:
        """The records at a bound that the declaration clamps values to: the bound itself, or the outermost bin."""
        if bound not in ("lower", "upper"):
            raise ValueError('a bound is "lower" or "upper"')
        return self._is({"at": bound})

    def __repr__(self) -> str:
        return f"col({self._name!r})"

    def _unparenthesized(self, _other: object) -> NoReturn:
        raise TypeError(
            "& and | bind more tightly than comparisons: put each comparison in parentheses, as "
            '(col("age") >= 30) & (col("sex") == "female")'
        )

    __and__ = __rand__ = __or__ = __ror__ = _unparenthesized

    def _is(self, condition: Mapping[str, Any]) -> Condition:
        return Condition({self._name: dict(condition)})

    def _value(self, value: object, instead: str) -> Any:
        if isinstance(value, col | Condition):
            raise TypeError(f"{self._name}: attributes are compared with values, and not with one another")
        plain = plain_value(value, self._name)
        if isinstance(plain, list):
            raise TypeError(f"{self._name}: several values are not one: say {instead}")
        return plain

    def _bound(self, value: object) -> Any:
        plain = self._value(value, "col(...).isin(values)")
        if plain is None:
            raise TypeError(f"{self._name}: nothing is more or less than no value: say col(...).missing()")
        return plain


def selected(conditions: Iterable[Condition], by_name: Mapping[str, Any]) -> Where:
    """All of some conditions, as the contract has them under ``where``.

    Args:
        conditions: values of :class:`Condition`.
        by_name: by attribute a value; None for no value; a list, a set or an array for any of them; a pair
            ``(low, high)`` for from ``low`` and below ``high``, either of which may be None.
    """
    found: Where = {}
    for condition in conditions:
        if not isinstance(condition, Condition):
            raise TypeError(f'{condition!r} is no condition: say col("age") >= 65, or age=(65, None)')
        found = joined(found, condition._where)
    for name, given in by_name.items():
        found = joined(found, {attribute(name): _by_name(given, name)})
    return found


def joined(first: Mapping[str, Any], second: Mapping[str, Any]) -> Where:
    """Conditions that hold where both do, in their plainest spelling: one object where no name stands twice."""
    found = dict(first)
    for name, condition in second.items():
        there = found.get(name)
        if name not in found:
            found[name] = condition
        elif name == "all":
            found["all"] = [*there, *condition]  # type: ignore[misc]
        elif there == condition:
            continue
        elif name not in CONNECTIVES and _are_two_ends(there, condition):
            found[name] = {**there, **condition}  # type: ignore[dict-item]
        else:
            found["all"] = [*found.get("all", ()), {name: condition}]
    return found


def attribute(name: object) -> str:
    """The name of an attribute; raises TypeError or ValueError where it can be none."""
    if not isinstance(name, str):
        raise TypeError(f"an attribute is named by a string, not by {type(name).__name__}")
    if name in CONNECTIVES:
        raise ValueError(f"{name!r} joins conditions, and is no attribute: use &, | and ~")
    return name


def plain_value(value: object, name: str) -> Any:
    """A value, or a list of them, as JSON has it: NumPy's are Python's, dates their text.

    Raises:
        TypeError: when it is of a kind that no attribute has.
        ValueError: when it is no number, or no time.
    """
    if value is None or isinstance(value, str):
        return value and value[:]  # of an enumeration's member the text alone
    if isinstance(value, bool):
        raise TypeError(f"{name}: {value} is no declared value: say the label or the code, such as 'yes' or 1")
    if isinstance(value, datetime.date):
        if value != value:  # pandas' NaT
            raise ValueError(f"{name}: not a time: None stands for no value")
        return value.isoformat()[:10]
    if isinstance(value, Decimal):
        value = int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise NoValue(f"{name}: {value} is no value: None stands for no value, and for no end of a range")
        return float(value)
    if isinstance(value, list | tuple | set | frozenset | range):
        items = [plain_value(item, name) for item in value]
        return sorted(items, key=_rank) if isinstance(value, set | frozenset) else items
    if getattr(getattr(value, "dtype", None), "kind", "") == "M" and str(value) != "NaT":  # a month is no day
        return plain_value(list(value), name) if value.ndim else str(value)[:10]  # type: ignore[attr-defined, call-overload]
    if callable(getattr(value, "tolist", None)):  # NumPy's, pandas' and of the standard library
        return plain_value(value.tolist(), name)  # type: ignore[attr-defined]
    raise TypeError(f"{name}: {type(value).__name__} is no value: numbers, strings, dates and None are")


def listed(values: Iterable[Any], name: str) -> list[Any]:
    """Several values as JSON has them, in their order; those of a set in an order of their own."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise TypeError(f"{name}: several values are given as a list")
    found = plain_value(values if isinstance(values, set | frozenset) else list(values), name)
    if not found:
        raise ValueError(f"{name}: no record has one of no values")
    return list(found)


def copied(value: Any) -> Any:
    """JSON that may be changed without changing this."""
    if isinstance(value, dict):
        return {name: copied(item) for name, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def _by_name(given: object, name: str) -> dict[str, Any]:
    if isinstance(given, Condition | col):
        raise TypeError(f"{name}: conditions are given without a name: where(col({name!r}) >= 65)")
    if isinstance(given, range):
        raise TypeError(
            f"{name}: a range could be its numbers or all between: say {name}=({given.start}, {given.stop}) for from "
            f"{given.start} and below {given.stop}, or {name}=[...] for single values"
        )
    if isinstance(given, Mapping):
        raise TypeError(f"{name}: say a value, a list, a pair (low, high), or a condition on col({name!r})")
    if isinstance(given, tuple):
        if len(given) != 2:
            raise ValueError(f"{name}: a tuple is from its first and below its second value: any of some are a list")
        return _range(*given, name)
    if isinstance(given, list | set | frozenset):
        return {"in": listed(given, name)}
    plain = plain_value(given, name)
    return {"in": listed(plain, name)} if isinstance(plain, list) else {"equals": plain}


def _range(low: object, high: object, name: str) -> dict[str, Any]:
    ends = {word: plain_value(end, name) for word, end in (("ge", low), ("lt", high)) if end is not None}
    if not ends:
        raise ValueError(f"{name}: a range has at least one end")
    if any(isinstance(end, list) for end in ends.values()):
        raise TypeError(f"{name}: the ends of a range are single values")
    return ends


def _alternatives(where: Mapping[str, Any]) -> list[Any]:
    return list(where["any"]) if len(where) == 1 and "any" in where else [where]


def _are_two_ends(first: Any, second: Any) -> bool:
    """Whether one condition is an end of a range from below, and the other one from above."""
    if not (isinstance(first, dict) and isinstance(second, dict)):
        return False
    sides = [frozenset(first), frozenset(second)]
    return any(a <= _LOWER and b <= _UPPER for a, b in (sides, sides[::-1]))


def _rank(value: Any) -> tuple[str, Any]:
    return (type(value).__name__, value) if value is not None else ("", 0)
