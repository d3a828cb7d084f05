"""Sessions, as they are shown. They are opened in :mod:`.session_opening`, and answered in :mod:`.answering`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import orjson

from app.declarations.errors import InvalidRequest
from app.services.datasets import find_dataset
from app.services.errors import NotFound
from app.services.pages import Page
from app.services.ports import SessionRow, Store, Transaction
from app.services.principals import Principal
from app.services.views import holder_view, session_view

#: What a session's id looks like. Anything else is not looked up: not every database takes every character.
SESSION_ID = re.compile(r"[0-9a-f]{32}")


def find_session(store: Store, id: str) -> SessionRow | None:
    """The session of an id, whoever's it is."""
    if not SESSION_ID.fullmatch(id):
        return None
    with store.read() as tx:
        return tx.session(id)


class Sessions:
    """Shows sessions."""

    def __init__(self, store: Store, log_size: Callable[[str, int], int | None]) -> None:
        self._store = store
        #: The size of the smallest log that has a session up to an entry; None while there is none.
        self.log_size = log_size

    def row(self, actor: Principal, id: str) -> SessionRow:
        """A session that the actor may see: his own, or any for auditors.

        Raises:
            NotFound: when there is none, or it is somebody else's.
        """
        row = find_session(self._store, id)
        if row is None or (row.owner != actor.name and actor.role != "auditor"):
            raise NotFound("there is no such session of yours")
        return row

    def get(self, actor: Principal, id: str) -> dict[str, Any]:
        """A session's public state, with the size of the log that has all of it so far."""
        row = self.row(actor, id)
        return session_view(row) | {"log_size": self.log_size(row.id, row.sequence)}

    def newest(
        self, actor: Principal, before: str = "", most: int = 20, dataset: str | None = None, *, open: bool = False
    ) -> Page:
        """The actor's own sessions, the newest first, those before the one of that id; on a data set where it is named,
        and open ones alone where that is said. Those of releases are left out, so that a page may have fewer than
        ``most`` though others follow.

        Raises:
            InvalidRequest: when ``before`` is neither empty nor a session of his.
        """
        last = find_session(self._store, before) if before else None
        if before and (last is None or last.owner != actor.name):
            raise InvalidRequest("before: the id of a session of yours")
        with self._store.read() as tx:
            rows = tx.newest_sessions(actor.name, last, most + 1, dataset, open=open)
        views = [session_view(row) for row in rows[:most]]
        asked = [view for view in views if view["mechanism"]["construction"] != "workload"]
        return Page(asked, views[-1]["id"] if len(rows) > most else None)

    def list(self, actor: Principal, after: str, most: int) -> Page:
        """The actor's sessions in the order they were opened, all of them for auditors, beyond the one of that id.

        Raises:
            InvalidRequest: when ``after`` is neither empty nor a session that the actor sees.
        """
        try:
            last = self.row(actor, after) if after else None
        except NotFound:
            raise InvalidRequest("after: the id of a session of yours, as the link to the next page has it") from None
        with self._store.read() as tx:
            rows, others = tx.sessions_page(None if actor.role == "auditor" else actor.name, last, most)
        return Page([session_view(row) for row in rows], rows[-1].id if others else None)

    def of_dataset(self, actor: Principal, name: str, after: str, most: int) -> Page:
        """All sessions on a data set in the order they were opened, those of releases too, beyond the one of that id:
        whose they are and what they hold and have spent, and not what was asked.

        Raises:
            NotFound: when there is no such data set.
            InvalidRequest: when ``after`` is neither empty nor a session on it.
        """
        actor.require("admin")
        last = find_session(self._store, after) if after else None
        if after and (last is None or last.dataset != name):
            raise InvalidRequest("after: the id of a session on the data set, as the link to the next page has it")
        with self._store.read() as tx:
            find_dataset(tx, name)
            rows, others = tx.sessions_page(None, last, most, name)
            views = [holder_view(row, _asked_at(tx, row)) for row in rows]
        return Page(views, rows[-1].id if others else None)

    def open_ones(self, actor: Principal, after: str, most: int) -> Page:
        """All open sessions in the order they were opened, as :meth:`of_dataset` tells those of a data set, beyond the
        one of that id.

        Raises:
            InvalidRequest: when ``after`` is neither empty nor a session.
        """
        actor.require("admin")
        last = find_session(self._store, after) if after else None
        if after and last is None:
            raise InvalidRequest("after: the id of a session, as the link to the next page has it")
        with self._store.read() as tx:
            rows, others = tx.open_page(last, most)
            views = [holder_view(row, _asked_at(tx, row)) for row in rows]
        return Page(views, rows[-1].id if others else None)

    def count_open(self, actor: Principal) -> int:
        """How many there are."""
        actor.require("admin")
        with self._store.read() as tx:
            return tx.count_open()


def _asked_at(tx: Transaction, row: SessionRow) -> str | None:
    """When an open session got its last entry: what tells one that is at work from one that is forgotten. None for a
    closed one, and where there is no entry yet."""
    if row.status == "closed" or not row.sequence:
        return None
    lines = tx.entry_lines(row.id, row.sequence - 1, 1)
    return str(orjson.loads(lines[0][1])["recorded_at"]) if lines else None
