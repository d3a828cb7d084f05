"""Tables counted where they lie in an engine outside. The oracle is a plain loop over the records (`source_files.py`).

These would catch an engine that places a value elsewhere than another does, a table that is asked though it is not what
was registered, a role that could write, and text of the engine, or a secret, that anybody is told.
"""

from __future__ import annotations

import math
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime
from typing import Any

import numpy as np
import psutil
import psycopg
import pyarrow as pa
import pytest
import structlog
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from psycopg import sql

from app.declarations.errors import InvalidDataset
from app.declarations.spec import TableSpec, parse_spec, published, written
from app.services.errors import SourceMoved, SourceUnavailable
from app.spaces.asked import AskedCounts
from app.spaces.counts import CellCounts, Contraction, NotCounted, Tally
from app.storage.connection_urls import spark_address
from app.storage.kept_counts import NOTHING_KEPT
from app.storage.private_data import DenseData, SourceData
from app.storage.sources import (
    CountedSource,
    Moved,
    PostgresTables,
    Sources,
    SparkTables,
    compiled,
    complaints,
    outcome,
    postgresql,
)
from app.storage.sources import spark as spark_source
from tests.datasets import source_files as plain
from tests.datasets.outside import ENGINES, SCHEMA, Cluster, Database, Line, cluster, outside
from tests.datasets.source_files import JSON, declare
from tests.datasets.test_asked_sources import BY_WARD, OLD, SUM, WARD, YEAR, told
from tests.datasets.test_sources import sources
from tests.kit.patience import patience
from tests.questions.test_exact_counts import brute, same, tallies

pytestmark = [pytest.mark.unit, pytest.mark.slow]

Engine = Database | Cluster


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with ENGINES[request.param]() as found:
        yield found


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    with outside() as found:
        yield found


@pytest.fixture(scope="module")
def spark() -> Iterator[Cluster]:
    with cluster() as found:
        yield found


def sources_of(engine: Engine, seconds: float = 60.0) -> Sources:
    return Sources({engine.type: engine.tables(seconds)})


def declared(engine: Engine, attributes: Sequence[JSON], **more: Any) -> TableSpec:
    source = {"type": engine.type, "connection": "warehouse", "table": engine.table}
    spec = parse_spec({**declare(attributes), "source": source, **more})
    assert isinstance(spec, TableSpec)
    return spec


def asked_counts(engine: Engine, attributes: Sequence[JSON], seconds: float = 60.0) -> AskedCounts:
    """What a table's records are asked by, in so many seconds: every table is too wide."""
    spec = declared(engine, attributes)
    data = sources_of(engine).register(spec).data
    assert isinstance(data, SourceData)
    shape = tuple(attribute.length for attribute in spec.attributes)
    return AskedCounts(shape, data.mass, sources_of(engine, seconds).asking(data), NOTHING_KEPT.of("x"))


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome, "MOST_COUNTED", 0)


def columns_of(source: Any) -> dict[str, pa.Array]:
    """The records as columns, beside one that nobody declares."""
    attributes, types, records, _ = source
    columns = {"not declared": pa.array([b"x"] * len(records), pa.binary())}
    for axis, (attribute, kind) in enumerate(zip(attributes, types, strict=True)):
        columns[attribute.get("column", attribute["name"])] = pa.array([record[axis] for record in records], kind)
    return columns


def agree(engine: Engine, source: Any, data: st.DataObject) -> None:
    """What is told of such records is what a plain loop counts."""
    attributes, columns = source[0], columns_of(source)
    assume(engine.takes(columns, attributes))
    engine.lay(columns)
    as_a_plain_loop_counts(
        lambda: sources_of(engine).register(declared(engine, attributes)),
        lambda: asked_counts(engine, attributes),
        source,
        data,
    )


def as_a_plain_loop_counts(
    register: Callable[[], CountedSource], asking: Callable[[], AskedCounts], source: Any, data: st.DataObject
) -> None:
    """All cells, and counts by classes, are those of a plain loop; records outside refuse."""
    attributes, _, records, _ = source
    expected = plain.count(attributes, records)
    if expected.outside or not records:
        with pytest.raises(InvalidDataset) as refused:
            register()
        assert refused.value.extra == ({"outside": dict(expected.outside)} if expected.outside else {})
        return
    shape = tuple(plain.places(a) + bool(a.get("missing")) for a in attributes)
    entries = np.zeros(shape, np.int64)
    for cell, number in expected.cells.items():
        entries[cell] = number
    found = register()
    assert isinstance(found.data, DenseData)
    assert (found.data.array == entries).all()
    assert found.report.view()["clamped"] == expected.moved
    assume(math.prod(shape) <= 1 << 12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcome, "MOST_COUNTED", 0)
        patch.setattr("app.spaces.asked.MOST_WEIGHED", data.draw(st.sampled_from([0, 1 << 12])))
        patch.setattr("app.storage.sources.compiled._COMPARED", data.draw(st.sampled_from([0, 8])))
        counts = asking()
        asked: list[Tally] = data.draw(st.lists(tallies(shape, (CellCounts, Contraction)), min_size=1, max_size=2))
        for tally, number in zip(asked, told(counts, *asked), strict=True):
            assert same(number, brute(tally, entries))


@given(source=sources(), data=st.data())
def test_postgresql_tells_what_a_plain_loop_counts(database: Database, source: Any, data: st.DataObject) -> None:
    """Of any declaration. Would catch a value that this engine places elsewhere than another does, which passes the
    same test.
    """
    agree(database, source, data)


@settings(max_examples=8)
@given(source=sources(), data=st.data())
def test_spark_tells_what_a_plain_loop_counts(spark: Cluster, source: Any, data: st.DataObject) -> None:
    """The same; each example takes it a second. `make fuzz` draws others."""
    agree(spark, source, data)


#: An attribute of each kind, with values on its edges and far beyond them, which are clamped, and near one another.
HARD: list[tuple[JSON, Any, list[Any]]] = [
    ({"name": "word", "values": ["A", "a", "it's", "", "a "]}, pa.string(), ["a", "A", "a ", "", "it's", "a"]),
    ({"name": "code", "size": 2}, pa.uint64(), [0, 1, 1, 0, 1, 0]),
    ({"name": "bit", "size": 2}, pa.bool_(), [True, False, True, True, False, False]),
    ({"name": "truth", "values": ["true", "false"]}, pa.bool_(), [True, False, True, True, False, False]),
    ({"name": "age", "edges": [0, 0.1, 20], "outside": "clamp", "missing": True}, pa.float64(),
     [-1e300, 1e300, math.nan, None, -0.0, 0.1]),
    ({"name": "unit", "lower": -3, "upper": 0, "outside": "clamp"}, pa.int64(), [-(2**63), 2**63 - 1, -3, -1, 0, -2]),
    ({"name": "grid", "lower": -9, "upper": -1, "grid": 4, "outside": "clamp"}, pa.int8(), [-128, 127, -8, -7, -6, -3]),
    ({"name": "month", "dates": ["1999-12-31", "2000-02-29"], "by": "month", "outside": "clamp"}, pa.date32(),
     [date(1, 1, 1), date(9999, 12, 31), date(2000, 2, 29), date(2000, 1, 1), date(1999, 12, 1), date(2000, 3, 1)]),
    ({"name": "day", "dates": ["2000-02-28", "2000-03-01"], "by": "day", "outside": "clamp"}, pa.timestamp("us"),
     [datetime(2000, 2, day, 23, 59, 59, 999_999) for day in (27, 28, 29)]  # noqa: DTZ001 - none has a zone
     + [datetime(2000, 3, day) for day in (1, 2, 3)]),  # noqa: DTZ001
]  # fmt: skip


def test_values_on_edges_and_beyond(engine: Engine) -> None:
    """Of each kind of attribute at once, all cells and what is asked of each. Would catch words that are equal but for
    capitals or spaces, a value beyond that is clamped to the wrong end, and a day that is moved by a time of its zone.
    """
    attributes = [attribute for attribute, _, _ in HARD]
    exact = pa.uint64() if engine.type == "spark" else pa.int64()
    types = [exact if kind == pa.uint64() else kind for _, kind, _ in HARD]
    records = [list(record) for record in zip(*(values for _, _, values in HARD), strict=True)]
    engine.lay(columns_of((attributes, types, records, [])))
    expected = plain.count(attributes, records)
    assert not expected.outside
    entries = np.zeros([plain.places(a) + bool(a.get("missing")) for a in attributes], np.int64)
    for cell, number in expected.cells.items():
        entries[cell] = number
    found = sources_of(engine).register(declared(engine, attributes)).data
    assert isinstance(found, DenseData)
    assert (found.array == entries).all()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcome, "MOST_COUNTED", 0)
        counts = asked_counts(engine, attributes)
    asked = [CellCounts((axis,), (None,), (length,)) for axis, length in enumerate(entries.shape)]
    for axis, number in enumerate(told(counts, *asked)):
        assert number.tolist() == entries.sum(axis=tuple({*range(entries.ndim)} - {axis})).tolist()


INTEGER = pa.int32()
VISITS = [(ward, year) for ward, year in zip([0, 1, 2, 2] * 25, range(0, 6000, 60), strict=True)]


def columns(visits: Sequence[tuple[Any, Any]], kind: Any = INTEGER, note: str = "x") -> dict[str, pa.Array]:
    wards, years = zip(*visits, strict=True)
    return {"ward": pa.array(wards, kind), "year": pa.array(years, INTEGER), "note": pa.array([note] * len(visits))}


TABLE = sql.Identifier(SCHEMA, "visits")


def other(number: int, ward: Any) -> list[tuple[Any, Any]]:
    """The records, of which one has another ward."""
    return [*VISITS[:number], (ward, VISITS[number][1]), *VISITS[number + 1 :]]


#: What becomes of the table, by an engine's statement or of all its columns.
CHANGES: dict[str, Any] = {
    "a record more": columns([*VISITS, (1, 7)]),
    "a record less": columns(VISITS[1:]),
    "another value": columns(other(0, 1)),
    "two that change places": columns([(1, 0), (0, 60), *VISITS[2:]]),
    "a gap": columns(other(0, None)),
    "one beyond": columns(other(2, 77)),
    "another type": columns([(str(ward), year) for ward, year in VISITS], pa.string()),
    "a column gone": {"ward": columns(VISITS)["ward"]},
    "gone": {
        "postgresql": [sql.SQL("DROP TABLE {}").format(TABLE)],
        "spark": ["DROP TABLE {table}"],
    },
    "a view now": {
        "postgresql": [
            sql.SQL("ALTER TABLE {0} RENAME TO old; CREATE VIEW {0} AS SELECT * FROM {1}").format(
                TABLE, sql.Identifier(SCHEMA, "old")
            )
        ],
        "spark": ["ALTER TABLE {table} RENAME TO {schema}.old", "CREATE VIEW {table} AS SELECT * FROM {schema}.old"],
    },
}
BACK = {
    "postgresql": [sql.SQL("DROP VIEW {}; DROP TABLE {}").format(TABLE, sql.Identifier(SCHEMA, "old"))],
    "spark": ["DROP VIEW {table}", "DROP TABLE {schema}.old"],
}


def done(engine: Engine, statements: dict[str, Sequence[Any]]) -> None:
    for statement in statements[engine.type]:
        if isinstance(engine, Cluster):
            statement = statement.format(table=engine.table, schema=engine.schema)
        engine.run(statement)


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("what", CHANGES)
def test_records_that_moved_are_not_asked(engine: Engine, what: str) -> None:
    """And what was counted before still answers. Would catch other data under the old name."""
    engine.lay(columns(VISITS))
    counts = asked_counts(engine, [WARD, YEAR])
    before = told(counts, BY_WARD)[0]
    assert before.tolist() == [25, 25, 50]
    try:
        if engine.type in CHANGES[what]:
            done(engine, CHANGES[what])
        else:
            engine.lay(CHANGES[what])
        with pytest.raises(NotCounted) as lacking:
            counts.tell([OLD])
        with pytest.raises(SourceMoved):
            lacking.value.count()
        assert (told(counts, BY_WARD)[0] == before).all()
    finally:
        if what == "a view now":
            done(engine, BACK)


@pytest.mark.usefixtures("wide")
def test_what_answers_do_not_depend_on_may_change(engine: Engine) -> None:
    """The order of records, a column that nobody declares, and the table's files. Would catch a source that is refused
    after each clean-up of the database."""
    engine.lay(columns(VISITS))
    counts = asked_counts(engine, [WARD, YEAR])
    if isinstance(engine, Database):
        engine.run(sql.SQL("UPDATE {} SET note = 'z'").format(TABLE))
        engine.run(sql.SQL("VACUUM FULL {}").format(TABLE))
        engine.run(sql.SQL("ALTER TABLE {} ADD COLUMN more integer").format(TABLE))
    else:
        found = columns([*VISITS[::-1]], note="z")
        engine.lay({"more": found["ward"], **found})
    assert told(counts, BY_WARD)[0].tolist() == [25, 25, 50]
    assert told(counts, SUM)[0].tolist() == [sum(y for w, y in VISITS if w == ward) for ward in range(3)]


@pytest.mark.usefixtures("wide")
def test_all_that_is_asked_at_once_is_of_one_state(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer commits between the look and the counts. Would catch counts of a state that nobody looked at."""
    database.lay(columns(VISITS))
    counts = asked_counts(database, [WARD, YEAR])
    honest = postgresql._Table.count

    def counting(self: Any, asked: CellCounts) -> Any:
        database.run(sql.SQL("INSERT INTO {} VALUES (1, 7, 'y')").format(TABLE))
        return honest(self, asked)

    monkeypatch.setattr(postgresql._Table, "count", counting)
    assert told(counts, BY_WARD)[0].tolist() == [25, 25, 50]
    with pytest.raises(NotCounted) as lacking:
        counts.tell([OLD])
    with pytest.raises(SourceMoved):
        lacking.value.count()


@pytest.mark.parametrize("later", [False, True], ids=["registered", "asked"])
def test_what_is_written_meanwhile_is_found(spark: Cluster, monkeypatch: pytest.MonkeyPatch, later: bool) -> None:
    """A cluster has no state that stays: a writer comes between two of the queries that belong together. Would catch
    numbers of two states that are taken for one.
    """
    spark.lay(columns(VISITS))
    honest, times = spark_source._Table.count, []

    def counting(self: Any, *how: Any) -> Any:
        times.append(how)
        if len(times) == 1 + later:
            spark.run(f"INSERT INTO {spark.table} VALUES (1, 7, 'y')")
            list(self._session.batches(f"REFRESH TABLE {spark.table}"))  # else the session has files of before
        return honest(self, *how)

    spec = declared(spark, [WARD, YEAR])
    if not later:
        monkeypatch.setattr(spark_source._Table, "count", counting)
        with pytest.raises(InvalidDataset, match="written to"):
            sources_of(spark).register(spec)
        return
    monkeypatch.setattr(outcome, "MOST_COUNTED", 0)
    data = sources_of(spark).register(spec).data
    assert isinstance(data, SourceData)
    ask = spark.tables().asking(data.about.tobytes())
    assert ask([BY_WARD, BY_WARD]).tolist() == [25, 25, 50] * 2
    monkeypatch.setattr(spark_source._Table, "count", counting)
    with pytest.raises(Moved):
        ask([BY_WARD, BY_WARD])


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
    database.lay(columns(VISITS))
    database.run(sql.SQL(REFUSED[what][0]).format(table=TABLE, role=database.role))
    with pytest.raises(InvalidDataset, match=REFUSED[what][1]):
        sources_of(database).register(declared(database, [WARD, YEAR]))


ANEW = "DROP TABLE {table}; CREATE TABLE {table} USING parquet AS SELECT"
REFUSED_BY_SPARK = {
    "no table": ("DROP TABLE {table}", "no such table"),
    "a view": ("DROP TABLE {table}; CREATE VIEW {table} AS SELECT 1 AS ward, 2 AS year", "is a view"),
    "another format": ("DROP TABLE {table}; CREATE TABLE {table} USING csv AS SELECT 1 AS ward, 2 AS year", "Parquet"),
    "a time in a zone": (f"{ANEW} 1 AS ward, now() AS year", "needs a column of integers"),
    "a fraction": (f"{ANEW} 1 AS ward, 2.5 AS year", "needs a column of integers"),
    "text that is equal to other": (f"{ANEW} 1 AS ward, 'x' COLLATE UTF8_LCASE AS year", "needs a column of text"),
    "no column": (f"{ANEW} 2 AS year", "has no column"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED_BY_SPARK)
def test_what_spark_does_not_count_is_refused(spark: Cluster, what: str) -> None:
    """With words that say what to change. Would catch a view, whose records are whatever it makes of others."""
    spark.lay(columns(VISITS))
    try:
        for statement in REFUSED_BY_SPARK[what][0].split("; "):
            spark.run(statement.format(table=spark.table))
        attributes = [WARD, {"name": "year", "values": ["x"]} if "equal" in what else YEAR]
        with pytest.raises(
            InvalidDataset, match=REFUSED_BY_SPARK[what][1] if "equal" not in what else "needs a column"
        ):
            sources_of(spark).register(declared(spark, attributes))
    finally:
        if what == "a view":
            spark.run(f"DROP VIEW {spark.table}")


def test_too_many_categories_are_refused(engine: Engine) -> None:
    engine.lay(columns(VISITS))
    labels = [f"w{k}" for k in range(compiled.MOST_CATEGORIES + 1)]
    with pytest.raises(InvalidDataset, match="categories"):
        sources_of(engine).register(declared(engine, [{"name": "note", "values": labels}]))


@pytest.mark.usefixtures("wide")
def test_a_database_that_is_slow_is_told(database: Database) -> None:
    """It is one of the two 503, and ends in time."""
    database.lay(columns(VISITS))
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


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("how", ["silent", "late"])
def test_a_database_that_does_not_answer_in_time_is_left(
    database: Database, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Whatever it promises of each statement: one that says nothing more, without a word that the line is broken, and
    one that takes a while for each of many statements. Would catch a limit that the other side alone keeps, and one a
    statement, by which a question holds its place for ever."""
    line = Line(database.reader)
    database.lay(columns(VISITS))
    monkeypatch.setattr(database, "reader", line.url)
    try:
        counts = asked_counts(database, [WARD, YEAR], seconds=1.0)
        line.times, line.late = (4, 0.0) if how == "silent" else (math.inf, 0.3)
        for ask in (lambda: told(counts, BY_WARD), lambda: register_in_time(database)):
            began = time.monotonic()
            with pytest.raises(SourceUnavailable, match="longer than the 1 s"):
                ask()
            assert time.monotonic() - began < patience(5)
    finally:
        line.close()


def register_in_time(database: Database) -> None:
    sources_of(database, 1.0).register(declared(database, [WARD, YEAR]))


LETTERS: JSON = {"name": "ward", "values": ["é", "a", "Ã©"]}


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "UTF8"])
def test_text_is_the_same_whatever_a_database_is_encoded_in(encoding: str) -> None:
    """In place and prepared. Would catch bytes of one encoding that are read as another's: in Latin-1 the two letters
    "Ã©" are the two bytes of an "é" in UTF-8."""
    with outside(encoding) as database:
        database.lay({"ward": pa.array(["Ã©", "a", "Ã©", "é"] if encoding != "SQL_ASCII" else ["é", "a", "Ã©"])})
        for more in ({}, {"prepare": "vault"}):
            data = sources_of(database).register(declared(database, [LETTERS], **more)).data
            assert isinstance(data, DenseData)
            assert data.array.tolist() == ([1, 1, 2] if encoding != "SQL_ASCII" else [1, 1, 1])


def test_letters_that_a_database_has_not(caplog: Any) -> None:
    """Are refused, in categories and in names. Would catch an error of the driver's that nobody foresaw."""
    with outside("LATIN1") as database:
        database.lay({"ward": pa.array(["a"])})
        for spec in (declared(database, [{"name": "ward", "values": ["a", "Ł"]}]), declared(database, [WARD])):
            table = database.table if "values" in written(spec)["attributes"][0] else f"{SCHEMA}.Łódź"
            spec = spec.model_copy(update={"source": spec.source.model_copy(update={"table": table})})
            with pytest.raises(InvalidDataset, match="encoding"):
                sources_of(database).register(spec)


@pytest.mark.usefixtures("wide")
def test_a_cluster_that_is_slow_is_told_and_works_no_more(spark: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a question that keeps a cluster at work after nobody waits for it."""
    spark.lay(columns(VISITS))
    counts = asked_counts(spark, [WARD, YEAR], seconds=patience(3))
    endless = "SELECT id % 3, count(*), 1L, 1L, 1L, 1L FROM range(1000000000000000) GROUP BY 1"
    monkeypatch.setattr(compiled, "counts", lambda *how: endless)
    with pytest.raises(NotCounted) as lacking:
        counts.tell([BY_WARD])
    began = time.monotonic()
    with pytest.raises(SourceUnavailable, match="longer than"):
        lacking.value.count()
    assert time.monotonic() - began < 2 * patience(3)
    (java,) = [each for each in psutil.process_iter() if str(port_of(spark)) in ports(each)]
    deadline = time.monotonic() + patience(20)
    while busy(java) > 0.5:
        assert time.monotonic() < deadline, "it works on"


def port_of(spark: Cluster) -> int:
    return spark_address(spark.url).port


def ports(process: psutil.Process) -> str:
    """The ports that a process of Java listens on, as text."""
    try:
        if process.name() != "java":
            return ""
        return " ".join(str(each.laddr.port) for each in process.net_connections() if each.status == "LISTEN")
    except psutil.Error:
        return ""


def busy(process: psutil.Process) -> float:
    """Of a second how much of a processor it takes."""
    return process.cpu_percent(1.0) / 100


@pytest.mark.parametrize(("kind", "url"), [
    ("postgresql", "postgresql://zebra:quux-secret@127.0.0.1:1/none"), ("spark", "sc://127.0.0.1:1/;token=quux-secret")
])  # fmt: skip
def test_an_engine_that_is_away_is_told(kind: str, url: str, caplog: Any, capfd: Any) -> None:
    """As a 503, at once, without text of the engine or its secret."""
    found = {"postgresql": PostgresTables, "spark": SparkTables}[kind](lambda name: url, patience(30))
    source = {"type": kind, "connection": "warehouse", "table": "clinic.visits"}
    spec = parse_spec({**declare([WARD]), "source": source})
    began = time.monotonic()
    with structlog.testing.capture_logs() as logged, pytest.raises(SourceUnavailable) as refused:
        Sources({kind: found}).register(spec)  # type: ignore[arg-type]
    assert time.monotonic() - began < patience(5)
    said = refused.value.detail + str(logged) + caplog.text + "".join(capfd.readouterr())
    assert not re.search("zebra|quux|refused on|127", said)


def test_labels_are_no_text_of_a_query(engine: Engine) -> None:
    """Nor is a value outside of them in a refusal."""
    engine.lay({"ward": pa.array(["zebra-quux"])})
    for labels in (["{", '"', "\\", "NULL", "%s", "a,b", "zebra-quux"], ["'; DROP TABLE x; --", "zebra-quux"]):
        spec = [{"name": "ward", "values": labels}]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(outcome, "MOST_COUNTED", 0)
            assert told(asked_counts(engine, spec), CellCounts((0,), (None,), (len(labels),)))[0][-1] == 1
    with pytest.raises(InvalidDataset) as refused:
        sources_of(engine).register(declared(engine, [{"name": "ward", "values": ["x"]}]))
    assert "zebra" not in refused.value.detail


def test_a_value_that_the_engine_stumbles_over_is_told_nobody(engine: Engine, caplog: Any, capfd: Any) -> None:
    """Its own error quotes the record, as a first look shows. Would catch words of an engine in a refusal, or in a log
    of the server's or of a library's.
    """
    engine.lay({"ward": pa.array(["zebra-quux"])})
    stumbling = "SELECT CAST(ward AS INT) AS n FROM {}"
    table = sql.Identifier(SCHEMA, "visits").as_string() if isinstance(engine, Database) else engine.table
    with pytest.raises(Exception, match="zebra-quux"):
        engine.run(stumbling.format(table))
    caplog.clear()
    capfd.readouterr()
    with pytest.MonkeyPatch.context() as patch, structlog.testing.capture_logs() as logged:
        patch.setattr(compiled, "survey", lambda *how: stumbling.format(table.replace("%", "%%")))
        with pytest.raises(SourceUnavailable) as refused:
            sources_of(engine).register(declared(engine, [{"name": "ward", "values": ["x"]}]))
    said = refused.value.detail + str(refused.value.extra) + str(logged) + caplog.text + "".join(capfd.readouterr())
    assert "cannot be asked" in said
    assert "zebra" not in said
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


@pytest.mark.usefixtures("wide")
def test_sums_hold_62_bits_and_overflow_is_an_error(engine: Engine) -> None:
    """The largest sum that a capacity allows; and one that has no 64 bits is no number. Would catch sums that wrap
    around, as Spark's do without ANSI mode.
    """
    engine.lay(columns([(0, 0), (1, 1), (1, 1), (1, 1), (1, 1)]))
    data = sources_of(engine).register(declared(engine, [WARD, YEAR])).data
    assert isinstance(data, SourceData)
    ask = engine.tables().asking(data.about.tobytes())
    largest = np.array([0, 2**60 - 1, 5])
    assert ask([CellCounts((), (), (), factors=((0, largest),))]).tolist() == [2**62 - 4]
    beyond = CellCounts((), (), (), factors=((0, np.array([0, 2**62, 0])),))
    with pytest.raises(SourceUnavailable):
        ask([beyond])


def test_a_cluster_whose_sums_wrap_is_not_asked(spark: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that keeps ANSI mode off, as is seen after it was set. Would catch a setting that is not heeded."""
    spark.lay(columns(VISITS))
    monkeypatch.setitem(spark_source._SETTINGS, "spark.sql.ansi.enabled", "false")
    with pytest.raises(SourceUnavailable, match=r"spark\.sql\.ansi\.enabled"):
        sources_of(spark).register(declared(spark, [WARD, YEAR]))
    assert ["ANSI" in each for each in complaints(spark.url)] == [True]
    monkeypatch.undo()
    assert complaints(spark.url) == []
    (away,) = complaints(spark.url.replace("quux-token", "zebra"))
    assert "token" in away
    assert "zebra" not in away


def test_sessions_are_left_behind_nowhere(spark: Cluster) -> None:
    """Would catch a cluster that keeps one for each question, an hour long."""
    with spark_source._Session(spark.url, 60) as left:
        pass
    with spark_source._Session(spark.url, 60) as another:
        another._who, own = left._who, another._who
        with pytest.raises(Exception, match="SESSION_CLOSED"):
            list(another.batches("SELECT 1"))
        another._who = own


def test_a_server_without_the_client_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch a fault of the server where the extra was not asked for."""
    monkeypatch.setitem(sys.modules, "pyspark.sql.connect", None)
    spark_source._library.cache_clear()
    url = "sc://127.0.0.1:1/"
    source = {"type": "spark", "connection": "warehouse", "table": "clinic.visits"}
    spec = parse_spec({**declare([WARD]), "source": source})
    with pytest.raises(SourceUnavailable, match=r"curator-server\[spark\]"):
        Sources({"spark": SparkTables(lambda name: url, 1.0)}).register(spec)  # type: ignore[arg-type]
    assert ["extra spark" in each for each in complaints(url)] == [True]


@pytest.mark.usefixtures("wide")
def test_nothing_of_a_table_is_left_out_by_what_is_asked(spark: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of no query does the plan have a filter, of rows, files or parts of them, or an answer from statistics; of a
    table that is partitioned and has statistics. Planted, a filter is found.
    """
    spark.lay(columns(VISITS))
    spark.run(f"CREATE TABLE {spark.schema}.parts USING parquet PARTITIONED BY (ward) AS SELECT * FROM {spark.table}")
    monkeypatch.setattr(spark, "table", f"{spark.schema}.parts")
    spark.run(f"ANALYZE TABLE {spark.table} COMPUTE STATISTICS FOR ALL COLUMNS")
    texts: list[str] = []
    honest = spark_source._Session.numbers

    def telling(self: Any, query: str, width: int) -> Any:
        texts.append(query)
        return honest(self, query, width)

    monkeypatch.setattr(spark_source._Session, "numbers", telling)
    told(asked_counts(spark, [WARD, YEAR]), OLD, SUM, Contraction((None, None)))
    assert len(texts) > 2

    def plan(query: str) -> str:
        with spark_source._Session(spark.url, 60) as session:
            return str(pa.Table.from_batches(session.batches(f"EXPLAIN {query}")).column(0).to_pylist())

    for query in texts:
        found = plan(query)
        assert "FileScan parquet" in found
        assert not re.search(r"Filter \(|(Filters|PushedAggregation): \[[^\]]|LocalTableScan", found)
    assert re.search(r"(Filters|PushedFilters): \[[^\]]", plan(f"SELECT count(*) FROM {spark.table} WHERE ward = 1"))


@pytest.mark.parametrize("kind", ENGINES)
def test_what_is_published_has_the_type_alone(kind: str) -> None:
    """Would catch a descriptor with the name of a connection or a table, and one that cannot be read again."""
    source = {"type": kind, "connection": "warehouse", "table": "clinic.visits"}
    spec = parse_spec({**declare([{**WARD, "column": "secret-column"}]), "source": source})
    shown = written(published(spec))
    assert shown["source"] == {"type": kind}
    assert not any(private in str(shown) for private in ("secret", "warehouse", "clinic"))
    assert parse_spec(shown) == published(spec)


def test_many_ask_at_once(engine: Engine) -> None:
    """Each in a transaction or a session of its own. Would catch a connection that two share."""
    engine.lay(columns(VISITS))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcome, "MOST_COUNTED", 0)
        counts = [asked_counts(engine, [WARD, YEAR]) for _ in range(4)]
    found: list[Any] = []
    threads = [threading.Thread(target=lambda c=c: found.append(told(c, BY_WARD)[0].tolist())) for c in counts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience(60))
    assert found == [[25, 25, 50]] * 4
