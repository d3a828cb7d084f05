"""A black-box audit through HTTP: real servers, real noise, two neighbouring graphs, sessions of few updates.

One edge, from node 0, is in the first graph and not in the second. Each query of a session is a cut that this edge
crosses; the other edges across it bring its size to the threshold in the first graph, so that there noise above 0 is
a hit, and in the second one only noise above 1. Cuts share no node but 0 and are wide, so that what a hit teaches
hardly moves the next one. Plans say how much noise there is; what so much noise and so many updates keep is computed
anew, and the sessions are counted.

The budget is enormous, so that one data set serves all sessions: what is audited is each session against the noise
that its plan states, not the plan. As many sessions as a server answers in seconds tell noise that is a quarter of
that; finer faults are for the audits of the rounds themselves. Wrong alarms have probability below 1e-6 a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import httpx
import numpy as np
import orjson
import pytest
import structlog

from app.bootstrap.noise import SystemNoise
from app.privacy.exact import delta_of
from tests.kit.audits import proven_delta
from tests.kit.noise import Exchanged, Scaled, Source
from tests.kit.service import open_session, register, serving

pytestmark = pytest.mark.statistical

UPDATES = 4
TELLING = 13
"""Misses before the last update from which on a session speaks for the second graph: the event, chosen beforehand."""
QUERIES = TELLING + UPDATES - 1
"""Enough to see it: where the last update is not among so many, there were as many misses or more."""
EPSILON = 0.25
SESSIONS = 150
"""On either graph."""
FEW = 64
"""Values of noise drawn ahead in a session, which takes two for each query at most."""
PADDING = 110
"""Nodes without an edge in each cut: a hit moves the hypothesis of node 0 by so much less."""
SESSION = {
    "mechanism": {"construction": "fk"},
    "epsilon": 2.16,
    "max_queries": QUERIES,
    "max_updates": UPDATES,
    "beta": 0.9,
}


class SameNoise(SystemNoise):
    """A planted fault: every session begins the same block."""

    def __init__(self) -> None:
        self._values: Any = None

    def laplace(self, scale: Any, ahead: int = 1024) -> Any:
        if self._values is None:
            self._values = super().laplace(scale).take(FEW)
        rest = iter(self._values.tolist())
        return Source(lambda n: np.array([next(rest) for _ in range(n)]))


@pytest.fixture(autouse=True)
def _silent() -> Iterator[None]:
    structlog.configure(processors=[_drop])
    yield
    structlog.reset_defaults()


def _drop(*_: Any) -> str:
    raise structlog.DropEvent


@dataclass(frozen=True)
class Worlds:
    """A service with the data sets `first` and `second`, an analyst's client, the cuts as JSON, and the noise of a
    session in counts."""

    noise: Exchanged
    client: httpx.Client
    cuts: list[bytes]
    scale: float


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    """One service for all cases: what they plant is in the noise of the sessions that they open."""
    noise = Exchanged()
    with serving(tmp_path_factory.mktemp("worlds"), noise=noise, log_level="error") as service:
        analyst = service.principal("analyst")
        size = size_of_cuts(service.admin)
        width = size + PADDING
        nodes = 1 + QUERIES * width
        starts = range(1, nodes, width)
        edges = [node for start in starts for node in range(start, start + size)]
        cuts = [{"type": "cut", "left": [0, *range(start, start + width)], "right": "all"} for start in starts]
        for name, extra in (("first", [0]), ("second", [])):
            spec = {"kind": "bipartite", "name": name, "left": nodes, "right": 1, "budget": budget()}
            lines = "\n".join(f"{edge},0" for edge in extra + edges)
            assert register(service.admin, spec, lines.encode(), "edges.csv").status_code == 201
        scale = plan(analyst, "first")["noise_scale"]
        assert scale == plan(analyst, "second")["noise_scale"]
        yield Worlds(noise, analyst, [orjson.dumps(cut) for cut in cuts], scale)


def budget() -> dict[str, float]:
    return {"epsilon": 1000.0, "delta": 1e-6}


def plan(client: httpx.Client, dataset: str) -> dict[str, Any]:
    reply = client.post("/v1/plans", json={**SESSION, "dataset": dataset})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def size_of_cuts(admin: httpx.Client) -> int:
    """Edges across each cut beside the secret one, with which it stands on the threshold. That is nearly a whole number
    here: were it none, noise would decide elsewhere than at 0 and 1. Earlier hits move it by a seventh at most."""
    probe = {"kind": "bipartite", "name": "probe", "left": 2, "right": 1, "budget": budget()}
    assert register(admin, probe, b"0,0", "edges.csv").status_code == 201
    made = plan(admin, "probe")
    threshold: float = made["threshold"]
    assert abs(threshold - round(threshold)) < 0.05
    assert (UPDATES - 1) * made["progress"] / (PADDING + threshold) < 1 / 7
    return round(threshold) - 1


@dataclass(frozen=True)
class Played:
    """Sessions on one data set: the misses of each before its last update, QUERIES where there is no last one, and all
    of its answers."""

    misses: np.ndarray
    answers: list[tuple[float, ...]]


def play(worlds: Worlds, dataset: str, sessions: int) -> Played:
    body, client = b'{"queries":[%b]}' % b",".join(worlds.cuts), worlds.client
    found, told = [], []
    for _ in range(sessions):
        id = open_session(client, dataset, **SESSION)["id"]
        reply = client.post(
            f"/v1/sessions/{id}/queries/batch", content=body, headers={"content-type": "application/json"}
        )
        answers = [answer for answer in orjson.loads(reply.content)["answers"] if "source" in answer]
        hits = sum(answer["source"] == "measurement" for answer in answers)
        found.append(len(answers) - hits if hits == UPDATES else QUERIES)
        told.append(tuple(answer["value"] for answer in answers))
        assert client.post(f"/v1/sessions/{id}/close").status_code == 200
    return Played(np.array(found), told)


def delta(first: Played, second: Played) -> float:
    """Delta found at EPSILON."""
    events = [(int((first.misses >= TELLING).sum()), int((second.misses >= TELLING).sum()))]
    return proven_delta(EPSILON, events, len(first.misses), len(second.misses))


def alike(played: Played) -> bool:
    """Whether two sessions say the same: those with a hit show their noise, on a grid far finer than it is large."""
    hits = [told for told in played.answers if any(told)]
    return len(set(hits)) < len(hits)


def promised(scale: float) -> float:
    return delta_of(1 / Fraction(scale), UPDATES, Fraction(EPSILON))


def test_the_service_keeps_its_promise(worlds: Worlds) -> None:
    """Everything between the bytes of a request and those of its answer: catches a scale in the wrong unit, noise that
    sessions share, a threshold test or a cached answer that tells more than it should, as far as so few sessions can.
    """
    with worlds.noise.planted(Scaled(Fraction(1), FEW)):
        first, second = (play(worlds, name, SESSIONS) for name in ("first", "second"))
    assert delta(first, second) <= promised(worlds.scale)
    assert not alike(first)
    assert not alike(second)


def test_a_quarter_of_the_noise_is_found(worlds: Worlds) -> None:
    """It is missed with a probability below 1e-4: a session of the first graph has so many misses with a probability of
    .011, one of the second with .986."""
    with worlds.noise.planted(Scaled(Fraction(1, 4), FEW)):
        first, second = (play(worlds, name, SESSIONS) for name in ("first", "second"))
    assert delta(first, second) > promised(worlds.scale)


def test_noise_that_two_sessions_share_is_found(worlds: Worlds) -> None:
    """It is never missed where the shared noise has a hit in it, as nearly every draw has."""
    with worlds.noise.planted(SameNoise()):
        assert alike(play(worlds, "first", 3))
