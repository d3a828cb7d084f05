"""Records of a table as they are: one array of codes an attribute, whatever the size of the universe."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from app.spaces.lazy import kept_of, lazy
from app.spaces.tensor import Array, Axes, Axis, DenseTensor, IntArray, Members

#: Records that are worked on at a time: their codes, and what is made of them, stay in a core's caches.
PART = 1 << 16
#: Cells of a marginal that is made to answer a query on its attributes, and kept for the next one.
MOST_CELLS = 1 << 20
#: Bytes of all marginals that are kept.
KEPT_BYTES = 64 << 20


@dataclass(eq=False)
class RecordsTensor:
    """Counts over a product of attributes, made of the records when they are asked for.

    A query is answered from the marginal on the attributes that it names, where that is small: it is made in one pass
    over their columns and kept. Else the weights of every record are multiplied and added up, or the marginal is made
    and not kept.

    Attributes:
        columns: for each attribute an unsigned integer a record: the position of its value.
        shape: how many values each attribute has.
    """

    columns: Sequence[Array]
    shape: tuple[int, ...]
    diagonal: None = field(default=None, init=False)
    _marginals: OrderedDict[tuple[int, ...], DenseTensor] = field(default_factory=OrderedDict, repr=False)
    _held: int = field(default=0, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def __repr__(self) -> str:
        return f"RecordsTensor(shape={self.shape})"

    @property
    def size(self) -> int:
        """How many records there are."""
        return len(self.columns[0])

    @property
    def nbytes(self) -> int:
        own = sum(column.nbytes for column in self.columns) + self._held
        return int(own + sum(array.nbytes for pair in kept_of(self, "_cells") for array in pair))

    def marginal(self, axes: tuple[int, ...]) -> IntArray:
        """Counts over some attributes, in ascending order, one axis each; not to be written to."""
        kept = self._kept(axes)
        return self._counted(axes) if kept is None else kept.array

    def _counted(self, axes: tuple[int, ...]) -> IntArray:
        shape = tuple(self.shape[i] for i in axes)
        if not axes:
            return np.array(self.size)
        counts = np.zeros(math.prod(shape), np.int64)
        # A part of the records at a time, and no less than there are cells: each part passes over all counts once.
        for part in parts_of(self.size, max(PART, len(counts))):
            counts += np.bincount(self._positions(axes, part), minlength=len(counts))
        return counts.reshape(shape)

    def few(self, axes: Sequence[int]) -> bool:
        """Whether the marginal on some attributes is small enough to be kept."""
        return math.prod(self.shape[i] for i in axes) <= MOST_CELLS

    def tallied(
        self,
        cells: Sequence[tuple[int, IntArray | None]],
        shape: tuple[int, ...],
        where: Sequence[tuple[int, Members]],
        among: tuple[tuple[int, ...], Array] | None,
    ) -> IntArray:
        """Counts of cells that values are merged to, flat, whatever the number of values: in one pass over the records.

        Args:
            cells: attributes, and the cell of each of their values (-1: not counted; None: each is one).
            shape: how many cells there are along each.
            where: attributes, and the values that a record must have.
            among: attributes, and which combinations of their values a record must have.
        """
        size = math.prod(shape)
        # Each value's cell, or behind all of them, in units of what a step along this axis is worth.
        steps = [math.prod(shape[k + 1 :]) for k in range(len(shape))]
        told = [
            (axis, None if labels is None else np.where(labels < 0, size, labels * step), step)
            for (axis, labels), step in zip(cells, steps, strict=True)
        ]
        selected = [(axis, Axis(self.shape[axis], members)) for axis, members in where]
        counts = np.zeros(size + 1, np.int64)
        for part in parts_of(self.size, max(PART, size)):
            positions = np.zeros(len(self.columns[0][part]), np.int64)
            for axis, places, step in told:
                codes = self.columns[axis][part]
                positions += codes * np.int64(step) if places is None else places[codes]
            for axis, chosen in selected:
                positions[~chosen.at(self.columns[axis][part])] = size
            if among is not None:
                positions[~among[1].reshape(-1)[self._positions(among[0], part)]] = size
            counts += np.bincount(np.minimum(positions, size), minlength=size + 1)
        return counts[:-1]

    def contract(self, axes: Axes) -> int:
        named = tuple(i for i, axis in enumerate(axes) if axis is not None)
        kept = self._kept(named)
        if kept is not None:
            return int(kept.contract([axes[i] for i in named]))
        if not named:
            return self.size
        total = 0
        told = [(self.columns[i], axis) for i, axis in enumerate(axes) if axis is not None]
        for part in parts_of(self.size, PART):
            product = np.ones(len(self.columns[0][part]), np.int64)
            for column, axis in told:
                product *= axis.at(column[part])
            total += int(product.sum())
        return total

    def gather(self, positions: Array) -> IntArray:
        found, counts = self._cells
        at = np.minimum(np.searchsorted(found, positions), max(len(found) - 1, 0))
        if not len(found):
            return np.zeros(len(positions), np.int64)
        # Whether a cell is there or not, the same steps are taken.
        gathered: IntArray = counts[at] * (found[at] == positions)
        return gathered

    def inner(self, weights: Array, bits: int) -> int:
        flat, total = weights.reshape(-1), 0
        every = tuple(range(len(self.shape)))
        for part in parts_of(self.size, PART):
            total += int(flat[self._positions(every, part)].astype(np.int64).sum())
        return total

    def _positions(self, axes: tuple[int, ...], part: slice) -> IntArray:
        """Row-major positions of some records in the marginal on these attributes."""
        positions = self.columns[axes[0]][part].astype(np.int64)
        for i in axes[1:]:
            positions *= self.shape[i]
            positions += self.columns[i][part]
        return positions

    @lazy
    def _cells(self) -> tuple[IntArray, IntArray]:
        """Positions in the universe at which there are records, ascending, and how many there are."""
        found, counts = np.unique(self._positions(tuple(range(len(self.shape))), slice(None)), return_counts=True)
        return found, counts.astype(np.int64)

    def _kept(self, named: tuple[int, ...]) -> DenseTensor | None:
        """The marginal on some attributes, or None where it is too large to be kept."""
        with self._lock:
            known = self._marginals.get(named)
            if known is not None:
                self._marginals.move_to_end(named)
                return known
            if not self.few(named):
                return None
            counts = self._counted(named)
            counts.setflags(write=False)
            made = self._marginals[named] = DenseTensor(counts)
            self._held += made.array.nbytes
            while self._held > KEPT_BYTES:
                _, dropped = self._marginals.popitem(last=False)
                self._held -= dropped.array.nbytes
            return made


def parts_of(size: int, step: int) -> Iterator[slice]:
    """Ranges of records, each of so many."""
    return (slice(start, min(start + step, size)) for start in range(0, size, step))
