"""What plans and opened sessions foretell, as the service sends it and as clients show it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from app.cli.application import cli
from curator_client import Curator
from curator_client.expectations import WIDTH, expectation_text
from tests.kit.service import JSON, Service, ask, register, unique

pytestmark = pytest.mark.api

LONG = "hours worked in a usual week, overtime included"
SPEC: dict[str, Any] = {
    "kind": "table",
    "attributes": [
        {"name": "sex", "values": ["f", "m"]},
        {"name": "age", "lower": 15, "upper": 94, "grid": 1, "bins": 16},
        {"name": LONG, "lower": 0, "upper": 80, "grid": 0.5},
    ],
    "budget": {"epsilon": 1.0, "delta": 1e-6},
}
ROWS = ["f,30,40", "m,41,38.5", "f,72,0", "m,19,12", "f,55,60"]


def registered(service: Service, rows: list[str], **more: Any) -> str:
    name = unique("survey")
    text = "\n".join([f'sex,age,"{LONG}"', *rows]) + "\n"
    reply = register(service.admin, {**SPEC, "name": name, **more}, text.encode(), "survey.csv")
    assert reply.status_code == 201, reply.text
    return name


def planned(client: httpx.Client, dataset: str, **words: Any) -> httpx.Response:
    reply = client.post("/v1/plans", json={"dataset": dataset, "epsilon": 0.5, **words})
    assert reply.status_code == 200, reply.text
    return reply


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize(
    "words", [{}, {"max_queries": 2}, {"max_queries": 300}, {"within": 20.0}, {"max_queries": 50, "contract": True}]
)
def test_plans_are_the_same_bytes_for_other_records(service: Service, public: bool, words: JSON) -> None:
    """Two data sets of one declaration whose records differ, as many where that is public, one more where it is not.
    Would catch an error that is foretold by looking at the data."""
    other = ["m,80,0", *ROWS[1:]] if public else [*ROWS, "m,80,0"]
    names = [registered(service, rows * 20, records_public=public) for rows in (ROWS,)]
    names.append(registered(service, ROWS * 19 + other, records_public=public))
    one, two = (planned(service.principal("analyst"), name, **words).content for name in names)
    assert one == two


def test_a_plan_foretells_every_kind_of_question(service: Service) -> None:
    """By kind, by attribute, each with its unit, and in an opened session as well, there by what its opening measured.
    Would catch a kind that is left out, and a reply of the opening without it."""
    name, analyst = registered(service, ROWS * 20, records_public=True), service.principal("analyst")
    plan = planned(analyst, name).json()
    told, about = plan["expected_standard_errors"], plan["expectation"]
    assert (
        set(told)
        == {"one_attribute", "two_attributes", "cell", "share", "mean", "sum", "median"}
        == set(about["units"])
    )
    for kind in ("mean", "sum", "median"):
        assert set(told[kind]) == {"age", LONG}
        assert all(error > 0 for error in told[kind].values())
    assert set(about["tenth"]) == set(told)
    assert about["tenth"]["cell"] > told["cell"] > 0
    assert about["records"] == 100
    assert plan["questions_within"] is None
    opened = analyst.post("/v1/sessions", json={"dataset": name, "epsilon": 0.5}).json()["plan"]
    assert set(opened["expected_standard_errors"]) == set(told)
    assert opened["expected_standard_errors"]["cell"] == pytest.approx(told["cell"], rel=0.05)
    assert opened["expectation"]["records"] == 100
    declared = planned(analyst, name, max_queries=10).json()
    assert declared["expectation"]["tenth"] is None


def test_a_plan_says_how_many_questions_of_an_accuracy_it_pays_for(service: Service) -> None:
    """With ``within``, and fewer for a higher confidence. Would catch an accuracy that changes nothing."""
    name, analyst = registered(service, ROWS * 20, records_public=False), service.principal("analyst")
    told = [
        planned(analyst, name, within=40, **more).json()["questions_within"] for more in ({}, {"confidence": 0.999})
    ]
    assert (told[0]["within"], told[0]["confidence"], told[0]["whole_table"]) == (40.0, 0.95, False)
    assert told[0]["counts"] > told[1]["counts"] > 0
    assert f"{told[0]['counts']:,} different counts" in told[0]["words"][0]


@pytest.mark.parametrize("declared", [{"kind": "graph", "nodes": 60}, {"kind": "bipartite", "left": 60, "right": 60}])
def test_a_plan_of_a_graph_pays_for_as_many_cuts_as_it_says(service: Service, declared: JSON) -> None:
    """A session that asks for an accuracy measures as many cuts as its plan named, each within it. Would catch a number
    that the share does not pay for, and one that leaves most of it."""
    name, analyst = unique("friends"), service.principal("analyst")
    edges = "".join(f"{i},{j}\n" for i in range(30) for j in range(i + 1, 60, 7))
    spec = {**declared, "name": name, "budget": SPEC["budget"]}
    assert register(service.admin, spec, edges.encode(), "edges.csv").status_code == 201
    told = planned(analyst, name, within=60).json()["questions_within"]
    assert 5 < told["counts"] < 60
    assert told["whole_table"] is None
    assert "different cuts" in told["words"][0]
    id = analyst.post("/v1/sessions", json={"dataset": name, "epsilon": 0.5, "within": 60}).json()["id"]
    for start in range(told["counts"]):
        cut = {"type": "cut", "left": list(range(start, 30)), "right": list(range(30, 60))}
        low, high = ask(analyst, id, cut)["interval"]
        assert high - low <= 2 * 60
    state = analyst.get(f"/v1/sessions/{id}").json()
    assert 0 < state["spent_epsilon"] <= 0.5


def test_clients_show_the_same_table_in_eighty_columns(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans and opened sessions, printed by Python and by the command line: a row a kind and an attribute, however long
    its name is, and the sentences that come with them. Would catch a number that is only in JSON, a table that no
    terminal holds, and two printings that differ."""
    name = registered(service, ROWS * 20, records_public=True)
    key = service.principal("analyst").headers["authorization"].removeprefix("Bearer ")
    monkeypatch.setenv("CURATOR_URL", service.url)
    monkeypatch.setenv("CURATOR_API_KEY", key)
    with Curator(service.url, key) as curator:
        plan = curator.plan(name, epsilon=0.5)
        text = plan.expected
        assert text == expectation_text(plan.raw)
        assert text in str(plan)
        session = curator.session(name, epsilon=0.1)
        assert session.plan.expected in str(session)
        assert session.plan.expected_standard_errors is not None
        near = curator.plan(name, epsilon=0.5, within=40)
        assert "different counts within ± 40" in str(near)
    lines = text.splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert "tenth" in lines[0]
    for start in ("share of all records", "mean of age", "sum of age", "median of age", "mean of hours worked"):
        assert sum(line.startswith(start) for line in lines) == 1
    shown = CliRunner().invoke(cli, ["plan", name, "--epsilon", "0.5"]).output
    assert text in shown


def test_what_a_later_service_foretells_is_shown_too() -> None:
    """Kinds that this client does not know, numbers that are not known, and nothing at all. Would catch a client that
    cannot show a plan of a service that is newer."""
    told = {"expected_standard_errors": {"ratio": {"a": 0.5, "b": None}, "odds": 1234.5}}
    rows = [line.split() for line in expectation_text(told).splitlines()[1:]]
    assert rows == [["ratio", "of", "a", "±", "0.50"], ["ratio", "of", "b", "n/a"], ["odds", "±", "1,234"]]
    assert expectation_text({}) == ""
