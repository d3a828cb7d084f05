"""Several servers on one PostgreSQL: what a home of sessions is worth, and what many servers can be expected to carry.

Run `python -m benchmarks.service.fleet` (about five minutes). One server and four, each a process of its own on one
database and one data folder, are asked by as many clients as keep two processors busy. With homes each session is asked
at one server, as the proxy sees to; without, at one after another. *Processor an answer* is that of all servers, beside
one server's in the same run, and *p95* is how long a client waits. Half of the questions are new ones of evidence
sessions, three tenths were asked before, and a fifth are answered by a hypothesis.

The second table is a simulation, whose constants are measured just before: processor time by kind of answer, what a
session takes of memory, and what it costs to bring one back. Analysts think ten seconds between questions, and change
to another of their hundred sessions every fifty questions. It says where the arrangement bends, and by what.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
import numpy as np

from benchmarks.harness import ADMIN_KEY, Server, postgres, report, server
from benchmarks.service.answering import open_session, predicates, register, table_spec
from benchmarks.service.answering import processor_seconds as process_seconds
from benchmarks.service.load import resident

Kind = Literal["evidence", "cached", "hypothesis"]
#: What is asked, in parts of all.
SHARES: dict[Kind, float] = {"evidence": 0.5, "cached": 0.3, "hypothesis": 0.2}
CLIENTS, SESSIONS, SERVERS = 8, 48, 4
#: Questions that sessions have answered before anything is measured, as one that is worked with has.
HISTORY = 40
AXES, LENGTH = 6, 8
SHAPE = (LENGTH,) * AXES

#: Of the simulation: seconds between an answer and the next question, sessions of an analyst, questions in a row of
#: one, and bytes of a server's memory for sessions.
THINK, SESSIONS_EACH, RUN, ROOM = 10.0, 100, 50, 2 << 30
HEADERS = {"authorization": f"Bearer {ADMIN_KEY}"}


@contextmanager
def servers(url: str, number: int, folder: Path) -> Iterator[list[Server]]:
    """So many servers on a database that is up to date, with one data folder."""
    environment = {
        "CURATOR_DATA_DIR": str(folder),
        "CURATOR_ADMIN_KEY": ADMIN_KEY,
        "CURATOR_LOG_LEVEL": "warning",
        "CURATOR_DATABASE_URL": url,
        "CURATOR_MEMORY_LIMIT": "2GiB",
        "CURATOR_RATE_LIMIT": "1000000",
    }
    command = [sys.executable, "-m", "app.cli", "serve", "--port", "{port}"]
    with ExitStack() as running:
        yield [running.enter_context(server(command, environment)) for _ in range(number)]


def migrate(url: str) -> None:
    """Make the tables."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("CURATOR_")} | {"CURATOR_DATABASE_URL": url}
    command = [sys.executable, "-m", "app.cli", "migrate"]
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


def processor_seconds(running: Sequence[Server]) -> float:
    """What servers have used of the processors so far."""
    return sum(process_seconds(each.pid) for each in running)


@dataclass(frozen=True)
class Asked:
    """A session, and what it is asked."""

    id: str
    learns: bool


class Traffic:
    """Sessions with a history, and clients that ask them.

    Args:
        at: any server.
    """

    def __init__(self, at: Server) -> None:
        self._query = predicates(AXES, LENGTH)
        self._next = itertools.count()
        self._clients: dict[tuple[int, str], httpx.Client] = {}
        with httpx.Client(base_url=at.url, headers=HEADERS, timeout=60) as admin:
            rng = np.random.default_rng(0)
            spec = {**table_spec("t", AXES, LENGTH), "budget": {"epsilon": 1000.0, "delta": 1e-9}}
            register(admin, spec, rng.poisson(3.0, SHAPE).astype(np.int64))
            evidence = {"epsilon": 1.0, "max_queries": 100_000, "max_updates": None}
            found = [open_session(admin, "t", "evidence", **evidence) for _ in range(SESSIONS)]
            self.evidence = [Asked(id, False) for id in found]
            self.hypotheses = [Asked(open_session(admin, "t"), True) for _ in range(SESSIONS // 4)]
        for each in (*self.evidence, *self.hypotheses):
            for number in range(HISTORY if not each.learns else 5):
                self.ask(at, each, number)

    def ask(self, at: Server, session: Asked, number: int) -> float:
        """Ask, and the seconds that the answer took."""
        key = threading.get_ident(), at.url
        client = self._clients.get(key)
        if client is None:
            client = self._clients[key] = httpx.Client(base_url=at.url, headers=HEADERS, timeout=60)
        began = time.monotonic()
        reply = client.post(f"/v1/sessions/{session.id}/queries", json=self._query(number))
        reply.raise_for_status()
        return time.monotonic() - began

    def one(self, rng: np.random.Generator, kind: Kind) -> tuple[Asked, int]:
        """A session and a question of a kind."""
        if kind == "hypothesis":
            return self.hypotheses[rng.integers(len(self.hypotheses))], 1000 + next(self._next)
        session = self.evidence[rng.integers(len(self.evidence))]
        return session, int(rng.integers(HISTORY)) if kind == "cached" else 1000 + next(self._next)

    def run(self, running: Sequence[Server], seconds: float, *, homes: bool, only: Kind | None = None) -> Measured:
        """Clients ask for a while, each its next question when the one before is answered."""
        waits: list[float] = []
        ends = time.monotonic() + seconds

        def client(seed: int) -> None:
            rng, kinds, shares = np.random.default_rng(seed), list(SHARES), list(SHARES.values())
            while time.monotonic() < ends:
                kind = kinds[rng.choice(len(kinds), p=shares)] if only is None else only
                session, number = self.one(rng, kind)
                place = hash(session.id) if homes else int(rng.integers(len(running)))
                waits.append(self.ask(running[place % len(running)], session, number))

        before = processor_seconds(running)
        threads = [threading.Thread(target=client, args=(seed,)) for seed in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return Measured(1000 * (processor_seconds(running) - before) / len(waits), waits)


@dataclass(frozen=True)
class Measured:
    """Milliseconds of the processors an answer, and how long clients waited, in seconds."""

    processor: float
    waits: list[float]

    @property
    def p95(self) -> float:
        """Milliseconds within which 95 in a hundred were answered."""
        return 1000 * float(np.quantile(self.waits, 0.95))


@dataclass(frozen=True)
class Costs:
    """What the simulation knows: milliseconds of a processor by kind of answer and to bring a session back, and bytes
    that a session takes.
    """

    answers: dict[Kind, float]
    reload: float
    session: float


def costs(traffic: Traffic, running: list[Server], seconds: float) -> Costs:
    """Measured at one server, and at another one that has none of the sessions in memory."""
    first, second = running[0], running[1]
    answers = {kind: traffic.run([first], seconds, homes=True, only=kind).processor for kind in SHARES}
    held, before = resident(second), processor_seconds([second])
    for each in traffic.evidence:
        traffic.ask(second, each, 0)  # asked before: what is new is that the session is read
    spent = 1000 * (processor_seconds([second]) - before) / len(traffic.evidence)
    taken = (resident(second) - held) * 2**20 / len(traffic.evidence)
    return Costs(answers, max(spent - answers["cached"], 0.0), max(taken, 1.0))


def simulated(known: Costs, analysts: int, processes: int, *, homes: bool, seconds: float = 240.0) -> list[Any]:
    """Answers a second, p95 of the wait in seconds, how busy processes are, and the part of questions for which a
    session was brought back.
    """
    rng = np.random.default_rng(1)
    kinds, shares = [known.answers[kind] for kind in SHARES], np.cumsum(list(SHARES.values()))
    kept: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(processes)]
    room = int(ROOM / known.session)
    free, busy = np.zeros(processes), np.zeros(processes)
    session = rng.integers(0, SESSIONS_EACH, analysts)
    home = rng.integers(0, processes, (analysts, SESSIONS_EACH))
    order = itertools.count()
    events = [(float(at), next(order), analyst) for analyst, at in enumerate(rng.uniform(0, THINK, analysts))]
    heapq.heapify(events)
    waits: list[float] = []
    missed, warm = 0, seconds / 3
    while events:
        now, _, analyst = heapq.heappop(events)
        if now > seconds:
            break
        if rng.random() < 1 / RUN:
            session[analyst] = rng.integers(0, SESSIONS_EACH)
        at = int(home[analyst, session[analyst]] if homes else rng.integers(0, processes))
        mean = kinds[min(int(np.searchsorted(shares, rng.random())), len(kinds) - 1)]
        work = rng.gamma(2, mean / 2)
        held, key = kept[at], analyst * SESSIONS_EACH + int(session[analyst])
        if key in held:
            held.move_to_end(key)
        else:
            work += known.reload
            missed += now > warm
            held[key] = None
            if len(held) > room:
                held.popitem(last=False)
        free[at] = max(now, free[at]) + work / 1000
        if now > warm:
            busy[at] += work / 1000
            waits.append(free[at] - now)
        heapq.heappush(events, (free[at] + rng.exponential(THINK), next(order), analyst))
    lasted = seconds - warm
    p95, used = float(np.quantile(waits, 0.95)), float(busy.sum() / processes / lasted)
    return [len(waits) / lasted, p95, min(used, 1.0), missed / len(waits)]


#: Analysts at work, servers, and whether sessions have homes.
FLEETS = (
    (100, 4, True),
    (300, 4, True),
    (1000, 4, True),
    (3000, 4, True),
    (3000, 16, True),
    (10_000, 32, True),
    (10_000, 48, True),
    (10_000, 48, False),
)


def main() -> None:
    """Measure, simulate, and write both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    arrangements = {"one server": (1, True), "four, with homes": (4, True), "four, without": (4, False)}
    found: dict[str, list[Measured]] = {name: [] for name in arrangements}
    with postgres() as url, tempfile.TemporaryDirectory(prefix="curator-fleet-") as folder:
        migrate(url)
        with servers(url, SERVERS, Path(folder)) as running:
            traffic = Traffic(running[0])
            known = costs(traffic, running, options.seconds / 2)
            for turn in range(options.turns + 1):
                for name, (number, homes) in arrangements.items():
                    if homes:  # whoever was asked last knows what others recorded meanwhile
                        for each in (*traffic.evidence, *traffic.hypotheses):
                            traffic.ask(running[hash(each.id) % number], each, 0)
                    measured = traffic.run(running[:number], options.seconds, homes=homes)
                    if turn:  # the first one only warms up
                        found[name].append(measured)
    alone = found["one server"]
    rows = []
    for name, turns in found.items():
        processor = statistics.median(a.processor / b.processor for a, b in zip(turns, alone, strict=True))
        late = statistics.median(a.p95 / b.p95 for a, b in zip(turns, alone, strict=True))
        answers = statistics.median(len(each.waits) for each in turns) / options.seconds
        rows.append((name, processor, late, answers))
    columns = ("servers", "processor an answer", "p95", "answers a second")
    facts: dict[str, Any] = {f"{kind} ms": value for kind, value in known.answers.items()}
    facts |= {"reload ms": known.reload, "session MiB": known.session / 2**20}
    report("fleet", "Servers on one PostgreSQL", columns, rows, **facts)
    fleets: list[list[Any]] = [
        [f"{analysts:,}", number, "yes" if homes else "no", *simulated(known, analysts, number, homes=homes)]
        for analysts, number, homes in FLEETS
    ]
    light = Costs(known.answers, known.reload, min(known.session, float(1 << 20)))
    fleets.append(["10,000, sessions of 1 MiB", 32, "yes", *simulated(light, 10_000, 32, homes=True)])
    titles = ("analysts at work", "servers", "homes", "answers a second", "p95 s", "busy", "sessions read again")
    report("fleet_capacity", "What so many servers carry, simulated", titles, fleets, **facts)


if __name__ == "__main__":
    main()
