"""The work that releases take, beside the requests: one after the other, by whichever process takes them.

The row of a release is the queue. Who works on it says so there, and that it is alive; a release whose worker is silent
is taken over. There are two parts:

1. **measuring**: noise is drawn, and what was measured is recorded with its charge, the end of the session and the next
   step, all in one transaction. Before that nothing has happened: a process that dies leaves a release that is measured
   anew, and what it drew is nowhere. After it nothing is drawn again, whatever happens.
2. **fitting**: what is made of the measurements. It is a function of them, computed in a process of its own, and may be
   done again; its files and the end of the release are one transaction.

Every write names the worker that took the release, by a name that is used for this once. Whoever was taken for dead and
was merely slow changes nothing any more: his release is another worker's by then, or has ended. When something fails
that is no refusal, such as the database, the row is read again before anything else is done: a commit that seemed to
fail may have happened.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol

import orjson
import structlog

from app.audit import records
from app.curator.evidence_plan import residuals_of
from app.curator.mechanisms import Measured
from app.curator.opening import Opening
from app.curator.power_release import PowerMechanism
from app.curator.session import Session
from app.curator.workload import WorkloadMechanism
from app.curator.workload_plan import WorkloadPlan
from app.evidence.degrees import GraphRelease
from app.evidence.strategies import Release
from app.privacy.ledger import total
from app.releases.finishing import Job, Outcome, Progress, WorkerDied
from app.releases.power import started
from app.services import spending
from app.services.errors import NotFound
from app.services.loading import pin_all
from app.services.measuring import measured_all
from app.services.openings import opening_of
from app.services.ports import (
    Clock,
    EntryRow,
    EvidenceRow,
    NoisePort,
    PrivateStore,
    ReleaseFile,
    ReleaseRow,
    ReleaseStep,
    SessionRow,
    Store,
    Transaction,
)
from app.services.release_files import tables_of
from app.services.release_rounds import play, play_power
from app.services.sessions import release_failure
from app.spaces.errors import CuratorError

log = structlog.get_logger(__name__)

#: How often a worker says that it is alive, how long it may be silent, and how often it looks for work, in seconds.
BEAT_SECONDS, SILENT_SECONDS, LOOK_SECONDS = 2.0, 60.0, 1.0
#: Pauses after what fails while the database answers, in seconds. After the last of them the release fails. Times in
#: which the database does not answer count for none.
PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0)
#: How long a stop waits for a transaction that is under way.
STOP_SECONDS = 10.0
#: How many measurements are read at a time.
_PAGE = 64


class Finisher(Protocol):
    """Makes what is to be made of measurements, where it keeps nobody waiting."""

    def finish(self, job: Job, progress: Progress) -> Outcome:
        """What came of it.

        Raises:
            CuratorError: when nothing can come of it.
            WorkerDied: when it was ended, by :meth:`cancel` or from outside.
        """

    def cancel(self) -> None:
        """End what is under way, if anything is."""

    def stop(self) -> None:
        """End what is under way, and begin nothing more."""


class Meter(Protocol):
    """Where durations are counted."""

    def fitted(self, seconds: float) -> None:
        """Something was made of measurements, in so long."""


class _Lost(Exception):
    """Somebody else has the release, or it has ended."""


class _Stopped(Exception):
    """The process ends: the release is for the next one."""


class _Closed(Exception):
    """The release's session is closed: a commit that seemed to fail has happened, or the release has ended."""


class ReleaseJobs:
    """Works on releases, one at a time, beside a running service.

    Args:
        store: where they are queued.
        private: the private numbers.
        noise: for measurements.
        finisher: makes what is to be made of them.
        clock: the time of records.
        meter: counts how long that takes.
        render: makes problem documents of refusals.
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
    ) -> None:
        self._store, self._private, self._noise, self._finisher = store, private, noise, finisher
        self._clock, self._meter, self._render = clock, meter, render
        self._stopping, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="releases", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End soon: what is not recorded is handed back, for another process or the next start."""
        self._stopping.set()
        self._wake.set()
        self._finisher.stop()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def wake(self) -> None:
        """There is something to do."""
        self._wake.set()

    def _watch(self) -> None:
        # Where one process writes, whatever was under way before it started is nobody's any more.
        silent = float("inf") if self._store.exclusive else SILENT_SECONDS
        while not self._stopping.is_set():
            try:
                if not self.work(silent):
                    silent = SILENT_SECONDS
                    self._wake.wait(LOOK_SECONDS)
                    self._wake.clear()
            except Exception as error:  # noqa: BLE001 - such as a database that is away: there is another time
                log.warning("releases cannot be worked on", error=type(error).__name__)
                self._stopping.wait(LOOK_SECONDS)

    def work(self, silent: float = SILENT_SECONDS) -> bool:
        """Take a release and carry it to its end; whether there was one.

        Args:
            silent: for how many seconds its worker must have been silent for one to be taken over.
        """
        now = time.time()
        since = float("inf") if silent == float("inf") else now - silent
        with self._store.read() as tx:
            if tx.next_release(since) is None:
                return False
        with self._store.write() as tx:
            row = tx.claim_release(secrets.token_hex(16), now, since)
            tx.commit()
        if row is None:
            return False
        try:
            self._carry(row)
        except _Lost:
            log.info("a release has ended, or another process works on it", release=row.id)
        return True

    def _carry(self, row: ReleaseRow) -> None:
        """Do what is left to do for a release that this process has taken.

        Raises:
            _Lost: when it is not this process' any more.
        """
        problem: bytes | None = None
        pauses = iter(PAUSES)
        while True:
            try:
                row = self._as_it_stands(row)
                if problem is not None:
                    self._fail(row, problem)
                elif self._stopping.is_set():
                    self._hand_back(row)
                else:
                    if row.step in ("queued", "measuring"):
                        row = self._measure(self._at(row, "measuring"))
                    self._fit(row)
                return
            except _Lost:
                raise
            except _Stopped:
                continue
            except CuratorError as error:
                problem = orjson.dumps(self._render(error))
            except WorkerDied as error:
                # A stop ends it too; and so does the end of the release, which is seen first.
                if not self._stopping.is_set():
                    log.error("what is made of a release was not finished", release=row.id, how=str(error))
                    problem = release_failure(f"{error}. {_KEPT}")
            except Exception as error:  # noqa: BLE001 - whatever it is, the release comes to an end, and it is told
                log.warning("a release cannot be worked on", release=row.id, error=type(error).__name__)
                if self._stopping.is_set():
                    return  # the next process takes it
                pause = next(pauses, None) if self._answers() else LOOK_SECONDS
                if pause is None:
                    log.error("a release failed", release=row.id, error=type(error).__name__)
                    problem, pause = release_failure(f"{_FAILED}. {_KEPT}"), LOOK_SECONDS
                self._stopping.wait(pause)

    def _answers(self) -> bool:
        """Whether the database does."""
        try:
            self._store.ping()
        except Exception:  # noqa: BLE001 - whatever it is
            return False
        return True

    # ------------------------------------------------------------------ measuring

    def _measure(self, row: ReleaseRow) -> ReleaseRow:
        """Draw and record; the row at its next step."""
        now = self._clock()  # before anything private is looked at
        # Very many numbers take minutes to be drawn, and rounds as long to be played.
        with self._beating(row) as progress:
            with self._store.read() as tx:
                session_row, dataset = tx.session(row.id), tx.dataset(row.dataset)
                assert session_row is not None
                assert dataset is not None
                if dataset.retired_at is not None:
                    raise NotFound("the data set was retired before anything was measured")
                opening = opening_of(session_row.header)
                session = Session(opening)
                pin_all(tx, row.dataset, session)
                pins = opening.evidence
                known = [] if pins is None else _known(tx, row.dataset, pins.known)
            data = self._private.tensor(opening.dataset.space, dataset.vault_entry)
            if self._stopping.is_set():
                raise _Stopped
            made = measured_all(self._noise, data, session.purchases())
            if isinstance(session.mechanism, PowerMechanism):
                power = session.mechanism.power
                made += play_power(power, started(power.edges, known), data, self._noise, progress)
            elif isinstance(session.mechanism, WorkloadMechanism) and session.mechanism.rounds is not None:
                hypothesis = session.mechanism.hypothesis(_tables(known), [each.table for each in made])
                made += play(session.mechanism.rounds, hypothesis, data, self._noise, progress)
        return self._record(row, made, now)

    def _record(self, row: ReleaseRow, made: list[Measured], now: str) -> ReleaseRow:
        """Entries, charge, the end of the session and the next step, together."""
        moved = replace(row, step="fitting", progress=0.0, beat=time.time())
        with self._store.write() as tx:
            session = tx.lock_sessions([row.id])[row.id]
            if session.status != "open":
                raise _Closed
            if not tx.move_release(moved, row.worker):
                raise _Lost
            entries, evidence = _entries(session, made, opening_of(session.header).request.share, now)
            share, movement = spending.charge(session, total(each.price for each in made), len(entries), now)
            after = session.after(len(entries), 0, len(entries), share, _head(entries, session))
            closed, returned = spending.end(after, now)
            tx.add_evidence(evidence)
            tx.append(entries, [])
            tx.move_sessions([closed])
            tx.move_ledger([movement, returned])
            tx.commit()
        return moved

    # ------------------------------------------------------------------ fitting

    def _fit(self, row: ReleaseRow) -> None:
        """Make what is to be made of the measurements, and end the release."""
        with self._store.read() as tx:
            session = tx.session(row.id)
            assert session is not None
            opening = opening_of(session.header)
            job = _job(tx, row, session, opening)
        begun = time.perf_counter()
        with self._beating(row) as progress:
            outcome = self._finisher.finish(job, progress)
        self._meter.fitted(time.perf_counter() - begun)
        files = [ReleaseFile(row.id, name, data) for name, data in tables_of(opening.dataset.space, outcome).items()]
        result = {"files": {file.name: len(file.data) for file in files}, **outcome.summary}
        done = replace(
            row, status="done", step="done", progress=1.0, finished_at=self._clock(), result=orjson.dumps(result)
        )
        with self._store.write() as tx:
            if not tx.move_release(done, row.worker):
                raise _Lost
            tx.add_release_files(files)
            tx.commit()

    @contextmanager
    def _beating(self, row: ReleaseRow) -> Iterator[Progress]:
        """While something takes long: say from time to time that it goes on, and how far it is.

        Nothing is said after the context's end, so that no beat undoes what is written then. A release that was lost
        meanwhile is not worked on any longer.
        """
        done, reached = threading.Event(), [row.progress]

        def beat() -> None:
            while not done.wait(BEAT_SECONDS):
                try:
                    self._at(row, row.step, reached[0])
                except _Lost:
                    self._finisher.cancel()
                    return
                except Exception as error:  # noqa: BLE001 - a beat that is missed is not the end
                    log.debug("a release's progress was not told", error=type(error).__name__)

        def progress(part: float) -> None:
            reached[0] = min(max(part, 0.0), 1.0)

        thread = threading.Thread(target=beat, name="release-beat", daemon=True)
        thread.start()
        try:
            yield progress
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
        self._move(moved, row.worker)
        return moved

    def _hand_back(self, row: ReleaseRow) -> None:
        """Another process may take it at once."""
        self._move(replace(row, status="queued", worker=None), row.worker)

    def _move(self, row: ReleaseRow, worker: str | None) -> None:
        with self._store.write() as tx:
            if not tx.move_release(row, worker):
                raise _Lost
            tx.commit()

    def _fail(self, row: ReleaseRow, problem: bytes) -> None:
        """End a release that came to nothing; what its session still holds returns."""
        now = self._clock()
        with self._store.write() as tx:
            session = tx.lock_sessions([row.id])[row.id]
            failed = replace(row, status="failed", finished_at=now, problem=problem)
            if not tx.move_release(failed, row.worker):
                raise _Lost
            if session.status == "open":
                closed, movement = spending.end(session, now)
                tx.move_sessions([closed])
                tx.move_ledger([movement])
            tx.commit()


_FAILED = "the server could not carry the release through; its log says why"
_KEPT = (
    "What was measured for it is kept among the data set's measurements; what was not used of its share has returned"
)


def _entries(
    session: SessionRow, made: list[Measured], share: bool, now: str
) -> tuple[list[EntryRow], list[EvidenceRow]]:
    """A record for each measurement, and the entry that names it."""
    entries, evidence, head = [], [], session.head_hash
    for sequence, measured in enumerate(made, start=1):
        line = records.measurement_record(
            session=session.id, sequence=sequence, measured=measured.document(), recorded_at=now
        )
        name = records.sha256(line)
        evidence.append(EvidenceRow(session.dataset, session.id, sequence, name, share, line))
        sealed = records.release_entry(sequence=sequence, recorded_at=now, previous_hash=head, measurement=name)
        entries.append(EntryRow(session.id, sequence, "release", None, None, None, sealed.line))
        head = sealed.entry_hash
    return entries, evidence


def _head(entries: list[EntryRow], session: SessionRow) -> str:
    return str(orjson.loads(entries[-1].line)["entry_hash"]) if entries else session.head_hash


def _job(tx: Transaction, row: ReleaseRow, session: SessionRow, opening: Opening) -> Job:
    """What is to be made of what was recorded for a release, and of what it began with."""
    plan, mechanism, pins = opening.plan, opening.request.mechanism, opening.evidence
    assert isinstance(plan, WorkloadPlan)
    assert pins is not None
    assert mechanism.options is not None
    made: dict[int, bytes] = {}
    for start in range(0, session.sequence, _PAGE):
        made |= tx.evidence_of(row.id, start, start + _PAGE)
    releases = [_release(made[sequence]) for sequence in sorted(made)]
    construction = None
    if plan.iterations is not None:
        construction = WorkloadMechanism(opening).construction(_tables(releases[: len(plan.buys)]))
    return Job(
        method=mechanism.method or "",
        options=mechanism.options.model_dump(exclude_none=True),
        workload=plan.workload,
        empty=residuals_of(opening.dataset.space, opening.dataset.records),
        known=_known(tx, row.dataset, pins.known),
        made=releases,
        seed=int(row.id[:15], 16),
        beta=opening.request.beta,
        construction=construction,
    )


def _known(tx: Transaction, dataset: str, names: tuple[str, ...]) -> list[Release | GraphRelease]:
    """What was measured of a data set before, in the order of its names."""
    lines = tx.evidence_named(dataset, names)
    return [_release(lines[name]) for name in names]


def _tables(releases: Sequence[Release | GraphRelease]) -> list[Release]:
    """Those of tables."""
    return [release for release in releases if isinstance(release, Release)]


def _release(line: bytes) -> Release | GraphRelease:
    return Measured.read(orjson.loads(line)).release
