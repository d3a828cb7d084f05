"""How long questions to a wide table take that stays in PostgreSQL or Spark, beside queries written by hand for them.

Run `python -m benchmarks.service.asked_databases` (minutes, on a quiet machine; Spark where Java 17 and `make spark`
are). The records and the questions are those of :mod:`benchmarks.service.asked_sources`, in one table of a real server
on this machine. What the service asks and the query by hand take turns, over the same kind of connection. Told are the
median of each in seconds by the clock, and that of the ratios of one turn. The query by hand looks for no record
outside of a domain, and not whether the table is what was registered.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import conninfo

from app.declarations.spec import TableSpec, parse_spec
from app.spaces.counts import CellCounts
from app.storage.private_data import SourceData
from app.storage.sources.postgresql import PostgresTables
from app.storage.sources.spark import SparkTables, _Session
from benchmarks.harness import postgres, report
from benchmarks.service.asked_sources import CODES, INCOMES, QUESTIONS, SIZE, needed
from tests.datasets.outside import Cluster
from tests.kit import spark
from tests.kit.kept import ROOT

RECORDS, TURNS, SECONDS = 10**6, 5, 600.0
NAMES = [*(f"c{k}" for k in range(CODES)), "income"]
TABLE = "clinic.visits"
Asking = Callable[[Sequence[CellCounts]], object]
ByHand = Callable[[str], object]


def records() -> dict[str, np.ndarray]:
    """The columns."""
    rng = np.random.default_rng(1)
    columns = {f"c{k}": rng.integers(0, SIZE, RECORDS).astype(np.int32) for k in range(CODES)}
    return columns | {"income": rng.integers(0, INCOMES // 2, RECORDS).astype(np.int32)}


def declared(source: dict[str, str]) -> TableSpec:
    """The table."""
    sizes = [*[SIZE] * CODES, INCOMES]
    attributes = [{"name": name, "size": size} for name, size in zip(NAMES, sizes, strict=True)]
    spec: dict[str, Any] = {"name": "wide", "kind": "table", "budget": {"epsilon": 1.0, "delta": 1e-9}}
    found = parse_spec(spec | {"attributes": attributes, "source": source})
    assert isinstance(found, TableSpec)
    return found


def asking(tables: PostgresTables | SparkTables, source: dict[str, str]) -> Asking:
    """What asks the records, registered."""
    data = tables.register(declared(source)).data
    assert isinstance(data, SourceData)
    return tables.asking(data.about.tobytes())


@contextmanager
def in_postgresql() -> Iterator[tuple[Asking, ByHand]]:
    """The records in a table of PostgreSQL."""
    with postgres() as uri, psycopg.connect(uri, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA clinic")
        connection.execute(f"CREATE TABLE clinic.visits ({', '.join(f'{name} integer' for name in NAMES)})")
        rows = np.stack(list(records().values()), axis=1)
        with connection.cursor().copy("COPY clinic.visits FROM STDIN") as copy:
            for start in range(0, RECORDS, 10_000):
                copy.write("".join("\t".join(map(str, row)) + "\n" for row in rows[start : start + 10_000].tolist()))
        connection.execute("VACUUM ANALYZE clinic.visits")
        connection.execute("CREATE ROLE reader LOGIN PASSWORD 'bench'")
        connection.execute("GRANT USAGE ON SCHEMA clinic TO reader")
        connection.execute("GRANT SELECT ON clinic.visits TO reader")
        told = conninfo.conninfo_to_dict(uri)
        host = str(told["host"]).replace("/", "%2F")
        url = f"postgresql://reader:bench@{host}:{told.get('port', 5432)}/{told['dbname']}"
        source = {"type": "postgresql", "connection": "bench", "table": TABLE}
        own = asking(PostgresTables(lambda _: url, SECONDS), source)
        yield own, lambda text: connection.execute(grouped(text)).fetchall()


@contextmanager
def in_spark() -> Iterator[tuple[Asking, ByHand]]:
    """The records in a table of a cluster of Spark."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="curator-bench-spark-")))
        process, port = spark.launch(folder)
        stack.callback(process.wait)
        stack.callback(process.kill)
        cluster = Cluster(url := spark.url_of(port), folder, "clinic")
        cluster.lay({name: pa.array(column) for name, column in records().items()})
        session = stack.enter_context(_Session(url, 10 * SECONDS))
        own = asking(SparkTables(lambda _: url, SECONDS), {"type": "spark", "connection": "bench", "table": TABLE})
        yield own, lambda text: list(session.batches(grouped(text)))


def grouped(text: str) -> str:
    """A query of the table, grouped by the columns that it names, as not every engine does by itself."""
    columns = text.removeprefix("SELECT ").partition(", count(")[0].partition(", sum(")[0]
    return text.replace(" FROM t", f" FROM {TABLE}").replace("GROUP BY ALL", f"GROUP BY {columns}")


def taken(done: Callable[[], object]) -> float:
    """Seconds that something takes."""
    began = time.perf_counter()
    done()
    return time.perf_counter() - began


def main() -> None:
    """Measure and write."""
    rows: list[tuple[Any, ...]] = []
    engines = {"PostgreSQL": in_postgresql}
    if (ROOT / ".spark").is_dir():
        engines["Spark"] = in_spark
    for name, engine in engines.items():
        with engine() as (ask, by_hand):
            for title, (asked, texts) in QUESTIONS.items():
                due, times = needed(*asked), list[tuple[float, float]]()
                for turn in range(TURNS + 1):
                    now = taken(lambda: ask(due)), taken(lambda: [by_hand(text) for text in texts])  # noqa: B023
                    times += [now] if turn else []  # the first fills caches
                own, plain = np.array(times).T
                rows.append(
                    (name, title, float(np.median(own)), float(np.median(plain)), float(np.median(own / plain)))
                )
    columns = ("engine", "what", "asked (s)", "by hand (s)", "ratio")
    report("asked_databases", "Questions to tables of databases", columns, rows, records=RECORDS, turns=TURNS)


if __name__ == "__main__":
    main()
