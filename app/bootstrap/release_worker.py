"""The process that does a task, such as to finish a release from its measurements: it sees what was released and no
private data.

A process that has loaded the code, and neither a secret nor private data, waits beside the server and forks for each
job. What is forked takes the job, tells of its progress and its outcome, and ends; when the server ends, however that
comes, the system ends it too.
"""

from __future__ import annotations

import math
import socket
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NoReturn, Protocol

from app.bootstrap.nursery import Nursery, Workplace, fork_for_each, receive, send, stand_back
from app.bootstrap.process import limit_memory
from app.patience import Progress
from app.releases.finishing import TookTooLong, WorkerDied
from app.services.closed_forms import end_of, result_of
from app.services.tasks import carried_out

_LATE = "to work on it took longer than the {:g} s that the server allows (CURATOR_RELEASE_SECONDS)"
_TOO_LARGE = "to work on it takes more memory than the server allows (CURATOR_MEMORY_LIMIT)"
_KILLED = "the process that worked on it was killed, most likely because the machine had no memory left"
_FAILED = "the process that worked on it ended before its work did; the server's log says why"

#: The first line of what a process tells: how far it is, or else how it ended.
_PROGRESS = "progress"

_NURSERY = Nursery("app.bootstrap.release_worker")


class ProcessFinisher:
    """Has tasks done by processes, one each.

    Args:
        memory_limit: bytes that a task may take, beside what its process has taken when it begins.
        seconds: how long a task may take, from when its process has begun.
        nursery: of the processes, whose module does :func:`work`.
    """

    def __init__(self, memory_limit: int, seconds: float = math.inf, nursery: Nursery = _NURSERY) -> None:
        self._memory_limit, self._seconds = memory_limit, seconds
        self._place = Workplace(nursery)

    def finish(self, task: bytes, progress: Progress) -> bytes:
        """The result of a task, both in their closed forms (:mod:`app.services.tasks`). From any thread.

        Raises:
            CuratorError: when nothing can come of it.
            WorkerDied: when the process ended before.
            TookTooLong: when it was ended for the time that it took.
            OSError: when no process can be begun.
        """
        late = threading.Event()
        try:
            with self._place.working() as connection, self._only_so_long(connection, late):
                return self._finished(connection, task, progress)
        except (EOFError, ConnectionError):
            if late.is_set():
                raise TookTooLong(_LATE.format(self._seconds)) from None
            raise WorkerDied(_KILLED) from None

    @contextmanager
    def _only_so_long(self, connection: socket.socket, late: threading.Event) -> Iterator[None]:
        """Have nothing more to hear of a process when it has taken as long as it may."""

        def end() -> None:
            late.set()
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

        if math.isinf(self._seconds):
            yield
            return
        timer = threading.Timer(self._seconds, end)
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()

    def _finished(self, connection: socket.socket, task: bytes, progress: Progress) -> bytes:
        send(connection, b"%d" % self._memory_limit)
        send(connection, task)
        while True:
            word, _, told = receive(connection).partition(b"\n")
            if word.decode() != _PROGRESS:
                return result_of(word.decode(), told)
            progress(float(told))

    def cancel(self) -> None:
        """End what is under way, if anything is."""
        self._place.cancel()

    def stop(self) -> None:
        """End what is under way, and begin nothing more."""
        self._place.stop()


class Carry(Protocol):
    """Does a task, and tells of its progress."""

    def __call__(self, task: bytes, progress: Progress, /) -> bytes:
        """The result, in its closed form."""


def work(connection: socket.socket, carry: Carry = carried_out) -> None:
    """Do one task and tell of it, behind requests, and with only so much memory."""
    stand_back(connection)

    def tell(word: str, told: bytes) -> None:
        send(connection, word.encode() + b"\n" + told)

    limit_memory(int(receive(connection)))
    try:
        task = receive(connection)
        tell(*end_of(lambda: carry(task, lambda part: tell(_PROGRESS, b"%r" % float(part)))))
    except (ConnectionError, EOFError):
        return  # the server has ended, and nobody is there to be told
    except MemoryError:
        tell("died", _TOO_LARGE.encode())
    except BaseException:  # noqa: BLE001 - whatever it is
        traceback.print_exc()
        tell("died", _FAILED.encode())


def main() -> NoReturn:
    """Fork a process for each job that comes, until the server ends."""
    fork_for_each(work)


if __name__ == "__main__":
    main()
