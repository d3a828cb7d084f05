"""Candidates: the linear queries of a workload among which a round chooses, and their errors as whole numbers.

A family holds the candidates that are read from the cells of one marginal. Their values are in units of 2^-10 counts:
of data exactly, as weights are rounded to that grid; of a hypothesis rounded. So the score of a candidate, the distance
between both, is a whole number that moves between neighbouring data sets by no more than gamma times
:attr:`Candidates.largest`.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.evidence.measurements import Marginal, Partition
from app.evidence.questions import Cells, Question, Sum
from app.evidence.strategies import Strategy
from app.releases.workloads import Marginals, Ranges, TableWorkload
from app.spaces.lazy import lazy
from app.spaces.tensor import Array, FloatArray, IntArray

#: Scores are in units of 2^-BITS counts.
BITS = 10
#: No value of a hypothesis is taken to be farther from zero, in these units: differences stay 64-bit integers.
_FARTHEST = 2.0**61


class Family(ABC):
    """Candidates that are read from the same cells.

    Attributes:
        marginal: of the cells.
    """

    marginal: Marginal

    @property
    @abstractmethod
    def number(self) -> int:
        """How many candidates there are."""

    @property
    def largest(self) -> int:
        """The largest absolute weight of a candidate, in units of 2^-BITS."""
        return 1 << BITS

    @abstractmethod
    def units(self, counts: Array) -> Array:
        """The candidates' values in units of 2^-BITS, shape (number,), from counts in the marginal's shape.

        Of integers they are exact integers.
        """

    @abstractmethod
    def strategy(self, number: int, sizes: Sequence[int]) -> Strategy:
        """What is measured where a candidate was chosen, of a table with these numbers of values."""

    @abstractmethod
    def owns(self, marginal: Marginal) -> bool:
        """Whether some candidate's strategy counts this marginal, which is of the same attributes."""


@dataclass(frozen=True, eq=False)
class _OfCells(Family):
    """Each cell of a marginal: along each attribute its own values, or the others."""

    marginal: Marginal

    @property
    def number(self) -> int:
        return self.marginal.cells

    def units(self, counts: Array) -> Array:
        return counts.reshape(-1) * (1 << BITS)

    def strategy(self, number: int, sizes: Sequence[int]) -> Strategy:
        places = np.unravel_index(number, self.marginal.shape)
        cells = {
            attribute: Partition.of(self.marginal.partition(k).labels == place)
            for k, (attribute, place) in enumerate(zip(self.marginal.attributes, places, strict=True))
        }
        return Strategy.of(Marginal.of(sizes, dict(cells)))

    def owns(self, marginal: Marginal) -> bool:
        own = self.marginal
        pairs = [(own.partition(k), marginal.partition(k)) for k in range(len(own.attributes))]
        return all(p.cells == 2 and own.refines(p) and p.over(own).least == 1 for own, p in pairs)


@dataclass(frozen=True, eq=False)
class _OfSum(Family):
    """One sum with public weights, measured on the cells that it tells apart."""

    marginal: Marginal
    weights: IntArray

    @classmethod
    def of(cls, question: Sum, sizes: Sequence[int]) -> _OfSum:
        weights = np.rint(np.ldexp(question.on(question.partitions), BITS)).astype(np.int64)
        marginal = question.apart(sizes)
        return cls(marginal, weights.reshape(marginal.shape))

    @property
    def number(self) -> int:
        return 1

    @lazy
    def largest(self) -> int:  # type: ignore[override]
        return int(np.abs(self.weights).max())

    def units(self, counts: Array) -> Array:
        return np.asarray((counts * self.weights).sum()).reshape(1)

    def strategy(self, number: int, sizes: Sequence[int]) -> Strategy:
        return Strategy.of(self.marginal)

    def owns(self, marginal: Marginal) -> bool:
        return marginal == self.marginal


@dataclass(frozen=True, eq=False)
class _OfRanges(Family):
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

    def units(self, counts: Array) -> Array:
        sums = np.concatenate([np.zeros(1, counts.dtype), np.cumsum(counts)])
        first, last = self._ends
        difference: Array = sums[last] - sums[first]
        return difference * (1 << BITS)

    def strategy(self, number: int, sizes: Sequence[int]) -> Strategy:
        (attribute,), labels = self.marginal.attributes, self.marginal.partition(0).labels
        within = (labels >= self._ends[0][number]) & (labels < self._ends[1][number])
        return Strategy.of(Marginal.of(sizes, {attribute: Partition.of(within)}))

    def owns(self, marginal: Marginal) -> bool:
        own, told = self.marginal.partition(0), marginal.partition(0)
        if told.cells != 2 or not own.refines(told):
            return False
        # One side is a run of neighbours where the other one begins at most twice: before it and behind it.
        return int(np.count_nonzero(np.diff(told.over(own).labels))) <= 2


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
        """The candidates of a workload, without sums over all records, which no choice can miss."""
        families: list[Family] = []
        if isinstance(workload, Ranges):
            families.append(_OfRanges(Marginal.of(sizes, {workload.axis: workload.partition})))
        elif isinstance(workload, Marginals):
            families += [_OfCells(marginal) for marginal in workload.marginals]
        else:
            families += [_family(question, sizes) for question in workload.questions]
        return cls(tuple(family for family in families if family.marginal.attributes and family.number), tuple(sizes))

    @lazy
    def number(self) -> int:
        """How many there are."""
        return sum(family.number for family in self.families)

    @lazy
    def largest(self) -> int:
        """By how much one record moves a score at most, in units of 2^-BITS counts."""
        return max(family.largest for family in self.families)

    @property
    def strategies(self) -> list[Strategy]:
        """The counts that scores are computed from, one strategy a family."""
        return [Strategy.of(family.marginal) for family in self.families]

    @lazy
    def most_told(self) -> int:
        """The most cells that a measurement of a candidate has."""
        return max(family.strategy(0, self.sizes).cells for family in self.families)

    def exact(self, counts: Sequence[IntArray]) -> IntArray:
        """The values of all candidates in units of 2^-BITS, from what :attr:`strategies` count."""
        return np.concatenate(
            [
                family.units(own.reshape(family.marginal.shape))
                for family, own in zip(self.families, counts, strict=True)
            ]
        )

    def near(self, counts: Callable[[Marginal], FloatArray]) -> IntArray:
        """The same of a hypothesis, rounded; ``counts`` gives its counts in a marginal's shape."""
        units = np.concatenate([family.units(counts(family.marginal)) for family in self.families])
        return np.rint(np.clip(units, -_FARTHEST, _FARTHEST)).astype(np.int64)

    def strategy(self, number: int) -> Strategy:
        """What is measured where this candidate was chosen."""
        family = int(np.searchsorted(self._ends, number, side="right"))
        before = 0 if family == 0 else int(self._ends[family - 1])
        return self.families[family].strategy(number - before, self.sizes)

    def owns(self, strategy: Strategy) -> bool:
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
    return _OfSum.of(question, sizes) if isinstance(question, Sum) else _OfCells(question.apart(sizes))


def merged(counts: FloatArray, marginal: Marginal) -> FloatArray:
    """Counts of single values, one axis a named attribute, as those of a marginal's cells."""
    singles = [Partition.singles(size) for size in marginal.sizes]
    return Cells(marginal).of(counts, singles)
