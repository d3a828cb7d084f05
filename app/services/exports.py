"""Room for exports: replies too long to wait in memory for a client that reads slowly.

Making an export takes memory, as a session's state is rebuilt for it; that memory is free again as soon as the export
is written. Reading it may take as long as the client likes: meanwhile it lies in a file without a name, and a little of
it in memory.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from app.services.errors import TooManyRequests, Unavailable

#: Most exports of one principal at a time, including those that wait to be made.
MOST_EACH = 16
#: Bytes that are read from an export at a time.
PART = 1 << 16
#: Bytes that an export keeps in memory before it goes to a file.
KEPT = 1 << 17
#: Bytes of memory that an export takes while it is read: what is kept, the rest of a page, what the connection holds.
READER_BYTES = 3 << 18
#: Seconds after which a request that found no room may come again.
RETRY_SECONDS = 5
#: Seconds between two calls of ``check`` while an export waits for memory.
CHECK_SECONDS = 0.1


class ExportSpace:
    """Memory, disk and number of a process' exports, shared among principals. Safe for threads.

    Half of the memory is for exports that are read, half for those that are made. An export waits until there is memory
    to make it. When no other is being made there always is: the hypothesis of the largest session must be had, too. Of
    the memory and the disk for exports that are read, a principal gets at most half, unless it has only one export.

    Args:
        folder: where files are made. They have no names there, and are gone with the process.
        memory: bytes.
        disk: bytes.
        refused: called with the reason, ``exports``, of each that is refused.
    """

    def __init__(self, folder: Path, memory: int, disk: int, refused: Callable[[str], None]) -> None:
        self._folder, self._disk, self._refused = folder, disk, refused
        self._most = max(1, memory // 2 // READER_BYTES)
        self._most_each = max(1, min(MOST_EACH, self._most // 2))
        self._free, self._making = memory // 2, 0
        self._changed = threading.Condition()
        #: Exports that wait for memory, in the order in which they came.
        self._waiting: deque[object] = deque()
        self._open: Counter[str] = Counter()
        self._on_disk: Counter[str] = Counter()

    def open(self, principal: str) -> Export:
        """A new export, which the caller closes.

        Raises:
            TooManyRequests: when the principal has as many as it may.
            Unavailable: when all principals together have.
        """
        with self._changed:
            if self._open[principal] >= self._most_each:
                self._refused("exports")
                raise TooManyRequests(
                    f"{self._most_each} of your exports are under way: read one to its end, or hang up", RETRY_SECONDS
                )
            if self._open.total() >= self._most:
                raise self._full()
            self._open[principal] += 1
        return Export(self, principal, self._folder)

    def closed(self, principal: str) -> None:
        """Count one export of a principal less."""
        with self._changed:
            self._open[principal] -= 1
            self._open += Counter()  # drops principals that have none

    def reserve_memory(self, size: int, check: Callable[[], None]) -> float:
        """Wait for memory to make an export, first come, first served, and reserve it.

        Args:
            size: bytes.
            check: called now and then while it waits; what it raises ends the wait.

        Returns:
            The seconds that it waited.
        """
        me, began = object(), time.monotonic()
        with self._changed:
            self._waiting.append(me)
            try:
                while self._waiting[0] is not me or (self._making and size > self._free):
                    check()
                    self._changed.wait(CHECK_SECONDS)
                self._making += 1
                self._free -= size
            finally:
                self._waiting.remove(me)
                self._changed.notify_all()
        return time.monotonic() - began

    def release_memory(self, size: int) -> None:
        """Release what :meth:`reserve_memory` reserved."""
        with self._changed:
            self._making -= 1
            self._free += size
            self._changed.notify_all()

    def reserve_disk(self, principal: str, size: int, held: int) -> None:
        """Reserve disk for an export that holds ``held`` bytes of it already.

        Raises:
            Unavailable: when there is not enough.
        """
        with self._changed:
            mine = self._on_disk[principal] + size
            if self._on_disk.total() + size > self._disk or (2 * mine > self._disk and mine > held + size):
                raise self._full()
            self._on_disk[principal] = mine

    def release_disk(self, principal: str, size: int) -> None:
        """Release what :meth:`reserve_disk` reserved."""
        with self._changed:
            self._on_disk[principal] -= size
            self._on_disk += Counter()

    def _full(self) -> Unavailable:
        self._refused("exports")
        return Unavailable("exports that are being read take all the room there is: send again later", RETRY_SECONDS)


class Export:
    """One export: written, then read. For one thread at a time."""

    def __init__(self, space: ExportSpace, principal: str, folder: Path) -> None:
        self._space, self._principal, self._folder = space, principal, folder
        self._file: Any = None
        self._memory: int | None = None
        self._stored = self.size = 0
        self._closed = False

    def reserve_memory(self, size: int, check: Callable[[], None]) -> float:
        """Reserve memory for making it, once, until :meth:`release_memory`; see :meth:`ExportSpace.reserve_memory`."""
        waited = self._space.reserve_memory(size, check)
        self._memory = size
        return waited

    def release_memory(self) -> None:
        """Release the memory for making it."""
        if self._memory is not None:
            self._space.release_memory(self._memory)
            self._memory = None

    def write(self, data: Any) -> int:
        """Add bytes at the end.

        Raises:
            Unavailable: when there is no room on disk for what does not stay in memory.
        """
        data = memoryview(data).cast("B")
        size = self.size + len(data)
        if size > KEPT and size > self._stored:
            self._space.reserve_disk(self._principal, size - self._stored, self._stored)
            self._stored = size
        try:
            if self._file is None:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._file = tempfile.SpooledTemporaryFile(KEPT, dir=str(self._folder))  # noqa: SIM115 - closed in _empty
            self._file.write(data)
        except OSError:
            raise Unavailable("there is no room on the disk for an export: send again later", RETRY_SECONDS) from None
        self.size = size
        return len(data)

    def parts(self) -> Iterator[bytes]:
        """The written bytes, in parts of :data:`PART` bytes; the export is empty afterwards."""
        if self._file is not None:
            self._file.seek(0)
            while part := self._file.read(PART):
                yield part
        self._empty()

    def file(self) -> BinaryIO:
        """The file with the written bytes, for a process that is handed its descriptor and reads from its beginning. It
        is empty if nothing was written, and closed with this.
        """
        self.write(b"")
        self._file.rollover()
        self._file.flush()
        self._file.seek(0)
        file: BinaryIO = self._file._file
        return file

    def close(self) -> None:
        """Release all that it holds. It may be closed again."""
        if not self._closed:
            self._closed = True
            self.release_memory()
            self._empty()
            self._space.closed(self._principal)

    def _empty(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._space.release_disk(self._principal, self._stored)
        self._stored = self.size = 0
