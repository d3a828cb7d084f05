"""Certificates: what a contract session has promised of the counts of cells, and what follows for a question.

A miss tells that the counts of the tested cells are near those that were tested, all differences together; a
measurement that each count is near its noisy one. Either holds for good, whatever is learnt later, and for every
question whose weights do not vary within the cells: its true answer lies within a radius of what its weights make of
the certificate's counts. A value that is shown beside that is off by at most the radius and what lies between.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Question, Sum
from app.spaces.tensor import FloatArray, IntArray

#: The most certificates that are remembered, and the most counts of theirs: the oldest are forgotten.
MOST_CERTIFICATES, MOST_COUNTS = 4096, 1 << 22


@dataclass(frozen=True, eq=False)
class Certificate:
    """Counts of the cells of a marginal, and how far the true ones may be.

    Attributes:
        marginal: which cells.
        counts: in its shape.
        gap: how far all true counts are from these, added up.
        each: how far each is; infinite where no more is known than the gap.
        made: how many measurements there were when it was made.
        tested: whether it is a miss that tells it, or else a measurement.
    """

    marginal: Marginal
    counts: IntArray
    gap: float
    each: float
    made: int
    tested: bool

    def covers(self, question: Question) -> bool:
        """Whether the weights of a question do not vary within the cells."""
        places = {attribute: k for k, attribute in enumerate(self.marginal.attributes)}
        if any(attribute not in places for attribute in question.attributes):
            return False
        return all(
            self.marginal.partition(places[attribute]).refines(question.partition(k))
            for k, attribute in enumerate(question.attributes)
        )

    def centre(self, question: Question) -> FloatArray:
        """The answers that the counts make, to a question that is covered."""
        counts, partitions = self._on(question)
        return question.of(counts, partitions)

    def radius(self, question: Question, total: float | None) -> float:
        """How far the true answers to a covered question are from the centre at most.

        Args:
            question: which is covered.
            total: the number of records, where it is public.
        """
        if not isinstance(question, Sum):
            # Each answer is a sum of whole cells.
            merged = self.marginal.cells // math.prod(self._on(question)[0].shape) * question.merged
            for k, attribute in enumerate(question.attributes):
                own = self.marginal.partition(self.marginal.attributes.index(attribute))
                merged *= int(question.partition(k).over(own).counts.max())
            return min(self._apart(0.0, 1.0, total), merged * self.each)
        counts, partitions = self._on(question)
        weights = np.abs(question.on(partitions))
        merged = self.marginal.cells // counts.size
        within = merged * float(weights.sum()) * self.each if math.isfinite(self.each) else math.inf
        return min(self._apart(*question.range, total), within)

    def _apart(self, low: float, high: float, total: float | None) -> float:
        """How far a sum with weights between these is off at most, by the gap.

        With c halfway between low and high, ``sum of w (x - y) = sum of (w - c) (x - y) + c (sum of x - sum of y)``,
        and the sum of x is the number of records.
        """
        found = max(abs(low), abs(high)) * self.gap
        if total is not None:
            off = abs(total - int(self.counts.sum()))
            found = min(found, (high - low) / 2 * self.gap + abs(high + low) / 2 * off)
        return found

    def _on(self, question: Question) -> tuple[FloatArray, list[Partition]]:
        """The counts summed over the attributes that a question does not name, and the partitions of the others."""
        outside = tuple(k for k, a in enumerate(self.marginal.attributes) if a not in question.attributes)
        partitions = [
            self.marginal.partition(k) for k, a in enumerate(self.marginal.attributes) if a in question.attributes
        ]
        return self.counts.sum(axis=outside).astype(np.float64), partitions


class Certificates:
    """The certificates of a session: of each marginal the newest of either kind, and not too many."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Marginal, bool], Certificate] = OrderedDict()
        self._counts = 0

    def add(self, certificate: Certificate) -> None:
        """Keep a certificate in the place of an older one of the same marginal."""
        key = certificate.marginal, certificate.tested
        older = self._kept.pop(key, None)
        self._counts += certificate.counts.size - (0 if older is None else older.counts.size)
        self._kept[key] = certificate
        while len(self._kept) > MOST_CERTIFICATES or self._counts > MOST_COUNTS:
            _, oldest = self._kept.popitem(last=False)
            self._counts -= oldest.counts.size

    def covering(self, question: Question) -> Iterator[Certificate]:
        """Those that cover a question, the newest first."""
        return (each for each in reversed(self._kept.values()) if each.covers(question))


def whole_counts(values: FloatArray) -> IntArray:
    """Whole numbers next to values, which have the sum of all values rounded, as every part of the row has."""
    ends = np.rint(np.cumsum(values.reshape(-1))).astype(np.int64)
    return np.diff(ends, prepend=0).reshape(values.shape)
