"""Releases for workloads known in advance: looked at, and cancelled. They are asked for in :mod:`.session_opening`; the
work itself is :mod:`.release_jobs`.

The share is reserved when a release is asked for. A session of the same id holds it and has the transcript: what it
measures is charged there, and its end gives back what is left.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from app.declarations.errors import CuratorError, InvalidRequest
from app.services.errors import Conflict, NotFound, ReleaseEnded
from app.services.pages import Page
from app.services.ports import RELEASE_WORKED, Clock, ReleaseRow, SessionRow, Store, Transaction
from app.services.principals import Principal
from app.services.release_ends import end_release
from app.services.sessions import SESSION_ID
from app.services.views import release_view

#: What came of a release, by the name that it is asked for; the first that there is where none is named.
FILES = ("records", "edges", "answers", "tables", "manifest")
#: How one table of a publication is asked for.
_ONE = re.compile(r"table-([1-9][0-9]{0,5})")


def _ended_early(why: str, row: ReleaseRow) -> ReleaseEnded | None:
    """What is said of a release that was ended while something was measured for it, or made of that."""
    if row.step == "queued":
        return None
    if row.step == "measuring":
        detail = f"{why} while noise was drawn for it: nothing is recorded, and its share is charged"
    else:
        detail = f"{why} while its data were made: what was measured for it is kept, and so is its charge"
    return ReleaseEnded(detail)


@dataclass(frozen=True)
class Standing:
    """A release and its session."""

    row: ReleaseRow
    session: SessionRow

    @property
    def view(self) -> dict[str, Any]:
        """The public state."""
        return release_view(self.row, self.session)

    @property
    def ended(self) -> bool:
        """Whether nothing will change any more."""
        return self.row.status not in RELEASE_WORKED


class Releases:
    """Shows releases and ends them.

    Args:
        store: where they are.
        clock: tells the time.
        render: makes problem documents of refusals.
    """

    def __init__(self, store: Store, clock: Clock, render: Callable[[CuratorError], dict[str, Any]]) -> None:
        self._store, self._clock, self._render = store, clock, render

    def standing(self, actor: Principal, id: str) -> Standing:
        """A release that the actor may see: his own, or any for admins and auditors.

        Raises:
            NotFound: when there is none, or it is somebody else's.
        """
        found = None
        if SESSION_ID.fullmatch(id):
            with self._store.read() as tx:
                row = tx.release(id)
                session = None if row is None else tx.session(id)
            found = None if row is None or session is None else Standing(row, session)
        if found is None or (found.row.owner != actor.name and actor.role == "analyst"):
            raise NotFound("there is no such release of yours")
        return found

    def row(self, id: str) -> ReleaseRow | None:
        """The row of a release, for whoever may see it and wants to know whether anything has changed."""
        with self._store.read() as tx:
            return tx.release(id)

    def list(self, actor: Principal, after: str, most: int) -> Page:
        """The actor's releases in the order they were asked for, all of them for admins and auditors, beyond the one of
        that id.

        Raises:
            InvalidRequest: when ``after`` is neither empty nor a release that the actor sees.
        """
        try:
            last = self.standing(actor, after).row if after else None
        except NotFound:
            raise InvalidRequest("after: the id of a release of yours, as the link to the next page has it") from None
        with self._store.read() as tx:
            rows, others = tx.releases_page(actor.name if actor.role == "analyst" else None, last, most)
            sessions = [tx.session(row.id) for row in rows]
        views = [release_view(row, session) for row, session in zip(rows, sessions, strict=True) if session is not None]
        return Page(views, rows[-1].id if others else None)

    def cancel(self, actor: Principal, id: str) -> dict[str, Any]:
        """End a release. Its share returns where no noise was drawn for it yet; where it is fitted, what was measured
        for it stays, and so does its charge.

        Raises:
            Forbidden: for an auditor.
            NotFound: when there is none, or it is somebody else's.
            Conflict: when it has ended, or noise is being drawn.
        """
        actor.require("analyst", "admin")
        self.standing(actor, id)
        while True:
            with self._store.write() as tx:
                row = tx.release(id)
                assert row is not None
                if row.status not in RELEASE_WORKED:
                    raise Conflict(f"the release is {row.status}: there is nothing to cancel")
                if row.step == "measuring":
                    raise Conflict(
                        "noise is being drawn for the release, so it will be charged: cancel it when that is recorded, "
                        "or wait for its end"
                    )
                if self._end(tx, row, "it was cancelled"):
                    tx.commit()
                    break
        return self.standing(actor, id).view

    def end(self, id: str) -> bool:
        """End a release whose data set is retired, unless it has ended: what was not recorded by now never will be.
        Whether the session of this id is a release's.
        """
        while True:
            with self._store.write() as tx:
                row = tx.release(id)
                if row is None or row.status not in RELEASE_WORKED:
                    return row is not None
                if self._end(tx, row, "the data set was retired"):
                    tx.commit()
                    return True

    def _end(self, tx: Transaction, row: ReleaseRow, why: str) -> bool:
        """End a release as cancelled, unless it has moved on since its row was read; whether that is done."""
        early = _ended_early(why, row)
        problem = None if early is None else orjson.dumps(self._render(early))
        return end_release(tx, row, "cancelled", self._clock(), problem)

    def data(self, actor: Principal, id: str, name: str | None) -> tuple[str, bytes, int | None]:
        """A result of a release: its name, an Arrow file (JSON of a manifest), and the number of the one table that is
        wanted of it, if any.

        Raises:
            InvalidRequest: for a name that nothing has.
            NotFound: when there is no such release, or nothing of that name came of it.
            Conflict: when it is not done.
        """
        found = self.standing(actor, id)
        if found.row.status != "done":
            raise Conflict(f"the release is {found.row.status}: its data are there when it is done")
        one = None if name is None else _ONE.fullmatch(name)
        if one is not None:
            name = "tables"
        if name is not None and name not in FILES:
            raise InvalidRequest(f"part: one of {', '.join(FILES)}, or table-1 and so on")
        with self._store.read() as tx:
            kept = (tx.release_file(id, each) for each in (FILES if name is None else (name,)))
            file = next((each for each in kept if each is not None), None)
        if file is None:
            raise NotFound(f"the release has no {name}")
        return file.name, file.data, None if one is None else int(one.group(1))
