"""Tables: records become counts over the product of the declared attributes."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from app.spaces.attributes import Attribute
from app.spaces.errors import InvalidDataset
from app.spaces.spec import DEFAULT_CAPACITY, TableSpec
from app.storage.private_data import DenseData, IntArray, RecordsData
from app.storage.readers.arrays import read_array, slabs
from app.storage.readers.columns import named_batches, numbers, positions, whole
from app.storage.readers.sums import exact_sum
from app.storage.readers.types import integer_type

SEPARATORS = {".csv": ",", ".tsv": "\t", ".txt": "\t, "}
#: Universes up to here are counted when they are read; of larger ones the records themselves are kept. What decides is
#: declared: how a query is answered must not depend on the data.
MOST_COUNTED = 1 << 24


def read_table(spec: TableSpec, suffix: str, path: Path, memory_limit: int) -> DenseData | RecordsData:
    """A table from records (CSV, text, Parquet), or from counts of the declared shape (.npy, .npz).

    A numeric value v lies in bin i when edge i <= v < edge i+1; the last bin holds its upper edge too. A
    value outside the domain (an empty cell and NaN are) refuses the file, or drops the record where the
    spec says so.
    """
    if spec.unit is not None:
        raise InvalidDataset("unit: persons are not read yet: leave it out")
    shape = tuple(attribute.length for attribute in spec.attributes)
    capacity = spec.capacity or DEFAULT_CAPACITY
    dtype = integer_type(0, capacity)
    cells = math.prod(shape)
    given = suffix in (".npy", ".npz")
    if (given or cells <= MOST_COUNTED) and cells * dtype.itemsize > memory_limit:
        raise InvalidDataset(
            f"the declared attributes span {cells} cells, {cells * dtype.itemsize} bytes where the limit is "
            f"{memory_limit}: leave out attributes, or declare fewer values and bins"
            + (", or give the records" if cells > MOST_COUNTED else "")
        )
    if given:
        return _read_counts(read_array(suffix, path, shape, memory_limit), dtype, capacity)
    names = [attribute.name for attribute in spec.attributes]
    drop = spec.outside == "drop"
    _, batches = named_batches(
        suffix,
        path,
        names,
        separators=SEPARATORS,
        max_rows=None if drop else capacity,
        memory_limit=memory_limit,
    )
    coders = [_Coder(attribute) for attribute in spec.attributes]
    sink = _Counts(shape, dtype) if cells <= MOST_COUNTED else _Columns(shape, memory_limit)
    mass = 0
    for batch in batches:
        codes = [coder(column) for coder, column in zip(coders, batch.columns, strict=True)]
        inside = np.logical_and.reduce([code >= 0 for code in codes])
        if not inside.all():
            if not drop:
                raise _outside(spec, codes, int(np.argmin(inside)), batch.first)
            codes = [code[inside] for code in codes]
        mass += int(np.count_nonzero(inside))
        if mass > capacity:
            raise InvalidDataset(f"the file holds more records than the declared capacity of {capacity}")
        sink.add(codes)
    return sink.data(mass)


class _Counts:
    """Counts the records of every cell."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._shape, self._counts = shape, np.zeros(math.prod(shape), dtype)

    def add(self, codes: list[NDArray[np.int64]]) -> None:
        """Records, as the positions of their values on each axis."""
        flat = codes[0]
        for code, length in zip(codes[1:], self._shape[1:], strict=True):
            flat = flat * length + code
        np.add.at(self._counts, flat, self._counts.dtype.type(1))

    def data(self, mass: int) -> DenseData:
        return DenseData(self._counts.reshape(self._shape), mass)


class _Columns:
    """Keeps the records, each position in as few bytes as its axis needs."""

    def __init__(self, shape: tuple[int, ...], memory_limit: int) -> None:
        self._dtypes = [np.min_scalar_type(length - 1) for length in shape]
        self._parts: list[list[NDArray[Any]]] = [[np.zeros(0, dtype)] for dtype in self._dtypes]
        # All parts are there still while they are put together.
        self._most = memory_limit // (2 * sum(dtype.itemsize for dtype in self._dtypes))
        self._records = 0

    def add(self, codes: list[NDArray[np.int64]]) -> None:
        """Records, as the positions of their values on each axis.

        Raises:
            InvalidDataset: when they take more memory than there is.
        """
        self._records += len(codes[0])
        if self._records > self._most:
            raise InvalidDataset(
                f"the file holds more than {self._most} records, which is what the memory limit allows for: leave out "
                "attributes, or raise CURATOR_MEMORY_LIMIT"
            )
        for parts, code, dtype in zip(self._parts, codes, self._dtypes, strict=True):
            parts.append(code.astype(dtype))

    def data(self, mass: int) -> RecordsData:
        return RecordsData(tuple(np.concatenate(parts) for parts in self._parts), mass)


class _Coder:
    """Maps a column to positions on the attribute's axis, -1 where it lies outside the domain."""

    def __init__(self, attribute: Attribute) -> None:
        self._name = f'attribute "{attribute.name}"'
        self._size = attribute.size
        self._edges: NDArray[np.float64] | None = None
        self._integers: NDArray[np.float64] | None = None
        self._order: NDArray[np.intp] | None = None
        self._words: Any = None
        if attribute.kind == "bins":
            # Correctly rounded, as the values are when parsed: what is written alike falls together.
            self._edges = np.array([float(edge) for edge in attribute.bin_edges()])
        elif attribute.values is not None:
            if all(isinstance(value, int) and abs(value) <= 2**53 for value in attribute.values):
                integers = np.array(attribute.values, np.float64)
                self._order = np.argsort(integers)
                self._integers = integers[self._order]
            else:
                self._words = pa.array([str(value) for value in attribute.values], pa.large_string())

    def __call__(self, column: Any) -> NDArray[np.int64]:
        if self._words is not None:
            return positions(column, self._words, self._name)
        values = numbers(column, self._name)
        if self._size is not None:
            return whole(values, self._size)
        if self._edges is not None:
            place = np.searchsorted(self._edges, values, side="right") - 1
            place = np.where(values == self._edges[-1], len(self._edges) - 2, place)
            # NaN sorts behind every edge, and so is outside with all that is too large.
            return np.where(place > len(self._edges) - 2, -1, place).astype(np.int64)
        assert self._integers is not None
        assert self._order is not None
        place = np.minimum(np.searchsorted(self._integers, values), len(self._integers) - 1)
        return np.where(self._integers[place] == values, self._order[place], -1).astype(np.int64)


def _outside(spec: TableSpec, codes: list[NDArray[np.int64]], index: int, first: int) -> InvalidDataset:
    attribute = next(a for a, code in zip(spec.attributes, codes, strict=True) if code[index] < 0)
    row = first + index
    if attribute.size is not None:
        expected = f"an integer code from 0 to {attribute.size - 1}"
    elif attribute.values is not None:
        expected = "one of the declared values, spelled alike"
    else:
        edges = attribute.bin_edges()
        expected = f"a number from {float(edges[0]):g} to {float(edges[-1]):g}"
    return InvalidDataset(
        f'row {row}, attribute "{attribute.name}": outside the declared domain, expected {expected}. '
        'Correct the record, widen the domain, or declare "outside": "drop"',
        row=row,
        attribute=attribute.name,
    )


def _read_counts(array: NDArray[Any], dtype: np.dtype[Any], capacity: int) -> DenseData:
    counts: IntArray = np.empty(array.shape, dtype)
    for start, slab in slabs(array):
        if slab.dtype.kind == "f" and not np.isfinite(slab).all():
            problem = "is not a finite number"
        elif slab.dtype.kind != "b" and (slab < 0).any():
            problem = "is negative"
        elif slab.dtype.kind == "f" and (slab != np.floor(slab)).any():
            problem = "is not whole"
        elif slab.size and int(slab.max()) > capacity:
            problem = f"is larger than the declared capacity of {capacity}"
        else:
            counts[start : start + len(slab)] = slab
            continue
        raise InvalidDataset(f"a count {problem}, in the part that starts at index {start} of the first axis")
    mass = exact_sum(counts)
    if mass > capacity:
        raise InvalidDataset(f"the counts add up to more than the declared capacity of {capacity}")
    return DenseData(counts, mass)
