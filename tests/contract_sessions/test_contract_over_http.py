"""Contract sessions through the whole service: tested, charged, recorded, restarted, replayed, and forged."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.audit.replay import replay
from app.bootstrap.noise import SystemNoise
from app.verifying.transcript import replay_file
from tests.evidence.test_evidence_over_http import SIZES, marginal, opened, predicate, registered, transcript
from tests.kit.forger import documents_of, resealed
from tests.kit.noise import Noise
from tests.kit.service import JSON, Service, ask, refused, serving

pytestmark = pytest.mark.api


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server with noise of its own."""
    with serving(tmp_path_factory.mktemp("contract"), noise=SystemNoise()) as running:
        yield running


@pytest.fixture(scope="module")
def analyst(service: Service) -> httpx.Client:
    return service.principal("analyst")


def asked(rng: np.random.Generator, number: int) -> list[tuple[JSON, Any]]:
    """Filtered counts, and every sixth a table of counts, with the truth of each."""
    found: list[tuple[JSON, Any]] = []
    for n in range(number):
        if n % 6 == 5:
            found.append(marginal(rng.choice(list(SIZES), 2, replace=False).tolist()))
        else:
            found.append(predicate(rng, int(rng.integers(1, 4))))
    return found


def values(answer: JSON) -> Any:
    return np.array(answer["values"] if "values" in answer else [answer["value"]])


@pytest.mark.slow
@pytest.mark.parametrize(("release", "public"), [("single", False), ("race", True)])
def test_answers_keep_their_bounds_and_only_hits_are_charged(
    service: Service, analyst: httpx.Client, tmp_path: Path, release: str, public: bool
) -> None:
    """Every answer has a bound, of the plan's size, which it keeps; what was spent is the price of the hits and of the
    opening; the transcript replays from the file alone. Catches a miss that is charged, a hit that is charged without
    its test or its measurement, and a bound that does not hold.
    """
    name = registered(service, records_public=public)
    session = opened(analyst, name, max_queries=200, contract=True, release=release)
    id, plan = session["id"], session["plan"]
    assert (plan["mode"], plan["release"], plan["max_updates"]) == ("contract", release, 25)
    opening = Decimal(analyst.get(f"/v1/sessions/{id}").json()["spent"])
    hits = 0
    for query, truth in asked(np.random.default_rng(1), 60):
        answer = ask(analyst, id, query)
        assert np.abs(values(answer) - truth).max() <= answer["error_bound"] <= plan["error_bound"] + 1
        hits += answer["source"] == "measurement"
        assert (answer["charged_epsilon"] > 0) == (answer["source"] == "measurement")
        assert answer["source"] in ("estimate", "measurement", "cached")
    state = analyst.get(f"/v1/sessions/{id}").json()
    assert 0 < hits == state["updates_used"]
    assert Decimal(state["spent"]) == opening + hits * Decimal(plan["cost_per_update"])
    verdict = replay_file(transcript(service, analyst, id, tmp_path / "t.ndjson"))
    assert verdict.ok, (verdict.problem, verdict.sequence)
    assert verdict.summary["spent"] == state["spent"]
    assert verdict.summary["error_bound"] == plan["error_bound"]


def test_what_is_certain_is_not_tested_again_after_a_restart(tmp_path: Path) -> None:
    """A server that comes again knows from the records what it knew: what was certified is answered free with the same
    bound. Catches a certificate that is kept in memory alone, and a state that is made otherwise than it was."""
    table, _ = marginal(["sex", "race"])
    inside = [{"type": "predicate", "where": {"race": {"in": [0, 1, 2]}, "sex": {"equals": k}}} for k in (0, 1)]
    with serving(tmp_path, noise=Noise()) as first:
        name, analyst = registered(first, records_public=True), first.principal("analyst")
        id = opened(analyst, name, max_queries=50, contract=True)["id"]
        ask(analyst, id, table)
        for query, _ in asked(np.random.default_rng(2), 8):
            ask(analyst, id, query)
        known = ask(analyst, id, inside[0])
        key = analyst.headers["authorization"]
    with serving(tmp_path, noise=Noise()) as second:
        with httpx.Client(base_url=second.url, headers={"authorization": key}) as again:
            answer = ask(again, id, inside[1])
            assert (answer["source"], answer["charged_epsilon"]) == (known["source"], 0)
            last = transcript(second, again, id, tmp_path / "t.ndjson")
            assert '"tested"' not in last.read_text().splitlines()[-2]
        verdict = replay_file(last)
        assert verdict.ok, (verdict.problem, verdict.sequence)


def test_what_a_contract_refuses(service: Service, analyst: httpx.Client) -> None:
    """Before anything is drawn: widths, weights that had to be rounded, and a session that says no number."""
    name = registered(service)
    for words in ({"contract": True}, {"contract": True, "max_queries": 5, "within": 3.0}):
        reply = analyst.post("/v1/sessions", json={"dataset": name, "epsilon": 1.0, **words})
        refused(reply, "invalid-request")
    id = opened(analyst, name, max_queries=5, contract=True)["id"]
    query = {"type": "predicate", "where": {"sex": {"equals": 0}}}
    refused(analyst.post(f"/v1/sessions/{id}/queries", json=query | {"within": 3.0}), "plan-infeasible")
    rounded = {"type": "product", "weights": {"sex": [1 / 3, 0.0]}}
    refused(analyst.post(f"/v1/sessions/{id}/queries", json=rounded), "invalid-query")
    assert analyst.get(f"/v1/sessions/{id}").json()["sequence"] == 0


# ------------------------------------------------------------------------------------------------ forgeries


def places(records: list[JSON]) -> list[int]:
    return [n for n, record in enumerate(records) if "tested" in record]


def a_smaller_bound(records: list[JSON]) -> None:
    records[places(records)[-1]]["error_bound"] -= 50.0


def no_bound(records: list[JSON]) -> None:
    records[places(records)[-1]]["error_bound"] = None


def other_counts(records: list[JSON]) -> None:
    records[places(records)[-1]]["tested"][0] += 300


def no_test(records: list[JSON]) -> None:
    del records[places(records)[-1]]["tested"]


def a_test_of_what_is_certain(records: list[JSON]) -> None:
    counts = records[places(records)[-1]]["tested"]
    free = next(r for r in records if r.get("source") == "estimate" and "tested" not in r)
    free["tested"] = counts


def another_value(records: list[JSON]) -> None:
    record = records[places(records)[-1]]
    record["value"] += 40.0
    record["error_bound"] += 40.0


def a_cheaper_hit(records: list[JSON]) -> None:
    record = next(r for r in reversed(records) if r["record"] == "measurement")
    record["cost"]["renyi"] = str(Decimal(record["cost"]["renyi"]) / 2)


@pytest.fixture(scope="module")
def honest(service: Service, analyst: httpx.Client, tmp_path_factory: pytest.TempPathFactory) -> list[JSON]:
    """A transcript that ends with a test, and in which something was answered from a certificate and something paid."""
    name = registered(service, records_public=True)
    id = opened(analyst, name, max_queries=50, contract=True)["id"]
    ask(analyst, id, marginal(["age", "work"])[0])
    ask(analyst, id, {"type": "predicate", "where": {"age": {"in": [1, 2]}}})
    for sex in (0, 1):
        ask(analyst, id, {"type": "predicate", "where": {"sex": {"equals": sex}}})
    ask(analyst, id, {"type": "predicate", "where": {"race": {"equals": 2}}})
    path = transcript(service, analyst, id, tmp_path_factory.mktemp("honest") / "t.ndjson")
    return documents_of(path.read_bytes().splitlines())


def test_resealing_changes_nothing(honest: list[JSON]) -> None:
    """The forgeries below are found by what they say, not by how they are written."""
    lines = resealed(honest)
    assert replay(lines).ok
    assert any(record["record"] == "measurement" and record["sequence"] for record in honest)


@pytest.mark.parametrize(
    ("forgery", "found"),
    [
        (a_smaller_bound, "bound"),
        (no_bound, "bound"),
        (other_counts, "counts"),
        (no_test, "test"),
        (a_test_of_what_is_certain, "test"),
        (another_value, "answer does not follow"),
        (a_cheaper_hit, "measurement"),
    ],
)
def test_forged_records_are_found(honest: list[JSON], forgery: Callable[[list[JSON]], None], found: str) -> None:
    """Sealed anew, so that every hash is right."""
    records = json.loads(json.dumps(honest))
    forgery(records)
    verdict = replay(resealed(records))
    assert not verdict.ok
    assert verdict.problem is not None
    assert found in verdict.problem
    assert verdict.sequence is not None
