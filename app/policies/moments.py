"""Sums, means and variances of numbers that records have, from counts and moments.

An attribute on a grid has numbers ``middle + step * u``, u whole and at most h to either side. With N the number of
records that are asked of, S the sum of u over them and Q the sum of ``u^2 - h^2/2``,

    sum = middle * N + step * S,      mean = middle + step * S/N,      variance = step^2 (Q/N + h^2/2 - (S/N)^2).

Moments are measured over cells of marginals just as records are counted, and obey the same closed form
(:mod:`app.estimation.tables.residuals`): a mean of all follows from the means by group at no cost. Where the single
numbers were counted moments follow from counts too, and their noise is that of N. All that tells of N, S and Q of a
group is taken together with its covariances (:mod:`app.estimation.tables.joint`); intervals of means and of variances
hold however small N is (:mod:`app.estimation.tables.ratios`).

Where noise is pure N and S may be told by two sums of the records' distances from the ends of the range, A from the
least number and B from the greatest. With K steps from end to end ``N = (A + B)/K`` and, m being the middle's distance
from the least number, ``S = A - m N``. A record adds K to A and B together, no more than it may add to one of them: so
each has the noise that it would have alone, where N and S measured beside each other share the price.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np

from app.estimation.tables.joint import Joint, pooled, sharpened
from app.estimation.tables.ratios import fieller_mean, variances_of
from app.estimation.tables.residuals import Residuals, weighed
from app.estimation.tails import normal_quantile
from app.measurements.strategies.tables import Moment, Part, TableStrategy, shares
from app.policies.kinds import Derived, Ends, Interval, Known, ends_of, from_ends, moment_of
from app.policies.table import Policy
from app.spaces.partition import Marginal
from app.spaces.queries.statistic import CompiledStatistic, StatisticOfNumbers
from app.spaces.questions import Cells, Groups, Local, Question
from app.spaces.tensor import Array, FloatArray

#: Parts of what is paid that may go to the number of records, beside the moments: all where these are known.
_COUNT_PARTS = (0.0, 0.125, 0.25, 0.375, 0.5, 1.0)
#: Parts of what is paid for two moments that may go to the first: none where that is known well enough.
_FIRST_PARTS = (0.0, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9)
#: Parts of what is paid for a second moment, too, that may go to the distances from both ends.
_ENDS_PARTS = (0.35, 0.5, 0.65, 0.8, 0.9)
#: The most cells of a table that was measured whole of which moments are summed.
_MOST_SINGLE = 1 << 20
#: Of reaches that are tried one after the other, so many between one and its double; and how often it is doubled.
_PER_DOUBLE, _DOUBLES = 2, 8
#: Groups whose variances are bounded at once.
_AT_ONCE = 1 << 12


class _OfMoments(Derived[StatisticOfNumbers]):
    """A statistic that follows from numbers of records and moments."""

    def __init__(self, policy: Policy, moments: dict[Moment, Residuals], asked: StatisticOfNumbers) -> None:
        super().__init__(policy, moments, asked)
        largest = np.array([moment.largest for moment in self.moments], dtype=np.float64)
        self.extent = -largest, largest

    @property
    def first(self) -> Moment:
        """The sum of u."""
        return moment_of(self.asked, 1)

    @property
    def middle(self) -> float:
        """The number that u is counted from."""
        return self.asked.low + self.first.middle * self.asked.step

    @property
    def moments(self) -> tuple[Moment, ...]:
        """The moments that have to be known beside the number of records."""
        return (self.first,)

    @property
    def ends(self) -> tuple[Moment, Moment]:
        """The sums of distances from the least number and from the greatest."""
        return ends_of(self.first)

    @staticmethod
    def largest(query: CompiledStatistic) -> int:
        return moment_of(query, 1).largest

    @property
    def own_residuals(self) -> list[Residuals]:
        return [self.counts, *(self.measured[each] for each in (*self.moments, *self.ends) if each in self.measured)]

    def known(self) -> Known:
        """The numbers of records and the moments."""
        asked, count = self.asked, 1 + len(self.moments)
        sources = self._of_counts()
        for k, moment in enumerate(self.moments):
            if moment in self.measured:
                sources.append(self.joint(self.measured[moment].unbiased(asked.question), 1 + k, count))
        if all(end in self.measured for end in self.ends):
            told = [self.joint(self.measured[end].unbiased(asked.question), 0, 1) for end in self.ends]
            sources.append(from_ends(self.first, *told).placed([0, 1], count))
        return self.filled(pooled(sources))

    def _of_counts(self) -> list[Joint]:
        """The estimates from counts: the numbers of records, and moments where the single numbers are few and were
        measured.
        """
        asked, question, places = self.asked, self.asked.question, self.asked.places
        if not self._singly():
            return [self.joint(self.counts.unbiased(question), 0, 1 + len(self.moments))]
        size = self.counts.sizes[asked.axis]
        weights = np.zeros((len(self.moments), size))
        weights[:, :places] = [moment.weights for moment in self.moments]
        found = [joint.some(asked.groups) for joint in self.counts.jointly(question, asked.axis, weights)]
        if isinstance(question, Groups):
            # What nothing is counted in is known without looking.
            nothing = np.where(question.empty.reshape(-1)[asked.groups], 0.0, np.nan)
            rows = [nothing] * (1 + len(weights))
            found.append(Joint.of_rows(rows, [rows] * len(rows)))
        return found

    def _singly(self) -> bool:
        """Whether single numbers were counted, and are few enough to sum moments of them."""
        asked, question = self.asked, self.asked.question
        cells = question.cells * asked.places
        if isinstance(question, Local):
            named = asked.axis in question.attributes
            cells = math.prod(question.sizes) * (1 if named else self.counts.sizes[asked.axis])
        return cells <= _MOST_SINGLE and bool(self.moments) and self.counts.told_singly(asked.axis)

    def own_quantiles(self, known: Joint, confidence: float) -> FloatArray:
        """How many deviations the noise of each answer reaches: the normal law's, and of what the noises of counts and
        moments reach beyond it the part that each has of the answer's variance, which is more than they have together.
        Of sums of counts that were told one by one it is that of their own law.
        """
        asked, normal = self.asked, normal_quantile(confidence)
        counted, singly = asked.question, self._singly()
        if isinstance(counted, Groups):
            # No sum of cells reaches farther than the one of them that does.
            counted = Cells(counted.marginal)
        elif singly and asked.kind == "sum" and self.measured.keys().isdisjoint((self.first, *self.ends)):
            numbers = asked.low + asked.step * np.arange(asked.places)
            found = self.deviations(self.counts, self._weighed(counted, numbers), confidence)
            return np.where(found > 0, found, normal)
        beyond = np.zeros(known.values.shape)
        beyond[:, 0] = self.deviations(self.counts, asked.question, confidence) - normal
        for k, moment in enumerate(self.moments, start=1):
            if moment in self.measured:
                beyond[:, k] = self.deviations(self.measured[moment], asked.question, confidence) - normal
            if singly:
                own = self.deviations(self.counts, self._weighed(counted, moment.weights), confidence)
                beyond[:, k] = np.maximum(beyond[:, k], own - normal)
        for end in self.ends:
            if end in self.measured:
                # No sum of both reaches farther than one of them does.
                own = self.deviations(self.measured[end], asked.question, confidence) - normal
                beyond[:, :2] = np.maximum(beyond[:, :2], own[:, None])
        steep = self.slopes(np.hstack([np.maximum(known.values[:, :1], 1.0), known.values[:, 1:]]))
        parts = np.square(steep) * np.nan_to_num(known.variances, posinf=0.0)
        whole = parts.sum(axis=1, keepdims=True)
        parts = np.divide(parts, whole, out=np.zeros(parts.shape), where=whole > 0)
        return np.asarray(normal + (parts * np.maximum(beyond, 0.0)).sum(axis=1))

    def _weighed(self, question: Question, numbers: Array) -> Question:
        """Counts weighed by a number for each of those that records have."""
        weights = np.zeros(self.counts.sizes[self.asked.axis])
        weights[: self.asked.places] = numbers
        return weighed(question, self.asked.axis, weights)

    def modelled(self, k: int, count: FloatArray) -> tuple[FloatArray | float, FloatArray | float]:
        mean, spread = self.overall(self.moments[k - 1])
        return mean, count * spread

    def after(self, before: FloatArray, strategy: TableStrategy, variance: float) -> FloatArray:
        summed = self._summed(strategy.parts[0].marginal)
        bought = {part.moment: variance / part.multiplier**2 * summed for part in strategy.parts}
        if self.ends[0] in bought:
            told = [Joint.of_one(0, 1, np.zeros(len(summed)), bought[end]) for end in self.ends]
            both = from_ends(self.first, *told).placed([0, 1], before.shape[1])
            before = pooled([Joint(np.zeros(before.shape[:2]), before), both]).covariances
        nothing = np.full(len(summed), np.inf)
        return sharpened(before, np.stack([bought.get(moment, nothing) for moment in (None, *self.moments)], axis=1))

    def together(self, before: FloatArray, strategy: TableStrategy, variance: float) -> FloatArray:
        found = self.after(before, strategy, variance)
        if not self.policy.pure or self.asked.question.cells == 1 or strategy.parts[0].moment in self.ends:
            return found
        # Groups are parts of what is known; distances from both ends, which they are held against, tell no more for it.
        numbers = [None, *self.moments]
        for part in strategy.parts:
            known = self.counts if part.moment is None else self.measured.get(part.moment, self.counts.untold())
            one = TableStrategy.of(part.marginal)
            after = self.own(known.variances_after(self.asked.question, one, variance / part.multiplier**2))
            k = numbers.index(part.moment)
            scale = np.sqrt(np.minimum(after / np.where(found[:, k, k] > 0, found[:, k, k], 1.0), 1.0))
            found[:, k] *= scale[:, None]
            found[:, :, k] *= scale[:, None]
        return found

    def strategies(self, marginal: Marginal) -> list[TableStrategy]:
        """Moments with several parts of the price for each, and for the number of records beside them."""
        moments = self.moments
        splits = [(1.0,)] if len(moments) == 1 else [(part, 1 - part) for part in _FIRST_PARTS]
        # Costs of pure noise are as the multipliers, of Gaussian noise as their squares.
        power = 2 if self.policy.pure else 1
        found: dict[TableStrategy, None] = {}
        for part, split in product(_COUNT_PARTS, splits):
            paid: dict[Moment | None, float] = {None: part}
            paid |= {m: (1 - part) * own for m, own in zip(moments, split, strict=True)}
            bought = [moment for moment, own in paid.items() if own]
            multipliers = shares([m.largest if m else 1 for m in bought], [paid[m] ** power for m in bought])
            found[TableStrategy(tuple(Part(marginal, m, by) for m, by in zip(bought, multipliers, strict=True)))] = None
        return [*found, *(self._ends_strategies(marginal) if self.policy.pure else ())]

    def _ends_strategies(self, marginal: Marginal) -> Iterator[TableStrategy]:
        """Distances from both ends, with several parts of the price where a second moment is measured beside them."""
        least, greatest = self.ends
        others = [moment for moment in self.moments if moment != self.first]
        for part in _ENDS_PARTS if others else (1.0,):
            prices = [part, *([1 - part] if others else [])]
            by, *own = shares([m.largest for m in (least, *others)], [price**2 for price in prices])
            yield TableStrategy(
                tuple(Part(marginal, m, c) for m, c in zip((least, greatest, *others), (by, by, *own), strict=True))
            )

    def fewest(self, marginal: Marginal) -> int:
        return round(float(self._summed(marginal).min()))

    def _summed(self, marginal: Marginal) -> FloatArray:
        """How many cells of a marginal each of the answers asked for sums."""
        question = self.asked.question
        cells = [marginal.partition(k) for k in range(len(marginal.attributes))]
        partitions = [cells[marginal.attributes.index(a)] for a in question.attributes if a in marginal.attributes]
        ones = np.ones([p.cells for p in partitions])
        return np.maximum(self.own(question.of(ones, partitions)), 1.0)


class Sum(_OfMoments):
    """The sum."""

    ratio = False

    def slopes(self, values: FloatArray) -> FloatArray:
        ones = np.ones(len(values))
        return np.stack([self.middle * ones, self.asked.step * ones], axis=1)

    def possible(self, total: float | None) -> tuple[Ends, Ends]:
        (low, high), most = self.extremes, math.inf if total is None else total
        least, greatest = np.zeros(len(low)), np.zeros(len(high))
        return np.multiply(low, most, out=least, where=low < 0), np.multiply(high, most, out=greatest, where=high > 0)

    def interval(self, known: Joint, quantile: FloatArray) -> Interval:
        linear, variances = known.weighed(np.array([self.middle, self.asked.step]))
        errors = np.sqrt(variances)
        nothing = np.zeros(len(linear), dtype=bool)
        return Interval(linear, errors, linear - quantile * errors, linear + quantile * errors, nothing)


class Mean(_OfMoments):
    """The mean."""

    def slopes(self, values: FloatArray) -> FloatArray:
        count, step = values[:, 0], self.asked.step
        return np.stack([-step * (values[:, 1] / count) / count, step / count], axis=1)

    def possible(self, total: float | None) -> tuple[Ends, Ends]:
        return self.extremes

    def interval(self, known: Joint, quantile: FloatArray) -> Interval:
        nothing, known = self.empty(known, quantile)
        errors = np.sqrt(known.weighed(self.slopes(known.values))[1])
        steps = known.values[:, 1] / known.values[:, 0]
        lows, highs = fieller_mean(known, quantile)
        ends = [self.middle + self.asked.step * end for end in (steps, lows, highs)]
        return Interval(ends[0], errors, ends[1], ends[2], nothing)


class Variance(_OfMoments):
    """The variance."""

    @property
    def second(self) -> Moment:
        """The sum of u^2 less half of h^2."""
        return moment_of(self.asked, 2)

    @property
    def moments(self) -> tuple[Moment, ...]:
        return self.first, self.second

    @staticmethod
    def largest(query: CompiledStatistic) -> int:
        return max(moment_of(query, 1).largest, moment_of(query, 2).largest)

    def slopes(self, values: FloatArray) -> FloatArray:
        count, unit = values[:, 0], math.ldexp(1.0, self.second.shift)
        means = values[:, 1:] / count[:, None]
        rows = [2 * means[:, 0] ** 2 - unit * means[:, 1], -2 * means[:, 0], unit * np.ones(len(values))]
        return self.asked.step**2 * np.stack(rows, axis=1) / count[:, None]

    def possible(self, total: float | None) -> tuple[Ends, Ends]:
        least, most = self.reachable
        return 0.0, (self.asked.step * (most - least) / 2) ** 2

    def interval(self, known: Joint, quantile: FloatArray) -> Interval:
        """Those of all groups reach as many deviations as the most of them do.

        An interval that holds nothing possible is that of the least confidence on a grid that does, as is every one of
        a confidence below it: so more confidence makes none narrower.
        """
        nothing, known = self.empty(known, quantile)
        values, errors = known.values, np.sqrt(known.weighed(self.slopes(known.values))[1])
        farthest = float(quantile.max(initial=0.0))
        linear, lows, highs = self._ends(known, farthest)
        least, most = (np.broadcast_to(end, linear.shape) for end in self.possible(None))
        unmet = np.flatnonzero((linear < least) | (linear > most))
        for reach in _reaches(farthest):
            if not len(unmet):
                break
            some = Joint(values[unmet], known.covariances[unmet])
            _, first, last = self._ends(some, reach)
            found = (first < most[unmet]) & (last > least[unmet])
            if reach > farthest:
                lows[unmet[found]], highs[unmet[found]] = first[found], last[found]
            unmet = unmet[~found]
        # Where there are hardly any records an interval has no end but that of what is possible.
        lows, highs = np.where(np.isinf(lows), least, lows), np.where(np.isinf(highs), most, highs)
        return Interval(linear, errors, lows, highs, nothing, whole=True)

    def _ends(self, known: Joint, farthest: float) -> FloatArray:
        """The variances of some groups as they are known, and the ends of their intervals."""
        # The sum of u^2 in place of the second moment.
        first, second, values = self.first, self.second, known.values
        onto = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [second.offset, 0.0, math.ldexp(1.0, second.shift)]])
        found = [np.zeros((3, 0))]
        for start in range(0, len(values), _AT_ONCE):
            some = slice(start, start + _AT_ONCE)
            part = Joint(values[some], known.covariances[some]).mapped(onto)
            found.append(np.stack(variances_of(part, farthest, -first.middle, first.half)))
        return np.asarray(self.asked.step**2 * np.concatenate(found, axis=1))


def _reaches(farthest: float) -> Iterator[float]:
    """The last of the grid that is no farther, and all that are."""
    step = math.floor(_PER_DOUBLE * math.log2(farthest)) if farthest > 0 else 0
    for power in range(step, _PER_DOUBLE * _DOUBLES + 1):
        yield 2.0 ** (power / _PER_DOUBLE)
