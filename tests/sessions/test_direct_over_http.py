"""Direct mechanisms through the whole service: every kind of data, charged, recorded, exported, replayed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.verifying.transcript import replay_file
from tests.kit.noise import Noise
from tests.kit.service import JSON, Service, ask, npy, open_session, refused, register, unique

pytestmark = pytest.mark.api

BUDGET = {"epsilon": 1.0, "delta": 1e-9}
TABLE = {"kind": "table", "attributes": [{"name": "a", "size": 3}, {"name": "b", "size": 2}], "records_public": True}
KINDS: dict[str, tuple[JSON, bytes, str, list[tuple[JSON, float]]]] = {
    "table": (
        TABLE,
        npy(np.arange(6).reshape(3, 2)),
        "t.npy",
        [
            ({"type": "predicate", "where": {"a": {"equals": 1}}}, 5.0),
            ({"type": "dense", "weights": [0.5, -1, 0, 0, 0, 1]}, 4.0),
        ],
    ),
    "graph": (
        {"kind": "graph", "nodes": 4},
        b"0 1\n1 2\n",
        "g.txt",
        [({"type": "cut", "left": [1], "right": [0, 2]}, 2.0)],
    ),
    "matrix": (
        {"kind": "matrix", "rows": 2, "columns": 2, "lower": -1, "upper": 1},
        npy(np.array([[1, -0.5], [0.25, 0]])),
        "m.npy",
        [({"type": "rank_one", "left": [1, 1], "right": [1, 0]}, 1.25)],
    ),
    "multiset": (
        {"kind": "multiset"},
        b"element,count\nthe,7\nof,3\n",
        "w.csv",
        [({"type": "elements", "weights": {"the": 1.0, "of": -1.0}}, 4.0)],
    ),
}


@pytest.fixture(scope="module")
def analyst(service: Service) -> httpx.Client:
    return service.principal("analyst")


def opened(service: Service, analyst: httpx.Client, kind: str, law: str, **more: Any) -> tuple[str, JSON]:
    spec, data, filename, _ = KINDS[kind]
    name = unique(kind)
    reply = register(service.admin, {**spec, "name": name, "budget": BUDGET}, data, filename)
    assert reply.status_code == 201, reply.text
    asked = {"mechanism": {"construction": law}, "epsilon": 0.5, "max_queries": 4, "max_updates": None} | more
    return name, open_session(analyst, name, **asked)


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_data(
    service: Service, noise: Noise, analyst: httpx.Client, kind: str, law: str, tmp_path: Path
) -> None:
    """Answers are the truth and the noise, whatever these are; each is charged once. Catches a kind of data that cannot
    be measured, noise in other units, a charge that is missing in the books, and a transcript that does not replay.
    """
    name, session = opened(service, analyst, kind, law)
    id, unit, plan = session["id"], session["plan"]["answer_grid"], session["plan"]
    assert (plan["noise"], plan["threshold"], plan["max_updates"], session["updates_left"]) == (law, None, 4, 4)
    spent = Decimal(0)
    for number, (query, truth) in enumerate(KINDS[kind][3], start=1):
        noise.draw = lambda _scale, number=number: -number
        try:
            answer = ask(analyst, id, query)
        finally:
            noise.draw = lambda _scale: 0
        assert (answer["value"], answer["source"]) == (truth - number * unit, "measurement")
        assert answer["error_bound"] >= plan["error_bound"]
        assert 0 < answer["standard_error"] < answer["error_bound"]
        assert answer["charged_epsilon"] == pytest.approx(0.5 / 4, rel=1e-9)
        spent += Decimal(plan["cost_per_update"])
        again = ask(analyst, id, query)
        assert (again["value"], again["source"], again["charged_epsilon"]) == (answer["value"], "cached", 0.0)
        assert again["standard_error"] == answer["standard_error"]
    state = analyst.get(f"/v1/sessions/{id}").json()
    assert Decimal(state["spent"]) == spent
    ledger = service.admin.get(f"/v1/datasets/{name}/ledger").json()
    assert Decimal(ledger["spent"]) == spent
    assert [entry["kind"] for entry in ledger["entries"]] == ["reserve"] + ["charge"] * len(KINDS[kind][3])
    path = tmp_path / "transcript.ndjson"
    path.write_bytes(analyst.get(f"/v1/sessions/{id}/transcript").content)
    verdict = replay_file(path)
    assert verdict.ok, verdict.problem
    assert verdict.summary["measurement_answers"] == len(KINDS[kind][3])
    closed = analyst.post(f"/v1/sessions/{id}/close").json()
    assert (Decimal(closed["spent"]), closed["reserved"]) == (spent, "0")


LAPLACE = {"construction": "laplace"}
FIRST, SECOND = ({"type": "predicate", "where": {"a": {"equals": value}}} for value in (0, 1))


def untouched(service: Service, **budget: float) -> str:
    name = unique("pure")
    spec = {**TABLE, "name": name, "budget": BUDGET | budget}
    assert register(service.admin, spec, KINDS["table"][1], "t.npy").status_code == 201
    return name


def shown(service: Service, name: str) -> JSON:
    view: JSON = service.admin.get(f"/v1/datasets/{name}").json()["budget"]
    return view


def sums(spent: float, reserved: float, remaining: float) -> Any:
    amounts = {"spent_epsilon": spent, "reserved_epsilon": reserved, "remaining_epsilon": remaining}
    return pytest.approx(amounts, abs=1e-12)


class TestAllThatIsLeft:
    """Sessions of pure noise that take all that is left of a budget, by the sum of pure epsilons."""

    def test_it_spends_exactly_epsilon(self, service: Service, analyst: httpx.Client, tmp_path: Path) -> None:
        """Question by question, in the data set's budget, the ledger and the transcript. Catches a charge in one sum
        alone, one that is rounded down, an amount that is shown of the other sum, and a session that pays twice.
        """
        name = untouched(service)
        asked = {"dataset": name, "mechanism": LAPLACE, "epsilon": 1.0, "max_queries": 2}
        planned = analyst.post("/v1/plans", json=asked).json()
        session = open_session(analyst, name, mechanism=LAPLACE, epsilon=1.0, max_queries=2, max_updates=None)
        plan, path = session["plan"], f"/v1/sessions/{session['id']}"
        assert (planned["regime"], planned["noise_scale"]) == (plan["regime"], plan["noise_scale"]) == ("pure", 2.0)
        assert (Decimal(plan["reserved_pure"]), Decimal(session["spent_pure"])) == (1, 0)
        assert plan["noise_scale"] < analyst.post("/v1/plans", json=asked | {"epsilon": 0.999}).json()["noise_scale"]
        before = shown(service, name)
        assert (before["regime"], before["impure"]) == ("pure", False)  # the other sum is past its bound
        assert before["pure"] == sums(0, 1, 0)
        assert before["renyi"]["reserved_epsilon"] > 1
        for number, query in enumerate((FIRST, SECOND), start=1):
            answer = ask(analyst, session["id"], query)
            assert (answer["charged_epsilon"], answer["source"]) == (0.5, "measurement")
            state = analyst.get(path).json()
            assert (state["spent_epsilon"], state["reserved_epsilon"]) == (number / 2, 1 - number / 2)
            assert Decimal(state["spent_pure"]) == Decimal(number) / 2
            assert Decimal(state["spent"]) == number * Decimal(plan["cost_per_update"])
            assert shown(service, name)["pure"] == sums(number / 2, 1 - number / 2, 0)
        assert ask(analyst, session["id"], FIRST)["charged_epsilon"] == 0
        refused(analyst.post("/v1/sessions", json=asked | {"epsilon": 0.001}), "budget-exhausted")
        ledger = service.admin.get(f"/v1/datasets/{name}/ledger").json()
        assert [(m["kind"], Decimal(m["pure"])) for m in ledger["entries"]] == [
            ("reserve", 1),
            ("charge", Decimal("0.5")),
            ("charge", Decimal("0.5")),
        ]
        assert (Decimal(ledger["pure"]["spent"]), Decimal(ledger["pure"]["remaining"])) == (1, 0)
        transcript = tmp_path / "transcript.ndjson"
        transcript.write_bytes(analyst.get(f"{path}/transcript").content)
        verdict = replay_file(transcript)
        assert (verdict.ok, verdict.summary["spent_pure"]) == (True, analyst.get(path).json()["spent_pure"])
        assert analyst.post(f"{path}/close").json()["reserved_pure"] == "0"

    def test_what_it_gives_back_can_be_had_again(self, service: Service, analyst: httpx.Client) -> None:
        """All that is left again, as the descriptor shows it. Catches a remainder that cannot be asked for exactly, and
        one of the sum that has less left.
        """
        name, left = untouched(service), 1.0
        for _ in range(3):
            session = open_session(analyst, name, mechanism=LAPLACE, epsilon=left, max_queries=3, max_updates=None)
            assert session["plan"]["regime"] == "pure"
            ask(analyst, session["id"], FIRST)
            closed = analyst.post(f"/v1/sessions/{session['id']}/close").json()
            budget = shown(service, name)
            assert (budget["regime"], budget["impure"]) == ("pure", False)
            assert budget["remaining_epsilon"] == pytest.approx(left * 2 / 3, abs=1e-5)
            assert closed["spent_epsilon"] == pytest.approx(left / 3, abs=1e-5)
            left = budget["remaining_epsilon"]
        assert budget["renyi"]["remaining_epsilon"] < left

    def test_what_others_hold_is_in_the_way(self, service: Service, analyst: httpx.Client) -> None:
        """Pure sessions that are open, and any that was ever opened with other noise, even one that asked nothing.
        Catches a flag that waits for a charge, or that a close takes back.
        """
        name = untouched(service)
        first = open_session(analyst, name, mechanism=LAPLACE, epsilon=0.01, max_queries=9, max_updates=None)
        assert first["plan"]["regime"] == "renyi"
        assert Decimal(first["reserved_pure"]) > 0
        asked = {"dataset": name, "mechanism": LAPLACE, "epsilon": 1.0, "max_queries": 1}
        problem = refused(analyst.post("/v1/sessions", json=asked), "budget-exhausted")
        assert problem["remaining"] < 1
        assert shown(service, name)["impure"] is False
        analyst.post(f"/v1/sessions/{first['id']}/close")
        whole = open_session(analyst, name, mechanism=LAPLACE, epsilon=1.0, max_queries=1, max_updates=None)
        assert whole["plan"]["regime"] == "pure"
        analyst.post(f"/v1/sessions/{whole['id']}/close")
        other = open_session(analyst, name, mechanism={"construction": "gaussian"}, epsilon=0.01, max_updates=None)
        assert (other["reserved_pure"], other["spent_pure"]) == (None, None)
        analyst.post(f"/v1/sessions/{other['id']}/close")
        budget = shown(service, name)
        assert (budget["impure"], budget["regime"], budget["remaining_epsilon"]) == (True, "renyi", 1)
        assert budget["pure"] == sums(0, 0, 0)
        last = open_session(analyst, name, mechanism=LAPLACE, epsilon=1.0, max_queries=1, max_updates=None)
        assert last["plan"]["regime"] == "renyi"

    def test_one_of_many_at_once(self, service: Service, analyst: httpx.Client) -> None:
        """All that is left, asked for by many at the same moment, by some with other noise. Catches two that were
        planned on the same remainder, and pure noise beside other noise that came first.
        """
        for _ in range(4):
            name = untouched(service)
            asked = {"dataset": name, "epsilon": 1.0, "max_queries": 1}
            words = [{**asked, "mechanism": {"construction": law}} for law in ("laplace", "gaussian") for _ in range(4)]
            with ThreadPoolExecutor(8) as pool:
                replies = list(pool.map(lambda body: analyst.post("/v1/sessions", json=body), words))
            assert sorted(reply.status_code for reply in replies) == [201] + [409] * 7
            (opened,) = (reply.json() for reply in replies if reply.status_code == 201)
            budget = shown(service, name)
            assert budget["impure"] == (opened["plan"]["noise"] == "gaussian")
            assert budget["remaining_epsilon"] == 0

    def test_a_cap_is_kept_by_the_sum_that_is_spent(self, service: Service) -> None:
        """A session of all that is left passes its share of the other sum, not its owner's cap; a smaller cap does not
        hold it. Catches caps that are looked up in one sum alone.
        """
        name = untouched(service)
        asked = {"dataset": name, "mechanism": LAPLACE, "epsilon": 1.0, "max_queries": 1}
        for cap, admitted in ((0.99, False), (1.0, True)):
            who = unique("capped")
            holder = service.principal("analyst", who)
            grant = service.admin.put(f"/v1/datasets/{name}/grants/{who}", json={"epsilon": cap})
            assert grant.status_code == 200, grant.text
            reply = holder.post("/v1/sessions", json=asked)
            if admitted:
                assert reply.json()["plan"]["regime"] == "pure"
            else:
                assert refused(reply, "budget-exhausted")["remaining"] == pytest.approx(0.99, abs=1e-9)


def test_what_there_is_not(service: Service, analyst: httpx.Client) -> None:
    """No hypothesis: it is neither shown nor asked, and the refusals leave no trace. Catches a 500."""
    _, session = opened(service, analyst, "table", "gaussian")
    path = f"/v1/sessions/{session['id']}"
    query = KINDS["table"][3][0][0]
    problem = refused(analyst.post(f"{path}/queries", json={**query, "unverified": True}), "invalid-request")
    assert "leave unverified out" in problem["detail"]
    refused(analyst.get(f"{path}/hypothesis"), "invalid-request")
    assert analyst.get(path).json()["sequence"] == 0


def test_queries_come_to_an_end(service: Service, analyst: httpx.Client) -> None:
    """Catches a measurement that nothing was reserved for."""
    _, session = opened(service, analyst, "table", "laplace", max_queries=1)
    (first, _), (second, _) = KINDS["table"][3]
    ask(analyst, session["id"], first)
    refused(analyst.post(f"/v1/sessions/{session['id']}/queries", json=second), "queries-exhausted")
    state = analyst.get(f"/v1/sessions/{session['id']}").json()
    assert Decimal(state["spent"]) <= Decimal(session["plan"]["reserved"])


def test_plans_of_all_sorts_side_by_side(service: Service, analyst: httpx.Client) -> None:
    """For few questions plain noise is best, and what the plan recommends can be opened. Catches a comparison that
    passes direct mechanisms over."""
    name, _ = opened(service, analyst, "table", "laplace")
    asked = {"dataset": name, "epsilon": 0.4, "max_queries": 3}
    mechanisms = [{"construction": name} for name in ("mw", "gaussian", "laplace")]
    found = analyst.post("/v1/plans", json={**asked, "mechanisms": mechanisms}).json()
    best = mechanisms[found["best"]]
    assert best["construction"] in ("gaussian", "laplace")
    assert analyst.post("/v1/sessions", json={**asked, "mechanism": best}).status_code == 201


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_an_accuracy_that_is_not_to_be_had_is_refused(
    service: Service, noise: Noise, analyst: httpx.Client, law: str
) -> None:
    """Before anything is drawn, with what could be had, which then is; asked again in vain, what is known is not given
    for better than it is. Catches a question that is paid for and answered worse than it was asked.
    """
    _, session = opened(service, analyst, "table", law)
    path = f"/v1/sessions/{session['id']}"
    query = KINDS["table"][3][0][0]
    problem = refused(analyst.post(f"{path}/queries", json={**query, "within": 1e-3}), "plan-infeasible")
    assert analyst.get(path).json()["sequence"] == 0
    answer = ask(analyst, session["id"], {**query, "within": problem["within"]})
    low, high = answer["interval"]
    assert (high - low) / 2 <= problem["within"] * (1 + 1e-12)
    assert answer["source"] == "measurement"
    again = refused(analyst.post(f"{path}/queries", json={**query, "within": problem["within"] / 2}), "plan-infeasible")
    assert again["within"] == problem["within"]
    wider = ask(analyst, session["id"], {**query, "within": problem["within"] / 2, "confidence": 0.5})
    assert (wider["source"], wider["value"]) == ("cached", answer["value"])


def test_tested_answers_have_no_interval(service: Service, noise: Noise, analyst: httpx.Client) -> None:
    """Catches an accuracy that is asked for and passed over."""
    spec, data, filename, _ = KINDS["table"]
    name = unique("tested")
    assert register(service.admin, {**spec, "name": name, "budget": BUDGET}, data, filename).status_code == 201
    session = open_session(analyst, name, mechanism={"construction": "mw"}, epsilon=0.5, max_queries=4, max_updates=2)
    path = f"/v1/sessions/{session['id']}"
    problem = refused(
        analyst.post(f"{path}/queries", json={**KINDS["table"][3][0][0], "within": 1e9}), "plan-infeasible"
    )
    assert "evidence" in problem["detail"]
    assert analyst.get(path).json()["sequence"] == 0
