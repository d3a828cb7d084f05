"""Statistics of numbers that records have, from counts and moments: what is measured for them, and what is shown.

An attribute on a grid has numbers ``middle + step * u``, u whole and at most h to either side. With N the number of
records that are asked of, S the sum of u over them and Q the sum of ``u^2 - h^2/2``,

    sum = middle * N + step * S,      mean = middle + step * S/N,      variance = step^2 (Q/N + h^2/2 - (S/N)^2).

Moments are measured over cells of marginals just as records are counted, and obey the same closed form
(:mod:`app.evidence.residuals`): a mean of all follows from the means by group at no cost. Their errors are those of the
delta method; the interval of a mean is Fieller's, which holds however small N is.

Quantiles are read from counts of ever finer bins (:mod:`app.evidence.hierarchies`), as is the number of records below
any value. The interval of a quantile holds all values below which there may be that part of the records.

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

from app.evidence.hierarchies import Cumulative, Level, cumulative, levels_of
from app.evidence.measurements import Marginal, Partition
from app.evidence.policy import Buy, OutOfReach, Policy
from app.evidence.questions import Cells, Local, Product, Question, WeightedCells
from app.evidence.residuals import Residuals, Unbiased, own_values
from app.evidence.strategies import Moment, Part, Strategy, shares
from app.spaces.tensor import Array, FloatArray, IntArray

#: Parts of what is paid that may go to the number of records, beside the moments.
_COUNT_PARTS = (0.0, 0.125, 0.25, 0.375, 0.5)
#: A question's hierarchy has at most so many cells in all.
MOST_CELLS = 1 << 15
#: What is not measured is taken to be like the whole within this part of its spread.
_ALIKE = 0.5
#: The most cells of which single values are looked up in a table that was measured whole.
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
            return None if share <= 0 else self._decide_hierarchy(asked, share, 1 + leaning)
        terms = _Terms(self, asked)
        if within is not None:
            quantile = self._quantile(asked, confidence, adaptive=False)
            return terms.accurate(left, within / quantile)
        return None if share <= 0 else terms.within(share, 1 + leaning)

    def _decide_hierarchy(self, asked: Statistic, share: float, leaning: float) -> Buy | None:
        chain = self._chain(asked)
        strategy = Strategy(tuple(Part(self._marginal(asked, partition)) for partition in chain))
        noise = self._policy.noise(share, strategy.largest)
        if noise is None:
            return None
        known = self._hierarchy(asked, chain)
        if known is not None:
            groups = (len(asked.chosen), 1)
            blank = [Level(p, np.zeros((len(asked.chosen), p.cells)), np.full(groups, noise.variance)) for p in chain]
            # Weights of a question on several cells of a marginal make sums of them.
            summed = self._summed(asked)
            would = max(float(cumulative(blank).variances(level).max()) for level in asked.levels) * summed
            if max(float(known.variances(level).max()) for level in asked.levels) * leaning**2 <= would:
                return None
        return Buy(strategy, noise.kind, noise.scale)

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
        best = np.maximum(self._best_count(asked), 1.0)
        if asked.kind == "mean":
            return _shown_mean(asked, count, first, best, quantile, given)
        return _shown_variance(asked, count, first, self._moment(asked, asked.second), best, quantile, given)

    def _quantile(self, asked: Statistic, confidence: float, adaptive: bool) -> float:
        normal = self._policy.quantile(confidence)
        if not adaptive:
            return normal
        # As wide as holds for all that could be asked of the same numbers at once (Scheffe).
        cells = asked.question.cells
        cells *= sum(p.cells for p in self._chain(asked)) if asked.kind == "quantile" else 1 + len(asked.moments)
        return max(normal, math.sqrt(float(chdtri(cells, 1 - confidence))))

    # What is known.

    def _count(self, asked: Statistic) -> _Known:
        """The numbers of records."""
        found = self._counts.unbiased(asked.question)
        if found.estimable.all():
            return _Known(asked.of(found.values), asked.of(found.variances), np.ones(len(asked.chosen), dtype=bool))
        estimates = self._policy.shown(asked.question, None, 0.95)
        values = np.where(found.estimable, found.values, estimates.values)
        variances = np.where(found.estimable, found.variances, np.square(estimates.standard_errors))
        return _Known(asked.of(values), asked.of(variances), asked.of(found.estimable) > 0)

    def _best_count(self, asked: Statistic) -> FloatArray:
        """The numbers of records as they would be shown, which are nearer on average."""
        if not self._counts.total.estimable:
            return self._count(asked).values
        return asked.of(self._policy.value(asked.question, None))

    def _moment(self, asked: Statistic, moment: Moment) -> _Known:
        """A moment of the records of each group."""
        told = [found for found in (self._measured(asked, moment), self._of_counts(asked, moment)) if found is not None]
        values, variances = np.zeros(len(asked.chosen)), np.full(len(asked.chosen), np.inf)
        for found in told:
            own, spread = asked.of(found.values), asked.of(found.variances)
            fresh = ~np.isnan(spread)
            # Averaged by precision; what is exact stays.
            with np.errstate(invalid="ignore", divide="ignore"):
                part = np.where(np.isinf(variances), 1.0, variances / (variances + spread))
                part = np.where(fresh & (variances + spread > 0), part, np.where(fresh & np.isinf(variances), 1.0, 0.0))
            values = np.where(fresh, values + part * (np.where(fresh, own, 0.0) - values), values)
            variances = np.where(fresh, np.where(np.isinf(variances), spread, variances * (1 - part)), variances)
        unbiased = ~np.isinf(variances)
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
        assert isinstance(question, Cells)
        return self._counts.unbiased(WeightedCells(question.marginal, asked.axis, weights))

    def _alike(self, asked: Statistic, moment: Moment) -> _Known:
        """The moment of groups that nothing was measured of: like that of all records, within part of its spread."""
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

    def _chain(self, asked: Statistic) -> list[Partition]:
        """The partitions of an attribute's numbers in which it is counted, from coarse to fine."""
        groups = max(1, asked.question.cells)
        return levels_of(asked.places, max(2, MOST_CELLS // (2 * groups)))

    def _marginal(self, asked: Statistic, partition: Partition) -> Marginal:
        """The groups, and the cells of a partition of the numbers within each; no number is a cell by itself."""
        sizes, question = self._counts.sizes, asked.question
        labels = np.full(sizes[asked.axis], partition.cells)
        labels[: asked.places] = partition.labels
        cells: dict[int, Partition | None] = dict(zip(question.attributes, question.partitions, strict=True))
        own, fine = cells.get(asked.axis), Partition.of(labels)
        cells[asked.axis] = fine if own is None else own.met(fine)
        return Marginal.of(sizes, cells)

    def _hierarchy(self, asked: Statistic, chain: Sequence[Partition]) -> Cumulative | None:
        """What was measured of a chain of partitions, as numbers of records below values; None where nothing was."""
        levels = [level for level in (self._level(asked, partition) for partition in chain) if level is not None]
        if not levels:
            return None
        everything = not asked.question.attributes and self._counts.sizes[asked.axis] == asked.places
        return cumulative(levels, self._counts.public_total if everything else None)

    def _level(self, asked: Statistic, partition: Partition) -> Level | None:
        """What was measured of the groups in the cells of one partition, and in no finer cells of the numbers."""
        marginal = self._marginal(asked, partition)
        if asked.axis not in marginal.attributes:
            return None
        fine = marginal.partition(marginal.attributes.index(asked.axis))
        question, found = Cells(marginal), []
        for measurement in self._counts.measurements:
            other = measurement.marginal
            if asked.axis not in other.attributes:
                continue
            if other.partition(other.attributes.index(asked.axis)) == fine:
                own = own_values(question, measurement)
                if own is not None and own.estimable.all():
                    found.append(own)
        if not found:
            return None
        precision = np.sum([1 / own.variances for own in found], axis=0)
        values = np.sum([own.values / own.variances for own in found], axis=0) / precision
        return _rows(asked, partition, marginal, values, 1 / precision)

    def _single(self, asked: Statistic) -> Cumulative | None:
        """The numbers of records below values, of a table whose single values are known."""
        partition = Partition.singles(asked.places)
        marginal = self._marginal(asked, partition)
        if marginal.cells > _MOST_SINGLE or asked.axis not in marginal.attributes:
            return None
        found = self._counts.unbiased(Cells(marginal))
        if not found.estimable.all():
            return None
        return cumulative([_rows(asked, partition, marginal, found.values, found.variances)])

    def _summed(self, asked: Statistic) -> float:
        """How many cells of a marginal a question sums."""
        question = asked.question
        if isinstance(question, Cells):
            return 1.0
        cells = question.partitions
        return max(1.0, float(question.of(np.ones([p.cells for p in cells]), cells).max()))

    def _shown_quantiles(self, asked: Statistic, quantile: float, given: FloatArray | None) -> Shown:
        found = self._hierarchy(asked, self._chain(asked))
        if found is None and self._policy.mode == "table":
            found = self._single(asked)
        unbiased = found is not None
        if found is None:
            found = self._modelled(asked)
        columns = [_inverted(asked, found, level, quantile) for level in asked.levels]
        values, lows, highs = (np.stack(column, axis=1).reshape(-1) for column in zip(*columns, strict=True))
        shown = values if given is None else given
        errors = np.maximum(shown - lows, highs - shown) / quantile
        told = np.full(len(values), unbiased)
        return Shown(shown, errors, lows, highs, told, values, errors)

    def _modelled(self, asked: Statistic) -> Cumulative:
        """Groups that were never counted: like all records, within part of what they could differ by."""
        parts = self._policy.fits.shares(asked.axis)[: asked.places]
        below = np.cumsum(parts / parts.sum())
        count = np.maximum(self._best_count(asked), 1.0)[:, None]
        free = _ALIKE**2 * below * (1 - below) * np.square(count)
        share = np.broadcast_to(below, free.shape)
        return Cumulative(
            np.arange(1, asked.places + 1), below * count, free, share, count[:, 0], self._count(asked).variances
        )


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
            np.clip(k.values / count, -m.largest, m.largest) for k, m in zip(self._known, asked.moments, strict=True)
        ]
        self._slopes = _slopes(asked, count, means)
        self._few = count + 2 * np.sqrt(self._count.variances)

    def _errors(self, variances: Sequence[FloatArray]) -> FloatArray:
        """Variances of the answers, from those of counts and moments."""
        return np.asarray(sum(np.square(slope) * v for slope, v in zip(self._slopes, variances, strict=True)))

    def now(self) -> FloatArray:
        """Variances of the answers from what is known; infinite where that is a model's."""
        known = [self._count, *self._known]
        whole = self._errors([k.variances for k in known])
        return np.where(np.logical_and.reduce([k.unbiased for k in known]), whole, np.inf)

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
        with np.errstate(invalid="ignore"):
            whole = np.where(
                np.isinf(np.max(found, axis=0)), np.inf, self._errors([np.minimum(v, 1e300) for v in found])
            )
        return whole, found[0]

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
            noise = self._policy.noise(share, strategy.largest)
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
        return None if float(np.mean(self.now())) * leaning**2 <= float(np.mean(after)) else buy

    def accurate(self, left: float, error: float) -> Buy | None:
        """Accuracy first: the least that is likely to bring every standard error down to this.

        Raises:
            OutOfReach: when it costs more than is left.
        """
        if float(self.now().max()) <= error**2:
            return None

        def beyond(logarithm: float) -> float:
            found = self._best(math.exp(logarithm))
            return math.inf if found is None else math.log(float(found[1].max()) / error**2)

        high = math.log(max(left, 1e-300))
        if left <= 0 or beyond(high) > 0:
            far = high + 60
            needed = brentq(beyond, high, far, xtol=1e-6) if beyond(far) <= 0 else math.inf
            raise OutOfReach(math.exp(needed), left)
        low = high - 60
        share = math.exp(brentq(beyond, low, high, xtol=1e-9)) if math.isfinite(beyond(low)) else math.exp(high)
        found = self._best(min(share * (1 + 1e-6), left))
        assert found is not None
        return found[0]


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


def _summed_squares(asked: Statistic, marginal: Marginal) -> FloatArray:
    """How many cells of a marginal each of the answers asked for sums."""
    question = asked.question
    cells = [marginal.partition(k) for k in range(len(marginal.attributes))]
    told = [cells[marginal.attributes.index(a)] for a in question.attributes if a in marginal.attributes]
    ones = np.ones([p.cells for p in told])
    return np.maximum(asked.of(question.of(ones, told)), 1.0)


def _rows(
    asked: Statistic, partition: Partition, marginal: Marginal, values: FloatArray, variances: FloatArray
) -> Level:
    """Values on the cells of a marginal as a level: a row for each group that is asked for.

    The cells of a group are those of its own numbers: others, as where a condition is on the numbers, count nothing.
    """
    question = asked.question
    axis = marginal.attributes.index(asked.axis)
    fine = marginal.partition(axis)
    # Each cell's range of numbers, and the cell of the question that it lies in.
    within = np.minimum(fine.members, asked.places)
    labels = np.append(partition.labels, -1)[within]
    if isinstance(question, Cells):
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
    return Level(partition, counts, np.maximum(spread, least))


def _groups(question: Cells, marginal: Marginal, axis: int) -> IntArray:
    """For each cell of a marginal the place of the question's answer that it is counted in."""
    groups: IntArray = np.zeros([1] * len(marginal.shape), dtype=np.int64)
    for k, attribute in enumerate(question.attributes):
        place = marginal.attributes.index(attribute)
        own = question.marginal.partition(k)
        labels = own.labels[marginal.partition(place).members]
        groups = groups * own.cells + labels.reshape([-1 if j == place else 1 for j in range(len(marginal.shape))])
    return groups


def _inverted(
    asked: Statistic, found: Cumulative, level: float, quantile: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The quantiles of each group and their intervals; NaN where a group may be empty."""
    target = level * found.total
    rising = np.maximum.accumulate(found.below, axis=1)
    falling = np.minimum.accumulate(found.below[:, ::-1], axis=1)[:, ::-1]
    level_below = (rising + falling) / 2
    reach = quantile * np.sqrt(found.variances(level))
    starts = np.concatenate([[0], found.ends[:-1]])
    last = len(found.ends) - 1
    values, lows, highs = np.zeros(len(target)), np.zeros(len(target)), np.zeros(len(target))
    for row, goal in enumerate(target):
        leaf = min(int(np.searchsorted(level_below[row], goal)), last)
        before = level_below[row, leaf - 1] if leaf else 0.0
        inside = level_below[row, leaf] - before
        width = int(found.ends[leaf] - starts[leaf])
        part = (goal - before) / inside if inside > 0 else 0.5
        values[row] = starts[leaf] + min(max(math.floor(part * width), 0), width - 1)
        enough = found.below[row] + reach[row] >= goal
        low = int(starts[int(enough.argmax())]) if enough.any() else int(starts[-1])
        few = np.concatenate([[True], found.below[row, :-1] - reach[row, :-1] <= goal])
        high = int(found.ends[len(few) - 1 - int(few[::-1].argmax())]) - 1
        lows[row], highs[row] = min(low, values[row]), max(high, values[row])
    nothing = found.total <= quantile * np.sqrt(found.variance)
    return tuple(  # type: ignore[return-value]
        np.where(nothing, np.nan, asked.low + asked.step * places) for places in (values, lows, highs)
    )


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


def _shown_mean(
    asked: Statistic, count: _Known, first: _Known, best: FloatArray, quantile: float, given: FloatArray | None
) -> Shown:
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
        shown = first.values / np.maximum(best, count.values / 2)
    return _ratio(asked, shown, ratio, errors, lows, highs, nothing, count.unbiased & first.unbiased, quantile, given)


def _ratio(
    asked: Statistic,
    shown: FloatArray,
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

    values = real(shown) if given is None else given
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
    best: FloatArray,
    quantile: float,
    given: FloatArray | None,
) -> Shown:
    moment = asked.second
    nothing = (count.values <= quantile * np.sqrt(count.variances)) | (count.values <= 0)
    whole = np.where(nothing, 1.0, np.maximum(best, count.values / 2))
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
