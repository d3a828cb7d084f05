"""Engines: SQLite embedded (WAL, synchronous=FULL, one process) and PostgreSQL by URL."""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import select
import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import structlog
from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError, SQLAlchemyError
from sqlalchemy.pool import QueuePool

logger = structlog.get_logger(__name__)

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


#: Any number, the same for all processes, and another than migrations have: who works on a database shares this lock of
#: its server, or has it alone.
_SERVING = 0x6375_7262
#: The same of who does for all processes what one is enough for.
_LEADING = 0x6375_726C
#: How often those look who do not lead.
FOLLOWING_SECONDS = 5.0
#: Connections of a process that stay open, and how many more it opens for a while: two lanes with heavy updates and two
#: openings hold one each for seconds, and others are not to wait for them. docs/operations/postgresql.md has the sum.
POOL, OVERFLOW = 3, 5
#: How long the lock of one that has just ended may still stand in the way.
_GONE_SECONDS = 1.0
#: How often it is looked whether the lock is still held.
_WATCH_SECONDS = 2.0

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
    engine = create_engine(parsed, pool_size=POOL, max_overflow=OVERFLOW, pool_timeout=30)

    @event.listens_for(engine, "connect")
    def _bounded(connection: Any, _record: Any) -> None:
        # What an operator has set for the role or the database holds.
        connection.execute(
            "SELECT set_config('idle_in_transaction_session_timeout', %s, false) "
            "WHERE current_setting('idle_in_transaction_session_timeout') = '0'",
            (f"{IDLE_SECONDS}s",),
        )
        # The driver looks after this end alone: the other would keep what a machine that is gone has locked for hours.
        connection.cursor().executemany(
            "SELECT set_config(name, %s, false) FROM pg_settings WHERE name = %s AND source = 'default'",
            [(value, f"tcp_{name}") for name, value in _NOTICE.items() if name.startswith("keepalives")],
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
    # Whatever an operator has set for the database: the locks of rows serve no other level.
    reading = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    return reading, engine.execution_options(isolation_level="READ COMMITTED")


def database_bytes(engine: Engine, file: Path | None) -> int:
    """The size of a database on its disk: an embedded one by its file, with its log."""
    if file is None:
        with engine.connect() as connection:
            return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
    parts = (file, file.with_name(f"{file.name}-wal"))
    return sum(part.stat().st_size for part in parts if part.exists())


class _ServerLock:
    """An advisory lock of a PostgreSQL server, held on a connection of its own.

    One that is shared is taken again when the connection was lost, as by a restart of the database. Who holds it goes
    on in any case: it keeps commands out, and takes nothing from servers.
    """

    def __init__(self, url: str) -> None:
        _, self._engine = make_engines(url)
        self._connection: Connection | None = None
        self._shared = False
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="database lock", daemon=True)

    def take(self, *, shared: bool) -> bool:
        """Whether the lock can be had; it is hardly waited for."""
        self._shared = shared
        deadline = time.monotonic() + _GONE_SECONDS
        while not self._try():
            if time.monotonic() > deadline:
                return False
            time.sleep(_GONE_SECONDS / 10)
        if shared:
            self._watcher.start()
        return True

    def held(self) -> bool:
        """Whether the connection, and the lock with it, is still there."""
        if self._connection is None:
            return False
        try:
            self._connection.execute(text("SELECT 1"))
        except SQLAlchemyError:
            self._drop()
            return False
        return True

    def release(self) -> None:
        """Give the lock back."""
        self._ended.set()
        if self._watcher.is_alive():
            self._watcher.join(_GONE_SECONDS)
            if self._watcher.is_alive():  # it waits for a server that is away, where no lock is left
                return
        self._drop()
        self._engine.dispose()

    def _try(self) -> bool:
        # In a transaction it would be taken for a process that hangs.
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            kind = "_shared" if self._shared else ""
            got = connection.execute(text(f"SELECT pg_try_advisory_lock{kind}(:key)"), {"key": _SERVING}).scalar_one()
        except BaseException:
            connection.close()
            raise
        if got:
            self._connection = connection
        else:
            connection.close()
        return bool(got)

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                connection.invalidate()  # the lock lasts as long as the session, and would with one in the pool
                connection.close()

    def _watch(self) -> None:
        lost = alone = False
        while not self._ended.wait(_WATCH_SECONDS):
            if self._connection is not None and self.held():
                continue
            if not lost:
                logger.warning("the lock of the database was lost with its connection")
                lost = True
            try:
                got = self._try()
            except SQLAlchemyError:
                continue
            if got:
                logger.warning("the lock of the database is held again")
                lost = alone = False
            elif not alone:
                logger.error(
                    "a command works on the database as if no server ran, as its lock was lost: stop this server"
                )
                alone = True


class Leader:
    """Which of several processes on one database does what one is enough for: who holds an advisory lock.

    The lock is held on a connection that is taken out of the pool: a process that dies, or is cut off, gives it back
    with that. Others look as well, only less often, as a process that stands still keeps its connection. So the lock
    says who works soon, and keeps nobody out: what is done by it must be right when two do it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._connection: Connection | None = None
        self._leads, self._asked = engine.dialect.name == "sqlite", -math.inf
        self._turn = threading.Lock()

    def pause(self, seconds: float) -> float:
        """Seconds until this process is to look again at what the leader looks at so often. It leads from now on where
        nobody does; who serves an embedded database is alone.
        """
        with self._turn:
            now = time.monotonic()
            if self._engine.dialect.name != "sqlite" and now - self._asked >= FOLLOWING_SECONDS:
                self._asked = now
                try:
                    self._leads = self._try()
                except SQLAlchemyError:
                    self._leads = False
            return seconds if self._leads else max(seconds, FOLLOWING_SECONDS)

    def _try(self) -> bool:
        """Whether the lock is held, or could be had just now."""
        if self._connection is not None:
            try:
                self._connection.execute(text("SELECT 1"))
            except SQLAlchemyError:
                connection, self._connection = self._connection, None
                connection.invalidate()
            else:
                return True
        # Outside of a transaction: in one it would be taken for a process that hangs.
        with contextlib.ExitStack() as undone:
            connection = undone.enter_context(self._engine.connect().execution_options(isolation_level="AUTOCOMMIT"))
            if connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": _LEADING}).scalar_one():
                connection.detach()  # in the pool it would be used by others, and closed with the lock
                undone.pop_all()
                self._connection = connection
        return self._connection is not None


class DataDirLock:
    """The right to work on a data folder and its database, held until the process ends or :meth:`release`.

    Who serves an embedded database, or does to private files what no server may see, has folder and database alone;
    servers of a PostgreSQL database share both. An embedded database belongs to one process, whichever folder that
    works on: its lock is a file beside it, as locks on the database itself are SQLite's. That of a PostgreSQL database
    is an advisory lock of its server.

    Args:
        folder: the data folder.
        database: the embedded database by its real path, where there is one.
        server: the URL of the PostgreSQL database, where there is one.
        files: the folder of private files, where they lie elsewhere: left-overs there are those that one database does
            not name.
    """

    def __init__(
        self, folder: Path, database: Path | None = None, server: str | None = None, files: Path | None = None
    ) -> None:
        self._folder, self._database, self._files = folder, database, files
        self._descriptors: list[int] = []
        self._server = None if server is None else _ServerLock(server)

    def acquire(self, *, shared: bool = False) -> None:
        """Take the right, alone or beside others that share it.

        Raises:
            AlreadyServed: when another process holds it so that it cannot be had.
        """
        try:
            if not self._take(self._folder / "serving.lock", fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
                raise AlreadyServed(f"another process already serves the data folder {self._folder}")
            files = self._files
            if files is not None:
                files.mkdir(mode=0o700, parents=True, exist_ok=True)
                if not self._take(files / "serving.lock", fcntl.LOCK_SH if shared else fcntl.LOCK_EX):
                    raise AlreadyServed(f"another process already serves the private files in {files}")
            database = self._database
            if database is not None and not self._take(database.with_name(f"{database.name}.lock"), fcntl.LOCK_EX):
                raise AlreadyServed(f"another process already serves the database {database}")
            if self._server is not None and not self._server.take(shared=shared):
                raise AlreadyServed("another process already serves the database of CURATOR_DATABASE_URL")
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

    def lost(self) -> bool:
        """Whether others may have taken the right meanwhile, as the connection was lost that it was held on."""
        return self._server is not None and not self._server.held()

    def release(self) -> None:
        """Give the right back."""
        if self._server is not None:
            self._server.release()
        while self._descriptors:
            os.close(self._descriptors.pop())
