"""A node of one side as the unit, through the whole service: declared, registered, asked, charged and replayed."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.bootstrap.noise import SystemNoise
from app.verifying.transcript import replay_file
from tests.kit.patience import patience
from tests.kit.service import JSON, Service, ask, refused, register, serving, unique

pytestmark = [pytest.mark.api, pytest.mark.slow]

MOST, NODES, EACH = 3, 30, 5
BUDGET = {"epsilon": 20.0, "delta": 1e-6}
BIPARTITE: JSON = {
    "kind": "bipartite",
    "left": NODES,
    "right": 20,
    "unit": {"side": "left", "max_edges": MOST},
    "records_public": True,
    "budget": BUDGET,
}
DIRECTED: JSON = {
    "kind": "graph",
    "directed": True,
    "nodes": NODES,
    "unit": {"side": "source", "max_edges": MOST},
    "records_public": True,
    "budget": BUDGET,
}
RANDOM = np.random.default_rng(2)
#: Of each node on the left as many edges.
PAIRS = [
    (node, int(end))
    for node in range(NODES)
    for end in RANDOM.choice([end for end in range(20) if end != node], EACH, replace=False)
]
CSV = "\n".join(["from,to", *(f"{node},{end}" for node, end in PAIRS)]).encode()
WEIGHTS = "\n".join(f"{node},{end},{0.25 * (1 + (node + end) % 4)}" for node, end in PAIRS).encode()
SESSIONS: list[JSON] = [
    {"mechanism": {"construction": "mw"}, "max_updates": 3, "max_queries": 40},
    {"mechanism": {"construction": "fk"}, "max_updates": 3, "max_queries": 40, "release": "race"},
    {"mechanism": {"construction": "laplace"}, "max_queries": 10},
    {"mechanism": {"construction": "gaussian"}, "max_queries": 10},
    {"mechanism": {"construction": "evidence"}, "max_queries": 10},
    {"mechanism": {"construction": "evidence"}, "max_queries": 10, "within": 500.0},
    {"mechanism": {"construction": "histogram"}, "max_queries": 10},
]
METHODS = ["histogram", "synthetic_graph", "iterative_construction"]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server with noise of its own."""
    with serving(tmp_path_factory.mktemp("sides"), noise=SystemNoise()) as running:
        yield running


def registered(service: Service, spec: JSON, content: bytes = CSV) -> tuple[str, JSON]:
    name = unique("side")
    reply = register(service.admin, {**spec, "name": name}, content, "edges.csv")
    assert reply.status_code == 201, reply.text
    return name, reply.json()


@pytest.mark.parametrize("spec", [BIPARTITE, DIRECTED], ids=["bipartite", "directed"])
def test_of_each_node_so_many_edges_are_kept(service: Service, spec: JSON) -> None:
    """The descriptor says who is hidden; who registers is told what was left out, and nobody else is. Would catch a
    declaration that is read and not kept, and a number of edges that leaves with the descriptor."""
    name, descriptor = registered(service, spec)
    assert descriptor["records"] == MOST * NODES
    report = descriptor["report"]
    assert (report["read"], report["kept"]) == (EACH * NODES, MOST * NODES)
    assert (report["dropped"], report["beyond_cap"]) == (0, (EACH - MOST) * NODES)
    assert descriptor["gamma"] == MOST
    assert "up to 3 edges" in descriptor["privacy_unit"]
    seen = service.admin.get(f"/v1/datasets/{name}").json()
    assert seen["domain"]["unit"] == spec["unit"]
    assert "report" not in seen


@pytest.mark.parametrize(
    ("spec", "content"),
    [(BIPARTITE, CSV), (DIRECTED, CSV), (BIPARTITE, WEIGHTS)],
    ids=["bipartite", "directed", "weighted"],
)
def test_every_session_is_asked_and_replayed(service: Service, spec: JSON, content: bytes, tmp_path: Path) -> None:
    """Would catch a replay that prices for one edge, and a session that cannot be opened or asked where neighbours are
    three apart."""
    name, _ = registered(service, spec, content)
    analyst = service.principal("analyst")
    for number, more in enumerate(SESSIONS):
        opened = analyst.post("/v1/sessions", json={"dataset": name, "epsilon": 2.0, **more})
        assert opened.status_code == 201, opened.text
        id = opened.json()["id"]
        for left, right in ((list(range(9)), list(range(5, 20))), ("all", [3])):
            assert abs(ask(analyst, id, {"type": "cut", "left": left, "right": right})["value"]) < 1e5
        if content is CSV and "within" in more:  # else all edges may be measured at once, and nothing after them
            side = "left" if spec is BIPARTITE else "out"
            assert len(ask(analyst, id, {"type": "degrees", "side": side, "bins": [0, 1, 3]})["values"]) == 3
        replays(analyst, id, tmp_path / f"{number}.ndjson")


def replays(client: Any, id: str, path: Path) -> None:
    path.write_bytes(client.get(f"/v1/sessions/{id}/transcript").content)
    verdict = replay_file(path)
    assert verdict.ok, verdict.problem


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("spec", "content"), [(BIPARTITE, CSV), (DIRECTED, WEIGHTS)], ids=["bits", "weights"])
def test_releases_are_charged_and_replayed(
    service: Service, spec: JSON, content: bytes, method: str, tmp_path: Path
) -> None:
    """What is charged is no more than what was held, and an audit finds it from the file again. Would catch a release
    that is priced for one edge when it is played and for three when it is replayed, or the other way round."""
    name, _ = registered(service, spec, content)
    words = {"dataset": name, "workload": {"cuts": "all"}, "method": method, "epsilon": 2.0}
    reply = service.admin.post("/v1/releases", json=words)
    assert reply.status_code == 202, reply.text
    state, end = reply.json(), time.monotonic() + patience(60)
    while state["status"] in ("queued", "running") and time.monotonic() < end:
        time.sleep(0.1)
        state = service.admin.get(f"/v1/releases/{state['id']}").json()
    assert state["status"] == "done", state
    assert 0 < state["cost"]["spent_epsilon"] <= 2
    replays(service.admin, state["id"], tmp_path / "release.ndjson")


def test_plans_show_what_it_costs(service: Service) -> None:
    """Noise for three edges is three times that for one, as the plans say. Would catch a plan that leaves it out."""
    found = []
    for unit in ({"side": "left", "max_edges": 1}, BIPARTITE["unit"]):
        name, _ = registered(service, {**BIPARTITE, "unit": unit})
        words = {"dataset": name, "epsilon": 2.0, "mechanism": {"construction": "gaussian"}, "max_queries": 10}
        found.append(service.admin.post("/v1/plans", json=words).json()["noise_scale"])
    assert found[1] == pytest.approx(3 * found[0], rel=1e-3)


def test_made_up_graphs_keep_the_cap(service: Service) -> None:
    """A session on made-up records of such a graph, which has as many edges as it says. Would catch a dummy with more
    edges of a node than are kept, whose public number of edges is then another than that of its file."""
    for spec in (BIPARTITE, DIRECTED, {**BIPARTITE, "unit": {"side": "right", "max_edges": 2}}):
        name, _ = registered(service, spec)
        table = service.admin.get(f"/v1/datasets/{name}/dummy", params={"records": 500}, headers={"Accept": "text/csv"})
        assert table.status_code == 200, table.text
        rows = [line.split(",") for line in table.text.split()[1:]]
        ends = [row[1 if spec["unit"]["side"] == "right" else 0] for row in rows]
        assert max(map(ends.count, ends)) == spec["unit"]["max_edges"]
        words = {"dataset": name, "epsilon": 2.0, "mechanism": {"construction": "laplace"}, "max_queries": 5}
        opened = service.admin.post("/v1/sessions", json={**words, "dummy": True})
        assert opened.status_code == 201, opened.text
        ask(service.admin, opened.json()["id"], {"type": "cut", "left": "all", "right": "all"})


def test_what_is_no_side_is_refused(service: Service) -> None:
    """With what to change, and nothing is kept. Would catch a stack trace, and an undirected graph that is said to hide
    whole nodes."""
    for spec, told in (
        ({**DIRECTED, "directed": False}, "belongs to two nodes"),
        ({**BIPARTITE, "unit": {"side": "source", "max_edges": 2}}, "unit.side"),
        ({**BIPARTITE, "unit": {"side": "left", "max_edges": 21}}, "at most 20 edges"),
        ({**BIPARTITE, "unit": {"side": "left", "max_edges": 0}}, "unit.max_edges"),
    ):
        name = unique("side")
        reply = register(service.admin, {**spec, "name": name}, CSV, "edges.csv")
        assert told in refused(reply, "invalid-dataset")["detail"]
        assert service.admin.get(f"/v1/datasets/{name}").status_code == 404
