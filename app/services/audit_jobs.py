"""The work that audits take, beside the requests: the log is copied, and a process without keys or private data checks
the copy and the transcripts that it asks for.

The row of an audit is the work to be done. Who works on it says so there, and that it is alive. An audit whose worker
has ended, however that came, is stopped, and never gone on with: what it had found by then is told as no verdict. So is
one that somebody stops. Its end is written once nothing works for it any more, and another one may begin.

What is read of the database are pages of it, each in a transaction of its own. Copies lie in files without names,
within what exports may take of the disk; they are gone with the processes that have them open.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any, BinaryIO, Protocol

import orjson
import structlog

from app.declarations.errors import CuratorError
from app.services.audit_ports import AuditRow, AuditStore, Checker, CheckerDied, Copy, Outcome
from app.services.audits import before
from app.services.errors import AuditFailed
from app.services.exports import Export, ExportSpace
from app.services.log import Log
from app.services.ports import Clock
from app.services.tracing import UNTRACED, Tracer
from app.services.transcripts import Transcripts
from curator_client.proofs.notes import Verifier

logger = structlog.get_logger(__name__)

#: How often a worker says that it is alive, how long it may be silent, how often it looks for work, and for audits that
#: are left behind or have been kept long enough, in seconds.
BEAT_SECONDS, SILENT_SECONDS, LOOK_SECONDS, TEND_SECONDS = 1.0, 60.0, 1.0, 30.0
#: Bytes of a transcript that are copied between two pauses.
PAGE_BYTES = 1 << 18
#: How long a stop waits for the thread that works.
STOP_SECONDS = 10.0
_FAILED = "the server could not carry the audit through; its log says why. Start another one"


class Meter(Protocol):
    """Where audits are counted."""

    def audited(self, outcome: str) -> None:
        """Count an audit by what became of it."""


class _Ended(Exception):
    """The audit is not to go on: somebody stops it, the server ends, or it is taken for dead."""


class AuditJobs:
    """Works on audits beside a running service, one at a time.

    Args:
        store: where they are.
        log: what is checked.
        transcripts: of its sessions.
        space: disk for copies.
        checker: checks them.
        clock: the time of records.
        meter: counts what becomes of audits.
        render: makes problem documents of refusals.
        tracer: told how long each took.
    """

    def __init__(
        self,
        store: AuditStore,
        log: Log,
        transcripts: Transcripts,
        space: ExportSpace,
        checker: Checker,
        clock: Clock,
        meter: Meter,
        *,
        render: Callable[[CuratorError], dict[str, Any]],
        tracer: Tracer = UNTRACED,
    ) -> None:
        self._tracer = tracer
        self._store, self._log, self._transcripts, self._space = store, log, transcripts, space
        self._checker, self._clock, self._meter, self._render = checker, clock, meter, render
        self._stopping, self._wake, self._tended = threading.Event(), threading.Event(), 0.0
        self._thread = threading.Thread(target=self._watch, name="audits", daemon=True)

    def start(self) -> None:
        """Begin."""
        if self._store.exclusive:
            # Where one process writes, whatever was under way before it started is nobody's any more.
            self._store.abandon(float("inf"), self._clock())
        self._thread.start()

    def stop(self) -> None:
        """End soon: an audit that is under way is stopped."""
        self._stopping.set()
        self._wake.set()
        self._checker.stop()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def wake(self) -> None:
        """There is something to do, or to stop."""
        self._wake.set()

    def _watch(self) -> None:
        while not self._stopping.is_set():
            try:
                self.tend()
                if not self.work():
                    self._wake.wait(LOOK_SECONDS)
                    self._wake.clear()
            except Exception as error:  # noqa: BLE001 - such as a database that is away: there is another time
                logger.warning("audits cannot be worked on", error=type(error).__name__)
                self._stopping.wait(LOOK_SECONDS)

    def tend(self) -> None:
        """From time to time, let audits that nobody works on be stopped, and remove those of yesterday."""
        if time.monotonic() - self._tended >= TEND_SECONDS:
            self._tended = time.monotonic()
            now = time.time()
            self._store.abandon(now - SILENT_SECONDS, self._clock(), now + SILENT_SECONDS)
            self._store.forget(None, before(self._clock))

    def work(self) -> bool:
        """Take the audit that waits and carry it to its end; whether there was one."""
        row = self._store.take(secrets.token_hex(16), time.time())
        if row is None:
            return False
        began = time.time()
        with _Beating(self._store, self._checker, row, self._wake, self._stopping) as course:
            ended, reports = self._carry(row, course)
        # Nothing works for it from here on.
        ended = replace(ended, finished_at=self._clock(), progress=course.told())
        if not self._store.end(ended, reports):
            # It was stopped at the last moment, or taken for dead.
            ended = replace(ended, status="stopped", problem=None, verdict=None, result=None)
            self._store.end(ended, {})
        outcome = ended.status if ended.verdict is None else ended.verdict
        self._meter.audited(outcome)
        self._tracer.part("job", None, began, time.time(), "audit", outcome)
        tell = logger.warning if outcome == "does not hold" else logger.info
        tell("an audit has ended", audit=row.id, outcome=outcome)
        return True

    def _carry(self, row: AuditRow, course: _Beating) -> tuple[AuditRow, dict[str, bytes]]:
        """The row as it is to end, and the reports."""
        try:
            found = self._checked(row, course)
            told = orjson.dumps(found.result)
            return replace(row, status="done", verdict=found.result["verdict"], result=told), found.reports
        except _Ended:
            return replace(row, status="stopped"), {}
        except CheckerDied as error:
            if course.over:
                return replace(row, status="stopped"), {}
            logger.error("an audit was not finished", audit=row.id, how=str(error))
            problem: CuratorError = AuditFailed(f"{error}. This says nothing of the log, for or against it")
        except CuratorError as error:
            problem = error
        except Exception as error:  # noqa: BLE001 - whatever it is, the audit comes to an end, and it is told
            logger.error("an audit failed", audit=row.id, error=type(error).__name__)
            problem = AuditFailed(_FAILED)
        return replace(row, status="failed", problem=orjson.dumps(self._render(problem))), {}

    def _checked(self, row: AuditRow, course: _Beating) -> Outcome:
        with ExitStack() as stack:
            # The key first: if another one comes before the checkpoint, the note is refused, and the audit fails.
            key = self._log.keys.verifier
            note = self._log.checkpoint()
            lines = self._copied(stack.enter_context(closing(self._space.open(row.owner))), key, note, course)
            copies: deque[Export] = deque()
            stack.callback(lambda: deque(map(Export.close, copies), maxlen=0))

            @contextmanager
            def transcript(session: str) -> Iterator[BinaryIO | None]:
                course.check()
                recorded = self._transcripts.recorded(session)
                # Where a transcript and the log part is found with two readings of it.
                while len(copies) > 1:
                    copies.popleft().close()
                if recorded is None:
                    yield None
                    return
                copies.append(self._space.open(row.owner))
                yield _written(copies[-1], recorded, course)

            return self._checker.check(Copy(key.text(), note, lines, row.earlier, row.session), transcript, course.tell)

    def _copied(self, export: Export, key: Verifier, note: bytes, course: _Beating) -> BinaryIO:
        """A file with all lines of the log of a checkpoint."""
        size, number = key.checkpoint(note).size, 0
        while number < size:
            begun = time.monotonic()
            page = self._log.entries(number, size - 1)
            export.write(page)
            number += page.count(b"\n")
            course.tell({"stage": "copying", "lines": number, "of_lines": size})
            course.pause(begun)
        return export.file()


def _written(export: Export, lines: Iterator[bytes], course: _Beating) -> BinaryIO:
    """A file with the lines of a transcript."""
    begun, paused = time.monotonic(), 0
    for line in lines:
        export.write(line)
        if export.size - paused >= PAGE_BYTES:
            course.pause(begun)
            begun, paused = time.monotonic(), export.size
    return export.file()


class _Beating:
    """While an audit is worked on: says from time to time that it goes on, and how far it is, and ends its process when
    it is not to.

    Nothing is said after the context's end, so that no beat undoes what is written then.
    """

    def __init__(
        self, store: AuditStore, checker: Checker, row: AuditRow, wake: threading.Event, stopping: threading.Event
    ) -> None:
        self._store, self._checker, self._row = store, checker, row
        self._wake, self._stopping, self._over, self._done = wake, stopping, threading.Event(), threading.Event()
        self._progress: dict[str, Any] = orjson.loads(row.progress)
        self._thread = threading.Thread(target=self._beat, name="audit-beat", daemon=True)

    def __enter__(self) -> _Beating:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._wake.set()
        self._thread.join()

    @property
    def over(self) -> bool:
        """Whether it is not to go on."""
        return self._over.is_set() or self._stopping.is_set()

    def check(self) -> None:
        """Go on.

        Raises:
            _Ended: when it is not to.
        """
        if self.over:
            raise _Ended

    def pause(self, begun: float) -> None:
        """Leave the interpreter to requests for as long as something took that has begun then.

        Raises:
            _Ended: when it is not to go on.
        """
        self._over.wait(time.monotonic() - begun)
        self.check()

    def tell(self, progress: dict[str, Any]) -> None:
        """How far it is; what is left out is as it was."""
        self._progress = {**self._progress, **progress}

    def told(self) -> bytes:
        """How far it is."""
        return orjson.dumps(self._progress)

    def _beat(self) -> None:
        while not self._done.is_set():
            try:
                if not self._store.beat(self._row, self.told(), time.time()):
                    self._over.set()
                    self._checker.cancel()
                    return
            except Exception as error:  # noqa: BLE001 - a beat that is missed is not the end
                logger.debug("an audit's progress was not told", error=type(error).__name__)
            self._wake.wait(BEAT_SECONDS)
            self._wake.clear()
