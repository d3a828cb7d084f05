"""The process that finishes a release from its measurements: it sees what was released and no private data.

A process that has loaded the code, and neither a secret nor private data, waits beside the server and forks for each
job. What is forked takes the job, tells of its progress and its outcome, and ends; when the server ends, however that
comes, the system ends it too.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import socket
import threading
import traceback
from contextlib import suppress
from functools import partial
from typing import NoReturn

from app.bootstrap.nursery import Nursery, fork_for_each, receive, send
from app.bootstrap.process import limit_memory
from app.declarations.errors import CuratorError
from app.patience import Progress
from app.releases.finishing import Job, Outcome, TookTooLong, WorkerDied, finish

#: Added to the nice value: requests come first.
NICENESS = 10
_LATE = (
    "to make something of its measurements took longer than the {:g} s that the server allows (CURATOR_RELEASE_SECONDS)"
)
_TOO_LARGE = "to work on it takes more memory than the server allows (CURATOR_MEMORY_LIMIT)"
_KILLED = "the process that worked on it was killed, most likely because the machine had no memory left"
_FAILED = "the process that worked on it ended before its work did; the server's log says why"

_NURSERY = Nursery("app.bootstrap.release_worker")


class ProcessFinisher:
    """Has jobs done by processes, one at a time.

    Args:
        memory_limit: bytes that a job may take, beside what its process has taken when it begins.
        seconds: how long a job may take, from when its process has begun.
    """

    def __init__(self, memory_limit: int, seconds: float) -> None:
        self._memory_limit, self._seconds = memory_limit, seconds
        self._process: int | None = None
        self._guard, self._stopped = threading.Lock(), False

    def finish(self, job: Job, progress: Progress) -> Outcome:
        """The outcome of a job.

        Raises:
            CuratorError: when nothing can come of it.
            WorkerDied: when the process ended before.
            TookTooLong: when it was ended for the time that it took.
            OSError: when no process can be begun.
        """
        with self._guard:
            if self._stopped:
                raise WorkerDied("the server ends")
            connection, process = _begun()
            self._process = process
        late = threading.Event()

        def end() -> None:
            late.set()
            _kill(process)

        timer = threading.Timer(self._seconds, end)
        timer.start()
        try:
            send(connection, b"%d" % self._memory_limit)
            send(connection, pickle.dumps(job))
            while True:
                kind, told = pickle.loads(receive(connection))  # noqa: S301 - from this program
                if kind == "progress":
                    progress(told)
                elif kind == "outcome":
                    return told  # type: ignore[no-any-return]
                else:
                    raise told
        except (EOFError, ConnectionError):
            if late.is_set():
                raise TookTooLong(_LATE.format(self._seconds)) from None
            raise WorkerDied(_KILLED) from None
        finally:
            with self._guard:
                self._process = None
            timer.cancel()
            timer.join()
            _kill(process)
            _wait(process)
            os.close(process)
            connection.close()

    def cancel(self) -> None:
        """End what is under way, if anything is."""
        with self._guard:
            if self._process is not None:
                _kill(self._process)

    def stop(self) -> None:
        """End what is under way, and begin nothing more."""
        with self._guard:
            self._stopped = True
        self.cancel()


def _begun() -> tuple[socket.socket, int]:
    """The connection to a process that waits for a job, and a descriptor of it, which its number does not outlive.

    Raises:
        OSError: when none can be begun.
    """
    connection = _NURSERY.begin()
    _, descriptors, *_ = socket.recv_fds(connection, 1, 1)
    if not descriptors:
        connection.close()
        raise ChildProcessError("the process ended as it began")
    return connection, descriptors[0]


def _kill(process: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(process, signal.SIGKILL)


def _wait(process: int) -> None:
    """Until it has ended, and its memory is free."""
    waiting = select.poll()
    waiting.register(process, select.POLLIN)
    waiting.poll()


def _work(connection: socket.socket) -> None:
    """Do one job and tell of it, behind requests, and with only so much memory."""
    own = os.pidfd_open(os.getpid())
    socket.send_fds(connection, [b"\0"], [own])
    os.close(own)
    os.nice(NICENESS)

    def tell(kind: str, told: object) -> None:
        send(connection, pickle.dumps((kind, told)))

    limit_memory(int(receive(connection)))
    try:
        job = pickle.loads(receive(connection))  # noqa: S301 - from the server
        tell("outcome", finish(job, partial(tell, "progress")))
    except (ConnectionError, EOFError):
        return  # the server has ended, and nobody is there to be told
    except CuratorError as error:
        tell("refused", error)
    except MemoryError:
        tell("refused", WorkerDied(_TOO_LARGE))
    except BaseException:  # noqa: BLE001 - whatever it is
        traceback.print_exc()
        tell("refused", WorkerDied(_FAILED))


def main() -> NoReturn:
    """Fork a process for each job that comes, until the server ends."""
    fork_for_each(_work)


if __name__ == "__main__":
    main()
