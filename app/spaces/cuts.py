"""Cuts and rank-one queries of a graph or a matrix: what each weighs.

A question is a short sum of products: ``sum over terms of c (a_k outer b_k)`` over all entries of the matrix A of
cells. Of directed and bipartite graphs and of matrices there is one term, the two sides. Of an undirected graph A is
symmetric and has each pair twice, and the cut (S, T) is ``(S, T) - 1/2 (W, W)`` with W the nodes of both sides: an edge
between the two is counted once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.spaces.lazy import lazy
from app.spaces.tensor import Axis, FloatArray

#: Of so many cells their weights are told one by one.
FEW = 8


@dataclass(frozen=True, eq=False)
class CutQuestion:
    """A cut or rank-one query.

    Attributes:
        left, right: its sides.
        both: the nodes of both sides, of an undirected graph; None of others.
        loops: whether cells on the diagonal hold data.
    """

    left: Axis
    right: Axis
    both: Axis | None = None
    loops: bool = True

    @lazy
    def terms(self) -> tuple[tuple[float, Axis, Axis], ...]:
        """Coefficient, left and right side of each product."""
        first = (1.0, self.left, self.right)
        return (first,) if self.both is None else (first, (-0.5, self.both, self.both))

    @lazy
    def name(self) -> bytes:
        """A name that tells it from others: the same for the same sides, whatever they were asked with."""
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
        s, t, w = self.left.real_vector(), self.right.real_vector(), self.both.real_vector()
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
        if self.loops:
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
            weights += c * np.outer(a.real_vector()[rows], b.real_vector()[columns])
        if self.both is not None:
            weights = np.triu(weights + np.transpose(weights), 1)
        elif not self.loops:
            weights = np.where(rows[:, None] == columns, 0.0, weights)
        told = np.abs(weights[weights != 0])
        return tuple(np.sort(told.round(9)).tolist()) if len(told) <= FEW else ()

    @lazy
    def weighed(self) -> tuple[int, float]:
        """How many cells it weighs at most, and how much its weights differ: the square of the largest over the mean of
        all squares, or more than that; one where they are alike."""
        many = len(self.left.places) * len(self.right.places)
        largest = float(np.abs(self.left.own).max(initial=0.0) * np.abs(self.right.own).max(initial=0.0))
        if not self.loops:
            twice = len(self.left.meeting(self.right)[0])
            many -= twice if self.both is None else twice * (twice + 1) // 2
            if self.both is not None and twice and self.both.weights is not None:
                largest = min(1.0, 2 * largest)
        return many, max(round(largest**2 * many / self.square, 9), 1.0)

    def incident(self) -> tuple[FloatArray, FloatArray]:
        """For each row the sum of the weights of its cells, and the same for each column; of pairs, where a cell is of
        two nodes, both are the same.
        """
        if self.both is not None:
            s, t, w = self.left.real_vector(), self.right.real_vector(), self.both.real_vector()
            sums = s * self.right.total + t * self.left.total - w * self.both.total - (2 * s * t - w * w)
            return sums, sums
        u, v = self.left.real_vector(), self.right.real_vector()
        rows, columns = u * self.right.total, v * self.left.total
        if self.loops:
            return rows, columns
        return rows - u * v, columns - u * v

    def _diagonal(self, left: Axis, right: Axis, power: int = 1) -> float:
        """The part of a product that stands on the diagonal, where no data is."""
        if self.loops:
            return 0.0
        if left.weights is None and right.weights is None:
            return float(len(np.intersect1d(left.places, right.places, assume_unique=True)))
        return float(((left.real_vector()[right.places] * right.own) ** power).sum())
