"""How long questions to a wide table take that stays in Parquet files, beside queries that DuckDB is given by hand.

Run `python -m benchmarks.service.asked_sources` (minutes, on a quiet machine). Made-up records of twelve codes and a
number, in two files. What the service asks and the plain query take turns. Told are the median of each in seconds of
the processor, and that of the ratios of one turn. The plain query has columns that hold places already, looks for no
record outside of a domain, at no file, and answers the one question alone.

The last rows are of time: a condition that nobody satisfies beside one that half of the records do, by turns; told is
the part of pairs of turns in which half of the records took longer. One half would tell nothing.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.declarations.spec import TableSpec, parse_spec
from app.spaces.asked import classes_of, covering
from app.spaces.counts import CellCounts
from app.storage.private_data import SourceData
from app.storage.sources import parquet
from app.storage.sources.parquet import THREADS
from benchmarks.harness import report

RECORDS = (10**6, 10**7)
TURNS, PAIRS_OF_TIMES = 7, 40
CODES, SIZE, INCOMES = 12, 8, 10_000
SHAPE = (SIZE,) * CODES + (INCOMES,)
MEMORY = 4 << 30


def written(count: int, folder: Path) -> bytes:
    """The files, registered; what is known of them."""
    rng = np.random.default_rng(1)
    columns = {f"c{k}": rng.integers(0, SIZE, count).astype(np.int32) for k in range(CODES)}
    columns["income"] = rng.integers(0, INCOMES // 2, count).astype(np.int32)
    half = count // 2
    for number, part in enumerate((slice(0, half), slice(half, count))):
        pq.write_table(pa.table({name: values[part] for name, values in columns.items()}), folder / f"{number}.parquet")
    attributes = [{"name": f"c{k}", "size": SIZE} for k in range(CODES)] + [{"name": "income", "size": INCOMES}]
    spec = parse_spec(
        {
            "name": "wide",
            "kind": "table",
            "budget": {"epsilon": 1.0, "delta": 1e-9},
            "attributes": attributes,
            "source": {"type": "parquet", "files": ["*.parquet"]},
        }
    )
    assert isinstance(spec, TableSpec)
    found = parquet.count_source(spec, [folder], memory_limit=MEMORY).data
    assert isinstance(found, SourceData)
    return found.about.tobytes()


def needed(*asked: CellCounts) -> list[CellCounts]:
    """What the service asks for these."""
    found = [classes_of(each, SHAPE) for each in asked]
    return covering([each for each in found if each is not None])


def processor(done: Callable[[], object]) -> float:
    """Seconds of the processor that something takes."""
    began = time.process_time()
    done()
    return time.process_time() - began


def counts(*axes: int, **how: Any) -> CellCounts:
    """Counts by some attributes."""
    return CellCounts(axes, (None,) * len(axes), tuple(SHAPE[axis] for axis in axes), **how)


def pairs() -> list[tuple[int, int]]:
    """Fifty pairs of attributes."""
    return [(i, j) for i in range(CODES) for j in range(i + 1, CODES)][:50]


#: What is asked, and the queries that are written by hand for it.
QUESTIONS: dict[str, tuple[Sequence[CellCounts], Sequence[str]]] = {
    "counts by three attributes": (
        [counts(0, 1, 2)],
        ["SELECT c0, c1, c2, count(*) FROM t GROUP BY ALL"],
    ),
    "counts under a condition of a quarter": (
        [counts(0, where=((12, slice(0, INCOMES // 8)),))],
        [f"SELECT c0, count(*) FROM t WHERE income < {INCOMES // 8} GROUP BY ALL"],
    ),
    "sums of a number": (
        [counts(0, 1, factors=((12, np.arange(INCOMES)),))],
        ["SELECT c0, c1, sum(income) FROM t GROUP BY ALL"],
    ),
    "fifty pairs": (
        [counts(i, j) for i, j in pairs()],
        [f"SELECT c{i}, c{j}, count(*) FROM t GROUP BY ALL" for i, j in pairs()],
    ),
}


def main() -> None:
    """Measure and write."""
    rows: list[tuple[str, str, float, float, float]] = []
    with tempfile.TemporaryDirectory() as root:
        for count in RECORDS:
            folder = Path(root) / str(count)
            folder.mkdir()
            about = written(count, folder)

            def ask(asked: Sequence[CellCounts], about: bytes = about, folder: Path = folder) -> None:
                parquet.ask_source(about, None, [folder], asked, memory_limit=MEMORY)

            def by_hand(texts: Sequence[str], folder: Path = folder) -> None:
                with duckdb.connect(":memory:", config={"threads": THREADS}) as connection:
                    connection.execute(f"CREATE VIEW t AS SELECT * FROM read_parquet('{folder}/*.parquet')")
                    for text in texts:
                        connection.execute(text).fetchnumpy()

            for title, (asked, texts) in QUESTIONS.items():
                due, times = needed(*asked), list[tuple[float, float]]()
                for turn in range(TURNS + 1):
                    now = processor(lambda: ask(due)), processor(lambda: by_hand(texts))  # noqa: B023
                    times += [now] if turn else []
                own, plain = np.array(times).T
                ratio = float(np.median(own / plain))
                rows.append((f"{count:,}", title, float(np.median(own)), float(np.median(plain)), ratio))
            # Of incomes in the upper half of the domain there are none.
            quarter = INCOMES // 4
            nobody, half = (
                needed(counts(0, where=((12, where),))) for where in (slice(3 * quarter, INCOMES), slice(0, quarter))
            )
            ask(nobody)
            apart = [(processor(lambda: ask(nobody)), processor(lambda: ask(half))) for _ in range(PAIRS_OF_TIMES)]  # noqa: B023
            none, many = np.array(apart).T
            longer = float((many[:, None] > none[None, :]).mean())
            rows.append((f"{count:,}", "half beside nobody", float(np.median(many)), float(np.median(none)), longer))
    columns = ("records", "what", "asked (s)", "by hand, or nobody (s)", "ratio, or part of pairs")
    report(
        "asked_sources", "Questions to records that stay where they are", columns, rows, turns=TURNS, threads=THREADS
    )


if __name__ == "__main__":
    main()
