"""Servers killed at every named step and at random moments, clients that repeat what got no reply, and the checker.

Clients ask with idempotency keys, open and close sessions, register and retire data sets, and repeat whatever got no
reply, as the contract tells them to. At the end everything that anybody heard is held against everything that is
recorded. The tests run it briefly, `benchmarks/crashes.py` at length.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np

from app.storage.database import make_engines
from app.storage.migrate import pending
from tests.integration.servers import Caller, Launcher, Server
from tests.integration.steps import MIGRATING
from tests.integration.world import SHAPE, query

ANALYSTS = 3
#: The name of a moment that no step stands for.
RANDOM = "a random moment"
#: How often a step is passed before its trap springs, at most: requests are many, the rest is rare.
_PASSAGES = {"answering": 25, "opening": 3, "closing": 3, "registering": 2, "retiring": 1}
_PATIENCE = 60.0


@dataclass
class Heard:
    """What one client heard: the bytes of every reply to every key, and what each key asked."""

    asked: dict[str, tuple[str, Any]] = field(default_factory=dict)
    replies: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    sessions: list[str] = field(default_factory=list)
    #: Requests whose first sending got no answer, and that were sent again under the same key.
    retried: int = 0


class Clients:
    """Threads that use the service until told to stop, whatever happens to it."""

    def __init__(self, url: str, analysts: dict[str, str]) -> None:
        self.url, self.analysts = url, analysts
        self.heard = {name: Heard() for name in analysts}
        self.registered: set[str] = set()
        self.retired: set[str] = set()
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
            thread.join(_PATIENCE)
            assert not thread.is_alive()

    def _guard(self, work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            self.errors.append(error)

    def _insist(self, caller: Caller, heard: Heard, key: str, path: str, body: Any) -> httpx.Response:
        """Repeat a request under its key until it is answered."""
        heard.asked[key] = (path, body)
        deadline, first = time.monotonic() + _PATIENCE, True
        while time.monotonic() < deadline:
            try:
                reply = caller.post(path, body, key)
            except httpx.ConnectError:  # it was not sent
                time.sleep(0.01)
                continue
            except httpx.TransportError:
                heard.retried += first
                first = False
                continue
            if reply.status_code == 503:
                heard.retried += first
                first = False
                time.sleep(0.02)
                continue
            assert reply.status_code != 404, "a reply was lost: the session it named is gone"
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
            if opened.status_code == 409:  # the budget is used up, or held by the others: there is nothing to ask
                assert opened.json()["type"] == "/problems/budget-exhausted", opened.text
                time.sleep(0.05)
                continue
            assert opened.status_code == 201, opened.text
            id = opened.json()["id"]
            heard.sessions.append(id)
            for _ in range(chance.randint(10, 80)):
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
            self._insist(caller, heard, f"close-{number}", f"/v1/sessions/{id}/close", {})
            number += 1

    @staticmethod
    def _query(chance: random.Random) -> dict[str, Any]:
        if chance.random() < 0.05:  # its weights are stored beside the entry
            weights = [[chance.choice([0, 0.5, 1]) for _ in range(SHAPE[1])] for _ in range(SHAPE[0])]
            return {"type": "dense", "weights": weights}
        return query(chance.randrange(SHAPE[0]), *chance.sample(range(SHAPE[1]), chance.randint(1, SHAPE[1])))

    def _registrar(self) -> None:
        """Registers data sets one after another, and retires every third. What got no reply is tried again: the name
        may be in use then, or the data set retired.
        """
        caller, number = Caller(self.url), 0
        counts = np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE)
        retiring = False
        while not self._stopping.is_set():
            name = f"extra-{number}"
            try:
                reply = caller.http.delete(f"/v1/datasets/{name}") if retiring else caller.register(name, counts)
            except httpx.TransportError:
                time.sleep(0.01)
                continue
            if reply.status_code == 503:
                time.sleep(0.02)
                continue
            if retiring:
                assert reply.status_code in (200, 404), reply.text
                self.retired.add(name)
            else:
                assert reply.status_code in (201, 409), reply.text
                self.registered.add(name)
            retiring = not retiring and number % 3 == 0
            if not retiring:
                number += 1
                time.sleep(0.03)


@dataclass
class Findings:
    """What there was, and what was wrong with it."""

    kills: Counter[str] = field(default_factory=Counter)
    totals: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def hold(self, true: bool, otherwise: str) -> bool:
        if not true:
            self.violations.append(otherwise)
        return true


def prepare(
    launcher: Launcher, url: str | None, port: int, findings: Findings, *, migrating: Sequence[tuple[str, int]] = ()
) -> Clients:
    """A database brought up to date, though killed at these (step, passage) while it is; a data set far from
    uniform, so that there are hits; and analysts.
    """
    for step, passage in migrating:
        # The embedded database is migrated by the server as it starts, another one by the command.
        doomed = launcher.start(port, traps=[[step, passage, "die"]], migrate=url is not None)
        if findings.hold(_died(doomed), f"{step}: never passed ({passage})"):
            findings.kills[step] += 1
            if url is not None:
                findings.hold(pending(make_engines(url)[0]) == (step != MIGRATING[-1]), f"{step}: half migrated")
    if url is not None:
        launcher.start(migrate=True).wait_until_ended()
        findings.hold(not pending(make_engines(url)[0]), "the migration could not be finished")
    server = launcher.start(port).wait_until_ready()
    admin = Caller(server.url)
    counts = np.random.default_rng(7).integers(0, 200_000, SHAPE)
    assert admin.register("shared", counts, budget={"epsilon": 10.0, "delta": 1e-6}).status_code == 201
    analysts = {f"ann-{n}": admin.add(f"ann-{n}") for n in range(ANALYSTS)}
    server.kill()
    return Clients(server.url, analysts)


def _died(server: Server) -> bool:
    """Whether it comes to its end by itself; it does so either way."""
    died = server.wait_until_ended()
    server.kill()
    return died


def torture(
    launcher: Launcher, clients: Clients, port: int, moments: Sequence[str], findings: Findings, **order: Any
) -> None:
    """Kill a server at each of these moments among working clients; ``order`` is what every server has besides."""
    chance = random.Random(2012)
    clients.start()
    for moment in moments:
        if moment == RANDOM:
            server = launcher.start(port, **order)
            if chance.random() < 0.8:
                server.wait_until_ready()  # else it may be killed while it starts
            # Moments are counted in replies, so that a slow machine has as much to lose as a fast one.
            enough, deadline = clients.count() + chance.randint(0, 25), time.monotonic() + 3
            while clients.count() < enough and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(chance.uniform(0, 0.01))
            server.kill()
            findings.kills[moment] += 1
        else:
            passage = chance.randint(1, _PASSAGES[moment.partition(":")[0]])
            doomed = launcher.start(port, traps=[[moment, passage, "die"]], **order)
            if findings.hold(_died(doomed), f"{moment}: never passed ({passage})"):
                findings.kills[moment] += 1
    server = launcher.start(port, **order).wait_until_ready()
    clients.stop()
    # What was answered must have been durable when it was: one more death, and a start.
    server.kill()


def check(launcher: Launcher, clients: Clients, server: Server, findings: Findings) -> None:
    """Everything that the clients heard against everything that is recorded."""
    auditor = Caller(server.url, Caller(server.url).add("auditor", "auditor"))
    findings.violations += [f"{type(error).__name__}: {error}" for error in clients.errors]
    try:
        transcripts = auditor.audit()
    except AssertionError as error:
        findings.violations.append(f"the books: {error}")
        return
    for name, heard in clients.heard.items():
        findings.totals["retried without a reply"] += heard.retried
        _check_client(Caller(server.url, clients.analysts[name]), heard, transcripts, findings)
    _check_datasets(launcher, clients, auditor, findings)


def _check_client(again: Caller, heard: Heard, transcripts: dict[str, list[bytes]], findings: Findings) -> None:
    totals, hold = findings.totals, findings.hold
    per_session: dict[str, list[int]] = defaultdict(list)
    entries = {
        id: {e["sequence"]: e for e in map(json.loads, lines[1:-1]) if e["record"] not in ("weights", "forfeit")}
        for id, lines in transcripts.items()
        if id in heard.sessions
    }
    for key, (path, body) in heard.asked.items():
        replies = heard.replies[key]
        if not replies:
            continue
        totals["replies"] += len(replies)
        totals["sent again after a reply"] += len(replies)
        hold(set(replies) == {replies[0]}, f"two answers under one key: {path}")
        hold(again.post(path, body, key).content == replies[0], f"a reply was lost: {path}")
        parts = path.split("/")
        if parts[-1] == "queries":
            answers = [json.loads(replies[0])]
        elif parts[-1] == "batch":
            answers = [a for a in json.loads(replies[0])["answers"] if "sequence" in a]
        else:
            continue
        for answer in answers:
            entry = entries.get(parts[3], {}).get(answer["sequence"])
            if not hold(entry is not None, "a reply was lost: its entry is not in the transcript"):
                continue
            assert entry is not None
            same = all(entry[what] == answer[what] for what in ("value", "source", "entry_hash", "error_bound"))
            hold(same, "a reply was lost: its entry is another")
            per_session[parts[3]].append(answer["sequence"])
    for id, recorded in entries.items():
        # Every entry was some client's answer, and no two requests share one: nothing was played twice.
        hold(sorted(per_session[id]) == sorted(recorded), "an entry that nobody asked for")
        totals["entries"] += len(recorded)
        totals["hits"] += sum(e["source"] == "measurement" for e in recorded.values())
    totals["sessions"] += len(entries)


def _check_datasets(launcher: Launcher, clients: Clients, auditor: Caller, findings: Findings) -> None:
    status = {item["name"]: item["status"] for item in auditor.get("/v1/datasets")["items"]}
    findings.hold(clients.registered <= set(status), "a registration was lost")
    findings.hold(all(status[name] == "retired" for name in clients.retired), "a retirement was lost")
    files = sorted(path.name for path in (launcher.folder / "vault").iterdir() if not path.name.endswith(".lock"))
    named = sorted(name for name, found in status.items() if found == "registered")
    findings.hold(sorted(f.rsplit(".", 2)[0] for f in files) == named, f"a half-registered data set: {files} {named}")
    findings.totals["data sets"] += len(status)
