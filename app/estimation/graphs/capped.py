"""Expected cells of a matrix from its row and column sums: capped rank-one matrices, which are never written out.

The cell of row i and column j is expected to be ``min(1, x_i y_j)``: of all matrices with entries from 0 to 1 and
given row and column sums that is about the one of the greatest entropy while cells are few, and as they fill up the
cap keeps what is expected possible. Factors are found by iterative proportional fitting. Sums over cells are taken with
sorted factors and running sums, in time and memory of the rows and columns alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.spaces.lazy import lazy
from app.spaces.tensor import FloatArray, IntArray

#: Passes over rows and columns at most, the most by which one changes a factor, and the part of a sum that may be left.
_PASSES, _MOST_STEP, _NEAR = 50, 3.0, 1e-4
_TINY = 1e-12


@dataclass(frozen=True, eq=False)
class Capped:
    """Expected cells ``min(1, x_i y_j)``.

    Attributes:
        rows, columns: the factors x and y, not negative.
        loops: whether the diagonal holds data; where not, nothing is expected there.
    """

    rows: FloatArray
    columns: FloatArray
    loops: bool

    @lazy
    def _order(self) -> IntArray:
        """Columns by factor, the largest first."""
        return np.argsort(-self.columns, kind="stable")

    @lazy
    def diagonal(self) -> FloatArray:
        """The diagonal of the capped product."""
        return np.minimum(1.0, self.rows * self.columns)

    def row_sums(self, weights: FloatArray) -> FloatArray:
        """For each row the sum of its expected cells, each times the weight of its column."""
        if self.capless:
            sums: FloatArray = self.rows * float(weights @ self.columns)
        else:
            sums = _running(self.rows, self.columns[self._order], weights[self._order])
        return sums if self.loops else sums - self.diagonal * weights

    @lazy
    def capless(self) -> bool:
        """Whether no cell is capped."""
        return not len(self.rows) or float(self.rows.max()) * float(self.columns.max()) <= 1

    def flipped(self) -> Capped:
        """The same cells with rows for columns."""
        return Capped(self.columns, self.rows, self.loops)

    def sum(self, rows: IntArray, left: FloatArray, columns: IntArray, right: FloatArray) -> float:
        """``sum of u_i v_j min(1, x_i y_j)`` over some rows i and columns j, each given once: their numbers, ascending,
        and their weights. Takes time of these alone.
        """
        x, y = self.rows[rows], self.columns[columns]
        if self.capless:
            total = _summed(left, x) * _summed(right, y)
        else:
            order = np.argsort(-y, kind="stable")
            total = _summed(left, _running(x, y[order], right[order]))
        if self.loops:
            return total
        both, first, second = np.intersect1d(rows, columns, assume_unique=True, return_indices=True)
        return total - _summed(left[first] * right[second], self.diagonal[both])

    @classmethod
    def of(cls, rows: FloatArray, columns: FloatArray, *, loops: bool, symmetric: bool) -> Capped:
        """The capped matrix with about these row and column sums, each not negative, in cells.

        Of a symmetric matrix both are the same and the factors are too.
        """
        total = min(max(float(rows.sum() + columns.sum()) / 2, 1e-9), float(len(rows) * len(columns)))
        rows, columns = (side * (total / max(float(side.sum()), _TINY)) for side in (rows, columns))
        rows, columns = np.minimum(rows, len(columns)), np.minimum(columns, len(rows))
        found = cls(rows / total**0.5, columns / total**0.5, loops)
        if found.capless and loops:
            return found
        ones = np.ones(len(columns))
        for _ in range(_PASSES):
            sums, x = found.row_sums(ones), found._scaled(rows)
            if symmetric:
                # A full step in both sides at once would go twice as far.
                found = cls(np.sqrt(x * found.rows), np.sqrt(x * found.rows), loops)
            else:
                found = cls(x, found.columns, loops)
                found = cls(x, found.flipped()._scaled(columns), loops)
            if float(np.abs(sums - rows).sum()) <= _NEAR * total:
                break
        return found

    def _scaled(self, wanted: FloatArray) -> FloatArray:
        """Factors of rows with which these have the wanted sums, while those of columns and the diagonal stay."""
        if not self.loops:
            wanted = wanted + self.diagonal
        ordered = self.columns[self._order]
        rest = np.cumsum(ordered[::-1])[::-1]
        # The sum of a row in which this column is the next to be capped; it grows from column to column.
        sums = np.full(len(ordered), np.inf)
        np.divide(rest, ordered, out=sums, where=ordered > _TINY)
        capped = np.minimum(np.searchsorted(np.arange(len(sums)) + sums, wanted), len(sums) - 1)
        return np.minimum((wanted - capped) / np.maximum(rest[capped], _TINY), _MOST_STEP * self.rows)


def _running(x: FloatArray, y: FloatArray, weights: FloatArray) -> FloatArray:
    """For each row the weighted sum of its cells, of columns by factor, the largest first."""
    with np.errstate(divide="ignore"):
        full = np.searchsorted(-y, -1 / x, "left")
    plain = np.concatenate([[0.0], np.cumsum(weights)])
    # From the least factor on: beside the largest ones it would be lost.
    scaled = np.concatenate([[0.0], np.cumsum((weights * y)[::-1])])[::-1]
    sums: FloatArray = plain[full] + x * scaled[full]
    return sums


def _summed(weights: FloatArray, values: FloatArray) -> float:
    """Their inner product, by no library that begins threads: where several lanes are busy these wait for one another,
    and this is asked for again and again."""
    return float(np.einsum("i,i->", weights, values))
