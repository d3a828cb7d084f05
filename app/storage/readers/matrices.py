"""Real matrices: entries in declared bounds, stored in units of the declared grid."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.declarations.errors import InvalidDataset
from app.declarations.spec import MatrixSpec
from app.storage.private_data import CsrData, DenseData, IntArray
from app.storage.readers.arrays import read_array, slabs
from app.storage.readers.columns import numbers, parquet_batches, parquet_columns, whole
from app.storage.readers.named import named_columns
from app.storage.readers.sums import exact_sum
from app.storage.readers.triples import Triples, matrix_of_cells
from app.storage.readers.types import integer_type

_TRIPLE = ("row", "column", "value")
#: Columns of a Parquet file read at a time, at least, and passes over the file, at most.
_LEAST_SLICE = 32
_MOST_SLICES = 64


def read_matrix(spec: MatrixSpec, suffix: str, path: Path, memory_limit: int) -> DenseData | CsrData:
    """A matrix from .npy or .npz of the declared shape; from columns ``row``, ``column``, ``value`` (CSV, text,
    Parquet); or from a Parquet file without these, one column a column of the matrix and one row a row, in
    the file's order whatever the columns are called.

    Rows and columns are numbered from 0. Entries lie in [lower, upper] and are rounded to the grid (ties
    to even). A cell that triples leave out has the declared value ``absent``; one that stands twice must
    have the same value.
    """
    shape = (spec.rows, spec.columns)
    low, high = round(np.ldexp(spec.lower, spec.data_bits)), round(np.ldexp(spec.upper, spec.data_bits))
    dtype = integer_type(low, high)
    if suffix in (".npy", ".npz"):
        _check_memory(shape, dtype, memory_limit)
        source = read_array(suffix, path, shape, memory_limit)
        return _dense(spec, dtype, ((start, 0, slab.astype(np.float64)) for start, slab in slabs(source)))
    if suffix == ".parquet":
        names = parquet_columns(path)
        if not set(_TRIPLE) <= set(names):
            _check_memory(shape, dtype, memory_limit)
            return _dense(spec, dtype, _columns(spec, path, names, memory_limit))
    if spec.absent is None:
        raise InvalidDataset('declare "absent", the value of every cell that the file does not name')
    triples = Triples(shape, "cell", memory_limit)
    file = named_columns(
        suffix,
        path,
        _TRIPLE,
        max_rows=None,
        memory_limit=memory_limit,
    )
    for batch in file.batches:
        rows = whole(numbers(batch.columns[0], "row"), spec.rows)
        columns = whole(numbers(batch.columns[1], "column"), spec.columns)
        values = numbers(batch.columns[2], "value")
        _refuse(rows >= 0, batch.first, f'"row" must be an integer from 0 to {spec.rows - 1}')
        _refuse(columns >= 0, batch.first, f'"column" must be an integer from 0 to {spec.columns - 1}')
        _refuse((values >= spec.lower) & (values <= spec.upper), batch.first, _expected(spec))
        units = np.rint(np.ldexp(values, spec.data_bits)).astype(np.int64)
        triples.add(rows, columns, units, batch.first, np.ones(len(rows), bool))
    rows, columns, units = triples.finish()
    absent = round(np.ldexp(spec.absent, spec.data_bits))
    if absent == 0:
        present = units != 0
        return matrix_of_cells(
            shape, rows[present], columns[present], units[present], dtype, memory_limit, symmetric=False
        )
    _check_memory(shape, dtype, memory_limit)
    array: IntArray = np.full(shape, absent, dtype)
    array[rows, columns] = units
    mass = abs(absent) * (array.size - len(units)) + exact_sum(np.abs(units))
    return DenseData(array, mass)


#: A block of a matrix, after the numbers of its first row and column.
_Part = tuple[int, int, NDArray[np.float64]]


def _dense(spec: MatrixSpec, dtype: np.dtype[Any], parts: Iterator[_Part]) -> DenseData:
    """The matrix that blocks make up, each cell in one of them."""
    array: IntArray = np.empty((spec.rows, spec.columns), dtype)
    mass = 0
    for start, left, values in parts:
        fits = (values >= spec.lower) & (values <= spec.upper)
        if not fits.all():
            row, column = np.argwhere(~fits)[0]
            raise InvalidDataset(f"row {row + start}, column {column + left}: {_expected(spec)}")
        units = np.rint(np.ldexp(values, spec.data_bits)).astype(np.int64)
        array[start : start + len(values), left : left + values.shape[1]] = units
        mass += exact_sum(np.abs(units))
    return DenseData(array, mass)


def _columns(spec: MatrixSpec, path: Path, names: list[str], memory_limit: int) -> Iterator[_Part]:
    """A Parquet file with a column for each of the matrix, some columns at a time: a group of rows is unpacked column
    by column, and all of them at once would take several times its size.
    """
    if len(names) != spec.columns:
        raise InvalidDataset(
            f"the file has {len(names)} columns: a dense matrix has one for each of the {spec.columns} declared, a "
            'list of entries has columns "row", "column", "value"'
        )
    width = max(_LEAST_SLICE, -(-spec.columns // _MOST_SLICES))
    for left in range(0, spec.columns, width):
        chosen = range(left, min(left + width, spec.columns))
        start = 0
        for batch in parquet_batches(path, chosen, max_rows=None, memory_limit=memory_limit):
            if start + len(batch) > spec.rows:
                raise InvalidDataset(f"the file has more than the declared {spec.rows} rows")
            yield (
                start,
                left,
                np.stack([numbers(c, f"column {i}") for i, c in zip(chosen, batch.columns, strict=True)], axis=1),
            )
            start += len(batch)
        if start != spec.rows:
            raise InvalidDataset(f"the file has {start} rows, declared are {spec.rows}")


def _expected(spec: MatrixSpec) -> str:
    return f"a value must be a number from {spec.lower:g} to {spec.upper:g}, as declared"


def _refuse(fits: NDArray[np.bool_], first: int, message: str) -> None:
    if not fits.all():
        row = first + int(np.argmin(fits))
        raise InvalidDataset(f"row {row}: {message}", row=row)


def _check_memory(shape: tuple[int, int], dtype: np.dtype[np.generic], memory_limit: int) -> None:
    size = shape[0] * shape[1] * dtype.itemsize
    if size > memory_limit:
        raise InvalidDataset(f"the matrix takes {size} bytes in memory, where the limit is {memory_limit}")
