"""Engines outside with tables that are counted where they lie: an owner writes them, and the curator reads.

What holds for each of them is tested by one suite: whoever it is, it lays columns as a table (`lay`), and its tables
are asked through `tables`.
"""

from __future__ import annotations

import math
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from psycopg import sql

from app.storage.sources import PostgresTables, SparkTables
from app.storage.sources.spark import _library
from tests.datasets.source_files import JSON, write
from tests.kit import spark
from tests.kit.postgres import server_of_run

SCHEMA = "clinic %s\"'"
TYPES = {
    pa.int8(): "smallint", pa.int16(): "smallint", pa.int32(): "integer", pa.int64(): "bigint",
    pa.uint8(): "smallint", pa.uint16(): "integer", pa.uint32(): "bigint", pa.float32(): "real",
    pa.float64(): "double precision", pa.string(): "text", pa.bool_(): "boolean", pa.date32(): "date",
    pa.timestamp("s"): "timestamp", pa.timestamp("ms"): "timestamp", pa.timestamp("us"): "timestamp",
    pa.binary(): "bytea",
}  # fmt: skip


class Database:
    """A database with a table, an owner, and a role that reads."""

    type, table = "postgresql", f"{SCHEMA}.visits"

    def __init__(self, owner: psycopg.Connection[Any], role: str, reader: str) -> None:
        self.owner, self.role, self.reader = owner, sql.Identifier(role), reader

    def tables(self, seconds: float = 60.0, **how: Any) -> PostgresTables:
        """Who asks its tables, in so many seconds."""
        return PostgresTables(lambda name: self.reader, seconds, **how)

    def takes(self, columns: Mapping[str, pa.Array], attributes: Sequence[JSON] = ()) -> bool:
        """Whether it has such types, and such text in records and categories."""
        texts = [value for column in columns.values() for value in column.to_pylist() if isinstance(value, str)]
        texts += [str(label) for attribute in attributes for label in attribute.get("values", ())]
        return all(column.type in TYPES for column in columns.values()) and not any("\0" in text for text in texts)

    def lay(self, columns: Mapping[str, pa.Array]) -> None:
        """A table of these columns."""
        fields = [(name, TYPES[column.type]) for name, column in columns.items()]
        self.fill(fields, list(zip(*(column.to_pylist() for column in columns.values()), strict=True)))

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


class Cluster:
    """A schema of a cluster of Spark; its owner is the client that its makers give away."""

    type = "spark"

    def __init__(self, url: str, folder: Path, schema: str | None = None) -> None:
        _library()  # in a way that it bears
        from pyspark.sql import SparkSession

        self.url, self._folder = url, folder
        # That client sends no token in the clear but to this name.
        self._session = SparkSession.builder.remote(url.replace("127.0.0.1", "localhost")).create()
        self.schema = schema or f"clinic_{time.monotonic_ns()}"
        self.table = f"{self.schema}.visits"
        self.run(f"CREATE DATABASE {self.schema}")

    def tables(self, seconds: float = 60.0, **how: Any) -> SparkTables:
        """Who asks its tables, in so many seconds."""
        return SparkTables(lambda name: self.url, seconds, **how)

    def takes(self, columns: Mapping[str, pa.Array], attributes: Sequence[JSON] = ()) -> bool:
        """Whether it has such types: it reads no nanoseconds."""
        return all(column.type != pa.timestamp("ns") for column in columns.values())

    def lay(self, columns: Mapping[str, pa.Array]) -> None:
        """A table of these columns, in two files where it has so many records."""
        folder = self._folder / str(time.monotonic_ns())
        length = len(next(iter(columns.values())))
        for number, part in enumerate((slice(0, length // 2), slice(length // 2, None))):
            write(folder / f"{number}.parquet", {name: column[part] for name, column in columns.items()})
        self.run(f"DROP TABLE IF EXISTS {self.table}")
        self.run(f"CREATE TABLE {self.table} USING parquet LOCATION '{folder}'")

    def run(self, statement: str) -> Any:
        return self._session.sql(statement).collect()

    def end(self) -> None:
        """Leave nothing in the cluster."""
        self.run(f"DROP DATABASE {self.schema} CASCADE")
        self._session.stop()


@contextmanager
def outside(encoding: str = "UTF8") -> Iterator[Database]:
    """A database of its own on the run's server."""
    server = server_of_run()
    name, role = (f"{what}_{time.monotonic_ns()}" for what in ("sources", "reader"))
    with psycopg.connect(server, autocommit=True) as root:
        how = sql.SQL("CREATE DATABASE {} ENCODING {} LOCALE 'C' TEMPLATE template0")
        root.execute(how.format(sql.Identifier(name), sql.Literal(encoding)))
        root.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(role)))
        with psycopg.connect(server, dbname=name, autocommit=True, client_encoding="utf8") as owner:
            yield Database(owner, role, psycopg.conninfo.make_conninfo(server, dbname=name, user=role))
        root.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
        root.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


@contextmanager
def cluster() -> Iterator[Cluster]:
    """A schema of its own in the run's cluster."""
    with tempfile.TemporaryDirectory() as folder:
        found = Cluster(spark.server_of_run(), Path(folder))
        yield found
        found.end()


#: Every engine that the suite is run over, by the type of its sources.
ENGINES = {"postgresql": outside, "spark": cluster}


class Line:
    """A way to a database over which what it says may come late, or from some time on not at all.

    Args:
        url: of the database, at a socket in a folder.

    Attributes:
        url: of the database, this way.
        late: by how many seconds each time.
        times: how often it says something over one connection, before it falls silent.
    """

    def __init__(self, url: str) -> None:
        told = psycopg.conninfo.conninfo_to_dict(url)
        self._folder, self.late, self.times = Path(str(told["host"])), 0.0, math.inf
        self._port = told.get("port", 5432)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = psycopg.conninfo.make_conninfo(url, host="127.0.0.1", port=self._listening.getsockname()[1])
        self._lines: list[socket.socket] = []
        threading.Thread(target=self._take, daemon=True).start()

    def close(self) -> None:
        for line in (self._listening, *self._lines):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
            line.close()

    def _take(self) -> None:
        with suppress(OSError):
            while True:
                here, there = self._listening.accept()[0], socket.socket(socket.AF_UNIX)
                there.connect(str(self._folder / f".s.PGSQL.{self._port}"))
                self._lines += [here, there]
                for ends in ((here, there), (there, here)):
                    threading.Thread(target=self._carry, args=ends, daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        times = 0
        with suppress(OSError):
            while told := source.recv(1 << 16):
                if source.family == socket.AF_UNIX:
                    times += 1
                    time.sleep(self.late)
                if times <= self.times:
                    sink.sendall(told)
            sink.shutdown(socket.SHUT_RDWR)
