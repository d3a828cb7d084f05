"""Workloads: many questions of one data set that are all known before anything is measured.

Of a table they are marginals, sums of counts with public weights, or all ranges of one attribute; of a graph or a
matrix all cuts or all rank-one queries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from app.evidence.measurements import Marginal, Partition
from app.evidence.questions import Cells, Question


@dataclass(frozen=True, eq=False)
class Marginals:
    """Counts of all cells of some marginals.

    Attributes:
        marginals: each of at least one cell.
    """

    marginals: tuple[Marginal, ...]

    @property
    def questions(self) -> Sequence[Question]:
        """One a marginal."""
        return [Cells(marginal) for marginal in self.marginals]

    @property
    def numbers(self) -> int:
        """How many numbers are asked for."""
        return sum(marginal.cells for marginal in self.marginals)


@dataclass(frozen=True, eq=False)
class Sums:
    """Questions one by one, each for one sum or for the cells of a marginal."""

    asked: tuple[Question, ...]

    @property
    def questions(self) -> Sequence[Question]:
        """Themselves."""
        return self.asked

    @property
    def numbers(self) -> int:
        """How many numbers are asked for."""
        return sum(math.prod(question.shape) for question in self.asked)


@dataclass(frozen=True, eq=False)
class Ranges:
    """All ranges of neighbouring cells of one attribute.

    Attributes:
        axis: of the attribute.
        partition: its cells, runs of neighbouring values.
    """

    axis: int
    partition: Partition

    @property
    def numbers(self) -> int:
        """How many numbers are asked for."""
        return self.partition.cells * (self.partition.cells + 1) // 2


@dataclass(frozen=True)
class Cuts:
    """All cuts of a graph, or all rank-one queries with weights in [0, 1]: the largest error is that of a cut."""

    rank_one: bool = False


TableWorkload = Marginals | Sums | Ranges
Workload = TableWorkload | Cuts
