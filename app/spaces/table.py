"""Tables: counts over a product of finite attributes, one axis an attribute."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from app.spaces.compilation import CellSpace, axis_weights
from app.spaces.errors import InvalidQuery
from app.spaces.query import Query
from app.spaces.query_request import Condition, PredicateQuery, ProductQuery, QueryRequest
from app.spaces.spec import DEFAULT_CAPACITY, Attribute, TableSpec
from app.spaces.tensor import IntArray


class _Values:
    """Finds the cells of one attribute that a condition selects."""

    def __init__(self, attribute: Attribute) -> None:
        self.attribute = attribute
        self._edges: dict[Fraction, int] = {}
        self._codes: dict[Any, int] = {}
        if attribute.numeric:
            edges = attribute.bin_edges()
            # A third is no JSON number: an edge is found by the nearest one too.
            self._edges = {Fraction(Decimal(repr(float(edge)))): i for i, edge in enumerate(edges)}
            self._edges |= {edge: i for i, edge in enumerate(edges)}
            # A bin one integer wide is that integer; the last bin is closed and so is two integers wide.
            whole = all(e.denominator == 1 for e in edges) and all(b - a == 1 for a, b in pairwise(edges))
            if whole:
                self._codes = {int(edge): i for i, edge in enumerate(edges[:-2])}
        elif attribute.values is not None:
            self._codes = {value: i for i, value in enumerate(attribute.values)}

    def code(self, value: Any) -> int:
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

    def _edge(self, value: Any) -> int:
        name = self.attribute.name
        if isinstance(value, str):
            raise InvalidQuery(f"{name}: between needs numbers")
        found = self._edges.get(Fraction(Decimal(repr(value))))
        if found is None:
            edges = [float(e) for e in list(self._edges)[:4]]
            raise InvalidQuery(f"{name}: between must fall on bin edges, which begin {edges}")
        return found

    def members(self, condition: Condition) -> IntArray:
        """Sorted cells that satisfy the condition."""
        if condition.equals is not None:
            return np.array([self.code(condition.equals)], dtype=np.int64)
        if condition.in_ is not None:
            size, codes = self.attribute.size, {value for value in condition.in_ if type(value) is int}
            # Codes as they should be are themselves; any other list is looked up, and refused, value by value.
            if size is None or len(codes) < len(condition.in_) or min(codes) < 0 or max(codes) >= size:
                codes = {self.code(value) for value in condition.in_}
            return np.array(sorted(codes), dtype=np.int64)
        assert condition.between is not None
        low, high = condition.between
        name = self.attribute.name
        if self.attribute.numeric:
            first, last = self._edge(low), self._edge(high)
        elif self.attribute.size is not None:
            first, last = self.code(low), self.code(high) + 1
        else:
            raise InvalidQuery(f"{name}: between needs numeric values or codes; use in")
        if first >= last:
            raise InvalidQuery(f"{name}: the range is reversed or empty")
        return np.arange(first, last, dtype=np.int64)


@dataclass(frozen=True)
class TableSpace(CellSpace):
    """The universe of a table; neighbours differ in one record."""

    attributes: tuple[Attribute, ...] = ()

    @cached_property
    def _axis(self) -> dict[str, tuple[int, _Values]]:
        return {a.name: (i, _Values(a)) for i, a in enumerate(self.attributes)}

    def _named(self, name: str) -> tuple[int, _Values]:
        found = self._axis.get(name)
        if found is None:
            known = ", ".join(list(self._axis)[:8])
            raise InvalidQuery(f"unknown attribute {name[:64]!r}: the attributes are {known}")
        return found

    def compile(self, request: QueryRequest) -> Query:
        if isinstance(request, PredicateQuery):
            given = {}
            for name, condition in request.where.items():
                axis, values = self._named(name)
                given[axis] = values.members(condition)
            return self.product(given)
        if isinstance(request, ProductQuery):
            return self.product(
                {
                    self._named(n)[0]: axis_weights(w, self.shape[self._named(n)[0]], n)
                    for n, w in request.weights.items()
                }
            )
        return self.compile_cells(request)


def table_space(spec: TableSpec) -> TableSpace:
    """The space of a declared table, whatever its size."""
    shape = tuple(a.length for a in spec.attributes)
    return TableSpace(
        kind="table",
        shape=shape,
        names=tuple(a.name for a in spec.attributes),
        capacity=spec.capacity or DEFAULT_CAPACITY,
        attributes=spec.attributes,
    )
