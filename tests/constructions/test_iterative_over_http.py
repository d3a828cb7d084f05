"""Iterative constructions through the whole service: asked for, charged, recorded, replayed, and forged."""

from __future__ import annotations

import io
import json
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from app.bootstrap.noise import SystemNoise
from app.verifying.transcript import replay_file
from tests.kit.patience import patience
from tests.kit.service import ARROW, JSON, Service, register, serving, unique

SIZES = {"sex": 2, "work": 4, "age": 6}
RECORDS = 5_000
SPEC: JSON = {
    "kind": "table",
    "attributes": [{"name": name, "size": size} for name, size in SIZES.items()],
    "budget": {"epsilon": 2.0, "delta": 1e-6},
}
CODES = np.random.default_rng(3).geometric(0.4, (RECORDS, len(SIZES))) % np.array(list(SIZES.values()))
CSV = "\n".join([",".join(SIZES), *(",".join(map(str, row)) for row in CODES.tolist())]).encode()

pytestmark = [pytest.mark.api, pytest.mark.slow]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server with noise of its own."""
    with serving(tmp_path_factory.mktemp("iterative"), noise=SystemNoise()) as running:
        yield running


def registered(service: Service, **more: Any) -> str:
    name = unique("table")
    reply = register(service.admin, {**SPEC, "name": name, **more}, CSV, "table.csv")
    assert reply.status_code == 201, reply.text
    return name


def released(client: httpx.Client, dataset: str, **words: Any) -> JSON:
    """A release that was carried to its end."""
    asked = {"dataset": dataset, "method": "iterative_construction", "epsilon": 1.0, **words}
    reply = client.post("/v1/releases", json=asked)
    assert reply.status_code == 202, reply.text
    id, deadline = reply.json()["id"], time.monotonic() + patience(60)
    while True:
        found: JSON = client.get(f"/v1/releases/{id}").json()
        if found["status"] not in ("queued", "running"):
            assert found["status"] == "done", found
            return found
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def transcript(client: httpx.Client, id: str, target: Path) -> Path:
    reply = client.get(f"/v1/sessions/{id}/transcript")
    assert reply.status_code == 200, reply.text
    target.write_bytes(reply.content)
    return target


def answers(client: httpx.Client, id: str) -> pa.Table:
    reply = client.get(f"/v1/releases/{id}/data", params={"part": "answers"}, headers={"Accept": ARROW})
    assert reply.status_code == 200, reply.text
    return pa.ipc.open_stream(io.BytesIO(reply.content)).read_all()


def test_rounds_are_played_charged_and_replayed(service: Service, tmp_path: Path) -> None:
    """A release of so many rounds has a measurement for each, is charged to the last digit what the plan says they
    cost, answers the workload better than a table without any knowledge, and replays from its transcript alone.
    Catches a choice that is not charged, a round that is not recorded, and answers that are not those of the rounds.
    """
    name = registered(service, records_public=True)
    before = service.admin.get(f"/v1/datasets/{name}").json()
    assert before["records"] == RECORDS
    found = released(service.admin, name, workload={"marginals": 2}, rounds=4)
    verdict = replay_file(transcript(service.admin, found["id"], tmp_path / "t.ndjson"))
    assert verdict.ok, verdict
    header, *lines = [json.loads(line) for line in (tmp_path / "t.ndjson").read_bytes().splitlines()]
    rounds = header["plan"]["rounds"]
    costs = [Decimal(line["cost"]["renyi"]) for line in lines if line["record"] == "measurement"]
    assert len(costs) == rounds["number"] == header["plan"]["max_updates"] == 4
    assert set(costs) == {Decimal(rounds["cost"])}
    assert Decimal(rounds["choice_cost"]) > 0
    ledger = service.admin.get(f"/v1/datasets/{name}/ledger").json()["entries"]
    (charge,) = [Decimal(item["amount"]) for item in ledger if item["kind"] == "charge"]
    assert charge == sum(costs) <= Decimal(header["plan"]["reserved"])
    table = answers(service.admin, found["id"])
    truth = np.concatenate(
        [
            np.histogram2d(CODES[:, a], CODES[:, b], [range(size + 1) for size in (sizes[a], sizes[b])])[0].reshape(-1)
            for sizes in [list(SIZES.values())]
            for a, b in ((0, 1), (0, 2), (1, 2))
        ]
    )
    values = np.array(table["value"])
    uniform = np.concatenate([np.full(n, RECORDS / n) for n in (8, 12, 24)])
    assert np.abs(values - truth).mean() < 0.5 * np.abs(uniform - truth).mean()
    assert table["standard_error"].null_count == len(values)
    assert found["result"]["rounds"] == len(found["result"]["chosen"]) == 4


def test_the_number_of_records_is_bought_where_it_is_not_public(service: Service, tmp_path: Path) -> None:
    """Multiplicative weights need a mass: where it is not public it is the first measurement, within the share.
    Catches a hypothesis that starts from the true number, and a total that is not charged.
    """
    name = registered(service)
    found = released(service.admin, name, workload={"ranges": "age"}, rounds=3)
    verdict = replay_file(transcript(service.admin, found["id"], tmp_path / "t.ndjson"))
    assert verdict.ok, verdict
    header, *lines = [json.loads(line) for line in (tmp_path / "t.ndjson").read_bytes().splitlines()]
    made = [line["measurement"] for line in lines if line["record"] == "measurement"]
    assert [len(each["values"]) for each in made] == [1, 2, 2, 2]
    costs = [Decimal(line["cost"]["renyi"]) for line in lines if line["record"] == "measurement"]
    assert sum(costs) <= Decimal(header["plan"]["reserved"])
    assert abs(sum(np.array(answers(service.admin, found["id"])["value"])) - RECORDS) < 1_000


def test_frieze_kannan_serves_queries_one_by_one(service: Service, tmp_path: Path) -> None:
    """A list of queries with Frieze and Kannan's construction, which needs no mass. Catches weights that are measured
    on cells that they do not tell apart.
    """
    name = registered(service)
    queries = [
        {"type": "predicate", "where": {"sex": 1, "age": [0, 1]}},
        {"type": "predicate", "where": {"work": [2, 3]}},
        {"type": "product", "weights": {"age": [0, 0.25, 0.5, 0.75, 1, 1]}},
    ]
    found = released(service.admin, name, workload={"queries": queries}, rounds=6, construction="fk")
    verdict = replay_file(transcript(service.admin, found["id"], tmp_path / "t.ndjson"))
    assert verdict.ok, verdict
    sex, work, age = CODES.T
    truth = [((sex == 1) & (age < 2)).sum(), (work > 1).sum(), np.array([0, 0.25, 0.5, 0.75, 1, 1])[age].sum()]
    assert np.abs(np.array(answers(service.admin, found["id"])["value"]) - truth).max() < 600
