"""Memory and restarts of a real server on the embedded database.

Run `python -m benchmarks.memory [sessions|universe|restart ...]` (all three by default; about five minutes).

- sessions: 1,000 open sessions over a universe of 10^5 cells, asked in turn under a memory limit; the server's resident
  memory as they are.
- universe: one session over 10^8 cells: seconds and peak memory of each step, a restart among them.
- restart: 100 sessions of 10^4 answers each; seconds after a kill until the server is ready and until each session
  has answered, with snapshots and without. And what a lane waits for a snapshot to be written.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from app.constructions.base import PublicFacts
from app.constructions.mechanism import Mechanism
from app.constructions.registry import construct
from app.geometry.norms import FloatArray
from app.services.ports import Snapshot
from app.spaces.factory import space_of
from app.spaces.spec import parse_spec
from app.storage.snapshots import SnapshotFiles
from benchmarks.harness import ADMIN_KEY, free_port, report

MANY, RESTARTED, ANSWERS, BATCH = 1000, 100, 10_000, 2000
BUDGET = {"epsilon": 1000.0, "delta": 1e-6}


class Server:
    """A server that is ended and started again on one folder."""

    def __init__(self, folder: Path, **settings: str) -> None:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("CURATOR_")}
        own = {"CURATOR_DATA_DIR": str(folder), "CURATOR_ADMIN_KEY": ADMIN_KEY, "CURATOR_LOG_LEVEL": "error"}
        self._environment = {**clean, **own, **settings}
        self._process: subprocess.Popen[bytes] | None = None
        self.client = httpx.Client()

    def start(self) -> float:
        """Seconds until it is ready."""
        port = free_port()
        started = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "serve", "--port", str(port)],
            env=self._environment,
            stdout=subprocess.DEVNULL,
        )
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"authorization": f"Bearer {ADMIN_KEY}"}, timeout=300
        )
        while True:
            with contextlib.suppress(httpx.TransportError):
                if self.client.get("/readyz").status_code == 200:
                    return time.perf_counter() - started
            assert self._process.poll() is None, "the server did not start"
            time.sleep(0.01)

    def end(self, how: signal.Signals = signal.SIGTERM) -> float:
        """Seconds until it has ended."""
        assert self._process is not None
        started = time.perf_counter()
        self._process.send_signal(how)
        self._process.wait(120)
        return time.perf_counter() - started

    def memory(self, field: str = "VmRSS") -> float:
        """MiB of the process' status: resident (VmRSS), or the most since :meth:`forget` (VmHWM)."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.split(f"{field}:")[1].split()[0]) / 1024

    def forget(self) -> None:
        """Begin the peak anew."""
        assert self._process is not None
        Path(f"/proc/{self._process.pid}/clear_refs").write_text("5")

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The reply's JSON."""
        reply = self.client.post(path, json=body)
        reply.raise_for_status()
        return reply.json()

    def register(self, name: str, shape: tuple[int, ...], counts: Any) -> None:
        """A table of counts."""
        attributes = [{"name": f"a{i}", "size": size} for i, size in enumerate(shape)]
        spec = {"name": name, "kind": "table", "attributes": attributes, "records_public": True, "budget": BUDGET}
        buffer = io.BytesIO()
        np.save(buffer, counts)
        buffer.seek(0)
        reply = self.client.post(
            "/v1/datasets", data={"spec": json.dumps(spec)}, files={"data": ("counts.npy", buffer)}
        )
        reply.raise_for_status()

    def open(self, dataset: str, construction: str = "mw", **asked: Any) -> str:
        """A session's id."""
        body = {"dataset": dataset, "mechanism": {"construction": construction}, **asked}
        return str(self.post("/v1/sessions", body)["id"])

    def ask(self, id: str, query: dict[str, Any]) -> Any:
        """An answer."""
        return self.post(f"/v1/sessions/{id}/queries", query)


@contextlib.contextmanager
def serving(**settings: str) -> Iterator[tuple[Server, Path]]:
    """A server on a fresh folder."""
    with tempfile.TemporaryDirectory(prefix="curator-bench-") as folder:
        server = Server(Path(folder), **settings)
        server.start()
        try:
            yield server, Path(folder)
        finally:
            server.end()


def between(axis: int, low: int, high: int) -> dict[str, Any]:
    """A predicate on one attribute."""
    return {"type": "predicate", "where": {f"a{axis}": {"between": [low, high]}}}


def sessions() -> None:
    """Resident memory while many sessions are asked in turn."""
    counts = np.random.default_rng(1).poisson(np.linspace(0, 8, 100)[:, None], (100, 1000)).astype(np.int64)
    limit = 512
    rows = []
    with serving(CURATOR_MEMORY_LIMIT=f"{limit}MiB") as (server, folder):
        server.register("t", (100, 1000), counts)
        rows.append(["start", 0.0, server.memory()])
        started = time.perf_counter()
        ids = [server.open("t", epsilon=0.05, max_queries=1000, max_updates=20) for _ in range(MANY)]
        rows.append([f"{MANY} opened", time.perf_counter() - started, server.memory()])
        updates = 0
        for turn in range(2):
            for number, id in enumerate(ids):
                updates += server.ask(id, between(0, 0, 30 + 20 * turn))["source"] == "measurement"
                if (number + 1) % 250 == 0:
                    rows.append(
                        [f"turn {turn + 1}: {number + 1} asked", time.perf_counter() - started, server.memory()]
                    )
        peak = server.memory("VmHWM")
        size = sum(path.stat().st_size for path in folder.glob("snapshots/*")) / 2**20
    report(
        "memory_sessions",
        f"{MANY} open sessions over 10^5 cells, asked in turn, CURATOR_MEMORY_LIMIT={limit}MiB",
        ["when", "seconds", "resident MiB"],
        rows,
        peak_mib=peak,
        hypotheses_mib=MANY * counts.size * 8 / 2**20,
        updates=updates,
        snapshots_mib=size,
    )


def universe() -> None:
    """One session over 10^8 cells."""
    shape = (10_000, 10_000)
    counts = np.zeros(shape, np.uint8)
    counts[:1000, :3000] = 3
    counts[200:400, 5000:9000] = 7
    rows: list[list[Any]] = []
    with serving() as (server, folder):

        def step(name: str, work: Callable[[], Any]) -> Any:
            server.forget()
            started = time.perf_counter()
            found = work()
            source = found.get("source", "") if isinstance(found, dict) else ""
            rows.append([name, time.perf_counter() - started, server.memory("VmHWM"), source])
            return found

        step("register 10^8 counts", lambda: server.register("u", shape, counts))
        id = step("open mw", lambda: server.open("u", epsilon=1.0, max_queries=100, max_updates=20))
        halves = np.linspace(0, 1, shape[1]).tolist()
        steps = [1.0] * 300 + [-0.5] * 400 + [0.25] * 9300
        queries = {
            "predicate, first": between(0, 0, 999),
            "predicate, on what was learnt": between(0, 0, 499),
            "predicate, two attributes": {
                "type": "predicate",
                "where": {"a0": {"between": [0, 99]}, "a1": {"in": list(range(0, 10_000, 7))}},
            },
            "product, weights on an axis": {"type": "product", "weights": {"a1": halves}},
            "product, weights on every cell": {"type": "product", "weights": {"a0": halves[::-1], "a1": halves}},
            "product, another": {"type": "product", "weights": {"a0": steps, "a1": halves}},
            "product, a third": {"type": "product", "weights": {"a0": steps[::-1], "a1": halves[::-1]}},
            "sparse": {"type": "sparse", "indices": [[i, i] for i in range(1000)], "weights": [1.0] * 1000},
        }
        given = {name: step(name, lambda query=query: server.ask(id, query)) for name, query in queries.items()}
        seconds = server.end()
        written = bool(list(folder.glob("snapshots/*")))
        rows.append(["SIGTERM, a snapshot written" if written else "SIGTERM, no snapshot worth it", seconds, 0.0, ""])
        size = sum(path.stat().st_size for path in folder.glob("snapshots/*")) / 2**20
        rows.append(["start until /readyz", server.start(), server.memory("VmHWM"), ""])
        again = step("asked again", lambda: server.ask(id, queries["predicate, first"]))
        assert again["value"] == given["predicate, first"]["value"]
        step("a new predicate", lambda: server.ask(id, between(0, 500, 1999)))
        server.end(signal.SIGKILL)
        shutil.rmtree(folder / "snapshots", ignore_errors=True)
        rows.append(["start without snapshots", server.start(), server.memory("VmHWM"), ""])
        step("asked again, by the transcript", lambda: server.ask(id, queries["predicate, first"]))
    report(
        "memory_universe",
        "mw over 10^8 cells (a hypothesis takes 763 MiB, the data 95 MiB)",
        ["step", "seconds", "peak MiB", "source"],
        rows,
        snapshots_mib=size,
    )


def restart() -> None:
    """Seconds after a kill."""
    rng = np.random.default_rng(2)
    counts = rng.poisson(np.linspace(0, 8, 1000), (100, 1000)).astype(np.int64)
    spans = [(i, j) for i in range(100) for j in range(i, 100)]
    rows: list[list[Any]] = []
    with serving() as (server, folder):
        server.register("t", (100, 1000), counts)
        asked = {"epsilon": 1.0, "max_queries": 2 * ANSWERS, "max_updates": 500}
        ids = [server.open("t", **asked) for _ in range(RESTARTED)]
        started, updates = time.perf_counter(), 0
        for number, id in enumerate(ids):
            order = rng.permutation(ANSWERS)
            queries = [between(n % 2, *spans[n // 2]) for n in order.tolist()]
            for start in range(0, ANSWERS, BATCH):
                given = server.post(f"/v1/sessions/{id}/queries/batch", {"queries": queries[start : start + BATCH]})
                updates += sum(answer["source"] == "measurement" for answer in given["answers"])
            if number == 0:
                rate = ANSWERS / (time.perf_counter() - started)
                print(
                    f"{rate:.0f} answers a second: about {RESTARTED * ANSWERS / rate:.0f} seconds to come", flush=True
                )
        made = time.perf_counter() - started

        def measured(name: str) -> None:
            ready = server.start()
            begun = time.perf_counter()
            for id in ids:
                assert server.ask(id, queries[0])["source"] == "cached"
            told = time.perf_counter() - begun
            begun = time.perf_counter()
            for id in ids:
                server.ask(id, queries[1])
            warm = time.perf_counter() - begun
            kept = len(list(folder.glob("snapshots/*")))
            rows.append([name, ready, told, warm, kept])

        server.end()
        measured("SIGTERM, snapshots")
        server.end(signal.SIGKILL)
        measured("SIGKILL, snapshots")
        server.end(signal.SIGKILL)
        shutil.rmtree(folder / "snapshots", ignore_errors=True)
        measured("SIGKILL, no snapshots")
    for row in rows:
        row.insert(3, row[2] / rows[-1][2])
    report(
        "memory_restart",
        f"{RESTARTED} sessions of {ANSWERS} answers each (mw, 10^5 cells), after a restart",
        [
            "ended by",
            "s to /readyz",
            f"s for {RESTARTED} first answers",
            "to no snapshots",
            "s for the next",
            "snapshots",
        ],
        rows,
        updates=updates,
        seconds_to_make=made,
    )
    stalls()


def stalls() -> None:
    """How long a lane waits for a snapshot, beside an update of the same session."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="curator-bench-") as folder:
        files = SnapshotFiles(Path(folder), 1 << 32)
        for side in (100, 316, 1000, 3162):
            declared = {
                "name": "t",
                "kind": "table",
                "attributes": [{"name": "a", "size": side}, {"name": "b", "size": side}],
            }
            space = space_of(parse_spec({**declared, "budget": BUDGET}))
            array: FloatArray = np.random.default_rng(3).random((side, side))
            construction = construct(Mechanism(construction="fk"), space, PublicFacts(1e6), 1.0, 10)
            state = construction.start()
            state.tensor.array = array
            written, read = [], []
            for _ in range(5):
                dump = construction.dump(state)
                started = time.perf_counter()
                files.write("0" * 32, Snapshot(dump.words, dump.arrays))
                written.append(time.perf_counter() - started)
                started = time.perf_counter()
                files.read("0" * 32)
                read.append(time.perf_counter() - started)
            started = time.perf_counter()
            np.exp(array)
            once = time.perf_counter() - started
            write, back = float(np.median(written)), float(np.median(read))
            rows.append([f"{side * side:,} cells", 1000 * write, 1000 * back, write / once])
    report(
        "memory_stalls",
        "Writing and reading a snapshot; beside it one exponential of every cell, as an update takes at least",
        ["universe", "write ms", "read ms", "write / exp of all cells"],
        rows,
    )


if __name__ == "__main__":
    parts = {"sessions": sessions, "universe": universe, "restart": restart}
    for part in sys.argv[1:] or parts:
        parts[part]()
