"""Exact counts in plain Python: the records in a list, counted one after another.

It knows no arrays of the service's, and shows that nobody who asks for exact counts does either; it passes the contract
of tests/questions/test_exact_counts.py.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from app.spaces.counts import (
    AllEntries,
    BlockSums,
    CellCounts,
    Contraction,
    Entries,
    InnerProduct,
    LineSums,
    NotCounted,
    Tally,
    check_offered,
)
from app.spaces.tensor import Axis, Members


class PlainCounts:
    """See :class:`app.spaces.counts.ExactCounts`.

    Args:
        shape: how many cells there are along each axis; empty for elements.
        records: the cell of each, or the element, and what it adds to that.
        waiting: counts, as if records were elsewhere; where it is given, numbers are told once after each such call.
    """

    nbytes = 0

    def __init__(
        self, shape: tuple[int, ...], records: Sequence[tuple[Any, int]], waiting: Callable[[], None] | None = None
    ) -> None:
        self.shape, self._records, self._waiting = shape, list(records), waiting
        self._counted = threading.Semaphore(0)

    @classmethod
    def of(cls, array: Any, waiting: Callable[[], None] | None = None) -> PlainCounts:
        """The counts of an array, cell by cell."""
        array = np.asarray(array)
        return cls(array.shape, [(cell, int(entry)) for cell, entry in np.ndenumerate(array) if entry], waiting)

    def offers(self, tally: Tally) -> bool:
        return tally.fits(self.shape)

    def tell(self, asked: Sequence[Tally]) -> Iterator[Any]:
        check_offered(self, asked)
        if self._waiting is not None and not self._counted.acquire(blocking=False):
            raise NotCounted(self._wait)
        return map(self._count, asked)

    def _wait(self) -> None:
        assert self._waiting is not None
        self._waiting()
        self._counted.release()

    def _count(self, tally: Tally) -> Any:
        match tally:
            case Contraction(axes):
                weighed = ((v, *(_weight(a, c) for a, c in zip(axes, cell, strict=True))) for cell, v in self._cells())
                return sum(math.prod(factors) for factors in weighed)
            case Entries(positions):
                found: dict[Any, int] = {}
                for cell, value in self._records:
                    place = int(np.ravel_multi_index(cell, self.shape)) if self.shape else cell
                    found[place] = found.get(place, 0) + value
                return np.array([found.get(place, 0) for place in positions.tolist()], np.int64)
            case InnerProduct(weights):
                return sum(value * int(weights[cell]) for cell, value in self._records)
            case CellCounts(shape=shape):
                return self._added(shape, lambda cell: _place(tally, cell))
            case LineSums(axis, weights, diagonal):
                return self._added(
                    (self.shape[axis],),
                    lambda cell: (
                        (cell[axis],),
                        (diagonal or cell[0] != cell[1]) * (1 if weights is None else int(weights[cell[1 - axis]])),
                    ),
                )
            case BlockSums(shape=shape, left=left, right=right, within=within):
                rows, columns = left.labels, right.labels if within is None else within

                def block(cell: tuple[int, int]) -> tuple[tuple[int, ...], int]:
                    row, column = int(rows[cell[0]]), int(columns[cell[1]])
                    if within is None:
                        return (row, column), int(row >= 0 and column >= 0)
                    return (row,), int(row >= 0 and row == column)

                return self._added(shape, block)
            case AllEntries():
                return self._added(self.shape, lambda cell: (cell, 1))
        raise AssertionError("another kind of tally")

    def _cells(self) -> Iterator[tuple[tuple[int, ...], int]]:
        """Records by their cells; elements are of a universe without axes."""
        return ((cell if self.shape else (), value) for cell, value in self._records)

    def _added(self, shape: tuple[int, ...], place: Callable[[Any], tuple[tuple[int, ...], int]]) -> Any:
        """Records added up, each at its place times its weight."""
        sums = np.zeros(shape, np.int64)
        for cell, value in self._records:
            at, weight = place(cell)
            if weight:
                sums[at] += value * weight
        return sums


def _weight(axis: Axis | None, value: int) -> int:
    if axis is None:
        return 1
    return int(axis.weights[value]) if axis.weights is not None else int(_within(axis.index, value))


def _within(members: Members, value: int) -> bool:
    return members.start <= value < members.stop if isinstance(members, slice) else value in members.tolist()


def _place(asked: CellCounts, cell: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """The cell that a record is counted in, and what it weighs there."""
    own = (cell[axis] if groups is None else int(groups.labels[cell[axis]]) for axis, groups in _cells_of(asked))
    at = tuple(own)
    counted = all(label >= 0 for label in at) and all(_within(members, cell[axis]) for axis, members in asked.where)
    if asked.among is not None:
        counted = counted and bool(asked.among[1][tuple(cell[axis] for axis in asked.among[0])])
    weight = int(counted)
    for axis, weights in asked.factors:
        weight *= int(weights[cell[axis]]) if cell[axis] < len(weights) else 0
    return at, weight


def _cells_of(asked: CellCounts) -> Iterator[tuple[int, Any]]:
    return zip(asked.axes, asked.cells, strict=True)
