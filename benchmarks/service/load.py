"""Sustained traffic with a rising number of clients: throughput, latency, errors, memory.

Run `python -m benchmarks.service.load [--seconds N] [--minutes M]`: N seconds a step (default 8), M minutes of constant
load on each database and number of workers, with an eye on memory (default 2); about fourteen minutes in all. Each rate
is given beside that of a POST that does nothing, on the same server settings, at the same number of clients, in the
same run.

Single answers are fresh predicates in eight sessions, as the aims have it. Mixed traffic is what eight analysts do,
each with four sessions of his own, and an auditor: fresh predicates and cuts of which some percent are charged,
repeated ones, batches of twenty, requests under idempotency keys and retries of them, states, transcripts and ledgers.
Sessions run out of updates; then their analyst opens another one and closes the old. Any reply that is not 2xx, any
retry that gets other bytes and any answer that is missing from a batch is an error, and the run fails if there is one.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import orjson
import psutil
import psycopg

from benchmarks.harness import (
    ADMIN_KEY,
    Load,
    Reply,
    Script,
    Server,
    curator,
    load,
    postgres,
    report,
    request_bytes,
    sending,
    server,
)
from benchmarks.service.answering import open_session, predicates, register, singles, table_spec

STEPS = (1, 8, 32, 64, 128)
#: Numbers of clients at which single answers are measured, and the share of the no-op rate they should reach.
AIMED_AT = (8, 64)
AIMS = {"SQLite": 0.6, "PostgreSQL": 0.4}
#: Clients of the constant load.
CONSTANT = 32
ANALYSTS, EACH = 8, 2
BATCH = 20
#: Of a thousand requests of an analyst.
MIX = {
    "fresh predicate": 658,
    "fresh predicate under a key": 80,
    "retry": 40,
    "repeated predicate": 80,
    "cut": 100,
    "batch": 20,
    "state": 20,
    "transcript": 1,
    "ledger": 1,
}
#: What a session is opened with: it has made its updates after some thousand answers.
TERMS: dict[str, Any] = {"epsilon": 0.25, "max_queries": 3000, "max_updates": 60}
BUDGET = 1000.0
#: Races pay for each query out of delta, the more the larger the budget is. With less of it the thresholds are higher,
#: by so much, and the table has so many more records.
RACE: dict[str, Any] = {"release": "race", "epsilon": 0.05}
RACE_BUDGET, RACE_RECORDS = 10.0, 4.4
#: A session is replaced when it has so few updates or queries left: what is under way by then must find some.
UPDATES_LEFT, QUERIES_LEFT = 25, 500
#: How much cells differ by their pairs of values, and nodes by their degrees, so that some percent are charged.
SPREAD, NODES, DENSITY, SPREAD_OF_DEGREES = 0.12, 512, 0.3, 0.16


def resident(running: Server) -> float:
    """Resident memory of a server and its workers in MiB."""
    root = psutil.Process(running.pid)
    return float(sum(p.memory_info().rss for p in [root, *root.children(recursive=True)])) / 2**20


@dataclass(eq=False)
class Session:
    """An open session, and how many requests for it are under way."""

    id: str
    key: str
    under_way: int = 0
    predicates: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=50))


@dataclass(eq=False)
class Slot:
    """The session that some clients ask, and those it has replaced that are not closed yet."""

    dataset: str
    construction: str
    session: Session
    ends: bool = False
    leaving: list[Session] = field(default_factory=list)


class Mixed:
    """Mixed traffic for one server; see the module. ``tally`` counts answers by source and what else was done."""

    def __init__(self, running: Server, *, budget: float = BUDGET, records: float = 1.0, **terms: Any) -> None:
        self.tally: Counter[str] = Counter()
        self._terms = TERMS | terms
        self._fresh, self._keys = itertools.count(), itertools.count()
        rng = np.random.default_rng(3)
        declared = {"budget": {"epsilon": budget, "delta": 1e-6}}
        with httpx.Client(base_url=running.url, headers={"authorization": f"Bearer {ADMIN_KEY}"}, timeout=60) as admin:
            # Every pair of values is more or less frequent than others: what is learnt of one says little of the next.
            weights = np.ones((10,) * 5)
            for i, j in itertools.combinations(range(5), 2):
                shape = [10 if axis in (i, j) else 1 for axis in range(5)]
                weights = weights * np.exp(rng.normal(0, SPREAD, shape))
            register(admin, {**table_spec("t", 5), **declared}, rng.poisson(records * weights).astype(np.int64))
            spec = {"name": "g", "kind": "bipartite", "left": NODES, "right": NODES, "records_public": True, **declared}
            first, second = np.exp(rng.normal(0, SPREAD_OF_DEGREES, (2, NODES)))
            edges = np.argwhere(rng.random((NODES, NODES)) < np.minimum(DENSITY * np.outer(first, second), 1))
            text = "\n".join(f"{u},{v}" for u, v in edges.tolist())
            admin.post(
                "/v1/datasets", data={"spec": json.dumps(spec)}, files={"data": ("edges.csv", text.encode())}
            ).raise_for_status()
            self._auditor = self._principal(admin, "auditor", "auditor")
            self._analysts = [self._principal(admin, f"ann-{n}", "analyst") for n in range(ANALYSTS)]
        self._slots = [self._open_all(running, key) for key in self._analysts]
        self._predicate = predicates(5)
        self._sides = [np.flatnonzero(rng.random(NODES) < 0.5).tolist() for _ in range(512)]

    @staticmethod
    def _principal(admin: httpx.Client, name: str, role: str) -> str:
        reply = admin.post("/v1/principals", json={"name": name, "role": role})
        reply.raise_for_status()
        return str(reply.json()["api_key"])

    def _open_all(self, running: Server, key: str) -> tuple[list[Slot], list[Slot]]:
        with httpx.Client(base_url=running.url, headers={"authorization": f"Bearer {key}"}, timeout=60) as analyst:

            def slot(dataset: str, construction: str) -> Slot:
                return Slot(
                    dataset,
                    construction,
                    Session(open_session(analyst, dataset, construction, **self._terms), key),
                )

            return [slot("t", "mw") for _ in range(EACH)], [slot("g", "fk") for _ in range(EACH)]

    def clients(self, number: int) -> list[Script]:
        """What so many clients do."""
        return [self._client(i) for i in range(number)]

    def repeating(self, number: int) -> list[Script]:
        """So many clients that ask again what was asked before, as far as sessions are the same."""
        return [self._repeat(i) for i in range(number)]

    def _client(self, number: int) -> Script:
        chance, key = random.Random(number), self._analysts[number % ANALYSTS]
        tables, graphs = self._slots[number % ANALYSTS]
        kinds, shares = list(MIX), list(itertools.accumulate(MIX.values()))
        retries: deque[tuple[bytes, bytes]] = deque(maxlen=10)
        while True:
            kind = chance.choices(kinds, cum_weights=shares)[0]
            slot = chance.choice(graphs if kind == "cut" else tables)
            yield from self._renew(slot)
            session = slot.session
            if kind == "cut":
                first, second = chance.choice(self._sides), chance.choice(self._sides)
                yield from self._ask(slot, {"type": "cut", "left": first, "right": second})
            elif kind == "batch":
                yield from self._ask_all(slot, [self._predicate(next(self._fresh)) for _ in range(BATCH)])
            elif kind == "repeated predicate" and session.predicates:
                yield from self._ask(slot, chance.choice(session.predicates))
            elif kind == "retry" and retries:
                request, first_reply = chance.choice(retries)
                reply = yield request
                self.tally["retries"] += 1
                self.tally["other bytes under the same key"] += reply.body != first_reply
            elif kind == "state":
                yield request_bytes(f"/v1/sessions/{session.id}", b"", key, method="GET")
            elif kind == "transcript":
                yield from self._read(f"/v1/sessions/{session.id}/transcript", key, b'"record":"trailer"')
            elif kind == "ledger":
                yield from self._read(f"/v1/datasets/{slot.dataset}/ledger", self._auditor, b'"sum"')
            else:
                body = self._predicate(next(self._fresh))
                idempotency = f"k-{next(self._keys)}" if kind == "fresh predicate under a key" else None
                sent = yield from self._ask(slot, body, idempotency)
                session.predicates.append(body)
                if idempotency is not None:
                    retries.append(sent)

    def _repeat(self, number: int) -> Script:
        chance, (tables, _) = random.Random(number), self._slots[number % ANALYSTS]
        while True:
            slot = chance.choice(tables)
            if not slot.session.predicates:  # as it has only just been opened
                slot.session.predicates.append(self._predicate(next(self._fresh)))
            yield from self._ask(slot, chance.choice(slot.session.predicates))

    def _read(self, path: str, key: str, expected: bytes) -> Generator[bytes, Reply, None]:
        reply = yield request_bytes(path, b"", key, method="GET")
        self.tally["transcripts and ledgers"] += 1
        self.tally["incomplete documents"] += expected not in reply.body

    def _ask(
        self, slot: Slot, body: dict[str, Any], idempotency: str | None = None
    ) -> Generator[bytes, Reply, tuple[bytes, bytes]]:
        session = slot.session
        path = f"/v1/sessions/{session.id}/queries"
        request = request_bytes(path, orjson.dumps(body), session.key, idempotency=idempotency)
        reply = yield from self._while_open(session, request)
        if reply.status == 200:
            self._count(slot, session, orjson.loads(reply.body))
        return request, reply.body

    def _ask_all(self, slot: Slot, queries: list[dict[str, Any]]) -> Generator[bytes, Reply, None]:
        session = slot.session
        path, body = f"/v1/sessions/{session.id}/queries/batch", orjson.dumps({"queries": queries})
        reply = yield from self._while_open(session, request_bytes(path, body, session.key))
        if reply.status == 200:
            for answer in orjson.loads(reply.body)["answers"]:
                if "sequence" in answer:
                    self._count(slot, session, answer)
                else:
                    self.tally["problems within a batch"] += 1

    def _while_open(self, session: Session, request: bytes) -> Generator[bytes, Reply, Reply]:
        session.under_way += 1
        try:
            return (yield request)
        finally:
            session.under_way -= 1

    def _count(self, slot: Slot, session: Session, answer: dict[str, Any]) -> None:
        self.tally[answer["source"]] += 1
        if session is slot.session and (answer["updates_left"] < UPDATES_LEFT or answer["queries_left"] < QUERIES_LEFT):
            slot.ends = True

    def _renew(self, slot: Slot) -> Generator[bytes, Reply, None]:
        """Replace a session that is near its end; close one that was replaced and of which nothing is under way."""
        if slot.ends:
            slot.ends = False  # nobody else does it meanwhile
            asked = {"dataset": slot.dataset, "mechanism": {"construction": slot.construction}, **self._terms}
            reply = yield request_bytes("/v1/sessions", orjson.dumps(asked), slot.session.key)
            if reply.status == 201:
                slot.leaving.append(slot.session)
                slot.session = Session(orjson.loads(reply.body)["id"], slot.session.key)
                self.tally["sessions opened"] += 1
        for old in slot.leaving:
            if not old.under_way:
                slot.leaving.remove(old)
                yield request_bytes(f"/v1/sessions/{old.id}/close", b"{}", old.key)
                self.tally["sessions closed"] += 1
                break

    def answers(self) -> int:
        """Answers so far."""
        return sum(self.tally[source] for source in ("hypothesis", "measurement", "cached"))

    def fresh(self) -> int:
        """The same, without those that had been given before."""
        return self.answers() - self.tally["cached"]

    def wrong(self) -> int:
        """Replies so far that were 2xx and wrong."""
        kinds = ("other bytes under the same key", "incomplete documents", "problems within a batch")
        return sum(self.tally[kind] for kind in kinds)


@dataclass
class Watched:
    """Resident memory of a server, about once a second."""

    mib: list[float] = field(default_factory=list)

    def quarters(self) -> list[float]:
        """At the start, after each quarter, at the end."""
        return [self.mib[round(part * (len(self.mib) - 1) / 4)] for part in range(5)]


@contextmanager
def watching(running: Server) -> Iterator[Watched]:
    """Samples memory until it ends."""
    watched, ended = Watched([resident(running)]), threading.Event()

    def sample() -> None:
        while not ended.wait(1):
            watched.mib.append(resident(running))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield watched
    finally:
        ended.set()
        thread.join()
    watched.mib.append(resident(running))


def commits_sqlite(seconds: float) -> float:
    """Commits of one row a second, on the settings of the embedded database."""
    with tempfile.TemporaryDirectory(prefix="curator-bench-") as folder:
        connection = sqlite3.connect(Path(folder) / "c.sqlite3", isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE entries (n INTEGER PRIMARY KEY, line BLOB)")
        return _rate(lambda n: connection.execute("INSERT INTO entries VALUES (?, ?)", (n, b"x" * 400)), seconds)


def commits_postgres(url: str, seconds: float) -> float:
    """Commits of one row a second by one connection."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE commits (n INTEGER PRIMARY KEY, line BYTEA)")
        return _rate(lambda n: connection.execute("INSERT INTO commits VALUES (%s, %s)", (n, b"x" * 400)), seconds)


def _rate(commit: Callable[[int], Any], seconds: float) -> float:
    started = time.perf_counter()
    for n in itertools.count(1):
        commit(n)
        if time.perf_counter() - started > seconds:
            return n / (time.perf_counter() - started)
    raise AssertionError


class Run:
    """The steps of one run, and what they found."""

    def __init__(self, seconds: float, minutes: float) -> None:
        self.seconds, self.constant_seconds = seconds, 60 * minutes
        self.noop: dict[int, float] = {}
        self.rows: list[list[Any]] = []
        self.memory: list[list[Any]] = []
        self.aims: list[list[Any]] = []
        self.errors = 0
        self.done: dict[str, dict[str, int]] = {}

    def _row(
        self, name: str, clients: int, found: Load, answers: float | None, hits: float | None, memory: float
    ) -> None:
        self.errors += found.errors
        ratio = found.rate / self.noop[clients]
        times = [found.median_ms, found.p95_ms, found.p99_ms, found.max_ms]
        self.rows.append([name, clients, found.rate, answers, ratio, hits, *times, found.errors, round(memory)])

    def nothing(self) -> None:
        """The POST that does nothing, at every number of clients."""
        with server([sys.executable, "-m", "benchmarks.service.noop", "{port}"]) as running:
            request = request_bytes("/v1/sessions/x/queries", json.dumps(predicates(5)(77)).encode(), ADMIN_KEY)
            for clients in STEPS:
                found = load(running.port, [sending(lambda _: request) for _ in range(clients)], self.seconds)
                self.noop[clients] = found.rate
                self._row("no-op POST", clients, found, None, None, resident(running))

    def singles(self, name: str, kind: str, start: Callable[[], AbstractContextManager[Server]]) -> None:
        """Durable single answers, on a fresh server for each number of clients; memory on the last one."""
        for clients in AIMED_AT:
            with start() as running:
                make = singles(running, 8)
                found = load(running.port, make(clients), self.seconds)
                self._row(f"{name}, single answers, 8 sessions", clients, found, found.rate, None, resident(running))
                ratio = found.rate / self.noop[clients]
                met = "yes" if ratio >= AIMS[kind] else "no"
                self.aims.append([f"{name}, single answers, 8 sessions", clients, AIMS[kind], ratio, met])
                if kind == "SQLite" and clients == AIMED_AT[-1]:
                    with watching(running) as watched:
                        found = load(running.port, make(clients), self.constant_seconds / 2)
                    self.errors += found.errors
                    self._remember(
                        f"{name}, fresh answers in sessions that stay open", clients, found, watched, found.requests
                    )

    def mixed(self, name: str, start: Callable[[], AbstractContextManager[Server]]) -> None:
        """Mixed traffic, more and more clients, and then a constant load for minutes."""
        with start() as running:
            traffic = Mixed(running)
            # Hypotheses that know nothing are charged more often than those of a service that has been in use.
            self.errors += load(running.port, traffic.clients(CONSTANT), self.seconds).errors
            for clients in STEPS:
                self._step(f"{name}, mixed", running, traffic, clients)
            self._constant(name, running, traffic)
            self._end(name, traffic)

    def race(self, name: str, start: Callable[[], AbstractContextManager[Server]]) -> None:
        """Mixed traffic over sessions that race."""
        with start() as running:
            traffic = Mixed(running, budget=RACE_BUDGET, records=RACE_RECORDS, **RACE)
            self._step(f"{name}, mixed, race releases", running, traffic, AIMED_AT[0])
            self._end(f"{name}, race", traffic)

    def _step(self, name: str, running: Server, traffic: Mixed, clients: int, seconds: float | None = None) -> Load:
        answers, hits = traffic.answers(), traffic.tally["measurement"]
        found = load(running.port, traffic.clients(clients), self.seconds if seconds is None else seconds)
        answers = traffic.answers() - answers
        share = (traffic.tally["measurement"] - hits) / answers if answers else None
        self._row(name, clients, found, answers / found.seconds, share, resident(running))
        return found

    def _constant(self, name: str, running: Server, traffic: Mixed) -> None:
        fresh = traffic.fresh()
        with watching(running) as watched:
            seconds = self.constant_seconds
            found = self._step(f"{name}, mixed, for {seconds:.0f} s", running, traffic, CONSTANT, seconds)
        self._remember(f"{name}, mixed", CONSTANT, found, watched, traffic.fresh() - fresh)
        with watching(running) as watched:
            found = load(running.port, traffic.repeating(CONSTANT), self.constant_seconds / 6)
        self.errors += found.errors
        self._remember(f"{name}, repeated questions alone", CONSTANT, found, watched, 0)

    def _remember(self, name: str, clients: int, found: Load, watched: Watched, fresh: int) -> None:
        quarters = watched.quarters()
        growth = 1024 * (quarters[-1] - quarters[0]) / (fresh / 1000) if fresh else None
        self.memory.append([name, clients, round(found.seconds), found.requests, fresh, *map(round, quarters), growth])

    def _end(self, name: str, traffic: Mixed) -> None:
        self.errors += traffic.wrong()
        self.done[name] = dict(sorted(traffic.tally.items()))


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds a step")
    parser.add_argument("--minutes", type=float, default=2.0, help="minutes of constant load on each database")
    asked = parser.parse_args()
    run = Run(asked.seconds, asked.minutes)
    run.nothing()
    run.singles("SQLite", "SQLite", curator)
    run.mixed("SQLite", curator)
    with postgres() as url:
        commits: dict[str, Any] = {
            "SQLite commits a second": commits_sqlite(3),
            "PostgreSQL commits a second": commits_postgres(url, 3),
        }
    for workers in (1, 2):
        name = f"PostgreSQL, {workers} worker{'s' * (workers > 1)}"
        start = partial(on_postgres, workers)
        run.singles(name, "PostgreSQL", start)
        run.mixed(name, start)
    run.race("SQLite", curator)
    run.race("PostgreSQL, 1 worker", partial(on_postgres, 1))
    report(
        "load",
        f"Sustained traffic, {asked.seconds:g} seconds a step; every answer durable before its reply",
        ["what", "clients", "requests a second", "answers a second", "of no-op", "hits",
         "p50 ms", "p95 ms", "p99 ms", "max ms", "errors", "resident MiB"],
        run.rows,
        seconds_a_step=asked.seconds,
        seconds_constant=run.constant_seconds,
        errors=run.errors,
        done=run.done,
        **commits,
    )  # fmt: skip
    report(
        "load_aims",
        "Single answers, of the no-op rate at the same number of clients, and what was aimed at",
        ["what", "clients", "aim", "measured", "met"],
        run.aims,
        seconds_a_step=asked.seconds,
    )
    report(
        "load_memory",
        "Resident MiB of the service under constant load",
        ["what", "clients", "seconds", "requests", "fresh answers", "start", "1/4", "1/2", "3/4", "end",
         "KiB for 1,000 fresh"],
        run.memory,
    )  # fmt: skip
    if run.errors:
        sys.exit(f"{run.errors} errors")


@contextmanager
def on_postgres(workers: int) -> Iterator[Server]:
    """A curator on a PostgreSQL server of its own."""
    with postgres() as url, curator(url, workers=workers) as running:
        yield running


if __name__ == "__main__":
    main()
