"""Sparse counts: of a private matrix the entries that are not zero."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csr_array

from app.spaces.counts import AllEntries, ArrayCounts, BlockSums, Contraction, Entries, InnerProduct, LineSums
from app.spaces.lazy import kept_of, lazy
from app.spaces.tensor import BLOCK, Array, Axes, Axis, IntArray, chunks, parts_of

#: Entries that are looked at at a time.
_PART = 1 << 20


def _within(entries: IntArray, columns: IntArray, axis: Axis) -> int:
    """The sum of the entries in the columns of an index set, part by part: what is made on the way stays in caches."""
    total = 0
    for start in range(0, len(entries), BLOCK):
        part = slice(start, start + BLOCK)
        total += int((entries[part] * axis.at(columns[part])).sum(dtype=np.int64))
    return total


@dataclass(eq=False, repr=False)
class SparseTensor(ArrayCounts):
    """An integer matrix with few non-zeros, in compressed rows."""

    matrix: csr_array
    shape: tuple[int, ...] = field(init=False)

    def __repr__(self) -> str:
        return f"SparseTensor(shape={self.shape})"

    def __post_init__(self) -> None:
        rows, columns = self.matrix.shape
        self.shape = int(rows), int(columns)

    @property
    def nbytes(self) -> int:
        own = (self.matrix.data, self.matrix.indices, self.matrix.indptr)
        return sum(array.nbytes for array in (*own, *kept_of(self, "_row_sums", "_positions")))

    @lazy
    def _row_sums(self) -> IntArray:
        return np.asarray(self.matrix.sum(axis=1, dtype=np.int64)).reshape(-1)

    @lazy
    def _positions(self) -> IntArray:
        rows = np.repeat(np.arange(self.shape[0], dtype=np.int64), np.diff(self.matrix.indptr))
        positions: IntArray = rows * self.shape[1] + self.matrix.indices
        return positions

    def contract(self, axes: Axes) -> int | float:
        left, right = axes
        if right is None:
            sums = self._row_sums
            if left is None:
                return int(sums.sum())
            return int(sums[left.index].sum()) if left.weights is None else int(sums @ left.weights)
        if right.weights is None and (left is None or left.weights is None):
            return self._cut(left, right)
        column = right.vector()
        if left is not None and left.weights is None and left.count * 4 < left.length:
            return int((self.matrix[left.index] @ column).sum())
        product = self.matrix @ column
        if left is None:
            return int(product.sum())
        return int(product[left.index].sum()) if left.weights is None else int(product @ left.weights)

    def _cut(self, left: Axis | None, right: Axis) -> int:
        """The sum of the entries in some rows and columns: a pass over these rows, where they stand together or are
        few, else over all, whichever they are.
        """
        starts, columns, entries = self.matrix.indptr, self.matrix.indices, self.matrix.data
        if left is None:
            return _within(entries, columns, right)
        if isinstance(left.index, slice):
            part = slice(starts[left.index.start], starts[left.index.stop])
            return _within(entries[part], columns[part], right)
        if left.count * 4 >= left.length:
            total = 0
            for some in chunks(left.length):
                part, lengths = (
                    slice(starts[some.start], starts[some.stop]),
                    np.diff(starts[some.start : some.stop + 1]),
                )
                rows = np.repeat(left.at(np.arange(some.start, some.stop)), lengths)
                total += _within(entries[part] * rows, columns[part], right)
            return total
        chosen = self.matrix[left.index]
        return _within(chosen.data, chosen.indices, right)

    def line_sums(self, asked: LineSums) -> IntArray:
        """Sums of rows or columns, weighed as they are added."""
        if asked.weights is None:
            lines = self._row_sums if asked.axis == 0 else self.matrix.sum(axis=0, dtype=np.int64)
            sums = np.array(lines, np.int64).reshape(-1)
            return sums if asked.diagonal else np.asarray(sums - self.matrix.diagonal(), np.int64)
        matrix = self.matrix.astype(np.int64)
        sums = np.asarray((matrix if asked.axis == 0 else matrix.T) @ asked.weights)
        if not asked.diagonal:
            sums -= matrix.diagonal() * asked.weights
        return sums

    def block_sums(self, asked: BlockSums) -> IntArray:
        """Sums between groups, in one pass over the entries."""
        size, left = math.prod(asked.shape), asked.left.labels
        right = asked.right.labels if asked.within is None else asked.within
        rows = np.repeat(left.astype(np.int32), np.diff(self.matrix.indptr))
        totals = np.zeros(size + 1, np.int64)
        for part in parts_of(len(rows), _PART):
            row, column = rows[part], right[self.matrix.indices[part]]
            # What is not counted goes to the last place, behind all numbers.
            if asked.within is not None:
                place = np.where(row == column, row, -1)
            else:
                place = np.where((row >= 0) & (column >= 0), row * np.int64(asked.right.cells) + column, -1)
            np.add.at(totals, place, self.matrix.data[part].astype(np.int64))
        return totals[:-1].reshape(asked.shape)

    def all_entries(self, asked: AllEntries) -> csr_array:
        """The matrix."""
        return self.matrix

    def gather(self, positions: IntArray) -> Array:
        rows, columns = np.divmod(positions, self.shape[1])
        return np.asarray(self.matrix[rows, columns]).reshape(-1)

    def inner(self, weights: Array, bits: int) -> int | float:
        return int(self.matrix.data.astype(np.int64) @ weights.reshape(-1)[self._positions].astype(np.int64))

    kernels = {  # noqa: RUF012 - as the class they are never changed
        Contraction: lambda self, asked: self.contract(asked.axes),
        Entries: lambda self, asked: self.gather(asked.positions),
        InnerProduct: lambda self, asked: self.inner(asked.weights, asked.bits),
        LineSums: line_sums,
        BlockSums: block_sums,
        AllEntries: all_entries,
    }
