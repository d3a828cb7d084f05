"""How the records of a group are spread over the numbers of an attribute, from counts of ranges of these.

Each measurement divides the numbers into ranges, few or many, in its own way, and counts the records in each. All ends
of all ranges together divide the numbers into elementary ranges; what was measured are sums of these with independent
noise, so that generalised least squares tells the number of records below every end that it determines, and all their
covariances.

A quantile is where the number of records below passes its part of the total. What was counted is weighed against how
records are expected to be spread (:mod:`app.estimation.tables.spread`), and between two ends they are taken to be
spread so. An interval reaches over all ranges that the quantile may lie in: those of which the number below the end may
have come up to the part, and that below the beginning may not have passed it. Its own range is left out only if the
noise at one end is too low, or at one other too high: each with half of what may be missed, however many ends there
are. How far noise reaches its own law tells (:mod:`app.estimation.tails`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.estimation.tables.spread import Expected, likely
from app.estimation.tails import Term, normal_quantile, reach
from app.measurements.noise import Noise
from app.measurements.strategies.tables import Draws
from app.spaces.partition import Partition
from app.spaces.tensor import Array, FloatArray, IntArray

#: No more elementary ranges are told apart.
MOST_RANGES = 256
#: Directions of so small a part of what is measured best, in standard deviations, are not measured at all.
_UNKNOWN = 1e-11
#: Weights are told to this part of the largest: what rounding moved they are equal again.
_TOLD = 2.0**-30
#: By which part of their number records of a range are taken to lie elsewhere than the base says.
_UNEVEN = 0.25
#: Of two variances the greater is of something that is not looked at where it is so many times the other.
_SURER = 4.0
#: Levels that differ by less are the same.
SAME = 1e-12


@dataclass(frozen=True, eq=False)
class Ranges:
    """Counts of the ranges that a measurement divides the numbers into, or weighed sums of these.

    Attributes:
        ends: the places behind the last number of each, ascending; the last one is the number of places.
        values: a row a group, a column a range or a sum.
        variances: of each.
        noise: of what each is a sum of.
        multiplier: what divides that noise.
        weights: of each sum what it weighs the ranges by; None of counts.
        drawn: the quantiles that were drawn with them, a row a group.
    """

    ends: IntArray
    values: FloatArray
    variances: FloatArray
    noise: Noise
    multiplier: float = 1
    weights: FloatArray | None = None
    drawn: Draws | None = None

    def summed(self, group: int) -> Summed:
        """The noise of a group's ranges: of each so many as make up its variance."""
        return Summed(self.noise, self.multiplier, self.variances[group] * (self.multiplier**2 / self.noise.variance))

    def onto(self, ends: IntArray) -> Ranges | None:
        """The same over ranges that end at some of these places alone; None where that is a single one, and of sums
        which weigh ranges that do not."""
        kept = np.flatnonzero(np.isin(self.ends, ends))
        if len(kept) < 2:
            return None
        if self.weights is not None:
            return self if len(kept) == len(self.ends) else None
        begins = np.concatenate([[0], kept[:-1] + 1])
        return Ranges(
            self.ends[kept],
            np.add.reduceat(self.values, begins, axis=1),
            np.add.reduceat(self.variances, begins, axis=1),
            self.noise,
            self.multiplier,
            drawn=self.drawn,
        )


@dataclass(frozen=True, eq=False)
class Summed:
    """Noise of several numbers, each the sum of equal independent ones.

    Attributes:
        noise: of one.
        multiplier: what divides it.
        counts: how many there are in each number; of some that are known none.
    """

    noise: Noise
    multiplier: float
    counts: FloatArray

    def term(self, weights: FloatArray) -> Term:
        """A weighed sum of the numbers' noise."""
        counts = np.rint(self.counts).astype(np.int64)
        return Term(self.noise, weights[counts > 0], counts[counts > 0], self.multiplier)

    @property
    def scale(self) -> float:
        """The scale of one, in counts."""
        return float(self.noise.scale) / self.multiplier


def ranges_of(partition: Partition, places: int) -> IntArray | None:
    """The ends of the ranges that a partition divides the first places into; None where its cells are no ranges."""
    labels = partition.labels[:places]
    changes = np.flatnonzero(np.diff(labels)) + 1
    if len(np.unique(labels)) != len(changes) + 1:
        return None
    return np.append(changes, places)


@dataclass(frozen=True, eq=False)
class Distribution:
    """The numbers of records below some places, of one group.

    Attributes:
        ends: the places, from 0 to the number of all.
        below: the numbers of records; the last is the total.
        covariance: of these.
        shares: what each of them weighs what was measured by, a row an end; None where a model says them.
        noises: of what was measured, in the order of these weights.
        drawn: levels, places that were drawn for them, and the variances of the numbers of records below these, which
            values follow from and no interval: how far off a place is depends on the records.
    """

    ends: IntArray
    below: FloatArray
    covariance: FloatArray
    shares: FloatArray | None = None
    noises: tuple[Summed, ...] = ()
    drawn: tuple[tuple[float, int, float], ...] = ()

    @property
    def total(self) -> float:
        """The number of records."""
        return float(self.below[-1])

    def errors(self, level: float) -> FloatArray:
        """Standard deviations of the numbers below less a part of the total."""
        last = self.covariance[-1, -1]
        squares = np.diag(self.covariance) - 2 * level * self.covariance[:, -1] + level**2 * last
        return np.asarray(np.sqrt(np.maximum(squares, 0.0)))

    def quantiles(self, levels: Sequence[float], expected: Expected) -> list[int]:
        """The places of quantiles, none before that of a lower level: of what was drawn and what was counted the mean,
        by how well each is known, or the one that is known far better.

        Args:
            levels: ascending, the parts of the records that lie below.
            expected: how records are spread, which counts are weighed against.
        """
        parts = self._parts(expected)
        # What was drawn for several levels may cross, and is the nearer to them in order.
        return sorted(self._place(level, expected.base, parts) for level in levels)

    def _place(self, level: float, base: FloatArray, parts: FloatArray) -> int:
        """The place of a quantile, with the parts of the records below the ends."""
        (place, drawn), counted = self._drawn(level), self._counted(level) ** 2
        if drawn * _SURER < counted:
            return place
        own = _crossed(parts, level, self.ends, base)
        if counted * _SURER < drawn:
            return own
        part = counted / (counted + drawn)
        return round(part * place + (1 - part) * own)

    def _parts(self, expected: Expected) -> FloatArray:
        """The part of the records below each end: of a model its own, and all in one range where nothing tells."""
        if self.shares is None:
            return self.below / self.total
        inner: Sequence[float] | FloatArray = ()
        if len(self.ends) > 2:
            inner = likely(expected, self.ends[1:], self.below[1:], self.covariance[1:, 1:])
        return np.concatenate([[0.0], inner, [1.0]])

    def _drawn(self, level: float) -> tuple[int, float]:
        """What was drawn for a level, the mean of several, and the variance of the number of records below it; infinite
        where nothing was."""
        own = [(place, variance) for drawn, place, variance in self.drawn if abs(drawn - level) < SAME]
        if not own:
            return 0, math.inf
        places, variances = (np.array(each) for each in zip(*own, strict=True))
        return round(float(np.average(places, weights=1 / variances))), 1 / float((1 / variances).sum())

    def off(self, level: float) -> float:
        """By how many records the number below a quantile is off, by what was drawn or by what was counted."""
        return min(math.sqrt(self._drawn(level)[1]), self._counted(level))

    def _counted(self, level: float) -> float:
        """The same by what was counted."""
        gaps = self.below - level * self.total
        return float(counted_off(self.errors(level)[1:-1], gaps[1:-1], self.total))

    def errors_of(self, levels: Sequence[float], expected: Expected) -> list[float]:
        """How far off quantiles are, in places, where records are spread about as expected: by how many records the
        number below one is off, divided by how many are at a place there, with what rounding to a place adds; infinite
        where there are none. Arguments are those of :meth:`quantiles`."""
        found, base = [], expected.base
        for level, place in zip(levels, self.quantiles(levels, expected), strict=True):
            near = self.total * float(base[place] / base.sum())
            found.append(math.hypot(self.off(level) / near, math.sqrt(1 / 12)) if near > 0 else math.inf)
        return found

    def interval(self, level: float, confidence: float, least: float = 0.0) -> tuple[int, int]:
        """The first and the last place where a quantile may be.

        Args:
            level: the part of the records that lie below.
            confidence: with which it lies between them.
            least: how many standard deviations noise is taken to reach at least.
        """
        return self._hull(
            level, self._farthest(level, confidence, least), _Reaches(self, level, confidence, least).__getitem__
        )

    def window(self, level: float, deviations: float) -> tuple[int, int]:
        """The same of noise that reaches so many standard deviations."""
        reaches = deviations * self.errors(level)
        return self._hull(level, reaches, reaches.__getitem__)

    def _hull(self, level: float, farthest: FloatArray, reach: Callable[[int], float]) -> tuple[int, int]:
        """From the first to the last range that a quantile may lie in; ends where the number of records is off by more
        than the farthest are not looked at.
        """
        over, last = self.below - level * self.total, len(self.below) - 1
        enough, begun = over + farthest >= 0, over - farthest <= 0
        # None are below the first end, and all below the last one.
        enough[last] = begun[0] = True
        known: dict[int, float] = {}

        def may(place: int) -> bool:
            """Whether it may lie in the range in front of an end."""
            for end in (place - 1, place):
                if end not in known:
                    known[end] = reach(end)
            return (place == last or over[place] + known[place] >= 0) and (
                place == 1 or over[place - 1] - known[place - 1] <= 0
            )

        near = (1 + np.flatnonzero(enough[1:] & begun[:-1])).tolist()
        first, final = next(filter(may, near), None), next(filter(may, reversed(near)), None)
        if first is None or final is None:
            # Noise farther than it reaches: what is nearest.
            first = final = int(np.clip(np.argmax(np.maximum.accumulate(over) >= 0), 1, last))
        return int(self.ends[first - 1]), int(self.ends[final]) - 1

    def is_empty(self, confidence: float, least: float = 0.0) -> bool:
        """Whether there may be no records."""
        return self.total <= _Reaches(self, 0.0, confidence, least)[len(self.ends) - 1]

    def ended(self, end: int, total: float) -> Distribution:
        """The same with one more end, below which there are all records, of which the number is known exactly."""
        shares = self.shares
        return Distribution(
            ends=np.append(self.ends, end),
            below=np.append(self.below, total),
            covariance=np.pad(self.covariance, (0, 1)),
            shares=None if shares is None else np.pad(shares, ((0, 1), (0, 0))),
            noises=self.noises,
        )

    def weights(self, level: float) -> list[FloatArray]:
        """Of each noise the weights that it has in the numbers below, less a part of the total: a row an end."""
        assert self.shares is not None
        found = self.shares - level * self.shares[-1]
        largest = np.abs(found).max(axis=1, keepdims=True)
        unit = np.where(largest > 0, largest * _TOLD, 1.0)
        parts = np.cumsum([len(summed.counts) for summed in self.noises])
        return np.split(np.rint(found / unit) * unit, parts[:-1], axis=1)

    def _farthest(self, level: float, confidence: float, least: float) -> FloatArray:
        """The distance that no noise exceeds with the probability, at any end.

        With b the largest scale of weighed Laplace noise, and P the sum of squares of all scales (twice those of
        Laplace noise), the logarithm of the moment-generating function at u is ``P u^2/2 / (1 - b u)`` at most, so that
        nothing is beyond ``b L + sqrt(2 P L)``, L the logarithm of two over what may be missed.
        """
        errors = self.errors(level)
        if self.shares is None:
            return errors * max(normal_quantile(confidence), least)
        logarithm = math.log(2 / (1 - confidence))
        squares, longest = np.zeros(len(errors)), np.zeros(len(errors))
        for summed, weights in zip(self.noises, self.weights(level), strict=True):
            own, laplace = np.abs(weights), summed.noise.kind == "laplace"
            squares += np.square(own) @ summed.counts * (summed.scale**2 * (2 if laplace else 1))
            if laplace:
                longest = np.maximum(longest, own.max(axis=1, initial=0.0) * summed.scale)
        # A little more than what rounding of weights and counts may add.
        return np.maximum(1.001 * (longest * logarithm + np.sqrt(2 * squares * logarithm)), least * errors)


class _Reaches:
    """How far the noise of the number of records below each end, less a part of the total, reaches.

    Args:
        of: the distribution.
        level: the part.
        confidence: of both sides together.
        least: how many standard deviations it is at least.
    """

    def __init__(self, of: Distribution, level: float, confidence: float, least: float) -> None:
        self._confidence, self._noises = confidence, of.noises
        self._errors, self._least = of.errors(level), least
        self._weights = None if of.shares is None else of.weights(level)

    def __getitem__(self, end: int) -> float:
        least = float(self._least * self._errors[end])
        if self._weights is None:
            return max(least, float(self._errors[end]) * normal_quantile(self._confidence))
        terms = [summed.term(weights[end]) for summed, weights in zip(self._noises, self._weights, strict=True)]
        return max(least, reach(terms, self._confidence) * (1 + 2 * _TOLD))


def counted_off(errors: FloatArray, gaps: FloatArray, total: float) -> FloatArray:
    """By how many records the number below a quantile is off that was counted: by the noise at an end, and by how
    unevenly records lie between that and the quantile; the end that tells best counts.

    Args:
        errors: the deviations of the noise at the ends.
        gaps: how many records lie between each and the quantile, an end a column; a row for each place that it may be.
        total: how many there are.
    """
    return np.asarray(np.hypot(errors, _UNEVEN * gaps).min(axis=-1, initial=_UNEVEN * total))


def _crossed(parts: FloatArray, level: float, ends: IntArray, base: FloatArray) -> int:
    """The place where parts of the records below some ends come up to a level; between two ends records are spread as
    the base says."""
    rising = np.maximum.accumulate(parts)
    falling = np.minimum.accumulate(parts[::-1])[::-1]
    below = (rising + falling) / 2
    after = int(np.clip(np.searchsorted(below, level), 1, len(below) - 1))
    first, stop = int(ends[after - 1]), int(ends[after])
    inside = below[after] - below[after - 1]
    part = (level - below[after - 1]) / inside if inside > 0 else 0.5
    spread = np.cumsum(base[first:stop])
    return first + min(int(np.searchsorted(spread, part * spread[-1])), stop - first - 1)


def distributions(
    measured: Sequence[Ranges], places: int, total: float | None, base: FloatArray
) -> Iterator[Distribution]:
    """The distribution of each group, from measurements: one at a time, as the covariances of many are large.

    Args:
        measured: all of the same groups.
        places: how many numbers there are.
        total: the number of records of a single group where that is known exactly.
        base: how records may be spread, by which ends are chosen where there are too many.
    """
    ends = np.unique(np.concatenate([m.ends for m in measured]))
    if len(ends) > MOST_RANGES:
        ends = _chosen(ends, base, measured)
        measured = [m for m in (m.onto(ends) for m in measured) if m is not None]
    design = np.concatenate([_design(m, ends) for m in measured])
    for group in range(len(measured[0].values)):
        values = np.concatenate([m.values[group] for m in measured])
        variances = np.concatenate([m.variances[group] for m in measured])
        noises = tuple(m.summed(group) for m in measured)
        if total is None:
            found = _solved(design, values, variances, ends, noises)
        else:
            # What is not in the other ranges is in the last one.
            rest, last = design[:, :-1] - design[:, -1:], design[:, -1] * total
            found = _solved(rest, values - last, variances, ends[:-1], noises).ended(int(ends[-1]), total)
        drawn = [each for m in measured if m.drawn is not None for each in m.drawn.of(group)]
        yield replace(found, drawn=tuple(drawn)) if drawn else found


def _chosen(ends: IntArray, base: FloatArray, measured: Sequence[Ranges]) -> IntArray:
    """Some of many ends, with about as many records between any two, and all ends of the last sums that have weights:
    up to half of what are told apart."""
    firm = ends[-1:]
    for sums in (m for m in reversed(measured) if m.weights is not None):
        more = np.union1d(firm, sums.ends)
        firm = more if len(more) <= MOST_RANGES // 2 else firm
    spread = np.cumsum(base)[ends - 1]
    wanted = np.linspace(0, spread[-1], MOST_RANGES - len(firm) + 2)[1:]
    return np.union1d(firm, ends[np.minimum(np.searchsorted(spread, wanted), len(ends) - 1)])


def _design(measured: Ranges, ends: IntArray) -> FloatArray:
    """What each value weighs elementary ranges by."""
    sums = _sums(measured.ends, ends)
    return sums if measured.weights is None else measured.weights @ sums


def _sums(own: IntArray, ends: IntArray) -> FloatArray:
    """Which elementary ranges each of some ranges is made of."""
    place: Array = np.searchsorted(own, ends)
    return np.asarray(place[None, :] == np.arange(len(own))[:, None], dtype=np.float64)


def _solved(
    design: FloatArray, values: FloatArray, variances: FloatArray, ends: IntArray, noises: tuple[Summed, ...]
) -> Distribution:
    """The numbers of records below those ends that are determined."""
    scales, lower = np.sqrt(variances), np.tril(np.ones((len(ends), len(ends))))
    # By singular values, which see a weak measurement beside a precise one: squared, they would not.
    rows, strengths, directions = np.linalg.svd(design / scales[:, None], full_matrices=len(design) < len(ends))
    known = np.zeros(len(directions), dtype=bool)
    known[: len(strengths)] = strengths > _UNKNOWN * strengths.max(initial=0.0)
    kept = known[: len(strengths)]
    steps = lower @ (directions[known].T / strengths[kept])
    # A number below is determined where none of what is unknown has a part in it.
    sure = np.abs(lower @ directions[~known].T).max(axis=1, initial=0.0) < 1e-6
    shares = steps[sure] @ rows[:, : len(strengths)].T[kept] / scales
    nothing = np.zeros((1, int(sure.sum())))
    return Distribution(
        ends=np.append(0, ends[sure]),
        below=np.append(0.0, shares @ values),
        covariance=np.block([[np.zeros((1, 1)), nothing], [nothing.T, steps[sure] @ steps[sure].T]]),
        shares=np.vstack([np.zeros((1, len(values))), shares]),
        noises=noises,
    )
