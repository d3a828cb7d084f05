"""What the time of a reply tells: of hit or miss, of the private value, of the noise, of a race's count.

Run `python -m benchmarks.service.timing` (about six minutes). A real server, one client, requests one after another on
one connection, their kinds in random order. The server is started by this module, so that it can write down the noise
and the counts it used; a client sees neither. Each comparison splits a run in two and asks with a Mann-Whitney test
whether reply times of the halves differ: the share is that of pairs in which the first is slower (one half means no
difference). Ten runs without an answering deadline, taken together, and one with it.
"""

from __future__ import annotations

import contextlib
import functools
import io
import json
import os
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import httpx
import numpy as np
from scipy.stats import mannwhitneyu, norm

from benchmarks.harness import ADMIN_KEY, report, request_bytes, server

SIDE = 100
#: Cells of each kind: certain hits; certain misses, with nothing or much in them.
HITS, EMPTY, FULL = 500, 2000, 2000
BIG, MUCH = 20_000, 900
DEADLINE_MS = 20
#: Runs without a deadline; one with it takes as long as all of them.
RUNS = 10
#: The threshold between what misses and what hits are certain of.
THRESHOLD = 8_000
_LENGTH = b"content-length: "


# ---------------------------------------------------------------------- the server


class _Block:
    """Noise that is written down."""

    def __init__(self, inner: Any, drawn: list[list[int]]) -> None:
        self._inner, self._drawn = inner, drawn

    def take(self, n: int) -> Any:
        values = self._inner.take(n)
        self._drawn.append(values.tolist())
        return values

    @property
    def low(self) -> bool:
        return bool(self._inner.low)

    def refill(self) -> bool:
        return bool(self._inner.refill())


class _Counts:
    def __init__(self, inner: Any, counts: list[int]) -> None:
        self._inner, self._counts = inner, counts

    def take(self) -> int:
        self._counts.append(self._inner.take())
        return self._counts[-1]


def serve(port: int, path: Path) -> None:
    """The curator itself; at its end the noise and counts it used, in their order, are in a file."""
    from app.bootstrap import noise, serving, wiring

    drawn: list[list[int]] = []
    counts: list[int] = []

    class Written(noise.SystemNoise):
        def laplace(self, scale: Any, ahead: int = 1024) -> Any:
            return _Block(super().laplace(scale), drawn)

        def poisson(self, mean: Any, cut: int) -> Any:
            return _Counts(super().poisson(mean, cut), counts)

    try:
        with mock.patch.object(serving, "build", functools.partial(wiring.build, noise=Written())):
            serving.serve("127.0.0.1", port, 1)
    finally:
        path.write_text(json.dumps({"drawn": drawn, "counts": counts}))


# ---------------------------------------------------------------------- the client


@dataclass(frozen=True)
class Reply:
    """One reply: how long it took, what it was, and what the client cannot know."""

    milliseconds: float
    hit: bool
    private: int
    noise: int
    count: int


def _requests(id: str, cells: np.ndarray[Any, Any]) -> Iterator[bytes]:
    for cell in cells.tolist():
        a, b = divmod(cell, SIDE)
        query = {"type": "predicate", "where": {"a": {"equals": a}, "b": {"equals": b}}}
        yield request_bytes(f"/v1/sessions/{id}/queries", json.dumps(query).encode(), ADMIN_KEY)


def _timed(port: int, requests: Iterator[bytes]) -> tuple[list[float], list[dict[str, Any]]]:
    """Times in milliseconds and the replies, one request after another on one connection."""
    times, replies = [], []
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream = connection.makefile("rb")
        for request in requests:
            started = time.perf_counter()
            connection.sendall(request)
            status, length = stream.readline(), 0
            while (line := stream.readline()) != b"\r\n":
                if line.lower().startswith(_LENGTH):
                    length = int(line[len(_LENGTH) :])
            body = stream.read(length)
            times.append(1000 * (time.perf_counter() - started))
            assert b" 200 " in status, (status, body)
            replies.append(json.loads(body))
    return times, replies


def _open(client: httpx.Client, release: str, queries: int) -> str:
    """A session whose threshold lies between the misses and the hits."""
    asked: dict[str, Any] = {
        "dataset": "t",
        "mechanism": {"construction": "mw"},
        "epsilon": 1e-3,
        "max_queries": queries,
        "max_updates": HITS + 10,
        "release": release,
    }
    wide = client.post("/v1/plans", json=asked).raise_for_status().json()["threshold"]
    asked["epsilon"] *= (wide / THRESHOLD) ** 2
    return str(client.post("/v1/sessions", json=asked).raise_for_status().json()["id"])


def measure(release: str, deadline: int | None, seed: int) -> list[Reply]:
    """One run: every certain hit and miss once, in random order."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(SIDE * SIDE)
    counts = np.full(SIDE * SIDE, MUCH)
    hits, empty, full = np.split(order[: HITS + EMPTY + FULL], [HITS, HITS + EMPTY])
    counts[hits], counts[empty] = BIG, 0
    # As many empty as full cells among those that are not asked about: the mean is what it is among the asked.
    rest = order[HITS + EMPTY + FULL :]
    counts[rest[::2]] = 0
    asked = rng.permutation(np.concatenate([hits, empty, full]))
    with tempfile.TemporaryDirectory(prefix="curator-timing-") as folder:
        used = Path(folder) / "used.json"
        environment = {
            "CURATOR_DATA_DIR": folder,
            "CURATOR_ADMIN_KEY": ADMIN_KEY,
            "CURATOR_LOG_LEVEL": "warning",
            "CURATOR_METRICS_OPEN": "1",
        }
        if deadline is not None:
            environment["CURATOR_ANSWER_DEADLINE_MS"] = str(deadline)
        command = [sys.executable, "-m", "benchmarks.service.timing", "serve", "{port}", str(used)]
        headers = {"authorization": f"Bearer {ADMIN_KEY}"}
        with (
            server(command, environment) as running,
            httpx.Client(base_url=running.url, headers=headers, timeout=60) as client,
        ):
            spec = {
                "name": "t",
                "kind": "table",
                "records_public": True,
                "attributes": [{"name": "a", "size": SIDE}, {"name": "b", "size": SIDE}],
                "budget": {"epsilon": 10.0, "delta": 1e-9},
            }
            sink = io.BytesIO()
            np.save(sink, counts.reshape(SIDE, SIDE))
            files = {"data": ("t.npy", sink.getvalue())}
            client.post("/v1/datasets", data={"spec": json.dumps(spec)}, files=files).raise_for_status()
            id = _open(client, release, len(asked))
            times, replies = _timed(running.port, _requests(id, asked))
            late = _late(client)
        written = json.loads(used.read_text())
    if deadline is not None:
        print(f"{release}, deadline {deadline} ms: {late} of {len(times)} replies were late")
    assert len(written["drawn"]) == len(asked)
    counted = written["counts"] or [1] * len(asked)
    found = [
        Reply(took, reply["source"] == "measurement", int(counts[cell]), abs(drawn[0]), count)
        for took, reply, cell, drawn, count in zip(times, replies, asked, written["drawn"], counted, strict=True)
    ]
    assert all(reply.hit == (reply.private == BIG) for reply in found)
    # The first replies restore the session, draw the first block, and fill caches.
    return found[50:]


def _late(client: httpx.Client) -> int:
    lines = client.get("/metrics").text.splitlines()
    return int(float(next(line for line in lines if line.startswith("curator_late_replies_total")).split()[1]))


# ---------------------------------------------------------------------- the comparisons


#: Replies of one run in two halves.
Halves = tuple[list[Reply], list[Reply]]


def compare(name: str, release: str, deadline: int | None, runs: list[Halves]) -> list[Any]:
    """One row: medians and 99th percentiles of both halves, the share of pairs, and the test's p.

    Times are ranked within their own run (van Elteren's test, every run with the same weight): what differs from one
    run to the next does not count.
    """
    times = [tuple(np.array([reply.milliseconds for reply in half]) for half in halves) for halves in runs]
    sizes = [(len(a), len(b)) for a, b in times]
    shares = [mannwhitneyu(a, b).statistic / (len(a) * len(b)) for a, b in times]
    spread = np.sqrt(sum((n + m + 1) / (12 * n * m) for n, m in sizes))
    a, b = (np.concatenate(half) for half in zip(*times, strict=True))
    return [
        f"{name}, {release}",
        "none" if deadline is None else f"{deadline} ms",
        len(a),
        len(b),
        float(np.median(a)),
        float(np.median(b)),
        float(np.quantile(a, 0.99)),
        float(np.quantile(b, 0.99)),
        float(np.mean(shares)),
        float(2 * norm.sf(abs(sum(share - 0.5 for share in shares)) / spread)),
    ]


def split(runs: list[list[Reply]], key: Callable[[Reply], bool]) -> list[Halves]:
    """Replies of which something holds, and the others, run by run."""
    return [([r for r in run if key(r)], [r for r in run if not key(r)]) for run in runs]


def halves(runs: list[list[Reply]], key: Callable[[Reply], int]) -> list[Halves]:
    """Replies above the median of a key, and the others, run by run."""

    def halved(run: list[Reply]) -> Halves:
        median = float(np.median([key(reply) for reply in run]))
        return split([run], lambda reply: key(reply) > median)[0]

    return [halved(run) for run in runs]


def rows_of(release: str, deadline: int | None) -> list[list[Any]]:
    """All comparisons of one kind of run."""
    runs = [measure(release, deadline, seed) for seed in range(RUNS if deadline is None else 1)]
    misses, hits = ([[r for r in run if r.hit is hit] for run in runs] for hit in (False, True))
    row = functools.partial(compare, release=release, deadline=deadline)
    found = [
        row("hit against miss", runs=split(runs, lambda r: r.hit)),
        row("misses: 900 records against none", runs=split(misses, lambda r: r.private > 0)),
    ]
    for name, of in (("misses", misses), ("hits", hits)):
        if release == "single":
            found.append(row(f"{name}: large against small noise", runs=halves(of, lambda r: r.noise)))
        else:
            found.append(row(f"{name}: high against low count", runs=halves(of, lambda r: r.count)))
    return found


def main() -> None:
    """Measure and write."""
    rows = [
        row for deadline in (None, DEADLINE_MS) for release in ("single", "race") for row in rows_of(release, deadline)
    ]
    report(
        "timing",
        "Do reply times tell more than the reply? (10^4 cells, SQLite, one client)",
        ["comparison", "deadline", "n", "n", "median ms", "median ms", "p99 ms", "p99 ms", "share", "p"],
        rows,
        load=os.getloadavg()[0],
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        with contextlib.suppress(KeyboardInterrupt):
            serve(int(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
