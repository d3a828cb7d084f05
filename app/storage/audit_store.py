"""The table of audits, over SQLAlchemy; see :class:`app.services.audit_ports.AuditStore`."""

from __future__ import annotations

import math
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, insert, null, or_, select, tuple_, update
from sqlalchemy.exc import IntegrityError

from app.services.audit_ports import UNDER_WAY, AuditRow
from app.storage import tables as t
from app.storage.store import SqlStore

c = t.audits.c
_COLUMNS = tuple(c[name] for name in AuditRow.__slots__)
#: Of rows in a list, results are left out: they are long.
_SHORT = tuple(null().label(name) if name == "result" else c[name] for name in AuditRow.__slots__)
_GOING = c.status.in_(UNDER_WAY)


class SqlAudits:
    """The table of audits."""

    def __init__(self, store: SqlStore) -> None:
        self._store, self.exclusive = store, store.exclusive

    def add(self, row: AuditRow) -> bool:
        """Keep a new audit that is to be worked on; False, and nothing happens, while another has not ended."""
        with self._store.write() as tx:
            try:
                tx.connection.execute(insert(t.audits), _values(row) | {"slot": 1})
            except IntegrityError:
                return False
            tx.commit()
        return True

    def audit(self, id: str) -> AuditRow | None:
        """The audit of this id."""
        return self._one(c.id == id)

    def under_way(self) -> AuditRow | None:
        """The one that has not ended, if there is one."""
        return self._one(c.slot == 1)

    def asked_by(self, owner: str, key: str) -> AuditRow | None:
        """The one that a principal has asked for with an idempotency key."""
        return self._one(c.owner == owner, c.key == key)  # the newest one: those before it are gone

    def _one(self, *which: ColumnElement[bool]) -> AuditRow | None:
        with self._store.read() as tx:
            found = select(*_COLUMNS).where(*which).order_by(c.created_at.desc(), c.id).limit(1)
            row = tx.connection.execute(found).one_or_none()
        return None if row is None else AuditRow(*row)

    def page(self, after: AuditRow | None, since: str, most: int) -> tuple[list[AuditRow], bool]:
        """Up to so many audits, asked for after one of them, that have not ended before a time, in that order; and
        whether there are others.
        """
        order = (c.created_at, c.id)
        statement = select(*_SHORT).where(or_(c.finished_at.is_(None), c.finished_at > since))
        if after is not None:
            statement = statement.where(tuple_(*order) > (after.created_at, after.id))
        with self._store.read() as tx:
            rows = [AuditRow(*row) for row in tx.connection.execute(statement.order_by(*order).limit(most + 1))]
        return rows[:most], len(rows) > most

    def take(self, worker: str, now: float) -> AuditRow | None:
        """Take the audit that nobody works on. Nobody else takes it at the same time."""
        free = (c.status == "running", c.worker.is_(None))
        if self._one(*free) is None:  # so that nothing is written while there is nothing to do
            return None
        with self._store.write() as tx:
            taken = tx.connection.execute(update(t.audits).where(*free).values(worker=worker, beat=now)).rowcount
            tx.commit()
        return self._one(c.worker == worker) if taken else None

    def beat(self, row: AuditRow, progress: bytes, now: float) -> bool:
        """Say that its worker is alive, and how far it is; whether it is to go on."""
        mine = (c.id == row.id, c.worker == row.worker, _GOING)
        with self._store.write() as tx:
            tx.connection.execute(update(t.audits).where(*mine).values(beat=now, progress=progress))
            tx.commit()
        found = self.audit(row.id)
        return found is not None and found.status == "running" and found.worker == row.worker

    def halt(self, id: str, by: str, at: str) -> None:
        """Have an audit stopped by its worker, or at once where it has none."""
        running = (c.id == id, c.status == "running")
        with self._store.write() as tx:
            run = tx.connection.execute
            ended = {"status": "stopped", "slot": None, "finished_at": at, "stopped_by": by}
            run(update(t.audits).where(*running, c.worker.is_(None)).values(ended))
            run(update(t.audits).where(*running).values(status="stopping", stopped_by=by))
            tx.commit()

    def end(self, row: AuditRow, reports: dict[str, bytes]) -> bool:
        """The end of an audit, and its reports by their media types, unless its worker is another one's or it has
        ended; whether that is so.
        """
        # Who asked for a stop was told that there would be no verdict.
        going = _GOING if row.status == "stopped" else c.status == "running"
        moved = {
            name: getattr(row, name) for name in ("status", "progress", "finished_at", "problem", "verdict", "result")
        }
        with self._store.write() as tx:
            run = tx.connection.execute
            mine = (c.id == row.id, c.worker == row.worker, going)
            if not run(update(t.audits).where(*mine).values(moved | {"slot": None})).rowcount:
                return False
            for form, data in reports.items():
                run(insert(t.audit_reports), {"audit": row.id, "form": form, "data": data})
            tx.commit()
        return True

    def abandon(self, silent_since: float, at: str, ahead: float = math.inf) -> None:
        """Let an audit be stopped whose worker has been silent since some time, or spoke last when it was later than it
        can be: the clock was set back since.
        """
        silent = and_(c.slot == 1, or_(c.beat < silent_since, c.beat > ahead))
        if self._one(silent) is not None:
            with self._store.write() as tx:
                ended = {"status": "stopped", "slot": None, "finished_at": at}
                tx.connection.execute(update(t.audits).where(silent).values(ended))
                tx.commit()

    def forget(self, id: str | None, before: str) -> int:
        """Remove an audit that has ended, or all that ended before a time; how many there were."""
        which = and_(c.slot.is_(None), c.finished_at <= before if id is None else c.id == id)
        if self._one(which) is None:
            return 0
        with self._store.write() as tx:
            run = tx.connection.execute
            run(delete(t.audit_reports).where(t.audit_reports.c.audit.in_(select(c.id).where(which))))
            gone = run(delete(t.audits).where(which)).rowcount
            tx.commit()
        return gone

    def report(self, id: str, form: str) -> bytes | None:
        """The report of an audit as this media type."""
        r = t.audit_reports.c
        with self._store.read() as tx:
            found = tx.connection.execute(select(r.data).where(r.audit == id, r.form == form)).scalar_one_or_none()
        return None if found is None else bytes(found)


def _values(row: AuditRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in AuditRow.__slots__}
