"""Workloads: many questions of one data set that are all known before anything is measured.

Of a table they are marginals, sums of counts with public weights, or all ranges of one attribute; of a graph or a
matrix all cuts or all rank-one queries.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, vstack

from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Cells, Sum


class TableWorkload(ABC):
    """A workload of a table."""

    @property
    @abstractmethod
    def questions(self) -> Sequence[Sum | Cells]:
        """The questions one by one; for ranges the counts that they sum."""

    @property
    def numbers(self) -> int:
        """How many numbers are asked for."""
        return sum(math.prod(question.shape) for question in self.questions)

    @property
    def marginal(self) -> Marginal:
        """The marginal of the cells that all questions together tell apart."""
        cells: dict[int, Partition] = {}
        for question in self.questions:
            for attribute, partition in zip(question.attributes, question.partitions, strict=True):
                cells[attribute] = cells[attribute].met(partition) if attribute in cells else partition
        return Marginal.of({a: partition.size for a, partition in cells.items()}, cells)

    def weights(self, marginal: Marginal) -> csr_array:
        """A row for each number of the questions, a column for each cell of a marginal that tells all of them apart."""
        shape = marginal.shape
        found = []
        for question in self.questions:
            # One cell of what the question tells apart after the other: its part in the question's numbers.
            own, places = question.partitions, [marginal.attributes.index(a) for a in question.attributes]
            labels = np.zeros(shape, np.int64)
            for partition, place in zip(own, places, strict=True):
                along = partition.over(marginal.partition(place)).labels
                labels = labels * partition.cells + along.reshape([-1 if k == place else 1 for k in range(len(shape))])
            flat = labels.reshape(-1)
            if isinstance(question, Sum):
                found.append(csr_array(question.on(own).reshape(-1)[flat][None]))
            else:
                one_each = np.ones(len(flat)), (flat, np.arange(len(flat)))
                found.append(csr_array(one_each, shape=(math.prod(question.shape), len(flat))))
        return csr_array(vstack(found))


@dataclass(frozen=True, eq=False)
class Marginals(TableWorkload):
    """Counts of all cells of some marginals.

    Attributes:
        marginals: each of at least one cell.
    """

    marginals: tuple[Marginal, ...]

    @property
    def questions(self) -> Sequence[Sum | Cells]:
        """One a marginal."""
        return [Cells(marginal) for marginal in self.marginals]

    @property
    def even(self) -> bool:
        """Whether an attribute is in the same cells in all of them, and some attribute is in any."""
        cells: dict[int, Partition] = {}
        return all(
            cells.setdefault(attribute, marginal.partition(axis)) == marginal.partition(axis)
            for marginal in self.marginals
            for axis, attribute in enumerate(marginal.attributes)
        ) and bool(cells)


@dataclass(frozen=True, eq=False)
class Sums(TableWorkload):
    """Questions one by one, each for one sum or for the cells of a marginal."""

    asked: tuple[Sum | Cells, ...]

    @property
    def questions(self) -> Sequence[Sum | Cells]:
        """Themselves."""
        return self.asked


@dataclass(frozen=True, eq=False)
class Ranges(TableWorkload):
    """All ranges of neighbouring cells of one attribute.

    Attributes:
        axis: of the attribute.
        partition: its cells, runs of neighbouring values.
    """

    axis: int
    partition: Partition

    @property
    def questions(self) -> Sequence[Sum | Cells]:
        """The cells."""
        return [Cells(Marginal.of({self.axis: self.partition.size}, {self.axis: self.partition}))]

    @property
    def numbers(self) -> int:
        """How many ranges there are."""
        return self.partition.cells * (self.partition.cells + 1) // 2


@dataclass(frozen=True)
class Cuts:
    """All cuts of a graph, or all rank-one queries with weights in [0, 1]: the largest error is that of a cut."""

    rank_one: bool = False


Workload = TableWorkload | Cuts
