"""`curator work`: does jobs of a table on any machine, one at a time, each in a process of its own.

It needs a database role that sees that table alone (:data:`app.storage.job_table.GRANTS`), no data folder and no key,
and refuses to run where a key is set.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import get_args

import structlog
from sqlalchemy.exc import SQLAlchemyError

from app.bootstrap.logs import configure_logs
from app.bootstrap.preconditions import StartRefused, operators_settings
from app.bootstrap.release_worker import ProcessFinisher
from app.patience import Progress
from app.services.closed_forms import End, end_of
from app.settings import Settings
from app.storage.database import is_sqlite, make_engines
from app.storage.job_table import MOST_BYTES, Claim, JobTable, Kind

logger = structlog.get_logger(__name__)

#: How often it is said that a job is worked on, and how often it is looked for one, in seconds.
BEAT_SECONDS, LOOK_SECONDS = 2.0, 0.5
#: Pauses after what fails while the database does not answer; the longest is for all that follow.
_PAUSES = (0.5, 1.0, 2.0, 5.0)
_KEYS = ("admin_key", "vault_key", "vault_old_key", "log_key", "log_old_key")
_UNKNOWN = "this worker knows no such kind of job: run the same version as the server"
_TOO_LARGE = f"what was made takes more than the {MOST_BYTES >> 20} MiB that a row of jobs may have"


class Worker:
    """Does jobs of a table until it is told to stop.

    Args:
        jobs: the table.
        memory_limit: bytes that a job may take.
        seconds: how long one may take at most, whatever its server allows.
        made: makes what does a job within so much memory and time.
    """

    def __init__(
        self,
        jobs: JobTable,
        memory_limit: int,
        seconds: float,
        made: Callable[[int, float], ProcessFinisher] = ProcessFinisher,
    ) -> None:
        self._jobs, self._memory_limit, self._seconds, self._made = jobs, memory_limit, seconds, made
        self._stopping = threading.Event()
        self._unwanted = False
        self._guard = threading.Lock()
        self._finisher: ProcessFinisher | None = None

    def run(self) -> None:
        """Work until :meth:`stop`; a database that is away is waited for."""
        failures = 0
        while not self._stopping.is_set():
            try:
                if not self.work():
                    self._stopping.wait(LOOK_SECONDS)
                failures = 0
            except (SQLAlchemyError, OSError) as error:
                logger.warning("jobs cannot be worked on", error=type(error).__name__)
                self._stopping.wait(_PAUSES[min(failures, len(_PAUSES) - 1)])
                failures += 1

    def work(self) -> bool:
        """Take a job and carry it to its end; whether there was one.

        Raises:
            SQLAlchemyError: when the database does not answer. The job is another worker's soon.
            OSError: when no process can be begun. The job is given back.
        """
        claim = self._jobs.claim()
        if claim is None:
            return False
        logger.info("a job is taken", job=claim.id, kind=claim.kind)
        try:
            end, result = self._carried(claim)
        except OSError:
            self._jobs.give_back(claim)
            raise
        if end == "died" and (self._stopping.is_set() or self._unwanted):
            # Should its server be there after all, another worker takes it.
            self._jobs.give_back(claim)
            logger.info("a job is given back", job=claim.id)
        elif self._jobs.end(claim, end, result):
            logger.info("a job has ended", job=claim.id, end=end)
        else:
            logger.info("a job is another worker's, or nobody wants it any more", job=claim.id)
        return True

    def stop(self) -> None:
        """End soon: what is under way is given back at once. From any thread."""
        self._stopping.set()
        with self._guard:
            if self._finisher is not None:
                self._finisher.stop()

    def _carried(self, claim: Claim) -> tuple[End, bytes]:
        """How a job ended, and what is told of that."""
        self._unwanted = False
        if claim.kind not in get_args(Kind):
            return "died", _UNKNOWN.encode()
        finisher = self._made(self._memory_limit, min(claim.seconds, self._seconds))
        with self._guard:
            self._finisher = finisher
            if self._stopping.is_set():
                finisher.stop()
        try:
            with self._beating(claim, finisher) as progress:
                end, told = end_of(lambda: finisher.finish(claim.task, progress))
        finally:
            with self._guard:
                self._finisher = None
        return (end, told) if len(told) <= MOST_BYTES else ("died", _TOO_LARGE.encode())

    @contextmanager
    def _beating(self, claim: Claim, finisher: ProcessFinisher) -> Iterator[Progress]:
        """While a job is worked on: say that it goes on and how far it is, and end it when it is nobody's."""
        done, reached = threading.Event(), [0.0]

        def beat() -> None:
            while not done.wait(BEAT_SECONDS):
                try:
                    if not self._jobs.beat(claim, reached[0]):
                        self._unwanted = True
                        finisher.cancel()
                        return
                except SQLAlchemyError as error:  # a beat that is missed is not the end
                    logger.debug("a job's progress was not told", error=type(error).__name__)

        def progress(part: float) -> None:
            reached[0] = min(max(part, 0.0), 1.0)

        thread = threading.Thread(target=beat, name="job-beat", daemon=True)
        thread.start()
        try:
            yield progress
        finally:
            done.set()
            thread.join()


def work() -> None:
    """Do jobs of the table in the database of ``CURATOR_DATABASE_URL`` until SIGTERM or SIGINT.

    Raises:
        StartRefused: when there is no such table, or more is given to this process than it needs.
    """
    settings = operators_settings()
    configure_logs(settings.log_level)
    _check(settings)
    assert settings.database_url is not None
    # Taken by a thread of its own: a handler would interrupt whoever holds a lock that stopping needs.
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
    _, engine = make_engines(settings.database_url)
    jobs = JobTable(engine)
    try:
        jobs.standing("")
    except SQLAlchemyError as error:
        engine.dispose()
        raise StartRefused(_NO_TABLE.format(type(error).__name__)) from None
    worker = Worker(jobs, settings.memory_limit, settings.release_seconds)

    def await_end() -> None:
        signal.sigwait(_ENDING)
        worker.stop()

    threading.Thread(target=await_end, name="signals", daemon=True).start()
    logger.info("jobs are worked on")
    try:
        worker.run()
    finally:
        engine.dispose()


_ENDING = {signal.SIGTERM, signal.SIGINT}
_NO_TABLE = (
    "the table of jobs cannot be read ({}): does the database of CURATOR_DATABASE_URL answer, has `curator migrate` "
    "been run there, and has its role the rights of docs/operations/workers.md?"
)


def _check(settings: Settings) -> None:
    if settings.database_url is None or is_sqlite(settings.database_url):
        raise StartRefused("set CURATOR_DATABASE_URL to the PostgreSQL database of the server, with a role for workers")
    given = [f"CURATOR_{name.upper()}" for name in _KEYS if getattr(settings, name) is not None]
    if given:
        raise StartRefused(f"a worker needs no key: unset {', '.join(given)}")
