"""What is made of a release's measurements, in a process of its own: it sees what was released and no private data.

The server starts this module, hands it a job and hears of its progress. When the server ends, however that comes, the
system ends this process too.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import resource
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, BinaryIO

from app.releases.finishing import Job, Outcome, Progress, WorkerDied, finish
from app.spaces.errors import CuratorError

_LENGTH = struct.Struct("<Q")
#: Settings of the server, of which some are keys, and passwords of its database.
_SECRET = ("CURATOR_", "PG")
#: Added to the nice value: requests come first.
NICENESS = 10
_PR_SET_PDEATHSIG = 1
_TOO_LARGE = "to work on it takes more memory than the server allows (CURATOR_MEMORY_LIMIT)"


class ProcessFinisher:
    """Has jobs done by processes, one at a time.

    Args:
        memory_limit: bytes that a job may take, beside what the process has taken when it begins.
    """

    def __init__(self, memory_limit: int) -> None:
        self._memory_limit = memory_limit
        self._process: subprocess.Popen[bytes] | None = None
        self._guard, self._stopped = threading.Lock(), False

    def finish(self, job: Job, progress: Progress) -> Outcome:
        """What came of a job.

        Raises:
            CuratorError: when nothing can come of it.
            WorkerDied: when the process ended before.
        """
        with self._guard:
            if self._stopped:
                raise WorkerDied("the server ends")
            self._process = process = self._start()
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
            raise WorkerDied(_how(process.wait())) from None
        finally:
            process.kill()
            process.communicate()
            with self._guard:
                self._process = None

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(_SECRET)}
        places = [str(Path(__file__).resolve().parents[2]), environment.get("PYTHONPATH", "")]
        # Threads of a linear algebra library would take the processors that requests are answered on.
        single = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        return subprocess.Popen(  # noqa: S603 - this program itself
            [sys.executable, "-m", "app.bootstrap.release_worker", str(os.getpid()), str(self._memory_limit)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**environment, **single, "PYTHONPATH": os.pathsep.join(filter(None, places))},
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
    """What ended a process, in words."""
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
    """End with the server, hear no signal that is meant for it, stand back behind requests, and take only so much
    memory.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before that
        sys.exit(1)
    for number in (signal.SIGINT, signal.SIGTERM):  # sent to a whole group: the server says when this process ends
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    limit = pages * resource.getpagesize() + memory_limit
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    if most == resource.RLIM_INFINITY or limit < most:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


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
