"""The client's DB-API 2.0 (PEP 249) against the service: what drivers of databases promise, and what is spent."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pandas as pd
import pytest

from curator_client import Curator, SqlRefused, TooExact, __version__, dbapi
from tests.kit.service import JSON, Service, register, unique
from tests.sql.test_sql_over_http import registered

pytestmark = pytest.mark.api


@pytest.fixture(scope="module")
def table(service: Service) -> str:
    return registered(service)


@pytest.fixture(scope="module")
def paid(service: Service, table: str) -> Iterator[dbapi.Connection]:
    """A connection that may spend."""
    with dbapi.connect(service.url, service.admin_key, dataset=table, epsilon=1.0, max_queries=50) as connection:
        yield connection


def spent(service: Service, table: str) -> float:
    """What everybody spent of a data set."""
    budget: JSON = service.admin.get(f"/v1/datasets/{table}").json()["budget"]
    return float(budget["spent_epsilon"])


def held(service: Service, table: str) -> float:
    """What is not left of a data set: spent, or kept for sessions."""
    budget: JSON = service.admin.get(f"/v1/datasets/{table}").json()["budget"]
    return float(budget["spent_epsilon"]) + float(budget["reserved_epsilon"])


def test_the_module_says_what_it_is() -> None:
    """Would catch a name of PEP 249 that is missing, and an error that stands elsewhere in its tree."""
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 1, "qmark")
    tree = {
        "InterfaceError": "Error",
        "DatabaseError": "Error",
        **dict.fromkeys(["DataError", "OperationalError", "IntegrityError", "InternalError"], "DatabaseError"),
        **dict.fromkeys(["ProgrammingError", "NotSupportedError"], "DatabaseError"),
    }
    for name, parent in tree.items():
        assert getattr(dbapi, name).__bases__ == (getattr(dbapi, parent),)
        assert getattr(dbapi.Connection, name) is getattr(dbapi, name)
    assert (dbapi.Error.__bases__, dbapi.Warning.__bases__) == ((Exception,), (Exception,))
    assert dbapi.Date(2020, 5, 1) == datetime.date(2020, 5, 1)
    assert dbapi.DateFromTicks(86_400 * 365.25 * 30 + 43_200).year == 2000
    assert isinstance(dbapi.TimestampFromTicks(0), datetime.datetime)
    assert isinstance(dbapi.TimeFromTicks(0), datetime.time)
    assert dbapi.Binary(b"x") == b"x"
    types = [dbapi.STRING, dbapi.NUMBER, dbapi.DATETIME, dbapi.BINARY, dbapi.ROWID]
    for kind, own in (("text", 0), ("integer", 1), ("double", 1), ("boolean", 1), ("date", 2)):
        assert [each == kind for each in types] == [place == own for place in range(5)]
        assert [kind != each for each in types] == [place != own for place in range(5)]


def test_rows_are_fetched_as_from_any_database(paid: dbapi.Connection, table: str) -> None:
    """Would catch rows that are given twice or not at all, a description of other columns, and wrong counts."""
    cursor = paid.cursor()
    assert (cursor.description, cursor.rowcount, cursor.arraysize, cursor.rownumber) == (None, -1, 1, None)
    for fetch in (cursor.fetchone, cursor.fetchmany, cursor.fetchall, cursor.nextset):
        with pytest.raises(dbapi.InterfaceError):
            fetch()
    assert cursor.execute(f'SELECT sex, COUNT(*) AS n FROM "{table}" GROUP BY sex ORDER BY sex') is cursor
    assert cursor.description is not None
    assert [each[:2] for each in cursor.description] == [
        ("sex", "text"), ("n", "double"), ("n_se", "double"), ("n_low", "double"), ("n_high", "double"),
    ]  # fmt: skip
    assert {each[2:] for each in cursor.description} == {(None, None, None, None, True)}
    assert (cursor.rowcount, cursor.rownumber) == (3, 0)
    first = cursor.fetchone()
    assert first is not None
    assert first[0] == "female"
    assert first[3] <= first[1] <= first[4]
    cursor.arraysize = 2
    assert [row[0] for row in cursor.fetchmany()] == ["male", None]
    assert (cursor.fetchone(), cursor.fetchmany(5), cursor.fetchall(), cursor.rownumber) == (None, [], [], 3)
    cursor.execute(f'SELECT sex, COUNT(*) AS n FROM "{table}" GROUP BY sex ORDER BY sex')
    assert [row[0] for row in cursor] == ["female", "male", None]
    assert cursor.nextset() is None  # type: ignore[func-returns-value]
    cursor.execute(f'SELECT sex, COUNT(*) AS n FROM "{table}" GROUP BY sex ORDER BY n DESC LIMIT 1')
    ((kind, notice),) = cursor.messages
    assert kind is dbapi.Warning
    assert "nominal" in str(notice)
    assert cursor.result is not None
    assert [answer.source for answer in cursor.result.answers] == ["cached"]


def test_what_is_closed_says_so(service: Service, table: str) -> None:
    """Would catch a closed cursor or connection that still asks, and a second close that fails."""
    connection = dbapi.connect(service.url, service.admin_key, dataset=table)
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert (connection.commit(), connection.rollback()) == (None, None)  # type: ignore[func-returns-value]
        assert cursor.fetchall() == [(1,)]
    with pytest.raises(dbapi.InterfaceError, match="cursor is closed"):
        cursor.execute("SELECT 1")
    connection.close()
    for call in (connection.cursor, connection.commit, connection.rollback):
        with pytest.raises(dbapi.InterfaceError, match="connection is closed"):
            call()
    with pytest.raises(dbapi.InterfaceError):
        connection.session  # noqa: B018


def test_a_connection_spends_nothing_unless_it_says_so(service: Service) -> None:
    """Would catch a dashboard that is connected in passing and uses up a budget, a refusal that does not name the way
    on, and free answers that are refused."""
    table = registered(service)
    counted = f'SELECT sex, COUNT(*) AS n FROM "{table}" GROUP BY sex'
    with dbapi.connect(service.url, service.admin_key, dataset=table) as free:
        cursor = free.cursor()
        with pytest.raises(dbapi.OperationalError, match="epsilon=") as refused:
            cursor.execute(counted)
        assert isinstance(refused.value.__cause__, TooExact)
        assert (cursor.description, cursor.rowcount) == (None, -1)
        cursor.execute(f'SELECT COUNT(*) FROM "{table}"')  # as many as is public
        assert cursor.fetchall()[0][:2] == (2000.0, 0.0)
        assert held(service, table) == 0
    with dbapi.connect(
        service.url, service.admin_key, dataset=table, epsilon=0.5, max_queries=9, session=None
    ) as payer:
        rows = payer.cursor().execute(counted).fetchall()
    paid = held(service, table)
    assert 0 < paid < 0.5  # a session of its own gives back what was not spent
    with dbapi.connect(service.url, service.admin_key, dataset=table) as free:
        again = free.cursor().execute(counted).fetchall()
        assert [row[0] for row in again] == [row[0] for row in rows]
        assert free.session.state().status == "open"
    assert held(service, table) == paid


def test_a_refresh_is_free_to_the_end_of_a_session(service: Service) -> None:
    """Would catch a dashboard that pays at every refresh, one that is refused when all questions are used up, and a
    statement that costs more than one may."""
    table = registered(service)
    counted = f'SELECT sex, COUNT(*) AS n FROM "{table}" GROUP BY sex'
    said: dict[str, Any] = {"dataset": table, "epsilon": 0.5, "max_queries": 1}
    with dbapi.connect(service.url, service.admin_key, **said, at_most=1e-6) as narrow:
        opened = narrow.session.state()
        assert opened.queries_asked == 0
        paid = spent(service, table)
        with pytest.raises(dbapi.OperationalError, match="at_most"):
            narrow.cursor().execute(counted)
        assert spent(service, table) == paid
    with dbapi.connect(service.url, service.admin_key, **said) as connection:
        cursor = connection.cursor()
        first = cursor.execute(counted).fetchall()
        paid = spent(service, table)
        for _ in range(3):
            assert cursor.execute(counted).fetchall() == first
        with pytest.raises(dbapi.OperationalError, match="open another"):
            cursor.execute(f'SELECT code, COUNT(*) FROM "{table}" GROUP BY code')
        assert cursor.execute(counted).fetchall() == first
        assert spent(service, table) == paid


def test_connections_of_one_name_share_one_session(service: Service) -> None:
    """Would catch a pool of connections each of which may spend the whole, and a session that ends with the first."""
    table = registered(service)
    said: dict[str, Any] = {"dataset": table, "epsilon": 0.25, "max_queries": 9}
    counted = f'SELECT sex, COUNT(*) FROM "{table}" GROUP BY sex'
    ids = []
    for epsilon in (0.25, Decimal("0.250")):
        with dbapi.connect(service.url, service.admin_key, **{**said, "epsilon": epsilon}) as connection:
            connection.cursor().execute(counted)
            ids.append(connection.session.id)
            assert held(service, table) == pytest.approx(0.25)
            assert connection.session.state().queries_asked == 1
    assert ids[0] == ids[1]
    with dbapi.connect(service.url, service.admin_key, **{**said, "session": "other"}) as other:
        assert other.session.id != ids[0]
    with Curator(service.url, service.admin_key) as curator:
        curator.resume(ids[0]).close()
    with (
        dbapi.connect(service.url, service.admin_key, **said) as connection,
        pytest.raises(dbapi.OperationalError, match="session="),
    ):
        connection.cursor().execute(counted)


def test_refusals_have_the_classes_of_pep_249(service: Service, paid: dbapi.Connection, table: str) -> None:
    """Would catch a refusal that a driver's caller cannot tell from another, and one without its place."""
    cursor = paid.cursor()
    with pytest.raises(dbapi.ProgrammingError, match="PERCENTILE_DISC") as refused:
        cursor.execute(f'SELECT MAX(hours)\nFROM "{table}"')
    assert isinstance(refused.value.__cause__, SqlRefused)
    assert str(refused.value).splitlines()[-1].strip() == "^^^"
    for statement in (f'INSERT INTO "{table}" VALUES (1)', "DROP TABLE x", "BEGIN"):
        with pytest.raises(dbapi.ProgrammingError):
            cursor.execute(statement)
    with pytest.raises(dbapi.DataError):
        cursor.execute("SELECT ?", [b"x"])
    with pytest.raises(dbapi.DataError, match="2 parameters"):
        cursor.execute("SELECT ?, ?", [1])
    with pytest.raises(dbapi.ProgrammingError, match="list"):
        cursor.execute("SELECT ?", {"a": 1})  # type: ignore[arg-type]
    with pytest.raises(dbapi.NotSupportedError):
        cursor.executemany("SELECT ?", [[1], [2]])
    for said, kind in (
        ({"dataset": "nobodys"}, dbapi.ProgrammingError),
        ({"dataset": table, "epsilon": 1000}, dbapi.OperationalError),
        ({"dataset": table, "epsilon": -1}, dbapi.ProgrammingError),
    ):
        with dbapi.connect(service.url, service.admin_key, **said) as other, pytest.raises(kind):
            other.session  # noqa: B018
    with dbapi.connect(service.url, "no-key", dataset=table) as other, pytest.raises(dbapi.OperationalError) as told:
        other.cursor().execute("SELECT 1")
    assert "no-key" not in str(told.value)
    with (
        dbapi.connect("http://127.0.0.1:9", "key", dataset=table, retry_for=0) as nobody,
        pytest.raises(dbapi.OperationalError),
    ):
        nobody.cursor().execute("SELECT 1")


def test_statements_with_parameters(service: Service, paid: dbapi.Connection, table: str) -> None:
    """Would catch a value that selects other records, or that is read as a part of the statement."""
    cursor = paid.cursor()

    def counted(condition: str, *values: object) -> float:
        row = cursor.execute(f'SELECT COUNT(*) FROM "{table}" WHERE {condition}', values).fetchone()
        assert row is not None
        return float(row[0])

    assert counted("sex = ? AND code = ?", "male", 1) == pytest.approx(500, abs=100)
    assert counted("hours >= ? AND sex IN (?, ?)", 15.0, "male", "female") == pytest.approx(500, abs=100)
    with pytest.raises(dbapi.ProgrammingError, match="not one of the declared"):
        counted("sex = ?", "male' OR 'a' = 'a")
    with pytest.raises(dbapi.ProgrammingError, match="IS NULL"):
        counted("sex = ?", None)


@pytest.mark.parametrize("epsilon", [None, 0.125])
def test_statements_that_ask_nothing(service: Service, table: str, epsilon: float | None) -> None:
    """Would catch a probe of a tool that fails, that costs, or that opens a session whose opening costs."""
    before = held(service, table)
    said = {} if epsilon is None else {"epsilon": epsilon, "session": "probes"}
    with dbapi.connect(service.url, service.admin_key, dataset=table, **said) as connection:
        cursor = connection.cursor()
        expected: dict[str, list[Any]] = {
            "SELECT 1": [(1,)],
            "SELECT 1 AS one, 'a', NULL, TRUE": [(1, "a", None, True)],
            "SELECT version()": [(f"Curator {__version__}",)],
            "SELECT current_schema(), current_database()": [("public", table)],
            f'SELECT * FROM "{table}" LIMIT 0': [],
            f'SELECT * FROM "public"."{table}" WHERE 1 = 0': [],
            f'SELECT sex, AVG(hours) FROM "{table}" GROUP BY sex LIMIT 0': [],
            "EXPLAIN SELECT 1": [],
        }
        for statement, rows in expected.items():
            assert cursor.execute(statement).fetchall() == rows, statement
        names = [each[0] for each in cursor.execute(f'SELECT * FROM "{table}" LIMIT 0').description or ()]
        assert names == ["sex", "hours", "code"]
        assert table in [row[0] for row in cursor.execute("SHOW TABLES")]
        assert [row[0] for row in cursor.execute(f'DESCRIBE "{table}"')] == names
        assert held(service, table) == before
        (price,) = cursor.execute(f'EXPLAIN SELECT COUNT(*) FROM "{table}"').fetchall()
        assert price[1] == 0
        assert connection.session.state().queries_asked == 0


def test_days_are_dates(service: Service) -> None:
    """Would catch days that are texts, which pandas and dashboards would put in no order of time."""
    name = unique("days")
    spec = {
        "name": name,
        "kind": "table",
        "budget": {"epsilon": 5.0, "delta": 1e-9},
        "attributes": [
            {"name": "day", "dates": ["2020-01-01", "2020-01-03"], "by": "day", "missing": True},
        ],
    }
    assert register(service.admin, spec, b"day\n" + b"2020-01-02\n" * 500).status_code == 201
    with dbapi.connect(service.url, service.admin_key, dataset=name, epsilon=1.0, max_queries=5) as connection:
        cursor = connection.cursor().execute(f'SELECT day, COUNT(*) FROM "{name}" GROUP BY day ORDER BY day')
        assert cursor.description is not None
        assert cursor.description[0][1] == dbapi.DATETIME
        days = [row[0] for row in cursor]
    assert days == [datetime.date(2020, 1, day) for day in (1, 2, 3)] + [None]


def test_pandas_reads_a_connection(paid: dbapi.Connection, table: str) -> None:
    """Would catch a connection that pandas does not take, and frames without intervals."""
    with warnings.catch_warnings():
        # pandas says that it tests SQLAlchemy alone.
        warnings.simplefilter("ignore", UserWarning)
        frame = pd.read_sql(
            f'SELECT code, AVG(hours) AS h FROM "{table}" WHERE code >= ? GROUP BY code', paid, params=[1]
        )
        with pytest.raises((pd.errors.DatabaseError, dbapi.ProgrammingError), match="PERCENTILE_DISC"):
            pd.read_sql(f'SELECT MAX(hours) FROM "{table}"', paid)
    assert [*frame.columns] == ["code", "h", "h_se", "h_low", "h_high"]
    assert frame["code"].to_list() == [1, 2]
    assert (frame["h"] - pd.Series([20.0, 30.0])).abs().max() < 5
