"""How long an opening and a view of a budget take beside the sessions that a data set has had.

Run `python -m benchmarks.service.openings` (ten minutes, a gigabyte of disk, on a quiet machine). One real server on
the embedded database, and on PostgreSQL. A data set has so many sessions, closed or open, by a hundred analysts: rows
that are copies of one, and what stands for them, written while the server is down. Those of another data set have pure
noise, and the open ones hold nothing any more. Then sessions are opened, one after another, and lists of sessions,
views of a budget, the console's first page and the page for Prometheus read. Told are the medians in milliseconds.
"""

from __future__ import annotations

import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal

import httpx
from sqlalchemy import Connection, create_engine, text

from benchmarks.harness import ADMIN_KEY, curator, postgres, report
from curator_client import Curator

#: Of which database, and how many sessions there are, closed and open.
CASES = (
    *(("SQLite", *case) for case in ((100, 0), (10**4, 0), (10**5, 0), (10**6, 0), (100, 10**4), (100, 10**5))),
    *(("PostgreSQL", *case) for case in ((100, 0), (10**5, 0), (100, 10**5))),
)
ANALYSTS, TURNS = 100, 40
SPEC: dict[str, Any] = {
    "kind": "table",
    "budget": {"epsilon": 1000.0, "delta": 1e-9},
    "attributes": [{"name": "a", "size": 8}, {"name": "b", "size": 8}],
}
#: Data sets by the mechanism of their sessions.
DATASETS: dict[str, Literal["gaussian", "laplace"]] = {"d": "gaussian", "p": "laplace"}
SUMS = ("reserved", "spent", "reserved_pure", "spent_pure")


def opened(client: Curator, name: str = "d") -> Any:
    """A session that reserves next to nothing."""
    return client.session(name, mechanism=DATASETS[name], epsilon=1e-6, max_queries=1)


def prepared(url: str | None, data: str) -> str:
    """The data sets, their analysts, and of each one closed and one open session of the first of them, whose key this
    is. The open one of pure noise is asked as much as it may be.
    """
    with curator(url, CURATOR_DATA_DIR=data) as server, Curator(server.url, ADMIN_KEY) as admin:
        for name in DATASETS:
            with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
                file.write("a,b\n1,2\n3,4\n")
                file.flush()
                admin.register({"name": name, **SPEC}, Path(file.name))
        keys = [admin.add_principal(f"analyst{number}", "analyst") for number in range(ANALYSTS)]
        with Curator(server.url, keys[0]) as analyst:
            for name in DATASETS:
                opened(analyst, name).close()
                session = opened(analyst, name)
                if name == "p":
                    session.count(a=1)
            # What was closed and what moved before is added up with the next ones.
            time.sleep(2)
        return keys[0]


def copied(database: Connection, closed: int, still_open: int) -> None:
    """So many sessions of each data set beside those that are there."""
    embedded = database.dialect.name == "sqlite"
    names = list(database.execute(text("SELECT * FROM sessions LIMIT 0")).keys())
    if embedded:
        numbers = "WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < {}), "
    else:
        numbers = "WITH counted(n) AS (SELECT generate_series(1, {})), "
    for name in DATASETS:
        for status, number in (("closed", closed), ("open", still_open)):
            if number:
                changed = {
                    "id": "lower(hex(randomblob(16)))" if embedded else "replace(gen_random_uuid()::text, '-', '')",
                    "owner": f"'analyst' || (n % {ANALYSTS})",
                    "settled": "true" if status == "closed" else "false",
                }
                told = ", ".join(changed.get(column, f"one.{column}") for column in names)
                database.execute(
                    text(
                        f"{numbers.format(number)}one AS "
                        f"(SELECT * FROM sessions WHERE status = '{status}' AND dataset = '{name}' LIMIT 1) "
                        f"INSERT INTO sessions ({', '.join(names)}) SELECT {told} FROM counted, one"
                        if not embedded
                        else f"INSERT INTO sessions ({', '.join(names)}) {numbers.format(number)}one AS "
                        f"(SELECT * FROM sessions WHERE status = '{status}' AND dataset = '{name}' LIMIT 1) "
                        f"SELECT {told} FROM counted, one"
                    )
                )
                stand_for(database, name, status, number)


def stand_for(database: Connection, name: str, status: str, number: int) -> None:
    """What stands for so many copies: of all analysts alike, beside what stands for the one session that is copied."""
    which = {"status": status, "dataset": name}
    found = text("SELECT * FROM sessions WHERE status = :status AND dataset = :dataset LIMIT 1")
    one = database.execute(found, which).mappings().one()
    pure = one["spent_pure"] is not None
    each = {
        "standing": {"held": one["held"], "held_pure": one["held_pure"]}
        if status == "open"
        else {"spent": one["spent"], "spent_pure": one["spent_pure"]},
        "ledger_sums": {column: one[column] for column in SUMS},
    }
    for owner in range(ANALYSTS):
        key = {"dataset": name, "owner": f"analyst{owner}", "pure": pure}
        for table, amounts in each.items():
            columns = SUMS if table == "ledger_sums" else ("held", "spent", "held_pure", "spent_pure")
            there = text(f"SELECT * FROM {table} WHERE dataset = :dataset AND owner = :owner AND pure = :pure")
            row = database.execute(there, key).mappings().one_or_none()
            none = {column: "0" if pure or not column.endswith("_pure") else None for column in columns}
            values = {column: (row or none)[column] for column in columns}
            for column, amount in amounts.items():
                if amount is not None:
                    values[column] = str(Decimal(values[column] or 0) + number // ANALYSTS * Decimal(amount))
            if row is None:
                names = ", ".join([*key, *values])
                marks = ", ".join(f":{column}" for column in [*key, *values])
                database.execute(text(f"INSERT INTO {table} ({names}) VALUES ({marks})"), key | values)
            else:
                moved = ", ".join(f"{column} = :{column}" for column in values)
                database.execute(
                    text(f"UPDATE {table} SET {moved} WHERE dataset = :dataset AND owner = :owner AND pure = :pure"),
                    key | values,
                )


def median_ms(call: Callable[[], Any], after: Callable[[Any], object] = lambda _: None) -> float:
    """The median time of a call, in milliseconds; ``after`` is done with what it gives, and not timed."""
    times = []
    for _ in range(TURNS):
        began = time.perf_counter()
        found = call()
        times.append(1000 * (time.perf_counter() - began))
        after(found)
    return statistics.median(times)


def get(client: httpx.Client, path: str) -> None:
    """Read something."""
    client.get(path).raise_for_status()


def measured(url: str | None, data: str, closed: int, still_open: int) -> list[float]:
    """The medians, in the order of the columns."""
    key = prepared(url, data)
    engine = create_engine((url or f"sqlite:///{data}/curator.sqlite3").replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as database:
        copied(database, closed, still_open)
        database.execute(text("ANALYZE"))
    if url is not None:
        # What the server does by itself in time.
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as database:
            database.execute(text("VACUUM sessions"))
    engine.dispose()
    with curator(url, CURATOR_DATA_DIR=data) as server, Curator(server.url, key) as analyst:
        opened(analyst)
        time.sleep(10)  # until the sums are held against all sessions, which a start does beside its work
        found = [median_ms(partial(opened, analyst))]
        # Each is asked as much as it may be, so that the next opening finds none that holds something.
        found.append(median_ms(partial(opened, analyst, "p"), lambda session: session.count(a=1)))
        with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {key}"}) as client:
            found += [median_ms(partial(get, client, path)) for path in ("/v1/sessions?limit=50", "/v1/datasets/d")]
        with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {ADMIN_KEY}"}) as client:
            paths = ("/v1/datasets/d/grants", "/v1/datasets/d/ledger?limit=1", "/metrics")
            found += [median_ms(partial(get, client, path)) for path in paths]
        with httpx.Client(base_url=server.url, headers={"Origin": server.url}) as client:
            client.post("/console/login", data={"key": ADMIN_KEY, "then": "/console"})
            found.append(median_ms(partial(get, client, "/console")))
        return found


def main() -> None:
    """Measure and write."""
    rows: list[list[Any]] = []
    for name, closed, still_open in CASES:
        with contextlib.ExitStack() as stack:
            data = stack.enter_context(tempfile.TemporaryDirectory(prefix="curator-openings-"))
            url = stack.enter_context(postgres()) if name == "PostgreSQL" else None
            rows.append([name, closed, still_open, *measured(url, data, closed, still_open)])
    columns = ["database", "closed sessions", "open ones", "opening (ms)", "opening, all pure", "list of sessions"]
    columns += ["view of the budget", "view of all grants", "view of the ledger", "scrape", "console's first page"]
    report("openings", "Openings and views by the sessions that a data set has had", columns, rows)


if __name__ == "__main__":
    main()
