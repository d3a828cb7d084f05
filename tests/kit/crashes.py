"""Servers killed at every named step and at random moments, clients that repeat what got no reply, and the checker.

Clients ask with idempotency keys, open and close sessions, register and retire data sets, and repeat whatever got no
reply, as the contract tells them to. After each restart they are held up when everything that they had sent is
answered, and what anybody heard is held against what is recorded: sessions that have changed are replayed, and each
reply since the last time is asked for again; every so often, and at the end, all of them are. In part of the rounds
sessions are written down all the time, and on PostgreSQL a second server or a second worker is at work beside the one
that is killed. The tests run it briefly, `benchmarks/service/crashes.py` at length.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import httpx
import numpy as np

from app.storage.database import make_engines
from app.storage.migrate import pending
from tests.kit.patience import patience
from tests.kit.servers import Caller, Launcher, Server
from tests.kit.steps import HASTY, KEEPING, MIGRATING
from tests.kit.world import SHAPE, SPEC, Audited, query

ANALYSTS = 3
#: The name of a moment that no step stands for.
RANDOM = "a random moment"
#: The same, of one of the two workers of a server.
WORKER = "a random moment, one of two workers"
#: Rounds between two full checks.
FULL_EVERY = 20
#: The data set's second attribute: its places are those of codes, and as numbers they can be summed up.
_NUMBER = {"name": "b", "lower": 0, "upper": SHAPE[1] - 1, "grid": 1}
STATISTICS = ("sum", "mean", "variance", "quantile")
#: How often a step is passed before its trap springs, at most: requests are many, the rest is rare.
_PASSAGES = {"answering": 25, "opening": 3, "closing": 3, "registering": 2, "retiring": 1, "keeping": 25}
_PATIENCE = patience(60.0)


@dataclass
class Heard:
    """What one client heard: the bytes of every reply to every key, and what each key asked."""

    asked: dict[str, tuple[str, Any]] = field(default_factory=dict)
    replies: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    sessions: list[str] = field(default_factory=list)
    #: Requests whose first sending got no answer, and that were sent again under the same key.
    retried: int = 0


class Anywhere:
    """Somebody with a key who may go to any of several servers."""

    def __init__(self, urls: list[str], key: str | None = None) -> None:
        self._urls, self._key = urls, key
        self._callers: dict[str, Caller] = {}

    def any(self) -> Caller:
        """The way to one of the servers that there are now."""
        return self.at(random.choice(list(self._urls)))  # they may become fewer meanwhile

    def at(self, url: str) -> Caller:
        """The way to a server."""
        if url not in self._callers:
            self._callers[url] = Caller(url) if self._key is None else Caller(url, self._key)
        return self._callers[url]


class Clients:
    """Threads that use the service until told to stop, whatever happens to it.

    Attributes:
        urls: where it is found now.
        patience: the seconds for which a request is repeated before its client gives up.
    """

    def __init__(self, url: str, analysts: dict[str, str], auditor: str) -> None:
        self.urls, self.analysts, self.auditor = [url], analysts, auditor
        self.patience = _PATIENCE
        self.heard = {name: Heard() for name in analysts}
        self.registered: set[str] = set()
        self.retired: set[str] = set()
        self.errors: list[BaseException] = []
        self._stopping = threading.Event()
        self._going = threading.Event()
        self._going.set()
        self._still = 0
        self._change = threading.Condition()
        self._threads = [
            threading.Thread(target=self._guard, args=(self._analyst, name), daemon=True) for name in analysts
        ]
        self._threads.append(threading.Thread(target=self._guard, args=(self._registrar,), daemon=True))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def count(self) -> int:
        """Replies heard so far."""
        return sum(len(replies) for heard in self.heard.values() for replies in list(heard.replies.values()))

    def hold(self) -> None:
        """Let nobody begin anything new; what was begun is repeated until it is answered."""
        self._going.clear()

    def settle(self) -> None:
        """Wait until everything that was begun is answered."""
        with self._change:
            assert self._change.wait_for(lambda: self._still == len(self._threads), _PATIENCE + 5)

    def release(self) -> None:
        """Go on."""
        self._going.set()

    def stop(self) -> None:
        """Let everybody finish what they are at."""
        self._stopping.set()
        self._going.set()
        for thread in self._threads:
            thread.join(_PATIENCE)
            assert not thread.is_alive()

    def _guard(self, work: Any, *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as error:
            self.errors.append(error)
        self._move(1)

    def _move(self, step: int) -> None:
        with self._change:
            self._still += step
            self._change.notify_all()

    def _goes_on(self) -> bool:
        """Between two requests: waits while everybody is held up; whether there is to be another."""
        if not self._going.is_set():
            self._move(1)
            self._going.wait()
            self._move(-1)
        return not self._stopping.is_set()

    def _insist(self, callers: Anywhere, heard: Heard, key: str, path: str, body: Any) -> httpx.Response:
        """Repeat a request under its key until it is answered."""
        heard.asked[key] = (path, body)
        deadline, first = time.monotonic() + self.patience, True
        while time.monotonic() < deadline:
            try:
                reply = callers.any().post(path, body, key)
            except httpx.ConnectError:  # it was not sent
                time.sleep(0.04)
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
        raise AssertionError(f"no reply within {self.patience} seconds")

    def _analyst(self, name: str) -> None:
        chance, heard = random.Random(name), self.heard[name]
        callers = Anywhere(self.urls, self.analysts[name])
        number = 0
        while self._goes_on():
            construction = chance.choice(["mw", "fk", "evidence"])
            opening = {
                "dataset": "shared",
                "mechanism": {"construction": construction},
                "epsilon": 0.02,
                "max_queries": 1000,
                **({} if construction == "evidence" else {"max_updates": 12}),
            }
            opened = self._insist(callers, heard, f"open-{number}", "/v1/sessions", opening)
            number += 1
            if opened.status_code == 409:  # the budget is used up, or held by the others: there is nothing to ask
                assert opened.json()["type"] == "/problems/budget-exhausted", opened.text
                time.sleep(0.05)
                continue
            assert opened.status_code == 201, opened.text
            id = opened.json()["id"]
            heard.sessions.append(id)
            for _ in range(chance.randint(10, 80)):
                if not self._goes_on():
                    return
                key = f"ask-{number}"
                number += 1
                if chance.random() < 0.8:
                    tables = construction == "evidence"
                    path, body = f"/v1/sessions/{id}/queries", self._query(chance, tables=tables)
                else:
                    path = f"/v1/sessions/{id}/queries/batch"
                    body = {"queries": [self._query(chance) for _ in range(chance.randint(1, 4))]}
                reply = self._insist(callers, heard, key, path, body)
                if not reply.is_success:
                    assert reply.json()["type"] == "/problems/updates-exhausted", reply.text
                    del heard.asked[key]
                elif chance.random() < 0.1:
                    self._insist(callers, heard, key, path, body)
            if not self._goes_on():
                return
            self._insist(callers, heard, f"close-{number}", f"/v1/sessions/{id}/close", {})
            number += 1

    @staticmethod
    def _query(chance: random.Random, *, tables: bool = False) -> dict[str, Any]:
        if tables and chance.random() < 0.2:
            return {"type": "marginal", "attributes": chance.sample(["a", "b"], chance.randint(1, 2))}
        if tables and chance.random() < 0.3:
            kind = chance.choice(STATISTICS)
            where = {"b": {"ge": chance.randrange(SHAPE[1] - 2)}}
            asked = {"type": kind, "of": "b", "group_by": chance.choice([[], ["a"]]), "where": where}
            return asked | ({"q": chance.choice([0.5, [0.25, 0.75]])} if kind == "quantile" else {})
        if chance.random() < 0.05:  # its weights are stored beside the entry
            weights = [[chance.choice([0, 0.5, 1]) for _ in range(SHAPE[1])] for _ in range(SHAPE[0])]
            return {"type": "dense", "weights": weights}
        return query(chance.randrange(SHAPE[0]), *chance.sample(range(SHAPE[1]), chance.randint(1, SHAPE[1])))

    def _registrar(self) -> None:
        """Registers data sets one after another, and retires every third. What got no reply is tried again: the name
        may be in use then, or the data set retired.
        """
        callers, number = Anywhere(self.urls), 0
        counts = np.arange(SHAPE[0] * SHAPE[1]).reshape(SHAPE)
        retiring = False
        begun = False
        while begun or self._goes_on():
            begun = True
            name, caller = f"extra-{number}", callers.any()
            try:
                reply = caller.http.delete(f"/v1/datasets/{name}") if retiring else caller.register(name, counts)
            except httpx.TransportError:
                time.sleep(0.01)
                continue
            if reply.status_code == 503:
                time.sleep(0.02)
                continue
            begun = False
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
    attributes = [SPEC["attributes"][0], _NUMBER]
    budget = {"epsilon": 10.0, "delta": 1e-6}
    assert admin.register("shared", counts, attributes=attributes, budget=budget).status_code == 201
    clients = Clients(
        server.url, {f"ann-{n}": admin.add(f"ann-{n}") for n in range(ANALYSTS)}, admin.add("auditor", "auditor")
    )
    server.kill()
    return clients


def _died(server: Server) -> bool:
    """Whether it comes to its end by itself; it does so either way."""
    died = server.wait_until_ended(_PATIENCE)
    server.kill()
    return died


def torture(
    launcher: Launcher,
    clients: Clients,
    port: int,
    moments: Sequence[str],
    findings: Findings,
    *,
    second: int | None = None,
    books_every: int = 1,
    **order: Any,
) -> None:
    """Kill a server at each of these moments among working clients, and check after each restart.

    Args:
        launcher: starts the servers.
        clients: not yet at work; they have stopped at the end.
        port: of the server that is killed.
        moments: named steps, :data:`RANDOM` or :data:`WORKER`.
        findings: what is found.
        second: port of a second server, which works beside the other in every other pair of rounds and is killed with
            it in the second of them; None for none.
        books_every: rounds between two looks at the books. No row of theirs is ever written again, so what is wrong
            with them stays; replies, data sets and files, which a start may put right, are looked at in each round.
        order: what every server has besides.
    """
    chance, checker = random.Random(2012), Checker(launcher, clients, findings)
    resumed = launcher.folder / "resumed"
    resumed.touch()
    beside: Server | None = None
    clients.hold()
    clients.start()
    for number, moment in enumerate(moments):
        # Clients are held up, and repeat what the last round left without a reply.
        armed = launcher.folder / f"armed-{number}"
        act = "linger" if moment == HASTY else "die"
        extra: dict[str, Any] = {"traps": [[moment, _passage(moment, chance), act]], "armed": str(armed)}
        if number % 2 or moment in KEEPING:
            extra["resumed"] = str(resumed)
        if beside is not None:
            clients.settle()  # there it is answered; and nothing else is under way when the first one comes back
        while moment == RANDOM and chance.random() < 0.2:  # killed while it starts
            early = launcher.start(port, **order)
            time.sleep(chance.uniform(0, 0.5))
            early.kill()
            findings.totals["killed while starting"] += 1
        server = launcher.start(port, **_worker(moment, order, extra)).wait_until_ready()
        if second is not None and number % 4 == 2:
            beside = launcher.start(second, **order).wait_until_ready()
            clients.urls.append(beside.url)
        clients.settle()
        full = number % FULL_EVERY == FULL_EVERY - 1
        checker.check(server, full=full, books=full or number % books_every == books_every - 1)
        armed.touch()
        clients.release()
        if moment in (RANDOM, WORKER):
            _wait_for_replies(clients, chance)
            victim = server.kill if moment == RANDOM else partial(_kill_worker, server, chance)
            victim()
            findings.kills[moment] += 1
        elif findings.hold(_died(server), f"{moment}: never passed"):
            findings.kills[moment] += 1
        findings.totals["killed beside a second server"] += beside is not None
        clients.hold()
        if moment == WORKER:  # what it left is for the other, and for the one in its place
            clients.settle()
            checker.check(server, settled=False)
            server.kill()
        if beside is not None and number % 4 == 3:
            clients.urls.remove(beside.url)
            beside.kill()
            findings.totals["second servers killed"] += 1
            beside = None
    server = launcher.start(port, **order).wait_until_ready()
    if beside is not None:
        clients.urls.remove(beside.url)
        beside.kill()
    clients.settle()
    checker.check(server)
    clients.stop()
    # What was answered must have been durable when it was: one more death, and a start.
    server.kill()
    findings.totals["sessions resumed from a snapshot"] += len(resumed.read_text().splitlines())


def _worker(moment: str, order: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    if moment == WORKER:
        return {**order, "workers": 2}
    if moment == RANDOM:
        del extra["traps"]
    return {**order, **extra}


def _passage(moment: str, chance: random.Random) -> int:
    return chance.randint(1, _PASSAGES.get(moment.partition(":")[0], 1))


def _wait_for_replies(clients: Clients, chance: random.Random) -> None:
    """Moments are counted in replies, so that a slow machine has as much to lose as a fast one."""
    enough, deadline = clients.count() + chance.randint(0, 25), time.monotonic() + patience(10)
    while clients.count() < enough and time.monotonic() < deadline:
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.01))


def _kill_worker(server: Server, chance: random.Random) -> None:
    """kill -9 to one of a server's workers."""
    worker = chance.choice(server.workers())
    worker.kill()
    worker.wait(_PATIENCE)


def _stored(reply: bytes) -> bytes:
    """What of a reply is the same each time: a closed session's tells besides how large the log is that has all of it,
    or null while none has.
    """
    return re.sub(rb',"log_size":(null|\d+)}$', b"}", reply)


def check(launcher: Launcher, clients: Clients, server: Server, findings: Findings) -> None:
    """Everything that the clients heard against everything that is recorded, when they have stopped."""
    checker = Checker(launcher, clients, findings)
    checker.check(server)
    findings.totals.update(checker.counts())
    findings.violations += [f"{type(error).__name__}: {error}" for error in clients.errors]
    findings.totals["retried without a reply"] += sum(heard.retried for heard in clients.heard.values())
    findings.totals["replies"] += clients.count()


class Checker:
    """Holds what the clients heard against what is recorded, of what is new since the last time or of everything.

    The clients must be still: everything that they have sent is answered.
    """

    def __init__(self, launcher: Launcher, clients: Clients, findings: Findings) -> None:
        self._launcher, self._clients, self._findings = launcher, clients, findings
        self._auditor = Anywhere([], clients.auditor)
        self._analysts = {name: Anywhere([], key) for name, key in clients.analysts.items()}
        self._forget()

    def _forget(self) -> None:
        self._audited = Audited()
        #: How many of each client's requests were looked at; the answers of each session among them.
        self._seen: Counter[str] = Counter()
        self._told: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._sources: dict[str, Counter[str]] = {}
        self._statistics: dict[str, int] = {}
        self._datasets = 0

    def check(self, server: Server, *, full: bool = False, books: bool = True, settled: bool = True) -> None:
        """Check what is new; what is wrong goes to the findings.

        Args:
            server: answers the questions.
            full: check everything.
            books: hold the ledger, the transcripts and what was told against each other.
            settled: the server has started since a process was killed, so nothing half done is left in the vault.
        """
        totals, hold = self._findings.totals, self._findings.hold
        if full:
            self._forget()
        totals["checks of what is new" if self._seen else "checks of everything"] += 1
        asked = {id for name in self._clients.heard for id in self._ask_again(server, name)}
        for id in asked:  # though its state should not have changed
            self._audited.sessions.pop(id, None)
        auditor = self._auditor.at(server.url)
        self._check_datasets(auditor, settled)
        if not books:
            return
        try:
            transcripts = auditor.audit(self._audited)
        except AssertionError as error:
            hold(False, f"the books: {error}")
            return
        totals["transcripts replayed"] += len(transcripts)
        known = {id for heard in self._clients.heard.values() for id in heard.sessions}
        hold(known <= set(self._audited.sessions), "a session was lost")
        for id, lines in transcripts.items():
            if hold(id in known, "a session that nobody opened"):
                self._check_session(id, lines)

    def counts(self) -> dict[str, int]:
        """How much there is of what was checked."""
        sources = sum(self._sources.values(), Counter[str]())
        return {
            "sessions": len(self._sources),
            "entries": sources.total(),
            "hits": sources["measurement"],
            "statistics answered": sum(self._statistics.values()),
            "data sets": self._datasets,
        }

    def _ask_again(self, server: Server, name: str) -> set[str]:
        """Ask again for each new reply of a client, and note its answers; gives the sessions that they are of."""
        totals, hold, heard = self._findings.totals, self._findings.hold, self._clients.heard[name]
        again, sessions = self._analysts[name].at(server.url), set()
        requests = list(heard.asked.items())
        for key, (path, body) in requests[self._seen[name] :]:
            replies = heard.replies[key]
            if not replies:
                continue
            totals["asked for again after a reply"] += 1
            hold(len({*map(_stored, replies)}) == 1, f"two answers under one key: {path}")
            hold(_stored(again.post(path, body, key).content) == _stored(replies[0]), f"a reply was lost: {path}")
            parts = path.split("/")
            if len(parts) > 3:
                sessions.add(parts[3])
            if parts[-1] == "queries":
                self._told[parts[3]].append(json.loads(replies[0]))
            elif parts[-1] == "batch":
                self._told[parts[3]] += [a for a in json.loads(replies[0])["answers"] if "sequence" in a]
        self._seen[name] = len(requests)
        return sessions

    def _check_session(self, id: str, lines: list[bytes]) -> None:
        """What was told of a session against its transcript."""
        hold, told = self._findings.hold, self._told[id]
        records = [json.loads(line) for line in lines[1:-1]]
        entries = {e["sequence"]: e for e in records if e["record"] == "answer"}
        for answer in told:
            entry = entries.get(answer["sequence"])
            if not hold(entry is not None, "a reply was lost: its entry is not in the transcript"):
                continue
            assert entry is not None
            same = all(entry[what] == answer[what] for what in ("source", "entry_hash", "error_bound"))
            # A table's cells are told in the order they were asked in.
            same &= entry.get("value") == answer.get("value")
            same &= sorted(entry.get("values", ()), key=repr) == sorted(answer.get("values", ()), key=repr)
            hold(same, "a reply was lost: its entry is another")
        # Every entry was some client's answer, and no two requests share one: nothing was played twice.
        hold(sorted(a["sequence"] for a in told) == sorted(entries), "an entry that nobody asked for")
        self._sources[id] = Counter(e["source"] for e in entries.values())
        self._statistics[id] = sum(e["query"]["type"] in STATISTICS for e in entries.values())

    def _check_datasets(self, auditor: Caller, settled: bool) -> None:
        clients, hold = self._clients, self._findings.hold
        status = {item["name"]: item["status"] for item in auditor.pages("/v1/datasets")["items"]}
        hold(clients.registered <= set(status), "a registration was lost")
        hold(all(status.get(name) == "retired" for name in clients.retired), "a retirement was lost")
        self._datasets = len(status)
        vault = self._launcher.folder / "vault"
        files = Counter(path.name.rsplit(".", 2)[0] for path in vault.iterdir() if not path.name.endswith(".lock"))
        named = Counter(name for name, found in status.items() if found == "registered")
        hold(not named - files, f"a data set without its file: {named - files}")
        hold(not settled or not files - named, f"a half-registered data set: {files - named}")
