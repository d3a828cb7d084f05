"""How fast answers are: durable single answers, batches, latency by universe, and the dense kernel.

Run `python -m benchmarks.service.answering` (about three minutes). (a) is a POST that does nothing on the same server
settings; everything else is a real curator over HTTP, every answer committed before its reply.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from app.declarations.spec import parse_spec
from app.spaces.dense import CountsTensor
from app.spaces.factory import space_of
from app.spaces.queries.cells import dense_of
from app.spaces.query import linear
from benchmarks.harness import (
    ADMIN_KEY,
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

SECONDS = 5.0
SESSIONS = 8
#: Queries from this number on have not been asked while warming up.
FRESH = 1000


def table_spec(name: str, axes: int, length: int = 10) -> dict[str, Any]:
    """A table of ``length ** axes`` cells."""
    return {
        "name": name,
        "kind": "table",
        "records_public": True,
        "attributes": [{"name": f"a{i}", "size": length} for i in range(axes)],
        "budget": {"epsilon": 100.0, "delta": 1e-9},
    }


def register(client: httpx.Client, spec: dict[str, Any], array: np.ndarray[Any, Any]) -> None:
    """Register an array as a data set."""
    sink = io.BytesIO()
    np.save(sink, array)
    client.post(
        "/v1/datasets", data={"spec": json.dumps(spec)}, files={"data": ("x.npy", sink.getvalue())}, timeout=120
    ).raise_for_status()


def open_session(client: httpx.Client, dataset: str, construction: str = "mw", **more: Any) -> str:
    """A session whose threshold is so high that it stays on the hypothesis."""
    request = {
        "dataset": dataset,
        "mechanism": {"construction": construction},
        "epsilon": 0.05,
        "max_queries": 10**9,
        "max_updates": 1000,
        **more,
    }
    reply = client.post("/v1/sessions", json=request)
    reply.raise_for_status()
    return str(reply.json()["id"])


def predicates(axes: int, length: int = 10) -> Callable[[int], dict[str, Any]]:
    """Distinct predicates on two attributes at a time: no answer is ever a cached one."""
    pairs = list(itertools.combinations(range(axes), 2))
    subsets = [[v for v in range(length) if mask >> v & 1] for mask in range(1, 2 ** min(length, 10))]

    def query(number: int) -> dict[str, Any]:
        number, pair = divmod(number, len(pairs))
        first, second = divmod(number, len(subsets))
        i, j = pairs[pair]
        return {
            "type": "predicate",
            "where": {f"a{i}": {"in": subsets[second]}, f"a{j}": {"in": subsets[first % len(subsets)]}},
        }

    return query


def singles(running: Server, sessions: int) -> Callable[[int], list[Script]]:
    """Sets a server up for durable single answers, none asked twice; gives what so many clients over ``sessions``
    sessions do.
    """
    query = predicates(5)
    with httpx.Client(base_url=running.url, headers={"authorization": f"Bearer {ADMIN_KEY}"}) as client:
        rng = np.random.default_rng(0)
        register(client, table_spec("t", 5), rng.poisson(0.5, (10,) * 5).astype(np.int64))
        ids = [open_session(client, "t") for _ in range(sessions)]
    count = itertools.count()

    def maker(id: str) -> Callable[[int], bytes]:
        return lambda _: request_bytes(f"/v1/sessions/{id}/queries", json.dumps(query(next(count))).encode(), ADMIN_KEY)

    return lambda clients: [sending(maker(ids[i % sessions])) for i in range(clients)]


def fresh(id: str, query: Callable[[int], dict[str, Any]]) -> Callable[[int], bytes]:
    """Questions to a session that were not asked while warming up."""
    return lambda n: request_bytes(f"/v1/sessions/{id}/queries", json.dumps(query(FRESH + n)).encode(), ADMIN_KEY)


def throughput(rows: list[list[Any]]) -> None:
    """(a) to (c)."""
    with server([sys.executable, "-m", "benchmarks.service.noop", "{port}"]) as running:
        body = json.dumps(predicates(5)(77)).encode()
        request = request_bytes("/v1/sessions/x/queries", body, ADMIN_KEY)
        noop = load(running.port, [sending(lambda _: request) for _ in range(SESSIONS)], SECONDS)
    rows.append(["(a) no-op POST, 8 clients", noop.rate, 1.0, noop.median_ms, noop.p99_ms, noop.errors])
    with curator() as running:
        found = load(running.port, singles(running, SESSIONS)(SESSIONS), SECONDS)
    rows.append(
        ["(b) single answers, SQLite", found.rate, found.rate / noop.rate, found.median_ms, found.p99_ms, found.errors]
    )
    with postgres() as url, curator(url) as running:
        found = load(running.port, singles(running, SESSIONS)(SESSIONS), SECONDS)
    rows.append(
        [
            "(b) single answers, PostgreSQL",
            found.rate,
            found.rate / noop.rate,
            found.median_ms,
            found.p99_ms,
            found.errors,
        ]
    )
    with (
        curator() as running,
        httpx.Client(base_url=running.url, headers={"authorization": f"Bearer {ADMIN_KEY}"}, timeout=60) as client,
    ):
        rng = np.random.default_rng(0)
        register(client, table_spec("t", 5), rng.poisson(0.5, (10,) * 5).astype(np.int64))
        id, query = open_session(client, "t"), predicates(5)
        batches = [json.dumps({"queries": [query(1000 * b + i) for i in range(1000)]}).encode() for b in range(20)]
        started = time.perf_counter()
        for batch in batches:
            client.post(
                f"/v1/sessions/{id}/queries/batch", content=batch, headers={"content-type": "application/json"}
            ).raise_for_status()
        took = time.perf_counter() - started
    rate = 1000 * len(batches) / took
    rows.append(
        ["(c) batches of 1,000, one client", rate, rate / noop.rate, 1000 * took / len(batches), float("nan"), 0]
    )


def latency(rows: list[list[Any]]) -> None:
    """(d): one client, by universe and kind of query."""
    rng = np.random.default_rng(1)
    with (
        curator(CURATOR_MAX_BODY_BYTES="1GiB") as running,
        httpx.Client(base_url=running.url, headers={"authorization": f"Bearer {ADMIN_KEY}"}, timeout=300) as client,
    ):
        for axes in (4, 6, 7):
            name = f"t{axes}"
            register(client, table_spec(name, axes), rng.poisson(0.5, (10,) * axes).astype(np.int64))
            id, query = open_session(client, name), predicates(axes)
            # The first pass over all pairs of attributes makes their marginals.
            for number in range(len(list(itertools.combinations(range(axes), 2)))):
                client.post(f"/v1/sessions/{id}/queries", json=query(number))
            found = load(running.port, [sending(fresh(id, query))], SECONDS / 2)
            rows.append([f"predicate, 10^{axes} cells", found.median_ms, found.p99_ms])
            dense = rng.uniform(-1, 1, (8, 10**axes) if axes < 7 else (3, 10**axes))
            times = []
            for weights in dense:
                sink = io.BytesIO()
                np.save(sink, weights)
                started = time.perf_counter()
                client.post(
                    f"/v1/sessions/{id}/queries",
                    content=sink.getvalue(),
                    headers={"content-type": "application/x-npy"},
                ).raise_for_status()
                times.append(1000 * (time.perf_counter() - started))
            rows.append([f"dense .npy, 10^{axes} cells, body and all", float(np.median(times)), max(times)])
        for nodes in (100, 1000, 3162):
            name = f"g{nodes}"
            spec = {"name": name, "kind": "bipartite", "left": nodes, "right": nodes, "records_public": True,
                    "budget": {"epsilon": 100.0, "delta": 1e-9}}  # fmt: skip
            edges = np.argwhere(rng.random((nodes, nodes)) < min(0.2, 20 / nodes))
            client.post(
                "/v1/datasets",
                data={"spec": json.dumps(spec)},
                files={"data": ("edges.csv", "\n".join(f"{u},{v}" for u, v in edges.tolist()).encode())},
            ).raise_for_status()
            id = open_session(client, name, "fk")

            def cut(number: int, id: str = id, nodes: int = nodes) -> bytes:
                source = np.random.default_rng(number)
                body = {
                    "type": "cut",
                    "left": np.flatnonzero(source.random(nodes) < 0.5).tolist(),
                    "right": np.flatnonzero(source.random(nodes) < 0.5).tolist(),
                }
                return request_bytes(f"/v1/sessions/{id}/queries", json.dumps(body).encode(), ADMIN_KEY)

            found = load(running.port, [sending(cut)], SECONDS / 2)
            rows.append([f"cut of half the nodes, {nodes:,}^2 cells", found.median_ms, found.p99_ms])


def processor_seconds(pid: int) -> float:
    """What a process has used of the processors so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def multiset(rows: list[list[Any]]) -> None:
    """A private multiset of a million distinct strings: registered, and asked by one client for sixteen at a time."""
    rng = np.random.default_rng(3)
    names = [f"element number {i:07d}" for i in range(10**6)]
    lines = ["element,count", *(f"{name},{1 + i % 7}" for i, name in enumerate(names))]
    body = "\n".join(lines).encode()
    spec = {"name": "m", "kind": "multiset", "records_public": True, "budget": {"epsilon": 100.0, "delta": 1e-9}}
    with (
        curator(CURATOR_MAX_BODY_BYTES="1GiB") as running,
        httpx.Client(base_url=running.url, headers={"authorization": f"Bearer {ADMIN_KEY}"}, timeout=300) as client,
    ):
        started = time.perf_counter()
        client.post(
            "/v1/datasets", data={"spec": json.dumps(spec)}, files={"data": ("words.csv", body)}
        ).raise_for_status()
        rows.append([f"registration, {len(body) / 1e6:.0f} MB of CSV", 1000 * (time.perf_counter() - started)])
        id = open_session(client, "m", mechanism={"construction": "smw", "sparsity": 16})
        asked = [
            json.dumps({"type": "elements", "weights": {names[i]: 1.0 for i in chosen}}).encode()
            for chosen in rng.integers(0, len(names), (20_000, 16)).tolist()
        ]
        before = processor_seconds(running.pid)
        script = sending(lambda n: request_bytes(f"/v1/sessions/{id}/queries", asked[n], ADMIN_KEY))
        found = load(running.port, [script], SECONDS)
        used = processor_seconds(running.pid) - before
    rows.append(["answer, median", found.median_ms])
    rows.append(["answer, p99", found.p99_ms])
    rows.append(["processor time an answer, all of the service", 1000 * used / found.requests])


def kernel(rows: list[list[Any]]) -> None:
    """The dense kernel alone, beside the two passes over memory that it needs."""
    rng = np.random.default_rng(2)
    for axes in (4, 6, 7):
        space = space_of(parse_spec(table_spec("t", axes)))
        data = space.tensor(rng.poisson(0.5, space.shape).astype(np.int32))
        hypothesis = space.tensor(np.full(space.shape, 0.5))
        assert isinstance(hypothesis, CountsTensor)
        weights = rng.uniform(-1, 1, space.shape)
        started = time.perf_counter()
        query = linear(dense_of(space, weights))
        compile_ms = 1000 * (time.perf_counter() - started)
        flat, other = weights.reshape(-1), np.full(space.size, 0.5)

        def best(work: Callable[[], Any]) -> float:
            times = []
            for _ in range(9):
                begun = time.perf_counter()
                work()
                times.append(time.perf_counter() - begun)
            return 1000 * float(np.median(times))

        passes = best(lambda: (flat @ other, flat @ other))  # noqa: B023
        exact = best(lambda: (query.exact(data), query.inner(hypothesis)))  # noqa: B023
        rows.append([f"10^{axes} cells", passes, exact, exact / passes, compile_ms])


def main() -> None:
    """Run everything."""
    first: list[list[Any]] = []
    throughput(first)
    report(
        "answering_throughput",
        "Answers a second beside a no-op POST (8 sessions, 10^5 cells, every answer durable before its reply)",
        ["what", "per second", "of no-op", "median ms", "p99 ms", "errors"],
        first,
    )
    second: list[list[Any]] = []
    latency(second)
    report("answering_latency", "Latency of one client over HTTP, SQLite", ["query", "median ms", "p99 ms"], second)
    words: list[list[Any]] = []
    multiset(words)
    report(
        "answering_multiset",
        "Sparse multiplicative weights over a private multiset of 10^6 distinct strings, one client over HTTP, SQLite",
        ["what", "ms"],
        words,
    )
    third: list[list[Any]] = []
    kernel(third)
    report(
        "answering_kernel",
        "The dense kernel (both products) beside two float64 passes over memory",
        ["universe", "two passes ms", "kernel ms", "ratio", "rounding to the grid ms"],
        third,
    )


if __name__ == "__main__":
    main()
