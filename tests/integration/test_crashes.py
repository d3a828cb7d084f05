"""kill -9 at random moments, under load: what was answered stands, what was not asked twice is not charged twice.

Clients ask with idempotency keys, open and close sessions, and register data sets, and repeat whatever got no reply,
as the contract tells them to. A server is killed again and again among them; the books are audited at the end.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.storage.database import make_engines
from app.storage.migrate import migrate
from tests.integration.servers import Caller, Launcher, free_port, launching
from tests.integration.world import SHAPE, query

#: On the embedded database, and on PostgreSQL, where a start takes longer.
KILLS = (20, 10)
ANALYSTS = 3


@dataclass
class Heard:
    """What one client heard: the bytes of every reply to every key, and what each key asked."""

    asked: dict[str, tuple[str, Any]] = field(default_factory=dict)
    replies: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    sessions: list[str] = field(default_factory=list)


class Clients:
    """Threads that use the service until told to stop, whatever happens to it."""

    def __init__(self, url: str, analysts: dict[str, str]) -> None:
        self.url, self.analysts = url, analysts
        self.heard = {name: Heard() for name in analysts}
        self.registered: list[str] = []
        self.errors: list[BaseException] = []
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._guard, args=(self._analyst, name)) for name in analysts]
        self._threads.append(threading.Thread(target=self._guard, args=(self._registrar,)))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def count(self) -> int:
        """Replies heard so far."""
        return sum(len(replies) for heard in self.heard.values() for replies in list(heard.replies.values()))

    def stop(self) -> None:
        """Let everybody finish what they are at."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        for error in self.errors:
            raise error

    def _guard(self, work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            self.errors.append(error)

    def _insist(self, caller: Caller, heard: Heard, key: str, path: str, body: Any) -> httpx.Response:
        """Repeat a request under its key until it is answered; now and then once more after that."""
        heard.asked[key] = (path, body)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                reply = caller.post(path, body, key)
            except httpx.TransportError:
                time.sleep(0.01)
                continue
            if reply.status_code == 503:
                time.sleep(0.02)
                continue
            if reply.status_code == 404:
                raise AssertionError("a reply was lost: the session it named is gone")
            if reply.is_success:
                heard.replies[key].append(reply.content)
            return reply
        raise AssertionError("no reply for a minute")

    def _analyst(self, name: str) -> None:
        chance, caller, heard = random.Random(name), Caller(self.url, self.analysts[name]), self.heard[name]
        number = 0
        while not self._stopping.is_set():
            opening = {
                "dataset": "shared",
                "mechanism": {"construction": chance.choice(["mw", "fk"])},
                "epsilon": 0.02,
                "max_queries": 1000,
                "max_updates": 12,
            }
            opened = self._insist(caller, heard, f"open-{number}", "/v1/sessions", opening)
            number += 1
            if opened.status_code == 409:  # the budget is used up: go on in the last session
                id = heard.sessions[-1]
            else:
                assert opened.status_code == 201, opened.text
                id = opened.json()["id"]
                heard.sessions.append(id)
            for _ in range(chance.randint(20, 120)):
                if self._stopping.is_set():
                    return
                key = f"ask-{number}"
                number += 1
                if chance.random() < 0.8:
                    path, body = f"/v1/sessions/{id}/queries", self._query(chance)
                else:
                    path = f"/v1/sessions/{id}/queries/batch"
                    body = {"queries": [self._query(chance) for _ in range(chance.randint(1, 4))]}
                reply = self._insist(caller, heard, key, path, body)
                if not reply.is_success:
                    assert reply.json()["type"] == "/problems/updates-exhausted", reply.text
                    del heard.asked[key]
                elif chance.random() < 0.1:
                    self._insist(caller, heard, key, path, body)
            if opened.status_code == 201:
                self._insist(caller, heard, f"close-{number}", f"/v1/sessions/{id}/close", {})
                number += 1

    @staticmethod
    def _query(chance: random.Random) -> dict[str, Any]:
        return query(chance.randrange(SHAPE[0]), *chance.sample(range(SHAPE[1]), chance.randint(1, SHAPE[1])))

    def _registrar(self) -> None:
        """Registers data sets one after another; a name that got no reply is tried again, and may be in use."""
        caller, number = Caller(self.url), 0
        counts = np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE)
        while not self._stopping.is_set():
            name = f"extra-{number}"
            try:
                reply = caller.register(name, counts)
            except httpx.TransportError:
                time.sleep(0.01)
                continue
            if reply.status_code in (201, 409):
                self.registered.append(name)
                number += 1
                time.sleep(0.1)
            else:
                assert reply.status_code == 503, reply.text


def prepare(launcher: Launcher, url: str | None, port: int) -> Clients:
    """A data set far from uniform, so that there are hits, and analysts."""
    if url is not None:
        _, writing = make_engines(url)
        migrate(writing)
        writing.dispose()
    server = launcher.start(port).wait_until_ready()
    admin = Caller(server.url)
    counts = np.random.default_rng(7).integers(0, 200_000, SHAPE)
    assert admin.register("shared", counts, budget={"epsilon": 2.0, "delta": 1e-6}).status_code == 201
    analysts = {f"ann-{n}": admin.add(f"ann-{n}") for n in range(ANALYSTS)}
    server.kill()
    return Clients(server.url, analysts)


def torture(launcher: Launcher, clients: Clients, port: int, kills: int, **order: Any) -> Caller:
    """Kill a server again and again; gives an auditor on the last one, when the clients have finished."""
    chance = random.Random(2012)
    server = launcher.start(port, **order).wait_until_ready()
    clients.start()
    for _ in range(kills):
        # Moments are counted in replies, so that a slow machine has as much to lose as a fast one.
        enough, deadline = clients.count() + chance.randint(0, 25), time.monotonic() + 3
        while clients.count() < enough and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(chance.uniform(0, 0.01))
        server.kill()
        server = launcher.start(port, **order)
        if chance.random() < 0.8:
            server.wait_until_ready()  # else it may be killed while it starts
    server.wait_until_ready()
    clients.stop()
    # What was answered must have been durable when it was: one more death, and a start of the command itself.
    server.kill()
    server = (launcher.start if order else launcher.command)(port).wait_until_ready()
    return Caller(server.url, Caller(server.url).add("auditor", "auditor"))


def check(launcher: Launcher, clients: Clients, auditor: Caller) -> dict[str, int]:
    """Everything that the clients heard against everything that is recorded; gives what there was of it."""
    totals: dict[str, int] = defaultdict(int)
    transcripts = auditor.audit()
    for name, heard in clients.heard.items():
        again = Caller(clients.url, clients.analysts[name])
        per_session: dict[str, list[int]] = defaultdict(list)
        entries = {
            id: {e["sequence"]: e for e in map(json.loads, lines[1:-1]) if e["record"] == "answer"}
            for id, lines in transcripts.items()
            if id in heard.sessions
        }
        for key, (path, body) in heard.asked.items():
            replies = heard.replies[key]
            if not replies:
                continue
            totals["replies"] += len(replies)
            assert set(replies) == {replies[0]}, "two answers under one key"
            repeated = again.post(path, body, key)
            assert repeated.content == replies[0], f"a reply was lost: {path} {repeated.text}"
            parts = path.split("/")
            if parts[-1] == "queries":
                answers = [json.loads(replies[0])]
            elif parts[-1] == "batch":
                answers = [a for a in json.loads(replies[0])["answers"] if "sequence" in a]
            else:
                continue
            for answer in answers:
                entry = entries[parts[3]].get(answer["sequence"])
                assert entry is not None, "a reply was lost: its entry is not in the transcript"
                for what in ("value", "source", "entry_hash", "error_bound"):
                    assert entry[what] == answer[what], "a reply was lost: its entry is another"
                per_session[parts[3]].append(answer["sequence"])
        for id, recorded in entries.items():
            # Every entry was some client's answer, and no two requests share one: nothing was played twice.
            assert sorted(per_session[id]) == sorted(recorded), "an entry that nobody asked for"
            totals["entries"] += len(recorded)
            totals["hits"] += sum(e["source"] == "measurement" for e in recorded.values())
    names = [item["name"] for item in auditor.get("/v1/datasets")["items"]]
    assert set(clients.registered) <= set(names)
    vault = launcher.folder / "vault"
    files = sorted(path.name for path in vault.iterdir() if not path.name.endswith(".lock"))
    assert sorted(f.rsplit(".", 2)[0] for f in files) == sorted(names), "a half-registered data set"
    totals["data sets"] = len(names)
    return totals


def test_what_was_answered_stands(tmp_path: Path, database: str | None) -> None:
    """Catches an answer that left before it was durable, a charge without its entry or the other way round, a round
    played twice for one key, a chain that a crash forks, a data set half registered.
    """
    port = free_port()
    with launching(tmp_path / "data", database) as launcher:
        clients = prepare(launcher, database, port)
        auditor = torture(launcher, clients, port, KILLS[database is not None])
        totals = check(launcher, clients, auditor)
        logs = launcher.logs()
    # The harness has worked: there was something to lose.
    assert totals["replies"] > 100
    assert totals["hits"] > 10
    assert totals["data sets"] > 3
    assert "Traceback" not in logs


def test_a_reply_before_its_commit_is_caught(tmp_path: Path) -> None:
    """The same harness over a server whose commits come a moment after they are reported: it must see it."""
    port = free_port()
    with launching(tmp_path / "data", None) as launcher:
        clients = prepare(launcher, None, port)
        with pytest.raises(AssertionError, match=r"a reply was lost|two answers under one key"):
            check(launcher, clients, torture(launcher, clients, port, 5, reply_first=True))
