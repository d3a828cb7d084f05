"""Tables counted where they lie in PostgreSQL. The oracle is a plain loop over the records (`source_files.py`).

These would catch an engine that places a value elsewhere than another does, a table that is asked though it is not what
was registered, a role that could write, and text of the engine, or a secret, that anybody is told.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest
import structlog
from hypothesis import assume, given
from hypothesis import strategies as st
from psycopg import sql

from app.declarations.errors import InvalidDataset
from app.declarations.spec import TableSpec, parse_spec, published, written
from app.services.errors import SourceMoved, SourceUnavailable
from app.spaces.asked import AskedCounts
from app.spaces.counts import CellCounts, Contraction, NotCounted, Tally
from app.storage.kept_counts import NOTHING_KEPT
from app.storage.private_data import DenseData, SourceData
from app.storage.sources import PostgresTables, Sources, outcome, postgresql
from app.storage.sources.compiled import MOST_CATEGORIES
from tests.datasets import source_files as plain
from tests.datasets.outside import SCHEMA, Database, outside
from tests.datasets.source_files import JSON, declare
from tests.datasets.test_asked_sources import BY_WARD, OLD, SUM, WARD, YEAR, told
from tests.datasets.test_sources import sources
from tests.kit.patience import patience
from tests.questions.test_exact_counts import brute, same, tallies

pytestmark = [pytest.mark.unit, pytest.mark.slow]

TYPES = {
    pa.int8(): "smallint", pa.int16(): "smallint", pa.int32(): "integer", pa.int64(): "bigint",
    pa.uint8(): "smallint", pa.uint16(): "integer", pa.uint32(): "bigint", pa.float32(): "real",
    pa.float64(): "double precision", pa.string(): "text", pa.bool_(): "boolean", pa.date32(): "date",
    pa.timestamp("s"): "timestamp", pa.timestamp("ms"): "timestamp", pa.timestamp("us"): "timestamp",
}  # fmt: skip


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with outside() as found:
        yield found


def sources_of(database: Database, seconds: float = 60.0) -> Sources:
    found = PostgresTables(lambda name: database.reader, seconds)
    return Sources({"postgresql": found})


def declared(attributes: Sequence[JSON], name: str = "visits", **more: Any) -> TableSpec:
    source = {"type": "postgresql", "connection": "warehouse", "table": f"{SCHEMA}.{name}"}
    spec = parse_spec({**declare(attributes), "source": source, **more})
    assert isinstance(spec, TableSpec)
    return spec


def asked_counts(database: Database, attributes: Sequence[JSON], seconds: float = 60.0, **more: Any) -> AskedCounts:
    """What a table's records are asked by: every table is too wide."""
    found = sources_of(database, seconds)
    spec = declared(attributes, **more)
    data = found.register(spec).data
    assert isinstance(data, SourceData)
    shape = tuple(attribute.length for attribute in spec.attributes)
    return AskedCounts(shape, data.mass, found.asking(data), NOTHING_KEPT.of("x"))


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome, "MOST_COUNTED", 0)


def storable(value: Any) -> bool:
    """Whether PostgreSQL has such text."""
    return not isinstance(value, str) or "\0" not in value


def lay(database: Database, source: Any) -> None:
    """The records in a table, beside a column that nobody declares."""
    attributes, types, records, _ = source
    names = [attribute.get("column", attribute["name"]) for attribute in attributes]
    database.fill(
        [("not declared", "bytea"), *((name, TYPES[kind]) for name, kind in zip(names, types, strict=True))],
        [[b"x", *record] for record in records],
    )


@given(source=sources(), data=st.data())
def test_what_is_told_is_what_a_plain_loop_counts(database: Database, source: Any, data: st.DataObject) -> None:
    """All cells, and counts by classes, of any declaration; records outside refuse. Would catch a value that this
    engine places elsewhere than the other does, which passes the same test."""
    attributes, types, records, _ = source
    assume(all(kind in TYPES for kind in types))
    assume(all(storable(value) for record in records for value in record))
    lay(database, source)
    expected = plain.count(attributes, records)
    if expected.outside or not records:
        with pytest.raises(InvalidDataset) as refused:
            sources_of(database).register(declared(attributes))
        assert refused.value.extra == ({"outside": dict(expected.outside)} if expected.outside else {})
        return
    shape = tuple(plain.places(a) + bool(a.get("missing")) for a in attributes)
    entries = np.zeros(shape, np.int64)
    for cell, number in expected.cells.items():
        entries[cell] = number
    found = sources_of(database).register(declared(attributes))
    assert isinstance(found.data, DenseData)
    assert (found.data.array == entries).all()
    assert found.report.view()["clamped"] == expected.moved
    assume(math.prod(shape) <= 1 << 12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcome, "MOST_COUNTED", 0)
        patch.setattr("app.spaces.asked.MOST_WEIGHED", data.draw(st.sampled_from([0, 1 << 12])))
        patch.setattr("app.storage.sources.compiled._COMPARED", data.draw(st.sampled_from([0, 8])))
        counts = asked_counts(database, attributes)
        asked: list[Tally] = data.draw(st.lists(tallies(shape, (CellCounts, Contraction)), min_size=1, max_size=2))
        for tally, number in zip(asked, told(counts, *asked), strict=True):
            assert same(number, brute(tally, entries))


VISITS = [(ward, year) for ward, year in zip([0, 1, 2, 2] * 25, range(0, 6000, 60), strict=True)]


def visits(database: Database) -> None:
    database.fill([("ward", "integer"), ("year", "integer"), ("note", "text")], [(*visit, "x") for visit in VISITS])


TABLE = sql.Identifier(SCHEMA, "visits")
CHANGES = {
    "a record more": sql.SQL("INSERT INTO {} VALUES (1, 7, 'y')").format(TABLE),
    "a record less": sql.SQL("DELETE FROM {} WHERE year = 0").format(TABLE),
    "another value": sql.SQL("UPDATE {} SET ward = 1 - ward WHERE ward < 2 AND year = 0").format(TABLE),
    "two that change places": sql.SQL("UPDATE {} SET ward = 1 - ward WHERE year IN (0, 60)").format(TABLE),
    "a gap": sql.SQL("UPDATE {} SET ward = NULL WHERE year = 0").format(TABLE),
    "one beyond": sql.SQL("UPDATE {} SET ward = 77 WHERE year = 120").format(TABLE),
    "another type": sql.SQL("ALTER TABLE {} ALTER ward TYPE text").format(TABLE),
    "a column gone": sql.SQL("ALTER TABLE {} DROP COLUMN year").format(TABLE),
    "gone": sql.SQL("DROP TABLE {}").format(TABLE),
    "a view now": sql.SQL("ALTER TABLE {0} RENAME TO old; CREATE VIEW {0} AS SELECT * FROM {1}").format(
        TABLE, sql.Identifier(SCHEMA, "old")
    ),
}


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("what", CHANGES)
def test_records_that_moved_are_not_asked(database: Database, what: str) -> None:
    """And what was counted before still answers. Would catch other data under the old name."""
    visits(database)
    counts = asked_counts(database, [WARD, YEAR])
    before = told(counts, BY_WARD)[0]
    assert before.tolist() == [25, 25, 50]
    try:
        database.run(CHANGES[what])
        with pytest.raises(NotCounted) as lacking:
            counts.tell([OLD])
        with pytest.raises(SourceMoved):
            lacking.value.count()
        assert (told(counts, BY_WARD)[0] == before).all()
    finally:
        if what == "a view now":
            database.run(sql.SQL("DROP VIEW {}; DROP TABLE {}").format(TABLE, sql.Identifier(SCHEMA, "old")))


@pytest.mark.usefixtures("wide")
def test_what_answers_do_not_depend_on_may_change(database: Database) -> None:
    """The order of records, a column that nobody declares, and the table's files. Would catch a source that is refused
    after each clean-up of the database."""
    visits(database)
    counts = asked_counts(database, [WARD, YEAR])
    database.run(sql.SQL("UPDATE {} SET note = 'z'").format(TABLE))
    database.run(sql.SQL("VACUUM FULL {}").format(TABLE))
    database.run(sql.SQL("ALTER TABLE {} ADD COLUMN more integer").format(TABLE))
    assert told(counts, BY_WARD)[0].tolist() == [25, 25, 50]
    assert told(counts, SUM)[0].tolist() == [sum(y for w, y in VISITS if w == ward) for ward in range(3)]


@pytest.mark.usefixtures("wide")
def test_all_that_is_asked_at_once_is_of_one_state(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer commits between the look and the counts. Would catch counts of a state that nobody looked at."""
    visits(database)
    counts = asked_counts(database, [WARD, YEAR])
    honest = postgresql._Table.count

    def counting(self: Any, asked: CellCounts) -> Any:
        database.run(CHANGES["a record more"])
        return honest(self, asked)

    monkeypatch.setattr(postgresql._Table, "count", counting)
    assert told(counts, BY_WARD)[0].tolist() == [25, 25, 50]
    with pytest.raises(NotCounted) as lacking:
        counts.tell([OLD])
    with pytest.raises(SourceMoved):
        lacking.value.count()


REFUSED = {
    "no table": ("DROP TABLE {table}", "no such table"),
    "rights to write": ("GRANT INSERT ON {table} TO {role}", "may write"),
    "rights to write a column": ("GRANT UPDATE (year) ON {table} TO {role}", "may write"),
    "security by rows": ("ALTER TABLE {table} ENABLE ROW LEVEL SECURITY", "security by rows"),
    "a decimal": ("ALTER TABLE {table} ALTER year TYPE numeric", "needs a column of integers"),
    "no column": ("ALTER TABLE {table} DROP COLUMN ward", "has no column"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_counted_is_refused(database: Database, what: str) -> None:
    """With words that say what to change. Would catch a role that could change what is counted, and a table of which a
    policy hides records."""
    visits(database)
    database.run(sql.SQL(REFUSED[what][0]).format(table=TABLE, role=database.role))
    with pytest.raises(InvalidDataset, match=REFUSED[what][1]):
        sources_of(database).register(declared([WARD, YEAR]))


def test_too_many_categories_are_refused(database: Database) -> None:
    labels = [f"w{k}" for k in range(MOST_CATEGORIES + 1)]
    with pytest.raises(InvalidDataset, match="categories"):
        sources_of(database).register(declared([{"name": "ward", "values": labels}]))


@pytest.mark.usefixtures("wide")
def test_a_database_that_is_away_or_slow_is_told_apart(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    """As the two 503 that they are, without text of the engine or its secret; and both end in time."""
    visits(database)
    counts = asked_counts(database, [WARD, YEAR], seconds=0.3)
    lock = psycopg.connect(database.owner.info.dsn)
    lock.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(TABLE))
    try:
        with pytest.raises(NotCounted) as lacking:
            counts.tell([BY_WARD])
        began = time.monotonic()
        with pytest.raises(SourceUnavailable, match="longer than"):
            lacking.value.count()
        assert time.monotonic() - began < patience(5)
    finally:
        lock.close()
    away = PostgresTables(lambda name: "postgresql://zebra:quux-secret@127.0.0.1:1/none", 1.0)
    with structlog.testing.capture_logs() as logged, pytest.raises(SourceUnavailable) as refused:
        Sources({"postgresql": away}).register(declared([WARD]))
    assert not re.search("zebra|quux|refused on|127", refused.value.detail + str(logged) + caplog.text)


@pytest.mark.usefixtures("wide")
def test_a_value_that_the_engine_stumbles_over_is_told_nobody(database: Database) -> None:
    """A label that an array of the engine's does not take; and a record whose value its error would quote."""
    database.fill([("ward", "text")], [["zebra-quux"]])
    for labels in (["{", '"', "\\", "NULL", "%s", "a,b", "zebra-quux"], ["'; DROP TABLE x; --", "zebra-quux"]):
        spec = [{"name": "ward", "values": labels}]
        assert told(asked_counts(database, spec), CellCounts((0,), (None,), (len(labels),)))[0][-1] == 1
    with pytest.raises(InvalidDataset) as refused:
        sources_of(database).register(declared([{"name": "ward", "values": ["x"]}]))
    assert "zebra" not in refused.value.detail


def test_what_is_published_has_the_type_alone() -> None:
    """Would catch a descriptor with the name of a connection or a table, and one that cannot be read again."""
    spec = declared([{**WARD, "column": "secret-column"}])
    shown = written(published(spec))
    assert shown["source"] == {"type": "postgresql"}
    assert not any(private in str(shown) for private in ("secret", "warehouse", "clinic"))
    assert parse_spec(shown) == published(spec)


def test_many_ask_at_once(database: Database) -> None:
    """Each in a transaction of its own. Would catch a connection that two share."""
    visits(database)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcome, "MOST_COUNTED", 0)
        counts = [asked_counts(database, [WARD, YEAR]) for _ in range(4)]
    found: list[Any] = []
    threads = [threading.Thread(target=lambda c=c: found.append(told(c, BY_WARD)[0].tolist())) for c in counts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience(60))
    assert found == [[25, 25, 50]] * 4
