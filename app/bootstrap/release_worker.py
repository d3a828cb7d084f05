"""The process that finishes a release from its measurements: it sees what was released and no private data.

A process that has loaded the code, and neither a secret nor private data, waits beside the server and forks for each
job. What is forked takes the job, tells of its progress and its outcome, and ends; when the server ends, however that
comes, the system ends it too.
"""

from __future__ import annotations

import pickle
import socket
import threading
import traceback
from functools import partial
from typing import NoReturn

from app.bootstrap.nursery import Nursery, Workplace, fork_for_each, receive, send, stand_back
from app.bootstrap.process import limit_memory
from app.declarations.errors import CuratorError
from app.patience import Progress
from app.releases.finishing import Job, Outcome, TookTooLong, WorkerDied, finish

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
        self._place = Workplace(_NURSERY)

    def finish(self, job: Job, progress: Progress) -> Outcome:
        """The outcome of a job.

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
                    return self._finished(connection, job, progress)
                finally:
                    timer.cancel()
                    timer.join()
        except (EOFError, ConnectionError):
            if late.is_set():
                raise TookTooLong(_LATE.format(self._seconds)) from None
            raise WorkerDied(_KILLED) from None

    def _finished(self, connection: socket.socket, job: Job, progress: Progress) -> Outcome:
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

    def cancel(self) -> None:
        """End what is under way, if anything is."""
        self._place.cancel()

    def stop(self) -> None:
        """End what is under way, and begin nothing more."""
        self._place.stop()


def _work(connection: socket.socket) -> None:
    """Do one job and tell of it, behind requests, and with only so much memory."""
    stand_back(connection)

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
