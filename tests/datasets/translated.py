"""Engines of which no server comes by pip, acted by DuckDB: what is said in their words is read by sqlglot, which other
people wrote, and run. It shows that the words mean in that reading what they should, and not what the engine makes of
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import duckdb
import sqlglot
from sqlglot import exp

from app.storage.sources.drivers import Driver, Place

#: Types of DuckDB as the engines' catalogues spell them.
TOLD = {
    "bigquery": {
        "BIGINT": "INT64", "DOUBLE": "FLOAT64", "VARCHAR": "STRING", "BOOLEAN": "BOOL", "DATE": "DATE",
        "TIMESTAMP": "DATETIME", "BLOB": "BYTES",
    },
    "snowflake": {
        "DECIMAL(38,0)": "NUMBER", "DOUBLE": "FLOAT", "VARCHAR": "TEXT", "BOOLEAN": "BOOLEAN", "DATE": "DATE",
        "TIMESTAMP": "TIMESTAMP_NTZ", "BLOB": "BINARY",
    },
    "trino": {
        "TINYINT": "tinyint", "SMALLINT": "smallint", "INTEGER": "integer", "BIGINT": "bigint", "FLOAT": "real",
        "DECIMAL(18,0)": "decimal(18,0)", "DOUBLE": "double", "VARCHAR": "varchar", "BOOLEAN": "boolean",
        "DATE": "date", "TIMESTAMP": "timestamp(6)", "BLOB": "varbinary",
    },
}  # fmt: skip


def translated(text: str, engine: str) -> str:
    """A statement in DuckDB's words. What sqlglot leaves to whoever reads the result is put right."""
    (tree,) = sqlglot.parse(text, read=engine, error_level=sqlglot.ErrorLevel.RAISE)
    assert tree is not None
    assert not list(tree.find_all(exp.Command)), "sqlglot does not read this"

    for table in list(tree.find_all(exp.Table)):
        said = table.sql(engine).upper()
        if "INFORMATION_SCHEMA" in said:
            word = "told_columns" if "COLUMNS" in said else "told_tables"
            table.replace(exp.to_table(f"memory.main.{word}", alias=table.alias))
    for number in list(tree.find_all(exp.ToNumber)):
        number.replace(exp.func("hex_number", number.this))
    for cast in list(tree.find_all(exp.Cast)):
        if cast.to.is_type("VARIANT"):
            cast.replace(cast.this)
        elif engine == "bigquery" and cast.to.is_type("BINARY", "VARBINARY"):
            cast.replace(exp.Anonymous(this="ENCODE", expressions=[cast.this]))
    for unnest in list(tree.find_all(exp.Unnest)):
        # Places in a list begin at zero there, and at one here.
        (found,) = unnest.parent_select.expressions
        found.replace(exp.column("o") - 1)
    return str(tree.sql("duckdb"))


class Translating(Driver):
    """An engine that is acted.

    Args:
        engine: whose words are said.
        databases: those that are there.
    """

    def __init__(self, engine: str, databases: Sequence[str]) -> None:
        self.engine, self.extra, self.said = engine, engine, list[str]()
        self._root = duckdb.connect(":memory:")
        for database in databases:
            self._root.execute(f"ATTACH ':memory:' AS \"{database}\"")
        kinds = " ".join(f"WHEN '{kind}' THEN '{told}'" for kind, told in TOLD[engine].items())
        for statement in (
            "CREATE MACRO hex_number(x) AS CAST('0x' || x AS BIGINT)",
            "CREATE MACRO from_base(x, base) AS CAST('0x' || x AS BIGINT)",
            "CREATE MACRO is_infinite(x) AS isinf(x)",
            "CREATE VIEW told_tables AS SELECT * FROM information_schema.tables",
            f"""CREATE VIEW told_columns AS SELECT table_schema, table_name, column_name, ordinal_position,
            CASE data_type {kinds} END AS data_type, CASE WHEN data_type LIKE 'DECIMAL%' THEN 0 END AS numeric_scale
            FROM information_schema.columns""",
        ):
            self._root.execute(statement)

    def connect(self, place: Place, seconds: float) -> Any:
        return _Connection(self)

    def cursor(self) -> Any:
        return self._root.cursor()


class _Connection:
    def __init__(self, driver: Translating) -> None:
        self._driver = driver

    def cursor(self) -> _Cursor:
        return _Cursor(self._driver)

    def close(self) -> None:
        pass


class _Cursor:
    def __init__(self, driver: Translating) -> None:
        self._driver, self._cursor = driver, driver.cursor()

    def execute(self, text: str) -> None:
        self._driver.said.append(text)
        self._cursor.execute(translated(text, self._driver.engine))

    def fetchmany(self, most: int) -> list[Any]:
        return list(self._cursor.fetchmany(most))

    def close(self) -> None:
        self._cursor.close()
