"""All measurements restricted to the attributes of one question, and the cells that they and the question tell apart.

A measurement restricted to some attributes is its sum over all others: a marginal again, its variance that of a cell
times the cells summed. Those of one marginal are averaged by precision as they come.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from app.evidence.axes import summed
from app.evidence.measurements import Marginal, Measurement, Partition
from app.evidence.questions import Question
from app.spaces.tensor import FloatArray, IntArray

#: A measurement of one attribute whose variance is this many times that of its single values tells nothing new.
WEAK = 4.0


@dataclass
class Restricted:
    """What is known of one marginal on (some of) the attributes: values in counts and the variance of each."""

    marginal: Marginal
    values: FloatArray
    variance: float


class Restriction:
    """The measurements of a table as seen from a set of attributes."""

    def __init__(self, attributes: Sequence[int]) -> None:
        self.attributes = tuple(attributes)
        self._known: dict[Marginal, Restricted] = {}
        self._taken = 0

    def take(self, measurements: Sequence[Measurement]) -> None:
        """Take in those that came since the last call; measurements are only ever appended."""
        inside = frozenset(self.attributes)
        for measurement in measurements[self._taken :]:
            if inside.isdisjoint(measurement.marginal.attributes):
                continue
            marginal = measurement.marginal.onto(inside)
            values = measurement.onto(inside)
            variance = measurement.variance * (measurement.marginal.cells // marginal.cells)
            known = self._known.get(marginal)
            if known is None:
                self._known[marginal] = Restricted(marginal, values, variance)
            else:
                share = known.variance / (known.variance + variance)
                known.values = known.values + share * (values - known.values)
                known.variance *= 1 - share
        self._taken = len(measurements)

    @property
    def known(self) -> list[Restricted]:
        """What is known, one of each marginal, in the order of the first to come."""
        return list(self._known.values())

    def strength(self) -> float:
        """One over the geometric mean of the standard deviations of a value: over the marginals of two or more
        attributes, over all where there is none, and 1 where nothing is known."""
        several = [r.variance for r in self.known if len(r.marginal.attributes) > 1]
        variances = several or [r.variance for r in self.known]
        return math.exp(-0.5 * float(np.mean(np.log(variances)))) if variances else 1.0

    def told(
        self, question: Question, bases: Mapping[int, tuple[Partition, float] | None], most: int
    ) -> tuple[Partition, ...]:
        """The cells to fit over: for each attribute the values that the question or a measurement tells apart.

        Where that is more than ``most`` cells, measurements are taken from the least variance on, as many as there is
        room for. (The others are summed to the cells that they share with the fit.)

        Args:
            question: on these attributes.
            bases: for each attribute the cells that the base knows it in, and the variance of one; None where these are
                not the ones that it is counted in at first, nor finer ones. Measurements
                of one attribute tell its values apart only where they tell these apart, or know unions of them better
                (within ``WEAK``), or where it is the only attribute.
            most: cells.
        """
        telling = []
        for known in self.known:
            own = known.marginal
            if len(own.attributes) == 1 < len(self.attributes):
                base = bases[own.attributes[0]]
                if base is not None and base[0].refines(own.partition(0)):
                    same = own.shape == (base[0].cells,)
                    if same or known.variance > WEAK * base[1]:
                        continue
            telling.append(known)
        cells = list(question.partitions)
        for known in sorted(telling, key=lambda k: k.variance):
            finer = list(cells)
            for k, attribute in enumerate(known.marginal.attributes):
                place = self.attributes.index(attribute)
                if finer[place].cells < finer[place].size:
                    finer[place] = finer[place].met(known.marginal.partition(k))
            if math.prod(p.cells for p in finer) <= most:
                cells = finer
        return tuple(cells)


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
            values = summed(values, k, shared.over(own))
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
