"""Quantiles of numbers that records have, from counts of ranges.

Ranges are cut where what is known leaves the quantiles (:mod:`app.estimation.tables.quantiles`). The interval of a
quantile holds all values below which there may be that part of the records.

The noise of many ranges adds up in the number of records below a place. What is measured may be rows of whole weights
on them, the same for each group, that are chosen for these numbers (:mod:`app.measurements.least_error`): for the part
of the records that lies below each end less the part that should, weighed by how likely the quantile is to lie there,
and for the number of all.
"""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import LinAlgError

from app.estimation.intervals import Estimates
from app.estimation.tables.quantiles import SAME, Distribution, Ranges, counted_off, distributions, ranges_of
from app.estimation.tables.residuals import Unbiased, own_values
from app.estimation.tables.spread import ANYHOW, AS_ALL, Expected
from app.estimation.tails import normal_quantile
from app.measurements.least_error import least_error, rounded
from app.measurements.noise import Noise
from app.measurements.noise_search import rounded_up
from app.measurements.pieces import Combination, Counts
from app.measurements.rows import Rows
from app.measurements.strategies.drawn import (
    LEVEL_DIGITS,
    MOST_DRAWS,
    MOST_MARKS,
    MOST_RANGES,
    UNIT,
    DrawnQuantiles,
    most_blocks,
)
from app.measurements.strategies.tables import Draws, Part, TableStrategy
from app.policies.kinds import ALIKE, Ends, Kind, moment_of
from app.policies.table import Wanted
from app.spaces.partition import Marginal, Partition
from app.spaces.queries.statistic import CompiledStatistic, StatisticOfNumbers
from app.spaces.questions import Cells, Groups
from app.spaces.tensor import FloatArray, IntArray

#: What is measured for a quantile has at most so many cells in all.
MOST_CELLS = 1 << 15
#: How far quantiles of groups are taken to be from those of all, as a part of the records.
_APART = 0.06
#: Ranges are cut as fine as so many deviations of noise at least where a quantile may be, within so many deviations,
#: and each by this much coarser than the one before beyond; how many there are at least and at most.
_RANGE, _WINDOW, _COARSER, _LEAST_RANGES, _MOST_RANGES = 2.0, 1.5, 2.2, 3, 32
#: By how much larger than what a purchase alone would leave a square may be that is as good: what would be left is told
#: roughly, and what is bought to know a little more is missed by later questions.
_AS_WELL = 1.5
#: Where ranges are cut for several quantiles, how many deviations lie at least between the ends for two of them.
_BETWEEN = 4.0
#: Far more ranges on one side than are ever measured.
_FINEST = 1_024
#: How many ranges there are at most where nobody knows where the quantiles of all records may be, and how many numbers
#: each has at least: numbers that are told one by one tell sums as well, which are then not bought though they would be
#: known better; amounts crowd in ranges of so many. And how many records each group is taken to have where nobody
#: knows.
_MOST_ANYWHERE, _LEAST_NUMBERS, _ASSUMED = 64, 10, 1_000.0
#: The part of the records of a cell that are taken to lie evenly in the logarithm of their distance from zero.
_CROWDED = 0.5
#: How unevenly records are taken to lie within a range, four times squared.
_UNEVEN = 0.25
#: Rows are over so many cells at most, as evidence of them takes a matrix of cells by cells, and over so many ranges;
#: how much the number of all records weighs beside those below the ends; and by what part of a variance rows serve
#: better than counts at least where they are taken.
_MOST_ROW_CELLS, _MOST_FINE, OF_ALL, _BETTER = 512, 64, 0.02, 0.3
#: They are for groups of so many deviations of noise in records or more, but for those that have hardly any.
_LARGE, _NONE = 12.0, 2.0
#: The part of the price that draws; how many times as far off the number below a quantile must be by counts alone as by
#: a draw, on average over groups; how many scales there must be between the quantile of the smallest group and the ends
#: of the range, for each logarithm of the numbers that may be drawn there; the width of the first range on either side
#: of what was drawn beside what noise hides; and by how much more than evenly records may crowd in one range of many
#: numbers where nobody knows how they are spread. And how many times as far off counts must be where they serve no
#: later question, of one level: several share what draws, and count more ranges around.
DRAWN_PART, WORTH_DRAWING, TAILS, _FINE, _CROWDED_IN, WORTH_AT_LAST = 0.7, 3.0, 4.0, 0.5, 3.0, 2.0


@dataclass(frozen=True)
class Place:
    """Where a quantile may be.

    Attributes:
        level: the part of the records below it.
        middle: about how many lie below it, as a part of the records of all groups.
        spread: how far off that may be.
        hidden: what noise hides, as such a part.
    """

    level: float
    middle: float
    spread: float
    hidden: float


@dataclass(frozen=True, eq=False)
class _Drawn:
    """A draw, and its scale in records."""

    wanted: Wanted
    scale: float


@dataclass(frozen=True, eq=False)
class _Counted:
    """What counts the records of each group in ranges.

    Attributes:
        wanted: the purchase.
        below: the part of the records up to each end, as all are spread.
        covariance: of what it tells of the ranges by itself.
    """

    wanted: Wanted
    below: FloatArray
    covariance: FloatArray

    def errors(self, level: float) -> FloatArray:
        """Deviations of the numbers of records up to each end but the last, less a part of all."""
        rows = np.tri(len(self.below) - 1, len(self.below)) - level
        return np.asarray(np.sqrt(np.einsum("ij,jk,ik->i", rows, self.covariance, rows)))


_Bought = _Drawn | _Counted


class Quantile(Kind[StatisticOfNumbers]):
    """Quantiles, one or several of each group."""

    @staticmethod
    def largest(query: CompiledStatistic) -> int:
        # As were its numbers summed.
        return moment_of(query, 1).largest

    def decide(self, left: float, within: float | None, confidence: float, slack: float) -> Wanted | None:
        share = self.policy.share(self.asked.question, left)
        return None if share <= 0 else self._decide_ranges(share, confidence, 1 + slack)

    def shown(self, confidence: float, adaptive: bool, given: FloatArray | None) -> Estimates:
        least = self.chosen_quantile(confidence) if adaptive else 0.0
        return self._shown(confidence, least, given)

    def possible(self, total: float | None) -> tuple[Ends, Ends]:
        least, most = self.extremes
        return np.repeat(least, len(self.asked.levels)), np.repeat(most, len(self.asked.levels))

    def errors(self) -> FloatArray:
        known, base = self._distributions(), self._base()
        found, expected = self._modelled(base) if known is None else known, self._expected(base)
        errors = [own.errors_of(self.asked.levels, expected) for own in found]
        return self.asked.step * np.array(errors).reshape(-1)

    def _decide_ranges(self, share: float, confidence: float, slack: float) -> Wanted | None:
        """Counts of ranges where quantiles may lie, each of about as many records as noise hides; None where quantiles
        are known as well as these would tell them."""
        noise, one = self._noise(share)
        if noise is None:
            return None
        deviation = math.sqrt(noise.variance) / one
        known, base, count = self._distributions(), self._base(), np.maximum(self.best_count(), 1.0)
        within, most, before = np.cumsum(base), _MOST_RANGES, None
        if known is None:
            places, most = self._anywhere(deviation, count)
        else:
            places, before = self._places(known, within, count, deviation, confidence)
        bought = self._bought(share, noise, count, base, places, self._cut(places, within, most))
        return None if before is not None and self._as_good(slack * before, bought, count, places) else bought.wanted

    def _anywhere(self, deviation: float, count: FloatArray) -> tuple[list[Place], int]:
        """Where quantiles may be that nothing was measured of, and in how many ranges they are looked for at most.

        Args:
            deviation: of the noise of each range, in records.
            count: how many records the groups have.
        """
        # Nobody knows how groups differ: they are cut alike, around the quantiles of all.
        spread, hidden, most = _APART, deviation / float(np.median(count)), _MOST_RANGES
        if not self.policy.fits.tells_apart(self.asked.axis, self.asked.places):
            # Nor where those of all are: anywhere.
            spread = 1.0
            if len(count) == 1:
                # Of groups the small ones err most, and the more the more ranges are summed.
                most = max(most, min(_MOST_ANYWHERE, self.asked.places // _LEAST_NUMBERS))
        if not self.counts.begun:
            hidden = deviation / _ASSUMED
        return [Place(level, level, spread, hidden) for level in self.asked.levels], most

    def _places(
        self, known: Iterable[Distribution], within: FloatArray, count: FloatArray, deviation: float, confidence: float
    ) -> tuple[list[Place], FloatArray]:
        """Where quantiles may be by what was measured, level by level of each group, and how far off the number below
        each is, as a part of its group's records: nothing where it is one number for certain."""
        places: list[Place] = []
        off: list[float] = []
        for own, records in zip(known, count.tolist(), strict=True):
            for level in self.asked.levels:
                low, high = own.window(level, _WINDOW)
                start, stop = _before(within, low), float(within[high])
                places.append(Place(level, (start + stop) / 2, (stop - start) / 2, deviation / records))
                certain = low == high and len({*own.interval(level, confidence)}) == 1
                # Of a group that seems to have nobody no more is known than of one that nothing was measured of.
                part = own.off(level) / records if own.total > 0 else _UNEVEN
                off.append(0.0 if certain else min(part, _UNEVEN))
        return places, np.array(off)

    def _bought(
        self,
        share: float,
        noise: Noise,
        count: FloatArray,
        base: FloatArray,
        places: Sequence[Place],
        ranges: Partition,
    ) -> _Bought:
        """What serves best of what a share pays for: a draw, rows over ranges, or counts of these.

        Args:
            share: what is paid.
            noise: that it pays for.
            count: how many records the groups have.
            base: how they are spread, of all groups.
            places: where quantiles may be.
            ranges: around these.
        """
        within = np.cumsum(base)
        drawn = self._draw(share, count, base, self._off(places, ranges, within))
        if drawn is not None:
            return drawn
        deviation = math.sqrt(noise.variance) / self._noise(share)[1]
        large = (count >= _LARGE * deviation) | (count <= _NONE * deviation)
        rows = None
        if not self.policy.pure and bool(large.all()):
            allowed = (1 - _BETTER) * noise.variance * float(np.trace(_needed(places, _below(ranges, within))))
            rows = self._rows(places, within, share, allowed)
        if rows is not None:
            return rows
        below = _below(ranges, within)
        return _Counted(self._wanted(self._marginal(ranges), noise), below, deviation**2 * np.eye(len(below)))

    def _as_good(self, before: FloatArray, bought: _Bought, count: FloatArray, places: Sequence[Place]) -> bool:
        """Whether quantiles are known about as well as a purchase alone would tell them.

        With one that tells as much as is known both together are off by half as much in squares; it must bring more,
        in the geometric mean. Nothing is told finer than a number.

        Args:
            before: how far off the number below each is, as a part of its group's records.
            bought: the purchase.
            count: how many records the groups have.
            places: where quantiles may be.
        """
        levels = len(self.asked.levels)
        if isinstance(bought, _Drawn):
            after = np.repeat(math.sqrt(2) * bought.scale / count, levels)
        else:
            after = np.array([self._counted(bought, place, count[k // levels]) for k, place in enumerate(places)])
        rounding = 1 / (self.asked.places * math.sqrt(12))
        better = np.square(np.hypot(before, rounding) / np.hypot(after, rounding)) / _AS_WELL
        return float(np.log1p(better).mean()) <= math.log(2)

    def _counted(self, bought: _Counted, place: Place, records: float) -> float:
        """How far off the number below a quantile would be by what was counted alone, as a part of its group's records:
        root mean square over where it may be."""
        gaps = bought.below[:-1] - _likely(place)[:, None]
        off = counted_off(bought.errors(place.level), records * gaps, records)
        return math.sqrt(float(np.square(off).mean())) / records

    def _off(self, places: Sequence[Place], ranges: Partition, within: FloatArray) -> FloatArray:
        """How far off the number below each quantile would be that is read from counts of ranges, as a part of the
        records: by the noise of those on one side, and by how unevenly records lie within a range of several numbers.
        """
        below, ends = _below(ranges, within), np.append(np.flatnonzero(np.diff(ranges.labels)), self.asked.places - 1)
        numbers = np.diff(ends, prepend=-1)
        masses = np.where(numbers > 1, np.diff(below, prepend=0.0), 0.0)
        if not self.policy.fits.tells_apart(self.asked.axis, self.asked.places):
            # Amounts crowd, and hardly numbers of which a range has few, as ages.
            masses[numbers >= _LEAST_NUMBERS] *= _CROWDED_IN
        off = []
        for place in places:
            inside = masses[np.searchsorted(below[:-1], _likely(place))]
            before = int(np.searchsorted(below[:-1], place.middle))
            noise = place.hidden * math.sqrt(min(before + 1, len(below) - before))
            off.append(math.hypot(noise, _UNEVEN * math.sqrt(float(np.square(inside).mean()))))
        return np.array(off)

    def _draw(self, share: float, count: FloatArray, base: FloatArray, off: FloatArray) -> _Drawn | None:
        """A quantile that is drawn, with counts of ranges around it; None where counts alone serve better.

        Args:
            share: what is paid.
            count: how many records the groups have.
            base: how they are spread, of all groups.
            off: how far off the number below it is by counts alone, as a part of the records.
        """
        axis, places, unit = self.asked.axis, self.asked.places, 10**LEVEL_DIGITS
        levels = tuple(round(level * unit) for level in self.asked.levels)
        if places < 2 or self._tells_numbers:
            return None
        told = zip(levels, self.asked.levels, strict=True)
        if len({*levels}) < len(levels) or any(abs(level / unit - asked) > SAME for level, asked in told):
            return None
        # What divides the numbers does not matter: they are all alike.
        halves = self._marginal(Partition.runs(places, [0, places // 2]))
        groups = halves.onto(frozenset(halves.attributes) - {axis})
        answers = _grouped(self.asked, halves).take(0, halves.attributes.index(axis)).reshape(-1)
        cells = np.bincount(answers[answers >= 0], minlength=int(self.asked.groups.max()) + 1)[self.asked.groups]
        if groups.cells * len(levels) > MOST_DRAWS or (cells != 1).any():
            # A draw of a part of the records asked for says nothing of all of them.
            return None
        noise, scale = self._shared(share, [max(level, unit - level) / unit for level in levels])
        if not self.counts.begun:
            count = np.full(len(count), _ASSUMED)
        off = off.reshape(-1, len(levels)) * count[:, None]
        # Either is rounded to a number, by about as many records as that has.
        rounding = count[:, None] / (places * math.sqrt(12))
        gained = np.log(np.hypot(off, rounding) / np.hypot(math.sqrt(2) * scale, rounding)).mean()
        least = min(min(level, unit - level) for level in levels) / unit
        tails = count.min() * least / (scale * math.log(places))
        worth = WORTH_AT_LAST if self.policy.last and len(levels) == 1 else WORTH_DRAWING
        if noise is None or gained < math.log(worth) or tails < TAILS:
            return None
        parts = np.arange(1, MOST_MARKS) / MOST_MARKS
        marks = np.unique(np.concatenate([[0, places], np.searchsorted(np.cumsum(base), parts)])).tolist()
        blocks, whole = most_blocks(marks, groups.cells, len(levels)), (len(marks) - 1) * UNIT
        if not blocks:
            return None
        spread = math.sqrt(noise.variance) + math.sqrt(2) * scale
        steps = np.clip(np.rint(_FINE * spread * whole / count), 1, whole).astype(np.int64)
        own = dict(zip(self.asked.groups.tolist(), steps.tolist(), strict=True))
        strategy = DrawnQuantiles.of_groups(
            groups,
            axis,
            self.counts.sizes[axis],
            tuple(marks),
            blocks,
            places=places,
            levels=levels,
            scale=rounded_up(scale),
            near=tuple(own.get(answer) for answer in answers.tolist()),
            most=min(_MOST_RANGES * len(levels), MOST_RANGES),
        )
        return _Drawn(Wanted(strategy, noise), float(strategy.scale))

    def _shared(self, share: float, farthest: Sequence[float]) -> tuple[Noise | None, float]:
        """The noise of counts and the scale of draws, in records, that a share pays for.

        Args:
            share: in the session's currency.
            farthest: of each level, what a record moves a score by at most.
        """
        paid, funds = DRAWN_PART * share, self.policy.funds
        moved = 2 * funds.gamma * np.array(farthest)
        scale = float(moved.sum()) / paid
        if not self.policy.pure:
            scale = min(scale, math.sqrt(float(np.square(moved).sum()) * funds.order / (8 * paid)))
        return self.policy.noise(share - paid), scale

    def _noise(self, share: float) -> tuple[Noise | None, float]:
        """The noise of each range that a share pays for, and what a record is among what is counted."""
        return self.policy.noise(share), 1.0

    def _wanted(self, marginal: Marginal, noise: Noise) -> Wanted:
        return Wanted.of(marginal, noise)

    def _rows(self, places: Sequence[Place], within: FloatArray, share: float, allowed: float) -> _Counted | None:
        """Rows over ranges, the same for each group, that serve better than counts of ranges; None where none do.

        Args:
            places: where quantiles may be.
            within: the part of the records up to each place.
            share: what is paid.
            allowed: the variance that the numbers below the ends may have.
        """
        # Their noise does not add up as that of counts does.
        partition = self._cut(places, within, _MOST_FINE, 0.0)
        marginal = self._marginal(partition)
        if self._tells_numbers or not 2 < marginal.cells <= _MOST_ROW_CELLS:
            return None
        gram = _needed(places, _below(partition, within))
        try:
            matrix = rounded(least_error(gram + OF_ALL))
            covariance = np.asarray(np.linalg.inv(matrix.T @ matrix), np.float64)
        except LinAlgError:
            # Where LAPACK gives up, ranges serve.
            return None
        axis = marginal.attributes.index(self.asked.axis)
        if marginal.shape[axis] > partition.cells:
            # Who has no number moves no other row, and this one by as much as others move theirs.
            matrix = np.pad(matrix, (0, 1))
            matrix[-1, -1] = math.floor(math.sqrt(np.square(matrix).sum(axis=0).max()))
        strategy = TableStrategy((Part(marginal, rows=Rows.along(matrix, marginal.shape, axis)),))
        noise = self.policy.noise(share, strategy.sensitivity)
        if noise is None or noise.variance * float((covariance * gram).sum()) > allowed:
            return None
        return _Counted(Wanted(strategy, noise), _below(partition, within), noise.variance * covariance)

    @property
    def _tells_numbers(self) -> bool:
        """Whether it is of some numbers alone, and not of all that records have."""
        question, axis = self.asked.question, self.asked.axis
        if axis not in question.attributes:
            return False
        own = question.partitions[question.attributes.index(axis)]
        return bool(own.labels[: self.asked.places].any())

    def _cut(self, places: Sequence[Place], within: FloatArray, most: int, between: float = _BETWEEN) -> Partition:
        """The ranges around some places, no more than so many, nor than are measured at once."""
        ends = _around(within, places, between)
        inner = np.unique(ends[(ends > 0) & (ends < self.asked.places)])
        most = max(_LEAST_RANGES, min(most, MOST_CELLS // max(1, self.asked.question.cells)))
        if len(inner) >= most:
            inner = inner[np.linspace(0, len(inner) - 1, most - 1).round().astype(np.int64)]
        if not len(inner):
            inner = np.array([self.asked.places // 2])
        return Partition.of(np.searchsorted(inner, np.arange(self.asked.places), side="right"))

    def _base(self) -> FloatArray:
        """How the records of all groups together are spread over the numbers, as one-way counts tell it.

        Amounts crowd near zero, most of all where their bounds were declared to be safe: where nothing tells records
        apart half of them are taken to lie evenly, and half evenly in the logarithm of their distance from zero.
        """
        parts = np.maximum(self.policy.fits.shares(self.asked.axis)[: self.asked.places], 1e-12)
        begins = np.append(True, np.diff(parts) != 0)
        declared = self.counts.starting.get(self.asked.axis)
        if declared is not None:
            begins[1:] |= np.diff(declared.labels[: self.asked.places]) != 0
        zero = round(-self.asked.low / self.asked.step)
        crowded = 1 / (1.0 + np.abs(np.arange(self.asked.places) - zero))
        starts, cells = np.flatnonzero(begins), np.cumsum(begins) - 1
        crowded *= (np.add.reduceat(parts, starts) / np.add.reduceat(crowded, starts))[cells]
        parts = (1 - _CROWDED) * parts + _CROWDED * crowded
        return np.asarray(parts / parts.sum())

    def _expected(self, base: FloatArray) -> Expected:
        """How records are expected to be spread: of a part as all are, and all as nobody knows."""
        is_part = bool({*self.asked.question.attributes} - {self.asked.axis})
        return Expected(base, AS_ALL if is_part else ANYHOW, self._everybody())

    def _everybody(self) -> float:
        """About how many records there are in all; 0 where nothing tells, so that all that noise hides is doubted."""
        return float(np.nan_to_num(self.counts.total.values))

    def _marginal(self, partition: Partition) -> Marginal:
        """The groups, and the cells of a partition of the numbers within each; no number is a cell by itself."""
        sizes, question = self.counts.sizes, self.asked.question
        labels = np.full(sizes[self.asked.axis], partition.cells)
        labels[: self.asked.places] = partition.labels
        cells: dict[int, Partition | None] = dict(zip(question.attributes, question.partitions, strict=True))
        own, fine = cells.get(self.asked.axis), Partition.of(labels)
        cells[self.asked.axis] = fine if own is None else own.met(fine)
        return Marginal.of(sizes, cells)

    def _distributions(self) -> Iterator[Distribution] | None:
        """The measured distribution of each group over the numbers; None where nothing was measured."""
        measured = []
        for measurement in self._measurements:
            other = measurement.marginal
            if self.asked.axis in other.attributes and set(self.asked.question.attributes) <= set(other.attributes):
                fine = other.partition(other.attributes.index(self.asked.axis))
                if isinstance(measurement, Combination):
                    found = self._sums(fine, measurement)
                else:
                    found = self._ranges(fine, measurement)
                if found is not None:
                    measured.append(found)
        if not measured:
            return None
        everything = not self.asked.question.attributes and self.counts.sizes[self.asked.axis] == self.asked.places
        total = self._total if everything else None
        return distributions(measured, self.asked.places, total, self._base())

    @property
    def _measurements(self) -> Sequence[Counts | Combination]:
        """What was measured that ranges may be told by."""
        return [*self.counts.measurements, *self.counts.combinations]

    @property
    def _total(self) -> float | None:
        """All that is counted, where it is public."""
        return self.counts.public_total

    def _told(self, marginal: Marginal, measurement: Counts) -> tuple[Unbiased | None, float]:
        """What a measurement tells of the cells of a marginal, and what divides the noise that this is a sum of."""
        return own_values(Cells(marginal), measurement), measurement.multiplier

    def _ranges(self, fine: Partition, measurement: Counts) -> Ranges | None:
        """The counts of the groups that a measurement tells, in the ranges that it divides the numbers into; None if
        nothing.
        """
        question = self.asked.question
        ends = ranges_of(fine, self.asked.places)
        if ends is None or len(ends) < 2:
            return None
        if self.asked.axis in question.attributes:
            own = question.partitions[question.attributes.index(self.asked.axis)]
            if not fine.refines(own):
                return None
        partition = Partition.of(np.searchsorted(ends, np.arange(self.asked.places), side="right"))
        marginal = self._marginal(partition)
        if self.asked.axis not in marginal.attributes:
            return None
        found, multiplier = self._told(marginal, measurement)
        if found is None or not found.estimable.all():
            return None
        axis = marginal.attributes.index(self.asked.axis)
        # Each cell's range of numbers, and the cell of the question that it lies in.
        within = np.minimum(marginal.partition(axis).members, self.asked.places)
        labels = np.append(partition.labels, -1)[within]
        groups = _grouped(self.asked, marginal)
        values, variances = _rows(self.asked, groups, labels, axis, found.values, found.variances)
        drawn = None if measurement.draws is None else self._drawn_of(measurement.marginal, measurement.draws)
        return Ranges(ends, values, variances, measurement.noise, multiplier, drawn=drawn)

    def _drawn_of(self, marginal: Marginal, draws: Draws) -> Draws | None:
        """What was drawn for the groups that are asked for; None where it was for others."""
        axis, groups = self.asked.axis, self.asked.question.attributes
        if self._tells_numbers or {*groups, axis} != set(marginal.attributes):
            return None
        axis = marginal.attributes.index(axis)
        places = np.full((len(self.asked.groups), len(draws.levels)), -1)
        answers = _grouped(self.asked, marginal).take(0, axis).reshape(-1)
        for place, group in enumerate(self.asked.groups):
            own = np.flatnonzero(answers == group)
            if len(own) == 1:
                places[place] = draws.places[own[0]]
        return replace(draws, places=places) if bool((places >= 0).any()) else None

    def _sums(self, fine: Partition, measurement: Combination) -> Ranges | None:
        """The rows over ranges that a measurement tells of the groups, if they are the same for each; None if not."""
        question, places = self.asked.question, self.asked.places
        axis = measurement.marginal.attributes.index(self.asked.axis)
        ends, found = ranges_of(fine, places), measurement.along(axis)
        if ends is None or found is None or self._tells_numbers:
            return None
        matrix, values = found
        # Who has no number is in other cells, and rows that count them are left out.
        if len(ends) < 2 or int(fine.labels[places:].min(initial=fine.cells)) < len(ends):
            return None
        kept = ~matrix[:, len(ends) :].any(axis=1)
        marginal = measurement.marginal.onto(frozenset({*question.attributes, self.asked.axis}))
        told = [marginal.partition(marginal.attributes.index(a)) for a in question.attributes]
        if not all(own.refines(question.partition(k)) for k, own in enumerate(told)):
            return None
        outside = tuple(k for k, a in enumerate(measurement.marginal.attributes) if a not in marginal.attributes)
        summed = values.sum(axis=outside)
        labels = np.where(kept, np.cumsum(kept) - 1, -1)
        variance = measurement.variance * (values.size // summed.size)
        axis = marginal.attributes.index(self.asked.axis)
        # Of all numbers alike.
        groups = _grouped(self.asked, marginal).take([0], axis)
        values, variances = _rows(self.asked, groups, labels, axis, summed, np.full(summed.shape, variance))
        weights = matrix[kept][:, : len(ends)].astype(np.float64)
        return Ranges(ends, values, variances, measurement.noise, measurement.multiplier, weights)

    def _shown(self, confidence: float, least: float, given: FloatArray | None) -> Estimates:
        """``least`` is how many standard deviations intervals reach at least."""
        known, base = self._distributions(), self._base()
        unbiased = known is not None
        if known is None:
            known = self._modelled(base)
        values, lows, highs = (np.zeros((len(self.asked.groups), len(self.asked.levels))) for _ in range(3))
        reachable, expected = np.stack(self.reachable, axis=1).tolist(), self._expected(base)
        for group, found in enumerate(known):
            first, last = reachable[group]
            if first == last:
                values[group] = lows[group] = highs[group] = first
                continue
            if found.is_empty(confidence, least):
                values[group] = lows[group] = highs[group] = math.nan
                continue
            told = found.quantiles(self.asked.levels, expected)
            for k, level in enumerate(self.asked.levels):
                low, high = (min(max(end, first), last) for end in found.interval(level, confidence, least))
                values[group, k] = min(max(told[k], low), high)
                lows[group, k], highs[group, k] = low, high
        shown_values, ends = self.asked.at(values).reshape(-1), []
        for bound in (lows, highs):
            ends.append(self.asked.at(bound).reshape(-1))
        shown = shown_values if given is None else given
        if given is not None:
            # What was told stays within its interval: all numbers where there may be nobody by now.
            least, most = self.asked.low, self.asked.high
            gone = ~np.isnan(given) & np.isnan(ends[0])
            ends = [np.fmin(np.where(gone, least, ends[0]), given), np.fmax(np.where(gone, most, ends[1]), given)]
        errors = np.maximum(shown - ends[0], ends[1] - shown) / max(normal_quantile(confidence), least)
        return Estimates(
            shown, errors, ends[0], ends[1], np.full(len(shown_values), unbiased), confidence, shown_values, errors
        )

    def _modelled(self, base: FloatArray) -> Iterator[Distribution]:
        """Groups whose numbers were never counted: like all records, within part of what they could differ by."""
        ends = np.unique(np.searchsorted(np.cumsum(base), np.arange(1, 64) / 64) + 1)
        ends = np.append(ends[ends < self.asked.places], self.asked.places)
        below = np.cumsum(base)[ends - 1]
        product = np.outer(below, below)
        spread = np.minimum.outer(below, below) - product
        for count, variance in zip(self.best_count(), self.count().count_variances, strict=True):
            own = max(float(count), 1.0)
            covariance = np.pad((ALIKE * own) ** 2 * spread + variance * product, (1, 0))
            yield Distribution(np.append(0, ends), np.append(0.0, own * below), covariance)


def _around(within: FloatArray, places: Sequence[Place], between: float = _BETWEEN) -> IntArray:
    """Places that divide numbers into ranges around where quantiles may be: fine as far as they may be off, coarser
    beyond.

    Args:
        within: the part of the records up to each place.
        places: where they may be.
        between: how many deviations lie at least between ends for two of them, where ranges are not shorter.
    """
    goals: list[tuple[float, float, float, float]] = []
    for place in places:
        # Fewer ranges have less noise in their sums, but tell less of where between their ends a quantile is.
        step = max(_RANGE, (place.spread / place.hidden / _UNEVEN) ** (1 / 3)) * place.hidden
        step = max(step, place.spread / _FINEST)
        least, reached = between * place.hidden, 0.0
        goals.append((step, reached, place.middle, min(least, step)))
        while reached < 1:
            reached += step
            goals += [(step, reached, place.middle + side * reached, min(least, step)) for side in (-1, 1)]
            if reached > place.spread:
                step *= _COARSER
    kept: list[float] = []
    # The finest come first: what another quantile needs nearly there they tell as well.
    for _, _, goal, gap in sorted(goals):
        at = bisect(kept, goal)
        # Those for one quantile are as far apart as they should be, but for rounding.
        if 0 < goal < 1 and all(abs(goal - other) > 0.99 * gap for other in kept[max(at - 1, 0) : at + 1]):
            kept.insert(at, goal)
    return np.searchsorted(within, np.array(kept))


def _likely(place: Place) -> FloatArray:
    """Where a quantile is likely to be, as parts of the records of all groups."""
    return place.middle + place.spread * np.linspace(-0.5, 0.5, 9)


def _before(within: FloatArray, place: int) -> float:
    """The part of the records before a place."""
    return float(within[place - 1]) if place else 0.0


def _below(ranges: Partition, within: FloatArray) -> FloatArray:
    """The part of the records up to each end of ranges."""
    return np.append(within[np.flatnonzero(np.diff(ranges.labels))], 1.0)


def _needed(places: Sequence[Place], below: FloatArray) -> FloatArray:
    """What is needed of the counts of ranges, as a matrix of squares: how many records there are below each end less
    the part that should be, weighed by how likely a quantile lies there.

    Args:
        places: where quantiles may be.
        below: the part of the records up to each end.
    """
    size, inner = len(below), below[:-1]
    near = np.diff(np.concatenate([[0.0], (inner[1:] + inner[:-1]) / 2, [1.0]])) if size > 2 else np.ones(1)
    weights: dict[float, FloatArray] = {}
    for place in places:
        likely = (near + 1e-9) / np.square(1 + np.square((inner - place.middle) / max(place.spread, 1e-9)))
        # What is known may be wrong: half of the weight is even.
        own = (likely / likely.sum() + 1 / len(inner)) / (2 * len(places))
        weights[place.level] = weights.get(place.level, 0.0) + own
    gram = np.zeros((size, size))
    for level, weight in weights.items():
        rows = np.tri(size - 1, size) - level
        gram += (rows * weight[:, None]).T @ rows
    return gram


def _grouped(asked: StatisticOfNumbers, marginal: Marginal) -> IntArray:
    """Of each cell of a marginal the place of the question's answer that it is counted in, -1 where in none; with one
    place along the numbers where it is not of some of these alone."""
    question, axis = asked.question, marginal.attributes.index(asked.axis)
    if isinstance(question, Cells | Groups):
        return _groups(question, marginal, axis)
    cells = [marginal.partition(marginal.attributes.index(a)) for a in question.attributes]
    groups = np.asarray(question.on(cells))  # type: ignore[attr-defined]
    if asked.axis not in question.attributes:
        groups = np.expand_dims(groups, axis)
    return np.where(groups != 0, 0, -1)


def _rows(
    asked: StatisticOfNumbers, groups: IntArray, labels: IntArray, axis: int, values: FloatArray, variances: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Values by cells of a marginal, or by rows along its numbers, and their variances: a row for each group that is
    asked for.

    The cells of a group are those of its own numbers: others, as where a condition is on the numbers, count nothing.

    Args:
        asked: the statistic.
        groups: the answer that each cell is counted in.
        labels: for each place along the numbers its column, -1 of those that are left out.
        axis: of the numbers.
        values: with a place along the numbers for each label.
        variances: of these.
    """
    groups = np.broadcast_to(groups, values.shape)
    place = {int(group): row for row, group in enumerate(asked.groups)}
    rows = np.array([place.get(int(g), -1) for g in range(int(groups.max()) + 1)] + [-1])[groups]
    columns = np.broadcast_to(labels.reshape([-1 if k == axis else 1 for k in range(values.ndim)]), groups.shape)
    kept = (rows >= 0) & (columns >= 0)
    shape = (len(asked.groups), int(labels.max()) + 1)
    flat = (rows * shape[1] + columns)[kept]
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
