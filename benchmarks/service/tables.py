"""How long tables take that have many attributes, many values, or many records, over HTTP.

Run `python -m benchmarks.service.tables` (minutes, on a quiet machine), or with `wide` or `records` for one part. One
real server, one client that asks one thing after the other, made-up records whose attributes hang together.

Wide: attributes of few values are codes, of many numbers on a grid. Questions are counts under conditions on one, two
and three attributes and tables of counts of two; a session that buys two-way marginals at its opening, and one that
does not. Replay is `curator audit replay` in this process.

Records: registration of Parquet files, tables of counts of two and three attributes, first and again, and sums, means,
variances and quartiles of a number, of all records and by group. How far statistics are off is measured by
`python -m benchmarks.research.statistics`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from app.verifying.transcript import replay_file
from benchmarks.harness import ADMIN_KEY, curator, report
from curator_client import Answer, Curator, Question, Session, question

#: Values of the attributes of Adult.
ADULT = (74, 9, 1000, 16, 16, 7, 15, 6, 5, 2, 120, 100, 99, 42)
WIDE = {"14 as Adult's": ADULT, "50 of 8": (8,) * 50, "20 of 100": (100,) * 20, "10 of 5,000": (5000,) * 10}
#: From so many values on attributes are numbers on a grid.
NUMBERS = 65
WIDE_RECORDS, QUESTIONS = 48_842, 60
RECORDS = (10**5, 10**6, 10**7)


def written(sizes: tuple[int, ...], count: int, folder: Path) -> Path:
    """A Parquet file of records whose attributes hang together."""
    rng, path = np.random.default_rng(1), folder / f"{count}-{len(sizes)}.parquet"
    latent, columns = rng.random(count, dtype=np.float32), {}
    for number, size in enumerate(sizes):
        near = np.clip(latent + rng.normal(0, 0.3, count).astype(np.float32), 0, 0.999)
        own = rng.random(count, dtype=np.float32) ** 2
        columns[f"a{number}"] = (np.where(rng.random(count) < 0.6, near, own) * size).astype(np.int32)
    pyarrow.parquet.write_table(pa.table(columns), path)
    return path


def declared(name: str, sizes: tuple[int, ...]) -> dict[str, Any]:
    """The declaration of such a table."""
    attributes = [
        {"name": f"a{number}"} | ({"lower": 0, "upper": size - 1, "grid": 1} if size >= NUMBERS else {"size": size})
        for number, size in enumerate(sizes)
    ]
    budget = {"epsilon": 4.0, "delta": 1e-9}
    return {"name": name, "kind": "table", "attributes": attributes, "records_public": True, "budget": budget}


def predicate(rng: np.random.Generator, sizes: tuple[int, ...], count: int) -> Question[Answer]:
    """A count under random ranges of so many attributes."""
    where: dict[str, Any] = {}
    for a in rng.choice(len(sizes), count, replace=False).tolist():
        low = int(rng.integers(0, sizes[a] // 2 + 1))
        high = int(rng.integers(low, sizes[a]))
        where[f"a{a}"] = {"between": [low, high]}
        if sizes[a] >= NUMBERS:
            where[f"a{a}"] = {"ge": low, "le": high}
    return question({"type": "predicate", "where": where})


def timed(taken: dict[str, list[float]], name: str, done: Callable[[], Any]) -> Any:
    """What was done, and how long it took in ``taken``."""
    started = time.perf_counter()
    result = done()
    taken[name].append(time.perf_counter() - started)
    return result


def asked(session: Session, sizes: tuple[int, ...], taken: dict[str, list[float]]) -> int:
    """Ask of everything, and again; how many questions that were."""
    rng = np.random.default_rng(2)
    for count in (1, 2, 3):
        for _ in range(QUESTIONS):
            last = predicate(rng, sizes, count)
            started = time.perf_counter()
            source = session.ask(last).source
            taken[f"condition on {count}, {source}"].append(time.perf_counter() - started)
    for _ in range(QUESTIONS // 3):
        one, other = rng.choice(len(sizes), 2, replace=False).tolist()
        bins = {f"a{a}": list(range(0, sizes[a], sizes[a] // 10)) for a in (one, other) if sizes[a] >= NUMBERS}
        timed(taken, "table of two", lambda: session.group_by(f"a{one}", f"a{other}", bins=bins))  # noqa: B023
    for _ in range(20):
        timed(taken, "asked again", lambda: session.ask(last))
    return 3 * QUESTIONS + QUESTIONS // 3 + 20


def wide() -> None:
    """Tables of many attributes and of many values."""
    rows = []
    with tempfile.TemporaryDirectory() as folder, curator() as server, Curator(server.url, ADMIN_KEY) as client:
        for number, (title, sizes) in enumerate(WIDE.items()):
            name, path = f"t{number}", written(sizes, WIDE_RECORDS, Path(folder))
            taken: dict[str, list[float]] = defaultdict(list)
            timed(taken, "registration", lambda: client.register(declared(name, sizes), path))  # noqa: B023
            for questions in (10_000, 300):
                wanted: dict[str, Any] = {"epsilon": 1.0, "max_queries": questions}
                timed(taken, f"plan, {questions:,} questions", lambda: client.plan(name, **wanted))  # noqa: B023
                session = timed(
                    taken,
                    f"opening, {questions:,} questions",
                    lambda: client.session(name, start="nothing", **wanted),  # noqa: B023
                )
                of_session: dict[str, list[float]] = defaultdict(list)
                count = asked(session, sizes, of_session)
                taken |= {f"{what}, {questions:,} questions": times for what, times in of_session.items()}
                file = session.transcript(Path(folder) / f"{name}-{questions}.ndjson")
                started = time.perf_counter()
                replay_file(file)
                taken[f"replay, per answer, {questions:,} questions"].append((time.perf_counter() - started) / count)
            for what, times in taken.items():
                quantiles = [1e3 * float(np.quantile(times, q)) for q in (0.5, 0.95)]
                rows.append((title, what, len(times), *quantiles))
    columns = ("table", "what", "number", "median (ms)", "95th percentile (ms)")
    report("tables_wide", f"Wide tables of {WIDE_RECORDS:,} records", columns, rows)


def records() -> None:
    """Tables of many records."""
    rows = []
    with tempfile.TemporaryDirectory() as folder, curator() as server, Curator(server.url, ADMIN_KEY) as client:
        for count in RECORDS:
            name, path = f"t{count}", written(ADULT, count, Path(folder))
            taken: dict[str, list[float]] = defaultdict(list)
            timed(taken, "registration", lambda: client.register(declared(name, ADULT), path))  # noqa: B023
            session = client.session(name, mechanism={"construction": "gaussian"}, epsilon=1.0, max_queries=100)
            for axes in (["a1", "a3"], ["a4", "a5"], ["a1", "a5", "a6"], ["a3", "a7", "a8"]):
                timed(taken, f"table of {len(axes)}", lambda: session.group_by(*axes))  # noqa: B023
            timed(taken, "table of 2, again", lambda: session.group_by("a1", "a3"))  # noqa: B023
            # The third attribute has a thousand numbers, the seventh 15 codes.
            session = client.session(name, epsilon=1.0, max_queries=100)
            for kind in ("mean", "sum", "variance"):
                ask = getattr(session, kind)
                timed(taken, f"{kind} of all", lambda: ask("a2"))  # noqa: B023
                timed(taken, f"{kind} by 15 groups", lambda: ask("a2", by=["a6"]))  # noqa: B023
            levels = [0.25, 0.5, 0.75]
            timed(taken, "quartiles of all", lambda: session.quantile("a2", q=levels))  # noqa: B023
            timed(taken, "quartiles by 15 groups", lambda: session.quantile("a2", q=levels, by=["a6"]))  # noqa: B023
            path.unlink()
            rows += [(f"{count:,}", what, len(times), float(np.median(times))) for what, times in taken.items()]
    columns = ("records", "what", "number", "median (s)")
    report("tables_records", f"Tables of {len(ADULT)} attributes by number of records", columns, rows)


def main() -> None:
    """Measure and write."""
    parts = {"wide": wide, "records": records}
    for name in sys.argv[1:] or parts:
        parts[name]()


if __name__ == "__main__":
    main()
