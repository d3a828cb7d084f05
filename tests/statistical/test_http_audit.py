"""A black-box audit through HTTP: real servers, real noise, two neighbouring graphs, sessions of few updates.

One edge, from node 0, is in the first graph and not in the second. Each query of a session is a cut that this edge
crosses; the other edges across it bring its size to the threshold in the first graph, so that there noise above 0 is
a hit, and in the second one only noise above 1. Cuts share no node but 0 and are wide, so that what a hit teaches
hardly moves the next one. Plans say how much noise there is; what so much noise and so many updates keep is computed
anew, and the sessions are counted.

The budget is enormous, so that one data set serves all sessions: what is audited is each session against the noise
that its plan states, not the plan. As many sessions as a server answers in seconds tell noise that is a third of
that; finer faults are for the audits of the rounds themselves. Wrong alarms have probability below 1e-6 a test.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import pytest
import structlog

from app.bootstrap.noise import SystemNoise
from app.privacy.exact import delta_of
from app.privacy.noise import NoiseBlock
from tests.kit.service import open_session, register, serving
from tests.statistical.audit import proven_delta

pytestmark = pytest.mark.statistical

UPDATES = 20
QUERIES = 80
EPSILON = 0.5
PADDING = 200
"""Nodes without an edge in each cut: a hit moves the hypothesis of node 0 by so much less."""
TELLING = 32
"""Misses from which on a session speaks for the second graph: the event that is counted, chosen beforehand."""
SESSION = {
    "mechanism": {"construction": "fk"},
    "epsilon": 1.9,
    "max_queries": QUERIES,
    "max_updates": UPDATES,
    "beta": 0.9,
}


class LittleNoise(SystemNoise):
    """A planted fault: a third of the noise that plans state."""

    def laplace(self, scale: Any, ahead: int = 1024) -> NoiseBlock:
        return super().laplace(Fraction(scale) / 3)


class SameNoise(SystemNoise):
    """A planted fault: every session begins the same block."""

    def __init__(self) -> None:
        self._values: Any = None

    def laplace(self, scale: Any, ahead: int = 1024) -> Any:
        if self._values is None:
            self._values = super().laplace(scale).take(4096)
        return _From(self._values)


class _From:
    low = False

    def __init__(self, values: Any) -> None:
        self._values, self._next = values, 0

    def take(self, n: int) -> Any:
        self._next += n
        return self._values[self._next - n : self._next].copy()

    def refill(self) -> bool:
        return False


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    structlog.configure(processors=[_drop])
    yield
    structlog.reset_defaults()


def _drop(*_: Any) -> str:
    raise structlog.DropEvent


@contextlib.contextmanager
def worlds(folder: Path, noise: Any = None) -> Iterator[tuple[httpx.Client, list[bytes], float]]:
    """An analyst's client, the cuts as JSON, and the noise of a session in counts. `first` and `second` are there."""
    with serving(folder, noise=noise, log_level="error") as service:
        analyst = service.principal("analyst")
        sizes = sizes_of_cuts(service.admin)
        nodes = 1 + QUERIES * (max(sizes) + PADDING)
        cuts, edges, node = [], [], 1
        for size in sizes:
            edges += list(range(node, node + size))
            cuts.append({"type": "cut", "left": [0, *range(node, node + size + PADDING)], "right": "all"})
            node += size + PADDING
        for name, extra in (("first", [0]), ("second", [])):
            spec = {"kind": "bipartite", "name": name, "left": nodes, "right": 1, "budget": budget()}
            lines = "\n".join(f"{edge},0" for edge in extra + edges)
            assert register(service.admin, spec, lines.encode(), "edges.csv").status_code == 201
        scale = plan(analyst, "first")["noise_scale"]
        assert scale == plan(analyst, "second")["noise_scale"]
        yield analyst, [orjson.dumps(cut) for cut in cuts], scale


def budget() -> dict[str, float]:
    return {"epsilon": 1000.0, "delta": 1e-6}


def plan(client: httpx.Client, dataset: str) -> dict[str, Any]:
    reply = client.post("/v1/plans", json={**SESSION, "dataset": dataset})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def sizes_of_cuts(admin: httpx.Client) -> list[int]:
    """Edges across each cut beside the secret one: the threshold, and what earlier hits will have taught of node 0."""
    probe = {"kind": "bipartite", "name": "probe", "left": 2, "right": 1, "budget": budget()}
    assert register(admin, probe, b"0,0", "edges.csv").status_code == 201
    made = plan(admin, "probe")
    threshold, progress = made["threshold"], made["progress"]
    # Two queries in five hit, about, and each moves node 0 by its excess over the noise bound spread over the cut.
    drift = (progress + made["noise_scale"]) / (PADDING + threshold) * 2 / 5
    return [round(threshold - 1 + drift * asked) for asked in range(QUERIES)]


def misses(client: httpx.Client, dataset: str, cuts: list[bytes], sessions: int) -> np.ndarray:
    """Misses before the last update, of each session; QUERIES where there is no last one."""
    body = b'{"queries":[%b]}' % b",".join(cuts)
    found = []
    for _ in range(sessions):
        id = open_session(client, dataset, **SESSION)["id"]
        reply = client.post(
            f"/v1/sessions/{id}/queries/batch", content=body, headers={"content-type": "application/json"}
        )
        answers = [answer for answer in orjson.loads(reply.content)["answers"] if "source" in answer]
        hits = sum(answer["source"] == "measurement" for answer in answers)
        found.append(len(answers) - hits if hits == UPDATES else QUERIES)
        assert client.post(f"/v1/sessions/{id}/close").status_code == 200
    return np.array(found)


def audit(client: httpx.Client, cuts: list[bytes], sessions: int) -> float:
    """Delta found at EPSILON."""
    first, second = (int((misses(client, name, cuts, sessions) >= TELLING).sum()) for name in ("first", "second"))
    return proven_delta(EPSILON, [(first, second)], sessions, sessions)


def promised(scale: float, updates: int) -> float:
    return delta_of(1 / Fraction(scale), updates, Fraction(EPSILON))


def test_the_service_keeps_its_promise(tmp_path: Path) -> None:
    """Everything between the bytes of a request and those of its answer: catches a scale in the wrong unit, a
    threshold test or a cached answer that tells more than it should, as far as so few sessions can.
    """
    with worlds(tmp_path) as (client, cuts, scale):
        assert audit(client, cuts, 60) <= promised(scale, UPDATES)
        assert twins(client, cuts) <= promised(scale, 2)


def test_a_third_of_the_noise_is_found(tmp_path: Path) -> None:
    with worlds(tmp_path, LittleNoise()) as (client, cuts, scale):
        assert audit(client, cuts, 330) > promised(scale, UPDATES)


def test_noise_that_two_sessions_share_is_found(tmp_path: Path) -> None:
    with worlds(tmp_path, SameNoise()) as (client, cuts, scale):
        assert twins(client, cuts) > promised(scale, 2)


def twins(client: httpx.Client, cuts: list[bytes]) -> float:
    """Delta found where two sessions ask a certain hit each, with and without the secret edge in it: were the noises
    the same, the answers would differ by the edge.
    """
    cut = orjson.loads(cuts[0])
    wide = [node for other in cuts[:5] for node in orjson.loads(other)["left"][1:]]
    pairs, counts = 40, []
    for dataset in ("first", "second"):
        seen = 0
        for _ in range(pairs):
            answers = []
            for left in ([0, *wide], wide):
                id = open_session(client, dataset, **SESSION)["id"]
                reply = client.post(f"/v1/sessions/{id}/queries", json={**cut, "left": left}).json()
                assert reply["source"] == "measurement"
                answers.append(reply["value"])
                client.post(f"/v1/sessions/{id}/close")
            seen += answers[0] - answers[1] == 1
        counts.append(seen)
    return proven_delta(EPSILON, [(counts[0], counts[1])], pairs, pairs)
