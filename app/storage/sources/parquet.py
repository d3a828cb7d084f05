"""Tables counted from Parquet files where they lie, by DuckDB: text goes in (:mod:`.compiled`), whole numbers come out.

An engine's error text may hold values, and is never looked at.
"""

import base64
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from glob import escape
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from app.declarations.errors import InvalidDataset
from app.declarations.spec import DeltaTable, IcebergTable, ParquetFiles, TableSpec, parse_spec
from app.spaces.counts import CellCounts
from app.storage.readers.codes import Sealing
from app.storage.readers.report import Report
from app.storage.readers.tables import read_table
from app.storage.sources import compiled, delta, iceberg
from app.storage.sources.compiled import Column, Damaged, Dialect, Kind
from app.storage.sources.files import Identity, Looks, SourceFile, identity, looks, opened, same
from app.storage.sources.outcome import CountedSource, DeclaredSource, Moved, digest_of

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
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER"), "integer"),
    "UBIGINT": "wide",
    **dict.fromkeys(("FLOAT", "DOUBLE"), "float"),
    "VARCHAR": "text",
    "BOOLEAN": "truth",
    **dict.fromkeys(("DATE", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS"), "time"),
}


@dataclass(frozen=True, eq=False, repr=False)
class Told:
    """Numbers that a source told, one array after another, and how its files look now."""

    numbers: NDArray[np.int64]
    looks: Looks


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
    of = DeclaredSource(spec)
    cells = math.prod(of.shape) if of.whole else 0
    if cells * (8 + of.dtype.itemsize) > memory_limit:
        raise InvalidDataset(
            f"the declared attributes span {cells:,} cells, for which the limit of {memory_limit} bytes is too small: "
            "leave out attributes, or declare fewer values and bins"
        )
    counts = np.zeros(cells, np.int64)
    with _opened(spec, folders) as files:
        known = identity(files)
        with Engine(spec, [file.held for file in files], memory_limit) as engine:
            for number, file in enumerate(files, 1):
                try:
                    records = engine.survey(file.held, of.report)
                    if of.whole:
                        numbers, told = engine.count(file.held, of.every)
                        counts += numbers
                        if told != records:
                            raise Damaged
                except Damaged:
                    raise InvalidDataset(
                        f"file {number} of {len(files)} of the source, by name, is no Parquet file or is damaged: "
                        "write it again"
                    ) from None
        for file in files:
            file.check()
        looked = looks(files)
    return of.outcome(counts, known, {"files": known, "looks": looked, "records": of.report.kept})


def prepare_source(
    spec: TableSpec, folders: Sequence[Path], *, memory_limit: int, sealing: Sealing | None = None
) -> CountedSource:
    """The records of a source, read once as those of an upload are; see :func:`app.storage.readers.tables.read_table`.

    Args:
        spec: what is declared.
        folders: those below which files are read.
        memory_limit: bytes that the result may take.
        sealing: how records are written that are too many for memory; None where they are refused.

    Raises:
        InvalidDataset: when files are not what is declared, or change meanwhile.
        Unwritable: when the disk refuses what is written.
    """
    with _opened(spec, folders) as files:
        known = identity(files)
        data, report = read_table(spec, ".parquet", [Path(file.held) for file in files], memory_limit, sealing)
        for file in files:
            file.check()
    return CountedSource(data, report, digest_of(known))


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
    try:
        known = [tuple(each) for each in what["files"]]
        with _opened(spec, folders, known) as files:
            if not same(files, known, [tuple(each) for each in (looked or what["looks"])]):
                raise Moved
            with Engine(spec, [file.held for file in files], memory_limit) as engine:
                found = _all_counted(engine, [file.held for file in files], asked, what["records"])
            for file in files:
                file.check()
            now = looks(files)
    except InvalidDataset:
        raise Moved from None
    except Damaged:
        raise RuntimeError("the engine failed") from None
    return Told(found, now)


def ask_codes(path: Path, about: bytes, asked: Sequence[CellCounts], *, memory_limit: int) -> NDArray[np.int64]:
    """Counts, by classes, of the records of a file of codes, one array after another.

    Args:
        path: of the file.
        about: what :class:`~app.storage.private_data.CodesData` has of it.
        asked: what is counted of every record: classes along some attributes, and weights.
        memory_limit: bytes that the engine may take.

    Raises:
        Moved: when the file is not what was written, or its key is another.
        MemoryError: when counting takes more memory.
        RuntimeError: when the engine tells what makes no sense.
    """
    what = json.loads(about)
    places = [{"name": f"c{axis}", "size": length} for axis, length in enumerate(what["lengths"])]
    # A budget is part of every declaration; nothing is spent here.
    declared = {"name": "codes", "kind": "table", "budget": {"epsilon": 1, "delta": 1e-9}, "attributes": places}
    spec = parse_spec(declared)
    assert isinstance(spec, TableSpec)
    key = None if what["key"] is None else base64.b64decode(what["key"])
    try:
        with Engine(spec, [str(path)], memory_limit, key) as engine:
            return _all_counted(engine, [str(path)], asked, what["records"])
    except (Damaged, InvalidDataset):
        raise Moved from None


def _all_counted(
    engine: "Engine", paths: Sequence[str], asked: Sequence[CellCounts], records: int
) -> NDArray[np.int64]:
    """Counts of the records of all files together, one array after another.

    Raises:
        MemoryError, Damaged: as the engine does.
        RuntimeError: when it tells of another number of records.
    """
    numbers, told = [np.zeros(math.prod(each.shape), np.int64) for each in asked], [0] * len(asked)
    for path in paths:
        for number, each in enumerate(asked):
            counts, counted = engine.count(path, each)
            numbers[number] += counts
            told[number] += counted
    if any(counted != records for counted in told):
        raise RuntimeError("the engine told of another number of records")
    return np.concatenate(numbers)


@contextmanager
def _opened(spec: TableSpec, folders: Sequence[Path], known: Identity | None = None) -> Iterator[list[SourceFile]]:
    """The files that a declaration names.

    Args:
        spec: of the table.
        folders: those below which files are read.
        known: what they were when the table was registered; None at that time.

    Raises:
        InvalidDataset: when it names none, as what is shown of one.
    """
    source, columns = spec.source, None
    patterns: Sequence[str]
    if isinstance(source, ParquetFiles):
        if source.files is None:
            raise InvalidDataset("source.files: name the files, as visits/2025-*.parquet")
        patterns, field = source.files, None
    elif known is not None:
        # A version has the files that it has, whatever was written to the table since.
        patterns, field = [escape(name) for name, *_ in known], "source"
    elif isinstance(source, DeltaTable):
        if source.table is None or source.version is None:
            raise InvalidDataset("source: name the table and its version, as lake/visits and 41")
        patterns, field = delta.files_of(source.table, source.version, folders), "source.version"
    else:
        assert isinstance(source, IcebergTable)
        if source.table is None or source.snapshot is None:
            raise InvalidDataset("source: name the table and its snapshot or a tag, as lake/visits and end-of-2025")
        patterns, columns = iceberg.files_of(source.table, source.snapshot, folders)
        field = "source.snapshot"
    with opened(patterns, folders, field) as files:
        if columns is not None:
            iceberg.check_columns(files, columns, spec.columns)
        yield files


class Engine(Dialect):
    """An engine that reads the named files and nothing else: no other file, no network, no extension, no disk to write
    to; and whose settings nobody can change any more.

    Args:
        spec: of the table.
        paths: of the files.
        memory_limit: bytes that it may take.
        key: of the files, where they are sealed.

    Raises:
        MemoryError: when the categories take more.
    """

    real, huge, over = "DOUBLE", "HUGEINT", "{} // {}"

    def __init__(self, spec: TableSpec, paths: Sequence[str], memory_limit: int, key: bytes | None = None) -> None:
        # Loaded by whoever counts, in a process of its own: others never need it.
        import duckdb

        self._spec, self._errors = spec, duckdb.Error
        self._memory = (duckdb.OutOfMemoryException, MemoryError)
        self._known: dict[str, list[Column]] = {}
        self._tables: dict[str, tuple[str, NDArray[np.int64]]] = {}
        self._connection = duckdb.connect(":memory:")
        self._sealed = key is not None
        if key is not None:
            self._connection.execute(f"PRAGMA add_parquet_key('key', '{base64.b64encode(key).decode()}')")
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
            Damaged: when a file cannot be read, or what comes back are no whole numbers.
        """
        try:
            yield
        except self._memory:
            raise MemoryError from None
        except (self._errors, pa.ArrowException, RuntimeError):
            raise Damaged from None

    def survey(self, path: str, report: Report) -> int:
        """Count the records of a file, and those outside, clamped or without a value, into a report; how many there
        are.

        Raises:
            InvalidDataset: when a column is not there, or not of a type that is counted.
            MemoryError, Damaged: when the file cannot be read.
        """
        with self._guarded():
            places = self._records(path, range(len(self._spec.attributes)), reasons=True)
            (told,) = self._connection.execute(compiled.survey(self._spec, places)).fetchall()
            return compiled.surveyed(self._spec, told, report)

    def count(self, path: str, asked: CellCounts) -> tuple[NDArray[np.int64], int]:
        """The numbers of all classes of the records of a file, flat, and how many records were counted.

        Raises:
            InvalidDataset: when a column is not there, or not of a type that is counted.
            MemoryError, Damaged: when the file cannot be read, or what comes back are no whole numbers.
        """
        numbers, records = np.zeros(math.prod(asked.shape), np.int64), 0
        with self._guarded():
            named = sorted({*asked.axes, *dict(asked.factors)})
            query = compiled.counts(self, self._spec, self._records(path, named, reasons=False), asked)
            self._load()
            for batch in self._connection.sql(query).to_arrow_reader(_ROWS):
                if batch.schema.types != [pa.int64()] * 3 or any(column.null_count for column in batch.columns):
                    raise Damaged
                found, number, total = (column.to_numpy() for column in batch.columns)
                records += int(number.sum())
                compiled.add(numbers, found, total)
        return numbers, records

    def _records(self, path: str, axes: Iterable[int], *, reasons: bool) -> str:
        """A query for the places of the records of a file; see :func:`.compiled.records`."""
        return compiled.records(self, self._spec, self._columns(path), self._file(path), axes, reasons=reasons)

    def _columns(self, path: str) -> list[Column]:
        """The columns of a file in their order.

        Raises:
            InvalidDataset: when one has no name, or two differ in capitals alone: the engine would call it otherwise.
        """
        if path in self._known:
            return self._known[path]
        told = self._connection.execute(f"DESCRIBE SELECT * FROM {self._file(path)}").fetchall()
        columns = [Column(name, _KINDS.get(kind)) for name, kind, *_ in told]
        if self._sealed:  # who sealed it gave the columns their names
            return columns
        query = f"SELECT name, num_children, converted_type, logical_type FROM parquet_schema('{path}')"
        names, decimals, within = [], [], 0
        for name, children, *kinds in self._connection.execute(query).fetchall()[1:]:
            if not within:
                names.append(name)
                # Of those with more than 38 digits the engine makes floats, and not always the nearest ones.
                decimals.append(any("decimal" in str(kind).lower() for kind in kinds))
            within += (children or 0) - bool(within)
        if names != [column.name for column in columns]:
            raise InvalidDataset(
                "source: two columns of a file have one name, or differ in capitals alone, or one has none: rename one"
            )
        columns = [Column(at.name, None) if exact else at for at, exact in zip(columns, decimals, strict=True)]
        self._known[path] = columns
        return columns

    # ------------------------------------------------------------------ the engine's words

    def word(self, axis: int, text: str) -> str:
        """By the enumeration that was made of the categories."""
        return f"CAST(enum_code(TRY_CAST({text} AS e{axis})) AS BIGINT)"

    def is_nan(self, column: str) -> str:
        """By the engine's own function."""
        return f"isnan({column})"

    def is_infinite(self, column: str) -> str:
        """By the engine's own function."""
        return f"isinf({column})"

    def looked_up(self, axis: int, place: str, numbers: NDArray[np.int64]) -> str:
        """In a list; of very many numbers in a table that is joined with."""
        if len(numbers) <= _LISTED:
            return f"CAST([{', '.join(map(str, numbers.tolist()))}] AS BIGINT[])[{place} + 1]"
        name = f"looked_{len(self._tables)}"
        self._tables[name] = place, numbers
        return f"{name}.number"

    def joined(self) -> str:
        """The tables of numbers: each record meets one row of each."""
        return "".join(f" JOIN {name} ON {name}.place = {place}" for name, (place, _) in self._tables.items())

    def _load(self) -> None:
        """Lay numbers by place into tables of the engine's own."""
        for name, (_, numbers) in self._tables.items():
            self._connection.register("numbers", pa.table({"place": np.arange(len(numbers)), "number": numbers}))
            self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS SELECT * FROM numbers")
            self._connection.unregister("numbers")
        self._tables.clear()

    def _file(self, path: str) -> str:
        """A file as a table; nothing of its own name becomes a column."""
        how = ", encryption_config = {footer_key: 'key'}" if self._sealed else ""
        return f"read_parquet('{path}', hive_partitioning = false, filename = false, file_row_number = false{how})"
