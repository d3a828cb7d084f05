"""Tables: counts over a product of finite attributes, one axis an attribute."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from app.declarations.attributes import Attribute
from app.declarations.naming import unknown
from app.declarations.spec import DEFAULT_CAPACITY, TableSpec
from app.spaces.errors import InvalidQuery
from app.spaces.space import Space
from app.spaces.tensor import IntArray
from app.spaces.values import Values, values_of
from app.spaces.zeros import NO_ZEROS, Zeros


@dataclass(frozen=True)
class TableSpace(Space):
    """The universe of a table; neighbours differ in one record, or in those of one person."""

    attributes: tuple[Attribute, ...] = ()
    #: What is declared not to occur.
    zeros: Zeros = field(default=NO_ZEROS, compare=False)

    @cached_property
    def _axis(self) -> dict[str, tuple[int, Values]]:
        return {a.name: (i, values_of(a)) for i, a in enumerate(self.attributes)}

    def named(self, name: str) -> tuple[int, Values]:
        """The axis and the values of an attribute.

        Raises:
            InvalidQuery: when there is none of this name.
        """
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
