"""Sustained mixed traffic with a rising number of clients: throughput, latency, errors, memory.

Run `python -m benchmarks.load [--seconds N]` (N seconds a step, default 20; about seven minutes in all). Beside it, in
the same run: a POST that does nothing on the same server settings, and how many commits a second the databases make by
themselves.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import psycopg

from benchmarks.answering import open_session, predicates, register, single, table_spec
from benchmarks.harness import ADMIN_KEY, Load, Server, curator, load, postgres, report, request_bytes, server

STEPS = (1, 8, 32, 64, 128)
SESSIONS = 16


def resident(running: Server) -> float:
    """Resident memory of a server and its workers in MiB."""
    root = psutil.Process(running.pid)
    return float(sum(p.memory_info().rss for p in [root, *root.children(recursive=True)])) / 2**20


def traffic(running: Server, release: str = "single") -> Callable[[int], list[Callable[[int], bytes]]]:
    """Sets a server up; gives, for a number of clients, what each sends: fresh predicates, repeats, cuts, batches."""
    rng = np.random.default_rng(3)
    # Races pay for each query of each session out of delta, the more the larger epsilon is.
    budget = {"epsilon": 10.0, "delta": 1e-6}
    terms = {"release": release, "epsilon": 0.01, "max_queries": 10**6}
    with httpx.Client(base_url=running.url, headers={"authorization": f"Bearer {ADMIN_KEY}"}, timeout=60) as client:
        register(client, {**table_spec("t", 5), "budget": budget}, rng.poisson(0.5, (10,) * 5).astype(np.int64))
        tables = [open_session(client, "t", **terms) for _ in range(SESSIONS)]
        spec = {"name": "g", "kind": "bipartite", "left": 256, "right": 256, "records_public": True, "budget": budget}
        edges = "\n".join(f"{u},{v}" for u, v in np.argwhere(rng.random((256, 256)) < 0.1).tolist())
        reply = client.post(
            "/v1/datasets", data={"spec": json.dumps(spec)}, files={"data": ("edges.csv", edges.encode())}
        )
        reply.raise_for_status()
        graphs = [open_session(client, "g", "fk", **terms) for _ in range(SESSIONS)]
    query, count = predicates(5), itertools.count()
    sides = [np.flatnonzero(rng.random(256) < 0.5).tolist() for _ in range(64)]

    def client_of(number: int) -> Callable[[int], bytes]:
        table, graph = tables[number % SESSIONS], graphs[number % SESSIONS]

        def make(turn: int) -> bytes:
            kind = (turn * 37 + number) % 100
            if kind < 80:
                return ask(table, query(next(count)))
            if kind < 88:
                return ask(table, query(turn % 50))
            if kind < 98:
                first, second = sides[turn % 64], sides[(turn // 64 + number) % 64]
                return ask(graph, {"type": "cut", "left": first, "right": second})
            body = {"queries": [query(next(count)) for _ in range(20)]}
            return request_bytes(f"/v1/sessions/{table}/queries/batch", json.dumps(body).encode(), ADMIN_KEY)

        return make

    def ask(session: str, body: dict[str, Any]) -> bytes:
        return request_bytes(f"/v1/sessions/{session}/queries", json.dumps(body).encode(), ADMIN_KEY)

    return lambda clients: [client_of(i) for i in range(clients)]


def commits_sqlite(seconds: float) -> float:
    """Commits of one row a second, on the settings of the embedded database."""
    with tempfile.TemporaryDirectory(prefix="curator-bench-") as folder:
        connection = sqlite3.connect(Path(folder) / "c.sqlite3", isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE entries (n INTEGER PRIMARY KEY, line BLOB)")
        return _count(lambda n: connection.execute("INSERT INTO entries VALUES (?, ?)", (n, b"x" * 400)), seconds)


def commits_postgres(url: str, seconds: float) -> float:
    """Commits of one row a second by one connection."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE commits (n INTEGER PRIMARY KEY, line BYTEA)")
        return _count(lambda n: connection.execute("INSERT INTO commits VALUES (%s, %s)", (n, b"x" * 400)), seconds)


def _count(commit: Callable[[int], Any], seconds: float) -> float:
    started = time.perf_counter()
    for n in itertools.count(1):
        commit(n)
        if time.perf_counter() - started > seconds:
            return n / (time.perf_counter() - started)
    raise AssertionError


def row(name: str, clients: int, found: Load, noop: float, memory: float) -> list[Any]:
    """A line of the table."""
    ratio = found.rate / noop
    return [name, clients, found.rate, ratio, found.median_ms, found.p99_ms, found.errors, round(memory)]


def sustained(name: str, running: Server, seconds: float, noop: float, rows: list[list[Any]]) -> None:
    """Mixed traffic, more and more clients, and the fewest once more: memory must have stayed where it was."""
    make = traffic(running)
    for clients in (*STEPS, STEPS[0]):
        found = load(running.port, make(clients), seconds)
        rows.append(row(f"{name}, mixed", clients, found, noop, resident(running)))


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="seconds a step")
    seconds = parser.parse_args().seconds
    rows: list[list[Any]] = []
    with server([sys.executable, "-m", "benchmarks.noop", "{port}"]) as running:
        request = request_bytes("/v1/sessions/x/queries", json.dumps(predicates(5)(77)).encode(), ADMIN_KEY)
        rates = {}
        for clients in (8, 64):
            found = load(running.port, [lambda _: request] * clients, seconds / 2)
            rates[clients] = found.rate
            rows.append(row("no-op POST", clients, found, found.rate, resident(running)))
    for clients in (8, 64):
        with curator() as running:
            found = single(running, 8, clients, seconds / 2)
            rows.append(row("SQLite, single answers, 8 sessions", clients, found, rates[clients], resident(running)))
    with curator() as running:
        sustained("SQLite", running, seconds, rates[8], rows)
    with postgres() as url:
        commits = {
            "SQLite commits a second": commits_sqlite(3),
            "PostgreSQL commits a second": commits_postgres(url, 3),
        }
    for workers in (1, 2):
        for clients in (8, 64):
            with postgres() as url, curator(url, workers=workers) as running:
                found = single(running, 8, clients, seconds / 2)
                name = f"PostgreSQL, {workers} worker{'s' * (workers > 1)}, single answers, 8 sessions"
                rows.append(row(name, clients, found, rates[clients], resident(running)))
        with postgres() as url, curator(url, workers=workers) as running:
            sustained(f"PostgreSQL, {workers} worker{'s' * (workers > 1)}", running, seconds / 2, rates[8], rows)
    with curator() as running:
        found = load(running.port, traffic(running, "race")(8), seconds / 2)
        rows.append(row("SQLite, mixed, race releases", 8, found, rates[8], resident(running)))
    report(
        "load",
        "Sustained traffic; every answer durable before its reply",
        ["what", "clients", "requests a second", "of no-op", "median ms", "p99 ms", "errors", "resident MiB"],
        rows,
        seconds_a_step=seconds,
        **commits,
    )


if __name__ == "__main__":
    main()
