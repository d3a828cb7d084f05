"""Sweeps of plans: each point says what its plan says alone, and what is no sweep is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.service import PEOPLE, Service, people, refused

pytestmark = pytest.mark.api
SAID = ("mechanism", "error_bound", "expected_standard_errors", "independent_gaussian")


@pytest.mark.parametrize("construction", [None, "evidence", "mw", "gaussian"])
def test_a_point_is_its_plan(service: Service, construction: str | None) -> None:
    """Every point, epsilon by epsilon, has what `POST /v1/plans` says of its session, or the same problem; nothing is
    charged. Catches points in another order, one that is planned as another, and an infeasible one that ends the
    others."""
    analyst, name = service.principal("analyst"), people(service)
    words: dict[str, Any] = {"dataset": name}
    if construction is not None:
        words["mechanism"] = {"construction": construction}
    before = analyst.get(f"/v1/datasets/{name}").json()["budget"]
    shares, numbers = [0.001, 0.5, 900], [10, 1000]
    reply = analyst.post("/v1/plans", json={**words, "sweep": {"epsilon": shares, "max_queries": numbers}})
    assert reply.status_code == 200, reply.text
    points = reply.json()["points"]
    assert [(each["epsilon"], each["max_queries"]) for each in points] == [(e, k) for e in shares for k in numbers]
    assert any("problem" in each for each in points) == (construction == "mw")
    for point in points:
        alone = analyst.post(
            "/v1/plans", json={**words, "epsilon": point["epsilon"], "max_queries": point["max_queries"]}
        )
        if alone.status_code == 200:
            assert {key: point[key] for key in SAID} == {key: alone.json()[key] for key in SAID}
        else:
            assert point["problem"] == alone.json()
    assert analyst.get(f"/v1/datasets/{name}").json()["budget"] == before


def test_one_list_is_enough(service: Service) -> None:
    """Catches a list that is left out and taken for an empty one."""
    analyst, name = service.principal("analyst"), people(service)
    found = analyst.post("/v1/plans", json={"dataset": name, "sweep": {"epsilon": [0.1, 0.2]}}).json()["points"]
    assert [(each["epsilon"], each["max_queries"]) for each in found] == [(0.1, None), (0.2, None)]
    asked = {"dataset": name, "epsilon": 0.1, "sweep": {"max_queries": [5, 6]}}
    found = analyst.post("/v1/plans", json=asked).json()["points"]
    assert [(each["epsilon"], each["max_queries"]) for each in found] == [(0.1, 5), (0.1, 6)]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"sweep": []}, "sweep: name lists"),
        ({"sweep": {}}, "sweep: name lists"),
        ({"sweep": {"beta": [0.1]}}, "sweep: name lists"),
        ({"sweep": {"epsilon": 0.1}}, "sweep.epsilon: a list"),
        ({"sweep": {"epsilon": []}}, "sweep.epsilon: a list"),
        ({"sweep": {"epsilon": [0.1, -1]}}, "epsilon"),
        ({"sweep": {"epsilon": [0.1], "max_queries": [1.5]}}, "max_queries"),
        ({"sweep": {"max_queries": [3]}}, "epsilon"),
        ({"epsilon": 1, "sweep": {"epsilon": [0.1]}}, "not both"),
        ({"sweep": {"epsilon": [0.1] * 7, "max_queries": [5] * 7}}, "49 points"),
        ({"sweep": {"epsilon": [0.1]}, "mechanisms": [{"construction": "mw"}]}, "mechanisms"),
    ],
)
def test_what_is_no_sweep_is_refused(service: Service, words: dict[str, Any], says: str) -> None:
    """Catches a sweep that is read as another, or too large to be planned."""
    asked = {"dataset": people(service), **words}
    assert says in refused(service.principal("analyst").post("/v1/plans", json=asked), "invalid-request")["detail"]


def test_a_declaration_that_is_not_registered(service: Service) -> None:
    """What a budget would buy, before there is a data set: by the plan of one that is registered as declared. Catches
    another budget or other attributes than those declared, and a name that is looked up."""
    analyst, name = service.principal("analyst"), people(service, records_public=False)
    swept = {"epsilon": 0.5, "sweep": {"max_queries": [10, 100]}}
    declared = {**PEOPLE, "name": "nobody-registered-this", "records_public": False}
    before = service.stored()
    reply = analyst.post("/v1/plans", json={"declaration": declared, **swept})
    assert reply.status_code == 200, reply.text
    registered = analyst.post("/v1/plans", json={"dataset": name, **swept}).json()
    assert reply.json() == registered
    assert service.stored() == before
    for words, problem in (
        ({"declaration": declared, "dataset": name}, "invalid-request"),
        ({"declaration": {**declared, "attributes": []}}, "invalid-dataset"),
        ({"declaration": None}, "invalid-dataset"),
        ({"declaration": {**declared, "budget": {"epsilon": 1, "delta": 1e-300}}}, "invalid-dataset"),
    ):
        refused(analyst.post("/v1/plans", json={**words, **swept}), problem)
