"""Dense counts: a private number for every cell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.spaces.counts import (
    AllEntries,
    ArrayCounts,
    BlockSums,
    CellCounts,
    Contraction,
    Entries,
    InnerProduct,
    LineSums,
)
from app.spaces.tensor import Array, DenseTensor, IntArray, parts_of

#: Entries of an array that are looked at at a time.
_PART = 1 << 20


@dataclass(eq=False, repr=False)
class CountsTensor(DenseTensor, ArrayCounts):  # type: ignore[override]
    """An array of private integers, in data units."""

    def cell_counts(self, asked: CellCounts) -> IntArray:
        """From the marginal on all that is named, which may be kept."""
        return asked.of_marginal(self.marginal(asked.named))

    def line_sums(self, asked: LineSums) -> IntArray:
        """Sums of rows or columns, weighed as they are added."""
        if asked.weights is None:
            sums = np.array(self.marginal((asked.axis,)), np.int64)
            return sums if asked.diagonal else sums - self.array.diagonal()
        matrix = self.array.astype(np.int64)
        sums = (matrix if asked.axis == 0 else matrix.T) @ asked.weights
        if not asked.diagonal:
            sums -= matrix.diagonal() * asked.weights
        return sums

    def block_sums(self, asked: BlockSums) -> IntArray:
        """Sums between groups, some rows at a time, group by group."""
        if asked.within is not None:
            return self._sums_within(asked, asked.within)
        totals = np.zeros(asked.shape, np.int64)
        order, _ = asked.left.grouped
        labels = asked.left.labels[order]
        for part in parts_of(len(order), max(1, _PART // self.shape[1])):
            own = labels[part]
            starts = np.flatnonzero(np.diff(own, prepend=-1))
            # Rows first: whole rows are added fast, and there are fewer of them then.
            summed = np.add.reduceat(self.array[order[part]], starts, axis=0, dtype=np.int64)
            totals[own[starts]] += asked.right.summed(summed, 1)
        return totals

    def _sums_within(self, asked: BlockSums, right: IntArray) -> IntArray:
        totals = np.zeros(asked.shape, np.int64)
        left, kept = asked.left.labels, asked.left.kept
        for part in parts_of(len(kept), max(1, _PART // self.shape[1])):
            rows = kept[part]
            same = left[rows, None] == right
            np.add.at(totals, left[rows], np.add.reduce(self.array[rows], axis=1, where=same, dtype=np.int64))
        return totals

    def all_entries(self, asked: AllEntries) -> Array:
        """The array."""
        return self.array

    kernels = {  # noqa: RUF012 - as the class they are never changed
        Contraction: lambda self, asked: self.contract(asked.axes),
        Entries: lambda self, asked: self.gather(asked.positions),
        InnerProduct: lambda self, asked: self.inner(asked.weights, asked.bits),
        CellCounts: cell_counts,
        LineSums: line_sums,
        BlockSums: block_sums,
        AllEntries: all_entries,
    }
