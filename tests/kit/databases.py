"""Databases that tests have to themselves. The migrations run once: what tests get are copies of what they made."""

from __future__ import annotations

import itertools
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy.engine import make_url

from app.storage.database import make_engines
from app.storage.migrate import migrate

#: The database of a server that migrated ones are copies of, and the lock of whoever makes it.
_TEMPLATE, _LOCK = "curator_template", 0x7465_7374
_numbers = itertools.count()


def place_migrated(file: Path) -> None:
    """Have an embedded database with its tables, unless there is one."""
    if not file.exists():
        file.write_bytes(_migrated_file())


@cache
def _migrated_file() -> bytes:
    with tempfile.TemporaryDirectory(prefix="curator-template-") as folder:
        file = Path(folder) / "curator.sqlite3"
        migrate_all(f"sqlite:///{file}")
        with closing(sqlite3.connect(file)) as connection:  # nothing is left in the write-ahead log
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return file.read_bytes()


def migrate_all(url: str) -> None:
    """Run the migrations themselves."""
    _, writing = make_engines(url)
    migrate(writing)
    writing.dispose()


def migrate_when_told(url: str, barrier: Any, results: Any) -> None:
    """What one of several processes does that migrate at the same moment; it imports no more than that takes."""
    try:
        barrier.wait(120)
        migrate_all(url)
        results.put("done")
    except BaseException as error:
        results.put(f"{type(error).__name__}: {error}")


@contextmanager
def empty_database(server: str) -> Iterator[str]:
    """The `postgresql://` URL of a fresh database without tables beside the one that `server` names; dropped after."""
    with _created(server, "") as url:
        yield url


@contextmanager
def migrated_database(server: str) -> Iterator[str]:
    """The same with its tables."""
    _make_template(server)
    with _created(server, f"TEMPLATE {_TEMPLATE}") as url:
        yield url


@contextmanager
def _created(server: str, how: str) -> Iterator[str]:
    name = f"curator_test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} {how}")
    try:
        yield _beside(server, name)
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@cache
def _make_template(server: str) -> None:
    """Once a server, whichever process of the run comes first."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (_LOCK,))
        if connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (_TEMPLATE,)).fetchone() is None:
            connection.execute(f"CREATE DATABASE {_TEMPLATE}_making")
            migrate_all(_beside(server, f"{_TEMPLATE}_making"))
            connection.execute(f"ALTER DATABASE {_TEMPLATE}_making RENAME TO {_TEMPLATE}")


def _beside(server: str, name: str) -> str:
    return make_url(server).set(database=name).render_as_string(hide_password=False)
