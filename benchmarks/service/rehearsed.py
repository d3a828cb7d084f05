"""How long the dearest questions of a wide table in files take, and how much memory the engine has, by its records.

Run `python -m benchmarks.service.rehearsed` (half an hour, six gigabytes of disk, on a quiet machine). Made-up records
of five attributes, as `curator source rehearse` makes and asks them. Told are the slowest of three times a question in
seconds, as a ratio to what as many times the records would take, and the most memory that all processes of the engine
had at a moment. `--most 100000000` ends with so many records.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
from pathlib import Path
from typing import Any

import psutil

from app.bootstrap import rehearsal
from app.declarations.spec import ParquetFiles, TableSpec, parse_spec
from app.settings import Settings
from benchmarks.harness import report

RECORDS = (10**7, 10**8, 10**9)
SPEC: dict[str, Any] = {
    "name": "visits",
    "kind": "table",
    "budget": {"epsilon": 1.0, "delta": 1e-9},
    "capacity": RECORDS[-1],
    "attributes": [
        {"name": "ward", "size": 40},
        {"name": "age", "lower": 0, "upper": 120, "grid": 1},
        {"name": "day", "dates": ["2020-01-01", "2025-12-31"], "by": "day"},
        {"name": "sex", "values": ["f", "m", "x"]},
        {"name": "clinic", "size": 1000},
    ],
}


class Watch:
    """The most memory that the processes below this one have at a moment, while it is looked at."""

    def __init__(self) -> None:
        self.most, self._ended = 0, threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.1):
            held = 0
            for process in psutil.Process().children(recursive=True):
                try:
                    held += process.memory_full_info().uss
                except psutil.Error:
                    continue
            self.most = max(self.most, held)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=RECORDS[-1], help="records at most")
    most = parser.parse_args().most
    spec = parse_spec({**SPEC, "source": {"type": "parquet", "files": ["*.parquet"]}})
    assert isinstance(spec, TableSpec)
    assert isinstance(spec.source, ParquetFiles)
    rows: list[list[Any]] = []
    before: tuple[int, dict[str, float]] | None = None
    for records in (number for number in RECORDS if number <= most):
        # Each is on the disk while it is asked, and no longer.
        with tempfile.TemporaryDirectory() as place, Watch() as watch:
            seconds = rehearsal.seconds_of(spec, Settings(source_deadline_seconds=3600), records, Path(place, "files"))
        for question, each in seconds.items():
            ratio = None if before is None else each / (before[1][question] * records / before[0])
            rows.append([records, question, each, ratio, watch.most / 2**20])
        before = records, seconds
    columns = ["records", "question", "seconds", "of as many times", "memory of the engine (MiB)"]
    report("rehearsed", "The dearest questions of a wide table in files", columns, rows)


if __name__ == "__main__":
    main()
