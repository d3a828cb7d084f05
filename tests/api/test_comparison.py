"""POST /v1/plans with several mechanisms."""

from __future__ import annotations

from tests.api.support import Service, people, refused, session_words

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
