"""Cuts and rank-one queries of a graph or a matrix: what each weighs.

A question is a short sum of products: ``sum over terms of c (a_k outer b_k)`` over all entries of the matrix A of
cells. Of directed and bipartite graphs and of matrices there is one term, the two sides. Of an undirected graph A is
symmetric and has each pair twice, and the cut (S, T) is ``(S, T) - 1/2 (W, W)`` with W the nodes of both sides: an edge
between the two is counted once.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from app.measurements.strategies.edges import CellKind
from app.spaces.lazy import lazy
from app.spaces.queries.blocks import CompiledBlocks
from app.spaces.queries.linear import CompiledPair, CompiledProduct
from app.spaces.query import Query
from app.spaces.tensor import Axis, FloatArray, IntArray

#: Of so many cells their weights are told one by one.
FEW = 8


@dataclass(frozen=True, eq=False)
class Side:
    """Weights of the nodes of one side.

    Attributes:
        length: number of nodes.
        places: those that may weigh something, ascending.
        weights: theirs; None where each weighs one.
    """

    length: int
    places: IntArray
    weights: FloatArray | None = None

    @classmethod
    def of(cls, axis: Axis | None, length: int) -> Side:
        """The side of a compiled query; None is every node."""
        if axis is None:
            return cls(length, np.arange(length))
        if axis.weights is None:
            index = axis.index
            return cls(length, np.arange(index.start, index.stop) if isinstance(index, slice) else index)
        weights = axis.real_vector()
        places = np.flatnonzero(weights)
        return cls(length, places, weights[places])

    @lazy
    def own(self) -> FloatArray:
        """The weights of the places."""
        return np.ones(len(self.places)) if self.weights is None else self.weights

    @lazy
    def vector(self) -> FloatArray:
        """The weights of all nodes."""
        made = np.zeros(self.length)
        made[self.places] = self.own
        return made

    @lazy
    def name(self) -> bytes:
        """What tells it from others: the same for the same nodes and weights."""
        told = hashlib.sha256(self.places.astype("<i8").tobytes())
        told.update(b"" if self.weights is None else b"/" + self.weights.astype("<f8").tobytes())
        return told.digest()

    @lazy
    def total(self) -> float:
        """Sum of the weights."""
        return float(self.own.sum())

    @lazy
    def square(self) -> float:
        """Sum of their squares."""
        return float(self.own @ self.own)

    def meeting(self, other: Side) -> tuple[IntArray, FloatArray]:
        """The nodes that both may weigh, and the products of both weights."""
        if self is other:
            return self.places, self.own**2
        both, mine, others = np.intersect1d(self.places, other.places, assume_unique=True, return_indices=True)
        return both, self.own[mine] * other.own[others]

    def summed(self, values: FloatArray) -> FloatArray:
        """Values of all nodes (the last axis), weighed and summed."""
        found: FloatArray = values[..., self.places]
        # Of a set without a product: a library that begins threads for each makes them wait for one another.
        summed: FloatArray = found.sum(axis=-1) if self.weights is None else found @ self.weights
        return summed

    @lazy
    def parts(self) -> tuple[float, float]:
        """The sum of the negative weights and that of the positive ones."""
        return float(np.minimum(self.own, 0).sum()), float(np.maximum(self.own, 0).sum())


@dataclass(frozen=True, eq=False)
class CutQuestion:
    """A cut or rank-one query.

    Attributes:
        kind: of the cells that it weighs.
        left, right: its sides.
        both: the nodes of both sides, of an undirected graph; None of others.
    """

    kind: CellKind
    left: Side
    right: Side
    both: Side | None = None

    @classmethod
    def of(cls, query: Query, kind: CellKind) -> CutQuestion:
        """The question of a compiled query.

        Raises:
            TypeError: for a query that is none of this form.
        """
        if isinstance(query, CompiledPair):
            n = query.left.length
            return cls(kind, Side.of(query.left, n), Side.of(query.right, n), Side.of(query.both, n))
        if isinstance(query, CompiledProduct) and len(query.axes) == 2:
            left, right = (Side.of(axis, n) for axis, n in zip(query.axes, query.shape, strict=True))
            return cls(kind, left, right)
        raise TypeError(f"{type(query).__name__} is no cut")

    @classmethod
    def all_of(cls, query: Query, kind: CellKind) -> list[CutQuestion]:
        """The questions that a query asks at once, one for each of its numbers."""
        if not isinstance(query, CompiledBlocks):
            return [cls.of(query, kind)]
        rights = lefts = [Side(query.left.size, members) for members in query.left.listed()]
        if not query.symmetric:
            rights = [Side(query.right.size, members) for members in query.right.listed()]
        if query.matched is not None:
            chosen = [(lefts[own], right) for own, right in sorted(zip(query.matched, rights, strict=True))]
        else:
            chosen = [(a, b) for k, a in enumerate(lefts) for b in (rights[k:] if query.symmetric else rights)]
        nothing = Side(query.left.size, np.zeros(0, np.int64))
        # Groups are disjoint: the nodes of both sides are all of one group, or none.
        return [cls(kind, a, b, None if kind != "pairs" else a if a is b else nothing) for a, b in chosen]

    @lazy
    def terms(self) -> tuple[tuple[float, Side, Side], ...]:
        """Coefficient, left and right side of each product."""
        first = (1.0, self.left, self.right)
        return (first,) if self.both is None else (first, (-0.5, self.both, self.both))

    @lazy
    def name(self) -> bytes:
        """What tells it from others: the same for the same sides, whatever they were asked with."""
        sides = [self.left.name, self.right.name]
        # Of pairs the sides have no order.
        return b"".join(sides if self.both is None else sorted(sides))

    @lazy
    def weight(self) -> float:
        """The sum of its weights over all cells."""
        return sum(c * (a.total * b.total - self._diagonal(a, b)) for c, a, b in self.terms)

    @lazy
    def square(self) -> float:
        """The sum of the squares of its weights over all cells."""
        if self.both is None:
            return self.left.square * self.right.square - self._diagonal(self.left, self.right, 2)
        if self.both.weights is None:
            return self.weight
        # s_i t_j + t_i s_j - w_i w_j over pairs.
        s, t, w = self.left.vector, self.right.vector, self.both.vector
        full = 2 * (s @ s) * (t @ t) + (w @ w) ** 2 + 2 * (s @ t) ** 2 - 4 * (s @ w) * (t @ w)
        diagonal = 2 * s * t - w * w
        return float(full - diagonal @ diagonal) / 2

    @lazy
    def bounds(self) -> tuple[float, float]:
        """The sums of its negative and of its positive weights: what it can be where cells are from 0 to 1."""
        if self.both is not None:
            return 0.0, max(self.weight, 0.0)
        (low_left, high_left), (low_right, high_right) = self.left.parts, self.right.parts
        low, high = low_left * high_right + high_left * low_right, low_left * low_right + high_left * high_right
        if self.kind == "all":
            return low, high
        _, loops = self.left.meeting(self.right)
        return low - float(np.minimum(loops, 0).sum()), high - float(np.maximum(loops, 0).sum())

    @lazy
    def few(self) -> tuple[float, ...]:
        """Its weights on cells where it weighs few of them, without signs and in order; none where it weighs more."""
        if max(len(self.left.places), len(self.right.places)) > 2 * FEW:
            return ()
        rows, columns = self.left.places, self.right.places
        if self.both is not None:
            rows = columns = np.union1d(self.both.places, np.union1d(rows, columns))
        weights = np.zeros((len(rows), len(columns)))
        for c, a, b in self.terms:
            weights += c * np.outer(a.vector[rows], b.vector[columns])
        if self.both is not None:
            weights = np.triu(weights + np.transpose(weights), 1)
        elif self.kind != "all":
            weights = np.where(rows[:, None] == columns, 0.0, weights)
        told = np.abs(weights[weights != 0])
        return tuple(np.sort(told.round(9)).tolist()) if len(told) <= FEW else ()

    def incident(self) -> tuple[FloatArray, FloatArray]:
        """For each row the sum of the weights of its cells, and the same for each column; of pairs, where a cell is of
        two nodes, both are the same.
        """
        if self.both is not None:
            s, t, w = self.left.vector, self.right.vector, self.both.vector
            sums = s * self.right.total + t * self.left.total - w * self.both.total - (2 * s * t - w * w)
            return sums, sums
        u, v = self.left.vector, self.right.vector
        rows, columns = u * self.right.total, v * self.left.total
        if self.kind == "all":
            return rows, columns
        return rows - u * v, columns - u * v

    def _diagonal(self, left: Side, right: Side, power: int = 1) -> float:
        """The part of a product that stands on the diagonal, where no data is."""
        if self.kind == "all":
            return 0.0
        if left.weights is None and right.weights is None:
            return float(len(np.intersect1d(left.places, right.places, assume_unique=True)))
        return float(((left.vector[right.places] * right.own) ** power).sum())
