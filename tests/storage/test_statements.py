"""Statements of the answering path find their rows by an index, however many there are."""

from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy import create_engine
from sqlalchemy.dialects.sqlite import dialect

from app.storage.repositories.entries import _find_latest
from app.storage.repositories.replies import _find_replies, _next_replies
from app.storage.repositories.sessions import _lock, _move
from app.storage.tables import metadata
from app.storage.transaction import _BYTES, _ROWS, _parts

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        (_find_replies(8, "?"), 24),
        (_find_latest(8, "?"), 24),
        (_lock(8, "?", ""), 8),
        (_move(), 11),
        (str(_next_replies(("", "", ""), 8).compile(dialect=dialect())), 5),
    ],
    ids=["replies", "latest", "lock", "move", "next replies"],
)
def test_no_table_is_read_whole(statement: str, values: int) -> None:
    """Catches a statement that SQLite answers by reading the whole table, as it does for rows IN a list of values:
    each answer would take longer than the one before.
    """
    engine = create_engine("sqlite://")
    metadata.create_all(engine)
    with engine.connect() as connection:
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        plan = [row[3] for row in driver.execute(f"EXPLAIN QUERY PLAN {statement}", ["x"] * values)]
    assert any("USING" in step and "INDEX" in step for step in plan), plan
    # The names that are looked up are read through, the tables never.
    assert not [s for s in plan if s.startswith("SCAN") and "CONSTANT" not in s and s != "SCAN n"], plan


@pytest.mark.parametrize("size", [10, _BYTES // 4, _BYTES, 2 * _BYTES])
def test_a_statement_has_bounded_length(size: int) -> None:
    """Catches a group of long queries in one statement: PostgreSQL takes no message of a gigabyte, today or when it is
    sent again, so that the lane which must store it would answer nobody any more.
    """
    line = bytes(size)
    rows = [("id", number, line) for number in range(2 * _ROWS + 1)]
    parts = list(_parts(rows))
    assert [row for part in parts for row in part] == rows
    assert max(map(len, parts)) == min(_ROWS, max(1, _BYTES // size))
