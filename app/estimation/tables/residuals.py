"""Best linear unbiased values of questions from measured marginals, and their exact variances, without looking.

Write the counts of an attribute's values as the sum of parts that see ever finer differences: one common level; what
cells of a coarse partition differ from it; what finer cells differ from the coarse one they lie in; and so on down to
single values. Where the cells of each partition have equally many finer cells these parts are orthogonal. Over several
attributes the counts of a table fall into residuals, one for each choice of a level an attribute; most choices take the
common level of nearly all attributes, and such a residual is a table over the few others that sums to zero along each
axis (within each coarser cell).

A measured marginal has independent noise of one variance in its cells, and sums over equally many of them do too. So
it tells each residual of its own levels or coarser ones once, with noise that is uncorrelated between residuals; all
that several marginals tell of a residual is averaged by precision. A question is a sum over residuals as well: its
value and its variance are sums of those, each times the part of the question's weights that the residual sees. That is
generalised least squares over all measurements in closed form. Time and memory are those of the measured marginals,
whatever the number of attributes and of cells of the table.

The finest cells of an attribute may be uneven, as long as what divides them is never a level: each counts as one value.

Some measurements stay apart. A marginal with an uneven partition, or with one that neither refines nor is refined by
the partitions of that attribute taken in before it, is orthogonal to nothing: it enters the value of those questions
alone that weigh the members of each of its cells alike, as a value of its own, averaged with the closed form and the
others by precision. (The first partitions to come decide; what stays apart does so for good.) So does a marginal of
very many cells or attributes, of which a question is then the sum of cells.

Contrasts of a marginal are one residual measured alone: they tell the residual of their own levels, and that of coarser
levels of all their attributes, and none that takes the common level of one of them. Where a partition keeps them from
the closed form they enter one of their own. Rows over the cells of a marginal tell of sums of its cells what least
squares makes of them, apart from all others.

Variances depend on what was measured and how noisily, never on a released value. So do the weights that a value gives
to each noise, and with them how far it may be off at a confidence (:mod:`app.estimation.tails`).
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

import numpy as np
from scipy.optimize import brentq
from scipy.sparse import csr_array

from app.estimation.pooling import Pooled
from app.estimation.tables.joint import Joint
from app.estimation.tables.nested import Level, least_squares
from app.estimation.tails import Term, is_normal, normal_quantile, quantile, reach
from app.measurements.noise import Noise
from app.measurements.noise_search import GREATEST_SCALE
from app.measurements.pieces import Combination, Contrast, Counts, counts_in, pieces_of
from app.measurements.record import Measurement
from app.measurements.rows import Rows
from app.measurements.strategies.tables import Draws, TableStrategy
from app.spaces.lazy import lazy
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Cells, Groups, Local, Nested, Product, Question, Sum, WeightedCells
from app.spaces.tensor import Array, FloatArray, IntArray, along
from app.spaces.zeros import NO_ZEROS, Zeros

#: A residual: the attributes that it varies over, ascending, each with the number of cells of its level there.
Key = tuple[tuple[int, int], ...]
#: What enters the values of questions by itself.
Apart = Counts | Combination
#: A marginal of more cells than this, or that tells more residuals, stays apart.
MOST_CELLS, MOST_PARTS = 1 << 17, 1 << 12
#: Below it no variance is looked for.
_LEAST_VARIANCE = 1e-9
#: Bits of a grid on which noise of any scale that is bought is smooth.
_FINE = 20
#: Gaussian noise of so many steps and more has normal quantiles but for its steps.
_MANY_STEPS = 32.0
#: Of the answers of a question so many that are known unlike each other have the reach of their own noise; where there
#: are more, that of the noise which reaches farthest for its deviation.
_MOST_UNLIKE = 24
#: Reaches of so many questions are remembered, of at most so many answers each.
_REMEMBERED, _MOST_REMEMBERED = 256, 1 << 10
#: About what a measurement takes in memory, and each of its cells.
_MEASUREMENT_BYTES, _CELL_BYTES = 16 << 10, 40
#: Weights below this part of the largest are what rounding left of zeros.
_ROUNDING = 2.0**-40
#: The same of sums of squares.
_SQUARES = 2.0**-44


@dataclass(frozen=True, eq=False)
class Unbiased:
    """Best linear unbiased values and their variances, in the shape of the question; NaN where not estimable."""

    values: FloatArray
    variances: FloatArray

    @property
    def estimable(self) -> Array:
        """Where what was measured determines the value."""
        return ~np.isnan(self.variances)

    @property
    def standard_errors(self) -> FloatArray:
        """Standard deviations of the values' noise, in counts."""
        return np.sqrt(self.variances)


class Residuals:
    """All measurements of one table, as residuals and what stays apart.

    Args:
        sizes: number of values of each attribute.
        total: the number of records, where it is public and exact.
        starting: for some attributes the cells that they are counted in at first. These may be uneven: where they are,
            levels are unions of equally many of them, and what divides them stays apart.
        zeros: what is declared not to occur. Counts of that are 0, whatever was measured of them: their noise is left
            out of everything, so that intervals are told for more noise than there is.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        total: float | None = None,
        starting: Mapping[int, Partition] | None = None,
        zeros: Zeros = NO_ZEROS,
    ) -> None:
        self.sizes = tuple(sizes)
        self.public_total = total
        self.starting = dict(starting or {})
        self.zeros = zeros
        #: Everything taken in, in order: counts of marginals, contrasts, and rows.
        self.measurements: list[Counts] = []
        self.contrasts: list[Contrast] = []
        self.combinations: list[Combination] = []
        # Contrasts that stay apart, in closed forms of their own that are independent of one another.
        self._others: list[Residuals] = []
        self._apart: list[Counts] = []
        self._apart_total = Pooled(np.array(0.0))
        # Of each attribute the partitions whose levels are told apart, from coarse to fine.
        self._chains: list[list[Partition]] = [[] for _ in sizes]
        # What is known of each residual: in counts of its cells, before centring.
        self._residuals: dict[Key, Pooled] = {}
        # What entered the closed form, each with its level along each of its attributes.
        self._entered: list[tuple[Counts | Contrast, Key]] = []
        self._reaches: dict[Hashable, FloatArray] = {}
        self._cells = 0
        if total is not None:
            self._residuals[()] = Pooled(np.array(float(total)), math.inf)

    def fresh(self) -> Residuals:
        """The same table, of which nothing is measured."""
        return Residuals(self.sizes, self.public_total, self.starting, self.zeros)

    def untold(self) -> Residuals:
        """The same table for moments: nothing is measured, and no sum is public."""
        return Residuals(self.sizes, None, self.starting, self.zeros)

    def knowing(self, measured: Iterable[Measurement[TableStrategy]]) -> Residuals:
        """The same table, of which the counts among these measurements are known and nothing else."""
        known = self.fresh()
        for measurement in measured:
            for moment, piece in pieces_of(measurement):
                if moment is None:
                    known.add(piece)
        return known

    @property
    def version(self) -> int:
        """How many measurements of any kind there are."""
        return len(self.measurements) + len(self.contrasts) + len(self.combinations)

    @property
    def nbytes(self) -> int:
        """About what it takes in memory: of each cell what was measured, and what is known of it in several places."""
        return _CELL_BYTES * self._cells + _MEASUREMENT_BYTES * self.version

    def add(self, measurement: Counts | Contrast | Combination) -> bool:
        """Take in a measurement; what it touches are the residuals of its own levels and coarser ones.

        Returns:
            Whether it entered the closed form; else it stays apart.

        Raises:
            ValueError: when it is of another table.
        """
        marginal = measurement.marginal
        self.check(marginal.attributes, marginal.sizes)
        self._reaches.clear()
        self._cells += marginal.cells
        if isinstance(measurement, Combination):
            self.combinations.append(measurement)
            return False
        chains = self._admitted(marginal)
        if isinstance(measurement, Contrast):
            self.contrasts.append(measurement)
            if chains is None:
                self._elsewhere(measurement)
                return False
        else:
            measurement = self._possible(measurement)
            self.measurements.append(measurement)
            if chains is None:
                self._apart.append(measurement)
                self._apart_total.learn(measurement.values.sum(), 1 / (measurement.variance * marginal.cells))
                return False
        self._learn(measurement, chains)
        return True

    def _possible(self, counts: Counts) -> Counts:
        """Counts without the noise of those that are 0."""
        marginal = counts.marginal
        cells = [marginal.partition(k) for k in range(len(marginal.attributes))]
        possible = self.zeros.possible(marginal.attributes, cells)
        return counts if possible is None else replace(counts, units=np.where(possible, counts.units, 0))

    def known_zero(self, question: Question, values: FloatArray) -> FloatArray:
        """Numbers of the answers of a question, 0 for those that are 0 whatever the records."""
        impossible = self.zeros.impossible(question)
        return values if impossible is None else np.where(impossible, 0.0, values)

    def _learn(self, measurement: Counts | Contrast, chains: list[list[Partition]]) -> None:
        attributes = measurement.marginal.attributes
        own = tuple((a, chain[-1].cells) for a, chain in zip(attributes, chains, strict=True))
        self._entered.append((measurement, own))
        for key, values, merged in _contrasts(measurement.values, attributes, chains, averaged=False):
            # Contrasts tell nothing of what takes the common level of one of their attributes.
            if isinstance(measurement, Contrast) and len(key) < len(attributes):
                continue
            known = self._residuals.setdefault(key, Pooled(np.zeros(())))
            known.learn(values, 1 / (measurement.variance * merged))

    def _admitted(self, marginal: Marginal) -> list[list[Partition]] | None:
        """For each attribute of a marginal its levels up to the marginal's own, which is made one; None where the
        marginal stays apart."""
        levels = [(a, marginal.partition(k)) for k, a in enumerate(marginal.attributes)]
        parts = math.prod(len(self._chains[a]) + 1 + (p not in self._chains[a]) for a, p in levels)
        if marginal.cells > MOST_CELLS or parts > MOST_PARTS or not all(self._nested(a, p) for a, p in levels):
            return None
        for attribute, partition in levels:
            if partition not in self._chains[attribute]:
                self._insert(attribute, partition)
        return [self._chains[a][: self._chains[a].index(p) + 1] for a, p in levels]

    def _elsewhere(self, contrast: Contrast) -> None:
        """Take contrasts that stay apart into the first closed form that admits them, or else into a new one: there
        an attribute is counted at first in the cells that its first contrasts tell apart. Those of too many cells tell
        nothing."""
        marginal = contrast.marginal
        for other in (*self._others, Residuals(self.sizes, self.public_total)):
            for axis, attribute in enumerate(marginal.attributes):
                if not other._chains[attribute]:
                    other.starting[attribute] = marginal.partition(axis)
            chains = other._admitted(marginal)
            if chains is not None:
                other._learn(contrast, chains)
                if other not in self._others:
                    self._others.append(other)
                return

    def unbiased(self, question: Question) -> Unbiased:
        """The best linear unbiased values of a question and their variances, in counts. Both are 0 of answers that are
        0 whatever the records.

        With w_i the weights along attribute i, m_i their mean and both parts of every attribute's weights taken in
        turn, the value is the sum over sets C of attributes of ``prod of m_i outside C * <prod of w_i in C, r_C>``, and
        the variance that of ``v_C * prod of m_i^2 outside C * prod of ||w_i - m_i||^2 in C``. Parts without weight are
        left out, measured or not.

        Raises:
            ValueError: when it is of another table.
        """
        self.check(question.attributes, question.sizes)
        known = self._unbiased(question)
        impossible = self.zeros.impossible(question)
        if impossible is None:
            return known
        return Unbiased(np.where(impossible, 0.0, known.values), np.where(impossible, 0.0, known.variances))

    def _unbiased(self, question: Question) -> Unbiased:
        if isinstance(question, Groups):
            return self._of_groups(question)
        if isinstance(question, Nested):
            return self._of_nested(question)
        estimates = [self._closed(question)]
        estimates += [other._closed(question) for other in self._others]
        apart: list[Apart] = [*self.combinations]
        if not question.attributes and self._apart:
            # The sums of what stays apart, averaged as they come.
            scale = float(question.of(np.array(1.0), ()))
            estimates.append(
                Unbiased(self._apart_total.values * scale, scale**2 / np.array(self._apart_total.precision))
            )
        elif question.attributes:
            apart += self._apart
        estimates += [found for found in (own_values(question, m) for m in apart) if found is not None]
        return averaged(estimates) if len(estimates) > 1 else estimates[0]

    def _of_groups(self, question: Groups) -> Unbiased:
        """Each answer from single measurements alone whose cells it sums, averaged by precision: their noise is
        independent. (What residuals know together of sums of very many cells would take as long for each answer.)"""
        nothing = Unbiased(np.full(question.shape, np.nan), np.full(question.shape, np.nan))
        found = [nothing]
        for measurement in self.measurements:
            own = own_values(Cells(question.marginal), measurement)
            if own is not None:
                found.append(Unbiased(question.summed(own.values), question.summed(own.variances)))
        found += [own for own in (own_values(question, c) for c in self.combinations) if own is not None]
        known = averaged(found) if len(found) > 1 else nothing
        # What nothing is counted in is known without looking.
        return Unbiased(np.where(question.empty, 0.0, known.values), np.where(question.empty, 0.0, known.variances))

    def _of_nested(self, question: Nested) -> Unbiased:
        """All answers from one estimate of the cells, so that they add up: by the closed form, or by least squares on
        the tree from all counts whose cells along the attribute are nested in one another, whichever errs less.

        What a measurement tells of other attributes than the question's is summed out, so that the trees of the cells
        of these have independent noise.
        """
        parts = [self._closed(part) for part in question.parts]
        closed = Unbiased(
            question.gathered(part.values for part in parts), question.gathered(part.variances for part in parts)
        )
        own = self._on_tree(question)
        return min(closed, own, key=lambda known: (np.isnan(known.variances).sum(), float(np.nansum(known.variances))))

    def _on_tree(self, question: Nested) -> Unbiased:
        place, entered = question.place, {id(measurement) for measurement, _ in self._entered}
        one = Partition.of(np.zeros(question.levels[0].size, np.int64))
        chain, known_sums = [one, *question.levels], []
        for measurement in self.measurements:
            named, level = measurement.marginal.attributes, one
            if question.attribute in named:
                level = measurement.marginal.partition(named.index(question.attribute))
            elif id(measurement) not in entered:
                # What stays apart counts where it names every attribute, as elsewhere.
                continue
            if question.levels[-1].refines(level) and all(level.refines(p) or p.refines(level) for p in chain):
                known = own_values(Cells(question.along(level)), measurement)
                if known is not None and known.estimable.all():
                    known_sums.append((level, known))
                    chain = sorted({*chain, level}, key=lambda p: p.cells)
        flat = question.parts[-1].marginal.cells // question.marginal.shape[place]

        def upright(array: FloatArray) -> FloatArray:
            return np.moveaxis(array, place, 0).reshape(-1, flat)

        finer: list[Partition | None] = [p.over(q) for p, q in itertools.pairwise(chain)]
        levels = {p: Level.blank(cells, p.cells, flat) for p, cells in zip(chain, [*finer, None], strict=True)}
        if self.public_total is not None and flat == 1:
            levels[one] = Level(finer[0], np.full((1, 1), self.public_total), np.full((1, 1), math.inf))
        for level, known in known_sums:
            shape = (*question.marginal.shape[:place], level.cells, *question.marginal.shape[place + 1 :])
            levels[level].learn(*(upright(array.reshape(shape)) for array in (known.values, known.variances)))
        found = dict(zip(chain, least_squares(list(levels.values())), strict=True))
        rest = (*question.marginal.shape[:place], *question.marginal.shape[place + 1 :])

        def answers(which: int) -> FloatArray:
            arrays = (found[level][which] for level in question.levels)
            return question.gathered(np.moveaxis(array.reshape(-1, *rest), 0, place) for array in arrays)

        return Unbiased(answers(0), answers(1))

    def jointly(self, question: Question, axis: int, weights: FloatArray) -> list[Joint]:
        """The estimate from each independent source of the counts of a question and of the same counts weighed by the
        value of an attribute: best linear unbiased values with the covariances of their noise, answers in a flat array.

        With v(w) the variance of counts weighed by w, a covariance is ``(v(w + w') - v(w) - v(w'))/2``.

        Args:
            question: of this table.
            axis: of the attribute.
            weights: rows of weights of its values, none all zero.

        Raises:
            ValueError: when it is of another table.
        """
        self.check((*question.attributes, axis), (*question.sizes, weights.shape[1]))
        # Rows of like size, as variances are subtracted.
        scales = np.append(1.0, np.sqrt(np.mean(np.square(weights), axis=1)))
        rows = np.concatenate([np.ones((1, weights.shape[1])), weights]) / scales[:, None]
        base = Cells(question.marginal) if isinstance(question, Groups) else question
        places = range(len(rows))
        asked = {(k, k): weighed(base, axis, rows[k]) if k else base for k in places}
        asked |= {(j, k): weighed(base, axis, rows[j] + rows[k]) for k in places for j in range(k)}
        found, counted = [], []
        for source in self._sources(question):
            every = {pair: _estimate(source, one, question) for pair, one in asked.items()}
            sources = {pair: own for pair, own in every.items() if own is not None}
            if len(sources) > 1:
                nothing = Unbiased(*[np.full(question.shape, np.nan)] * 2)
                known = {pair: sources.get(pair, nothing) for pair in asked}
                values = [known[k, k].values * scales[k] for k in places]
                covariances = [[_polar(known, j, k) * scales[j] * scales[k] for j in places] for k in places]
                found.append(Joint.of_rows(values, covariances))
            elif sources:
                counted.append(sources[0, 0])
        if isinstance(question, Groups):
            counted += [own for c in self.combinations if (own := own_values(question, c)) is not None]
        if counted:
            mean = averaged(counted)
            found.append(Joint.of_one(0, len(rows), mean.values, mean.variances))
        return found

    def together(self, sums: Sequence[Groups], weights: Sequence[FloatArray] | None = None) -> list[Joint]:
        """The estimates from each independent source of several sums of the cells of one marginal, for each of their
        answers: best linear unbiased values with the covariances of their noise. What stays apart tells sums whose
        weights are alike within its own cells, or whose cells it tells one by one.

        Args:
            sums: of one marginal, with answers of one shape, of which each attribute tells some axes apart. A cell is
                counted in the same answer of each sum, or in none.
            weights: for each sum what its cells weigh, an array that broadcasts to the marginal's shape; all weigh one
                where it is left out.

        Raises:
            ValueError: when they are of another table.
        """
        marginal = sums[0].marginal
        self.check(marginal.attributes, marginal.sizes)
        given = [np.ones(())] * len(sums) if weights is None else weights
        # Sums of like size, as what is small beside the number of cells counts for nothing.
        scales = np.array([np.abs(one).max() for one in given])
        weighed = [
            _Weighed(one, np.broadcast_to(own / scale, marginal.shape))
            for one, own, scale in zip(sums, given, scales, strict=True)
        ]
        found = [known._closed_together(weighed) for known in (self, *self._others)]
        for measurement in self._apart:
            ways = [_by_row(weighed, measurement)]
            own = own_values(Cells(marginal), measurement)
            if own is not None:
                variances = [[one.both(other, own.variances) for other in weighed] for one in weighed]
                ways.append(Joint.of_rows([one.of(own.values) for one in weighed], variances))
            found.append(max(ways, key=lambda joint: int(joint.known.sum())))
        for combination in self.combinations:
            own_rows = [one.rows(combination.marginal) for one in weighed]
            told = {place: row for place, row in enumerate(own_rows) if row is not None}
            rows = list(told.values())
            if rows:
                known = {
                    (j, k): Unbiased(*combination.weighed(rows[k] if j == k else csr_array(rows[j] + rows[k])))
                    for k in range(len(rows))
                    for j in range(k + 1)
                }
                values = [known[k, k].values for k in range(len(rows))]
                covariances = [[_polar(known, j, k) for k in range(len(rows))] for j in range(len(rows))]
                found.append(Joint.of_rows(values, covariances).placed(list(told), len(weighed)))
        return [Joint(each.values * scales, each.covariances * np.outer(scales, scales)) for each in found]

    def _closed_together(self, sums: Sequence[_Weighed]) -> Joint:
        """The values that residuals give to sums of cells, and their covariances: of two with weights u and w on the
        cells that of sets C of attributes of ``v_C * u' (x) G_i w``, where G_i are the inner products of what the level
        of an attribute sees of each two of its cells."""
        groups = [one.groups for one in sums]
        marginal, count = groups[0].marginal, math.prod(groups[0].shape)
        partitions = [marginal.partition(axis) for axis in range(len(marginal.attributes))]
        weights = [np.where(one.groups.answers >= 0, one.weights, 0.0) for one in sums]
        values, covariances = np.zeros((len(sums), count)), np.zeros((len(sums), len(sums), count))
        missing = np.zeros((len(sums), count), dtype=bool)
        # Each value of a cell weighs one at most; less than rounding of their number is none.
        inside = np.ones(())
        for partition in partitions:
            inside = inside[..., None] * partition.counts
        least = _SQUARES * np.stack([one.summed(inside).reshape(-1) for one in groups])
        levels = [
            _seen(partition, self._levels(attribute), _told_along(groups, axis))
            for axis, (attribute, partition) in enumerate(zip(marginal.attributes, partitions, strict=True))
        ]
        for seen in itertools.product(*levels):
            moved = weights
            for axis, part in enumerate(seen):
                moved = [_onto(part.products, array, axis) for array in moved]
            squares = np.array([[one.of(own) for own in moved] for one in sums])
            weighs = np.einsum("kkg->kg", squares) > least
            named = zip(marginal.attributes, seen, strict=True)
            known = self._residuals.get(tuple((a, p.level.cells) for a, p in named if p.level is not None))
            if known is None:
                missing |= weighs
                continue
            term = known.values
            for axis, part in enumerate(seen):
                term = _onto(part.shares, np.expand_dims(term, axis) if part.level is None else term, axis)
            values += np.stack([one.of(term) for one in sums])
            covariances += np.where(weighs & weighs[:, None], squares, 0.0) / known.precision
        for k, unknown in enumerate(missing):
            covariances[k, k, unknown] = np.nan
        return Joint.of_rows(list(values), [list(row) for row in covariances])

    def _sources(self, question: Question) -> list[Residuals | Apart]:
        """The sources that tell of a question, each independent of the others; of groups single measurements alone."""
        if isinstance(question, Groups):
            return [*self.measurements]
        return [self, *self._others, *self._apart, *self.combinations]

    def variances_after(self, question: Question, strategy: TableStrategy, variance: float) -> FloatArray:
        """The variances that the values of a question would have with one more measurement, of counts, whose noise has
        this variance.

        Raises:
            ValueError: when one is of another table.
        """
        return self._after(strategy, _smooth(variance)).unbiased(question).variances

    def sufficient_variance(self, question: Question, strategy: TableStrategy, allowed: float) -> float:
        """About the greatest variance of the noise of one more measurement, of counts, after which no value of a
        question has a variance above what is allowed; the least that is looked for where none suffices.

        Raises:
            ValueError: when one is of another table.
        """

        def beyond(logarithm: float) -> float:
            return math.log(float(self.variances_after(question, strategy, math.exp(logarithm)).max()) / allowed)

        low, high = math.log(_LEAST_VARIANCE), math.log(GREATEST_SCALE**2)
        if beyond(low) >= 0:
            return math.exp(low)
        return math.exp(brentq(beyond, low, high, xtol=1e-6) if beyond(high) > 0 else high)

    def reaches_after(self, question: Question, strategy: TableStrategy, noise: Noise, confidence: float) -> FloatArray:
        """The reaches (:meth:`reaches`) that the values of a question would have with one more measurement, of counts.

        Raises:
            ValueError: when one is of another table, or for a confidence out of range.
        """
        after = self._after(strategy, noise)
        return after.reaches(question, after.unbiased(question), confidence)

    def reaches(self, question: Question, known: Unbiased, confidence: float) -> FloatArray:
        """How far the noise of each value of a question reaches with a probability, in counts; NaN where not estimable.

        Args:
            question: of this table.
            known: its values, from :meth:`unbiased`.
            confidence: the probability.

        Raises:
            ValueError: for a confidence out of range.
        """
        name = _name(question), confidence
        found = self._reaches.get(name)
        if found is None:
            found = self._found_reaches(question, known, confidence)
            if found.size <= _MOST_REMEMBERED:
                if len(self._reaches) >= _REMEMBERED:
                    self._reaches.clear()
                self._reaches[name] = found
        return found

    def _found_reaches(self, question: Question, known: Unbiased, confidence: float) -> FloatArray:
        errors, laws = known.standard_errors, self._laws
        if all(noise.kind == "gaussian" and _steps(noise) >= _MANY_STEPS for noise, _ in laws):
            # No weighed step is longer than its noise's part of the deviation.
            least = min((_steps(noise) for noise, _ in laws), default=math.inf)
            return np.asarray(errors * _stepped(least, confidence))
        if isinstance(question, Sum):
            estimable = bool(known.estimable) and float(known.variances) > 0
            return np.asarray(reach(self.terms(question), confidence)) if estimable else np.asarray(errors * 0.0)
        if isinstance(question, Nested):
            return np.asarray(errors * _widest(laws, confidence))
        alike = self._alike(question, known)
        found, (kinds, firsts) = np.full(errors.size, np.nan), np.unique(alike, return_index=True)
        noisy = [(k, int(f)) for k, f in zip(kinds, firsts, strict=True) if known.variances.reshape(-1)[f] > 0]
        widest = _widest(laws, confidence) if len(noisy) > _MOST_UNLIKE else 0.0
        flat = errors.reshape(-1)
        found[flat == 0] = 0.0
        for kind, first in noisy:
            own = widest or reach(self._terms_at(question, first), confidence) / flat[first]
            found[alike == kind] = own * flat[alike == kind]
        return found.reshape(errors.shape)

    def terms(self, question: Sum) -> list[Term]:
        """The noises of the value of an estimable question, with their weights.

        Raises:
            ValueError: when it is of another table.
        """
        found: list[Term] = []
        for source, share in self._shares(question).items():
            if isinstance(source, Residuals):
                found += source._closed_terms(question, share)
            elif isinstance(source, Combination):
                row = _weighing(question, source.marginal)
                assert row is not None
                found.append(Term.of(source.noise, share * source.shares(row), source.multiplier))
            else:
                marginal = source.marginal.onto(frozenset(question.attributes))
                repeated = source.marginal.cells // marginal.cells
                found.append(Term.of(source.noise, share * _on(question, marginal), source.multiplier, repeated))
        return found

    def spanned(self, attributes: Sequence[int]) -> tuple[int, list[tuple[Noise, int, int]]]:
        """The components of the noise in the values of all questions on some attributes: of how many normal numbers,
        and for others their law, how many equal noises each is the sum of, and how many there are
        (:func:`~app.estimation.tails.norm_quantile`).

        Normal noises count by the residuals that they tell of, others by the sums of their own that these are made of.
        """
        named = frozenset(attributes)
        others: list[tuple[Noise, int, int]] = []
        dimension = sum(known._dimension(named) for known in (self, *self._others))
        normal = False
        for known in (self, *self._others):
            for measurement, levels in known._entered:
                inside = math.prod(cells for a, cells in levels if a in named)
                outside = math.prod(cells for a, cells in levels if a not in named)
                if (isinstance(measurement, Contrast) and outside > 1) or (
                    inside == 1 and self.public_total is not None
                ):
                    continue
                if is_normal(measurement.noise, outside):
                    normal = True
                else:
                    others.append((measurement.noise, outside, inside))
        found = dimension if normal else 0
        apart: list[Apart] = [*self._apart, *self.combinations]
        for source in apart:
            if not named <= set(source.marginal.attributes):
                continue
            if isinstance(source, Combination):
                inside, outside = min(source.rows.count, source.marginal.cells), 1
                if not is_normal(source.noise, 1):
                    inside = source.rows.count
            else:
                inside = source.marginal.onto(named).cells
                outside = source.marginal.cells // inside
            if is_normal(source.noise, outside):
                found += inside
            else:
                others.append((source.noise, outside, inside))
        return found, others

    @property
    def longest_step(self) -> float:
        """The longest step of Gaussian noise, in its deviations; 0 where there is none."""
        return max((1 / _steps(noise) for noise, _ in self._laws if is_normal(noise, 1)), default=0.0)

    def _dimension(self, named: frozenset[int]) -> int:
        """How many numbers the residuals are that questions on some attributes may weigh."""
        found = 0
        for key, known in self._residuals.items():
            if known.precision < math.inf and all(a in named for a, _ in key):
                found += math.prod(cells - self._coarser(a, cells) for a, cells in key)
        return found

    def _coarser(self, attribute: int, cells: int) -> int:
        """The number of cells of the next coarser level, one where there is none."""
        return max((p.cells for p in self._chains[attribute] if p.cells < cells), default=1)

    def _closed_terms(self, question: Sum, share: float) -> list[Term]:
        """Those of the closed form: what a measurement weighs its cells with is the sum of what residuals weigh their
        own with, each times its part in what is known of them."""
        weights = {key: w for key, w in self._weights(question).items() if self._residuals[key].precision < math.inf}
        axes = frozenset(a for key in weights for a, _ in key)
        # Measurements are alike that tell the same of these attributes.
        alike: Counter[tuple[Key, int, Noise, int, bool]] = Counter()
        for measurement, levels in self._entered:
            inside = tuple(level for level in levels if level[0] in axes)
            contrast = isinstance(measurement, Contrast)
            if contrast and len(inside) < len(levels):
                continue
            outside = math.prod(cells for a, cells in levels if a not in axes)
            multiplier = measurement.multiplier * (measurement.marginal.cells if contrast else 1)
            alike[inside, outside, measurement.noise, multiplier, contrast] += 1
        found = []
        for (inside, outside, noise, multiplier, contrast), many in alike.items():
            cells_of, shape = dict(inside), tuple(cells for _, cells in inside)
            whole = np.zeros(shape)
            for key, weighed in weights.items():
                if not all(a in cells_of and cells <= cells_of[a] for a, cells in key) or (
                    contrast and len(key) < len(inside)
                ):
                    continue
                merged = math.prod(shape) * outside // math.prod(cells for _, cells in key)
                part = multiplier**2 / (noise.variance * merged) / self._residuals[key].precision
                whole = whole + part * self._spread(weighed, key, inside)
            if whole.any():
                found.append(Term.of(noise, share * whole, multiplier, outside * many))
        return found

    def _spread(self, weighed: FloatArray | tuple[FloatArray, ...], key: Key, inside: Key) -> FloatArray:
        """Weights on a residual as weights on the cells of finer levels, and of other attributes."""
        if isinstance(weighed, tuple):
            array = weighed[0][0]
            for vector in weighed[1:]:
                array = np.asarray(array)[..., None] * vector
        else:
            array = weighed
        cells_of, array = dict(key), np.asarray(array)
        for axis, (attribute, cells) in enumerate(inside):
            if attribute not in cells_of:
                array = np.expand_dims(array, axis)
            elif cells_of[attribute] < cells:
                levels = {p.cells: p for p in self._chains[attribute]}
                array = np.take(array, levels[cells_of[attribute]].over(levels[cells]).labels, axis=axis)
        return array

    @property
    def _laws(self) -> set[tuple[Noise, int]]:
        """The noises that there are, each with what it is divided by beside its weights."""
        measured: list[Counts | Contrast | Combination] = [*self.measurements, *self.contrasts, *self.combinations]
        return {(m.noise, m.multiplier) for m in measured}

    def _alike(self, question: Question, known: Unbiased) -> IntArray:
        """A number for each answer of a question: those of equal numbers weigh equal noises alike.

        They are equally uncertain, and along each attribute cells with as many values in as many cells of each level.
        """
        variances = np.asarray(known.variances).reshape(-1)
        with np.errstate(divide="ignore"):
            labels = np.unique(np.round(np.log(variances), 9), return_inverse=True, equal_nan=True)[1].reshape(-1)
        if isinstance(question, Groups):
            return labels
        assert isinstance(question, Cells | WeightedCells)
        for axis, attribute in enumerate(question.marginal.attributes):
            asked = question.marginal.partition(axis)
            shapes: list[Hashable] = [()] * asked.cells
            if isinstance(question, WeightedCells) and attribute == question.axis:
                shapes = [tuple(np.sort(question.weights[asked.labels == c]).tolist()) for c in range(asked.cells)]
            for level in self._levels(attribute):
                if level.even and (level.refines(asked) or asked.refines(level)) and asked.even:
                    continue
                pairs, counts = np.unique(asked.labels * level.cells + level.labels, return_counts=True)
                many = level.counts[pairs % level.cells]
                for cell in range(asked.cells):
                    own = pairs // level.cells == cell
                    shapes[cell] = (shapes[cell], tuple(sorted(zip(counts[own], many[own], strict=True))))
            places: dict[Hashable, int] = {}
            along_axis = np.array([places.setdefault(shape, len(places)) for shape in shapes])
            spread_out = [-1 if k == axis else 1 for k in range(len(question.shape))]
            every = np.broadcast_to(along_axis.reshape(spread_out), question.shape).reshape(-1)
            labels = np.unique(labels * len(places) + every, return_inverse=True)[1].reshape(-1)
        return labels

    def _terms_at(self, question: Question, place: int) -> list[Term]:
        """The noises of one answer of a question."""
        if isinstance(question, Groups):
            return self._terms_of_group(question, place)
        assert isinstance(question, Cells | WeightedCells)
        vectors: dict[int, FloatArray] = {}
        index = np.unravel_index(place, question.shape) if question.shape else ()
        for axis, (attribute, cell) in enumerate(zip(question.marginal.attributes, index, strict=True)):
            vectors[attribute] = (question.marginal.partition(axis).labels == cell).astype(np.float64)
        if isinstance(question, WeightedCells):
            vectors[question.axis] = vectors.get(question.axis, np.ones(len(question.weights))) * question.weights
        return self.terms(Product.over(vectors))

    def _terms_of_group(self, question: Groups, place: int) -> list[Term]:
        """Those of a sum of cells, of which each single measurement knows its own."""
        sources: list[tuple[Counts | Combination, float]] = []
        rows = {}
        for measurement in self.measurements:
            found = own_values(Cells(question.marginal), measurement)
            if found is not None:
                sources.append((measurement, float(question.summed(found.variances).reshape(-1)[place])))
        for combination in self.combinations:
            row = _weighing(question, combination.marginal)
            if row is not None:
                rows[id(combination)] = row[[place]]
                sources.append((combination, float(combination.weighed(rows[id(combination)])[1][0])))
        sources = [(source, variance) for source, variance in sources if not math.isnan(variance)]
        whole = sum(1 / variance for _, variance in sources)
        terms = []
        for source, variance in sources:
            share = 1 / variance / whole
            if isinstance(source, Combination):
                terms.append(Term.of(source.noise, share * source.shares(rows[id(source)]), source.multiplier))
            else:
                terms.append(
                    Term.of(source.noise, np.array([share]), source.multiplier, round(variance / source.variance))
                )
        return terms

    def _after(self, strategy: TableStrategy, noise: Noise) -> Residuals:
        """The variances after one more measurement."""
        other = self.fresh()
        other.measurements = list(self.measurements)
        # What is added is a marginal, which none of these takes in.
        other.contrasts, other.combinations, other._others = self.contrasts, self.combinations, self._others
        other._apart = list(self._apart)
        other._apart_total = replace(self._apart_total)
        other._chains = [list(chain) for chain in self._chains]
        other._residuals = {key: replace(known) for key, known in self._residuals.items()}
        other._entered = list(self._entered)
        for counts in counts_in(Measurement(strategy, noise, np.zeros(strategy.cells, np.int64))):
            other.add(counts)
        return other

    @property
    def begun(self) -> bool:
        """Whether anything is known of how many records there are; else nothing can be shown."""
        return bool(self.total.estimable)

    @property
    def total(self) -> Unbiased:
        """The number of records: public, or the best estimate from all measurements; NaN before the first."""
        return self.unbiased(Product.over({}))

    def check(self, attributes: Sequence[int], sizes: Sequence[int]) -> None:
        """Raise ValueError unless attributes with so many values are among those of this table."""
        if any(a >= len(self.sizes) or self.sizes[a] != n for a, n in zip(attributes, sizes, strict=True)):
            raise ValueError("attributes are not those of this table")

    def singly(self) -> Iterator[tuple[tuple[int, ...], FloatArray, float]]:
        """The residuals over single values but for those known exactly: the attributes, the average of what was
        measured in counts, and one over the variance of each value before centring."""
        for key, known in self._residuals.items():
            if known.precision < math.inf and all(cells == self.sizes[a] for a, cells in key):
                yield tuple(a for a, _ in key), known.values, known.precision

    def told_singly(self, attribute: int) -> bool:
        """Whether single values of an attribute were counted, by themselves or beside others."""
        marginals = [m.marginal for m in self.measurements]
        marginals += [c.marginal for c in self.contrasts] + [c.marginal for c in self.combinations]
        return any(attribute in m.attributes and m.partitions[m.attributes.index(attribute)] is None for m in marginals)

    def _nested(self, attribute: int, partition: Partition) -> bool:
        """Whether a partition can be a level of its attribute."""
        start = self.starting.get(attribute)
        if start is not None and start.refines(partition):
            even = partition.over(start).even
        else:
            even = partition.even and (start is None or (start.even and partition.refines(start)))
        return even and all(p.refines(partition) or partition.refines(p) for p in self._chains[attribute])

    def _insert(self, attribute: int, partition: Partition) -> None:
        """Make a partition a level of its attribute: what is known of the finer level next to it is divided."""
        chain = self._chains[attribute]
        chain.append(partition)
        chain.sort(key=lambda p: p.cells)
        place = chain.index(partition)
        if place + 1 == len(chain):
            return
        finer = chain[place + 1]
        coarse = partition.over(finer)
        merged = finer.cells // partition.cells
        for key in [key for key in self._residuals if (attribute, finer.cells) in key]:
            axis, known = key.index((attribute, finer.cells)), self._residuals[key]
            sums = coarse.summed(known.values, axis)
            between = (*key[:axis], (attribute, partition.cells), *key[axis + 1 :])
            self._residuals[between] = Pooled(sums, known.precision / merged)
            known.values = known.values - coarse.spread(sums / merged, axis)

    def _levels(self, attribute: int) -> list[Partition]:
        """The levels of an attribute from fine to coarse, single values included whether measured or not."""
        levels = self._chains[attribute][::-1]
        if levels and levels[0].cells == self.sizes[attribute]:
            return levels
        return [Partition.singles(self.sizes[attribute]), *levels]

    def _closed(self, question: Question) -> Unbiased:
        if question.range == (0.0, 0.0):
            return Unbiased(np.zeros(question.shape), np.zeros(question.shape))
        if isinstance(question, Local):
            return self._of_local(question)
        if isinstance(question, Product):
            rows: list[_Rows] = [_Vector(vector) for vector in question.vectors]
            scale = question.scale
        elif isinstance(question, WeightedCells):
            rows, scale = [_row_of(question, a) for a in question.attributes], 1.0
        else:
            assert isinstance(question, Cells)
            rows = [_Indicators(partition) for partition in question.partitions]
            scale = 1.0
        shape = tuple(r.count for r in rows)
        value, variance, missing = np.zeros(shape), np.zeros(shape), np.zeros(shape, dtype=bool)
        rank = len(rows)
        choices = [r.parts(self._levels(a)) for a, r in zip(question.attributes, rows, strict=True)]
        for parts in itertools.product(*choices):
            norms = np.ones(())
            for axis, part in enumerate(parts):
                norms = norms * along(part.norms, axis, rank)
            key = tuple(
                (a, p.level.cells) for a, p in zip(question.attributes, parts, strict=True) if p.level is not None
            )
            known = self._residuals.get(key)
            if known is None:
                missing |= norms > 0
                if missing.all():
                    break
                continue
            term = known.values
            for axis, part in enumerate(parts):
                if part.level is None:
                    term = np.expand_dims(term, axis) * along(part.means, axis, term.ndim + 1)
                else:
                    term = rows[axis].apply(term, axis, part)
            value += term
            variance += norms / known.precision
        value[missing] = variance[missing] = np.nan
        return Unbiased((value * scale).reshape(question.shape), (variance * scale**2).reshape(question.shape))

    def _of_local(self, question: Local) -> Unbiased:
        value = variance = 0.0
        for key, weights in self._local_weights(question).items():
            known = self._residuals.get(key)
            if known is None:
                return Unbiased(np.array(np.nan), np.array(np.nan))
            value += float((weights * known.values).sum())
            variance += float((weights * weights).sum()) / known.precision
        return Unbiased(np.array(value), np.array(variance))

    def _local_weights(self, question: Local) -> dict[Key, FloatArray]:
        """The weight of each residual in a question, those that weigh nothing left out."""
        chains = [self._levels(a)[::-1] for a in question.attributes]
        largest = float(np.abs(question.weights).max())
        return {
            key: weights
            for key, weights, _ in _contrasts(question.weights, question.attributes, chains, averaged=True)
            if float(np.abs(weights).max(initial=0.0)) > _ROUNDING * largest
        }

    def _weights(self, question: Sum) -> Mapping[Key, FloatArray | tuple[FloatArray, ...]]:
        """The same of any sum; of a product these are the vectors along the axes, of which the first one carries the
        scale.
        """
        if isinstance(question, Local):
            return self._local_weights(question)
        assert isinstance(question, Product)
        choices = [
            [(None if p.level is None else (a, p.level.cells), p.weights) for p in _Vector(v).parts(self._levels(a))]
            for a, v in zip(question.attributes, question.vectors, strict=True)
        ]
        found: dict[Key, FloatArray | tuple[FloatArray, ...]] = {}
        for parts in itertools.product(*choices):
            scalar = question.scale * math.prod(float(w[0]) for level, w in parts if level is None)
            if scalar:
                key = tuple(level for level, _ in parts if level is not None)
                found[key] = (np.array([scalar]), *(w for level, w in parts if level is not None))
        return found

    def _shares(self, question: Sum) -> Mapping[Residuals | Apart, float]:
        """The part of each source in the value of a question, this closed form among them; empty if not estimable."""
        self.check(question.attributes, question.sizes)
        variances: dict[Residuals | Apart, float] = {}
        for known in (self, *self._others):
            closed = float(known._closed(question).variances)
            if closed == 0:
                return {known: 1.0}
            if not math.isnan(closed):
                variances[known] = closed
        apart: list[Apart] = [*self._apart, *self.combinations]
        for measurement in apart:
            found = own_values(question, measurement)
            if found is not None and found.estimable.all():
                variances[measurement] = float(found.variances)
        whole = sum(1 / v for v in variances.values())
        return {source: 1 / v / whole for source, v in variances.items()}


@dataclass(frozen=True, eq=False)
class _Part:
    """The view that one level of an attribute has of rows of weights along it; ``level`` is None for their means.

    ``norms`` are squared and one a row, as ``means`` are. ``weights`` is the single row of :class:`_Vector`; of
    :class:`_Indicators` what is not zero, row by row: in which cells of the level, and where each row begins.
    """

    level: Partition | None
    norms: FloatArray
    means: FloatArray
    weights: FloatArray
    cells: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    begins: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))


class _Rows(ABC):
    """Rows of weights along one attribute, which a question combines with those along others."""

    count: int

    @abstractmethod
    def parts(self, levels: Sequence[Partition]) -> list[_Part]:
        """The parts that weigh something, for levels from fine to coarse and then their means."""

    @abstractmethod
    def apply(self, array: FloatArray, axis: int, part: _Part) -> FloatArray:
        """The axis of a residual at the part's level replaced by one for the rows."""


class _Vector(_Rows):
    """One row."""

    def __init__(self, vector: FloatArray) -> None:
        self.count = 1
        self._vector = vector

    def parts(self, levels: Sequence[Partition]) -> list[_Part]:
        least = _ROUNDING * float(np.abs(self._vector).max())
        found, weights = [], self._vector
        for level, coarser in itertools.zip_longest(levels, levels[1:]):
            if coarser is None:
                means, seen = weights.mean(keepdims=True), weights - weights.mean()
            else:
                among = coarser.over(level)
                means = among.summed(weights, 0) / among.counts
                seen = weights - among.spread(means, 0)
            if float(np.abs(seen).max()) > least:
                found.append(_Part(level, np.array([seen @ seen]), np.zeros(0), seen))
            weights = means
        if abs(float(weights[0])) > least:
            found.append(_Part(None, weights**2, weights, weights))
        return found

    def apply(self, array: FloatArray, axis: int, part: _Part) -> FloatArray:
        return np.expand_dims(np.tensordot(array, part.weights, axes=(axis, 0)), axis)


class _Weighted(_Rows):
    """A row of weights for each cell of a partition, zero outside of the cell."""

    def __init__(self, partition: Partition, weights: FloatArray) -> None:
        self.count = partition.cells
        self._vectors = [_Vector(np.where(partition.labels == cell, weights, 0.0)) for cell in range(self.count)]

    def parts(self, levels: Sequence[Partition]) -> list[_Part]:
        by_level = [{p.level: p for p in vector.parts(levels)} for vector in self._vectors]
        found = []
        for level in [*levels, None]:
            own = [parts.get(level) for parts in by_level]
            if all(part is None for part in own):
                continue
            norms = np.array([0.0 if part is None else float(part.norms[0]) for part in own])
            means = np.array([0.0 if part is None or level is not None else float(part.means[0]) for part in own])
            size = 0 if level is None else level.cells
            weights = np.stack([np.zeros(size) if part is None or not size else part.weights for part in own])
            found.append(_Part(level, norms, means, weights))
        return found

    def apply(self, array: FloatArray, axis: int, part: _Part) -> FloatArray:
        return np.moveaxis(np.tensordot(part.weights, array, axes=(1, axis)), 0, axis)


def _row_of(question: WeightedCells, attribute: int) -> _Rows:
    """The weights of a question along one of its attributes."""
    cells = question.cells_along(attribute)
    if attribute != question.axis:
        assert cells is not None
        return _Indicators(cells)
    return _Vector(question.weights) if cells is None else _Weighted(cells, question.weights)


class _Indicators(_Rows):
    """A row of 0 and 1 for each cell of a partition."""

    def __init__(self, partition: Partition) -> None:
        self.count = partition.cells
        self._partition = partition

    def parts(self, levels: Sequence[Partition]) -> list[_Part]:
        # For each row the cells of a level that it has a share of, and which share: first of single values.
        order = np.argsort(self._partition.labels, kind="stable")
        rows, cells, shares = self._partition.labels[order], order, np.ones(len(order))
        found: list[_Part] = []
        for level, coarser in itertools.zip_longest(levels, levels[1:]):
            among = Partition.of(np.zeros(level.cells)) if coarser is None else coarser.over(level)
            keys, inverse = np.unique(rows * among.cells + among.labels[cells], return_inverse=True)
            merged = np.bincount(inverse, weights=shares)
            squares = self._sums(rows, shares * shares)
            begins = np.searchsorted(rows, np.arange(self.count))
            fine, weights = cells, shares
            rows, cells = np.divmod(keys, among.cells)
            shares = merged / among.counts[cells]
            norms = squares - self._sums(rows, shares * merged)
            norms[norms < _SQUARES * squares] = 0.0
            if norms.any():
                found.append(_Part(level, norms, np.zeros(0), weights, fine, begins))
        return [*found, _Part(None, shares * shares, shares, np.zeros(0))]

    def _sums(self, rows: IntArray, values: FloatArray) -> FloatArray:
        return np.bincount(rows, weights=values, minlength=self.count).astype(np.float64)

    def apply(self, array: FloatArray, axis: int, part: _Part) -> FloatArray:
        # Shares serve in place of what they differ from those of coarser cells, as the residual sums to zero there.
        weighed = np.take(array, part.cells, axis=axis) * along(part.weights, axis, array.ndim)
        return np.asarray(np.add.reduceat(weighed, part.begins, axis=axis))


@dataclass(frozen=True, eq=False)
class _Weighed:
    """Sums of cells that weigh something, none more than one."""

    groups: Groups
    weights: FloatArray

    def of(self, cells: FloatArray) -> FloatArray:
        """The sums, flat."""
        return self.groups.summed(cells * self.weights).reshape(-1)

    def both(self, other: _Weighed, variances: FloatArray) -> FloatArray:
        """What the noise of this and of other sums has in common, from the variances of independent cells."""
        answers = np.minimum(self.groups.answers, other.groups.answers)
        return replace(self.groups, answers=answers).summed(variances * self.weights * other.weights).reshape(-1)

    def rows(self, marginal: Marginal) -> csr_array | None:
        """The weights on the cells of another marginal, a row for each answer; None where some members of a cell of it
        weigh unlike others."""
        groups, weights = self._needed
        found = _weighing(Cells(groups.marginal), marginal)
        if found is None:
            return None
        flat = groups.answers.reshape(-1)
        used = np.flatnonzero(flat >= 0)
        values = weights.reshape(-1)[used]
        summed = csr_array((values, (flat[used], used)), shape=(math.prod(groups.shape), len(flat)))
        return csr_array(summed @ found)

    @lazy
    def _needed(self) -> tuple[Groups, FloatArray]:
        """The same without the attributes that neither answers nor weights depend on."""
        answers, weights, kept = self.groups.answers, self.weights, list(self.groups.marginal.attributes)
        for axis in reversed(range(answers.ndim)):
            firsts = answers.take([0], axis=axis), weights.take([0], axis=axis)
            if bool((answers == firsts[0]).all()) and bool((weights == firsts[1]).all()):
                answers, weights = firsts[0].squeeze(axis), firsts[1].squeeze(axis)
                del kept[axis]
        return Groups(self.groups.marginal.onto(frozenset(kept)), answers, self.groups.shape), weights


def _by_row(sums: Sequence[_Weighed], measurement: Counts) -> Joint:
    """What a measurement tells of sums that weigh all members of each of its cells alike."""
    rows = [one.rows(measurement.marginal) for one in sums]
    unknown = np.full(math.prod(sums[0].groups.shape), np.nan)
    cells = measurement.values.reshape(-1)
    values = [unknown if row is None else np.asarray(row @ cells) for row in rows]
    covariances = [
        [
            unknown if one is None or two is None else measurement.variance * np.asarray(one.multiply(two).sum(axis=1))
            for two in rows
        ]
        for one in rows
    ]
    return Joint.of_rows(values, covariances)


@dataclass(frozen=True, eq=False)
class _Seen:
    """The view that one level of an attribute has of the cells of a partition, or their means where ``level`` is None.

    ``shares`` has a row for each cell and a column for each of the level: which part of its values lies in it.
    ``products`` are the inner products of what it sees of two cells beyond what coarser levels do.
    """

    level: Partition | None
    shares: csr_array
    products: csr_array


def _seen(partition: Partition, levels: Sequence[Partition], classes: IntArray) -> list[_Seen]:
    """Of each level, from fine to coarse, and of the means; products are those of cells that are told alike."""
    size, cells = partition.size, partition.cells
    shares = csr_array((np.ones(size), (partition.labels, np.arange(size))), shape=(cells, size))
    alike = csr_array((np.ones(cells), (np.arange(cells), classes)))
    rows, columns = (alike @ alike.T).nonzero()

    def products(weights: csr_array) -> FloatArray:
        return np.asarray(weights[rows].multiply(weights[columns]).sum(axis=1)).reshape(-1)

    found = []
    for level, coarser in itertools.zip_longest(levels, levels[1:]):
        among = Partition.of(np.zeros(level.cells)) if coarser is None else coarser.over(level)
        onto = csr_array((1 / among.counts[among.labels], (np.arange(level.cells), among.labels)))
        whole, means = products(shares), csr_array(shares @ onto)
        beyond = whole - products(csr_array(means * np.sqrt(among.counts)))
        # Of cells that the level does not tell apart rounding leaves something.
        beyond[np.abs(beyond) < _SQUARES * size] = 0.0
        if beyond.any():
            found.append(_Seen(level, shares, csr_array((beyond, (rows, columns)), shape=(cells, cells))))
        shares = means
    return [*found, _Seen(None, shares, csr_array((products(shares), (rows, columns)), shape=(cells, cells)))]


def _told_along(sums: Sequence[Groups], axis: int) -> IntArray:
    """A number for each cell along one attribute: those of equal numbers are counted in the same answers, as far as the
    attribute tells these apart."""
    answers = np.max([one.answers for one in sums], axis=0)
    rest = np.moveaxis(answers, axis, 0).reshape(answers.shape[axis], -1)
    inside, classes = rest >= 0, np.zeros(len(rest), np.int64)
    for count in reversed(sums[0].shape):
        rest, coordinate = np.divmod(rest, count)
        most, least = np.where(inside, coordinate, -1).max(axis=1), np.where(inside, coordinate, count).min(axis=1)
        if bool((most <= least).all()):
            classes = classes * count + np.maximum(most, 0)
    return np.unique(classes, return_inverse=True)[1].reshape(-1)


def _onto(matrix: csr_array, array: FloatArray, axis: int) -> FloatArray:
    """An axis of an array taken to another by a matrix."""
    moved = np.moveaxis(array, axis, 0)
    found = np.asarray(matrix @ moved.reshape(len(moved), -1))
    return np.moveaxis(found.reshape(-1, *moved.shape[1:]), 0, axis)


def _contrasts(
    array: FloatArray, attributes: Sequence[int], chains: Sequence[Sequence[Partition]], *, averaged: bool
) -> Iterator[tuple[Key, FloatArray, int]]:
    """The contrasts that each residual sees of counts (summed over the cells of its levels), or of weights (averaged
    over them).

    Args:
        array: one axis for each attribute.
        attributes: ascending.
        chains: for each attribute its levels from coarse to fine, the last one that of the axis.
        averaged: whether cells are averaged instead of summed.

    Yields:
        The residual, what it sees, and how many cells of the array were merged into one of its own.
    """
    pieces: list[tuple[Key, FloatArray, int]] = [((), array, 1)]
    for attribute, chain in zip(attributes, chains, strict=True):
        divided: list[tuple[Key, FloatArray, int]] = []
        for key, piece, merged in pieces:
            axis, values, ratio = len(key), piece, merged
            for level, coarser in itertools.zip_longest(chain[::-1], chain[-2::-1]):
                if coarser is None:
                    shared, means = level.cells, values.mean(axis=axis, keepdims=True)
                    seen = values - means
                else:
                    among, shared = coarser.over(level), level.cells // coarser.cells
                    # Equally many but where weights on single values are averaged over uneven cells.
                    means = among.summed(values, axis) / along(among.counts.astype(np.float64), axis, values.ndim)
                    seen = values - among.spread(means, axis)
                divided.append(((*key, (attribute, level.cells)), seen, ratio))
                values, ratio = means if averaged else means * shared, ratio * shared
            divided.append((key, values.squeeze(axis), ratio))
        pieces = divided
    yield from pieces


def _steps(noise: Noise) -> float:
    """The scale of noise in steps of its grid."""
    return math.ldexp(float(noise.scale), noise.bits)


def _stepped(steps: float, confidence: float) -> float:
    """How many deviations Gaussian noise of so many steps reaches at most."""
    return normal_quantile(confidence) * (1 + steps**-2 / 24) + 0.5 / steps


def reach_alone(noise: Noise, confidence: float, cells: int) -> float:
    """How many deviations a sum of noise over so many cells, or more, is said to reach where nothing else is known."""
    if noise.kind == "gaussian" and _steps(noise) >= _MANY_STEPS:
        return _stepped(_steps(noise), confidence)
    # The fewer noises of whole steps the farther, about.
    return max(quantile([Term.of(noise, np.ones(1), repeated=cells + n)], confidence) for n in range(3))


def _widest(laws: set[tuple[Noise, int]], confidence: float) -> float:
    """How many deviations reach as far as those of any sum of noises do, about: few noises reach farthest, or very
    many."""
    few = [quantile([Term.of(noise, np.ones(1), repeated=n)], confidence) for noise, _ in laws for n in (1, 2, 3)]
    return max([*few, normal_quantile(confidence)])


def _name(question: Question) -> Hashable:
    """The key that a question is remembered by."""
    if isinstance(question, Product):
        return question.attributes, question.scale, tuple(vector.tobytes() for vector in question.vectors)
    if isinstance(question, Local):
        return question.attributes, question.weights.shape, question.weights.tobytes()
    if isinstance(question, WeightedCells):
        return question.marginal, question.axis, question.weights.tobytes()
    if isinstance(question, Groups):
        return question.marginal, question.shape, question.answers.tobytes()
    if isinstance(question, Nested):
        return question.marginal, question.attribute, question.levels, question.nodes.tobytes()
    assert isinstance(question, Cells)
    return question.marginal


def imagined(marginal: Marginal, variance: float, values: FloatArray, draws: Draws | None = None) -> Counts:
    """A measurement with these values, as far as 64 bits tell small ones from large ones, of this variance."""
    return Counts(marginal, *_imagined(variance, values), draws=draws)


def imagined_rows(marginal: Marginal, rows: Rows, variance: float, counts: FloatArray) -> Combination:
    """The same of rows over cells with these counts; the variance is that of each row."""
    noise, units = _imagined(variance, np.asarray(rows.matrix @ counts.reshape(-1)))
    return Combination(marginal, noise, units, rows=rows)


def _imagined(variance: float, values: FloatArray) -> tuple[Noise, IntArray]:
    largest = max(float(np.abs(values).max(initial=0.0)), 1.0)
    bits = max(0, min(_FINE, 61 - math.frexp(largest)[1]))
    return replace(_smooth(variance), bits=bits), np.rint(np.ldexp(values, bits)).astype(np.int64)


def _smooth(variance: float) -> Noise:
    """Noise of this variance: on so fine a grid it is the scale squared."""
    return Noise("gaussian", Decimal(repr(math.sqrt(variance))), _FINE)


def _on(question: Sum, marginal: Marginal) -> FloatArray:
    """The weights of a question on the cells of a marginal, all of whose members weigh alike."""
    partitions = [marginal.partition(marginal.attributes.index(a)) for a in question.attributes]
    shape = [n if a in question.attributes else 1 for a, n in zip(marginal.attributes, marginal.shape, strict=True)]
    return np.broadcast_to(question.on(partitions).reshape(shape), marginal.shape)


def _weighing(question: Question, marginal: Marginal) -> csr_array | None:
    """The weights of a question on the cells of a marginal, a row for each answer, row by row; None where some members
    of a cell weigh unlike others.
    """
    if not set(question.attributes) <= set(marginal.attributes):
        return None
    places = [marginal.attributes.index(a) for a in question.attributes]
    cells = [marginal.partition(place) for place in places]
    if not all(p.refines(question.partition(k)) for k, p in enumerate(cells)):
        return None
    if isinstance(question, Sum):
        return csr_array(_on(question, marginal).reshape(1, -1))
    rank = len(marginal.shape)
    weights, answers = np.ones([1] * rank), np.zeros([1] * rank, np.int64)
    for k, (place, own) in enumerate(zip(places, cells, strict=True)):
        if isinstance(question, WeightedCells):
            asked = question.cells_along(question.attributes[k])
            if question.attributes[k] == question.axis:
                weights = weights * along(question.weights[own.members], place, rank)
        else:
            asked = question.partition(k)
        if asked is not None:
            labels = asked.labels[own.members].reshape([-1 if axis == place else 1 for axis in range(rank)])
            answers = answers * asked.cells + labels
    flat = np.broadcast_to(answers, marginal.shape).reshape(-1)
    if isinstance(question, Groups):
        flat = question.answers.reshape(-1)[flat]
    used = np.flatnonzero(flat >= 0)
    values = np.broadcast_to(weights, marginal.shape).reshape(-1)[used]
    return csr_array((values, (flat[used], used)), shape=(math.prod(question.shape), marginal.cells))


def own_values(question: Question, measurement: Apart) -> Unbiased | None:
    """The estimate of a question from a single measurement: sums of its cells; None if nothing."""
    if isinstance(measurement, Combination):
        rows = _weighing(question, measurement.marginal)
        if rows is None:
            return None
        values, variances = measurement.weighed(rows)
        return Unbiased(values.reshape(question.shape), variances.reshape(question.shape))
    if not set(question.attributes) <= set(measurement.marginal.attributes):
        return None
    if isinstance(question, Cells) and any(
        measurement.marginal.partition(measurement.marginal.attributes.index(a)).least > question.partition(k).most
        for k, a in enumerate(question.attributes)
    ):
        return None
    attributes = frozenset(question.attributes)
    marginal = measurement.marginal.onto(attributes)
    variance = measurement.variance * (measurement.marginal.cells // marginal.cells)
    cells = [marginal.partition(k) for k in range(len(marginal.attributes))]
    if isinstance(question, WeightedCells):
        if not all(p.refines(question.partition(k)) for k, p in enumerate(cells)):
            return None
        variances = question.squared(np.full(marginal.shape, variance), cells)
        return Unbiased(question.of(measurement.onto(attributes), cells), variances)
    if isinstance(question, Sum):
        if not all(p.refines(question.partition(k)) for k, p in enumerate(cells)):
            return None
        weights = question.on(cells)
        value = float((measurement.onto(attributes) * weights).sum())
        return Unbiased(np.array(value), np.array(variance * float((weights * weights).sum())))
    rank = len(cells)
    estimable, merged = np.ones((), dtype=bool), np.ones(())
    places: list[tuple[Partition, Array]] = []
    for axis, own in enumerate(cells):
        asked = question.partition(axis)
        labels = asked.labels[own.members]
        cut = asked.labels != labels[own.labels]
        # A cell that is cut spoils all cells asked for that it lies in.
        spoilt = np.isin(own.labels, own.labels[cut])
        within = np.ones(asked.cells, dtype=bool)
        within[asked.labels[spoilt]] = False
        if not within.any():
            return None
        estimable = estimable[..., None] & within
        merged = merged[..., None] * np.bincount(labels, minlength=asked.cells)
        places.append((Partition.of(labels), labels))
    values = measurement.onto(attributes)
    for axis, (grouped, labels) in enumerate(places):
        sums = grouped.summed(values, axis)
        shape = list(sums.shape)
        shape[axis] = question.shape[axis]
        values = np.zeros(shape)
        values[(slice(None),) * axis + (labels[grouped.members],)] = sums
    assert values.ndim == rank
    return Unbiased(np.where(estimable, values, np.nan), np.where(estimable, variance * merged, np.nan))


def averaged(estimates: list[Unbiased]) -> Unbiased:
    """Independent values of one question averaged by precision, NaN where none is known; the first may be exact."""
    values, variances = np.stack([t.values for t in estimates]), np.stack([t.variances for t in estimates])
    with np.errstate(divide="ignore", invalid="ignore"):
        precisions = np.where(np.isnan(variances), 0.0, 1 / variances)
        whole = precisions.sum(axis=0)
        mean = np.where(precisions > 0, precisions * values, 0.0).sum(axis=0) / whole
        exact = variances[0] == 0
        return Unbiased(
            np.where(exact, values[0], np.where(whole > 0, mean, np.nan)),
            np.where(exact, 0.0, np.where(whole > 0, 1 / whole, np.nan)),
        )


def weighed(question: Question, axis: int, row: FloatArray) -> Question:
    """The counts of a question, each weighed by the value of an attribute."""
    if isinstance(question, Product):
        vectors = dict(zip(question.attributes, question.vectors, strict=True))
        return Product.over(vectors | {axis: vectors.get(axis, np.ones(len(row))) * row}, question.scale)
    if isinstance(question, Local):
        axes = tuple(sorted({*question.attributes, axis}))
        spread_out = question.weights
        if axis not in question.attributes:
            spread_out = np.expand_dims(spread_out, axes.index(axis))
        return Local.over(axes, spread_out * along(row, axes.index(axis), len(axes)))
    assert isinstance(question, Cells)
    return WeightedCells(question.marginal, axis, row)


def _estimate(source: Residuals | Apart, asked: Question, question: Question) -> Unbiased | None:
    """The estimate from a source of counts that may be weighed, summed where the question is of groups of cells."""
    if isinstance(source, Residuals):
        return source._closed(asked)
    found = own_values(asked, source)
    if found is not None and isinstance(question, Groups):
        return Unbiased(question.summed(found.values), question.summed(found.variances))
    return found


def _polar(known: Mapping[tuple[int, int], Unbiased], one: int, other: int) -> FloatArray:
    """The covariances of two of several estimates, of which what is known of each and of sums of two is given."""
    first, second = known[one, one].variances, known[other, other].variances
    if one == other:
        return first
    # Rounding leaves no more than there can be, nor anything of what is known exactly.
    most = np.sqrt(first * second)
    return np.clip((known[min(one, other), max(one, other)].variances - first - second) / 2, -most, most)
