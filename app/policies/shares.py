"""Shares of records: from the numbers of those that satisfy conditions and of those that it is asked of.

With N the number of records of a group and A that of those which satisfy the conditions a share is A/N. Both are sums
of cells of one marginal, and what is measured of these tells of both at once: the noise of A is part of that of N. All
that tells of them is taken together with its covariances (:meth:`app.estimation.tables.residuals.Residuals.together`),
and the interval is Fieller's (:mod:`app.estimation.tables.ratios`).

Nothing is measured but counts. Those of the cells are bought at the price of one count, as a record is in one of them;
with several conditions the rest of a group is many cells, of much noise together, and a part of the price may better go
to N itself, in the cells that it tells apart.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.estimation.intervals import Estimates
from app.estimation.tables.joint import Joint, pooled
from app.estimation.tables.ratios import fieller_mean
from app.estimation.tables.residuals import Residuals
from app.estimation.tails import normal_quantile
from app.measurements.strategies.tables import Part, TableStrategy, shares
from app.policies.kinds import ANY, Derived, Ends, Interval, Known
from app.policies.table import CELL_REACH, REACH
from app.spaces.lazy import lazy
from app.spaces.partition import Marginal
from app.spaces.queries.share import CompiledShare
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.questions import Cells, Groups
from app.spaces.tensor import Array, FloatArray

#: Parts of what is paid that may go to the cells that the conditions tell apart; the rest goes to those of groups.
_PARTS = (1.0, 0.875, 0.75, 0.625, 0.5)


class Share(Derived[CompiledShare]):
    """The share."""

    extent = np.zeros(1), np.ones(1)

    @staticmethod
    def largest(query: CompiledStatistic) -> int:
        return 1

    @property
    def own_residuals(self) -> list[Residuals]:
        # By all of its attributes counts are all that it follows from.
        return []

    def known(self) -> Known:
        return self._known

    @lazy
    def _known(self) -> Known:
        return self.filled(_pooled(self.counts.together([self.asked.question, self.asked.part_question])))

    def shown(self, confidence: float, adaptive: bool, given: FloatArray | None) -> Estimates:
        """As of counts the value shown is that of a fit, which is nearer on average, and the interval that of what is
        known without one."""
        found = super().shown(confidence, adaptive, given)
        if given is not None or not self.counts.begun:
            return found
        assert found.linear is not None
        assert found.linear_errors is not None
        asked = self.asked
        count, part = (self.policy.fitted(one, None).reshape(-1) for one in (asked.question, asked.part_question))
        fitted = np.divide(part, count, out=found.linear.copy(), where=count > 0)
        farthest = (CELL_REACH if self.asked.question.shape else REACH) * found.linear_errors
        near = np.clip(fitted, found.linear - farthest, found.linear + farthest)
        return super().shown(confidence, adaptive, np.clip(near, 0.0, 1.0))

    def modelled(self, k: int, count: FloatArray) -> tuple[FloatArray | float, FloatArray | float]:
        """The records that satisfy the conditions as they are shown by themselves."""
        shown = self.policy.shown(self.asked.part_question, None, ANY)
        part = shown.values.reshape(-1)
        return np.clip(part / np.maximum(count, 1.0), 0.0, 1.0), shown.standard_errors.reshape(-1)

    def own_quantiles(self, known: Joint, confidence: float) -> FloatArray:
        """No sum of cells reaches farther than the one of them that does."""
        reached = self.deviations(self.counts, Cells(self.asked.question.marginal), confidence)
        return np.maximum(reached, normal_quantile(confidence))

    def slopes(self, values: FloatArray) -> FloatArray:
        count, part = values.T
        return np.stack([-part / count / count, 1 / count], axis=1)

    def possible(self, total: float | None) -> tuple[Ends, Ends]:
        return 0.0, 1.0

    def interval(self, known: Joint, quantile: FloatArray) -> Interval:
        nothing, known = self.empty(known, quantile)
        errors = np.sqrt(known.weighed(self.slopes(known.values))[1])
        lows, highs = fieller_mean(known, quantile)
        return Interval(known.values[:, 1] / known.values[:, 0], errors, lows, highs, nothing)

    def strategies(self, marginal: Marginal) -> list[TableStrategy]:
        found = [TableStrategy.of(marginal)]
        for part in _PARTS[1:]:
            pure = 2 if self.policy.pure else 1
            numerator, whole = shares([1, 1], [part**pure, (1 - part) ** pure])
            found.append(TableStrategy((Part(marginal, None, numerator), Part(self._whole, None, whole))))
        return found

    def after(self, before: FloatArray, strategy: TableStrategy, variance: float) -> FloatArray:
        count, part = (self._cells(one) for one in (self.asked.question, self.asked.part_question))
        nothing, unknown = np.zeros(count.shape), np.full(count.shape, np.nan)
        sources = [Joint(np.zeros(before.shape[:2]), before)]
        for bought, cells in zip(strategy.parts, ([[count, part], [part, part]], None), strict=False):
            rows = [[self._summed, unknown], [unknown, unknown]] if cells is None else cells
            each = variance / bought.multiplier**2
            sources.append(Joint.of_rows([nothing, nothing], [[each * cell for cell in row] for row in rows]))
        return _pooled(sources).covariances

    def fewest(self, marginal: Marginal) -> int:
        return 1

    @lazy
    def _whole(self) -> Marginal:
        """The cells that groups tell apart."""
        return self.asked.base.question.marginal_of(self.asked.universe)

    @property
    def _summed(self) -> FloatArray:
        """How many of these each group sums."""
        base = self.asked.base
        return base.selected(base.question.of(np.ones(self._whole.shape), base.question.partitions))

    def _cells(self, one: Groups) -> FloatArray:
        """How many cells each sum has."""
        ones: Array = np.ones(one.marginal.shape)
        return one.summed(ones).reshape(-1)


def _pooled(sources: Sequence[Joint]) -> Joint:
    """The sources together, without what rounding leaves below nothing where a number is known exactly."""
    found = pooled(sources)
    places = np.arange(found.values.shape[1])
    found.covariances[:, places, places] = np.maximum(found.variances, 0.0)
    return found
