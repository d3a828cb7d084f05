"""Sources: records that stay where they are, and are counted there.

:class:`Sources` is asked by whoever holds private data. ``parquet`` has DuckDB count files of the server's own disk,
which ``files`` finds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from app.declarations.spec import DEFAULT_CAPACITY, TableSpec
from app.services.errors import Unavailable
from app.spaces.counts import CellCounts
from app.spaces.tensor import IntArray
from app.storage.private_data import DenseData, SourceData
from app.storage.readers.sums import exact_sum
from app.storage.readers.types import integer_type
from app.storage.sources.files import Looks
from app.storage.sources.parquet import CountedSource, Moved, Told

__all__ = ["CountedSource", "Engine", "Moved", "Sources", "Told"]


class Engine(Protocol):
    """Whoever counts files: the module ``parquet``, or a process in its place. Each function is what its namesake there
    is.
    """

    def count_source(self, spec: TableSpec, folders: Sequence[Path], *, memory_limit: int) -> CountedSource:
        """The counts of a table whose declaration names a source, or what is needed to ask for some later."""

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


class Sources:
    """The records of tables that stay where they are.

    Args:
        engine: counts them.
        folders: those below which files may be named.
        memory_limit: bytes that counting may take.
    """

    def __init__(self, engine: Engine, folders: Sequence[Path], memory_limit: int) -> None:
        self._engine, self._folders, self._memory_limit = engine, tuple(folders), memory_limit

    def register(self, spec: TableSpec) -> CountedSource:
        """The counts of all cells of a table whose declaration names a source, once; or where these are too many what
        is needed to ask for some.

        Raises:
            InvalidDataset: naming what is wrong with the declaration or the records, never a value.
            Unavailable: when what was counted are no counts of this declaration.
        """
        found = self._engine.count_source(spec, self._folders, memory_limit=self._memory_limit)
        if not _declared(spec, found):
            raise Unavailable("the server counted the source otherwise than it was declared: tell its operator")
        return found

    def asking(self, data: SourceData) -> Callable[[Sequence[CellCounts]], list[IntArray]]:
        """What asks the records of a table, as long as they are those that were registered."""
        looked: Looks | None = None

        def ask(asked: Sequence[CellCounts]) -> list[IntArray]:
            nonlocal looked
            try:
                told = self._engine.ask_source(
                    data.about.tobytes(), looked, self._folders, asked, memory_limit=self._memory_limit
                )
            except Moved:
                raise Unavailable(
                    "the data set's records are not what was registered, or cannot be found: what was not counted yet "
                    "is not answered until an operator puts them back",
                    retry_after=60,
                ) from None
            looked = told.looks
            ends = np.cumsum([math.prod(each.shape) for each in asked])
            if len(told.numbers) != ends[-1]:
                raise ValueError("the source told other numbers than it was asked for")
            parts = np.split(told.numbers, ends[:-1])
            return [part.reshape(each.shape) for part, each in zip(parts, asked, strict=True)]

        return ask


def _declared(spec: TableSpec, found: CountedSource) -> bool:
    """Whether counts are some of this declaration."""
    data, kept = found.data, found.report.kept
    if isinstance(data, SourceData):
        return data.mass == kept
    shape = tuple(attribute.length for attribute in spec.attributes)
    dtype = integer_type(0, spec.capacity or DEFAULT_CAPACITY)
    told = data.array.shape, data.array.dtype, exact_sum(data.array), kept
    return isinstance(data, DenseData) and told == (shape, dtype, data.mass, data.mass) and bool(data.array.min() >= 0)
