"""The process that finishes a release from its measurements: it sees what was released and no private data.

The server starts this module, hands it a job and hears of its progress. When the server ends, however that comes, the
system ends this process too.
"""

from __future__ import annotations

import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
from typing import Any, BinaryIO

from app.bootstrap.process import die_with_parent, ignore_signals, limit_memory, worker_environment
from app.declarations.errors import CuratorError
from app.patience import Progress
from app.releases.finishing import Job, Outcome, TookTooLong, WorkerDied, finish

_LENGTH = struct.Struct("<Q")
#: Added to the nice value: requests come first.
NICENESS = 10
_LATE = (
    "to make something of its measurements took longer than the {:g} s that the server allows (CURATOR_RELEASE_SECONDS)"
)
_TOO_LARGE = "to work on it takes more memory than the server allows (CURATOR_MEMORY_LIMIT)"


class ProcessFinisher:
    """Has jobs done by processes, one at a time.

    Args:
        memory_limit: bytes that a job may take, beside what the process has taken when it begins.
        seconds: how long a job may take, the start of its process included.
    """

    def __init__(self, memory_limit: int, seconds: float) -> None:
        self._memory_limit, self._seconds = memory_limit, seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._guard, self._stopped = threading.Lock(), False

    def finish(self, job: Job, progress: Progress) -> Outcome:
        """The outcome of a job.

        Raises:
            CuratorError: when nothing can come of it.
            WorkerDied: when the process ended before.
            TookTooLong: when it was ended for the time that it took.
        """
        with self._guard:
            if self._stopped:
                raise WorkerDied("the server ends")
            self._process = process = self._start()
        late = threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        timer = threading.Timer(self._seconds, end)
        timer.start()
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            _send(process.stdin, job)
            while True:
                kind, told = _receive(process.stdout)
                if kind == "progress":
                    progress(told)
                elif kind == "outcome":
                    return told  # type: ignore[no-any-return]
                else:
                    raise told
        except (EOFError, BrokenPipeError):
            if late.is_set():
                raise TookTooLong(_LATE.format(self._seconds)) from None
            raise WorkerDied(_how(process.wait())) from None
        finally:
            timer.cancel()
            process.kill()
            process.communicate()
            with self._guard:
                self._process = None

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - this program itself
            [sys.executable, "-m", "app.bootstrap.release_worker", str(os.getpid()), str(self._memory_limit)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=worker_environment(),
        )

    def cancel(self) -> None:
        """End what is under way, if anything is."""
        with self._guard:
            if self._process is not None:
                self._process.kill()

    def stop(self) -> None:
        """End what is under way, and begin nothing more."""
        with self._guard:
            self._stopped = True
        self.cancel()


def _how(code: int) -> str:
    """The cause of a process' end, in words."""
    if code == -signal.SIGKILL:
        return "the process that worked on it was killed, most likely because the machine had no memory left"
    return "the process that worked on it ended before its work did; the server's log says why"


def _send(pipe: BinaryIO | Any, message: Any) -> None:
    data = pickle.dumps(message)
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: BinaryIO | Any) -> Any:
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    (length,) = _LENGTH.unpack(head)
    data = pipe.read(length)
    if len(data) < length:
        raise EOFError
    return pickle.loads(data)  # noqa: S301 - both ends of the pipe are this program


def _settle_in(parent: int, memory_limit: int) -> None:
    """End with the server, stand back behind requests, and take only so much memory."""
    die_with_parent()
    if os.getppid() != parent:  # it ended before that
        sys.exit(1)
    ignore_signals()
    os.nice(NICENESS)
    limit_memory(memory_limit)


def main() -> None:
    """Do the job that comes in, and tell of it."""
    parent, memory_limit = (int(argument) for argument in sys.argv[1:])
    _settle_in(parent, memory_limit)
    # Whatever prints does so to the log.
    pipe = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        job = _receive(sys.stdin.buffer)
        outcome = finish(job, lambda part: _send(pipe, ("progress", part)))
    except CuratorError as error:
        _send(pipe, ("refused", error))
    except MemoryError:
        _send(pipe, ("refused", WorkerDied(_TOO_LARGE)))
    else:
        _send(pipe, ("outcome", outcome))


if __name__ == "__main__":
    main()
