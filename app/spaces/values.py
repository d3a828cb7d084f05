"""The values of one attribute of a table: which of them conditions and bins select, and what groups of them are called.

A condition selects whole values or bins, never a part of one: what would cut a bin is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from app.spaces.errors import InvalidQuery
from app.spaces.query_request import Condition
from app.spaces.spec import Attribute
from app.spaces.tensor import IntArray

#: What a cell of an answer is called: a declared value, a code, or a range of either.
Label = int | str


class Values:
    """Finds the values of one attribute that are asked for."""

    def __init__(self, attribute: Attribute) -> None:
        self.attribute = attribute
        self._edges: dict[Fraction, int] = {}
        self._codes: dict[Any, int] = {}
        self._places: list[Fraction] = []
        if attribute.numeric:
            edges = self._places = attribute.bin_edges()
            # A third is no JSON number: an edge is found by the nearest one too.
            self._edges = {Fraction(Decimal(repr(float(edge)))): i for i, edge in enumerate(edges)}
            self._edges |= {edge: i for i, edge in enumerate(edges)}
            # A bin one integer wide is that integer; the last bin is closed and so is two integers wide.
            whole = all(e.denominator == 1 for e in edges) and all(b - a == 1 for a, b in pairwise(edges))
            if whole:
                self._codes = {int(edge): i for i, edge in enumerate(edges[:-2])}
        elif attribute.values is not None:
            self._codes = {value: i for i, value in enumerate(attribute.values)}

    def members(self, condition: Condition) -> IntArray:
        """Sorted values that satisfy a condition.

        Raises:
            InvalidQuery: when it does not fit the attribute, or no range is left.
        """
        if condition.equals is not None:
            return np.array([self._code(condition.equals)], dtype=np.int64)
        if condition.in_ is not None:
            size, codes = self.attribute.size, {value for value in condition.in_ if type(value) is int}
            # Codes as they should be are themselves; any other list is looked up, and refused, value by value.
            if size is None or len(codes) < len(condition.in_) or min(codes) < 0 or max(codes) >= size:
                codes = {self._code(value) for value in condition.in_}
            return np.array(sorted(codes), dtype=np.int64)
        first, stop = self._range(condition)
        if first >= stop:
            raise InvalidQuery(f"{self.attribute.name}: the range is reversed or empty")
        return np.arange(first, stop, dtype=np.int64)

    def bins(self, edges: Sequence[Any]) -> IntArray:
        """Places of the edges of coarser bins: of a numeric attribute among its declared edges, of codes themselves.

        Raises:
            InvalidQuery: when they do not ascend, or one is none of these.
        """
        name, size = self.attribute.name, self.attribute.size
        if size is not None:
            if any(type(edge) is not int or not 0 <= edge <= size for edge in edges):
                raise InvalidQuery(f"{name}: bins of codes have the integers 0..{size} as edges")
            places = list(edges)
        elif self.attribute.numeric:
            places = [self._edge(edge, "bins") for edge in edges]
        else:
            raise InvalidQuery(f"{name}: bins need numeric values or codes")
        if any(b <= a for a, b in pairwise(places)):
            raise InvalidQuery(f"{name}: the edges of bins must ascend")
        return np.array(places, dtype=np.int64)

    def labels(self, cells: Sequence[IntArray]) -> tuple[Label, ...]:
        """What groups of values are called, each given by its sorted members.

        Single values are called by themselves, single codes by their number. Bins, and groups of codes, are called by
        their range: ``[15, 30)``, the last declared bin ``[90, 95]``; where members are not contiguous, by the ranges
        that make them up.
        """
        if self.attribute.values is not None:
            values = self.attribute.values
            return tuple(values[int(m[0])] if len(m) == 1 else ", ".join(str(values[int(i)]) for i in m) for m in cells)
        if self.attribute.size is not None and all(len(m) == 1 for m in cells):
            return tuple(int(m[0]) for m in cells)
        return tuple(", ".join(self._interval(a, b) for a, b in _runs(m)) for m in cells)

    def _interval(self, first: int, stop: int) -> str:
        """The range of the values from one place up to another."""
        if self.attribute.size is not None:
            return f"[{first}, {stop})"
        closing = "]" if stop == self.attribute.length else ")"
        return f"[{_plain(self._places[first])}, {_plain(self._places[stop])}{closing}"

    def _range(self, condition: Condition) -> tuple[int, int]:
        """The first of the values in a range, and the one behind its last."""
        name = self.attribute.name
        if not self.attribute.numeric and self.attribute.size is None:
            word = "between needs" if condition.between is not None else "comparisons need"
            raise InvalidQuery(f"{name}: {word} numeric values or codes; use in")
        if condition.between is not None:
            low, high = condition.between
            if self.attribute.numeric:
                return self._edge(low, "between"), self._edge(high, "between")
            return self._code(low), self._code(high) + 1
        first, stop = 0, self.attribute.length
        if condition.ge is not None:
            first = self._from(condition.ge, "ge")
        if condition.gt is not None:
            first = self._behind(condition.gt, "gt")
        if condition.lt is not None:
            stop = self._from(condition.lt, "lt")
            if self.attribute.numeric and stop == self.attribute.length:
                raise InvalidQuery(f"{name}: the last bin holds its upper edge, which lt would leave out: use le")
        if condition.le is not None:
            stop = self._behind(condition.le, "le")
        return first, stop

    def _from(self, value: Any, word: str) -> int:
        """The place of the first value that is at least this one, which must begin there."""
        if self.attribute.numeric:
            return self._edge(value, word)
        return self.attribute.length if value == self.attribute.length else self._code(value)

    def _behind(self, value: Any, word: str) -> int:
        """The place of the first value that is above this one, which must begin there."""
        if not self.attribute.numeric:
            return self._code(value) + 1
        if value in self._codes:
            return int(self._codes[value]) + 1
        if self._edge(value, word) < self.attribute.length:
            raise InvalidQuery(f"{self.attribute.name}: {word} would cut a bin: use ge and lt with bin edges")
        return self.attribute.length

    def _code(self, value: Any) -> int:
        name = self.attribute.name
        if self.attribute.size is not None:
            if not isinstance(value, int) or not 0 <= value < self.attribute.size:
                raise InvalidQuery(f"{name}: codes are the integers 0..{self.attribute.size - 1}")
            return value
        found = self._codes.get(value)
        if found is None:
            if self.attribute.numeric:
                raise InvalidQuery(f"{name}: a single value would cut a bin: use between with bin edges")
            raise InvalidQuery(f"{name}: not one of the declared values")
        return found

    def _edge(self, value: Any, word: str) -> int:
        name = self.attribute.name
        if isinstance(value, str):
            raise InvalidQuery(f"{name}: {word} needs numbers")
        found = self._edges.get(Fraction(Decimal(repr(value))))
        if found is None:
            edges = [float(e) for e in list(self._edges)[:4]]
            raise InvalidQuery(f"{name}: {word} must fall on bin edges, which begin {edges}")
        return found


def _runs(members: IntArray) -> list[tuple[int, int]]:
    """Sorted distinct places as ranges: the first of each, and the one behind its last."""
    breaks = np.flatnonzero(np.diff(members) > 1)
    starts = [int(members[0]), *members[breaks + 1].tolist()]
    stops = [*(members[breaks] + 1).tolist(), int(members[-1]) + 1]
    return list(zip(starts, stops, strict=True))


def _plain(edge: Fraction) -> str:
    """An edge as JSON writes the nearest number."""
    return str(edge.numerator) if edge.denominator == 1 else repr(float(edge))
