"""How long those wait who ask a source at one moment, with and without having their questions gathered.

Run `python -m benchmarks.service.gathered` (minutes, on a quiet machine). Made-up records of twelve attributes in one
file, counted by the engine in a process of its own, two questions at a time. So many principals ask at once, each for
the counts of two attributes, no two for the same. Told are the median seconds until all have been answered, and how
many passes over the records that took; the two ways take turns.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.bootstrap.reader_process import ProcessReaders
from app.declarations.errors import CuratorError
from app.declarations.spec import TableSpec, parse_spec
from app.services.answering.parked import Parked
from app.spaces import asked as asking
from app.spaces.asked import AskedCounts
from app.spaces.counts import CellCounts, NotCounted
from app.spaces.tensor import IntArray
from app.storage.kept_counts import NOTHING_KEPT
from app.storage.private_data import SourceData
from app.storage.sources import ParquetFolders, Sources
from benchmarks.harness import report

RECORDS, ANALYSTS, TURNS = 10**7, (1, 2, 4, 8, 16), 5
SIZES = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 40, 120)
GATHERED = asking.MOST_GATHERED, asking.GATHERED_SECONDS


class Silent:
    """Nothing is counted of countings."""

    def tallied(self, outcome: str) -> None:
        pass

    def late_source(self) -> None:
        pass


def laid(folder: Path) -> tuple[Sources, SourceData]:
    """The file, registered."""
    rng = np.random.default_rng(1)
    names = [f"a{axis}" for axis in range(len(SIZES))]
    columns = {name: rng.integers(0, size, RECORDS).astype(np.int32) for name, size in zip(names, SIZES, strict=True)}
    pq.write_table(pa.table(columns), folder / "wide.parquet")
    spec = parse_spec(
        {
            "name": "wide",
            "kind": "table",
            "budget": {"epsilon": 1.0, "delta": 1e-9},
            "source": {"type": "parquet", "files": ["wide.parquet"]},
            "attributes": [{"name": name, "size": size} for name, size in zip(names, SIZES, strict=True)],
        }
    )
    assert isinstance(spec, TableSpec)
    sources = Sources({"parquet": ParquetFolders(ProcessReaders(), [folder], 4 << 30)})
    data = sources.register(spec).data
    assert isinstance(data, SourceData)
    return sources, data


def asked(sources: Sources, data: SourceData, analysts: int, seed: int, *, gathered: bool) -> tuple[float, int]:
    """Seconds until all have been answered, and the passes that it took."""
    passes: list[int] = []
    ask = sources.asking(data)

    def counted(due: Sequence[CellCounts]) -> list[IntArray]:
        passes.append(len(due))
        return ask(due)

    asking.MOST_GATHERED, asking.GATHERED_SECONDS = GATHERED if gathered else (0, 0.0)
    counts = AskedCounts(SIZES, data.mass, counted, NOTHING_KEPT.of("wide"))
    parked, left, done = Parked(2, 0.001, Silent()), [analysts], threading.Event()

    def back(error: CuratorError | None) -> None:
        assert error is None, error
        left[0] -= 1
        if not left[0]:
            done.set()

    pairs = [(a, b) for a in range(len(SIZES)) for b in range(a + 1, len(SIZES))]
    chosen = np.random.default_rng(seed).permutation(len(pairs))[:analysts]
    began = time.perf_counter()
    for number, pair in enumerate(chosen):
        axes = pairs[pair]
        try:
            counts.tell([CellCounts(axes, (None, None), (SIZES[axes[0]], SIZES[axes[1]]))])
        except NotCounted as lacking:
            parked.wait(f"analyst {number}", lacking, back)
    done.wait()
    seconds = time.perf_counter() - began
    parked.stop()
    return seconds, sum(passes)


def main() -> None:
    """Measure and write."""
    rows = []
    with tempfile.TemporaryDirectory() as root:
        sources, data = laid(Path(root))
        for analysts in ANALYSTS:
            found: dict[bool, list[tuple[float, int]]] = {True: [], False: []}
            for turn in range(TURNS):
                for gathered in (True, False) if turn % 2 else (False, True):
                    found[gathered].append(asked(sources, data, analysts, turn, gathered=gathered))
            together, apart = np.array(found[True]), np.array(found[False])
            ratio = float(np.median(together[:, 0] / apart[:, 0]))
            seconds = float(np.median(together[:, 0])), float(np.median(apart[:, 0]))
            passes = float(np.mean(together[:, 1])), float(np.mean(apart[:, 1]))
            rows.append([analysts, *passes, *seconds, ratio])
    columns = ["analysts at once", "passes", "apart", "seconds", "apart (s)", "ratio of seconds"]
    report("gathered", "Questions to a source, gathered", columns, rows, records=RECORDS, turns=TURNS)


if __name__ == "__main__":
    main()
