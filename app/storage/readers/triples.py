"""Lists of (row, column, value) become a matrix: each cell once; dense or sparse, whichever is smaller."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from app.declarations.errors import InvalidDataset
from app.storage.private_data import CsrData, DenseData
from app.storage.readers.sums import exact_sum

Integers = NDArray[np.int64]


class Triples:
    """Collects cells, and refuses two different values for one.

    Args:
        shape: rows and columns.
        what: what messages call a cell.
        memory_limit: bytes that sorting the records may take; a record takes 24 while it is collected.
    """

    def __init__(self, shape: tuple[int, int], what: str, memory_limit: int) -> None:
        self._columns = shape[1]
        self._what = what
        self._limit = memory_limit // 64  # a record's share at the peak, while its key is being sorted
        self._held = 0
        self._keys: list[Integers] = []
        self._values: list[Integers] = []
        self._origins: list[Integers] = []

    def add(self, rows: Integers, columns: Integers, values: Integers, first: int, kept: NDArray[np.bool_]) -> None:
        """Add the records where ``kept``; ``first`` is the number of the first one in the file.

        Raises:
            InvalidDataset: when they are too many to be sorted in memory.
        """
        origins = np.arange(first, first + len(rows))
        self._keys.append((rows * self._columns + columns)[kept])
        self._values.append(values[kept])
        self._origins.append(origins[kept])
        self._held += len(self._keys[-1])
        if self._held > self._limit:
            raise InvalidDataset("the file has more records than the memory limit lets the server sort")

    def finish(self) -> tuple[Integers, Integers, Integers]:
        """(rows, columns, values) of the distinct cells in row-major order.

        Raises:
            InvalidDataset: when a cell has two values.
        """
        if not self._keys:
            none = np.zeros(0, np.int64)
            return none, none, none
        keys = np.concatenate(self._keys)
        # Parts are let go of as soon as they are together: there may be ten million records and more.
        self._keys.clear()
        order = np.argsort(keys, kind="stable")
        keys, values = keys[order], np.concatenate(self._values)[order]
        self._values.clear()
        repeated = keys[1:] == keys[:-1]
        conflict = repeated & (values[1:] != values[:-1])
        if conflict.any():
            row = int(np.concatenate(self._origins)[order[1:][conflict]].min())
            raise InvalidDataset(f"row {row}: this {self._what} stands in an earlier row with another value", row=row)
        self._origins.clear()
        distinct = np.concatenate(([True], ~repeated)) if len(keys) else np.zeros(0, bool)
        rows, columns = np.divmod(keys[distinct], self._columns)
        return rows, columns, values[distinct]


def matrix_of_cells(
    shape: tuple[int, ...],
    rows: Integers,
    columns: Integers,
    values: Integers,
    dtype: np.dtype[Any],
    memory_limit: int,
    *,
    symmetric: bool,
) -> DenseData | CsrData:
    """The matrix of distinct non-zero cells given in row-major order, all others zero.

    Args:
        shape: rows and columns.
        rows: of the cells.
        columns: of the cells.
        values: of the cells, not 0.
        dtype: of the result.
        memory_limit: bytes that it may take.
        symmetric: whether cells are given once, with row < column, and stored both ways.

    Raises:
        InvalidDataset: when the smaller of the two layouts passes ``memory_limit``.
    """
    height, width = int(shape[0]), int(shape[1])
    mass = exact_sum(np.abs(values))
    values = values.astype(dtype)
    dense_bytes = height * width * dtype.itemsize
    sparse_bytes = (height + 1) * 8 + (2 if symmetric else 1) * len(values) * (4 + dtype.itemsize)
    if min(dense_bytes, sparse_bytes) > memory_limit:
        raise InvalidDataset(
            f"the data set takes more memory than the limit of {memory_limit} bytes: fewer nodes or edges fit"
        )
    if dense_bytes <= sparse_bytes:
        array = np.zeros((height, width), dtype)
        array[rows, columns] = values
        if symmetric:
            array[columns, rows] = values
        return DenseData(array, mass)
    indptr = np.zeros(height + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=height), out=indptr[1:])
    narrow = columns.astype(np.int32)
    if symmetric:
        indptr, narrow, values = _both_ways(indptr, narrow, values)
    return CsrData((height, width), indptr, narrow, values, mass)


def _both_ways(
    indptr: Integers, columns: NDArray[np.int32], values: NDArray[Any]
) -> tuple[Integers, NDArray[np.int32], NDArray[Any]]:
    """A square matrix that holds cells above its diagonal, by rows, with what mirrors them below it.

    In each row the mirrored cells come first, as their columns are the smaller: nothing is compared to be sorted.
    """
    size = len(indptr) - 1
    below = csr_array((values, columns, indptr), shape=(size, size)).tocsc()
    starts = below.indptr.astype(np.int64)
    found = np.empty(2 * len(values), np.int32), np.empty(2 * len(values), values.dtype)
    mirrored = np.arange(len(values)) + np.repeat(indptr[:-1], np.diff(starts))
    found[0][mirrored], found[1][mirrored] = below.indices, below.data
    own = np.arange(len(values)) + np.repeat(starts[1:], np.diff(indptr))
    found[0][own], found[1][own] = columns, values
    return indptr + starts, *found
