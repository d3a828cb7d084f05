"""Who has signed the log: the keys that it was signed with, and what witnesses have cosigned, over SQLAlchemy; see
:class:`app.services.log_ports.LogKeyStore` and :class:`app.services.log_ports.CosignatureStore`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from sqlalchemy import delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from app.services.log_ports import CosignatureRow, LogKey
from app.storage import tables as t
from app.storage.store import SqlStore


class SqlLogKeys:
    """The table of the log's keys."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store

    def keys(self) -> list[LogKey]:
        """All of them, in their order."""
        with self._store.read() as tx:
            rows = tx.connection.execute(select(t.log_keys).order_by(t.log_keys.c.number))
            return [LogKey(**row._mapping) for row in rows]

    def add(self, key: LogKey, line: bytes | None) -> bool:
        """Add the next one, and tell the log of it in a line, of which it then has the number; False, and nothing
        happens, when another process has added one.
        """
        with self._store.write() as tx:
            c = tx.connection
            values: dict[str, Any] = {"number": key.number, "key": key.key, "statement": key.statement}
            if line is not None:
                (values["event"],) = c.execute(insert(t.events), {"line": line}).inserted_primary_key or (None,)
            try:
                c.execute(insert(t.log_keys), values)
            except IntegrityError:
                return False
            tx.commit()
        return True

    def forget(self) -> None:
        """Forget all of them."""
        with self._store.write() as tx:
            tx.connection.execute(delete(t.log_keys))
            tx.commit()


class SqlCosignatures:
    """The table of cosignatures."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store

    def add(self, row: CosignatureRow, most: int) -> bool:
        """Keep one, or a later one in the place of an earlier one, and of its principal only so many of the largest
        sizes. False, and nothing happens, when the principal has another key, or another principal has this one.
        """
        c = t.log_cosignatures.c
        own = c.principal == row.principal
        with self._store.write() as tx:
            run = tx.connection.execute
            # Two that tell a first key at once are one after the other here.
            run(select(t.principals.c.name).where(t.principals.c.name == row.principal).with_for_update())
            holders = select(c.principal, c.key).where(own | (c.key == row.key)).distinct()
            if any(tuple(found) != (row.principal, row.key) for found in run(holders)):
                return False
            same = own & (c.size == row.size)
            kept = run(select(c.time).where(same)).scalar_one_or_none()
            if kept is None or kept < row.time:
                run(delete(t.log_cosignatures).where(same))
                run(insert(t.log_cosignatures), {name: getattr(row, name) for name in CosignatureRow.__slots__})
                beyond = select(c.size).where(own).order_by(c.size.desc()).offset(most).limit(1)
                run(delete(t.log_cosignatures).where(own, c.size <= beyond.scalar_subquery()))
                tx.commit()
        return True

    def newest(self, least: int, keys: Collection[str]) -> int | None:
        """The largest size of which at least so many are kept, of these keys, or of any where none is named."""
        c = t.log_cosignatures.c
        sizes = select(c.size).group_by(c.size).having(func.count() >= least).order_by(c.size.desc()).limit(1)
        with self._store.read() as tx:
            return tx.connection.execute(sizes.where(c.key.in_(keys)) if keys else sizes).scalar_one_or_none()

    def lines(self, size: int, keys: Collection[str], most: int) -> list[bytes]:
        """The lines of a size, of these keys or of any, so many at most."""
        c = t.log_cosignatures.c
        found = select(c.line).where(c.size == size).order_by(c.principal).limit(most)
        with self._store.read() as tx:
            return list(tx.connection.execute(found.where(c.key.in_(keys)) if keys else found).scalars())

    def last_of_each(self, most: int) -> list[CosignatureRow]:
        """Of each principal's witness the cosignature of the largest size, by their names, so many at most."""
        c = t.log_cosignatures.c
        largest = select(c.principal, func.max(c.size).label("size")).group_by(c.principal).subquery()
        same = (c.principal == largest.c.principal) & (c.size == largest.c.size)
        columns = [c[name] for name in CosignatureRow.__slots__]
        found = select(*columns).join(largest, same).order_by(c.principal).limit(most)
        with self._store.read() as tx:
            return [CosignatureRow(*row) for row in tx.connection.execute(found)]

    def forget(self, principal: str) -> bool:
        """Forget a principal's key and all that it has cosigned; whether there was any."""
        with self._store.write() as tx:
            found = tx.connection.execute(delete(t.log_cosignatures).where(t.log_cosignatures.c.principal == principal))
            tx.commit()
        return found.rowcount > 0
