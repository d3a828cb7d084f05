"""Mirror descent, full and refit steps through the whole service: opened, asked, exported, replayed."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.verifying.transcript import replay_file
from tests.kit.noise import Noise
from tests.kit.service import NPY, Service, ask, open_session, people, refused, register, unique, where

pytestmark = pytest.mark.api

Words = dict[str, Any]
BUDGET = {"epsilon": 20.0, "delta": 1e-6}
#: All edges within one half of the nodes: a hypothesis that knows the mass alone is far off.
EDGES = np.argwhere(np.ones((15, 15)))
GEOMETRIES: list[Words] = [
    {"potential": "lp", "p": 1.5},
    {"potential": "lp", "ball_p": 1.2},
    {"potential": "group", "axis": "rows", "ball_p": "auto"},
    {"potential": "group", "axis": "columns", "p": 1.3, "step": "paper"},
    {"potential": "schatten", "ball_p": 1.5},
    {"potential": "entropy", "step": "refit"},
    {"potential": "schatten", "step": "refit"},
]


@pytest.fixture(autouse=True)
def swing(noise: Noise) -> Iterator[None]:
    """Noise that changes sides, as large as noise usually is."""
    turns = iter(range(10**9))
    before = noise.draw
    noise.draw = lambda scale: round(scale * (0.8, -1.2, 0.3, -0.5)[next(turns) % 4])
    yield
    noise.draw = before


def edges(service: Service, kind: Words, lines: np.ndarray) -> str:
    name = unique("edges")
    text = "".join(f"{a} {b}\n" for a, b in lines).encode()
    reply = register(service.admin, {"name": name, "budget": BUDGET, **kind}, text, "edges.txt")
    assert reply.status_code == 201, reply.text
    return name


def check(client: httpx.Client, id: str, folder: Path, *, updates: int) -> None:
    """The transcript replays, and the shown hypothesis is finite and answers what was answered last."""
    path = folder / f"{id}.ndjson"
    path.write_bytes(client.get(f"/v1/sessions/{id}/transcript").content)
    verdict = replay_file(path)
    assert verdict.ok, verdict.problem
    assert verdict.summary["updates"] >= updates
    # What a replay recomputes is the plan with its purchase, too: another mechanism does not follow.
    lines = path.read_bytes().splitlines(keepends=True)
    header = json.loads(lines[0])
    header["mechanism"]["p"] = 1.75
    path.write_bytes(json.dumps(header).encode() + b"\n" + b"".join(lines[1:]))
    assert not replay_file(path).ok
    shown = np.load(io.BytesIO(client.get(f"/v1/sessions/{id}/hypothesis", headers={"Accept": NPY}).content))
    assert np.isfinite(shown).all()
    assert shown.any()


@pytest.mark.parametrize("geometry", GEOMETRIES, ids=lambda g: "-".join(map(str, g.values())))
@pytest.mark.parametrize("kind", ["bipartite", "directed", "undirected"])
def test_graphs(service: Service, tmp_path: Path, kind: str, geometry: Words) -> None:
    """Cuts, rank-one and sparse queries; norms are bought where they are needed and nothing is public."""
    analyst = service.principal("analyst")
    declared: Words = {"kind": "bipartite", "left": 30, "right": 30}
    if kind != "bipartite":
        declared = {"kind": "graph", "nodes": 30, "directed": kind == "directed", "loops": "drop"}
    name = edges(service, declared, EDGES)
    mechanism = {"construction": "md", **geometry}
    session = open_session(analyst, name, mechanism=mechanism, epsilon=20.0, max_updates=6, max_queries=40)
    buys = "ball_p" in geometry or geometry.get("step") == "paper" or geometry["potential"] == "entropy"
    assert (session["plan"]["purchase"] is not None) == buys
    id, rng = session["id"], np.random.default_rng(3)
    measured = 0
    for i in range(14):
        if i % 4 == 3:
            query: Words = {"type": "rank_one", "left": rng.random(30).tolist(), "right": rng.random(30).tolist()}
        elif i == 6:
            query = {"type": "sparse", "indices": [[0, 1], [2, 5], [7, 9]], "weights": [1.0, -1.0, 0.5]}
        else:
            # In turn mostly within the half that has the edges, and anywhere.
            odds = np.where(np.arange(30) < 15, 0.9, 0.1) if i % 2 == 0 else 0.5
            sides = (np.flatnonzero(rng.random(30) < odds).tolist() for _ in range(2))
            query = {"type": "cut", **dict(zip(("left", "right"), sides, strict=True))}
        reply = analyst.post(f"/v1/sessions/{id}/queries", json=query)
        if reply.status_code == 409:
            break
        assert reply.status_code == 200, reply.text
        measured += reply.json()["source"] == "measurement"
    assert measured >= 1
    check(analyst, id, tmp_path, updates=measured)
    if session["plan"]["purchase"] is not None:
        (fact,) = session["plan"]["purchase"]
        assert fact in service.admin.get(f"/v1/datasets/{name}").json()["bought"]


@pytest.mark.parametrize("step", ["full", "refit"])
@pytest.mark.parametrize("construction", ["mw", "fk", "md"])
def test_tables(service: Service, tmp_path: Path, construction: str, step: str) -> None:
    """Best effort: a plan is guaranteed for none of them; answers, export and replay as for any."""
    analyst = service.principal("analyst")
    name = people(service, budget=BUDGET)
    mechanism: Words = {"construction": construction, "step": step}
    if construction == "md":
        mechanism["potential"] = "lp"
    words = {"dataset": name, "mechanism": mechanism, "epsilon": 20.0, "max_queries": 40}
    assert "no bound" in refused(analyst.post("/v1/plans", json=words), "plan-infeasible")["detail"]
    session = open_session(analyst, name, mechanism=mechanism, epsilon=20.0, max_updates=6, max_queries=40)
    assert session["plan"]["guaranteed"] is False
    assert session["plan"]["update_bound"] is None
    for query in (where(sex={"equals": "female"}), where(sex={"equals": "male"}), where()):
        ask(analyst, session["id"], query)
    check(analyst, session["id"], tmp_path, updates=1)


def test_promised_queries(service: Service) -> None:
    """A query outside the promise is refused and charges nothing; inside, the guaranteed plan counts on it."""
    analyst = service.principal("analyst")
    name = edges(service, {"kind": "bipartite", "left": 30, "right": 30}, EDGES)
    mechanism = {"construction": "md", "potential": "group", "axis": "rows", "zeta": 6.0}
    session = open_session(analyst, name, mechanism=mechanism, epsilon=20.0, max_updates=6, max_queries=40)
    url = f"/v1/sessions/{session['id']}/queries"
    wide = {"type": "cut", "left": "all", "right": "all"}
    assert "dual norm" in refused(analyst.post(url, json=wide), "invalid-query")["detail"]
    state = analyst.get(f"/v1/sessions/{session['id']}").json()
    assert (state["sequence"], state["queries_asked"]) == (0, 0)
    assert analyst.post(url, json={"type": "cut", "left": "all", "right": [0]}).status_code == 200


@pytest.mark.parametrize("potential", [{"potential": "schatten"}, {"potential": "group", "axis": "rows"}])
def test_email(service: Service, shared: Path, tmp_path: Path, potential: Words) -> None:
    """A real network of 1,005 nodes with a bought norm."""
    analyst = service.principal("analyst")
    name = unique("email")
    spec = {"name": name, "kind": "graph", "nodes": 1005, "directed": True, "loops": "drop", "budget": BUDGET}
    source = shared / "data/email-Eu-core/email-Eu-core.txt"
    assert register(service.admin, spec, source.read_bytes(), "email.txt").status_code == 201
    mechanism = {"construction": "md", **potential, "ball_p": "auto"}
    session = open_session(analyst, name, mechanism=mechanism, epsilon=10.0, max_updates=20, max_queries=60)
    rng = np.random.default_rng(0)
    for _ in range(12):
        sides = (np.flatnonzero(rng.random(1005) < 0.3).tolist() for _ in range(2))
        ask(analyst, session["id"], {"type": "cut", **dict(zip(("left", "right"), sides, strict=True))})
    check(analyst, session["id"], tmp_path, updates=1)
