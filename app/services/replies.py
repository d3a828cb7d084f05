"""Replies under idempotency keys do not stay for good: days after a session was closed nobody repeats its calls."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

import orjson
import structlog

from app.services.ports import Clock, ReplyName, Store

log = structlog.get_logger(__name__)

#: How long a reply is kept after its session was closed. While that is open it stays.
KEPT = timedelta(days=7)
#: Replies that are looked at, and at most removed, at a time, and for how long others have their turn afterwards.
_PAGE, _PAUSE_SECONDS = 200, 0.02


def remove_replies(store: Store, clock: Clock, stopping: threading.Event) -> None:
    """Go through all replies once, and remove those whose time is over, page by page."""
    before = datetime.fromisoformat(clock()) - KEPT
    after: ReplyName = ("", "", "")
    removed, more = 0, True
    while more and not stopping.is_set():
        with store.read() as tx:
            page = tx.reply_names(after, _PAGE)
            sessions = {name: _session(name, opening) for name, opening in page}
            closed = tx.closing_times(sorted(set(sessions.values())))
        over = [name for name, id in sessions.items() if id in closed and datetime.fromisoformat(closed[id]) < before]
        if over:
            with store.write() as tx:
                tx.remove_replies(over)
                tx.commit()
        removed += len(over)
        more = len(page) == _PAGE
        if more:
            after = page[-1][0]
            stopping.wait(_PAUSE_SECONDS)
    if removed:
        log.info("replies of sessions closed long ago were removed", replies=removed)


def _session(name: ReplyName, opening: bytes | None) -> str:
    """Whose reply it is: an opening says so itself, of every other call the path does."""
    return str(orjson.loads(opening)["id"]) if opening is not None else name[1].split("/")[3]
