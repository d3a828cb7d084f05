"""Idempotency-Key on the four routes that take it: a repeat is the first reply, whatever has happened since."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.kit.noise import Noise
from tests.kit.patience import patience
from tests.kit.service import (
    NPY,
    Gate,
    Service,
    npy,
    open_session,
    people,
    refused,
    serving,
    session_words,
    start,
    unique,
    where,
)

pytestmark = pytest.mark.api

FEMALE, MALE = where(sex={"equals": "female"}), where(sex={"equals": "male"})
ROUTES = ["sessions", "queries", "batch", "close"]


@dataclass
class Call:
    """One logical call: where it goes, its body, and another body that the route would take as well."""

    path: str
    body: Any
    other: Any

    def send(self, client: httpx.Client, key: str | None, body: Any = None) -> httpx.Response:
        headers = {} if key is None else {"Idempotency-Key": key}
        return client.post(self.path, json=self.body if body is None else body, headers=headers)


@pytest.fixture(scope="module")
def analyst(service: Service) -> httpx.Client:
    return service.principal("analyst")


@pytest.fixture
def make(service: Service) -> Callable[[str, httpx.Client], Call]:
    """Makes a call of a route for a client, on a data set and a session of its own."""
    return lambda route, client: make_call(service, route, client)


def make_call(service: Service, route: str, client: httpx.Client) -> Call:
    dataset = people(service)
    if route == "sessions":
        words = session_words(dataset, epsilon=0.1)
        return Call("/v1/sessions", words, {**words, "epsilon": 0.2})
    id = open_session(client, dataset)["id"]
    match route:
        case "queries":
            return Call(f"/v1/sessions/{id}/queries", FEMALE, MALE)
        case "batch":
            body = {"queries": [FEMALE, where(shoes={}), FEMALE]}
            return Call(f"/v1/sessions/{id}/queries/batch", body, {"queries": [FEMALE]})
        case _:
            return Call(f"/v1/sessions/{id}/close", {}, {"comment": "again"})


Make = Callable[[str, httpx.Client], Call]


class TestRepeats:
    @pytest.mark.parametrize("route", ROUTES)
    def test_the_same_reply_byte_for_byte(
        self, service: Service, analyst: httpx.Client, make: Make, route: str
    ) -> None:
        """Catches a repeat that is answered anew (a second session, a cached answer, "session-closed"), and a stored
        reply that comes back in other bytes or with another status. Nothing that is stored moves.
        """
        call, key = make(route, analyst), unique("key")
        first = call.send(analyst, key)
        assert first.status_code == (201 if route == "sessions" else 200)
        before = service.stored()
        for _ in range(2):
            again = call.send(analyst, key)
            assert (again.status_code, again.content) == (first.status_code, first.content)
            assert again.headers["content-type"] == first.headers["content-type"]
        assert service.stored() == before

    @pytest.mark.parametrize("route", ROUTES)
    def test_another_body_is_a_conflict(self, service: Service, analyst: httpx.Client, make: Make, route: str) -> None:
        """Catches a reply given to a question it does not answer; the stored one stays as it is."""
        call, key = make(route, analyst), unique("key")
        first = call.send(analyst, key)
        before = service.stored()
        refused(call.send(analyst, key, call.other), "idempotency-conflict")
        assert service.stored() == before
        assert call.send(analyst, key).content == first.content

    def test_bodies_are_compared_as_parsed(self, analyst: httpx.Client, make: Make) -> None:
        """White space, the order of keys, escapes and the spelling of a number do not matter; the order of a list and
        the value of a number do. Catches a comparison of bytes.
        """
        call, key = make("queries", analyst), unique("key")
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        spelled = '{"type": "product", "weights": {"sex": [0.5, 1.0], "age": [0.25, 0, 0, 1]}}'
        first = analyst.post(call.path, content=spelled, headers=headers)
        assert first.status_code == 200
        for same in (
            '{"weights":{"age":[0.25,0,0,1],"sex":[0.50,1.0]},"type":"product"}',
            '\n{ "type" : "\\u0070roduct",\t"weights": {"sex": [5e-1, 1.00], "\\u0061ge": [25e-2, 0, 0, 1]}}\r\n',
        ):
            assert analyst.post(call.path, content=same, headers=headers).content == first.content
        for other in (spelled.replace("0.5, 1.0", "1.0, 0.5"), spelled.replace("0.25", "0.26")):
            refused(analyst.post(call.path, content=other, headers=headers), "idempotency-conflict")

    def test_array_bodies(self, analyst: httpx.Client, make: Make) -> None:
        """An array is compared by its bytes, with what stands beside it. Catches array queries that ignore the key."""
        path, key = make("queries", analyst).path, unique("key")
        headers = {"Idempotency-Key": key, "Content-Type": NPY}
        body = npy(np.linspace(0, 1, 8))
        first = analyst.post(path, content=body, headers=headers)
        assert first.status_code == 200
        assert analyst.post(path, content=body, headers=headers).content == first.content
        refused(analyst.post(path, content=npy(np.linspace(0, 1, 8) ** 2), headers=headers), "idempotency-conflict")
        reply = analyst.post(path, content=body, headers=headers, params={"unverified": "true"})
        refused(reply, "idempotency-conflict")

    @pytest.mark.parametrize("route", ROUTES)
    def test_a_key_is_its_principals_own(self, service: Service, analyst: httpx.Client, route: str) -> None:
        """Two principals use one key: each gets its own reply. Catches one analyst handed another's session or
        answer by guessing a key.
        """
        other, key = service.principal("analyst"), unique("key")
        calls = [(client, make_call(service, route, client)) for client in (analyst, other)]
        if route == "sessions":
            calls[1][1].body = calls[0][1].body
        replies = [call.send(client, key) for client, call in calls]
        assert [reply.is_success for reply in replies] == [True, True]
        if route == "sessions":
            assert replies[0].json()["id"] != replies[1].json()["id"]
            assert replies[0].json()["owner"] != replies[1].json()["owner"]

    def test_a_key_is_its_routes_own(self, service: Service, analyst: httpx.Client) -> None:
        """One key on all four routes, and on two sessions. Catches a reply of one route given by another."""
        dataset, key = people(service), unique("key")
        headers = {"Idempotency-Key": key}
        opened = analyst.post("/v1/sessions", json=session_words(dataset, epsilon=0.1), headers=headers)
        ids = [opened.json()["id"], open_session(analyst, dataset, epsilon=0.1)["id"]]
        for id in ids:
            one = analyst.post(f"/v1/sessions/{id}/queries", json=FEMALE, headers=headers)
            batch = analyst.post(f"/v1/sessions/{id}/queries/batch", json={"queries": [FEMALE]}, headers=headers)
            closed = analyst.post(f"/v1/sessions/{id}/close", headers=headers)
            assert one.json()["source"] == "measurement"
            assert batch.json()["answers"][0]["sequence"] == 2
            assert closed.json()["status"] == "closed"

    def test_without_a_key_nothing_is_remembered(self, service: Service, analyst: httpx.Client, make: Make) -> None:
        """Catches replies stored for nobody."""
        call = make("queries", analyst)
        rows = len(service.rows("idempotency"))
        assert call.send(analyst, None).json()["source"] == "measurement"
        assert call.send(analyst, None).json()["source"] == "cached"
        assert len(service.rows("idempotency")) == rows


class TestRefusals:
    @pytest.mark.parametrize("route", ["queries", "batch", "sessions"])
    def test_a_refusal_frees_the_key(self, service: Service, analyst: httpx.Client, make: Make, route: str) -> None:
        """A refused call is not stored: the same key serves the corrected one. Catches a refusal that comes back for
        good, or a corrected body taken for a conflict.
        """
        call, key = make(route, analyst), unique("key")
        wrong = {"queries": {"queries": []}, "batch": {"queries": []}}.get(route, {**call.body, "beta": 2})
        rows = len(service.rows("idempotency"))
        assert call.send(analyst, key, wrong).status_code == 422
        assert len(service.rows("idempotency")) == rows
        assert call.send(analyst, key).is_success

    def test_a_refusal_for_want_of_budget_frees_the_key(self, service: Service, analyst: httpx.Client) -> None:
        """The very same call, refused first and taken when there is room. Catches a refusal remembered as a reply."""
        dataset, headers = people(service), {"Idempotency-Key": unique("key")}
        id = open_session(analyst, dataset, epsilon=1.0)["id"]
        words = session_words(dataset, epsilon=0.5)
        refused(analyst.post("/v1/sessions", json=words, headers=headers), "budget-exhausted")
        analyst.post(f"/v1/sessions/{id}/close")
        assert analyst.post("/v1/sessions", json=words, headers=headers).status_code == 201

    @pytest.mark.parametrize("route", ROUTES)
    @pytest.mark.parametrize("key", ["", "x" * 256, "caf\u00e9", "tab\tbed", "x" * 60_000])
    def test_what_is_no_key(self, service: Service, analyst: httpx.Client, make: Make, route: str, key: str) -> None:
        """Catches a key cut to fit a column, where two calls would share one reply; and a call carried out as if it had
        none.
        """
        call = make(route, analyst)
        before = service.stored()
        headers = {"Idempotency-Key": key.encode("latin-1")}
        reply = analyst.post(call.path, json=call.body, headers=headers)
        assert "Idempotency-Key" in refused(reply, "invalid-request")["detail"]
        assert service.stored() == before

    def test_the_longest_key(self, analyst: httpx.Client, make: Make) -> None:
        """Catches a limit that is off by one."""
        call, key = make("queries", analyst), "~!" + "k" * 253
        assert call.send(analyst, key).content == call.send(analyst, key).content


class TestBeforeAnyState:
    """The key is looked up after authentication and before any state."""

    def test_after_the_session_has_moved_on(self, service: Service, analyst: httpx.Client) -> None:
        """Answers asked again when the session is exhausted, closed, and its data set retired. Catches a state that is
        looked at first: a client that lost a reply could then never learn what it was charged for.
        """
        dataset = people(service)
        keys = {route: {"Idempotency-Key": unique("key")} for route in ROUTES}
        words = session_words(dataset, max_updates=1, max_queries=1)
        calls: list[tuple[str, Any, httpx.Response]] = []

        def send(route: str, path: str, body: Any) -> httpx.Response:
            reply = analyst.post(path, json=body, headers=keys[route])
            assert reply.is_success, reply.text
            calls.append((route, (path, body), reply))
            return reply

        def repeat_all() -> None:
            for route, (path, body), reply in calls:
                again = analyst.post(path, json=body, headers=keys[route])
                assert (again.status_code, again.content) == (reply.status_code, reply.content)

        id = send("sessions", "/v1/sessions", words).json()["id"]
        send("queries", f"/v1/sessions/{id}/queries", FEMALE)
        repeat_all()
        send("batch", f"/v1/sessions/{id}/queries/batch", {"queries": [MALE, FEMALE]})
        repeat_all()
        send("close", f"/v1/sessions/{id}/close", {})
        repeat_all()
        assert service.admin.delete(f"/v1/datasets/{dataset}").status_code == 200
        repeat_all()

    def test_authentication_comes_first(self, service: Service) -> None:
        """Catches a stored reply given to a key that was revoked, or to nobody."""
        name = unique("leaver")
        client = service.principal("analyst", name)
        call, key = make_call(service, "queries", client), unique("key")
        assert call.send(client, key).is_success
        service.admin.delete(f"/v1/principals/{name}")
        refused(call.send(client, key), "unauthenticated")
        refused(call.send(service.caller(None), key), "unauthenticated")


@pytest.fixture(scope="module")
def gate() -> Gate:
    return Gate()


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory, gate: Gate) -> Iterator[Service]:
    """A server whose rounds can be held where they take their noise."""
    with serving(tmp_path_factory.mktemp("gated"), noise=Noise(gate), queue_limit=8) as running:
        yield running


class TestAtOnce:
    @pytest.mark.parametrize("route", ["sessions", "queries", "batch", "close"])
    def test_repeats_wait_for_the_first(self, gated: Service, gate: Gate, route: str) -> None:
        """Six send the same call at once, the first held in the middle of its work: all get its reply and it is done
        once. Catches a repeat that overtakes the first, answers on its own, or is refused for coming too early.
        """
        client = gated.principal("analyst")
        dataset = people(gated, records_public=False)
        words = session_words(dataset, epsilon=0.3)  # buys the mass: an opening that draws noise
        body: Any = words
        path = "/v1/sessions"
        if route != "sessions":
            id = open_session(client, dataset, epsilon=0.3)["id"]
            path = {"queries": f"/v1/sessions/{id}/queries", "batch": f"/v1/sessions/{id}/queries/batch"}.get(
                route, f"/v1/sessions/{id}/close"
            )
            body = {"queries": FEMALE, "batch": {"queries": [FEMALE, MALE]}}.get(route, {})
        headers = {"Idempotency-Key": unique("key")}
        with ThreadPoolExecutor(8) as pool, gate.shut():
            ahead = None
            if route == "close":  # closing draws nothing: a query before it is held instead
                ahead = pool.submit(client.post, f"/v1/sessions/{id}/queries", json=FEMALE)
                assert gate.entered.wait(30)
            calls = [pool.submit(client.post, path, json=body, headers=headers) for _ in range(6)]
            assert gate.entered.wait(30)
            time.sleep(0.2)
            assert not any(call.done() for call in calls)
            gate.opened.set()
            replies = [call.result() for call in calls]
            assert ahead is None or ahead.result().is_success
        assert {reply.status_code for reply in replies} == {201 if route == "sessions" else 200}
        assert len({reply.content for reply in replies}) == 1
        sessions = client.get("/v1/sessions").json()["items"]
        assert len(sessions) == 1
        assert sessions[0]["sequence"] == {"sessions": 0, "queries": 1, "batch": 2, "close": 1}[route]
        kinds = [e["kind"] for e in gated.admin.get(f"/v1/datasets/{dataset}/ledger").json()["entries"]]
        assert kinds.count("reserve") == kinds.count("purchase") == 1
        assert kinds.count("return") == (route == "close")

    def test_another_body_at_once_is_a_conflict(self, gated: Service, gate: Gate) -> None:
        """Catches two bodies under one key both carried out because neither was stored yet."""
        client = gated.principal("analyst")
        id = open_session(client, people(gated))["id"]
        headers = {"Idempotency-Key": unique("key")}
        with ThreadPoolExecutor(2) as pool, gate.shut():
            calls = []
            for query in (FEMALE, MALE):
                calls.append(pool.submit(client.post, f"/v1/sessions/{id}/queries", json=query, headers=headers))
                assert gate.entered.wait(30)
            time.sleep(0.1)
            gate.opened.set()
            replies = [call.result() for call in calls]
        assert replies[0].json()["value"] == 10000
        refused(replies[1], "idempotency-conflict")
        assert client.get(f"/v1/sessions/{id}").json()["sequence"] == 1

    def test_too_many_wait(self, gated: Service, gate: Gate) -> None:
        """Eight may wait for a session's turn: the ninth is told to come back, before anything is drawn or written, and
        its key stays free; other sessions are let in. Catches a queue without an end, a refusal without Retry-After,
        and an answer lost to one: the same call, sent again, is answered as if it had never been sent before.
        """
        client = gated.principal("analyst")
        dataset = people(gated)
        ids = [open_session(client, dataset, epsilon=0.1)["id"] for _ in range(2)]
        queries = [{"type": "sparse", "indices": [i], "weights": [w]} for i in range(6) for w in (1, 0.5)]
        with ThreadPoolExecutor(len(queries) + 1) as pool, gate.shut():
            path = f"/v1/sessions/{ids[0]}/queries"
            calls = [
                pool.submit(client.post, path, json=query, headers={"Idempotency-Key": f"key-{i}"})
                for i, query in enumerate(queries)
            ]
            deadline = time.monotonic() + patience(60)
            while sum(call.done() for call in calls) < 4:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            other = pool.submit(client.post, f"/v1/sessions/{ids[1]}/queries", json=FEMALE)
            gate.opened.set()
            replies = [call.result() for call in calls]
            assert other.result().is_success
        turned_away = [i for i, reply in enumerate(replies) if reply.status_code != 200]
        assert len(turned_away) == 4
        for i in turned_away:
            refused(replies[i], "unavailable")
        assert 'curator_refusals_total{reason="queue"} 4.0' in gated.admin.get("/metrics").text
        assert client.get(f"/v1/sessions/{ids[0]}").json()["sequence"] == 8
        for sequence, i in enumerate(turned_away, start=9):
            headers = {"Idempotency-Key": f"key-{i}"}
            again = client.post(path, json=queries[i], headers=headers)
            assert (again.status_code, again.json()["sequence"]) == (200, sequence)
            assert client.post(path, json=queries[i], headers=headers).content == again.content


def finally_answered(client: httpx.Client, path: str, query: Any, key: str) -> httpx.Response:
    """Repeat a call until it is answered, as a client does on a slow machine."""
    deadline = time.monotonic() + patience(30)
    while True:
        reply = client.post(path, json=query, headers={"Idempotency-Key": key})
        if reply.status_code == 200:
            return reply
        refused(reply, "unavailable")
        assert time.monotonic() < deadline


def test_a_reply_that_took_too_long_is_kept(tmp_path: Path) -> None:
    """A client that was told "not yet" repeats its call with the same key and gets the answer of the round it began;
    one that hung up as well. Catches a round abandoned, or played a second time.
    """
    gate = Gate()
    with serving(tmp_path, noise=Noise(gate), request_timeout_seconds=2) as service:
        id = open_session(service.admin, people(service))["id"]
        path, headers = f"/v1/sessions/{id}/queries", {"Idempotency-Key": "k"}
        with gate.shut():
            refused(service.admin.post(path, json=FEMALE, headers=headers), "unavailable")
            with pytest.raises(httpx.TimeoutException):
                httpx.post(
                    service.url + path,
                    json=MALE,
                    headers={"Idempotency-Key": "l", "Authorization": f"Bearer {service.admin_key}"},
                    timeout=0.1,
                )
        first = finally_answered(service.admin, path, FEMALE, "k")
        second = finally_answered(service.admin, path, MALE, "l")
        assert (first.json()["sequence"], first.json()["value"]) == (1, 10000.0)
        assert second.json()["sequence"] == 2
        assert service.admin.get(f"/v1/sessions/{id}").json()["sequence"] == 2


def test_replies_survive_a_restart(tmp_path: Path) -> None:
    """The server ends and another begins on the same folder: the same bytes for all four routes, keys and roles as
    they were, the session goes on where it stood. Catches replies kept in memory.
    """
    service = start(tmp_path, noise=Noise())
    try:
        reply = service.admin.post("/v1/principals", json={"name": "ann", "role": "analyst"})
        key = reply.json()["api_key"]
        client = service.caller(key)
        calls = [make_call(service, route, client) for route in ROUTES]
        first = [call.send(client, f"key-{i}").content for i, call in enumerate(calls)]
        lasting = open_session(client, people(service))["id"]
        client.post(f"/v1/sessions/{lasting}/queries", json=FEMALE)
        before = service.stored()
    finally:
        service.stop()
    with serving(tmp_path, noise=Noise()) as service:
        client = service.caller(service.admin_key)  # becomes the one that admin calls use
        assert service.stored() == before
        client = service.caller(key)
        assert [call.send(client, f"key-{i}").content for i, call in enumerate(calls)] == first
        assert service.stored() == before
        refused(calls[1].send(client, "key-1", calls[1].other), "idempotency-conflict")
        again = client.post(f"/v1/sessions/{lasting}/queries", json=FEMALE)
        assert json.loads(again.content)["source"] == "cached"
        assert json.loads(again.content)["sequence"] == 2


def test_replies_leave_a_week_after_the_close(tmp_path: Path) -> None:
    """Four sessions with replies of every kind: one is open since a year, one was closed six days ago, one eight days
    ago, one a year ago, by clocks that write seconds or parts of them. At the next start the replies of the last two
    leave, all of them, page by page, and nobody else's; repeats of the others still get the same bytes. Catches replies
    that are kept for good, one that a repeat within the promised time needs, and an opening that is done again while
    its session is there.
    """
    now = datetime.now(UTC)
    closed_at = [
        None,
        f"{now - timedelta(days=6, hours=23):%Y-%m-%dT%H:%M:%SZ}",
        f"{now - timedelta(days=7, hours=1):%Y-%m-%dT%H:%M:%S.%fZ}",
        f"{now - timedelta(days=365):%Y-%m-%dT%H:%M:%SZ}",
    ]
    sent: list[list[tuple[str, Any, str, bytes]]] = [[] for _ in closed_at]
    with serving(tmp_path, noise=Noise()) as service:
        for number, (at, calls) in enumerate(zip(closed_at, sent, strict=True)):

            def send(path: str, body: Any, key: str, calls: Any = calls) -> Any:
                reply = service.admin.post(path, json=body, headers={"Idempotency-Key": key})
                assert reply.is_success, reply.text
                calls.append((path, body, key, reply.content))
                return reply.json()

            words = session_words(people(service))
            id = send("/v1/sessions", words, f"open-{number}")["id"]
            for turn in range(52):
                send(f"/v1/sessions/{id}/queries", FEMALE, f"{turn}")
            send(f"/v1/sessions/{id}/queries/batch", {"queries": [MALE]}, "k")
            if at is not None:
                send(f"/v1/sessions/{id}/close", {}, "k")
        assert len(service.rows("idempotency")) == sum(map(len, sent)) == 4 * 55 - 1
    with contextlib.closing(sqlite3.connect(tmp_path / "curator.sqlite3")) as database, database:
        database.execute("UPDATE sessions SET opened_at = '2020-01-01T00:00:00Z'")
        database.execute("UPDATE idempotency SET recorded_at = '2020-01-01T00:00:00Z'")
        for at, calls in zip(closed_at, sent, strict=True):
            id = json.loads(calls[0][3])["id"]
            assert database.execute("UPDATE sessions SET closed_at = ? WHERE id = ?", (at, id)).rowcount == 1
    with serving(tmp_path, noise=Noise()) as service:
        deadline = time.monotonic() + patience(30)
        while len(service.rows("idempotency")) != len(sent[0]) + len(sent[1]):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.2)
        before = service.stored()
        for path, body, key, content in sent[0][::10] + sent[1][::9] + sent[1][-2:]:
            assert service.admin.post(path, json=body, headers={"Idempotency-Key": key}).content == content
        assert service.stored() == before
        for path, body, key, _ in sent[2][1:3] + sent[3][-2:]:
            refused(service.admin.post(path, json=body, headers={"Idempotency-Key": key}), "session-closed")
        assert service.stored() == before
        path, body, key, content = sent[3][0]
        again = service.admin.post(path, json=body, headers={"Idempotency-Key": key})
        assert again.status_code == 201
        assert again.json()["id"] != json.loads(content)["id"]
