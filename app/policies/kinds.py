"""Kinds of statistics: how one is answered from what was measured, and what is measured for one.

Most follow from a few numbers of each group, its records the first of them, which are known together with the
covariances of their noise (:mod:`app.estimation.tables.joint`): a kind says which numbers these are, what tells of
them, what may be bought and tells of them afterwards, and how its value, its error of the first order and its interval
follow. What is bought, how what was never measured is filled in, and what is shown are the same for all of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Generic, Literal, TypeVar

import numpy as np
from scipy.optimize import brentq

from app.estimation.intervals import Estimates
from app.estimation.tables.joint import Joint
from app.estimation.tables.residuals import Residuals, Unbiased, reach_alone
from app.estimation.tails import normal_quantile
from app.measurements.noise import Noise
from app.measurements.strategies.tables import Moment, TableStrategy
from app.policies.table import OutOfReach, Policy, Wanted, dearest
from app.spaces.partition import Marginal
from app.spaces.queries.statistic import CompiledStatistic, StatisticOfNumbers
from app.spaces.questions import Cells, Groups, Question, Sum
from app.spaces.tensor import Array, FloatArray, IntArray

#: What is not measured is taken to be like the whole within this part of its spread.
ALIKE = 0.5
#: How many kinds of statistics may be chosen among: sums with means, variances, ratios of two sums, quantiles, and
#: weighted shares with weighted means, and weighted quantiles.
_KINDS = 6
#: The logarithm of a width beside another that no purchase is worth asking for, and the least width above nothing.
_NEVER, _LEAST = 1e4, 1e-300
#: Any confidence, where only values and their errors are looked at.
ANY = 0.95
#: Laplace noise of so many steps that these do not show.
_LAPLACE = Noise("laplace", Decimal(1000), 0)
#: By how much less noise, which reaches by a little more of its deviations, is asked for than what reached too far.
_STEPPED = 1e-4
#: By how much closer it is asked for: several noises together reach a little more of their deviations than the law of
#: each says, by less than this part where it was looked at.
_MIXED = 1e-3


def places_of(question: Question, groups: IntArray, axis: int, places: int) -> tuple[IntArray, IntArray]:
    """Of each answer asked for the least and the greatest place of the numbers that its records may have: where
    conditions or groups are of the numbers themselves some of these.

    Args:
        question: the numbers of records.
        groups: which of its answers are asked for.
        axis: of the attribute that has numbers.
        places: how many of its values these are, the first ones.
    """
    least, most = (np.full(len(groups), place) for place in (0, places - 1))
    if axis not in question.attributes or not isinstance(question, Cells | Groups | Sum):
        return least, most
    if isinstance(question, Sum):
        answers = np.where(question.on(question.partitions) != 0, 0, -1)
    else:
        cells = np.arange(question.marginal.cells).reshape(question.marginal.shape)
        answers = question.answers if isinstance(question, Groups) else cells
    k = question.attributes.index(axis)
    labels, shape = question.partitions[k].labels[:places], [1] * answers.ndim
    shape[k] = -1
    # A cell that holds no number is between none.
    first, last = np.full(question.partitions[k].cells, places), np.full(question.partitions[k].cells, -1)
    told, at = np.unique(labels, return_index=True)
    first[told] = at
    told, at = np.unique(labels[::-1], return_index=True)
    last[told] = places - 1 - at
    lows, highs = np.full(int(answers.max()) + 1, places), np.full(int(answers.max()) + 1, -1)
    counted = answers >= 0
    for ends, found, further in ((lows, first, np.minimum), (highs, last, np.maximum)):
        further.at(ends, answers[counted], np.broadcast_to(found.reshape(shape), answers.shape)[counted])
    lows, highs = lows[groups], highs[groups]
    return np.where(highs < 0, least, lows), np.where(highs < 0, most, highs)


def moment_of(query: CompiledStatistic, power: Literal[1, 2]) -> Moment:
    """A moment of the attribute that a query is about."""
    assert isinstance(query, StatisticOfNumbers)
    return Moment(query.axis, query.places, power)


def ends_of(moment: Moment) -> tuple[Moment, Moment]:
    """What counts the steps of a first moment from the least number, and from the greatest."""
    return replace(moment, end="least"), replace(moment, end="greatest")


def from_ends(moment: Moment, least: Joint, greatest: Joint) -> Joint:
    """What sums of distances from both ends tell: the numbers of records, and behind them as many first moments.

    With K steps from end to end and m from the least number to the middle these are ``(A + B)/K`` and ``A - m N``.

    Args:
        moment: from the middle.
        least: A, of each group one or several sums.
        greatest: B, measured beside them.
    """
    one, nothing = np.eye(least.values.shape[1]), np.zeros(least.covariances.shape)
    both = Joint(
        np.hstack([least.values, greatest.values]),
        np.block([[least.covariances, nothing], [nothing, greatest.covariances]]),
    )
    steps, middle = moment.places - 1, moment.middle
    return both.mapped(np.block([[one, one], [(steps - middle) * one, -middle * one]]) / steps)


@dataclass(frozen=True, eq=False)
class Known:
    """Numbers of the groups that are asked for, the records the first of them, and which are known without a model."""

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


A = TypeVar("A", bound=CompiledStatistic)
#: A number for all answers, or one for each.
Ends = float | FloatArray


class Kind(ABC, Generic[A]):
    """A statistic that is answered from what was measured.

    Args:
        policy: of the session, over the counts of the same table.
        moments: the residuals of every moment that was measured.
        asked: the statistic.
    """

    #: Whether it is of records in proportion to their number, and so of no value where there may be none.
    ratio = True

    def __init__(self, policy: Policy, moments: dict[Moment, Residuals], asked: A) -> None:
        self.policy, self.counts, self.measured, self.asked = policy, policy.residuals, moments, asked

    @staticmethod
    @abstractmethod
    def largest(query: CompiledStatistic) -> int:
        """The most that one record adds to a number that is measured for a query of the kind."""

    @abstractmethod
    def decide(self, left: float, within: float | None, confidence: float, slack: float) -> Wanted | None:
        """Decide what is bought; None where it is answered free. (:meth:`app.policies.statistics.Statistics.decide`)"""

    @abstractmethod
    def shown(self, confidence: float, adaptive: bool, given: FloatArray | None) -> Estimates:
        """The estimate that is shown. (:meth:`app.policies.statistics.Statistics.shown`)"""

    @abstractmethod
    def errors(self) -> FloatArray:
        """How far values are off, by the noise in what they follow from: standard deviations, of the first order."""

    @abstractmethod
    def possible(self, total: float | None) -> tuple[Ends, Ends]:
        """The least and the greatest that each answer can be, of at most so many records where that is known."""

    @property
    def own_residuals(self) -> list[Residuals]:
        """The measurements that it may follow from, beside counts by all of its attributes."""
        return [self.counts]

    def chosen_quantile(self, confidence: float) -> float:
        """As many deviations as hold for all that could be asked of the same numbers at once (Scheffe), whichever of
        the attributes they are of, sums, ratios or quantiles."""
        question = self.asked.question
        attributes = sorted({*question.attributes, *self.asked.weighed})
        missed = (1 - confidence) / (_KINDS * len(attributes) ** max(1, len(self.asked.weighed)))
        others = [(residuals, question.attributes) for residuals in self.own_residuals]
        return max(normal_quantile(confidence), self.policy.chosen_quantile(attributes, missed, others=others))

    @cached_property
    def reachable(self) -> tuple[IntArray, IntArray]:
        """Of each answer the least and the greatest place of the numbers that its records may have."""
        assert isinstance(self.asked, StatisticOfNumbers)
        return places_of(self.asked.question, self.asked.groups, self.asked.axis, self.asked.places)

    @property
    def extremes(self) -> tuple[FloatArray, FloatArray]:
        """The least and the greatest of these numbers, of each answer."""
        assert isinstance(self.asked, StatisticOfNumbers)
        least, most = map(self.asked.at, self.reachable)
        return least, most

    # What is known.

    def own(self, values: Array) -> FloatArray:
        """Those of the question's answers that are asked for."""
        return np.asarray(values, dtype=np.float64).reshape(-1)[self.asked.groups]

    def joint(self, known: Unbiased, place: int, count: int) -> Joint:
        """The same, as one of so many numbers."""
        return Joint.of_one(place, count, self.own(known.values), self.own(known.variances))

    def count(self) -> Known:
        """The numbers of records."""
        return self.filled(self.joint(self.counts.unbiased(self.asked.question), 0, 1))

    def best_count(self) -> FloatArray:
        """The numbers of records as they would be shown, which are nearer on average."""
        if not self.counts.begun:
            return self.count().count
        return self.own(self.policy.value(self.asked.question, None))

    def filled(self, found: Joint) -> Known:
        """The measured values, and a model's where none were measured."""
        asked, unbiased = self.asked, found.known
        if unbiased.all():
            return Known(found, unbiased)
        if not self.counts.begun:
            values = np.nan_to_num(found.values)
            return Known(
                Joint(values, np.where(np.eye(values.shape[1]) > 0, np.inf, 0.0) + 0 * values[:, :, None]),
                unbiased & False,
            )
        values, covariances = found.values.copy(), found.covariances.copy()
        missing = ~unbiased[:, 0]
        if missing.any():
            shown = self.policy.shown(asked.question, None, ANY)
            values[missing, 0] = self.own(shown.values)[missing]
            covariances[missing, :, 0] = covariances[missing, 0, :] = 0.0
            covariances[missing, 0, 0] = np.square(self.own(shown.standard_errors)[missing])
        count = self.best_count()
        # As many times what a record adds on average as there are records.
        for k in range(1, values.shape[1]):
            missing = ~unbiased[:, k]
            mean, deviation = (np.broadcast_to(each, count.shape)[missing] for each in self.modelled(k, count))
            values[missing, k] = count[missing] * mean
            shared = mean * np.nan_to_num(covariances[missing, :, 0]).T
            covariances[missing, :, k] = covariances[missing, k, :] = shared.T
            covariances[missing, k, k] = np.square(mean) * covariances[missing, 0, 0] + np.square(deviation)
        return Known(Joint(values, covariances), unbiased)

    def modelled(self, k: int, count: FloatArray) -> tuple[FloatArray | float, FloatArray | float]:
        """The mean that a record adds to one of the numbers, and how far the number may be off, for each of so many
        records, where it was never measured.
        """
        raise NotImplementedError

    def overall(self, moment: Moment) -> tuple[float, float]:
        """The mean of a moment's weights over all records, as one-way counts tell it, and how far that of a group whose
        moment was not measured may be off: part of their spread, all of it where nobody knows how they are spread."""
        mean, variance, told = 1.0, 0.0, True
        # Of a product as if its factors had nothing to do with one another.
        for axis, numbers in moment.factors:
            parts = self.policy.fits.shares(axis)[: len(numbers)]
            parts = parts / parts.sum()
            weights = numbers.astype(np.float64)
            own = float(parts @ weights)
            spread = max(float(parts @ np.square(weights - own)), 0.0)
            mean, variance = mean * own, mean**2 * spread + variance * (spread + own**2)
            told = told and self.policy.fits.tells_apart(axis, len(numbers))
        return mean, math.sqrt(variance) * (ALIKE if told else 1.0)


@dataclass(frozen=True, eq=False)
class Interval:
    """The known interval of a statistic of some groups, in its own unit, before it is cut. Where ``whole`` it holds
    every value that what is possible and the noise leave, and its middle tells nothing."""

    linear: FloatArray
    errors: FloatArray
    lows: FloatArray
    highs: FloatArray
    nothing: Array
    whole: bool = False

    def shown(
        self,
        unbiased: Array,
        confidence: float,
        quantile: FloatArray,
        possible: tuple[Ends, Ends],
        given: FloatArray | None,
    ) -> Estimates:
        """Cut to what is possible, and NaN where there may be nobody; ``given`` are the values, if they are.

        Of what is impossible the interval is that about the nearest that is possible, so that more confidence makes it
        no narrower; one that is ``whole`` holds something possible. A value that was given lies within its interval,
        which is all that is possible where there may be nobody by now. What can be one number alone is that, whether
        there is anybody or not.
        """
        least, most = possible
        certain = np.equal(least, most)
        nothing = self.nothing & ~certain

        def clipped(numbers: FloatArray) -> FloatArray:
            return np.where(nothing, np.nan, numbers)

        moved = 0.0 if self.whole else np.nan_to_num(np.clip(self.linear, least, most) - self.linear)
        lows, highs = np.clip(self.lows + moved, least, most), np.clip(self.highs + moved, least, most)
        values = clipped(np.clip(self.linear, least, most)) if given is None else given
        arms = np.maximum(values - self.lows, self.highs - values) / quantile
        lows, highs, arms = clipped(lows), clipped(highs), clipped(arms)
        if given is not None:
            gone = nothing & ~np.isnan(given)
            lows, highs = np.fmin(np.where(gone, least, lows), given), np.fmax(np.where(gone, most, highs), given)
            arms = np.where(gone, np.maximum(given - lows, highs - given) / quantile, arms)
        arms = np.where(certain, 0.0, arms)
        return Estimates(values, arms, lows, highs, unbiased, confidence, clipped(self.linear), clipped(self.errors))


class Derived(Kind[A]):
    """A statistic that follows from numbers that are known together."""

    #: The least and the greatest that a record adds to each number but the first.
    extent: tuple[FloatArray, FloatArray]

    @property
    def likely(self) -> FloatArray:
        """What a record is taken to add to each number but the first where nothing is known."""
        return self.extent[1] / 2

    def hedged(self, means: FloatArray, spreads: FloatArray) -> FloatArray:
        """What a record is taken to add to each of these where a model says so, give or take.

        One that a model puts in the middle of what is possible would need no number of records beside it.
        """
        return np.copysign(np.hypot(means, spreads), means)

    @abstractmethod
    def known(self) -> Known:
        """The numbers of records, and all others."""

    @abstractmethod
    def own_quantiles(self, known: Joint, confidence: float) -> FloatArray:
        """How many deviations the noise of each answer reaches."""

    @abstractmethod
    def slopes(self, values: FloatArray) -> FloatArray:
        """How much the statistic changes with each of the numbers, a row a group."""

    @abstractmethod
    def interval(self, known: Joint, quantile: FloatArray) -> Interval:
        """The intervals from what is known, so many standard deviations to either side, a number a group."""

    @abstractmethod
    def strategies(self, marginal: Marginal) -> list[TableStrategy]:
        """The strategies that may be bought, over the cells that the question tells apart."""

    @abstractmethod
    def after(self, before: FloatArray, strategy: TableStrategy, variance: float) -> FloatArray:
        """Covariances after a measurement with noise of this variance, from those before, NaN of what is not known."""

    def together(self, before: FloatArray, strategy: TableStrategy, variance: float) -> FloatArray:
        """The same as well as it can be told, which says what of several strategies is bought: of parts of a whole that
        is known a measurement tells more than its own noise leaves."""
        return self.after(before, strategy, variance)

    @abstractmethod
    def fewest(self, marginal: Marginal) -> int:
        """How many cells of a marginal the answer of the fewest sums."""

    def decide(self, left: float, within: float | None, confidence: float, slack: float) -> Wanted | None:
        share = self.policy.share(self.asked.question, left)
        terms = _Terms(self, hedged=within is None)
        if within is not None:
            return terms.accurate(left, within, confidence)
        return None if share <= 0 else terms.within(share, 1 + slack)

    def shown(self, confidence: float, adaptive: bool, given: FloatArray | None) -> Estimates:
        known = self.known()
        reach = self.own_quantiles(known.joint, confidence)
        if adaptive:
            reach = np.full(len(self.asked.groups), self.chosen_quantile(confidence))
        found = self.interval(known.joint, reach)
        possible = self.possible(self.counts.public_total)
        return found.shown(np.asarray(known.unbiased.all(axis=1)), confidence, reach, possible, given)

    @np.errstate(divide="ignore", invalid="ignore")
    def errors(self) -> FloatArray:
        known = self.known().joint
        return np.asarray(np.sqrt(known.weighed(self.slopes(known.values))[1]))

    def deviations(self, residuals: Residuals, question: Question, confidence: float) -> FloatArray:
        """How many deviations each value of a question reaches, or any of them where they are not the answers; zero
        where it is known, or not estimable."""
        known = residuals.unbiased(question)
        errors, reaches = known.standard_errors, residuals.reaches(question, known, confidence)
        found = np.divide(reaches, errors, out=np.zeros(np.shape(errors)), where=errors > 0)
        if question.shape == self.asked.question.shape:
            return self.own(found)
        return np.full(len(self.asked.groups), found.max(initial=0.0))

    def empty(self, known: Joint, quantile: FloatArray) -> tuple[Array, Joint]:
        """Where there may be nobody, and there any numbers that can be divided."""
        count = known.values[:, 0]
        nothing = (count <= quantile * np.sqrt(known.variances[:, 0])) | (count <= 0)
        values = np.where(nothing[:, None], 1.0, known.values)
        return nothing, Joint(values, np.where(nothing[:, None, None], 0.0, known.covariances))


class _Terms:
    """The variances that buying would bring.

    Args:
        kind: of the statistic.
        hedged: whether numbers that a model says are taken to be as far off as it says they may be.
    """

    def __init__(self, kind: Derived[A], *, hedged: bool) -> None:
        self._policy, self._kind = kind.policy, kind
        self._known = known = kind.known()
        self._marginal = kind.asked.question.marginal_of(self._policy.residuals.sizes)
        # What values are likely to be: how steep the statistic is in each of what it follows from.
        least, most = kind.extent
        count = np.maximum(known.count, 1.0)[:, None]
        if kind.counts.begun:
            means = known.joint.values[:, 1:] / count
            if hedged:
                spread = np.where(known.unbiased, 0.0, np.nan_to_num(known.joint.variances))[:, 1:]
                means = kind.hedged(means, np.sqrt(spread) / count)
            means = np.clip(means, least, most)
        else:
            means = np.broadcast_to(kind.likely, (len(count), len(most)))
        self._likely = np.hstack([count, count * means])
        self._slopes = kind.slopes(self._likely)
        self._few = known.count + 2 * np.sqrt(known.count_variances)
        # What a model says counts for nothing.
        self._before = np.where(
            known.unbiased[:, :, None] & known.unbiased[:, None, :], known.joint.covariances, np.nan
        )

    def _variances(self, covariances: FloatArray) -> FloatArray:
        """Variances of the answers, from the covariances of counts and moments; infinite where one is not known."""
        variances = Joint(self._likely, covariances).weighed(self._slopes)[1]
        return np.where(np.isnan(variances), np.inf, variances)

    def _best(self, share: float) -> tuple[Wanted, FloatArray] | None:
        """The best purchase of a share, and the covariances of counts and moments afterwards."""
        best: tuple[float, Wanted] | None = None
        for strategy in self._kind.strategies(self._marginal):
            noise = self._policy.noise(share, strategy.sensitivity)
            if noise is None:
                continue
            after = self._kind.together(self._before, strategy, noise.variance)
            whole = float(np.mean(self._variances(after)))
            # A little better is not worth another strategy, which must be the same wherever it is told again.
            if best is None or whole < best[0] * (1 - 1e-6):
                best = whole, Wanted(strategy, noise)
        if best is None:
            return None
        return best[1], self._kind.after(self._before, best[1].strategy, best[1].noise.variance)

    def within(self, share: float, slack: float) -> Wanted | None:
        """Budget first: what the share buys, unless what is known is as good or there are too few records."""
        found = self._best(share)
        if found is None:
            return None
        buy, after = found
        if self._kind.ratio and bool((self._few < np.sqrt(np.maximum(after[:, 0, 0], 0.0))).all()):
            return None
        known, both = float(np.mean(self._variances(self._before))), float(np.mean(self._variances(after)))
        # What is bought would be worth 1/(1/both - 1/known) by itself, as both are averaged by precision.
        return buy if slack**2 * (known - both) > both else None

    def accurate(self, left: float, within: float, confidence: float) -> Wanted | None:
        """Accuracy first: the least that is likely to make every interval reach no farther than this to either side.

        Args:
            left: what is left of the session's share.
            within: in the attribute's unit.
            confidence: of the intervals.

        Raises:
            OutOfReach: when it costs more than is left.
        """
        reach = self._kind.own_quantiles(self._known.joint, confidence)
        if self._arms(self._known.joint.values, self._before, reach).max() <= within:
            return None
        # Of what is bought the answer of the fewest cells reaches farthest.
        cells = self._kind.fewest(self._marginal)
        laplace = reach_alone(_LAPLACE, confidence, cells)
        within *= 1 - _MIXED
        while True:
            buy = self._least(left, within, reach, laplace)
            # Noise of whole steps reaches a part of one farther than a law without steps.
            own = reach_alone(buy.noise, confidence, cells)
            if buy.noise.kind == "laplace" or bool((own <= reach).all()):
                return buy
            reach = np.maximum(reach, own * (1 + _STEPPED))

    def _least(self, left: float, within: float, known: FloatArray, laplace: float) -> Wanted:
        """The least that makes every interval reach no farther than this, where noise reaches so many deviations.

        Raises:
            OutOfReach: when it costs more than is left.
        """

        def arms(share: float) -> FloatArray:
            found = self._best(share)
            if found is None:
                return np.full(len(known), math.inf)
            reach = np.maximum(known, laplace) if found[0].noise.kind == "laplace" else known
            return self._arms(self._likely, found[1], reach)

        def beyond(logarithm: float) -> float:
            reached = float(arms(math.exp(logarithm)).max())
            # Finite, as a root is looked for between this and what is enough.
            return min(max(math.log(max(reached, _LEAST)) - math.log(within), -_NEVER), _NEVER)

        high = math.log(max(left, 1e-300))
        if left <= 0 or beyond(high) > 0:
            far = high + 60
            needed = math.exp(brentq(beyond, high, far, xtol=1e-6)) if beyond(far) <= 0 else math.inf
            place = dearest(arms(needed)) if math.isfinite(needed) else None
            raise OutOfReach(needed, left, None if place is None else int(self._kind.asked.groups[place]))
        low = high - 60
        share = math.exp(low if beyond(low) <= 0 else brentq(beyond, low, high, xtol=1e-9))
        found = self._best(min(share * (1 + 1e-6), left))
        assert found is not None
        return found[0]

    def _arms(self, values: FloatArray, covariances: FloatArray, reach: FloatArray) -> FloatArray:
        """How far the interval of each answer reaches from its value; infinite where one is not known."""
        if np.isnan(covariances).any():
            return np.full(len(reach), math.inf)
        found = self._kind.interval(Joint(values, covariances), reach)
        least, most = self._kind.possible(self._policy.residuals.public_total)
        arms = np.maximum(found.linear - found.lows, found.highs - found.linear)
        # Ends that are nearer than rounding tells are as far as errors of the first order say.
        arms = np.maximum(arms, reach * found.errors)
        return np.asarray(np.minimum(np.where(found.nothing, np.inf, arms), most - least))
