"""Partitions of a table: its attributes' values divided into cells, and the cells of some attributes together.

Every value may be a cell by itself, or values share coarse cells (bins, or inside and outside of a condition). One
record is counted in one cell, so adding or removing one moves one count by one, whatever the number of cells. The
marginal on no attributes is the total.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from app.patience import still_wanted
from app.spaces.lazy import lazy
from app.spaces.tensor import Array, FloatArray, IntArray, index_set

#: A partition of more values than this is kept by its runs of neighbours, and written so where each run is a cell.
_LONG = 1 << 12


class Partition:
    """A division of an attribute's values into cells: ``labels[value]`` is the value's cell.

    Cells are numbered in the order of their least values, so that one division has one form. Of very many values the
    runs of neighbours in one cell are kept, and of single values nothing: what a partition takes is as much as it
    tells apart, however many values there are. Of a partition of some values alone (:meth:`some`) the others are in no
    cell, which is told by -1.

    Raises:
        ValueError: when the labels are not numbered so.
    """

    def __init__(self, labels: Array) -> None:
        labels = np.array(labels, dtype=np.int64)
        if labels.ndim != 1 or not len(labels) or labels.min() != 0 or labels[0] != 0:
            raise ValueError("a partition has a cell for each value, the first of them 0")
        if bool((labels[1:] > np.maximum.accumulate(labels)[:-1] + 1).any()):
            raise ValueError("cells of a partition are numbered in the order of their least values")
        self._number(labels)

    def _number(self, labels: IntArray) -> None:
        """Keep the cells of all values, numbered as they are to be."""
        if len(labels) <= _LONG:
            labels.setflags(write=False)
            self._fill(len(labels), int(labels.max()) + 1, labels, None)
        else:
            begins = np.flatnonzero(np.diff(labels, prepend=-2))
            self._keep(len(labels), begins, labels[begins])

    def _fill(self, size: int, cells: int, labels: IntArray | None, runs: tuple[Array, Array] | None) -> None:
        still_wanted()  # plans of many questions come by here again and again
        #: How many values there are, and how many cells.
        self.size, self.cells = size, cells
        self._labels, self._runs = labels, runs

    def _keep(self, size: int, begins: Array, labels: Array) -> None:
        """Keep very many values by their runs: where each begins, and its cell."""
        cells = int(labels.max()) + 1
        runs = None if cells == size else (begins.astype(np.int32), labels.astype(np.int32))
        self._fill(size, cells, None, runs)

    @classmethod
    def _of_runs(cls, size: int, begins: IntArray, labels: IntArray) -> Partition:
        """Of runs of neighbours, each with the number of its cell."""
        if size <= _LONG:
            return cls(np.repeat(labels, np.diff(begins, append=size)))
        made = cls.__new__(cls)
        made._keep(size, begins, labels)
        return made

    @classmethod
    def of(cls, labels: Array) -> Partition:
        """The partition into values of equal label, however the labels are spelled."""
        labels = np.asarray(labels)
        if len(labels) <= _LONG:
            made = cls.__new__(cls)
            made._number(_numbered(labels))
            return made
        begins = np.concatenate([[0], np.flatnonzero(labels[1:] != labels[:-1]) + 1])
        numbered = _numbered(labels[begins])
        kept = np.diff(numbered, prepend=-1) != 0
        return cls._of_runs(len(labels), begins[kept], numbered[kept])

    @classmethod
    def some(cls, labels: Array) -> Partition:
        """The partition of the values that have a label, however the labels are spelled; -1 is none. Some value has."""
        kept = labels >= 0
        if bool(kept.all()):
            return cls.of(labels)
        numbered = np.full(len(labels), -1, np.int64)
        numbered[kept] = _numbered(labels[kept])
        made = cls.__new__(cls)
        made._number(numbered)
        return made

    @classmethod
    @lru_cache(maxsize=256)
    def singles(cls, size: int) -> Partition:
        """Every value a cell."""
        if size <= _LONG:
            return cls(np.arange(size))
        made = cls.__new__(cls)
        made._fill(size, size, None, None)
        return made

    @classmethod
    def runs(cls, size: int, starts: Sequence[int] | IntArray) -> Partition:
        """The partition of so many values into runs of neighbours that begin at these places.

        Raises:
            ValueError: when the first does not begin at 0, or they do not ascend below the size.
        """
        begins = np.array(starts, dtype=np.int64)
        if not len(begins) or begins[0] != 0 or bool((np.diff(begins) <= 0).any()) or begins[-1] >= size:
            raise ValueError("runs begin at 0 and ascend below the number of values")
        return cls._of_runs(size, begins, np.arange(len(begins)))

    @property
    def labels(self) -> IntArray:
        """The cell of each value; of very many values made each time."""
        if self._labels is not None:
            return self._labels
        if self._runs is None:
            return np.arange(self.size)
        begins, labels = self._runs
        return np.repeat(labels.astype(np.int64), np.diff(begins, append=self.size))

    @property
    def _stretches(self) -> tuple[Array, Array]:
        """Where runs of values in one cell begin, and their cells; short partitions have one for each value."""
        if self._runs is not None:
            return self._runs
        return np.arange(self.size), self.labels

    @property
    def counts(self) -> IntArray:
        """Number of values in each cell."""
        return np.ones(self.size, np.int64) if self.cells == self.size else self._counts

    @lazy
    def _counts(self) -> IntArray:
        if self._labels is not None:
            return np.bincount(self._labels + 1, minlength=self.cells + 1)[1:]
        begins, labels = self._stretches
        counts = np.zeros(self.cells + 1, np.int64)
        np.add.at(counts, labels, np.diff(begins, append=self.size))
        return counts[:-1]

    @property
    def members(self) -> IntArray:
        """The least value of each cell."""
        return np.arange(self.size) if self.cells == self.size else self._members

    @lazy
    def _members(self) -> IntArray:
        begins, labels = self._stretches
        return begins[np.unique(labels, return_index=True)[1][-self.cells :]].astype(np.int64)

    @lazy
    def whole(self) -> bool:
        """Whether every value is in a cell."""
        return self.cells == self.size or bool(self._stretches[1].min() >= 0)

    @property
    def is_one(self) -> bool:
        """Whether all values are in one cell."""
        return self.cells == 1 and self.whole

    def filled(self) -> Partition:
        """The partition of all values, with one more cell for those that are in none."""
        return self if self.whole else Partition.of(self.labels)

    @property
    def kept(self) -> IntArray:
        """The values that are in cells, ascending."""
        return np.arange(self.size) if self.cells == self.size else np.flatnonzero(self.labels >= 0)

    @property
    def grouped(self) -> tuple[IntArray, IntArray]:
        """The values that are in cells, cell by cell, and where each cell begins among them."""
        order = self.kept
        if not self.in_order:
            order = order[np.argsort(self.at(order), kind="stable")]
        return order, np.cumsum(self.counts) - self.counts

    @lazy
    def in_order(self) -> bool:
        """Whether no value is before another one of an earlier cell."""
        labels = self._stretches[1]
        return bool((np.diff(labels[labels >= 0]) >= 0).all())

    def listed(self) -> list[IntArray]:
        """The values of each cell, ascending."""
        order, starts = self.grouped
        return np.split(order, starts[1:])

    def summed(self, array: Array, axis: int) -> Array:
        """The array with one axis, along the values, summed over each cell."""
        if self.cells == self.size:
            return array
        starts = self.members
        if not (self.whole and self.in_order):
            order, starts = self.grouped
            index = index_set(self.size, order) if self.in_order else order
            array = array[(slice(None),) * axis + (index,)]
            if len(starts) == len(order):
                return array
        summed: Array = np.add.reduceat(array, starts, axis=axis, dtype=np.int64 if array.dtype.kind in "iu" else None)
        return summed

    def spread(self, array: FloatArray, axis: int) -> FloatArray:
        """The array with each cell along one axis repeated for all values in it."""
        return array if self.cells == self.size else np.take(array, self.labels, axis=axis)

    @lazy
    def least(self) -> int:
        """Number of values in the smallest cell."""
        return int(self.counts.min())

    @lazy
    def most(self) -> int:
        """Number of values in the largest cell."""
        return int(self.counts.max())

    @property
    def even(self) -> bool:
        """Whether every cell has equally many values."""
        return self.least == self.most

    def at(self, values: IntArray) -> IntArray:
        """The cells of some values."""
        if self._labels is not None:
            return self._labels[values]
        if self._runs is None:
            return np.asarray(values, np.int64)
        begins, labels = self._runs
        return labels[np.searchsorted(begins, values, side="right") - 1].astype(np.int64)

    @lazy
    def canonical(self) -> dict[str, Any]:
        """As queries tell it: a range or a list of values, each by itself; bins by their edges; else all cells."""
        if self.cells == self.size:
            return {"range": [0, self.size]}
        if self.in_order:
            order, starts = self.grouped
            index = index_set(self.size, order)
            if len(starts) == len(order):
                return {"range": [index.start, index.stop]} if isinstance(index, slice) else {"in": order.tolist()}
            if isinstance(index, slice):
                return {"edges": [*order[starts].tolist(), index.stop]}
        return {"cells": self.labels.tolist()}

    def document(self) -> Any:
        """As JSON: the cell of each value, or of very many values in runs of neighbours where each run begins."""
        if self.size > _LONG and bool((np.diff(self._stretches[1]) >= 0).all()):
            return {"runs": self.members.tolist()}
        return self.labels.tolist()

    @classmethod
    def read(cls, document: Any, size: int) -> Partition:
        """The partition of a document, of so many values.

        Raises:
            ValueError, KeyError, TypeError: when it is none.
        """
        if isinstance(document, Mapping):
            if size <= _LONG or document.keys() != {"runs"}:
                raise ValueError("runs are told of very many values alone")
            return cls.runs(size, read_integers(document["runs"]))
        return cls(read_integers(document))

    def refines(self, other: Partition) -> bool:
        """Whether every cell of the other is a union of cells of this one."""
        if self.size != other.size or other.cells > self.cells + 1:
            return False
        if self.cells == self.size or other.is_one:
            return True
        _, own, others = self._beside(other)
        return bool((others[np.unique(own, return_index=True)[1]][own] == others).all())

    def met(self, other: Partition) -> Partition:
        """The coarsest partition that refines both."""
        if self.cells == self.size or other.is_one:
            return self
        if other.cells == other.size or self.is_one:
            return other
        begins, own, others = self._beside(other)
        return Partition._of_runs(self.size, begins, _numbered(own * other.cells + others))

    def _beside(self, other: Partition) -> tuple[IntArray, IntArray, IntArray]:
        """Where values begin that both have in one cell, and the cells of either there."""
        if self.size <= _LONG:
            return np.arange(self.size), self.labels, other.labels
        begins = np.union1d(self._stretches[0], other._stretches[0]).astype(np.int64)
        return begins, self.at(begins), other.at(begins)

    def over(self, finer: Partition) -> Partition:
        """This partition as one of the cells of a finer one, which are in the order of their least values too."""
        if finer.cells == finer.size:
            return self
        return Partition(self.at(finer.members))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Partition) or (self.size, self.cells) != (other.size, other.cells):
            return False
        if self.cells == self.size:
            return True
        pairs = zip(self._stretches, other._stretches, strict=True)
        return hash(self) == hash(other) and all(np.array_equal(one, two) for one, two in pairs)

    def __hash__(self) -> int:
        return self._hash

    @lazy
    def _hash(self) -> int:
        if self.cells == self.size:
            return hash(("singles", self.size))
        return hash((self.size, *(part.tobytes() for part in self._stretches)))

    def __repr__(self) -> str:
        return f"Partition(size={self.size}, cells={self.cells})"


def _numbered(labels: Array) -> IntArray:
    """Labels renumbered in the order of the first place where each stands."""
    if len(labels) and bool((labels[1:] >= labels[:-1]).all()):
        return np.concatenate([[0], np.cumsum(labels[1:] > labels[:-1])])
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    numbered: IntArray = rank[inverse]
    return numbered


def read_integers(listed: Any) -> IntArray:
    """Integers of a document, one or more.

    Raises:
        ValueError: for anything else.
    """
    array = np.array(listed)
    if array.dtype != np.int64 or array.ndim != 1:
        raise ValueError("not a list of 64-bit integers")
    return array


@dataclass(frozen=True)
class Marginal:
    """A marginal: a cell for each combination of the cells of some attributes.

    Attributes are numbered as the axes of the table and stand in ascending order; ``sizes`` are their numbers of
    values. ``None`` stands for the partition into single values, which is never written out. There are at least two
    cells along each attribute: one that is not told apart is not named.

    Raises:
        ValueError: when it is not of this form.
    """

    attributes: tuple[int, ...]
    sizes: tuple[int, ...]
    partitions: tuple[Partition | None, ...]

    def __post_init__(self) -> None:
        if not len(self.attributes) == len(self.sizes) == len(self.partitions):
            raise ValueError("a marginal has a size and a partition for each attribute")
        if any(a < 0 for a in self.attributes) or sorted(set(self.attributes)) != list(self.attributes):
            raise ValueError("the attributes of a marginal stand in ascending order")
        for size, partition in zip(self.sizes, self.partitions, strict=True):
            if partition is not None and not partition.whole:
                raise ValueError("a partition of a marginal is of all values")
            if size < 2 or (partition is not None and (partition.size != size or not 1 < partition.cells < size)):
                raise ValueError(
                    "a partition is of all values and has at least two cells, fewer than its attribute has values"
                )

    @classmethod
    def of(cls, sizes: Sequence[int] | Mapping[int, int], cells: Mapping[int, Partition | None]) -> Marginal:
        """The marginal of a table with these numbers of values that counts each named attribute in the given cells.

        Attributes whose values share one cell are left out.

        Raises:
            ValueError: when a partition is of another number of values.
        """
        kept: dict[int, Partition | None] = {}
        for attribute, partition in sorted(cells.items()):
            single = partition is None or partition.cells == partition.size == sizes[attribute]
            if sizes[attribute] > 1 and (partition is None or partition.cells > 1):
                kept[attribute] = None if single else partition
        return cls(tuple(kept), tuple(sizes[a] for a in kept), tuple(kept.values()))

    @lazy
    def shape(self) -> tuple[int, ...]:
        """Number of cells along each attribute."""
        return tuple(s if p is None else p.cells for s, p in zip(self.sizes, self.partitions, strict=True))

    @property
    def cells(self) -> int:
        """Number of counts."""
        return math.prod(self.shape)

    @lazy
    def whole(self) -> bool:
        """Whether every named attribute is counted value by value."""
        return all(p is None for p in self.partitions)

    def partition(self, axis: int) -> Partition:
        """The partition along one of the named attributes, single values written out."""
        return self.partitions[axis] or Partition.singles(self.sizes[axis])

    def within(self, shape: Sequence[int]) -> FloatArray:
        """How many cells of a table of this shape are in each of the marginal's, in its own shape."""
        others = math.prod(float(n) for a, n in enumerate(shape) if a not in self.attributes)
        counts = np.full((), others)
        for axis in range(len(self.attributes)):
            counts = counts[..., None] * self.partition(axis).counts
        return counts

    def spread(self, array: FloatArray, shape: Sequence[int]) -> FloatArray:
        """A number for each cell given to all cells of a table of this shape that are in it; it broadcasts to them."""
        for axis in range(len(self.attributes)):
            array = self.partition(axis).spread(array, axis)
        return array.reshape([n if a in self.attributes else 1 for a, n in enumerate(shape)])

    def onto(self, attributes: frozenset[int]) -> Marginal:
        """This marginal summed over all attributes but the given ones."""
        kept = [k for k, a in enumerate(self.attributes) if a in attributes]
        if len(kept) == len(self.attributes):
            return self
        return Marginal(
            tuple(self.attributes[k] for k in kept),
            tuple(self.sizes[k] for k in kept),
            tuple(self.partitions[k] for k in kept),
        )

    def document(self) -> dict[str, Any]:
        """The marginal as JSON."""
        return {
            "attributes": list(self.attributes),
            "partitions": [None if p is None else p.document() for p in self.partitions],
            "sizes": list(self.sizes),
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Marginal:
        """The marginal of a document.

        Raises:
            ValueError: when it is none.
        """
        try:
            sizes = tuple(document["sizes"])
            parts = zip(document["partitions"], sizes, strict=True)
            return cls(
                tuple(document["attributes"]),
                sizes,
                tuple(None if p is None else Partition.read(p, n) for p, n in parts),
            )
        except (KeyError, TypeError) as error:
            raise ValueError("not the document of a marginal") from error
