"""Statistics of a table: what is measured for them, and what is shown, each by its kind (:mod:`app.policies.kinds`).

Where too few records may be left for a ratio to mean anything there is no value: it is NaN here.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import numpy as np

from app.estimation.intervals import Estimates
from app.estimation.tables.residuals import Residuals
from app.estimation.tails import normal_quantile
from app.measurements.pieces import Counts, pieces_of
from app.measurements.record import Measurement
from app.measurements.strategies.tables import EXACT_BITS, Moment, TableStrategy
from app.policies.kinds import Kind
from app.policies.moments import Mean, Sum, Variance
from app.policies.quantiles import Quantile
from app.policies.ratios import Ratio
from app.policies.shares import Share
from app.policies.table import Policy, Wanted
from app.policies.weighted import WeightedMean, WeightedQuantile, WeightedShare
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.tensor import FloatArray

#: What multipliers of a strategy may add to the bits of its sums.
_SPARE_BITS = 5
_KINDS: dict[str, type[Kind[Any]]] = {
    "sum": Sum,
    "mean": Mean,
    "variance": Variance,
    "quantile": Quantile,
    "share": Share,
    "ratio": Ratio,
    "weighted share": WeightedShare,
    "weighted mean": WeightedMean,
    "weighted quantile": WeightedQuantile,
}


def take_in(
    measurement: Measurement[TableStrategy], counts: Residuals, moments: MutableMapping[Moment, Residuals]
) -> None:
    """Take in what was measured of a table, of counts and of moments of numbers.

    Args:
        measurement: of the table.
        counts: what is known of its counts.
        moments: what is known of every moment that was measured.
    """
    for moment, piece in pieces_of(measurement):
        if moment is None:
            counts.add(piece)
            continue
        assert isinstance(piece, Counts)
        known = moments.get(moment)
        if known is None:
            known = moments[moment] = counts.untold()
        known.add(piece)


def is_sound(query: CompiledStatistic, capacity: int) -> bool:
    """Whether all that may be measured for a query of so many records is a 64-bit integer."""
    # Multipliers that divide a price take a few bits more.
    return _KINDS[query.kind].largest(query) * capacity < 1 << (EXACT_BITS - _SPARE_BITS)


class Statistics:
    """Answers statistics from what was measured, and says what to measure for them.

    Args:
        policy: of the session, over the counts of the same table.
        moments: the residuals of every moment that was measured.
    """

    def __init__(self, policy: Policy, moments: dict[Moment, Residuals]) -> None:
        self._policy, self._moments = policy, moments

    def decide(
        self, asked: CompiledStatistic, left: float, within: float | None, confidence: float, slack: float = 0.0
    ) -> Wanted | None:
        """Decide what is bought for a statistic; None where it is answered free.

        Args:
            asked: of this table.
            left: what is left of the session's share, in its currency.
            within: half the width that intervals may have, in the statistic's unit; then the least is bought that is
                likely to get there.
            confidence: of that interval.
            slack: the part by which what is known is taken to be worse than it is.

        Raises:
            OutOfReach: where ``within`` cannot be paid.
        """
        if self._policy.mode == "table" or (self._policy.mode == "free" and within is None):
            return None
        kind = self._kind(asked)
        least, most = kind.possible(self._policy.residuals.public_total)
        if kind.ratio and np.all(least == most):
            # Where there are records it is one number, whatever the data.
            return None
        return kind.decide(left, within, confidence, slack)

    def shown(
        self, asked: CompiledStatistic, confidence: float, adaptive: bool, given: FloatArray | None = None
    ) -> Estimates:
        """The estimate that is shown of a statistic after what was measured for it was taken in: group by group and for
        each group one a level; NaN where there is none.

        Args:
            asked: of this table.
            confidence: of the intervals.
            adaptive: whether the question may have been chosen by what was released.
            given: the values that were shown before; they are shown again.
        """
        kind = self._kind(asked)
        found = kind.shown(confidence, adaptive, given)
        if not adaptive or found.unbiased.all():
            return found
        return found.chosen(*kind.possible(self._policy.most_records(1 - confidence)), normal_quantile(confidence))

    def errors(self, asked: CompiledStatistic) -> FloatArray:
        """How far the values of a statistic are off, by the noise in what they follow from: standard deviations, of the
        first order."""
        return self._kind(asked).errors()

    def _kind(self, asked: CompiledStatistic) -> Kind[Any]:
        return _KINDS[asked.kind](self._policy, self._moments, asked)
