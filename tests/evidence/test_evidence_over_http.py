"""Evidence sessions through the whole service: asked, charged, recorded, exported, replayed, and shared."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from app.bootstrap.noise import SystemNoise
from app.estimation.tables import dual
from app.verifying.transcript import replay_file
from curator_client import Curator
from tests.kit.service import JSON, Service, ask, refused, register, serving, unique

pytestmark = pytest.mark.api

SIZES = {"sex": 2, "work": 5, "age": 8, "race": 4, "state": 12}
SPEC: JSON = {
    "kind": "table",
    "attributes": [{"name": name, "size": size} for name, size in SIZES.items()],
    "budget": {"epsilon": 1.0, "delta": 1e-9},
}
RECORDS = 20_000


def codes() -> dict[str, Any]:
    """Records whose attributes hang together."""
    rng = np.random.default_rng(5)
    latent = rng.random(RECORDS)
    found = {}
    for name, size in SIZES.items():
        place = np.clip(latent + rng.normal(0, 0.3, RECORDS), 0, 0.999)
        found[name] = np.where(rng.random(RECORDS) < 0.5, place * size, rng.random(RECORDS) ** 2 * size).astype(int)
    return found


CODES = codes()
CSV = "\n".join(
    [",".join(CODES), *(",".join(map(str, row)) for row in np.stack(list(CODES.values()), axis=1).tolist())]
).encode()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server with noise of its own."""
    with serving(tmp_path_factory.mktemp("evidence"), noise=SystemNoise()) as running:
        yield running


@pytest.fixture(scope="module")
def analyst(service: Service) -> httpx.Client:
    return service.principal("analyst")


def registered(service: Service, **more: Any) -> str:
    name = unique("survey")
    reply = register(service.admin, {**SPEC, "name": name, **more}, CSV, "survey.csv")
    assert reply.status_code == 201, reply.text
    return name


def opened(client: httpx.Client, dataset: str, **words: Any) -> JSON:
    """A session whose mechanism is left open, unless it is said."""
    reply = client.post("/v1/sessions", json={"dataset": dataset, "epsilon": 1.0, **words})
    assert reply.status_code == 201, reply.text
    found: JSON = reply.json()
    return found


def predicate(rng: np.random.Generator, order: int = 2) -> tuple[JSON, float]:
    """A filtered count and the truth."""
    names = rng.choice(list(SIZES), order, replace=False)
    where, kept = {}, np.ones(RECORDS, dtype=bool)
    for name in names.tolist():
        values = np.flatnonzero(rng.random(SIZES[name]) < 0.5).tolist() or [0]
        where[name] = {"in": values}
        kept &= np.isin(CODES[name], values)
    return {"type": "predicate", "where": where}, float(kept.sum())


def marginal(names: list[str]) -> tuple[JSON, Any]:
    counts = np.zeros([SIZES[name] for name in names])
    np.add.at(counts, tuple(CODES[name] for name in names), 1)
    return {"type": "marginal", "attributes": names}, counts.reshape(-1)


def transcript(service: Service, client: httpx.Client, id: str, path: Path) -> Path:
    reply = client.get(f"/v1/sessions/{id}/transcript")
    assert reply.status_code == 200
    path.write_bytes(reply.content)
    return path


def test_a_fit_that_ends_early_is_counted(
    service: Service, analyst: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: no search meets its tolerance. The answer is there, and the operator is told how many were made of
    something else. Would catch another model in place of the fit that nobody hears of."""

    def counted() -> float:
        (line,) = (
            line
            for line in service.admin.get("/metrics").text.splitlines()
            if line.startswith('curator_not_converged_total{what="answers"}')
        )
        return float(line.split()[-1])

    id = opened(analyst, registered(service))["id"]
    asked = {"type": "predicate", "where": {"sex": {"equals": 1}, "work": {"in": [1, 3]}}}
    before = counted()
    ask(analyst, id, asked)
    assert counted() == before
    monkeypatch.setattr(dual, "_MOST_STEPS", 0)
    ask(analyst, id, {"type": "predicate", "where": {"sex": {"equals": 0}, "age": {"in": [1, 3]}}})
    assert counted() == before + 1


def test_a_session_answers_charges_and_replays(service: Service, analyst: httpx.Client, tmp_path: Path) -> None:
    """Left to choose, the service answers a table's questions from evidence: some are paid, most are not, what is spent
    is the sum of what was charged, and the transcript replays from the file alone. Catches a measurement that is not
    recorded, a charge that is not in the books, an estimate that does not follow, and intervals that do not hold.
    """
    name = registered(service)
    session = opened(analyst, name, max_queries=400)
    id, plan = session["id"], session["plan"]
    assert session["mechanism"]["construction"] == "evidence"
    assert plan["mode"] == "lift"
    rng = np.random.default_rng(1)
    charged, errors, held, sources = 0.0, [], [], []
    for _ in range(120):
        query, truth = predicate(rng)
        answer = ask(analyst, id, query)
        charged += answer["charged_epsilon"]
        sources.append(answer["source"])
        errors.append(answer["value"] - truth)
        low, high = answer["interval"]
        if answer["interval_kind"] == "unbiased":
            held.append(low <= truth <= high)
        assert low <= answer["value"] + 2 * answer["standard_error"]
    assert 0 < sources.count("measurement") < sources.count("estimate")
    assert np.sqrt(np.mean(np.square(errors))) < 80  # independent noise on each of the 400 errs by 120 and more
    assert np.mean(held) > 0.5  # of questions that share their noise; the law itself is held elsewhere
    table, truth = marginal(["age", "sex"])
    answer = ask(analyst, id, table)
    assert [axis["attribute"] for axis in answer["axes"]] == ["age", "sex"]
    assert np.abs(np.array(answer["values"]) - truth).max() < 1000
    again = ask(analyst, id, table)
    assert (again["source"], again["values"], again["charged_epsilon"]) == ("cached", answer["values"], 0)
    state = analyst.get(f"/v1/sessions/{id}").json()
    ledger = service.admin.get(f"/v1/datasets/{name}/ledger").json()
    assert Decimal(ledger["spent"]) == Decimal(state["spent"])
    verdict = replay_file(transcript(service, analyst, id, tmp_path / "t.ndjson"))
    assert verdict.ok, (verdict.problem, verdict.sequence)
    assert verdict.summary["spent"] == state["spent"]
    assert charged < state["spent_epsilon"] < 1


def asked_many(client: httpx.Client, id: str, rng: np.random.Generator, number: int) -> list[JSON]:
    return [ask(client, id, predicate(rng)[0]) for _ in range(number)]


def test_a_plan_says_what_to_expect(service: Service, analyst: httpx.Client) -> None:
    """What is chosen and why, the errors to expect of counts, and that no bound of all answers is promised. Catches
    advice that speaks of mechanisms which were not asked for, and a plan that costs something."""
    name = registered(service)
    plan = analyst.post("/v1/plans", json={"dataset": name, "epsilon": 0.5, "max_queries": 100}).json()
    assert plan["mechanism"]["construction"] == "evidence"
    assert plan["why"]
    expected = plan["expected_standard_errors"]
    assert 0 < expected["one_attribute"] < expected["two_attributes"] < plan["independent_gaussian"]["sigma"]
    assert plan["error_bound"] is None
    assert plan["advice"].startswith("Each answer says how well it is known")
    other = {"dataset": name, "epsilon": 0.5, "max_queries": 100, "mechanism": {"construction": "gaussian"}}
    assert analyst.post("/v1/plans", json=other).json()["expected_standard_errors"] is None
    assert service.admin.get(f"/v1/datasets/{name}").json()["budget"]["spent_epsilon"] == 0


def test_what_one_session_paid_for_serves_the_next(service: Service, analyst: httpx.Client, tmp_path: Path) -> None:
    """A second session answers what the first one measured without paying; one that starts from nothing does not, and
    what is not shared serves nobody else. Both transcripts replay from their files alone. Catches evidence that is lost
    or used where it may not be, and a pin that a replay does not need.
    """
    name = registered(service)
    first = opened(analyst, name, max_queries=8, epsilon=0.4)["id"]
    table, truth = marginal(["age", "work"])
    paid = ask(analyst, first, table)
    assert paid["source"] == "measurement"
    own = opened(analyst, name, max_queries=8, epsilon=0.1, share=False)["id"]
    other = marginal(["race", "state"])[0]
    assert ask(analyst, own, other)["source"] == "measurement"
    later = opened(service.principal("analyst"), name, max_queries=8, epsilon=0.1)
    mine = opened(analyst, name, max_queries=8, epsilon=0.1)["id"]
    free = ask(analyst, mine, table)
    assert (free["source"], free["charged_epsilon"]) == ("estimate", 0)
    assert np.abs(np.array(free["values"]) - truth).mean() < 40
    assert ask(analyst, mine, other)["source"] == "measurement"
    alone = opened(analyst, name, max_queries=8, epsilon=0.1, start="nothing")["id"]
    assert ask(analyst, alone, table)["source"] == "measurement"
    assert later["plan"]["mode"] == "lift"
    for id in (first, own, mine, alone):
        verdict = replay_file(transcript(service, analyst, id, tmp_path / f"{id}.ndjson"))
        assert verdict.ok, (verdict.problem, verdict.sequence)


def test_what_tells_nothing_serves_nobody_else(service: Service, analyst: httpx.Client, tmp_path: Path) -> None:
    """A measurement that costs less than a millionth of the budget. Would catch thousands of them, for less than any
    budget notices, that every later session has to read."""
    name = registered(service)
    first = opened(analyst, name, epsilon=1e-9)["id"]
    for names, within in ((["age", "work"], 1e6), (["race", "state"], 1e15)):
        question = marginal(names)[0] | {"within": within, "adaptive": True}
        assert ask(analyst, first, question)["source"] == "measurement"
    second = opened(analyst, name, epsilon=0.1, max_queries=8)["id"]
    told = transcript(service, analyst, second, tmp_path / "second.ndjson")
    assert json.loads(told.read_bytes().split(b"\n")[0])["evidence"]["known"] == []
    for id in (first, second):
        verdict = replay_file(transcript(service, analyst, id, tmp_path / f"{id}.ndjson"))
        assert verdict.ok, (verdict.problem, verdict.sequence)


def test_measurements_are_listed_for_all_who_may_see_them(service: Service, analyst: httpx.Client) -> None:
    """What was measured stands in the list of its data set with its noise and cost, and has its values; what is not
    shared is shown to auditors and admins alone. Catches a released number that is nowhere to be found, one that is
    shown to those whom it does not serve, a page that leaves one out, and a client that reads another page.
    """
    name = registered(service)
    id = opened(analyst, name, max_queries=8, epsilon=0.2)["id"]
    asked_many(analyst, id, np.random.default_rng(3), 5)
    hidden = opened(analyst, name, max_queries=8, epsilon=0.2, share=False)["id"]
    ask(analyst, hidden, marginal(["race", "state"])[0])
    listed = analyst.get(f"/v1/datasets/{name}/measurements").json()["items"]
    assert listed
    assert {item["by"] for item in listed} == {id}
    every = service.admin.get(f"/v1/datasets/{name}/measurements", params={"limit": 1000}).json()["items"]
    assert {item["by"] for item in every} == {id, hidden}
    pages, address = [], f"/v1/datasets/{name}/measurements?limit=3"
    while address:
        page = service.admin.get(address).json()
        pages += page["items"]
        address = page.get("next", "")
    assert pages == every
    ledger = service.admin.get(f"/v1/datasets/{name}/ledger").json()
    assert sum(Decimal(item["cost"]["renyi"]) for item in every) == Decimal(ledger["spent"])
    one = next(item for item in listed if item["strategy"]["attributes"] == ["sex"])
    shown = analyst.get(f"/v1/datasets/{name}/measurements/{one['id']}").json()
    assert shown["axes"] == [{"attribute": "sex", "labels": [0, 1]}]
    with Curator(service.url, service.admin_key) as client:
        measured = client.dataset(name).measurements()
        assert [each.raw for each in measured] == every
        (same,) = [each for each in measured if each.id == one["id"]]
        assert (same.values(), same.by, same.recorded_at) == (shown, one["by"], one["recorded_at"])
        counts = same.table()
        assert [float(row.value) for row in counts] == shown["values"]
        assert counts.cell(1).standard_error == shown["standard_error"]
    truth = np.bincount(CODES["sex"], minlength=2)
    assert np.abs(np.array(shown["values"]) - truth).max() < 6 * shown["standard_error"]
    stream = analyst.get(
        f"/v1/datasets/{name}/measurements/{one['id']}", headers={"Accept": "application/vnd.apache.arrow.stream"}
    )
    table = pa.ipc.open_stream(stream.content).read_all().to_pydict()
    assert (table["sex"], table["value"]) == ([0, 1], shown["values"])
    assert table["standard_error"] == [shown["standard_error"]] * 2
    unseen = next(item["id"] for item in every if item["by"] == hidden)
    refused(analyst.get(f"/v1/datasets/{name}/measurements/{unseen}"), "not-found")
    refused(analyst.get(f"/v1/datasets/{name}/measurements/{'0' * 64}"), "not-found")
    refused(analyst.get("/v1/datasets/nothing/measurements"), "not-found")


def test_measurements_of_a_data_set_by_grant(service: Service, analyst: httpx.Client) -> None:
    """Are shown to those who have one, and to admins and auditors. Catches released numbers that anybody may see where
    not everybody may ask."""
    name = registered(service, access="granted")
    address = f"/v1/datasets/{name}/measurements"
    refused(analyst.get(address), "forbidden")
    refused(analyst.get(f"{address}/{'0' * 64}"), "forbidden")
    assert service.admin.get(address).status_code == 200
    assert service.principal("auditor").get(address).status_code == 200
    who = unique("grantee")
    granted = service.principal("analyst", who)
    assert service.admin.put(f"/v1/datasets/{name}/grants/{who}", json={"epsilon": 0.1}).status_code == 200
    assert granted.get(address).status_code == 200


def test_accuracy_first(service: Service, analyst: httpx.Client, tmp_path: Path) -> None:
    """A question that says how well it wants to be known pays the least that gets there; asked again for less it is
    cached, for more it is refined at the difference; what cannot be had is refused, and nothing is drawn. Catches an
    interval that is wider than promised, a price that is more than needed, and a refusal that costs something.
    """
    name = registered(service)
    id = opened(analyst, name, max_queries=50)["id"]
    query = {"type": "predicate", "where": {"age": {"in": [1, 2]}, "state": {"in": [0, 3, 4]}}}
    rough = ask(analyst, id, query | {"within": 120})
    assert rough["interval"][1] - rough["interval"][0] <= 240
    assert rough["interval_kind"] == "unbiased"
    again = ask(analyst, id, query | {"within": 150})
    assert (again["source"], again["charged_epsilon"]) == ("cached", 0)
    fine = ask(analyst, id, query | {"within": 60})
    assert fine["source"] == "measurement"
    assert fine["interval"][1] - fine["interval"][0] <= 120
    before = service.admin.get(f"/v1/datasets/{name}/ledger").json()
    problem = refused(analyst.post(f"/v1/sessions/{id}/queries", json=query | {"within": 0.5}), "plan-infeasible")
    assert problem["needed"] > problem["left"]
    assert service.admin.get(f"/v1/datasets/{name}/ledger").json() == before
    verdict = replay_file(transcript(service, analyst, id, tmp_path / "t.ndjson"))
    assert verdict.ok, (verdict.problem, verdict.sequence)


def test_a_session_that_says_how_well_it_wants_to_know(service: Service, analyst: httpx.Client, tmp_path: Path) -> None:
    """Many questions of a small table within so many counts take one measurement, and a small part of the budget; what
    cannot be had is refused at the opening. Catches a session that spends its share whatever is wished, an interval
    that is too wide, and a refusal that costs something."""
    name = unique("small")
    spec = {**SPEC, "name": name, "attributes": [{"name": "sex", "size": 2}, {"name": "work", "size": 5}]}
    assert register(service.admin, spec, CSV, "survey.csv").status_code == 201
    words = {"dataset": name, "epsilon": 1.0, "max_queries": 1000}
    problem = refused(analyst.post("/v1/sessions", json=words | {"within": 5}), "plan-infeasible")
    assert problem["needed"] > problem["left"]
    assert service.admin.get(f"/v1/datasets/{name}").json()["budget"]["spent_epsilon"] == 0
    id = opened(analyst, name, max_queries=1000, within=1000)["id"]
    for work in range(1, 5):
        answer = ask(analyst, id, {"type": "predicate", "where": {"work": {"lt": work}, "sex": 1}})
        assert (answer["source"], answer["interval_kind"]) == ("estimate", "unbiased")
        assert answer["interval"][1] - answer["interval"][0] <= 2000
    assert 0 < service.admin.get(f"/v1/datasets/{name}").json()["budget"]["spent_epsilon"] < 0.01
    verdict = replay_file(transcript(service, analyst, id, tmp_path / "t.ndjson"))
    assert verdict.ok, (verdict.problem, verdict.sequence)


@pytest.mark.parametrize("epsilon", [0.5, 1.0])
def test_a_histogram_is_one_measurement(
    service: Service, analyst: httpx.Client, tmp_path: Path, epsilon: float
) -> None:
    """Of the whole table, with less noise where it takes all of an untouched budget; whatever is asked then is free.
    Catches a question that is paid, and noise of the wrong sum."""
    name = registered(service)
    session = opened(analyst, name, epsilon=epsilon, max_queries=100, mechanism={"construction": "histogram"})
    assert (session["plan"]["mode"], session["plan"]["regime"]) == ("table", "pure" if epsilon == 1 else "renyi")
    rng = np.random.default_rng(2)
    for _ in range(5):
        query, truth = predicate(rng)
        answer = ask(analyst, session["id"], query)
        assert (answer["source"], answer["charged_epsilon"]) == ("estimate", 0)
        assert abs(answer["value"] - truth) < 6 * answer["standard_error"]
    noise = service.admin.get(f"/v1/datasets/{name}/measurements").json()["items"][-1]["noise"]
    assert noise["kind"] == "laplace"
    # Nine tenths of epsilon measure the cells, one the total; counted by the other sum it takes more noise than that.
    assert (noise["scale"] < 1.2) == (epsilon == 1)
    verdict = replay_file(transcript(service, analyst, session["id"], tmp_path / "t.ndjson"))
    assert verdict.ok, (verdict.problem, verdict.sequence)


def test_a_small_table_is_measured_whole_with_pure_noise(
    service: Service, analyst: httpx.Client, tmp_path: Path
) -> None:
    """A session that takes all of an untouched budget measures a small table at its opening, and everything after is
    free; the pure sum of the ledger holds its epsilon. Catches noise of the other regime, and a question that is paid.
    """
    name = unique("small")
    spec = {**SPEC, "name": name, "attributes": [{"name": "sex", "size": 2}, {"name": "work", "size": 5}]}
    reply = register(service.admin, {**spec}, CSV, "survey.csv")
    assert reply.status_code == 201, reply.text
    session = opened(analyst, name, max_queries=1000)
    assert (session["plan"]["mode"], session["plan"]["regime"]) == ("table", "pure")
    id = session["id"]
    table, truth = marginal(["sex", "work"])
    answer = ask(analyst, id, table)
    assert (answer["source"], answer["charged_epsilon"]) == ("estimate", 0)
    assert np.abs(np.array(answer["values"]) - truth).max() < 25
    assert answer["standard_errors"][0] < 3
    budget = service.admin.get(f"/v1/datasets/{name}").json()["budget"]
    assert budget["impure"] is False
    assert budget["pure"]["spent_epsilon"] == pytest.approx(1.0, abs=1e-3)
    verdict = replay_file(transcript(service, analyst, id, tmp_path / "t.ndjson"))
    assert verdict.ok, (verdict.problem, verdict.sequence)
