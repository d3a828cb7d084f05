"""Exact numbers of records, and moments of them, in the cells of a strategy, from whatever holds a table's numbers."""

from __future__ import annotations

import math

import numpy as np

from app.evidence.measurements import Marginal
from app.evidence.strategies import Moment, Strategy
from app.spaces.records import PART, RecordsTensor, parts_of
from app.spaces.tensor import IntArray, PrivateTensor


def exact_values(strategy: Strategy, data: PrivateTensor) -> IntArray:
    """What a strategy releases before noise is added: its parts one after another, each row by row."""
    found = []
    for part in strategy.parts:
        own = part.marginal
        exact = counted(own, data) if part.moment is None else _moment(own, part.moment, data)
        found.append(exact.reshape(-1) * part.multiplier)
    return np.concatenate(found)


def counted(marginal: Marginal, data: PrivateTensor) -> IntArray:
    """The number of records in each cell, in the marginal's shape.

    Records are counted in the cells at once: the values told apart may be too many to be counted one by one.
    """
    if isinstance(data, RecordsTensor):
        told = _told(marginal, data)
        if told:
            return RecordsTensor(told, marginal.shape).marginal(tuple(range(len(told))))
    return _merged(marginal, np.asarray(data.marginal(marginal.attributes), np.int64))


def _moment(marginal: Marginal, moment: Moment, data: PrivateTensor) -> IntArray:
    """The sum of a moment's weights over the records of each cell, in the marginal's shape."""
    if isinstance(data, RecordsTensor):
        weights = np.append(moment.weights, 0)
        places, cells = data.columns[moment.axis], np.zeros(data.size, np.int64)
        for column, length in zip(_told(marginal, data), marginal.shape, strict=True):
            cells *= length
            cells += column
        sums = np.zeros(math.prod(marginal.shape), np.int64)
        # Whole numbers are added as such: in floating point large sums would lose their last digits.
        for part in parts_of(data.size, PART):
            np.add.at(sums, cells[part], weights[places[part]])
        return sums.reshape(marginal.shape)
    # Along the moment's own axis values are weighed before they are merged.
    named = tuple(sorted({*marginal.attributes, moment.axis}))
    place, length = named.index(moment.axis), data.shape[moment.axis]
    weights = np.zeros(length, np.int64)
    weights[: moment.places] = moment.weights
    shape = [length if k == place else 1 for k in range(len(named))]
    weighed = np.asarray(data.marginal(named), np.int64) * weights.reshape(shape)
    if moment.axis not in marginal.attributes:
        weighed = weighed.sum(axis=place)
    return _merged(marginal, weighed)


def _told(marginal: Marginal, data: RecordsTensor) -> list[IntArray]:
    """For each attribute of a marginal the cell of every record."""
    labels = [None if p is None else p.labels.astype(np.min_scalar_type(p.cells)) for p in marginal.partitions]
    columns = [data.columns[attribute] for attribute in marginal.attributes]
    return [c if part is None else part[c] for c, part in zip(columns, labels, strict=True)]


def _merged(marginal: Marginal, sums: IntArray) -> IntArray:
    """Sums over single values, one axis an attribute, as those over the cells of a marginal."""
    for axis, partition in enumerate(marginal.partitions):
        if partition is not None:
            order = np.argsort(partition.labels, kind="stable")
            starts = np.concatenate([[0], np.cumsum(partition.counts)[:-1]])
            sums = np.add.reduceat(sums.take(order, axis=axis), starts, axis=axis)
    return sums
