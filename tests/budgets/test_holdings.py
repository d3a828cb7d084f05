"""Who holds and has spent how much: grants and sessions as an admin and an analyst see them, against the ledger."""

from __future__ import annotations

from decimal import ROUND_UP, Decimal
from fractions import Fraction
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.privacy.conversion import epsilon_of
from app.privacy.ledger import Budget
from curator_client import Curator
from tests.http.test_pages import walk
from tests.kit.service import JSON, Service, ask, open_session, people, refused, session_words, unique, where

FEMALE, OLD = where(sex={"equals": "female"}), where(age={"between": [60, 80]})
EPSILONS = ("spent_epsilon", "reserved_epsilon", "remaining_epsilon")


def key_of(client: httpx.Client) -> str:
    return client.headers["Authorization"].partition(" ")[2]


def grant(service: Service, dataset: str, name: str, epsilon: float) -> JSON:
    reply = service.admin.put(f"/v1/datasets/{dataset}/grants/{name}", json={"epsilon": epsilon})
    assert reply.status_code == 200, reply.text
    given: JSON = reply.json()
    return given


def of(service: Service, dataset: str) -> dict[str, JSON]:
    items = service.admin.get(f"/v1/datasets/{dataset}/grants").json()["items"]
    return {item["principal"]: item for item in items}


@pytest.mark.api
def test_what_everybody_holds_is_the_ledgers(service: Service) -> None:
    """Catches somebody else's session in a sum, one that was closed left out, and somebody without a grant left out."""
    dataset, elsewhere = people(service), people(service)
    names = [unique("ann"), unique("bob"), unique("cyd")]
    ann, bob, _ = (service.principal("analyst", name) for name in names)
    grant(service, dataset, names[0], 0.5)
    grant(service, dataset, names[2], 0.25)
    first = open_session(ann, dataset, epsilon=0.2, max_updates=2)["id"]
    ask(ann, first, FEMALE)
    ann.post(f"/v1/sessions/{first}/close")
    open_session(ann, dataset, epsilon=0.1)
    theirs = open_session(bob, dataset, epsilon=0.3, max_updates=3)["id"]
    ask(bob, theirs, OLD)
    open_session(ann, elsewhere, epsilon=0.9)

    found = of(service, dataset)
    assert list(found) == names
    ledger = service.admin.get(f"/v1/datasets/{dataset}/ledger").json()
    owner = {
        item["id"]: item["owner"] for item in service.admin.get(f"/v1/datasets/{dataset}/sessions").json()["items"]
    }
    for name in names:
        held = spent = Fraction(0)
        for entry in ledger["entries"]:
            amount, kind = Fraction(entry["amount"]), entry["kind"]
            if owner[entry["session"]] == name:
                held += {"reserve": amount, "charge": -amount, "return": -amount}[kind]
                spent += amount if kind == "charge" else 0
        epsilon = 1 / Fraction(ledger["budget"])
        assert found[name]["spent_epsilon"] == pytest.approx(float(spent * epsilon), abs=1e-11)
        assert found[name]["reserved_epsilon"] == pytest.approx(float(held * epsilon), abs=1e-11)
        assert {each: found[name]["renyi"][each] for each in EPSILONS} == {each: found[name][each] for each in EPSILONS}
    assert found[names[0]]["remaining_epsilon"] == pytest.approx(0.5 - 0.1 - 0.1, abs=1e-9)
    assert (found[names[1]]["epsilon"], found[names[2]]["epsilon"]) == (None, 0.25)
    # Of the data set's epsilon .1, .1 and .3 are spent or reserved.
    left = [found[names[1]][what] for what in ("remaining_epsilon", "available_epsilon")]
    assert left == [pytest.approx(0.7, abs=1e-9), pytest.approx(0.5, abs=1e-9)]
    own = ann.get("/v1/grants").json()["items"]
    assert [item["dataset"] for item in own] == sorted([dataset, elsewhere])
    assert found[names[0]] in own
    assert bob.get("/v1/grants").json()["items"] == [found[names[1]]]
    for path in (f"/v1/datasets/{dataset}/grants", f"/v1/datasets/{dataset}/sessions"):
        refused(ann.get(path), "forbidden")
        refused(service.principal("auditor").get(path), "forbidden")
        refused(service.admin.get(path.replace(dataset, "nothing")), "not-found")


@pytest.mark.api
def test_what_is_available_can_be_had_to_the_last_digit_and_no_more(service: Service) -> None:
    """Of the grant while the data set has more, and of the data set then. Catches a remainder that is rounded up, and
    one that promises what others hold."""
    dataset, name = people(service), unique("ann")
    analyst, other = service.principal("analyst", name), service.principal("analyst")
    grant(service, dataset, name, 0.6)
    open_session(analyst, dataset, epsilon=0.123)
    mine = of(service, dataset)[name]
    assert mine["available_epsilon"] == mine["remaining_epsilon"] == pytest.approx(0.477, abs=1e-9)
    problem = refused(analyst.post("/v1/sessions", json=session_words(dataset, epsilon=0.478)), "budget-exhausted")
    assert (problem["requested"], problem["remaining"]) == (0.478, mine["remaining_epsilon"])
    open_session(other, dataset, epsilon=0.7)
    mine = of(service, dataset)[name]
    assert mine["remaining_epsilon"] == pytest.approx(0.477, abs=1e-9)
    assert mine["available_epsilon"] == pytest.approx(0.177, abs=1e-9)
    open_session(analyst, dataset, epsilon=mine["available_epsilon"])
    mine = of(service, dataset)[name]
    assert (mine["available_epsilon"], mine["remaining_epsilon"]) == (pytest.approx(0, abs=1e-9), pytest.approx(0.3))


@pytest.mark.api
def test_who_looks_at_a_data_set_sees_his_own_grant(service: Service) -> None:
    """Beside its budget, alone and in the list, and in refusals. Catches somebody else's grant told, one not told
    to its holder, and a refusal that does not say how much was asked for and how much there is."""
    dataset, name = people(service, access="granted"), unique("ann")
    analyst, other = service.principal("analyst", name), service.principal("analyst")
    grant(service, dataset, name, 0.5)
    open_session(analyst, dataset, epsilon=0.2)
    mine = of(service, dataset)[name]
    assert mine["available_epsilon"] == pytest.approx(0.3, abs=1e-9)
    seen = analyst.get(f"/v1/datasets/{dataset}").json()
    assert seen["grant"] == mine
    listed = {item["name"]: item for item in analyst.get("/v1/datasets?limit=1000").json()["items"]}
    assert listed[dataset] == seen
    for caller in (other, service.admin, service.principal("auditor")):
        assert caller.get(f"/v1/datasets/{dataset}").json() == {**seen, "grant": None}
    with Curator(service.url, key_of(analyst)) as curator:
        held = curator.dataset(dataset).grant
        assert held is not None
        assert held.raw == mine
    asked = {"dataset": dataset, "method": "gaussian", "workload": {"marginals": 1}, "epsilon": 0.4}
    for path, words in (("/v1/sessions", session_words(dataset, epsilon=0.4)), ("/v1/releases", asked)):
        problem = refused(analyst.post(path, json=words), "budget-exhausted")
        assert (problem["requested"], problem["remaining"]) == (0.4, mine["remaining_epsilon"])
        problem = refused(other.post(path, json=words), "forbidden")
        assert (problem["requested"], problem["remaining"]) == (0.4, 0.0)


@pytest.mark.api
def test_a_grant_that_pure_noise_used_up(service: Service) -> None:
    """By the sum that his sessions keep. Catches the other sum's price, which is more than twice the grant."""
    dataset, name = people(service), unique("ann")
    analyst = service.principal("analyst", name)
    grant(service, dataset, name, 1.0)
    words = {"mechanism": {"construction": "laplace"}, "max_updates": None, "max_queries": 1, "epsilon": 1.0}
    ask(analyst, open_session(analyst, dataset, **words)["id"], FEMALE)
    mine = of(service, dataset)[name]
    assert (mine["regime"], mine["spent_epsilon"], mine["remaining_epsilon"]) == ("pure", 1.0, 0.0)
    assert mine["renyi"]["spent_epsilon"] > 2


@pytest.mark.api
def test_sessions_of_a_data_set_tell_no_question(service: Service) -> None:
    """All of them, releases too, page by page. Catches one of another data set, a cursor from elsewhere, and a workload
    or a question in what is listed."""
    dataset, other = people(service), people(service)
    analyst = service.principal("analyst")
    ids = [open_session(analyst, dataset, epsilon=0.05)["id"] for _ in range(3)]
    foreign = open_session(analyst, other, epsilon=0.05)["id"]
    ask(analyst, ids[0], FEMALE)
    analyst.post(f"/v1/sessions/{ids[1]}/close")
    workload = {"queries": [where(sex={"equals": "female"})]}
    asked = {"dataset": dataset, "method": "gaussian", "workload": workload, "epsilon": 0.1}
    released = analyst.post("/v1/releases", json=asked).json()["id"]
    path = f"/v1/datasets/{dataset}/sessions"
    whole = service.admin.get(path).json()["items"]
    assert whole == sorted(whole, key=lambda item: (item["opened_at"], item["id"]))
    found = {item["id"]: item for item in whole}
    assert set(found) == {*ids, released}
    first, second = found[ids[0]], found[ids[1]]
    assert (first["status"], first["queries_asked"], first["closed_at"]) == ("open", 1, None)
    assert first["spent_epsilon"] > 0
    assert (second["status"], second["reserved_epsilon"], second["closed_at"] is None) == ("closed", 0.0, False)
    state = analyst.get(f"/v1/sessions/{ids[0]}").json()
    told = ("owner", "status", "spent", "reserved", "spent_epsilon", "reserved_epsilon", "opened_at", "updates_used")
    assert [first[name] for name in told] == [state[name] for name in told]
    assert "female" not in service.admin.get(path).text
    for limit in (1, 3, 4, 5):
        pages = walk(service.admin, path, "items", limit)
        assert [item["id"] for page in pages for item in page["items"]] == [item["id"] for item in whole]
    refused(service.admin.get(f"{path}?after={foreign}"), "invalid-request")
    refused(service.admin.get(f"{path}?after={32 * '0'}"), "invalid-request")


@pytest.mark.api
def test_lists_of_grants_come_in_pages(service: Service) -> None:
    """Catches a name that is passed over, or told twice."""
    dataset, names = people(service), sorted(unique("many") for _ in range(5))
    for name in names:
        service.principal("analyst", name)
        grant(service, dataset, name, 0.1)
    for limit in (1, 2, 4, 5, 6):
        pages = walk(service.admin, f"/v1/datasets/{dataset}/grants", "items", limit)
        assert [item["principal"] for page in pages for item in page["items"]] == names
    name, others = unique("all"), sorted(people(service) for _ in range(4))
    analyst = service.principal("analyst", name)
    for other in others:
        grant(service, other, name, 0.1)
    for limit in (1, 3, 4, 5):
        pages = walk(analyst, "/v1/grants", "items", limit)
        assert [item["dataset"] for page in pages for item in page["items"]] == others


@pytest.mark.api
def test_the_client_has_them(service: Service) -> None:
    """Catches a field that is taken for another."""
    dataset, name = people(service), unique("ann")
    analyst = service.principal("analyst", name)
    with Curator(service.url, service.admin_key) as admin, Curator(service.url, key_of(analyst)) as curator:
        given = admin.grant(dataset, name, Decimal("0.5"))
        assert given.promises is not None
        assert f"epsilon {given.epsilon_alone.quantize(Decimal('0.001'), ROUND_UP)} at" in given.promises
        session = open_session(analyst, dataset, epsilon=0.2)["id"]
        (mine,) = curator.grants()
        assert [item.raw for item in admin.grants(dataset)] == [mine.raw]
        assert (mine.epsilon, mine.reserved, mine.spent) == (Decimal("0.5"), Decimal("0.2"), 0)
        (holder,) = admin.holders(dataset)
        assert (holder.id, holder.owner, holder.epsilon, holder.reserved_epsilon) == (session, name, 0.2, 0.2)


@pytest.mark.api
@pytest.mark.parametrize("epsilon", [1e-300, 1e-30, 0.1 + 0.2])
def test_a_cap_of_any_digits_is_shown(service: Service, epsilon: Any) -> None:
    """Catches arithmetic that has no room for them."""
    dataset, name = people(service), unique("ann")
    service.principal("analyst", name)
    assert 0 <= grant(service, dataset, name, epsilon)["remaining_epsilon"] <= epsilon
    assert of(service, dataset)[name]["epsilon"] == epsilon


@pytest.mark.slow
@pytest.mark.unit
@given(st.integers(1, 10**9), st.sampled_from([("1", "1e-6"), ("0.3", "1e-9"), ("8", "1e-3"), ("900", "0.9")]))
def test_what_a_grant_keeps_alone(part: int, of: tuple[str, str]) -> None:
    """No less than its part of the divergence is worth by the conversion of section 10, nor than the grant itself, by
    pure noise; and no more than the data set's. Catches a grant of .5 that is said to keep .5."""
    budget = Budget.of(Decimal(of[0]), Decimal(of[1]))
    cap = budget.epsilon * part / 10**9
    alone = budget.alone(cap)
    worth = epsilon_of(budget.cap(cap), Fraction(budget.delta) - budget.set_aside, budget.order)
    assert min(max(worth, cap), budget.epsilon) <= alone <= budget.epsilon
    assert alone - max(worth, cap) < Decimal("1e-11")
    assert budget.alone(budget.epsilon) == budget.epsilon
