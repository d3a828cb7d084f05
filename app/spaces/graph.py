"""Graphs: bipartite, directed and undirected, as adjacency matrices with weights in [0, 1]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from app.declarations.naming import cut
from app.declarations.spec import BipartiteSpec, GraphSpec, OneSide, Sources
from app.spaces.errors import InvalidQuery
from app.spaces.sided import Node, SidedSpace, axis_members, distinct
from app.spaces.space import check_cells
from app.spaces.tensor import Members


@dataclass(frozen=True)
class GraphSpace(SidedSpace):
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

    def members(self, asked: Literal["all"] | Sequence[Node], side: int, name: str) -> Members:
        positions = self._positions[side]
        if positions is not None and asked != "all":
            try:
                numbers = [positions[v] for v in asked]  # type: ignore[index]
            except KeyError:
                raise InvalidQuery(f"{name}: not one of the declared labels") from None
            return distinct(np.array(numbers, dtype=np.int64), self.shape[side])
        return axis_members(asked, self.shape[side], f"{name}: nodes")

    def called(self, side: int, node: int) -> str:
        labels = self.labels[side]
        return super().called(side, node) if labels is None else repr(cut(labels[node]))


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
