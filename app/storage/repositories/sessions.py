"""Sessions: their rows, and the locks that these are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import Any

from sqlalchemy import BigInteger, func, select, tuple_

from app.services.ports import NONE_KNOWN, Holding, SessionRow
from app.storage import tables as t
from app.storage.transaction import LOCK_NOT_AVAILABLE, BaseTransaction, columns, numbered, typed_rows

c = t.sessions.c
#: What :meth:`Sessions.open_page` looks at.
_OPEN = (c.status == "open", ~c.dataset.startswith("~"))
_MOVED = (
    "status",
    "sequence",
    "queries_asked",
    "updates_used",
    "spent",
    "reserved",
    "spent_pure",
    "reserved_pure",
    "head_hash",
    "closed_at",
)


@lru_cache(maxsize=256)
def _lock(count: int, mark: str, hold: str) -> str:
    # What the transaction is called comes along: nothing more is sent for it.
    read = ("id", *_MOVED, "CAST(pg_current_xact_id() AS TEXT)" if hold else "NULL")
    return (
        f"SELECT {', '.join(read)} FROM {t.sessions.name} WHERE id IN ({', '.join(numbered(count, 1, mark))}) "  # noqa: S608
        f"ORDER BY id{hold}"
    )


@lru_cache
def _move() -> str:
    """One session's new state."""
    return f"UPDATE {t.sessions.name} SET {', '.join(f'{name} = ?' for name in _MOVED)} WHERE id = ?"  # noqa: S608


@lru_cache(maxsize=256)
def _move_all(count: int) -> str:
    """The new states of ``count`` sessions."""
    names = (*_MOVED, "id")
    # Text of any length: a cast to a shorter type would cut what does not fit, where the column refuses it.
    kinds = ["BIGINT" if isinstance(c[name].type, BigInteger) else "TEXT" for name in names]
    return (
        f"UPDATE {t.sessions.name} s SET {', '.join(f'{name} = n.{name}' for name in _MOVED)} "  # noqa: S608
        f"FROM (VALUES ({typed_rows(kinds, count, '$')})) AS n ({', '.join(names)}) WHERE s.id = n.id"
    )


class Sessions(BaseTransaction):
    """What was opened."""

    def session(self, id: str) -> SessionRow | None:
        """The session of this id."""
        return self._one(SessionRow, c.id == id)

    def lock_sessions(
        self, ids: Sequence[str], known: Mapping[str, SessionRow] = NONE_KNOWN, seconds: float | None = None
    ) -> dict[str, SessionRow]:
        """The sessions of these ids, their rows held until the commit; taken in one order, so that no two
        processes can wait for each other.

        Of rows that are ``known`` in an earlier state only what moves is read. ``seconds`` is how long rows that others
        hold are waited for, where that is not as long as it takes: then those that are free are given alone. Longer
        than 0 it must be the first thing in its transaction.
        """
        if not ids:
            return {}
        locked = self._lock_rows(list(ids), seconds)
        if locked:
            self.name = locked[0][-1]
        moved = {row[0]: row[1:-1] for row in locked}
        rows = {id: replace(known[id], **dict(zip(_MOVED, moved[id], strict=True))) for id in moved if id in known}
        unknown = [id for id in moved if id not in rows]
        if unknown:
            rows |= {row.id: row for row in self._all(SessionRow, c.id.in_(unknown), order=c.id)}
        return rows

    def _lock_rows(self, ids: list[str], seconds: float | None) -> list[Any]:
        if not self._locks or seconds is None:
            return self.found(_lock(len(ids), self._mark, " FOR UPDATE" if self._locks else ""), ids)
        if seconds:
            cursor, held = self._cursor(), self._cursor()
            try:
                # All of it travels together.
                with self._driver.pipeline():
                    cursor.execute(f"SET LOCAL lock_timeout = {round(1000 * seconds)}")
                    held.execute(_lock(len(ids), self._mark, " FOR UPDATE"), ids)
                    cursor.execute("SET LOCAL lock_timeout TO DEFAULT")
                return list(held.fetchall())
            except self.connection.dialect.loaded_dbapi.OperationalError as error:
                if getattr(error, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                    raise
                self._driver.rollback()
        return self.found(_lock(len(ids), self._mark, " FOR UPDATE SKIP LOCKED"), ids)

    def happened(self, name: str) -> bool:
        """Whether the transaction of this name was committed. One that the database has never heard of, as it was lost
        with another server, was not.
        """
        known = "SELECT CASE WHEN $1::text::xid8 < pg_current_xact_id() THEN pg_xact_status($1::text::xid8) END"
        return self.found(known, [name]) == [("committed",)]

    def existing_sessions(self, ids: Sequence[str]) -> set[str]:
        """Those of these sessions that there are, whoever holds them."""
        return set(self.connection.execute(select(c.id).where(c.id.in_(ids))).scalars())

    def sessions_page(
        self, owner: str | None, after: SessionRow | None, most: int, dataset: str | None = None
    ) -> tuple[list[SessionRow], bool]:
        """Up to ``most`` sessions opened after ``after``, of an owner and on a data set where they are named, in the
        order they were opened; and whether there are others.
        """
        which = [column == name for column, name in ((c.owner, owner), (c.dataset, dataset)) if name is not None]
        start = None if after is None else (after.opened_at, after.id)
        return self._page(SessionRow, (c.opened_at, c.id), start, most, *which, long=c.header)

    def newest_sessions(
        self, owner: str, before: SessionRow | None, most: int, dataset: str | None, *, open: bool
    ) -> list[SessionRow]:
        """Up to ``most`` sessions of an owner that were opened before ``before``, on a data set where it is named and
        open ones alone where that is said, the newest first."""
        which = [c.owner == owner]
        which += [] if dataset is None else [c.dataset == dataset]
        which += [c.status == "open"] if open else []
        which += [] if before is None else [tuple_(c.opened_at, c.id) < (before.opened_at, before.id)]
        found = select(*columns(SessionRow)).where(*which).order_by(c.opened_at.desc(), c.id.desc()).limit(most)
        return [SessionRow(*row) for row in self.connection.execute(found)]

    def datasets_of(self, owner: str) -> set[str]:
        """The data sets that somebody ever opened sessions on."""
        return set(self.connection.execute(select(c.dataset).where(c.owner == owner).distinct()).scalars())

    def open_in(self, dataset: str) -> list[str]:
        """The open sessions of a data set, in the order they were opened."""
        found = select(c.id).where(c.dataset == dataset, c.status == "open").order_by(c.opened_at, c.id)
        return list(self.connection.execute(found).scalars())

    def open_page(self, after: SessionRow | None, most: int) -> tuple[list[SessionRow], bool]:
        """Up to ``most`` open sessions opened after ``after``, of all data sets but made-up ones, in the order in which
        they were opened; and whether there are others.
        """
        start = None if after is None else (after.opened_at, after.id)
        return self._page(SessionRow, (c.opened_at, c.id), start, most, *_OPEN, long=c.header)

    def count_open(self) -> int:
        """How many sessions are open, of all data sets but made-up ones."""
        # None of them is settled. Asked of one data set after another, the index of those that are not tells their
        # number, and no row is read.
        name = t.datasets.c.name
        of_one = select(func.count()).where(c.dataset == name, ~c.settled, c.status == "open").scalar_subquery()
        count = select(func.coalesce(func.sum(of_one), 0)).select_from(t.datasets).where(~name.startswith("~"))
        return int(self.connection.execute(count).scalar_one())

    def last_opened_in(self, dataset: str) -> str:
        """When a session of a data set was opened last, by the clocks that were read then; nothing where none was."""
        found = select(func.max(c.opened_at)).where(c.dataset == dataset)
        return str(self.connection.execute(found).scalar_one() or "")

    def open_sessions(self, ids: Sequence[str]) -> set[str]:
        """Those of these sessions that are open."""
        return set(self.connection.execute(select(c.id).where(c.id.in_(ids), c.status == "open")).scalars())

    def closing_times(self, ids: Sequence[str]) -> dict[str, str]:
        """When those of these sessions were closed that are."""
        rows = self.connection.execute(select(c.id, c.closed_at).where(c.id.in_(ids), c.closed_at.is_not(None)))
        return {row.id: row.closed_at for row in rows}

    def add_session(self, row: SessionRow, counted: Holding | None = None) -> None:
        """Add a session; ``counted`` is what it is opened with, where the sums that :meth:`Datasets.stand` is given in
        the same transaction have that.
        """
        held = {} if counted is None else {"held": counted.reserved, "held_pure": counted.reserved_pure}
        self._add(row, **held)

    def move_sessions(self, rows: Sequence[SessionRow]) -> None:
        """Write the counters, head and status of sessions."""
        values = attrgetter(*_MOVED, "id")
        moved = [values(row) for row in rows]
        if self._locks and moved:
            self._cursor().execute(_move_all(len(moved)), list(chain.from_iterable(moved)))
        elif moved:
            self._cursor().executemany(_move(), moved)
        self._complete()
