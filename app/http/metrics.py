"""Prometheus metrics: counts of requests, public outcomes and commits, and levels such as queue lengths.

Nothing here depends on private numbers other than through recorded outcomes; durations are wall time, as
docs/privacy.md says. The memory that the processes hold depends on the data, and is not exposed.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.multiprocess import MultiProcessCollector

from app.curator.mechanisms.protocol import Source
from app.http import samples
from app.services.ports import ReleaseStatus

__all__ = ["CONTENT_TYPE_LATEST", "Levels", "Metrics", "forget_others", "shared_folder", "sharing"]

#: Seconds between two looks at the levels, at the releases, and at the database's size.
LEVELS_SECONDS, RELEASES_SECONDS, DATABASE_SECONDS = 1.0, 5.0, 60.0
#: Names the folder in which the library shares numbers among processes; it is read when the library is imported.
_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_PREFIX = "curator-metrics-"
#: Seconds for which a new folder is left alone: its lock may be about to be taken.
_FRESH_SECONDS = 60.0


@contextmanager
def sharing() -> Iterator[Path]:
    """Processes that are started in this context share their numbers, in a private folder that is removed at its end.

    The folder is in memory where the system has such a file system: a process that maps a file of a full disk is
    killed. Folders that killed processes left behind are removed, too: nobody holds their locks.
    """
    memory = Path("/dev/shm")  # noqa: S108 - the folder in it has a name that nobody can guess, and mode 0700
    parent = memory if os.access(memory, os.W_OK | os.X_OK) else Path(gettempdir())
    _sweep(parent)
    with TemporaryDirectory(prefix=_PREFIX, dir=parent) as folder:
        descriptor = os.open(folder, os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.environ[_FOLDER] = folder
        try:
            yield Path(folder)
        finally:
            os.environ.pop(_FOLDER, None)
            os.close(descriptor)


def _sweep(parent: Path) -> None:
    """Remove the folders that killed processes left behind."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # another user's, or gone, or its lock is held
            if time.time() - folder.stat().st_mtime < _FRESH_SECONDS:
                continue
            descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
            finally:
                os.close(descriptor)


def shared_folder() -> Path | None:
    """The folder in which this process shares its numbers with others; None where it is alone."""
    folder = os.environ.get(_FOLDER)
    return Path(folder) if folder else None


def forget_others(folder: Path, working: set[int]) -> None:
    """Remove the levels, but not the counters, of processes other than the ``working`` ones."""
    for path in folder.glob("gauge_live*_*.db"):
        if int(path.stem.rpartition("_")[2]) not in working:
            path.unlink(missing_ok=True)


@dataclass(frozen=True)
class Levels:
    """The load of one process at a moment."""

    waiting_requests: int
    parked_requests: int
    sessions_in_memory: int
    session_memory_bytes: int
    memory_limit_bytes: int
    moved_sources: int


_MEANINGS = {
    "moved_sources": "Data sets whose records, kept elsewhere, are not what was registered",
    "waiting_requests": "Requests that wait for their turn or are being answered",
    "parked_requests": "Requests that wait for numbers which are counted where the records are",
    "sessions_in_memory": "Sessions in memory",
    "session_memory_bytes": "Memory accounted to sessions",
    "memory_limit_bytes": "Memory that may be accounted to sessions",
}


class Metrics:
    """The numbers of one process, or its part of those that several processes share.

    Args:
        folder: what :func:`shared_folder` gives. Where there is one, levels are sums over the working processes.
    """

    def __init__(self, folder: Path | None = None) -> None:
        #: The last hour of these numbers.
        self.samples = samples.Samples()
        # The library would tell when each counter was made: to the microsecond, the first event of its kind.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = self._shown = CollectorRegistry()
        if folder is not None:
            self._shown = CollectorRegistry()
            MultiProcessCollector(self._shown, str(folder))  # type: ignore[no-untyped-call]
        self._levels = {name: self._gauge(f"curator_{name}", meaning) for name, meaning in _MEANINGS.items()}
        self._database = Gauge(
            "curator_database_bytes",
            "Size of the database",
            registry=self.registry,
            multiprocess_mode="livemostrecent",
        )
        self._releases = Gauge(
            "curator_releases",
            "Releases by where they stand",
            ["status"],
            registry=self.registry,
            multiprocess_mode="livemostrecent",
        )
        self._fits = Histogram(
            "curator_release_fit_seconds",
            "Time in which something was made of a release's measurements",
            buckets=(0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600),
            registry=self.registry,
        )
        self._unfitted = Counter(
            "curator_not_converged_total",
            "Answers and releases whose fits ended before their tolerance",
            ["what"],
            registry=self.registry,
        )
        for what in ("answers", "releases"):
            self._unfitted.labels(what)
        self._audits = Counter(
            "curator_audits_total", "Audits by what became of them", ["outcome"], registry=self.registry
        )
        for outcome in ("holds", "does_not_hold", "stopped", "failed"):
            self._audits.labels(outcome)
        self._stopping = threading.Event()
        self._answers = Counter("curator_answers_total", "Answers by source", ["source"], registry=self.registry)
        self._by_source = {source: self._answers.labels(source) for source in (*get_args(Source), "unverified")}
        self._requests = Counter(
            "curator_requests_total",
            "Requests by route, method and status",
            ["route", "method", "status"],
            registry=self.registry,
        )
        self._group = Histogram(
            "curator_group_size",
            "Requests a transaction carried",
            buckets=(1, 2, 4, 8, 16, 32, 64),
            registry=self.registry,
        )
        self._turn = Histogram("curator_turn_seconds", "Time from taking a group to its commit", registry=self.registry)
        self._failures = Counter(
            "curator_commit_failures_total", "Commits that failed and were tried again", registry=self.registry
        )
        self._tallies = Counter(
            "curator_source_tallies_total",
            "Times that records were to be counted where they lie, by what became of it",
            ["outcome"],
            registry=self.registry,
        )
        for outcome in ("counted", "source-moved", "source-unavailable", "unavailable"):
            self._tallies.labels(outcome)
        self._late = Counter(
            "curator_late_replies_total",
            "Replies that were not there at the answering deadline",
            registry=self.registry,
        )
        self._late_sources = Counter(
            "curator_late_source_replies_total",
            "Replies for which records were counted for longer than the declared answer_seconds",
            registry=self.registry,
        )
        self._refusals = Counter(
            "curator_refusals_total",
            "Requests and connections turned away, by reason",
            ["reason"],
            registry=self.registry,
        )
        reasons = "rate login queue work memory exports streams connections slow_request slow_reader"
        for reason in reasons.split():
            self._refusals.labels(reason)
        self._seen: dict[tuple[str, str, int], Counter] = {}

    def answered(self, source: str, number: int) -> None:
        """Count so many answers."""
        self._by_source[source].inc(number)

    def group(self, size: int, seconds: float) -> None:
        """Count a transaction."""
        self._group.observe(size)
        self._turn.observe(seconds)

    def commit_failed(self) -> None:
        """Count a failed commit."""
        self._failures.inc()

    def tallied(self, outcome: str) -> None:
        """Count that records were to be counted where they lie, by what became of it."""
        self._tallies.labels(outcome).inc()

    def late_source(self) -> None:
        """Count a reply that was to leave at a declared second, and could not."""
        self._late_sources.inc()

    def late(self) -> None:
        """Count a reply that missed the answering deadline."""
        self._late.inc()

    def fitted(self, seconds: float) -> None:
        """Count what was made of a release's measurements, by how long that took."""
        self._fits.observe(seconds)

    def not_converged(self, what: Literal["answers", "releases"], number: int) -> None:
        """Count so many whose fits ended before their tolerance."""
        self._unfitted.labels(what).inc(number)

    def audited(self, outcome: str) -> None:
        """Count an audit by what became of it."""
        self._audits.labels(outcome.replace(" ", "_")).inc()

    def refused(self, reason: str) -> None:
        """Count a request or connection that was refused, by the reason."""
        self._refusals.labels(reason).inc()

    def request(self, route: str, method: str, status: int) -> None:
        """Count a request."""
        key = (route, method, status)
        counter = self._seen.get(key)
        if counter is None:
            counter = self._seen[key] = self._requests.labels(route, method, str(status))
        counter.inc()

    def _gauge(self, name: str, meaning: str) -> Gauge:
        return Gauge(name, meaning, registry=self.registry, multiprocess_mode="livesum")

    def watch(
        self,
        levels: Callable[[], Levels],
        releases: Callable[[], Mapping[ReleaseStatus, int]],
        database_bytes: Callable[[], int],
    ) -> None:
        """Keep the levels up to date until :meth:`stop`.

        Args:
            levels: gives the levels.
            releases: counts the database's releases.
            database_bytes: measures the database, which may be slow and has a thread of its own.
        """

        def update() -> None:
            for name, value in asdict(levels()).items():
                self._levels[name].set(value)

        def count() -> None:
            found = releases()
            for status in get_args(ReleaseStatus):
                self._releases.labels(status).set(found.get(status, 0))

        def measure() -> None:
            self._database.set(database_bytes())

        for work, seconds in (
            (update, LEVELS_SECONDS),
            (count, RELEASES_SECONDS),
            (measure, DATABASE_SECONDS),
            (self.sample, samples.SECONDS),
        ):
            threading.Thread(target=self._repeat, args=(work, seconds), name="levels", daemon=True).start()

    def _repeat(self, work: Callable[[], None], seconds: float) -> None:
        while True:
            with suppress(Exception):  # such as an unreachable database, which readiness reports
                work()
            if self._stopping.wait(seconds):
                return

    def sample(self) -> None:
        """Keep the numbers of this moment among those of the last hour."""
        self.samples.take(time.time(), (each for metric in self._shown.collect() for each in metric.samples))

    def stop(self) -> None:
        """Stop updating the levels."""
        self._stopping.set()

    def exposition(self) -> bytes:
        """All numbers, in Prometheus' text format."""
        for _ in range(10):
            with suppress(struct.error, FileNotFoundError):  # a file of a process that is just starting, or has ended
                return generate_latest(self._shown)
            time.sleep(0.01)
        return generate_latest(self._shown)
