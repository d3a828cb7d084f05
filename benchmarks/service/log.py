"""What the log costs: answers with it beside answers without it, its routes on a long log, how soon an entry is in it.

Run `python -m benchmarks.service.log` (below four minutes). With and without: two servers of one database each,
measured in turn, a slice of time on the one and a slice on the other, as the machine may be busy with other things.
What counts is the ratio of the two slices of a round, and of the processor time that the service takes for an answer.
The server without the log is started by this module, which leaves out the thread that brings lines into it. Before the
next slice begins, the log has come as far as the answers.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import numpy as np
import orjson

from app.services import sequencer
from benchmarks.harness import (
    ADMIN_KEY,
    Script,
    Server,
    load,
    postgres,
    report,
    request_bytes,
    sending,
    server,
)
from benchmarks.service.answering import open_session, predicates, processor_seconds, register, table_spec
from curator_client import Curator
from curator_client.proofs.merkle import HASH_BYTES, Subtree, check_consistency, check_inclusion, root
from curator_client.proofs.tiles import TILE_BYTES, WIDTH, Tile, grown, home, subtree_hash

#: Rounds of a slice with the log and one without, and the seconds of a slice.
ROUNDS, SECONDS = 5, 1.5
CLIENTS, SESSIONS, BATCH = 8, 8, 1000
#: Leaves of the long log, and readings of each route.
LEAVES, READINGS = 10**7, 200
#: Entries whose way into a checkpoint is timed.
DELAYS = 40
HEADERS = {"authorization": f"Bearer {ADMIN_KEY}"}
#: A share that is never used up, for answers that are each measured on their own.
MEASURED: dict[str, Any] = {
    "mechanism": {"construction": "gaussian"},
    "epsilon": 10.0,
    "max_queries": 100_000,
    "max_updates": None,
}


def serve_without(port: int) -> None:
    """The curator, and nothing comes into its log."""
    from app.bootstrap import serving

    with mock.patch.object(sequencer.Sequencer, "start"):
        serving.serve("127.0.0.1", port, 1)


@contextlib.contextmanager
def started(folder: Path | str, database: str | None = None, *, log: bool = True) -> Iterator[Server]:
    """A curator with its log, or without, on a data folder."""
    environment = {"CURATOR_DATA_DIR": str(folder), "CURATOR_ADMIN_KEY": ADMIN_KEY, "CURATOR_LOG_LEVEL": "warning"}
    if database is not None:
        environment["CURATOR_DATABASE_URL"] = database
        clean = {name: value for name, value in os.environ.items() if not name.startswith("CURATOR_")}
        migrate = [sys.executable, "-m", "app.cli", "migrate"]
        subprocess.run(migrate, env=clean | environment, check=True, stdout=subprocess.DEVNULL)
    served = [sys.executable, "-m", "app.cli", "serve", "--port", "{port}"]
    without = [sys.executable, "-m", "benchmarks.service.log", "without", "{port}"]
    with server(served if log else without, environment) as found:
        yield found


@dataclass
class Side:
    """One of the two servers, what its clients do and in which sessions; ``used`` is processor time, in microseconds an
    answer, of each slice and of bringing its entries into the log.
    """

    running: Server
    log: bool
    scripts: list[Callable[[], Script]] = field(default_factory=list)
    sessions: list[str] = field(default_factory=list)
    used: list[float] = field(default_factory=list)

    def client(self) -> httpx.Client:
        """A caller."""
        return httpx.Client(base_url=self.running.url, headers=HEADERS, timeout=60)

    def slice(self, answers: int) -> float:
        """Answers a second, of which each reply has so many."""
        before = processor_seconds(self.running.pid)
        found = load(self.running.port, [script() for script in self.scripts], SECONDS)
        assert not found.errors, found
        if self.log:
            time.sleep(1.5 * sequencer.SECONDS)  # the last entries come into it
        used = processor_seconds(self.running.pid) - before
        self.used.append(1e6 * used / (found.requests * answers))
        if self.log:
            self.settle()
        return found.rate * answers

    def settle(self) -> None:
        """Wait until every entry is in the log."""
        began = time.perf_counter()
        with self.client() as client:
            for id in self.sessions:
                while client.get(f"/v1/sessions/{id}").raise_for_status().json()["log_size"] is None:
                    if time.perf_counter() - began > 60:
                        sys.exit("the log does not come as far as the answers")
                    time.sleep(0.05)


def _size(client: httpx.Client) -> int:
    return int(client.get("/v1/log/checkpoint").raise_for_status().text.splitlines()[1])


def _single(id: str, make: Callable[[int], dict[str, Any]]) -> Callable[[], Script]:
    path = f"/v1/sessions/{id}/queries"
    return lambda: sending(lambda n: request_bytes(path, orjson.dumps(make(n)), ADMIN_KEY))


def cached_batches(side: Side, client: httpx.Client) -> int:
    """One client, batches of a thousand questions that were asked before."""
    id, query = open_session(client, "t"), predicates(5)
    body = json.dumps({"queries": [query(n) for n in range(BATCH)]}).encode()
    path = f"/v1/sessions/{id}/queries/batch"
    client.post(path, content=body, headers={"content-type": "application/json"}).raise_for_status()
    side.sessions, request = [id], request_bytes(path, body, ADMIN_KEY)
    side.scripts = [lambda: sending(lambda _: request)]
    return BATCH


def cached_singles(side: Side, client: httpx.Client) -> int:
    """Eight clients over eight sessions that ask again what they have asked."""
    query = predicates(5)
    side.sessions = [open_session(client, "t") for _ in range(SESSIONS)]
    for id in side.sessions:
        asked = {"queries": [query(n) for n in range(50)]}
        client.post(f"/v1/sessions/{id}/queries/batch", json=asked).raise_for_status()
    side.scripts = [_single(side.sessions[i % SESSIONS], lambda n: query(n % 50)) for i in range(CLIENTS)]
    return 1


def measured_singles(side: Side, client: httpx.Client) -> int:
    """Eight clients over eight sessions, every question a new one and measured on its own."""
    query, fresh = predicates(5), itertools.count()
    side.sessions = [open_session(client, "t", **MEASURED) for _ in range(SESSIONS)]
    make = lambda _: query(next(fresh))  # noqa: E731
    side.scripts = [_single(side.sessions[i % SESSIONS], make) for i in range(CLIENTS)]
    return 1


def compared(kind: str, prepare: Callable[[Side, httpx.Client], int]) -> list[Any]:
    """Answers a second with and without the log, by turns, and the ratio of the two."""
    with contextlib.ExitStack() as stack:
        sides = []
        for log in (True, False):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="curator-bench-"))
            url = stack.enter_context(postgres()) if kind == "PostgreSQL" else None
            side = Side(stack.enter_context(started(folder, url, log=log)), log)
            with side.client() as client:
                rng = np.random.default_rng(0)
                spec = table_spec("t", 5) | {"budget": {"epsilon": 1000.0, "delta": 1e-6}}
                register(client, spec, rng.poisson(0.5, (10,) * 5).astype(np.int64))
                answers = prepare(side, client)
            sides.append(side)
            side.slice(answers)  # what is made once
        found: dict[bool, list[float]] = {True: [], False: []}
        for number in range(ROUNDS):
            for side in sides if number % 2 else sides[::-1]:
                found[side.log].append(side.slice(answers))
    ratios = sorted(one / other for one, other in zip(found[True], found[False], strict=True))
    used = [statistics.median(side.used) for side in sorted(sides, key=lambda side: side.log)]
    what = str(prepare.__doc__).splitlines()[0].rstrip(".")
    rates = [statistics.median(found[log]) for log in (False, True)]
    middle, least, most = statistics.median(ratios), ratios[0], ratios[-1]
    return [f"{kind}: {what[0].lower()}{what[1:]}", *rates, middle, least, most, *used, used[0] / used[1]]


def fill(file: Path) -> list[bytes]:
    """Make a database's log one of LEAVES leaves, which repeat 256 hashes; a complete tile of each level."""
    full = [os.urandom(TILE_BYTES)]
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("DELETE FROM log_tiles")
        connection.execute("DELETE FROM log_runs")
        count = LEAVES
        while count:
            level, (whole, rest) = len(full) - 1, divmod(count, WIDTH)
            rows = ((level, number, full[-1]) for number in range(whole))
            connection.executemany("INSERT INTO log_tiles VALUES (?, ?, ?)", rows)
            if rest:
                part = full[-1][: HASH_BYTES * rest]
                connection.execute("INSERT INTO log_tiles VALUES (?, ?, ?)", (level, whole, part))
            full.append(grown(0, {}, full[-1])[Tile(1, 0)] * WIDTH)
            count = whole
        runs = ((start, 4, f"{start:032x}", 1, 1000) for start in range(0, LEAVES, 1000))
        connection.executemany("INSERT INTO log_runs VALUES (?, ?, ?, ?, ?)", runs)
        connection.execute("UPDATE log_state SET size = ?", [LEAVES])
        connection.commit()
    return full


def _timed(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    call()
    return 1000 * (time.perf_counter() - began)


def _row(what: str, times: list[float]) -> list[Any]:
    return [what, len(times), statistics.median(times), float(np.quantile(times, 0.95)), max(times)]


def long_log() -> list[list[Any]]:
    """Milliseconds of the routes on a log of LEAVES leaves, by the client, and from an answer to its checkpoint."""
    rng = np.random.default_rng(1)
    with tempfile.TemporaryDirectory(prefix="curator-bench-") as folder:
        with started(folder) as running, httpx.Client(base_url=running.url, headers=HEADERS, timeout=60) as client:
            register(client, table_spec("t", 3), rng.poisson(0.5, (10,) * 3).astype(np.int64))
            id = open_session(client, "t")
            Side(running, True, sessions=[id]).settle()
        full = fill(Path(folder) / "curator.sqlite3")
        with started(folder) as running, httpx.Client(base_url=running.url, headers=HEADERS, timeout=60) as client:
            query = predicates(3)
            rows = _proofs(running, client, full, rng)
            delays, fresh = [], []
            for number in range(DELAYS):
                time.sleep(rng.uniform(0, 0.5))
                before = _size(client)
                client.post(f"/v1/sessions/{id}/queries", json=query(number)).raise_for_status()
                began = time.perf_counter()
                size = before
                while size == before:
                    asked = time.perf_counter()
                    size = _size(client)
                delays.append(1000 * (time.perf_counter() - began))
                fresh.append(1000 * (time.perf_counter() - asked))
            rows.append(_row("checkpoint, the first of its size", fresh))
            rows.append(_row("checkpoint, again", [_timed(lambda: _size(client)) for _ in range(READINGS)]))
            rows.append(_row("from the reply of an answer to the checkpoint that covers it", delays))
    return rows


def _proofs(running: Server, client: httpx.Client, full: list[bytes], rng: np.random.Generator) -> list[list[Any]]:
    """Proofs at random places of the log, some of them checked."""
    indices = rng.integers(0, LEAVES, READINGS).tolist()

    def get(kind: str, **asked: int) -> None:
        client.get(f"/v1/log/proof/{kind}", params=asked).raise_for_status()

    nothing = [_timed(lambda: client.get("/v1/log/key").raise_for_status()) for _ in indices]
    inclusion = [_timed(partial(get, "inclusion", index=index, size=LEAVES - 7)) for index in indices]
    consistency = [_timed(partial(get, "consistency", first=index, second=LEAVES - 7)) for index in indices]

    def read(places: Sequence[Subtree]) -> list[bytes]:
        return [subtree_hash(place, full[home(place).level]) for place in places]

    whole = root(LEAVES - 7, read)
    with Curator(running.url, ADMIN_KEY) as curator:
        for index in indices[:5]:
            shown = client.get("/v1/log/proof/inclusion", params={"index": index, "size": LEAVES - 7}).json()["hashes"]
            proof = [base64.b64decode(each) for each in shown]
            check_inclusion(read([Subtree(0, index)])[0], index, LEAVES - 7, proof, whole)
            proof = curator.log_routes.consistency(index, LEAVES - 7)
            check_consistency(index, LEAVES - 7, proof, root(index, read), whole)
    return [
        _row("a request that reads no tile", nothing),
        _row("proof of inclusion", inclusion),
        _row("proof of consistency", consistency),
    ]


def main() -> None:
    """Measure and write."""
    rows = [
        compared(kind, prepare)
        for kind in ("SQLite", "PostgreSQL")
        for prepare in (cached_batches, cached_singles, measured_singles)
    ]
    report(
        "log",
        f"Answers a second without and with the log, {ROUNDS} rounds of {SECONDS:g} seconds each",
        ["what", "without", "with", "ratio", "least", "most", "us without", "us with", "ratio of time"],
        rows,
    )
    report(
        "log_routes",
        f"Milliseconds on a log of {LEAVES:,} leaves (SQLite), one client",
        ["what", "n", "median ms", "p95 ms", "max ms"],
        long_log(),
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["without"]:
        with contextlib.suppress(KeyboardInterrupt):
            serve_without(int(sys.argv[2]))
    else:
        main()
