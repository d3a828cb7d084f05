"""Audits whose transcripts workers replay, beside one that the server's own process does alone.

Run `python -m benchmarks.service.spread` (about eight minutes). A server on PostgreSQL has sessions from evidence,
which take seconds to replay, and sessions of Gaussian noise, which take none, over a table of 8,192 cells. The whole
log is audited with `CURATOR_FINISHER=process`, and with `table` and one worker and three of them, each a process on the
same machine: together they can be no faster than its processors are. So seconds of a processor are told, too: those of
the server's processes, which is what an audit would take if workers had machines of their own, and those of workers.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

from benchmarks.harness import ADMIN_KEY, Server, postgres, report, server
from benchmarks.service.answering import open_session, register
from benchmarks.service.fleet import HEADERS, migrate

SIZES = {"a": 64, "b": 16, "c": 8}
EVIDENCE, GAUSSIAN, QUESTIONS, TURNS = 16, 32, 30, 3
SPEC: dict[str, Any] = {
    "name": "t",
    "kind": "table",
    "attributes": [{"name": name, "size": size} for name, size in SIZES.items()],
    "records_public": True,
    "budget": {"epsilon": 1000.0, "delta": 1e-6},
}


@contextmanager
def serving(url: str, folder: Path, finisher: str) -> Iterator[Server]:
    """A server on a database, with its data in a folder."""
    environment = {
        "CURATOR_DATABASE_URL": url,
        "CURATOR_DATA_DIR": str(folder),
        "CURATOR_ADMIN_KEY": ADMIN_KEY,
        "CURATOR_LOG_LEVEL": "warning",
        "CURATOR_FINISHER": finisher,
        "CURATOR_RATE_LIMIT": "1000000",
    }
    with server([sys.executable, "-m", "app.cli", "serve", "--port", "{port}"], environment) as running:
        yield running


@contextmanager
def working(url: str, number: int) -> Iterator[list[int]]:
    """So many workers, by their processes."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CURATOR_")}
    environment = clean | {"CURATOR_DATABASE_URL": url, "CURATOR_LOG_LEVEL": "warning"}
    command = [sys.executable, "-m", "app.cli", "work"]
    running = [subprocess.Popen(command, env=environment) for _ in range(number)]
    try:
        yield [each.pid for each in running]
    finally:
        for each in running:
            each.terminate()
        for each in running:
            each.wait(60)


def fill(admin: httpx.Client) -> None:
    """Register the table, and have sessions on it that were asked something."""
    rng = random.Random(1)
    register(admin, SPEC, np.random.default_rng(1).poisson(40, tuple(SIZES.values())).astype(np.int64))

    def question() -> dict[str, Any]:
        where = {}
        for name, size in SIZES.items():
            low = rng.randrange(size)
            where[name] = {"between": [low, rng.randrange(low, size)]}
        return {"type": "predicate", "where": dict(rng.sample([*where.items()], rng.randrange(1, 3)))}

    for construction, number in (("evidence", EVIDENCE), ("gaussian", GAUSSIAN)):
        more = {"max_updates": None, "max_queries": QUESTIONS, "epsilon": 0.003}
        for id in [open_session(admin, "t", construction, **more) for _ in range(number)]:
            for _ in range(QUESTIONS):
                admin.post(f"/v1/sessions/{id}/queries", json=question()).raise_for_status()


class Watched:
    """Seconds of a processor that some processes take from now on, with all that they begin.

    Args:
        roots: these.
    """

    def __init__(self, roots: Sequence[int]) -> None:
        self._roots = roots
        self._seen: dict[int, float] = {}
        self.look()
        self._before = sum(self._seen.values())

    def look(self) -> None:
        """Look at them: of those that end nothing is known but what was seen."""
        for root in map(psutil.Process, self._roots):
            for each in (root, *root.children(recursive=True)):
                with suppress(psutil.NoSuchProcess):
                    times = each.cpu_times()
                    self._seen[each.pid] = times.user + times.system

    @property
    def seconds(self) -> float:
        """How many that were."""
        return sum(self._seen.values()) - self._before


def audited(running: Server, workers: Sequence[int]) -> tuple[float, float, float]:
    """Seconds of an audit of everything: by the clock, and of the processors that the server and workers had."""
    watched = Watched([running.pid]), Watched(workers)
    with httpx.Client(base_url=running.url, headers=HEADERS, timeout=60) as admin:
        begun = time.monotonic()
        id = admin.post("/v1/audits", json={"all": True}).raise_for_status().json()["id"]
        while (told := admin.get(f"/v1/audits/{id}").json())["status"] == "running":
            for each in watched:
                each.look()
            time.sleep(0.05)
        taken = time.monotonic() - begun
        assert told["verdict"] == "holds", told
        assert told["result"]["replayed"] == EVIDENCE + GAUSSIAN, told["result"]["replayed"]
        return taken, watched[0].seconds, watched[1].seconds


def main() -> None:
    """Measure and write."""
    with postgres() as url, tempfile.TemporaryDirectory(prefix="curator-bench-") as data:
        migrate(url)
        with serving(url, Path(data), "process") as running:
            with httpx.Client(base_url=running.url, headers=HEADERS, timeout=60) as admin:
                fill(admin)
            time.sleep(5.0)  # so that all of it is in the log
        rows = []
        for finisher, number in (("process", 0), ("table", 1), ("table", 3)):
            with serving(url, Path(data), finisher) as running, working(url, number) as workers:
                time.sleep(5.0)
                found = [audited(running, workers) for _ in range(TURNS)]
                rows.append((finisher, number, *map(statistics.median, zip(*found, strict=True))))
    columns = ("CURATOR_FINISHER", "workers", "seconds", "processor s of the server", "of workers")
    report(
        "audit_spread",
        "An audit of a log with 48 sessions",
        columns,
        rows,
        evidence=EVIDENCE,
        gaussian=GAUSSIAN,
        questions=QUESTIONS,
    )


if __name__ == "__main__":
    main()
