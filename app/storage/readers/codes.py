"""Records of a table in a Parquet file: one column an attribute, the position of its value in as few bytes as its axis
needs. The engine that counts files where they lie counts these too (:mod:`app.storage.sources.parquet`).

With a key nothing of them touches a disk in the clear: pages and footer are under AES-256-GCM. The file has no name
until the vault gives it one, and is gone with whoever has it open. The engine reads one page of a column in each group
of rows, so that is how they are written. No statistics are written: nothing may be pruned by them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from app.declarations.spec import DEFAULT_CAPACITY, TableSpec
from app.spaces.asked import MOST_CLASSES
from app.storage.private_data import CodesData

#: Records of a group of rows: what is in memory while they are written, and while they are counted.
GROUP_ROWS = 1 << 20
#: No group of rows takes more than one page of a column.
_PAGE = 1 << 30
#: One part in so many of the memory limit is for the records of a table that are held in memory.
SHARE = 4


class Unwritable(OSError):
    """The disk refuses a file of codes."""


@dataclass(frozen=True)
class Sealing:
    """Where files of codes are written, and how.

    Attributes:
        folder: on the disk that they are written to; None for that of the system's temporary files.
        key: 32 bytes, of one file alone; None where the vault has no key either.
    """

    folder: Path | None
    key: bytes | None = field(repr=False)


def most_held(spec: TableSpec, memory_limit: int) -> int | None:
    """How many records of a table are held in memory at most, where what more there may be is written to a file; None
    where all are held.

    Public facts decide, as it shows in how questions are answered: what the declared capacity may take; or where the
    number of records is public, that. Of an attribute with more values than a file's are told apart all are held.
    """
    lengths = [attribute.length for attribute in spec.attributes]
    room = memory_limit // (SHARE * sum(dtype.itemsize for dtype in types_of(lengths)))
    if max(lengths) > MOST_CLASSES or (spec.capacity or DEFAULT_CAPACITY) <= room:
        return None
    return room if spec.mass_public else 0


@contextmanager
def writing() -> Iterator[None]:
    """A disk's errors as :class:`Unwritable`."""
    try:
        yield
    except OSError:
        raise Unwritable from None


def nameless(folder: Path | None) -> BinaryIO:
    """A new file on a disk that nobody else can open, and of which nothing is left when who has it dies.

    Raises:
        Unwritable: when the disk refuses.
    """
    with writing():
        return tempfile.TemporaryFile(dir=folder)


def types_of(lengths: Sequence[int]) -> list[np.dtype[Any]]:
    """The types of columns of positions on axes of these lengths."""
    return [np.min_scalar_type(length - 1) for length in lengths]


class CodesWriter:
    """Writes records to a file.

    Args:
        lengths: of the attributes' axes.
        sealing: where it is written, and how.
        beside: what is told beside, when they are counted.

    Raises:
        Unwritable: as everything here does, when the disk refuses.
    """

    def __init__(self, lengths: Sequence[int], sealing: Sealing, **beside: Any) -> None:
        self._about = {**beside, "lengths": list(lengths), "key": None}
        self._file = nameless(sealing.folder)
        self._columns = [np.empty(GROUP_ROWS, dtype) for dtype in types_of(lengths)]
        self._filled, self._records, self._content = 0, 0, hashlib.sha256()
        sealed = None
        if sealing.key is not None:
            from pyarrow.parquet.encryption import create_encryption_properties

            self._about["key"] = base64.b64encode(sealing.key).decode()
            sealed = create_encryption_properties(sealing.key)
        names = [f"c{position}" for position in range(len(lengths))]
        kinds = [pa.from_numpy_dtype(column.dtype) for column in self._columns]
        self._schema = pa.schema([pa.field(name, kind, False) for name, kind in zip(names, kinds, strict=True)])
        self._writer = pq.ParquetWriter(
            self._file,
            self._schema,
            encryption_properties=sealed,
            compression="zstd",
            write_statistics=False,
            store_schema=False,
            data_page_size=_PAGE,
            max_rows_per_page=_PAGE,
            dictionary_pagesize_limit=_PAGE,
        )

    def add(self, codes: Sequence[NDArray[np.integer[Any]]]) -> None:
        """Records, as the positions of their values on each axis."""
        start, number = 0, len(codes[0])
        while start < number:
            end = min(number, start + GROUP_ROWS - self._filled)
            for column, code in zip(self._columns, codes, strict=True):
                column[self._filled : self._filled + end - start] = code[start:end]
            self._filled, start = self._filled + end - start, end
            if self._filled == GROUP_ROWS:
                self._flush()

    def data(self) -> CodesData:
        """What was written."""
        self._flush()
        with writing():
            self._writer.close()
            self._file.flush()
        told = {**self._about, "records": self._records, "content": self._content.hexdigest()}
        return CodesData(np.frombuffer(json.dumps(told).encode(), np.uint8), self._records, self._file)

    def _flush(self) -> None:
        columns = [column[: self._filled] for column in self._columns]
        for column in columns:
            self._content.update(column.data)
        with writing():
            if self._filled:
                self._writer.write_table(pa.table(columns, self._schema), row_group_size=GROUP_ROWS)
        self._records, self._filled = self._records + self._filled, 0


def rewritten(data: CodesData, sealing: Sealing) -> CodesData:
    """The same records in another file, under another key.

    Raises:
        Unwritable: when the disk refuses.
    """
    from pyarrow.parquet.encryption import create_decryption_properties

    about = json.loads(data.about.tobytes())
    key = about["key"]
    opened = None if key is None else create_decryption_properties(base64.b64decode(key))
    beside = {name: about[name] for name in about if name not in ("lengths", "key", "records", "content")}
    writer = CodesWriter(about["lengths"], sealing, **beside)
    with pq.ParquetFile(data.file, decryption_properties=opened) as file:
        for group in range(file.num_row_groups):
            writer.add([column.to_numpy() for column in file.read_row_group(group).columns])
    return writer.data()
