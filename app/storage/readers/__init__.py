"""Readers: uploaded files become private arrays.

One module a kind of data (``tables``, ``edges``, ``matrices``, ``multisets``) over those that know file formats
(``columns`` for CSV, text and Parquet, ``excel``, ``named`` for any of these whose columns are found by their names;
``arrays`` for .npy and .npz; ``encodings``). ``coders`` knows how values of a table are written, ``report`` what became
of its records, ``codes`` writes those that are too many for memory, ``summaries`` what the columns of a file hold, for
drafts. Whatever is wrong with a file is an ``InvalidDataset`` that names the row and attribute and says what to change.
No message carries a value, and none is chained to a parser's own.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from app.declarations.drafts import ColumnSummary, Layout
from app.declarations.errors import InvalidDataset
from app.declarations.spec import BipartiteSpec, GraphSpec, MatrixSpec, MultisetSpec, Spec, TableSpec
from app.storage.private_data import PrivateData
from app.storage.readers.codes import Sealing
from app.storage.readers.edges import has_weights, read_edges
from app.storage.readers.matrices import read_matrix
from app.storage.readers.multisets import read_multiset
from app.storage.readers.report import Report
from app.storage.readers.summaries import column_names as _column_names
from app.storage.readers.summaries import summarise as _summarise
from app.storage.readers.tables import read_table

__all__ = [
    "FORMATS",
    "Read",
    "Readers",
    "column_names",
    "has_weights",
    "read_private",
    "summarise",
]

FORMATS = (".csv", ".tsv", ".txt", ".xlsx", ".parquet", ".npy", ".npz")


@dataclass(frozen=True, eq=False, repr=False)
class Read:
    """The contents of a file; of a table, and of a graph with a unit, with what became of its records."""

    data: PrivateData
    report: Report | None = None


class Readers(Protocol):
    """Whoever reads uploads: this module, or a process in its place. Each function is what its namesake here is."""

    def read_private(self, spec: Spec, filename: str, path: Path, *, memory_limit: int) -> Read:
        """The private array that a file holds."""

    def has_weights(self, filename: str, path: Path) -> bool:
        """Whether an edge list has a third column."""

    def column_names(self, filename: str, path: Path, layout: Layout, *, memory_limit: int) -> tuple[str, ...] | None:
        """Names of the columns of a table's file; None for an array."""

    def summarise(self, filename: str, path: Path, layout: Layout, *, memory_limit: int) -> tuple[ColumnSummary, ...]:
        """Summaries of the columns that the layout names."""


def read_private(spec: Spec, filename: str, path: Path, *, memory_limit: int, sealing: Sealing | None = None) -> Read:
    """The private array that the file at ``path`` holds for the data set ``spec`` declares.

    Number types follow from what is declared, never from the data.

    Args:
        spec: what is declared of the data set.
        filename: the name the file was uploaded under, whose ending tells the format.
        path: where it lies.
        memory_limit: bytes that the result may take.
        sealing: how the records of a table are written that are too many for memory; None where they are refused.

    Raises:
        InvalidDataset: when the file is not what is declared; then nothing is kept.
        Unwritable: when the disk refuses what is written.
    """
    suffix = _suffix(filename, path)
    match spec:
        case TableSpec():
            return Read(*read_table(spec, suffix, [path], memory_limit, sealing))
        case BipartiteSpec() | GraphSpec():
            return Read(*read_edges(spec, suffix, path, memory_limit))
        case MatrixSpec():
            return Read(read_matrix(spec, suffix, path, memory_limit))
        case MultisetSpec():
            return Read(read_multiset(spec, suffix, path, memory_limit))


def column_names(filename: str, path: Path, layout: Layout, *, memory_limit: int) -> tuple[str, ...] | None:
    """Names of the columns of a table's file; None for an array of counts. Arguments as for :func:`read_private`.

    Raises:
        InvalidDataset: when the file's name or its beginning tells no table.
    """
    return _column_names(_suffix(filename, path), path, layout, memory_limit)


def summarise(filename: str, path: Path, layout: Layout, *, memory_limit: int) -> tuple[ColumnSummary, ...]:
    """Summaries of the columns that the layout names. Arguments as for :func:`read_private`.

    Raises:
        InvalidDataset: when the file cannot be read to its end.
    """
    return _summarise(_suffix(filename, path), path, layout, memory_limit)


def _suffix(filename: str, path: Path) -> str:
    """The ending of a file's name, which tells its format."""
    suffix = Path(filename).suffix.lower()
    if suffix not in FORMATS:
        raise InvalidDataset(f"the file's name must end in one of {', '.join(FORMATS)}: that tells its format")
    if not path.stat().st_size:
        raise InvalidDataset("the file is empty")
    return suffix
