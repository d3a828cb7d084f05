"""Who shares a place without locks of its own, and who has it alone: the database's locks say so."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import structlog
from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

logger = structlog.get_logger(__name__)

#: Any number, the same for all processes, and another than other advisory locks have.
_KEY = 0x6375_7273


class Turns(Protocol):
    """See :class:`app.storage.blobs.Blobs`, whose methods of these names this serves."""

    def sharing(self) -> AbstractContextManager[None]: ...

    def alone(self) -> AbstractContextManager[bool]: ...


def turns_of(engine: Engine) -> Turns:
    """The turns of all processes on a database: an embedded one is served by one process alone."""
    return ServerTurns(engine) if engine.dialect.name == "postgresql" else ProcessTurns()


class ProcessTurns:
    """Turns among the threads of a process."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sharing, self._alone = 0, False

    @contextlib.contextmanager
    def sharing(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._sharing += 1
        try:
            yield
        finally:
            with self._changed:
                self._sharing -= 1

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        with self._changed:
            got = not self._sharing and not self._alone
            self._alone = self._alone or got
        try:
            yield got
        finally:
            if got:
                with self._changed:
                    self._alone = False
                    self._changed.notify_all()


class ServerTurns:
    """Turns among all processes on a PostgreSQL database: an advisory lock, on a connection that is held for as long.

    A process that dies lets go with its connection.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @contextlib.contextmanager
    def sharing(self) -> Iterator[None]:
        with self._connection() as connection:
            connection.execute(text("SELECT pg_advisory_lock_shared(:key)"), {"key": _KEY})
            try:
                yield
            finally:
                _release(connection, "pg_advisory_unlock_shared")

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        with self._connection() as connection:
            got = bool(connection.execute(text("SELECT pg_try_advisory_lock(:key)"), {"key": _KEY}).scalar_one())
            try:
                yield got
            finally:
                if got:
                    _release(connection, "pg_advisory_unlock")

    def _connection(self) -> Connection:
        # In a transaction it would be taken for a process that hangs.
        return self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")


def _release(connection: Connection, function: str) -> None:
    """Give a lock back; with its connection where that can be asked nothing more."""
    try:
        held = connection.execute(text(f"SELECT {function}(:key)"), {"key": _KEY}).scalar_one()
    except SQLAlchemyError:
        connection.invalidate()
        held = False
    if not held:
        logger.warning("the lock of the private files was lost with its connection")
