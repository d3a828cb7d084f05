"""Ratios of the sums of two attributes, from counts and from the first moments of both.

With N the number of records that have a value of an attribute and S the sum of u over them, the grid steps from the
middle of its numbers, a sum is ``middle * N + step * S`` (:mod:`app.policies.moments`). A ratio A/B of two of these
follows from B's N and S, from A's S, and from A's N where that is another number. What is measured of counts tells of
both sums at once, and the noise of N that they have in common partly cancels; where single numbers were counted the
same counts tell of all. So all that tells of them is taken together with its covariances
(:meth:`app.estimation.tables.residuals.Residuals.together`), and the interval is Fieller's
(:mod:`app.estimation.tables.ratios`). There is no value where the interval of B holds zero.

What is bought are the two moments and, where that is worth its price, the number of records, in one measurement.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from app.estimation.tables.joint import Joint, pooled, sharpened
from app.estimation.tables.ratios import fieller_mean
from app.estimation.tables.residuals import Residuals, weighed
from app.estimation.tails import normal_quantile
from app.measurements.strategies.tables import Moment, Part, TableStrategy, Times, shares
from app.policies.kinds import ANY, Derived, Ends, Interval, Known, ends_of, from_ends
from app.policies.table import Policy
from app.spaces.lazy import lazy
from app.spaces.partition import Marginal
from app.spaces.queries.ratio import CompiledRatio, Numbers
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.questions import Cells, Groups
from app.spaces.tensor import Array, FloatArray, along

#: Parts of what is paid that may go to the number of records, and of the rest those that may go to the sum below.
_COUNT_PARTS, _PER_PARTS = (0.0, 0.25, 0.5), (0.5, 0.25, 0.75, 0.0, 1.0)
#: Parts of what is paid that may go to the distances of the numbers below from both ends, the rest to the sum above.
_ENDS_PARTS = (0.25, 0.35, 0.5, 0.65, 0.75)
#: The places of the numbers: of B's records, of the moments of B and A, and of A's records where these are others.
_COUNT, _PER, OF, _OF_COUNT = range(4)
#: Single numbers are summed in at most so many cells, and of one with the others in no more products.
_MOST_SINGLE, _MOST_PRODUCTS = 1 << 18, 1 << 26


def times_of(weights: Numbers) -> Times:
    """Weights of records, in steps of their grid."""
    return Times(weights.axis, round(weights.low / weights.step), weights.places)


def _moment(numbers: Numbers) -> Moment:
    return Moment(numbers.axis, numbers.places, 1, None if numbers.times is None else times_of(numbers.times))


class Ratio(Derived[CompiledRatio]):
    """The ratio of two sums."""

    def __init__(self, policy: Policy, moments: dict[Moment, Residuals], asked: CompiledRatio) -> None:
        super().__init__(policy, moments, asked)
        self.per, self.of = _moment(asked.per), _moment(asked.of)
        most = np.array([self.per.largest, self.of.largest], dtype=np.float64)
        self.extent = -most, most
        if asked.apart:
            # Of two attributes that few have values of there may be any ratio of numbers.
            self.extent = np.append(-most, 0.0), np.append(most, 2.0)

    @staticmethod
    def largest(query: CompiledStatistic) -> int:
        assert isinstance(query, CompiledRatio)
        return max(_moment(query.per).largest, _moment(query.of).largest)

    @property
    def own_residuals(self) -> list[Residuals]:
        moments = [each for moment in self._summed for each in (moment, *self._ends(moment))]
        return [self.counts, *(self.measured[each] for each in moments if each in self.measured)]

    @staticmethod
    def _ends(moment: Moment) -> tuple[Moment, ...]:
        """What counts its steps from both ends; nothing where it is multiplied."""
        return ends_of(moment) if moment.times is None else ()

    def _ended(self, moment: Moment) -> tuple[Moment, ...]:
        """The same where it was measured."""
        ends = self._ends(moment)
        return ends if all(end in self.measured for end in ends) else ()

    @lazy
    def _summed(self) -> dict[Moment, dict[int, Groups]]:
        """By moment the places of the numbers that are sums of it, each with the records of which it is the sum."""
        found: dict[Moment, dict[int, Groups]] = {self.per: {_PER: self.asked.below(self._cells_of(self.asked.per))}}
        found.setdefault(self.of, {})[OF] = self.asked.above(self._cells_of(self.asked.of))
        return found

    def _cells_of(self, numbers: Numbers) -> Marginal:
        """The cells that tell apart of which records numbers are summed."""
        return self.asked.marginal([numbers])

    @property
    def likely(self) -> FloatArray:
        found = np.zeros(self.extent[1].shape)
        if self.asked.apart:
            found[_OF_COUNT - 1] = 1.0
        return self.hedged(found, super().likely)

    def hedged(self, means: FloatArray, spreads: FloatArray) -> FloatArray:
        """The sum below is taken to be larger than it is said to: where both lie alike within their bounds no number of
        records would be needed, as its noise cancels."""
        found = means.copy()
        found[..., _PER - 1] += spreads[..., _PER - 1]
        return found

    def known(self) -> Known:
        return self._known

    @lazy
    def _known(self) -> Known:
        sources = self._of_counts()
        for moment, sums in self._summed.items():
            if moment in self.measured:
                together = self.measured[moment].together([*sums.values()])
                sources += [self._placed(one, [*sums]) for one in together]
            if ends := self._ended(moment):
                told = (self.measured[end].together([*sums.values()]) for end in ends)
                # Measured beside each other they are told by alike.
                sources += [self._from_ends(moment, *both) for both in zip(*told, strict=True)]
        return self.filled(pooled(sources))

    def _of_counts(self) -> list[Joint]:
        """The estimates from counts: the numbers of records, and moments where the single numbers of an attribute were
        counted and are few enough.
        """
        asked, singly = self.asked, self._singly
        marginal = asked.marginal((asked.per, asked.of), singly)
        per, of = asked.below(marginal), asked.above(marginal)
        found: dict[int, tuple[Groups, FloatArray]] = {_COUNT: (per, np.ones(()))}
        for place, one, groups in ((_PER, asked.per, per), (OF, asked.of, of)):
            if one in singly:
                found[place] = groups, self._along(marginal, one)
        if asked.apart:
            found[_OF_COUNT] = of, np.ones(())
        sums, weights = zip(*found.values(), strict=True)
        return [self._placed(one, list(found)) for one in self.counts.together(sums, weights)]

    @lazy
    def _singly(self) -> list[Numbers]:
        """Those of which single ones were counted, where these are few enough."""
        asked = self.asked
        singly = [one for one in (asked.per, asked.of) if all(self.counts.told_singly(axis) for axis in one.axes)]
        lengths = {axis: self.counts.sizes[axis] for one in singly for axis in one.axes}
        cells = asked.question.cells * math.prod(lengths.values())
        few = cells <= _MOST_SINGLE and cells * sum(lengths.values()) <= _MOST_PRODUCTS
        return singly if few else []

    @staticmethod
    def _along(marginal: Marginal, numbers: Numbers) -> FloatArray:
        """The weights of numbers along their axes of a marginal that tells single ones apart."""
        found = np.ones([1] * len(marginal.shape))
        for axis, weights in _moment(numbers).factors:
            place = marginal.attributes.index(axis)
            row = np.zeros(marginal.shape[place])
            row[: len(weights)] = weights
            found = found * along(row, place, len(marginal.shape))
        return found

    def _from_ends(self, moment: Moment, least: Joint, greatest: Joint) -> Joint:
        """What distances from both ends tell of numbers of records and of sums of a moment."""
        sums = [*self._summed[moment]]
        counts = [_OF_COUNT if self.asked.apart and place == OF else _COUNT for place in sums]
        return self._placed(from_ends(moment, least, greatest), counts + sums)

    def _placed(self, told: Joint, places: list[int]) -> Joint:
        """What tells some of the numbers, as of all of them."""
        return told.placed(places, 1 + len(self.extent[1]))

    def modelled(self, k: int, count: FloatArray) -> tuple[FloatArray | float, FloatArray | float]:
        """Moments are like those of all records; who has a value of the attribute above is as many as are shown."""
        if k == _PER:
            mean, spread = self.overall(self.per)
            return mean, count * spread
        rate, error = np.ones(len(count)), np.zeros(len(count))
        if self.asked.apart:
            shown = self.policy.shown(self.asked.of_question, None, ANY)
            rate = shown.values.reshape(-1) / np.maximum(count, 1.0)
            error = shown.standard_errors.reshape(-1)
        if k == _OF_COUNT:
            return rate, error
        mean, spread = self.overall(self.of)
        return mean * rate, count * rate * spread

    def own_quantiles(self, known: Joint, confidence: float) -> FloatArray:
        """How many deviations the noise of each answer reaches: the normal law's, and of what the noises of counts and
        moments reach beyond it the part that each has of the answer's variance, which is more than they have together.
        No sum of cells reaches farther than the one of them that does.
        """
        normal, asked = normal_quantile(confidence), self.asked
        cells = Cells(asked.question.marginal)
        beyond = np.tile(self.deviations(self.counts, cells, confidence)[:, None], known.values.shape[1])
        for place, moment, numbers in ((_PER, self.per, asked.per), (OF, self.of, asked.of)):
            own = Cells(self._summed[moment][place].marginal)
            if moment in self.measured:
                beyond[:, place] = self.deviations(self.measured[moment], own, confidence)
            for end in self._ended(moment):
                # No sum of both reaches farther than one of them does.
                farthest = self.deviations(self.measured[end], own, confidence)[:, None]
                counted = _OF_COUNT if asked.apart and place == OF else _COUNT
                beyond[:, [counted, place]] = np.maximum(beyond[:, [counted, place]], farthest)
            # Where single numbers were counted sums of them are told by few noises, or by one that weighs most.
            if numbers in self._singly:
                beyond[:, place] = np.maximum(beyond[:, place], self._single(cells, numbers, confidence))
        parts = np.square(self.slopes(known.values)) * np.nan_to_num(known.variances, posinf=0.0)
        whole = parts.sum(axis=1, keepdims=True)
        parts = np.divide(parts, whole, out=np.zeros(parts.shape), where=whole > 0)
        return np.asarray(normal + (parts * np.maximum(beyond - normal, 0.0)).sum(axis=1))

    def _single(self, cells: Cells, numbers: Numbers, confidence: float) -> FloatArray:
        """How many deviations sums of single numbers over cells reach."""
        if numbers.times is not None:
            # No farther than the one of them that does.
            return self.deviations(self.counts, Cells(self.asked.marginal([numbers], [numbers])), confidence)
        row = np.zeros(self.counts.sizes[numbers.axis])
        row[: numbers.places] = _moment(numbers).weights
        return self.deviations(self.counts, weighed(cells, numbers.axis, row), confidence)

    @lazy
    def _onto(self) -> FloatArray:
        """The weights of the numbers in B and in A."""
        weights = np.zeros((2, 1 + len(self.extent[1])))
        for row, moment, numbers, count, own in (
            (0, self.per, self.asked.per, _COUNT, _PER),
            (1, self.of, self.asked.of, _OF_COUNT if self.asked.apart else _COUNT, OF),
        ):
            # Numbers that are multiplied are counted from their middle.
            middle = numbers.low + moment.middle * numbers.step if numbers.times is None else 0.0
            weights[row, count], weights[row, own] = middle, numbers.unit
        return weights

    def slopes(self, values: FloatArray) -> FloatArray:
        below, above = self._onto @ values.T
        # Steep, where it has no slope.
        below = np.where(np.abs(below) < self.asked.per.step, self.asked.per.step, below)
        return np.asarray((self._onto[1] - (above / below)[:, None] * self._onto[0]) / below[:, None])

    def possible(self, total: float | None) -> tuple[Ends, Ends]:
        """What the declared numbers allow: of records that have both values the ratio lies between those of single
        records."""
        of, per = self.asked.of, self.asked.per
        least, most = (0.0 if of.low >= 0 else -math.inf), (0.0 if of.high <= 0 else math.inf)
        if per.low < 0:
            return -math.inf, math.inf
        if per.low > 0 and self.asked.within:
            least = of.low / per.low if of.low < 0 else least
            most = of.high / per.low if of.high > 0 else most
            if not self.asked.apart:
                least = of.low / per.high if of.low > 0 else least
                most = of.high / per.high if of.high < 0 else most
        return least, most

    def interval(self, known: Joint, quantile: FloatArray) -> Interval:
        sums = known.mapped(self._onto)
        below = sums.values[:, 0]
        side = below if self.asked.per.low >= 0 else np.abs(below)
        nothing = (side <= quantile * np.sqrt(np.maximum(sums.variances[:, 0], 0.0))) | (side <= 0)
        # Any numbers that can be divided.
        values = np.where(nothing[:, None], 1.0, sums.values)
        sums = Joint(values, np.where(nothing[:, None, None], 0.0, sums.covariances))
        linear = values[:, 1] / values[:, 0]
        errors = np.sqrt(sums.weighed(np.stack([-linear, np.ones(len(linear))], axis=1))[1]) / np.abs(values[:, 0])
        lows, highs = fieller_mean(sums, quantile)
        return Interval(linear, errors, np.minimum(lows, linear), np.maximum(highs, linear), nothing)

    def strategies(self, marginal: Marginal) -> list[TableStrategy]:
        """The two moments with several parts of the price, and for the number of records beside them; or of the sum
        below distances from both ends, where noise is pure."""
        found, pure = [], 2 if self.policy.pure else 1
        cells = {moment: next(iter(sums.values())).marginal for moment, sums in self._summed.items()}

        def add(bought: list[tuple[tuple[Moment | None, ...], float]]) -> None:
            """Moments by their part of the price, together where they are distances from both ends."""
            bought = [(moments, price) for moments, price in bought if price]
            largest = [1 if moments[0] is None else moments[0].largest for moments, _ in bought]
            multipliers = shares(largest, [price**pure for _, price in bought])
            found.append(
                TableStrategy(
                    tuple(
                        Part(marginal if moment is None else cells[replace(moment, end=None)], moment, by)
                        for (moments, _), by in zip(bought, multipliers, strict=True)
                        for moment in moments
                    )
                )
            )

        own = [(moment,) for moment in cells]
        for counts in _COUNT_PARTS:
            for per in _PER_PARTS if len(cells) > 1 else (1.0,):
                prices = ((1 - counts) * per, (1 - counts) * (1 - per))
                add([((None,), counts), *zip(own, prices[: len(cells)], strict=True)])
        if self.policy.pure and self._ends(self.per):
            for per in _ENDS_PARTS if len(cells) > 1 else (1.0,):
                add([(self._ends(self.per), per), *([((self.of,), 1 - per)] if len(cells) > 1 else [])])
        return found

    def after(self, before: FloatArray, strategy: TableStrategy, variance: float) -> FloatArray:
        bought, ended = np.full(before.shape[:2], np.inf), dict[Moment, Joint]()
        for part in strategy.parts:
            each = variance / part.multiplier**2
            if part.moment is not None:
                sums = self._summed[replace(part.moment, end=None)]
            elif self.asked.apart:
                sums = {_COUNT: self.asked.question, _OF_COUNT: self.asked.of_question}
            else:
                sums = {_COUNT: self.asked.question}
            if part.moment is not None and part.moment.opposite is not None:
                ended[part.moment] = self._told(each, sums)
                if part.moment.opposite in ended:
                    told = self._from_ends(self.per, *(ended[end] for end in self._ends(self.per)))
                    before = self._taken(before, told)
            elif len(sums) > 1:
                before = self._taken(before, self._placed(self._told(each, sums), [*sums]))
            else:
                ((place, groups),) = sums.items()
                bought[:, place] = each * self._cells(groups)
        return sharpened(before, bought)

    @staticmethod
    def _taken(before: FloatArray, told: Joint) -> FloatArray:
        """Covariances after something was told besides."""
        return pooled([Joint(np.zeros(before.shape[:2]), before), told]).covariances

    def _told(self, variance: float, sums: dict[int, Groups]) -> Joint:
        """What measuring the cells tells of one sum, or of two that they tell apart."""
        if len(sums) == 1:
            (groups,) = sums.values()
            cells = self._cells(groups)
            return Joint.of_one(0, 1, np.zeros(len(cells)), variance * cells)
        per, of = sums.values()
        both = Groups(per.marginal, np.minimum(per.answers, of.answers), per.shape)
        one, two, shared = (variance * self._cells(each) for each in (per, of, both))
        shared = np.where(both.empty.reshape(-1), 0.0, shared)
        return Joint.of_rows([np.zeros(len(one))] * 2, [[one, shared], [shared, two]])

    def fewest(self, marginal: Marginal) -> int:
        return 1

    @staticmethod
    def _cells(groups: Groups) -> FloatArray:
        """How many cells each sum has, one where it has none."""
        ones: Array = np.ones(groups.marginal.shape)
        return np.maximum(groups.summed(ones).reshape(-1), 1.0)
