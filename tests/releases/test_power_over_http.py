"""Rounds of the power method through the whole service: asked for, charged, recorded, read and replayed."""

from __future__ import annotations

import io
import json
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pytest

from app.bootstrap.noise import SystemNoise
from app.verifying.transcript import replay_file
from tests.kit.patience import patience
from tests.kit.service import ARROW, JSON, Service, npy, register, serving, unique

pytestmark = [pytest.mark.api, pytest.mark.slow]

ROWS, COLUMNS = 120, 90


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server with noise of its own."""
    with serving(tmp_path_factory.mktemp("power"), noise=SystemNoise()) as running:
        yield running


def released(service: Service, spec: JSON, data: bytes, **words: Any) -> JSON:
    """A release of a new data set, at its end."""
    spec = {"name": unique("power"), "budget": {"epsilon": 20.0, "delta": 1e-6}, **spec}
    reply = register(service.admin, spec, data, "data.npy")
    assert reply.status_code == 201, reply.text
    asked = {"dataset": spec["name"], "method": "iterative_construction", "workload": {"rank_one": "all"}, **words}
    reply = service.admin.post("/v1/releases", json=asked)
    assert reply.status_code == 202, reply.text
    id, deadline = reply.json()["id"], time.monotonic() + patience(60)
    while True:
        found: JSON = service.admin.get(f"/v1/releases/{id}").json()
        if found["status"] not in ("queued", "running"):
            assert found["status"] == "done", found
            return found | {"dataset": spec["name"]}
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def values(service: Service, found: JSON) -> Any:
    reply = service.admin.get(
        f"/v1/releases/{found['id']}/data", params={"part": "edges"}, headers={"Accept": "text/csv"}
    )
    assert reply.status_code == 200, reply.text
    return pyarrow.csv.read_csv(io.BytesIO(reply.content))


def test_a_matrix_of_low_rank_is_found_charged_and_replayed(service: Service, tmp_path: Path) -> None:
    """The worst rank-one query without bound on its signs errs less than a third of what it does by an answer of 0.
    Catches noise that is too large, a step by the wrong side, a measurement that is not charged or not recorded, and a
    record that cannot be shown.
    """
    rng = np.random.default_rng(4)
    kinds, groups = rng.integers(0, 2, ROWS), rng.integers(0, 2, COLUMNS)
    truth = np.array([[0.75, -0.5], [0.25, 1.0]])[kinds][:, groups]
    spec = {"kind": "matrix", "rows": ROWS, "columns": COLUMNS, "lower": -1, "upper": 1, "grid": 0.25}
    found = released(service, spec, npy(truth), epsilon=8.0, rounds=3)
    target = tmp_path / "t.ndjson"
    target.write_bytes(service.admin.get(f"/v1/sessions/{found['id']}/transcript").content)
    verdict = replay_file(target)
    assert verdict.ok, verdict
    header, *lines = [json.loads(line) for line in target.read_bytes().splitlines()]
    costs = [Decimal(line["cost"]["renyi"]) for line in lines if line["record"] == "measurement"]
    assert len(costs) == header["plan"]["max_updates"] == 9
    ledger = service.admin.get(f"/v1/datasets/{found['dataset']}/ledger").json()["entries"]
    (charge,) = [Decimal(item["amount"]) for item in ledger if item["kind"] == "charge"]
    assert charge == sum(costs) <= Decimal(header["plan"]["reserved"])
    table = values(service, found)
    error = truth - np.array(table["value"]).reshape(ROWS, COLUMNS)
    assert np.linalg.norm(error, 2) < np.linalg.norm(truth, 2) / 3
    assert found["result"]["rounds"] == len(found["result"]["coefficients"]) == 3
    shown = service.admin.get(f"/v1/datasets/{found['dataset']}/measurements").json()["items"]
    assert [item["strategy"]["cells"] for item in shown] == [ROWS, COLUMNS, 1] * 3
    one = service.admin.get(f"/v1/datasets/{found['dataset']}/measurements/{shown[1]['id']}").json()
    assert (len(one["values"]), len(one["left"]), one["right"]) == (COLUMNS, ROWS, None)
    assert max(map(abs, one["left"])) == 1
    arrow = service.admin.get(
        f"/v1/datasets/{found['dataset']}/measurements/{shown[0]['id']}", headers={"Accept": ARROW}
    )
    assert pyarrow.ipc.open_stream(io.BytesIO(arrow.content)).read_all().num_rows == ROWS
    # What one release measured another may start from, and is not measured by.
    again = {"dataset": found["dataset"], "workload": {"cuts": "all"}, "method": "iterative_construction"}
    reply = service.admin.post("/v1/releases", json=again | {"epsilon": 4.0, "rounds": 1})
    for _ in range(600):
        second = service.admin.get(f"/v1/releases/{reply.json()['id']}").json()
        if second["status"] not in ("queued", "running"):
            break
        time.sleep(0.05)
    assert second["status"] == "done", second
    target.write_bytes(service.admin.get(f"/v1/sessions/{second['id']}/transcript").content)
    assert replay_file(target).ok
    error = truth - np.array(values(service, second)["value"]).reshape(ROWS, COLUMNS)
    assert np.linalg.norm(error, 2) < np.linalg.norm(truth, 2) / 3


def test_an_undirected_graph(service: Service) -> None:
    """Two communities: a row for each pair, and less error than by an answer of 0. Catches pairs that are counted
    twice.
    """
    rng = np.random.default_rng(5)
    side = rng.integers(0, 2, ROWS)
    upper = np.triu(rng.random((ROWS, ROWS)) < np.where(side[:, None] == side, 0.7, 0.1), 1)
    truth = (upper | upper.T).astype(np.int64)
    spec = {"kind": "graph", "nodes": ROWS, "directed": False, "weighted": False}
    found = released(service, spec, npy(truth), epsilon=8.0)
    table = values(service, found)
    assert table.num_rows == ROWS * (ROWS - 1) // 2
    made = np.zeros((ROWS, ROWS))
    made[np.array(table["source"]), np.array(table["target"])] = np.array(table["weight"])
    assert np.linalg.norm(truth - made - made.T, 2) < np.linalg.norm(truth, 2) / 2
