"""Statistics of numbers that records have, from counts and moments: what is measured for them, and what is shown.

An attribute on a grid has numbers ``middle + step * u``, u whole and at most h to either side. With N the number of
records that are asked of, S the sum of u over them and Q the sum of ``u^2 - h^2/2``,

    sum = middle * N + step * S,      mean = middle + step * S/N,      variance = step^2 (Q/N + h^2/2 - (S/N)^2).

Moments are measured over cells of marginals just as records are counted, and obey the same closed form
(:mod:`app.estimation.tables.residuals`): a mean of all follows from the means by group at no cost. Where the single
numbers were counted moments follow from counts too, and their noise is that of N. All that tells of N, S and Q of a
group is taken together with its covariances (:mod:`app.estimation.tables.joint`); intervals of means and of variances
hold however small N is (:mod:`app.estimation.tables.ratios`).

Quantiles are read from counts of ranges (:mod:`app.estimation.tables.quantiles`), cut where what is known leaves them.
The interval of a quantile holds all values below which there may be that part of the records.

Where too few records may be left for a ratio to mean anything there is no value: it is NaN here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

import numpy as np
from scipy.optimize import brentq

from app.estimation.intervals import Estimates
from app.estimation.tables.joint import Joint, pooled, sharpened
from app.estimation.tables.quantiles import Distribution, Ranges, distributions, ranges_of
from app.estimation.tables.ratios import fieller_mean, variances_of
from app.estimation.tables.residuals import Residuals, Unbiased, own_values, weighed
from app.estimation.tails import Term, normal_quantile, quantile
from app.measurements.noise import Noise
from app.measurements.pieces import Counts
from app.measurements.strategies.tables import Moment, Part, TableStrategy, shares
from app.policies.table import OutOfReach, Policy, Wanted
from app.spaces.partition import Marginal, Partition
from app.spaces.queries.statistic import CompiledStatistic
from app.spaces.questions import Cells, Groups, Local, Question
from app.spaces.tensor import Array, FloatArray, IntArray

#: Parts of what is paid that may go to the number of records, beside the moments.
_COUNT_PARTS = (0.0, 0.125, 0.25, 0.375, 0.5)
#: How many kinds of statistics may be chosen among: sums, ratios of them, and quantiles.
_KINDS = 3
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
#: The logarithm of a width beside another that no purchase is worth asking for, and the least width above nothing.
_NEVER, _LEAST = 1e4, 1e-300
#: What is not measured is taken to be like the whole within this part of its spread.
_ALIKE = 0.5
#: The most cells of a table that was measured whole of which moments are summed.
_MOST_SINGLE = 1 << 20
#: Any confidence, where only values and their errors are looked at.
_ANY = 0.95
#: Laplace noise of so many steps that these do not show.
_LAPLACE = Noise("laplace", Decimal(1000), 0)
#: Groups whose variances are bounded at once.
_AT_ONCE = 1 << 12


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

    @classmethod
    def of_query(cls, query: CompiledStatistic) -> Statistic:
        """The statistic that a query asks."""
        places = query.selected(np.arange(math.prod(query.question.shape)).reshape(query.question.shape))
        low, step = float(query.low), float(query.step)
        return cls(query.kind, query.axis, query.places, low, step, query.question, places, query.levels)

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

    def told(self, known: Unbiased, place: int, count: int) -> Joint:
        """Those of the question's answers that are asked for, as one of so many numbers."""
        return Joint.of_one(place, count, self.of(known.values), self.of(known.variances))


@dataclass(frozen=True, eq=False)
class _Known:
    """Counts and moments of the groups that are asked for, and which of them are known without a model."""

    joint: Joint
    unbiased: Array

    @property
    def count(self) -> FloatArray:
        """The numbers of records."""
        return self.joint.values[:, 0]

    @property
    def count_variances(self) -> FloatArray:
        """Of the numbers of records."""
        return self.joint.variances[:, 0]


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
    ) -> Wanted | None:
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
            return terms.accurate(left, within, confidence)
        return None if share <= 0 else terms.within(share, 1 + leaning)

    def _decide_ranges(self, asked: Statistic, share: float, leaning: float) -> Wanted | None:
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
                    low, high = known[group].window(level, _WINDOW)
                    start, stop = (within[low - 1] if low else 0.0), float(within[high])
                    worst = max(worst, (stop - start) * records / (2 * _WINDOW))
                    spread = (stop - start) / 2
                    ends.append(_around(within, (start + stop) / 2, spread, deviation / records))
        if worst * leaning <= _ENOUGH * deviation:
            return None
        marginal = self._marginal(asked, self._cut(asked, np.concatenate(ends)))
        return Wanted.of(marginal, noise)

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

    def shown(self, asked: Statistic, confidence: float, adaptive: bool, given: FloatArray | None = None) -> Estimates:
        """What is shown of a statistic after what was measured for it was taken in: group by group and for each group
        one a level; NaN where there is none.

        Args:
            asked: of this table.
            confidence: of the intervals.
            adaptive: whether the question may have been chosen by what was released.
            given: the values that were shown before; they are shown again.
        """
        if asked.kind == "quantile":
            least = self._chosen_quantile(asked, confidence) if adaptive else 0.0
            return self._shown_quantiles(asked, confidence, least, given)
        known = self._known(asked)
        reach = self._own_quantiles(asked, known.joint, confidence)
        if adaptive:
            reach = np.full(len(asked.chosen), self._chosen_quantile(asked, confidence))
        found = _intervals(asked, known.joint, reach)
        least, most = _possible(asked, self._counts.public_total)
        return found.shown(np.asarray(known.unbiased.all(axis=1)), confidence, reach, (least, most), given)

    def _own_quantiles(self, asked: Statistic, known: Joint, confidence: float) -> FloatArray:
        """How many deviations the noise of each answer reaches: the normal law's, and of what the noises of counts and
        moments reach beyond it the part that each has of the answer's variance, which is more than they have together.
        Of sums of counts that were told one by one it is that of their own law.
        """
        normal, counted = normal_quantile(confidence), asked.question
        singly = self._singly(asked)
        if isinstance(counted, Groups):
            # No sum of cells reaches farther than the one of them that does.
            counted = Cells(counted.marginal)
        elif singly and asked.kind == "sum" and asked.first not in self._moments:
            numbers = asked.low + asked.step * np.arange(asked.places)
            found = self._deviations(self._counts, asked, self._weighed(asked, counted, numbers), confidence)
            return np.where(found > 0, found, normal)
        beyond = np.zeros(known.values.shape)
        beyond[:, 0] = self._deviations(self._counts, asked, asked.question, confidence) - normal
        for k, moment in enumerate(asked.moments, start=1):
            if moment in self._moments:
                beyond[:, k] = self._deviations(self._moments[moment], asked, asked.question, confidence) - normal
            if singly:
                own = self._deviations(self._counts, asked, self._weighed(asked, counted, moment.weights), confidence)
                beyond[:, k] = np.maximum(beyond[:, k], own - normal)
        steep = _slopes(asked, np.hstack([np.maximum(known.values[:, :1], 1.0), known.values[:, 1:]]))
        parts = np.square(steep) * np.nan_to_num(known.variances, posinf=0.0)
        whole = parts.sum(axis=1, keepdims=True)
        parts = np.divide(parts, whole, out=np.zeros(parts.shape), where=whole > 0)
        return np.asarray(normal + (parts * np.maximum(beyond, 0.0)).sum(axis=1))

    def _weighed(self, asked: Statistic, question: Question, numbers: Array) -> Question:
        """Counts weighed by a number for each of those that records have."""
        weights = np.zeros(self._counts.sizes[asked.axis])
        weights[: asked.places] = numbers
        return weighed(question, asked.axis, weights)

    def _measured(self, asked: Statistic) -> list[Residuals]:
        """Of the moments that were measured."""
        return [self._moments[moment] for moment in asked.moments if moment in self._moments]

    @staticmethod
    def _deviations(residuals: Residuals, asked: Statistic, question: Question, confidence: float) -> FloatArray:
        """How many deviations each value of a question reaches, or any of them where they are not the answers; zero
        where it is known, or not estimable."""
        known = residuals.unbiased(question)
        errors, reaches = known.standard_errors, residuals.reaches(question, known, confidence)
        found = np.divide(reaches, errors, out=np.zeros(np.shape(errors)), where=errors > 0)
        if question.shape == asked.question.shape:
            return asked.of(found)
        return np.full(len(asked.chosen), found.max(initial=0.0))

    def _chosen_quantile(self, asked: Statistic, confidence: float) -> float:
        """As many as hold for all that could be asked of the same numbers at once (Scheffe), whichever of the
        attributes they are of, sums, ratios or quantiles."""
        question = asked.question
        own = [self._counts, *self._measured(asked)]
        attributes = sorted({*question.attributes, asked.axis})
        missed = (1 - confidence) / (_KINDS * len(attributes))
        others = [(residuals, question.attributes) for residuals in own]
        return max(normal_quantile(confidence), self._policy.chosen_quantile(attributes, missed, others=others))

    # What is known.

    @property
    def begun(self) -> bool:
        """Whether anything is known of how many records there are; else nothing can be shown."""
        return bool(self._counts.total.estimable)

    def _count(self, asked: Statistic) -> _Known:
        """The numbers of records."""
        return self._filled(asked, (), asked.told(self._counts.unbiased(asked.question), 0, 1))

    def _best_count(self, asked: Statistic) -> FloatArray:
        """The numbers of records as they would be shown, which are nearer on average."""
        if not self.begun:
            return self._count(asked).count
        return asked.of(self._policy.value(asked.question, None))

    def _known(self, asked: Statistic) -> _Known:
        """The numbers of records and the moments."""
        count = 1 + len(asked.moments)
        told = self._of_counts(asked)
        for k, moment in enumerate(asked.moments):
            if moment in self._moments:
                told.append(asked.told(self._moments[moment].unbiased(asked.question), 1 + k, count))
        return self._filled(asked, asked.moments, pooled(told))

    def _of_counts(self, asked: Statistic) -> list[Joint]:
        """What counts tell: the numbers of records, and moments where the single numbers are few and were measured."""
        question, places = asked.question, asked.places
        if not self._singly(asked):
            return [asked.told(self._counts.unbiased(question), 0, 1 + len(asked.moments))]
        size = self._counts.sizes[asked.axis]
        weights = np.zeros((len(asked.moments), size))
        weights[:, :places] = [moment.weights for moment in asked.moments]
        found = [joint.some(asked.chosen) for joint in self._counts.jointly(question, asked.axis, weights)]
        if isinstance(question, Groups):
            # What nothing is counted in is known without looking.
            nothing = np.where(question.empty.reshape(-1)[asked.chosen], 0.0, np.nan)
            rows = [nothing] * (1 + len(weights))
            found.append(Joint.of_rows(rows, [rows] * len(rows)))
        return found

    def _singly(self, asked: Statistic) -> bool:
        """Whether single numbers were counted, and are few enough to sum moments of them."""
        question = asked.question
        cells = question.cells * asked.places
        if isinstance(question, Local):
            named = asked.axis in question.attributes
            cells = math.prod(question.sizes) * (1 if named else self._counts.sizes[asked.axis])
        return cells <= _MOST_SINGLE and bool(asked.moments) and self._counts.told_singly(asked.axis)

    def _filled(self, asked: Statistic, moments: Sequence[Moment], found: Joint) -> _Known:
        """What was measured, and where it was not what a model says."""
        unbiased = found.known
        if unbiased.all():
            return _Known(found, unbiased)
        if not self.begun:
            values = np.nan_to_num(found.values)
            return _Known(
                Joint(values, np.where(np.eye(values.shape[1]) > 0, np.inf, 0.0) + 0 * values[:, :, None]),
                unbiased & False,
            )
        values, covariances = found.values.copy(), found.covariances.copy()
        missing = ~unbiased[:, 0]
        if missing.any():
            shown = self._policy.shown(asked.question, None, _ANY)
            values[missing, 0] = asked.of(shown.values)[missing]
            covariances[missing, :, 0] = covariances[missing, 0, :] = 0.0
            covariances[missing, 0, 0] = np.square(asked.of(shown.standard_errors)[missing])
        count = self._best_count(asked)
        # A moment that was not measured of a group is like that of all records, within part of its spread: as many
        # times its mean as there are records.
        for k, moment in enumerate(moments, start=1):
            missing = ~unbiased[:, k]
            mean, spread = self._overall(asked, moment)
            values[missing, k] = count[missing] * mean
            covariances[missing, :, k] = covariances[missing, k, :] = mean * np.nan_to_num(covariances[missing, :, 0])
            covariances[missing, k, k] = np.square(mean) * covariances[missing, 0, 0] + np.square(
                count[missing] * spread * _ALIKE
            )
        return _Known(Joint(values, covariances), unbiased)

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

    def _ranges(self, asked: Statistic, fine: Partition, measurement: Counts) -> Ranges | None:
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
        return Ranges(ends, values, variances, measurement.noise, measurement.multiplier)

    def _shown_quantiles(
        self, asked: Statistic, confidence: float, least: float, given: FloatArray | None
    ) -> Estimates:
        """``least`` is how many standard deviations intervals reach at least."""
        known, base = self._distributions(asked), self._base(asked)
        unbiased = known is not None
        if known is None:
            known = self._modelled(asked, base)
        values, lows, highs = (np.zeros((len(known), len(asked.levels))) for _ in range(3))
        for group, found in enumerate(known):
            if found.is_empty(confidence, least):
                values[group] = lows[group] = highs[group] = math.nan
                continue
            for k, level in enumerate(asked.levels):
                place, (low, high) = found.quantile(level, base), found.interval(level, confidence, least)
                values[group, k], lows[group, k], highs[group, k] = place, min(low, place), max(high, place)
        told, ends = (asked.low + asked.step * values).reshape(-1), []
        for bound in (lows, highs):
            ends.append((asked.low + asked.step * bound).reshape(-1))
        shown = told if given is None else given
        errors = np.maximum(shown - ends[0], ends[1] - shown) / max(normal_quantile(confidence), least)
        return Estimates(shown, errors, ends[0], ends[1], np.full(len(told), unbiased), confidence, told, errors)

    def _modelled(self, asked: Statistic, base: FloatArray) -> list[Distribution]:
        """Groups whose numbers were never counted: like all records, within part of what they could differ by."""
        ends = np.unique(np.searchsorted(np.cumsum(base), np.arange(1, 64) / 64) + 1)
        ends = np.append(ends[ends < asked.places], asked.places)
        below = np.cumsum(base)[ends - 1]
        found = []
        for count, variance in zip(self._best_count(asked), self._count(asked).count_variances, strict=True):
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
        self._own_quantiles = statistics._own_quantiles
        self._known = known = statistics._known(asked)
        self._marginal = asked.question.apart(self._policy.residuals.sizes)
        # What values are likely to be: how steep the statistic is in each of what it follows from.
        largest = np.array([moment.largest for moment in asked.moments], dtype=np.float64)
        count = np.maximum(known.count, 1.0)[:, None]
        if statistics.begun:
            means = np.clip(known.joint.values[:, 1:] / count, -largest, largest)
        else:
            means = np.broadcast_to(largest / 2, (len(count), len(largest)))
        self._likely = np.hstack([count, count * means])
        self._slopes = _slopes(asked, self._likely)
        self._few = known.count + 2 * np.sqrt(known.count_variances)
        # What a model says counts for nothing.
        self._before = np.where(
            known.unbiased[:, :, None] & known.unbiased[:, None, :], known.joint.covariances, np.nan
        )

    def _told(self, covariances: FloatArray) -> FloatArray:
        """Variances of the answers, from the covariances of counts and moments; infinite where one is not known."""
        variances = Joint(self._likely, covariances).weighed(self._slopes)[1]
        return np.where(np.isnan(variances), np.inf, variances)

    def _after(self, strategy: TableStrategy, variance: float) -> FloatArray:
        """Covariances of counts and moments after a measurement with noise of this variance."""
        weights = _summed_squares(self._asked, self._marginal)
        bought = {part.moment: variance / part.multiplier**2 * weights for part in strategy.parts}
        nothing = np.full(len(weights), np.inf)
        own = np.stack([bought.get(moment, nothing) for moment in (None, *self._asked.moments)], axis=1)
        return sharpened(self._before, own)

    def _strategies(self) -> list[TableStrategy]:
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
            found.append(TableStrategy(tuple(parts)))
        return found

    def _best(self, share: float) -> tuple[Wanted, FloatArray] | None:
        """What a share is best spent on, and the covariances of counts and moments afterwards."""
        best: tuple[float, Wanted, FloatArray] | None = None
        for strategy in self._strategies():
            noise = self._policy.noise(share, strategy.moved)
            if noise is None:
                continue
            after = self._after(strategy, noise.variance)
            whole = float(np.mean(self._told(after)))
            # A little better is not worth another strategy, which must be the same wherever it is told again.
            if best is None or whole < best[0] * (1 - 1e-6):
                best = whole, Wanted(strategy, noise), after
        return None if best is None else best[1:]

    def within(self, share: float, leaning: float) -> Wanted | None:
        """Budget first: what the share buys, unless what is known is as good or there are too few records."""
        found = self._best(share)
        if found is None:
            return None
        buy, after = found
        if self._asked.kind != "sum" and bool((self._few < np.sqrt(after[:, 0, 0])).all()):
            return None
        known, both = float(np.mean(self._told(self._before))), float(np.mean(self._told(after)))
        # What is bought would be worth 1/(1/both - 1/known) by itself, as both are averaged by precision.
        return buy if leaning**2 * (known - both) > both else None

    def accurate(self, left: float, within: float, confidence: float) -> Wanted | None:
        """Accuracy first: the least that is likely to make every interval reach no farther than this to either side.

        Args:
            left: what is left of the session's share.
            within: in the attribute's unit.
            confidence: of the intervals.

        Raises:
            OutOfReach: when it costs more than is left.
        """
        known = self._own_quantiles(self._asked, self._known.joint, confidence)
        if self._farthest(self._known.joint.values, self._before, known) <= within:
            return None
        # Of what is bought the answer of the fewest cells reaches farthest.
        cells = round(float(_summed_squares(self._asked, self._marginal).min()))
        laplace = quantile([Term.of(_LAPLACE, np.ones(1), repeated=cells)], confidence)

        def beyond(logarithm: float) -> float:
            found = self._best(math.exp(logarithm))
            # Finite, as a root is looked for between this and what is enough.
            reached = math.inf
            if found is not None:
                reach = np.maximum(known, laplace) if found[0].noise.kind == "laplace" else known
                reached = self._farthest(self._likely, found[1], reach)
            return min(max(math.log(max(reached, _LEAST)) - math.log(within), -_NEVER), _NEVER)

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

    def _farthest(self, values: FloatArray, covariances: FloatArray, reach: FloatArray) -> float:
        """How far the interval of any answer reaches from its value."""
        if np.isnan(covariances).any():
            return math.inf
        found = _intervals(self._asked, Joint(values, covariances), reach)
        least, most = _possible(self._asked, self._policy.residuals.public_total)
        arms = np.maximum(found.linear - found.lows, found.highs - found.linear)
        # Ends that are nearer than rounding tells are as far as errors of the first order say.
        arms = np.maximum(arms, reach * found.errors)
        return float(np.minimum(np.where(found.nothing, np.inf, arms), most - least).max())


def _slopes(asked: Statistic, values: FloatArray) -> FloatArray:
    """How much a statistic changes with the number of records and with each moment, a row a group."""
    count, step, ones = values[:, 0], asked.step, np.ones(len(values))
    if asked.kind == "sum":
        return np.stack([asked.middle * ones, step * ones], axis=1)
    means = values[:, 1:] / count[:, None]
    if asked.kind == "mean":
        return np.stack([-step * means[:, 0] / count, step / count], axis=1)
    unit = math.ldexp(1.0, asked.second.shift)
    rows = [2 * means[:, 0] ** 2 - unit * means[:, 1], -2 * means[:, 0], unit * ones]
    return step**2 * np.stack(rows, axis=1) / count[:, None]


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


@dataclass(frozen=True, eq=False)
class _Interval:
    """What is known of a statistic of some groups, in the attribute's unit or its square, before it is cut."""

    linear: FloatArray
    errors: FloatArray
    lows: FloatArray
    highs: FloatArray
    nothing: Array

    def shown(
        self,
        unbiased: Array,
        confidence: float,
        quantile: FloatArray,
        possible: tuple[float, float],
        given: FloatArray | None,
    ) -> Estimates:
        """Cut to what is possible, and NaN where there may be nobody; ``given`` are the values, if they are."""

        def told(numbers: FloatArray) -> FloatArray:
            return np.where(self.nothing, np.nan, numbers)

        lows, highs = (told(np.clip(ends, *possible)) for ends in (self.lows, self.highs))
        values = told(np.clip(self.linear, *possible)) if given is None else given
        arms = np.maximum(values - self.lows, self.highs - values) / quantile
        return Estimates(values, told(arms), lows, highs, unbiased, confidence, told(self.linear), told(self.errors))


def _possible(asked: Statistic, total: float | None) -> tuple[float, float]:
    """The least and the greatest that a statistic can be, of so many records where that is public."""
    if asked.kind == "mean":
        return asked.low, asked.high
    if asked.kind == "variance":
        return 0.0, asked.step**2 * asked.first.half**2
    if total is not None:
        return min(0.0, asked.low) * total, max(0.0, asked.high) * total
    return 0.0 if asked.low >= 0 else -math.inf, 0.0 if asked.high <= 0 else math.inf


def _sums(asked: Statistic, known: Joint, quantile: FloatArray) -> _Interval:
    """The intervals of sums."""
    linear, variances = known.weighed(np.array([asked.middle, asked.step]))
    errors = np.sqrt(variances)
    nothing = np.zeros(len(linear), dtype=bool)
    return _Interval(linear, errors, linear - quantile * errors, linear + quantile * errors, nothing)


def _intervals(asked: Statistic, known: Joint, quantile: FloatArray) -> _Interval:
    """The intervals of a statistic from counts and moments, so many standard deviations to either side, a number a
    group; those of variances have the most of them."""
    count = known.values[:, 0]
    if asked.kind == "sum":
        return _sums(asked, known, quantile)
    nothing = (count <= quantile * np.sqrt(known.variances[:, 0])) | (count <= 0)
    # Where there may be nobody any numbers do that can be divided.
    values = np.where(nothing[:, None], 1.0, known.values)
    known = Joint(values, np.where(nothing[:, None, None], 0.0, known.covariances))
    errors = np.sqrt(known.weighed(_slopes(asked, values))[1])
    if asked.kind == "mean":
        steps = values[:, 1] / values[:, 0]
        lows, highs = fieller_mean(known, quantile)
        ends = [asked.middle + asked.step * end for end in (steps, lows, highs)]
        return _Interval(ends[0], errors, ends[1], ends[2], nothing)
    # The sum of u^2 in place of the second moment.
    second, farthest = asked.second, float(quantile.max(initial=0.0))
    onto = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [second.offset, 0.0, math.ldexp(1.0, second.shift)]])
    found = []
    for start in range(0, len(values), _AT_ONCE):
        some = slice(start, start + _AT_ONCE)
        part = Joint(values[some] @ onto.T, onto @ known.covariances[some] @ onto.T)
        found.append(np.stack(variances_of(part, farthest, -asked.first.middle, asked.first.half)))
    linear, lows, highs = asked.step**2 * np.concatenate(found, axis=1)
    # Where there are hardly any records an interval has no end but that of what is possible.
    least, most = _possible(asked, None)
    lows, highs = np.where(np.isinf(lows), least, lows), np.where(np.isinf(highs), most, highs)
    return _Interval(linear, errors, lows, highs, nothing)
