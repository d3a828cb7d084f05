"""The store of everything public, over SQLAlchemy."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from socket import SHUT_RDWR, socket
from typing import Any
from weakref import WeakSet

import orjson
from psycopg.waiting import Wait
from sqlalchemy import (
    BigInteger,
    Connection,
    Engine,
    Select,
    Table,
    and_,
    bindparam,
    case,
    delete,
    event,
    exists,
    func,
    insert,
    or_,
    select,
    text,
    tuple_,
    update,
)
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

from app.services.ports import (
    NONE_KNOWN,
    RELEASE_WORKED,
    DatasetRow,
    EntryKind,
    EntryRow,
    EvidenceRow,
    Holding,
    KnownEntries,
    LedgerRow,
    PrincipalRow,
    ReleaseFile,
    ReleaseRow,
    ReleaseStatus,
    ReplyName,
    ReplyRow,
    SessionRow,
    StoreConflict,
    StoreHeld,
    WeightsRow,
)
from app.storage import tables as t

_KIND_NUMBER: dict[EntryKind, int] = {
    "hypothesis": t.HYPOTHESIS,
    "measurement": t.MEASUREMENT,
    "cached": t.CACHED,
    "unverified": t.UNVERIFIED,
    "forfeit": t.FORFEIT,
    "release": t.RELEASE,
}


#: In long work a transaction gives a sign of life after so many seconds: see IDLE_SECONDS of :mod:`.database`.
STAY_SECONDS = 10.0
_LOCK_NOT_AVAILABLE = "55P03"
#: How long the row of a data set, or all of them, are waited for: longer than those hold them that work, as none does
#: more than plan under such a lock. A process that was stopped, or an operator's client, may hold them for ever.
DATASET_SECONDS = 2.0
#: Rows that one statement adds at most, and bytes of theirs after which it takes no other. PostgreSQL hangs up on a
#: message of a gigabyte: an outcome that made one would be tried again for ever.
_ROWS, _BYTES = 64, 1 << 24
#: What openings of sessions and requests for releases reply: both tell the session's id.
_CREATED = (201, 202)
#: A page holds no more bytes, or one row: what users have declared or asked may be long.
PAGE_BYTES = 1 << 18
#: Rows of a transcript that are read at a time.
PAGE_ROWS = 1000
_MOVED = (
    "status",
    "sequence",
    "queries_asked",
    "updates_used",
    "spent",
    "reserved",
    "spent_pure",
    "reserved_pure",
    "head_hash",
    "closed_at",
)


_COUNT_RELEASES = select(t.releases.c.status, func.count().label("number")).group_by(t.releases.c.status)
_RELEASE_MOVED = (
    "status",
    "step",
    "progress",
    "worker",
    "beat",
    "finished_at",
    "problem",
    "result",
    "expected_seconds",
)


# The statements of the answering path are given to the driver as they are. The library's own way of executing checks
# parameter sets row by row and takes a context for every statement, which costs more than the rows; and where each row
# is a statement, as many times the thread lets go of the interpreter, and has to win it back from the event loop.
# Parameters are numbered, as both databases take them: the driver for PostgreSQL would have to write any other form
# anew, each time for a long statement.


def _rows(count: int, width: int, mark: str) -> list[str]:
    """So many rows of parameters, numbered from 1 on."""
    numbers = [f"{mark}{number}" for number in range(1, count * width + 1)]
    return [", ".join(numbers[start : start + width]) for start in range(0, count * width, width)]


def typed_rows(kinds: Sequence[str], count: int, mark: str) -> str:
    """So many rows of parameters, for VALUES. The first one says of which type each column is."""
    first = ", ".join(f"CAST({mark}{number} AS {kind})" for number, kind in enumerate(kinds, start=1))
    return "), (".join([first, *_rows(count, len(kinds), mark)[1:]])


@lru_cache(maxsize=512)
def _addition(table: str, names: tuple[str, ...], rows: int, mark: str, keys: int) -> str:
    """New rows; with ``keys`` those replace the rest of a row that has the same first so many columns."""
    values = "), (".join(_rows(rows, len(names), mark))
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


def _fitting(found: Sequence[tuple[Any, int]], most: int) -> tuple[list[Any], bool]:
    """Of rows, each by its key and its bytes, those of a page of at most ``most``; and whether there are others."""
    keys: list[Any] = []
    held = 0
    for key, size in found[:most]:
        held += size
        if keys and held > PAGE_BYTES:
            break
        keys.append(key)
    return keys, len(keys) < len(found)


@lru_cache(maxsize=256)
def _lock(count: int, mark: str, hold: str) -> str:
    # What the transaction is called comes along: nothing more is sent for it.
    read = ("id", *_MOVED, "CAST(pg_current_xact_id() AS TEXT)" if hold else "NULL")
    return (
        f"SELECT {', '.join(read)} FROM {t.sessions.name} WHERE id IN ({', '.join(_rows(count, 1, mark))}) "  # noqa: S608
        f"ORDER BY id{hold}"
    )


@lru_cache
def _move() -> str:
    """One session's new state."""
    return f"UPDATE {t.sessions.name} SET {', '.join(f'{name} = ?' for name in _MOVED)} WHERE id = ?"  # noqa: S608


@lru_cache(maxsize=256)
def _move_all(count: int) -> str:
    """The new states of ``count`` sessions."""
    names = (*_MOVED, "id")
    # Text of any length: a cast to a shorter type would cut what does not fit, where the column refuses it.
    kinds = ["BIGINT" if isinstance(t.sessions.c[name].type, BigInteger) else "TEXT" for name in names]
    return (
        f"UPDATE {t.sessions.name} s SET {', '.join(f'{name} = n.{name}' for name in _MOVED)} "  # noqa: S608
        f"FROM (VALUES ({typed_rows(kinds, count, '$')})) AS n ({', '.join(names)}) WHERE s.id = n.id"
    )


@lru_cache(maxsize=256)
def _find_latest(count: int, mark: str) -> str:
    """Entries of ``count`` sessions, each named with the numbers it begins after and ends with."""
    names = typed_rows(("TEXT", "BIGINT", "BIGINT"), count, mark)
    return (
        f"WITH n (session, after, last) AS (VALUES ({names})) "  # noqa: S608
        "SELECT e.session, e.sequence, e.kind, e.digest, e.units, e.error_bound, "
        f"CASE WHEN e.kind = {t.MEASUREMENT} OR e.sequence = n.last THEN e.line END "
        f"FROM n CROSS JOIN {t.entries.name} e "
        "WHERE e.session = n.session AND e.sequence > n.after AND e.sequence <= n.last ORDER BY e.session, e.sequence"
    )


@lru_cache(maxsize=256)
def _find_replies(count: int, mark: str) -> str:
    """Replies by ``count`` names, in the order of :class:`ReplyRow`'s fields.

    The names come first in a cross join, whose order SQLite keeps: names IN a list would read the whole table.
    """
    columns = ", ".join(f"i.{name}" for name in ReplyRow.__slots__)
    names = "), (".join(_rows(count, 3, mark))
    return (
        f"WITH n (principal, route, key) AS (VALUES ({names})) SELECT {columns} "  # noqa: S608
        f"FROM n CROSS JOIN {t.idempotency.name} i "
        "WHERE i.principal = n.principal AND i.route = n.route AND i.key = n.key"
    )


def _next_replies(after: ReplyName, most: int) -> Select[tuple[str, str, str, bytes | None]]:
    """Names of replies in their order, and what openings replied: nothing else is created by a call with a key."""
    c = t.idempotency.c
    opening = case((c.status.between(*_CREATED), c.reply)).label("opening")
    name = tuple_(c.principal, c.route, c.key)
    return select(c.principal, c.route, c.key, opening).where(name > after).order_by(*name).limit(most)


def _due_release(silent_since: float, most_seconds: float) -> Select[Any]:
    """The next release that waits, or has been silent: of the owner first whose releases were worked on longest ago,
    his oldest.
    """
    c = t.releases.c
    due = or_(c.status == "queued", and_(c.status == "running", c.beat < silent_since))
    if most_seconds < math.inf:
        due = and_(due, c.expected_seconds <= most_seconds)
    each = t.releases.alias("each").c
    waiting = select(c.owner).where(due)
    served = (
        select(each.owner, func.max(each.beat).label("at"))
        .where(each.owner.in_(waiting))
        .group_by(each.owner)
        .subquery("served")
    )
    joined = t.releases.join(served, served.c.owner == c.owner)
    return select(t.releases).select_from(joined).where(due).order_by(served.c.at, c.created_at, c.id).limit(1)


@contextmanager
def _bounded_wait(connection: Connection) -> Iterator[None]:
    """In the rest of this transaction no lock of PostgreSQL is waited for longer than DATASET_SECONDS."""
    connection.execute(text(f"SET LOCAL lock_timeout = {round(1000 * DATASET_SECONDS)}"))
    try:
        yield
    except OperationalError as error:
        if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
            raise
        raise StoreHeld from None


def _dataset(row: Any) -> DatasetRow:
    return DatasetRow(
        name=row.name,
        spec=orjson.loads(row.spec),
        records=row.records,
        bought=orjson.loads(row.bought),
        vault_entry=orjson.loads(row.vault_entry),
        created_at=row.created_at,
        retired_at=row.retired_at,
        race_sessions=row.race_sessions,
        forfeited=row.forfeited,
        forfeited_pure=row.forfeited_pure,
        impure=row.impure,
        commitment=row.commitment,
        revealed_to=() if row.revealed_to is None else tuple(orjson.loads(row.revealed_to)),
    )


class SqlTransaction:
    """A transaction on one connection; see :class:`app.services.ports.Transaction`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._locks = connection.dialect.name == "postgresql"
        self._mark = "$" if self._locks else "?"
        self._insert = pg_insert if self._locks else sqlite_insert
        self._seen = time.monotonic()
        self._sent: Any = None
        self.name: str | None = None

    def commit(self) -> None:
        """Make everything durable."""
        self._connection.commit()

    def stay(self) -> None:
        """In the midst of long work keep the database from taking this transaction for that of a process that hangs.

        A connection that is gone is noticed at the next statement.
        """
        if self._locks and time.monotonic() - self._seen > STAY_SECONDS:
            self._seen = time.monotonic()
            with suppress(SQLAlchemyError):
                self._connection.execute(text("SELECT 1"))

    def together(self) -> AbstractContextManager[Any]:
        """Send what is done within without waiting for one result after the other. It has happened, or raised, at the
        end.
        """
        return self._pipeline() if self._locks else nullcontext()

    @contextmanager
    def _pipeline(self) -> Iterator[None]:
        try:
            with self._connection.connection.driver_connection.pipeline() as self._sent:  # type: ignore[union-attr]
                yield
        except BaseException:
            # A commit that was sent may have failed, of which the library knows nothing: it would hand the connection
            # on as it is.
            self._connection.invalidate()
            raise
        finally:
            self._sent = None

    def _cursor(self) -> Any:
        """A cursor of the driver, which takes statements as they are."""
        driver: Any = self._connection.connection.driver_connection
        return self._connection.dialect.loaded_dbapi.RawCursor(driver) if self._locks else driver.cursor()

    def _complete(self) -> None:
        """A statement that was sent is complete. Else the database waits for its end, and no bound on idle transactions
        would apply to a process that is stopped before the next one.

        The driver waits for the result even where what is sent is longer than what a connection takes at once: the
        database would wait for the rest of it as long (github.com/psycopg/psycopg/issues/685). So all is sent before.
        """
        if self._sent is not None:
            driver: Any = self._connection.connection.driver_connection
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
        cursor = self._cursor()
        try:
            for part in _parts(rows):
                statement = _addition(table.name, names, len(part), self._mark, keys)
                cursor.execute(statement, [value for row in part for value in row])
                self._complete()
        except self._connection.dialect.loaded_dbapi.IntegrityError as error:
            raise StoreConflict from error

    def _one(self, statement: Any) -> Any:
        return self._connection.execute(statement).one_or_none()

    def _add(self, statement: Any, values: dict[str, Any]) -> None:
        try:
            self._connection.execute(statement, values)
        except IntegrityError as error:
            raise StoreConflict from error

    # ---------------------------------------------------------------- principals

    def principal(self, name: str) -> PrincipalRow | None:
        """The principal of this name, revoked or not."""
        row = self._one(select(t.principals).where(t.principals.c.name == name))
        return None if row is None else PrincipalRow(**row._mapping)

    def principal_by_key(self, key_id: str) -> PrincipalRow | None:
        """The principal whose key carries this public part."""
        row = self._one(select(t.principals).where(t.principals.c.key_id == key_id))
        return None if row is None else PrincipalRow(**row._mapping)

    def principals(self) -> list[PrincipalRow]:
        """All principals by name."""
        rows = self._connection.execute(select(t.principals).order_by(t.principals.c.name))
        return [PrincipalRow(**row._mapping) for row in rows]

    def principals_page(self, after: str, most: int) -> tuple[list[PrincipalRow], bool]:
        """Up to ``most`` principals by name beyond ``after``, and whether there are others."""
        c = t.principals.c
        rows = self._connection.execute(select(t.principals).where(c.name > after).order_by(c.name).limit(most + 1))
        found = [PrincipalRow(**row._mapping) for row in rows]
        return found[:most], len(found) > most

    def add_principal(self, row: PrincipalRow) -> None:
        """Add a principal. Raises StoreConflict when the name was ever in use."""
        self._add(
            insert(t.principals),
            {
                "name": row.name,
                "role": row.role,
                "key_id": row.key_id,
                "key_hash": row.key_hash,
                "created_at": row.created_at,
                "revoked_at": row.revoked_at,
            },
        )

    def set_key(self, name: str, key_id: str, key_hash: str) -> None:
        """Replace a principal's key."""
        self._connection.execute(
            update(t.principals)
            .where(t.principals.c.name == name)
            .values(key_id=key_id, key_hash=key_hash, revoked_at=None)
        )

    def revoke_principal(self, name: str, at: str) -> None:
        """Mark a principal's key as revoked."""
        self._connection.execute(update(t.principals).where(t.principals.c.name == name).values(revoked_at=at))

    # ---------------------------------------------------------------- data sets

    def dataset(self, name: str, *, lock: bool = False) -> DatasetRow | None:
        """The data set of this name, retired or not; ``lock`` holds its row until the commit.

        Rows that only name the data set, such as charges of its sessions, may be written meanwhile.

        Raises:
            StoreHeld: when somebody else holds the row and goes on to.
        """
        statement = select(t.datasets).where(t.datasets.c.name == name)
        if lock and self._locks:
            with _bounded_wait(self._connection):
                row = self._one(statement.with_for_update(key_share=True))
        else:
            row = self._one(statement)
        return None if row is None else _dataset(row)

    def datasets(self) -> list[DatasetRow]:
        """All data sets by name, retired ones included."""
        return [_dataset(row) for row in self._connection.execute(select(t.datasets).order_by(t.datasets.c.name))]

    def datasets_page(self, after: str, most: int) -> tuple[list[DatasetRow], bool]:
        """Up to ``most`` data sets by name beyond ``after``, made-up ones left out, and whether there are others."""
        c = t.datasets.c
        found = self._connection.execute(
            select(c.name, func.length(c.spec))
            .where(c.name > after, ~c.name.startswith("~"))
            .order_by(c.name)
            .limit(most + 1)
        )
        names, others = _fitting([tuple(row) for row in found], most)
        rows = self._connection.execute(select(t.datasets).where(c.name.in_(names)).order_by(c.name))
        return [_dataset(row) for row in rows], others

    def vault_entries(self) -> dict[str, dict[str, str]]:
        """The entry that names the private file of each data set that is not retired, by the data set's name."""
        c = t.datasets.c
        rows = self._connection.execute(select(c.name, c.vault_entry).where(c.retired_at.is_(None)).order_by(c.name))
        return {row.name: orjson.loads(row.vault_entry) for row in rows}

    def add_dataset(self, row: DatasetRow) -> None:
        """Add a data set. Raises StoreConflict when the name was ever in use."""
        self._add(
            insert(t.datasets),
            {
                "name": row.name,
                "spec": orjson.dumps(row.spec).decode(),
                "records": row.records,
                "bought": orjson.dumps(row.bought).decode(),
                "vault_entry": orjson.dumps(row.vault_entry).decode(),
                "created_at": row.created_at,
                "retired_at": row.retired_at,
                "race_sessions": row.race_sessions,
                "forfeited": row.forfeited,
                "forfeited_pure": row.forfeited_pure,
                "impure": row.impure,
                "commitment": row.commitment,
                "revealed_to": orjson.dumps(row.revealed_to).decode() if row.revealed_to else None,
            },
        )

    def count_race(self, name: str) -> None:
        """Count one more session with a race on a data set."""
        c = t.datasets.c
        self._connection.execute(update(t.datasets).where(c.name == name).values(race_sessions=c.race_sessions + 1))

    def set_bought(self, name: str, bought: dict[str, dict[str, float]]) -> None:
        """Write the facts that were bought so far into the data set's row."""
        self._connection.execute(
            update(t.datasets).where(t.datasets.c.name == name).values(bought=orjson.dumps(bought).decode())
        )

    def forfeit_dataset(self, row: DatasetRow) -> None:
        """Write what of a data set's budget is gone beside what its sessions hold, and that it is impure where so."""
        self._connection.execute(
            update(t.datasets)
            .where(t.datasets.c.name == row.name)
            .values(forfeited=row.forfeited, forfeited_pure=row.forfeited_pure, impure=row.impure)
        )

    def set_impure(self, name: str) -> None:
        """Note that a session was opened on a data set whose noise is not all pure."""
        self._connection.execute(update(t.datasets).where(t.datasets.c.name == name).values(impure=True))

    def set_vault_entry(self, name: str, entry: dict[str, str]) -> None:
        """Name another private file for a data set."""
        self._connection.execute(
            update(t.datasets).where(t.datasets.c.name == name).values(vault_entry=orjson.dumps(entry).decode())
        )

    def set_revealed_to(self, name: str, principals: Sequence[str]) -> None:
        """Write who was given the key of a data set's commitment."""
        self._connection.execute(
            update(t.datasets)
            .where(t.datasets.c.name == name)
            .values(revealed_to=orjson.dumps(tuple(principals)).decode())
        )

    def retire_dataset(self, name: str, at: str) -> None:
        """Mark a data set as retired; its public records stay."""
        self._connection.execute(update(t.datasets).where(t.datasets.c.name == name).values(retired_at=at))

    def grant(self, dataset: str, principal: str) -> str | None:
        """An analyst's cap on a data set, as a decimal string."""
        row = self._one(
            select(t.grants.c.epsilon).where(t.grants.c.dataset == dataset, t.grants.c.principal == principal)
        )
        return None if row is None else str(row.epsilon)

    def set_grant(self, dataset: str, principal: str, epsilon: str) -> None:
        """Set an analyst's cap on a data set."""
        statement = self._insert(t.grants).values(dataset=dataset, principal=principal, epsilon=epsilon)
        self._connection.execute(
            statement.on_conflict_do_update(
                index_elements=["dataset", "principal"], set_={"epsilon": statement.excluded.epsilon}
            )
        )

    def holdings(self, dataset: str) -> list[Holding]:
        """The holdings and spending of the sessions of a data set, open and closed; those of one owner that agree in
        all of it, as most that are closed do, are told together.
        """
        c = t.sessions.c
        held = (c.owner, c.reserved, c.spent, c.reserved_pure, c.spent_pure)
        rows = self._connection.execute(
            select(*held, func.count()).where(c.dataset == dataset).group_by(*held).order_by(*held)
        )
        return [Holding(*row) for row in rows]

    # ---------------------------------------------------------------- sessions

    def session(self, id: str) -> SessionRow | None:
        """The session of this id."""
        row = self._one(select(t.sessions).where(t.sessions.c.id == id))
        return None if row is None else SessionRow(**row._mapping)

    def lock_sessions(
        self, ids: Sequence[str], known: Mapping[str, SessionRow] = NONE_KNOWN, seconds: float | None = None
    ) -> dict[str, SessionRow]:
        """The sessions of these ids, their rows held until the commit; taken in one order, so that no two
        processes can wait for each other.

        Of rows that are ``known`` in an earlier state only what moves is read. ``seconds`` is how long rows that others
        hold are waited for, where that is not as long as it takes: then those that are free are given alone. Longer
        than 0 it must be the first thing in its transaction.
        """
        if not ids:
            return {}
        locked = self._lock_rows(list(ids), seconds)
        if locked:
            self.name = locked[0][-1]
        moved = {row[0]: row[1:-1] for row in locked}
        rows = {id: replace(known[id], **dict(zip(_MOVED, moved[id], strict=True))) for id in moved if id in known}
        unknown = [id for id in moved if id not in rows]
        if unknown:
            found = self._connection.execute(select(t.sessions).where(t.sessions.c.id.in_(unknown)))
            rows |= {row.id: SessionRow(**row._mapping) for row in found}
        return rows

    def _lock_rows(self, ids: list[str], seconds: float | None) -> list[Any]:
        cursor = self._cursor()
        if not self._locks or seconds is None:
            cursor.execute(_lock(len(ids), self._mark, " FOR UPDATE" if self._locks else ""), ids)
            return list(cursor.fetchall())
        if seconds:
            driver: Any = self._connection.connection.driver_connection
            try:
                # All of it travels together.
                with driver.pipeline():
                    cursor.execute(f"SET LOCAL lock_timeout = {round(1000 * seconds)}")
                    held = self._cursor()
                    held.execute(_lock(len(ids), self._mark, " FOR UPDATE"), ids)
                    cursor.execute("SET LOCAL lock_timeout TO DEFAULT")
                return list(held.fetchall())
            except self._connection.dialect.loaded_dbapi.OperationalError as error:
                if getattr(error, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                    raise
                driver.rollback()
        cursor.execute(_lock(len(ids), self._mark, " FOR UPDATE SKIP LOCKED"), ids)
        return list(cursor.fetchall())

    def happened(self, name: str) -> bool:
        """Whether the transaction of this name was committed. One that the database has never heard of, as it was lost
        with another server, was not.
        """
        cursor = self._cursor()
        cursor.execute(
            "SELECT CASE WHEN $1::text::xid8 < pg_current_xact_id() THEN pg_xact_status($1::text::xid8) END", [name]
        )
        return bool(cursor.fetchall() == [("committed",)])

    def existing_sessions(self, ids: Sequence[str]) -> set[str]:
        """Those of these sessions that there are, whoever holds them."""
        c = t.sessions.c
        return set(self._connection.execute(select(c.id).where(c.id.in_(ids))).scalars())

    def sessions_page(self, owner: str | None, after: SessionRow | None, most: int) -> tuple[list[SessionRow], bool]:
        """Up to ``most`` sessions opened after ``after``, of an owner where one is named, in the order they were
        opened; and whether there are others.
        """
        c = t.sessions.c
        order = (c.opened_at, c.id)
        statement = select(c.id, func.length(c.header)).order_by(*order).limit(most + 1)
        if owner is not None:
            statement = statement.where(c.owner == owner)
        if after is not None:
            statement = statement.where(tuple_(*order) > tuple_(after.opened_at, after.id))
        ids, others = _fitting([tuple(row) for row in self._connection.execute(statement)], most)
        rows = self._connection.execute(select(t.sessions).where(c.id.in_(ids)).order_by(*order))
        return [SessionRow(**row._mapping) for row in rows], others

    def open_in(self, dataset: str) -> list[str]:
        """The open sessions of a data set, in the order they were opened."""
        c = t.sessions.c
        found = select(c.id).where(c.dataset == dataset, c.status == "open").order_by(c.opened_at, c.id)
        return list(self._connection.execute(found).scalars())

    def last_opened_in(self, dataset: str) -> str:
        """When a session of a data set was opened last, by the clocks that were read then; nothing where none was."""
        c = t.sessions.c
        found = select(func.max(c.opened_at)).where(c.dataset == dataset)
        return str(self._connection.execute(found).scalar_one() or "")

    def open_sessions(self, ids: Sequence[str]) -> set[str]:
        """Those of these sessions that are open."""
        c = t.sessions.c
        return set(self._connection.execute(select(c.id).where(c.id.in_(ids), c.status == "open")).scalars())

    def closing_times(self, ids: Sequence[str]) -> dict[str, str]:
        """When those of these sessions were closed that are."""
        c = t.sessions.c
        rows = self._connection.execute(select(c.id, c.closed_at).where(c.id.in_(ids), c.closed_at.is_not(None)))
        return {row.id: row.closed_at for row in rows}

    def add_session(self, row: SessionRow) -> None:
        """Add a session."""
        self._add(insert(t.sessions), {name: getattr(row, name) for name in SessionRow.__slots__})

    def move_sessions(self, rows: Sequence[SessionRow]) -> None:
        """Write the counters, head and status of sessions."""
        values = attrgetter(*_MOVED, "id")
        moved = [values(row) for row in rows]
        if self._locks and moved:
            self._cursor().execute(_move_all(len(moved)), list(chain.from_iterable(moved)))
        elif moved:
            self._cursor().executemany(_move(), moved)
        self._complete()

    def append(self, entries: Sequence[EntryRow], weights: Sequence[WeightsRow]) -> None:
        """Append transcript entries and the dense weights they name. Raises StoreConflict for a number in use."""
        if weights:
            self._connection.execute(
                insert(t.weights),
                [{"session": w.session, "sha256": w.sha256, "sequence": w.sequence, "data": w.data} for w in weights],
            )
        self.add_all(
            t.entries,
            EntryRow.__slots__,
            [(e.session, e.sequence, _KIND_NUMBER[e.kind], e.digest, e.units, e.error_bound, e.line) for e in entries],
        )

    def known_entries(self, session: str, after: int) -> KnownEntries:
        """The facts that a session must know of its entries beyond ``after``; lines only of those that move the
        hypothesis.
        """
        c = t.entries.c
        beyond = (c.session == session, c.sequence > after)
        answers = self._connection.execute(
            select(c.digest, c.units, c.error_bound)
            .where(*beyond, c.kind.in_((t.HYPOTHESIS, t.MEASUREMENT)))
            .order_by(c.sequence)
        )
        measurements = self._connection.execute(
            select(c.units, c.line).where(*beyond, c.kind == t.MEASUREMENT).order_by(c.sequence)
        )
        counted = self._connection.execute(
            select(c.kind, func.count())
            .where(*beyond, c.kind.in_((t.CACHED, t.UNVERIFIED, t.FORFEIT)))
            .group_by(c.kind)
        )
        counts = {kind: int(number) for kind, number in counted}
        return KnownEntries(
            [tuple(row) for row in answers],
            [tuple(row) for row in measurements],
            cached=counts.get(t.CACHED, 0),
            unverified=counts.get(t.UNVERIFIED, 0),
            forfeits=counts.get(t.FORFEIT, 0),
        )

    def latest_entries(self, spans: Mapping[str, tuple[int, int]]) -> dict[str, tuple[KnownEntries, bytes]]:
        """Of several sessions what each must know of its entries beyond the first number up to the second one, and the
        line of that last one. All in one statement, for those that are a few entries behind.
        """
        if not spans:
            return {}
        cursor = self._cursor()
        values = [value for id, (after, last) in spans.items() for value in (id, after, last)]
        cursor.execute(_find_latest(len(spans), self._mark), values)
        known = {id: KnownEntries([], []) for id in spans}
        lines: dict[str, bytes] = {}
        for session, sequence, kind, digest, units, error_bound, line in cursor.fetchall():
            entries = known[session]
            match kind:
                case t.HYPOTHESIS | t.MEASUREMENT:
                    entries.answers.append((digest, units, error_bound))
                    if kind == t.MEASUREMENT:
                        entries.measurements.append((units, line))
                case t.FORFEIT:
                    entries.forfeits += 1
                case t.UNVERIFIED:
                    entries.unverified += 1
                case _:
                    entries.cached += 1
            if sequence == spans[session][1]:
                lines[session] = line
        return {id: (entries, lines[id]) for id, entries in known.items()}

    def entry_lines(self, session: str, after: int, most: int) -> list[tuple[int, bytes]]:
        """Up to ``most`` (sequence, line) beyond ``after`` in order."""
        c = t.entries.c
        rows = self._connection.execute(
            select(c.sequence, c.line).where(c.session == session, c.sequence > after).order_by(c.sequence).limit(most)
        )
        return [(row.sequence, row.line) for row in rows]

    def blobs(self, session: str, names: Iterable[str]) -> dict[str, bytes]:
        """Dense weights of a session by their SHA-256."""
        c = t.weights.c
        rows = self._connection.execute(select(c.sha256, c.data).where(c.session == session, c.sha256.in_(list(names))))
        return {row.sha256: row.data for row in rows}

    def count_entries(self, session: str, after: int, last: int) -> Mapping[EntryKind, int]:
        """How many entries of each kind there are beyond ``after`` up to ``last``."""
        c = t.entries.c
        counted = self._connection.execute(
            select(c.kind, func.count())
            .where(c.session == session, c.sequence > after, c.sequence <= last)
            .group_by(c.kind)
        )
        numbers = {kind: int(count) for kind, count in counted}
        return {kind: numbers.get(number, 0) for kind, number in _KIND_NUMBER.items()}

    def measurements(self, session: str, after: int, last: int) -> list[tuple[int, bytes, bytes]]:
        """Sequence, values and line of the first measurements beyond ``after`` up to ``last``, in order: a few, or one
        where it is long; none where there is none.
        """
        c = t.entries.c
        which = (c.session == session, c.sequence > after, c.sequence <= last, c.kind == t.MEASUREMENT)
        found = select(c.sequence, func.length(c.line)).where(*which).order_by(c.sequence).limit(PAGE_ROWS)
        numbers, _ = _fitting([tuple(row) for row in self._connection.execute(found)], PAGE_ROWS)
        if not numbers:
            return []
        rows = self._connection.execute(
            select(c.sequence, c.units, c.line).where(*which, c.sequence <= numbers[-1]).order_by(c.sequence)
        )
        return [tuple(row) for row in rows]

    def transcript_page(self, session: str, after: int, last: int) -> list[tuple[int, bytes, list[tuple[str, bytes]]]]:
        """Sequence and line of the first entries beyond ``after`` up to ``last``, in order, each with the dense weights
        that it is the first to name: SHA-256 and bytes. Some hundred entries, or one where it is long; none where there
        is none.
        """
        e, w = t.entries.c, t.weights.c
        within = (e.session == session, e.sequence > after, e.sequence <= last)
        found = select(e.sequence, func.length(e.line)).where(*within).order_by(e.sequence).limit(PAGE_ROWS)
        sizes = {row[0]: row[1] for row in self._connection.execute(found)}
        if not sizes:
            return []
        of_these = (w.session == session, w.sequence > after, w.sequence <= max(sizes))
        for sequence, size in self._connection.execute(select(w.sequence, func.length(w.data)).where(*of_these)):
            sizes[sequence] += size
        numbers, _ = _fitting(list(sizes.items()), PAGE_ROWS)
        weights: dict[int, list[tuple[str, bytes]]] = {}
        for row in self._connection.execute(
            select(w.sequence, w.sha256, w.data)
            .where(*of_these, w.sequence <= numbers[-1])
            .order_by(w.sequence, w.sha256)
        ):
            weights.setdefault(row.sequence, []).append((row.sha256, row.data))
        rows = self._connection.execute(
            select(e.sequence, e.line).where(*within, e.sequence <= numbers[-1]).order_by(e.sequence)
        )
        return [(row.sequence, row.line, weights.get(row.sequence, [])) for row in rows]

    # ---------------------------------------------------------------- evidence

    def add_evidence(self, rows: Sequence[EvidenceRow]) -> None:
        """Append measurements of data sets."""
        values = attrgetter(*EvidenceRow.__slots__)
        self.add_all(t.evidence, EvidenceRow.__slots__, [values(row) for row in rows])

    def evidence_of(self, session: str, after: int, last: int) -> dict[int, bytes]:
        """The records of what a session measured for its entries beyond ``after`` up to ``last``, by entry."""
        c = t.evidence.c
        rows = self._connection.execute(
            select(c.sequence, c.line).where(c.session == session, c.sequence > after, c.sequence <= last)
        )
        return {row.sequence: row.line for row in rows}

    def evidence_named(self, dataset: str, names: Sequence[str]) -> dict[str, bytes]:
        """Records of measurements of a data set by their hashes."""
        c = t.evidence.c
        found: dict[str, bytes] = {}
        for start in range(0, len(names), PAGE_ROWS):
            rows = self._connection.execute(
                select(c.sha256, c.line).where(c.dataset == dataset, c.sha256.in_(names[start : start + PAGE_ROWS]))
            )
            found |= {row.sha256: row.line for row in rows}
        return found

    def evidence_row(self, dataset: str, name: str) -> EvidenceRow | None:
        """The measurement of a data set whose record has this hash."""
        c = t.evidence.c
        row = self._connection.execute(
            select(t.evidence).where(c.dataset == dataset, c.sha256 == name).order_by(c.id).limit(1)
        ).one_or_none()
        return None if row is None else EvidenceRow(*(getattr(row, field) for field in EvidenceRow.__slots__))

    def shared_evidence(self, dataset: str, most_bytes: int) -> list[str]:
        """The hashes of what may serve every session of a data set, in the order of recording, up to so many bytes of
        records.
        """
        c = t.evidence.c
        names: list[str] = []
        held = 0
        for name, size in self._connection.execute(
            select(c.sha256, func.length(c.line)).where(c.dataset == dataset, c.shared.is_(True)).order_by(c.id)
        ):
            held += size
            if held > most_bytes:
                break
            names.append(name)
        return names

    def evidence_page(self, dataset: str, after: int, most: int) -> tuple[list[tuple[int, EvidenceRow]], bool]:
        """Measurements of a data set numbered beyond ``after``, each with its number, in order; and whether there are
        others: up to ``most``, or fewer where they are long.
        """
        c = t.evidence.c
        which = (c.dataset == dataset, c.id > after)
        found = select(c.id, func.length(c.line)).where(*which).order_by(c.id).limit(most + 1)
        numbers, others = _fitting([tuple(row) for row in self._connection.execute(found)], most)
        if not numbers:
            return [], False
        rows = self._connection.execute(select(t.evidence).where(*which, c.id <= numbers[-1]).order_by(c.id))
        return [(row.id, EvidenceRow(*(getattr(row, name) for name in EvidenceRow.__slots__))) for row in rows], others

    # ---------------------------------------------------------------- releases

    def add_release(self, row: ReleaseRow) -> None:
        """Queue a release, whose session is there."""
        self._add(insert(t.releases), {name: getattr(row, name) for name in ReleaseRow.__slots__})

    def release(self, id: str) -> ReleaseRow | None:
        """The release of this id."""
        row = self._one(select(t.releases).where(t.releases.c.id == id))
        return None if row is None else ReleaseRow(**row._mapping)

    def releases_page(self, owner: str | None, after: ReleaseRow | None, most: int) -> tuple[list[ReleaseRow], bool]:
        """Up to ``most`` releases asked for after ``after``, of an owner where one is named, in that order; and whether
        there are others.
        """
        c = t.releases.c
        statement = select(t.releases).order_by(c.created_at, c.id).limit(most + 1)
        if owner is not None:
            statement = statement.where(c.owner == owner)
        if after is not None:
            statement = statement.where(tuple_(c.created_at, c.id) > (after.created_at, after.id))
        found = [ReleaseRow(**row._mapping) for row in self._connection.execute(statement)]
        return found[:most], len(found) > most

    def releases_in(self, dataset: str) -> list[str]:
        """The releases of a data set that have not ended."""
        c = t.releases.c
        statement = select(c.id).where(c.dataset == dataset, c.status.in_(RELEASE_WORKED)).order_by(c.created_at, c.id)
        return list(self._connection.execute(statement).scalars())

    def count_releases(self) -> Mapping[ReleaseStatus, int]:
        """How many releases stand where; a status that none has is left out."""
        return {row.status: row.number for row in self._connection.execute(_COUNT_RELEASES)}

    def next_release(self, silent_since: float, most_seconds: float = math.inf) -> str | None:
        """A release that waits, or whose worker has been silent since some time, and which is foretold to take no more
        than some seconds: the oldest one of the owner whose releases were worked on longest ago. None where there is
        none.
        """
        found = self._one(_due_release(silent_since, most_seconds))
        return None if found is None else str(found.id)

    def claim_release(
        self, worker: str, now: float, silent_since: float, most_seconds: float = math.inf
    ) -> ReleaseRow | None:
        """Take the one of :meth:`next_release`. Nobody else takes it at the same time."""
        statement = _due_release(silent_since, most_seconds)
        row = self._one(statement.with_for_update(skip_locked=True, of=t.releases) if self._locks else statement)
        if row is None:
            return None
        before = ReleaseRow(**row._mapping)
        taken = replace(before, status="running", worker=worker, beat=now)
        return taken if self.move_release(taken, before) else None

    def orphan_releases(self) -> None:
        """Let whoever works on releases be as one that has been silent for ever."""
        self._connection.execute(update(t.releases).where(t.releases.c.status == "running").values(beat=0.0))

    def move_release(self, row: ReleaseRow, before: ReleaseRow) -> bool:
        """A release's new state, if its status, step and worker are still those of ``before``; whether that is so.

        Raises:
            ValueError: when the release would go back.
        """
        row.check_follows(before)
        c = t.releases.c
        mine = c.worker.is_(None) if before.worker is None else c.worker == before.worker
        moved = {name: getattr(row, name) for name in _RELEASE_MOVED}
        there = and_(c.id == row.id, c.status == before.status, c.step == before.step, mine)
        return self._connection.execute(update(t.releases).where(there).values(moved)).rowcount == 1

    def add_release_files(self, files: Sequence[ReleaseFile]) -> None:
        """Keep what came of releases."""
        for file in files:
            self._add(insert(t.release_files), {"release": file.release, "name": file.name, "data": file.data})

    def release_file(self, id: str, name: str) -> ReleaseFile | None:
        """A result of a release, by its name."""
        c = t.release_files.c
        row = self._one(select(c.release, c.name, c.data).where(c.release == id, c.name == name))
        return None if row is None else ReleaseFile(**row._mapping)

    # ---------------------------------------------------------------- ledger and replies

    def move_ledger(self, rows: Sequence[LedgerRow]) -> None:
        """Append movements of the ledger."""
        values = attrgetter(*LedgerRow.__slots__)
        self.add_all(t.ledger, LedgerRow.__slots__, [values(row) for row in rows])

    def ledger_page(self, dataset: str, after: int, most: int) -> tuple[list[tuple[int, LedgerRow]], bool]:
        """Up to ``most`` movements of a data set's ledger numbered beyond ``after``, each with its number, in order;
        and whether there are others.
        """
        c = t.ledger.c
        rows = self._connection.execute(
            select(t.ledger).where(c.dataset == dataset, c.id > after).order_by(c.id).limit(most + 1)
        )
        found = [(row.id, LedgerRow(*(getattr(row, name) for name in LedgerRow.__slots__))) for row in rows]
        return found[:most], len(found) > most

    def has_moved(self, dataset: str) -> bool:
        """Whether there is any movement in a data set's ledger."""
        return bool(self._connection.execute(select(exists().where(t.ledger.c.dataset == dataset))).scalar_one())

    def replies(self, names: Sequence[ReplyName]) -> dict[ReplyName, ReplyRow]:
        """The replies stored under idempotency keys, each named by principal, route and key."""
        if not names:
            return {}
        rows = self.found(_find_replies(len(names), self._mark), [part for name in names for part in name])
        return {row[:3]: ReplyRow(*row) for row in rows}

    def add_replies(self, rows: Sequence[ReplyRow]) -> None:
        """Store replies under their idempotency keys. Raises StoreConflict when one has been used."""
        values = attrgetter(*ReplyRow.__slots__)
        self.add_all(t.idempotency, ReplyRow.__slots__, [values(row) for row in rows])

    def reply_names(self, after: ReplyName, most: int) -> list[tuple[ReplyName, bytes | None]]:
        """So many replies in the order of their names, those after ``after``; the reply itself where it tells of a
        session that was opened.
        """
        found = self._connection.execute(_next_replies(after, most))
        return [((row.principal, row.route, row.key), row.opening) for row in found]

    def remove_replies(self, names: Sequence[ReplyName]) -> None:
        """Forget replies: their keys are as if they had never been used."""
        c = t.idempotency.c
        if names:
            named = (c.principal == bindparam("p"), c.route == bindparam("r"), c.key == bindparam("k"))
            self._connection.execute(
                delete(t.idempotency).where(*named), [{"p": name[0], "r": name[1], "k": name[2]} for name in names]
            )

    # ---------------------------------------------------------------- the log

    def add_event(self, line: bytes) -> None:
        """Tell the log what became of a principal or a data set, in the transaction in which it does."""
        self._connection.execute(insert(t.events), {"line": line})

    @property
    def connection(self) -> Connection:
        """The connection, for parts of the storage that have tables of their own."""
        return self._connection


class SqlStore:
    """Transactions over a reading and a writing engine (one and the same on PostgreSQL)."""

    def __init__(self, reading: Engine, writing: Engine, *, exclusive: bool) -> None:
        self._reading, self._writing = reading, writing
        self.exclusive = exclusive
        self._writer: Connection | None = None
        self._turn = threading.Lock()
        self._made: WeakSet[Any] = WeakSet()
        if not exclusive:  # both engines have one pool
            event.listen(writing, "connect", lambda connection, _: self._made.add(connection))

    @contextmanager
    def read(self) -> Iterator[SqlTransaction]:
        """A consistent view; nothing is written."""
        with self._reading.connect() as connection:
            yield SqlTransaction(connection)

    @contextmanager
    def write(self) -> Iterator[SqlTransaction]:
        """Reads and writes; left without a commit, nothing has happened."""
        if not self.exclusive:
            with self._writing.connect() as connection:
                connection.begin()
                yield SqlTransaction(connection)
            return
        # One writes at a time, on one connection that is kept: every answer of a turn would wait while it is taken
        # out of a pool and given back.
        with self._turn:
            if self._writer is None:
                self._writer = self._writing.connect()
            try:
                self._writer.begin()
                yield SqlTransaction(self._writer)
            finally:
                self._end_turn(self._writer)

    def _end_turn(self, writer: Connection) -> None:
        """Undo what was not committed. A connection that still stands in a transaction then is given up."""
        clean = False
        try:
            writer.rollback()  # nothing, after a commit; a failed one leaves a transaction that only looks ended
            clean = not writer.connection.driver_connection.in_transaction  # type: ignore[union-attr]
        finally:
            if not clean:
                self._writer = None
                writer.invalidate()
                writer.close()

    def ping(self) -> None:
        """Raise when the database cannot be reached."""
        with self._reading.connect() as connection:
            connection.execute(text("SELECT 1"))

    def last_movement(self) -> tuple[int, str]:
        """Number and time of the last movement in any ledger; 0 and nothing where there is none. It never falls."""
        with self._reading.connect() as connection:
            c = t.ledger.c
            last = connection.execute(select(c.id, c.recorded_at).order_by(c.id.desc()).limit(1)).one_or_none()
            return (0, "") if last is None else (int(last.id), str(last.recorded_at))

    def movement_at(self, number: int) -> str | None:
        """When the movement of this number was recorded; None where there is none. It never changes."""
        with self._reading.connect() as connection:
            found = connection.execute(select(t.ledger.c.recorded_at).where(t.ledger.c.id == number)).scalar()
            return None if found is None else str(found)

    def count_datasets(self) -> int:
        """How many data sets there are, retired ones included. It never falls."""
        with self._reading.connect() as connection:
            return int(connection.execute(select(func.count()).select_from(t.datasets)).scalar_one())

    def await_writers(self) -> None:
        """Wait for every transaction that is adding a data set, such as one whose process has just died.

        PostgreSQL ends a commit that it has received, whoever is still there to hear of it. Where one process
        writes, nothing is left of it to wait for.

        Raises:
            StoreHeld: when one goes on for too long, such as an operator's.
        """
        if not self.exclusive:
            with self._writing.connect() as connection, _bounded_wait(connection):
                connection.execute(text("LOCK TABLE datasets IN SHARE MODE"))

    def close(self) -> None:
        """Give all connections back. Who still waits for an answer of PostgreSQL hears that there is none: a server
        that gives no sign of life would keep this process from its end.
        """
        with self._turn:
            if self._writer is not None:
                self._writer.close()
                self._writer = None
        self._reading.dispose()
        self._writing.dispose()
        for connection in list(self._made):
            with (
                suppress(OSError, self._writing.dialect.loaded_dbapi.Error),
                socket(fileno=os.dup(connection.fileno())) as end,
            ):
                end.shutdown(SHUT_RDWR)
