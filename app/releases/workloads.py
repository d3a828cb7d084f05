"""Workloads: many questions of one data set that are all known before anything is measured.

Of a table they are marginals, sums of counts with public weights, or all ranges of one attribute; of a graph or a
matrix all cuts or all rank-one queries.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from scipy.sparse import csr_array, vstack

from app.spaces.partition import Marginal, Partition
from app.spaces.queries.share import CompiledShare
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.questions import Cells, Sum

C = TypeVar("C")
S = TypeVar("S")


class TableWorkload(ABC):
    """A workload of a table."""

    #: Of a publication what is asked beside counts, by its place among all that is asked.
    statistics: Mapping[int, CompiledStatistic] = MappingProxyType({})

    @property
    @abstractmethod
    def questions(self) -> Sequence[Sum | Cells]:
        """The questions for counts one by one; for ranges the counts that they sum."""

    @property
    def tables(self) -> Sequence[Sum | Cells | CompiledStatistic]:
        """All that is asked, in its order."""
        return self.in_order(self.questions, self.statistics)

    def in_order(self, counts: Sequence[C], statistics: Mapping[int, S]) -> list[C | S]:
        """What belongs to each question for counts, and to each statistic by its place, in the order of all of them."""
        own, places = iter(counts), range(len(counts) + len(statistics))
        return [statistics[place] if place in statistics else next(own) for place in places]

    @property
    def counted(self) -> TableWorkload:
        """The counts that it asks for, and behind them those that its shares follow from: of each the cells that it
        tells apart."""
        if not self.statistics:
            return self
        cells = [each.question.marginal for each in self.statistics.values() if isinstance(each, CompiledShare)]
        if all(isinstance(question, Cells) for question in self.questions):
            own = [question.marginal for question in self.questions if isinstance(question, Cells)]
            return Marginals((*own, *cells))
        return Sums((*self.questions, *map(Cells, cells)))

    @property
    def numbers(self) -> int:
        """How many numbers are asked for."""
        counts = sum(math.prod(question.shape) for question in self.questions)
        return counts + sum(statistic.numbers for statistic in self.statistics.values())

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
        statistics: what is asked beside them.
    """

    marginals: tuple[Marginal, ...]
    statistics: Mapping[int, CompiledStatistic] = field(default_factory=dict)

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
    """Questions one by one, each for one sum or for the cells of a marginal, and statistics beside them."""

    asked: tuple[Sum | Cells, ...]
    statistics: Mapping[int, CompiledStatistic] = field(default_factory=dict)

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
