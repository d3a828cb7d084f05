"""Sources: records that stay where they are, and are counted there.

:class:`Sources` is asked by whoever holds private data. ``compiled`` makes text of what is asked; ``parquet`` has
DuckDB run it on files of the server's own disk, which ``files`` finds, ``postgresql`` a database, ``spark`` a cluster,
and ``warehouses`` BigQuery, Snowflake or Trino.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import structlog
from numpy.typing import NDArray

from app.declarations.errors import InvalidDataset
from app.declarations.spec import DEFAULT_CAPACITY, TableSpec
from app.services.errors import SourceMoved, Unavailable
from app.spaces.counts import CellCounts
from app.spaces.tensor import IntArray
from app.storage.connection_urls import type_of
from app.storage.private_data import CodesData, RecordsData, SourceData
from app.storage.readers.sums import exact_sum
from app.storage.readers.types import integer_type
from app.storage.sources import postgresql, spark, warehouses
from app.storage.sources.drivers import DRIVERS, Place
from app.storage.sources.files import Looks
from app.storage.sources.outcome import CountedSource, Moved
from app.storage.sources.parquet import Told
from app.storage.sources.postgresql import PostgresTables
from app.storage.sources.spark import SparkTables
from app.storage.sources.warehouses import WarehouseTables

__all__ = [
    "NO_SOURCES",
    "WAREHOUSES",
    "CountedSource",
    "Engine",
    "Moved",
    "ParquetFolders",
    "Place",
    "PostgresTables",
    "Source",
    "Sources",
    "SparkTables",
    "Told",
    "WarehouseTables",
    "complaints",
    "shaped",
]


logger = structlog.get_logger(__name__)

#: The types of sources that are compiled for, and that nobody has tried.
WAREHOUSES = tuple(DRIVERS)


class Source(Protocol):
    """Whoever has records of one kind of source counted."""

    def register(self, spec: TableSpec) -> CountedSource:
        """The counts of all cells of a table whose declaration names a source, once; or where these are too many what
        is needed to ask for some.

        Raises:
            InvalidDataset: naming what is wrong with the declaration or the records, never a value.
            Unavailable: when the records cannot be counted now.
        """

    def prepare(self, spec: TableSpec) -> CountedSource:
        """The records of a table whose declaration names a source, read once as those of an upload are.

        Raises:
            InvalidDataset: naming what is wrong with the declaration or the records, never a value.
            Unavailable: when they cannot be read now.
        """

    def asking(self, about: bytes) -> Callable[[Sequence[CellCounts]], NDArray[np.int64]]:
        """What asks the records of a table that was registered: for the numbers of counts by classes, one after
        another. It raises Moved when they are not what was registered, and Unavailable when they cannot be counted now.
        """


class Engine(Protocol):
    """Whoever counts files: the module ``parquet``, or a process in its place. Each function is what its namesake there
    is.
    """

    def count_source(self, spec: TableSpec, folders: Sequence[Path], *, memory_limit: int) -> CountedSource:
        """The counts of a table whose declaration names a source, or what is needed to ask for some later."""

    def prepare_source(self, spec: TableSpec, folders: Sequence[Path], *, memory_limit: int) -> CountedSource:
        """The records of a source, read once as those of an upload are."""

    def ask_source(
        self,
        about: bytes,
        looked: Looks | None,
        folders: Sequence[Path],
        asked: Sequence[CellCounts],
        *,
        memory_limit: int,
    ) -> Told:
        """Counts of the records of a source that was registered. Raises Moved, Unavailable."""

    def ask_codes(
        self, path: Path, about: bytes, asked: Sequence[CellCounts], *, memory_limit: int
    ) -> NDArray[np.int64]:
        """Counts of the records of a file of codes. Raises Moved, Unavailable."""


class ParquetFolders:
    """Parquet files below folders of the server's own disk.

    Args:
        engine: counts them.
        folders: those below which files may be named.
        memory_limit: bytes that counting may take.
    """

    def __init__(self, engine: Engine, folders: Sequence[Path], memory_limit: int) -> None:
        self._engine, self._folders, self._memory_limit = engine, tuple(folders), memory_limit

    def register(self, spec: TableSpec) -> CountedSource:
        """See :class:`Source`."""
        return self._engine.count_source(spec, self._folders, memory_limit=self._memory_limit)

    def prepare(self, spec: TableSpec) -> CountedSource:
        """See :class:`Source`."""
        return self._engine.prepare_source(spec, self._folders, memory_limit=self._memory_limit)

    def ask_codes(self, path: Path, about: bytes, asked: Sequence[CellCounts]) -> NDArray[np.int64]:
        """Counts of the records of a file of codes, which lies anywhere. Raises Moved, Unavailable."""
        return self._engine.ask_codes(path, about, asked, memory_limit=self._memory_limit)

    def asking(self, about: bytes) -> Callable[[Sequence[CellCounts]], NDArray[np.int64]]:
        """See :class:`Source`."""
        looked: Looks | None = None

        def ask(asked: Sequence[CellCounts]) -> NDArray[np.int64]:
            nonlocal looked
            told = self._engine.ask_source(about, looked, self._folders, asked, memory_limit=self._memory_limit)
            looked = told.looks
            return told.numbers

        return ask


class Sources:
    """The records of tables that stay where they are.

    Args:
        kinds: who has those of each type of source.
        patience: how many seconds clients wait for a reply.
    """

    def __init__(self, kinds: Mapping[str, Source], patience: float = math.inf) -> None:
        self._kinds, self._patience = kinds, patience
        self._moved: dict[str, None] = {}

    @property
    def moved(self) -> list[str]:
        """The data sets whose records were not what was registered when they were asked last, in this process."""
        return [*self._moved]

    def register(self, spec: TableSpec) -> CountedSource:
        """The counts of a declared source, or what is needed to ask for some later, or its records where it is
        prepared.

        Raises:
            InvalidDataset: naming what is wrong with the declaration or the records, never a value.
            Unavailable: when what was counted are no counts of this declaration, or nothing can be counted now.
        """
        assert spec.source is not None
        if (spec.answer_seconds or 0) >= self._patience:
            raise InvalidDataset(
                f"answer_seconds: nobody waits for more than {self._patience:g} seconds here: declare fewer, or "
                "have the operator raise CURATOR_REQUEST_TIMEOUT_SECONDS"
            )
        kind = self._kinds[spec.source.type]
        found = kind.register(spec) if spec.prepare is None else kind.prepare(spec)
        if not _declared(spec, found):
            raise Unavailable("the server counted the source otherwise than it was declared: tell its operator")
        return found

    @staticmethod
    def seconds(data: SourceData) -> float:
        """After how many seconds replies leave for which records are counted; 0 where the declaration does not say."""
        return float(json.loads(data.about.tobytes())["spec"].get("answer_seconds") or 0)

    @staticmethod
    def place(data: SourceData) -> str:
        """Where it is counted: by the engine of a connection, or here where it has none."""
        return str(json.loads(data.about.tobytes())["spec"]["source"].get("connection") or "")

    def asking(self, data: SourceData) -> Callable[[Sequence[CellCounts]], list[IntArray]]:
        """What asks the records of a table, as long as they are those that were registered."""
        about = data.about.tobytes()
        spec = json.loads(about)["spec"]
        ask_for = self._kinds[spec["source"]["type"]].asking(about)

        def ask(asked: Sequence[CellCounts]) -> list[IntArray]:
            try:
                numbers = ask_for(asked)
            except Moved:
                self._moved[spec["name"]] = None
                logger.warning("the records of a data set are not what was registered", dataset=spec["name"])
                raise SourceMoved(
                    "the data set's records are not what was registered, or cannot be found: what was not counted yet "
                    "is not answered until an operator puts them back",
                    retry_after=60,
                ) from None
            self._moved.pop(spec["name"], None)
            return shaped(numbers, asked)

        return ask


def shaped(numbers: NDArray[np.int64], asked: Sequence[CellCounts]) -> list[IntArray]:
    """The numbers of counts, which were told one array after another, in their shapes.

    Raises:
        ValueError: when there are more of them, or fewer.
    """
    ends = np.cumsum([math.prod(each.shape) for each in asked])
    if len(numbers) != ends[-1]:
        raise ValueError("the source told other numbers than it was asked for")
    return [part.reshape(each.shape) for part, each in zip(np.split(numbers, ends[:-1]), asked, strict=True)]


NO_SOURCES = Sources({})


def complaints(url: str) -> Sequence[str]:
    """What is wrong with the database of a connection's URL, or with what its role may do; nothing of its own words."""
    if url.partition("://")[0] in WAREHOUSES:
        return warehouses.complaints(url)
    looks = {"postgresql": postgresql.complaints, "spark": spark.complaints}
    return looks[type_of(url)](url)


def _declared(spec: TableSpec, found: CountedSource) -> bool:
    """Whether counts are some of this declaration."""
    data, kept = found.data, found.report.kept
    if isinstance(data, SourceData):
        return data.mass == kept and spec.prepare is None
    shape = tuple(attribute.length for attribute in spec.attributes)
    if isinstance(data, CodesData):
        # Whoever asks holds places within their axes, whatever the file has.
        return data.mass == kept and spec.prepare is not None
    if isinstance(data, RecordsData):
        held = [column.shape == (kept,) and int(column.max(initial=0)) for column in data.columns]
        inside = len(held) == len(shape) and all(most < length for most, length in zip(held, shape, strict=True))
        return data.mass == kept and inside and spec.prepare is not None
    dtype = integer_type(0, spec.capacity or DEFAULT_CAPACITY)
    told = data.array.shape, data.array.dtype, exact_sum(data.array), kept
    return told == (shape, dtype, data.mass, data.mass) and bool(data.array.min() >= 0)
