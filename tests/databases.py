"""PostgreSQL databases that tests have to themselves."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from sqlalchemy.engine import make_url

_numbers = itertools.count()


@contextmanager
def fresh_database(server: str) -> Iterator[str]:
    """The `postgresql://` URL of a fresh, empty database beside the one that `server` names; dropped afterwards."""
    name = f"curator_test_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    try:
        yield make_url(server).set(database=name).render_as_string(hide_password=False)
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
