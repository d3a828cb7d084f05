"""Tables counted where they lie in PostgreSQL: text goes in (:mod:`.compiled`), whole numbers come out.

All that is asked at once is of one state of the table: one read-only transaction at REPEATABLE READ. In it the records
are first held against what was registered, by a sum of keyed hashes of their places: what answers depend on, and
nothing else. So a table that was changed in columns that nobody declared is what it was, and nothing need be installed
there.

An engine's error text may hold values, and is never looked at. A role that could write is refused.
"""

from __future__ import annotations

import math
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO, Any

import numpy as np
import psycopg
import structlog
from numpy.typing import NDArray
from psycopg import sql

from app.declarations.attributes import Attribute
from app.declarations.errors import CuratorError, InvalidDataset
from app.declarations.spec import PostgresTable, TableSpec
from app.spaces.counts import CellCounts
from app.storage import readers
from app.storage.readers import Readers
from app.storage.readers.report import Report
from app.storage.sources import compiled
from app.storage.sources.compiled import Column, Damaged, Dialect, Kind
from app.storage.sources.copied import check_room, copying, read_copy
from app.storage.sources.outcome import CountedSource, DeclaredSource, Moved, asking, of_all, too_slow, unreachable

logger = structlog.get_logger(__name__)

#: Seconds that connecting may take, and in which a database that is checked must answer.
_CONNECT_SECONDS = _CHECK_SECONDS = 10
#: A host that is not there any more is found out in a minute, where the kernel's own patience is of hours.
_PULSE: dict[str, Any] = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
#: Rows of results that are taken at a time.
_ROWS = 1 << 14
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("int2", "int4", "int8"), "integer"),
    **dict.fromkeys(("float4", "float8"), "float"),
    **dict.fromkeys(("text", "varchar"), "text"),
    "bool": "truth",
    **dict.fromkeys(("date", "timestamp"), "time"),
}
#: What stands in a copy for null, which is another text than the empty one; longer where it is declared as a value.
_NULL = "\\NULL"
#: Types that hold what is no number.
_UNTOLD = ("float4", "float8", "numeric")
_SETTINGS = (
    "SET LOCAL search_path = pg_catalog",
    "SET LOCAL TimeZone = 'UTC'",
    "SET LOCAL DateStyle = 'ISO, YMD'",
    "SET LOCAL extra_float_digits = 1",
    "SET LOCAL standard_conforming_strings = on",
)
_WRITES = (
    "has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE') "
    "OR has_any_column_privilege(c.oid, 'INSERT, UPDATE')"
)
_TABLE = f"""
    SELECT c.oid, c.relkind, c.relrowsecurity, c.relispartition OR c.relhassubclass,
        {_WRITES}
    FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = %s AND c.relname = %s
"""
_COLUMNS = """
    SELECT a.attname, t.typname, t.typnamespace = 'pg_catalog'::regnamespace
    FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
    WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_RIGHTS = f"""
    SELECT rolsuper OR rolcreaterole OR rolcreatedb OR rolreplication OR rolbypassrls,
        has_database_privilege(current_database(), 'CREATE'),
        coalesce(sum((w.writes)::int), 0), coalesce(sum((w.reads)::int), 0)
    FROM pg_roles LEFT JOIN (
        SELECT {_WRITES} AS writes,
            has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') AS reads
        FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
    ) AS w ON true
    WHERE rolname = current_user GROUP BY 1, 2
"""


class _Late(Exception):
    """There is no time left."""


@contextmanager
def _connected(url: str, seconds: float) -> Iterator[psycopg.Connection[Any]]:
    """A read-only connection that lasts so many seconds at most, whatever the other side does: its own limit is one of
    a statement, and where it has fallen silent nobody keeps that.

    Raises:
        _Late: when they are over.
    """
    ends, late = time.monotonic() + seconds, threading.Event()
    connection = psycopg.connect(
        url,
        connect_timeout=min(_CONNECT_SECONDS, math.ceil(seconds)),
        application_name="curator",
        prepare_threshold=None,
        client_encoding="utf8",
        **_PULSE,
    )
    line = socket.socket(fileno=os.dup(connection.fileno()))

    def leave() -> None:
        late.set()
        with suppress(OSError):  # the other side was first
            line.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(max(ends - time.monotonic(), 0), leave)
    timer.daemon = True
    timer.start()
    try:
        with connection:
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.execute("SELECT set_config('statement_timeout', %s, true)", [str(math.ceil(seconds * 1000))])
            yield connection
    except psycopg.errors.QueryCanceled:
        raise _Late from None
    except psycopg.Error:
        if late.is_set():
            raise _Late from None
        raise
    finally:
        timer.cancel()
        timer.join()
        line.close()


def complaints(url: str) -> list[str]:
    """What is wrong with a database, or with what its role may do: it should read tables, and do nothing else. Nothing
    of the database's own words.
    """
    try:
        with _connected(url, _CHECK_SECONDS) as connection:
            found = connection.execute(_RIGHTS).fetchone()
    except (psycopg.Error, _Late) as error:
        logger.warning("a connection was checked, and its database cannot be asked", error=type(error).__name__)
        return ["the database cannot be reached, or refuses the role: look at host, port, database, user and password"]
    assert found is not None  # there is whoever asks
    mighty, makes, writes, reads = found
    return [
        words
        for is_so, words in (
            (mighty, "its role is a superuser, or may make roles, databases or copies: take one that may not"),
            (makes, "its role may create schemas in the database: revoke CREATE"),
            (writes, f"its role may write to {writes:,} tables: grant it SELECT alone"),
            (not reads, "its role reads no table: grant it USAGE of a schema and SELECT of its tables"),
        )
        if is_so
    ]


class PostgresTables:
    """Tables of PostgreSQL.

    Args:
        connect: gives the URL of a named connection.
        seconds: that counting may take.
        readers: read what was copied of a table that is prepared.
        memory_limit: bytes that what was copied may take, and what is made of it.
    """

    def __init__(
        self, connect: Callable[[str], str], seconds: float, readers: Readers = readers, memory_limit: int = 1 << 30
    ) -> None:
        self._connect, self._seconds = connect, seconds
        self._readers, self._memory_limit = readers, memory_limit

    def register(self, spec: TableSpec) -> CountedSource:
        """The counts of all cells of a table, or where these are too many what is needed to ask for some later.

        Raises:
            InvalidDataset: when there is no such connection or table; when it is not what is declared; when a record is
                outside of the domain.
            SourceUnavailable: when the database cannot be reached.
        """
        of, keys = DeclaredSource(spec), [secrets.randbits(63) for _ in range(2)]
        counts = np.zeros(0, np.int64)
        with self._asked(spec) as table:
            records = table.survey(of.report)
            identity = table.identity(keys)
            if of.whole:
                counts, told = table.count(of.every)
                if told != records:
                    raise Damaged
            if identity[0] != records:
                raise Damaged
        return of.outcome(counts, [*keys, *identity], {"keys": keys, "identity": identity})

    def prepare(self, spec: TableSpec) -> CountedSource:
        """The records of a table, copied as text into memory and read as an upload's are.

        Raises:
            InvalidDataset: when there is no such connection, table or column; when records are not what is declared,
                or take more memory than there is.
            SourceUnavailable: when the database cannot be reached.
        """
        null = _NULL
        while any(null in map(str, attribute.values or ()) for attribute in spec.attributes):
            null += "\\"
        with copying() as memory:
            with self._asked(spec) as table:
                table.copy(memory, self._memory_limit, null)
            return read_copy(self._readers, spec, memory, "table.csv", self._memory_limit, null)

    def asking(self, about: bytes) -> Callable[[Sequence[CellCounts]], NDArray[np.int64]]:
        """What asks the records of a table that was registered: it raises Moved when they are not what they were, and
        Unavailable when the database cannot be reached, or takes too long.
        """
        return asking(about, self._asked, _counted)

    @contextmanager
    def _asked(self, spec: TableSpec) -> Iterator[_Table]:
        """A declared table in a transaction, all of it at one state.

        Raises:
            InvalidDataset: when it is not there, or is no plain table that is only read.
            SourceUnavailable: when the database cannot be reached, or takes too long.
        """
        source = spec.source
        assert isinstance(source, PostgresTable)
        if source.connection is None or source.table is None:
            raise InvalidDataset("source: name a connection and a table, as clinic.visits")
        url = self._connect(source.connection)
        try:
            with _connected(url, self._seconds) as connection:
                for setting in _SETTINGS:
                    connection.execute(setting)
                yield _Table(connection, spec, *source.table.split("."))
        except CuratorError:
            raise
        except _Late:
            raise too_slow(self._seconds) from None
        except (UnicodeError, psycopg.errors.UntranslatableCharacter, psycopg.errors.CharacterNotInRepertoire):
            raise InvalidDataset(
                "source: the database's encoding has not every letter of the table's name, of the columns' and of the "
                "categories, or what it holds is no text in it: leave out what no record can have"
            ) from None
        except (psycopg.Error, Damaged) as error:
            raise unreachable(source.connection, type(error).__name__) from None


def _counted(
    table: _Table, asked: Sequence[CellCounts], keys: Sequence[int], identity: Sequence[int]
) -> Sequence[NDArray[np.int64]]:
    """See :func:`.outcome.asking`."""
    if table.identity(keys) != identity:
        raise Moved
    return of_all([table.count(each) for each in asked], identity[0])


class _Table(Dialect):
    """A table within a transaction, and the words of the engine.

    Raises:
        InvalidDataset: when it is not there, or is no plain table that is only read.
    """

    real, huge, over = "DOUBLE PRECISION", "NUMERIC", "{} / {}"

    def __init__(self, connection: psycopg.Connection[Any], spec: TableSpec, schema: str, name: str) -> None:
        self._connection, self._spec = connection, spec
        # Nothing is looked for in a table that is copied.
        sought = spec.attributes if spec.prepare is None else ()
        self._words = {f"w{axis}": _words(a) for axis, a in enumerate(sought) if a.values is not None}
        found = connection.execute(_TABLE, [schema, name]).fetchone()
        if found is None:
            raise InvalidDataset("source.table: there is no such table, or the connection's role does not see it")
        oid, kind, secured, part, writes = found
        if kind != "r" or secured or part:
            raise InvalidDataset(
                "source.table: it is no plain table, other tables inherit from it, or it has security by rows: name a "
                "table without any of these, as of a materialised copy"
            )
        if writes:
            raise InvalidDataset(
                "source.connection: its role may write to the table: grant it SELECT alone, so that the curator "
                "cannot change what it counts"
            )
        told = connection.execute(_COLUMNS, [oid]).fetchall()
        self._columns = [Column(column, _KINDS.get(type) if own else None) for column, type, own in told]
        self._untold = {at for at, (_, type, own) in enumerate(told) if own and type in _UNTOLD}
        self._exact = {at for at, (_, type, own) in enumerate(told) if own and type == "numeric"}
        # Of a percent sign in a name the driver would make a parameter.
        self._table = f"ONLY {sql.Identifier(schema, name).as_string(connection)}".replace("%", "%%")

    def survey(self, report: Report) -> int:
        """Count records, and those outside, clamped or without a value, into a report; how many there are."""
        (told,) = self._fetched(compiled.survey(self._spec, self._records(reasons=True)))
        return compiled.surveyed(self._spec, told, report)

    def identity(self, keys: Sequence[int]) -> list[int]:
        """How many records there are, and for each key the sum of a keyed hash of each record's places, or of why it
        has none: the same of the same records in any order.
        """
        axes = range(len(self._spec.attributes))
        text = f"concat_ws(',', {', '.join(f'p{axis}' for axis in axes)})"
        sums = ", ".join(f"COALESCE(sum(hashtextextended(x, {key})), 0)" for key in keys)
        query = f"SELECT count(*), {sums} FROM (SELECT {text} AS x FROM ({self._records(reasons=True)}) AS t) AS u"
        (told,) = self._fetched(query)
        return [int(number) for number in told]

    def copy(self, memory: IO[bytes], most: int, null: str) -> None:
        """Write what is declared of all records as CSV, each column under its attribute's name, and null as this word.

        Raises:
            InvalidDataset: when a column is not there, or the text takes more bytes.
        """
        at = {column.name: position for position, column in enumerate(self._columns)}
        named = [(attribute.column or attribute.name, attribute.name) for attribute in self._spec.attributes]
        if self._spec.unit is not None:
            named.append((self._spec.unit.column, self._spec.unit.column))
        found = []
        for column, name in named:
            if column not in at:
                raise InvalidDataset(f'source: the table has no column "{column}": name another', attribute=name)
            value = f"c{at[column]}"
            if self._columns[at[column]].kind == "float":
                # A float of 32 bits is the number that it is, not the shortest that is read as it.
                value += "::float8"
            elif at[column] in self._exact:
                # As short as it can be written, as decimals of files are.
                value = f"trim_scale({value})"
            text = f"{value}::text"
            if at[column] in self._untold:
                text = f"NULLIF({text}, 'NaN')"
            found.append(f"{text} AS {sql.Identifier(name).as_string(self._connection)}")
        names = ", ".join(f"c{position}" for position in range(len(self._columns)))
        table = self._table.replace("%%", "%")  # no parameters here
        how = f"FORMAT csv, HEADER, NULL {sql.Literal(null).as_string(self._connection)}"
        query = f"COPY (SELECT {', '.join(found)} FROM {table} AS t({names})) TO STDOUT ({how})"
        size = 0
        with self._connection.cursor() as cursor, cursor.copy(query.encode()) as copying:
            for piece in copying:
                size += len(piece)
                check_room(size, most)
                memory.write(piece)

    def count(self, asked: CellCounts) -> tuple[NDArray[np.int64], int]:
        """The numbers of all classes, flat, and how many records were counted."""
        named = sorted({*asked.axes, *dict(asked.factors)})
        query = compiled.counts(self, self._spec, self._records(named, reasons=False), asked)
        numbers, records = np.zeros(math.prod(asked.shape), np.int64), 0
        with self._connection.cursor() as cursor:
            cursor.execute(query.encode(), self._words)
            while rows := cursor.fetchmany(_ROWS):
                if not all(len(row) == 3 and all(type(number) is int for number in row) for row in rows):
                    raise Damaged
                found, number, total = np.array(rows, np.int64).T
                records += int(number.sum())
                compiled.add(numbers, found, total)
        return numbers, records

    def _fetched(self, query: str) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            return cursor.execute(query.encode(), self._words).fetchall()

    def _records(self, axes: Sequence[int] | None = None, *, reasons: bool) -> str:
        """A query for the places of all records; see :func:`.compiled.records`."""
        axes = range(len(self._spec.attributes)) if axes is None else axes
        return compiled.records(self, self._spec, self._columns, self._table, axes, reasons=reasons)

    # ------------------------------------------------------------------ the engine's words

    def word(self, axis: int, text: str) -> str:
        """By an array that is a parameter, byte by byte, whatever the column's collation holds to be equal."""
        return f'(array_position(%(w{axis})s::text[], ({text})::text COLLATE "C") - 1)'

    def is_nan(self, column: str) -> str:
        """Which equals itself here."""
        return f"{column} = 'NaN'"

    def is_infinite(self, column: str) -> str:
        """Above or below all numbers."""
        return f"{column} IN ('Infinity', '-Infinity')"

    def looked_up(self, axis: int, place: str, numbers: NDArray[np.int64]) -> str:
        """In an array, of which every number is as near."""
        return f"('{{{','.join(map(str, numbers.tolist()))}}}'::bigint[])[CAST({place} + 1 AS INTEGER)]"


def _words(attribute: Attribute) -> list[str]:
    """The categories as text of the engine's.

    Raises:
        InvalidDataset: when they are too many to be looked for, or one is no text here.
    """
    words = compiled.labels(attribute)
    if any("\0" in word for word in words):
        raise InvalidDataset(
            f'source: attribute "{attribute.name}" has a category with the sign NUL, which no text of PostgreSQL has: '
            "leave it out",
            attribute=attribute.name,
        )
    return words
