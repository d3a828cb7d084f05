"""Engines: SQLite embedded (WAL, synchronous=FULL, one process) and PostgreSQL by URL."""

from __future__ import annotations

import fcntl
import os
import select
import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError
from sqlalchemy.pool import QueuePool

#: Longest wait for another connection's lock on an embedded database.
BUSY_SECONDS = 30.0
#: After so many seconds without a sign of life PostgreSQL ends a transaction, and with it gives back the rows of a
#: process that was stopped. One that comes back finds its commit failed. No single step of the work takes so long.
IDLE_SECONDS = 120
#: How soon either end notices that the other is gone without a word, in what libpq calls it (milliseconds the last).
_NOTICE = {
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
_SQLITE = ("sqlite", "sqlite+pysqlite")


class AlreadyServed(Exception):
    """Another process works on this data folder or database."""


def embedded_file(url: str) -> Path | None:
    """The file of an embedded database, whatever links lead to it; None where the URL names a server.

    Raises:
        ValueError: when the URL is none that is served; it is not repeated, as it may hold a password.
    """
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        parsed = None
    if parsed is None or parsed.drivername not in _POSTGRESQL + _SQLITE:
        raise ValueError(
            "expected postgresql://user:password@host/database, or sqlite:////absolute/path/of/a/file; leave it unset "
            "for an embedded database in CURATOR_DATA_DIR"
        )
    if parsed.drivername in _POSTGRESQL:
        return None
    # What is not a file is forgotten at the end of the process, budgets with it. What stands after a question mark
    # chooses, among other things, that other processes are not kept out.
    beside = (parsed.host, parsed.port, parsed.username, parsed.password)
    file = parsed.database or ""
    if not file or file.startswith((":memory:", "file:")) or parsed.query or any(part is not None for part in beside):
        raise ValueError(
            "an embedded database is a file: expected sqlite:////absolute/path/of/a/file and nothing more, or leave it "
            "unset for one in CURATOR_DATA_DIR"
        )
    # The driver takes ".." as a matter of spelling, before any link is followed.
    return Path(os.path.realpath(os.path.abspath(file)))


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
    for name, value in _NOTICE.items():
        if name not in parsed.query:
            parsed = parsed.update_query_dict({name: value})
    engine = create_engine(parsed, pool_size=8, max_overflow=8, pool_timeout=30)

    @event.listens_for(engine, "connect")
    def _bounded(connection: Any, _record: Any) -> None:
        # What an operator has set for the role or the database holds.
        connection.execute(
            "SELECT set_config('idle_in_transaction_session_timeout', %s, false) "
            "WHERE current_setting('idle_in_transaction_session_timeout') = '0'",
            (f"{IDLE_SECONDS}s",),
        )
        connection.commit()

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


def database_bytes(engine: Engine, file: Path | None) -> int:
    """What a database takes on its disk: an embedded one by its file, with its log."""
    if file is None:
        with engine.connect() as connection:
            return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
    parts = (file, file.with_name(f"{file.name}-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())


class DataDirLock:
    """The right to work on a data folder and its database, held until the process ends or :meth:`release`.

    Who serves an embedded database, or does to private files what no server may see, has the folder alone; servers of
    a PostgreSQL database share it. An embedded database belongs to one process, whichever folder that works on: its
    lock is a file beside it, as locks on the database itself are SQLite's.

    Args:
        folder: the data folder.
        database: the embedded database by its real path, where there is one.
    """

    def __init__(self, folder: Path, database: Path | None = None) -> None:
        self._folder, self._database = folder, database
        self._descriptors: list[int] = []

    def acquire(self, *, shared: bool = False) -> None:
        """Take the right, alone or beside others that share it.

        Raises:
            AlreadyServed: when another process holds it so that it cannot be had.
        """
        try:
            if not self._take(self._folder / "serving.lock", fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
                raise AlreadyServed(f"another process already serves the data folder {self._folder}")
            database = self._database
            if database is not None and not self._take(database.with_name(f"{database.name}.lock"), fcntl.LOCK_EX):
                raise AlreadyServed(f"another process already serves the database {database}")
        except BaseException:
            self.release()
            raise

    def _take(self, path: Path, kind: int) -> bool:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._descriptors.append(descriptor)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release(self) -> None:
        """Give the right back."""
        while self._descriptors:
            os.close(self._descriptors.pop())
