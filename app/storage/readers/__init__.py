"""Readers: uploaded files become private arrays.

One module a kind of data (``tables``, ``edges``, ``matrices``, ``multisets``) over those that know file formats
(``columns`` for CSV, text and Parquet, ``excel``, ``named`` for any of these whose columns are found by their names;
``arrays`` for .npy and .npz; ``encodings``). ``coders`` knows how values of a table are written, ``report`` what became
of its records. Whatever is wrong with a file is an ``InvalidDataset`` that names the row and attribute and says what to
change. No message carries a value, and none is chained to a parser's own.
"""

from dataclasses import dataclass
from pathlib import Path

from app.spaces.errors import InvalidDataset
from app.spaces.spec import BipartiteSpec, GraphSpec, MatrixSpec, MultisetSpec, Spec, TableSpec
from app.storage.private_data import PrivateData
from app.storage.readers.edges import has_weights, read_edges
from app.storage.readers.matrices import read_matrix
from app.storage.readers.multisets import read_multiset
from app.storage.readers.report import Report
from app.storage.readers.tables import read_table

__all__ = ["FORMATS", "Read", "has_weights", "read_private"]

FORMATS = (".csv", ".tsv", ".txt", ".xlsx", ".parquet", ".npy", ".npz")


@dataclass(frozen=True, eq=False, repr=False)
class Read:
    """What a file holds, and of a table what became of its records."""

    data: PrivateData
    report: Report | None = None


def read_private(spec: Spec, filename: str, path: Path, *, memory_limit: int) -> Read:
    """The private array that the file at ``path`` holds for the data set ``spec`` declares.

    Number types follow from what is declared, never from the data.

    Args:
        spec: what is declared of the data set.
        filename: the name the file was uploaded under, whose ending tells the format.
        path: where it lies.
        memory_limit: bytes that the result may take.

    Raises:
        InvalidDataset: when the file is not what is declared; then nothing is kept.
    """
    suffix = Path(filename).suffix.lower()
    if suffix not in FORMATS:
        raise InvalidDataset(f"the file's name must end in one of {', '.join(FORMATS)}: that tells its format")
    if not path.stat().st_size:
        raise InvalidDataset("the file is empty")
    match spec:
        case TableSpec():
            return Read(*read_table(spec, suffix, path, memory_limit))
        case BipartiteSpec() | GraphSpec():
            return Read(read_edges(spec, suffix, path, memory_limit))
        case MatrixSpec():
            return Read(read_matrix(spec, suffix, path, memory_limit))
        case MultisetSpec():
            return Read(read_multiset(spec, suffix, path, memory_limit))
