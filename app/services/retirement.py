"""The end of data sets: their sessions close, and their private files are destroyed; public records stay."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import structlog

from app.audit.log import retirement_record
from app.services.datasets import Datasets, file_names, is_dummy
from app.services.dummy_datasets import DummyDatasets
from app.services.errors import NotFound, Unavailable
from app.services.ports import Clock, DatasetRow, PrivateStore, Store, StoreHeld
from app.services.principals import Principal

logger = structlog.get_logger(__name__)

#: How long a start waits for the sessions of a retired data set to close.
RECOVERY_SECONDS = 5.0


class Retirement:
    """Retires data sets.

    Args:
        store: where their rows are.
        private: where their numbers are.
        clock: tells the time.
        datasets: shows and locks them.
        dummies: made-up ones, which end with their sessions.
        close_session: closes a session in its own turn, waited for so many seconds.
    """

    def __init__(
        self,
        store: Store,
        private: PrivateStore,
        clock: Clock,
        datasets: Datasets,
        dummies: DummyDatasets,
        *,
        close_session: Callable[[str, float | None], None],
    ) -> None:
        self._store, self._private, self._clock = store, private, clock
        self._datasets, self._dummies, self._close_session = datasets, dummies, close_session

    def retire(self, actor: Principal, name: str) -> dict[str, Any]:
        """Close every session of a data set and destroy its private file; public records stay.

        Raises:
            NotFound: when there is none of that name, or it is retired already.
            Unavailable: when it cannot be retired now, or a session of it has not closed yet.
        """
        actor.require("admin")
        with self._datasets.locked(name) as (tx, row):
            if row.retired_at is None:
                # Whatever clocks did: an audit refuses what was opened later than this.
                at = max(self._clock(), tx.last_opened_in(name))
                tx.retire_dataset(name, at)
                tx.add_event(retirement_record(name=name, recorded_at=at))
                tx.commit()
        # From here on no session can open. Those that are open end in their own turn, so that a round that
        # has begun is recorded; should the process die first, the next start finishes the work. Should it fail,
        # whoever asks again does.
        self.finish(row)
        if row.retired_at is not None:
            raise NotFound(f"the data set {name!r} is retired already")
        return self._datasets.describe(name)

    def finish(self, row: DatasetRow, seconds: float | None = None) -> None:
        """Close the sessions that a retired data set still has and destroy its private file.

        Raises:
            Unavailable: when a session has not closed in so many seconds, where named, or those of any request.
        """
        with self._store.read() as tx:
            left = [*tx.open_in(row.name), *tx.releases_in(row.name)]
        for session in dict.fromkeys(left):
            self._close_session(session, seconds)
        self._private.destroy(row.vault_entry)

    def recover(self) -> None:
        """Recover after a crash: finish retirements, and remove private files nobody names; as far as nobody else keeps
        it from that.
        """
        with self._store.read() as tx:
            rows = tx.datasets()
            left = [row for row in rows if is_dummy(row) and row.retired_at is None and not tx.open_in(row.name)]
        for row in left:
            self._dummies.end(row)
        for row in (row for row in rows if row.retired_at is not None):
            try:
                self.finish(row, RECOVERY_SECONDS)
            except Unavailable:
                logger.error("a data set could not be retired to the end: retire it again", dataset=row.name)
        try:
            self._private.sweep(partial(file_names, self._store))
        except StoreHeld:
            logger.warning("private files could not be swept: another process holds data sets")
