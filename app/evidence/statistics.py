"""Statistics of numbers that records have, from counts and moments: what is measured for them, and what is shown.

An attribute on a grid has numbers ``middle + step * u``, u whole and at most h to either side. With N the number of
records that are asked of, S the sum of u over them and Q the sum of ``u^2 - h^2/2``,

    sum = middle * N + step * S,      mean = middle + step * S/N,      variance = step^2 (Q/N + h^2/2 - (S/N)^2).

Moments are measured over cells of marginals just as records are counted, and obey the same closed form
(:mod:`app.evidence.residuals`): a mean of all follows from the means by group at no cost. Their errors are those of the
delta method; the interval of a mean is Fieller's, which holds however small N is.

Quantiles are read from counts of ranges (:mod:`app.evidence.distributions`), cut where what is known leaves them. The
interval of a quantile holds all values below which there may be that part of the records.

Where too few records may be left for a ratio to mean anything there is no value: it is NaN here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtri

from app.evidence.distributions import Distribution, Ranges, distributions, ranges_of
from app.evidence.measurements import Marginal, Measurement, Partition
from app.evidence.policy import Buy, OutOfReach, Policy, squared
from app.evidence.questions import Cells, Groups, Local, Product, Question, WeightedCells
from app.evidence.residuals import Residuals, Unbiased, averaged, own_values
from app.evidence.strategies import Moment, Part, Strategy, shares
from app.spaces.tensor import Array, FloatArray, IntArray

#: Parts of what is paid that may go to the number of records, beside the moments.
_COUNT_PARTS = (0.0, 0.125, 0.25, 0.375, 0.5)
#: What is measured for a quantile has at most so many cells in all.
MOST_CELLS = 1 << 15
#: How far quantiles of groups are taken to be from those of all, as a part of the records.
_APART = 0.06
#: Ranges are cut as fine as so many deviations of noise at least where a quantile may be, within so many deviations,
#: and each by this much coarser than the one before beyond; how many there are at least and at most; and when what is
#: known is enough, in deviations of the noise that could be bought.
_RANGE, _WINDOW, _COARSER, _LEAST_RANGES, _MOST_RANGES, _ENOUGH = 2.0, 1.5, 2.2, 3, 32, 1.5
#: How unevenly records are taken to lie within a range, four times squared.
_UNEVEN = 0.25
#: The logarithm of a variance beside another that no purchase is worth asking for.
_NEVER = 1e4
#: What is not measured is taken to be like the whole within this part of its spread.
_ALIKE = 0.5
#: The most cells of a table that was measured whole of which moments are summed.
_MOST_SINGLE = 1 << 20


@dataclass(frozen=True, eq=False)
class Statistic:
    """What is asked.

    Attributes:
        kind: of what.
        axis: of the attribute.
        places: how many numbers it has.
        low: the least of them.
        step: of its grid.
        question: the numbers of records that it is asked of.
        chosen: which of the question's answers are asked for, by their places in a flat array.
        levels: of quantiles.
    """

    kind: Literal["sum", "mean", "variance", "quantile"]
    axis: int
    places: int
    low: float
    step: float
    question: Question
    chosen: IntArray
    levels: tuple[float, ...] = ()

    @property
    def first(self) -> Moment:
        """The sum of u."""
        return Moment(self.axis, self.places, 1)

    @property
    def second(self) -> Moment:
        """The sum of u^2 less half of h^2."""
        return Moment(self.axis, self.places, 2)

    @property
    def moments(self) -> tuple[Moment, ...]:
        """What has to be known beside the number of records; none for quantiles."""
        if self.kind == "quantile":
            return ()
        return (self.first, self.second) if self.kind == "variance" else (self.first,)

    @property
    def middle(self) -> float:
        """The number that u is counted from."""
        return self.low + self.first.middle * self.step

    @property
    def high(self) -> float:
        """The largest number."""
        return self.low + (self.places - 1) * self.step

    def of(self, values: Array) -> FloatArray:
        """Those of the question's answers that are asked for."""
        return np.asarray(values, dtype=np.float64).reshape(-1)[self.chosen]


@dataclass(frozen=True, eq=False)
class Shown:
    """Answers in the order asked, group by group and for each group one a level; NaN where there is none.

    ``unbiased`` tells where the interval is that of values whose error is known; elsewhere it is the model's.
    """

    values: FloatArray
    standard_errors: FloatArray
    lows: FloatArray
    highs: FloatArray
    unbiased: Array
    linear: FloatArray
    linear_errors: FloatArray


@dataclass(frozen=True, eq=False)
class _Known:
    """Counts or moments of the groups that are asked for, with their variances, and where these are no model's."""

    values: FloatArray
    variances: FloatArray
    unbiased: Array


class Statistics:
    """Answers statistics from what was measured, and says what to measure for them.

    Args:
        policy: of the session, over the counts of the same table.
        moments: the residuals of every moment that was measured.
    """

    def __init__(self, policy: Policy, moments: dict[Moment, Residuals]) -> None:
        self._policy, self._moments = policy, moments
        self._counts = policy.residuals

    # What is bought.

    def decide(
        self, asked: Statistic, left: float, within: float | None, confidence: float, leaning: float = 0.0
    ) -> Buy | None:
        """What is bought for a statistic; None where it is answered free.

        Args:
            asked: of this table.
            left: what is left of the session's share, in its currency.
            within: half the width that intervals may have, in the attribute's unit; then the least is bought that is
                likely to get there.
            confidence: of that interval.
            leaning: the part by which what is known is taken to be worse than it is.

        Raises:
            OutOfReach: where ``within`` cannot be paid.
        """
        if self._policy.mode == "table":
            return None
        share = self._policy.share(asked.question, left)
        if asked.kind == "quantile":
            return None if share <= 0 else self._decide_ranges(asked, share, 1 + leaning)
        terms = _Terms(self, asked)
        if within is not None:
            quantile = self._quantile(asked, confidence, adaptive=False)
            return terms.accurate(left, within / quantile)
        return None if share <= 0 else terms.within(share, 1 + leaning)

    def _decide_ranges(self, asked: Statistic, share: float, leaning: float) -> Buy | None:
        """Counts of ranges where quantiles may lie, each of about as many records as noise hides."""
        noise = self._policy.noise(share)
        if noise is None:
            return None
        deviation = math.sqrt(noise.variance)
        known, base, count = self._distributions(asked), self._base(asked), np.maximum(self._best_count(asked), 1.0)
        within, ends, worst = np.cumsum(base), [np.array([], np.int64)], math.inf
        if known is None:
            # Nobody knows how groups differ: they are cut alike, around the quantiles of all.
            spread, noise_part = _APART, deviation / float(np.median(count))
            if not self.begun:
                # Nor how many records there are: in ranges that are all alike.
                spread, noise_part = 1.0, 1 / _MOST_RANGES
            ends += [_around(within, level, spread, noise_part) for level in asked.levels]
        else:
            worst = 0.0
            for group, records in enumerate(count):
                for level in asked.levels:
                    low, high = known[group].interval(level, _WINDOW)
                    start, stop = (within[low - 1] if low else 0.0), float(within[high])
                    worst = max(worst, (stop - start) * records / (2 * _WINDOW))
                    spread = (stop - start) / 2
                    ends.append(_around(within, (start + stop) / 2, spread, deviation / records))
        if worst * leaning <= _ENOUGH * deviation:
            return None
        marginal = self._marginal(asked, self._cut(asked, np.concatenate(ends)))
        return Buy(Strategy.of(marginal), noise.kind, noise.scale)

    def _cut(self, asked: Statistic, ends: IntArray) -> Partition:
        """The ranges between some places, no more than are measured at once."""
        inner = np.unique(ends[(ends > 0) & (ends < asked.places)])
        most = max(_LEAST_RANGES, min(_MOST_RANGES, MOST_CELLS // max(1, asked.question.cells)))
        if len(inner) >= most:
            inner = inner[np.linspace(0, len(inner) - 1, most - 1).round().astype(np.int64)]
        if not len(inner):
            inner = np.array([asked.places // 2])
        return Partition.of(np.searchsorted(inner, np.arange(asked.places), side="right"))

    # What is shown.

    def shown(self, asked: Statistic, confidence: float, adaptive: bool, given: FloatArray | None = None) -> Shown:
        """What is shown of a statistic after what was measured for it was taken in.

        Args:
            asked: of this table.
            confidence: of the intervals.
            adaptive: whether the question may have been chosen by what was released.
            given: the values that were shown before; they are shown again.
        """
        quantile = self._quantile(asked, confidence, adaptive)
        if asked.kind == "quantile":
            return self._shown_quantiles(asked, quantile, given)
        count, first = self._count(asked), self._moment(asked, asked.first)
        if asked.kind == "sum":
            return _shown_sum(asked, count, first, quantile, self._counts.public_total, given)
        if asked.kind == "mean":
            return _shown_mean(asked, count, first, quantile, given)
        return _shown_variance(asked, count, first, self._moment(asked, asked.second), quantile, given)

    def _quantile(self, asked: Statistic, confidence: float, adaptive: bool) -> float:
        normal = self._policy.quantile(confidence)
        if not adaptive:
            return normal
        # As wide as holds for all that could be asked of the same numbers at once (Scheffe).
        cells = asked.question.cells
        cells *= asked.places if asked.kind == "quantile" else 1 + len(asked.moments)
        return max(normal, math.sqrt(float(chdtri(cells, 1 - confidence))))

    # What is known.

    @property
    def begun(self) -> bool:
        """Whether anything is known of how many records there are; else nothing can be shown."""
        return bool(self._counts.total.estimable)

    def _count(self, asked: Statistic) -> _Known:
        """The numbers of records."""
        found = self._counts.unbiased(asked.question)
        if found.estimable.all():
            return _Known(asked.of(found.values), asked.of(found.variances), np.ones(len(asked.chosen), dtype=bool))
        if not self.begun:
            return _unknown(asked)
        estimates = self._policy.shown(asked.question, None, 0.95)
        values = np.where(found.estimable, found.values, estimates.values)
        variances = np.where(found.estimable, found.variances, np.square(estimates.standard_errors))
        return _Known(asked.of(values), asked.of(variances), asked.of(found.estimable) > 0)

    def _best_count(self, asked: Statistic) -> FloatArray:
        """The numbers of records as they would be shown, which are nearer on average."""
        if not self.begun:
            return self._count(asked).values
        return asked.of(self._policy.value(asked.question, None))

    def _moment(self, asked: Statistic, moment: Moment) -> _Known:
        """A moment of the records of each group."""
        # What follows from counts comes first, as it may be exact.
        told = [found for found in (self._of_counts(asked, moment), self._measured(asked, moment)) if found is not None]
        if not told:
            return self._alike(asked, moment)
        known = averaged(told)
        values, variances, unbiased = asked.of(known.values), asked.of(known.variances), asked.of(known.estimable) > 0
        if not unbiased.all():
            model = self._alike(asked, moment)
            values = np.where(unbiased, values, model.values)
            variances = np.where(unbiased, variances, model.variances)
        return _Known(values, variances, unbiased)

    def _measured(self, asked: Statistic, moment: Moment) -> Unbiased | None:
        known = self._moments.get(moment)
        return None if known is None else known.unbiased(asked.question)

    def _of_counts(self, asked: Statistic, moment: Moment) -> Unbiased | None:
        """From counts of the single numbers, where these are few and were measured."""
        question = asked.question
        if question.cells * moment.places > _MOST_SINGLE or not self._counts.told_singly(asked.axis):
            return None
        size = self._counts.sizes[asked.axis]
        weights = np.zeros(size)
        weights[: moment.places] = moment.weights
        if isinstance(question, Product):
            vectors = dict(zip(question.attributes, question.vectors, strict=True))
            own = vectors.get(asked.axis, np.ones(size)) * weights
            return self._counts.unbiased(Product.over(vectors | {asked.axis: own}, question.scale))
        if isinstance(question, Local):
            axes = tuple(sorted({*question.attributes, asked.axis}))
            shape = [size if a == asked.axis else self._counts.sizes[a] for a in axes]
            if math.prod(shape) > _MOST_SINGLE:
                return None
            spread = question.weights
            if asked.axis not in question.attributes:
                spread = np.expand_dims(spread, axes.index(asked.axis))
            along = weights.reshape([size if a == asked.axis else 1 for a in axes])
            return self._counts.unbiased(Local.over(axes, np.broadcast_to(spread, shape) * along))
        assert isinstance(question, Cells | Groups)
        found = self._counts.unbiased(WeightedCells(question.marginal, asked.axis, weights))
        if isinstance(question, Cells):
            return found
        # Of counts of single numbers the noise of cells is their own.
        return Unbiased(question.summed(found.values), question.summed(found.variances))

    def _alike(self, asked: Statistic, moment: Moment) -> _Known:
        """The moment of groups that nothing was measured of: like that of all records, within part of its spread."""
        if not self.begun:
            return _unknown(asked)
        mean, spread = self._overall(asked, moment)
        count = self._best_count(asked)
        variance = self._count(asked).variances
        values, own = count * mean, np.square(mean) * variance + np.square(count * spread * _ALIKE)
        return _Known(values, own, np.zeros(len(values), dtype=bool))

    def _overall(self, asked: Statistic, moment: Moment) -> tuple[float, float]:
        """The mean and the deviation of a moment's weights over all records, as one-way counts tell it."""
        parts = self._policy.fits.shares(asked.axis)[: moment.places]
        parts = parts / parts.sum()
        weights = moment.weights.astype(np.float64)
        mean = float(parts @ weights)
        return mean, math.sqrt(max(float(parts @ np.square(weights - mean)), 0.0))

    # Quantiles.

    def _base(self, asked: Statistic) -> FloatArray:
        """How the records of all groups together are spread over the numbers, as one-way counts tell it."""
        parts = np.maximum(self._policy.fits.shares(asked.axis)[: asked.places], 1e-12)
        return np.asarray(parts / parts.sum())

    def _marginal(self, asked: Statistic, partition: Partition) -> Marginal:
        """The groups, and the cells of a partition of the numbers within each; no number is a cell by itself."""
        sizes, question = self._counts.sizes, asked.question
        labels = np.full(sizes[asked.axis], partition.cells)
        labels[: asked.places] = partition.labels
        cells: dict[int, Partition | None] = dict(zip(question.attributes, question.partitions, strict=True))
        own, fine = cells.get(asked.axis), Partition.of(labels)
        cells[asked.axis] = fine if own is None else own.met(fine)
        return Marginal.of(sizes, cells)

    def _distributions(self, asked: Statistic) -> list[Distribution] | None:
        """What was measured of how each group is spread over the numbers; None where nothing was."""
        measured = []
        for measurement in self._counts.measurements:
            other = measurement.marginal
            if asked.axis in other.attributes and set(asked.question.attributes) <= set(other.attributes):
                found = self._ranges(asked, other.partition(other.attributes.index(asked.axis)), measurement)
                if found is not None:
                    measured.append(found)
        if not measured:
            return None
        everything = not asked.question.attributes and self._counts.sizes[asked.axis] == asked.places
        total = self._counts.public_total if everything else None
        return distributions(measured, asked.places, total, self._base(asked))

    def _ranges(self, asked: Statistic, fine: Partition, measurement: Measurement) -> Ranges | None:
        """What a measurement tells of the groups in the ranges that it divides the numbers into; None if nothing."""
        question = asked.question
        ends = ranges_of(fine, asked.places)
        if ends is None or len(ends) < 2:
            return None
        if asked.axis in question.attributes:
            own = question.partitions[question.attributes.index(asked.axis)]
            if not fine.refines(own):
                return None
        partition = Partition.of(np.searchsorted(ends, np.arange(asked.places), side="right"))
        marginal = self._marginal(asked, partition)
        if asked.axis not in marginal.attributes:
            return None
        found = own_values(Cells(marginal), measurement)
        if found is None or not found.estimable.all():
            return None
        values, variances = _rows(asked, partition, marginal, found.values, found.variances)
        return Ranges(ends, values, variances)

    def _shown_quantiles(self, asked: Statistic, quantile: float, given: FloatArray | None) -> Shown:
        known, base = self._distributions(asked), self._base(asked)
        unbiased = known is not None
        if known is None:
            known = self._modelled(asked, base)
        values, lows, highs = (np.zeros((len(known), len(asked.levels))) for _ in range(3))
        for group, found in enumerate(known):
            if found.total <= quantile * math.sqrt(max(float(found.covariance[-1, -1]), 0.0)):
                values[group] = lows[group] = highs[group] = math.nan
                continue
            for k, level in enumerate(asked.levels):
                place, (low, high) = found.quantile(level, base), found.interval(level, quantile)
                values[group, k], lows[group, k], highs[group, k] = place, min(low, place), max(high, place)
        told, ends = (asked.low + asked.step * values).reshape(-1), []
        for bound in (lows, highs):
            ends.append((asked.low + asked.step * bound).reshape(-1))
        shown = told if given is None else given
        errors = np.maximum(shown - ends[0], ends[1] - shown) / quantile
        return Shown(shown, errors, ends[0], ends[1], np.full(len(told), unbiased), told, errors)

    def _modelled(self, asked: Statistic, base: FloatArray) -> list[Distribution]:
        """Groups whose numbers were never counted: like all records, within part of what they could differ by."""
        ends = np.unique(np.searchsorted(np.cumsum(base), np.arange(1, 64) / 64) + 1)
        ends = np.append(ends[ends < asked.places], asked.places)
        below = np.cumsum(base)[ends - 1]
        found = []
        for count, variance in zip(self._best_count(asked), self._count(asked).variances, strict=True):
            own = max(float(count), 1.0)
            spread = np.minimum.outer(below, below) - np.outer(below, below)
            covariance = (_ALIKE * own) ** 2 * spread + variance * np.outer(below, below)
            zeros = np.zeros((1, len(ends)))
            found.append(
                Distribution(
                    np.append(0, ends), np.append(0.0, own * below), np.block([[0.0, zeros], [zeros.T, covariance]])
                )
            )
        return found


class _Terms:
    """What buying moments would bring."""

    def __init__(self, statistics: Statistics, asked: Statistic) -> None:
        self._policy, self._asked = statistics._policy, asked
        self._count = statistics._count(asked)
        self._known = [statistics._moment(asked, moment) for moment in asked.moments]
        self._marginal = asked.question.apart(self._policy.residuals.sizes)
        # What values are likely to be: how steep the statistic is in each of what it follows from.
        count = np.maximum(self._count.values, 1.0)
        means = [
            np.clip(k.values / count, -m.largest, m.largest)
            if statistics.begun
            else m.largest / 2 * np.ones(len(count))
            for k, m in zip(self._known, asked.moments, strict=True)
        ]
        self._slopes = _slopes(asked, count, means)
        self._few = count + 2 * np.sqrt(self._count.variances)

    def _told(self, variances: Sequence[FloatArray], where: Array) -> FloatArray:
        """Variances of the answers, from those of counts and moments; infinite elsewhere."""
        terms = [np.square(slope) * np.where(where, v, 0.0) for slope, v in zip(self._slopes, variances, strict=True)]
        return np.where(where, np.sum(terms, axis=0), np.inf)

    def now(self) -> FloatArray:
        """Variances of the answers from what is known; infinite where that is a model's."""
        known = [self._count, *self._known]
        return self._told([k.variances for k in known], np.logical_and.reduce([k.unbiased for k in known]))

    def _after(self, strategy: Strategy, variance: float) -> tuple[FloatArray, FloatArray]:
        """Variances of the answers, and of counts, after a measurement with noise of this variance."""
        weights = _summed_squares(self._asked, self._marginal)
        bought = {part.moment: variance / part.multiplier**2 * weights for part in strategy.parts}
        found = []
        for moment, known in zip((None, *self._asked.moments), (self._count, *self._known), strict=True):
            own = np.where(known.unbiased, known.variances, np.inf)
            if moment in bought:
                with np.errstate(divide="ignore"):
                    own = 1 / (1 / own + 1 / bought[moment])
            found.append(own)
        return self._told(found, np.isfinite(np.max(found, axis=0))), found[0]

    def _strategies(self) -> list[Strategy]:
        """Moments with several parts of the price for the number of records beside them."""
        found, moments = [], self._asked.moments
        largest = [m.largest for m in moments]
        for part in _COUNT_PARTS:
            rest = (1 - part) / len(moments)
            pure = 2 if self._policy.pure else 1
            if not part:
                multipliers = shares(largest, [rest**pure] * len(moments))
                parts = [Part(self._marginal, m, by) for m, by in zip(moments, multipliers, strict=True)]
            else:
                multipliers = shares([1, *largest], [part**pure, *([rest**pure] * len(moments))])
                parts = [Part(self._marginal, m, by) for m, by in zip((None, *moments), multipliers, strict=True)]
            found.append(Strategy(tuple(parts)))
        return found

    def _best(self, share: float) -> tuple[Buy, FloatArray, FloatArray] | None:
        """What a share is best spent on, and the variances of answers and of counts afterwards."""
        best: tuple[float, Buy, FloatArray, FloatArray] | None = None
        for strategy in self._strategies():
            noise = self._policy.noise(share, strategy.moved)
            if noise is None:
                continue
            after, counts = self._after(strategy, noise.variance)
            whole = float(np.mean(after))
            # A little better is not worth another strategy, which must be the same wherever it is told again.
            if best is None or whole < best[0] * (1 - 1e-6):
                best = whole, Buy(strategy, noise.kind, noise.scale), after, counts
        return None if best is None else best[1:]

    def within(self, share: float, leaning: float) -> Buy | None:
        """Budget first: what the share buys, unless what is known is as good or there are too few records."""
        found = self._best(share)
        if found is None:
            return None
        buy, after, counts = found
        if self._asked.kind != "sum" and bool((self._few < np.sqrt(counts)).all()):
            return None
        known, both = float(np.mean(self.now())), float(np.mean(after))
        # What is bought would be worth 1/(1/both - 1/known) by itself, as both are averaged by precision.
        return buy if leaning**2 * (known - both) > both else None

    def accurate(self, left: float, error: float) -> Buy | None:
        """Accuracy first: the least that is likely to bring every standard error down to this.

        Raises:
            OutOfReach: when it costs more than is left.
        """
        wished = squared(error)
        if float(self.now().max()) <= wished:
            return None

        def beyond(logarithm: float) -> float:
            found = self._best(math.exp(logarithm))
            # Finite, as a root is looked for between this and what is enough.
            return _NEVER if found is None else min(math.log(float(found[1].max()) / wished), _NEVER)

        high = math.log(max(left, 1e-300))
        if left <= 0 or beyond(high) > 0:
            far = high + 60
            needed = math.exp(brentq(beyond, high, far, xtol=1e-6)) if beyond(far) <= 0 else math.inf
            raise OutOfReach(needed, left)
        low = high - 60
        share = math.exp(low if beyond(low) <= 0 else brentq(beyond, low, high, xtol=1e-9))
        found = self._best(min(share * (1 + 1e-6), left))
        assert found is not None
        return found[0]


def _unknown(asked: Statistic) -> _Known:
    """What is known of a table of which nothing was measured, and whose number of records is not public."""
    nothing = np.zeros(len(asked.chosen))
    return _Known(nothing, nothing + np.inf, nothing > 0)


def _slopes(asked: Statistic, count: FloatArray, means: Sequence[FloatArray]) -> list[FloatArray]:
    """How much a statistic changes with the number of records and with each moment."""
    step, ones = asked.step, np.ones(len(count))
    if asked.kind == "sum":
        return [asked.middle * ones, step * ones]
    if asked.kind == "mean":
        return [-step * means[0] / count, step / count]
    first, second = means
    unit = math.ldexp(1.0, asked.second.shift)
    square = step**2
    return [
        square * (2 * first**2 - unit * second) / count,
        -2 * square * first / count,
        square * unit / count,
    ]


def _around(within: FloatArray, middle: float, spread: float, noise: float) -> IntArray:
    """Places that divide numbers into ranges around a part of all records.

    Args:
        within: the part of the records up to each place.
        middle: the part that is looked for.
        spread: how far off it may be.
        noise: what noise hides, as a part of the records: ranges are so fine as far as it may be off, coarser beyond.
    """
    # Fewer ranges have less noise in their sums, but tell less of where between their ends a quantile is.
    step = max(_RANGE, (spread / noise / _UNEVEN) ** (1 / 3)) * noise
    offsets, reached = [0.0], 0.0
    while reached < 1:
        reached += step
        offsets.append(reached)
        if reached > spread:
            step *= _COARSER
    goals = middle + np.concatenate([-np.array(offsets[::-1]), offsets])
    return np.asarray(np.searchsorted(within, goals[(goals > 0) & (goals < 1)]))


def _summed_squares(asked: Statistic, marginal: Marginal) -> FloatArray:
    """How many cells of a marginal each of the answers asked for sums."""
    question = asked.question
    cells = [marginal.partition(k) for k in range(len(marginal.attributes))]
    told = [cells[marginal.attributes.index(a)] for a in question.attributes if a in marginal.attributes]
    ones = np.ones([p.cells for p in told])
    return np.maximum(asked.of(question.of(ones, told)), 1.0)


def _rows(
    asked: Statistic, partition: Partition, marginal: Marginal, values: FloatArray, variances: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Values on the cells of a marginal, and their variances: a row for each group that is asked for.

    The cells of a group are those of its own numbers: others, as where a condition is on the numbers, count nothing.
    """
    question = asked.question
    axis = marginal.attributes.index(asked.axis)
    fine = marginal.partition(axis)
    # Each cell's range of numbers, and the cell of the question that it lies in.
    within = np.minimum(fine.members, asked.places)
    labels = np.append(partition.labels, -1)[within]
    if isinstance(question, Cells | Groups):
        groups = _groups(question, marginal, axis)
    else:
        cells = [marginal.partition(marginal.attributes.index(a)) for a in question.attributes]
        groups = np.asarray(question.on(cells))  # type: ignore[attr-defined]
        if asked.axis not in question.attributes:
            groups = np.expand_dims(groups, axis)
        groups = np.where(np.broadcast_to(groups, marginal.shape) != 0, 0, -1)
    groups = np.broadcast_to(groups, marginal.shape)
    place = {int(group): row for row, group in enumerate(asked.chosen)}
    rows = np.array([place.get(int(g), -1) for g in range(int(groups.max()) + 1)] + [-1])[groups]
    columns = np.broadcast_to(
        labels.reshape([-1 if k == axis else 1 for k in range(len(marginal.shape))]), groups.shape
    )
    kept = (rows >= 0) & (columns >= 0)
    shape = (len(asked.chosen), partition.cells)
    flat = (rows * partition.cells + columns)[kept]
    size = shape[0] * shape[1]
    counts: FloatArray = np.bincount(flat, weights=values[kept], minlength=size).reshape(shape).astype(np.float64)
    spread: FloatArray = np.bincount(flat, weights=variances[kept], minlength=size).reshape(shape).astype(np.float64)
    # Where no number of the group can be nothing is counted, and that is known.
    least = float(variances.min()) * 1e-9
    return counts, np.maximum(spread, least)


def _groups(question: Cells | Groups, marginal: Marginal, axis: int) -> IntArray:
    """For each cell of a marginal the place of the question's answer that it is counted in, -1 where in none."""
    answers = np.arange(question.marginal.cells).reshape(question.marginal.shape)
    if isinstance(question, Groups):
        answers = question.answers
    labels = [
        question.marginal.partition(k).labels[marginal.partition(marginal.attributes.index(attribute)).members]
        for k, attribute in enumerate(question.attributes)
    ]
    groups: IntArray = answers[np.ix_(*labels)] if labels else answers
    return groups if marginal.attributes[axis] in question.attributes else np.expand_dims(groups, axis)


def _shown_sum(
    asked: Statistic, count: _Known, first: _Known, quantile: float, total: float | None, given: FloatArray | None
) -> Shown:
    linear = asked.middle * count.values + asked.step * first.values
    errors = np.sqrt(asked.middle**2 * count.variances + asked.step**2 * first.variances)
    least = min(0.0, asked.low) * total if total is not None else (0.0 if asked.low >= 0 else -math.inf)
    most = max(0.0, asked.high) * total if total is not None else (0.0 if asked.high <= 0 else math.inf)
    values = np.clip(linear, least, most) if given is None else given
    lows, highs = linear - quantile * errors, linear + quantile * errors
    arms = np.maximum(values - lows, highs - values) / quantile
    return Shown(
        values,
        arms,
        np.clip(lows, least, most),
        np.clip(highs, least, most),
        count.unbiased & first.unbiased,
        linear,
        errors,
    )


def _shown_mean(asked: Statistic, count: _Known, first: _Known, quantile: float, given: FloatArray | None) -> Shown:
    # All means m for which S - m N is within its noise: between the roots of (S - mN)^2 = z^2 (v_S + m^2 v_N).
    square = quantile**2
    lead = np.square(count.values) - square * count.variances
    half = first.values * count.values
    rest = np.square(first.values) - square * first.variances
    nothing = (lead <= 0) | (count.values <= 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        root = np.sqrt(np.maximum(np.square(half) - lead * rest, 0.0))
        lows, highs = (half - root) / lead, (half + root) / lead
        ratio = first.values / count.values
        errors = np.sqrt(first.variances + np.square(ratio) * count.variances) / count.values
    return _ratio(asked, ratio, errors, lows, highs, nothing, count.unbiased & first.unbiased, quantile, given)


def _ratio(
    asked: Statistic,
    linear: FloatArray,
    errors: FloatArray,
    lows: FloatArray,
    highs: FloatArray,
    nothing: Array,
    unbiased: Array,
    quantile: float,
    given: FloatArray | None,
) -> Shown:
    """Means in grid steps from the middle as they are shown."""

    def real(steps: FloatArray) -> FloatArray:
        held = np.clip(asked.middle + asked.step * steps, asked.low, asked.high)
        return np.where(nothing, np.nan, held)

    values = real(linear) if given is None else given
    uncut_low, uncut_high = asked.middle + asked.step * lows, asked.middle + asked.step * highs
    arms = np.where(nothing, np.nan, np.maximum(values - uncut_low, uncut_high - values) / quantile)
    return Shown(
        values, arms, real(lows), real(highs), unbiased, real(linear), np.where(nothing, np.nan, asked.step * errors)
    )


def _shown_variance(
    asked: Statistic,
    count: _Known,
    first: _Known,
    second: _Known,
    quantile: float,
    given: FloatArray | None,
) -> Shown:
    moment = asked.second
    nothing = (count.values <= quantile * np.sqrt(count.variances)) | (count.values <= 0)
    whole = np.where(nothing, 1.0, count.values)
    unit, square = math.ldexp(1.0, moment.shift), asked.step**2
    mean, spread = first.values / whole, second.values / whole
    most = square * asked.first.half**2
    linear = square * (unit * spread + moment.offset - np.square(mean))
    slopes = _slopes(asked, whole, [mean, spread])
    known = (count.variances, first.variances, second.variances)
    errors = np.sqrt(sum(np.square(slope) * v for slope, v in zip(slopes, known, strict=True)))
    values = np.where(nothing, np.nan, np.clip(linear, 0.0, most)) if given is None else given
    lows, highs = linear - quantile * errors, linear + quantile * errors
    arms = np.maximum(values - lows, highs - values) / quantile
    return Shown(
        values,
        np.where(nothing, np.nan, arms),
        np.where(nothing, np.nan, np.clip(lows, 0.0, most)),
        np.where(nothing, np.nan, np.clip(highs, 0.0, most)),
        count.unbiased & first.unbiased & second.unbiased,
        np.where(nothing, np.nan, linear),
        np.where(nothing, np.nan, errors),
    )
