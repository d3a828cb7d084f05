"""The start and the end of a service, and whether it can work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import structlog
from sqlalchemy.exc import SQLAlchemyError

from app.http.metrics import Levels, Metrics
from app.services.answering.dispatch import Answering
from app.services.loading import sweep_snapshots
from app.services.ports import ReleaseStatus
from app.services.retirement import Retirement
from app.settings import Settings
from app.storage.database import DataDirLock
from app.storage.private_store import VaultStore
from app.storage.snapshots import SnapshotFiles
from app.storage.store import SqlStore

logger = structlog.get_logger(__name__)

#: Seconds in which requests under way may be finished when the server ends.
DRAIN_SECONDS = 30
LOST_FILES = (
    "the data folder lacks private files of the database's data sets, or holds altered ones: put them back. All "
    "servers of one database share one data folder (CURATOR_DATA_DIR), or where CURATOR_VAULT_URL names one the place "
    "of private files, and the key that these were written with (CURATOR_VAULT_KEY; `curator vault rotate` changes it)"
)


class BackgroundTask(Protocol):
    """Work that goes on in the background."""

    def start(self) -> None:
        """Begin."""

    def stop(self) -> None:
        """End soon."""


class Lifecycle:
    """Starts and stops the parts of a service in their order, and says whether they can work.

    Args:
        settings: the operator's.
        store: the database.
        private: the private files.
        snapshots: the snapshots of sessions.
        answering: the lanes.
        retirement: at a start it finishes what was interrupted.
        metrics: where the levels are exposed.
        background: tasks that are started after the lanes, and stopped after them.
        database_bytes: measures the database.
        lock: held while the service runs; None where the process holds it already.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        store: SqlStore,
        private: VaultStore,
        snapshots: SnapshotFiles,
        answering: Answering,
        retirement: Retirement,
        metrics: Metrics,
        background: Sequence[BackgroundTask],
        database_bytes: Callable[[], int],
        lock: DataDirLock | None,
    ) -> None:
        self._settings, self._store, self._private, self._snapshots = settings, store, private, snapshots
        self._answering, self._retirement, self._metrics, self._background = answering, retirement, metrics, background
        self._database_bytes, self._lock = database_bytes, lock

    def start(self) -> None:
        """Begin to serve, after what an earlier process left unfinished is finished."""
        if self._lock is not None:
            self._lock.acquire(shared=True)
        self._answering.start()
        self._retirement.recover()
        sweep_snapshots(self._store, self._snapshots)
        for task in self._background:
            task.start()
        self._metrics.watch(self._levels, self._releases, self._database_bytes)
        missing = [name for name, entry in self._files().items() if not self._private.lies_there(entry)]
        if missing:
            logger.error("private files are missing", datasets=missing, advice=LOST_FILES)

    def stop(self) -> None:
        """Answer what waits, and let go of everything."""
        self._metrics.stop()
        self._answering.stop(DRAIN_SECONDS)
        for task in self._background:
            task.stop()
        self._store.close()
        if self._lock is not None:
            self._lock.release()

    def ready(self) -> str | None:
        """Why the service cannot work now, in words for its operator; None when it can."""
        try:
            self._store.ping()
            lost = [name for name, entry in self._files().items() if not self._private.usable(entry)]
            # A data set that was retired meanwhile has no file any more, and needs none.
            lost = [name for name in lost if name in self._files()]
        except SQLAlchemyError:
            return "the database cannot be reached"
        if lost:
            logger.error("private files cannot be used", datasets=lost, advice=LOST_FILES)
            return LOST_FILES
        return "answers wait for a commit that keeps failing" if self._answering.stalled else None

    def moved(self) -> int:
        """How many data sets have their records elsewhere, where they are not what was registered any more, as far as
        this process was asked. All else is answered, so that it is no reason not to be ready.
        """
        there = self._files() if self._private.moved else {}
        return sum(name in there for name in self._private.moved)

    def _files(self) -> dict[str, dict[str, str]]:
        """The vault's entries of the data sets that are not retired, by name."""
        with self._store.read() as tx:
            return tx.vault_entries()

    def _releases(self) -> Mapping[ReleaseStatus, int]:
        with self._store.read() as tx:
            return tx.count_releases()

    def _levels(self) -> Levels:
        return Levels(
            self._answering.waiting,
            self._answering.parked,
            *self._answering.residents,
            self._settings.memory_limit,
            self.moved(),
        )
