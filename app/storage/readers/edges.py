"""Graphs: edge lists and adjacency matrices become matrices of weights in units of the declared grid."""

import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from app.declarations.errors import InvalidDataset
from app.declarations.spec import BipartiteSpec, GraphSpec
from app.storage.private_data import CsrData, DenseData
from app.storage.readers.arrays import read_array, slabs
from app.storage.readers.columns import (
    Batch,
    numbers,
    parquet_batches,
    parquet_columns,
    positions,
    text_batches,
    text_layout,
    whole,
)
from app.storage.readers.report import Report
from app.storage.readers.sides import KEY_BYTES, kept_of_each
from app.storage.readers.triples import Integers, Triples, matrix_of_cells
from app.storage.readers.types import integer_type

#: Whatever the ending: a comma where the first line has one, else a semicolon, else white space.
_SEPARATORS = ",; "


def has_weights(filename: str, path: Path) -> bool:
    """Whether an edge list has a third column, which is a fact of the file's layout, not of its content, and so public.

    Raises:
        InvalidDataset: when the file cannot be read that far.
    """
    suffix = Path(filename).suffix.lower()
    if suffix in (".npy", ".npz"):
        return False
    return len(_columns(suffix, path)[0]) == 3


def read_edges(
    spec: BipartiteSpec | GraphSpec, suffix: str, path: Path, memory_limit: int
) -> tuple[DenseData | CsrData, Report | None]:
    """The matrix of a bipartite, directed or undirected graph; where nodes of a side are the unit, with a report of how
    many different edges there are and how many of them are kept.

    Edge list (CSV, text, Parquet): two columns, three where ``weighted``; ids from 0, or the declared
    labels; in text the first line is a header when neither of its two ends is an id. A repeated edge
    counts once and must repeat its weight; undirected, both directions are one edge. Adjacency matrix
    (.npy, .npz): of the declared shape, undirected symmetric. Sparse (CSR) where that takes fewer bytes
    than dense.
    """
    shape = (spec.left, spec.right) if isinstance(spec, BipartiteSpec) else (spec.nodes, spec.nodes)
    bits = spec.data_bits
    dtype = integer_type(0, 1 << bits)
    undirected = isinstance(spec, GraphSpec) and not spec.directed
    if suffix in (".npy", ".npz"):
        return _read_adjacency(spec, read_array(suffix, path, shape, memory_limit), bits, dtype, memory_limit)
    triples = Triples(shape, "edge", memory_limit)
    for batch, rows, columns in _ends(spec, suffix, path, memory_limit):
        weights = _weights(batch, bits)
        if isinstance(spec, GraphSpec):
            kept = rows != columns
            if spec.loops == "refuse" and not kept.all():
                row = batch.first + int(np.argmin(kept))
                raise InvalidDataset(
                    f'row {row}: an edge from a node to itself. Remove it, or declare "loops": "drop"',
                    row=row,
                )
            if undirected:
                rows, columns = np.minimum(rows, columns), np.maximum(rows, columns)
        else:
            kept = np.ones(len(rows), bool)
        triples.add(rows, columns, weights, batch.first, kept)
    rows, columns, units = triples.finish()
    if not units.all():
        present = units != 0
        rows, columns, units = rows[present], columns[present], units[present]
    return _matrix(spec, shape, rows, columns, units, dtype, memory_limit)


def _matrix(
    spec: BipartiteSpec | GraphSpec,
    shape: tuple[int, ...],
    rows: Integers,
    columns: Integers,
    units: Integers,
    dtype: np.dtype[Any],
    memory_limit: int,
) -> tuple[DenseData | CsrData, Report | None]:
    """The matrix of different edges in row-major order, none of weight zero, after what is too many of a node is left
    out; and the report of that.
    """
    report = None
    if spec.unit is not None:
        nodes, ends = (columns, rows) if spec.unit.side == "right" else (rows, columns)
        kept = kept_of_each(nodes, ends, spec.unit.max_edges, secrets.token_bytes(KEY_BYTES))
        report = Report([])
        report.count(len(kept), {})
        report.cap(len(kept) - int(np.count_nonzero(kept)))
        rows, columns, units = rows[kept], columns[kept], units[kept]
    symmetric = isinstance(spec, GraphSpec) and not spec.directed
    return matrix_of_cells(shape, rows, columns, units, dtype, memory_limit, symmetric=symmetric), report


def _columns(suffix: str, path: Path) -> tuple[Sequence[str], str, int]:
    """The fields of the first line (Parquet: the columns' names), the separator, and the lines up to the
    first record's.
    """
    if suffix == ".parquet":
        fields: Sequence[str] = parquet_columns(path)
        separator, lines = "", 0
    elif suffix == ".xlsx":
        raise InvalidDataset("edges are not read from .xlsx files: save the sheet as CSV")
    else:
        layout = text_layout(path, _SEPARATORS)
        fields, separator, lines = layout.fields, layout.separator, layout.lines
    if len(fields) not in (2, 3):
        raise InvalidDataset(
            f"the first line has {len(fields)} field{'s' * (len(fields) != 1)}: it should be two, or three "
            "with a weight. Remove titles, comments and further columns"
        )
    return fields, separator, lines


def _ends(
    spec: BipartiteSpec | GraphSpec, suffix: str, path: Path, memory_limit: int
) -> Iterator[tuple[Batch, NDArray[np.int64], NDArray[np.int64]]]:
    """Batches of the file with the positions of both ends, all within the declared shape."""
    fields, separator, lines = _columns(suffix, path)
    width = len(fields)
    if width == 3 and not spec.weighted:
        raise InvalidDataset('the file has a third column: declare "weighted": true, or remove it')
    if isinstance(spec, BipartiteSpec):
        sides = _Side("left", spec.left, spec.left_labels), _Side("right", spec.right, spec.right_labels)
    else:
        both = _Side("nodes", spec.nodes, spec.labels)
        sides = both, both
    if suffix == ".parquet":
        batches = parquet_batches(path, range(width), max_rows=None, memory_limit=memory_limit)
    else:
        header = not any(side.knows(field) for side, field in zip(sides, fields, strict=False))
        batches = text_batches(path, separator, width, range(width), skip_lines=lines if header else 0)
    for batch in batches:
        found = [side(column) for side, column in zip(sides, batch.columns, strict=False)]
        for side, places in zip(sides, found, strict=True):
            if (places < 0).any():
                row = batch.first + int(np.argmax(places < 0))
                raise InvalidDataset(f"row {row}: {side.expected}", row=row)
        yield batch, found[0], found[1]


class _Side:
    """Maps one end of the edges to positions on its axis, -1 where it names no node."""

    def __init__(self, name: str, length: int, labels: tuple[str, ...] | None) -> None:
        self._length = length
        self._labels = None if labels is None else frozenset(labels)
        self._words = None if labels is None else pa.array(labels, pa.large_string())
        self._name = name
        if labels is None:
            self.expected = f'"{name}": an integer from 0 to {length - 1} is needed, or more nodes declared'
        else:
            self.expected = f'"{name}": one of the declared labels is needed, spelled alike'

    def knows(self, field: str) -> bool:
        """Whether the first line's ``field`` is data rather than the head of a column: a label, or without
        labels a number.
        """
        if self._labels is not None:
            return field in self._labels
        return bool(np.isfinite(numbers(pa.array([field], pa.string()), self._name)[0]))

    def __call__(self, column: Any) -> NDArray[np.int64]:
        if self._words is None:
            return whole(numbers(column, self._name), self._length)
        return positions(column, self._words, self._name, trim=True)


def _weights(batch: Batch, bits: int) -> NDArray[np.int64]:
    """The third column in units of 2^-bits, rounded to nearest (ties to even); one where there is none."""
    if len(batch.columns) == 2:
        return np.full(len(batch), 1 << bits, np.int64)
    weights = numbers(batch.columns[2], "the weights")
    fits = (weights >= 0) & (weights <= 1)
    if not fits.all():
        row = batch.first + int(np.argmin(fits))
        raise InvalidDataset(f"row {row}: a weight must be a number from 0 to 1", row=row)
    return np.rint(np.ldexp(weights, bits)).astype(np.int64)


def _read_adjacency(
    spec: BipartiteSpec | GraphSpec, array: NDArray[Any], bits: int, dtype: np.dtype[Any], memory_limit: int
) -> tuple[DenseData | CsrData, Report | None]:
    rows, columns, units = [], [], []
    for start, slab in slabs(array):
        values = slab.astype(np.float64)
        if not ((values >= 0) & (values <= 1)).all():
            raise InvalidDataset("the adjacency matrix must hold numbers from 0 to 1")
        scaled = np.rint(np.ldexp(values, bits))
        if not spec.weighted and (scaled != values).any():
            raise InvalidDataset('the adjacency matrix holds fractions: declare "weighted": true')
        row, column = np.nonzero(scaled)
        rows.append(row + start)
        columns.append(column)
        units.append(scaled[row, column].astype(np.int64))
    row, column, unit = np.concatenate(rows), np.concatenate(columns), np.concatenate(units)
    if isinstance(spec, GraphSpec):
        kept = row != column
        if spec.loops == "refuse" and not kept.all():
            raise InvalidDataset('the matrix has edges from a node to itself. Remove them, or declare "loops": "drop"')
        row, column, unit = row[kept], column[kept], unit[kept]
        if not spec.directed:
            transposed = np.lexsort((row, column))
            same = (row == column[transposed]) & (column == row[transposed]) & (unit == unit[transposed])
            if not same.all():
                raise InvalidDataset('the matrix is not symmetric: declare "directed": true, or correct it')
            upper = row < column
            row, column, unit = row[upper], column[upper], unit[upper]
    return _matrix(spec, array.shape, row, column, unit, dtype, memory_limit)
