"""Tables counted where they lie in BigQuery, Snowflake and Trino, which nobody has tried against a real account: text
goes in (:mod:`.compiled`, :mod:`.dialects`), whole numbers come out (:mod:`.drivers`).

No transaction spans what is asked. The records are held against what was registered before the first count and after
the last one, by a sum of keyed hashes of their places, and between the two nothing is told to anybody.

What an engine or a driver says of an error may hold values, and is never looked at.
"""

from __future__ import annotations

import math
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from decimal import Decimal
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from app.declarations.errors import InvalidDataset
from app.declarations.spec import TableSpec, WarehouseTable, elsewhere
from app.services.errors import SourceUnavailable
from app.spaces.counts import CellCounts
from app.storage.readers.report import Report
from app.storage.sources import compiled
from app.storage.sources.compiled import MOST_CATEGORIES, Damaged, labels
from app.storage.sources.dialects import BigQuery, Snowflake, Trino, Warehouse
from app.storage.sources.drivers import DRIVERS, Driver, Place
from app.storage.sources.outcome import CountedSource, DeclaredSource, Moved, asking, of_all, too_slow, unreachable

logger = structlog.get_logger(__name__)

#: Rows of results that are taken at a time.
_ROWS = 1 << 14
#: Seconds in which a database that is checked must answer.
_CHECK_SECONDS = 10.0
_DIALECTS: dict[str, type[Warehouse]] = {"bigquery": BigQuery, "snowflake": Snowflake, "trino": Trino}


class _Failed(Exception):
    """What a driver raised, by its class."""


class _Late(Exception):
    """There is no time left."""


def complaints(url: str) -> list[str]:
    """What is wrong with a database. What its role may do is not looked at: each engine tells that in another way."""
    place = Place.of(url)
    try:
        with _connected(DRIVERS[place.type], place, _CHECK_SECONDS) as session:
            session.told("SELECT 1")
    except InvalidDataset as error:
        return [error.detail]
    except (_Failed, _Late, Damaged) as error:
        logger.warning("a connection was checked, and its database cannot be asked", error=str(error))
        return ["the database cannot be reached, or refuses the role: look at host, port, database, user and password"]
    return []


class WarehouseTables:
    """Tables of engines that are compiled for.

    Args:
        connect: gives the URL of a named connection, which leads to a type.
        seconds: that counting may take.
        untried: the types that the operator takes though nobody has tried them.
        drivers: how each type is connected to.
    """

    def __init__(
        self,
        connect: Callable[[str, str], str],
        seconds: float,
        untried: Collection[str],
        drivers: dict[str, Driver] = DRIVERS,
    ) -> None:
        self._connect, self._seconds, self._untried, self._drivers = connect, seconds, untried, drivers

    def register(self, spec: TableSpec) -> CountedSource:
        """The counts of all cells of a table, or where these are too many what is needed to ask for some later.

        Raises:
            InvalidDataset: when the operator does not take the engine; when there is no such connection or table; when
                it is not what is declared; when a record is outside of the domain.
            SourceUnavailable: when records changed while they were counted; when the database cannot be reached, or
                takes too long.
        """
        assert isinstance(spec.source, WarehouseTable)
        if spec.source.type not in self._untried:
            raise InvalidDataset(
                f"source.type: nobody has tried {spec.source.type} against a real account: copy the table to "
                "PostgreSQL or Parquet files, or have the operator name it in CURATOR_UNTRIED_ENGINES"
            )
        of, keys = DeclaredSource(spec), [secrets.randbits(63) for _ in range(2)]
        for attribute in () if of.whole else spec.attributes:
            if attribute.length > MOST_CATEGORIES:
                raise InvalidDataset(
                    f'source: attribute "{attribute.name}" has {attribute.length:,} values, and of a table as wide as '
                    f"this at most {MOST_CATEGORIES:,} are told apart there: declare fewer, or bins, or "
                    f"{elsewhere(spec.source)}",
                    attribute=attribute.name,
                )
        counts, told = np.zeros(0, np.int64), None
        with self._asked(spec) as table:
            identity = table.identity(keys)
            records = table.survey(of.report)
            if of.whole:
                counts, told = table.count(of.every)
            if table.identity(keys) != identity or records != identity[0] or told not in (None, records):
                raise SourceUnavailable(
                    "records changed while they were counted: register when nobody writes", retry_after=60
                )
        return of.outcome(counts, [*keys, *identity], {"keys": keys, "identity": identity})

    def prepare(self, spec: TableSpec) -> CountedSource:
        """Nothing: text of values is another one in each engine.

        Raises:
            InvalidDataset: saying so.
        """
        assert spec.source is not None
        raise InvalidDataset(
            f"source: tables of {spec.source.type} are not read: leave prepare out, or copy the table to PostgreSQL or "
            "Parquet files"
        )

    def asking(self, about: bytes) -> Callable[[Sequence[CellCounts]], NDArray[np.int64]]:
        """What asks the records of a table that was registered: it raises Moved when they are not what they were,
        before or after they were counted, and Unavailable when the database cannot be reached, or takes too long.
        """
        return asking(about, self._asked, _counted)

    @contextmanager
    def _asked(self, spec: TableSpec) -> Iterator[_Table]:
        """A declared table.

        Raises:
            InvalidDataset: when it is not there, or is no plain table.
            SourceUnavailable: when the database cannot be reached, or takes too long.
        """
        source = spec.source
        assert isinstance(source, WarehouseTable)
        if source.connection is None or source.table is None:
            raise InvalidDataset("source: name a connection and a table, as clinic.visits")
        place = Place.of(self._connect(source.connection, source.type))
        try:
            with _connected(self._drivers[place.type], place, self._seconds) as session:
                yield _Table(session, spec, place, *source.table.split("."))
        except _Late:
            raise too_slow(self._seconds) from None
        except (_Failed, Damaged) as error:
            raise unreachable(source.connection, str(error) or type(error).__name__) from None


def _counted(
    table: _Table, asked: Sequence[CellCounts], keys: Sequence[int], identity: Sequence[int]
) -> Sequence[NDArray[np.int64]]:
    """See :func:`.outcome.asking`."""
    if table.identity(keys) != identity:
        raise Moved
    told = [table.count(each) for each in asked]
    if table.identity(keys) != identity:
        raise Moved
    return of_all(told, identity[0])


@contextmanager
def _connected(driver: Driver, place: Place, seconds: float) -> Iterator[_Session]:
    """Raises InvalidDataset, _Failed, _Late."""
    ends = time.monotonic() + seconds
    connection = _in_time(ends, lambda: driver.connect(place, seconds))
    try:
        yield _Session(driver, connection, ends)
    finally:
        _aside(connection.close)


def _in_time(ends: float, call: Callable[[], Any]) -> Any:
    """What a call of a driver gives until a time. It goes on in its thread where it does not end then: an engine has a
    limit of its own, and no driver can be told to stop in all that it does.

    Raises:
        InvalidDataset: when the call does.
        _Failed: when it raises anything else, which is known by its class alone.
        _Late: when it gives nothing until then.
    """
    told: list[Any] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            told.append(call())
        except Exception as error:  # noqa: BLE001 - drivers raise errors of their own, of HTTP and of other libraries
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(max(ends - time.monotonic(), 0))
    if time.monotonic() >= ends:  # of a statement that the engine ended some rows may be missing
        raise _Late
    for error in failed:
        if isinstance(error, InvalidDataset):
            raise error
        raise _Failed(type(error).__name__)
    return told[0]


def _aside(call: Callable[[], Any]) -> None:
    """A call that nobody waits for, and that may fail."""

    def run() -> None:
        with suppress(Exception):
            call()

    threading.Thread(target=run, daemon=True).start()


class _Session:
    """A connection that answers until a time."""

    def __init__(self, driver: Driver, connection: Any, ends: float) -> None:
        self._driver, self._connection, self._ends = driver, connection, ends

    def rows(self, text: str) -> Iterator[list[Sequence[Any]]]:
        """The rows of a query, some at a time. Raises _Failed, _Late."""
        cursor = _in_time(self._ends, self._connection.cursor)
        try:
            left = self._ends - time.monotonic()
            _in_time(self._ends, lambda: self._driver.execute(cursor, text, left))
            while rows := _in_time(self._ends, lambda: cursor.fetchmany(_ROWS)):
                yield rows
        finally:
            # What is not read to its end is cancelled by that.
            _aside(cursor.close)

    def told(self, text: str) -> list[int]:
        """The whole numbers of the one row of a query.

        Raises:
            Damaged: when there are others.
        """
        rows = [row for piece in self.rows(text) for row in piece]
        if len(rows) != 1:
            raise Damaged
        return [_whole(number) for number in rows[0]]


def _whole(number: Any) -> int:
    """A whole number, of which drivers make a decimal where it may be large.

    Raises:
        Damaged: when it is anything else.
    """
    if type(number) is Decimal and number.is_finite() and number == number.to_integral_value():
        return int(number)
    if type(number) is not int:
        raise Damaged
    return number


class _Table:
    """A table of a connection.

    Raises:
        InvalidDataset: when it is not there, or is no plain table.
    """

    def __init__(self, session: _Session, spec: TableSpec, place: Place, schema: str, name: str) -> None:
        self._session, self._spec = session, spec
        words = {
            axis: labels(a, elsewhere(spec.source)) for axis, a in enumerate(spec.attributes) if a.values is not None
        }
        self._dialect = _DIALECTS[place.type](words)
        query = self._dialect.columns_of(place.database, schema, name)
        told = [row for rows in session.rows(query) for row in rows]
        if not all(len(row) == 2 and all(isinstance(word, str) for word in row) for row in told):
            raise Damaged
        if not told:
            raise InvalidDataset(
                "source.table: there is no such table, or the connection's role does not see it, or it is a view: name "
                "a plain table, in small letters or capitals as the engine keeps it"
            )
        self._columns = [self._dialect.column(*row) for row in told]
        self._table = self._dialect.table(place.database, schema, name)

    def survey(self, report: Report) -> int:
        """Count records, and those outside, clamped or without a value, into a report; how many there are."""
        told = self._session.told(compiled.survey(self._spec, self._records(None)))
        return compiled.surveyed(self._spec, told, report)

    def identity(self, keys: Sequence[int]) -> list[int]:
        """How many records there are, and for each key the sum of a keyed hash of each record's places, or of why it
        has none: the same of the same records in any order.
        """
        return self._session.told(self._dialect.sums(self._records(None), len(self._spec.attributes), keys))

    def count(self, asked: CellCounts) -> tuple[NDArray[np.int64], int]:
        """The numbers of all classes, flat, and how many records were counted."""
        named = sorted({*asked.axes, *dict(asked.factors)})
        query = compiled.counts(self._dialect, self._spec, self._records(named), asked)
        numbers, records = np.zeros(math.prod(asked.shape), np.int64), 0
        for rows in self._session.rows(query):
            try:
                found, number, total = np.array([[_whole(each) for each in row] for row in rows], np.int64).T
            except (ValueError, OverflowError):
                raise Damaged from None
            records += int(number.sum())
            compiled.add(numbers, found, total)
        return numbers, records

    def _records(self, axes: Sequence[int] | None) -> str:
        """A query for the places of all records on some axes; or on all of them, and why a record has none."""
        every = range(len(self._spec.attributes))
        return compiled.records(
            self._dialect, self._spec, self._columns, self._table, every if axes is None else axes, reasons=axes is None
        )
