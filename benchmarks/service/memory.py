"""Memory and restarts of a real server on the embedded database.

Run `python -m benchmarks.service.memory [sessions|universe|restart|graph ...]` (all by default; about six minutes).

- sessions: 1,000 open sessions over a universe of 10^5 cells, which learn something and are asked in turn under a
  memory limit that most of them do not fit into; resident memory as they are, and how they come back.
- universe: one session over 10^8 cells for each of three constructions: seconds and peak memory of each step, a restart
  among them.
- restart: 100 sessions of 10^4 answers each; seconds after a kill until the server is ready and until each session
  has answered, with snapshots and without. And what a lane waits for a snapshot to be written.
- graph: sessions of several mechanisms on a graph of 10^6 nodes and 10^7 edges, asked in turn under
  `CURATOR_MEMORY_LIMIT`=512MiB: peak memory of each step beside what is accounted for.
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
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.constructions.base import PublicFacts
from app.constructions.mechanism import FkMechanism
from app.constructions.registry import construct
from app.declarations.spec import parse_spec
from app.services.ports import Snapshot
from app.spaces.factory import space_of
from app.spaces.tensor import Array, FloatArray
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

    def limit(self, memory: str) -> None:
        """Another memory limit from the next start on."""
        self._environment["CURATOR_MEMORY_LIMIT"] = memory

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

    def bytes_read(self) -> int:
        """What the process has read so far, from files or anywhere else."""
        assert self._process is not None
        return int(Path(f"/proc/{self._process.pid}/io").read_text().split("rchar:")[1].split()[0])

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
    limit, turns = 512, 3
    rows: list[list[Any]] = []
    with serving(CURATOR_MEMORY_LIMIT=f"{limit}MiB") as (server, folder):
        server.register("t", (100, 1000), counts)
        started, read = time.perf_counter(), server.bytes_read()

        def row(name: str, back: int | None = None, mib: float | None = None) -> None:
            kept = len(list(folder.glob("snapshots/*")))
            rows.append([name, time.perf_counter() - started, server.memory(), kept, back, mib])

        row("start")
        ids = [server.open("t", epsilon=0.05, max_queries=1000, max_updates=20) for _ in range(MANY)]
        row(f"{MANY} opened")
        updates, used = 0, 0
        for turn in range(turns):
            back = 0
            for number, id in enumerate(ids):
                # It left memory since it was asked last: the others take its room. What is here is what it comes back
                # from, if it fits; else the transcript is.
                back += turn > 0 and (folder / "snapshots" / id).exists()
                queries = [between(0, low, low + 10 + 10 * turn) for low in range(0, 60, 5)]
                given = server.post(f"/v1/sessions/{id}/queries/batch", {"queries": queries})["answers"]
                updates += sum(answer.get("source") == "measurement" for answer in given)
                if (number + 1) % 250 == 0:
                    mib = (server.bytes_read() - read) / 2**20
                    row(f"turn {turn + 1}: {number + 1} asked", back if turn else None, mib)
                    read = server.bytes_read()
            used += back
        peak = server.memory("VmHWM")
        size = sum(path.stat().st_size for path in folder.glob("snapshots/*")) / 2**20
    report(
        "memory_sessions",
        f"{MANY} open sessions over 10^5 cells, asked in turn, CURATOR_MEMORY_LIMIT={limit}MiB",
        ["when", "seconds", "resident MiB", "snapshots", "back from them", "MiB read"],
        rows,
        peak_mib=peak,
        hypotheses_mib=MANY * counts.size * 8 / 2**20,
        updates=updates,
        snapshots_mib=size,
        back_from_snapshots=used,
        back_in_all=(turns - 1) * MANY,
    )


#: What is opened over the large universe, and whether all queries are asked or only some that show its updates.
CONSTRUCTIONS: dict[str, tuple[dict[str, Any], bool]] = {
    "mw": ({"construction": "mw"}, True),
    "fk": ({"construction": "fk"}, False),
    "md lp": ({"construction": "md", "potential": "lp"}, False),
}
_FEW = ("predicate, first", "predicate, two attributes", "product, weights on every cell", "product, another")


def universe() -> None:
    """One session over 10^8 cells."""
    shape = (10_000, 10_000)
    counts = np.zeros(shape, np.uint8)
    counts[:1000, :3000] = 3
    counts[200:400, 5000:9000] = 7
    rows: list[list[Any]] = []
    sizes = {}
    for name, (mechanism, everything) in CONSTRUCTIONS.items():
        with serving() as (server, folder):
            sizes[name] = _large(server, folder, name, mechanism, counts, everything, rows)
    report(
        "memory_universe",
        "10^8 cells: an array of numbers takes 763 MiB",
        ["construction", "step", "seconds", "peak MiB", "arrays beside data and process", "source"],
        rows,
        snapshots_mib=sizes,
    )


def _large(
    server: Server,
    folder: Path,
    name: str,
    mechanism: dict[str, Any],
    counts: Array,
    everything: bool,
    rows: list[list[Any]],
) -> float:
    """Register the data, ask a session, restart, ask again; gives the MiB of its snapshot."""
    process, array = server.memory(), counts.size * 8 / 2**20
    length = counts.shape[1]

    def data() -> float:
        """MiB of the private file, which is in memory as it is on the disk."""
        return sum(path.stat().st_size for path in folder.glob("vault/*")) / 2**20

    def arrays(peak: float) -> float:
        return max(0.0, peak - process - data()) / array

    def step(what: str, work: Callable[[], Any]) -> Any:
        server.forget()
        started = time.perf_counter()
        found = work()
        source = found.get("source") if isinstance(found, dict) else None
        peak = server.memory("VmHWM")
        rows.append([name, what, time.perf_counter() - started, peak, arrays(peak), source])
        return found

    def start(what: str) -> None:
        seconds, peak = server.start(), server.memory("VmHWM")
        rows.append([name, what, seconds, peak, None, None])

    if everything:
        step("register 10^8 counts", lambda: server.register("u", counts.shape, counts))
        rows[-1][4] = None  # the upload
    else:
        server.register("u", counts.shape, counts)
    opened = {"epsilon": 1.0, "max_queries": 100, "max_updates": 20}
    id = step("open", lambda: server.post("/v1/sessions", {"dataset": "u", "mechanism": mechanism, **opened}))["id"]
    halves = np.linspace(0, 1, length).tolist()
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
    if not everything:
        queries = {what: queries[what] for what in _FEW}
    given = {what: step(what, partial(server.ask, id, query)) for what, query in queries.items()}
    seconds = server.end()
    files = [path.stat().st_size for path in folder.glob("snapshots/*")]
    ended = "SIGTERM, a snapshot written" if files else "SIGTERM, no snapshot worth it"
    rows.append([name, ended, seconds, None, None, None])
    start("start until /readyz")
    again = step("asked again", lambda: server.ask(id, queries["predicate, first"]))
    assert again["value"] == given["predicate, first"]["value"]
    step("a new predicate", lambda: server.ask(id, between(0, 500, 1999)))
    if everything:
        server.end(signal.SIGKILL)
        shutil.rmtree(folder / "snapshots", ignore_errors=True)
        start("start without snapshots")
        step("asked again, by the transcript", lambda: server.ask(id, queries["predicate, first"]))
    return sum(files) / 2**20


def restart() -> None:
    """Seconds after a kill."""
    rng = np.random.default_rng(2)
    counts = rng.poisson(np.linspace(0, 8, 1000), (100, 1000)).astype(np.int64)
    spans = [(i, j) for i in range(100) for j in range(i, 100)]
    rows: list[list[Any]] = []
    with serving() as (server, folder):
        server.register("t", (100, 1000), counts)
        ids = [server.open("t", epsilon=1.0, max_queries=2 * ANSWERS, max_updates=500) for _ in range(RESTARTED)]
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
            construction = construct(FkMechanism(construction="fk"), space, PublicFacts(1e6), 1.0, 10)
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


def accounted(server: Server) -> float:
    """MiB that the service says it holds."""
    names = ("curator_session_memory_bytes",)
    lines = server.client.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.split("{")[0].split(" ")[0] in names) / 2**20


def graph(nodes: int = 10**6, edges: int = 10**7, limit: int = 512) -> None:
    """A large graph under a small limit."""
    rng = np.random.default_rng(4)
    ends = np.divmod(np.unique(rng.integers(0, nodes**2, edges)), nodes)
    rows: list[list[Any]] = []
    # Sorting the upload takes more than is kept of it.
    with serving(CURATOR_MEMORY_LIMIT="4GiB") as (server, folder):
        upload = folder / "edges.parquet"
        pq.write_table(pa.table({"source": ends[0].astype(np.int32), "target": ends[1].astype(np.int32)}), upload)
        spec = {"name": "g", "kind": "graph", "nodes": nodes, "directed": True, "loops": "drop", "budget": BUDGET}

        with upload.open("rb") as file:
            files = {"data": (upload.name, file)}
            server.client.post("/v1/datasets", data={"spec": json.dumps(spec)}, files=files).raise_for_status()
        server.end()
        server.limit(f"{limit}MiB")
        server.start()
        process = server.memory()

        def step(what: str, work: Callable[[], Any]) -> Any:
            server.forget()
            started = time.perf_counter()
            found = work()
            took = time.perf_counter() - started
            time.sleep(1.5)  # levels are a second old
            rows.append([what, took, server.memory("VmHWM"), server.memory(), accounted(server)])
            return found

        half, some = list(range(0, nodes, 2)), list(range(100_000))
        queries = [
            {"type": "cut", "left": some, "right": "all"},
            {"type": "cut", "left": half, "right": some},
            {"type": "blocks", "left": {"a": some, "b": [nodes - 1]}, "right": {"a": some, "b": [nodes - 1]}},
        ]
        opened = {"epsilon": 1.0, "max_queries": 100}
        for name in ("gaussian", "evidence", "laplace", "evidence"):
            body = {"dataset": "g", "mechanism": {"construction": name}, **opened}
            reply = step(f"open {name}", partial(server.client.post, "/v1/sessions", json=body))
            if reply.status_code != 201:
                rows[-1][0] += f": {reply.status_code}"
                continue
            for number, query in enumerate(queries):
                path = f"/v1/sessions/{reply.json()['id']}/queries"
                told = step(f"{name}, question {number + 1}", partial(server.client.post, path, json=query))
                rows[-1][0] += f": {told.status_code}"
    report(
        "memory_graph",
        f"A graph of {nodes:,} nodes and {edges:,} edges, CURATOR_MEMORY_LIMIT={limit}MiB",
        ["step", "seconds", "peak MiB", "resident MiB", "accounted MiB"],
        rows,
        process_mib=process,
    )


if __name__ == "__main__":
    parts = {"sessions": sessions, "universe": universe, "restart": restart, "graph": graph}
    for part in sys.argv[1:] or parts:
        parts[part]()
