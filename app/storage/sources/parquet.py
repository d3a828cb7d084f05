"""Tables counted from Parquet files where they lie, by DuckDB: text made of the declaration and of the question goes
in, whole numbers come out.

By its expression a record is in one cell, whatever it holds: each of its values is held within the axis before places
are put together, and before it weighs anything. Nothing filters: every record is counted in one class or another.
Floats are compared and nothing else, integers are cast to 64 bits before they are calculated with. An engine's error
text may hold values, and is never looked at.
"""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from app.declarations.attributes import Attribute, day
from app.declarations.errors import InvalidDataset
from app.declarations.spec import DEFAULT_CAPACITY, MOST_COMPARED, TableSpec, parse_spec, written
from app.spaces.asked import MOST_CLASSES
from app.spaces.counts import CellCounts
from app.storage.private_data import DenseData, SourceData
from app.storage.readers.report import Report, Tally, counted
from app.storage.readers.tables import MOST_COUNTED
from app.storage.readers.types import integer_type
from app.storage.sources.files import Looks, SourceFile, identity, looks, opened, same

#: Threads that the engine counts with.
THREADS = 2
#: What the engine may make of a query before it runs it. The rest believes the statistics that a file has of itself: by
#: them a column of NaN has none, and what is above the largest number they name is not there.
_OPTIMIZERS = frozenset({"column_lifetime", "common_subexpressions", "expression_rewriter", "unused_columns"})
#: Rows of results that are taken at a time.
_ROWS = 1 << 17
#: Numbers of this many values are looked up in a list within the query, else in a table beside it: the engine copies a
#: list for every few thousand records.
_LISTED = 1 << 12
#: Numbers that change at so few places are made by comparisons.
_COMPARED = 8
#: Where a value is that has no place: not what is declared, below the least, above the largest.
_OUTSIDE, _BELOW, _ABOVE = -1, -2, -3
_INTEGERS = frozenset(f"{sign}{width}" for sign in ("", "U") for width in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT"))
_FLOATS = frozenset({"FLOAT", "DOUBLE"})
_TIMES = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"})
_TRUTH = (("false", "true"), ("0", "1"))


@dataclass(frozen=True, eq=False, repr=False)
class CountedSource:
    """A table of counts, or where the cells are too many for one what is needed to ask for some later; what became of
    the records, and a hash of what the files were.
    """

    data: DenseData | SourceData
    report: Report
    identity: bytes


@dataclass(frozen=True, eq=False, repr=False)
class Told:
    """Numbers that a source told, one array after another, and how its files look now."""

    numbers: NDArray[np.int64]
    looks: Looks


class Moved(Exception):
    """Files are not what they were at registration."""


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a file as the engine knows it: by its position, and its type."""

    name: str
    type: str


class _Damaged(Exception):
    """The engine could not read a file, or told what makes no sense."""


def count_source(spec: TableSpec, folders: Sequence[Path], *, memory_limit: int) -> CountedSource:
    """The counts of all cells of a table whose declaration names a source. Where these are more than
    :data:`~app.storage.readers.tables.MOST_COUNTED` the records are looked through, and counts are asked for later
    (:func:`ask_source`).

    Args:
        spec: what is declared.
        folders: those below which files are read.
        memory_limit: bytes that the engine, and the result, may take.

    Raises:
        InvalidDataset: when an attribute has more values than are told apart; when files are not what is declared; when
            a record is outside of the domain; when files change meanwhile.
        MemoryError: when counting takes more memory.
    """
    shape = tuple(attribute.length for attribute in spec.attributes)
    cells, capacity = math.prod(shape), spec.capacity or DEFAULT_CAPACITY
    dtype = integer_type(0, capacity)
    all_counted = cells <= MOST_COUNTED
    if all_counted and cells * (8 + dtype.itemsize) > memory_limit:
        raise InvalidDataset(
            f"the declared attributes span {cells:,} cells, for which the limit of {memory_limit} bytes is too small: "
            "leave out attributes, or declare fewer values and bins"
        )
    for attribute in () if all_counted else spec.attributes:
        if attribute.length > MOST_CLASSES:
            raise InvalidDataset(
                f'source: attribute "{attribute.name}" has {attribute.length:,} values, and of a table as wide as this '
                f"at most {MOST_CLASSES:,} are told apart: declare bins, fewer values, or upload the file",
                attribute=attribute.name,
            )
    report = Report([])
    report.attributes = {attribute.name: Tally() for attribute in spec.attributes}
    counts = np.zeros(cells if all_counted else 0, np.int64)
    every = CellCounts(tuple(range(len(shape))), (None,) * len(shape), shape)
    with _files(spec, folders) as files:
        known = identity(files)
        with Engine(spec, [file.held for file in files], memory_limit) as engine:
            for number, file in enumerate(files, 1):
                try:
                    records = engine.survey(file.held, report)
                    if all_counted:
                        numbers, told = engine.count(file.held, every)
                        counts += numbers
                        if told != records:
                            raise _Damaged
                except _Damaged:
                    raise InvalidDataset(
                        f"file {number} of {len(files)} of the source, by name, is no Parquet file or is damaged: "
                        "write it again"
                    ) from None
        for file in files:
            file.check()
        looked = looks(files)
    _check(report, capacity)
    digest = hashlib.sha256(json.dumps(known).encode()).digest()
    if all_counted:
        return CountedSource(DenseData(counts.astype(dtype).reshape(shape), report.kept), report, digest)
    about = json.dumps({"spec": written(spec), "files": known, "looks": looked, "records": report.kept}).encode()
    return CountedSource(SourceData(np.frombuffer(about, np.uint8), report.kept), report, digest)


def ask_source(
    about: bytes, looked: Looks | None, folders: Sequence[Path], asked: Sequence[CellCounts], *, memory_limit: int
) -> Told:
    """Counts, by classes, of the records of a source that was registered.

    Args:
        about: what :class:`~app.storage.private_data.SourceData` has of it.
        looked: how its files looked when they were last found to be what they were; None for then.
        folders: those below which files are read.
        asked: what is counted of every record: classes along some attributes, and weights.
        memory_limit: bytes that the engine may take.

    Raises:
        Moved: when the files are not what they were, or were changed meanwhile.
        MemoryError: when counting takes more memory.
        RuntimeError: when the engine fails, or tells what makes no sense.
    """
    what = json.loads(about)
    spec = parse_spec(what["spec"])
    assert isinstance(spec, TableSpec)
    numbers = [np.zeros(math.prod(each.shape), np.int64) for each in asked]
    try:
        with _files(spec, folders) as files:
            known = [tuple(each) for each in what["files"]]
            if not same(files, known, [tuple(each) for each in (looked or what["looks"])]):
                raise Moved
            records = [0] * len(asked)
            with Engine(spec, [file.held for file in files], memory_limit) as engine:
                for file in files:
                    for number, each in enumerate(asked):
                        counts, told = engine.count(file.held, each)
                        numbers[number] += counts
                        records[number] += told
            for file in files:
                file.check()
            now = looks(files)
    except InvalidDataset:
        raise Moved from None
    except _Damaged:
        raise RuntimeError("the engine failed") from None
    if any(told != what["records"] for told in records):
        raise RuntimeError("the engine told of another number of records")
    return Told(np.concatenate(numbers), now)


@contextmanager
def _files(spec: TableSpec, folders: Sequence[Path]) -> Iterator[list[SourceFile]]:
    assert spec.source is not None
    if spec.source.files is None:
        raise InvalidDataset("source.files: name the files, as visits/2025-*.parquet")
    with opened(spec.source.files, folders) as files:
        yield files


def _check(report: Report, capacity: int) -> None:
    """Refuse what the counts show to be no data set.

    Raises:
        InvalidDataset: with the number of values outside, by attribute.
    """
    if report.outside:
        raise InvalidDataset(
            f"values are outside the declared domain: {counted(report.outside)}. Correct the files, widen the "
            'domain, or declare "outside": "clamp" of numbers and dates',
            outside=dict(report.outside),
        )
    if not report.read:
        raise InvalidDataset("the files of the source hold no records")
    if report.kept > capacity:
        raise InvalidDataset(f"the files hold more records than the declared capacity of {capacity}")


class Engine:
    """An engine that reads the named files and nothing else: no other file, no network, no extension, no disk to write
    to; and whose settings nobody can change any more.

    Args:
        spec: of the table.
        paths: of the files.
        memory_limit: bytes that it may take.

    Raises:
        MemoryError: when the categories take more.
    """

    def __init__(self, spec: TableSpec, paths: Sequence[str], memory_limit: int) -> None:
        # Loaded by whoever counts, in a process of its own: others never need it.
        import duckdb

        self._spec, self._errors = spec, duckdb.Error
        self._memory = (duckdb.OutOfMemoryException, MemoryError)
        self._known: dict[str, list[_Column]] = {}
        self._connection = duckdb.connect(":memory:")
        known = {name for (name,) in self._connection.execute("SELECT name FROM duckdb_optimizers()").fetchall()}
        allowed = ", ".join(f"'{path}'" for path in paths)
        for setting in (
            f"threads = {THREADS}",
            f"memory_limit = '{memory_limit}B'",
            "temp_directory = ''",
            "preserve_insertion_order = false",
            "enable_external_file_cache = false",
            "allow_community_extensions = false",
            "autoinstall_known_extensions = false",
            "autoload_known_extensions = false",
            f"disabled_optimizers = '{','.join(sorted(known - _OPTIMIZERS))}'",
            f"allowed_paths = [{allowed}]",
            "enable_external_access = false",
            "lock_configuration = true",
        ):
            self._connection.execute(f"SET {setting}")
        for axis, attribute in enumerate(spec.attributes):
            if attribute.values is not None:
                # By no text of the query, however labels are spelled.
                words = pa.array(list(map(str, attribute.values)), pa.string())
                self._connection.register("words", pa.table({"word": words}))
                try:
                    self._connection.execute(f"CREATE TYPE e{axis} AS ENUM (SELECT word FROM words)")
                except self._memory:
                    raise MemoryError from None
                self._connection.unregister("words")

    def __enter__(self) -> "Engine":
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """What the engine raises becomes an error without its text.

        Raises:
            MemoryError: when it takes more memory than there is.
            _Damaged: when a file cannot be read, or what comes back are no whole numbers.
        """
        try:
            yield
        except self._memory:
            raise MemoryError from None
        except (self._errors, pa.ArrowException, RuntimeError):
            raise _Damaged from None

    def survey(self, path: str, report: Report) -> int:
        """Count the records of a file, and those outside, clamped or without a value, into a report; how many there
        are.

        Raises:
            InvalidDataset: when a column is not there, or not of a type that is counted.
            MemoryError, _Damaged: when the file cannot be read.
        """
        with self._guarded():
            return self._survey(self._records(path, range(len(self._spec.attributes)), reasons=True), report)

    def count(self, path: str, asked: CellCounts) -> tuple[NDArray[np.int64], int]:
        """The numbers of all classes of the records of a file, flat, and how many records were counted.

        Raises:
            InvalidDataset: when a column is not there, or not of a type that is counted.
            MemoryError, _Damaged: when the file cannot be read, or what comes back are no whole numbers.
        """
        with self._guarded():
            named = sorted({*asked.axes, *dict(asked.factors)})
            return self._count(self._records(path, named, reasons=False), asked)

    def _columns(self, path: str) -> list[_Column]:
        """The columns of a file in their order.

        Raises:
            InvalidDataset: when two names differ in capitals alone, as the engine would call one of them otherwise.
        """
        if path in self._known:
            return self._known[path]
        told = self._connection.execute(f"DESCRIBE SELECT * FROM {_file(path)}").fetchall()
        columns = [_Column(name, kind) for name, kind, *_ in told]
        schema = self._connection.execute(f"SELECT name, num_children FROM parquet_schema('{path}')").fetchall()
        names, within = [], 0
        for name, children in schema[1:]:
            if not within:
                names.append(name)
            within += (children or 0) - bool(within)
        if names != [column.name for column in columns]:
            raise InvalidDataset("source: two columns of a file have one name, or differ in capitals alone: rename one")
        self._known[path] = columns
        return columns

    def _records(self, path: str, axes: Iterable[int], *, reasons: bool) -> str:
        """A query for the place of each record of a file on some axes, or with ``reasons`` why it has none.

        Raises:
            InvalidDataset: when a column is not there, or not of a type that is counted.
        """
        columns = self._columns(path)
        at = {column.name: position for position, column in enumerate(columns)}
        found = []
        for axis in axes:
            attribute = self._spec.attributes[axis]
            position = at.get(attribute.column or attribute.name)
            if position is None:
                raise InvalidDataset(
                    f'source: a file has no column "{attribute.column or attribute.name}": let column of attribute '
                    f'"{attribute.name}" be its name',
                    attribute=attribute.name,
                )
            place = _place(attribute, f"e{axis}", columns[position].type, f"c{position}", reasons=reasons)
            if place is None:
                raise InvalidDataset(
                    f'source: attribute "{attribute.name}" needs {_needed(attribute)}: write the column so, declare '
                    "the attribute otherwise, or upload the file",
                    attribute=attribute.name,
                )
            found.append(f"{place} AS p{axis}")
        names = ", ".join(f"c{position}" for position in range(len(columns)))
        return f"SELECT {', '.join(found) or '0 AS p'} FROM {_file(path)} AS records({names})"

    def _survey(self, places: str, report: Report) -> int:
        """Count records, and those outside, clamped or without a value; how many there are."""
        attributes = self._spec.attributes
        asked, clamped = ["count(*)"], ["false"]
        for axis, attribute in enumerate(attributes):
            clamps = attribute.outside == "clamp"
            moved = f"p{axis} < {_OUTSIDE}" if clamps else "false"
            outside = f"p{axis} = {_OUTSIDE}" if clamps else f"p{axis} < 0"
            clamped.append(f"({moved})")
            asked += [_number_of(outside), _number_of(moved), _number_of(f"p{axis} = {attribute.places}")]
        asked.append(_number_of(" OR ".join(clamped)))
        (told,) = self._connection.execute(f"SELECT {', '.join(asked)} FROM ({places})").fetchall()
        if not all(type(number) is int and number >= 0 for number in told):
            raise _Damaged
        records, *single, moved_records = told
        report.count(records, {})
        report.clamped += moved_records
        for axis, attribute in enumerate(attributes):
            outside_here, clamped_here, missing = single[3 * axis : 3 * axis + 3]
            tally = report.attributes[attribute.name]
            tally.clamped += clamped_here
            tally.missing += missing
            if outside_here:
                report.outside[attribute.name] = report.outside.get(attribute.name, 0) + outside_here
        return int(records)

    def _count(self, places: str, asked: CellCounts) -> tuple[NDArray[np.int64], int]:
        attributes = self._spec.attributes
        tables: dict[str, NDArray[np.int64]] = {}
        cell, stride = ["CAST(0 AS BIGINT)"], 1
        for axis, cells, length in reversed(list(zip(asked.axes, asked.cells, asked.shape, strict=True))):
            cell.append(f"{_looked_up(axis, None if cells is None else cells.labels, tables)} * {stride}")
            stride *= length
        weights = [
            _looked_up(axis, np.append(told, np.zeros(attributes[axis].length - len(told), np.int64)), tables)
            for axis, told in asked.factors
        ]
        joined = "".join(f" JOIN {name} ON {name}.place = p{name.split('_')[1]}" for name in tables)
        self._load(tables)
        query = (
            f"SELECT cell, count(*) AS n, {'CAST(sum(w) AS BIGINT)' if weights else 'count(*)'} AS total FROM (SELECT "
            f"{' + '.join(cell)} AS cell, {' * '.join(weights or ['0'])} AS w FROM ({places}){joined}) GROUP BY cell"
        )
        numbers, records = np.zeros(stride, np.int64), 0
        for batch in self._connection.sql(query).to_arrow_reader(_ROWS):
            if batch.schema.types != [pa.int64()] * 3 or any(column.null_count for column in batch.columns):
                raise _Damaged
            found, number, total = (column.to_numpy() for column in batch.columns)
            records += int(number.sum())
            inside = (found >= 0) & (found < stride)
            np.add.at(numbers, found[inside], total[inside])
        return numbers, records

    def _load(self, tables: Mapping[str, NDArray[np.int64]]) -> None:
        """Lay numbers by place into tables of the engine's own."""
        for name, numbers in tables.items():
            self._connection.register("numbers", pa.table({"place": np.arange(len(numbers)), "number": numbers}))
            self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM numbers")
            self._connection.unregister("numbers")


def _looked_up(axis: int, numbers: NDArray[np.int64] | None, tables: dict[str, NDArray[np.int64]]) -> str:
    """The number of a record's place on an axis; the place itself where there are none. It takes the same time
    whichever it is. Numbers of very many places go to ``tables``, by the name of a table.
    """
    if numbers is None:
        return f"p{axis}"
    starts = np.flatnonzero(np.diff(numbers)) + 1
    if len(starts) <= _COMPARED:
        # Each is compared with, whatever the one before was.
        steps = [f" + {numbers[start] - numbers[start - 1]} * CAST(p{axis} >= {start} AS BIGINT)" for start in starts]
        return f"({numbers[0]}{''.join(steps)})"
    if len(numbers) <= _LISTED:
        return f"CAST([{', '.join(map(str, numbers.tolist()))}] AS BIGINT[])[p{axis} + 1]"
    name = f"looked_{axis}_{len(tables)}"
    tables[name] = numbers
    return f"{name}.number"


def _file(path: str) -> str:
    """A file as a table; nothing of its own name becomes a column."""
    return f"read_parquet('{path}', hive_partitioning = false, filename = false, file_row_number = false)"


def _number_of(condition: str) -> str:
    return f"count(*) FILTER (WHERE {condition})"


def _place(attribute: Attribute, words: str, kind: str, column: str, *, reasons: bool) -> str | None:
    """The expression of an attribute's place, a whole number of 64 bits; None where the column's type is not counted.

    Without reasons it lies within the axis, whatever the column holds: each form of it is bounded by itself. With them
    it is below zero where a value has no place (:data:`_OUTSIDE`, :data:`_BELOW`, :data:`_ABOVE`).

    Args:
        attribute: what is declared.
        words: the type of its categories.
        kind: the type of its column.
        column: the column.
        reasons: whether it is told where a value has no place.
    """
    none = _OUTSIDE if reasons else 0
    empty = attribute.places if attribute.missing else none
    found: str | None = None

    def between(value: str, low: object, high: object, place: Callable[[str], str], *, strays: bool = True) -> str:
        """A place that is calculated from a value held between bounds; or on which side of them the value is."""
        held = place(f"greatest(least({value}, {high}), {low})")
        if not reasons:
            return held
        below, above = (_BELOW, _ABOVE) if strays else (_OUTSIDE, _OUTSIDE)
        return f"CASE WHEN {value} < {low} THEN {below} WHEN {value} > {high} THEN {above} ELSE {held} END"

    match attribute.kind:
        case "codes" if kind in _INTEGERS:
            found = between(_whole(kind, column), 0, attribute.places - 1, lambda held: held, strays=False)
        case "codes" if kind == "BOOLEAN" and attribute.places == 2:
            found = f"COALESCE(CAST({column} AS BIGINT), {none})"
        case "categories" if kind == "VARCHAR":
            found = f"COALESCE({_word(column, words)}, CASE WHEN {column} = '' THEN {empty} ELSE {none} END)"
        case "categories" if kind in _INTEGERS:
            found = f"COALESCE({_word(f'CAST({column} AS VARCHAR)', words)}, {none})"
        case "categories" if kind == "BOOLEAN":
            found = _truth(attribute, column)
        case "dates" if kind in _TIMES:
            low, high, value, place = _date(attribute, column)
            found = between(value, low, high, place)
        case "numbers" if kind in _INTEGERS:
            least, most, step = map(int, (*attribute.bounds, attribute.step))
            value = _whole(kind, column)
            found = between(value, least, most, lambda held: f"((({held} - {least}) * 2 + {step}) // {2 * step})")
        case "bins" if attribute.unit_bins and kind in _INTEGERS:
            least, most = map(int, attribute.bounds)
            last = attribute.places - 1
            found = between(_whole(kind, column), least, most, lambda held: f"least({held} - {least}, {last})")
        case "bins" if kind in _INTEGERS | _FLOATS and attribute.places <= MOST_COMPARED:
            found = _bin(attribute, f"CAST({column} AS DOUBLE)", reasons=reasons)
    if found is None:
        return None
    if kind in _FLOATS and (reasons or attribute.missing):
        # The engine holds NaN to be above all numbers.
        found = f"CASE WHEN isnan({column}) THEN {empty} WHEN isinf({column}) THEN {none} ELSE {found} END"
    if not reasons and not attribute.missing:
        return f"CAST({found} AS BIGINT)"  # a value in the place of null: no form above lets null pass
    return f"CAST(CASE WHEN {column} IS NULL THEN {empty} ELSE {found} END AS BIGINT)"


def _whole(kind: str, column: str) -> str:
    """An integer with room to calculate; those that 64 bits with a sign do not hold have 128."""
    return f"CAST({column} AS {'HUGEINT' if kind == 'UBIGINT' else 'BIGINT'})"


def _word(text: str, words: str) -> str:
    """The place of a text among the categories, null where it is none."""
    return f"CAST(enum_code(TRY_CAST({text} AS {words})) AS BIGINT)"


def _truth(attribute: Attribute, column: str) -> str | None:
    """The place of false and true, where these are the categories."""
    words = [str(value).lower() for value in attribute.values or ()]
    for false, true in _TRUTH if all(isinstance(value, int) for value in attribute.values or ()) else _TRUTH[:1]:
        if sorted(words) == [false, true]:
            return f"CASE WHEN {column} THEN {words.index(true)} ELSE {words.index(false)} END"
    return None


def _date(attribute: Attribute, column: str) -> tuple[str, str, str, Callable[[str], str]]:
    """The first and last date, the date of a column, of which a time is cut off, and the place of one between them."""
    assert attribute.dates is not None
    first, last = (attribute.period(day(text)) for text in attribute.dates)
    low, high = attribute.begins(first), date.max
    if last < attribute.period(date.max):
        high = attribute.begins(last + 1) - timedelta(days=1)
    begin = f"DATE '{low}'"

    def place(held: str) -> str:
        if attribute.by == "day":
            return f"({held} - {begin})"
        months = f"(year({held}) * 12 + month({held}) - 1 - {first})"
        return months if attribute.by == "month" else f"(year({held}) - {first})"

    return begin, f"DATE '{high}'", f"CAST({column} AS DATE)", place


def _bin(attribute: Attribute, value: str, *, reasons: bool) -> str:
    """The half-open bin of a number, the last one closed, by comparisons alone; the nearest one, or with ``reasons`` on
    which side of all of them the number is.
    """
    edge_at = attribute.edge_at()

    def edge(number: int) -> str:
        # Correctly rounded: as a decimal it would be another number.
        return f"CAST('{float(edge_at(number))!r}' AS DOUBLE)"

    def among(low: int, high: int) -> str:
        if high - low == 1:
            return str(low)
        middle = (low + high) // 2
        return f"CASE WHEN {value} >= {edge(middle)} THEN {among(middle, high)} ELSE {among(low, middle)} END"

    bins = attribute.places
    if not reasons:
        return among(0, bins)
    sides = f"WHEN {value} < {edge(0)} THEN {_BELOW} WHEN {value} > {edge(bins)} THEN {_ABOVE}"
    return f"CASE {sides} ELSE {among(0, bins)} END"


def _needed(attribute: Attribute) -> str:
    """The columns that an attribute is counted of, in words."""
    return {
        "codes": "a column of integers" + (" or Booleans" if attribute.places == 2 else ""),
        "categories": "a column of text or integers, or of Booleans for false and true",
        "dates": "a column of dates, or of times without a zone",
        "numbers": "a column of integers",
        "bins": "a column of integers"
        + (
            ", or of floats" if attribute.places <= MOST_COMPARED else f" (of floats in at most {MOST_COMPARED:,} bins)"
        ),
    }[attribute.kind]
