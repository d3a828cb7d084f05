"""How long an opening takes beside the sessions that a data set has had.

Run `python -m benchmarks.service.openings` (minutes, a gigabyte of disk, on a quiet machine). One real server, embedded
database. A data set has so many sessions, closed or open, by a hundred analysts: rows that are copies of one, and what
stands for them, written while the server is down. Then sessions are opened, one after another, and lists of sessions
read. Told are the medians in milliseconds, and as ratios to those of a data set with hardly any.
"""

from __future__ import annotations

import contextlib
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx

from benchmarks.harness import ADMIN_KEY, curator, report
from curator_client import Curator

#: How many sessions there are, closed and open.
CASES = ((100, 0), (10**4, 0), (10**5, 0), (10**6, 0), (100, 10**4), (100, 10**5))
ANALYSTS, TURNS = 100, 40
SPEC: dict[str, Any] = {
    "kind": "table",
    "budget": {"epsilon": 1000.0, "delta": 1e-9},
    "attributes": [{"name": "a", "size": 8}, {"name": "b", "size": 8}],
}


def opened(client: Curator) -> Any:
    """A session that reserves next to nothing."""
    return client.session("d", mechanism="gaussian", epsilon=1e-6, max_queries=4)


def prepared(data: str) -> str:
    """The data set, its analysts, and one closed and one open session of the first of them, whose key this is."""
    with curator(CURATOR_DATA_DIR=data) as server, Curator(server.url, ADMIN_KEY) as admin:
        with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
            file.write("a,b\n1,2\n3,4\n")
            file.flush()
            admin.register({"name": "d", **SPEC}, Path(file.name))
        keys = [admin.add_principal(f"analyst{number}", "analyst") for number in range(ANALYSTS)]
        with Curator(server.url, keys[0]) as analyst:
            opened(analyst).close()
            opened(analyst)
            # What was closed before is settled with the next ones.
            time.sleep(0.5)
        return keys[0]


def copied(data: str, closed: int, still_open: int) -> None:
    """So many sessions beside those that are there."""
    with contextlib.closing(sqlite3.connect(Path(data, "curator.sqlite3"))) as database:
        names = [row[1] for row in database.execute("PRAGMA table_info(sessions)")]
        for status, number in (("closed", closed), ("open", still_open)):
            changed = {
                "id": "lower(hex(randomblob(16)))",
                "owner": f"'analyst' || (n % {ANALYSTS})",
                "settled": "1" if status == "closed" else "0",
            }
            told = ", ".join(changed.get(name, f"one.{name}") for name in names)
            database.execute(
                f"WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < {number}), "
                f"one AS (SELECT * FROM sessions WHERE status = '{status}' LIMIT 1) "
                f"INSERT INTO sessions ({', '.join(names)}) SELECT {told} FROM counted, one WHERE {number} > 0"
            )
            # And what stands for them: of all analysts alike, and of the first of them the one session.
            column = "held" if status == "open" else "spent"
            one = database.execute(f"SELECT dataset, {column} FROM sessions WHERE status = '{status}'").fetchone()
            for owner in range(ANALYSTS):
                took = str(Decimal(one[1]) * (number // ANALYSTS + (status == "open" and owner == 0)))
                key = one[0], f"analyst{owner}"
                database.execute(
                    "INSERT INTO standing (dataset, owner, pure, held, spent) VALUES (?, ?, 0, '0', '0') "
                    "ON CONFLICT DO NOTHING",
                    key,
                )
                database.execute(f"UPDATE standing SET {column} = ? WHERE dataset = ? AND owner = ?", (took, *key))
        database.execute("ANALYZE")
        database.commit()


def median_ms(call: Callable[[], object]) -> float:
    """The median time of a call, in milliseconds."""
    times = []
    for _ in range(TURNS):
        began = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - began))
    return statistics.median(times)


def main() -> None:
    """Measure and write."""
    rows: list[list[Any]] = []
    for closed, still_open in CASES:
        with tempfile.TemporaryDirectory(prefix="curator-openings-") as data:
            key = prepared(data)
            copied(data, closed, still_open)
            with curator(CURATOR_DATA_DIR=data) as server, Curator(server.url, key) as analyst:
                opened(analyst)
                opening = median_ms(lambda analyst=analyst: opened(analyst))
                with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {key}"}) as client:
                    listing = median_ms(lambda client=client: client.get("/v1/sessions?limit=50").raise_for_status())
        first = rows[0] if rows else [None, None, opening, None, listing]
        rows.append([closed, still_open, opening, opening / first[2], listing, listing / first[4]])
    columns = ["closed sessions", "open ones", "opening (ms)", "of the first", "list (ms)", "list, of the first"]
    report("openings", "Openings by the sessions that a data set has had", columns, rows)


if __name__ == "__main__":
    main()
