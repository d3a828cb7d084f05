"""Exports: replies that are longer than what may wait in memory for who reads slowly.

What takes memory is making one: the state of a session is remade, and let go as soon as the reply is written. What is
read, for as long as that takes, lies in a file that has no name, and a little of it in memory.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.lib import format as npy
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from app.constructions.base import DenseHypothesis, Hypothesis
from app.http import bodies
from app.http.heavy import Work
from app.services.errors import TooManyRequests, Unavailable

#: Exports of one principal at a time, those that wait to be made included.
READERS = 16
#: Bytes that are sent at a time, and that stay in memory of an export before it goes to a file.
PART, KEPT = 1 << 16, 1 << 17
#: What an export takes in memory while it is read: what is kept, the rest of a page, what the connection holds.
READER_BYTES = 3 << 18
#: After how long somebody without room may come again.
RETRY_SECONDS = 5
#: How often who waits for memory looks whether anybody still waits for him.
LOOK_SECONDS = 0.1
#: Cells and elements that are turned into a reply's bytes at a time.
_ROWS = 1 << 16


class Shelf:
    """Room for all exports of a process: in memory, on disk, and so many of each principal. For all threads.

    Half of the memory is for those that are read, half for those that are made. Who makes one waits until there is
    memory; when no other is being made there always is, as the largest session must have its hypothesis shown. Of what
    those that are read take, in memory and on disk, a principal gets no more than half, or else one.

    Args:
        folder: where files are. They have no names there, and are gone with the process.
        memory: bytes.
        disk: bytes.
        refused: called with the reason, ``exports``, of each that is refused.
    """

    def __init__(self, folder: Path, memory: int, disk: int, refused: Callable[[str], None]) -> None:
        self._folder, self._disk, self._refused = folder, disk, refused
        self._places = max(1, memory // 2 // READER_BYTES)
        self._each = max(1, min(READERS, self._places // 2))
        self._free, self._making = memory // 2, 0
        self._changed = threading.Condition()
        #: Who waits for memory, who came first in front.
        self._waiting: deque[object] = deque()
        self._readers: Counter[str] = Counter()
        self._on_disk: Counter[str] = Counter()

    def open(self, principal: str) -> Export:
        """A place for one export, which its owner closes.

        Raises:
            TooManyRequests: when the principal has as many as may be.
            Unavailable: when all have.
        """
        with self._changed:
            if self._readers[principal] >= self._each:
                self._refused("exports")
                raise TooManyRequests(
                    f"{self._each} of your exports are under way: read one to its end, or hang up", RETRY_SECONDS
                )
            if self._readers.total() >= self._places:
                raise self._full()
            self._readers[principal] += 1
        return Export(self, principal, self._folder)

    def close(self, principal: str) -> None:
        """Give a place back."""
        with self._changed:
            self._readers[principal] -= 1
            self._readers += Counter()  # without those that have none

    def take(self, size: int, check: Callable[[], None]) -> float:
        """Wait for memory to make an export, those who came first before, and take it; how many seconds that took.

        ``check`` is called now and then; what it raises ends the wait.
        """
        me, began = object(), time.monotonic()
        with self._changed:
            self._waiting.append(me)
            try:
                while self._waiting[0] is not me or (self._making and size > self._free):
                    check()
                    self._changed.wait(LOOK_SECONDS)
                self._making += 1
                self._free -= size
            finally:
                self._waiting.remove(me)
                self._changed.notify_all()
        return time.monotonic() - began

    def give_back(self, size: int) -> None:
        """Give back what was taken once."""
        with self._changed:
            self._making -= 1
            self._free += size
            self._changed.notify_all()

    def store(self, principal: str, size: int, held: int) -> None:
        """Take room on disk for an export that holds so much already.

        Raises:
            Unavailable: when there is none.
        """
        with self._changed:
            mine = self._on_disk[principal] + size
            if self._on_disk.total() + size > self._disk or (2 * mine > self._disk and mine > held + size):
                raise self._full()
            self._on_disk[principal] = mine

    def clear(self, principal: str, size: int) -> None:
        """Give room on disk back."""
        with self._changed:
            self._on_disk[principal] -= size
            self._on_disk += Counter()

    def _full(self) -> Unavailable:
        self._refused("exports")
        return Unavailable("exports that are being read take all the room there is: send again later", RETRY_SECONDS)


class Export:
    """One export: made, then read. One thread at a time."""

    def __init__(self, shelf: Shelf, principal: str, folder: Path) -> None:
        self._shelf, self._principal, self._folder = shelf, principal, folder
        self._file: Any = None
        self._taken: int | None = None
        self._stored = self.size = 0
        self._closed = False

    def take(self, work: Work, size: int) -> None:
        """Take memory for making it, once, until :meth:`made`; see :meth:`Shelf.take`."""
        work.idle += self._shelf.take(size, work.check)
        self._taken = size

    def made(self) -> None:
        """What was taken for making it is free."""
        if self._taken is not None:
            self._shelf.give_back(self._taken)
            self._taken = None

    def write(self, data: Any) -> int:
        """Add bytes at the end.

        Raises:
            Unavailable: when there is no room on disk for what does not stay in memory.
        """
        data = memoryview(data).cast("B")
        size = self.size + len(data)
        if size > KEPT and size > self._stored:
            self._shelf.store(self._principal, size - self._stored, self._stored)
            self._stored = size
        try:
            if self._file is None:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._file = tempfile.SpooledTemporaryFile(KEPT, dir=str(self._folder))  # noqa: SIM115 - it outlives this
            self._file.write(data)
        except OSError:
            raise Unavailable("there is no room on the disk for an export: send again later", RETRY_SECONDS) from None
        self.size = size
        return len(data)

    def parts(self) -> Iterator[bytes]:
        """What was written, in parts; the export is empty afterwards."""
        if self._file is not None:
            self._file.seek(0)
            while part := self._file.read(PART):
                yield part
        self._empty()

    def close(self) -> None:
        """Give back all that it holds. It may be closed again."""
        if not self._closed:
            self._closed = True
            self.made()
            self._empty()
            self._shelf.close(self._principal)

    def _empty(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._shelf.clear(self._principal, self._stored)
        self._stored = self.size = 0


class _Sink:
    """An export as a file that libraries write to, and may think that they have closed."""

    closed = False

    def __init__(self, export: Export) -> None:
        self.write = export.write

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """It is not theirs."""


class ExportResponse(StreamingResponse):
    """Sends an export, part by part as the client takes them, and closes it however that ends."""

    def __init__(self, export: Export, content: AsyncIterator[bytes], headers: Mapping[str, str], media_type: str):
        super().__init__(content, headers=headers, media_type=media_type)
        self._export = export

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._export.close()


def whole(export: Export, headers: Mapping[str, str], media_type: str) -> ExportResponse:
    """The reply of an export that is written to its end."""
    length = {"Content-Length": str(export.size)}
    return ExportResponse(export, _in_turn(export), {**headers, **length}, media_type)


async def _in_turn(export: Export) -> AsyncIterator[bytes]:
    parts = export.parts()
    while part := await run_in_threadpool(next, parts, b""):
        yield part


class Lines:
    """Lines that are written to an export a page at a time, the next when the last has been taken."""

    def __init__(self, export: Export, lines: Iterator[bytes]) -> None:
        self._export, self._lines = export, lines

    def fill(self) -> bool:
        """Write a page, or one line that is longer; False at the end."""
        export = self._export
        for line in self._lines:
            export.write(line)
            if export.size >= KEPT:
                break
        return export.size > 0

    async def sent(self, turn: Any) -> AsyncIterator[bytes]:
        """The bytes of all pages, of which the first has been written. ``turn`` is held while one is."""
        more = True
        while more:
            async for part in _in_turn(self._export):
                yield part
            async with turn:
                more = await run_in_threadpool(self.fill)


# ---------------------------------------------------------------------- hypotheses


def write_hypothesis(
    sink: Export,
    hypothesis: Hypothesis,
    names: Iterable[str],
    media_type: str,
    facts: Mapping[str, str],
    check: Callable[[], None],
) -> None:
    """Write a hypothesis block by block.

    Args:
        sink: where to.
        hypothesis: what.
        names: of its axes.
        media_type: an array (.npy) or a table, of which ``facts`` become the metadata.
        facts: about it.
        check: called before each block; what it raises ends the work.
    """
    if isinstance(hypothesis, DenseHypothesis) and media_type == bodies.NPY:
        _write_array(sink, hypothesis.array, check)
        return
    if isinstance(hypothesis, DenseHypothesis):
        blocks, schema = _cells(hypothesis.array, tuple(names))
    else:
        blocks, schema = _elements(hypothesis)
    schema = schema.with_metadata(facts)
    file = pa.PythonFile(_Sink(sink), mode="w")
    writer: Any = pq.ParquetWriter(file, schema) if media_type == bodies.PARQUET else pa.ipc.new_stream(file, schema)
    with writer:
        for block in blocks:
            check()
            writer.write_batch(pa.record_batch(block, schema=schema))


def _write_array(sink: Export, array: Any, check: Callable[[], None]) -> None:
    npy.write_array_header_1_0(sink, {"descr": "<f8", "fortran_order": False, "shape": array.shape})
    if not array.size:
        return
    # Whatever the array's order in memory, in the order of its cells and without a copy of all.
    blocks: Any = np.nditer(array, ["external_loop", "buffered"], ["readonly"], "<f8", "C", buffersize=_ROWS)
    for block in blocks:
        check()
        sink.write(np.ascontiguousarray(block))


def _cells(array: Any, names: tuple[str, ...]) -> tuple[Iterator[list[Any]], pa.Schema]:
    """One row a cell: its code along every axis, and its count."""
    count = "count"
    while count in names:
        count += "_"
    schema = pa.schema([*((name, pa.int32()) for name in names), (count, pa.float64())])

    def blocks() -> Iterator[list[Any]]:
        for start in range(0, array.size, _ROWS):
            codes = np.unravel_index(np.arange(start, min(start + _ROWS, array.size)), array.shape)
            yield [*(code.astype(np.int32) for code in codes), array[codes]]

    return blocks(), schema


def _elements(hypothesis: Any) -> tuple[Iterator[list[Any]], pa.Schema]:
    """One row an element that is told apart."""
    elements, counts = hypothesis.elements, hypothesis.counts
    schema = pa.schema([("element", pa.large_string()), ("count", pa.float64())])
    ranges = (slice(start, start + _ROWS) for start in range(0, len(elements), _ROWS))
    return ([elements[part], counts[part]] for part in ranges), schema
