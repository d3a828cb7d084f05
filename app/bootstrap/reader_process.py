"""Files are read in processes of their own: what a file makes a parser do ends with the process.

A process that has loaded the readers, and neither a secret nor private data, waits beside the server and forks for each
file. What is forked reads that one upload, or counts the files of one source, within its time and memory, hands over
the numbers in sealed memory, tells the rest as JSON, and ends. Nothing that it says is run, and no file is written.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import pickle
import resource
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, NoReturn

import orjson
import pyarrow as pa
import structlog
from pydantic import TypeAdapter

from app.bootstrap.nursery import LENGTH, Nursery, fork_for_each, receive, send, take
from app.bootstrap.process import limit_memory
from app.declarations.drafts import ColumnSummary, Layout
from app.declarations.errors import InvalidDataset
from app.declarations.spec import Spec, TableSpec
from app.services.errors import Unavailable
from app.storage import readers
from app.storage.private_data import DenseData, PrivateData
from app.storage.readers import CountedSource, Read
from app.storage.readers.report import Report
from app.storage.vault import VaultCorrupt, container, data_of

logger = structlog.get_logger(__name__)

#: Seconds that reading a file may take.
READ_SECONDS = 600.0
#: Bytes that reading takes beside what the memory limit is for: blocks of text, pages of Parquet.
WORKING_BYTES = 1 << 28
#: Seconds after its time in which a process must have ended.
_GRACE = 5.0
#: Bytes that a process may tell beside the numbers: a thousand columns of a hundred labels are less.
_MOST_TOLD = 1 << 28
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
_SUMMARIES = TypeAdapter(tuple[ColumnSummary, ...])
_TOO_LARGE = (
    "to read the file takes more memory than the server allows: save it in smaller groups of rows or as CSV, leave out "
    "columns, or raise CURATOR_MEMORY_LIMIT"
)
_ENDED = (
    "the process that read the file was ended: the file takes more memory than the server allows "
    "(CURATOR_MEMORY_LIMIT), or is damaged in a way that its library does not survive. Save it again, or as CSV"
)


_ENDED_COUNTING = (
    "the process that counted the source was ended: its files take more memory than the server allows "
    "(CURATOR_MEMORY_LIMIT), or are damaged in a way that the engine does not survive. Write them again, or in smaller "
    "groups of rows"
)
_COUNTS_TOO_LARGE = (
    "to count the source takes more memory than the server allows: leave out attributes, declare fewer values and "
    "bins, or raise CURATOR_MEMORY_LIMIT"
)


class ReaderFailed(Exception):
    """A reader raised what no reader should: of which type."""


class ProcessReaders:
    """Reads each upload in a process of its own; see :class:`app.storage.readers.Readers`.

    Args:
        seconds: that reading a file may take.
    """

    def __init__(self, seconds: float = READ_SECONDS) -> None:
        self._seconds = seconds

    def read_private(self, spec: Spec, filename: str, path: Path, *, memory_limit: int) -> Read:
        told, data = self._ask("read_private", path, memory_limit, spec, filename)
        if data is None:
            raise ReaderFailed("no numbers")
        return Read(data, None if told is None else Report.of(told))

    def count_source(self, spec: TableSpec, folders: Sequence[Path], *, memory_limit: int) -> CountedSource:
        told, data = self._ask("count_source", None, memory_limit, spec, tuple(folders))
        if not isinstance(data, DenseData):
            raise ReaderFailed("no counts")
        return CountedSource(data, Report.of(told["report"]), bytes.fromhex(told["identity"]))

    def has_weights(self, filename: str, path: Path) -> bool:
        return bool(self._ask("has_weights", path, 0, filename)[0])

    def column_names(self, filename: str, path: Path, layout: Layout, *, memory_limit: int) -> tuple[str, ...] | None:
        told, _ = self._ask("column_names", path, memory_limit, filename, layout)
        return None if told is None else tuple(map(str, told))

    def summarise(self, filename: str, path: Path, layout: Layout, *, memory_limit: int) -> tuple[ColumnSummary, ...]:
        told, _ = self._ask("summarise", path, memory_limit, filename, layout)
        return _SUMMARIES.validate_python(told)

    def _ask(
        self, what: str, path: Path | None, memory_limit: int, *arguments: object
    ) -> tuple[Any, PrivateData | None]:
        """A process' message, and the descriptors that it hands over.

        Raises:
            InvalidDataset: when the file is refused, or is not read within time and memory.
            Unavailable: when no process can be begun.
            ReaderFailed: when a reader raises something else.
        """
        with closing(_begun(path)) as ours:
            began = time.monotonic()
            ours.settimeout(self._seconds + _GRACE)
            try:
                send(ours, pickle.dumps((what, self._seconds, memory_limit, arguments)))
                told, memory = _received(ours)
            except (EOFError, OSError) as error:
                late = time.monotonic() - began >= self._seconds
                logger.warning("a process that read files was ended", late=late, error=type(error).__name__)
                if late and path is None:
                    raise InvalidDataset(
                        f"to count the source takes longer than the {self._seconds:g} s it may: declare fewer "
                        "attributes, values and bins, or split it into several data sets"
                    ) from None
                if late:
                    raise InvalidDataset(
                        f"to read the file takes longer than the {self._seconds:g} s it may: save it as CSV or "
                        "Parquet, or leave out what is not declared"
                    ) from None
                raise InvalidDataset(_ENDED_COUNTING if path is None else _ENDED) from None
        if "refused" in told:
            raise InvalidDataset(told["refused"], **told["extra"])
        if "failed" in told:
            logger.error("files could not be read", error=told["failed"])
            raise ReaderFailed(told["failed"])
        return told["told"], memory


_NURSERY = Nursery("app.bootstrap.reader_process")


def _begun(path: Path | None) -> socket.socket:
    """The connection to a process that is about to read an upload, or to open the files of a source itself.

    Raises:
        Unavailable: when none can be begun.
    """
    try:
        with ExitStack() as held:
            return _NURSERY.begin(*([] if path is None else [held.enter_context(path.open("rb")).fileno()]))
    except OSError as error:
        logger.error("no process can be begun that reads files", error=type(error).__name__)
    raise Unavailable("the server cannot begin to read the file: send it again later")


def _received(connection: socket.socket) -> tuple[dict[str, Any], PrivateData | None]:
    """A process' message, and the descriptors that come with it.

    Raises:
        EOFError: when it ends before, or tells what makes no sense.
    """
    head, descriptors, *_ = socket.recv_fds(connection, LENGTH.size, 1)
    try:
        if len(head) < LENGTH.size:
            raise EOFError
        (length,) = LENGTH.unpack(head)
        if length > _MOST_TOLD:
            raise EOFError
        told = orjson.loads(take(connection, length))
        return told, _handed_over(descriptors[0]) if descriptors else None
    except (orjson.JSONDecodeError, VaultCorrupt):
        raise EOFError from None
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _handed_over(descriptor: int) -> PrivateData:
    """Numbers in memory that nobody can change or cut short any more.

    Raises:
        EOFError: when somebody could.
    """
    if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
        raise EOFError
    return data_of("what was read", mmap.mmap(descriptor, os.fstat(descriptor).st_size, access=mmap.ACCESS_READ))


def _hand_over(data: PrivateData) -> int:
    """The descriptor of sealed memory with these numbers."""
    descriptor = os.memfd_create("numbers", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        for piece in container(data):
            file.write(piece)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor


# ----------------------------------------------------------------------------------- in the processes themselves


def _read(
    what: str, path: Path | None, memory_limit: int, arguments: tuple[Any, ...]
) -> tuple[dict[str, Any], list[int]]:
    """The message to send, and the descriptors that go with it."""
    try:
        if path is None:
            spec, folders = arguments
            counted = readers.count_source(spec, folders, memory_limit=memory_limit)
            told = {"report": counted.report.view(), "identity": counted.identity.hex()}
            return {"told": told}, [_hand_over(counted.data)]
        if what == "read_private":
            spec, filename = arguments
            read = readers.read_private(spec, filename, path, memory_limit=memory_limit)
            return {"told": None if read.report is None else read.report.view()}, [_hand_over(read.data)]
        if what == "has_weights":
            return {"told": readers.has_weights(arguments[0], path)}, []
        function: Callable[..., object] = readers.summarise if what == "summarise" else readers.column_names
        filename, layout = arguments
        return {"told": function(filename, path, layout, memory_limit=memory_limit)}, []
    except InvalidDataset as error:
        return {"refused": error.detail, "extra": error.extra}, []
    except MemoryError:
        return {"refused": _COUNTS_TOO_LARGE if path is None else _TOO_LARGE, "extra": {}}, []
    except Exception as error:  # noqa: BLE001 - its words may quote the file
        return {"failed": type(error).__name__}, []


def _work(connection: socket.socket, *upload: int) -> None:
    """Read one file, or those of a source, and tell of it."""
    silence = os.open(os.devnull, os.O_RDWR)
    os.dup2(silence, 2)  # a library that gives up may print what it read
    what, seconds, memory_limit, arguments = pickle.loads(receive(connection))  # noqa: S301 - from the server
    signal.setitimer(signal.ITIMER_REAL, seconds)  # ends the process, whatever a library is doing
    most = memory_limit + WORKING_BYTES
    limit_memory(most)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))  # of memory that is a file
    path = Path(f"/proc/self/fd/{upload[0]}") if upload else None
    told, descriptors = _read(what, path, memory_limit, arguments)
    send(connection, orjson.dumps(told, option=orjson.OPT_SERIALIZE_NUMPY), *descriptors)


def main() -> NoReturn:
    """Fork a process for each file that comes, until the server ends."""
    pa.array([""])  # what the library loads late it has loaded then
    fork_for_each(_work)


if __name__ == "__main__":
    main()
