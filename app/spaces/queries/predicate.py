"""Records that satisfy conditions, or weighed by their values, of a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import numpy as np

from app.declarations.conditions import Where
from app.spaces.queries import canonical, conditions
from app.spaces.queries.linear import MOST_LOCAL, CompiledProduct
from app.spaces.queries.request import Request, Weights, does_not_fit
from app.spaces.queries.weights import axis_weights, product
from app.spaces.query import Query
from app.spaces.space import Space
from app.spaces.table import TableSpace
from app.spaces.tensor import Members, meeting


class PredicateQuery(Request):
    """How many records satisfy every condition."""

    type: Literal["predicate"]
    where: Where

    def compiled(self, space: Space) -> Query:
        if not isinstance(space, TableSpace):
            raise does_not_fit(self.type, space)
        return predicate(space, self.where)

    def looked_at(self, space: Space) -> int:
        return values_looked_at(space, self.where)


class ProductQuery(Request):
    """A weight vector for each named attribute; the others weigh one.

    The noise and the error bound are the same whatever the weights: for a mean ask the sum, with weights up to 1, and
    divide its value and its error bound.
    """

    type: Literal["product"]
    weights: dict[str, Weights]

    def compiled(self, space: Space) -> Query:
        if not isinstance(space, TableSpace):
            raise does_not_fit(self.type, space)
        weights = {}
        for name, given in self.weights.items():
            axis, _ = space.named(name)
            weights[axis] = axis_weights(given, space.shape[axis], name)
        return product(space, weights)

    def looked_at(self, space: Space) -> int:
        # One weight of all cells alike is written out along an axis.
        return space.shape[canonical.carrier_of(space)] if space.kind == "table" else super().looked_at(space)


def predicate(space: TableSpace, where: Where, there: Mapping[int, Members] = MappingProxyType({})) -> Query:
    """The records that satisfy conditions; for statistics, of those ``there``: by axis the values that count. (They
    are left to whoever answers where conditions of other attributes are no product.)
    """
    selected = conditions.selected(where, space.named)
    if selected is not None:
        return product(space, within(selected, there))
    axes, selection = conditions.combinations(where, space.named)
    for axis, members in there.items():
        if axis in axes:
            counted = np.zeros(space.shape[axis], np.bool_)
            counted[members] = True
            selection &= counted.reshape([-1 if a == axis else 1 for a in axes])
    found = canonical.local_query(space, axes, selection)
    if not isinstance(found, CompiledProduct):
        return found
    kept = {i: axis.index for i, axis in enumerate(found.axes) if axis is not None}
    return product(space, within(kept, there))


def values_looked_at(space: Space, where: Where, counted: Sequence[str] = ()) -> int:
    """The most values that records are looked at by: those of attributes by which they are counted, and combinations of
    those that conditions name together.
    """
    lengths = dict(zip(space.names, space.shape, strict=True))
    if space.kind != "table":
        return sum(space.shape)
    looked_at = sum(lengths[name] for name in counted if name in lengths)
    if conditions.are_together(where):
        # More combinations are refused before any is looked at.
        combinations = math.prod(lengths[name] for name in conditions.named(where) & lengths.keys())
        looked_at += combinations if combinations <= MOST_LOCAL else 0
    return looked_at


def within(selected: Mapping[int, Members], there: Mapping[int, Members]) -> dict[int, Members]:
    """By axis the values that are selected, of some axes those alone that are there."""
    found = dict(selected)
    for axis, members in there.items():
        found[axis] = meeting(found[axis], members) if axis in found else members
    return found
