"""The answering deadline: when replies leave, seen from a client of a real server."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.http.deadline import Deadline
from tests.kit.noise import Noise
from tests.kit.service import Gate, Service, open_session, people, refused, serving, where

pytestmark = pytest.mark.integration

MILLISECONDS = 150
SECONDS = MILLISECONDS / 1000
#: Noise that is a certain hit.
HIT = 10_000


@pytest.fixture(scope="module")
def noise() -> Noise:
    return Noise()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, noise: Noise) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("deadline")
    with serving(folder, noise=noise, answer_deadline_ms=MILLISECONDS, metrics_open=True) as running:
        yield running


@pytest.fixture
def quiet(noise: Noise) -> Iterator[Noise]:
    yield noise
    noise.draw = lambda _: 0


def timed(send: Callable[[], httpx.Response]) -> tuple[float, httpx.Response]:
    started = time.perf_counter()
    reply = send()
    return time.perf_counter() - started, reply


def late(service: Service) -> float:
    lines = httpx.get(f"{service.url}/metrics").text.splitlines()
    (line,) = [line for line in lines if line.startswith("curator_late_replies_total")]
    return float(line.split()[1])


def test_every_reply_after_queueing_leaves_then(service: Service, quiet: Noise) -> None:
    """Catches a kind of reply that is forgotten: by its time alone one would know it from the others."""
    client = service.principal("analyst")
    id = open_session(client, people(service), max_updates=1)["id"]

    def age(low: int, high: int) -> Any:
        return where(age={"between": [low, high]})

    def ask(query: Any) -> Callable[[], httpx.Response]:
        return lambda: client.post(f"/v1/sessions/{id}/queries", json=query)

    def sources(reply: httpx.Response) -> list[str]:
        return [answer["source"] for answer in reply.json().get("answers", [reply.json()])]

    unheld = late(service)
    quiet.draw = lambda scale: 0
    seen: list[tuple[float, httpx.Response]] = [timed(ask({"type": "predicate", "where": {"sex": {"in": []}}}))]
    quiet.draw = lambda scale: round(HIT * scale)
    seen.append(timed(ask(age(0, 40))))
    assert sources(seen[-1][1]) == ["measurement"]
    seen.append(timed(ask(age(0, 40))))
    assert sources(seen[-1][1]) == ["cached"]
    seen.append(timed(ask(age(0, 20))))
    refused(seen[-1][1], "updates-exhausted")
    seen.append(timed(ask({**age(0, 20), "unverified": True})))
    seen.append(timed(ask({"type": "predicate", "where": {"nothing": {"equals": 1}}})))
    refused(seen[-1][1], "invalid-query")
    seen.append(timed(lambda: client.post(f"/v1/sessions/{id}/queries/batch", json={"queries": [age(0, 40)]})))
    seen.append(timed(lambda: client.post(f"/v1/sessions/{id}/close")))
    seen.append(timed(ask(age(0, 40))))
    refused(seen[-1][1], "session-closed")
    assert all(took >= SECONDS for took, _ in seen), [took for took, _ in seen]
    # On a machine busy with something else single replies may come late, but not all of them.
    assert min(took for took, _ in seen) < SECONDS + 0.1
    assert late(service) - unheld <= len(seen) / 2


def test_what_no_turn_was_taken_for_is_told_at_once(service: Service) -> None:
    client = service.principal("analyst")
    times = [timed(lambda: client.post("/v1/sessions/none/queries", json={}))[0] for _ in range(5)]
    assert min(times) < SECONDS


def test_a_reply_that_took_longer_leaves_at_once_and_is_counted(service: Service, quiet: Noise) -> None:
    """Catches a reply held back to the next deadline, and one that nobody hears of."""
    client = service.principal("analyst")
    id = open_session(client, people(service))["id"]
    before = late(service)

    def slow(_scale: float) -> int:
        time.sleep(2.5 * SECONDS)
        return 0

    quiet.draw = slow
    queries = [
        where(sex={"equals": sex}, age={"between": [low, 80]}) for sex in ("female", "male") for low in range(0, 80, 20)
    ]
    times: list[float] = []
    # On a machine busy with something else single replies may come late, but not all of them.
    while queries and min(times, default=math.inf) >= 3 * SECONDS:
        took, reply = timed(lambda: client.post(f"/v1/sessions/{id}/queries", json=queries.pop()))
        assert reply.status_code == 200
        times.append(took)
    assert 2.5 * SECONDS <= min(times) < 3 * SECONDS
    assert late(service) == before + len(times)


def test_a_slow_turn_holds_up_no_other_session(service: Service, quiet: Noise) -> None:
    """Catches a deadline kept by blocking the event loop."""
    client = service.principal("analyst")
    id = open_session(client, people(service))["id"]
    gate = Gate()
    quiet.draw = gate
    with gate.shut():
        asked = threading.Thread(
            target=lambda: client.post(f"/v1/sessions/{id}/queries", json=where(sex={"equals": "male"}))
        )
        asked.start()
        assert gate.entered.wait(30)
        assert min(timed(lambda: httpx.get(f"{service.url}/healthz"))[0] for _ in range(5)) < SECONDS
    asked.join(30)


def test_without_one_nothing_is_held_back(tmp_path: Path) -> None:
    with serving(tmp_path, noise=Noise()) as service:
        client = service.principal("analyst")
        id = open_session(client, people(service))["id"]
        times = [
            timed(lambda: client.post(f"/v1/sessions/{id}/queries", json=where(sex={"equals": "male"})))[0]
            for _ in range(10)
        ]
    assert min(times) < SECONDS


async def _moments() -> None:
    counted: list[int] = []
    deadline = Deadline(20, lambda: counted.append(1))
    started = time.monotonic()
    moments = [deadline.set() for _ in range(10)]
    for moment in reversed(moments):
        await deadline.keep(moment)
    assert time.monotonic() - started >= 0.02
    await deadline.keep(moments[0])
    assert len(counted) >= 1
    nothing = Deadline(None, lambda: counted.append(1))
    assert nothing.set() is None
    await nothing.keep(None)


def test_moments_on_a_closed_loop_are_forgotten() -> None:
    """Catches a clock that dies with the first loop: later replies would wait for ever."""
    deadline = Deadline(30, lambda: None)

    async def leave() -> None:
        deadline.set()

    asyncio.run(leave())
    asyncio.run(_moments())

    async def stay() -> None:
        await asyncio.wait_for(deadline.keep(deadline.set()), 10)

    asyncio.run(stay())
