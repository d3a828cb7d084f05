"""Local fits: the most plausible counts on the attributes of one question, from all that was ever measured.

The unbiased value of a question does not know that counts are not negative, nor that what was never measured is mostly
near a product of what was. A fit does. Every measurement is restricted to the attributes of the question, and among the
tables over these attributes that sum to the total n the one is taken that strikes a balance between two distances: how
far it is from what was measured, squared and divided by the variances, and the relative entropy to a base, which is the
product of the one-way marginals. The dual of that has a number theta for each measured value y of standard deviation
sigma; its least is where

    n ln Z(theta) - <theta, y> + (strength/2) sum of sigma^2 theta^2,   Z(theta) = sum over cells of base * exp(theta),

each cell's exponent being the sum of the theta of the values it is counted in. There a fitted count differs from what
was measured by ``strength * sigma^2 * theta``. The strength is one over the geometric mean of sigma over the restricted
measurements of two or more attributes: entropy is weighed by what measurements are worth.

Cells that neither measurements nor the question tell apart are one cell here, divided in the proportions of the base:
the work is that of what is known, not of how finely attributes are declared. A measurement of a single attribute does
not tell its values apart (but where they alone are asked for), since the base has taken it in.

Cells that are declared to hold no record (structural zeros) have no mass, in the base or in the fit, and zeros tell
values apart as measurements do. The base is then no product, but the nearest to it that has the same one-way marginals
without these cells (quasi-independence: Bishop, Fienberg, Holland, "Discrete Multivariate Analysis", 1975, chapter 5).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from scipy.sparse import csc_array

from app.estimation.tables.dual import Dual
from app.estimation.tables.posterior import MOST_ROWS, Posterior, incidence, sparse_bytes
from app.estimation.tables.residuals import Residuals, Unbiased
from app.estimation.tables.restrictions import Restriction, Values, Weighed, values_on, weighed_on
from app.measurements.pieces import Combination
from app.spaces.lazy import kept_of, lazy
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Cells, Groups, Nested, Question, Sum
from app.spaces.tensor import FloatArray, IntArray
from app.spaces.zeros import raked

#: How far the dual's gradient (fitted minus measured, plus strength * sigma^2 * theta) may end from zero: this part of
#: the sigma of each measured value, where float64 can tell.
TOLERANCE = 1e-6
#: The most cells of a fit, unless the question itself has more: beyond it cells are merged.
MOST_CELLS = 2500
#: A question that tells more cells apart is answered without a fit, which would take too long.
MOST_FITTED = 1 << 14
MOST_KNOWN = 16
#: What multiplies the strength for sums over more attributes than this, and for other questions.
FEW, MANY_WEIGHT, FEW_WEIGHT = 2, 1.0, 0.4
#: No cell of a one-way marginal counts less in a base.
LEAST_COUNT = 0.3
#: No fitted count is taken to be less when its prior variance is told.
LEAST_FITTED = 0.05
#: How many deviations it is from an even part of a cell to all of it, or none: less than 95% intervals reach, as the
#: cell's own count, once it is taken in, tells of each part a little.
_FARTHEST = 1.8
#: The prior variance of the count of a cell that holds nothing.
LEAST_PRIOR = 1e-9
#: How many sets of attributes are remembered with what is known on them, and how many numbers of fits (48 MiB).
MOST_SETS, MOST_NUMBERS = 256, 3 << 21
#: What a set of attributes takes beside, and a fit.
_PLACE_BYTES = 8 << 10
#: What a fit takes while it is made: for each pair of rows of its largest system (products of sparse matrices, the
#: system, its factor), for each row and answer, and for each cell and table.
_SYSTEM_BYTES, _COLUMN_BYTES, _CELL_BYTES = 40, 24, 64
#: Up to how many answers the mean square of standard errors is counted out, and with how many sums told beyond.
_COUNTED, _SIGNS = 64, 16


@dataclass(frozen=True, eq=False)
class Fit:
    """Fitted counts of the cells that were told apart, and how well they are known.

    Attributes:
        attributes: those of the question.
        partitions: for each the cells that were told apart.
        counts: fitted counts, one axis for each attribute; they sum to the total.
        known: what was fitted.
        strength: what multiplies the relative entropy to the base.
        total_variance: of the total the counts sum to; 0 where it is public.
        converged: whether the search met its tolerance; where not, this is the product of the one-way marginals.
        unsure: the variance, one a cell, that the base has by the noise of these marginals, and by how records may lie
            within the cells of those; None where it is of no account.
    """

    attributes: tuple[int, ...]
    partitions: tuple[Partition, ...]
    counts: FloatArray
    known: tuple[Values | Weighed, ...]
    strength: float
    total_variance: float
    converged: bool = True
    unsure: FloatArray | None = None

    def values(self, question: Question) -> FloatArray:
        """The answers of the fitted counts, in the shape of the question, which tells no more cells apart."""
        return question.of(self.counts, self.partitions)

    def standard_errors(self, question: Question) -> FloatArray:
        """Posterior standard deviations of the answers, in the shape of the question, which tells no more cells apart.

        By a Gaussian in place of the posterior: the measured values with their variances, the total where it is public,
        and cells that are independent before, with variance ``max(p/strength, (p/2)^2, u)`` for a fitted count p. (The
        second term: what no measurement tells apart is known to half of itself and no better. The third: where noise
        left nothing of a marginal's count there may be as many as it hides, and a part of it may be all of it.)
        """
        if not self.attributes:
            return np.asarray(np.abs(question.of(np.array(1.0), ())) * self.total_variance**0.5)
        if isinstance(question, Sum):
            weights = question.on(self.partitions).reshape(-1)
            return np.array(self._posterior.of_sum(weights) ** 0.5)
        if isinstance(question, Nested):
            return question.gathered(self.standard_errors(part) for part in question.parts)
        labels, answers, count = self._groups(question)
        return np.asarray(np.sqrt(self._posterior.of_groups(labels, count)))[answers]

    def standard_error(self, question: Question) -> float:
        """The root mean square of the standard errors.

        Over many answers it is told from the variances of sums with random signs, the same ones on all machines: within
        a tenth or so, as many answers share little.
        """
        count = math.prod(question.shape)
        if count <= _COUNTED or not self.known or question.additive:
            return float(np.sqrt(np.mean(np.square(self.standard_errors(question)))))
        labels, answers, groups = self._groups(question)
        signs = np.zeros((groups, _SIGNS))
        raw = np.random.Philox(key=1).random_raw(count * _SIGNS) & np.uint64(1)
        signs[answers.reshape(-1)] = (raw.astype(np.float64) * 2 - 1).reshape(count, _SIGNS)
        return float(np.sqrt(np.mean(self._posterior.of_sums(signs[labels])) / count))

    def _groups(self, question: Question) -> tuple[IntArray, IntArray, int]:
        """For each cell of the fit the group that the question tells apart, for each answer its group, and how many
        groups there are. Several answers are each the count of one group."""
        labels: IntArray = np.zeros((), dtype=np.int64)
        asked = question.partitions
        for own, partition in zip(asked, self.partitions, strict=True):
            labels = labels[..., None] * own.cells + own.over(partition).labels
        count = question.cells
        if isinstance(question, Groups):
            # What is counted in no answer is a group of its own.
            answers = math.prod(question.shape)
            numbers = np.where(question.answers < 0, answers, question.answers).reshape(-1)
            return numbers[labels.reshape(-1)], np.arange(answers).reshape(question.shape), answers + 1
        numbers = np.arange(float(count)).reshape([own.cells for own in asked])
        return labels.reshape(-1), question.of(numbers, asked).astype(np.int64), count

    @property
    def numbers(self) -> int:
        """About how many numbers it holds, those of the standard errors included."""
        values, cells = sum(len(k.values) for k in self.known), self.counts.size
        return cells * (3 + len(self.known)) + min(values, cells) ** 2

    @property
    def nbytes(self) -> int:
        """The bytes that it takes now."""
        told = sum(
            each.values.nbytes
            + each.variances.nbytes
            + (each.labels.nbytes if isinstance(each, Values) else sparse_bytes(each.counted))
            for each in self.known
        )
        unsure = 0 if self.unsure is None else self.unsure.nbytes
        return int(
            self.counts.nbytes + unsure + told + sum(posterior.nbytes for posterior in kept_of(self, "_posterior"))
        )

    @lazy
    def _posterior(self) -> Posterior:
        fitted = np.maximum(self.counts.reshape(-1), LEAST_FITTED)
        prior = np.maximum(fitted / self.strength, (fitted / 2) ** 2)
        if self.unsure is not None:
            prior = np.maximum(prior, self.unsure.reshape(-1))
        prior = np.where(self.counts.reshape(-1) > 0, prior, LEAST_PRIOR)
        return Posterior(prior, self.known, exact=self.total_variance == 0)


class LocalFits:
    """Local fits over the residuals of a table, which learn of measurements as they are added there.

    A fit is remembered until the next measurement; then what is known on its attributes is brought up to date, and the
    new fit starts from the last one.
    """

    def __init__(self, residuals: Residuals) -> None:
        self._residuals = residuals
        #: Whether every fit so far met its tolerance.
        self.converged = True
        self._places: OrderedDict[tuple[int, ...], _Place] = OrderedDict()
        self._fits: OrderedDict[tuple[tuple[int, ...], tuple[Partition, ...], float], tuple[int, Fit]] = OrderedDict()
        self._one_ways: dict[int, tuple[int, _OneWay]] = {}
        # Of each attribute the partitions that it was measured in, and how many measurements have been looked at.
        self._measured: list[dict[Partition, None]] = [{} for _ in residuals.sizes]
        self._seen = 0, 0, 0

    def copied(self) -> Self:
        """Others over the same residuals, which remember for themselves the fits that they make."""
        made = copy(self)
        made._places = OrderedDict(
            (attributes, _Place(place.restriction.copied(), place.thetas)) for attributes, place in self._places.items()
        )
        made._fits, made._one_ways = OrderedDict(self._fits), dict(self._one_ways)
        made._measured = [dict(partitions) for partitions in self._measured]
        return made

    @property
    def version(self) -> int:
        """How many measurements there are."""
        return self._residuals.version

    @property
    def nbytes(self) -> int:
        """About what is remembered, in bytes."""
        return sum(fit.nbytes for _, fit in self._fits.values()) + _PLACE_BYTES * len(self._places)

    def fit(self, question: Question) -> Fit:
        """The fit for a question: over all cells that it tells apart, at least. Where the search does not meet its
        tolerance it is the product of the one-way marginals, which says so.

        Raises:
            ValueError: where the total is neither public nor was anything measured, or for another table.
        """
        total = self._total(question)
        attributes = question.attributes
        place = self._places.setdefault(attributes, _Place(Restriction(attributes)))
        self._places.move_to_end(attributes)
        known = self._residuals
        place.restriction.take(known.measurements, known.contrasts, known.combinations)
        one_ways = [self._one_way(attribute) for attribute in attributes]
        bases = {a: one.base for a, one in zip(attributes, one_ways, strict=True)}
        cells = place.restriction.cells(question, bases, MOST_CELLS, known.zeros)
        weight = self._weight(question)
        key = attributes, cells, weight
        found = self._fits.get(key)
        if found is None or found[0] != self.version:
            made = self._made(place, cells, one_ways, float(total.values), float(total.variances), weight)
            self.converged &= made is not None
            found = self.version, made or replace(self.product(question), converged=False)
            self._fits[key] = found
        self._fits.move_to_end(key)
        while len(self._places) > MOST_SETS:
            self._places.popitem(last=False)
        while len(self._fits) > 1 and sum(fit.numbers for _, fit in self._fits.values()) > MOST_NUMBERS:
            self._fits.popitem(last=False)
        return found[1]

    def best(self, question: Question) -> Fit:
        """The fit for a question, or where that would take too long the product of the one-way marginals, which has
        taken nothing in (``known``).

        Raises:
            ValueError: as :meth:`fit`.
        """
        return self.fit(question) if question.cells <= MOST_FITTED else self.product(question)

    def working_bytes(self, question: Question) -> int:
        """The most bytes that a fit for a question takes once its own cells were measured, with standard errors of its
        answers, beside what is remembered.

        A fit of ``C`` cells to ``V`` values in ``K`` tables solves systems of the smaller of both; its cells are those
        of the fit from what is known now, or twice as many where the measurement divides them.
        """
        cells, values, tables = question.cells, question.cells, 1
        if self._residuals.begun:
            found = self.best(question)
            cells = min(2 * found.counts.size, max(MOST_CELLS, question.cells))
            values += sum(len(known.values) for known in found.known)
            tables += len(found.known)
        system = min(values, cells, MOST_ROWS)
        answers = math.prod(question.shape) + 1
        return _SYSTEM_BYTES * system**2 + _COLUMN_BYTES * system * answers + _CELL_BYTES * cells * tables

    def _total(self, question: Question) -> Unbiased:
        """The number of records, for a question of this table."""
        self._residuals.check(question.attributes, question.sizes)
        total = self._residuals.total
        if not total.estimable:
            raise ValueError("nothing is known of this table yet")
        return total

    def _weight(self, question: Question) -> float:
        """The factor of the strength: sums over three attributes or more are mostly known through marginals of fewer,
        whose noise must not be taken for structure; elsewhere the pull to the base is the larger error.
        """
        return MANY_WEIGHT if isinstance(question, Sum) and len(question.attributes) > FEW else FEW_WEIGHT

    def product(self, question: Question) -> Fit:
        """The product of the one-way marginals as a fit of nothing else, which takes no search.

        Raises:
            ValueError: where the total is neither public nor was anything measured, or for another table.
        """
        total = self._total(question)
        cells = question.partitions
        count = max(float(total.values), 1.0)
        counts = np.full((), count)
        for attribute, partition in zip(question.attributes, cells, strict=True):
            counts = counts[..., None] * partition.summed(self.shares(attribute), 0)
        possible = self._residuals.zeros.possible(question.attributes, cells)
        if possible is not None:
            counts = counts * possible
            counts = counts * (count / max(float(counts.sum()), np.finfo(float).tiny))
        # A strength of one over the total: a cell is known to half of itself.
        return Fit(question.attributes, cells, counts, (), 1 / count, float(total.variances))

    def shares(self, attribute: int) -> FloatArray:
        """The best known shares of the records that have each value of an attribute; equal ones of the cells that it is
        counted in at first where nothing is known."""
        return self._one_way(attribute).shares

    def tells_apart(self, attribute: int, places: int) -> bool:
        """Whether anything is known of how records are spread over the first values of an attribute."""
        cells = self._one_way(attribute).cells
        return cells is not None and len(np.unique(cells.labels[:places])) > 1

    def _made(
        self,
        place: _Place,
        cells: tuple[Partition, ...],
        one_ways: list[_OneWay],
        total: float,
        variance: float,
        weight: float,
    ) -> Fit | None:
        """A fit; None where the search does not meet its tolerance."""
        attributes, total = place.restriction.attributes, max(total, 1.0)
        base: FloatArray = np.ones(())
        unsure: FloatArray = np.zeros(())
        grown: FloatArray = np.ones(())
        for one, partition in zip(one_ways, cells, strict=True):
            shares, (variances, rest) = partition.summed(one.shares, 0), one.doubts(partition)
            unsure = unsure[..., None] * (np.square(shares) + variances) + np.square(base)[..., None] * variances
            base = base[..., None] * shares
            grown = grown[..., None] * (1 + rest)
        told = [values_on(known, attributes, cells) for known in place.restriction.known]
        known: tuple[Values | Weighed, ...] = tuple(values for values in told if values is not None)
        weighed = [weighed_on(c, attributes, cells) for c in place.restriction.combinations]
        known += tuple(values for values in weighed if values is not None)
        if len(known) > MOST_KNOWN:
            known = tuple(sorted(known, key=lambda k: float(k.variances.min()))[:MOST_KNOWN])
        strength = weight * place.restriction.strength()
        possible = self._residuals.zeros.possible(attributes, cells)
        if possible is not None:
            base = raked(base * possible, [p.summed(one.shares, 0) for one, p in zip(one_ways, cells, strict=True)])
            # Noise in one-way marginals may contradict zeros, and leave nothing of cells that records can be in.
            least = LEAST_COUNT / total / max(int(np.count_nonzero(possible)), 1)
            base = np.where(possible, np.maximum(base, least), 0.0)
        flat = (base / base.sum()).reshape(-1)
        inside = np.flatnonzero(flat)
        if known:
            # What sums to another total is off by noise, which lies as likely in each value as its variance says.
            values = np.concatenate([_summing(k, total, inside) for k in known])
            variances = np.concatenate([k.variances for k in known])
            start = np.concatenate([place.thetas.get(k.marginal, np.zeros(len(k.values))) for k in known])
            counted = incidence(known, len(flat))
            counted = counted if len(inside) == len(flat) else csc_array(counted[:, inside])
            dual = Dual(counted, flat[inside], total, values, strength * variances)
            solved = dual.solve(start, TOLERANCE * np.sqrt(variances))
            if not solved.converged:
                return None
            theta, held = solved.value
            fitted = np.zeros(len(flat))
            fitted[inside] = held
            ends = np.cumsum([len(k.values) for k in known])[:-1]
            place.thetas = dict(zip([k.marginal for k in known], np.split(theta, ends), strict=True))
        else:
            fitted = total * flat
        counts, unsure = fitted.reshape(base.shape), total**2 * unsure
        # How records lie within a cell that was counted nobody knows: a part may be none of them, or all there may be.
        unsure = np.maximum(unsure, np.square((counts / _FARTHEST + np.sqrt(unsure)) * (grown - 1)))
        unsure = np.minimum(unsure, total**2 + variance)  # there are no more records in a cell than there are
        return Fit(attributes, cells, counts, known, strength, variance, unsure=unsure)

    def _one_way(self, attribute: int) -> _OneWay:
        """The best known shares of an attribute's values: from the finest partition whose cells are all estimable."""
        version, found = self._one_ways.get(attribute, (-1, None))
        if found is not None and version == self.version:
            return found
        taken, (first, contrasts, rows) = self._residuals, self._seen
        marginals = [m.marginal for m in taken.measurements[first:]]
        marginals += [c.marginal for c in taken.contrasts[contrasts:]]
        marginals += [c.marginal for c in taken.combinations[rows:]]
        for own in marginals:
            for k, a in enumerate(own.attributes):
                self._measured[a][own.partition(k)] = None
        self._seen = len(taken.measurements), len(taken.contrasts), len(taken.combinations)
        start = self._residuals.starting.get(attribute)
        prior = np.full(self._residuals.sizes[attribute], 1.0)
        if start is not None:
            # Where nothing was counted, as many are taken to be in each cell that was declared.
            prior = start.spread(1 / start.counts, 0)
        found = _OneWay(prior / prior.sum(), None)
        for partition in sorted(self._measured[attribute], key=lambda p: -p.cells):
            marginal = Marginal.of(self._residuals.sizes, {attribute: partition})
            known = self._residuals.unbiased(Cells(marginal))
            if marginal.attributes and known.estimable.all():
                counts = np.maximum(_projected(known.values), LEAST_COUNT)
                weights = counts / counts.sum() / partition.summed(prior, 0)
                shares = prior * partition.spread(weights, 0)
                hidden = np.sqrt(known.variances) / counts.sum() / partition.summed(prior, 0)
                fine = marginal.whole or (start is not None and partition.refines(start))
                base = (partition, float(known.variances.max())) if fine else None
                found = _OneWay(shares, base, partition, prior * partition.spread(hidden, 0))
                break
        possible = self._residuals.zeros.possible((attribute,), (Partition.singles(len(prior)),))
        if possible is not None:
            shares = found.shares * possible
            found = replace(found, shares=shares / shares.sum())
        self._one_ways[attribute] = self.version, found
        return found


@dataclass(frozen=True, eq=False)
class _OneWay:
    """What is known of the values of one attribute.

    Attributes:
        shares: of the values; they sum to one.
        base: the cells that they were known of, with the variance of the count of one; None where these are coarser
            than the cells that it is counted in at first.
        cells: those that they were known of, however coarse; None where nothing is known.
        errors: of the shares, the standard errors by noise; those of the values of one cell are one error.
    """

    shares: FloatArray
    base: tuple[Partition, float] | None
    cells: Partition | None = None
    errors: FloatArray | None = None

    def doubts(self, partition: Partition) -> tuple[FloatArray, FloatArray]:
        """Of other cells the variances of their shares by noise; and how many times its share a cell may differ from it
        that is all of what was counted together with it, or none: zero for what was counted by itself."""
        if self.cells is None or self.errors is None:
            return np.zeros(partition.cells), np.zeros(partition.cells)
        both = self.cells.met(partition)
        cells, places = self.cells.over(both).labels, partition.over(both).labels
        within = both.summed(self.shares, 0)
        whole = np.bincount(cells, weights=within)[cells]
        rest = np.where(np.bincount(cells)[cells] > 1, np.maximum(within, whole - within), 0.0)
        variances, squares = (
            np.bincount(places, weights=np.square(each), minlength=partition.cells).astype(np.float64)
            for each in (both.summed(self.errors, 0), rest)
        )
        return variances, np.sqrt(squares) / np.maximum(partition.summed(self.shares, 0), np.finfo(float).tiny)


@dataclass(eq=False)
class _Place:
    """The known values on some attributes, and the theta of the last fit by marginal."""

    restriction: Restriction
    thetas: dict[Marginal | Combination, FloatArray] = field(default_factory=dict)


def _summing(known: Values | Weighed, total: float, inside: IntArray) -> FloatArray:
    """Known values as they are fitted: those that count all records brought to their number, by the cells that can hold
    some alone."""
    if isinstance(known, Weighed):
        return known.values
    held = np.bincount(known.labels[inside], minlength=len(known.values)) > 0
    values, variances = np.where(held, known.values, 0.0), np.where(held, known.variances, 0.0)
    return np.asarray(values + (total - values.sum()) * variances / variances.sum())


def _projected(values: FloatArray) -> FloatArray:
    """The nearest values that are not negative and have the same sum; all zero where that is not positive."""
    total = max(float(values.sum()), 0.0)
    ordered = np.sort(values)[::-1]
    levels = (np.cumsum(ordered) - total) / np.arange(1, len(values) + 1)
    # A sum that rounding loses beside the largest value is as good as none.
    above = np.flatnonzero(ordered > levels)
    level = levels[above[-1]] if total > 0 and len(above) else ordered[0]
    return np.asarray(np.maximum(values - level, 0.0))
