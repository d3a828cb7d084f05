"""Exact counts: the one interface through which private data are asked.

A query, a strategy or a fact says what it needs as *tallies*: whole numbers that are counted on the data, without
noise. Whoever holds private data offers some kinds of tallies and refuses the others before anything is counted; what
is asked at once may be counted together. Nobody but them knows how the data are held.

Every number is exact, and within 64 bits: the space's capacity bounds all sums (:mod:`app.spaces.space`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from app.spaces.errors import NotOffered
from app.spaces.lazy import lazy
from app.spaces.partition import Marginal, Partition
from app.spaces.tensor import Array, Axes, IntArray, Members, along

_ALL = slice(None)


class Tally(ABC):
    """Whole numbers that are counted on private data. Each kind says what they are, in units of the data."""

    @abstractmethod
    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether data with so many cells along each axis have such numbers."""


@dataclass(frozen=True, eq=False)
class Contraction(Tally):
    """The sum over all cells of entry times the product of the axes' weights, in units of their grids: an ``int``.

    Attributes:
        axes: weights along each axis; None where all are one.
    """

    axes: Axes

    def fits(self, shape: tuple[int, ...]) -> bool:
        return len(self.axes) == len(shape)


@dataclass(frozen=True, eq=False)
class Entries(Tally):
    """Single entries, a flat array.

    Attributes:
        positions: row-major ones; of a multiset elements, those that it lacks being zero.
    """

    positions: Array

    def fits(self, shape: tuple[int, ...]) -> bool:
        return bool(shape) != (self.positions.dtype == object)


@dataclass(frozen=True, eq=False)
class InnerProduct(Tally):
    """The sum of entry times weight over all cells, in units of the weights' grid: an ``int``.

    Attributes:
        weights: one a cell, whole units of 2^-bits.
    """

    weights: Array
    bits: int

    def fits(self, shape: tuple[int, ...]) -> bool:
        return self.weights.shape == shape


@dataclass(frozen=True, eq=False)
class CellCounts(Tally):
    """The entries of a table added up in cells, an array of as many: the numbers of records, or sums of a weight of
    them.

    Attributes:
        axes: attributes that are counted by, ascending.
        cells: of each of them; None where each value is one. Values may be in none: their records are not counted.
        shape: how many cells there are of each.
        where: attributes that records are selected by, each by itself, and the values that are selected.
        among: attributes that records are selected by together, ascending, and for each combination of their values
            whether it is selected.
        factors: attributes, each with what a record weighs by its value: the first so many values, others nothing. A
            record weighs the product of these, and one where there are none.
        again: whether others with the same attributes are likely to follow, so that what is made on the way may be
            worth keeping.
    """

    axes: tuple[int, ...]
    cells: tuple[Partition | None, ...]
    shape: tuple[int, ...]
    where: tuple[tuple[int, Members], ...] = ()
    among: tuple[tuple[int, ...], Array] | None = None
    factors: tuple[tuple[int, IntArray], ...] = ()
    again: bool = False

    @classmethod
    def of(cls, marginal: Marginal, factors: tuple[tuple[int, IntArray], ...] = ()) -> CellCounts:
        """The counts of a marginal, or sums of a product of weights over its cells."""
        return cls(marginal.attributes, marginal.partitions, marginal.shape, factors=factors)

    def fits(self, shape: tuple[int, ...]) -> bool:
        return bool(shape) and (not self.named or self.named[-1] < len(shape))

    @lazy
    def named(self) -> tuple[int, ...]:
        """All attributes that it depends on, ascending."""
        if self.plain:
            return self.axes
        together = () if self.among is None else self.among[0]
        return tuple(sorted({*self.axes, *dict(self.where), *together, *dict(self.factors)}))

    @property
    def plain(self) -> bool:
        """Whether records count one each, and are not selected."""
        return not self.where and self.among is None and not self.factors

    @property
    def singles(self) -> bool:
        """Whether every value of what is counted by is a cell."""
        return self.cells.count(None) == len(self.cells)

    @property
    def whole(self) -> bool:
        """Whether every value of what is counted by is in a cell."""
        return all(cells is None or cells.whole for cells in self.cells)

    def weights(self, shape: Sequence[int] | Mapping[int, int]) -> list[tuple[int, IntArray]]:
        """The factors of data of this shape, each with the weight of every value."""
        return [(axis, np.append(told, np.zeros(shape[axis] - len(told), np.int64))) for axis, told in self.factors]

    def of_marginal(self, counts: Array) -> IntArray:
        """The numbers from the counts of single values of :attr:`named`, one axis each; a new array."""
        if self.plain and self.singles:
            return np.array(counts, np.int64)
        partitions, selected = dict(zip(self.axes, self.cells, strict=True)), dict(self.where)
        lengths = counts.shape
        if self.among is not None:
            axes, selection = self.among
            if axes == self.named and not self.axes and not self.where and not self.factors:
                return np.asarray(counts[selection].sum(dtype=np.int64))
            counts = counts * selection.reshape(
                [length if axis in axes else 1 for axis, length in zip(self.named, lengths, strict=True)]
            )
        for axis, weights in self.weights(dict(zip(self.named, lengths, strict=True))):
            counts = np.asarray(counts, np.int64) * along(weights, self.named.index(axis), len(lengths))
        # From the last axis on, so that those before keep their places.
        for place, axis in reversed(list(enumerate(self.named))):
            if axis in partitions:
                cells = partitions[axis]
                counts = counts if cells is None else cells.summed(counts, place)
            else:
                index = selected.get(axis, _ALL)
                counts = counts[(_ALL,) * place + (index,)].sum(axis=place, dtype=np.int64)
        return np.array(counts, np.int64)


@dataclass(frozen=True, eq=False)
class LineSums(Tally):
    """The sums of the rows of a matrix, or of its columns, with weights or without: a flat array, one a line.

    Attributes:
        axis: 0 for a number a row, 1 for a number a column.
        weights: a whole number for each entry of a line; None where all weigh one.
        diagonal: whether entries on the diagonal are added, too.
    """

    axis: int
    weights: IntArray | None = None
    diagonal: bool = True

    def fits(self, shape: tuple[int, ...]) -> bool:
        return len(shape) == 2 and (self.weights is None or self.weights.shape == (shape[1 - self.axis],))


@dataclass(frozen=True, eq=False)
class BlockSums(Tally):
    """The sums of a matrix' entries between groups of rows and groups of columns: a new array, one axis a side.

    Attributes:
        left: the groups of rows; some may be in none.
        right: of columns.
        within: where only the sums from a group to the one that goes with it are wanted, one a group to the left: for
            each column the group to the left that its own goes with, -1 where it is in none.
    """

    left: Partition
    right: Partition
    within: IntArray | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """How many sums there are along each axis."""
        return (self.left.cells, self.right.cells) if self.within is None else (self.left.cells,)

    def fits(self, shape: tuple[int, ...]) -> bool:
        return (self.left.size, self.right.size) == shape


@dataclass(frozen=True, eq=False)
class AllEntries(Tally):
    """All entries: an array of the data's shape, or a sparse matrix of what is not zero. Not to be written to."""

    def fits(self, shape: tuple[int, ...]) -> bool:
        return bool(shape)


class NotCounted(Exception):
    """Numbers were not told as they are yet to be counted, where the records are. Nothing was told, and nothing drawn.

    Attributes:
        count: has them counted, which may take minutes; then the same is asked again. It raises what counting meets.
        seconds: after which whoever asked goes on, however long counting takes, where the declaration says it; else 0.
        place: of those that count apart from one another; empty for what is counted here.
    """

    def __init__(self, count: Callable[[], None], seconds: float = 0.0, place: str = "") -> None:
        super().__init__("numbers are yet to be counted where the records are")
        self.count, self.seconds, self.place = count, seconds, place


class ExactCounts(Protocol):
    """The private numbers of a data set, as they are asked: each of the four kinds of data, and what stands for one."""

    @property
    def nbytes(self) -> int:
        """Bytes that it takes in memory, with what was made of it and is kept."""

    def offers(self, tally: Tally) -> bool:
        """Whether it tells such numbers: known from the declaration alone."""

    def tell(self, asked: Sequence[Tally]) -> Iterator[Any]:
        """The numbers of tallies in their order, each as its kind says, one after another as they are taken, in about
        the time of a pass over memory. What is asked at once is of one state of the data, and counted in as few passes
        over them as can be.

        Raises:
            NotOffered: before anything is counted, when one of them is not offered.
            NotCounted: before anything is told, when some of it must be counted elsewhere first.
        """


class CountedFirst:
    """Private numbers for whoever may wait: what is yet to be counted is counted when it is asked for.

    Args:
        data: the numbers.
        wait: has what they lack counted, and returns then. It raises what counting meets.
    """

    def __init__(self, data: ExactCounts, wait: Callable[[NotCounted], None]) -> None:
        self._data, self._wait = data, wait

    @property
    def nbytes(self) -> int:
        """Bytes that they take in memory."""
        return self._data.nbytes

    def offers(self, tally: Tally) -> bool:
        """Whether such numbers are told."""
        return self._data.offers(tally)

    def tell(self, asked: Sequence[Tally]) -> Iterator[Any]:
        """The numbers of tallies, counted before this returns.

        Raises:
            NotOffered: before anything is counted, when one of them is not offered.
        """
        try:
            return self._data.tell(asked)
        except NotCounted as lacking:
            self._wait(lacking)
        return self._data.tell(asked)


class ArrayCounts(ABC):
    """The base of private data in memory, which have a kernel for each kind of tally that they offer."""

    #: How many cells there are along each axis.
    shape: tuple[int, ...]
    #: By kind of tally what counts it.
    kernels: ClassVar[Mapping[type[Tally], Callable[[Any, Any], Any]]]

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes that it takes in memory, with what was made of it and is kept."""

    def offers(self, tally: Tally) -> bool:
        """Whether there is a kernel for it, and it fits the data's shape."""
        return type(tally) in self.kernels and tally.fits(self.shape)

    def tell(self, asked: Sequence[Tally]) -> Iterator[Any]:
        """The numbers of tallies, one after another as they are taken.

        Raises:
            NotOffered: before anything is counted, when one of them is not offered.
        """
        check_offered(self, asked)
        return self.counted(asked)

    def counted(self, asked: Sequence[Tally]) -> Iterator[Any]:
        """The numbers of tallies that are offered."""
        return (self.kernels[type(tally)](self, tally) for tally in asked)


def check_offered(data: ExactCounts, asked: Sequence[Tally]) -> None:
    """Refuse what private data do not tell.

    Raises:
        NotOffered: when one of these is not offered.
    """
    if not all(map(data.offers, asked)):
        raise not_offered()


def not_offered() -> NotOffered:
    """The refusal of numbers that private data do not tell."""
    return NotOffered("such numbers are not counted on this data set: ask for others")
