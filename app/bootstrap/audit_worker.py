"""The process that checks a copy of the log: it has no private data, no key that signs and no database, and asks the
server for one transcript at a time.

It is forked and ended as those that finish releases (:mod:`.nursery`). Where others work for the server, it has some
transcripts replayed by them, and goes on with the next ones meanwhile.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, BinaryIO, NoReturn

import cryptography.hazmat.primitives.asymmetric.ed25519  # noqa: F401 - loaded once, for all that are forked
import orjson
import structlog

from app.audit.against_log import Due, Found
from app.audit.failures import Undecided
from app.bootstrap.nursery import LENGTH, Nursery, Workplace, fork_for_each, receive, send, stand_back, take
from app.bootstrap.process import limit_memory
from app.report.checking import Stage, Task, checked
from app.report.page import BY_SERVICE, page
from app.services.audit_ports import CheckerDied, Copy, Outcome, Transcribed
from app.services.closed_forms import Damaged
from app.services.release_jobs import Finisher
from app.services.replay_tasks import found_in, name_of, written
from app.verifying.folder import LogLines
from curator_client.proofs.findings import Unfollowed
from curator_client.proofs.notes import Checkpoint, Verifier

logger = structlog.get_logger(__name__)

#: Transcripts that others replay at a time at most, the bytes of these, and how many sessions are kept in memory that
#: are behind one of them.
AT_ONCE, MOST_BYTES, MOST_WAITING = 8, 64 << 20, 64
#: Of the memory that the process may take, those transcripts have one in so many parts at most: one of them is there up
#: to four times while it is handed on.
_PARTS = 8
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
        others: makes what has transcripts replayed elsewhere, for one log; None where nobody else works.
    """

    def __init__(self, memory_limit: int, others: Callable[[], Finisher] | None = None) -> None:
        self._memory_limit, self._others = memory_limit, others
        self._place = Workplace(_NURSERY)
        self._away: _Away | None = None

    def check(self, copy: Copy, transcript: Transcribed, progress: Callable[[dict[str, Any]], None]) -> Outcome:
        """What is found.

        Raises:
            CuratorError: when a transcript cannot be had.
            CheckerDied: when the process ended before.
            OSError: when no process can be begun.
        """
        self._away = None if self._others is None else _Away(self._others())
        try:
            with self._place.working(copy.lines.fileno()) as connection:
                send(connection, b"%d" % self._memory_limit)
                asked = (copy.key, copy.note, copy.earlier, copy.session, self._away is not None)
                send(connection, pickle.dumps(asked))
                while True:
                    kind, told = pickle.loads(receive(connection))  # noqa: S301 - from this program
                    if kind == "progress":
                        progress(told)
                    elif kind == "transcript":
                        with transcript(told) as file:
                            send(connection, b"%d" % (file is not None), *([] if file is None else [file.fileno()]))
                    elif kind == "replay" and self._away is not None:
                        self._away.put(*told)
                    elif kind == "replayed" and self._away is not None:
                        send(connection, pickle.dumps(self._away.back(awaited=told)))
                    elif kind == "outcome":
                        return told  # type: ignore[no-any-return]
                    else:
                        raise told
        except (EOFError, ConnectionError):
            raise CheckerDied(_KILLED) from None
        finally:
            if self._away is not None:
                self._away.close()

    def cancel(self) -> None:
        """End what is under way, if anything is."""
        self._place.cancel()
        if self._away is not None:
            self._away.end()

    def stop(self) -> None:
        """End what is under way, and begin nothing more."""
        self._place.stop()
        self.cancel()


class _Away:
    """Replays of one log's transcripts that others do.

    Args:
        finisher: has them done, and nothing else.
    """

    def __init__(self, finisher: Finisher) -> None:
        self._finisher = finisher
        self._threads = ThreadPoolExecutor(AT_ONCE, "replays")
        self._replays: dict[Future[bytes], int] = {}

    def put(self, number: int, task: bytes) -> None:
        """Have a task done, under a number."""
        self._replays[self._threads.submit(self._finisher.finish, task, lambda _: None)] = number

    def back(self, *, awaited: bool) -> list[tuple[int, bytes | None]]:
        """What has been done since the last time, by its numbers; None of what nobody could do. Where that is awaited,
        there is at least one.
        """
        done, _ = wait(self._replays, None if awaited else 0.0, FIRST_COMPLETED)
        return [(self._replays.pop(each), _result(each)) for each in done]

    def end(self) -> None:
        """End all that is under way, and begin nothing more."""
        self._finisher.stop()

    def close(self) -> None:
        """The same, and wait until that has ended."""
        self.end()
        self._threads.shutdown(cancel_futures=True)


def _result(done: Future[bytes]) -> bytes | None:
    error = done.exception()
    if error is not None:
        logger.warning("a transcript that others should replay is replayed here", error=type(error).__name__)
        return None
    return done.result()


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


class _Spread:
    """Has as many transcripts as may be replayed by others, and all that come meanwhile here.

    Args:
        connection: to the server, which hands them on.
        memory_limit: bytes that this process may take.
    """

    def __init__(self, connection: socket.socket, memory_limit: int) -> None:
        self._connection, self._most = connection, min(MOST_BYTES, memory_limit // _PARTS)
        #: What is replayed elsewhere, with its bytes and the name of its task, and what was found of those that follow
        #: on others.
        self._away: dict[int, tuple[Due, int, str]] = {}
        self._found: dict[int, Found | Unfollowed] = {}
        self._told = 0

    def __call__(self, due: Iterator[Due | Unfollowed]) -> Iterator[Found | Unfollowed]:
        """What becomes of each, in their order."""
        for number, each in enumerate(due):
            if self._away:
                self._take_back(awaited=False)
            if isinstance(each, Unfollowed):
                self._found[number] = each
            else:
                self._replay(number, each)
            yield from self._in_order()
            while number - self._told >= MOST_WAITING:
                self._take_back(awaited=True)
                yield from self._in_order()
        while self._away:
            self._take_back(awaited=True)
            yield from self._in_order()

    def _replay(self, number: int, due: Due) -> None:
        with due.transcript as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            due = replace(due, transcript=nullcontext(file))
            if len(self._away) == AT_ONCE or sum(held for _, held, _ in self._away.values()) + size > self._most:
                self._found[number] = _replayed(due)
                return
            due, task = written(due)
        self._away[number] = due, size, name_of(task)
        send(self._connection, pickle.dumps(("replay", (number, task))))

    def _take_back(self, *, awaited: bool) -> None:
        send(self._connection, pickle.dumps(("replayed", awaited)))
        for number, result in pickle.loads(receive(self._connection)):  # noqa: S301 - from the server
            due, _, name = self._away.pop(number)
            try:
                self._found[number] = _replayed(due) if result is None else found_in(result, name)
            except Damaged:  # others may have made something else of it
                self._found[number] = _replayed(due)

    def _in_order(self) -> Iterator[Found | Unfollowed]:
        while self._told in self._found:
            self._told += 1
            yield self._found.pop(self._told - 1)


def _replayed(due: Due) -> Found | Unfollowed:
    return due.replayed(_ANY, lambda _: None)


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

    memory_limit = int(receive(connection))
    limit_memory(memory_limit)
    try:
        key, note, earlier, session, others = pickle.loads(receive(connection))  # noqa: S301 - from the server
        task = Task(key, note, None if earlier is None else Checkpoint.parse(earlier), session)
        with os.fdopen(log, "rb") as lines:
            kept = _Asked(lines, Verifier.parse(key).checkpoint(note).size, connection)
            result, document = checked(
                task, kept, _ANY, progress, _Spread(connection, memory_limit) if others else None
            )
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
