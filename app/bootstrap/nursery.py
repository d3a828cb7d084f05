"""Processes that work for the server are forked from one that has loaded what they run: none of them imports it again.

That one, a nursery, runs one module of this program. It is started from scratch, without the settings and keys of the
server, holds no private data and has one thread. It waits beside the server and forks for each piece of work. It ends
with the server, and what it has forked ends with it, however that comes.
"""

from __future__ import annotations

import atexit
import gc
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import NoReturn

from app.bootstrap.process import die_with_parent, forbid_core_dumps, ignore_signals, worker_environment

#: The length of a message, which is told before it.
LENGTH = struct.Struct("<Q")
#: Descriptors that a forked process may be given: of its connection, and of a file.
_DESCRIPTORS = 2
#: Added to the nice value of what works behind requests.
NICENESS = 10


class Nursery:
    """The nursery of a module, started when it is first needed. It holds nothing that must last: there is one for all
    services of this process, and another one where it has ended.

    Args:
        module: what it runs, whose ``main`` calls :func:`fork_for_each`.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._guard = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        atexit.register(self.end)

    def begin(self, *descriptors: int) -> socket.socket:
        """The connection to a process that has just been forked, and has copies of these descriptors.

        Raises:
            OSError: when none can be begun.
        """
        for _ in range(2):
            ours, theirs = socket.socketpair()
            with suppress(ConnectionError):
                with closing(theirs):
                    forked_by = self._fork(theirs.fileno(), *descriptors)
                if ours.recv(1):
                    return ours
                self.end(forked_by)  # it has ended, perhaps with what it was just told of
            ours.close()
        raise ChildProcessError("processes end as they begin")

    def _fork(self, *descriptors: int) -> subprocess.Popen[bytes]:
        """Have a process forked; by which process.

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

    def _started(self) -> tuple[socket.socket, subprocess.Popen[bytes]]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with closing(theirs):
            return ours, subprocess.Popen(  # noqa: S603 - this program itself
                [sys.executable, "-m", self._module, str(theirs.fileno())],
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


class Workplace:
    """Where processes work for the server, behind requests. They may be begun and ended from any thread.

    Args:
        nursery: forks the processes, which :func:`stand_back` before anything else.
    """

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._processes = set[int]()
        self._guard, self._stopped = threading.Lock(), False

    @contextmanager
    def working(self, *descriptors: int) -> Iterator[socket.socket]:
        """The connection to a process that has copies of these descriptors. It has ended, and its memory is free, when
        the context ends.

        Raises:
            EOFError: after :meth:`stop`.
            OSError: when none can be begun.
        """
        with self._guard:
            if self._stopped:
                raise EOFError
            connection, process = self._begun(descriptors)
            self._processes.add(process)
        try:
            yield connection
        finally:
            with self._guard:
                self._processes.remove(process)
            _kill(process)
            _wait(process)
            os.close(process)
            connection.close()

    def _begun(self, descriptors: tuple[int, ...]) -> tuple[socket.socket, int]:
        """The connection to a process, and a descriptor of it, which its number does not outlive."""
        connection = self._nursery.begin(*descriptors)
        _, found, *_ = socket.recv_fds(connection, 1, 1)
        if not found:
            connection.close()
            raise ChildProcessError("the process ended as it began")
        return connection, found[0]

    def cancel(self) -> None:
        """End what is under way, if anything is."""
        with self._guard:
            for process in self._processes:
                _kill(process)

    def stop(self) -> None:
        """End what is under way, and begin nothing more."""
        with self._guard:
            self._stopped = True
        self.cancel()


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, signal.SIGKILL)


def _wait(process: int) -> None:
    waiting = select.poll()
    waiting.register(process, select.POLLIN)
    waiting.poll()


def stand_back(connection: socket.socket) -> None:
    """Be a process of a :class:`Workplace`: tell it how it is ended, and let requests come first."""
    own = os.pidfd_open(os.getpid())
    socket.send_fds(connection, [b"\0"], [own])
    os.close(own)
    os.nice(NICENESS)


def send(connection: socket.socket, content: bytes, *descriptors: int) -> None:
    """Send a message, with copies of these descriptors."""
    socket.send_fds(connection, [LENGTH.pack(len(content))], descriptors)
    connection.sendall(content)


def receive(connection: socket.socket) -> bytes:
    """The next message.

    Raises:
        EOFError: when the other side ends before it has sent one.
    """
    (length,) = LENGTH.unpack(take(connection, LENGTH.size))
    return take(connection, length)


def take(connection: socket.socket, size: int) -> bytes:
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


def fork_for_each(work: Callable[..., object]) -> NoReturn:
    """Be a nursery until the server ends.

    Args:
        work: done in a process of its own for each piece of work that comes, given the connection to the server and
            the descriptors that came with it.
    """
    control = socket.socket(fileno=int(sys.argv[1]))
    forbid_core_dumps()
    ignore_signals()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets those that have ended
    nursery = os.getpid()
    gc.collect()
    gc.freeze()  # a collection in a child would write to what it shares with this process, and copy it thereby
    while True:
        content, descriptors, *_ = socket.recv_fds(control, 1, _DESCRIPTORS)
        if not content:
            os._exit(0)
        if os.fork() == 0:
            with suppress(BaseException):
                die_with_parent()
                if os.getppid() == nursery:  # it may have ended before that
                    control.close()
                    connection = socket.socket(fileno=descriptors[0])
                    connection.sendall(b"\0")
                    work(connection, *descriptors[1:])
            os._exit(0)
        for descriptor in descriptors:
            os.close(descriptor)
