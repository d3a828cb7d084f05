"""The values of one attribute of a table: which of them conditions and bins select, and what groups of them are called.

A value is a place on the attribute's axis. A condition selects whole values, never a part of one: what would cut a bin,
or a month, is refused. Where there may be records without a value their place is the last one, and only null names it.
"""

from __future__ import annotations

import calendar
import datetime
import difflib
import re
from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from app.declarations.attributes import Attribute, day
from app.declarations.conditions import Condition
from app.declarations.naming import listed
from app.spaces.errors import InvalidQuery
from app.spaces.lazy import lazy
from app.spaces.tensor import IntArray, Members

#: What a cell of an answer is called: a declared value, a number, a code, or a range of either; None for no value.
Label = int | float | str | None
#: In so many cells at most are values counted at first where there are many and no bins are declared; such numbers of
#: cells can be halved, or nearly, again and again.
MOST_STARTING, _LEAST_STARTING = 64, 33
#: Of a label that is not known so many characters are looked at, and so many of those that are.
_MOST_SHOWN, _MOST_COMPARED = 64, 1000


class Values(ABC):
    """Finds the values of one attribute that are asked for; made by :func:`values_of`."""

    def __init__(self, attribute: Attribute) -> None:
        self.attribute = attribute
        self.places = attribute.places

    def members(self, condition: Condition) -> Members:
        """The places of the values that satisfy a condition: a range of them, or a sorted list.

        Raises:
            InvalidQuery: when it does not fit the attribute, or no range is left.
        """
        if condition.names_missing:
            return slice(self._missing(), self._missing() + 1)
        if condition.equals is not None:
            first, stop = self._span(condition.equals)
        elif condition.in_ is not None:
            return self._listed(condition.in_)
        elif condition.at is not None:
            return self._at(condition.at)
        else:
            first, stop = self._range(condition)
            if first >= stop:
                ends = (self._called(np.array([place])) for place in (0, self.places - 1))
                raise self._refusal("the range is reversed or empty, of values from {} to {}".format(*ends))
        return slice(first, stop)

    def bins(self, edges: Sequence[Any]) -> IntArray:
        """The places where coarser bins begin, and the one behind the last.

        Raises:
            InvalidQuery: when edges do not ascend, or one is none of this attribute.
        """
        places = [self._edge_place(edge, last=k == len(edges) - 1) for k, edge in enumerate(edges)]
        if any(b <= a for a, b in pairwise(places)):
            raise self._refusal("the edges of bins must ascend, with a value in each bin")
        return np.array(places, dtype=np.int64)

    def merged(self, groups: Mapping[str, Sequence[Any]]) -> dict[str, IntArray]:
        """The places of the values that are counted as one, by the name of each such group, in the order of the least.

        Raises:
            InvalidQuery: when a value is none of this attribute, or in two groups.
        """
        found: dict[str, IntArray] = {}
        owner: dict[int, str] = {}
        for name, values in groups.items():
            found[name] = self._listed(values)
            for place in found[name].tolist():
                if owner.setdefault(place, name) != name:
                    (label,) = self.labels([np.array([place])])
                    value = "null" if label is None else repr(label)
                    raise self._refusal(
                        f"bins: {value} is in {_quoted(owner[place])} and in {_quoted(name)}: name each value "
                        "in one group alone"
                    )
        return dict(sorted(found.items(), key=lambda group: int(group[1][0])))

    def cells(self) -> IntArray | None:
        """How values are counted where nothing else is asked: the cell of each place; None where each is a cell."""
        return None

    def starting(self) -> IntArray | None:
        """The cells that this attribute is counted in before anything is asked of it: the place where each begins; None
        where each place is a cell.

        They are the declared bins. Numbers and dates without bins, of which there are many, have equal ones.
        """
        return None

    def labels(self, cells: Sequence[IntArray]) -> tuple[Label, ...]:
        """Labels of groups of values, each given by its sorted places.

        Single values are called by themselves, ranges as ``[15, 30)``, the last declared bin ``[90, 95]``; where places
        are not contiguous, by the ranges that make them up. No value is None.
        """
        if not self.attribute.missing:
            return tuple(self._labels(cells))
        # No value is in a cell by itself, or the last of the places in one.
        told = [members[members < self.places] for members in cells]
        called = iter(self._labels([members for members in told if len(members)]))
        named = [next(called) if len(members) else None for members in told]
        return tuple(
            f"{name}, missing" if 0 < len(own) < len(members) else name
            for name, own, members in zip(named, told, cells, strict=True)
        )

    def _labels(self, cells: Sequence[IntArray]) -> list[Label]:
        return [self._called(members) for members in cells]

    def _at(self, bound: Literal["lower", "upper"]) -> Members:
        """The place at a bound: of the value that is it, or of the bin that it ends."""
        if self.attribute.kind not in ("bins", "numbers", "dates"):
            raise self._refusal("at: only numbers and dates have a lower and an upper bound: name values, or codes")
        return slice(0, 1) if bound == "lower" else slice(self.places - 1, self.places)

    def _missing(self) -> int:
        if not self.attribute.missing:
            raise self._refusal('null: every record has a value, as "missing" is not declared')
        return self.places

    def _listed(self, values: Iterable[Any]) -> IntArray:
        found: set[int] = set()
        for value in values:
            found.update([self._missing()] if value is None else range(*self._span(value)))
        return np.array(sorted(found), dtype=np.int64)

    def _refusal(self, problem: str) -> InvalidQuery:
        return InvalidQuery(f"{self.attribute.name}: {problem}")

    @abstractmethod
    def _called(self, members: IntArray) -> Label:
        """Labels of places, none of which is that of no value."""

    @abstractmethod
    def _span(self, value: Any) -> tuple[int, int]:
        """The first place that a single value names, and the one behind its last.

        Raises:
            InvalidQuery: when it is none, saying what there is.
        """

    @abstractmethod
    def _range(self, condition: Condition) -> tuple[int, int]:
        """The first place in a range, and the one behind its last."""

    @abstractmethod
    def _edge_place(self, edge: Any, *, last: bool) -> int:
        """The place where a bin begins at an edge; of the last edge the place behind its bin."""


def values_of(attribute: Attribute) -> Values:
    """The values of an attribute."""
    kinds: dict[str, type[Values]] = {
        "codes": _Codes,
        "categories": _Categories,
        "bins": _Bins,
        "numbers": _Numbers,
        "dates": _Dates,
    }
    return kinds[attribute.kind](attribute)


class _Categories(Values):
    """Labels without an order."""

    def __init__(self, attribute: Attribute) -> None:
        super().__init__(attribute)
        assert attribute.values is not None
        self._declared = attribute.values
        self._codes = {value: i for i, value in enumerate(attribute.values)}

    def _span(self, value: Any) -> tuple[int, int]:
        found = self._codes.get(value)
        if found is None:
            raise self._refusal(f"not one of the declared values{self._hint(value)}")
        return found, found + 1

    def _hint(self, value: Any) -> str:
        words = [str(v)[:_MOST_SHOWN] for v in self._declared[:_MOST_COMPARED]]
        near = difflib.get_close_matches(str(value)[:_MOST_SHOWN], words, n=1)
        if near and near[0] == str(value):
            # 3 and "3" are two values.
            return f": it is declared as {_quoted(self._declared[words.index(near[0])])}"
        meant = f": did you mean {_quoted(near[0])}?" if near else ""
        told = listed(map(_quoted, self._declared), self.places)
        return f"{meant}{'; they are ' if meant else ', which are '}{told}"

    def _range(self, condition: Condition) -> tuple[int, int]:
        word = "between needs" if condition.between is not None else "comparisons need"
        raise self._refusal(f"{word} numeric values, dates or codes; use in")

    def _edge_place(self, edge: Any, *, last: bool) -> int:
        raise self._refusal("bins need numeric values, dates or codes: name groups of values, as an object")

    def _called(self, members: IntArray) -> Label:
        if len(members) == 1:
            return self._declared[int(members[0])]
        return ", ".join(str(self._declared[int(i)]) for i in members)


class _Ordered(Values):
    """Values with an order."""

    def _labels(self, cells: Sequence[IntArray]) -> list[Label]:
        # Either all are called by themselves or all by ranges, so that a column of labels is of one type.
        if all(len(members) == 1 for members in cells):
            return [self._called(members) for members in cells]
        return [self._ranges(members) for members in cells]

    def _ranges(self, members: IntArray) -> str:
        return ", ".join(self._interval(first, stop) for first, stop in _runs(members))

    @abstractmethod
    def _interval(self, first: int, stop: int) -> str:
        """The label of the places from one up to another."""

    def _range(self, condition: Condition) -> tuple[int, int]:
        if condition.between is not None:
            return self._between(*condition.between)
        first, stop = 0, self.places
        if condition.ge is not None:
            first = self._from(condition.ge, "ge")
        if condition.gt is not None:
            first = self._behind(condition.gt, "gt")
        if condition.lt is not None:
            stop = self._from(condition.lt, "lt")
        if condition.le is not None:
            stop = self._behind(condition.le, "le")
        return first, stop

    @abstractmethod
    def _between(self, low: Any, high: Any) -> tuple[int, int]:
        """The places from one value to another."""

    @abstractmethod
    def _from(self, value: Any, word: str) -> int:
        """The place of the first value that is at least this one."""

    @abstractmethod
    def _behind(self, value: Any, word: str) -> int:
        """The place of the first value that is above this one."""


class _Fine(_Ordered):
    """Values with an order, of which there may be very many."""

    def cells(self) -> IntArray | None:
        begins = self._begins
        if begins is None:
            return None
        cells = np.searchsorted(begins, np.arange(self.attribute.length), side="right") - 1
        # No value is counted by itself.
        cells[self.places :] = len(begins)
        return cells

    @lazy
    def _begins(self) -> IntArray | None:
        """The places where declared bins begin; None where there are none."""
        return None

    def starting(self) -> IntArray | None:
        begins = self._begins
        missing = [self.places] if self.attribute.missing else []
        if begins is None or len(begins) + len(missing) == 1:
            begins = self._equal()
        found = np.array([*begins.tolist(), *missing], dtype=np.int64)
        return None if len(found) == self.attribute.length else found

    def _equal(self) -> IntArray:
        """Where cells of equal numbers of places begin, or nearly; no value is in one by itself."""
        missing = self.attribute.length - self.places
        count = min(self.places, MOST_STARTING - missing)
        if not missing and self.places > MOST_STARTING:
            # As many as divide the places, if there are such numbers that can be merged into equal parts themselves.
            divide = (n for n in range(MOST_STARTING, _LEAST_STARTING - 1, -1) if self.places % n == 0)
            count = next((n for n in divide if any(n % k == 0 for k in (2, 3, 5))), count)
        return -(-np.arange(count) * self.places // count)


class _Codes(_Ordered):
    """The integers from 0 to a size."""

    def _listed(self, values: Iterable[Any]) -> IntArray:
        asked = list(values)
        codes = {value for value in asked if type(value) is int}
        # Codes as they should be are themselves; any other list is looked up, and refused, value by value.
        if len(codes) < len(asked) or min(codes) < 0 or max(codes) >= self.places:
            return super()._listed(asked)
        return np.array(sorted(codes), dtype=np.int64)

    def _span(self, value: Any) -> tuple[int, int]:
        if not isinstance(value, int) or not 0 <= value < self.places:
            raise self._refusal(f"codes are the integers 0..{self.places - 1}")
        return value, value + 1

    def _between(self, low: Any, high: Any) -> tuple[int, int]:
        return self._span(low)[0], self._span(high)[1]

    def _from(self, value: Any, word: str) -> int:
        return self.places if value == self.places else self._span(value)[0]

    def _behind(self, value: Any, word: str) -> int:
        return self._span(value)[1]

    def _edge_place(self, edge: Any, *, last: bool) -> int:
        if type(edge) is not int or not 0 <= edge <= self.places:
            raise self._refusal(f"bins of codes have the integers 0..{self.places} as edges")
        return edge

    def _called(self, members: IntArray) -> Label:
        return int(members[0])

    def _interval(self, first: int, stop: int) -> str:
        return f"[{first}, {stop})"


class _Bins(_Ordered):
    """Half-open bins of numbers, the last one closed."""

    def __init__(self, attribute: Attribute) -> None:
        super().__init__(attribute)
        # There may be very many: an edge is made when it is looked at.
        self._edge_at = attribute.edge_at()
        self._low, self._high = attribute.bounds
        units = self._high - self._low == self.places
        if units and attribute.edges is not None:
            units = all(b - a == 1 for a, b in pairwise(attribute.edges))
        # A bin one integer wide is that integer; the last bin is closed and so is two integers wide.
        self._whole = units and self._low.denominator == 1

    def merged(self, groups: Mapping[str, Sequence[Any]]) -> dict[str, IntArray]:
        if not self._whole:
            raise self._refusal("groups of single values would cut bins: give the edges of coarser bins, as a list")
        return super().merged(groups)

    def _single(self, value: Any) -> int | None:
        """The bin that is this one number, if one is."""
        if not self._whole or not isinstance(value, int | float) or not self._low <= value < self._high - 1:
            return None
        return None if value != int(value) else int(value) - int(self._low)

    def _span(self, value: Any) -> tuple[int, int]:
        found = self._single(value)
        if found is None:
            raise self._refusal(f"a single value would cut a bin: use between with bin edges{self._cut(value)}")
        return found, found + 1

    def _between(self, low: Any, high: Any) -> tuple[int, int]:
        return self._edge(low, "between"), self._edge(high, "between")

    def _range(self, condition: Condition) -> tuple[int, int]:
        first, stop = super()._range(condition)
        if condition.lt is not None and stop == self.places:
            raise self._refusal("the last bin holds its upper edge, which lt would leave out: use le")
        return first, stop

    def _from(self, value: Any, word: str) -> int:
        return self._edge(value, word)

    def _behind(self, value: Any, word: str) -> int:
        found = self._single(value)
        if found is not None:
            return found + 1
        if self._edge(value, word) < self.places:
            raise self._refusal(f"{word} would cut a bin: use ge and lt with bin edges{self._cut(value)}")
        return self.places

    def _edge_place(self, edge: Any, *, last: bool) -> int:
        return self._edge(edge, "bins")

    def _edge(self, value: Any, word: str) -> int:
        if not isinstance(value, int | float):
            raise self._refusal(f"{word} needs numbers")
        number, every = Fraction(Decimal(repr(value))), range(self.places + 1)
        place = bisect_left(every, number, key=self._edge_at)
        for near in every[max(place - 1, 0) : place + 2]:
            # A third is no JSON number: an edge is found by the nearest one too.
            if number in (edge := self._edge_at(near), Fraction(Decimal(repr(float(edge))))):
                return near
        told = listed((_plain(self._edge_at(i)) for i in every), len(every))
        raise self._refusal(f"{word} must fall on bin edges, which are {told}{self._cut(value)}")

    def _cut(self, value: Any) -> str:
        """Which bin a number cuts."""
        if not isinstance(value, int | float) or not self._low <= Fraction(value) <= self._high:
            return ""
        place = bisect_right(range(self.places + 1), Fraction(value), key=self._edge_at)
        place = min(place - 1, self.places - 1)
        return f" ({value:g} lies in {self._interval(place, place + 1)})"

    def _called(self, members: IntArray) -> Label:
        return self._ranges(members)

    def _interval(self, first: int, stop: int) -> str:
        closing = "]" if stop == self.places else ")"
        return f"[{_plain(self._edge_at(first))}, {_plain(self._edge_at(stop))}{closing}"


class _Numbers(_Fine):
    """Numbers on a grid."""

    def __init__(self, attribute: Attribute) -> None:
        super().__init__(attribute)
        self._low, self._high = attribute.bounds
        self._step = attribute.step

    @lazy
    def _begins(self) -> IntArray | None:
        count = self.attribute.bin_count
        if not count:
            return None
        edge_at = self.attribute.edge_at()
        return np.fromiter((self._first(edge_at(i)) for i in range(count)), np.int64, count)

    def _first(self, number: Fraction) -> int:
        """The place of the first number of the grid that is no less, or the one behind the last."""
        return min(max(0, -int((self._low - number) // self._step)), self.places)

    def _number(self, value: Any, word: str) -> Fraction:
        if not isinstance(value, int | float):
            raise self._refusal(f"{word} needs numbers")
        return Fraction(Decimal(repr(value)))

    def _span(self, value: Any) -> tuple[int, int]:
        number = self._number(value, "a condition")
        place = (number - self._low) / self._step
        if not 0 <= place < self.places:
            raise self._refusal(f"numbers lie from {_plain(self._low)} to {_plain(self._high)}")
        if place.denominator != 1:
            below = self._low + int(place) * self._step
            raise self._refusal(
                f"{value!r} is not on the grid of {_plain(self._step)}: {_plain(below)} and "
                f"{_plain(below + self._step)} are"
            )
        return int(place), int(place) + 1

    def _between(self, low: Any, high: Any) -> tuple[int, int]:
        return self._edge_place(low, last=False), self._edge_place(high, last=True)

    def _from(self, value: Any, word: str) -> int:
        return self._first(self._number(value, word))

    def _behind(self, value: Any, word: str) -> int:
        number = self._number(value, word)
        return min(max(0, int((number - self._low) // self._step) + 1), self.places)

    def _edge_place(self, edge: Any, *, last: bool) -> int:
        number = self._number(edge, "a range")
        # Half-open as any bin, but the upper bound belongs to the last one.
        return self.places if last and number == self._high else self._first(number)

    def _called(self, members: IntArray) -> Label:
        return _json(self._low + int(members[0]) * self._step)

    def _interval(self, first: int, stop: int) -> str:
        low = self._low + first * self._step
        if stop == self.places:
            return f"[{_plain(low)}, {_plain(self._high)}]"
        return f"[{_plain(low)}, {_plain(self._low + stop * self._step)})"


class _Dates(_Fine):
    """Days, months or years. A text may name more days than one place has (2020 of months), never fewer."""

    def __init__(self, attribute: Attribute) -> None:
        super().__init__(attribute)
        assert attribute.dates is not None
        self._zero = attribute.period(day(attribute.dates[0]))

    def _days(self, value: Any) -> tuple[datetime.date, datetime.date]:
        """The first and the last day of a text, or of a year."""
        text = str(value) if isinstance(value, str) or type(value) is int else ""
        if re.fullmatch(r"\d{4}", text) and text != "0000":
            return datetime.date(int(text), 1, 1), datetime.date(int(text), 12, 31)
        try:
            if re.fullmatch(r"\d{4}-\d{2}", text):
                first = day(f"{text}-01")
                return first, first.replace(day=calendar.monthrange(first.year, first.month)[1])
            return day(text), day(text)
        except ValueError:
            raise self._refusal("dates are written as 2020-01-31, 2020-01 or 2020") from None

    def _place(self, date: datetime.date) -> int:
        return self.attribute.period(date) - self._zero

    def _begin(self, value: Any) -> int:
        """The place that begins with the first day of a text."""
        first = self._days(value)[0]
        place = self._place(first)
        if self.attribute.begins(place + self._zero) != first:
            raise self._refusal(f"{value} would cut a {self.attribute.by}: dates are told apart by {self.attribute.by}")
        return place

    def _end(self, value: Any) -> int:
        """The place behind the one that ends with the last day of a text."""
        last = self._days(value)[1]
        place = self._place(last) + 1
        if last < datetime.date.max and self._place(last + datetime.timedelta(1)) != place:
            raise self._refusal(f"{value} would cut a {self.attribute.by}: dates are told apart by {self.attribute.by}")
        return place

    def _held(self, place: int) -> int:
        return min(max(place, 0), self.places)

    def _span(self, value: Any) -> tuple[int, int]:
        first, stop = self._begin(value), self._end(value)
        if not 0 <= first < stop <= self.places:
            assert self.attribute.dates is not None
            raise self._refusal("dates lie from {} to {}".format(*self.attribute.dates))
        return first, stop

    def _between(self, low: Any, high: Any) -> tuple[int, int]:
        return self._held(self._begin(low)), self._held(self._end(high))

    def _from(self, value: Any, word: str) -> int:
        return self._held(self._begin(value))

    def _behind(self, value: Any, word: str) -> int:
        return self._held(self._end(value))

    def _edge_place(self, edge: Any, *, last: bool) -> int:
        return self._held(self._begin(edge))

    def _called(self, members: IntArray) -> Label:
        return self._text(int(members[0]))

    def _interval(self, first: int, stop: int) -> str:
        return f"[{self._text(first)}, {self._text(stop)})"

    def _text(self, place: int) -> str:
        text = self.attribute.begins(place + self._zero).isoformat()
        return {"day": text, "month": text[:7], "year": text[:4]}[self.attribute.by or "day"]


def _quoted(value: int | str) -> str:
    return f"{value!r}"


def _runs(members: IntArray) -> list[tuple[int, int]]:
    """Sorted distinct places as ranges: the first of each, and the one behind its last."""
    breaks = np.flatnonzero(np.diff(members) > 1)
    starts = [int(members[0]), *members[breaks + 1].tolist()]
    stops = [*(members[breaks] + 1).tolist(), int(members[-1]) + 1]
    return list(zip(starts, stops, strict=True))


def _json(number: Fraction) -> int | float:
    """A number as JSON writes the nearest one."""
    return number.numerator if number.denominator == 1 else float(number)


def _plain(number: Fraction) -> str:
    return repr(_json(number))
