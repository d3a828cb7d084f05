"""The work that releases take, beside the requests, by whichever process takes them: of those that wait the next one of
the principal who was served longest ago.

The row of a release is the queue. Who works on it says so there, and that it is alive; a release whose worker is silent
is taken over. There are two parts:

1. **measuring**: this step is committed before anything is computed from the private data. From then on noise is drawn
   once: either what was measured is recorded with its charge, the end of the session and the next step, all in one
   transaction, or the release fails and its whole share is charged (:mod:`.release_ends`). Whoever finds a release in
   this step that another worker has begun ends it so: nobody knows what was drawn.
2. **fitting**: what is made of the measurements. It is a function of them, computed in a process of its own, and may be
   done again; its files and the end of the release are one transaction.

Every write names the state that it changes: status, step, and the worker that took the release, by a name that is used
for this once. Whoever was taken for dead and was merely slow changes nothing any more: his release is another worker's
by then, or has ended. When something fails that is no refusal, such as the database, the row is read again before
anything else is done: a commit that seemed to fail may have happened.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, Protocol

import orjson
import structlog

from app.audit.log import publication_record
from app.curator.mechanisms.protocol import Measured
from app.curator.opening import Header, Opening
from app.curator.planners.workload import WorkloadPlan
from app.declarations.errors import CuratorError
from app.patience import Progress
from app.releases.finishing import TookTooLong, WorkerDied
from app.services.errors import ReleaseFailed, ReleaseTooLong
from app.services.openings import opening_of
from app.services.ports import (
    Clock,
    NoisePort,
    PrivateStore,
    ReleaseFile,
    ReleaseRow,
    ReleaseStep,
    SessionRow,
    Store,
    Transaction,
)
from app.services.publications import manifest
from app.services.release_ends import end_release
from app.services.release_measuring import measured_for, ready, record
from app.services.release_tasks import Result, Task
from app.services.tracing import UNTRACED, Tracer
from app.spaces.counts import NotCounted

logger = structlog.get_logger(__name__)

#: How often a worker says that it is alive, how long it may be silent, and how often it looks for work, in seconds.
BEAT_SECONDS, SILENT_SECONDS, LOOK_SECONDS = 2.0, 60.0, 1.0
#: Releases that are foretold to take no longer have a thread of their own, and how long one may be fitted there, in
#: seconds. Whoever asks for such a one waits behind no other kind: docs/operations/watch.md states the bound.
QUICK_SECONDS, QUICK_LIMIT = 10.0, 30.0
#: Pauses after what fails while the database answers, in seconds. After the last of them the release fails. Times in
#: which the database does not answer count for none.
PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)
#: How long a stop waits for a transaction that is under way, and for noise that is being drawn: what is not recorded by
#: then is charged and lost.
STOP_SECONDS, DRAWING_SECONDS = 10.0, 60.0
_STOP_LOOK = 0.1
#: How many measurements are read at a time.
_PAGE = 64


class Finisher(Protocol):
    """Makes what is to be made of measurements, where it keeps nobody waiting."""

    def finish(self, task: bytes, progress: Progress) -> bytes:
        """The result of a task, both in their closed forms (:mod:`.tasks`). From any thread, several at once.

        Raises:
            CuratorError: when nothing can come of it.
            WorkerDied: when it was ended, by :meth:`cancel` or from outside.
            TookTooLong: when it was ended for the time that it took.
        """

    def cancel(self) -> None:
        """End what is under way, if anything is."""

    def stop(self) -> None:
        """End what is under way, and begin nothing more."""


class Meter(Protocol):
    """Where durations are counted."""

    def fitted(self, seconds: float) -> None:
        """Something was made of measurements, in so long."""

    def not_converged(self, what: Literal["releases"], number: int) -> None:
        """Count so many whose solver did not meet its tolerance."""


class _Lost(Exception):
    """Somebody else has the release, or it has ended."""


class _Stopped(Exception):
    """The process ends: the release is for the next one."""


class _Closed(Exception):
    """The release's session is closed: a commit that seemed to fail has happened, or the release has ended."""


@dataclass
class _Lane:
    """A thread that works on one release at a time.

    Attributes:
        finisher: what is made of measurements is made there.
        most_seconds: only releases that are foretold to take no longer are taken.
        drawing: set while noise is about to be drawn, drawn and recorded.
    """

    finisher: Finisher
    most_seconds: float
    thread: threading.Thread = field(init=False)
    wake: threading.Event = field(default_factory=threading.Event)
    drawing: threading.Event = field(default_factory=threading.Event)

    @property
    def quick(self) -> bool:
        """Whether some releases are left to another lane."""
        return self.most_seconds < math.inf


class ReleaseJobs:
    """Works on releases beside a running service: on one of any kind, and on one that is foretold to be quick.

    So a release that is quick waits for no other kind. One that takes longer than was foretold is ended there and left
    to the other thread, which begins it anew.

    Args:
        store: where they are queued.
        private: the private numbers.
        noise: for measurements.
        finisher: makes what is to be made of them.
        clock: the time of records.
        meter: counts how long that takes.
        render: makes problem documents of refusals.
        have_counted: has numbers counted where records are, among what others wait for
            (:meth:`.answering.parked.Parked.wait`).
        quick: the same for those that are foretold to be quick; where left out they are done with the others.
        tracer: told how long that takes.
        spendable: refuses a data set of which nothing may be spent.
    """

    def __init__(
        self,
        store: Store,
        private: PrivateStore,
        noise: NoisePort,
        finisher: Finisher,
        clock: Clock,
        meter: Meter,
        *,
        render: Callable[[CuratorError], dict[str, Any]],
        have_counted: Callable[[str, NotCounted, Callable[[CuratorError | None], None]], None],
        quick: Finisher | None = None,
        tracer: Tracer = UNTRACED,
        spendable: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._tracer, self._spendable = tracer, spendable
        self._store, self._private, self._noise = store, private, noise
        self._clock, self._meter, self._render, self._have_counted = clock, meter, render, have_counted
        self._stopping = threading.Event()
        self._lanes = [_Lane(finisher, math.inf)]
        if quick is not None:
            self._lanes.append(_Lane(quick, QUICK_SECONDS))
        for lane in self._lanes:
            name = "quick-releases" if lane.quick else "releases"
            lane.thread = threading.Thread(target=self._watch, args=(lane,), name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        if self._store.exclusive:
            # Where one process writes, whatever was under way before it started is nobody's any more.
            with self._store.write() as tx:
                tx.orphan_releases()
                tx.commit()
        for lane in self._lanes:
            lane.thread.start()

    def stop(self) -> None:
        """End soon: what is not measured yet, or measured and recorded, is handed back, for another process or the next
        start. Noise that is being drawn is waited for.
        """
        self._stopping.set()
        for lane in self._lanes:
            lane.wake.set()
            lane.finisher.stop()
        until = time.monotonic() + DRAWING_SECONDS
        for lane in self._lanes:
            while lane.thread.is_alive() and lane.drawing.is_set() and time.monotonic() < until:
                lane.thread.join(_STOP_LOOK)
        for lane in self._lanes:
            if lane.thread.is_alive():
                lane.thread.join(STOP_SECONDS)

    def wake(self) -> None:
        """There is something to do."""
        for lane in self._lanes:
            lane.wake.set()

    def _watch(self, lane: _Lane) -> None:
        while not self._stopping.is_set():
            try:
                if not self._work(lane, SILENT_SECONDS):
                    lane.wake.wait(LOOK_SECONDS)
                    lane.wake.clear()
            except Exception as error:  # noqa: BLE001 - such as a database that is away: there is another time
                logger.warning("releases cannot be worked on", error=type(error).__name__)
                self._stopping.wait(LOOK_SECONDS)

    def work(self, silent: float = SILENT_SECONDS, *, quick: bool = False) -> bool:
        """Take a release and carry it to its end; whether there was one.

        Args:
            silent: for how many seconds its worker must have been silent for one to be taken over.
            quick: as the thread for releases that are foretold to be quick does.
        """
        return self._work(self._lanes[int(quick)], silent)

    def _work(self, lane: _Lane, silent: float) -> bool:
        now = time.time()
        since = math.inf if silent == math.inf else now - silent
        with self._store.read() as tx:
            if tx.next_release(since, lane.most_seconds, now + silent) is None:
                return False
        with self._store.write() as tx:
            row = tx.claim_release(secrets.token_hex(16), now, since, lane.most_seconds, now + silent)
            tx.commit()
        if row is None:
            return False
        try:
            self._carry(row, lane)
        except _Lost:
            logger.info("a release has ended, or another process works on it", release=row.id)
        return True

    def _carry(self, row: ReleaseRow, lane: _Lane) -> None:
        """Do what is left to do for a release that this process has taken.

        Raises:
            _Lost: when it is not this process' any more.
        """
        course = _Course(row, lane)
        pauses = iter(PAUSES)
        while True:
            try:
                course.row = self._as_it_stands(course.row)
                self._go_on(course)
                return
            except _Lost:
                raise
            except _Stopped:
                continue
            except CuratorError as error:
                course.problem = self._told(error)
            except WorkerDied as error:
                # A stop ends it too; and so does the end of the release, which is seen first.
                if lane.quick:
                    course.longer = True
                elif isinstance(error, TookTooLong):
                    course.problem = self._told(ReleaseTooLong(f"{error}. {_KEPT}"))
                elif not self._stopping.is_set():
                    logger.error("what is made of a release was not finished", release=row.id, how=str(error))
                    course.problem = self._told(ReleaseFailed(f"{error}. {_KEPT}"))
            except Exception as error:  # noqa: BLE001 - whatever it is, the release comes to an end, and it is told
                logger.warning("a release cannot be worked on", release=row.id, error=type(error).__name__)
                if self._stopping.is_set():
                    return  # the next process takes it
                pause = next(pauses, None) if self._answers() else LOOK_SECONDS
                if pause is None:
                    logger.error("a release failed", release=row.id, error=type(error).__name__)
                    course.problem, pause = self._told(ReleaseFailed(_FAILED)), LOOK_SECONDS
                self._stopping.wait(pause)

    def _told(self, error: CuratorError) -> bytes:
        """The problem that a release's row keeps."""
        return orjson.dumps(self._render(error))

    def _go_on(self, course: _Course) -> None:
        """Carry a release on from where it stands to its end, or to its return to the queue.

        Raises:
            Exception: whatever goes wrong; what is done by then stands in ``course`` and in the row.
        """
        row = course.row
        if row.step == "measuring" and course.made is not None:
            try:
                course.row = row = self._record(row, course.made, course.now)
            except Exception:
                if course.problem is None:
                    raise
            else:
                course.problem = None
        if row.step == "measuring" and course.begun:
            # Why is not told: it may depend on what was counted and drawn.
            self._fail(row, self._told(ReleaseFailed(_LOST_NOISE)))
            return
        if course.problem is not None:
            self._fail(row, course.problem)
            return
        if course.longer or (row.step != "measuring" and self._stopping.is_set()):
            self._hand_back(row, longer=course.longer)
            return
        if row.step in ("queued", "measuring"):
            course.row = row = self._measure(course)
        self._fit(row, course.lane)

    def _answers(self) -> bool:
        """Whether the database does."""
        try:
            self._store.ping()
        except Exception:  # noqa: BLE001 - whatever it is
            return False
        return True

    # ------------------------------------------------------------------ measuring

    def _counted(self, course: _Course, lacking: NotCounted) -> None:
        """Wait until numbers are counted, as whoever asks a question does.

        Raises:
            CuratorError: when they cannot be.
            _Stopped: when the process ends, and nothing was drawn yet.
        """
        done, found = threading.Event(), list[CuratorError | None]()

        def back(error: CuratorError | None) -> None:
            found.append(error)
            done.set()

        self._have_counted(course.row.owner, lacking, back)
        while not done.wait(_STOP_LOOK):
            if self._stopping.is_set():
                if not course.begun:
                    raise _Stopped
                lacking.count()  # nothing more is begun for those who wait, and what was drawn would be lost
                return
        if found[0] is not None:
            raise found[0]

    def _measure(self, course: _Course) -> ReleaseRow:
        """Look for all that is needed, commit that noise will be drawn, draw, and record; the row at its next step."""
        course.now = self._clock()
        # Records that stay where they are may take minutes to be counted.
        with self._beating(course.row, course.lane):
            needed = ready(self._store, self._private, course.row, partial(self._counted, course))
        # Before it is looked whether to stop: a stop looks for this afterwards.
        course.lane.drawing.set()
        try:
            if self._stopping.is_set() and course.row.step == "queued":
                raise _Stopped
            if course.row.step == "queued":
                self._spendable(course.row.dataset)
                course.row = self._at(course.row, "measuring")
            # From here on nothing returns, and nothing is drawn a second time, whatever is raised.
            course.begun = True
            # Very many numbers take minutes to be drawn, and rounds as long to be played.
            with self._beating(course.row, course.lane) as progress:
                course.made = measured_for(needed, self._noise, progress)
            return self._record(course.row, course.made, course.now)
        finally:
            course.lane.drawing.clear()

    def _record(self, row: ReleaseRow, made: list[Measured], now: str) -> ReleaseRow:
        """Entries, charge, the end of the session and the next step, together."""
        moved = replace(row, step="fitting", progress=0.0, beat=time.time())
        with self._store.write() as tx:
            session = tx.lock_sessions([row.id])[row.id]
            if session.status != "open":
                raise _Closed
            if not tx.move_release(moved, row):
                raise _Lost
            # A clock may have been set back.
            record(tx, session, made, max(now, session.opened_at))
            tx.commit()
        return moved

    # ------------------------------------------------------------------ fitting

    def _fit(self, row: ReleaseRow, lane: _Lane) -> None:
        """Make what is to be made of the measurements, and end the release."""
        with self._store.read() as tx:
            session = tx.session(row.id)
            assert session is not None
            opening = opening_of(session.header)
            lines = _measured_lines(tx, session)
            task = _task(tx, row, opening, session, lines)
        begun, began = time.perf_counter(), time.time()
        with self._beating(row, lane) as progress:
            made = Result.read(lane.finisher.finish(task.written(), progress))
        self._meter.fitted(time.perf_counter() - begun)
        self._tracer.part("job", None, began, time.time(), "release")
        assert isinstance(opening.plan, WorkloadPlan)
        made.check(opening.request.workload.method, opening.plan.workload)
        tables, event = dict(made.files), None
        if made.agreeing:
            told = manifest(row.id, opening, lines, session.head_hash, made.summary, tables["tables"])
            tables["manifest"] = told
            named = hashlib.sha256(told).hexdigest()
            event = publication_record(name=row.dataset, release=row.id, manifest=named, recorded_at=self._clock())
        files = [ReleaseFile(row.id, name, data) for name, data in tables.items()]
        result = {"files": {file.name: len(file.data) for file in files}, **made.summary}
        if not made.converged:
            result["converged"] = False
            self._meter.not_converged("releases", 1)
            logger.warning("a fit of a release ended before its tolerance", release=row.id)
        done = replace(
            row, status="done", step="done", progress=1.0, finished_at=self._clock(), result=orjson.dumps(result)
        )
        with self._store.write() as tx:
            if not tx.move_release(done, row):
                raise _Lost
            tx.add_release_files(files)
            if event is not None:
                tx.add_event(event)
            tx.commit()

    @contextmanager
    def _beating(self, row: ReleaseRow, lane: _Lane) -> Iterator[Progress]:
        """While something takes long: say from time to time that it goes on, and how far it is.

        Nothing is said after the context's end, so that no beat undoes what is written then. A release that was lost
        meanwhile is not worked on any longer.
        """
        done, lost, reached = threading.Event(), threading.Event(), [row.progress]

        def beat() -> None:
            while not done.wait(BEAT_SECONDS):
                try:
                    self._at(row, row.step, reached[0])
                except _Lost:
                    lost.set()
                    lane.finisher.cancel()
                    return
                except Exception as error:  # noqa: BLE001 - a beat that is missed is not the end
                    logger.debug("a release's progress was not told", error=type(error).__name__)

        def progress(part: float) -> None:
            reached[0] = min(max(part, 0.0), 1.0)

        thread = threading.Thread(target=beat, name="release-beat", daemon=True)
        thread.start()
        try:
            yield progress
        except WorkerDied:
            if lost.is_set():
                raise _Lost from None
            raise
        finally:
            done.set()
            thread.join()

    # ------------------------------------------------------------------ rows

    def _as_it_stands(self, row: ReleaseRow) -> ReleaseRow:
        """The row as it is stored.

        Raises:
            _Lost: when it is not this worker's.
        """
        with self._store.read() as tx:
            found = tx.release(row.id)
        if found is None or found.status != "running" or found.worker != row.worker:
            raise _Lost
        return found

    def _at(self, row: ReleaseRow, step: ReleaseStep, progress: float = 0.0) -> ReleaseRow:
        moved = replace(row, step=step, progress=progress, beat=time.time())
        self._move(moved, row)
        return moved

    def _hand_back(self, row: ReleaseRow, *, longer: bool) -> None:
        """Another process may take it at once; where it takes longer than was foretold, another lane."""
        foretold = 2 * QUICK_LIMIT if longer else row.expected_seconds
        self._move(replace(row, status="queued", worker=None, progress=0.0, expected_seconds=foretold), row)

    def _move(self, row: ReleaseRow, before: ReleaseRow) -> None:
        with self._store.write() as tx:
            if not tx.move_release(row, before):
                raise _Lost
            tx.commit()

    def _fail(self, row: ReleaseRow, problem: bytes) -> None:
        """End a release that came to nothing."""
        with self._store.write() as tx:
            if not end_release(tx, row, "failed", self._clock(), problem):
                raise _Lost
            tx.commit()


_FAILED = "the server could not carry the release through; its log says why"
_KEPT = "What was measured for it is kept among the data set's measurements, and so is its charge"
_LOST_NOISE = (
    "the release was broken off while its noise was drawn, and what was drawn is lost. Its share is charged, for that "
    "may tell of what was drawn. The server's log says more. Ask for another release"
)


@dataclass
class _Course:
    """How far this process has come with a release.

    Attributes:
        row: as it stood last.
        lane: where it is worked on.
        begun: whether noise was drawn, or may have been: by this process, or by who had the release before.
        now: the time of the records of what this process measures, taken before anything private is looked at.
        made: what it measured, recorded or not.
        problem: why nothing will come of it.
        longer: whether it turned out to be none for a lane of quick ones.
    """

    row: ReleaseRow
    lane: _Lane
    begun: bool = field(init=False)
    now: str = ""
    made: list[Measured] | None = field(default=None, repr=False)
    problem: bytes | None = None
    longer: bool = False

    def __post_init__(self) -> None:
        self.begun = self.row.step == "measuring"


def _measured_lines(tx: Transaction, session: SessionRow) -> list[bytes]:
    """The records of what was measured for a release, in their order."""
    lines: dict[int, bytes] = {}
    for start in range(0, session.sequence, _PAGE):
        lines |= tx.evidence_of(session.id, start, start + _PAGE)
    return [lines[sequence] for sequence in sorted(lines)]


def _task(tx: Transaction, row: ReleaseRow, opening: Opening, session: SessionRow, made: Sequence[bytes]) -> Task:
    """The task to finish a release from what was recorded for it, and from what it began with."""
    assert opening.evidence is not None
    names = opening.evidence.known
    known = tx.evidence_named(row.dataset, names)
    header = Header.read(session.header).document
    return Task.of(header, [known[name] for name in names], made, seed=int(row.id[:15], 16))
