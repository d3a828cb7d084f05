"""The errors to expect of a session on a table, by kind of question, before it is asked anything.

Each kind is foretold by what the policies would do. What the opening buys is taken to be measured, with the values that
are expected of it; a policy over that is asked what it would buy for a question, and that is taken to be measured as
well. Expected are as many records as are known of, spread over the values of each attribute as far as anything was
measured of that, and else equally over the cells that it is counted in at first: the prior of the policies themselves.
Counts and sums do not depend on it. Means and shares err by one over the number of records, and quantiles by how few of
them are near.

All follows from public facts and from what was released.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from app.declarations.conditions import Where
from app.estimation.tables.residuals import Residuals, imagined, imagined_rows
from app.estimation.tails import normal_quantile
from app.measurements.pieces import Combination, Contrast, Counts
from app.measurements.strategies.tables import Moment
from app.policies.kinds import ANY
from app.policies.statistics import Statistics, is_sound
from app.policies.table import Funds, OutOfReach, Policy, Wanted
from app.spaces.partition import Marginal, Partition
from app.spaces.queries.share import share_of
from app.spaces.queries.statistic import CompiledStatistic, MeanQuery, QuantileQuery, SumQuery, records
from app.spaces.queries.weights import product
from app.spaces.query import Query
from app.spaces.questions import Cells, Product, Question
from app.spaces.table import TableSpace
from app.spaces.tensor import Array, FloatArray

#: A later question of which errors are foretold beside the first.
LATER = 10
#: The number of records where nobody knows it.
ASSUMED = 10_000
#: Of about how many attributes, and sets of them, errors of counts are foretold, and of how many marginals those of
#: cells, which differ little; of how many attributes those of numbers; and of how many cells marginals are at most.
_SAMPLED, _TABLES, _MOST_NUMBERS, _MOST_CELLS = 6, 2, 8, 1 << 12


C = TypeVar("C")
#: Standard errors by kind of question, or by attribute of a kind; None where they are not known.
Errors = dict[str, float | dict[str, float | None] | None]


@dataclass(frozen=True)
class Paid:
    """What a session pays for where every interval is to reach so many counts at most.

    Attributes:
        within, confidence: half the width of each interval, in counts, and its confidence.
        counts: how many counts it pays for at least, each bought by itself; of graphs and matrices cuts.
        cells: of the table; None of graphs and matrices.
        whole_table: whether it pays for all of them at once, so that every count is known so well.
    """

    within: float
    confidence: float
    counts: int
    cells: int | None = None
    whole_table: bool = False


def paid_for(sizes: Sequence[int], funds: Funds) -> Paid | None:
    """What a session on a table with these numbers of values pays for; None where it asks for no accuracy.

    Raises:
        OutOfReach: when there is no noise so small.
    """
    if funds.within is None or not funds.renyi:
        return None
    cells = math.prod(sizes)
    whole = Policy(Residuals(sizes), replace(funds, questions=cells))
    counts = whole.alone_within(funds.within, funds.confidence)
    try:
        everything = whole.mode == "table" and bool(whole.opening())
    except OutOfReach:
        everything = False
    return Paid(funds.within, funds.confidence, counts, cells, everything)


class Foretelling:
    """Foretells errors.

    Args:
        policy: of the session, over all that was measured; it has been asked nothing.
        due: what the opening has yet to buy.
        left: what is left of the session's share before that, in its currency.
        moments: the residuals of every moment that was measured.
        records: about how many there are, where that is public and not exact.
    """

    def __init__(
        self,
        policy: Policy,
        due: Sequence[Wanted],
        left: float,
        moments: Mapping[Moment, Residuals] | None = None,
        records: float | None = None,
    ) -> None:
        self._policy, self._due, self._moments = policy, due, dict(moments or {})
        self._residuals, self._funds = policy.residuals, policy.funds
        self._left = left - sum(policy.price(buy.noise) for buy in due)
        #: How many records there are, about, and whether anybody knows.
        self.records, self.known = self._number(records)

    def errors(self, space: TableSpace, number: int = 1) -> Errors:
        """Those of the question of this number, where all before it were of its kind.

        Beside those of :meth:`counts` that of the ``share`` that has half the values of an attribute, and by attribute
        those of ``mean``, ``sum`` and ``median`` of all records, in its unit; none of these where an accuracy or a
        contract is asked for.
        """
        found, sampled = self.counts(number), self._sampled
        if self._funds.within is not None or self._funds.contract:
            return found

        def of(query: Query) -> float | None:
            assert isinstance(query, CompiledStatistic)
            return self._statistic(query, space.capacity, number)

        if sampled:
            part = product(space, {sampled[0]: np.flatnonzero(self._half(sampled[0]))})
            found["share"] = of(share_of(space, records(space, Where()), part))
        named = [a.name for a in space.attributes if a.kind == "numbers" and a.places > 1][:_MOST_NUMBERS]
        if named:
            found["mean"] = {a: of(MeanQuery(type="mean", of=a).compiled(space)) for a in named}
            found["sum"] = {a: of(SumQuery(type="sum", of=a).compiled(space)) for a in named}
            found["median"] = {a: of(QuantileQuery(type="quantile", of=a, q=0.5).compiled(space)) for a in named}
        return found

    def counts(self, number: int = 1) -> Errors:
        """Those of counts under conditions on ``one_attribute`` and on ``two_attributes``, half the values of each, and
        of a ``cell`` of a marginal of two attributes, or of one where there are no two or they have too many: medians
        over some.

        What the first of them buys for all of them is taken to be measured.
        """
        due = [*self._due, *self._policy.base(self._left)]
        left = self._left - sum(self._policy.price(buy.noise) for buy in due[len(self._due) :])
        ones = [(a,) for a in self._sampled]
        pairs = list(itertools.combinations(self._sampled, 2))
        twos = _some(pairs) or ones
        tables = self._tables(twos) or self._tables(ones)

        def of(questions: Iterable[Question]) -> float | None:
            return _median([self._count(question, number, due, left) for question in questions])

        one, two = ([Product.over({a: self._half(a) for a in each}) for each in sets] for sets in (ones, twos))
        return {"one_attribute": of(one), "two_attributes": of(two), "cell": of(map(Cells, tables))}

    def reaches(
        self, asked: CompiledStatistic, buy: Wanted, confidence: float, *, adaptive: bool = False
    ) -> FloatArray:
        """How far the intervals of a statistic's answers reach once this is bought for it: half their width, in its
        unit; NaN where too few records are expected for a value.
        """
        policy = Policy(self._known(_about(asked), self._due), self._funds)
        moments = self._own_moments()
        self._learn(policy, moments, buy)
        shown = Statistics(policy, moments).shown(asked, confidence, adaptive)
        return (shown.highs - shown.lows) / 2

    @property
    def falling(self) -> bool:
        """Whether later questions get less than earlier ones, as nobody said how many there will be."""
        return self._policy.mode == "lift" and self._funds.questions is None and self._funds.within is None

    # What is taken to be measured.

    def _number(self, about: float | None) -> tuple[float, bool]:
        if self._residuals.public_total is not None:
            return max(self._residuals.public_total, 1), True
        if self._residuals.measurements:
            measured = self._residuals.unbiased(Product.over({}))
            if measured.estimable.all():
                return max(round(float(measured.values)), 1), True
        return (ASSUMED, False) if about is None else (max(round(about), 1), True)

    def _expected(self, marginal: Marginal, moment: Moment | None = None) -> FloatArray:
        """What is expected in the cells of a marginal: records, or a moment of them."""
        found, places = np.full((), self.records), {a: k for k, a in enumerate(marginal.attributes)}
        for attribute in sorted({*places, *([] if moment is None else [moment.axis])}):
            shares = self._policy.fits.shares(attribute)
            if moment is not None and attribute == moment.axis:
                shares = np.append(shares[: moment.places] * moment.weights, np.zeros(len(shares) - moment.places))
            if attribute in places:
                found = found[..., None] * marginal.partition(places[attribute]).summed(shares, 0)
            else:
                found = found * shares.sum()
        return found

    def _known(self, attributes: Sequence[int], due: Sequence[Wanted]) -> Residuals:
        """All that is known of some attributes once this is measured. A measurement tells of them what its sums over
        all others do: that takes no more, however many there are."""
        inside, told = frozenset(attributes), dict[Marginal, tuple[float, FloatArray | float]]()

        def add(whole: Marginal, variance: float, values: FloatArray | None) -> None:
            marginal = whole.onto(inside)
            precision, summed = told.get(marginal, (0.0, 0.0))
            own = marginal.cells / (variance * whole.cells)
            told[marginal] = precision + own, summed + own * (self._expected(marginal) if values is None else values)

        for counts in self._residuals.measurements:
            add(counts.marginal, counts.variance, counts.onto(inside))
        for rows in self._residuals.combinations:
            # Least squares estimates of its cells, as fits take them.
            values, variances = rows.onto(inside)
            if not np.isnan(variances).any():
                marginal = rows.marginal.onto(inside)
                add(marginal, float(variances.mean()), values)
        for buy in due:
            add(buy.marginal, buy.noise.variance, None)
        found = self._residuals.fresh()
        for marginal, (precision, summed) in told.items():
            found.add(imagined(marginal, 1 / precision, np.asarray(summed) / precision))
        return found

    def _own_moments(self) -> dict[Moment, Residuals]:
        """What was measured of moments, to be added to."""
        return {moment: _again(known) for moment, known in self._moments.items()}

    def _learn(self, policy: Policy, moments: dict[Moment, Residuals], buy: Wanted) -> None:
        """Take it that something was bought."""
        for part, draws in buy.strategy.likely(self._expected):
            values, variance = self._expected(part.marginal, part.moment), buy.noise.variance / part.multiplier**2
            if part.rows is not None:
                policy.residuals.add(imagined_rows(part.marginal, part.rows, variance, values))
                continue
            counts = imagined(part.marginal, variance, values, draws)
            if part.moment is None:
                policy.residuals.add(counts)
            else:
                moments.setdefault(part.moment, policy.residuals.untold()).add(counts)

    # What is foretold of one question.

    def _count(self, question: Question, number: int, due: Sequence[Wanted], left: float) -> float:
        """The root mean square over the answers, where this is measured before and so much is left."""
        if self._funds.within is not None:
            return self._funds.within / normal_quantile(self._funds.confidence)
        policy = Policy(self._known(question.attributes, due), self._funds)
        known = float(policy.residuals.unbiased(question).variances.mean())
        buy = policy.purchase(question, policy.ahead(question, left, number - 1))
        if buy is None or known <= buy.noise.variance:
            return math.sqrt(known)
        return math.sqrt(float(policy.residuals.variances_after(question, buy.strategy, buy.noise.variance).mean()))

    def _statistic(self, asked: CompiledStatistic, capacity: int, number: int) -> float | None:
        """None where it would not be answered."""
        if not is_sound(asked, capacity):
            return None
        policy, moments = Policy(self._known(_about(asked), self._due), self._funds), self._own_moments()
        statistics = Statistics(policy, moments)
        left = policy.ahead(asked.question, self._left, number - 1, whole=True)
        buy = statistics.decide(asked, left, None, ANY)
        if buy is not None and buy.strategy.is_exact(capacity):
            self._learn(policy, moments, buy)
        elif not policy.residuals.begun:
            return None
        if policy.mode == "free" and not statistics.shown(asked, ANY, adaptive=False).unbiased.all():
            return None
        return _finite(float(statistics.errors(asked)[0]))

    @property
    def _sampled(self) -> Sequence[int]:
        """Some attributes, which stand for all."""
        return _some([a for a, n in enumerate(self._residuals.sizes) if n > 1])

    def _half(self, attribute: int) -> Array:
        start = self._starts(attribute)
        return start.labels < start.cells / 2

    def _starts(self, attribute: int) -> Partition:
        return self._residuals.starting.get(attribute) or Partition.singles(self._residuals.sizes[attribute])

    def _tables(self, sets: Sequence[tuple[int, ...]]) -> list[Marginal]:
        found = [table for table in map(self._starting, sets) if table.cells <= _MOST_CELLS]
        return found[:_TABLES]

    def _starting(self, attributes: Sequence[int]) -> Marginal:
        return Marginal.of(self._residuals.sizes, {a: self._starts(a) for a in attributes})


def _again(known: Residuals) -> Residuals:
    """The same measurements of a moment once more, to be added to."""
    made = known.untold()
    taken: list[Counts | Contrast | Combination] = [*known.measurements, *known.contrasts, *known.combinations]
    for measurement in taken:
        made.add(measurement)
    return made


def _about(asked: CompiledStatistic) -> list[int]:
    """The attributes of what is asked."""
    return sorted({*asked.question.attributes, *asked.weighed})


def _some(choices: Sequence[C]) -> Sequence[C]:
    """Some that stand for all."""
    return choices[:: max(len(choices) - 1, 0) // _SAMPLED + 1]


def _median(errors: Sequence[float]) -> float | None:
    return _finite(float(np.median(errors))) if errors else None


def _finite(error: float) -> float | None:
    return error if math.isfinite(error) else None
