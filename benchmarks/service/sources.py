"""How long Parquet files on the server's own disk take to be counted, beside a plain group-by and an upload.

Run `python -m benchmarks.service.sources` (minutes, on a quiet machine). Made-up records of a code, a category, a
number in bins and a month, in two files, and in one for the upload. One real server, one client. The three take turns:
the median of each is told, and that of its ratios to the group-by of the same turn. The group-by is written by hand
over columns that hold places already, and run by DuckDB in this process with as many threads. It looks for no record
outside of a domain, and hashes no file.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.storage.sources.parquet import THREADS
from benchmarks.harness import ADMIN_KEY, curator, report
from curator_client import Curator

RECORDS = (10**6, 10**7)
TURNS = 5
#: Values of the four attributes; their product is how many cells are counted.
SIZES = {"25,600 cells": (40, 4, 16, 10), "537,600 cells": (70, 8, 80, 12)}
COLUMNS = ("ward", "city", "age", "month")


def written(sizes: tuple[int, ...], count: int, folder: Path) -> dict[str, Any]:
    """Two files of records for a source and one for an upload below a folder; what is declared of them."""
    rng = np.random.default_rng(1)
    ward, city, age, month = (rng.integers(0, size, count) for size in sizes)
    words = np.array([f"city {number}" for number in range(sizes[1])])
    table = pa.table(
        {
            "ward": ward.astype(np.int32),
            "city": words[city],
            "age": age + rng.random(count),
            "month": np.datetime64("2020-01") + month.astype("m8[M]") + rng.integers(0, 28, count).astype("m8[D]"),
            **{f"{name}_place": places for name, places in zip(COLUMNS, (ward, city, age, month), strict=True)},
        }
    )
    half = count // 2
    for name, part in (("s-1", table[:half]), ("s-2", table[half:]), ("whole", table)):
        pq.write_table(
            part.select(list(range(8))) if name != "whole" else part.select(COLUMNS), folder / f"{name}.parquet"
        )
    dates = ["2020-01-01", str(np.datetime64("2020-01") + np.timedelta64(sizes[3] - 1, "M")) + "-28"]
    attributes = [
        {"name": "ward", "size": sizes[0]},
        {"name": "city", "values": words.tolist()},
        {"name": "age", "lower": 0, "upper": sizes[2], "bins": sizes[2]},
        {"name": "month", "dates": dates, "by": "month"},
    ]
    return {"kind": "table", "budget": {"epsilon": 4.0, "delta": 1e-9}, "attributes": attributes}


def grouped(sizes: tuple[int, ...], folder: Path) -> None:
    """The plain group-by, in this process."""
    with duckdb.connect(":memory:", config={"threads": THREADS}) as connection:
        cell = f"((ward_place * {sizes[1]} + city_place) * {sizes[2]} + age_place) * {sizes[3]} + month_place"
        found = connection.execute(
            f"SELECT {cell} AS cell, count(*) AS n FROM read_parquet('{folder}/s-*.parquet') GROUP BY cell"
        ).fetchnumpy()
    assert len(found["n"])


def taken(done: Callable[[], object]) -> float:
    """Seconds that something takes."""
    started = time.perf_counter()
    done()
    return time.perf_counter() - started


def main() -> None:
    """Measure and write."""
    rows = []
    with (
        tempfile.TemporaryDirectory() as root,
        curator(CURATOR_SOURCE_FOLDERS=root) as server,
        Curator(server.url, ADMIN_KEY, timeout=600) as client,
    ):
        for count in RECORDS:
            for title, sizes in SIZES.items():
                folder = Path(root) / f"{count}-{sizes[0]}"
                folder.mkdir()
                declared = written(sizes, count, folder)
                source = {**declared, "source": {"type": "parquet", "files": [f"{folder.name}/s-*.parquet"]}}
                times: dict[str, list[float]] = {"group-by": [], "source": [], "upload": []}
                for turn in range(TURNS + 1):
                    name = f"t{count}-{sizes[0]}-{turn}"
                    now = (
                        taken(lambda: grouped(sizes, folder)),  # noqa: B023
                        taken(lambda: client.register({**source, "name": f"s{name}"})),  # noqa: B023
                        taken(lambda: client.register({**declared, "name": name}, folder / "whole.parquet")),  # noqa: B023
                    )
                    for of, seconds in zip(times.values(), now, strict=True):
                        of += [seconds] if turn else []  # the first loads libraries and caches
                plain = np.array(times["group-by"])
                for what, of in times.items():
                    ratio = float(np.median(np.array(of) / plain))
                    rows.append((f"{count:,}", title, what, float(np.median(of)), ratio))
    columns = ("records", "table", "what", "median (s)", "of the group-by")
    report(
        "sources", "Files on the server's disk, counted at registration", columns, rows, turns=TURNS, threads=THREADS
    )


if __name__ == "__main__":
    main()
