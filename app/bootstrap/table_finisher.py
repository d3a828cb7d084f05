"""Tasks are done by workers on other machines, over a table of the database that is all they see."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import structlog
from sqlalchemy.exc import SQLAlchemyError

from app.patience import Progress
from app.releases.finishing import WorkerDied
from app.services.closed_forms import result_of
from app.storage.job_table import MOST_BYTES, MOST_CLAIMS, SILENT_SECONDS, JobTable, Kind

logger = structlog.get_logger(__name__)

#: How often it is looked how a job stands, and how often it is said that it is waited for, in seconds.
LOOK_SECONDS, BEAT_SECONDS = 0.5, 2.0
#: After so many seconds without a worker the log says so.
LONELY_SECONDS = 60.0
#: What is found of a transcript is at most so many bytes longer than its task, of which it names measurements.
REPLAY_BYTES = 1 << 20

_CANCELLED = "it was ended before it was done"
_REMOVED = "its row was removed from the table of jobs"
_GIVEN_UP = f"{MOST_CLAIMS} workers took it one after another and fell silent; their logs say why"
_TOO_MUCH = "what its worker wrote is longer than anything that may come of it"
_TOO_LARGE = (
    f"what it is made of takes more than the {MOST_BYTES >> 20} MiB that a row of jobs may have; with "
    "CURATOR_FINISHER=process this server works on it itself"
)


class TableFinisher:
    """Has tasks done by whichever worker takes them from the table.

    Args:
        jobs: the table.
        seconds: how long a worker may work on a task. The time in which none takes it does not count.
        kind: what they are.
    """

    def __init__(self, jobs: JobTable, seconds: float, kind: Kind) -> None:
        self._jobs, self._seconds, self._kind = jobs, seconds, kind
        self._guard = threading.Lock()
        self._stopped = False
        self._under_way = set[threading.Event]()

    def finish(self, task: bytes, progress: Progress) -> bytes:
        """The result of a task, both in their closed forms (:mod:`app.services.tasks`). From any thread.

        Raises:
            CuratorError: when nothing can come of it.
            WorkerDied: when it was cancelled, workers ended before it was done, or one wrote more than there can be.
            TookTooLong: when its worker ended it for the time that it took.
            Damaged: when what a worker wrote is no refusal.
            sqlalchemy.exc.SQLAlchemyError: when the database does not answer for long.
        """
        if len(task) > MOST_BYTES:
            raise WorkerDied(_TOO_LARGE)
        ended = threading.Event()
        with self._guard:
            if self._stopped:
                raise WorkerDied(_CANCELLED)
            self._under_way.add(ended)
        try:
            id = self._jobs.put(self._kind, task, self._seconds)
            most = MOST_BYTES if self._kind == "release" else len(task) + REPLAY_BYTES
            try:
                return self._awaited(id, most, progress, ended)
            finally:
                with suppress(SQLAlchemyError):  # the next job removes what is nobody's
                    self._jobs.remove(id)
        finally:
            with self._guard:
                self._under_way.remove(ended)

    def _awaited(self, id: str, most: int, progress: Progress, ended: threading.Event) -> bytes:
        reached, begun = 0.0, time.monotonic()
        told = heard = begun
        lonely = False
        while not ended.is_set():
            now = time.monotonic()
            try:
                if now - told >= BEAT_SECONDS:
                    self._jobs.want(id)
                    told = now
                standing = self._jobs.standing(id, most)
                heard = now
            except SQLAlchemyError:
                if now - heard > SILENT_SECONDS:
                    raise
                ended.wait(LOOK_SECONDS)
                continue
            if standing is None:
                raise WorkerDied(_REMOVED)
            if standing.end is not None:
                if standing.result is None:
                    raise WorkerDied(_TOO_MUCH)
                return result_of(standing.end, standing.result)
            if standing.given_up:
                raise WorkerDied(_GIVEN_UP)
            if standing.progress > reached:  # who takes a job over begins anew
                reached = standing.progress
                progress(reached)
            if not standing.taken and not lonely and now - begun > LONELY_SECONDS:
                lonely = True
                logger.warning("no worker has taken a job yet: does `curator work` run?", seconds=round(now - begun))
            ended.wait(LOOK_SECONDS)
        raise WorkerDied(_CANCELLED)

    def cancel(self) -> None:
        """End what is under way, if anything is."""
        with self._guard:
            for ended in self._under_way:
                ended.set()

    def stop(self) -> None:
        """End what is under way, and begin nothing more."""
        with self._guard:
            self._stopped = True
        self.cancel()
