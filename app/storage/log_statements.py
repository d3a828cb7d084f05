"""Statements of the log as the drivers take them; ``mark`` is how a driver has its parameters, see :mod:`.store`.

Thousands of lines are read for a step of the log, and whoever answers waits while a thread that reads has the
interpreter: the embedded database's driver lets go of it and wins it back for each row. So each statement gives few
rows: lines come joined into one, and numbers that follow one another as a run. What is joined comes in the order of the
query within, as both databases have it where nothing is between the two.
"""

from __future__ import annotations

from functools import lru_cache

from app.services.log_ports import LeafKind
from app.services.ports import LedgerRow
from app.storage.transaction import typed_rows

#: Where the lines of a kind stand: the table, the column, and what orders it.
_LINES: dict[LeafKind, tuple[str, str, str]] = {
    "event": ("events", "line", "id"),
    "header": ("sessions", "header", "id"),
    "record": ("evidence", "line", "id"),
    "entry": ("entries", "line", "sequence"),
}
#: The state, and the same unless another holds it, which is then held; its first row.
STATE = "SELECT size, event, movement FROM log_state"
FREE_STATE = f"{STATE} FOR UPDATE SKIP LOCKED"
FIRST = "INSERT INTO log_state (id, size, event, movement) VALUES (1, 0, 0, 0) ON CONFLICT (id) DO NOTHING"
#: The last event and the last movement that are seen, and who is adding others.
LAST = "SELECT (SELECT coalesce(max(id), 0) FROM events), (SELECT coalesce(max(id), 0) FROM ledger)"
ADDING = (
    "SELECT DISTINCT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND relation IN ('ledger'::regclass, 'events'::regclass)"
)
#: Sessions of which entries are taken at a time.
SESSIONS = 256
#: Sessions whose headers are there and with more to come: id, status, last entry, and the last that is there.
BEHIND = (
    "SELECT s.id, s.status, s.sequence, l.sequence FROM log_sessions l JOIN sessions s ON s.id = l.session "  # noqa: S608
    f"WHERE l.following AND (s.sequence > l.sequence OR s.status = 'closed') ORDER BY s.id LIMIT {SESSIONS}"
)


@lru_cache(maxsize=2)
def move(mark: str) -> str:
    """The new state."""
    return f"UPDATE log_state SET size = {mark}1, event = {mark}2, movement = {mark}3"  # noqa: S608


def _spans(count: int, mark: str) -> str:
    """So many runs as a table: place, session, first and last number."""
    rows = typed_rows(("BIGINT", "TEXT", "BIGINT", "BIGINT"), count, mark)
    return f"WITH n (place, session, low, high) AS (VALUES ({rows}))"


def _lines_of(kind: LeafKind) -> str:
    """The rows that runs of a kind name."""
    table, _, order = _LINES[kind]
    if kind == "header":
        return f"FROM n CROSS JOIN {table} t WHERE t.id = n.session"
    session = "t.session = n.session AND " if kind == "entry" else ""
    return f"FROM n CROSS JOIN {table} t WHERE {session}t.{order} >= n.low AND t.{order} <= n.high"


@lru_cache(maxsize=128)
def lines(kind: LeafKind, count: int, mark: str) -> str:
    """The lines of so many runs of a kind, joined."""
    _, line, order = _LINES[kind]
    joined = "CAST(group_concat(line, char(10)) AS BLOB)" if mark == "?" else "string_agg(line, '\\x0a'::bytea)"
    return (
        f"{_spans(count, mark)} SELECT {joined} FROM "  # noqa: S608
        f"(SELECT t.{line} AS line {_lines_of(kind)} ORDER BY n.place, t.{order}) f"
    )


@lru_cache(maxsize=128)
def sizes(kind: LeafKind, count: int, mark: str) -> str:
    """The bytes of so many runs of a kind, each by its place."""
    line = _LINES[kind][1]
    return f"{_spans(count, mark)} SELECT n.place, sum(length(t.{line})) {_lines_of(kind)} GROUP BY n.place"


@lru_cache(maxsize=64)
def movements(count: int, mark: str) -> str:
    """The columns of movements of so many runs, the number first, each joined. What is null is empty."""
    joined = "group_concat({}, char(10))" if mark == "?" else "string_agg({}, chr(10))"
    columns = [joined.format(f"coalesce(CAST(f.{name} AS TEXT), '')") for name in ("id", *LedgerRow.__slots__)]
    return (
        f"{_spans(count, mark)} SELECT {', '.join(columns)} FROM (SELECT t.* FROM n CROSS JOIN ledger t "  # noqa: S608
        "WHERE t.id >= n.low AND t.id <= n.high ORDER BY n.place, t.id) f"
    )


def _counted(names: str, table: str, mark: str) -> str:
    """Rows beyond a number up to another, so many; movements without those of made-up records."""
    real = " AND substr(dataset, 1, 1) <> '~'" if table == "ledger" else ""
    return (
        f"SELECT {names} FROM {table} WHERE id > {mark}1 AND id <= {mark}2{real} "  # noqa: S608
        f"ORDER BY id LIMIT {mark}3"
    )


@lru_cache(maxsize=4)
def islands(table: str, mark: str) -> str:
    """First numbers and counts of rows that follow one another, of so many beyond a number up to another."""
    return (
        "SELECT min(id), count(*) FROM (SELECT id, id - row_number() OVER (ORDER BY id) AS island "  # noqa: S608
        f"FROM ({_counted('id', table, mark)}) r) i GROUP BY island ORDER BY min(id)"
    )


@lru_cache(maxsize=2)
def openings(mark: str) -> str:
    """Of the same movements, the first of each session whose header is not there."""
    return (
        f"SELECT session, min(id) FROM ({_counted('id, session', 'ledger', mark)}) r "  # noqa: S608
        "WHERE session IS NOT NULL AND NOT EXISTS (SELECT 1 FROM log_sessions l WHERE l.session = r.session) "
        "GROUP BY session"
    )


@lru_cache(maxsize=64)
def measured(count: int, mark: str) -> str:
    """The measurements of so many sessions for their entries beyond a number up to another: session, first number and
    count of records that follow one another.
    """
    spans = typed_rows(("TEXT", "BIGINT", "BIGINT"), count, mark)
    return (
        f"WITH n (session, after, last) AS (VALUES ({spans})) "  # noqa: S608
        "SELECT session, min(id), count(*) FROM (SELECT e.session AS session, e.id AS id, "
        "e.id - row_number() OVER (PARTITION BY e.session ORDER BY e.id) AS island FROM n CROSS JOIN evidence e "
        "WHERE e.session = n.session AND e.sequence > n.after AND e.sequence <= n.last) i "
        "GROUP BY session, island ORDER BY session, min(id)"
    )


@lru_cache(maxsize=32)
def tiles(count: int, mark: str) -> str:
    """So many tiles."""
    named = typed_rows(("BIGINT", "BIGINT"), count, mark)
    return (
        f"WITH n (level, number) AS (VALUES ({named})) "  # noqa: S608
        "SELECT t.level, t.number, t.hashes FROM n CROSS JOIN log_tiles t "
        "WHERE t.level = n.level AND t.number = n.number"
    )
