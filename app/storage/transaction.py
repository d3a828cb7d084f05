"""A transaction on one connection: statements, as the library or the driver takes them, pages, and the commit.

The statements of the answering path are given to the driver as they are. The library's own way of executing checks
parameter sets row by row and takes a context for every statement, which costs more than the rows; and where each row
is a statement, as many times the thread lets go of the interpreter, and has to win it back from the event loop.
Parameters are numbered, as both databases take them: the driver for PostgreSQL would have to write any other form
anew, each time for a long statement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeVar

from psycopg.waiting import Wait
from sqlalchemy import ColumnElement, Connection, Table, func, insert, literal, select, text, tuple_, update
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

from app.services.ports import (
    DatasetRow,
    EntryRow,
    EvidenceRow,
    LedgerRow,
    LoginRow,
    PrincipalRow,
    ReleaseFile,
    ReleaseRow,
    ReplyRow,
    SessionRow,
    StoreConflict,
    StoreHeld,
    WeightsRow,
)
from app.storage import tables as t

Row = TypeVar("Row")

#: Where rows of each kind are kept: their fields are its columns.
_TABLES: dict[type, Table] = {
    PrincipalRow: t.principals,
    LoginRow: t.console_logins,
    DatasetRow: t.datasets,
    SessionRow: t.sessions,
    EntryRow: t.entries,
    WeightsRow: t.weights,
    EvidenceRow: t.evidence,
    ReleaseRow: t.releases,
    ReleaseFile: t.release_files,
    LedgerRow: t.ledger,
    ReplyRow: t.idempotency,
}
#: In long work a transaction gives a sign of life after so many seconds: see IDLE_SECONDS of :mod:`.database`.
STAY_SECONDS = 10.0
LOCK_NOT_AVAILABLE = "55P03"
#: How long the row of a data set, or all of them, are waited for: longer than those hold them that work, as none does
#: more than plan under such a lock. A process that was stopped, or an operator's client, may hold them for ever.
DATASET_SECONDS = 2.0
#: Rows that one statement adds at most, and bytes of theirs after which it takes no other. PostgreSQL hangs up on a
#: message of a gigabyte: an outcome that made one would be tried again for ever.
_ROWS, _BYTES = 64, 1 << 24
#: A page holds no more bytes, or one row: what users have declared or asked may be long.
PAGE_BYTES = 1 << 18
#: Rows of a transcript that are read at a time.
PAGE_ROWS = 1000


def numbered(count: int, width: int, mark: str) -> list[str]:
    """So many rows of parameters, numbered from 1 on."""
    numbers = [f"{mark}{number}" for number in range(1, count * width + 1)]
    return [", ".join(numbers[start : start + width]) for start in range(0, count * width, width)]


def typed_rows(kinds: Sequence[str], count: int, mark: str) -> str:
    """So many rows of parameters, for VALUES. The first one says of which type each column is."""
    first = ", ".join(f"CAST({mark}{number} AS {kind})" for number, kind in enumerate(kinds, start=1))
    return "), (".join([first, *numbered(count, len(kinds), mark)[1:]])


@lru_cache(maxsize=512)
def _addition(table: str, names: tuple[str, ...], rows: int, mark: str, keys: int) -> str:
    """New rows; with ``keys`` those replace the rest of a row that has the same first so many columns."""
    values = "), (".join(numbered(rows, len(names), mark))
    added = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({values})"  # noqa: S608
    if not keys:
        return added
    moved = ", ".join(f"{name} = excluded.{name}" for name in names[keys:])
    return f"{added} ON CONFLICT ({', '.join(names[:keys])}) DO UPDATE SET {moved}"


def _sending(connection: Any) -> Iterator[Wait]:
    """The events that the driver is to wait for until all is sent, and there is room for what ends it."""
    while connection.flush():
        yield Wait.W
    yield Wait.W


def _parts(rows: Sequence[tuple[Any, ...]]) -> Iterator[list[tuple[Any, ...]]]:
    """Rows in groups that one statement adds."""
    part: list[tuple[Any, ...]] = []
    size = 0
    for row in rows:
        part.append(row)
        size += sum(len(value) for value in row if isinstance(value, bytes))
        if len(part) == _ROWS or size >= _BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def fitting(found: Iterable[tuple[Any, int]]) -> list[Any]:
    """Of rows, each by its key and its bytes, the keys of the first ones that a page holds."""
    keys: list[Any] = []
    held = 0
    for key, size in found:
        held += size
        if keys and held > PAGE_BYTES:
            break
        keys.append(key)
    return keys


@lru_cache
def columns(kind: Any) -> tuple[ColumnElement[Any], ...]:
    """The columns of rows of a kind, in the order of its fields."""
    return tuple(_TABLES[kind].c[name] for name in kind.__slots__)


@contextmanager
def bounded_wait(connection: Connection) -> Iterator[None]:
    """In the rest of this transaction no lock of PostgreSQL is waited for longer than DATASET_SECONDS."""
    connection.execute(text(f"SET LOCAL lock_timeout = {round(1000 * DATASET_SECONDS)}"))
    try:
        yield
    except OperationalError as error:
        if getattr(error.orig, "sqlstate", None) != LOCK_NOT_AVAILABLE:
            raise
        raise StoreHeld from None


class BaseTransaction:
    """What all nouns of a transaction share; see :class:`app.services.ports.Transaction`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._locks = connection.dialect.name == "postgresql"
        self._mark = "$" if self._locks else "?"
        self._seen = time.monotonic()
        self._sent: Any = None
        self.name: str | None = None

    def commit(self) -> None:
        """Make everything durable."""
        self.connection.commit()

    def stay(self) -> None:
        """In the midst of long work keep the database from taking this transaction for that of a process that hangs.

        A connection that is gone is noticed at the next statement.
        """
        if self._locks and time.monotonic() - self._seen > STAY_SECONDS:
            self._seen = time.monotonic()
            with suppress(SQLAlchemyError):
                self.connection.execute(text("SELECT 1"))

    def together(self) -> AbstractContextManager[Any]:
        """Send what is done within without waiting for one result after the other. It has happened, or raised, at the
        end.
        """
        return self._pipeline() if self._locks else nullcontext()

    @contextmanager
    def _pipeline(self) -> Iterator[None]:
        try:
            with self._driver.pipeline() as self._sent:
                yield
        except BaseException:
            # A commit that was sent may have failed, of which the library knows nothing: it would hand the connection
            # on as it is.
            self.connection.invalidate()
            raise
        finally:
            self._sent = None

    @property
    def _driver(self) -> Any:
        """The driver's own connection."""
        return self.connection.connection.driver_connection

    def _cursor(self) -> Any:
        """A cursor of the driver, which takes statements as they are."""
        return self.connection.dialect.loaded_dbapi.RawCursor(self._driver) if self._locks else self._driver.cursor()

    def _complete(self) -> None:
        """A statement that was sent is complete. Else the database waits for its end, and no bound on idle transactions
        would apply to a process that is stopped before the next one.

        The driver waits for the result even where what is sent is longer than what a connection takes at once: the
        database would wait for the rest of it as long (github.com/psycopg/psycopg/issues/685). So all is sent before.
        """
        if self._sent is not None:
            driver = self._driver
            driver.wait(_sending(driver.pgconn))
            self._sent.sync()

    def found(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows that a statement finds, which the driver takes as it is; nothing where it only changes something."""
        cursor = self._cursor()
        cursor.execute(statement, values)
        return list(cursor.fetchall()) if cursor.description else []

    def add_all(self, table: Table, names: tuple[str, ...], rows: Sequence[tuple[Any, ...]], *, keys: int = 0) -> None:
        """Add rows as the driver takes them, many at a time. Raises StoreConflict for a key in use, unless ``keys``
        says of how many first columns it is: then the row of that key is replaced.
        """
        if not rows:
            return
        cursor = self._cursor()
        try:
            for part in _parts(rows):
                statement = _addition(table.name, names, len(part), self._mark, keys)
                cursor.execute(statement, [value for row in part for value in row])
                self._complete()
        except self.connection.dialect.loaded_dbapi.IntegrityError as error:
            raise StoreConflict from error

    def _add_rows(self, kind: type[Any], rows: Sequence[Any]) -> None:
        """Add rows of a kind. Raises StoreConflict for a key in use."""
        values = attrgetter(*kind.__slots__)
        self.add_all(_TABLES[kind], kind.__slots__, [values(row) for row in rows])

    def _add(self, row: Any, **beside: Any) -> None:
        """Add a row, with what its columns hold beside its fields. Raises StoreConflict for a key in use."""
        values = {name: getattr(row, name) for name in row.__slots__} | beside
        try:
            self.connection.execute(insert(_TABLES[type(row)]), values)
        except IntegrityError as error:
            raise StoreConflict from error

    def _put(self, table: Table, rows: Sequence[Mapping[str, Any]], *, replace: bool = True) -> None:
        """Add rows. Of those whose primary key is there all else is replaced, or nothing without ``replace``."""
        if not rows:
            return
        added = (pg_insert if self._locks else sqlite_insert)(table)
        keys = [column.name for column in table.primary_key]
        changed = {name: added.excluded[name] for name in rows[0] if name not in keys}
        one = (
            added.on_conflict_do_update(index_elements=keys, set_=changed)
            if replace
            else added.on_conflict_do_nothing()
        )
        self.connection.execute(one, rows)

    def _change(self, table: Table, *which: ColumnElement[bool], **values: Any) -> int:
        """Change rows; how many there were."""
        return self.connection.execute(update(table).where(*which).values(values)).rowcount

    def _one(
        self, kind: Callable[..., Row], *which: ColumnElement[bool], lock: Mapping[str, Any] | None = None
    ) -> Row | None:
        """The one row of a kind, held until the commit where ``lock`` says how; None where there is none."""
        statement = select(*columns(kind)).where(*which)
        row = self.connection.execute(statement if lock is None else statement.with_for_update(**lock)).one_or_none()
        return None if row is None else kind(*row)

    def _all(self, kind: Callable[..., Row], *which: ColumnElement[bool], order: ColumnElement[Any]) -> list[Row]:
        """The rows of a kind, in order."""
        rows = self.connection.execute(select(*columns(kind)).where(*which).order_by(order))
        return [kind(*row) for row in rows]

    def _page(
        self,
        kind: Callable[..., Row],
        order: Sequence[ColumnElement[Any]],
        after: tuple[Any, ...] | None,
        most: int,
        *which: ColumnElement[bool],
        long: ColumnElement[Any] | None = None,
    ) -> tuple[list[Row], bool]:
        """As :meth:`_numbered_page`, without the numbers."""
        rows, others = self._numbered_page(kind, order, after, most, *which, long=long)
        return [row for _, row in rows], others

    def _numbered_page(
        self,
        kind: Callable[..., Row],
        order: Sequence[ColumnElement[Any]],
        after: tuple[Any, ...] | None,
        most: int,
        *which: ColumnElement[bool],
        long: ColumnElement[Any] | None = None,
    ) -> tuple[list[tuple[Any, Row]], bool]:
        """The first rows of a kind in an order, or the first ones beyond ``after``, each with the first column of that
        order: up to ``most``, or fewer where their values of the column ``long`` are. And whether there are others.
        """
        if after is not None:
            which = (*which, tuple_(*order) > after)
        size = literal(0) if long is None else func.length(long)
        found = select(order[0], size).where(*which).order_by(*order).limit(most + 1)
        sizes = [tuple(row) for row in self.connection.execute(found)]
        count = len(fitting(sizes[:most]))
        rows = self.connection.execute(select(order[0], *columns(kind)).where(*which).order_by(*order).limit(count))
        return [(row[0], kind(*row[1:])) for row in rows], count < len(sizes)
