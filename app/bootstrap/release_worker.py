"""The process that finishes a release from its measurements: it sees what was released and no private data.

A process that has loaded the code, and neither a secret nor private data, waits beside the server and forks for each
job. What is forked takes the job, tells of its progress and its outcome, and ends; when the server ends, however that
comes, the system ends it too.
"""

from __future__ import annotations

import socket
import threading
import traceback
from typing import NoReturn, Protocol

from app.bootstrap.nursery import Nursery, Workplace, fork_for_each, receive, send, stand_back
from app.bootstrap.process import limit_memory
from app.declarations.errors import CuratorError
from app.patience import Progress
from app.releases.finishing import TookTooLong, WorkerDied
from app.services.release_tasks import carried_out, refusal, refused

_LATE = (
    "to make something of its measurements took longer than the {:g} s that the server allows (CURATOR_RELEASE_SECONDS)"
)
_TOO_LARGE = "to work on it takes more memory than the server allows (CURATOR_MEMORY_LIMIT)"
_KILLED = "the process that worked on it was killed, most likely because the machine had no memory left"
_FAILED = "the process that worked on it ended before its work did; the server's log says why"

#: The first byte of what a process tells: how far it is, the result, a refusal, or how it ended.
_PROGRESS, _DONE, _REFUSED, _DIED = b"p", b"o", b"r", b"d"

_NURSERY = Nursery("app.bootstrap.release_worker")


class ProcessFinisher:
    """Has jobs done by processes, one at a time.

    Args:
        memory_limit: bytes that a job may take, beside what its process has taken when it begins.
        seconds: how long a job may take, from when its process has begun.
        nursery: of the processes, whose module does :func:`work`.
    """

    def __init__(self, memory_limit: int, seconds: float, nursery: Nursery = _NURSERY) -> None:
        self._memory_limit, self._seconds = memory_limit, seconds
        self._place = Workplace(nursery)

    def finish(self, task: bytes, progress: Progress) -> bytes:
        """The result of a task, both in their closed forms (:mod:`app.services.release_tasks`).

        Raises:
            CuratorError: when nothing can come of it.
            WorkerDied: when the process ended before.
            TookTooLong: when it was ended for the time that it took.
            OSError: when no process can be begun.
        """
        late = threading.Event()

        def end() -> None:
            late.set()
            self._place.cancel()

        timer = threading.Timer(self._seconds, end)
        try:
            with self._place.working() as connection:
                timer.start()
                try:
                    return self._finished(connection, task, progress)
                finally:
                    timer.cancel()
                    timer.join()
        except (EOFError, ConnectionError):
            if late.is_set():
                raise TookTooLong(_LATE.format(self._seconds)) from None
            raise WorkerDied(_KILLED) from None

    def _finished(self, connection: socket.socket, task: bytes, progress: Progress) -> bytes:
        send(connection, b"%d" % self._memory_limit)
        send(connection, task)
        while True:
            told = receive(connection)
            kind, content = told[:1], told[1:]
            if kind == _PROGRESS:
                progress(float(content))
            elif kind == _DONE:
                return content
            elif kind == _REFUSED:
                raise refused(content)
            else:
                raise WorkerDied(content.decode())

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

    def tell(kind: bytes, content: bytes) -> None:
        send(connection, kind + content)

    limit_memory(int(receive(connection)))
    try:
        tell(_DONE, carry(receive(connection), lambda part: tell(_PROGRESS, b"%r" % float(part))))
    except (ConnectionError, EOFError):
        return  # the server has ended, and nobody is there to be told
    except CuratorError as error:
        tell(_REFUSED, refusal(error))
    except MemoryError:
        tell(_DIED, _TOO_LARGE.encode())
    except BaseException:  # noqa: BLE001 - whatever it is
        traceback.print_exc()
        tell(_DIED, _FAILED.encode())


def main() -> NoReturn:
    """Fork a process for each job that comes, until the server ends."""
    fork_for_each(work)


if __name__ == "__main__":
    main()
