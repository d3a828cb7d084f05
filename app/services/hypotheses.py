"""Hypotheses of sessions, as they are shown: looked at beside the lanes, at one state of the session."""

from __future__ import annotations

from collections.abc import Callable

from app.curator.mechanisms.serving import mechanism_of
from app.curator.session import Session
from app.declarations.errors import InvalidRequest
from app.patience import Check, while_wanted
from app.services.loading import look
from app.services.openings import opening_of
from app.services.ports import SessionRow, Snapshots, Store
from app.services.principals import Principal
from app.services.sessions import Sessions

#: What a session that is looked at takes beside its hypothesis, about: plan, space, a page of its transcript.
LOOKING_BYTES = 1 << 20
#: Why a session that starts from measurements has no hypothesis to show: of a table, of a graph or a matrix.
NO_TABLE = (
    "the session keeps measurements, not a table: read them at the data set's measurements, or ask for a marginal"
)
NO_GRAPH = "the session keeps measurements, not cells: read them at the data set's measurements, or release all cuts"


class Hypotheses:
    """Shows hypotheses."""

    def __init__(self, store: Store, snapshots: Snapshots, sessions: Sessions) -> None:
        self._store, self._snapshots, self._sessions = store, snapshots, sessions

    def state(self, actor: Principal, id: str, take: Callable[[int], None], check: Check) -> tuple[SessionRow, Session]:
        """A session's row and what can be looked at of it: hypothesis and counters at that row, no answers.

        Args:
            actor: who looks.
            id: the session's.
            take: called with the bytes that this takes in memory, before they are taken; may refuse.
            check: called now and then; what it raises ends the work.

        Raises:
            NotFound: when there is none, or it is somebody else's.
        """
        row = self._sessions.row(actor, id)
        with while_wanted(check):
            opening = opening_of(row.header)
        if opening.evidence is not None:
            raise InvalidRequest(NO_TABLE if opening.dataset.space.kind == "table" else NO_GRAPH)
        # The state, and beside it what an update or showing it takes: see the documents on memory.
        dense = opening.dataset.space.dense_bytes
        take(mechanism_of(opening).nbytes(row.updates_used) + 2 * dense + LOOKING_BYTES)
        kept = self._snapshots.read(id)
        if kept is not None:
            # It may be newer than the row was.
            with self._store.read() as tx:
                row = tx.session(id) or row
        return row, look(self._store, row, opening, kept, check)
