"""What a data folder has seen of its database: the ledger's last movement, and how many data sets there were.

Ledgers only grow, and rows of data sets stay. A database that lacks a movement which this folder has seen, or has
another in its place, or fewer data sets, is an old copy (a backup put back in place, a standby that lost the last
transactions) or another database altogether. Serving the one would spend budgets twice, serving the other would take
every private file for a left-over. What was seen is noted beside the work, at most about a second late, and another
movement in the same place is told by the second of its time: it is a net, not a proof. The note lies with the private
files: in the data folder, or in the object store.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import NamedTuple

import structlog
from sqlalchemy.exc import SQLAlchemyError

from app.storage.blobs import Note, Noted
from app.storage.store import SqlStore

logger = structlog.get_logger(__name__)

#: How often it is looked whether there is more to have seen; by others than the leader less often.
SECONDS = 1.0
NAME = "ledger.seen"


class OldDatabase(Exception):
    """The database lacks what the data folder has seen."""


class Seen(NamedTuple):
    """The number of the ledger's last movement (0 where there was none), how many data sets there were, and when that
    movement was recorded (nothing where there was none).
    """

    movement: int
    datasets: int
    moved_at: str


class LedgerWatch:
    """Keeps what was seen in a note, beside a running service. Several processes may do so in one: a note that another
    has written meanwhile stays.

    Args:
        note: with the private files.
        store: whose ledger is seen.
        pause: how long this process pauses where one that leads would pause so many seconds.
    """

    def __init__(self, note: Note, store: SqlStore, pause: Callable[[float], float] = lambda alone: alone) -> None:
        self._note, self._store, self._pause = note, store, pause
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ledger-watch", daemon=True)

    def check(self) -> None:
        """Hold the database against what was seen.

        Raises:
            OldDatabase: when it lacks some of it.
        """
        seen, store = _seen(self._note.read()), self._store
        moved_at = store.movement_at(seen.movement) if seen.movement else ""
        if seen.moved_at != moved_at or seen.datasets > store.count_datasets():
            raise OldDatabase(
                "the database lacks what this data folder has seen: the database is an old copy, or another one. Of an "
                "old copy nobody knows what was released since: run `curator forfeit`. For another one, name another "
                "CURATOR_DATA_DIR"
            )

    def reset(self) -> None:
        """Take the database for what there is."""
        while not self._write(self._there(), self._note.read()):
            continue

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Look once more, and end."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(SECONDS)

    def _watch(self) -> None:
        while True:
            last = self._stopping.wait(self._pause(SECONDS))
            try:
                there, note = self._there(), self._note.read()
                noted = _seen(note)
                if there[:2] != noted[:2] and there.movement >= noted.movement and there.datasets >= noted.datasets:
                    self._write(there, note)
            except (SQLAlchemyError, OSError) as error:
                logger.warning("what was seen of the ledger cannot be noted", error=type(error).__name__)
            if last:
                return

    def _there(self) -> Seen:
        """The state of the database now."""
        movement, moved_at = self._store.last_movement()
        return Seen(movement, self._store.count_datasets(), moved_at)

    def _write(self, seen: Seen, over: Noted) -> bool:
        return self._note.write((" ".join(map(str, seen)).strip() + "\n").encode(), over)


def _seen(note: Noted) -> Seen:
    with contextlib.suppress(ValueError):
        movement, datasets, *moved_at = note.content.decode().split()
        return Seen(int(movement), int(datasets), "".join(moved_at))
    return Seen(0, 0, "")
