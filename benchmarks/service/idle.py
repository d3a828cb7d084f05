"""What processes that nobody asks anything ask of PostgreSQL.

Run `python -m benchmarks.service.idle [--beside FOLDER]` (two minutes). One and four processes of a server on a fresh
database, which has one data set and no session: transactions a second that the database has counted, of one process,
and how many connections there are. With ``--beside`` the code in another folder is measured by turns, such as an
earlier state of this one.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import httpx
import numpy as np
import psycopg

from benchmarks.harness import ADMIN_KEY, curator, postgres, report
from benchmarks.service.answering import register, table_spec

#: Seconds before the counting begins, in which starts are over and what was counted of them is told.
SETTLED = 12.0
TURNS = 2


def counted(connection: psycopg.Connection[tuple[int, int]]) -> tuple[int, int]:
    """Transactions on the database of the benchmark so far, and connections to it."""
    row = connection.execute(
        "SELECT xact_commit + xact_rollback, numbackends FROM pg_stat_database WHERE datname = 'bench'"
    ).fetchone()
    assert row is not None
    return row


def idle(workers: int, seconds: float, folder: Path | None) -> tuple[float, int]:
    """Transactions a second of all processes together, and how many connections they have."""
    with postgres() as url, curator(url, workers, folder=folder) as running:
        with httpx.Client(base_url=running.url, headers={"authorization": f"Bearer {ADMIN_KEY}"}, timeout=60) as admin:
            register(admin, table_spec("t", 3), np.ones((10, 10, 10), np.int64))
        # What is asked on another database does not count there.
        with psycopg.connect(url.replace("/bench", "/postgres", 1), autocommit=True) as watching:
            time.sleep(SETTLED)
            before, _ = counted(watching)
            began = time.monotonic()
            time.sleep(seconds)
            after, connections = counted(watching)
            return (after - before) / (time.monotonic() - began), connections


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beside", type=Path, help="a folder with another state of the code")
    parser.add_argument("--seconds", type=float, default=12.0)
    options = parser.parse_args()
    codes = {"this": None} | ({} if options.beside is None else {"beside": options.beside})
    rows = []
    for workers in (1, 4):
        found: dict[str, list[tuple[float, int]]] = {name: [] for name in codes}
        for _ in range(TURNS):
            for name, folder in codes.items():
                found[name].append(idle(workers, options.seconds, folder))
        for name, measured in found.items():
            rate = statistics.median(rate for rate, _ in measured)
            rows.append((name, workers, rate / workers, rate, max(connections for _, connections in measured)))
    columns = ("code", "processes", "transactions a second of one", "of all", "connections")
    report("idle", "Processes that nobody asks anything, on PostgreSQL", columns, rows, seconds=options.seconds)


if __name__ == "__main__":
    main()
