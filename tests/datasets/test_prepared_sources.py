"""Sources that are read once and kept (`prepare`). The oracle is the upload of the same records.

These would catch a record that is read otherwise than an upload's, a person of whom more is kept than declared, files
or tables that are asked again later, and a secret that is kept or told.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from psycopg import sql

from app.bootstrap.reader_process import ProcessReaders
from app.declarations.errors import InvalidDataset
from app.declarations.spec import TableSpec, parse_spec, published, written
from app.storage.private_data import DenseData, RecordsData
from app.storage.readers import read_private, tables
from app.storage.sources import CountedSource, ParquetFolders, Sources, compiled, files, parquet
from tests.datasets.outside import ENGINES, SCHEMA, Cluster, Database
from tests.datasets.source_files import BUDGET, JSON, declare, write
from tests.datasets.test_connections import KEY, added
from tests.datasets.test_connections import hosts as hosts
from tests.datasets.test_connections import url as url
from tests.datasets.test_sources import MEMORY, lay, sources, table
from tests.datasets.test_tables_outside import columns_of
from tests.datasets.test_tables_outside import database as database
from tests.datasets.test_tables_outside import engine as engine
from tests.datasets.test_tables_outside import spark as spark
from tests.kit.noise import Noise
from tests.kit.service import Service, ask, serving, unique, where

pytestmark = [pytest.mark.unit, pytest.mark.slow]

#: Visits of patients: whose they are, the ward as text, some of which is no ward, and the days.
PATIENTS = [f"p{number}" for number in (1, 1, 1, 1, 2, 2, 3, 4, 4, 5)]
WARDS = ["north", "north", "south", "?", "south", "north", "south", "n/a", "north", "east"]
DAYS = [1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 40.0, 8.0, 9.0, 10.0]
ATTRIBUTES: list[JSON] = [
    {"name": "ward", "values": ["north", "south"], "column": "Ward of stay", "missing": True, "outside": "drop"},
    {"name": "days", "lower": 0, "upper": 30, "grid": 0.5, "outside": "clamp"},
]
DECLARED: JSON = {"null_values": ["n/a"], "unit": {"column": "patient", "max_records": 2}, "prepare": "vault"}


def plain(attributes: list[JSON]) -> list[JSON]:
    return [{key: value for key, value in each.items() if key != "column"} for each in attributes]


def alike(found: CountedSource, uploaded: Any) -> bool:
    """Whether both hold the same numbers in the same layout."""
    left, right = found.data, uploaded.data
    assert type(left) is type(right)
    pairs = zip(left.arrays().values(), right.arrays().values(), strict=True)
    return left.mass == right.mass and all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


def tried(call: Callable[[], Any]) -> Any:
    """What is found, or why it was refused."""
    try:
        return call()
    except InvalidDataset as error:
        return error


def same_outcome(found: Any, uploaded: Any) -> bool:
    """Whether both were refused for the same values, or hold the same and say the same of the records."""
    if isinstance(found, InvalidDataset) or isinstance(uploaded, InvalidDataset):
        return bool(found.extra.get("outside") == uploaded.extra.get("outside"))
    return alike(found, uploaded) and bool(found.report.view() == uploaded.report.view())


@pytest.mark.parametrize("most", [tables.MOST_COUNTED, 0], ids=["counts", "records"])
@given(source=sources())
def test_files_are_read_as_an_upload_is(tmp_path_factory: Any, most: int, source: Any) -> None:
    """Several files and one, also where records are outside: the same numbers, report and refusals."""
    folder = tmp_path_factory.getbasetemp() / "prepared"
    lay(folder, source)
    attributes, types, records, _ = source
    columns = {
        a["name"]: pa.array([record[axis] for record in records], kind)
        for axis, (a, kind) in enumerate(zip(attributes, types, strict=True))
    }
    path = write(folder / "whole.parquet", columns)
    spec, same = table(declare(attributes, "part=*/*.parquet", prepare="vault")), table(declare(plain(attributes)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "MOST_COUNTED", most)
        uploaded = tried(lambda: read_private(same, "whole.parquet", path, memory_limit=MEMORY))
        found = tried(lambda: parquet.prepare_source(spec, [folder], memory_limit=MEMORY))
    assert same_outcome(found, uploaded)


def of_engine(engine: Database | Cluster) -> Sources:
    return Sources({engine.type: engine.tables()})


def of_database(database: Database) -> Sources:
    return of_engine(database)


def declared(attributes: list[JSON], engine: Any = Database, **more: Any) -> TableSpec:
    source = {"type": engine.type, "connection": "warehouse", "table": engine.table}
    spec = parse_spec({**declare(attributes), "source": source, "prepare": "vault", **more})
    assert isinstance(spec, TableSpec)
    return spec


def read_alike(engine: Database | Cluster, folder: Path, most: int, source: Any) -> None:
    """A table is read as the upload of the same records is."""
    attributes, types, records, _ = source
    assume(records)
    columns = columns_of(source)
    assume(engine.takes(columns))
    engine.lay(columns)
    columns = {
        a["name"]: pa.array([record[axis] for record in records], kind)
        for axis, (a, kind) in enumerate(zip(attributes, types, strict=True))
    }
    path = write(folder / "prepared.parquet", columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "MOST_COUNTED", most)
        same = table(declare(plain(attributes)))
        uploaded = tried(lambda: read_private(same, "t.parquet", path, memory_limit=MEMORY))
        found = tried(lambda: of_engine(engine).register(declared(attributes, engine)))
    assert same_outcome(found, uploaded)


@pytest.mark.parametrize("most", [tables.MOST_COUNTED, 0], ids=["counts", "records"])
@given(source=sources())
def test_tables_are_read_as_an_upload_is(database: Database, tmp_path_factory: Any, most: int, source: Any) -> None:
    """Text, Booleans, dates and floats go through the database and back. Would catch a value that is written in other
    words there, and is another or none.
    """
    read_alike(database, tmp_path_factory.getbasetemp(), most, source)


@settings(max_examples=6)
@given(source=sources())
def test_tables_of_spark_are_read_as_an_upload_is(spark: Cluster, tmp_path_factory: Any, source: Any) -> None:
    """The same, of batches of Arrow, in whatever order they come."""
    read_alike(spark, tmp_path_factory.getbasetemp(), tables.MOST_COUNTED, source)


def visits(folder: Path) -> None:
    """Two files, in which one person's records lie apart."""
    for number, part in enumerate((slice(0, 3), slice(3, None))):
        patients = pa.array(PATIENTS[part])
        columns = {"patient": patients, "Ward of stay": pa.array(WARDS[part]), "days": pa.array(DAYS[part])}
        write(folder / f"{number}.parquet", columns)


def stays() -> JSON:
    return {"patient": pa.array(PATIENTS), "Ward of stay": pa.array(WARDS), "days": pa.array(DAYS)}


def fill(database: Database) -> None:
    kinds = [("patient", "text"), ("Ward of stay", "text"), ("days", "numeric")]
    database.fill(kinds, list(zip(PATIENTS, WARDS, DAYS, strict=True)))


@pytest.mark.parametrize("kind", ["parquet", *ENGINES])
@pytest.mark.parametrize("wide", [False, True], ids=["counts", "records"])
def test_of_each_person_so_many_records_are_kept(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, kind: str, wide: bool
) -> None:
    """Over all files together, and each of them one that the person has; what is dropped, clamped and missing is told.
    Would catch a cap that holds a file, and a record that nobody has.
    """
    if wide:
        monkeypatch.setattr(tables, "MOST_COUNTED", 0)
    if kind == "parquet":
        visits(tmp_path)
        spec = table(declare(ATTRIBUTES, "*.parquet", **DECLARED))
        found = Sources({"parquet": ParquetFolders(parquet, [tmp_path], MEMORY)}).register(spec)
    else:
        engine = request.getfixturevalue({"postgresql": "database", "spark": "spark"}[kind])
        engine.lay(stays())
        found = of_engine(engine).register(declared(ATTRIBUTES, engine, **DECLARED))
    # "?" and "east" are dropped; what is left is 3, 2, 1 and 2 of four patients.
    assert found.data.mass == 2 + 2 + 1 + 2
    view = found.report.view()
    assert (view["read"], view["kept"], view["dropped"], view["clamped"], view["beyond_cap"]) == (10, 7, 2, 1, 1)
    assert view["attributes"]["ward"]["missing"] == 1
    places = {"north": 0, "south": 1, "n/a": 2}
    had = Counter(
        (places[ward], int(2 * min(day, 30.0))) for ward, day in zip(WARDS, DAYS, strict=True) if ward in places
    )
    if wide:
        assert isinstance(found.data, RecordsData)
        kept = Counter(zip(*(column.tolist() for column in found.data.columns), strict=True))
    else:
        assert isinstance(found.data, DenseData)
        kept = Counter({tuple(map(int, at)): int(found.data.array[tuple(at)]) for at in np.argwhere(found.data.array)})
    assert not kept - had
    assert sum(kept.values()) == 7


def test_files_that_change_meanwhile_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept of two states. Would catch records of a file that was half written."""
    visits(tmp_path)
    honest = parquet.read_table

    def slow(*arguments: Any) -> Any:
        read = honest(*arguments)
        (tmp_path / "1.parquet").write_bytes((tmp_path / "0.parquet").read_bytes())
        return read

    monkeypatch.setattr(parquet, "read_table", slow)
    with pytest.raises(InvalidDataset, match="altered") as error:
        parquet.prepare_source(table(declare(ATTRIBUTES, "*.parquet", **DECLARED)), [tmp_path], memory_limit=MEMORY)
    assert error.value.detail == files.MOVED


def test_a_process_reads_them(tmp_path: Path) -> None:
    """Numbers, report and identity pass unchanged, without a secret of the server's."""
    visits(tmp_path)
    spec = table(declare(ATTRIBUTES, "*.parquet", prepare="vault", null_values=["n/a"]))
    here = parquet.prepare_source(spec, [tmp_path], memory_limit=MEMORY)
    there = ProcessReaders().prepare_source(spec, [tmp_path], memory_limit=MEMORY)
    assert alike(there, here)
    assert (there.report.view(), there.identity) == (here.report.view(), here.identity)
    (tmp_path / "1.parquet").unlink()
    assert parquet.prepare_source(spec, [tmp_path], memory_limit=MEMORY).identity != here.identity


def test_a_table_beyond_memory_is_refused(engine: Database | Cluster) -> None:
    engine.lay(stays())
    with pytest.raises(InvalidDataset, match="CURATOR_MEMORY_LIMIT"):
        engine.tables(memory_limit=50).prepare(declared(ATTRIBUTES, engine, **DECLARED))


def test_null_is_not_the_empty_text(database: Database) -> None:
    """Where that is a declared value, and so is whatever stands for null in a copy. Would catch a record that counts as
    what it does not say.
    """
    database.fill([("word", "text")], [[""], [None], ["\\NULL"], ["\\NULL"], ["a"]])
    attribute = {"name": "word", "values": ["", "\\NULL", "a"], "missing": True}
    found = of_database(database).register(declared([attribute]))
    assert isinstance(found.data, DenseData)
    assert found.data.array.tolist() == [1, 2, 1, 1]


def test_numbers_and_days_beyond_all_are_what_they_are_where_they_lie(database: Database) -> None:
    """A number that is not finite is outside also of what is clamped, a day is not. Would catch a record that is
    counted when it is prepared, and is refused when it is not.
    """
    for kind, attribute, values, clamped in (
        ("float8", {"lower": 0, "upper": 10, "bins": 10}, ["Infinity", "-Infinity", "3"], 0),
        (
            "date",
            {"dates": ["2020-01-01", "2020-12-31"], "by": "month"},
            ["infinity", "10000-01-01", "0044-03-15 BC"],
            3,
        ),
        ("timestamp", {"dates": ["2020-01-01", "2020-12-31"], "by": "day"}, ["-infinity", "10000-01-01 00:00:00"], 2),
    ):
        database.fill([("a", kind)], [[value] for value in values])
        attributes = [{"name": "a", **attribute, "outside": "clamp"}]
        found, lying = (
            tried(lambda more=more, attributes=attributes: of_database(database).register(declared(attributes, **more)))
            for more in ({}, {"prepare": None})
        )
        assert same_outcome(found, lying)
        assert clamped == (0 if isinstance(found, InvalidDataset) else found.report.clamped)


def test_ids_that_are_equal_numbers_are_one(database: Database) -> None:
    """Whatever zeros they end with, as in files. Would catch a person who is taken for three."""
    database.fill([("patient", "numeric"), ("days", "numeric")], [["1.0", 1], ["1.00", 2], ["1", 3], ["1.50", 4]])
    unit = {"unit": {"column": "patient", "max_records": 1}}
    assert of_database(database).register(declared([ATTRIBUTES[1]], **unit)).data.mass == 2


def test_a_table_that_others_inherit_from_is_refused(database: Database) -> None:
    """Their records are its own to whoever asks it, and were not counted."""
    fill(database)
    child = sql.Identifier(SCHEMA, "later")
    database.run(sql.SQL("CREATE TABLE {} () INHERITS ({})").format(child, sql.Identifier(SCHEMA, "visits")))
    try:
        for more in ({}, {"prepare": None}):
            with pytest.raises(InvalidDataset, match="inherit"):
                of_database(database).register(declared([{**ATTRIBUTES[0], "outside": "refuse"}], **more))
    finally:
        database.run(sql.SQL("DROP TABLE {}").format(child))


def test_more_categories_than_are_looked_for_where_they_lie(database: Database) -> None:
    """Whoever is told to let prepare be vault does so. Would catch a bound of counting that holds for reading too."""
    fill(database)
    labels = ["north", "south", *(f"ward {number}" for number in range(compiled.MOST_CATEGORIES))]
    attribute = {**ATTRIBUTES[0], "values": labels}
    counted = {key: value for key, value in attribute.items() if key != "outside"}
    with pytest.raises(InvalidDataset, match="prepare be vault"):
        of_database(database).register(declared([counted], prepare=None))
    assert of_database(database).register(declared([attribute], **DECLARED)).data.mass == 7


def test_a_column_that_is_not_there_is_named(engine: Database | Cluster) -> None:
    engine.lay(stays())
    for attributes, more in (
        ([{**ATTRIBUTES[0], "column": "nowhere"}], {}),
        (ATTRIBUTES, {"unit": {"column": "nowhere", "max_records": 1}}),
    ):
        with pytest.raises(InvalidDataset, match='no column "nowhere"'):
            of_engine(engine).register(declared(attributes, engine, **more))


def test_a_table_of_spark_without_records_is_refused(spark: Cluster) -> None:
    """As an upload without any is, and no fault of the server."""
    spark.lay({name: column[:0] for name, column in stays().items()})
    with pytest.raises(InvalidDataset, match="no records"):
        of_engine(spark).register(declared(ATTRIBUTES, spark, **DECLARED))


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"encoding": "latin-1"}, "encoding"),
        ({"unit": {"column": "Ward of stay", "max_records": 1}}, "unit"),
        ({"prepare": "table"}, "prepare"),
    ],
)
def test_what_cannot_be_declared(more: JSON, says: str) -> None:
    with pytest.raises(InvalidDataset, match=says):
        table(declare(ATTRIBUTES, "*.parquet", **{**DECLARED, **more}))


def test_an_upload_is_not_prepared() -> None:
    with pytest.raises(InvalidDataset, match="prepare"):
        table(declare(plain(ATTRIBUTES), **DECLARED))


def test_what_is_shown_can_be_read_again() -> None:
    """Without files, columns and tables. Would catch a data set that no server opens any more."""
    shown = written(published(table(declare(ATTRIBUTES, "*.parquet", **DECLARED))))
    assert shown["source"] == {"type": "parquet"}
    assert shown["prepare"] == "vault"
    assert "Ward of stay" not in json.dumps(shown)
    again = parse_spec(shown)
    assert written(again) == shown


# ---------------------------------------------------------------------- the whole service


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    visits(folder)
    return folder


def serve(folder: Path, hosts: str, lake: Path) -> Any:
    return serving(folder, noise=Noise(), source_hosts=hosts, vault_key=KEY, source_folders=str(lake))


@pytest.mark.api
@pytest.mark.parametrize("kind", ["parquet", "postgresql"])
def test_nobody_is_asked_again(tmp_path: Path, database: Database, lake: Path, url: str, hosts: str, kind: str) -> None:
    """Registered, and the records are gone: every question is answered, and after a restart too. No name of a file,
    table, column or connection is kept. Would catch a copy that is none.
    """
    fill(database)
    with serve(tmp_path / "var", hosts, lake) as service:
        connection = added(service, url)
        source: JSON = {"type": "parquet", "files": ["*.parquet"]}
        if kind == "postgresql":
            source = {"type": "postgresql", "connection": connection, "table": f"{SCHEMA}.visits"}
        declared = {**declare(ATTRIBUTES), **DECLARED, "name": unique("prepared"), "source": source}
        reply = sent(service, {**declared, "budget": {**BUDGET, "epsilon": 50.0}})
        assert reply.status_code == 201, reply.text
        assert reply.json()["report"]["beyond_cap"] == 1
        assert service.admin.delete(f"/v1/connections/{connection}").status_code == 204
        database.run(f'DROP TABLE "{SCHEMA.replace(chr(34), chr(34) * 2)}".visits')
        told = service.stored() + str(service.rows("datasets"))
        for private in ("Ward of stay", SCHEMA, "*.parquet"):
            assert private not in told
        analyst = service.principal("analyst", name="ann")
        key = analyst.headers["authorization"].removeprefix("Bearer ")
    with serve(tmp_path / "var", hosts, lake) as service:
        analyst = service.caller(key)
        words = {"dataset": declared["name"], "mechanism": {"construction": "gaussian"}, "epsilon": 0.5}
        session = analyst.post("/v1/sessions", json={**words, "max_queries": 20}).json()["id"]
        north = ask(analyst, session, where(ward="north"))["value"]
        # Of the first patient two of three are kept, of which one or two are north.
        assert north in (3, 4)
        late = ask(analyst, session, where(days={"ge": 6}))["value"]
        assert late == 4


def sent(service: Service, declared: JSON) -> httpx.Response:
    return service.admin.post("/v1/datasets", files={"spec": (None, json.dumps(declared))})
