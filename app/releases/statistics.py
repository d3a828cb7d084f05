"""Statistics of a publication: as a session tells them that buys nothing, from all that was measured.

They follow from what was released, so they cost nothing. Means, sums, variances, ratios and quantiles, and all that is
weighted, stand beside the tables of counts. Shares are of the same made records as these, so that a published share is
the quotient of two published counts, to the last digit: the cells that it tells apart are one more table that the
records come near to (:mod:`.publication`).

What nothing measured tells has no value here: a model alone would be printed as a number like any other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from app.estimation.intervals import Estimates
from app.estimation.tables.residuals import Residuals
from app.measurements.strategies.tables import Moment
from app.policies.statistics import Statistics
from app.policies.table import Funds, Policy
from app.releases.table_results import CONFIDENCE, Answers, Told
from app.releases.workloads import TableWorkload
from app.spaces.queries.share import CompiledShare
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.tensor import FloatArray

#: Of a session that buys nothing.
_NOTHING = Funds(order=2.0, renyi=0.0, epsilon=0.0, pure=False, questions=None)


def told(
    workload: TableWorkload, counts: Residuals, moments: dict[Moment, Residuals], shares: Sequence[Answers]
) -> dict[int, Told]:
    """The answers of a workload's statistics, by their places among all that is asked.

    Args:
        workload: of the publication.
        counts: residuals that have taken in all that was measured of counts.
        moments: the same of every moment of numbers.
        shares: of each share the counts of made records in the cells that it tells apart.
    """
    statistics = Statistics(Policy(counts, _NOTHING), moments)
    made = iter(shares)
    return {
        place: _share(asked, statistics, next(made)) if isinstance(asked, CompiledShare) else _told(asked, statistics)
        for place, asked in workload.statistics.items()
    }


def _told(asked: CompiledStatistic, statistics: Statistics) -> Told:
    """As a session shows it, on the grid of its answers."""
    found = statistics.shown(asked, CONFIDENCE, adaptive=False)
    values = _rounded(asked, found.values)
    return Told(asked, _ordered(asked, found.holding(values), values))


def _share(asked: CompiledShare, statistics: Statistics, made: Answers) -> Told:
    """That of made records, with what was measured of it."""
    counts = made.estimates.values
    whole, part = (np.asarray(one.summed(counts)).reshape(-1) for one in (asked.question, asked.part_question))
    values = np.divide(part, whole, out=np.full(whole.shape, np.nan), where=whole > 0)
    found = statistics.shown(asked, CONFIDENCE, adaptive=False, given=values).holding(values)
    # A record that comes or goes changes a share of n by less than one n-th, whichever n it was.
    steps = np.divide(1.0, whole, out=np.full(whole.shape, np.nan), where=whole > 0)
    return Told(asked, _ordered(asked, found, values), np.asarray(asked.ordered(steps)))


def _rounded(asked: CompiledStatistic, values: FloatArray) -> FloatArray:
    assert asked.answer_bits is not None
    return asked.told(np.rint(values * math.ldexp(1, asked.answer_bits)) * math.ldexp(1, -asked.answer_bits))


def _ordered(asked: CompiledStatistic, found: Estimates, values: FloatArray) -> Estimates:
    """What is told, in the order of its labels: nothing where no measurement tells it."""

    def placed(numbers: FloatArray) -> FloatArray:
        return np.asarray(asked.ordered(np.where(found.unbiased, numbers, np.nan)))

    return Estimates(
        placed(values),
        placed(found.standard_errors),
        placed(found.lows),
        placed(found.highs),
        np.asarray(asked.ordered(found.unbiased)),
        CONFIDENCE,
    )
