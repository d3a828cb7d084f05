"""Records of a table as they are: one array of codes an attribute, whatever the size of the universe."""

from __future__ import annotations

import itertools
import math
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.spaces.counts import AllEntries, ArrayCounts, CellCounts, Contraction, Entries, InnerProduct, Tally
from app.spaces.lazy import kept_of, lazy
from app.spaces.partition import Partition
from app.spaces.tensor import Array, Axes, Axis, DenseTensor, IntArray, parts_of

#: Records that are worked on at a time: their codes, and what is made of them, stay in a core's caches.
PART = 1 << 16
#: Cells of a marginal that is made to answer a query on its attributes, and kept for the next one.
MOST_CELLS = 1 << 20
#: Bytes of all marginals that are kept.
KEPT_BYTES = 64 << 20
#: Attributes are taken together while they have so many cells: pairs of such groups are counted in one pass.
MOST_GROUPED = 64


@dataclass(frozen=True)
class _Group:
    """Columns of cells that are counted as one, and how many cells each has."""

    columns: tuple[tuple[int, Partition | None], ...]
    shape: tuple[int, ...]

    def codes(self, columns: Sequence[Array], part: slice) -> IntArray:
        """For some records the position of the combination of their cells."""
        codes: IntArray = np.zeros(1, np.int64)
        for (attribute, partition), length in zip(self.columns, self.shape, strict=True):
            column = columns[attribute][part]
            codes = codes * length + (column if partition is None else partition.labels[column])
        return codes


@dataclass(eq=False, repr=False)
class RecordsTensor(ArrayCounts):
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

    def cell_counts(self, asked: CellCounts) -> IntArray:
        """In one pass over the records, whatever the number of values; or from a marginal that is kept."""
        if asked.again and self.few(asked.named):
            return asked.of_marginal(self.marginal(asked.named))
        if asked.plain and asked.singles:
            return self._counted(asked.axes)
        size = math.prod(asked.shape)
        # Each value's cell, or behind all of them, in units of what a step along this axis is worth.
        steps = [math.prod(asked.shape[k + 1 :]) for k in range(len(asked.shape))]
        places = [_places(cells, step, size) for cells, step in zip(asked.cells, steps, strict=True)]
        told = list(zip(asked.axes, places, steps, strict=True))
        selected = [(axis, Axis(self.shape[axis], members)) for axis, members in asked.where]
        weighed = asked.weights(self.shape)
        whole = asked.whole
        sums = np.zeros(size + 1, np.int64)
        # A part of the records at a time, and no less than there are cells: each part passes over all sums once.
        for part in parts_of(self.size, max(PART, size)):
            positions = np.zeros(len(self.columns[0][part]), np.int64)
            for axis, places_of, step in told:
                codes = self.columns[axis][part]
                if places_of is not None:
                    positions += places_of[codes]
                else:
                    positions += codes if step == 1 else np.multiply(codes, step, dtype=np.int64)
            for axis, chosen in selected:
                positions[~chosen.at(self.columns[axis][part])] = size
            if asked.among is not None:
                positions[~asked.among[1].reshape(-1)[self._positions(asked.among[0], part)]] = size
            if not whole:
                np.minimum(positions, size, out=positions)
            if not weighed:
                sums += np.bincount(positions, minlength=size + 1)
                continue
            weights = [told[self.columns[axis][part]] for axis, told in weighed]
            # Whole numbers are added as such: in floating point large sums would lose their last digits.
            np.add.at(sums, positions, math.prod(weights[1:], start=weights[0]))
        return sums[:-1].reshape(asked.shape)

    def all_entries(self, asked: AllEntries) -> IntArray:
        """The counts of all cells."""
        return self.marginal(tuple(range(len(self.shape))))

    def counted(self, asked: Sequence[Tally]) -> Iterator[Any]:
        """The numbers of tallies. Counts by two attributes are made together: they are sums of counts of two groups of
        attributes. Of fifty attributes with eight values each that takes a quarter of the passes over the records.
        """
        pairs = [each for each in asked if isinstance(each, CellCounts) and _is_pair(each)]
        if len(pairs) < 2:
            return super().counted(asked)
        found = dict(zip(map(id, pairs), self._pairs(pairs), strict=True))
        return (found[id(each)] if id(each) in found else self.kernels[type(each)](self, each) for each in asked)

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

    def _pairs(self, asked: Sequence[CellCounts]) -> list[IntArray]:
        """Counts by two attributes each."""
        lengths: dict[tuple[int, Partition | None], int] = {}
        for pair in asked:
            lengths.update(zip(_columns(pair), pair.shape, strict=True))
        groups: list[_Group] = []
        for column, length in sorted(lengths.items(), key=lambda item: item[0][0]):
            if groups and int(np.prod(groups[-1].shape)) * length <= MOST_GROUPED:
                groups[-1] = _Group((*groups[-1].columns, column), (*groups[-1].shape, length))
            else:
                groups.append(_Group((column,), (length,)))
        home = {column: number for number, group in enumerate(groups) for column in group.columns}
        sizes = [int(np.prod(group.shape)) for group in groups]
        wanted = [tuple(sorted({home[column] for column in _columns(pair)})) for pair in asked]
        counts = {key: np.zeros(int(np.prod([sizes[g] for g in key])), np.int64) for key in wanted}
        for start in range(0, self.size, PART):
            part = slice(start, min(start + PART, self.size))
            codes = [group.codes(self.columns, part) for group in groups]
            for key, sums in counts.items():
                positions = codes[key[0]] if len(key) == 1 else codes[key[0]] * sizes[key[1]] + codes[key[1]]
                sums += np.bincount(positions, minlength=len(sums))
        result = []
        for pair, key in zip(asked, wanted, strict=True):
            columns = list(itertools.chain(*(groups[g].columns for g in key)))
            shape = list(itertools.chain(*(groups[g].shape for g in key)))
            kept = [columns.index(column) for column in _columns(pair)]
            summed = counts[key].reshape(shape).sum(axis=tuple(k for k in range(len(shape)) if k not in kept))
            result.append(summed if kept == sorted(kept) else summed.T)
        return result

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

    kernels = {  # noqa: RUF012 - as the class they are never changed
        Contraction: lambda self, asked: self.contract(asked.axes),
        Entries: lambda self, asked: self.gather(asked.positions),
        InnerProduct: lambda self, asked: self.inner(asked.weights, asked.bits),
        CellCounts: cell_counts,
        AllEntries: all_entries,
    }


def _places(cells: Partition | None, step: int, size: int) -> IntArray | None:
    """Where the cell of each value begins among all cells, ``size`` for one that is not counted; None where each is its
    own."""
    if cells is None or cells.cells == cells.size:
        return None
    labels = cells.labels
    return np.where(labels < 0, size, labels * step)


def _is_pair(asked: CellCounts) -> bool:
    return len(asked.axes) == 2 and asked.plain and asked.whole


def _columns(asked: CellCounts) -> list[tuple[int, Partition | None]]:
    return list(zip(asked.axes, asked.cells, strict=True))
