"""What one key's heavy work does to another key's answers that were given before.

Run `python -m benchmarks.service.victim [--seconds N] [--only KIND ...] [--databases NAME ...]`: N seconds for each
kind of work and each database (default 15), some ten minutes in all. The victim is an analyst with a session of his own
on a small table. He asks again what he has asked before, by four clients, each of whom waits a moment between two
questions. Beside him another analyst, or the admin where only an admin may, does one kind of heavy work without a
pause, from a process of its own that is killed at the end. Each kind has a server of its own. On PostgreSQL two workers
serve.

Times are those of the victim's requests: the median, the 99th percentile, the worst. A reply that is not 2xx, or takes
longer than a minute, is an error.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import itertools
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import psutil

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
)
from benchmarks.service.answering import open_session, predicates, register, table_spec

#: Clients of the victim, the pause of each between two questions, and the questions that are asked again and again.
CLIENTS, PAUSE, QUESTIONS = 4, 0.02, 20
#: Nodes and edges of the graph; attributes of the wide table, of so many values each, and its records.
NODES, EDGES = 10**6, 2 * 10**6
ATTRIBUTES, VALUES, RECORDS = 12, 4, 200_000
BUDGET = {"epsilon": 1000.0, "delta": 1e-9}
#: Heavy clients of one kind.
THREADS = 6
MEMORY = "2GiB"


@dataclass(frozen=True)
class Heavy:
    """What heavy work needs: a server, the key that does it, and an open client with that key."""

    running: Server
    key: str
    client: httpx.Client

    def post(self, path: str, asked: Any) -> bytes:
        """A request with a JSON body."""
        return request_bytes(path, json.dumps(asked).encode(), self.key)

    def open(self, dataset: str, **more: Any) -> str:
        """A session, by its id."""
        asked = {"dataset": dataset, "epsilon": 1.0, "max_queries": 1000, **more}
        reply = self.client.post("/v1/sessions", json=asked)
        reply.raise_for_status()
        return str(reply.json()["id"])


def nothing(_: Heavy) -> list[Script]:
    """No work at all."""
    return []


def costly_batches(heavy: Heavy) -> list[Script]:
    """Batches of 60 predicates, each of ten conditions of which any may hold, in sessions on evidence."""
    rng = np.random.default_rng(5)

    def batch(_: int) -> dict[str, Any]:
        return {"queries": [any_of_ten(rng) for _ in range(60)]}

    return [batches(heavy, heavy.open("wide", epsilon=10.0), batch) for _ in range(THREADS)]


def any_of_ten(rng: np.random.Generator) -> dict[str, Any]:
    """A predicate of ten conditions, each on an attribute of its own, of which any may hold."""
    chosen = rng.choice(ATTRIBUTES, 10, replace=False)
    some = [{f"a{a}": {"in": sorted(rng.choice(VALUES, 2, replace=False).tolist())}} for a in sorted(chosen.tolist())]
    return {"type": "predicate", "where": {"any": some}, "within": 5000}


def batches(heavy: Heavy, session: str, make: Callable[[int], dict[str, Any]]) -> Script:
    """Batches for one session, without end."""
    return sending(lambda number: heavy.post(f"/v1/sessions/{session}/queries/batch", make(number)))


def blocks(heavy: Heavy) -> list[Script]:
    """Blocks between groups of all nodes of a large graph, others each time, in sessions on evidence and of noise."""
    rng = np.random.default_rng(6)
    kinds: list[dict[str, Any]] = [{}, {"mechanism": {"construction": "gaussian"}}]

    def asked(_: int) -> dict[str, Any]:
        groups = int(rng.integers(2, 40))
        labels = rng.integers(0, groups, NODES)
        return {
            "type": "blocks",
            "left": {str(group): np.flatnonzero(labels == group).tolist() for group in range(groups)},
        }

    bodies = [asked(number) for number in range(4)]

    def script(id: str) -> Script:
        return sending(lambda number: heavy.post(f"/v1/sessions/{id}/queries", bodies[number % len(bodies)]))

    return [script(heavy.open("graph", **more)) for more in kinds]


def marginals(heavy: Heavy) -> list[Script]:
    """Large tables of counts, others each time, in sessions on evidence and of noise."""

    def script(id: str) -> Script:
        some = itertools.cycle(itertools.combinations(range(ATTRIBUTES), 8))
        return sending(
            lambda _: heavy.post(
                f"/v1/sessions/{id}/queries",
                {"type": "marginal", "attributes": [f"a{a}" for a in next(some)]},
            )
        )

    kinds: list[dict[str, Any]] = [{}, {"mechanism": {"construction": "gaussian"}}]
    return [script(heavy.open("wide", epsilon=10.0, **kinds[number % 2])) for number in range(THREADS)]


def openings(heavy: Heavy) -> list[Script]:
    """Sessions on the wide table, opened and left."""
    asked = {"dataset": "wide", "epsilon": 0.01, "max_queries": 1000}
    return [sending(lambda _: heavy.post("/v1/sessions", asked)) for _ in range(THREADS)]


def workloads(heavy: Heavy) -> list[Script]:
    """Plans of releases of all tables of three attributes."""
    asked = {"dataset": "wide", "workload": {"marginals": 3}, "epsilon": 1.0}
    return [sending(lambda _: heavy.post("/v1/plans", asked)) for _ in range(THREADS)]


def uploads(heavy: Heavy) -> list[Script]:
    """Registrations of tables from CSV, by the admin."""
    rng = np.random.default_rng(7)
    head = ",".join(f"a{a}" for a in range(ATTRIBUTES))
    rows = "\n".join(",".join(map(str, row)) for row in rng.integers(0, VALUES, (RECORDS, ATTRIBUTES)).tolist())
    file, numbers = f"{head}\n{rows}\n".encode(), itertools.count()

    def upload(_: int) -> bytes:
        spec = wide_spec(f"u{next(numbers)}")
        made = httpx.Request(
            "POST",
            heavy.running.url + "/v1/datasets",
            data={"spec": json.dumps(spec)},
            files={"data": ("x.csv", file)},
        )
        return request_bytes("/v1/datasets", made.read(), ADMIN_KEY, made.headers["content-type"])

    return [sending(upload) for _ in range(2)]


def exports(heavy: Heavy) -> list[Script]:
    """Hypotheses of a session with eight million bytes, downloaded."""
    id = open_session(heavy.client, "dense", max_queries=1000, max_updates=10)
    request = request_bytes(f"/v1/sessions/{id}/hypothesis", b"", heavy.key, method="GET")
    return [sending(lambda _: request) for _ in range(THREADS)]


def fits(heavy: Heavy) -> list[Script]:
    """Releases of synthetic tables, one after the other."""
    asked = {"dataset": "wide", "method": "synthetic_table", "workload": {"marginals": 3}, "epsilon": 1.0}

    def script() -> Script:
        while True:
            reply = yield heavy.post("/v1/releases", asked)
            release = json.loads(reply.body)
            while release.get("status") in ("queued", "running"):
                reply = yield request_bytes(f"/v1/releases/{release['id']}", b"", heavy.key, method="GET")
                release = json.loads(reply.body)
                time.sleep(0.2)

    return [script()]


def dummies(heavy: Heavy) -> list[Script]:
    """Made-up records of the wide table."""
    request = request_bytes("/v1/datasets/wide/dummy?records=100000", b"", heavy.key, method="GET")
    return [sending(lambda _: request) for _ in range(THREADS)]


KINDS: dict[str, Callable[[Heavy], list[Script]]] = {
    "nothing": nothing,
    "batches of costly predicates": costly_batches,
    f"blocks of {NODES:,} nodes": blocks,
    "large tables of counts": marginals,
    "openings": openings,
    "plans of releases": workloads,
    "uploads": uploads,
    "hypotheses": exports,
    "a release's fit": fits,
    "made-up records": dummies,
}


def wide_spec(name: str) -> dict[str, Any]:
    """A table of 4^12 cells."""
    return {**table_spec(name, ATTRIBUTES, VALUES), "budget": BUDGET}


def set_up(running: Server, kind: str) -> tuple[str, str, str]:
    """Register the data that this kind of work needs; (the victim's session and key, the heavy principal's key)."""
    rng = np.random.default_rng(0)
    with httpx.Client(base_url=running.url, headers={"authorization": f"Bearer {ADMIN_KEY}"}, timeout=300) as admin:
        register(admin, {**table_spec("t", 4), "budget": BUDGET}, rng.poisson(5, (10,) * 4).astype(np.int64))
        if kind.startswith("blocks"):
            edges = rng.integers(0, NODES, (EDGES, 2))
            sink = io.BytesIO()
            np.savetxt(sink, edges[edges[:, 0] != edges[:, 1]], "%d", ",")
            spec = {"name": "graph", "kind": "graph", "nodes": NODES, "weighted": False, "budget": BUDGET}
            admin.post(
                "/v1/datasets", data={"spec": json.dumps(spec)}, files={"data": ("x.csv", sink.getvalue())}
            ).raise_for_status()
        elif kind == "hypotheses":
            register(admin, {**table_spec("dense", 6), "budget": BUDGET}, rng.poisson(0.1, (10,) * 6).astype(np.int64))
        elif kind not in ("nothing", "uploads"):
            head = ",".join(f"a{a}" for a in range(ATTRIBUTES))
            rows = rng.integers(0, VALUES, (RECORDS, ATTRIBUTES)).tolist()
            file = "\n".join([head, *(",".join(map(str, row)) for row in rows)]).encode()
            admin.post(
                "/v1/datasets", data={"spec": json.dumps(wide_spec("wide"))}, files={"data": ("x.csv", file)}
            ).raise_for_status()
        keys = []
        for name in ("victim", "heavy"):
            made = admin.post("/v1/principals", json={"name": name, "role": "analyst"})
            made.raise_for_status()
            keys.append(made.json()["api_key"])
    victim, heavy = keys
    with httpx.Client(base_url=running.url, headers={"authorization": f"Bearer {victim}"}, timeout=60) as client:
        session = open_session(client, "t", max_queries=1000, max_updates=10)
        for body in asked_again():
            client.post(f"/v1/sessions/{session}/queries", json=body).raise_for_status()
    return session, victim, heavy


def asked_again() -> list[dict[str, Any]]:
    """The victim's questions."""
    return list(map(predicates(4), range(QUESTIONS)))


def disturb(running: Server, key: str, kind: str, began: Any, seconds: float) -> None:
    """A kind of heavy work; to be killed."""
    with httpx.Client(base_url=running.url, headers={"authorization": f"Bearer {key}"}, timeout=300) as client:
        scripts = KINDS[kind](Heavy(running, key, client))
    began.set()
    if scripts:
        load(running.port, scripts, 10 * seconds)


@contextmanager
def disturbed(running: Server, key: str, kind: str, seconds: float) -> Iterator[None]:
    """Heavy work as long as it lasts."""
    context = multiprocessing.get_context("spawn")
    began = context.Event()
    process = context.Process(target=disturb, args=(running, key, kind, began, seconds))
    process.start()
    try:
        if not began.wait(120):
            raise SystemExit(f"{kind} did not begin")
        time.sleep(1.0)
        yield
    finally:
        process.kill()
        process.join()


def times_of(running: Server, session: str, key: str, seconds: float) -> tuple[list[float], int]:
    """The times of the victim's requests in seconds, and how many were errors."""
    bodies = asked_again()

    async def run() -> tuple[list[float], int]:
        times: list[float] = []
        headers = {"authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=running.url, headers=headers, timeout=60) as client:
            stop = time.perf_counter() + seconds

            async def ask(number: int) -> int:
                wrong = 0
                while time.perf_counter() < stop:
                    started = time.perf_counter()
                    try:
                        reply = await client.post(f"/v1/sessions/{session}/queries", json=bodies[number])
                        wrong += not (reply.status_code == 200 and reply.json()["source"] == "cached")
                    except httpx.HTTPError:
                        wrong += 1
                    times.append(time.perf_counter() - started)
                    await asyncio.sleep(PAUSE)
                return wrong

            errors = sum(await asyncio.gather(*map(ask, range(CLIENTS))))
        return times, errors

    return asyncio.run(run())


def measured(kind: str, running: Server, seconds: float) -> list[Any]:
    """A row of the table."""
    session, victim, heavy = set_up(running, kind)
    with disturbed(running, heavy, kind, seconds):
        times, errors = times_of(running, session, victim, seconds)
    ordered = np.sort(times) * 1000
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return [len(times), float(np.median(ordered)), float(p99), float(ordered[-1]), errors]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=15.0, help="for each kind of work and each database")
    parser.add_argument("--only", nargs="*", default=[], help="kinds of work whose names begin so")
    parser.add_argument("--databases", nargs="*", default=["SQLite", "PostgreSQL"])
    options = parser.parse_args(arguments)
    chosen = [kind for kind in KINDS if not options.only or kind.startswith(tuple(options.only))]
    rows = []
    for name in options.databases:
        for kind in chosen:
            with ExitStack() as held:
                url = held.enter_context(postgres()) if name == "PostgreSQL" else None
                workers = 2 if name == "PostgreSQL" else 1
                running = held.enter_context(
                    curator(url, workers, CURATOR_MEMORY_LIMIT=MEMORY, CURATOR_HEAVY_RATE_LIMIT="100000")
                )
                rows.append([kind, name, workers, *measured(kind, running, options.seconds)])
                print(rows[-1], flush=True)
                root = psutil.Process(running.pid)
                for process in [*root.children(recursive=True), root]:
                    process.kill()  # what is left of the work may take minutes
    report(
        "victim",
        "Cached answers of one key beside the heavy work of another",
        ["heavy work", "database", "workers", "requests", "median ms", "p99 ms", "worst ms", "errors"],
        rows,
        seconds=options.seconds,
        clients=CLIENTS,
        limit_ms=500,
        **({} if not options.only else {"only": options.only}),
    )


if __name__ == "__main__":
    main()
