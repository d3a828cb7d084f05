"""POST /v1/plans with several mechanisms."""

from __future__ import annotations

import pytest

from tests.kit.service import JSON, PEOPLE, Service, open_session, people, refused, register, session_words, unique

pytestmark = pytest.mark.api

MECHANISMS = [{"construction": "mw"}, {"construction": "md", "potential": "lp", "p": 1.5}, {"construction": "fk"}]


def test_plans_side_by_side(service: Service) -> None:
    """One reply with every plan as it would be alone, a problem document where there is none, the best of them, and the
    line to beat. Charges nothing."""
    name = people(service)
    words = session_words(name)
    single = {key: value for key, value in words.items() if key != "mechanism"}
    before = service.admin.get(f"/v1/datasets/{name}").json()["budget"]
    mechanisms = [*MECHANISMS, {"construction": "mw", "step": "refit"}, {"construction": "smw", "sparsity": 2}]
    reply = service.admin.post("/v1/plans", json={**single, "mechanisms": mechanisms})
    assert reply.status_code == 200
    body = reply.json()
    for mechanism, entry in zip(mechanisms[:4], body["plans"], strict=False):
        alone = service.admin.post("/v1/plans", json={**single, "mechanism": mechanism}).json()
        assert entry["plan"].items() <= alone.items()
        assert mechanism.items() <= entry["mechanism"].items()
    problem = body["plans"][4]["problem"]
    assert problem["type"] == "/problems/plan-infeasible"
    assert problem["status"] == 422
    bounds = [entry["plan"]["error_bound"] for entry in body["plans"][:4]]
    assert body["best"] == bounds.index(min(bounds))
    assert body["independent_gaussian"]["error_bound"] > body["independent_gaussian"]["sigma"] > 0
    assert body["advice"]
    assert service.admin.get(f"/v1/datasets/{name}").json()["budget"] == before


def test_words_that_are_refused(service: Service) -> None:
    words = session_words(people(service))
    both = {**words, "mechanisms": MECHANISMS}
    assert "not both" in refused(service.admin.post("/v1/plans", json=both), "invalid-request")["detail"]
    none = {**{k: v for k, v in words.items() if k != "mechanism"}, "mechanisms": []}
    refused(service.admin.post("/v1/plans", json=none), "invalid-request")
    # Opening takes one mechanism.
    several = {**none, "mechanisms": MECHANISMS}
    refused(service.admin.post("/v1/sessions", json=several), "invalid-request")
    missing = {**several, "dataset": "nobody-s"}
    refused(service.admin.post("/v1/plans", json=missing), "not-found")


def test_the_best_does_not_depend_on_the_order(service: Service) -> None:
    """A graph, 20 updates: Schatten, whose bound is far off, a refit without one, fk and mw, in either order. Would
    catch the first of the request as the best: all of them have one noise, and so one error bound."""
    name = unique("g")
    declared = {"name": name, "kind": "graph", "nodes": 200, "records_public": True, "budget": PEOPLE["budget"]}
    edges = "".join(f"{i},{j}\n" for i in range(200) for j in range(i + 1, min(200, i + 6)))
    assert register(service.admin, declared, edges.encode(), "edges.csv").status_code == 201
    words = {"dataset": name, "epsilon": 1.0, "max_queries": 10**6, "max_updates": 20}
    mechanisms = [
        {"construction": "md", "potential": "schatten"},
        {"construction": "mw", "step": "refit"},
        {"construction": "fk"},
        {"construction": "mw"},
    ]
    named = []
    for order in (mechanisms, mechanisms[::-1]):
        body = service.admin.post("/v1/plans", json={**words, "mechanisms": order}).json()
        best = body["plans"][body["best"]]
        certain = [entry["certain_error"] for entry in body["plans"]]
        assert best["certain_error"] == min(value for value in certain if value is not None)
        named.append(best["mechanism"]["construction"] + best["mechanism"]["step"])
        labels = {e["mechanism"]["step"]: e["plan"]["bound_status"] for e in body["plans"]}
        assert labels["refit"] == "no-worst-case-bound"
    assert named[0] == named[1]
    assert named[0] in ("fkprojection", "mwprojection")


@pytest.mark.parametrize(("queries", "better"), [(10, True), (10**9, False)])
def test_a_plan_names_the_line_to_beat(service: Service, queries: int, better: bool) -> None:
    """Of one mechanism too: few queries are better answered with noise on each, and the plan says so."""
    words = session_words(people(service), max_queries=queries)
    plan = service.admin.post("/v1/plans", json=words).json()
    line = plan["independent_gaussian"]
    assert line["better"] is better is (line["error_bound"] < plan["error_bound"])
    if better:
        assert "Independent Gaussian noise" in plan["advice"]


def test_a_session_tells_what_its_bound_is(service: Service) -> None:
    """The label stands in the session too: a null update bound of a session that buys its mass is another thing than
    that of a refit, which has none; and only steps of a fixed length tell one."""
    name = people(service, records_public=False)
    for mechanism, label, fixed in (
        ({"construction": "mw"}, "fact-unknown", False),
        ({"construction": "fk", "step": "refit"}, "no-worst-case-bound", False),
        ({"construction": "mw"}, "bound", True),
    ):
        opened = open_session(service.admin, name, mechanism=mechanism, epsilon=0.2)
        assert opened["plan"]["bound_status"] == label
        assert (opened["plan"]["update_bound"] is None) is (label != "bound")
        assert (opened["plan"]["step_size"] is not None) is fixed
        shown = service.admin.get(f"/v1/sessions/{opened['id']}").json()
        assert shown["plan"] == opened["plan"]


def test_advice_over_http(service: Service) -> None:
    """The exact median mechanism over four cells: every figure of the refusals makes a plan when it is sent."""
    four = [{"name": "a", "size": 4}]
    name = people(service, counts=[600, 100, 300, 200], attributes=four)
    words = {"dataset": name, "mechanism": {"construction": "median"}, "epsilon": 1.0, "max_queries": 1000}
    tried = 0
    for more in ({}, {"max_updates": 3}):
        problem = refused(service.admin.post("/v1/plans", json={**words, **more}), "plan-infeasible")
        for field in ("epsilon", "max_queries", "max_updates", "beta"):
            if problem.get(field) is not None:
                reply = service.admin.post("/v1/plans", json={**words, **more, field: problem[field]})
                assert reply.status_code == 200, (field, problem, reply.text)
                tried += 1
        for field, told in (("cells", "cells"), ("records", "records")):
            if problem.get(field) is not None:
                assert f"{problem[field]:,} {told}" in problem["detail"]
    assert tried


def test_a_race_that_epsilon_rules_out(service: Service) -> None:
    """On a data set that has had no race: would catch sessions blamed that never were."""
    name = people(service, budget={"epsilon": 100.0, "delta": 1e-6})
    problem = refused(
        service.admin.post("/v1/plans", json=session_words(name, epsilon=1.0, release="race")), "plan-infeasible"
    )
    assert "epsilon" in problem["detail"]
    assert "sessions" not in problem["detail"]


@pytest.mark.parametrize("declared", [{"kind": "graph", "nodes": 6}, {"kind": "bipartite", "left": 6, "right": 6}])
@pytest.mark.parametrize("epsilon", [30, 60, 1000])
def test_budgets_beyond_all_noise(service: Service, declared: JSON, epsilon: int) -> None:
    """Such a budget buys less noise than there is. Catches a plan, a release or an answer that one part of a price
    keeps away for ever: 503."""
    name = unique("large")
    spec = {"name": name, "budget": {"epsilon": epsilon, "delta": 1e-6}, **declared}
    assert register(service.admin, spec, b"0 1\n1 2\n3 4\n", "g.txt").status_code == 201
    for workload in ({"cuts": "all"}, {"rank_one": "all"}):
        words = {"dataset": name, "workload": workload, "epsilon": epsilon}
        assert service.admin.post("/v1/plans", json=words).status_code == 200
        reply = service.admin.post("/v1/releases", json={**words, "epsilon": epsilon / 4, "method": "synthetic_graph"})
        assert reply.status_code == 202, reply.text
    words = {"dataset": name, "epsilon": epsilon / 4, "mechanism": {"construction": "histogram"}, "max_queries": 9}
    id = service.admin.post("/v1/sessions", json=words).json()["id"]
    reply = service.admin.post(f"/v1/sessions/{id}/queries", json={"type": "cut", "left": [0], "right": [1]})
    assert reply.status_code == 200, reply.text
