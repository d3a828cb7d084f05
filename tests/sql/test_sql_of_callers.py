"""Statements of SQL by the client and on the command line."""

from __future__ import annotations

import csv
import io
import os

import pytest

from curator_client import Curator, SqlRefused, TooExact
from tests.kit.servers import run
from tests.kit.service import Service
from tests.sql.test_sql_over_http import registered

pytestmark = pytest.mark.api

#: How many are female, male and neither.
TRUE = (500, 1000, 500)


def test_the_client_asks_statements(service: Service) -> None:
    """Catches a bound that is not heeded, answers that are no part of what the session was told, a price that asks,
    and a refusal that does not show its place."""
    name = registered(service)
    statement = f'SELECT sex, COUNT(*) AS n FROM "{name}" GROUP BY sex'
    with (
        Curator(service.url, service.admin_key) as curator,
        curator.session(name, epsilon=1.0, max_queries=20, mechanism="gaussian") as session,
    ):
        price = session.sql(f"EXPLAIN {statement}")[0]["epsilon"]
        assert price > 0
        for at_most in (0, price / 2):
            with pytest.raises(TooExact, match="at_most"):
                session.sql(statement, at_most=at_most)
        assert session.state().queries_asked == 0
        result = session.sql(statement, at_most=1.01 * price)
        assert result.columns == ("sex", "n", "n_se", "n_low", "n_high")
        assert [row["sex"] for row in result] == ["female", "male", None]
        assert all(abs(row["n"] - true) < 6 * row["n_se"] for row, true in zip(result, TRUE, strict=True))
        assert [answer.charged for answer in result.answers] == [pytest.approx(price)]
        assert session.head == (result.answers[0].sequence, result.answers[0].entry_hash)
        assert session.sql(statement, at_most=0).answers[0].charged == 0
        with pytest.raises(SqlRefused) as refused:
            session.sql(f'SELECT COUNT(*)\nFROM "{name}" WHERE age > 3')
        assert (refused.value.line, refused.value.near) == (2, "age")
        assert str(refused.value).splitlines()[-1].strip() == "^^^"
        session.verify()


@pytest.mark.parametrize("at_most", [-0.1, "1", True, float("inf")])
def test_what_a_statement_may_cost_is_a_number(service: Service, at_most: object) -> None:
    """Catches a bound that is passed over as it is none: the statement would cost what it likes."""
    name = registered(service)
    opened = service.admin.post("/v1/sessions", json={"dataset": name, "epsilon": 0.5}).json()
    content = f'{{"statement": "SELECT COUNT(*) FROM {name}", "at_most": {str(at_most).replace("True", "true")}}}'
    if isinstance(at_most, str):
        content = content.replace('"at_most": 1', '"at_most": "1"')
    reply = service.admin.post(
        f"/v1/sessions/{opened['id']}/sql",
        content=content.replace("inf", "1e999"),
        headers={"Content-Type": "application/json"},
    )
    assert (reply.status_code, reply.json()["type"]) == (422, "/problems/invalid-request"), reply.text
    assert service.admin.get(f"/v1/sessions/{opened['id']}").json()["queries_asked"] == 0


def test_the_command_line_asks_statements(service: Service) -> None:
    """Catches a command that asks where it is to explain, CSV of other rows, and a refusal without its place."""
    name = registered(service)
    opened = service.admin.post("/v1/sessions", json={"dataset": name, "epsilon": 0.5, "max_queries": 5}).json()
    environment = {each: value for each, value in os.environ.items() if not each.startswith("CURATOR_")}
    environment |= {"CURATOR_URL": service.url, "CURATOR_API_KEY": service.admin_key, "COLUMNS": "80"}
    statement = f'SELECT code, COUNT(*) AS n FROM "{name}" GROUP BY code'

    def asked(*words: str) -> tuple[int, str, str]:
        done = run(["sql", opened["id"], *words], environment)
        return done.returncode, done.stdout, done.stderr

    code, said, _ = asked(statement, "--explain")
    assert (code, "epsilon" in said) == (0, True)
    assert service.admin.get(f"/v1/sessions/{opened['id']}").json()["queries_asked"] == 0
    code, said, _ = asked(statement, "--csv")
    rows = list(csv.DictReader(io.StringIO(said)))
    assert (code, [row["code"] for row in rows], [*rows[0]]) == (
        0,
        ["0", "1", "2"],
        ["code", "n", "n_se", "n_low", "n_high"],
    )
    assert asked(statement, "--at-most", "0")[0] == 0  # it was paid for
    code, _, wrong = asked(f'SELECT MAX(hours) FROM "{name}"')
    assert (code, "^^^" in wrong) == (1, True)
