"""All measurements restricted to the attributes of one question, and the cells that they and the question tell apart.

A measurement restricted to some attributes is its sum over all others: a marginal again, its variance that of a cell
times the cells summed. Those of one marginal are averaged by precision as they come.

Contrasts of attributes that are not all among these tell nothing here. Those that are, with those of fewer of the same
attributes, are put together to marginals, so that all that was measured counts once (:func:`assembled`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Self

import numpy as np
from scipy.sparse import coo_array, csc_array
from scipy.sparse.csgraph import connected_components

from app.measurements.pieces import Combination, Contrast, Counts
from app.spaces.partition import Marginal, Partition
from app.spaces.questions import Question
from app.spaces.tensor import FloatArray, IntArray
from app.spaces.zeros import NO_ZEROS, Zeros

#: Less than this part of what contrasts tell is what rounding left.
_NOTHING = 1e-9
#: A measurement of one attribute whose variance is this many times that of its single values tells nothing new.
WEAK = 4.0


@dataclass(frozen=True, eq=False)
class Restricted:
    """The known values of one marginal on (some of) the attributes: values in counts and the variance of each."""

    marginal: Marginal
    values: FloatArray
    variance: float


class Restriction:
    """The measurements of a table as seen from a set of attributes."""

    def __init__(self, attributes: Sequence[int]) -> None:
        self.attributes = tuple(attributes)
        self._known: dict[Marginal, Restricted] = {}
        self._taken = self._contrasts_taken = self._combinations_taken = 0
        self._contrasts: dict[Marginal, Restricted] = {}
        self._assembled: dict[Marginal, Restricted] = {}
        #: Rows over the cells of some of the attributes.
        self.combinations: list[Combination] = []

    def copied(self) -> Self:
        """Another, which takes in for itself."""
        made = copy(self)
        made._known, made._contrasts = dict(self._known), dict(self._contrasts)
        made.combinations = list(self.combinations)
        return made

    def take(
        self,
        measurements: Sequence[Counts],
        contrasts: Sequence[Contrast] = (),
        combinations: Sequence[Combination] = (),
    ) -> None:
        """Take in those that came since the last call; measurements are only ever appended."""
        inside = frozenset(self.attributes)
        new = [c for c in contrasts[self._contrasts_taken :] if inside.issuperset(c.marginal.attributes)]
        self._contrasts_taken = len(contrasts)
        for contrast in new:
            _average(self._contrasts, contrast.marginal, contrast.values, contrast.variance)
        if new:
            self._assembled = assembled(self._contrasts)
        for combination in combinations[self._combinations_taken :]:
            if inside.issuperset(combination.marginal.attributes):
                self.combinations.append(combination)
            elif not inside.isdisjoint(combination.marginal.attributes):
                # Least squares estimates of its cells, summed; how their noise goes together is left out.
                marginal = combination.marginal.onto(inside)
                values, variances = combination.onto(inside)
                if not np.isnan(variances).any():
                    _average(self._known, marginal, values, float(variances.mean()))
        self._combinations_taken = len(combinations)
        for measurement in measurements[self._taken :]:
            if inside.isdisjoint(measurement.marginal.attributes):
                continue
            marginal = measurement.marginal.onto(inside)
            values = measurement.onto(inside)
            variance = measurement.variance * (measurement.marginal.cells // marginal.cells)
            _average(self._known, marginal, values, variance)
        self._taken = len(measurements)

    @property
    def known(self) -> list[Restricted]:
        """The known values of marginals, one of each, in the order of the first to come. The sum of one that was put
        together of contrasts alone is zero: they do not tell it.
        """
        if not self._assembled:
            return list(self._known.values())
        known = dict(self._known)
        for marginal, own in self._assembled.items():
            _average(known, marginal, own.values, own.variance)
        return list(known.values())

    @property
    def _measured(self) -> list[tuple[Marginal, float]]:
        """The marginals that are measured, and the variance of a cell's count."""
        combined = [(c.marginal, c.variance_per_cell) for c in self.combinations]
        return [(known.marginal, known.variance) for known in self.known] + combined

    def strength(self) -> float:
        """One over the geometric mean of the standard deviations of a value: over the marginals of two or more
        attributes, over all where there is none, and 1 where nothing is known."""
        measured = self._measured
        several = [variance for marginal, variance in measured if len(marginal.attributes) > 1]
        variances = several or [variance for _, variance in measured]
        return math.exp(-0.5 * float(np.mean(np.log(variances)))) if variances else 1.0

    def cells(
        self,
        question: Question,
        bases: Mapping[int, tuple[Partition, float] | None],
        most: int,
        zeros: Zeros = NO_ZEROS,
    ) -> tuple[Partition, ...]:
        """The cells to fit over: for each attribute the values that the question, structural zeros or
        a measurement tell apart.

        Where that is more than ``most`` cells, measurements are taken from the least variance on, as many as there is
        room for. (The others are summed to the cells that they share with the fit.)

        Args:
            question: on these attributes.
            bases: for each attribute the cells that the base knows it in, and the variance of one; None where these are
                not the ones that it is counted in at first, nor finer ones. Measurements
                of one attribute tell its values apart only where they tell these apart, or know unions of them better
                (within ``WEAK``), or where it is the only attribute.
            most: cells.
            zeros: of the table; they come first.
        """
        telling = []
        for own, variance in self._measured:
            if len(own.attributes) == 1 < len(self.attributes):
                base = bases[own.attributes[0]]
                if base is not None and base[0].refines(own.partition(0)):
                    same = own.shape == (base[0].cells,)
                    if same or variance > WEAK * base[1]:
                        continue
            telling.append((own, variance))
        cells = list(question.partitions)
        told = zeros.cells(self.attributes)
        finer = [cells[k].met(told[a]) if a in told else cells[k] for k, a in enumerate(self.attributes)]
        if math.prod(p.cells for p in finer) <= most:
            cells = finer
        for own, _ in sorted(telling, key=lambda each: each[1]):
            finer = list(cells)
            for k, attribute in enumerate(own.attributes):
                place = self.attributes.index(attribute)
                if finer[place].cells < finer[place].size:
                    finer[place] = finer[place].met(own.partition(k))
            if math.prod(p.cells for p in finer) <= most:
                cells = finer
        return tuple(cells)


def _average(known: dict[Marginal, Restricted], marginal: Marginal, values: FloatArray, variance: float) -> None:
    """Average independent values of a marginal into what is known of it."""
    own = known.get(marginal)
    if own is None:
        known[marginal] = Restricted(marginal, values, variance)
    else:
        share = own.variance / (own.variance + variance)
        known[marginal] = Restricted(marginal, own.values + share * (values - own.values), own.variance * (1 - share))


def assembled(contrasts: Mapping[Marginal, Restricted]) -> dict[Marginal, Restricted]:
    """Contrasts put together to marginals whose cells have independent noise of one variance, and sum to zero.

    Values of a marginal of variance s^2 a cell are contrasts of it with that variance, and of every marginal on fewer
    attributes with s^2 times the cells summed. So, from the largest sets of attributes on, a marginal is given as much
    precision as its contrasts have left, and no more than those of fewer attributes have left for it, those of one size
    sharing evenly what they share; all that it is given is taken off theirs. What is left of theirs makes a marginal in
    its turn. Nothing is counted twice. Where contrasts of fewer attributes are known less well than those of more, some
    of the latter is not used; where one was not measured at all, none.
    """
    left = {marginal: 1 / own.variance for marginal, own in contrasts.items()}
    found: dict[Marginal, Restricted] = {}
    for _, group in itertools.groupby(
        sorted(contrasts, key=lambda m: -len(m.attributes)), key=lambda m: len(m.attributes)
    ):
        same = list(group)
        inner = {marginal: _inside(marginal) for marginal in same}
        shared: dict[Marginal, int] = {}
        for marginal in same:
            if all(m in left for m in inner[marginal]):
                for m in inner[marginal]:
                    shared[m] = shared.get(m, 0) + 1
        given = {}
        for marginal in same:
            if all(m in left for m in inner[marginal]):
                given[marginal] = min(left[m] * (marginal.cells // m.cells) / shared[m] for m in inner[marginal])
        for marginal, precision in given.items():
            if precision <= _NOTHING / contrasts[marginal].variance:
                continue
            values = np.zeros(marginal.shape)
            for m in inner[marginal]:
                left[m] -= precision * m.cells / marginal.cells
                outside = tuple(k for k, a in enumerate(marginal.attributes) if a not in m.attributes)
                values = values + np.expand_dims(contrasts[m].values, outside) * (m.cells / marginal.cells)
            found[marginal] = Restricted(marginal, values, 1 / precision)
    return found


def _inside(marginal: Marginal) -> list[Marginal]:
    """A marginal and those on fewer of its attributes, but on one at least."""
    return [
        marginal.onto(frozenset(kept))
        for count in range(1, len(marginal.attributes) + 1)
        for kept in itertools.combinations(marginal.attributes, count)
    ]


@dataclass(frozen=True, eq=False)
class Values:
    """The values of one marginal as a fit uses them.

    Attributes:
        marginal: its cells are unions of the fit's.
        labels: for each cell of the fit, row by row, the value it is counted in.
        values: counts, flat.
        variances: of each.
    """

    marginal: Marginal
    labels: IntArray
    values: FloatArray
    variances: FloatArray


@dataclass(frozen=True, eq=False)
class Weighed:
    """Values of sums with weights on the cells of a fit, with independent noise.

    Attributes:
        marginal: of the combination that they are of.
        counted: the weights, values by cells.
        values: of the sums, in counts.
        variances: of each.
    """

    marginal: Combination
    counted: csc_array
    values: FloatArray
    variances: FloatArray


def weighed_on(known: Combination, attributes: Sequence[int], cells: Sequence[Partition]) -> Weighed | None:
    """A combination in terms of the cells of a fit, each row divided by its largest weight; None where these do not
    tell its own cells apart."""
    labels: IntArray = np.zeros([1] * len(attributes), dtype=np.int64)
    for k, attribute in enumerate(known.marginal.attributes):
        place, own = attributes.index(attribute), known.marginal.partition(k)
        if not cells[place].refines(own):
            return None
        here = [-1 if axis == place else 1 for axis in range(len(attributes))]
        labels = labels * own.cells + own.labels[cells[place].members].reshape(here)
    flat = np.broadcast_to(labels, [p.cells for p in cells]).reshape(-1)
    rows = known.rows
    largest = np.maximum.reduceat(np.abs(rows.weights), rows.starts[:-1]).astype(np.float64)
    counted = csc_array((rows.matrix.astype(np.float64) / largest[:, None]).tocsc()[:, flat])
    return Weighed(known, counted, known.values / largest, known.variance / largest**2)


def values_on(known: Restricted, attributes: Sequence[int], cells: Sequence[Partition]) -> Values | None:
    """A restricted marginal in terms of the cells of a fit; None where it tells none of them apart.

    Along each attribute its cells are merged until each is a union of the fit's cells.
    """
    merged: dict[int, Partition | None] = {}
    values, counted = known.values, np.ones(())
    labels: IntArray = np.zeros([1] * len(attributes), dtype=np.int64)
    for k, attribute in enumerate(known.marginal.attributes):
        place, own = attributes.index(attribute), known.marginal.partition(k)
        shared = own
        if not cells[place].refines(own):
            shared = _join(own, cells[place])
            values = shared.over(own).summed(values, k)
        counted = counted[..., None] * shared.over(own).counts
        merged[attribute] = shared
        here = [-1 if axis == place else 1 for axis in range(len(attributes))]
        labels = labels * shared.cells + shared.labels[cells[place].members].reshape(here)
    marginal = Marginal.of(_sizes(known.marginal, attributes), merged)
    if not marginal.attributes:
        return None
    flat = np.broadcast_to(labels, [p.cells for p in cells]).reshape(-1)
    return Values(marginal, flat, values.reshape(-1), (known.variance * counted).reshape(-1))


def _sizes(marginal: Marginal, attributes: Sequence[int]) -> list[int]:
    """Sizes by attribute, as far as the marginal names them."""
    sizes = [0] * (max(attributes) + 1)
    for attribute, size in zip(marginal.attributes, marginal.sizes, strict=True):
        sizes[attribute] = size
    return sizes


def _join(one: Partition, other: Partition) -> Partition:
    """The finest partition that both refine: cells that share a value, directly or through others, are one."""
    if one.refines(other):
        return other
    links = coo_array((np.ones(one.size), (one.labels, one.cells + other.labels)), shape=(one.cells + other.cells,) * 2)
    return Partition.of(connected_components(links, directed=False)[1][one.labels])
