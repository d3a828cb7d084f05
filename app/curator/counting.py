"""Exact numbers of records in the cells of a strategy, and moments and combinations of them, from whatever holds a
table's numbers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.measurements.rows import centred
from app.measurements.strategies.degrees import Degrees
from app.measurements.strategies.edges import Edges
from app.measurements.strategies.products import Products
from app.measurements.strategies.tables import Moment, TableStrategy
from app.spaces.partition import Marginal, Partition
from app.spaces.records import PART, RecordsTensor, parts_of
from app.spaces.tensor import DenseTensor, IntArray, PrivateTensor, SparseTensor

#: Attributes are taken together while they have so many cells: pairs of such groups are counted in one pass.
_MOST_GROUPED = 64


def exact_values(strategy: TableStrategy, data: PrivateTensor) -> IntArray:
    """What a strategy releases before noise is added: its parts one after another, each row by row."""
    return all_exact_values([strategy], data)[0]


def all_exact_values(strategies: Sequence[TableStrategy], data: PrivateTensor) -> list[IntArray]:
    """The same of several strategies, whose marginals are counted together."""
    counts = iter(counted_together([p.marginal for s in strategies for p in s.parts if p.moment is None], data))
    found = []
    for strategy in strategies:
        parts = []
        for part in strategy.parts:
            exact = next(counts) if part.moment is None else _moment(part.marginal, part.moment, data)
            if part.residual:
                exact = centred(exact)
            elif part.rows is not None:
                exact = part.rows.matrix @ exact.reshape(-1)
            parts.append(exact.reshape(-1) * part.multiplier)
        found.append(np.concatenate(parts))
    return found


def exact_cells(edges: Edges, data: PrivateTensor) -> IntArray:
    """What every cell of a graph or a matrix holds, in data units, of the type in which it is kept.

    Where only what is not zero is kept, nothing is made beside the cells themselves.
    """
    if isinstance(data, DenseTensor):
        return edges.flattened(data.array)
    assert isinstance(data, SparseTensor)
    kept = data.matrix.tocoo()
    rows, columns = kept.coords
    # Either direction of an undirected edge is kept.
    upper = rows < columns if edges.kind == "pairs" else slice(None)
    cells: IntArray = np.zeros(edges.cells, kept.dtype)
    cells[edges.positions(rows[upper], columns[upper])] = kept.data[upper]
    return cells


def exact_degrees(degrees: Degrees, data: PrivateTensor) -> IntArray:
    """The degree of every node of a graph, in data units; what stands on the diagonal of a graph is no edge."""
    kind = degrees.edges.kind
    sides = [np.array(data.marginal((axis,)), np.int64) for axis in ((0,) if kind == "pairs" else (0, 1))]
    if kind != "all":
        assert isinstance(data, DenseTensor | SparseTensor)
        loops = (data.array if isinstance(data, DenseTensor) else data.matrix).diagonal()
        for side in sides:
            side -= loops
    return np.concatenate(sides)


def exact_products(products: Products, data: PrivateTensor) -> IntArray:
    """Products of the cells of a graph or a matrix with weights, in units of the data's and the weights' grids
    together; what stands on the diagonal of a graph is no edge.
    """
    assert isinstance(data, DenseTensor | SparseTensor)
    matrix = data.array.astype(np.int64) if isinstance(data, DenseTensor) else data.matrix.astype(np.int64)
    left, right, kind = products.left, products.right, products.edges.kind
    first, across = (left, matrix.T) if right is None else (right, matrix)
    assert first is not None
    values: IntArray = across @ first
    if kind != "all":
        values -= matrix.diagonal() * first
    if left is None or right is None:
        return values
    # Either direction of an undirected edge is kept.
    return np.array([left @ values // (2 if kind == "pairs" else 1)], np.int64)


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
