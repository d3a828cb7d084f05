"""Tables counted where they lie in BigQuery, Snowflake and Trino. The oracle is a plain loop over the records
(`source_files.py`).

The engines are acted by DuckDB (`translated.py`), BigQuery and Trino behind their own drivers (`acted.py`). With
`TRY_BIGQUERY`, `TRY_SNOWFLAKE` or `TRY_TRINO` set to a URL and a schema, with a space between, the same tests ask a
real one, and write tables into that schema.

They would catch text that means something else in an engine's words, a name or a label that is text of a query, a
table that is asked though it is not what was registered, and text of the engine that anybody is told.
"""

from __future__ import annotations

import datetime
import math
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import structlog
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from sqlglot import exp

from app.declarations.errors import InvalidDataset
from app.declarations.spec import TableSpec, parse_spec, published, written
from app.services.errors import SourceMoved, SourceUnavailable
from app.spaces.asked import AskedCounts
from app.spaces.counts import CellCounts, NotCounted
from app.storage.kept_counts import NOTHING_KEPT
from app.storage.private_data import DenseData, SourceData
from app.storage.sources import WAREHOUSES, Sources, WarehouseTables, outcome, warehouses
from app.storage.sources.compiled import MOST_CATEGORIES
from app.storage.sources.drivers import DRIVERS, Driver, Place
from tests.datasets.acted import acted
from tests.datasets.source_files import HOSTILE, JSON, declare
from tests.datasets.test_asked_sources import BY_WARD, WARD, told
from tests.datasets.test_sources import sources
from tests.datasets.test_tables_outside import as_a_plain_loop_counts
from tests.datasets.translated import Translating

pytestmark = [pytest.mark.contract, pytest.mark.slow]

_WHOLE = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32())
_TIMES = (pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"))
TYPES: dict[str, dict[Any, str]] = {
    "bigquery": {
        **dict.fromkeys(_WHOLE, "INT64"), **dict.fromkeys(_TIMES, "DATETIME"), pa.float32(): "FLOAT64",
        pa.float64(): "FLOAT64", pa.string(): "STRING", pa.bool_(): "BOOL", pa.date32(): "DATE",
    },
    "snowflake": {
        **dict.fromkeys(_WHOLE, "NUMBER(38, 0)"), **dict.fromkeys(_TIMES, "TIMESTAMP_NTZ"), pa.float32(): "DOUBLE",
        pa.float64(): "DOUBLE", pa.string(): "VARCHAR", pa.bool_(): "BOOLEAN", pa.date32(): "DATE",
    },
    "trino": {
        **dict.fromkeys(_WHOLE, "DECIMAL(18, 0)"), pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INTEGER",
        pa.int64(): "BIGINT", **dict.fromkeys(_TIMES, "TIMESTAMP(6)"), pa.float32(): "REAL", pa.float64(): "DOUBLE",
        pa.string(): "VARCHAR", pa.bool_(): "BOOLEAN", pa.date32(): "DATE",
    },
}  # fmt: skip


@dataclass
class Trial:
    """An engine, acted or real, with a schema to write to."""

    engine: str
    url: str
    schema: str
    driver: Driver
    acted: bool

    @property
    def place(self) -> Place:
        return Place.of(self.url)

    def quoted(self, *names: str) -> str:
        return ".".join(exp.to_identifier(name, quoted=True).sql(self.engine) for name in names)

    def table(self, name: str = "visits") -> str:
        return self.quoted(self.place.database, self.schema, name)

    def run(self, text: str) -> None:
        """A statement, in which {table} is the table."""
        connection = self.driver.connect(self.place, 600.0)
        cursor = connection.cursor()
        self.driver.execute(cursor, text.replace("{table}", self.table()), 600.0)
        cursor.fetchmany(1)
        cursor.close()
        connection.close()

    def literal(self, value: Any, kind: str) -> str:
        if value is None:
            return "NULL"
        if isinstance(value, str):
            return exp.Literal.string(value).sql(self.engine)
        word = str(value).lower() if isinstance(value, bool) else str(value)
        if isinstance(value, float) and not math.isfinite(value):
            word = "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"
            word = word.replace("inity", "") if self.engine != "trino" else word
        return f"CAST('{word}' AS {kind})"

    def fill(self, columns: Sequence[tuple[str, str]], records: Sequence[Sequence[Any]], name: str = "visits") -> None:
        """A table with these columns and records."""
        self.run(f"DROP TABLE IF EXISTS {self.table(name)}")
        fields = ", ".join(f"{self.quoted(column)} {kind}" for column, kind in columns)
        self.run(f"CREATE TABLE {self.table(name)} ({fields})")
        rows = [
            f"({', '.join(self.literal(value, kind) for value, (_, kind) in zip(record, columns, strict=True))})"
            for record in records
        ]
        for first in range(0, len(rows), 500):
            self.run(f"INSERT INTO {self.table(name)} VALUES {', '.join(rows[first : first + 500])}")

    def takes(self, name: str) -> bool:
        """Whether a column may be called so, in a real engine."""
        if self.acted:
            # Of a point within a name sqlglot makes two names, and there is none in BigQuery.
            return self.engine != "bigquery" or "." not in name
        return name.isprintable() and (self.engine != "bigquery" or not set(name) & set('!"$()*,./;?@[\\]^`{}~'))


@pytest.fixture(scope="module", params=WAREHOUSES)
def trial(request: pytest.FixtureRequest) -> Iterator[Trial]:
    engine = request.param
    if told := os.environ.get(f"TRY_{engine.upper()}"):
        url, schema = told.split(" ")
        yield Trial(engine, url, schema, DRIVERS[engine], acted=False)
        return
    schema, driver = "clinic %s %%", Translating(engine, ["lake %s"])
    with ExitStack() as stack:
        if engine == "snowflake":
            found = Trial(engine, "snowflake://u:p@snowflake.example.org/lake%20%25s", schema, driver, acted=True)
        else:
            _, url = stack.enter_context(acted(driver, "lake %s"))
            found = Trial(engine, url, schema, DRIVERS[engine], acted=True)
        found.run(f"CREATE SCHEMA {found.quoted(found.place.database, schema)}")
        yield found


def sources_of(trial: Trial, seconds: float = 600.0, untried: Sequence[str] = WAREHOUSES) -> Sources:
    tables = WarehouseTables(lambda name, type: trial.url, seconds, untried, {trial.engine: trial.driver})
    return Sources({trial.engine: tables})


def declared(trial: Trial, attributes: Sequence[JSON], name: str = "visits", **more: Any) -> TableSpec:
    source = {"type": trial.engine, "connection": "warehouse", "table": f"{trial.schema}.{name}"}
    spec = parse_spec({**declare(attributes), "source": source, **more})
    assert isinstance(spec, TableSpec)
    return spec


def asked_counts(trial: Trial, attributes: Sequence[JSON], seconds: float = 600.0) -> AskedCounts:
    """What a table's records are asked by: every table is too wide."""
    found = sources_of(trial, seconds)
    spec = declared(trial, attributes)
    data = found.register(spec).data
    assert isinstance(data, SourceData)
    shape = tuple(attribute.length for attribute in spec.attributes)
    return AskedCounts(shape, data.mass, found.asking(data), NOTHING_KEPT.of("x"))


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outcome, "MOST_COUNTED", 0)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much], max_examples=40, deadline=None)
@given(source=sources(), data=st.data())
def test_what_is_told_is_what_a_plain_loop_counts(trial: Trial, source: Any, data: st.DataObject) -> None:
    """All cells, and counts by classes, of any declaration; records outside refuse. Would catch a value that these
    words place elsewhere than the loop does, and a name or a label that is read as text of a query."""
    attributes, types, records, _ = source
    names = [attribute.get("column", attribute["name"]) for attribute in attributes]
    assume(all(kind in TYPES[trial.engine] for kind in types) and all(map(trial.takes, names)))
    assume(not any(isinstance(value, str) and "\0" in value for record in records for value in record))
    columns = [(name, TYPES[trial.engine][kind]) for name, kind in zip(names, types, strict=True)]
    trial.fill([("not declared", columns[0][1]), *columns], [[None, *record] for record in records])
    as_a_plain_loop_counts(
        lambda: sources_of(trial).register(declared(trial, attributes)),
        lambda: asked_counts(trial, attributes),
        source,
        data,
    )


def test_a_name_and_a_label_are_no_text_of_a_query(trial: Trial) -> None:
    """Whatever signs they have; and a label is none of another column's words. Would catch a quotation mark, a backtick
    or a backslash that ends a name, and a percent sign that a driver takes for its own."""
    kind = TYPES[trial.engine][pa.string()]
    expected = np.zeros((3, 3), np.int64)
    expected[1, 0] = expected[1, 2] = expected[0, 1] = 1
    # No column can have one of the other names.
    for name in filter(trial.takes, [*HOSTILE, "%%", "`", "\\`", '\\"', "a`b", "; DROP TABLE visits; --", "\\'"]):
        trial.fill([(name, kind), (f"{name} 2", kind)], [[name, "x"], [name, name + "'"], ["x", name]])
        labels = list(dict.fromkeys(["x", name, name + "'"]))
        spec = declared(trial, [{"name": name, "values": labels}, {"name": f"{name} 2", "values": labels}])
        found = sources_of(trial).register(spec).data
        assert isinstance(found, DenseData)
        assert (found.array == expected).all(), name


#: Of fewer years than others ask of: here a list of them is text.
YEAR = {"name": "year", "size": 4000}
OLD = CellCounts((0,), (None,), (3,), where=((1, slice(2000, 4000)),))
SUM = CellCounts((0,), (None,), (3,), factors=((1, np.arange(4000)),))
VISITS = [(ward, year) for ward, year in zip([0, 1, 2, 2] * 25, range(0, 4000, 40), strict=True)]


def visits(trial: Trial) -> None:
    whole, text = TYPES[trial.engine][pa.int64()], TYPES[trial.engine][pa.string()]
    trial.fill([("ward", whole), ("year", whole), ("note", text)], [(*visit, "x") for visit in VISITS])


CHANGES = {
    "a record more": "INSERT INTO {table} VALUES (1, 7, 'y')",
    "a record less": "DELETE FROM {table} WHERE {year} = 0",
    "another value": "UPDATE {table} SET {ward} = 1 - {ward} WHERE {ward} < 2 AND {year} = 0",
    "two that change places": "UPDATE {table} SET {ward} = 1 - {ward} WHERE {year} IN (0, 40)",
    "a gap": "UPDATE {table} SET {ward} = NULL WHERE {year} = 0",
    "one beyond": "UPDATE {table} SET {ward} = 77 WHERE {year} = 120",
    "a column gone": "ALTER TABLE {table} DROP COLUMN {year}",
    "gone": "DROP TABLE {table}",
}


def changed(trial: Trial, what: str) -> None:
    text = CHANGES[what].replace("{year}", trial.quoted("year")).replace("{ward}", trial.quoted("ward"))
    trial.run(text)


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("what", CHANGES)
def test_records_that_moved_are_not_asked(trial: Trial, what: str) -> None:
    """And what was counted before still answers. Would catch other data under the old name."""
    visits(trial)
    counts = asked_counts(trial, [WARD, YEAR])
    before = told(counts, BY_WARD)[0]
    assert before.tolist() == [25, 25, 50]
    changed(trial, what)
    with pytest.raises(NotCounted) as lacking:
        counts.tell([OLD])
    with pytest.raises(SourceMoved):
        lacking.value.count()
    assert (told(counts, BY_WARD)[0] == before).all()


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("step", ["count", "identity"])
def test_records_that_move_while_they_are_counted_are_not_told(
    trial: Trial, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A writer commits after the first look: no transaction keeps it out. Would catch counts of a state that nobody
    looked at, and two looks of which one is left out."""
    visits(trial)
    counts = asked_counts(trial, [WARD, YEAR])
    honest = getattr(warehouses._Table, step)

    def stepping(self: Any, asked: Any) -> Any:
        found = honest(self, asked)
        monkeypatch.setattr(warehouses._Table, step, honest)
        changed(trial, "two that change places")
        return found

    monkeypatch.setattr(warehouses._Table, step, stepping)
    with pytest.raises(NotCounted) as lacking:
        counts.tell([BY_WARD])
    with pytest.raises(SourceMoved):
        lacking.value.count()
    changed(trial, "two that change places")
    assert told(counts, BY_WARD)[0].tolist() == [25, 25, 50]


def test_what_records_are_known_by_is_what_python_adds_up(trial: Trial) -> None:
    """Would catch engines of which each has sums of its own, a key that does nothing, and a place that is left out."""
    visits(trial)
    keys = [12345678901234567, 7]
    with warehouses._connected(trial.driver, trial.place, 600.0) as session:
        table = warehouses._Table(session, declared(trial, [WARD, YEAR]), trial.place, trial.schema, "visits")
        found = table.identity(keys)
    hashes = [[sha256(f"{key},{ward},{year}".encode()).hexdigest()[:15] for ward, year in VISITS] for key in keys]
    assert found == [len(VISITS), *(sum(int(digits, 16) for digits in each) for each in hashes)]


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("what", ["a gap", "one beyond"])
def test_a_record_outside_is_in_one_class(trial: Trial, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Though nobody sees that it is there: an expression bounds what a record counts, and no look does. Would catch a
    record that is in no class, one that weighs more, and an engine's error that tells of it."""
    visits(trial)
    monkeypatch.setattr(warehouses._Table, "identity", lambda self, keys: [len(VISITS), 0, 0])
    counts = asked_counts(trial, [WARD, YEAR])
    changed(trial, what)
    # A gap was in the first ward and stays there; what is beyond was in the last one.
    assert told(counts, BY_WARD)[0].tolist() == [25, 25, 50]
    assert told(counts, SUM)[0].tolist() == [sum(y for w, y in VISITS if w == ward) for ward in range(3)]


def test_records_that_move_while_they_are_registered_are_refused(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch counts of one state with the identity of another."""
    visits(trial)
    honest = warehouses._Table.survey

    def surveying(self: Any, report: Any) -> Any:
        found = honest(self, report)
        changed(trial, "another value")
        return found

    monkeypatch.setattr(warehouses._Table, "survey", surveying)
    with pytest.raises(SourceUnavailable, match="changed"):
        sources_of(trial).register(declared(trial, [WARD, YEAR]))


@pytest.mark.usefixtures("wide")
def test_what_answers_do_not_depend_on_may_change(trial: Trial) -> None:
    """The order of records, and a column that nobody declares. Would catch a source that is refused after each
    clean-up of the database."""
    visits(trial)
    counts = asked_counts(trial, [WARD, YEAR])
    whole, text = TYPES[trial.engine][pa.int64()], TYPES[trial.engine][pa.string()]
    trial.fill([("year", whole), ("note", text), ("ward", whole)], [(y, "z", w) for w, y in reversed(VISITS)])
    assert told(counts, BY_WARD)[0].tolist() == [25, 25, 50]
    assert told(counts, SUM)[0].tolist() == [sum(y for w, y in VISITS if w == ward) for ward in range(3)]


@pytest.mark.usefixtures("wide")
def test_sums_up_to_what_64_bits_hold(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact at the edge, and refused beyond it. Would catch a sum that is rounded or that wraps."""
    monkeypatch.setattr("app.spaces.asked.MOST_WEIGHED", 0)
    whole = TYPES[trial.engine][pa.int64()]
    trial.fill([("ward", whole), ("year", whole)], [(0, 1), (0, 2), (1, 3), (1, 3)])
    counts = asked_counts(trial, [WARD, {"name": "year", "size": 4}])
    weights = np.array([0, 2**62, 2**62 - 1, 2**62])
    most = CellCounts((0,), (None,), (3,), factors=((1, weights),))
    with pytest.raises(NotCounted) as lacking:
        counts.tell([most])
    with pytest.raises(SourceUnavailable):
        lacking.value.count()
    trial.fill([("ward", whole), ("year", whole)], [(0, 1), (0, 2), (1, 3), (1, 0)])
    counts = asked_counts(trial, [WARD, {"name": "year", "size": 4}])
    assert told(counts, most)[0].tolist() == [2**63 - 1, 2**62, 0]


@pytest.mark.usefixtures("wide")
def test_a_large_step_divides_exactly(trial: Trial) -> None:
    """Would catch a quotient that is rounded, as 2.9999999 is to 3 where six digits are kept."""
    step, whole = 4 * 10**9, TYPES[trial.engine][pa.int64()]
    values = [0, step // 2 - 1, step // 2, step + step // 2 - 1, step + step // 2, 2 * step + step // 2 - 1, 3 * step]
    trial.fill([("ward", whole)], [[value] for value in values])
    grid = {"name": "ward", "lower": 0, "upper": 3 * step, "grid": step}
    counts = asked_counts(trial, [grid])
    assert told(counts, CellCounts((0,), (None,), (4,)))[0].tolist() == [2, 2, 2, 1]


REFUSED = {
    "no table": ([WARD], "gone", "no such table"),
    "no column": ([{"name": "floor", "size": 3}], None, "has no column"),
    "text for codes": ([{"name": "note", "size": 3}], None, "needs a column of integers"),
    "nothing that is prepared": ([WARD], "prepare", "leave prepare out"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_counted_is_refused(trial: Trial, what: str) -> None:
    """With words that say what to change."""
    visits(trial)
    attributes, how, words = REFUSED[what]
    if how == "gone":
        changed(trial, "gone")
    with pytest.raises(InvalidDataset, match=words):
        sources_of(trial).register(declared(trial, attributes, **({"prepare": "vault"} if how == "prepare" else {})))


def test_a_view_is_refused(trial: Trial) -> None:
    """Would catch a query of anybody's that is run in the place of a table."""
    visits(trial)
    name = f"seen_{uuid.uuid4().hex}"
    trial.run(f"CREATE VIEW {trial.table(name)} AS SELECT * FROM {trial.table()}")
    try:
        with pytest.raises(InvalidDataset, match="a view"):
            sources_of(trial).register(declared(trial, [WARD], name=name))
    finally:
        trial.run(f"DROP VIEW {trial.table(name)}")


def test_an_engine_that_the_operator_did_not_name_is_refused(trial: Trial) -> None:
    """With the setting that names it. Would catch a promise that nobody has tried."""
    visits(trial)
    others = [engine for engine in WAREHOUSES if engine != trial.engine]
    with pytest.raises(InvalidDataset, match=r"nobody has tried .* CURATOR_UNTRIED_ENGINES"):
        sources_of(trial, untried=others).register(declared(trial, [WARD]))


def test_what_tells_too_many_apart_is_refused(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is asked: a list of them is text of a query, of which engines take a million signs."""
    visits(trial)
    labels = [f"w{k}" for k in range(MOST_CATEGORIES + 1)]
    with pytest.raises(InvalidDataset, match="categories"):
        sources_of(trial).register(declared(trial, [{"name": "note", "values": labels}]))
    monkeypatch.setattr(outcome, "MOST_COUNTED", 0)
    with pytest.raises(InvalidDataset, match="told apart there"):
        sources_of(trial).register(declared(trial, [{"name": "year", "size": MOST_CATEGORIES + 1}]))


def test_what_is_published_has_the_type_alone(trial: Trial) -> None:
    """Would catch a descriptor with the name of a connection or a table, and one that cannot be read again."""
    spec = declared(trial, [{**WARD, "column": "secret-column"}])
    shown = written(published(spec))
    assert shown["source"] == {"type": trial.engine}
    assert not any(private in str(shown) for private in ("secret", "warehouse", "clinic"))
    assert parse_spec(shown) == published(spec)


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize(
    "bad",
    [
        1.0,
        "1",
        True,
        None,
        float("nan"),
        datetime.date(2020, 1, 1),
        2**63,
        Decimal(2**63),
        Decimal("1.5"),
        Decimal("NaN"),
    ],
)
def test_what_is_no_whole_number_is_refused_unread(trial: Trial, monkeypatch: pytest.MonkeyPatch, bad: Any) -> None:
    """Whatever an engine tells in the place of a number of 64 bits. Would catch one that is rounded, wraps or is
    believed."""
    visits(trial)
    counts = asked_counts(trial, [WARD, YEAR])
    honest = warehouses._Session.rows

    def lying(self: Any, text: str) -> Iterator[list[Sequence[Any]]]:
        for rows in honest(self, text):
            yield [(*row[:-1], bad) if "AS cell" in text else row for row in rows]

    monkeypatch.setattr(warehouses._Session, "rows", lying)
    with pytest.raises(NotCounted) as lacking:
        counts.tell([SUM])
    with structlog.testing.capture_logs() as logged, pytest.raises(SourceUnavailable):
        lacking.value.count()
    assert [line["error"] for line in logged if "error" in line] == ["Damaged"]


class _Breaking(Driver):
    """An engine that says what nobody may be told, or nothing for a while."""

    extra = "broken"

    def __init__(self, honest: Driver, after: int, wait: float = 0.0) -> None:
        self._honest, self._after, self._wait = honest, after, wait

    def connect(self, place: Place, seconds: float) -> Any:
        connection = self._honest.connect(place, seconds)
        self._ask(seconds)
        return connection

    def execute(self, cursor: Any, text: str, seconds: float) -> None:
        self._ask(seconds)
        self._honest.execute(cursor, text, seconds)

    def _ask(self, seconds: float) -> None:
        self._after -= 1
        if self._after == 0:
            time.sleep(self._wait)
            raise OSError("zebra quux-secret 42")


@pytest.mark.usefixtures("wide")
@pytest.mark.parametrize("after", range(1, 5))
def test_what_a_driver_says_is_told_nobody(trial: Trial, after: int, caplog: pytest.LogCaptureFixture) -> None:
    """At whatever step it fails: a 503, and a line with the class of the error."""
    visits(trial)
    broken = _Breaking(trial.driver, after)
    tables = WarehouseTables(lambda name, type: trial.url, 60.0, WAREHOUSES, {trial.engine: broken})
    with structlog.testing.capture_logs() as logged, pytest.raises(SourceUnavailable) as refused:
        Sources({trial.engine: tables}).register(declared(trial, [WARD]))
    assert [line["error"] for line in logged] == ["OSError"]
    assert "zebra" not in refused.value.detail + str(logged) + caplog.text
    assert refused.value.__cause__ is None
    slow = _Breaking(trial.driver, after, 1)
    late = WarehouseTables(lambda name, type: trial.url, 0.2, WAREHOUSES, {trial.engine: slow})
    with pytest.raises(SourceUnavailable, match=r"longer than the 0\.2 s"):
        Sources({trial.engine: late}).register(declared(trial, [WARD]))
