"""Tables: records become counts over the product of the declared attributes."""

import math
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.declarations.errors import InvalidDataset
from app.declarations.spec import DEFAULT_CAPACITY, TableSpec
from app.storage.private_data import CodesData, DenseData, IntArray, RecordsData
from app.storage.readers.arrays import read_array, slabs
from app.storage.readers.coders import Coder, coder_of
from app.storage.readers.codes import CodesWriter, Sealing, most_held, types_of
from app.storage.readers.encodings import utf8
from app.storage.readers.named import SEPARATORS, named_columns
from app.storage.readers.persons import Capping, SpilledCapping
from app.storage.readers.report import Coded, Report, Rule
from app.storage.readers.sums import exact_sum
from app.storage.readers.types import integer_type
from app.storage.readers.zeros import zero_checks

#: Universes up to here are counted when they are read; of larger ones the records themselves are kept. What decides is
#: declared: how a query is answered must not depend on the data.
MOST_COUNTED = 1 << 24


def read_table(
    spec: TableSpec, suffix: str, paths: Sequence[Path], memory_limit: int, sealing: Sealing | None = None
) -> tuple[DenseData | RecordsData | CodesData, Report]:
    """A table from records (CSV, text, Excel, Parquet), or from counts of the declared shape (.npy, .npz); and what
    became of the records. They are those of all files together, of which all are one format. With ``sealing`` what is
    too much for memory goes to a file (:func:`~app.storage.readers.codes.most_held`).

    A numeric value v lies in bin i when edge i <= v < edge i+1; the last bin holds its upper edge too. On a grid it is
    the nearest number. A value outside the domain (an empty cell and NaN are, unless they are declared) is moved to the
    nearest bound, drops the record, or refuses the file, as the attribute says or else the table. So does a record that
    is declared not to occur, and one of which it is not said whose it is, where persons are the unit; of each person
    the declared number of records is kept.

    Raises:
        InvalidDataset: for a value outside that refuses the file, after all of it was read: with all such.
        Unwritable: when the disk refuses that file.
    """
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
    if given and spec.unit is not None:
        raise InvalidDataset("counts do not say whose records they are, which unit needs: give the records")
    if given:
        return _read_counts(spec, read_array(suffix, paths[0], shape, memory_limit), dtype, capacity)
    sink: _Counts | _Columns | _Overflowing
    most = None if sealing is None else most_held(spec, memory_limit)
    if cells <= MOST_COUNTED:
        sink = _Counts(shape, dtype)
    elif sealing is None or most is None:
        sink = _Columns(shape, memory_limit)
    else:
        sink = _Overflowing(
            _Columns(shape, memory_limit), most, CodesWriter(shape, sealing, seconds=spec.answer_seconds)
        )
    zeros = zero_checks(spec)
    owners: list[Rule] = []
    capping: Capping | SpilledCapping | None = None
    if spec.unit is not None:
        owners = [Rule(spec.unit.column, "a text that says whose record it is", spec.outside == "refuse")]
        of_whom = spec.unit, shape, secrets.token_bytes(32), memory_limit, spec.null_values or ()
        apart = sealing if isinstance(sink, _Overflowing) else None
        capping = Capping(*of_whom) if apart is None else SpilledCapping(*of_whom, apart.folder)
    coders: list[Coder] = []
    report, before = Report([]), 0
    for number, path in enumerate(paths, 1):
        named = _naming(number, len(paths))
        with named, utf8(path, spec.encoding if suffix in SEPARATORS else None, memory_limit) as readable:
            file = named_columns(
                suffix,
                readable,
                spec.columns,
                max_rows=None if _may_drop(spec) or capping is not None else capacity,
                memory_limit=memory_limit,
                may_be_empty=len(paths) > 1,
            )
            if not coders:
                comma = file.separator == ";"
                coders = [coder_of(attribute, spec, decimal_comma=comma) for attribute in spec.attributes]
                report = Report([*(coder.rule for coder in coders), *(zero.rule for zero in zeros), *owners])
            for batch in file.batches:
                coded = [coder(column) for coder, column in zip(coders, batch.columns, strict=False)]
                coded += [zero(coded[: len(coders)]) for zero in zeros]
                if capping is not None:
                    coded.append(Coded(capping.identify(batch.columns[-1]), np.zeros(len(batch), np.bool_)))
                kept = report.add(before + batch.first, coded)
                if capping is None:
                    _check_capacity(report, capacity)
                if not report.problems:  # else the rest is read to see what is wrong with it
                    held = [*coded[: len(coders)], *coded[len(coders) + len(zeros) :]]
                    (capping or sink).add([column.places if kept.all() else column.places[kept] for column in held])
        before = report.read
    if not report.read:
        raise InvalidDataset("the files hold no records")
    for coder in coders:
        coder.check()
    report.check()
    if capping is not None:
        for codes in capping.kept():
            sink.add(codes)
        report.cap(capping.beyond)
        _check_capacity(report, capacity)
    return sink.data(report.kept), report


@contextmanager
def _naming(number: int, count: int) -> Iterator[None]:
    """Say which of several files a refusal is of."""
    try:
        yield
    except InvalidDataset as error:
        if count == 1:
            raise
        raise InvalidDataset(f"file {number} of {count}, by name: {error.detail}", **error.extra) from None


def _check_capacity(report: Report, capacity: int) -> None:
    if report.kept > capacity:
        raise InvalidDataset(f"the file holds more records than the declared capacity of {capacity}")


def _may_drop(spec: TableSpec) -> bool:
    return spec.outside == "drop" or any(attribute.outside == "drop" for attribute in spec.attributes)


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
        self._dtypes = types_of(shape)
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


class _Overflowing:
    """Keeps the records in memory while they are no more than so many, and writes them to a file from when they are."""

    def __init__(self, held: _Columns, most: int, writer: CodesWriter) -> None:
        self._held: _Columns | None = held if most else None
        self._room, self._writer = most, writer

    def add(self, codes: list[NDArray[np.int64]]) -> None:
        """Records, as the positions of their values on each axis."""
        self._room -= len(codes[0])
        if self._held is not None and self._room < 0:
            self._writer.add(self._held.data(0).columns)
            self._held = None
        (self._writer if self._held is None else self._held).add(codes)

    def data(self, mass: int) -> RecordsData | CodesData:
        return self._writer.data() if self._held is None else self._held.data(mass)


def _read_counts(spec: TableSpec, array: NDArray[Any], dtype: np.dtype[Any], capacity: int) -> tuple[DenseData, Report]:
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
    for zero in zero_checks(spec):
        zero.check_counts(counts)
    mass = exact_sum(counts)
    if mass > capacity:
        raise InvalidDataset(f"the counts add up to more than the declared capacity of {capacity}")
    report = Report([coder_of(attribute, spec).rule for attribute in spec.attributes])
    without = {axis: exact_sum(np.atleast_1d(counts.take(-1, axis))) for axis in range(counts.ndim)}
    report.count(mass, {a.name: without[axis] for axis, a in enumerate(spec.attributes) if a.missing})
    return DenseData(counts, mass), report
