"""Weighted shares and means: ratios of two sums of which the lower one is of the weights of records.

With w the weight of a record a share is ``sum of w over a part / sum of w``, from the numbers of records of both and
the first moments of the weight over both: two sums of one moment, whose noise they share as numbers of records do. A
mean is ``middle + sum of w (y - middle) / sum of w``, the middle being that of the numbers y: what is measured for the
sum above is the moment of y that is multiplied by weights, of which a record of weight w at an end of the range adds w
times half the range, and not the whole of it.
"""

from __future__ import annotations

from dataclasses import replace

from app.estimation.tables.joint import Joint
from app.policies.kinds import Derived, Interval
from app.policies.ratios import OF, Ratio
from app.spaces.tensor import FloatArray


class WeightedShare(Ratio):
    """The weighted share."""

    def possible(self, total: float | None) -> tuple[float, float]:
        return 0.0, 1.0


class WeightedMean(Ratio):
    """The weighted mean."""

    def hedged(self, means: FloatArray, spreads: FloatArray) -> FloatArray:
        """Numbers whose weighted mean is in the middle would need no sum of weights."""
        found = super().hedged(means, spreads)
        found[..., OF - 1] = Derived.hedged(self, means, spreads)[..., OF - 1]
        return found

    def possible(self, total: float | None) -> tuple[float, float]:
        return self.asked.of.low, self.asked.of.high

    def interval(self, known: Joint, quantile: FloatArray) -> Interval:
        found, of = super().interval(known, quantile), self.asked.of
        middle = of.low + self.of.middle * of.step
        return replace(found, linear=found.linear + middle, lows=found.lows + middle, highs=found.highs + middle)
