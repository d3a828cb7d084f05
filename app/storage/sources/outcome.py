"""What a source tells at its registration, and what refuses it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import BytesIO
from typing import Any, TypeVar

import numpy as np
import structlog
from numpy.typing import NDArray

from app.declarations.errors import InvalidDataset
from app.declarations.spec import DEFAULT_CAPACITY, TableSpec, elsewhere, parse_spec, written
from app.services.errors import SourceUnavailable
from app.spaces.asked import MOST_CLASSES
from app.spaces.counts import CellCounts
from app.storage.private_data import CodesData, DenseData, RecordsData, SourceData
from app.storage.readers.report import Report, Tally, counted
from app.storage.readers.tables import MOST_COUNTED
from app.storage.readers.types import integer_type
from curator_client.proofs.commitment import FileDigest

logger = structlog.get_logger(__name__)

_Table = TypeVar("_Table")


@dataclass(frozen=True, eq=False, repr=False)
class CountedSource:
    """What a source told at its registration.

    Attributes:
        data: a table of counts; where the cells are too many for one what is needed to ask for some later, or of a
            source that was prepared the records themselves.
        report: what became of the records.
        identity: of what says which records they were.
    """

    data: DenseData | SourceData | RecordsData | CodesData
    report: Report
    identity: FileDigest


def too_slow(seconds: float) -> SourceUnavailable:
    """What is told when records are not counted in the time that there is."""
    return SourceUnavailable(
        f"to count this takes longer than the {seconds:g} s it may: ask for less, or have the operator "
        "raise CURATOR_SOURCE_DEADLINE_SECONDS",
        retry_after=60,
    )


def unreachable(connection: str, error: str, what: str = "database") -> SourceUnavailable:
    """What is told when a database cannot be asked, and what is logged of it: the class of an error, and no text."""
    logger.error("a source cannot be asked", connection=connection, error=error)
    return SourceUnavailable(
        f"the {what} that has the data set's records cannot be asked: an operator must look", retry_after=60
    )


class Moved(Exception):
    """Files are not what they were at registration."""


def asking(
    about: bytes,
    opened: Callable[[TableSpec], AbstractContextManager[_Table]],
    count: Callable[[_Table, Sequence[CellCounts], Sequence[int], Sequence[int]], Sequence[NDArray[np.int64]]],
) -> Callable[[Sequence[CellCounts]], NDArray[np.int64]]:
    """What asks a registered table of a database for the numbers of counts by classes, one after another.

    Args:
        about: what :class:`~app.storage.private_data.SourceData` has of it.
        opened: the table of a declaration. It raises InvalidDataset when that is not there any more.
        count: what is asked of it, by the keys of its records' hashes, and what these add up to. It raises Moved when
            they add up to something else.
    """
    what = json.loads(about)
    spec = parse_spec(what["spec"])
    assert isinstance(spec, TableSpec)

    def ask(asked: Sequence[CellCounts]) -> NDArray[np.int64]:
        try:
            with opened(spec) as table:
                return np.concatenate(count(table, asked, what["keys"], what["identity"]))
        except InvalidDataset:
            raise Moved from None

    return ask


def of_all(told: Sequence[tuple[NDArray[np.int64], int]], records: int) -> list[NDArray[np.int64]]:
    """The numbers of counts, each of which was of so many records.

    Raises:
        RuntimeError: when one was of others.
    """
    if any(counted != records for _, counted in told):
        raise RuntimeError("the engine told of another number of records")
    return [numbers for numbers, _ in told]


def digest_of(identity: Any) -> FileDigest:
    """The digest of JSON that says which records they were."""
    return FileDigest.of(BytesIO(json.dumps(identity).encode()))


class DeclaredSource:
    """A declared table at its registration: what is to be counted of it, and what comes of that.

    Attributes:
        spec: what is declared.
        shape: how many values each attribute has.
        every: counts of all cells.
        whole: whether these are few enough to be counted at once.
        report: what becomes of the records.

    Raises:
        InvalidDataset: naming an attribute of which not all values can be told apart, where the cells are too many.
    """

    def __init__(self, spec: TableSpec) -> None:
        self.spec, self.shape = spec, tuple(attribute.length for attribute in spec.attributes)
        self.every = CellCounts(tuple(range(len(self.shape))), (None,) * len(self.shape), self.shape)
        self.whole = math.prod(self.shape) <= MOST_COUNTED
        self.report = Report([])
        self.report.attributes = {attribute.name: Tally() for attribute in spec.attributes}
        for attribute in () if self.whole else spec.attributes:
            if attribute.length > MOST_CLASSES:
                raise InvalidDataset(
                    f'source: attribute "{attribute.name}" has {attribute.length:,} values, and of a table as wide as '
                    f"this at most {MOST_CLASSES:,} are told apart: declare bins, or {elsewhere(spec.source)}",
                    attribute=attribute.name,
                )

    @property
    def capacity(self) -> int:
        """The most records that there may be."""
        return self.spec.capacity or DEFAULT_CAPACITY

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of counts."""
        return integer_type(0, self.capacity)

    def outcome(self, counts: NDArray[np.int64], identity: Any, about: Mapping[str, Any]) -> CountedSource:
        """The outcome, once all records were looked through.

        Args:
            counts: of all cells, flat; of no use where they are too many.
            identity: what the records are known again by.
            about: what is needed to ask for some counts later.

        Raises:
            InvalidDataset: when the report shows the records to be no such table.
        """
        _check(self.report, self.capacity)
        digest = digest_of(identity)
        kept = self.report.kept
        if self.whole:
            return CountedSource(DenseData(counts.astype(self.dtype).reshape(self.shape), kept), self.report, digest)
        told = json.dumps({"spec": written(self.spec), **about}).encode()
        return CountedSource(SourceData(np.frombuffer(told, np.uint8), kept), self.report, digest)


def _check(report: Report, capacity: int) -> None:
    """Refuse what the counts show to be no data set.

    Raises:
        InvalidDataset: with the number of values outside, by attribute.
    """
    if report.outside:
        raise InvalidDataset(
            f"values are outside the declared domain: {counted(report.outside)}. Correct them, widen the "
            'domain, or declare "outside": "clamp" of numbers and dates',
            outside=dict(report.outside),
        )
    if not report.read:
        raise InvalidDataset("the files or the table of the source hold no records")
    if report.kept > capacity:
        raise InvalidDataset(f"there are more records than the declared capacity of {capacity}")
