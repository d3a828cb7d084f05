"""Sessions of epsilon 0: what was measured answers, what would have to be bought is refused, nothing is charged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from app.bootstrap.noise import SystemNoise
from app.cli.application import cli
from app.verifying.transcript import replay_file
from curator_client import Curator, Refused, where
from tests.evidence.test_evidence_over_http import marginal, opened, registered, transcript
from tests.kit.service import JSON, Service, ask, refused, register, serving, unique

pytestmark = pytest.mark.api


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with serving(tmp_path_factory.mktemp("free"), noise=SystemNoise()) as running:
        yield running


def books(service: Service, name: str) -> JSON:
    """All that a data set's ledger says but its movements."""
    ledger = service.admin.get(f"/v1/datasets/{name}/ledger").json()
    return {key: value for key, value in ledger.items() if key != "entries"}


def post(client: httpx.Client, id: str, question: JSON) -> httpx.Response:
    return client.post(f"/v1/sessions/{id}/queries", json=question)


def replays(service: Service, client: httpx.Client, id: str, folder: Path) -> None:
    verdict = replay_file(transcript(service, client, id, folder / f"{id}.ndjson"))
    assert verdict.ok, (verdict.problem, verdict.sequence)


def test_who_has_exhausted_a_budget_asks_what_is_free(service: Service, tmp_path: Path) -> None:
    """All of the budget is spent or held, and of the grant. What was measured is answered, sums of it too; another
    marginal, and a narrower interval than there is, are refused. Catches a share of 0 that a budget or a grant refuses,
    a model's guess told for a measurement, a movement of the books, and a session that does not replay."""
    dataset, name = registered(service), unique("ann")
    analyst = service.principal("analyst", name)
    service.admin.put(f"/v1/datasets/{dataset}/grants/{name}", json={"epsilon": 1.0})
    paying = opened(analyst, dataset, max_queries=4, epsilon=1.0)["id"]
    table, _ = marginal(["age", "work"])
    paid = ask(analyst, paying, table)
    service.admin.put(f"/v1/datasets/{dataset}/grants/{name}", json={"epsilon": 0})
    refused(analyst.post("/v1/sessions", json={"dataset": dataset, "epsilon": 0.01}), "budget-exhausted")
    before = books(service, dataset)

    words = {"dataset": dataset, "epsilon": 0}
    planned = analyst.post("/v1/plans", json=words).json()
    free = opened(analyst, dataset, epsilon=0)
    plan = free["plan"]
    assert (plan["mode"], plan["epsilon"], plan["epsilon_alone"], plan["reserved"], plan["reserved_pure"]) == (
        "free",
        0.0,
        0.0,
        "0",
        "0",
    )
    told = ("mode", "reserved", "epsilon_alone", "expected_standard_errors", "independent_gaussian")
    assert [planned[key] for key in told] == ["free", "0", 0.0, None, None]
    known = ask(analyst, free["id"], table)
    assert (known["source"], known["charged_epsilon"], known["interval_kind"]) == ("estimate", 0, "unbiased")
    assert known["standard_errors"] == pytest.approx(paid["standard_errors"], rel=0.5)
    coarser = ask(analyst, free["id"], {"type": "marginal", "attributes": ["age"]})
    assert (coarser["source"], coarser["charged_epsilon"]) == ("estimate", 0)
    assert ask(analyst, free["id"], table)["source"] == "cached"
    for question in (
        marginal(["race", "state"])[0],
        {"type": "predicate", "where": {"race": 0, "state": 0}},
        {**table, "within": 1e-3},
    ):
        problem = refused(post(analyst, free["id"], question), "plan-infeasible")
        assert problem["left"] == 0
    assert ask(analyst, free["id"], {**table, "within": 1e6})["charged_epsilon"] == 0
    state = analyst.get(f"/v1/sessions/{free['id']}").json()
    assert (state["spent_epsilon"], state["reserved_epsilon"], state["updates_used"]) == (0.0, 0.0, 0)
    assert books(service, dataset) == before
    replays(service, analyst, free["id"], tmp_path)
    assert analyst.post(f"/v1/sessions/{free['id']}/close").status_code == 200
    assert books(service, dataset) == before
    mine = [
        m for m in service.admin.get(f"/v1/datasets/{dataset}/ledger").json()["entries"] if m["session"] == free["id"]
    ]
    assert [(m["kind"], m["amount"], m["pure"]) for m in mine] == [("reserve", "0", "0"), ("return", "0", "0")]
    replays(service, analyst, free["id"], tmp_path)


def test_a_free_session_draws_no_noise_and_is_pure(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a data set of which nothing was measured all is refused, but what is public; its budget stays whole, for pure
    noise too. Catches noise or exact numbers behind a refusal, and a flag that takes the pure sum from others."""
    dataset = registered(service)
    analyst = service.principal("analyst")
    session = opened(analyst, dataset, epsilon=0)["id"]

    def draws(*_: Any) -> Any:
        raise AssertionError("noise is drawn")

    monkeypatch.setattr(SystemNoise, "laplace", draws)
    monkeypatch.setattr(SystemNoise, "gaussian", draws)
    for question in (marginal(["age"])[0], {"type": "predicate", "where": {"age": 1}}):
        refused(post(analyst, session, question), "plan-infeasible")
    shown = service.admin.get(f"/v1/datasets/{dataset}").json()["budget"]
    assert (shown["impure"], shown["remaining_epsilon"], shown["pure"]["remaining_epsilon"]) == (False, 1.0, 1.0)


def test_only_who_may_see_the_data_set(service: Service) -> None:
    """A grant of 0 is one; none is none. Catches a door around the access by grant."""
    dataset, name = registered(service, access="granted"), unique("ann")
    analyst, other = service.principal("analyst", name), service.principal("analyst")
    words = {"dataset": dataset, "epsilon": 0}
    service.admin.put(f"/v1/datasets/{dataset}/grants/{name}", json={"epsilon": 0})
    assert analyst.post("/v1/sessions", json=words).status_code == 201
    refused(other.post("/v1/sessions", json=words), "forbidden")
    refused(service.principal("auditor").post("/v1/sessions", json=words), "forbidden")


@pytest.mark.parametrize(
    "words",
    [
        {"mechanism": {"construction": "mw"}, "max_queries": 5},
        {"mechanism": {"construction": "gaussian"}, "max_queries": 5},
        {"mechanism": {"construction": "histogram"}},
        {"contract": True, "max_queries": 5},
        {"start": "nothing"},
        {"epsilon": -0.1},
    ],
)
def test_what_is_no_free_session(service: Service, words: JSON) -> None:
    """Catches a share of 0 where something must be bought."""
    asked = {"dataset": registered(service), "epsilon": 0, **words}
    for path in ("/v1/sessions", "/v1/plans"):
        refused(service.admin.post(path, json=asked), "invalid-request")


def test_by_the_client_and_the_command_line(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a plan that either cannot read."""
    dataset = registered(service)
    with Curator(service.url, service.admin_key) as curator:
        plan = curator.plan(dataset, epsilon=0)
        assert (plan.epsilon, plan.raw["mode"]) == (0, "free")
        with curator.session(dataset, epsilon=0) as session, pytest.raises(Refused, match="buys nothing"):
            session.ask(where(age=1).count())
    monkeypatch.setenv("CURATOR_URL", service.url)
    monkeypatch.setenv("CURATOR_API_KEY", service.admin_key)
    for words in (
        ["plan", dataset, "--epsilon", "0"],
        ["session", "open", dataset, "--epsilon", "0"],
        ["grants", dataset],
    ):
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, done.output
    assert "free" in CliRunner().invoke(cli, ["plan", dataset, "--epsilon", "0"]).output


def test_a_graph(service: Service, tmp_path: Path) -> None:
    """A cut that was measured is free, one that only degrees foretell is not. Catches a model's guess."""
    name = unique("graph")
    edges = "".join(f"{i} {(i * 7 + k) % 20}\n" for i in range(20) for k in (1, 2, 3) if i < (i * 7 + k) % 20).encode()
    spec = {"name": name, "kind": "graph", "nodes": 20, "budget": {"epsilon": 1.0, "delta": 1e-6}}
    assert register(service.admin, spec, edges, "g.txt").status_code == 201
    analyst = service.principal("analyst")
    cut = {"type": "cut", "left": [*range(10)], "right": [*range(10, 20)]}
    first = opened(analyst, name, epsilon=0.9, within=25)["id"]
    assert ask(analyst, first, cut)["source"] == "measurement"
    free = opened(analyst, name, epsilon=0)
    assert free["plan"]["mode"] == "free"
    told = ask(analyst, free["id"], cut)
    assert (told["source"], told["charged_epsilon"]) == ("estimate", 0)
    for other in ({**cut, "left": [*range(5)]}, {**cut, "within": 1e-3}):
        refused(post(analyst, free["id"], other), "plan-infeasible")
    replays(service, analyst, free["id"], tmp_path)
