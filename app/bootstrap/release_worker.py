"""What is made of a release's measurements, in a process of its own: it sees what was released and no private data.

The server starts this module, hands it a job and hears of its progress. When the server ends, it ends too.
"""

from __future__ import annotations

import pickle
import struct
import subprocess
import sys
import threading
from typing import Any, BinaryIO

from app.releases.finishing import Job, Outcome, Progress, finish
from app.spaces.errors import CuratorError

_LENGTH = struct.Struct("<Q")


class WorkerDied(Exception):
    """The process ended before its work did."""


class ProcessFinisher:
    """Has jobs done by processes, one at a time."""

    def __init__(self) -> None:
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
                raise WorkerDied
            self._process = process = subprocess.Popen(
                [sys.executable, "-m", "app.bootstrap.release_worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
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
            raise WorkerDied from None
        finally:
            process.kill()
            process.communicate()
            with self._guard:
                self._process = None

    def stop(self) -> None:
        """End what is under way, and begin nothing more."""
        with self._guard:
            self._stopped = True
            if self._process is not None:
                self._process.kill()


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


def main() -> None:
    """Do the job that comes in, and tell of it."""
    pipe = sys.stdout.buffer
    job = _receive(sys.stdin.buffer)
    try:
        outcome = finish(job, lambda part: _send(pipe, ("progress", part)))
    except CuratorError as error:
        _send(pipe, ("refused", error))
    else:
        _send(pipe, ("outcome", outcome))


if __name__ == "__main__":
    main()
