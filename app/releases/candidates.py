"""Candidates: what a round of an iterative construction chooses from, and its errors as whole numbers.

A candidate is a query of the workload, or all cells of one of its marginals together: of these the query that errs most
among all that add cells and take cells off, whose error is the sum of the cells' distances. A family holds the
candidates that are read from the cells of one marginal.

Errors are in units of 2^-10 counts. Weights are rounded to that grid and so are a hypothesis' values, and the data are
integers: an error is a whole number that moves between neighbouring data sets by no more than gamma times
:attr:`Candidates.largest`.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.measurements.strategies.tables import TableStrategy
from app.releases.workloads import Marginals, Ranges, TableWorkload
from app.spaces.lazy import lazy
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Cells, Question, Sum
from app.spaces.tensor import FloatArray, IntArray

#: Errors are in units of 2^-BITS counts.
BITS = 10
#: No value of a hypothesis is taken to be farther from zero, in these units: sums of differences stay 64-bit integers.
_FARTHEST = 2.0**48
#: The mean absolute value of a standard normal number.
_MEAN = math.sqrt(2 / math.pi)


class Family(ABC):
    """Candidates that are read from the same cells.

    Attributes:
        marginal: of the cells.
    """

    marginal: Marginal

    @property
    def number(self) -> int:
        """How many candidates there are."""
        return 1

    @property
    def largest(self) -> int:
        """By how much one record moves the error of a candidate at most, in units of 2^-BITS counts."""
        return 1 << BITS

    @property
    def noise(self) -> float:
        """The mean error, in counts, of a candidate that is measured exactly but for normal noise of deviation 1."""
        return _MEAN

    @abstractmethod
    def errors(self, counts: IntArray, near: FloatArray) -> IntArray:
        """The candidates' errors in units of 2^-BITS, shape (number,).

        Args:
            counts: exact, in the marginal's shape.
            near: a hypothesis' own.
        """

    @abstractmethod
    def strategy(self, number: int, sizes: Sequence[int]) -> TableStrategy:
        """The strategy of a chosen candidate, of a table with these numbers of values."""

    @abstractmethod
    def owns(self, marginal: Marginal) -> bool:
        """Whether some candidate's strategy counts this marginal, which is of the same attributes."""


@dataclass(frozen=True, eq=False)
class _Whole(Family):
    """All cells of a marginal together: a record is in one of them."""

    marginal: Marginal

    @property
    def noise(self) -> float:
        return _MEAN * self.marginal.cells

    def errors(self, counts: IntArray, near: FloatArray) -> IntArray:
        gaps = np.abs(counts * (1 << BITS) - _units(near))
        return np.array([gaps.sum()], np.int64)

    def strategy(self, number: int, sizes: Sequence[int]) -> TableStrategy:
        return TableStrategy.of(self.marginal)

    def owns(self, marginal: Marginal) -> bool:
        return marginal == self.marginal


@dataclass(frozen=True, eq=False)
class _Single(Family):
    """One sum with public weights, measured on the cells that it tells apart."""

    marginal: Marginal
    weights: IntArray

    @classmethod
    def of(cls, question: Sum, sizes: Sequence[int]) -> _Single:
        """The family of a question, its weights rounded."""
        weights = np.rint(np.ldexp(question.on(question.partitions), BITS)).astype(np.int64)
        marginal = question.marginal_of(sizes)
        return cls(marginal, weights.reshape(marginal.shape))

    @lazy
    def largest(self) -> int:
        return max(1, int(np.abs(self.weights).max()))

    @property
    def noise(self) -> float:
        return _MEAN * math.ldexp(float(np.linalg.norm(self.weights)), -BITS)

    def errors(self, counts: IntArray, near: FloatArray) -> IntArray:
        units = _units(np.array([(near * np.ldexp(self.weights.astype(np.float64), -BITS)).sum()]))
        return np.array(np.abs((counts * self.weights).sum() - units), np.int64)

    def strategy(self, number: int, sizes: Sequence[int]) -> TableStrategy:
        return TableStrategy.of(self.marginal)

    def owns(self, marginal: Marginal) -> bool:
        return marginal == self.marginal


@dataclass(frozen=True, eq=False)
class _Runs(Family):
    """All ranges of neighbouring cells of one attribute but the one of all of them: within a range, or outside."""

    marginal: Marginal

    @property
    def number(self) -> int:
        return len(self._ends[0])

    @lazy
    def _ends(self) -> tuple[IntArray, IntArray]:
        """Where each range begins, and where the next one would."""
        cells = self.marginal.cells
        first, last = np.triu_indices(cells + 1, 1)
        kept = last - first < cells
        return first[kept], last[kept]

    def errors(self, counts: IntArray, near: FloatArray) -> IntArray:
        # Rounded before they are subtracted: a range's own value lies within a unit of the hypothesis'.
        gaps = np.cumsum(np.concatenate([[0], counts])) * (1 << BITS) - _units(np.cumsum(np.concatenate([[0.0], near])))
        first, last = self._ends
        return np.array(np.abs(gaps[last] - gaps[first]), np.int64)

    def strategy(self, number: int, sizes: Sequence[int]) -> TableStrategy:
        (attribute,), labels = self.marginal.attributes, self.marginal.partition(0).labels
        within = (labels >= self._ends[0][number]) & (labels < self._ends[1][number])
        return TableStrategy.of(Marginal.of(sizes, {attribute: Partition.of(within)}))

    def owns(self, marginal: Marginal) -> bool:
        own, other = self.marginal.partition(0), marginal.partition(0)
        if other.cells != 2 or not own.refines(other):
            return False
        # One of both sides is a run of neighbours: from one cell to the next the side changes once or twice.
        return int(np.count_nonzero(np.diff(other.over(own).labels))) <= 2


@dataclass(frozen=True, eq=False)
class Candidates:
    """All candidates of a workload, family by family, numbered in that order.

    Attributes:
        families: at least one.
        sizes: numbers of values of the table's attributes.
    """

    families: tuple[Family, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, workload: TableWorkload, sizes: Sequence[int]) -> Candidates:
        """The candidates of a workload, without sums over all records."""
        families: list[Family] = []
        if isinstance(workload, Ranges):
            families.append(_Runs(Marginal.of(sizes, {workload.axis: workload.partition})))
        elif isinstance(workload, Marginals):
            families += [_Whole(marginal) for marginal in workload.marginals]
        else:
            families += [_family(question, sizes) for question in workload.questions]
        return cls(tuple(family for family in families if family.marginal.attributes and family.number), tuple(sizes))

    @lazy
    def number(self) -> int:
        """How many there are."""
        return sum(family.number for family in self.families)

    @lazy
    def largest(self) -> int:
        """By how much one record moves an error at most, in units of 2^-BITS counts."""
        return max(family.largest for family in self.families)

    @property
    def whole(self) -> bool:
        """Whether all of them are whole marginals."""
        return all(isinstance(family, _Whole) for family in self.families)

    @lazy
    def freedom(self) -> int:
        """How many rounds could teach all there is to learn: a round for each marginal or query, and of ranges one for
        each cell.
        """
        return sum(family.marginal.cells if isinstance(family, _Runs) else 1 for family in self.families)

    @property
    def strategies(self) -> list[TableStrategy]:
        """The counts that errors are computed from, one strategy a family."""
        return [TableStrategy.of(family.marginal) for family in self.families]

    @lazy
    def most_told(self) -> int:
        """The most cells that a measurement of a candidate has."""
        return max(family.strategy(0, self.sizes).cells for family in self.families)

    def scores(self, counts: Sequence[IntArray], near: Callable[[Marginal], FloatArray], deviation: float) -> IntArray:
        """The candidates' errors less what their measurement would leave of them, in units of 2^-BITS counts.

        Args:
            counts: what :attr:`strategies` count, exactly.
            near: a hypothesis' own counts, in a marginal's shape.
            deviation: of the measurement's noise. It is public, so that what is taken off moves no score.
        """
        found = []
        for family, own in zip(self.families, counts, strict=True):
            errors = family.errors(own.reshape(family.marginal.shape), near(family.marginal))
            found.append(errors - round(math.ldexp(deviation * family.noise, BITS)))
        return np.concatenate(found)

    def strategy(self, number: int) -> TableStrategy:
        """The strategy of this candidate, once chosen."""
        family = int(np.searchsorted(self._ends, number, side="right"))
        before = 0 if family == 0 else int(self._ends[family - 1])
        return self.families[family].strategy(number - before, self.sizes)

    def owns(self, strategy: TableStrategy) -> bool:
        """Whether a strategy is what is measured for some candidate."""
        marginal = strategy.plain
        if marginal is None:
            return False
        alike = self._by_attributes.get(marginal.attributes, ())
        return any(family.marginal.sizes == marginal.sizes and family.owns(marginal) for family in alike)

    @lazy
    def _ends(self) -> IntArray:
        """For each family the number behind its last candidate."""
        return np.cumsum([family.number for family in self.families])

    @lazy
    def _by_attributes(self) -> dict[tuple[int, ...], list[Family]]:
        ordered = sorted(self.families, key=_attributes)
        return {key: list(group) for key, group in itertools.groupby(ordered, key=_attributes)}


def _attributes(family: Family) -> tuple[int, ...]:
    return family.marginal.attributes


def _family(question: Question, sizes: Sequence[int]) -> Family:
    return _Single.of(question, sizes) if isinstance(question, Sum) else _Whole(question.marginal_of(sizes))


def _units(values: FloatArray) -> IntArray:
    """A hypothesis' values on the grid of errors."""
    rounded: IntArray = np.rint(np.clip(np.ldexp(values, BITS), -_FARTHEST, _FARTHEST)).astype(np.int64)
    return rounded


def merged(table: FloatArray, marginal: Marginal) -> FloatArray:
    """Counts of single values, one axis a named attribute of a marginal, as those of its cells."""
    singles = [Partition.singles(size) for size in marginal.sizes]
    return np.asarray(Cells(marginal).of(table, singles))
