"""A rehearsal of a source: how long its engine takes for questions of made-up records, as many as a declaration says
there may be. So a data set can declare `answer_seconds` before anybody has asked its records anything.

Questions are the dearest of their kinds that a declaration allows. Fewer records may be made up than are declared; the
time beyond that of hardly any is then taken to grow as they do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from app.bootstrap.reader_process import ProcessReaders
from app.declarations.errors import InvalidDataset
from app.declarations.spec import DEFAULT_CAPACITY, SOURCES_OF_FILES, ParquetFiles, Spec, TableSpec
from app.services.dummy_records import drawn
from app.settings import Settings
from app.spaces.asked import MOST_CLASSES, classes_of, covering
from app.spaces.counts import CellCounts
from app.spaces.partition import Partition
from app.storage.private_data import SourceData
from app.storage.readers.tables import MOST_COUNTED

#: How many records are made up unless more are wanted, how many are hardly any, and from how many times these on their
#: time tells of others.
RECORDS, FEW, _MANY = 10_000_000, 1_000, 100
#: Each question is asked so often, and the slowest time is taken.
_TIMES = 3
#: A good number is so many times what the slowest question took: the machine may have other work then.
_ROOM = 2.0
#: So many records are drawn, and written again and again; and a file has so many of them.
_DRAWN, _FILE = 500_000, 10_000_000

#: Counts by classes that are asked together.
_Asked = Sequence[CellCounts]


@dataclass(frozen=True)
class Timed:
    """A question of made-up records.

    Attributes:
        question: in words.
        seconds: that it took of the made-up records.
        expected: that it takes of as many as are declared.
    """

    question: str
    seconds: float
    expected: float


@dataclass(frozen=True)
class Rehearsal:
    """What a rehearsal found.

    Attributes:
        records: how many were made up.
        capacity: how many the declaration says there may be.
        timed: the dearest questions of each kind.
        longest: seconds that clients wait for a reply, by the settings.
    """

    records: int
    capacity: int
    timed: tuple[Timed, ...]
    longest: float

    @property
    def answer_seconds(self) -> int:
        """A good number to declare, in seconds."""
        return math.ceil(_ROOM * max(each.expected for each in self.timed))

    @property
    def possible(self) -> bool:
        """Whether clients wait for so long."""
        return self.answer_seconds < self.longest

    def view(self) -> dict[str, Any]:
        """As JSON."""
        return {**asdict(self), "answer_seconds": self.answer_seconds, "possible": self.possible}


def rehearse(spec: Spec, settings: Settings, records: int | None = None, folder: Path | None = None) -> Rehearsal:
    """Ask made-up records of a declaration, in the engine and within the limits that the server has.

    Args:
        spec: the declaration, of a table whose source is files and that is asked where they lie.
        settings: the server's.
        records: how many are made up; left out, as many as are declared, and :data:`RECORDS` at most.
        folder: where their files are written for the time being; left out, that for temporary files.

    Raises:
        InvalidDataset: when nobody would wait for the records of such a data set, they cannot be made up, or so few
            would tell nothing.
        Unavailable: when a question takes longer than the server lets it.
    """
    if not isinstance(spec, TableSpec) or spec.source is None:
        raise InvalidDataset("source: the declaration names none, so that nobody waits for one")
    if spec.source.type not in SOURCES_OF_FILES:
        raise InvalidDataset("source: files alone are rehearsed, as nothing is written to a database")
    if spec.prepare is not None:
        raise InvalidDataset("prepare: records are rehearsed where they lie: leave it out for this")
    if math.prod(attribute.length for attribute in spec.attributes) <= MOST_COUNTED:
        raise InvalidDataset(
            "source: its records are counted once, at registration, and nobody waits for them afterwards: leave "
            "answer_seconds out"
        )
    capacity = spec.capacity or DEFAULT_CAPACITY
    wanted = min(capacity, RECORDS if records is None else records)
    if wanted < min(capacity, FEW * _MANY):
        raise InvalidDataset(f"records: so few tell nothing of {capacity:,}: make up {FEW * _MANY:,} or more")
    with TemporaryDirectory(prefix="rehearsal-", dir=folder) as place:
        most = seconds_of(spec, settings, wanted, Path(place, "all"))
        least = most if wanted == capacity else seconds_of(spec, settings, FEW, Path(place, "few"))
    more = capacity / wanted - 1
    timed = [
        Timed(question, seconds, seconds + max(0.0, seconds - least[question]) * more)
        for question, seconds in most.items()
    ]
    return Rehearsal(wanted, capacity, tuple(timed), settings.request_timeout_seconds)


def seconds_of(spec: TableSpec, settings: Settings, records: int, folder: Path) -> dict[str, float]:
    """Seconds that each question takes of so many records, made up in a folder."""
    folder.mkdir()
    # A column an attribute, though of the data two may have one.
    attributes = tuple(attribute.model_copy(update={"column": None}) for attribute in spec.attributes)
    source = ParquetFiles(type="parquet", files=("*.parquet",))
    spec = spec.model_copy(update={"source": source, "attributes": attributes})
    _write(spec, records, folder)
    readers = ProcessReaders(source_seconds=settings.source_deadline_seconds)
    data = readers.count_source(spec, [folder], memory_limit=settings.memory_limit).data
    assert isinstance(data, SourceData)
    seconds: dict[str, float] = {}
    for question, asked in _questions(spec):
        for _ in range(_TIMES):
            began = time.monotonic()
            readers.ask_source(data.about.tobytes(), None, [folder], asked, memory_limit=settings.memory_limit)
            seconds[question] = max(seconds.get(question, 0.0), time.monotonic() - began)
    return seconds


def _write(spec: TableSpec, records: int, folder: Path) -> None:
    table = drawn(spec, min(records, _DRAWN), 0)
    for number, first in enumerate(range(0, records, _FILE)):
        with pq.ParquetWriter(folder / f"{number:04}.parquet", table.schema) as writer:
            end = min(records, first + _FILE)
            for start in range(first, end, _DRAWN):
                writer.write_table(table.slice(0, end - start))


def _questions(spec: TableSpec) -> Iterator[tuple[str, _Asked]]:
    """The dearest questions of each kind, and what they ask of the records."""
    shape = tuple(attribute.length for attribute in spec.attributes)
    pairs = [(a, b) for a in range(len(shape)) for b in range(a) if shape[a] * shape[b] <= MOST_CLASSES]
    if pairs:
        yield "all that an opening counts of two attributes", covering([_by(sorted(pair), shape) for pair in pairs])
    wide = _widest(shape, range(len(shape)))
    yield f"a table of {math.prod(shape[axis] for axis in wide):,} cells", [_by(wide, shape)]
    halves = [np.arange(length) < length / 2 for length in shape[: MOST_CLASSES.bit_length() - 1]]
    cells = tuple(Partition.of(half.astype(np.int64)) for half in halves)
    together = CellCounts(tuple(range(len(cells))), cells, tuple(each.cells for each in cells))
    yield f"a condition on {len(cells)} attributes", [together]
    numbers = [axis for axis, attribute in enumerate(spec.attributes) if attribute.kind == "numbers"]
    if numbers:
        of = max(numbers, key=lambda axis: shape[axis])
        groups = _widest(shape, [axis for axis in range(len(shape)) if axis != of])
        weighed = replace(_by(groups, shape), factors=((of, np.arange(spec.attributes[of].places)),))
        summed = classes_of(weighed, shape)
        assert summed is not None
        yield f"sums of {spec.attributes[of].name} by {math.prod(_sizes(groups, shape)):,} groups", [summed]


def _widest(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """Attributes that make as many cells together as are told apart."""
    chosen: list[int] = []
    for axis in sorted(axes, key=lambda axis: -shape[axis]):
        if math.prod(shape[each] for each in (*chosen, axis)) <= MOST_CLASSES:
            chosen.append(axis)
    return tuple(sorted(chosen))


def _by(axes: Sequence[int], shape: Sequence[int]) -> CellCounts:
    return CellCounts(tuple(axes), (None,) * len(axes), _sizes(axes, shape))


def _sizes(axes: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(shape[axis] for axis in axes)
