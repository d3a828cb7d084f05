"""Statistics of numbers that records have: sums, means, variances and quantiles of one attribute on a grid.

None of them is a sum with weights in [-1, 1], so that none has an inner product with the data. Each follows from counts
of records and from moments of the attribute, which whoever answers it measures (:mod:`app.evidence.statistics`). Here
is what is asked: the kind, the attribute, and the records that it is asked of, or the groups of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from app.spaces.lazy import lazy
from app.spaces.query import Query
from app.spaces.tensor import Array, IntArray, PrivateTensor, Tensor

#: What is asked of an attribute.
StatisticKind = Literal["sum", "mean", "variance", "quantile"]
#: Answers are whole multiples of a power of two that many bits below the largest that there can be.
_BITS = 50


@dataclass(frozen=True, eq=False)
class CompiledStatistic(Query):
    """A statistic of an attribute over records, or over each of several groups of them.

    Attributes:
        kind: which.
        axis: of the attribute.
        low: its least number.
        step: of its grid.
        places: how many numbers it has.
        base: the numbers of records that it is asked of. Those without a value of the attribute count for nothing,
            whether they are among these or not.
        levels: of quantiles the parts of the records that lie below, ascending; empty otherwise.
        answer_bits: answers are whole multiples of ``2^-answer_bits``.
    """

    kind: StatisticKind
    axis: int
    low: Fraction
    step: Fraction
    places: int
    base: Query
    levels: tuple[float, ...]
    answer_bits: int

    grid_bits = 0
    rounding = 0.0

    @property
    def high(self) -> Fraction:
        """The largest number of the attribute."""
        return self.low + (self.places - 1) * self.step

    @property
    def numbers(self) -> int:  # type: ignore[override]
        return self.base.numbers * max(1, len(self.levels))

    @property
    def is_zero(self) -> bool:  # type: ignore[override]
        return self.kind == "sum" and self.base.is_zero

    def exact(self, data: PrivateTensor) -> int | IntArray:
        raise TypeError("a statistic is no sum of counts")

    def inner(self, hypothesis: Tensor) -> float:
        raise TypeError("a statistic is no sum of counts")

    @property
    def range(self) -> tuple[float, float]:
        raise TypeError("a statistic has no weights")

    @property
    def norm2sq(self) -> float:
        raise TypeError("a statistic has no weights")

    @lazy
    def canonical(self) -> dict[str, Any]:
        form = {"base": self.base.canonical, "of": self.axis, "type": self.kind}
        return form | ({"q": [repr(level) for level in self.levels]} if self.levels else {})

    @lazy
    def labels(self) -> list[dict[str, Any]]:
        """The axes of the answer as JSON: those of the groups, and one of the parts where there are several."""
        axes = list(self.base.labels)
        return [*axes, {"attribute": "q", "labels": list(self.levels)}] if len(self.levels) > 1 else axes

    def told(self, values: Array) -> Array:
        """Numbers, group by group and for each group one a level, in the order of the answer."""
        each = values.reshape(self.base.numbers, -1)
        return np.stack([self.base.told(column) for column in each.T], axis=1).reshape(-1)


def answer_bits(kind: StatisticKind, low: Fraction, high: Fraction, capacity: int) -> int:
    """The grid that answers of a kind live on, as bits: fine beside the largest answer that there can be."""
    largest = max(abs(low), abs(high))
    if kind == "sum":
        largest *= capacity
    if kind == "variance":
        largest = (high - low) ** 2
    return _BITS - math.ceil(largest).bit_length()
