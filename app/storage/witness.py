"""What a data folder has seen of its database: the number of the ledger's last movement.

Ledgers only grow. A database that lacks a movement which this folder has seen is an old copy (a backup put back in
place, a standby that lost the last transactions) or another database altogether. Serving the one would spend budgets
twice, serving the other would take every private file for a left-over. The number is written beside the work, at most
about a second late: it is a net, not a proof.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
from pathlib import Path

import structlog
from sqlalchemy.exc import SQLAlchemyError

from app.storage.store import SqlStore

log = structlog.get_logger(__name__)

#: How often it is looked whether there is more to have seen.
SECONDS = 1.0
NAME = "ledger.seen"


class OldDatabase(Exception):
    """The database lacks what the data folder has seen."""


class Witness:
    """Keeps the number in ``folder``, beside a running service. Several processes may do so on one folder."""

    def __init__(self, folder: Path, store: SqlStore) -> None:
        self._path, self._store = folder / NAME, store
        # Not by the process' number: replicas in containers may have the same one.
        self._temporary = folder / f".{NAME}.{secrets.token_hex(8)}.tmp"
        self._written = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="witness", daemon=True)

    def check(self) -> None:
        """Hold the database against what was seen.

        Raises:
            OldDatabase: when it lacks some of it.
        """
        if self._seen() > self._store.last_movement():
            raise OldDatabase(
                "the ledger lacks what this data folder has seen: the database is an old copy, or another one. Of an "
                "old copy nobody knows what was released since: run `curator forfeit`. For another one, name another "
                "CURATOR_DATA_DIR"
            )

    def reset(self) -> None:
        """Take the database for what there is."""
        self._write(self._store.last_movement())

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
            last = self._stopping.wait(SECONDS)
            try:
                movement = self._store.last_movement()
                if movement > max(self._written, self._seen()):
                    self._write(movement)
                self._written = max(self._written, movement)
            except (SQLAlchemyError, OSError) as error:
                log.warning("what was seen of the ledger cannot be noted", error=type(error).__name__)
            if last:
                return

    def _seen(self) -> int:
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int(self._path.read_text())
        return 0

    def _write(self, movement: int) -> None:
        with open(os.open(self._temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(f"{movement}\n")
        os.replace(self._temporary, self._path)
