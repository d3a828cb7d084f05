"""Clients that hang up, and clients that wait while commits fail, over real connections.

An analyst who could make the service forget a round by hanging up on slow answers would have free threshold tests.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from app.bootstrap.noise import SystemNoise
from app.services.answering.tickets import LONG_BATCH
from tests.kit.fixtures import on_embedded
from tests.kit.patience import patience
from tests.kit.world import HIT, World, distinct_queries, eventually, query, served

pytestmark = pytest.mark.integration


class Gate:
    """Stops whoever comes until it is opened; tells when somebody has come."""

    def __init__(self) -> None:
        self.reached, self._open = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self._open.wait(30)

    def open(self) -> None:
        self._open.set()


class Line:
    """One connection, on which a request is sent byte by byte and that ends when the test says so."""

    def __init__(self, port: int, key: str) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._key = key

    def send(self, path: str, body: Any, idempotency_key: str, *, short: int = 0) -> None:
        """Send a request, without its last ``short`` bytes."""
        content = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {self._key}\r\n"
            f"Content-Type: application/json\r\nIdempotency-Key: {idempotency_key}\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        ).encode()
        whole = head + content
        self._socket.sendall(whole[: len(whole) - short])

    def hang_up(self, *, reset: bool = False) -> None:
        """End the connection; with ``reset`` by a RST instead of a FIN."""
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


class Client:
    """A client that waits for its replies."""

    def __init__(self, port: int, key: str) -> None:
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {key}"}, timeout=patience(30)
        )

    def ask(self, id: str, asked: Any, key: str) -> httpx.Response:
        return self.http.post(f"/v1/sessions/{id}/queries", json=asked, headers={"Idempotency-Key": key})

    def batch(self, id: str, asked: Any, key: str) -> httpx.Response:
        headers = {"Idempotency-Key": key}
        return self.http.post(f"/v1/sessions/{id}/queries/batch", json={"queries": asked}, headers=headers)


def idle(world: World) -> bool:
    """Whether nothing waits for a turn."""
    return not world.answering.waiting


#: How a connection ends, by FIN or by RST, is a matter of HTTP, which knows nothing of what was drawn: each with one.
ENDINGS = [pytest.param(0, True, id="miss-rst"), pytest.param(HIT, False, id="hit-fin")]


class TestHangingUp:
    @pytest.mark.parametrize(("draw", "reset"), ENDINGS)
    @pytest.mark.parametrize("moment", ["noise", "commit", "committed"])
    def test_the_round_is_finished_and_recorded(self, world: World, moment: str, draw: int, reset: bool) -> None:
        """At every stage of a round, held there until the connection is gone. Catches a round that ends with its
        client's patience: no entry, no charge, and fresh noise for the next try.
        """
        world.register("d")
        ann = world.analyst("ann")
        id = world.open(ann, "d")
        world.ask(ann, id, query(0))
        gate = Gate()
        with served(world) as port:
            client = Client(port, world.keys["ann"])
            if moment == "noise":
                world.noise.before = gate
            elif moment == "commit":
                world.store.committing = gate
            else:
                world.store.committed = gate
            world.noise.script.append(draw)
            line = Line(port, world.keys["ann"])
            line.send(f"/v1/sessions/{id}/queries", query(1), "k")
            assert gate.reached.wait(30)
            line.hang_up(reset=reset)
            time.sleep(0.05)
            world.noise.before = world.store.committing = world.store.committed = lambda: None
            gate.open()
            eventually(lambda: idle(world))
            # Nobody has seen it, and it stands: the same key is told the same, and nothing is drawn for it.
            drawn = world.noise.drawn
            entries = world.entries(id)
            last = entries[-1]
            assert last["source"] == ("measurement" if draw else "hypothesis")
            assert len(world.movements("d", id)) == (1 if draw else 0)
            reply = client.ask(id, query(1), "k").json()
            assert (reply["sequence"], reply["value"]) == (last["sequence"], last["value"])
            assert reply["entry_hash"] == last["entry_hash"]
            assert client.ask(id, query(1), "another key").json()["source"] == "cached"
            assert world.noise.drawn == drawn == 2
            client.http.close()
        world.audit()

    @on_embedded
    @pytest.mark.parametrize(("draw", "reset"), ENDINGS)
    def test_what_was_not_begun_is_not_computed(self, world: World, draw: int, reset: bool) -> None:
        """A question that waits, and a batch that is under way, when their client hangs up. Catches work for nobody,
        a trace of what was not begun, a round that is not recorded, and a reply under the key that lacks answers.
        """
        world.register("d")
        ann = world.analyst("ann")
        id = world.open(ann, "d")
        world.ask(ann, id, query(0))
        gate, batch = Gate(), [query(1), *[{**query(2), "unverified": True}] * LONG_BATCH, query(3)]
        with served(world) as port:
            client = Client(port, world.keys["ann"])
            world.noise.before = gate
            world.noise.script.append(draw)
            lines = [Line(port, world.keys["ann"]) for _ in range(2)]
            lines[0].send(f"/v1/sessions/{id}/queries/batch", {"queries": batch}, "batch")
            assert gate.reached.wait(30)
            lines[1].send(f"/v1/sessions/{id}/queries", query(1, 2), "one")
            eventually(lambda: world.answering.waiting == 2)
            for line in lines:
                line.hang_up(reset=reset)
            time.sleep(0.2)
            world.noise.before = lambda: None
            gate.open()
            eventually(lambda: idle(world))
            assert [entry["source"] for entry in world.entries(id)][1:] == ["measurement" if draw else "hypothesis"]
            assert world.noise.drawn == 2
            answers = client.batch(id, batch, "batch").json()["answers"]
            assert answers[0]["source"] == "cached"
            assert [answer["sequence"] for answer in answers] == [*range(3, 3 + len(batch))]
            assert client.ask(id, query(1, 2), "one").json()["sequence"] == 3 + len(batch)
            client.http.close()
        world.audit()

    @on_embedded
    def test_a_request_that_never_arrived_whole_is_none(self, world: World) -> None:
        """Catches a round played for half a request."""
        world.register("d")
        ann = world.analyst("ann")
        id = world.open(ann, "d")
        with served(world) as port:
            lines = [(Line(port, world.keys["ann"]), short, reset) for short in (1, 200) for reset in (False, True)]
            for line, short, _ in lines:
                line.send(f"/v1/sessions/{id}/queries", query(1), "k", short=short)
            time.sleep(0.1)
            for line, _, reset in lines:
                line.hang_up(reset=reset)
            time.sleep(0.1)
            assert world.noise.drawn == 0
            assert world.entries(id) == []
        world.audit()


def test_hanging_up_at_random_moments(worlds: Callable[..., World], database: str | None) -> None:
    """Real noise, a hundred requests, each left after a time drawn from the length of a request. Whatever the moment
    was: the retry's answer is the recorded one, each query was played once, and the books are right.
    """
    world = worlds(database, noise=SystemNoise())
    world.register("d")
    ann = world.analyst("ann")
    id = world.open(ann, "d", max_updates=50)
    chance, questions = random.Random(2011), distinct_queries()
    asked = [next(questions) for _ in range(100)]
    with served(world) as port:
        client = Client(port, world.keys["ann"])
        client.ask(id, query(0), "warm")
        started = time.perf_counter()
        client.ask(id, query(1), "warm as well")
        usual = time.perf_counter() - started
        for number, question in enumerate(asked):
            line = Line(port, world.keys["ann"])
            line.send(f"/v1/sessions/{id}/queries", question, f"k{number}")
            time.sleep(chance.uniform(0, 1.5 * usual))
            line.hang_up(reset=chance.random() < 0.5)

        def told(number: int) -> Any:
            # The queue may be full of what was left there, and then says to come again.
            reply = client.ask(id, asked[number], f"k{number}")
            assert reply.status_code in (200, 503), reply.text
            return reply.json() if reply.status_code == 200 else None

        replies = [eventually(lambda number=number: told(number)) for number in range(len(asked))]
        client.http.close()
        eventually(lambda: idle(world))
    by_number = {e["sequence"]: e for e in world.entries(id)}
    for reply in replies:
        entry = by_number[reply["sequence"]]
        assert (entry["entry_hash"], entry["value"], entry["source"]) == (
            reply["entry_hash"],
            reply["value"],
            reply["source"],
        )
    # query(1) and query(0) are among the distinct ones: those two come back as cached.
    played = [e for e in by_number.values() if e["source"] != "cached"]
    assert len(played) == len({json.dumps(e["query"]) for e in played})
    assert len(by_number) == len(asked) + 2
    world.audit()


class TestWaiting:
    def test_503_with_retry_after_and_the_answer_later(
        self, worlds: Callable[..., World], database: str | None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """While a commit keeps failing, clients are told to come again, readiness says no, and nothing is drawn;
        afterwards the same request gets the outcome that was held. Catches a client left hanging, one told that
        nothing happened, and a second draw.
        """
        world = worlds(database, request_timeout_seconds=0.2)
        world.register("d")
        ann, bob = world.analyst("ann"), world.analyst("bob")
        id, other = world.open(ann, "d"), world.open(bob, "d")
        world.noise.script.extend([HIT, 0])
        with served(world) as port:
            client, neighbour = Client(port, world.keys["ann"]), Client(port, world.keys["bob"])
            with world.store.failing():
                for who, session in ((client, id), (client, id), (neighbour, other)):
                    reply = who.ask(session, query(1), "k")
                    assert reply.status_code == 503
                    assert reply.headers["content-type"] == "application/problem+json"
                    assert reply.json()["type"] == "/problems/unavailable"
                    assert int(reply.headers["Retry-After"]) >= 1
                eventually(lambda: client.http.get("/readyz").status_code == 503)
                assert client.http.get("/healthz").status_code == 200
                assert world.noise.drawn == 1

            def answered(who: Client, session: str) -> Any:
                reply = who.ask(session, query(1), "k")
                return reply.json() if reply.status_code == 200 else None

            answer = eventually(lambda: answered(client, id))
            eventually(lambda: answered(neighbour, other))
            assert answer["source"] == "measurement"
            assert client.http.get("/readyz").status_code == 200
            client.http.close()
            neighbour.http.close()
        entries = world.entries(id)
        assert [e["entry_hash"] for e in entries] == [answer["entry_hash"]]
        assert world.noise.drawn == 2
        world.audit()
