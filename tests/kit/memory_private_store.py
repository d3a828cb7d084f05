"""A private store in memory, for tests of services: it passes the contract of tests/storage/test_private_store.py.

It reads one kind of upload: counts of a table or matrix as a ``.npy`` file.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import io
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from app.declarations.drafts import ColumnSummary, Layout, Numbers
from app.declarations.errors import InvalidDataset
from app.declarations.spec import Spec, TableSpec
from app.services.errors import Unavailable
from app.services.ports import Upload
from app.services.registered import RegisteredCounts
from app.spaces.factory import space_of
from app.spaces.space import Space
from curator_client.proofs.commitment import FileDigest


class MemoryPrivateStore:
    """See :class:`app.services.ports.PrivateStore`.

    Attributes:
        files: the numbers by file name; a test that takes one out has lost the file.
    """

    def __init__(self) -> None:
        self.files: dict[str, Any] = {}
        self._marks: dict[str, set[bytes]] = {}
        self._keys: dict[str, bytes | None] = {}
        self._numbers = itertools.count(1)
        self._registrations = 0
        self._lock = threading.Lock()

    def count_source(self, spec: TableSpec) -> Upload:
        raise InvalidDataset("source: there are no files here")

    def read_upload(self, spec: Spec, filename: str, path: Path) -> Upload:
        try:
            array = np.load(path, allow_pickle=False)
        except (ValueError, OSError, EOFError):
            raise InvalidDataset("the file is no array of numbers") from None
        if array.shape != space_of(spec).shape:
            raise InvalidDataset("the array has another shape than the data set")
        content = array.tobytes() + str((array.dtype, array.shape)).encode()
        file = FileDigest.of(io.BytesIO(path.read_bytes()))
        marks = {"upload": file.sha256, "numbers": hashlib.sha256(content).digest()}
        records = int(np.abs(array).sum())
        report = {"read": records, "kept": records, "dropped": 0, "clamped": 0, "attributes": {}}
        return Upload(spec, float(np.abs(array).sum()), file, array, marks, report if spec.kind == "table" else None)

    def columns(self, filename: str, path: Path, layout: Layout) -> tuple[str, ...] | None:
        if filename.endswith(".npy"):
            return None
        return tuple(path.read_text().splitlines()[0].split(","))

    def summarise(self, filename: str, path: Path, layout: Layout) -> tuple[ColumnSummary, ...]:
        rows = list(csv.DictReader(path.read_text().splitlines()))
        return tuple(_summary(name, [row[name].strip() for row in rows]) for name in layout.names)

    @contextmanager
    def registration(self) -> Iterator[None]:
        with self._lock:
            self._registrations += 1
        try:
            yield
        finally:
            with self._lock:
                self._registrations -= 1

    def put(self, name: str, upload: Upload, key: bytes | None = None) -> dict[str, str]:
        if not self._registrations:
            raise RuntimeError("outside of a registration a sweep could remove the file")
        file = f"{name}.{next(self._numbers)}"
        self.files[file] = upload.data
        self._marks[file] = set(upload.contents.values())
        self._keys[file] = key
        return {"file_name": file}

    def commitment_key(self, entry: dict[str, str]) -> bytes | None:
        self.check(entry)
        return self._keys[entry["file_name"]]

    def alike(self, upload: Upload, entry: dict[str, str]) -> bool:
        return not self._marks[entry["file_name"]].isdisjoint(upload.contents.values())

    def counts(self, space: Space, entry: dict[str, str]) -> RegisteredCounts:
        self.check(entry)
        return RegisteredCounts(space.tensor(self.files[entry["file_name"]]), lambda: self.check(entry))

    def check(self, entry: dict[str, str]) -> None:
        if entry["file_name"] not in self.files:
            raise Unavailable("the data set's private file is missing", retry_after=60)

    def forget(self, entry: dict[str, str]) -> None:
        pass

    def destroy(self, entry: dict[str, str]) -> None:
        self.files.pop(entry["file_name"], None)

    def sweep(self, known: Callable[[], Iterable[str]]) -> None:
        with self._lock:
            if self._registrations:
                return
            keep = set(known())
            for name in [name for name in self.files if name not in keep]:
                del self.files[name]


def _summary(name: str, cells: list[str]) -> ColumnSummary:
    """What a column of plain cells holds: numbers with a point, days, or texts, one by one."""
    filled = [cell for cell in cells if cell]
    numbers = dates = None
    try:
        values = sorted({float(cell) for cell in filled})
        decimals = max(len(cell.partition(".")[2].rstrip("0")) for cell in filled)
        numbers = Numbers(values[0], values[-1], decimals, tuple(values) if len(values) <= 100 else None)
    except ValueError:
        pass
    try:
        days = [datetime.date.fromisoformat(cell) for cell in filled]
        dates = min(days), max(days)
    except ValueError:
        pass
    labels = tuple(sorted(set(filled)))
    return ColumnSummary(
        name, len(filled), len(filled) < len(cells), labels if len(labels) <= 100 else None, numbers, dates
    )
