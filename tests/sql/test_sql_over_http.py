"""Statements through the whole service: translated, priced, asked in one batch, told as rows and as Arrow tables."""

from __future__ import annotations

import io
import time
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.kit.patience import patience
from tests.kit.service import JSON, Service, open_session, refused, register, unique

pytestmark = pytest.mark.api

SPEC = {
    "kind": "table",
    "records_public": True,
    "budget": {"epsilon": 20.0, "delta": 1e-9},
    "attributes": [
        {"name": "sex", "values": ["female", "male"], "missing": True},
        {"name": "hours", "lower": 0, "upper": 40, "grid": 1, "missing": True},
        {"name": "code", "size": 3},
    ],
}
ROWS = [("female", 10, 0), ("male", 20, 1), ("", 30, 2), ("male", "", 0)] * 500
DATA = ("sex,hours,code\n" + "".join(f"{s},{h},{c}\n" for s, h, c in ROWS)).encode()


@pytest.fixture(scope="module")
def analyst(service: Service) -> httpx.Client:
    return service.principal("analyst")


@pytest.fixture(scope="module")
def table(service: Service) -> str:
    return registered(service)


def registered(service: Service) -> str:
    """A table of which nothing was measured yet."""
    name = unique("sql")
    assert register(service.admin, {**SPEC, "name": name}, DATA).status_code == 201
    return name


@pytest.fixture
def session(analyst: httpx.Client, table: str) -> JSON:
    return opened(analyst, table)


def opened(analyst: httpx.Client, table: str, **changes: Any) -> JSON:
    return open_session(
        analyst,
        table,
        **{"mechanism": {"construction": "evidence"}, "epsilon": 1.0, "max_queries": 20, "max_updates": None} | changes,
    )


def sql(analyst: httpx.Client, session: JSON, statement: str, **headers: str) -> httpx.Response:
    return analyst.post(f"/v1/sessions/{session['id']}/sql", json={"statement": statement}, headers=headers)


def state(analyst: httpx.Client, session: JSON) -> JSON:
    found: JSON = analyst.get(f"/v1/sessions/{session['id']}").json()
    return found


def test_a_statement_is_a_batch_of_questions(analyst: httpx.Client, table: str, session: JSON) -> None:
    """Would catch rows beside other labels, columns without their intervals, and answers far from the truth."""
    statement = f'SELECT sex, COUNT(*) AS n, AVG(hours) FROM "{table}" GROUP BY sex ORDER BY n DESC'
    reply = sql(analyst, session, statement)
    assert reply.status_code == 200, reply.text
    told = reply.json()
    assert [(c["name"], c["type"], c["role"]) for c in told["columns"]] == [
        ("sex", "text", "group"),
        ("n", "double", "value"),
        ("n_se", "double", "standard_error"),
        ("n_low", "double", "low"),
        ("n_high", "double", "high"),
        ("avg", "double", "value"),
        ("avg_se", "double", "standard_error"),
        ("avg_low", "double", "low"),
        ("avg_high", "double", "high"),
    ]
    rows = {row[0]: row for row in told["rows"]}
    assert told["rows"][0][0] == "male"
    assert rows.keys() == {"female", "male", None}
    for label, count, mean in (("female", 500, 10), ("male", 1000, 20), (None, 500, 30)):
        assert abs(rows[label][1] - count) < 100
        assert rows[label][3] <= rows[label][1] <= rows[label][4]
        assert abs(rows[label][5] - mean) < 5
    assert [answer["sequence"] for answer in told["answers"]] == [1, 2]
    assert state(analyst, session)["queries_asked"] == 2


def test_a_key_gives_the_same_answers_again(analyst: httpx.Client, table: str, session: JSON) -> None:
    """Would catch a repeated request that asks anew, and one that fails as the session is closed by then."""
    statement = f'SELECT COUNT(*) FROM "{table}" WHERE sex IS NULL'
    key = {"Idempotency-Key": unique("key")}
    first = sql(analyst, session, statement, **key)
    assert first.status_code == 200
    assert analyst.post(f"/v1/sessions/{session['id']}/close").status_code == 200
    assert sql(analyst, session, statement, **key).json() == first.json()
    refused(sql(analyst, session, f'SELECT COUNT(*) FROM "{table}"', **key), "idempotency-conflict")
    refused(sql(analyst, session, statement), "session-closed")


def test_none_is_asked_where_one_would_be_refused(analyst: httpx.Client, table: str) -> None:
    """Would catch a first aggregate that is paid for where the second is refused: by its kind, by what the statement
    may cost, by what is left of questions."""
    session = opened(analyst, table, mechanism={"construction": "gaussian"}, max_queries=3)
    told = refused(sql(analyst, session, f'SELECT COUNT(*), AVG(hours) FROM "{table}"'), "sql-refused")
    assert told["near"] == "AVG"
    many = ", ".join(f"COUNT(*) FILTER (WHERE code = {k})" for k in range(2))
    refused(sql(analyst, session, f'SELECT {many} FROM "{table}"'), "sql-refused")
    assert state(analyst, session)["queries_asked"] == 0
    evidence = opened(analyst, table, max_queries=2)
    options = "WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 0.000001)"
    refused(sql(analyst, evidence, f'SELECT {options} COUNT(sex), COUNT(hours) FROM "{table}"'), "plan-infeasible")
    three = f'SELECT COUNT(sex), COUNT(hours), SUM(hours) FROM "{table}"'
    refused(sql(analyst, evidence, three), "queries-exhausted")
    assert state(analyst, evidence)["queries_asked"] == 0
    narrow = f'EXPLAIN SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(within = 0.0001) COUNT(hours) FROM "{table}"'
    refused(sql(analyst, evidence, narrow), "plan-infeasible")


def test_explain_tells_prices_and_asks_nothing(service: Service, analyst: httpx.Client) -> None:
    """Would catch an EXPLAIN that charges, and a price that is not the one that is charged."""
    table = registered(service)
    session = opened(analyst, table, mechanism={"construction": "gaussian"})
    statement = f'SELECT sex, COUNT(*) AS n FROM "{table}" GROUP BY sex'
    explained = sql(analyst, session, f"EXPLAIN {statement}").json()
    names = [column["name"] for column in explained["columns"]]
    price = dict(zip(names, explained["rows"][0], strict=True))
    assert state(analyst, session)["queries_asked"] == 0
    answer = sql(analyst, session, statement).json()["answers"][0]
    assert answer["charged_epsilon"] == pytest.approx(price["epsilon"])
    assert price["epsilon"] > 0
    again = dict(zip(names, sql(analyst, session, f"EXPLAIN {statement}").json()["rows"][0], strict=True))
    assert (again["epsilon"], again["source"]) == (0, "cached")


def charges(analyst: httpx.Client, session: JSON, statement: str, **more: Any) -> tuple[float, list[float], float]:
    """What EXPLAIN says a statement costs, what each of its answers cost, and what all cost by the session's books."""
    told = analyst.post(f"/v1/sessions/{session['id']}/sql", json={"statement": f"EXPLAIN {statement}"}).json()
    place = [column["name"] for column in told["columns"]].index("epsilon")
    price, before = sum(row[place] for row in told["rows"]), state(analyst, session)["spent_epsilon"]
    asked = {"statement": statement} | {name: value(price) for name, value in more.items()}
    reply = analyst.post(f"/v1/sessions/{session['id']}/sql", json=asked)
    answers = [answer["charged_epsilon"] for answer in reply.json().get("answers", [])]
    return price, answers, state(analyst, session)["spent_epsilon"] - before


def test_a_price_is_that_of_a_question_behind_those_before_it(service: Service, analyst: httpx.Client) -> None:
    """Free ones use places of the session up, so that those behind have larger shares. Would catch prices that are each
    as if it came next."""
    table = registered(service)
    for questions in (6, 12, 20):
        session = opened(analyst, table, epsilon=2.0, max_queries=questions)
        free = ", ".join(f"COUNT(*) AS n{k}" for k in range(4))
        many = f'SELECT {free}, SUM(hours) FROM "{table}" WHERE code = {questions % 3}'
        price, answers, spent = charges(analyst, session, many)
        assert sum(answers) == pytest.approx(price, rel=1e-6)
        assert spent == pytest.approx(price, rel=1e-6)


@pytest.mark.parametrize("part", [1.0, 0.9, 0.5])
def test_all_answers_together_cost_no_more_than_was_allowed(
    service: Service, analyst: httpx.Client, monkeypatch: pytest.MonkeyPatch, part: float
) -> None:
    """Whatever was priced before. Would catch a bound that each question of a statement has to itself."""
    table = registered(service)
    monkeypatch.setattr("app.http.statements.check_prices", lambda *_: None)
    for seed in range(3):
        session = opened(analyst, table, epsilon=2.0, max_queries=9)
        statistics = "COUNT(*), COUNT(hours), SUM(hours), MEDIAN(hours), AVG(hours)"
        statement = f'SELECT {statistics} FROM "{table}" WHERE code = {seed}'
        price, _, spent = charges(analyst, session, statement, at_most=lambda price: price * part)
        assert spent <= price * part * (1 + 1e-9)


def test_a_result_is_an_arrow_table(analyst: httpx.Client, table: str, session: JSON) -> None:
    """Would catch columns of other types, and lists of quantiles that are told one by one."""
    statement = (
        f'SELECT code, PERCENTILE_DISC(ARRAY[0.25, 0.75]) WITHIN GROUP (ORDER BY hours) AS q FROM "{table}" '
        "GROUP BY code ORDER BY 1 DESC LIMIT 2"
    )
    reply = sql(analyst, session, statement, Accept="application/vnd.apache.arrow.stream")
    assert reply.status_code == 200, reply.text
    with pa.ipc.open_stream(io.BytesIO(reply.content)) as reader:
        found = reader.read_all()
    assert found.column_names == ["code", "q", "q_se", "q_low", "q_high"]
    assert found["code"].to_pylist() == [2, 1]
    assert found.schema.field("q").type == pa.list_(pa.float64())
    assert all(len(each) == 2 for each in found["q"].to_pylist())


def test_tables_are_shown_and_described(analyst: httpx.Client, table: str, session: JSON) -> None:
    """Would catch a data set that SHOW TABLES leaves out, and attributes of which DESCRIBE says something else."""
    assert table in [row[0] for row in sql(analyst, session, "SHOW TABLES").json()["rows"]]
    assert sql(analyst, session, f'DESCRIBE "{table}"').json()["rows"] == [
        ["sex", "categories", "'female', 'male'", True],
        ["hours", "numbers", "0 to 40, grid 1", True],
        ["code", "codes", "0 to 2", False],
    ]
    assert state(analyst, session)["queries_asked"] == 0


def test_translation_asks_nothing(service: Service, analyst: httpx.Client, table: str) -> None:
    """Would catch a translation that needs a session, and refusals without their place."""
    path = f"/v1/datasets/{table}/sql"
    told = analyst.post(path, json={"statement": f'SELECT COUNT(*) FROM "{table}" WHERE code = 1'}).json()
    assert told["questions"] == [{"type": "predicate", "where": {"code": 1}}]
    problem = refused(
        analyst.post(path, json={"statement": f'SELECT COUNT(*)\nFROM "{table}"\nWHERE cod = 1'}), "sql-refused"
    )
    assert (problem["line"], problem["column"], problem["length"], problem["near"]) == (3, 7, 3, "cod")
    assert problem["hint"] == "did you mean 'code'?"
    for body in ({"statement": 3}, {}, {"statement": "x", "more": 1}):
        refused(analyst.post(path, json=body), "invalid-request")
    refused(service.principal("auditor").post(path, json={"statement": "SHOW TABLES"}), "forbidden")
    refused(analyst.post("/v1/datasets/nobodys/sql", json={"statement": "SHOW TABLES"}), "not-found")


def test_sessions_on_made_up_records_and_of_others(service: Service, analyst: httpx.Client, table: str) -> None:
    """Would catch rehearsals that SQL cannot be used in, and a session that answers whoever knows its id."""
    rehearsal = opened(analyst, table, dummy=True)
    assert sql(analyst, rehearsal, f'SELECT COUNT(*) FROM "{table}"').status_code == 200
    other = service.principal("analyst")
    refused(sql(other, rehearsal, f'SELECT COUNT(*) FROM "{table}"'), "not-found")


def test_other_data_have_no_sql(service: Service, analyst: httpx.Client) -> None:
    """Would catch a graph that ends in a 500."""
    name = unique("graph")
    spec = {"name": name, "kind": "graph", "nodes": 4, "budget": SPEC["budget"]}
    assert register(service.admin, spec, b"0,1\n1,2\n").status_code == 201
    reply = analyst.post(f"/v1/datasets/{name}/sql", json={"statement": f'SELECT COUNT(*) FROM "{name}"'})
    assert "SQL asks tables" in refused(reply, "invalid-request")["detail"]


#: Statements of somebody who means no good, or of a tool that means something else.
HOSTILE = [
    "(" * 4000,
    "SELECT COUNT(*) FROM {t} WHERE " + "NOT " * 2000 + "code = 1",
    "SELECT COUNT(*) FROM {t} WHERE code = " + "ARRAY[" * 25 + "1" + "]" * 25,
    "SELECT COUNT(*) FROM {t} WHERE code = " + "DATE(" * 25 + "1" + ")" * 25,
    "SELECT COUNT(*) FROM {t} WHERE sex" + "[1]" * 1500 + " = 1",
    "SELECT COUNT(*) FROM {t} WHERE hours IN (" + "41, " * 2000 + "41)",
    "SELECT " + "*, " * 2500 + "* FROM {t} LIMIT 0",
    "SELECT COUNT(*) FROM {t} WHERE hours < 1e400",
    "SELECT COUNT(*) FROM {t} WHERE hours < " + "9" * 9000,
    "SELECT sex, COUNT(*) FROM {t} GROUP BY sex LIMIT 1e9",
    "SELECT COUNT(*) FROM {t}; DROP TABLE {t}",
    "SELECT COUNT(*) FROM {t} /* ",
    "SELECT COUNT(*) FROM {t} WHERE sex = 'x",
    "SELECT COUNT(*) FROM {t} WHERE sex = E'\\x41'",
    "SELECT COUNT(*) FROM {t} WHERE sex = '\u0000'",
    "SELECT COUNT(*) FROM {t} WHERE ſex = 'male'",
    'SELECT COUNT("SEX") FROM {t}',
    "EXPLAIN SELECT MAX(hours) FROM {t}",
    "EXPLAIN EXPLAIN SELECT COUNT(*) FROM {t}",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1, EPSILON = 9) COUNT(*) FROM {t}",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon = 1e400) COUNT(*) FROM {t}",
    "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS() WITH DIFFERENTIAL_PRIVACY OPTIONS() COUNT(*) FROM {t}",
    "SELECT COUNT(*) FROM {t} AS s(a)",
    "SELECT PERCENTILE_DISC(1e-400) WITHIN GROUP (ORDER BY hours) FROM {t}",
    "SELECT FLOOR(hours / 1e-9) * 1e-9, COUNT(*) FROM {t} GROUP BY 1",
    "\ufeff" * 10,
    "",
]


@pytest.mark.adversarial
def test_hostile_statements_are_refused_with_their_place(
    service: Service, analyst: httpx.Client, table: str, session: JSON
) -> None:
    """A statement holds the parser for hours, ends in a 500, or is charged for. Would catch a nesting that the parser
    reads again and again, and a refusal without its place and the way on."""
    before = service.ledgers()
    for statement in HOSTILE:
        said = statement.replace("{t}", f'"{table}"')
        begun = time.process_time()
        told = refused(sql(analyst, session, said), "sql-refused")
        assert time.process_time() - begun < patience(5)
        lines = said.split("\n")
        assert 1 <= told["line"] <= len(lines)
        assert 1 <= told["column"] <= len(lines[told["line"] - 1]) + 1
        assert told["hint"], said
    assert state(analyst, session)["queries_asked"] == 0
    assert service.ledgers() == before


def test_what_was_answered_is_answered_when_no_question_is_left(analyst: httpx.Client, table: str) -> None:
    """Would catch a dashboard whose refresh is refused as it has asked its last question."""
    session = opened(analyst, table, max_queries=1)
    statement = f'SELECT COUNT(*) FROM "{table}" WHERE sex IS NULL'
    first = sql(analyst, session, statement)
    again = sql(analyst, session, statement)
    assert (first.status_code, again.status_code) == (200, 200)
    assert again.json()["rows"] == first.json()["rows"]
    refused(sql(analyst, session, f"{statement} OR code = 1"), "queries-exhausted")
