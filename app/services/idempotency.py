"""Idempotency keys: a client's names for its calls, and the replies that are kept under them.

Replies do not stay for good: days after a session was closed nobody repeats its calls.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import datetime, timedelta

import orjson
import structlog

from app.services.errors import IdempotencyConflict
from app.services.ports import Clock, ReplyName, ReplyRow, Store, Transaction

logger = structlog.get_logger(__name__)

#: How long a reply is kept after its session was closed. While that is open it stays.
KEPT = timedelta(days=7)
#: Replies that are looked at, and at most removed, at a time, and for how long others have their turn afterwards.
_PAGE, _PAUSE_SECONDS = 200, 0.02


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A client's name for one logical call: principal, route and key; the body it stands for by its hash."""

    principal: str
    route: str
    key: str
    body_hash: str

    @property
    def name(self) -> ReplyName:
        """The name that the reply is stored under."""
        return self.principal, self.route, self.key

    def reply(self, row: ReplyRow) -> bytes:
        """The stored reply, if it was given to the same body.

        Raises:
            IdempotencyConflict: when it was given to another.
        """
        if row.body_hash != self.body_hash:
            raise IdempotencyConflict("this Idempotency-Key was used with another body: use a new key")
        return row.reply

    def row(self, reply: bytes, at: str, *, opens: bool = False, sequence: int | None = None) -> ReplyRow:
        """The row that is stored beside the work that the reply reports; whether that opened a session, and the newest
        entry that it tells of."""
        return ReplyRow(self.principal, self.route, self.key, self.body_hash, opens, reply, at, sequence)


def find_reply(tx: Transaction, key: IdempotencyKey | None) -> bytes | None:
    """The stored reply to this key, or None.

    Raises:
        IdempotencyConflict: when the key was used with another body.
    """
    if key is None:
        return None
    row = tx.replies([key.name]).get(key.name)
    return None if row is None else key.reply(row)


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
        logger.info("replies of sessions closed long ago were removed", replies=removed)


def _session(name: ReplyName, opening: bytes | None) -> str:
    """Whose reply it is: an opening says so itself, of every other call the path does."""
    return str(orjson.loads(opening)["id"]) if opening is not None else name[1].split("/")[3]
