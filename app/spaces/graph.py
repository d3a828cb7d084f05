"""Graphs: bipartite, directed and undirected, as adjacency matrices with weights in [0, 1]."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

import numpy as np

from app.declarations.naming import cut
from app.declarations.spec import BipartiteSpec, GraphSpec, OneSide, Sources
from app.spaces import blocks, canonical, degrees
from app.spaces.compilation import CellSpace, axis_members, axis_weights, check_weights, distinct
from app.spaces.errors import InvalidQuery
from app.spaces.query import Blobs, CompiledZero, Query
from app.spaces.query_request import BlocksQuery, CutQuery, DegreesQuery, Node, QueryRequest, RankOneQuery
from app.spaces.space import check_cells
from app.spaces.tensor import FloatArray, Members


@dataclass(frozen=True)
class GraphSpace(CellSpace):
    """The universe of a graph: ordered pairs of nodes, or unordered ones where it is undirected.

    Neighbours differ in one edge, or in the edges of one node of a side.
    """

    labels: tuple[tuple[str, ...] | None, tuple[str, ...] | None] = (None, None)

    @property
    def largest(self) -> Fraction:
        """Weights lie in [0, 1]."""
        return Fraction(1)

    @cached_property
    def _positions(self) -> tuple[dict[str, int] | None, dict[str, int] | None]:
        left, right = ({v: i for i, v in enumerate(side)} if side is not None else None for side in self.labels)
        return left, right

    def _nodes(self, asked: Literal["all"] | Sequence[Node], side: int, name: str) -> Members:
        """Distinct node numbers of one side, which a refusal names."""
        positions = self._positions[side]
        if positions is not None and asked != "all":
            try:
                numbers = [positions[v] for v in asked]  # type: ignore[index]
            except KeyError:
                raise InvalidQuery(f"{name}: not one of the declared labels") from None
            return distinct(np.array(numbers, dtype=np.int64), self.shape[side])
        return axis_members(asked, self.shape[side], f"{name}: nodes")

    def compile(self, request: QueryRequest) -> Query:
        if isinstance(request, CutQuery):
            left, right = self._nodes(request.left, 0, "left"), self._nodes(request.right, 1, "right")
            if self.symmetric:
                return canonical.pair_query(self, left, right, bits=0, rounding=0.0)
            return self.product({0: left, 1: right})
        if isinstance(request, RankOneQuery):
            u = axis_weights(request.left, self.shape[0], "left")
            v = axis_weights(request.right, self.shape[1], "right")
            return self._undirected_rank_one(u, v) if self.symmetric else self.product({0: u, 1: v})
        if isinstance(request, BlocksQuery):
            alike = self.kind == "graph"
            return blocks.compiled(request, self._side(0), self._side(1), alike=alike, symmetric=self.symmetric)
        if isinstance(request, DegreesQuery):
            self._check_degrees()
            return degrees.compiled(request, self._sides, kind=self.kind, symmetric=self.symmetric)
        return self.compile_cells(request)

    @property
    def _sides(self) -> tuple[int, int]:
        """How many nodes there are on each."""
        rows, columns = self.shape
        return rows, columns

    def _side(self, side: int) -> blocks.Side:
        labels = self.labels[side]
        return blocks.Side(
            self.shape[side],
            lambda asked, name: self._nodes(asked, side, name),
            lambda node: str(node) if labels is None else repr(cut(labels[node])),
        )

    def _check_degrees(self) -> None:
        """Refuse degrees that are no whole numbers.

        Raises:
            InvalidQuery: naming what serves.
        """
        if self.data_bits:
            raise InvalidQuery(
                "degrees are of graphs without weights, where they are whole numbers: ask for sums of weights with "
                "blocks or cuts"
            )

    def _read_canonical(self, form: Mapping[str, Any], blobs: Blobs) -> Query:
        if form["type"] == "blocks":
            return blocks.read(self._sides, form, symmetric=self.symmetric)
        if form["type"] == "degrees":
            self._check_degrees()
            return degrees.read(form, self._sides, kind=self.kind, symmetric=self.symmetric)
        return super()._read_canonical(form, blobs)

    def _undirected_rank_one(self, u: FloatArray, v: FloatArray) -> Query:
        check_weights(u, low=0.0)
        check_weights(v, low=0.0)
        if not u.any() or not v.any():
            return CompiledZero(self.shape)
        if bool(np.all((u == 0) | (u == 1)) and np.all((v == 0) | (v == 1))):
            return canonical.pair_query(self, np.flatnonzero(u), np.flatnonzero(v), bits=0, rounding=0.0)
        bits = self.axis_bits(2)
        sides = [np.rint(np.ldexp(side, bits)) for side in (u, v)]
        errors = [
            float(np.abs(side - np.ldexp(asked, bits)).max()) * 2.0**-bits
            for side, asked in zip(sides, (u, v), strict=True)
        ]
        # Each side enters twice and w = u*v, off by both errors and its own rounding up, twice again.
        own = 0.0 if bool(np.all(u * v == 0)) else 2.0**-bits
        rounding = 2 * (errors[0] + errors[1]) + 2 * (errors[0] + errors[1] + own)
        return canonical.pair_query(self, *(side.astype(np.int64) for side in sides), bits=bits, rounding=rounding)


def bipartite_space(spec: BipartiteSpec) -> GraphSpace:
    """The space of a declared bipartite graph.

    Raises:
        InvalidDataset: when its universe cannot be addressed.
    """
    check_cells((spec.left, spec.right))
    owners = spec.right if spec.unit is not None and spec.unit.side == "right" else spec.left
    return GraphSpace(
        kind="bipartite",
        shape=(spec.left, spec.right),
        names=("left", "right"),
        capacity=_most_edges(spec.unit, owners, spec.left * spec.right),
        data_bits=spec.data_bits,
        unit=_gamma(spec.unit),
        labels=(spec.left_labels, spec.right_labels),
    )


def graph_space(spec: GraphSpec) -> GraphSpace:
    """The space of a declared directed or undirected graph. Loops hold no data in either.

    Raises:
        InvalidDataset: when its universe cannot be addressed.
    """
    check_cells((spec.nodes, spec.nodes))
    pairs = spec.nodes * (spec.nodes - 1)
    return GraphSpace(
        kind="graph",
        shape=(spec.nodes, spec.nodes),
        names=("left", "right"),
        capacity=_most_edges(spec.unit, spec.nodes, pairs if spec.directed else pairs // 2),
        data_bits=spec.data_bits,
        unit=_gamma(spec.unit),
        symmetric=not spec.directed,
        labels=(spec.labels, spec.labels),
    )


def _gamma(unit: OneSide | Sources | None) -> Fraction:
    """The L1-distance of neighbours: one edge, or all that are kept of a node."""
    return Fraction(1 if unit is None else unit.max_edges)


def _most_edges(unit: OneSide | Sources | None, owners: int, pairs: int) -> int:
    """The most edges that there can be, of so many pairs of nodes, ``owners`` of which edges belong to."""
    return pairs if unit is None else owners * unit.max_edges
