"""The store of everything public, over SQLAlchemy."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from socket import SHUT_RDWR, socket
from typing import Any
from weakref import WeakSet

from sqlalchemy import Connection, Engine, event, func, insert, select, text

from app.storage import tables as t
from app.storage.repositories.datasets import Datasets
from app.storage.repositories.entries import Entries
from app.storage.repositories.evidence import Evidence
from app.storage.repositories.ledger import Ledger
from app.storage.repositories.logins import Logins
from app.storage.repositories.principals import Principals
from app.storage.repositories.releases import Releases
from app.storage.repositories.replies import Replies
from app.storage.repositories.sessions import Sessions
from app.storage.transaction import bounded_wait


class SqlTransaction(Principals, Logins, Datasets, Sessions, Entries, Evidence, Releases, Ledger, Replies):
    """A transaction on one connection; see :class:`app.services.ports.Transaction`."""

    def add_event(self, line: bytes) -> None:
        """Tell the log what became of a principal or a data set, in the transaction in which it does."""
        self.connection.execute(insert(t.events), {"line": line})


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
            with self._writing.connect() as connection, bounded_wait(connection):
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
