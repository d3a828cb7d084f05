"""The process that checks a copy of the log: it has no private data, no key that signs and no database, and asks the
server for one transcript at a time.

It is forked and ended as those that finish releases (:mod:`.nursery`).
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, BinaryIO, NoReturn

import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401 - loaded once, for all that are forked
import orjson

from app.audit.failures import Undecided
from app.bootstrap.nursery import LENGTH, Nursery, Workplace, fork_for_each, receive, send, stand_back, take
from app.bootstrap.process import limit_memory
from app.report.checking import Stage, Task, checked
from app.report.page import BY_SERVICE, page
from app.services.audit_ports import CheckerDied, Copy, Outcome, Transcribed
from app.verifying.folder import LogLines
from curator_client.proofs.notes import Checkpoint, Verifier

#: Seconds between two words about progress.
_TOLD_SECONDS = 0.1
_TOO_LARGE = "to check it takes more memory than the server allows (CURATOR_MEMORY_LIMIT)"
_KILLED = "the process that checked was killed, most likely because the machine had no memory left"
_FAILED = "the process that checked ended before its work did; the server's log says why"
#: What a replay may hold: no more than its process.
_ANY = sys.maxsize

_NURSERY = Nursery("app.bootstrap.audit_worker")


class ProcessChecker:
    """Has logs checked by processes, one at a time.

    Args:
        memory_limit: bytes that one may take, beside what its process has taken when it begins.
    """

    def __init__(self, memory_limit: int) -> None:
        self._memory_limit = memory_limit
        self._place = Workplace(_NURSERY)

    def check(self, copy: Copy, transcript: Transcribed, progress: Callable[[dict[str, Any]], None]) -> Outcome:
        """What is found.

        Raises:
            CuratorError: when a transcript cannot be had.
            CheckerDied: when the process ended before.
            OSError: when no process can be begun.
        """
        try:
            with self._place.working(copy.lines.fileno()) as connection:
                send(connection, b"%d" % self._memory_limit)
                send(connection, pickle.dumps((copy.key, copy.note, copy.earlier, copy.session)))
                while True:
                    kind, told = pickle.loads(receive(connection))  # noqa: S301 - from this program
                    if kind == "progress":
                        progress(told)
                    elif kind == "transcript":
                        with transcript(told) as file:
                            send(connection, b"%d" % (file is not None), *([] if file is None else [file.fileno()]))
                    elif kind == "outcome":
                        return told  # type: ignore[no-any-return]
                    else:
                        raise told
        except (EOFError, ConnectionError):
            raise CheckerDied(_KILLED) from None

    def cancel(self) -> None:
        """End what is under way, if anything is."""
        self._place.cancel()

    def stop(self) -> None:
        """End what is under way, and begin nothing more."""
        self._place.stop()


class _Asked(LogLines):
    """The log in a file, and transcripts that the server is asked for."""

    def __init__(self, log: BinaryIO, size: int, connection: socket.socket) -> None:
        super().__init__(log, size, lambda _: None)
        self._connection = connection

    def transcript(self, session: str, *, release: bool) -> AbstractContextManager[BinaryIO] | None:
        """A session's transcript; None where it is missing."""
        send(self._connection, pickle.dumps(("transcript", session)))
        head, descriptors, *_ = socket.recv_fds(self._connection, LENGTH.size, 1)
        head += take(self._connection, LENGTH.size - len(head))
        take(self._connection, LENGTH.unpack(head)[0])
        return os.fdopen(descriptors[0], "rb") if descriptors else None

    def others(self) -> Iterator[str]:
        """There are no transcripts but of sessions."""
        return iter(())


def _work(connection: socket.socket, log: int) -> None:
    """Check one log and tell what was found, behind requests, and with only so much memory."""
    stand_back(connection)
    told_at = 0.0

    def tell(kind: str, told: object) -> None:
        send(connection, pickle.dumps((kind, told)))

    def progress(stage: Stage, done: int, of: int, finding: dict[str, Any] | None) -> None:
        nonlocal told_at
        if done == of or time.monotonic() - told_at > _TOLD_SECONDS:
            told_at = time.monotonic()
            names = ("sessions", "of_sessions") if stage == "replay" else ("lines", "of_lines")
            numbers = dict(zip(names, (done, of), strict=True))
            tell("progress", {"stage": stage, **numbers, "finding": finding})

    limit_memory(int(receive(connection)))
    try:
        key, note, earlier, session = pickle.loads(receive(connection))  # noqa: S301 - from the server
        task = Task(key, note, None if earlier is None else Checkpoint.parse(earlier), session)
        with os.fdopen(log, "rb") as lines:
            kept = _Asked(lines, Verifier.parse(key).checkpoint(note).size, connection)
            result, document = checked(task, kept, _ANY, progress)
        reports = {"application/json": orjson.dumps(document), "text/html": page(document, BY_SERVICE).encode()}
        tell("outcome", Outcome(result, reports))
    except (ConnectionError, EOFError):
        return  # the server has ended, and nobody is there to be told
    except MemoryError:
        tell("refused", CheckerDied(_TOO_LARGE))
    except Undecided as error:
        memory = isinstance(error.__cause__, MemoryError)
        traceback.print_exc()
        tell("refused", CheckerDied(_TOO_LARGE if memory else str(error)))
    except BaseException:  # noqa: BLE001 - whatever it is
        traceback.print_exc()
        tell("refused", CheckerDied(_FAILED))


def main() -> NoReturn:
    """Fork a process for each log that comes, until the server ends."""
    fork_for_each(_work)


if __name__ == "__main__":
    main()
