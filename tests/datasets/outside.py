"""A database outside with tables that are counted where they lie: an owner, and a role that reads."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import sql

from tests.kit.postgres import server_of_run

SCHEMA = "clinic %s\"'"


class Database:
    """A database with a table, an owner, and a role that reads."""

    def __init__(self, owner: psycopg.Connection[Any], role: str, reader: str) -> None:
        self.owner, self.role, self.reader = owner, sql.Identifier(role), reader

    def fill(
        self,
        columns: Sequence[tuple[str, str]],
        records: Sequence[Sequence[Any]],
        name: str = "visits",
        schema: str = SCHEMA,
    ) -> None:
        """A table with these columns and records."""
        table, within = sql.Identifier(schema, name), sql.Identifier(schema)
        fields = [sql.SQL("{} {}").format(sql.Identifier(column), sql.SQL(kind)) for column, kind in columns]
        self.run(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(within))
        self.run(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(within, self.role))
        self.run(sql.SQL("DROP TABLE IF EXISTS {}").format(table))
        self.run(sql.SQL("CREATE TABLE {} ({})").format(table, sql.SQL(", ").join(fields)))
        self.run(sql.SQL("GRANT SELECT ON {} TO {}").format(table, self.role))
        with self.owner.cursor() as cursor, cursor.copy(sql.SQL("COPY {} FROM STDIN").format(table)) as copy:
            for record in records:
                copy.write_row(record)

    def run(self, statement: Any, *values: Any) -> None:
        self.owner.execute(statement, values or None)


@contextmanager
def outside() -> Iterator[Database]:
    """A database of its own on the run's server."""
    server = server_of_run()
    name, role = (f"{what}_{time.monotonic_ns()}" for what in ("sources", "reader"))
    with psycopg.connect(server, autocommit=True) as root:
        root.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        root.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
        with psycopg.connect(server, dbname=name, autocommit=True) as owner:
            yield Database(owner, role, psycopg.conninfo.make_conninfo(server, dbname=name, user=role))
        root.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
        root.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
