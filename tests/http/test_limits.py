"""Limits against abuse, over real sockets: too often, too slowly, too many at once, and bodies that unpack to more than
they are.
"""

from __future__ import annotations

import contextlib
import gc
import io
import itertools
import json
import resource
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pytest

from app.http import dense_bodies, json_bodies
from app.http.authentication import GUESSES
from app.http.dependencies import Turn
from app.http.routes import datasets, hypotheses, measurements, releases, sessions, transcripts
from app.services import principals
from app.services.answering.round import Rounds
from app.services.errors import Unauthenticated
from tests.kit.noise import Noise
from tests.kit.patience import patience
from tests.kit.service import (
    ARROW,
    JSON,
    PEOPLE,
    Gate,
    Service,
    arrow,
    ask,
    head,
    multipart,
    npy,
    open_session,
    people,
    read_reply,
    refused,
    register,
    serving,
    session_words,
    unique,
    where,
)

pytestmark = pytest.mark.api

FEMALE = where(sex={"equals": "female"})


def counted(service: Service, reason: str) -> int:
    """Refusals of this kind so far, as the metrics tell."""
    for line in service.built.context.metrics.exposition().decode().splitlines():
        if line.startswith(f'curator_refusals_total{{reason="{reason}"}}'):
            return int(float(line.split()[-1]))
    raise AssertionError(f"{reason} is not counted")


# ---------------------------------------------------------------------------------------------- too often


class Clock:
    """Seconds that pass when a test says so: on a slow machine a bucket would fill while it is being emptied."""

    def __init__(self) -> None:
        self.now = 12345.678
        #: How long each turn at costly work takes: on a busy machine it would be any time.
        self.turn = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="class")
def clock() -> Clock:
    """What the buckets of `limited` go by."""
    return Clock()


@pytest.fixture(scope="class")
def limited(tmp_path_factory: pytest.TempPathFactory, clock: Clock) -> Iterator[Service]:
    """Ten requests at once, then one a second; three that take much work, then one in two seconds."""
    with serving(
        tmp_path_factory.mktemp("limited"),
        noise=Noise(),
        rate_limit=1,
        rate_burst=10,
        heavy_rate_limit=0.5,
        heavy_rate_burst=3,
    ) as running:
        authenticator = running.built.context.authenticator
        authenticator._requests._clock = authenticator._heavy_requests._clock = clock
        for queue in (running.built.context.plans, running.built.context.exports, running.built.context.uploads):
            queue._finished = lambda name, _: authenticator.count_work(name, clock.turn)
        people(running, name="limited-people")
        yield running


def callers(service: Service, number: int) -> list[httpx.Client]:
    """Analysts that the admin makes without asking over the wire, where he is limited like everybody."""
    admin = principals.Principal("admin", "admin")
    made = [service.built.services.principals.add(admin, unique("analyst"), "analyst") for _ in range(number)]
    return [service.caller(each["api_key"]) for each in made]


class TestTooOften:
    def test_beyond_the_burst(self, limited: Service, clock: Clock) -> None:
        """Ten are let in, the eleventh is told when to come back, and is answered then; somebody else is not kept
        waiting. Catches no limit, one that all keys share, and a Retry-After that is too short.
        """
        busy, other = callers(limited, 2)
        before = counted(limited, "rate")
        replies = [busy.get("/v1/datasets") for _ in range(10)]
        clock.now += 0.25
        replies.append(busy.get("/v1/datasets"))
        assert [reply.status_code for reply in replies] == [200] * 10 + [429]
        refusal = refused(replies[-1], "too-many-requests")
        assert replies[-1].headers["retry-after"] == "1" == str(refusal["retry_after"])
        assert counted(limited, "rate") == before + 1
        assert other.get("/v1/datasets").status_code == 200
        clock.now += 1
        assert [busy.get("/v1/datasets").status_code for _ in range(2)] == [200, 429]

    def test_seconds_are_those_of_the_clock_on_the_wall(self, tmp_path: Path) -> None:
        """One request a second, by the system's clock. Catches buckets that go by another clock or in another unit: the
        others of these tests move a clock of their own.
        """
        with serving(tmp_path, noise=Noise(), rate_limit=1, rate_burst=1) as service:
            end, admitted, refusals = time.monotonic() + patience(60), [], 0
            while len(admitted) < 3 or not refusals:
                sent = time.monotonic()
                assert sent < end
                reply = service.admin.get("/v1/datasets")
                if reply.status_code != 200:
                    refused(reply, "too-many-requests")
                    refusals += 1
                    time.sleep(float(reply.headers["retry-after"]))
                    sent, reply = time.monotonic(), service.admin.get("/v1/datasets")
                assert reply.status_code == 200
                admitted.append((sent, time.monotonic()))
        assert all(later[1] - earlier[0] > 0.999 for earlier, later in itertools.pairwise(admitted))

    def test_what_takes_much_work(self, limited: Service) -> None:
        """Three plans, then none for two seconds, while other requests go on. Catches an expensive route at the price
        of a cheap one.
        """
        (analyst,) = callers(limited, 1)
        for method, path in [
            ("POST", "/v1/plans"),
            ("POST", "/v1/sessions"),
            ("GET", f"/v1/sessions/{'0' * 32}/transcript"),
            ("POST", "/v1/datasets"),
            ("GET", f"/v1/sessions/{'0' * 32}/hypothesis"),
            ("GET", f"/v1/sessions/{'0' * 32}/entries/1"),
            ("GET", "/v1/datasets/nothing/ledger"),
        ]:
            reply = analyst.request(method, path, content=b"{}" if method == "POST" else None)
            if path in ("/v1/plans", "/v1/sessions") or path.endswith("transcript"):
                assert reply.status_code in (404, 422)
            else:
                refused(reply, "too-many-requests")
                assert reply.headers["retry-after"] == "2"
        assert analyst.get("/v1/datasets").status_code == 200

    def test_costly_work_counts_by_its_time(
        self, limited: Service, clock: Clock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A plan that takes 20 ms counts as two, so that two of them are one more than the three at once: the third is
        told to come back when that one and its own are there, in four seconds. Catches work of any length at the price
        of the shortest, and the first 10 ms counted twice.
        """
        (analyst,) = callers(limited, 1)
        monkeypatch.setattr(clock, "turn", 0.02)
        assert [analyst.post("/v1/plans", content=b"{}").status_code for _ in range(2)] == [422, 422]
        reply = analyst.post("/v1/plans", content=b"{}")
        refused(reply, "too-many-requests")
        assert reply.headers["retry-after"] == "4"

    def test_a_batch_counts_its_queries(self, limited: Service) -> None:
        """Seven of ten are left after opening and two reads: a batch of eight has to wait, which costs the asking; one
        of six is answered, and nothing is left. Catches a batch as a way around the limit, and a refused one that
        leaves a trace or burns its key.
        """
        (analyst,) = callers(limited, 1)
        id = open_session(analyst, "limited-people", epsilon=0.1)["id"]
        for _ in range(2):
            analyst.get("/v1/datasets")
        stored = limited.stored()
        path, headers = f"/v1/sessions/{id}/queries/batch", {"Idempotency-Key": "k"}
        reply = analyst.post(path, json={"queries": [FEMALE] * 8}, headers=headers)
        refused(reply, "too-many-requests")
        assert limited.stored() == stored
        reply = analyst.post(path, json={"queries": [FEMALE] * 6}, headers=headers)
        assert [answer["sequence"] for answer in reply.json()["answers"]] == [1, 2, 3, 4, 5, 6]
        refused(analyst.get("/v1/datasets"), "too-many-requests")

    def test_a_refused_query_leaves_no_trace(self, limited: Service, clock: Clock) -> None:
        """Catches a query that is refused and answered all the same, or whose key is taken by the refusal."""
        (analyst,) = callers(limited, 1)
        id = open_session(analyst, "limited-people", epsilon=0.1)["id"]
        while analyst.get("/v1/datasets").status_code == 200:
            pass
        stored, path, headers = limited.stored(), f"/v1/sessions/{id}/queries", {"Idempotency-Key": "k"}
        reply = analyst.post(path, json=FEMALE, headers=headers)
        refused(reply, "too-many-requests")
        assert limited.stored() == stored
        clock.now += float(reply.headers["retry-after"])
        assert analyst.post(path, json=FEMALE, headers=headers).json()["sequence"] == 1

    def test_a_large_body_counts_by_its_size(self, limited: Service) -> None:
        """Of ten requests a body of 12,000 numbers takes seven, whether or not it can be answered; a batch counts by
        its queries or its size, whichever is more. Catches much parsing at the price of little, and a batch that pays
        for both.
        """
        numbers = {"type": "dense", "weights": [0] * 12_000}
        analyst, other = callers(limited, 2)
        path = f"/v1/sessions/{'0' * 32}/queries"
        refused(analyst.post(path, json=numbers), "not-found")
        assert [analyst.get("/v1/datasets").status_code for _ in range(4)] == [200] * 3 + [429]
        refused(other.post(f"{path}/batch", json={"queries": [numbers] + [FEMALE] * 6}), "not-found")
        assert [other.get("/v1/datasets").status_code for _ in range(4)] == [200] * 3 + [429]

    def test_by_default_only_heavy_work_is_limited(self, service: Service) -> None:
        """Catches a default that hinders an honest load: 2,500 answers from one key, as fast as they come."""
        analyst = service.principal("analyst")
        id = open_session(analyst, people(service), max_queries=10**6)["id"]
        batch = {"queries": [FEMALE] * 500}
        assert {analyst.post(f"/v1/sessions/{id}/queries/batch", json=batch).status_code for _ in range(5)} == {200}


class TestGuessing:
    def test_a_flood_of_wrong_keys(self, tmp_path: Path, logged: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
        """Sixty wrong keys at once from one address: 32 are looked at and pay, the others wait until these have paid.
        Nobody hears sooner, in whatever words, that a key is wrong. Afterwards all is as it was. Catches guesses in
        parallel without end, a refusal that tells a guess apart before its time, and keys in the log.
        """
        seconds = 1.0
        monkeypatch.setattr("app.http.authentication.FAILED_LOGIN_SECONDS", seconds)
        with serving(tmp_path, noise=Noise()) as service:
            assert service.admin.get("/v1/datasets").status_code == 200
            limits = httpx.Limits(max_connections=60)
            with (
                httpx.Client(base_url=service.url, limits=limits, timeout=patience(30)) as guesser,
                ThreadPoolExecutor(60) as pool,
            ):
                barrier = threading.Barrier(60)

                def guess(number: int) -> tuple[httpx.Response, float]:
                    barrier.wait()
                    headers = {"Authorization": f"Bearer wrong-key-number-{number:03}"}
                    return guesser.get("/v1/datasets", headers=headers), time.monotonic()

                began = time.monotonic()
                replies = list(pool.map(guess, range(60)))
                for reply, _ in replies:
                    refused(reply, "unauthenticated")
                # Each place serves one guess in a second.
                told = sorted(at - began for _, at in replies)
                assert told[0] > seconds
                assert told[32] > 2 * seconds
                assert counted(service, "login") == 60
                authenticator = service.built.context.authenticator
                gc.collect()
                assert dict(authenticator._guesses_of) == {}
                assert authenticator._guesses._value == GUESSES
            lines = [event for event in logged if event["event"] == "log-in failed"]
            assert len(lines) == 60
            assert all(event["client"] == "127.0.0.1" for event in lines)
            assert "wrong-key" not in json.dumps([str(event) for event in logged])

    def test_guesses_that_hang_up(self, tmp_path: Path, logged: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
        """With one place: a guess that hangs up while it pays goes on paying, and twenty that hang up while they wait
        are never looked at, so that a good key behind them comes in next. Catches a guess that is over as soon as its
        connection is, by which keys could be tried without a pause, and a queue of people who are gone.
        """
        monkeypatch.setattr("app.http.authentication.FAILED_LOGIN_SECONDS", 2.0)
        monkeypatch.setattr("app.http.authentication.GUESSES_A_CLIENT", 1)
        with serving(tmp_path, noise=Noise()) as service:
            started = time.monotonic()
            for number in range(21):
                with Line(service) as line:
                    line.socket.sendall(head("GET", "/v1/datasets", f"wrong-key-number-{number:03}"))
                    deadline = time.monotonic() + patience(60)
                    while not number and not counted(service, "login"):
                        assert time.monotonic() < deadline
                        time.sleep(0.01)
            assert service.admin.get("/v1/datasets").status_code == 200
            assert time.monotonic() - started > 2.0
            assert counted(service, "login") == 1

    def test_a_known_key_does_not_wait_behind_guesses(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """With several servers a key is looked up again each second: that must go on during a flood. Catches a flood
        of wrong keys that locks everybody else out.
        """
        with serving(tmp_path, noise=Noise()) as service:
            assert service.admin.get("/v1/datasets").status_code == 200
            monkeypatch.setattr(service.built.services.principals, "recall", lambda _: None)
            monkeypatch.setattr("app.http.authentication.GUESSES_A_CLIENT", 0)
            with pytest.raises(httpx.ReadTimeout):  # there is no place for it
                httpx.get(f"{service.url}/v1/datasets", headers={"Authorization": "Bearer x" * 2}, timeout=1)
            assert service.admin.get("/v1/datasets").status_code == 200

    def test_a_crowd_with_a_new_key(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Catches a good key that counts as a guess for each request until it has been looked up: a client's pool of
        connections would be turned away at its first use.
        """
        with serving(tmp_path, noise=Noise()) as service:
            known = service.built.services.principals
            key = known.add(principals.Principal("admin", "admin"), unique("crowd"), "analyst")["api_key"]
            authenticate = known.authenticate

            def slowly(key: str) -> principals.Principal:
                time.sleep(0.3)
                return authenticate(key)

            monkeypatch.setattr(known, "authenticate", slowly)
            monkeypatch.setattr("app.http.authentication.GUESSES_A_CLIENT", 1)
            with ThreadPoolExecutor(8) as pool:
                headers = {"Authorization": f"Bearer {key}"}
                sent = [pool.submit(httpx.get, f"{service.url}/v1/datasets", headers=headers) for _ in range(8)]
            assert {reply.result().status_code for reply in sent} == {200}
            assert service.built.context.authenticator._checks == {}

    def test_a_revoked_key_is_a_guess(self, service: Service) -> None:
        """Catches a revoked key that may be tried without limit because it was good once."""
        known, name = service.built.services.principals, unique("leaver")
        key = known.add(principals.Principal("admin", "admin"), name, "analyst")["api_key"]
        assert not known.remembers(key)
        known.authenticate(key)
        assert known.remembers(key)
        with known._store.write() as tx:  # as another server revokes it
            tx.revoke_principal(name, "2026-01-01T00:00:00Z")
            tx.commit()
        with pytest.raises(Unauthenticated):
            known.authenticate(key)
        assert not known.remembers(key)

    def test_keys_are_compared_whole_and_in_constant_time(
        self, service: Service, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A row is found by a part of the hash; the whole is then compared, by the function whose time tells nothing.
        Catches a key that is taken for the part that finds it, and a comparison that ends at the first difference.
        """
        compared: list[tuple[Any, Any]] = []
        real = principals.hmac.compare_digest

        def spy(a: Any, b: Any) -> bool:
            compared.append((a, b))
            return real(a, b)

        monkeypatch.setattr(principals.hmac, "compare_digest", spy)
        known, name = service.built.services.principals, unique("twin")
        key = known.add(principals.Principal("admin", "admin"), name, "analyst")["api_key"]
        digest = principals._hash(key)
        assert known.authenticate(key).name == name
        assert compared.pop() == (digest, digest)
        assert known.recall(key) is not None
        assert compared.pop() == (digest, digest)
        # Another key whose hash begins alike.
        twin = digest[:16] + "".join("0" if c != "0" else "1" for c in digest[16:])
        with known._store.write() as tx:
            tx.set_key(name, twin[:16], twin)
            tx.commit()
        known._known.clear()
        with pytest.raises(Unauthenticated):
            known.authenticate(key)
        assert compared.pop() == (twin, digest)


# ---------------------------------------------------------------------------------------------- too slowly

#: Seconds a stretch, and bytes a second; a connection is looked at eight times a stretch.
STRETCH, LEAST = 1.5, 2000


@pytest.fixture(scope="class")
def brisk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A server with little patience."""
    with serving(
        tmp_path_factory.mktemp("brisk"),
        noise=Noise(),
        client_timeout_seconds=STRETCH,
        client_min_rate=LEAST,
    ) as running:
        yield running


class Line:
    """A connection on which a test sends what it likes, and sees when it ends."""

    def __init__(self, service: Service, buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(30)
        self.started = time.monotonic()  # before the server can begin to count
        self.socket.connect(service.address)

    def dribble(self, content: bytes, pause: float, seconds: float = 12 * STRETCH) -> bool:
        """Send byte by byte until the server hangs up: whether it did."""
        self.socket.setblocking(False)
        try:
            end = time.monotonic() + seconds
            for i in range(len(content)):
                if time.monotonic() > end:
                    return False
                self.socket.send(content[i : i + 1])
                time.sleep(pause)
                with contextlib.suppress(BlockingIOError):
                    # Something has come: a refusal, or the end.
                    self.socket.recv(1, socket.MSG_PEEK)
                    return True
            return False
        except ConnectionError:
            return True
        finally:
            self.socket.settimeout(30)

    def reply(self) -> Any:
        return read_reply(self.socket.makefile("rb"))

    def ended(self) -> bool:
        """Whether the server has hung up, waiting for it."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    @property
    def age(self) -> float:
        return time.monotonic() - self.started

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


PATIENCE = 8 * STRETCH
"""A cut comes within a stretch and a look; a busy machine may take longer, a server that cuts nobody off for ever."""


class TestSendingSlowly:
    def test_a_head_byte_by_byte(self, brisk: Service) -> None:
        """Catches slowloris: a head that never ends keeps its connection, since every byte is a sign of life."""
        before = counted(brisk, "slow_request")
        with Line(brisk) as line:
            assert line.dribble(head("GET", "/v1/datasets", brisk.admin_key, X="x" * 10_000), 0.02)
            assert STRETCH * 0.8 < line.age < PATIENCE
            refused(line.reply(), "request-timeout")
            assert line.ended()
        assert counted(brisk, "slow_request") == before + 1

    def test_silence(self, brisk: Service) -> None:
        """Catches connections that are held open without ever a word."""
        with Line(brisk) as line:
            assert line.ended()
            assert STRETCH * 0.8 < line.age < PATIENCE

    def test_line_breaks_between_requests(self, brisk: Service) -> None:
        """Empty lines before a request are ignored: catches one that is kept open with nothing else."""
        with Line(brisk) as line:
            line.socket.sendall(head("GET", "/healthz").replace(b"Connection: close\r\n", b""))
            assert line.reply().status == 200
            line.started = time.monotonic()
            assert line.dribble(b"\r\n" * 1000, 0.05)
            assert line.age < PATIENCE

    def test_idle(self, tmp_path: Path) -> None:
        """Catches a keep-alive without an end, or without a beginning."""
        with serving(tmp_path, noise=Noise(), keep_alive_seconds=2.0) as service, Line(service) as line:
            for _ in range(3):
                time.sleep(0.3)
                line.started = time.monotonic()
                line.socket.sendall(head("GET", "/healthz").replace(b"Connection: close\r\n", b""))
                assert line.reply().status == 200
            assert line.ended()
            assert 1.6 < line.age < 10

    @pytest.mark.parametrize("framing", ["length", "chunks"])
    def test_a_body_byte_by_byte(self, brisk: Service, framing: str) -> None:
        """Each byte comes soon after the one before, and the whole would take minutes. Catches a timeout for single
        bytes instead of a rate, and a trace of what was cut off.
        """
        id = open_session(brisk.admin, people(brisk), epsilon=0.1)["id"]
        stored = brisk.stored()
        body = json.dumps(FEMALE).encode() + b" " * 5000
        how: dict[str, Any] = {"Content_Length": len(body)} if framing == "length" else {"Transfer_Encoding": "chunked"}
        with Line(brisk) as line:
            line.socket.sendall(head("POST", f"/v1/sessions/{id}/queries", brisk.admin_key, Idempotency_Key="k", **how))
            if framing == "chunks":
                body = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
            assert line.dribble(body, 0.01)
            assert STRETCH * 0.8 < line.age < PATIENCE
            refused(line.reply(), "request-timeout")
            assert line.ended()
        assert brisk.stored() == stored
        assert ask(brisk.admin, id, FEMALE, "k")["sequence"] == 1

    def test_a_body_that_stops(self, brisk: Service) -> None:
        """Catches a client that sends most of its body at once, and then waits."""
        body = json.dumps(FEMALE).encode() + b" " * 50_000
        with Line(brisk) as line:
            line.socket.sendall(head("POST", "/v1/plans", brisk.admin_key, Content_Length=len(body)) + body[:-1])
            refused(line.reply(), "request-timeout")
            assert line.ended()
            assert line.age < PATIENCE

    def test_the_rest_of_a_refused_body(self, brisk: Service) -> None:
        """A refusal that comes before the body's end is told, and the rest is not waited for without end."""
        with Line(brisk) as line:
            line.socket.sendall(
                head(
                    "POST", "/v1/plans", brisk.admin_key, Content_Length=10**9, Content_Type="application/json"
                ).replace(b"Connection: close\r\n", b"")
            )
            refused(line.reply(), "payload-too-large")
            assert line.dribble(b" " * 10**6, 0.001)
            assert line.age < PATIENCE

    def test_a_slow_upload_is_taken(self, brisk: Service) -> None:
        """An honest client on a slow line uploads for five stretches. Catches a time limit on the whole. It sends what
        is due by the clock, at ten times the least rate: a stall of less than a stretch is made up for.
        """
        name = unique("slow")
        record = b"female,15\n"
        rows = int(5 * STRETCH * 10 * LEAST) // len(record)
        body = multipart({**PEOPLE, "name": name}, b"sex,age\n" + record * rows)
        with Line(brisk) as line:
            line.socket.sendall(
                head(
                    "POST",
                    "/v1/datasets",
                    brisk.admin_key,
                    Content_Type="multipart/form-data; boundary=b0undary",
                    Content_Length=len(body),
                )
            )
            began, sent = time.monotonic(), 0
            while sent < len(body):
                due = int((time.monotonic() - began) * 10 * LEAST)
                line.socket.sendall(body[sent:due])
                sent = max(sent, due)
                time.sleep(0.05)
            reply = line.reply()
            assert reply.status == 201, reply.body
            assert reply.json()["records"] == rows
            assert line.age > 4 * STRETCH

    def test_a_long_turn_is_not_the_clients_fault(self, tmp_path: Path) -> None:
        """A request that is whole waits for its turn longer than a stretch, with the next one behind it, half sent.
        Catches a server that takes its own slowness for the client's.
        """
        opened = threading.Event()

        def draw(_: float) -> int:
            assert opened.wait(20)
            return 0

        with serving(tmp_path, noise=Noise(draw), client_timeout_seconds=1, client_min_rate=LEAST) as service:
            id = open_session(service.admin, people(service), epsilon=0.1)["id"]
            body = json.dumps(FEMALE).encode()
            first = head("POST", f"/v1/sessions/{id}/queries", service.admin_key, Content_Length=len(body))
            first = first.replace(b"Connection: close\r\n", b"") + body
            second = head("GET", "/healthz")
            with Line(service) as line:
                line.socket.sendall(first + second[:20])
                time.sleep(2.5)
                opened.set()
                stream = line.socket.makefile("rb")
                answer = read_reply(stream)
                assert answer is not None
                assert answer.json()["sequence"] == 1
                line.socket.sendall(second[20:])
                health = read_reply(stream)
                assert health is not None
                assert health.status == 200


@pytest.fixture(scope="class")
def large(brisk: Service) -> JSON:
    """A session whose hypothesis and whose transcript are replies of 8 MB and more: far beyond what a socket holds."""
    spec = {**PEOPLE, "name": unique("large"), "attributes": [{"name": "x", "size": 2**20}]}
    assert register(brisk.admin, spec, npy(np.ones(2**20, np.int8)), "counts.npy").status_code == 201
    session = open_session(brisk.admin, spec["name"], epsilon=0.9)
    for seed in range(2):
        weights = np.random.default_rng(seed).uniform(-1, 1, 2**20)
        reply = brisk.admin.post(
            f"/v1/sessions/{session['id']}/queries", content=npy(weights), headers={"Content-Type": "application/x-npy"}
        )
        assert reply.status_code == 200, reply.text
    return session


@pytest.mark.parametrize("what", ["hypothesis", "transcript"])
class TestReadingSlowly:
    def test_who_does_not_read_is_cut_off(self, brisk: Service, large: JSON, what: str) -> None:
        """A reply in one piece, and one that is made while it is sent. Catches a server that keeps replies in memory
        for as long as nobody takes them.
        """
        before = counted(brisk, "slow_reader")
        connections = len(brisk._server.server_state.connections)
        with Line(brisk, buffer=4096) as line:
            line.socket.sendall(head("GET", f"/v1/sessions/{large['id']}/{what}", brisk.admin_key))
            while counted(brisk, "slow_reader") == before:
                assert line.age < 60
                time.sleep(0.05)
            deadline = time.monotonic() + patience(30)
            while len(brisk._server.server_state.connections) > connections:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert brisk.admin.get("/v1/datasets").status_code == 200

    def test_who_reads_steadily_gets_everything(self, brisk: Service, large: JSON, what: str) -> None:
        """A reader that takes three stretches and more, far slower than the server. Catches a time limit on the whole,
        and bytes under way that are taken for bytes not read.
        """
        path = f"/v1/sessions/{large['id']}/{what}"
        whole = brisk.admin.get(path)
        before = counted(brisk, "slow_reader")
        with Line(brisk, buffer=4096) as line:
            line.socket.sendall(head("GET", path, brisk.admin_key))
            received = 0
            stop = time.monotonic() + 4 * STRETCH
            while time.monotonic() < stop:
                received += len(line.socket.recv(2000))
                time.sleep(0.02)
            while part := line.socket.recv(1 << 20):
                received += len(part)
        assert received > len(whole.content)
        assert counted(brisk, "slow_reader") == before


# ---------------------------------------------------------------------------------------------- too many at once


class TestTooManyConnections:
    def test_one_too_many(self, tmp_path: Path) -> None:
        """Four are served, each in the middle of a request. The fifth is told to come back, as a problem and with
        Retry-After, while a probe still learns that the process lives; beyond twice as many nobody is listened to;
        when one leaves, there is room.
        Catches a server that takes connections until it has no files left, and a plain-text 503.
        """
        with serving(tmp_path, noise=Noise(), max_connections=4, max_connections_per_client=4) as service:
            request = head("GET", "/v1/datasets", service.admin_key)
            with contextlib.ExitStack() as stack:
                held = [stack.enter_context(Line(service)) for _ in range(4)]
                for line in held:
                    line.socket.sendall(b"GET /healthz HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf")
                self.wait(service, 4)
                time.sleep(0.2)
                with Line(service) as fifth:
                    fifth.socket.sendall(request)
                    reply = fifth.reply()
                    refused(reply, "unavailable")
                    assert reply.headers["connection"] == "close"
                    assert fifth.ended()
                with Line(service) as probe:
                    probe.socket.sendall(head("GET", "/healthz"))
                    assert probe.reply().status == 200
                self.wait(service, 4)
                for _ in range(4):
                    stack.enter_context(Line(service))
                self.wait(service, 8)
                with Line(service) as ninth:
                    assert ninth.ended()
                assert counted(service, "connections") == 7
                held[0].socket.sendall(b"whole")
                assert held[0].reply().status == 200
            self.wait(service, 0)
            assert service.admin.get("/v1/datasets").status_code == 200

    @staticmethod
    def wait(service: Service, number: int) -> None:
        """Until the server has seen so many connections."""
        deadline = time.monotonic() + patience(60)
        while len(service._server.server_state.connections) != number:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_bodies_share_a_room(tmp_path: Path) -> None:
    """Two half-sent bodies of 1.5 MiB fit into 4 MiB, the third does not, though each is within its own limit; the room
    is free again when they are through: refused, answered, or hung up. Catches callers who fill the memory by sending
    many bodies at once, and room that is never given back.
    """
    with serving(
        tmp_path, noise=Noise(), memory_limit=16 << 20, max_body_bytes=4 << 20, max_query_body_bytes=2 << 20
    ) as service:
        room = service.built.context.body_memory
        name = people(service)
        assert room.free == 4 << 20
        size = 3 << 19
        start = head("POST", "/v1/plans", service.admin_key, Content_Length=size + 2)
        with Line(service) as first:
            with Line(service) as second:
                for line in (first, second):
                    line.socket.sendall(start + b" " * size)
                deadline = time.monotonic() + patience(60)
                while room.free != (4 << 20) - 2 * size:
                    assert time.monotonic() < deadline
                    time.sleep(0.01)
                reply = service.admin.post("/v1/plans", content=b" " * size)
                refused(reply, "unavailable")
                assert counted(service, "memory") == 1
                # An upload counts as well, and what is small still fits.
                spec = {**PEOPLE, "name": unique("large")}
                refused(register(service.admin, spec, b"sex,age\n" + b"female,15\n" * 150_000), "unavailable")
                words = session_words(name)
                assert service.admin.post("/v1/plans", json=words).status_code == 200
            first.socket.sendall(b"{}")
            refused(first.reply(), "invalid-request")
        deadline = time.monotonic() + patience(60)
        while room.free != 4 << 20:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert register(service.admin, spec, b"sex,age\n" + b"female,15\n" * 150_000).status_code == 201
        assert room.free == 4 << 20


def test_the_room_of_an_upload_is_what_it_holds(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a file is registered its bytes are in one memory file, and so many and those of the form around it are
    taken from the room for bodies; both are given back, whether it is registered or refused. Catches an account that
    knows of another size than is held, a file on a disk, and memory that is kept.
    """
    room, registration = service.built.context.body_memory, service.built.services.registration
    whole, registered, content = room.free, registration.register, b"sex,age\n" + b"female,15\n" * 150_000
    found: list[tuple[int, list[int], str]] = []

    def files() -> list[int]:
        """The sizes of this process' memory files of uploads."""
        sizes: list[int] = []
        for link in Path("/proc/self/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if str(link.readlink()).startswith("/memfd:upload"):
                    sizes.append(link.stat().st_size)
        return sizes

    def watched(actor: principals.Principal, spec: Any, filename: str, path: Path) -> Any:
        found.append((whole - room.free, files(), str(path.readlink())))
        return registered(actor, spec, filename, path)

    monkeypatch.setattr(registration, "register", watched)
    for name, status in ((unique("d"), 201), ("no name", 422)):
        form = {"spec": json.dumps({**PEOPLE, "name": name})}
        request = service.admin.build_request("POST", "/v1/datasets", data=form, files={"data": ("p.csv", content)})
        size = len(request.read())
        assert service.admin.send(request).status_code == status
        taken, held, place = found.pop()
        assert (taken, held) == (size, [len(content)])
        assert place.startswith("/memfd:")
        deadline = time.monotonic() + patience(60)
        while (room.free, files()) != (whole, []):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def crowded(size: int) -> dict[str, bytes]:
    """Bodies of about so many bytes that hold as much as they can, by what they hold."""
    return {
        "lists": b'{"queries":[%b[]]}' % (b"[]," * (size // 3)),
        "objects": b'{"queries":[%b{}]}' % (b"{}," * (size // 3)),
        "depth": b'{"queries":[%b[]]}' % (b"[[[[[[[[]]]]]]]]," * (size // 17)),
        "names": b'{"queries":[{%b"":0}]}' % b"".join(b'"%07x":0,' % number for number in range(size // 12)),
        "numbers": b'{"queries":[%b0]}' % (b"0," * (size // 2)),
    }


@pytest.mark.parametrize("held", crowded(0))
def test_what_a_body_holds_is_bounded_before_it_is_parsed(service: Service, held: str) -> None:
    """Nine megabytes of almost nothing, to each route that takes JSON. Catches a body within its limit of bytes whose
    parsing keeps everybody waiting for seconds and makes a gigabyte of it.
    """
    body = crowded(9 << 20)[held]
    name = people(service)
    id = open_session(service.admin, name)["id"]
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    for method, path in [
        ("POST", f"/v1/sessions/{id}/queries"),
        ("POST", f"/v1/sessions/{id}/queries/batch"),
        ("POST", f"/v1/sessions/{id}/close"),
        ("POST", "/v1/sessions"),
        ("POST", "/v1/plans"),
        ("POST", "/v1/principals"),
        ("POST", "/v1/principals/nobody/key"),
        ("PUT", f"/v1/datasets/{name}/grants/nobody"),
    ]:
        problem = refused(service.admin.request(method, path, content=body), "payload-too-large")
        assert problem["limit"] == json_bodies.MAX_VALUES
        assert all(word in problem["detail"] for word in ("2,000,000", ".npy", "Arrow", "fewer queries"))
    kind = {"Content-Type": "multipart/form-data; boundary=b0undary"}
    refused(service.admin.post("/v1/datasets", content=multipart(body, b""), headers=kind), "payload-too-large")
    assert time.process_time() - started < 5  # of work: what a busy machine adds is not the server's
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10


def test_the_largest_bodies_that_are_meant_are_taken(service: Service) -> None:
    """A batch of as many queries as one may have, each with a hundred codes, is answered; dense weights of a million
    cells, sparse ones of as many cells as there are numbers for, and a hundred thousand cells named by axis are not too
    much. Catches a bound that hinders honest work.
    """
    analyst = service.principal("analyst")
    name = unique("codes")
    spec = {
        "name": name,
        "kind": "table",
        "records_public": True,
        "attributes": [{"name": each, "size": 100} for each in "ab"],
        "budget": {"epsilon": 1.0, "delta": 1e-6},
    }
    assert register(service.admin, spec, npy(np.full((100, 100), 50)), "d.npy").status_code == 201
    id = open_session(analyst, name, max_queries=20_000)["id"]
    codes = list(range(50))
    asked = {"type": "predicate", "where": {"a": {"in": codes}, "b": {"in": codes}}}
    batch = json.dumps({"queries": [asked] * 10_000}).encode()
    assert json_bodies.weigh(batch).requests < 10_000
    reply = analyst.post(f"/v1/sessions/{id}/queries/batch", content=batch, timeout=60)
    assert len(reply.json()["answers"]) == 10_000
    for large in (
        {"type": "dense", "weights": [[0.123456789] * 1000] * 1000},
        {"type": "sparse", "indices": [10**6] * 990_000, "weights": [0.5] * 990_000},
        {"type": "sparse", "indices": [[100, 100, 100]] * 200_000, "weights": [0.5] * 200_000},
        {"type": "elements", "weights": {f"word{number}": 1 for number in range(390_000)}},
    ):
        body = json.dumps(large).encode()
        assert json_bodies.weigh(body).requests > 1
        assert json_bodies.parse_json(body, 32).keys() == large.keys()


def test_parsing_keeps_nobody_waiting_for_long(service: Service) -> None:
    """Bodies that hold as much as is parsed, while others ask whether the server lives. Catches bodies that are let in
    and keep everybody else out, by the time that this process, which the server is part of, worked until a reply came:
    what a busy machine adds is not the server's.
    """
    longest, done = 0.0, threading.Event()
    analyst = service.principal("analyst")
    id = open_session(analyst, people(service))["id"]

    def send() -> None:
        for body in crowded(8 << 20).values():
            inner = body[: len(body) * (json_bodies.MAX_VALUES - 100) // _values(body)]
            body = inner[: inner.rfind(b",")] + body[body.rfind(b",") :]
            assert json_bodies.weigh(body).requests > 900
            # A list of too many queries, or of one that is none.
            assert analyst.post(f"/v1/sessions/{id}/queries/batch", content=body).status_code in (200, 422)
        done.set()

    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(send)
        while not done.is_set() and not sent.done():
            started = time.process_time()
            assert service.admin.get("/healthz").status_code == 200
            longest = max(longest, time.process_time() - started)
        sent.result()
    assert longest < 2


def _values(body: bytes) -> int:
    return body.count(b",") + json_bodies.VALUES_A_NAME * sum(body.count(sign) for sign in (b"[", b"{", b":"))


def test_a_body_keeps_its_room_until_its_turn(tmp_path: Path) -> None:
    """A lane takes longer than clients are let wait, and holds their bodies all the while. Catches room that is given
    back with the refusal: each round of waiting clients would lay as much again into memory. And what a body is parsed
    to is counted as well, which may be many times as much.
    """
    gate = Gate()
    with serving(tmp_path, noise=Noise(gate), request_timeout_seconds=0.2) as service:
        room = service.built.context.body_memory
        id = open_session(service.admin, people(service))["id"]
        whole, size = room.free, 1 << 20
        content = json.dumps(FEMALE).encode().ljust(size)
        with gate.shut():
            crowded = json.dumps({"type": "predicate", "where": {"sex": ["female"] * 10_000}}).encode()
            refused(service.admin.post(f"/v1/sessions/{id}/queries", content=crowded), "unavailable")
            assert room.free <= whole - len(crowded) - 640_000
            whole = room.free
            for _ in range(2):  # one in its turn, one behind it
                reply = service.admin.post(f"/v1/sessions/{id}/queries", content=content)
                refused(reply, "unavailable")
            assert room.free == whole - 2 * size
        whole = service.built.context.body_memory._size
        deadline = time.monotonic() + patience(60)
        while room.free != whole:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_price_that_takes_too_long_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it is recorded, and nobody is told of it later. Catches a price that is reckoned to its end, before
    which who asked for it gets no answer, and one that says it will be recorded.
    """
    reckoned: list[float] = []
    whole = Rounds.price

    def slowly(rounds: Rounds, live: Any, asked: Any, *ahead: Any) -> Any:
        time.sleep(0.05)
        reckoned.append(time.monotonic())
        return whole(rounds, live, asked, *ahead)

    monkeypatch.setattr(Rounds, "price", slowly)
    with serving(tmp_path, noise=Noise(), request_timeout_seconds=0.2) as service:
        id = open_session(service.admin, people(service))["id"]
        reply = service.admin.post(f"/v1/sessions/{id}/price", json={"queries": [FEMALE] * 200})
        refused(reply, "unavailable")
        assert "recorded" not in reply.json()["detail"]
        assert "fewer questions" in reply.json()["detail"]
        deadline = time.monotonic() + patience(60)
        while service.admin.post(f"/v1/sessions/{id}/price", json=FEMALE).status_code != 200:
            assert time.monotonic() < deadline
    assert len(reckoned) < 100


def test_asked_to_wait_with_its_body(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client sends its head and, as HTTP has it, waits until it is asked for the body, while the server takes its
    time to look at the key. Catches a client that is cut off for waiting when it was told to.
    """
    with serving(tmp_path, noise=Noise(), client_timeout_seconds=1, client_min_rate=LEAST) as service:
        known = service.built.services.principals
        real = known.authenticate

        def slowly(key: str) -> principals.Principal:
            time.sleep(2.5)
            return real(key)

        monkeypatch.setattr(known, "authenticate", slowly)
        with Line(service) as line:
            line.socket.sendall(
                head("POST", "/v1/plans", service.admin_key, Content_Length=2, Expect="100-continue"),
            )
            stream = line.socket.makefile("rb")
            asked = read_reply(stream)
            assert asked is not None
            assert asked.status == 100
            line.socket.sendall(b"[]")
            refused(read_reply(stream), "invalid-request")


# ---------------------------------------------------------------------------------------------- bodies that unpack


def packed(table: pa.Table, **options: Any) -> bytes:
    """An Arrow stream."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue()


def bombs() -> list[tuple[str, bytes, str]]:
    """Small bodies that would be large: each names its trick and what the refusal has to say."""
    zeros = pa.table({"w": np.zeros(2**27)})  # 1 GiB
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2**31 - 1], pa.int32()), pa.array([0.0]))
    word = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2**20, np.int8)), pa.array(["x" * 2**16]))
    schema = pa.schema({"w": pa.float64()})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        empty = pa.record_batch([pa.array([], pa.float64())], schema)
        for _ in range(dense_bodies.MAX_BATCHES + 1):
            writer.write_batch(empty)
    return [
        ("zstd", packed(zeros, compression="zstd"), "compression"),
        ("lz4", packed(zeros, compression="lz4"), "compression"),
        ("runs", packed(pa.table({"w": runs})), "numbers"),
        ("dictionary", packed(pa.table({"w": word})), "numbers"),
        ("nothing, often", packed(pa.table({"w": pa.nulls(2**31 - 1)})), "numbers"),
        ("empty batches", sink.getvalue(), "batches"),
    ]


def test_arrow_bodies_are_not_unpacked(service: Service) -> None:
    """Catches a few kilobytes that take a gigabyte of the server's memory before they are refused."""
    id = open_session(service.admin, people(service), epsilon=0.1)["id"]
    for label, body, words in bombs():
        assert len(body) < 8 << 20
        pool = pa.default_memory_pool()
        before = pool.max_memory()
        reply = service.admin.post(f"/v1/sessions/{id}/queries", content=body, headers={"Content-Type": ARROW})
        assert words in refused(reply, "invalid-query")["detail"]
        assert pool.max_memory() - before < 1 << 20, label
    for honest in (arrow(np.full(8, 0.5)), packed(pa.table({"w": np.full(8, 0.5, np.float32)}))):
        reply = service.admin.post(f"/v1/sessions/{id}/queries", content=honest, headers={"Content-Type": ARROW})
        assert reply.status_code == 200, reply.text


@pytest.mark.unit
def test_what_may_be_long_is_made_in_a_turn() -> None:
    """Would catch a reply of tens of megabytes that is made in a thread that all requests share, for whoever asks."""

    def turns(of: Any) -> set[str]:
        own = {of.call._queue} if isinstance(of.call, Turn) else set()
        return own.union(*map(turns, of.dependencies))

    routers = (datasets, hypotheses, measurements, releases, sessions, transcripts)
    routes: list[Any] = [route for module in routers for route in module.router.routes]
    found = {(*route.methods, route.path): turns(route.dependant) for route in routes}
    assert {route for route, queues in found.items() if queues == {"exports"}} == {
        ("GET", "/v1/datasets/{name}/dummy"),
        ("GET", "/v1/datasets/{name}/measurements/{id}"),
        ("GET", "/v1/releases/{id}/data"),
        ("GET", "/v1/sessions/{id}/entries/{sequence}"),
        ("GET", "/v1/sessions/{id}/hypothesis"),
        ("GET", "/v1/sessions/{id}/transcript"),
    }
    assert {route for route, queues in found.items() if queues == {"uploads"}} == {
        ("POST", "/v1/datasets"),
        ("POST", "/v1/datasets/check"),
    }
