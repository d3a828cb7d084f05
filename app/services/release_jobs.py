"""The work that releases take, beside the requests: one after the other, by whichever process takes them.

The row of a release is the queue. Who works on it says so there, and that it is alive; a release whose worker is silent
is taken over. There are two parts:

1. **measuring**: noise is drawn, and what was measured is recorded with its charge, the end of the session and the next
   step, all in one transaction. Before that nothing has happened: a process that dies leaves a release that is measured
   anew, and what it drew is nowhere. After it nothing is drawn again, whatever happens.
2. **fitting**: what is made of the measurements. It is a function of them, computed in a process of its own, and may be
   done again; its files and the end of the release are one transaction.
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
from app.curator.session import Session
from app.curator.workload import WorkloadMechanism
from app.curator.workload_plan import WorkloadPlan
from app.evidence.edges import EdgeRelease
from app.evidence.strategies import Release
from app.privacy.ledger import total
from app.releases.finishing import Job, Outcome, Progress
from app.services import spending
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
from app.services.release_rounds import play
from app.spaces.errors import CuratorError

log = structlog.get_logger(__name__)

#: How often a worker says that it is alive, how long it may be silent, and how often it looks for work, in seconds.
BEAT_SECONDS, SILENT_SECONDS, LOOK_SECONDS = 2.0, 60.0, 1.0
#: How many measurements are read at a time.
_PAGE = 64


class Finisher(Protocol):
    """Makes what is to be made of measurements, where it keeps nobody waiting."""

    def finish(self, job: Job, progress: Progress) -> Outcome:
        """What came of it.

        Raises:
            CuratorError: when nothing can come of it.
        """

    def stop(self) -> None:
        """End what is under way."""


class _Lost(Exception):
    """Somebody else has the release, or it has ended."""


class ReleaseJobs:
    """Works on releases, one at a time, beside a running service.

    Args:
        store: where they are queued.
        private: the private numbers.
        noise: for measurements.
        finisher: makes what is to be made of them.
        clock: the time of records.
        render: makes problem documents of refusals.
    """

    def __init__(
        self,
        store: Store,
        private: PrivateStore,
        noise: NoisePort,
        finisher: Finisher,
        clock: Clock,
        *,
        render: Callable[[CuratorError], dict[str, Any]],
    ) -> None:
        self._store, self._private, self._noise, self._finisher = store, private, noise, finisher
        self._clock, self._render = clock, render
        self._worker = secrets.token_hex(16)
        self._stopping, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="releases", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End soon: what is not recorded is left to the next start."""
        self._stopping.set()
        self._wake.set()
        self._finisher.stop()
        if self._thread.is_alive():
            self._thread.join(10.0)

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
            row = tx.claim_release(self._worker, now, since)
            tx.commit()
        if row is None:
            return False
        try:
            self._carry(row)
        except _Lost:
            log.info("a release has ended, or another process works on it", release=row.id)
        return True

    def _carry(self, row: ReleaseRow) -> None:
        try:
            if row.step in ("queued", "measuring"):
                row = self._measure(self._at(row, "measuring"))
            self._fit(row)
        except CuratorError as error:
            self._fail(row, self._render(error))
        except _Lost:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the release ends, and its owner is told
            if self._stopping.is_set():
                # Another process may take it at once.
                with self._store.write() as tx:
                    tx.move_release(replace(row, status="queued", worker=None), self._worker)
                    tx.commit()
                return
            log.error("a release failed", release=row.id, error=type(error).__name__)
            self._fail(row, None)

    # ------------------------------------------------------------------ measuring

    def _measure(self, row: ReleaseRow) -> ReleaseRow:
        """Draw and record; the row at its next step."""
        with self._store.read() as tx:
            session_row, dataset = tx.session(row.id), tx.dataset(row.dataset)
            assert session_row is not None
            assert dataset is not None
            opening = opening_of(session_row.header)
            session = Session(opening)
            pin_all(tx, row.dataset, session)
            pins = opening.evidence
            known = [] if pins is None else _known(tx, row.dataset, pins.known)
        data = self._private.tensor(opening.dataset.space, dataset.vault_entry)
        # Very many numbers take minutes to be drawn, and rounds as long to be played.
        with self._beating(row) as progress:
            made = measured_all(self._noise, data, session.purchases())
            if isinstance(session.mechanism, WorkloadMechanism) and session.mechanism.rounds is not None:
                hypothesis = session.mechanism.hypothesis(_tables(known), [each.table for each in made])
                made += play(session.mechanism.rounds, hypothesis, data, self._noise, progress)
        return self._record(row, made)

    def _record(self, row: ReleaseRow, made: list[Measured]) -> ReleaseRow:
        """Entries, charge, the end of the session and the next step, together."""
        now, moved = self._clock(), replace(row, step="fitting", progress=0.0, beat=time.time())
        with self._store.write() as tx:
            session = tx.lock_sessions([row.id])[row.id]
            if session.status != "open" or not tx.move_release(moved, self._worker):
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
        with self._beating(row) as progress:
            outcome = self._finisher.finish(job, progress)
        files = [ReleaseFile(row.id, name, data) for name, data in tables_of(opening.dataset.space, outcome).items()]
        result = {"files": {file.name: len(file.data) for file in files}, **outcome.summary}
        done = replace(
            row, status="done", step="done", progress=1.0, finished_at=self._clock(), result=orjson.dumps(result)
        )
        with self._store.write() as tx:
            if not tx.move_release(done, self._worker):
                raise _Lost
            tx.add_release_files(files)
            tx.commit()

    @contextmanager
    def _beating(self, row: ReleaseRow) -> Iterator[Progress]:
        """While something takes long: say from time to time that it goes on, and how far it is."""
        done, reached = threading.Event(), [0.0]

        def beat() -> None:
            while not done.wait(BEAT_SECONDS):
                try:
                    self._at(row, row.step, reached[0])
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

    def _at(self, row: ReleaseRow, step: ReleaseStep, progress: float = 0.0) -> ReleaseRow:
        moved = replace(row, step=step, progress=progress, beat=time.time())
        with self._store.write() as tx:
            if not tx.move_release(moved, self._worker):
                raise _Lost
            tx.commit()
        return moved

    def _fail(self, row: ReleaseRow, problem: dict[str, Any] | None) -> None:
        """End a release that came to nothing; what its session still holds returns."""
        now = self._clock()
        if problem is None:
            problem = {"type": "about:blank", "title": "The release failed", "status": 500, "detail": _FAILED}
        with self._store.write() as tx:
            session = tx.lock_sessions([row.id])[row.id]
            failed = replace(row, status="failed", finished_at=now, problem=orjson.dumps(problem))
            if not tx.move_release(failed, self._worker):
                raise _Lost
            if session.status == "open":
                closed, movement = spending.end(session, now)
                tx.move_sessions([closed])
                tx.move_ledger([movement])
            tx.commit()


_FAILED = (
    "the server could not carry the release through; its log says why. What was measured for it is kept among the data "
    "set's measurements, and what was not used of its share has returned"
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


def _known(tx: Transaction, dataset: str, names: tuple[str, ...]) -> list[Release | EdgeRelease]:
    """What was measured of a data set before, in the order of its names."""
    lines = tx.evidence_named(dataset, names)
    return [_release(lines[name]) for name in names]


def _tables(releases: Sequence[Release | EdgeRelease]) -> list[Release]:
    """Those of tables."""
    return [release for release in releases if isinstance(release, Release)]


def _release(line: bytes) -> Release | EdgeRelease:
    return Measured.read(orjson.loads(line)).release
