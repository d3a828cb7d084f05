"""Uploads are read in processes of their own: what a file makes a parser do ends with the process.

A process that has loaded the readers, and neither a secret nor private data, waits beside the server and forks for each
file. What is forked reads that one file within its time and memory, hands over the numbers in sealed memory, tells the
rest as JSON, and ends. Nothing that it says is run, and no file is written.
"""

from __future__ import annotations

import atexit
import fcntl
import mmap
import os
import pickle
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NoReturn

import orjson
import pyarrow as pa
import structlog
from pydantic import TypeAdapter

from app.bootstrap.process import die_with_parent, forbid_core_dumps, ignore_signals, limit_memory, worker_environment
from app.declarations.drafts import ColumnSummary, Layout
from app.declarations.errors import InvalidDataset
from app.declarations.spec import Spec
from app.services.errors import Unavailable
from app.storage import readers
from app.storage.private_data import PrivateData
from app.storage.readers import Read
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
_LENGTH = struct.Struct("<Q")
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

    def has_weights(self, filename: str, path: Path) -> bool:
        return bool(self._ask("has_weights", path, 0, filename)[0])

    def column_names(self, filename: str, path: Path, layout: Layout, *, memory_limit: int) -> tuple[str, ...] | None:
        told, _ = self._ask("column_names", path, memory_limit, filename, layout)
        return None if told is None else tuple(map(str, told))

    def summarise(self, filename: str, path: Path, layout: Layout, *, memory_limit: int) -> tuple[ColumnSummary, ...]:
        told, _ = self._ask("summarise", path, memory_limit, filename, layout)
        return _SUMMARIES.validate_python(told)

    def _ask(self, what: str, path: Path, memory_limit: int, *arguments: object) -> tuple[Any, PrivateData | None]:
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
                _send(ours, pickle.dumps((what, self._seconds, memory_limit, arguments)))
                told, memory = _received(ours)
            except (EOFError, OSError) as error:
                late = time.monotonic() - began >= self._seconds
                logger.warning("a process that read an upload was ended", late=late, error=type(error).__name__)
                if late:
                    raise InvalidDataset(
                        f"to read the file takes longer than the {self._seconds:g} s it may: save it as CSV or "
                        "Parquet, or leave out what is not declared"
                    ) from None
                raise InvalidDataset(_ENDED) from None
        if "refused" in told:
            raise InvalidDataset(told["refused"], **told["extra"])
        if "failed" in told:
            logger.error("an upload could not be read", error=told["failed"])
            raise ReaderFailed(told["failed"])
        return told["told"], memory


class _Nursery:
    """A process that forks others, started when it is first needed. It holds nothing that must last: one for all
    services of this process, and another one where it has ended.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def fork(self, *descriptors: int) -> subprocess.Popen[bytes]:
        """Have a process forked that gets copies of these; by which process.

        Raises:
            ConnectionError: when that one has ended.
        """
        with self._guard:
            if self._process is None or self._control is None:
                self._control, self._process = self._started()
            try:
                socket.send_fds(self._control, [b"\0"], descriptors)
            except ConnectionError:
                self._forget()
                raise
            return self._process

    @staticmethod
    def _started() -> tuple[socket.socket, subprocess.Popen[bytes]]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with closing(theirs):
            return ours, subprocess.Popen(  # noqa: S603 - this program itself
                [sys.executable, "-m", "app.bootstrap.reader_process", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=worker_environment(),
            )

    def end(self, process: subprocess.Popen[bytes] | None = None) -> None:
        """End it; where a process is named only if it is still that one."""
        with self._guard:
            if process in (None, self._process):
                self._forget()

    def _forget(self) -> None:
        if self._control is not None and self._process is not None:
            self._control.close()
            self._process.kill()
            self._process.wait()
            self._process = self._control = None


_NURSERY = _Nursery()
atexit.register(_NURSERY.end)


def _begun(path: Path) -> socket.socket:
    """The connection to a process that is about to read a file.

    Raises:
        Unavailable: when none can be begun.
    """
    try:
        for _ in range(2):
            ours, theirs = socket.socketpair()
            with suppress(ConnectionError):
                with closing(theirs), path.open("rb") as file:
                    forked_by = _NURSERY.fork(theirs.fileno(), file.fileno())
                if ours.recv(1):
                    return ours
                _NURSERY.end(forked_by)  # it has ended, perhaps with what it was just told of
            ours.close()
    except OSError as error:
        logger.error("no process can be begun that reads uploads", error=type(error).__name__)
    else:
        logger.error("processes that read uploads end as they begin")
    raise Unavailable("the server cannot begin to read the file: send it again later")


def _send(connection: socket.socket, content: bytes, *descriptors: int) -> None:
    socket.send_fds(connection, [_LENGTH.pack(len(content))], descriptors)
    connection.sendall(content)


def _take(connection: socket.socket, size: int) -> bytes:
    """So many bytes.

    Raises:
        EOFError: when there are fewer.
    """
    taken = bytearray()
    while len(taken) < size:
        part = connection.recv(min(size - len(taken), 1 << 20))
        if not part:
            raise EOFError
        taken += part
    return bytes(taken)


def _received(connection: socket.socket) -> tuple[dict[str, Any], PrivateData | None]:
    """A process' message, and the descriptors that come with it.

    Raises:
        EOFError: when it ends before, or tells what makes no sense.
    """
    head, descriptors, *_ = socket.recv_fds(connection, _LENGTH.size, 1)
    try:
        if len(head) < _LENGTH.size:
            raise EOFError
        (length,) = _LENGTH.unpack(head)
        if length > _MOST_TOLD:
            raise EOFError
        told = orjson.loads(_take(connection, length))
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


def _read(what: str, path: Path, memory_limit: int, arguments: tuple[Any, ...]) -> tuple[dict[str, Any], list[int]]:
    """The message to send, and the descriptors that go with it."""
    try:
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
        return {"refused": _TOO_LARGE, "extra": {}}, []
    except Exception as error:  # noqa: BLE001 - its words may quote the file
        return {"failed": type(error).__name__}, []


def _work(connection: socket.socket, upload: int) -> None:
    """Read one file and tell of it."""
    die_with_parent()
    connection.sendall(b"\0")
    silence = os.open(os.devnull, os.O_RDWR)
    os.dup2(silence, 2)  # a library that gives up may print what it read
    (length,) = _LENGTH.unpack(_take(connection, _LENGTH.size))
    what, seconds, memory_limit, arguments = pickle.loads(_take(connection, length))  # noqa: S301 - from the server
    signal.setitimer(signal.ITIMER_REAL, seconds)  # ends the process, whatever a library is doing
    most = memory_limit + WORKING_BYTES
    limit_memory(most)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))  # of memory that is a file
    told, descriptors = _read(what, Path(f"/proc/self/fd/{upload}"), memory_limit, arguments)
    _send(connection, orjson.dumps(told, option=orjson.OPT_SERIALIZE_NUMPY), *descriptors)


def main() -> NoReturn:
    """Fork a process for each file that comes, until the server ends."""
    control = socket.socket(fileno=int(sys.argv[1]))
    forbid_core_dumps()
    ignore_signals()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets those that have ended
    pa.array([""])  # what the library loads late it has loaded then
    while True:
        content, descriptors, *_ = socket.recv_fds(control, 1, 2)
        if not content:
            os._exit(0)
        connection, upload = descriptors
        if os.fork() == 0:
            with suppress(BaseException):
                control.close()
                _work(socket.socket(fileno=connection), upload)
            os._exit(0)
        os.close(connection)
        os.close(upload)


if __name__ == "__main__":
    main()
