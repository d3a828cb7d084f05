"""Sums of cells that were all measured, with the help of degrees: the best linear unbiased values.

Every cell was released with independent noise of a variance s^2, and every sum of a row with noise of a variance d^2,
which may be another for columns. A query with weights q has the unbiased value ``<q, Y> + sum over nodes of c_i (D_i -
the sum of Y at i)`` whatever the coefficients c are; its variance ``s^2 |q - C|^2 + sum of d_i^2 c_i^2``, where C is
what the coefficients weigh each cell by, is least at the ridge regression of q on the nodes that cells belong to. That
has a closed form: the systems differ from a multiple of the identity by sums alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from app.measurements.strategies.edges import CellKind
from app.spaces.cuts import CutQuestion
from app.spaces.lazy import lazy
from app.spaces.tensor import FloatArray


class Sums(NamedTuple):
    """Sums of rows and of columns, and the variance of each; where cells are pairs both are the same.

    A row of an oblong matrix has other numbers of cells than a column: where sums are of noisy cells, so are variances.
    """

    rows: FloatArray
    columns: FloatArray
    row_variance: float
    column_variance: float


@dataclass(frozen=True, eq=False)
class SumOfSums:
    """A question that is a weighed sum of released sums of rows and columns.

    Attributes:
        value: unbiased.
        variance: of it.
        weights: of the sums of rows and of columns that weigh something.
    """

    value: float
    variance: float
    weights: FloatArray


#: A sum of few rows serves where its variance is no more than this part beyond the least: it is known what few can be.
_FEW_COST = 1 / 16
#: What floats may leave of a question that is told by sums: at all, and as a part of it.
_LEFT, _PART_LEFT = 1e-9, 1e-12


def of_sums(kind: CellKind, question: CutQuestion, sums: Sums) -> SumOfSums | None:
    """A question by the sums alone, of all ways to sum it about that of the least variance; None where there is none.

    A single node against all others is the sum of its row. All nodes of an undirected graph are half of all rows, as
    each edge lies in two; several against all others are no sum of rows, which have inner edges twice. Whether there is
    a way tells the distance of the question's weights from all sums of rows and columns. It is looked for where a side
    weighs all nodes but two: all pairs of nodes but one are those between all but two and all but two, too.
    """
    sides = (question.left, question.right)
    n, m = (side.length for side in sides)
    if all(len(side.places) < side.length - 2 for side in sides) or (kind != "all" and n <= 2):
        return None
    rows, columns = question.incident()
    if kind == "all":
        # What rows have more columns may have less: so that both sum up to half of all weights.
        half = question.weight / (2 * n * m)
        first, second = rows / m - half, columns / n - half
    else:
        first, second = _fitted(kind, rows, columns, 0.0, 0.0, question.weight)
    explained = float(rows @ first) + float(columns @ second)
    if not 0 < question.square <= explained + _LEFT + _PART_LEFT * question.square:
        return None
    of_rows, of_columns = sums.row_variance, sums.column_variance
    if kind != "pairs":
        # Rows and columns have the same sum: what all rows have more all columns may have less.
        more = (of_columns * float(second.sum()) - of_rows * float(first.sum())) / (of_rows * n + of_columns * m)
        few = -float(np.median(first))
        beyond = (of_rows * n + of_columns * m) * (few - more) ** 2
        first, second = first + more, second - more
        if beyond <= _FEW_COST * (of_rows * float(first @ first) + of_columns * float(second @ second)):
            first, second = first + (few - more), second - (few - more)
    first, second = first.round(12), second.round(12)
    value = float(first @ sums.rows) + float(second @ sums.columns)
    variance = of_rows * float(first @ first) + of_columns * float(second @ second)
    both = np.concatenate([first, second])
    return SumOfSums(value, variance, both[both != 0])


@dataclass(frozen=True, eq=False)
class EdgeValues:
    """Unbiased values of all cells, and of sums.

    Attributes:
        kind: of the cells.
        matrix: values of cells, symmetric where they are pairs; what is no cell is zero.
        variance: of each.
        degrees: measured beside them; None where there are none.
    """

    kind: CellKind
    matrix: npt.NDArray[np.float32]
    variance: float
    degrees: Sums | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return self.matrix.nbytes

    @lazy
    def _found(self) -> WeakKeyDictionary[CutQuestion, tuple[float, float]]:
        return WeakKeyDictionary()

    @lazy
    def sums(self) -> Sums:
        """The sums of rows and columns of the cells alone; the variance takes the diagonal of a graph for a cell."""
        rows, columns = (self.matrix.sum(axis=axis, dtype=np.float64) for axis in (1, 0))
        return Sums(rows, columns, self.variance * len(columns), self.variance * len(rows))

    def of(self, question: CutQuestion) -> tuple[float, float]:
        """The unbiased value of a question and its variance; found once, as an answer asks for it several times."""
        known = self._found.get(question)
        if known is None:
            known = self._found[question] = self._of(question)
        return known

    def _of(self, question: CutQuestion) -> tuple[float, float]:
        value = self.plain(question)
        if self.degrees is None:
            return value, self.variance * question.square
        rows, columns, of_rows, of_columns = self.degrees
        incident = question.incident()
        ratio, across = of_rows / self.variance, of_columns / self.variance
        first, second = _fitted(self.kind, *incident, ratio, across, question.weight)
        value += float(first @ (rows - self.sums[0])) + float(second @ (columns - self.sums[1]))
        explained = float(incident[0] @ first) + float(incident[1] @ second)
        return value, self.variance * max(question.square - explained, 0.0)

    def plain(self, question: CutQuestion) -> float:
        """The value of a question by its own cells alone."""
        return sum(c * self._plain(a.real_vector(), b.real_vector()) for c, a, b in question.terms)

    def _plain(self, left: FloatArray, right: FloatArray) -> float:
        """``u' M v``, over the rows that weigh something alone; in double precision, without a copy of that."""
        rows = np.flatnonzero(left)
        across = np.einsum("i,ij->j", left[rows], self.matrix[rows])
        return float(across @ right)


def _fitted(
    kind: CellKind, rows: FloatArray, columns: FloatArray, ratio: float, across: float, weight: float
) -> tuple[FloatArray, FloatArray]:
    """The coefficients of rows and columns; of pairs, whose nodes have one each, those of columns are zero.

    Args:
        kind: of the cells.
        rows, columns: sums of the query's weights.
        ratio: d^2 / s^2 of rows; nothing where sums are as good as exact.
        across: that of columns; of a graph, which has as many, the same.
        weight: the sum of all weights.
    """
    n, m = len(rows), len(columns)
    if kind == "pairs":
        # c_i (n - 2 + ratio) + sum of c = row i, each weight being in two rows.
        total = 2 * weight / (2 * n - 2 + ratio)
        return (rows - total) / (n - 2 + ratio), np.zeros(m)
    # a_i (m + ratio) + sum of b = row i, b_j (n + across) + sum of a = column j; of arcs without the own node's.
    if kind == "all":
        a, b = np.linalg.solve([[m + ratio, n], [m, n + across]], [weight, weight])
        return (rows - b) / (m + ratio), (columns - a) / (n + across)
    own = n - 1 + ratio
    total = weight / (own + n - 1)
    # a_i own - b_i = row i - sum of b, b_i own - a_i = column i - sum of a; both sums are the same.
    first, second = rows - total, columns - total
    scale = own * own - 1
    return (own * first + second) / scale, (own * second + first) / scale
