"""Files are read in processes of their own: what a file makes a parser do ends with the process.

A process that has loaded the readers, and neither a secret nor private data, waits beside the server and forks for each
piece of work (:class:`_Task`). What is forked reads that one upload, or counts the files of one source, within its time
and memory, hands over numbers in sealed memory, tells the rest as JSON, and ends. Nothing that it says is run, and no
file is written but of records that are too many for memory: one without a name, under a key of its own.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import pickle
import resource
import signal
import socket
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import orjson
import pyarrow as pa
import structlog
from numpy.typing import NDArray
from pydantic import TypeAdapter

from app.bootstrap.nursery import LENGTH, NICENESS, Nursery, fork_for_each, receive, send, take
from app.bootstrap.process import limit_memory
from app.declarations.drafts import ColumnSummary, Layout
from app.declarations.errors import InvalidDataset
from app.declarations.spec import Spec, TableSpec
from app.services.errors import SourceUnavailable, Unavailable
from app.spaces.counts import CellCounts
from app.storage import readers
from app.storage.private_data import CodesData, DenseData, PrivateData, RecordsData, SourceData
from app.storage.readers import Read
from app.storage.readers.codes import Sealing, Unwritable
from app.storage.readers.report import Report
from app.storage.sources import CountedSource, Moved, Told, parquet
from app.storage.sources.files import Looks
from app.storage.vault import VaultCorrupt, container, data_of
from curator_client.proofs.commitment import FileDigest

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


@dataclass(frozen=True)
class Words:
    """The refusals of a kind of work that no process brings to its end: for its memory, its time, and for an end that
    nobody knows the reason of.
    """

    too_large: str
    late: str
    ended: str


READING = Words(
    "to read the file takes more memory than the server allows: save it in smaller groups of rows or as CSV, leave out "
    "columns, or raise CURATOR_MEMORY_LIMIT",
    "to read the file takes longer than the {seconds:g} s it may: save it as CSV or Parquet, or leave out what is not "
    "declared",
    "the process that read the file was ended: the file takes more memory than the server allows "
    "(CURATOR_MEMORY_LIMIT), or is damaged in a way that its library does not survive. Save it again, or as CSV",
)
COUNTING = Words(
    "to count the source takes more memory than the server allows: leave out attributes, declare fewer values and "
    "bins, or raise CURATOR_MEMORY_LIMIT",
    "to count the source takes longer than the {seconds:g} s it may: declare fewer attributes, values and bins, or "
    "split it into several data sets",
    "the process that counted the source was ended: its files take more memory than the server allows "
    "(CURATOR_MEMORY_LIMIT), or are damaged in a way that the engine does not survive. Write them again, or in smaller "
    "groups of rows",
)
ASKING = Words(
    "to count this takes more memory than the server allows: ask for fewer values at once, or have the operator raise "
    "CURATOR_MEMORY_LIMIT",
    "to count this takes longer than the {seconds:g} s it may: ask for less, or have the operator raise "
    "CURATOR_SOURCE_DEADLINE_SECONDS",
    "the process that counted was ended: send the request again",
)


class ReaderFailed(Exception):
    """A reader raised what no reader should: of which type."""


class Unfinished(InvalidDataset):
    """A process did not bring its work to an end."""


class ProcessReaders:
    """Reads each upload, and counts each source, in a process of its own; see :class:`app.storage.readers.Readers` and
    :class:`app.storage.sources.Engine`.

    Args:
        seconds: that reading a file, or counting a source at its registration, may take.
        source_seconds: that counting what is asked of a source later may take.
        sealing: tells how records of a source are written that are too many for memory; None where they are refused.
    """

    def __init__(
        self,
        seconds: float = READ_SECONDS,
        source_seconds: float = READ_SECONDS,
        sealing: Callable[[], Sealing] | None = None,
    ) -> None:
        self._seconds, self._source_seconds, self._sealing = seconds, source_seconds, sealing

    def read_private(
        self, spec: Spec, filename: str, path: Path, *, memory_limit: int, sealing: Sealing | None = None
    ) -> Read:
        if sealing is None and isinstance(spec, TableSpec) and spec.prepare is not None:
            sealing = self._sealed()
        told, data = self._ask("read_private", path, memory_limit, spec, filename, sealing)
        if data is None:
            raise ReaderFailed("no numbers")
        return Read(data, None if told is None else Report.of(told))

    def count_source(self, spec: TableSpec, folders: Sequence[Path], *, memory_limit: int) -> CountedSource:
        return self._registered("count_source", spec, folders, memory_limit)

    def prepare_source(self, spec: TableSpec, folders: Sequence[Path], *, memory_limit: int) -> CountedSource:
        return self._registered("prepare_source", spec, folders, memory_limit, self._sealed())

    def _sealed(self) -> Sealing | None:
        """How a file is written now: each has a key of its own."""
        return None if self._sealing is None else self._sealing()

    def _registered(
        self, what: str, spec: TableSpec, folders: Sequence[Path], memory_limit: int, *more: object
    ) -> CountedSource:
        told, data = self._ask(what, None, memory_limit, spec, tuple(folders), *more)
        if not isinstance(data, DenseData | SourceData | RecordsData | CodesData):
            raise ReaderFailed("no counts")
        length, digest = told["identity"]
        return CountedSource(data, Report.of(told["report"]), FileDigest(int(length), bytes.fromhex(digest)))

    def ask_source(
        self,
        about: bytes,
        looked: Looks | None,
        folders: Sequence[Path],
        asked: Sequence[CellCounts],
        *,
        memory_limit: int,
    ) -> Told:
        told, numbers = self._asked("ask_source", None, memory_limit, about, looked, tuple(folders), tuple(asked))
        return Told(numbers, [tuple(look) for look in told["looks"]])

    def ask_codes(
        self, path: Path, about: bytes, asked: Sequence[CellCounts], *, memory_limit: int
    ) -> NDArray[np.int64]:
        return self._asked("ask_codes", path, memory_limit, about, tuple(asked))[1]

    def _asked(
        self, what: str, path: Path | None, memory_limit: int, *arguments: object
    ) -> tuple[Any, NDArray[np.int64]]:
        """What a process tells that was asked to count, and the numbers."""
        for last in (False, True):
            try:
                told, data = self._ask(what, path, memory_limit, *arguments)
                break
            except Unfinished as error:
                # What was killed from outside is done once more.
                if last or error.detail != ASKING.ended:
                    raise SourceUnavailable(error.detail, retry_after=60) from None
        if told is None:
            raise Moved
        if not isinstance(data, DenseData) or data.array.dtype != np.int64:
            raise ReaderFailed("no counts")
        return told, np.asarray(data.array, np.int64)

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
        words = TASKS[what].words
        seconds = self._source_seconds if words is ASKING else self._seconds
        with closing(_begun(path)) as ours:
            began = time.monotonic()
            ours.settimeout(seconds + _GRACE)
            try:
                send(ours, pickle.dumps((what, seconds, memory_limit, arguments)))
                told, memory = _received(ours)
            except (EOFError, OSError) as error:
                late = time.monotonic() - began >= seconds
                logger.warning("a process that read files was ended", late=late, error=type(error).__name__)
                raise Unfinished(words.late.format(seconds=seconds) if late else words.ended) from None
        if "refused" in told:
            raise InvalidDataset(told["refused"], **told["extra"])
        if "large" in told:
            raise Unfinished(words.too_large)
        if "unwritable" in told:
            logger.error("a private file could not be written")
            raise Unavailable(
                "the private file could not be written and nothing was kept: an operator must look at the disk",
                retry_after=60,
            )
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
        if "codes" in told:
            return told, _codes(told["codes"], descriptors[0])
        return told, _handed_over(descriptors[0]) if descriptors else None
    except (orjson.JSONDecodeError, VaultCorrupt, IndexError):
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


def _codes(told: str, descriptor: int) -> CodesData:
    """A file of codes. It is verified when it is read, by a digest of what was copied of it.

    Raises:
        EOFError: when it is none.
    """
    with suppress(ValueError, KeyError, TypeError):
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            about = np.frombuffer(told.encode(), np.uint8)
            return CodesData(about, int(orjson.loads(told)["records"]), open(os.dup(descriptor), "rb"))
    raise EOFError


def _hand_over(data: PrivateData) -> int:
    """The descriptor of sealed memory with these numbers."""
    descriptor = os.memfd_create("numbers", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with os.fdopen(os.dup(descriptor), "wb") as file:
        for piece in container(data):
            file.write(piece)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor


# ----------------------------------------------------------------------------------- in the processes themselves


@dataclass(frozen=True)
class _Task:
    """Work that a process does.

    Attributes:
        words: its refusals.
        do: told the upload, if there is one, the bytes that it may take, and what it is asked with. It gives what is
            told, and the numbers that are handed over, if any.
    """

    words: Words
    do: Callable[..., tuple[Any, PrivateData | None]]


def _read_private(
    path: Path, memory_limit: int, spec: Spec, filename: str, sealing: Sealing | None = None
) -> tuple[Any, PrivateData]:
    read = readers.read_private(spec, filename, path, memory_limit=memory_limit, sealing=sealing)
    return None if read.report is None else read.report.view(), read.data


def _has_weights(path: Path, _: int, filename: str) -> tuple[Any, None]:
    return readers.has_weights(filename, path), None


def _column_names(path: Path, memory_limit: int, filename: str, layout: Layout) -> tuple[Any, None]:
    return readers.column_names(filename, path, layout, memory_limit=memory_limit), None


def _summarise(path: Path, memory_limit: int, filename: str, layout: Layout) -> tuple[Any, None]:
    return readers.summarise(filename, path, layout, memory_limit=memory_limit), None


def _count_source(_: None, memory_limit: int, spec: TableSpec, folders: Sequence[Path]) -> tuple[Any, PrivateData]:
    return _told(parquet.count_source(spec, folders, memory_limit=memory_limit))


def _prepare_source(
    _: None, memory_limit: int, spec: TableSpec, folders: Sequence[Path], sealing: Sealing | None
) -> tuple[Any, PrivateData]:
    return _told(parquet.prepare_source(spec, folders, memory_limit=memory_limit, sealing=sealing))


def _told(found: CountedSource) -> tuple[Any, PrivateData]:
    length, digest = found.identity
    return {"report": found.report.view(), "identity": [length, digest.hex()]}, found.data


def _ask_source(_: None, memory_limit: int, *asked: Any) -> tuple[Any, PrivateData | None]:
    try:
        told = parquet.ask_source(*asked, memory_limit=memory_limit)
    except Moved:
        return None, None
    return {"looks": told.looks}, DenseData(told.numbers, 0)


def _ask_codes(path: Path, memory_limit: int, *asked: Any) -> tuple[Any, PrivateData | None]:
    try:
        return {}, DenseData(parquet.ask_codes(path, *asked, memory_limit=memory_limit), 0)
    except Moved:
        return None, None


TASKS = {
    "read_private": _Task(READING, _read_private),
    "has_weights": _Task(READING, _has_weights),
    "column_names": _Task(READING, _column_names),
    "summarise": _Task(READING, _summarise),
    "count_source": _Task(COUNTING, _count_source),
    "prepare_source": _Task(READING, _prepare_source),
    "ask_source": _Task(ASKING, _ask_source),
    "ask_codes": _Task(ASKING, _ask_codes),
}


def _done(
    what: str, path: Path | None, memory_limit: int, arguments: tuple[Any, ...]
) -> tuple[dict[str, Any], list[int]]:
    """The message to send, and the descriptors that go with it."""
    try:
        told, data = TASKS[what].do(path, memory_limit, *arguments)
        if isinstance(data, CodesData):
            return {"told": told, "codes": data.about.tobytes().decode()}, [os.dup(data.file.fileno())]
        return {"told": told}, [] if data is None else [_hand_over(data)]
    except InvalidDataset as error:
        return {"refused": error.detail, "extra": error.extra}, []
    except MemoryError:
        return {"large": True}, []
    except Unwritable:
        return {"unwritable": True}, []
    except Exception as error:  # noqa: BLE001 - its words may quote the file
        return {"failed": type(error).__name__}, []


def _work(connection: socket.socket, *upload: int) -> None:
    """Read one file, or those of a source, and tell of it."""
    silence = os.open(os.devnull, os.O_RDWR)
    os.dup2(silence, 2)  # a library that gives up may print what it read
    what, seconds, memory_limit, arguments = pickle.loads(receive(connection))  # noqa: S301 - from the server
    if TASKS[what].words is ASKING:
        os.nice(NICENESS)  # whoever is answered from memory comes first
    signal.setitimer(signal.ITIMER_REAL, seconds)  # ends the process, whatever a library is doing
    most = memory_limit + WORKING_BYTES
    limit_memory(most)
    if not any(isinstance(each, Sealing) for each in arguments):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))  # of memory that is a file
    path = Path(f"/proc/self/fd/{upload[0]}") if upload else None
    told, descriptors = _done(what, path, memory_limit, arguments)
    send(connection, orjson.dumps(told, option=orjson.OPT_SERIALIZE_NUMPY), *descriptors)


def main() -> NoReturn:
    """Fork a process for each file that comes, until the server ends."""
    pa.array([""])  # what the library loads late it has loaded then
    fork_for_each(_work)


if __name__ == "__main__":
    main()
