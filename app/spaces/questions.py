"""Questions of a table: sums of its counts with public weights that depend on a few attributes.

Each question names only the attributes that its weights depend on. Weights are real numbers, counts are those of the
table with all other attributes summed out.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from app.spaces.errors import InvalidQuery
from app.spaces.lazy import lazy
from app.spaces.partition import Marginal, Partition
from app.spaces.tensor import Array, FloatArray, IntArray, along

#: The most cells that are counted and drawn for one question: a second or so, in which others of its lane wait.
MOST_COUNTED = 1 << 16


class Question(ABC):
    """One sum, or one for each cell of a marginal."""

    #: The attributes that the weights depend on, ascending.
    attributes: tuple[int, ...]
    #: Whether some answers are the sums of others, and are shown so.
    additive: ClassVar[bool] = False

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, ...]:
        """Number of values of each named attribute."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the answers: () for one sum."""

    @property
    @abstractmethod
    def range(self) -> tuple[float, float]:
        """The smallest and the largest weight."""

    @abstractmethod
    def partition(self, axis: int) -> Partition:
        """The values of a named attribute that weigh alike, whatever the others are."""

    @abstractmethod
    def of(self, counts: FloatArray, partitions: Sequence[Partition]) -> FloatArray:
        """The answers from counts of cells, one partition for each named attribute, each finer than its own."""

    @lazy
    def partitions(self) -> tuple[Partition, ...]:
        """The partition of each named attribute."""
        return tuple(self.partition(k) for k in range(len(self.attributes)))

    @property
    def cells(self) -> int:
        """Number of cells that it tells apart."""
        return math.prod(p.cells for p in self.partitions)

    @property
    def merged(self) -> int:
        """How many of these cells one of several answers sums at most."""
        return 1

    def marginal_of(self, sizes: Sequence[int]) -> Marginal:
        """The marginal of the cells that it tells apart, of a table with these numbers of values."""
        return Marginal.of(sizes, dict(zip(self.attributes, self.partitions, strict=True)))


class Sum(Question):
    """A question with a single answer."""

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    @abstractmethod
    def on(self, partitions: Sequence[Partition]) -> FloatArray:
        """The weights of the cells of one partition for each named attribute: those of each cell's least values."""

    def of(self, counts: FloatArray, partitions: Sequence[Partition]) -> FloatArray:
        return np.asarray((counts * self.on(partitions)).sum())


@dataclass(frozen=True, eq=False)
class Product(Sum):
    """Weights that are a product of one vector for each attribute, times ``scale``.

    Make it with :meth:`over`, which leaves out what weighs all values alike.
    """

    attributes: tuple[int, ...]
    vectors: tuple[FloatArray, ...]
    scale: float

    @classmethod
    def over(cls, weights: Mapping[int, Array], scale: float = 1.0) -> Product:
        """The question with these weights, a vector over all values for each named attribute."""
        kept: dict[int, FloatArray] = {}
        for attribute, given in sorted(weights.items()):
            vector = np.array(given, dtype=np.float64)
            if bool((vector == vector[0]).all()):
                scale *= float(vector[0])
            else:
                kept[attribute] = vector
        return cls(tuple(kept), tuple(kept.values()), scale)

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(len(v) for v in self.vectors)

    @lazy
    def range(self) -> tuple[float, float]:
        low = high = self.scale
        for vector in self.vectors:
            corners = [bound * end for bound in (low, high) for end in (float(vector.min()), float(vector.max()))]
            low, high = min(corners), max(corners)
        return low, high

    def partition(self, axis: int) -> Partition:
        return Partition.of(self.vectors[axis])

    def on(self, partitions: Sequence[Partition]) -> FloatArray:
        weights = np.full((), self.scale)
        for vector, partition in zip(self.vectors, partitions, strict=True):
            weights = weights[..., None] * vector[partition.members]
        return weights


@dataclass(frozen=True, eq=False)
class Local(Sum):
    """Any weights on the cells of a marginal: one axis for each named attribute, a weight for each combination.

    Make it with :meth:`over`, which leaves out attributes that do not matter.
    """

    attributes: tuple[int, ...]
    weights: FloatArray

    @classmethod
    def over(cls, attributes: Sequence[int], weights: Array) -> Local:
        """The question with these weights; attributes in the order of the axes.

        Raises:
            ValueError: when there are not as many different attributes as axes.
        """
        array = np.array(weights, dtype=np.float64)
        if len(set(attributes)) != len(attributes) or array.ndim != len(attributes):
            raise ValueError("local weights have one axis for each attribute")
        order = np.argsort(np.array(attributes, dtype=np.int64))
        array, kept = array.transpose(order), sorted(attributes)
        for axis in reversed(range(array.ndim)):
            first = array.take([0], axis=axis)
            if bool((array == first).all()):
                array = first.squeeze(axis)
                del kept[axis]
        return cls(tuple(kept), np.array(array, order="C"))

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.weights.shape

    @lazy
    def range(self) -> tuple[float, float]:
        return float(self.weights.min()), float(self.weights.max())

    def partition(self, axis: int) -> Partition:
        rows = np.moveaxis(self.weights, axis, 0).reshape(self.weights.shape[axis], -1)
        # Rows as bytes, which are sorted many times faster than numbers side by side; of two zeros one is negative.
        rows = np.ascontiguousarray(rows + 0.0)
        whole = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).reshape(-1)
        return Partition.of(np.unique(whole, return_inverse=True)[1])

    def on(self, partitions: Sequence[Partition]) -> FloatArray:
        return self.weights[np.ix_(*(p.members for p in partitions))] if partitions else self.weights


@dataclass(frozen=True, eq=False)
class _OfCells(Question):
    """A question that tells the cells of a marginal apart."""

    marginal: Marginal

    @property
    def attributes(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.marginal.attributes

    @property
    def sizes(self) -> tuple[int, ...]:
        return self.marginal.sizes

    def partition(self, axis: int) -> Partition:
        return self.marginal.partition(axis)


@dataclass(frozen=True, eq=False)
class Cells(_OfCells):
    """Every cell of a marginal, each a sum with weights of 0 and 1."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.marginal.shape

    @property
    def range(self) -> tuple[float, float]:
        return (0.0, 1.0) if self.attributes else (1.0, 1.0)

    def of(self, counts: FloatArray, partitions: Sequence[Partition]) -> FloatArray:
        for axis, partition in enumerate(partitions):
            counts = self.marginal.partition(axis).over(partition).summed(counts, axis)
        return counts


@dataclass(frozen=True, eq=False)
class WeightedCells(Question):
    """For every cell of a marginal the sum of a weight that depends on the value of one more attribute.

    Attributes:
        marginal: whose cells there is an answer of. The attribute with weights may be one of its own.
        axis: the attribute with weights.
        weights: of its values, not all alike.
    """

    marginal: Marginal
    axis: int
    weights: FloatArray

    @lazy
    def attributes(self) -> tuple[int, ...]:  # type: ignore[override]
        return tuple(sorted({*self.marginal.attributes, self.axis}))

    @lazy
    def sizes(self) -> tuple[int, ...]:
        own = dict(zip(self.marginal.attributes, self.marginal.sizes, strict=True)) | {self.axis: len(self.weights)}
        return tuple(own[a] for a in self.attributes)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.marginal.shape

    @lazy
    def range(self) -> tuple[float, float]:
        low, high = float(self.weights.min()), float(self.weights.max())
        return (low, high) if not self.marginal.attributes else (min(low, 0.0), max(high, 0.0))

    def cells_along(self, attribute: int) -> Partition | None:
        """The cells of an attribute that answers are told apart by; None where it is none of the marginal's."""
        own = self.marginal
        return own.partition(own.attributes.index(attribute)) if attribute in own.attributes else None

    def partition(self, axis: int) -> Partition:
        cells = self.cells_along(self.attributes[axis])
        if self.attributes[axis] != self.axis:
            assert cells is not None
            return cells
        alike = Partition.of(np.unique(self.weights, return_inverse=True)[1])
        return alike if cells is None else alike.met(cells)

    def of(self, counts: FloatArray, partitions: Sequence[Partition]) -> FloatArray:
        return self._summed(counts, partitions, self.weights)

    def squared(self, variances: FloatArray, partitions: Sequence[Partition]) -> FloatArray:
        """The variances of the answers from those of independent counts."""
        return self._summed(variances, partitions, np.square(self.weights))

    def _summed(self, counts: FloatArray, partitions: Sequence[Partition], weights: FloatArray) -> FloatArray:
        place = self.attributes.index(self.axis)
        counts = counts * along(weights[partitions[place].members], place, counts.ndim)
        for axis in reversed(range(len(partitions))):
            cells = self.cells_along(self.attributes[axis])
            counts = counts.sum(axis=axis) if cells is None else cells.over(partitions[axis]).summed(counts, axis)
        return counts


@dataclass(frozen=True, eq=False)
class Groups(_OfCells):
    """Sums of cells of a marginal, of which each is counted in one answer or in none.

    ``answers`` has for each cell, in the marginal's shape, the number of its answer, or -1; ``shape`` is that of the
    answers, which are numbered row by row. There may be answers without a cell.
    """

    answers: IntArray
    shape: tuple[int, ...] = ()

    @property
    def range(self) -> tuple[float, float]:
        return 0.0, 1.0

    @lazy
    def merged(self) -> int:
        return int(np.bincount(self._flat).max(initial=1)) if len(self._flat) else 1

    @lazy
    def _flat(self) -> IntArray:
        return self.answers[self.answers >= 0]

    def of(self, counts: FloatArray, partitions: Sequence[Partition]) -> FloatArray:
        return self.summed(Cells(self.marginal).of(counts, partitions))

    def summed(self, counts: FloatArray) -> FloatArray:
        """The answers from counts in the marginal's shape; NaN where one of its cells is."""
        weights = counts[self.answers >= 0]
        sums = np.bincount(self._flat, weights=weights, minlength=math.prod(self.shape))
        return sums.astype(np.float64).reshape(self.shape)

    @lazy
    def empty(self) -> Array:
        """Which answers sum no cell."""
        empty: Array = np.bincount(self._flat, minlength=math.prod(self.shape)).reshape(self.shape) == 0
        return empty


@dataclass(frozen=True, eq=False)
class Nested(_OfCells):
    """Sums of cells of a marginal along one attribute, of which any two share no cell or one has all of the other's.

    Attributes:
        marginal: whose cells are summed.
        attribute: along which they are; one of the marginal's own.
        levels: its values divided ever finer, each level refining the one before; the last has the marginal's cells.
        nodes: for each answer along that attribute its level, and its cell there.

    Raises:
        ValueError: for levels that are not of this form.
    """

    attribute: int
    levels: tuple[Partition, ...]
    nodes: IntArray
    additive = True

    def __post_init__(self) -> None:
        finer = zip(self.levels[1:], self.levels, strict=False)
        if self.levels[-1] != self.marginal.partition(self.place) or not all(a.refines(b) for a, b in finer):
            raise ValueError("each level refines the one before, and the last one is the marginal's own")

    @property
    def place(self) -> int:
        """That of the attribute among the marginal's."""
        return self.marginal.attributes.index(self.attribute)

    @lazy
    def shape(self) -> tuple[int, ...]:
        return (*self.marginal.shape[: self.place], len(self.nodes), *self.marginal.shape[self.place + 1 :])

    @property
    def range(self) -> tuple[float, float]:
        return 0.0, 1.0

    @lazy
    def merged(self) -> int:
        coarsest, finest = self.levels[0], self.levels[-1]
        return int(coarsest.over(finest).counts.max())

    def along(self, level: Partition) -> Marginal:
        """The marginal with the attribute counted in other cells."""
        sizes = dict(zip(self.marginal.attributes, self.marginal.sizes, strict=True))
        cells = dict(zip(self.marginal.attributes, self.marginal.partitions, strict=True)) | {self.attribute: level}
        return Marginal.of([sizes.get(a, 1) for a in range(max(sizes) + 1)], cells)

    @lazy
    def parts(self) -> tuple[Cells, ...]:
        """The cells of each level."""
        return tuple(Cells(self.along(level)) for level in self.levels)

    def gathered(self, levels: Iterable[Array]) -> Array:
        """The answers' own among numbers of the cells of each level."""
        firsts = np.cumsum([0, *(level.cells for level in self.levels[:-1])])
        every = np.concatenate(list(levels), axis=self.place)
        return every.take(firsts[self.nodes[:, 0]] + self.nodes[:, 1], axis=self.place)

    def of(self, counts: FloatArray, partitions: Sequence[Partition]) -> FloatArray:
        return self.gathered(part.of(counts, partitions) for part in self.parts)


def check_told(cells: int) -> None:
    """Refuse a question that tells too many cells apart.

    Raises:
        InvalidQuery: naming how many there are.
    """
    if cells > MOST_COUNTED:
        raise InvalidQuery(
            f"a question tells at most {MOST_COUNTED:,} cells apart, and this one {cells:,}: name fewer "
            "attributes, or merge values"
        )
