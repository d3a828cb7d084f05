"""Prices over HTTP: who may ask for them, what a body may be, and what the reply is."""

from __future__ import annotations

import pytest

from tests.kit.service import Service, ask, open_session, people, refused

pytestmark = pytest.mark.api

QUESTION = {"type": "predicate", "where": {"sex": "female"}}


def test_a_price_and_many(service: Service) -> None:
    """Of one question, and of several with a refusal in its place; what was paid is `cached` then. Catches a reply of
    other fields, and a route without roles."""
    analyst, dataset = service.principal("analyst"), people(service)
    session = open_session(analyst, dataset, mechanism={"construction": "gaussian"}, max_updates=None)
    id = session["id"]
    price = analyst.post(f"/v1/sessions/{id}/price", json=QUESTION).json()
    assert list(price) == ["epsilon", "certain", "source", "half_width", "left", "words"]
    assert (price["certain"], price["source"], price["words"]) == (
        True,
        "measurement",
        "Number of records, where sex is female",
    )
    answer = ask(analyst, id, QUESTION)
    assert answer["charged_epsilon"] == price["epsilon"] > 0
    wrong = {"type": "predicate", "where": {"nobody": 1}}
    several = analyst.post(f"/v1/sessions/{id}/price", json={"queries": [QUESTION, wrong]}).json()["prices"]
    assert (several[0]["epsilon"], several[0]["source"]) == (0, "cached")
    assert several[1]["type"] == "/problems/invalid-query"
    assert analyst.get(f"/v1/sessions/{id}").json()["queries_asked"] == 1
    refused(service.principal("analyst").post(f"/v1/sessions/{id}/price", json=QUESTION), "not-found")
    refused(service.principal("auditor").post(f"/v1/sessions/{id}/price", json=QUESTION), "forbidden")


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ([], "invalid-query"),
        ({}, "invalid-query"),
        ({"queries": []}, "invalid-request"),
        ({"queries": QUESTION}, "invalid-request"),
        ({"queries": [QUESTION], "within": 3}, "invalid-request"),
        ({"queries": [QUESTION] * 257}, "invalid-request"),
        ({**QUESTION, "within": -1}, "invalid-query"),
    ],
)
def test_other_bodies_are_refused(service: Service, body: object, problem: str) -> None:
    """Catches a body that is no question and is not refused by what is wrong with it."""
    analyst = service.principal("analyst")
    id = open_session(analyst, people(service))["id"]
    refused(analyst.post(f"/v1/sessions/{id}/price", json=body), problem)
