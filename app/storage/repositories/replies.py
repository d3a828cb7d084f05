"""Replies under idempotency keys."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sqlalchemy import Select, bindparam, case, delete, select, tuple_

from app.services.ports import ReplyName, ReplyRow
from app.storage import tables as t
from app.storage.transaction import BaseTransaction, numbered

c = t.idempotency.c


@lru_cache(maxsize=256)
def _find_replies(count: int, mark: str) -> str:
    """Replies by ``count`` names, in the order of :class:`ReplyRow`'s fields.

    The names come first in a cross join, whose order SQLite keeps: names IN a list would read the whole table.
    """
    columns = ", ".join(f"i.{name}" for name in ReplyRow.__slots__)
    names = "), (".join(numbered(count, 3, mark))
    return (
        f"WITH n (principal, route, key) AS (VALUES ({names})) SELECT {columns} "  # noqa: S608
        f"FROM n CROSS JOIN {t.idempotency.name} i "
        "WHERE i.principal = n.principal AND i.route = n.route AND i.key = n.key"
    )


def _next_replies(after: ReplyName, most: int) -> Select[tuple[str, str, str, bytes | None]]:
    """Names of replies in their order, and what openings replied, of releases too: both tell the session's id."""
    opening = case((c.opens, c.reply)).label("opening")
    name = tuple_(c.principal, c.route, c.key)
    return select(c.principal, c.route, c.key, opening).where(name > after).order_by(*name).limit(most)


class Replies(BaseTransaction):
    """What was replied."""

    def replies(self, names: Sequence[ReplyName]) -> dict[ReplyName, ReplyRow]:
        """The replies stored under idempotency keys, each named by principal, route and key."""
        if not names:
            return {}
        rows = self.found(_find_replies(len(names), self._mark), [part for name in names for part in name])
        return {row[:3]: ReplyRow(*row) for row in rows}

    def add_replies(self, rows: Sequence[ReplyRow]) -> None:
        """Store replies under their idempotency keys. Raises StoreConflict when one has been used."""
        self._add_rows(ReplyRow, rows)

    def reply_telling(self, principal: str, routes: Sequence[str], sequence: int) -> bytes | None:
        """The first of a principal's replies, by the entries that they tell of, that has come as far as an entry."""
        which = (c.principal == principal, c.route.in_(list(routes)), c.sequence >= sequence)
        return self.connection.execute(select(c.reply).where(*which).order_by(c.sequence).limit(1)).scalar()

    def reply_names(self, after: ReplyName, most: int) -> list[tuple[ReplyName, bytes | None]]:
        """So many replies in the order of their names, those after ``after``; the reply itself where it tells of a
        session that was opened.
        """
        found = self.connection.execute(_next_replies(after, most))
        return [((row.principal, row.route, row.key), row.opening) for row in found]

    def remove_replies(self, names: Sequence[ReplyName]) -> None:
        """Forget replies: their keys are as if they had never been used."""
        if names:
            named = (c.principal == bindparam("p"), c.route == bindparam("r"), c.key == bindparam("k"))
            self.connection.execute(
                delete(t.idempotency).where(*named), [{"p": name[0], "r": name[1], "k": name[2]} for name in names]
            )
