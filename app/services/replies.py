"""Replies under idempotency keys do not stay for good: days after a session was closed nobody repeats its calls."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import datetime, timedelta

import orjson
import structlog

from app.services.ports import Clock, ReplyName, Store

log = structlog.get_logger(__name__)

#: How long a reply is kept after its session was closed. While that is open it stays.
KEPT = timedelta(days=7)
#: How often it is looked which ones may go.
SECONDS = 3600.0
#: Replies that are looked at, and at most removed, at a time, and for how long others have their turn afterwards.
_PAGE, _PAUSE_SECONDS = 200, 0.02


class ReplyKeeper:
    """Removes replies whose time is over, beside a running service: at its start and every hour, a few at a time.

    Several processes may do so on one database.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="replies", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End soon: whatever is left to do is left to the next start."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def _watch(self) -> None:
        while not self._stopping.is_set():
            try:
                removed = sum(self.sweep())
                if removed:
                    log.info("replies of sessions closed long ago were removed", replies=removed)
            except Exception as error:  # noqa: BLE001 - such as a database that is away: there is another time
                log.warning("replies of sessions closed long ago cannot be removed", error=type(error).__name__)
            self._stopping.wait(SECONDS)

    def sweep(self) -> Iterator[int]:
        """Go through all replies once; how many were removed, page by page."""
        before = datetime.fromisoformat(self._clock()) - KEPT
        after: ReplyName = ("", "", "")
        while not self._stopping.is_set():
            with self._store.read() as tx:
                page = tx.reply_names(after, _PAGE)
                sessions = {name: _session(name, opening) for name, opening in page}
                closed = tx.closing_times(sorted(set(sessions.values())))
            over = [
                name for name, id in sessions.items() if id in closed and datetime.fromisoformat(closed[id]) < before
            ]
            if over:
                with self._store.write() as tx:
                    tx.remove_replies(over)
                    tx.commit()
            yield len(over)
            if len(page) < _PAGE:
                return
            after = page[-1][0]
            self._stopping.wait(_PAUSE_SECONDS)


def _session(name: ReplyName, opening: bytes | None) -> str:
    """Whose reply it is: an opening says so itself, of every other call the path does."""
    return str(orjson.loads(opening)["id"]) if opening is not None else name[1].split("/")[3]
