"""Tables that are copied into memory once, and read from there as an upload is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from app.declarations.errors import InvalidDataset
from app.declarations.spec import TableSpec, published
from app.storage.private_data import CodesData, DenseData, RecordsData
from app.storage.readers import Readers
from app.storage.sources.outcome import CountedSource
from curator_client.proofs.commitment import FileDigest


@contextmanager
def copying() -> Iterator[IO[bytes]]:
    """A file in memory, which no disk sees."""
    with open(os.memfd_create("table", os.MFD_CLOEXEC), "w+b") as memory:
        yield memory


def check_room(size: int, most: int) -> None:
    """Refuse a copy that is longer than it may be, in bytes.

    Raises:
        InvalidDataset: when it is.
    """
    if size > most:
        raise InvalidDataset(
            f"source: the copy of the table takes more memory than the limit of {most:,} bytes: declare fewer "
            "attributes, or raise CURATOR_MEMORY_LIMIT"
        )


def read_copy(
    readers: Readers, spec: TableSpec, memory: IO[bytes], filename: str, memory_limit: int, *nulls: str
) -> CountedSource:
    """The records of a copy, whose columns are called as the attributes.

    Args:
        readers: read it.
        spec: what is declared of the source.
        memory: the copy.
        filename: whose suffix tells its format.
        memory_limit: bytes that the result may take.
        nulls: what stands for null beside what is declared.

    Raises:
        InvalidDataset: when records are not what is declared, or take more memory than there is.
    """
    memory.flush()
    words = (*(spec.null_values or ()), *nulls) or None
    plain = published(spec).model_copy(update={"source": None, "null_values": words})
    path = Path(f"/proc/self/fd/{memory.fileno()}")
    read = readers.read_private(plain, filename, path, memory_limit=memory_limit)
    assert isinstance(read.data, DenseData | RecordsData | CodesData)
    assert read.report is not None
    with path.open("rb") as copied:
        return CountedSource(read.data, read.report, FileDigest.of(copied))
