"""Tables: counts over a product of finite attributes, one axis an attribute."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Any, get_args

import numpy as np

from app.declarations.attributes import Attribute
from app.declarations.naming import unknown
from app.declarations.spec import DEFAULT_CAPACITY, TableSpec
from app.spaces import canonical, conditions, marginals
from app.spaces.compilation import CellSpace, axis_weights
from app.spaces.errors import InvalidQuery
from app.spaces.query import (
    MOST_LOCAL,
    Blobs,
    CompiledLocal,
    CompiledMarginal,
    CompiledProduct,
    CompiledZero,
    Query,
)
from app.spaces.query_request import (
    MarginalQuery,
    MeanQuery,
    PredicateQuery,
    ProductQuery,
    QuantileQuery,
    QueryRequest,
    SparseQuery,
    StatisticQuery,
    SumQuery,
    VarianceQuery,
    Where,
)
from app.spaces.statistics import CompiledStatistic, StatisticKind, answer_bits
from app.spaces.tensor import IntArray, Members, meeting
from app.spaces.values import Values, values_of

#: In the order of their kinds.
_STATISTICS = (SumQuery, MeanQuery, VarianceQuery, QuantileQuery)


@dataclass(frozen=True)
class TableSpace(CellSpace):
    """The universe of a table; neighbours differ in one record, or in those of one person."""

    attributes: tuple[Attribute, ...] = ()

    @cached_property
    def _axis(self) -> dict[str, tuple[int, Values]]:
        return {a.name: (i, values_of(a)) for i, a in enumerate(self.attributes)}

    def _named(self, name: str) -> tuple[int, Values]:
        found = self._axis.get(name)
        if found is None:
            raise InvalidQuery(unknown("attribute", name, self._axis, "the attributes are"))
        return found

    @cached_property
    def values(self) -> tuple[Values, ...]:
        return tuple(values for _, values in self._axis.values())

    @cached_property
    def starting(self) -> Mapping[int, IntArray]:
        """By axis where the cells begin that values are counted in at first, where these are not single values."""
        found = ((axis, values.starting()) for axis, values in self._axis.values())
        return {axis: cells for axis, cells in found if cells is not None}

    def looked_at(self, request: QueryRequest) -> int:
        if isinstance(request, SparseQuery | ProductQuery):
            # One weight of all cells alike is written out along an axis.
            return self.shape[canonical.carrier_of(self)]
        if not isinstance(request, PredicateQuery | MarginalQuery | StatisticQuery):
            return sum(self.shape)
        counted: list[str] = []
        if isinstance(request, MarginalQuery):
            counted = request.attributes
        elif isinstance(request, StatisticQuery):
            counted = [*request.group_by, request.of]
        looked_at = sum(self.shape[self._axis[name][0]] for name in counted if name in self._axis)
        if conditions.are_together(request.where):
            together = conditions.named(request.where) & self._axis.keys()
            # More combinations are refused before any is looked at.
            combinations = math.prod(self.shape[self._axis[name][0]] for name in together)
            looked_at += combinations if combinations <= MOST_LOCAL else 0
        return looked_at

    def compile(self, request: QueryRequest) -> Query:
        if isinstance(request, PredicateQuery):
            return self._predicate(request.where)
        if isinstance(request, MarginalQuery):
            return self._marginal(request)
        if isinstance(request, StatisticQuery):
            return self._statistic(request)
        if isinstance(request, ProductQuery):
            return self.product(
                {
                    self._named(n)[0]: axis_weights(w, self.shape[self._named(n)[0]], n)
                    for n, w in request.weights.items()
                }
            )
        return self.compile_cells(request)

    def _predicate(self, where: Where, there: Mapping[int, Members] = MappingProxyType({})) -> Query:
        """The records that satisfy conditions; for statistics, of those ``there``: by axis the values that count. (They
        are left to whoever answers where conditions of other attributes are no product.)
        """
        selected = conditions.selected(where, self._named)
        if selected is not None:
            return self.product(_within(selected, there))
        axes, selection = conditions.combinations(where, self._named)
        for axis, members in there.items():
            if axis in axes:
                counted = np.zeros(self.shape[axis], np.bool_)
                counted[members] = True
                selection &= counted.reshape([-1 if a == axis else 1 for a in axes])
        found = canonical.local_query(self, axes, selection)
        if not isinstance(found, CompiledProduct):
            return found
        kept = {i: axis.index for i, axis in enumerate(found.axes) if axis is not None}
        return self.product(_within(kept, there))

    def _marginal(self, request: MarginalQuery, there: Mapping[int, Members] = MappingProxyType({})) -> Query:
        axes = [self._named(name)[0] for name in request.attributes]
        marginals.check_values(self.shape, axes)
        edges = {axis: values.bins(request.bins[name]) for name in request.bins for axis, values in [self._named(name)]}
        selected = conditions.selected(request.where, self._named)
        if selected is not None:
            return marginals.compiled(self.values, axes, edges, _within(selected, there))
        among = conditions.combinations(request.where, self._named)
        return marginals.compiled(self.values, axes, edges, there, among)

    def _statistic(self, request: StatisticQuery) -> Query:
        axis, values = self._named(request.of)
        attribute, kind = values.attribute, get_args(StatisticKind)[_STATISTICS.index(type(request))]
        if attribute.kind != "numbers":
            raise InvalidQuery(
                f"{request.of}: a {kind} is of numbers on a grid, and this attribute is declared without one"
            )
        # Whatever its value is, there must be one.
        there: dict[int, Members] = {axis: slice(0, attribute.places)} if attribute.missing else {}
        if request.group_by:
            words = {"type": "marginal", "attributes": request.group_by, "bins": request.bins}
            asked = MarginalQuery.model_validate(words).model_copy(update={"where": request.where})
            try:
                base = self._marginal(asked, there)
            except marginals.SingleCell:
                raise InvalidQuery(
                    f"group_by: a single group is left: ask for its {kind} without group_by, by a condition in where"
                ) from None
        else:
            base = self._predicate(request.where, there)
        return self._statistic_of(kind, axis, base, request.levels if isinstance(request, QuantileQuery) else ())

    def _statistic_of(
        self, kind: StatisticKind, axis: int, base: Query, levels: tuple[float, ...]
    ) -> CompiledStatistic:
        attribute = self.attributes[axis]
        low, high = attribute.bounds
        bits = answer_bits(kind, low, high, self.capacity)
        return CompiledStatistic(kind, axis, low, attribute.step, attribute.places, base, levels, bits)

    def _read_canonical(self, form: Mapping[str, Any], blobs: Blobs) -> Query:
        if form["type"] == "marginal":
            return marginals.read(self.values, form)
        if form["type"] in get_args(StatisticKind):
            return self._read_statistic(form, blobs)
        return super()._read_canonical(form, blobs)

    def _read_statistic(self, form: Mapping[str, Any], blobs: Blobs) -> Query:
        axis, levels = form["of"], tuple(float(level) for level in form.get("q", ()))
        if type(axis) is not int or not 0 <= axis < len(self.attributes) or self.attributes[axis].kind != "numbers":
            raise InvalidQuery("a canonical statistic is of an attribute on a grid")
        if (form["type"] == "quantile") != bool(levels) or not all(
            low < level < high for low, level, high in zip((0.0, *levels), levels, (*levels[1:], 1.0), strict=False)
        ):
            raise InvalidQuery("canonical levels are out of range")
        base = self._read_canonical(form["base"], blobs)
        if not isinstance(base, CompiledMarginal | CompiledProduct | CompiledLocal | CompiledZero) or base.grid_bits:
            raise InvalidQuery("a canonical statistic is of counted records")
        return self._statistic_of(form["type"], axis, base, levels)


def _within(selected: Mapping[int, Members], there: Mapping[int, Members]) -> dict[int, Members]:
    """By axis the values that are selected, of some axes those alone that are there."""
    found = dict(selected)
    for axis, members in there.items():
        found[axis] = meeting(found[axis], members) if axis in found else members
    return found


def table_space(spec: TableSpec) -> TableSpace:
    """The space of a declared table, whatever its size."""
    shape = tuple(a.length for a in spec.attributes)
    return TableSpace(
        kind="table",
        shape=shape,
        names=tuple(a.name for a in spec.attributes),
        capacity=spec.capacity or DEFAULT_CAPACITY,
        attributes=spec.attributes,
        unit=Fraction(1 if spec.unit is None else spec.unit.max_records),
    )
