"""Weighted shares and means, ratios of two sums of which the lower one is of the weights of records, and quantiles.

With w the weight of a record a share is ``sum of w over a part / sum of w``, from the numbers of records of both and
the first moments of the weight over both: two sums of one moment, whose noise they share as numbers of records do. A
mean is ``middle + sum of w (y - middle) / sum of w``, the middle being that of the numbers y: what is measured for the
sum above is the moment of y that is multiplied by weights, of which a record of weight w at an end of the range adds w
times half the range, and not the whole of it. A quantile is where the sum of the weights below passes its part of all:
it is read from sums of weights, from zero and not from their middle, over ranges of the numbers as others are from
counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from app.estimation.tables.joint import Joint
from app.estimation.tables.residuals import Residuals, Unbiased, own_values, weighed
from app.measurements.noise import Noise
from app.measurements.pieces import Counts
from app.measurements.strategies.tables import Moment, Part, TableStrategy
from app.policies.kinds import Derived, Ends, Interval, places_of
from app.policies.quantiles import Place, Quantile
from app.policies.ratios import OF, Ratio, times_of
from app.policies.table import Wanted
from app.spaces.lazy import lazy
from app.spaces.partition import Marginal
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.queries.weighted import CompiledWeightedQuantile
from app.spaces.questions import Cells
from app.spaces.tensor import FloatArray


class WeightedShare(Ratio):
    """The weighted share."""

    def possible(self, total: float | None) -> tuple[Ends, Ends]:
        return 0.0, 1.0


class WeightedMean(Ratio):
    """The weighted mean."""

    def hedged(self, means: FloatArray, spreads: FloatArray) -> FloatArray:
        """Numbers whose weighted mean is in the middle would need no sum of weights."""
        found = super().hedged(means, spreads)
        found[..., OF - 1] = Derived.hedged(self, means, spreads)[..., OF - 1]
        return found

    def possible(self, total: float | None) -> tuple[Ends, Ends]:
        of = self.asked.of
        least, most = places_of(self.asked.question, self.asked.groups, of.axis, of.places)
        return of.at(least), of.at(most)

    def interval(self, known: Joint, quantile: FloatArray) -> Interval:
        found, of = super().interval(known, quantile), self.asked.of
        middle = of.low + self.of.middle * of.step
        return replace(found, linear=found.linear + middle, lows=found.lows + middle, highs=found.highs + middle)


def _weights(query: CompiledStatistic) -> Moment:
    """The sum of the weights of records that have a number."""
    assert isinstance(query, CompiledWeightedQuantile)
    return Moment(query.axis, query.places, 0, times_of(query.weight))


class WeightedQuantile(Quantile):
    """Weighted quantiles. How many records there are it takes as others do, as of the same mean weight each."""

    @staticmethod
    def largest(query: CompiledStatistic) -> int:
        return _weights(query).largest

    @property
    def own_residuals(self) -> list[Residuals]:
        return [self.counts, *([self.measured[self._moment]] if self._moment in self.measured else [])]

    @lazy
    def _moment(self) -> Moment:
        return _weights(self.asked)

    @lazy
    def _strategy(self) -> TableStrategy:
        """Of all records together: what a record moves the sums by is the same whatever the cells."""
        return self._over(Marginal.of(self.counts.sizes, {}))

    def _over(self, marginal: Marginal) -> TableStrategy:
        return TableStrategy((Part(marginal, self._moment),))

    def _noise(self, share: float) -> tuple[Noise | None, float]:
        return self.policy.noise(share, self._strategy.sensitivity), max(self.overall(self._moment)[0], 1.0)

    def _wanted(self, marginal: Marginal, noise: Noise) -> Wanted:
        return Wanted(self._over(marginal), noise)

    def _rows(self, places: Sequence[Place], within: FloatArray, share: float, allowed: float) -> None:
        """Weights are summed in ranges alone."""

    def _draw(self, share: float, count: FloatArray, base: FloatArray, off: FloatArray) -> None:
        """A draw moves by the heaviest record, and not by one."""

    @property
    def _measurements(self) -> Sequence[Counts]:
        """Sums of weights, and counts of records of each weight."""
        measured = self.measured.get(self._moment)
        return [*self.counts.measurements, *(() if measured is None else measured.measurements)]

    @property
    def _total(self) -> None:
        return None

    def _everybody(self) -> float:
        return super()._everybody() * self.overall(self._moment)[0]

    def _told(self, marginal: Marginal, measurement: Counts) -> tuple[Unbiased | None, float]:
        if measurement not in self.counts.measurements:
            return super()._told(marginal, measurement)
        # Of counts of each weight their sum, whose noise counts as that of some draws, each as heavy as the heaviest.
        axis, weights = self._moment.factors[1]
        found = own_values(weighed(Cells(marginal), axis, weights.astype(np.float64)), measurement)
        if found is None:
            return None, 1.0
        most = self._moment.largest
        one = measurement.variance * most**2
        return Unbiased(found.values, np.ceil(found.variances / one) * one), measurement.multiplier / most
