"""How long others wait beside somebody whose questions are counted where the records lie.

Run `python -m benchmarks.service.parked_beside` (minutes, on a quiet machine). One real server, embedded database.
Eight clients ask sessions on a table in memory, each as soon as it has its answer, for so many seconds; then the same
beside one client who asks a wide table in a file, each question of which must be counted. The two take turns. Told are
the medians of the 95th percentile of an answer's time, and of its ratio in a turn.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import ADMIN_KEY, curator, report
from curator_client import Curator, col, where

RECORDS, CLIENTS, TURNS, SECONDS = 10**7, 8, 5, 8.0
SIZES = {"a": 40, "b": 121, "c": 200, "d": 120}


def laid(folder: Path) -> dict[str, Any]:
    """The file of the wide table; its declaration."""
    rng = np.random.default_rng(1)
    pq.write_table(
        pa.table({name: rng.integers(0, size, RECORDS).astype(np.int32) for name, size in SIZES.items()}),
        folder / "wide.parquet",
    )
    return {
        "name": "wide",
        "kind": "table",
        "budget": {"epsilon": 1000.0, "delta": 1e-9},
        "source": {"type": "parquet", "files": ["wide.parquet"]},
        "attributes": [{"name": name, "size": size} for name, size in SIZES.items()],
    }


def asking(url: str, key: str, dataset: str, until: float, number: int, found: list[float]) -> None:
    """One client: opens a session and asks until its time is over."""
    rng = np.random.default_rng(number)
    with Curator(url, key, timeout=600) as client:
        session = client.session(dataset, mechanism="gaussian", epsilon=2.0, max_queries=100_000)
        while time.monotonic() < until:
            low = {name: int(rng.integers(0, size - 1)) for name, size in SIZES.items()}
            near = {name: value for name, value in low.items() if dataset == "wide" or name in ("a", "b")}
            asked = where(*(col(name) >= value for name, value in near.items())).count()
            began = time.perf_counter()
            session.ask(asked)
            found.append(time.perf_counter() - began)


def turn(url: str, key: str, seed: int, *, beside: bool) -> tuple[float, int]:
    """The 95th percentile of the times of answers in memory, and how many questions were counted elsewhere."""
    times: list[list[float]] = [[] for _ in range(CLIENTS + beside)]
    until = time.monotonic() + SECONDS
    threads = [
        threading.Thread(
            target=asking, args=(url, key, "wide" if number == CLIENTS else "near", until, 100 * seed + number, own)
        )
        for number, own in enumerate(times)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return float(np.percentile([each for own in times[:CLIENTS] for each in own], 95)), len(times[-1]) * beside


def main() -> None:
    """Measure and write."""
    with (
        tempfile.TemporaryDirectory() as root,
        curator(CURATOR_SOURCE_FOLDERS=root, CURATOR_SOURCE_TICK_SECONDS="0.1") as server,
        Curator(server.url, ADMIN_KEY, timeout=600) as admin,
    ):
        declared = laid(Path(root))
        admin.register(declared)
        near = {**declared, "name": "near", "attributes": declared["attributes"][:2]}
        del near["source"]
        rng = np.random.default_rng(2)
        counts = rng.integers(0, 2000, (SIZES["a"], SIZES["b"]))
        np.save(Path(root) / "near.npy", counts)
        admin.register(near, Path(root) / "near.npy")
        key = str(admin.add_principal("ann", "analyst"))
        rows = []
        for number in range(TURNS + 1):
            alone, _ = turn(server.url, key, 2 * number, beside=False)
            shared, asked = turn(server.url, key, 2 * number + 1, beside=True)
            rows += [(alone, shared, asked)] if number else []
    alone_all, shared_all, asked_all = np.array(rows).T
    table = [
        ("alone", float(np.median(alone_all)) * 1e3, 1.0, 0),
        (
            "beside a source",
            float(np.median(shared_all)) * 1e3,
            float(np.median(shared_all / alone_all)),
            int(np.median(asked_all)),
        ),
    ]
    columns = ("what", "95th percentile (ms)", "of alone", "questions to the source")
    report("parked_beside", "Others beside questions to a source", columns, table, records=RECORDS, clients=CLIENTS)


if __name__ == "__main__":
    main()
