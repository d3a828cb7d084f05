"""Graphs: bipartite, directed and undirected, as adjacency matrices with weights in [0, 1]."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from app.spaces.errors import InvalidQuery
from app.spaces.queries import AnyQuery, Node
from app.spaces.queries import CutQuery as CutWords
from app.spaces.queries import RankOneQuery as RankOneWords
from app.spaces.query import Query, ZeroQuery
from app.spaces.space import Space, _check_weights, _members, _vector, check_cells
from app.spaces.spec import BipartiteSpec, GraphSpec
from app.spaces.tensor import FloatArray, IntArray


@dataclass(frozen=True)
class GraphSpace(Space):
    """The universe of a graph: ordered pairs of nodes, or unordered ones where it is undirected."""

    labels: tuple[tuple[str, ...] | None, tuple[str, ...] | None] = (None, None)

    @property
    def largest(self) -> Fraction:
        """Weights lie in [0, 1]."""
        return Fraction(1)

    @cached_property
    def _positions(self) -> tuple[dict[str, int] | None, dict[str, int] | None]:
        left, right = ({v: i for i, v in enumerate(side)} if side is not None else None for side in self.labels)
        return left, right

    def _nodes(self, asked: Literal["all"] | list[Node], side: int) -> IntArray:
        """Sorted distinct node numbers of one side of a cut."""
        name = self.names[side]
        positions = self._positions[side]
        if positions is not None and asked != "all":
            try:
                numbers = [positions[v] for v in asked]  # type: ignore[index]
            except KeyError:
                raise InvalidQuery(f"{name}: not one of the declared labels") from None
            return np.unique(np.array(numbers, dtype=np.int64))
        return _members(asked, self.shape[side], f"{name}: nodes")

    def compile(self, words: AnyQuery) -> Query:
        if isinstance(words, CutWords):
            left, right = self._nodes(words.left, 0), self._nodes(words.right, 1)
            if self.symmetric:
                return self._pair(left, right, bits=0, rounding=0.0)
            return self.product({0: left, 1: right})
        if isinstance(words, RankOneWords):
            u = _vector(words.left, self.shape[0], "left")
            v = _vector(words.right, self.shape[1], "right")
            return self._undirected_rank_one(u, v) if self.symmetric else self.product({0: u, 1: v})
        return self._compile_common(words)

    def _undirected_rank_one(self, u: FloatArray, v: FloatArray) -> Query:
        _check_weights(u, low=0.0)
        _check_weights(v, low=0.0)
        if not u.any() or not v.any():
            return ZeroQuery(self.shape)
        if bool(np.all((u == 0) | (u == 1)) and np.all((v == 0) | (v == 1))):
            return self._pair(np.flatnonzero(u), np.flatnonzero(v), bits=0, rounding=0.0)
        bits = self.axis_bits(2)
        sides = [np.rint(np.ldexp(side, bits)) for side in (u, v)]
        errors = [
            float(np.abs(side - np.ldexp(asked, bits)).max()) * 2.0**-bits
            for side, asked in zip(sides, (u, v), strict=True)
        ]
        # Each side enters twice and w = u*v, off by both errors and its own rounding up, twice again.
        own = 0.0 if bool(np.all(u * v == 0)) else 2.0**-bits
        rounding = 2 * (errors[0] + errors[1]) + 2 * (errors[0] + errors[1] + own)
        return self._pair(*(side.astype(np.int64) for side in sides), bits=bits, rounding=rounding)


def bipartite_space(spec: BipartiteSpec) -> GraphSpace:
    """The space of a declared bipartite graph.

    Raises:
        InvalidDataset: when its universe cannot be addressed.
    """
    check_cells((spec.left, spec.right))
    return GraphSpace(
        kind="bipartite",
        shape=(spec.left, spec.right),
        names=("left", "right"),
        capacity=spec.left * spec.right,
        data_bits=spec.data_bits,
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
        capacity=pairs if spec.directed else pairs // 2,
        data_bits=spec.data_bits,
        symmetric=not spec.directed,
        labels=(spec.labels, spec.labels),
    )
