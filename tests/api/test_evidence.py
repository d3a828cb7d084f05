"""Evidence sessions through the whole service: asked, charged, recorded, exported, replayed, and shared."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.audit.replay import replay_file
from app.bootstrap.noise import SystemNoise
from tests.api.support import JSON, Service, ask, register, serving, unique

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
    assert np.sqrt(np.mean(np.square(errors))) < 60  # independent noise on each of the 400 errs by 120 and more
    assert np.mean(held) > 0.85
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
