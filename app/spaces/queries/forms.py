"""Canonical forms as they are read: what is none of the words of its kind is refused before anything is made of it.

Words beyond those are seen afterwards, where the query's own form differs from the one that was read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Annotated, Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, StrictInt, ValidationError

from app.spaces.errors import InvalidQuery
from app.spaces.partition import read_integers
from app.spaces.queries.linear import MOST_LOCAL
from app.spaces.tensor import Array, IntArray, Members, count_of

#: A list of 64-bit integers, one or more.
Integers = Annotated[IntArray, PlainValidator(read_integers)]
Whole = Annotated[StrictInt, Field(ge=0)]


class Form(BaseModel):
    """The words of a form, or of a part of one."""

    model_config = ConfigDict(frozen=True)

    @classmethod
    def read(cls, form: Mapping[str, Any]) -> Self:
        """The form that any JSON is.

        Raises:
            InvalidQuery: when it is none.
        """
        try:
            return cls.model_validate(form)
        except ValidationError:
            raise InvalidQuery("not a canonical query") from None


def kind_of(form: Any) -> str:
    """The type that any JSON says it is a form of.

    Raises:
        InvalidQuery: when it says none.
    """
    kind = form.get("type") if isinstance(form, Mapping) else None
    if not isinstance(kind, str):
        raise InvalidQuery("not a canonical query")
    return kind


class Along(Form):
    """A form of the values along an axis: those that are meant, the cell of each, or the weight of each."""

    range: tuple[StrictInt, StrictInt] | None = None
    among: Integers | None = Field(default=None, alias="in")
    edges: Integers | None = None
    cells: Integers | None = None
    weights: Integers | None = None
    bits: Whole = 0

    def members(self, length: int) -> Members:
        """The distinct values that a range or a list names.

        Raises:
            InvalidQuery: when there are none, or they are out of range or order.
        """
        if self.range is None:
            return ascending(said(self.among), length)
        start, stop = self.range
        if not 0 <= start < stop <= length:
            raise InvalidQuery("canonical indices are out of range")
        return slice(start, stop)

    def labels(self, length: int) -> IntArray:
        """The cell of each value, -1 where it is not counted; some value is.

        Raises:
            InvalidQuery: when they are out of range or order, or nothing is counted.
        """
        labels = np.full(length, -1, dtype=np.int64)
        if self.cells is not None:
            labels = self.cells
            if labels.shape != (length,) or labels.min() < -1:
                raise InvalidQuery("canonical cells are out of range")
        elif self.edges is not None:
            edges = ascending(self.edges, length + 1)
            labels[edges[0] : edges[-1]] = np.repeat(np.arange(len(edges) - 1), np.diff(edges))
        else:
            members = self.members(length)
            labels[members] = np.arange(count_of(members))
        if labels.max() < 0:
            raise InvalidQuery("canonical cells hold nothing")
        return labels


class Combinations(Form):
    """Which combinations of some attributes' values are selected, as the ends of the ranges that they make up."""

    axes: list[Whole] = Field(min_length=1)
    ranges: Integers

    def selection(self, universe: Sequence[int]) -> Array:
        """For each combination whether it is selected.

        Raises:
            InvalidQuery: when they are out of range or order.
        """
        if max(self.axes) >= len(universe) or any(second <= first for first, second in pairwise(self.axes)):
            raise InvalidQuery("canonical axes are out of range or order")
        shape = [universe[axis] for axis in self.axes]
        cells = math.prod(shape)
        if cells > MOST_LOCAL or len(self.ranges) % 2:
            raise InvalidQuery("canonical ranges are out of range")
        steps = np.zeros(cells + 1, dtype=np.int64)
        steps[ascending(self.ranges, cells + 1)] = np.where(np.arange(len(self.ranges)) % 2, -1, 1)
        selection: Array = np.cumsum(steps[:-1]).astype(bool).reshape(shape)
        return selection


def said(words: IntArray | None) -> IntArray:
    """The fields that must be given.

    Raises:
        InvalidQuery: when it is not.
    """
    if words is None:
        raise InvalidQuery("not a canonical query")
    return words


def ascending(places: IntArray, length: int) -> IntArray:
    """Distinct places below a length.

    Raises:
        InvalidQuery: when they are out of range or order.
    """
    if places.min() < 0 or places.max() >= length or bool((np.diff(places) <= 0).any()):
        raise InvalidQuery("canonical indices are out of range or order")
    return places
