"""Engines: SQLite embedded (WAL, synchronous=FULL, one process) and PostgreSQL by URL."""

from __future__ import annotations

import fcntl
import os
import select
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.pool import QueuePool

#: Longest wait for another connection's lock on an embedded database.
BUSY_SECONDS = 30.0


class AlreadyServed(Exception):
    """Another process works on this data folder."""


def is_sqlite(url: str) -> bool:
    """Whether the URL names an embedded database."""
    return make_url(url).get_backend_name() == "sqlite"


def _sqlite_engine(url: str, *, begin: str, size: int) -> Engine:
    engine = create_engine(
        url,
        poolclass=QueuePool,
        pool_size=size,
        max_overflow=0,
        pool_timeout=60,
        pool_reset_on_return=None,  # closing a connection ends its transaction; a second rollback would only cost
        connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False, "cached_statements": 512},
    )

    @event.listens_for(engine, "connect")
    def _connect(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # transactions begin where we say, not at the first write
        cursor = connection.cursor()
        _write_ahead(cursor)
        for pragma in ("synchronous=FULL", "foreign_keys=ON"):
            cursor.execute(f"PRAGMA {pragma}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        # By the driver: every answer waits for this one.
        connection.connection.cursor().execute(begin)

    return engine


def _write_ahead(cursor: Any) -> None:
    """Turn on the write-ahead log. On a new file SQLite refuses this at once where another process is doing the
    same, without the wait that every other statement gets.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def make_engines(url: str) -> tuple[Engine, Engine]:
    """(reading, writing) engines for a database URL, sharing one pool where the database locks rows itself.

    What is read through the first is a view of one moment. Connects to nothing. Plain ``postgresql://`` and
    ``postgres://`` are read as psycopg 3.
    """
    if is_sqlite(url):
        return (
            _sqlite_engine(url, begin="BEGIN", size=4),
            _sqlite_engine(url, begin="BEGIN IMMEDIATE", size=1),
        )
    parsed = make_url(url)
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    engine = create_engine(parsed, pool_size=8, max_overflow=8, pool_timeout=30)

    @event.listens_for(engine, "checkout")
    def _still_there(connection: Any, _record: Any, _proxy: Any) -> None:
        # A server that has gone away has closed the socket: there is an end to read. Asking it would cost every turn
        # of the answering lanes the time of a query.
        if connection.closed:
            raise DisconnectionError
        poll = select.poll()  # unlike select(), it takes sockets of any number: clients have theirs before
        poll.register(connection.fileno(), select.POLLIN)
        if poll.poll(0):
            raise DisconnectionError

    # A writer must see what was committed while it waited for a row, a reader the same all the way through.
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True), engine


class DataDirLock:
    """The right to work on a data folder, held until the process ends or :meth:`release`.

    Who serves an embedded database, or does to private files what no server may see, has it alone; servers of a
    PostgreSQL database share it.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "serving.lock"
        self._descriptor: int | None = None

    def acquire(self, *, shared: bool = False) -> None:
        """Take the right, alone or beside others that share it.

        Raises:
            AlreadyServed: when another process holds it so that it cannot be had.
        """
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise AlreadyServed(f"another process already serves the data folder {self._path.parent}") from None
        self._descriptor = descriptor

    def release(self) -> None:
        """Give the right back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
