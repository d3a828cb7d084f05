"""Exact numbers of records in the cells of marginals, and sums of weights of a number, from whatever holds a table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.spaces.partition import Marginal, Partition
from app.spaces.records import PART, RecordsTensor, parts_of
from app.spaces.tensor import IntArray, PrivateTensor

#: Attributes are taken together while they have so many cells: pairs of such groups are counted in one pass.
_MOST_GROUPED = 64


def counted(marginal: Marginal, data: PrivateTensor) -> IntArray:
    """The number of records in each cell, in the marginal's shape.

    Records are counted in the cells at once: the values told apart may be too many to be counted one by one.
    """
    if isinstance(data, RecordsTensor):
        places = _places(marginal, data)
        if places:
            return RecordsTensor(places, marginal.shape).marginal(tuple(range(len(places))))
    return _merged(marginal, np.asarray(data.marginal(marginal.attributes), np.int64))


def summed(marginal: Marginal, axis: int, weights: IntArray, data: PrivateTensor) -> IntArray:
    """The sum over the records of each cell of weights by an attribute's first values, in the marginal's shape; others
    weigh nothing."""
    if isinstance(data, RecordsTensor):
        padded = np.append(weights, 0)
        places, cells = data.columns[axis], np.zeros(data.size, np.int64)
        for column, length in zip(_places(marginal, data), marginal.shape, strict=True):
            cells *= length
            cells += column
        sums = np.zeros(math.prod(marginal.shape), np.int64)
        # Whole numbers are added as such: in floating point large sums would lose their last digits.
        for part in parts_of(data.size, PART):
            np.add.at(sums, cells[part], padded[places[part]])
        return sums.reshape(marginal.shape)
    # Along the moment's own axis values are weighed before they are merged.
    named = tuple(sorted({*marginal.attributes, axis}))
    place, length = named.index(axis), data.shape[axis]
    padded = np.zeros(length, np.int64)
    padded[: len(weights)] = weights
    shape = [length if k == place else 1 for k in range(len(named))]
    weighed = np.asarray(data.marginal(named), np.int64) * padded.reshape(shape)
    if axis not in marginal.attributes:
        weighed = weighed.sum(axis=place)
    return _merged(marginal, weighed)


def _places(marginal: Marginal, data: RecordsTensor) -> list[IntArray]:
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


def counted_together(marginals: Sequence[Marginal], data: PrivateTensor) -> list[IntArray]:
    """The numbers of records in the cells of several marginals, each in its own shape.

    Those of two attributes are sums of counts of two groups of attributes: of fifty attributes with eight values each
    that takes a quarter of the passes over the records.
    """
    pairs = [m for m in marginals if len(m.attributes) == 2]
    if not isinstance(data, RecordsTensor) or len(pairs) < 2:
        return [counted(marginal, data) for marginal in marginals]
    found = dict(zip(pairs, _pairs(pairs, data), strict=True))
    return [found[m] if m in found else counted(m, data) for m in marginals]


@dataclass(frozen=True)
class _Group:
    """Columns of cells that are counted as one, and how many cells each has."""

    columns: tuple[tuple[int, Partition | None], ...]
    shape: tuple[int, ...]

    def codes(self, data: RecordsTensor, part: slice) -> IntArray:
        """For some records the position of the combination of their cells."""
        codes: IntArray = np.zeros(1, np.int64)
        for (attribute, partition), length in zip(self.columns, self.shape, strict=True):
            column = data.columns[attribute][part]
            codes = codes * length + (column if partition is None else partition.labels[column])
        return codes


def _pairs(marginals: Sequence[Marginal], data: RecordsTensor) -> list[IntArray]:
    """Counts of marginals of two attributes each."""
    lengths: dict[tuple[int, Partition | None], int] = {}
    for marginal in marginals:
        lengths.update(zip(_columns(marginal), marginal.shape, strict=True))
    groups: list[_Group] = []
    for column, length in sorted(lengths.items(), key=lambda item: item[0][0]):
        if groups and int(np.prod(groups[-1].shape)) * length <= _MOST_GROUPED:
            groups[-1] = _Group((*groups[-1].columns, column), (*groups[-1].shape, length))
        else:
            groups.append(_Group((column,), (length,)))
    home = {column: number for number, group in enumerate(groups) for column in group.columns}
    sizes = [int(np.prod(group.shape)) for group in groups]
    wanted = [tuple(sorted({home[column] for column in _columns(marginal)})) for marginal in marginals]
    counts = {key: np.zeros(int(np.prod([sizes[g] for g in key])), np.int64) for key in wanted}
    for start in range(0, data.size, PART):
        part = slice(start, min(start + PART, data.size))
        codes = [group.codes(data, part) for group in groups]
        for key, sums in counts.items():
            positions = codes[key[0]] if len(key) == 1 else codes[key[0]] * sizes[key[1]] + codes[key[1]]
            sums += np.bincount(positions, minlength=len(sums))
    result = []
    for marginal, key in zip(marginals, wanted, strict=True):
        columns = list(itertools.chain(*(groups[g].columns for g in key)))
        shape = list(itertools.chain(*(groups[g].shape for g in key)))
        kept = [columns.index(column) for column in _columns(marginal)]
        summed = counts[key].reshape(shape).sum(axis=tuple(k for k in range(len(shape)) if k not in kept))
        result.append(summed if kept == sorted(kept) else summed.T)
    return result


def _columns(marginal: Marginal) -> list[tuple[int, Partition | None]]:
    return list(zip(marginal.attributes, marginal.partitions, strict=True))
