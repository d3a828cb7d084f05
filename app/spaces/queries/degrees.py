"""Degrees of a graph without weights: how many of its nodes have how many edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, StrictInt
from pydantic import field_validator as _field_validator

from app.spaces.counts import LineSums, Tally
from app.spaces.errors import InvalidQuery
from app.spaces.graph import GraphSpace
from app.spaces.lazy import lazy
from app.spaces.queries.forms import Form, Whole
from app.spaces.queries.request import Request, does_not_fit
from app.spaces.query import Query
from app.spaces.space import Space
from app.spaces.tensor import IntArray

#: What the sides of a graph are called that nodes are counted on: as ends of edges, and as units of privacy.
_SIDES = (("left", "out", "source"), ("right", "in", "target"))


class DegreesQuery(Request):
    """How many nodes of a graph without weights have a degree in each bin."""

    type: Literal["degrees"]
    tabled = True
    side: Literal["left", "right", "out", "in"] | None = Field(
        default=None,
        description="whose degrees; of a directed graph out is left and in is right, of an undirected "
        "graph it is left out",
    )
    bins: Annotated[list[StrictInt], Field(fail_fast=True)] | None = Field(
        default=None,
        min_length=2,
        max_length=1 << 16,
        description="the least degree of each bin, ascending from 0, the last bin without end; doubling where it is "
        "left out",
    )

    @_field_validator("bins")
    @classmethod
    def _from_none(cls, value: list[int] | None) -> list[int] | None:
        if value is not None and (value[0] != 0 or any(b <= a for a, b in pairwise(value))):
            raise ValueError("bins ascend from 0")
        return value

    def compiled(self, space: Space) -> Query:
        if not isinstance(space, GraphSpace):
            raise does_not_fit(self.type, space)
        _check_degrees(space)
        axis, sides = 0, ("left", "right") if space.kind == "bipartite" else ("out", "in", "left", "right")
        if space.symmetric and self.side is not None:
            raise InvalidQuery("side: an undirected graph has one degree a node: leave it out")
        if not space.symmetric:
            if self.side not in sides:
                raise InvalidQuery(f"side: say of which nodes: {', '.join(sides)}")
            axis = int(self.side in _SIDES[1])
        most = _most(space, axis)
        edges = [0, *(1 << power for power in range(most.bit_length()))] if self.bins is None else self.bins
        return _checked(space, axis, edges)

    @classmethod
    def read(cls, space: Space, form: Mapping[str, Any]) -> Query | None:
        if not isinstance(space, GraphSpace):
            return None
        _check_degrees(space)
        said = _DegreesForm.read(form)
        axis, edges = said.axis, said.bins
        if axis >= (1 if space.symmetric else 2):
            raise InvalidQuery("a canonical axis is out of range")
        if edges[0] != 0 or any(b <= a for a, b in pairwise(edges)):
            raise InvalidQuery("canonical bins are out of range or order")
        return _checked(space, axis, edges)


class _DegreesForm(Form):
    axis: Whole
    bins: list[Whole] = Field(min_length=2)


@dataclass(frozen=True, eq=False)
class CompiledDegrees(Query):
    """How many nodes of one side have a degree in each bin.

    It is no sum with weights: an edge moves nodes from one bin to another. Nodes are public, so the numbers always add
    up to how many there are.

    Attributes:
        axis: of the side: 0 for rows (the left, sources), 1 for columns. Of an undirected graph 0.
        edges: the least degree of each bin, ascending from 0; a bin reaches up to the next one, the last has no end.
        nodes: how many there are on the side.
        symmetric: whether the graph is undirected.
    """

    axis: int
    edges: tuple[int, ...]
    nodes: int
    symmetric: bool = False

    only = "degrees are answered by sessions whose mechanism is evidence: open one"

    grid_bits = 0
    rounding = 0.0

    @property
    def numbers(self) -> int:  # type: ignore[override]
        return len(self.edges)

    @property
    def tallies(self) -> tuple[Tally, ...]:
        return (LineSums(self.axis),)

    def exact_of(self, told: Sequence[Any]) -> IntArray:
        degrees = np.asarray(told[0])
        bins = np.searchsorted(np.array(self.edges), degrees, side="right") - 1
        return np.bincount(bins, minlength=self.numbers).astype(np.int64)

    def sensitivity(self, gamma: int, unit_side: str | None = None) -> int:
        """The most nodes that are in different bins for neighbouring data sets.

        An edge that is added or removed changes the degree of one node of a side, of an undirected graph that of two.
        So gamma of them move at most gamma nodes, or 2 gamma; and never more than there are. Where the unit is a node
        of the asked side, all of these edges are that node's own: only its degree changes, however far.

        Args:
            gamma: by how many edges neighbouring data sets may differ, at least 1.
            unit_side: the side of the nodes that are the unit of privacy, all edges of a unit being at one of them;
                None where the unit is an edge.
        """
        if not self.symmetric and unit_side in _SIDES[self.axis]:
            return 1
        return min(self.nodes, gamma * (2 if self.symmetric else 1))

    def l1(self, gamma: int, unit_side: str | None = None) -> int:
        """By how much the numbers of neighbouring data sets may differ in L1.

        A node that moves leaves one bin and enters another: 2 a node, and by the triangle inequality no more for
        several. It is met: nodes of one degree on the upper end of a bin all gain an edge.
        """
        return 2 * self.sensitivity(gamma, unit_side)

    def squared(self, gamma: int, unit_side: str | None = None) -> int:
        """By how much they may differ in L2, squared.

        The difference is a sum of vectors with one -1 and one 1, one a node that moves, each of length sqrt 2. So k
        nodes move it by at most k sqrt 2, as they do where all of them leave one bin for the same other one.
        """
        return 2 * self.sensitivity(gamma, unit_side) ** 2

    @lazy
    def canonical(self) -> dict[str, Any]:
        return {"axis": self.axis, "bins": list(self.edges), "type": "degrees"}

    @lazy
    def labels(self) -> list[dict[str, Any]]:
        """One axis: the degrees of each bin, such as ``0``, ``2-4`` and ``10+``."""
        ends = [str(low) if high == low + 1 else f"{low}-{high - 1}" for low, high in pairwise(self.edges)]
        return [{"attribute": "degree", "labels": [*ends, f"{self.edges[-1]}+"]}]


def _most(space: GraphSpace, axis: int) -> int:
    """The largest degree that a node can have."""
    return space.shape[1 - axis] - (not space.loops)


def _checked(space: GraphSpace, axis: int, edges: Sequence[int]) -> CompiledDegrees:
    most = _most(space, axis)
    if edges[-1] > most:
        raise InvalidQuery(f"bins: no node of this side has more than {most:,} neighbours: leave out what begins above")
    return CompiledDegrees(axis, tuple(edges), space.shape[axis], space.symmetric)


def _check_degrees(space: GraphSpace) -> None:
    """Refuse degrees that are no whole numbers.

    Raises:
        InvalidQuery: naming what serves.
    """
    if space.data_bits:
        raise InvalidQuery(
            "degrees are of graphs without weights, where they are whole numbers: ask for sums of weights with "
            "blocks or cuts"
        )
