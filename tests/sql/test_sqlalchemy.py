"""The dialect curator:// of SQLAlchemy against the service: what it reads, what dashboards send, and what is spent."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
import sqlalchemy as sa
from sqlalchemy.pool import NullPool

from curator_client import __version__, dbapi
from tests.kit.service import Service, register, unique
from tests.sql.test_dbapi import held, spent
from tests.sql.test_sql_over_http import registered

pytestmark = pytest.mark.api


@pytest.fixture(scope="module")
def table(service: Service) -> str:
    return registered(service)


def engine_of(service: Service, table: str, said: str = "", **how: Any) -> sa.Engine:
    host = service.url.removeprefix("http://")
    return sa.create_engine(f"curator://{host}/{table}{said}", connect_args={"key": service.admin_key}, **how)


@pytest.fixture(scope="module")
def engine(service: Service, table: str) -> Iterator[sa.Engine]:
    made = engine_of(service, table, "?epsilon=2&max_queries=60&at_most=0.5")
    yield made
    made.dispose()


@pytest.fixture(scope="module")
def reflected(engine: sa.Engine, table: str) -> sa.Table:
    return sa.Table(table, sa.MetaData(), schema="public", autoload_with=engine)


def test_a_data_set_is_looked_at_as_a_database(service: Service, table: str) -> None:
    """Would catch a look at tables and columns that fails, opens a session or tells of another table."""
    before = len(service.admin.get("/v1/sessions").json()["items"])
    engine = engine_of(service, table)
    found = sa.inspect(engine)
    assert found.get_schema_names() == ["public"]
    assert found.default_schema_name == "public"
    assert found.get_table_names() == found.get_table_names("public") == [table]
    assert (found.has_table(table), found.has_table("other"), found.has_table(table, "else")) == (True, False, False)
    assert found.get_view_names() == found.get_indexes(table) == found.get_foreign_keys(table) == []
    assert found.get_unique_constraints(table) == found.get_check_constraints(table) == []
    assert found.get_pk_constraint(table) == {"constrained_columns": [], "name": None}
    assert found.get_table_comment(table) == {"text": None}
    columns = [(each["name"], type(each["type"]), each["nullable"]) for each in found.get_columns(table)]
    assert columns == [("sex", sa.String, True), ("hours", sa.Integer, True), ("code", sa.Integer, False)]
    for name, schema in (("other", None), (table, "else")):
        with pytest.raises(sa.exc.NoSuchTableError):
            found.get_columns(name, schema)
    assert len(service.admin.get("/v1/sessions").json()["items"]) == before
    with pytest.raises(dbapi.ProgrammingError, match="there is no data set"):
        sa.inspect(engine_of(service, "nobodys")).get_table_names()


def test_types_of_columns(service: Service) -> None:
    """Would catch a type whose values are not what rows hold: of bins and months they are texts."""
    name = unique("types")
    spec = {
        "name": name,
        "kind": "table",
        "records_public": True,
        "budget": {"epsilon": 9.0, "delta": 1e-9},
        "attributes": [
            {"name": "Region", "values": [3, 1]},
            {"name": "age", "lower": 0, "upper": 20, "bins": 2},
            {"name": "score", "lower": 0, "upper": 2, "grid": 0.5},
            {"name": "income", "lower": 0, "upper": 20, "grid": 1, "bins": 2},
            {"name": "order", "dates": ["2020-01-01", "2020-02-28"], "by": "month"},
            {"name": "day", "dates": ["2020-01-01", "2020-01-02"], "by": "day"},
        ],
    }
    data = "Region,age,score,income,order,day\n" + "3,5,0.5,10,2020-01,2020-01-02\n" * 400
    assert register(service.admin, spec, data.encode()).status_code == 201
    engine = engine_of(service, name, "?epsilon=5&max_queries=20")
    found = sa.Table(name, sa.MetaData(), autoload_with=engine)
    kinds = [type(column.type) for column in found.c]
    assert kinds == [sa.Integer, sa.String, sa.Float, sa.Float, sa.String, sa.Date]
    expected: dict[str, Any] = {"Region": 3, "age": "[0, 10)", "score": 0.5, "income": "[10, 20]", "order": "2020-01"}
    with engine.connect() as connection:
        for column in expected:
            asked = sa.select(found.c[column], sa.func.count().label("n")).group_by(found.c[column])
            rows = connection.execute(asked.order_by(sa.desc("n"))).all()
            assert rows[0][0] == expected[column]
            assert type(rows[0][0]) is type(expected[column])
        day = sa.select(sa.func.count().label("n")).where(found.c.day == sa.func.date("2020-01-02"))
        with pytest.raises(sa.exc.ProgrammingError):
            connection.execute(day)

        day = sa.select(sa.func.count().label("n")).where(found.c.day == datetime.date(2020, 1, 2))
        assert connection.execute(day).scalar_one() == pytest.approx(400, abs=50)


def test_expressions_become_statements(engine: sa.Engine, reflected: sa.Table) -> None:
    """Would catch expressions that are written as nobody reads them here, and columns that lose their intervals."""
    sex, hours, code = reflected.c.sex, reflected.c.hours, reflected.c.code
    count, mean = sa.func.count().label("n"), sa.func.avg(hours).label("n")
    tens = (sa.func.floor(hours / 10) * 10).label("tens")
    asked = [
        (sa.select(sex, count).where(code < 2).group_by(sex).order_by(sa.desc("n")).limit(2), ["male", "female"]),
        (sa.select(tens, count).group_by(tens), [0, 10, 20, 30, 40]),
        (sa.select(((hours // 10) * 10).label("t"), count).group_by(sa.text("1")), [0, 10, 20, 30, 40]),
        (sa.select(sa.func.bin(hours, 0, 20, 40).label("b"), count).group_by("b"), ["[0, 20)", "[20, 40]"]),
        (
            sa.select(sex, mean).where(sex.in_(["male", "female"])).group_by(sex),
            ["female", "male"],
        ),
        (sa.select(sex, count).where(sex.isnot(None), code.between(0, 1)).group_by(sex), ["female", "male"]),
        (sa.select(code, count).where(sa.or_(code == 1, sex.is_(None))).group_by(code), [1, 2]),
    ]
    with engine.connect() as connection:
        for statement, labels in asked:
            for said in (statement, sa.text(str(statement.compile(engine, compile_kwargs={"literal_binds": True})))):
                rows = connection.execute(said).mappings().all()
                found = [row[next(iter(row))] for row in rows if abs(row["n"]) > 0]
                assert set(labels) >= {each for each in found if each in labels}
                assert [each for each in found if each in labels] == labels, str(statement)
                assert all(row["n_low"] <= row["n"] <= row["n_high"] for row in rows if row["n"] is not None)
        half = sa.func.percentile_disc(0.5).within_group(hours)
        assert connection.execute(sa.select(half)).scalar_one() == pytest.approx(20, abs=10)


#: What Superset, and SQLAlchemy under it, send by themselves, with {t} for the table: what is said of it.
PROBES: dict[str, Any] = {
    "SELECT 1": [(1,)],
    "SELECT version()": [(f"Curator {__version__}",)],
    "SELECT * FROM {t} LIMIT 0": [],
    "SELECT * FROM {t} WHERE 1 = 0": [],
    "SELECT * FROM {t}\nLIMIT 100": "records are not shown",
    'SELECT "sex" AS "sex", "hours" AS "hours" FROM "public".{t} LIMIT 1000': "records are not shown",
    'SELECT DISTINCT "sex" AS "column_values" FROM "public".{t} LIMIT 1000': "GROUP BY",
    'SELECT "sex" AS "sex" FROM "public".{t} GROUP BY "sex" LIMIT 1000': "nothing is counted",
    'SELECT MIN("hours") AS "min", MAX("hours") AS "max" FROM "public".{t}': "one record decides it",
    'SELECT COUNT(*) AS "count" FROM (SELECT * FROM {t}) AS "virtual_table" LIMIT 1000': "subqueries",
    "SELECT * FROM information_schema.tables": "its name alone",
    "SELECT pg_catalog.version()": "no table is asked",
    "SET search_path = public": "neither changed",
    'INSERT INTO {t} ("code") VALUES (1)': "neither changed",
    "BEGIN": "neither changed",
}


@pytest.mark.parametrize("probe", PROBES)
def test_probes_are_answered_for_nothing_or_refused_in_words(
    service: Service, engine: sa.Engine, table: str, probe: str
) -> None:
    """Would catch a probe that is charged, one that ends in an error without words, and one that tools need and that
    is refused."""
    before = spent(service, table)
    expected = PROBES[probe]
    with engine.connect() as connection:
        statement = probe.replace("{t}", f'"{table}"')
        if isinstance(expected, list):
            assert [tuple(row) for row in connection.exec_driver_sql(statement)] == expected
        else:
            with pytest.raises(sa.exc.ProgrammingError) as refused:
                connection.exec_driver_sql(statement)
            assert expected in str(refused.value.orig)
            assert isinstance(refused.value.orig, dbapi.ProgrammingError)
    assert spent(service, table) == before


def test_a_chart_of_a_dashboard(service: Service) -> None:
    """What Superset sends for a chart, by a new engine and a new connection each time, as it does. Would catch quoted
    names and aliases that are not understood, a refresh that costs, and connections each of which may spend all."""
    table = registered(service)
    chart = (
        f'SELECT "sex" AS "sex", COUNT(*) AS "count", AVG("hours") AS "AVG(hours)" FROM "public"."{table}" '
        'WHERE "code" >= 0 AND "code" < 2 GROUP BY "sex" ORDER BY "count" DESC\nLIMIT 10000'
    )
    seen, paid = [], []
    for _ in range(3):
        engine = engine_of(service, table, "?epsilon=0.5&max_queries=20&at_most=0.4", poolclass=NullPool)
        with engine.raw_connection() as raw:
            cursor = raw.cursor()
            cursor.execute(chart)
            names = [each[0] for each in cursor.description]
            assert names[:6] == ["sex", "count", "count_se", "count_low", "count_high", "AVG(hours)"]
            # Errors are told as they are known by now, values stay.
            seen.append([(row[0], row[1], row[5]) for row in cursor.fetchall()])
        assert held(service, table) == pytest.approx(0.5)
        paid.append(spent(service, table))
    assert seen[0] == seen[1] == seen[2]
    assert paid[0] == paid[1] == paid[2]
    assert seen[0][0][0] == "male"
    free = engine_of(service, table, poolclass=NullPool)
    with free.connect() as connection, pytest.raises(sa.exc.OperationalError, match="epsilon="):
        connection.exec_driver_sql(f'SELECT VAR_POP(hours) FROM "{table}" WHERE code = 2')
    assert held(service, table) == pytest.approx(0.5)


def test_pandas_reads_an_engine(engine: sa.Engine, reflected: sa.Table, table: str) -> None:
    """Would catch an engine that pandas does not take, and parameters that do not arrive."""
    grouped = sa.select(reflected.c.code, sa.func.count().label("n")).group_by(reflected.c.code)
    frame = pd.read_sql(grouped, engine)
    assert [*frame.columns] == ["code", "n", "n_se", "n_low", "n_high"]
    assert frame["code"].to_list() == [0, 1, 2]
    text = sa.text(f'SELECT code, COUNT(*) AS n FROM "{table}" WHERE code >= :least GROUP BY code')
    assert pd.read_sql(text, engine, params={"least": 1})["code"].to_list() == [1, 2]


def test_pings_and_pools(engine: sa.Engine) -> None:
    """Would catch a ping that fails, by which pools and dashboards find out whether somebody is there."""
    with engine.connect() as connection:
        raw = connection.connection.dbapi_connection
        assert engine.dialect.do_ping(raw)  # type: ignore[arg-type]
        connection.rollback()
        connection.commit()


def test_keys_and_addresses() -> None:
    """Would catch a key that is shown, one that is sent in the clear, and words that are passed over."""
    engine = sa.create_engine("curator://:my-secret@curator.example:8443/survey?epsilon=0.5&max_queries=9&at_most=0.1")
    assert "my-secret" not in f"{engine!r} {engine.url}"

    def told(url: str) -> dict[str, Any]:
        found: dict[str, Any] = engine.dialect.create_connect_args(sa.make_url(url))[1]
        return found

    assert told(engine.url.render_as_string(hide_password=False)) == {
        "url": "https://curator.example:8443", "key": "my-secret", "dataset": "survey", "session": "dbapi",
        "max_queries": 9, "epsilon": pytest.approx(0.5), "at_most": 0.1,
    }  # fmt: skip
    addresses = {
        "curator://127.0.0.1:8000/t": "http://127.0.0.1:8000",
        "curator://localhost/t": "http://localhost",
        "curator://[::1]:8000/t": "http://[::1]:8000",
        "curator://curator.example/t": "https://curator.example",
        "curator://127.0.0.1.example/t": "https://127.0.0.1.example",
        "curator://10.0.0.1/t?tls=off": "http://10.0.0.1",
        "curator://localhost/t?tls=on": "https://localhost",
    }
    for url, address in addresses.items():
        assert told(url)["url"] == address
    for url in ("?key=x", "?epsilom=1", "?epsilon=much", "?max_queries=1.5", "?tls=maybe"):
        with pytest.raises(sa.exc.ArgumentError):
            told(f"curator://host/t{url}")
    for url in ("curator://host", "curator:///t"):
        with pytest.raises(sa.exc.ArgumentError):
            told(url)


def test_nothing_is_written(engine: sa.Engine) -> None:
    """Would catch a table that is thought to be made."""
    made = sa.Table("made", sa.MetaData(), sa.Column("x", sa.Integer))
    with engine.connect() as connection, pytest.raises(sa.exc.ProgrammingError, match="neither changed"):
        made.create(connection)
