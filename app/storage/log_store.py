"""The tables of the log, over SQLAlchemy; see :class:`app.services.log_ports.LogStore`.

Nothing is written to them while something is answered. What is to be added shows in the tables of others: events and
movements by their numbers, entries by how far each session has come. Where several processes write, numbers are not
committed in their order. Whoever adds a row holds a lock on its table from before the number is taken until the commit:
when those who held one after some number was seen are gone, nothing comes any more below it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, Table, and_, func, or_, select, text, update
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from app.audit.log import movement_record
from app.audit.merkle import Subtree
from app.services.log_ports import Group, Leaf, LeafKind, LogState, Reached
from app.services.ports import LedgerRow
from app.storage import tables as t
from app.storage.store import SqlStore

_KIND_NUMBER: dict[LeafKind, int] = {
    "event": t.EVENT,
    "movement": t.MOVEMENT,
    "header": t.HEADER,
    "record": t.RECORD,
    "entry": t.ENTRY,
}
_KINDS: dict[int, LeafKind] = {number: kind for kind, number in _KIND_NUMBER.items()}
#: Sessions of which entries are taken at a time.
_SESSIONS = 64
#: Bytes that the line of a movement has at most.
_MOVEMENT_BYTES = 512
#: How long those are waited for who are adding rows; they are about to commit.
_WAIT_SECONDS, _PAUSE_SECONDS = 0.5, 0.005
_ADDING = text(
    "SELECT DISTINCT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
    "AND relation IN ('ledger'::regclass, 'events'::regclass)"
)


class SqlLog:
    """The log's tables in the database of a store."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._safe = LogState()

    def state(self) -> LogState:
        """How far it has come."""
        with self._store.read() as tx:
            return _state(tx.connection, lock=False)

    def settled(self) -> LogState:
        """The last event and the last movement up to which no other can come any more; the size is not told.

        While somebody who is adding a row takes long, it stays what it was.
        """
        with self._store.read() as tx:
            c = tx.connection
            event, movement = (
                c.execute(select(func.coalesce(func.max(table.c.id), 0))).scalar_one() for table in (t.events, t.ledger)
            )
            if self._store.exclusive or self._are_gone(c):
                self._safe = LogState(event=event, movement=movement)
        return self._safe

    @staticmethod
    def _are_gone(connection: Connection) -> bool:
        """Whether all who are adding rows now have come to their end."""
        adding = set(connection.execute(_ADDING).scalars())
        deadline = time.monotonic() + _WAIT_SECONDS
        while adding:
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
            adding &= set(connection.execute(_ADDING).scalars())
        return True

    def news(self, state: LogState, settled: LogState, most: int) -> list[Group]:
        """What is to be added next, about so many leaves, in an order that any process may continue."""
        with self._store.read() as tx:
            c = tx.connection
            return [*_events(c, state, settled, most), *_movements(c, state, settled, most), *_entries(c, most)]

    def sizes(self, leaves: Sequence[Leaf]) -> list[int]:
        """About how many bytes the lines of leaves have."""
        with self._store.read() as tx:
            movements = dict.fromkeys((leaf for leaf in leaves if leaf.kind == "movement"), _MOVEMENT_BYTES)
            found = movements | _found(tx.connection, leaves, func.length)
        return [found[leaf] for leaf in leaves]

    def lines(self, leaves: Sequence[Leaf]) -> list[bytes]:
        """The lines of leaves, as they are hashed."""
        with self._store.read() as tx:
            movements = {leaf.number: leaf for leaf in leaves if leaf.kind == "movement"}
            found = _found(tx.connection, leaves, lambda line: line)
            rows = tx.connection.execute(select(t.ledger).where(t.ledger.c.id.in_(movements)))
            for row in rows if movements else ():
                told = {name: getattr(row, name) for name in LedgerRow.__slots__}
                found[movements[row.id]] = movement_record(row.id, told)
        return [found[leaf] for leaf in leaves]

    def leaves(self, start: int, end: int) -> list[Leaf]:
        """The leaves from one number up to another, which is not among them."""
        c = t.log_leaves.c
        with self._store.read() as tx:
            rows = tx.connection.execute(
                select(c.kind, c.session, c.number).where(c.position >= start, c.position < end).order_by(c.position)
            )
            return [Leaf(_KINDS[row.kind], row.session, row.number) for row in rows]

    def hashes(self, places: Sequence[Subtree]) -> list[bytes]:
        """Hashes of complete subtrees."""
        leaf, node = t.log_leaves.c, t.log_nodes.c
        levels: dict[int, list[int]] = defaultdict(list)
        for place in places:
            levels[place.level].append(place.number)
        lowest = levels.pop(0, [])
        found: dict[tuple[int, int], bytes] = {}
        with self._store.read() as tx:
            if lowest:
                rows = tx.connection.execute(select(leaf.position, leaf.hash).where(leaf.position.in_(lowest)))
                found |= {(0, row.position): row.hash for row in rows}
            if levels:
                named = [and_(node.level == level, node.number.in_(numbers)) for level, numbers in levels.items()]
                rows = tx.connection.execute(select(node.level, node.number, node.hash).where(or_(*named)))
                found |= {(row.level, row.number): row.hash for row in rows}
        return [found[place] for place in places]

    def append(
        self,
        before: LogState,
        after: LogState,
        leaves: Sequence[tuple[Leaf, bytes]],
        nodes: Sequence[tuple[Subtree, bytes]],
        reached: Sequence[Reached],
    ) -> bool:
        """Add leaves with their hashes and those above them, unless another process is about it, or has done it: then
        nothing happens, and this is False.
        """
        with self._store.write() as tx:
            c = tx.connection
            added = sqlite_insert if self._store.exclusive else pg_insert
            if before == LogState():
                c.execute(added(t.log_state).values(id=1, size=0, event=0, movement=0).on_conflict_do_nothing())
            if _state(c, lock=not self._store.exclusive) != before:
                return False
            numbered = enumerate(leaves, start=before.size)
            tx.add_all(
                t.log_leaves,
                ("position", "kind", "session", "number", "hash"),
                [(at, _KIND_NUMBER[leaf.kind], leaf.session, leaf.number, made) for at, (leaf, made) in numbered],
            )
            tx.add_all(t.log_nodes, ("level", "number", "hash"), [(*place, made) for place, made in nodes])
            for each in {each.session: each for each in reached}.values():
                moved = {"sequence": each.sequence, "following": each.following}
                c.execute(
                    added(t.log_sessions)
                    .values(session=each.session, **moved)
                    .on_conflict_do_update(index_elements=["session"], set_=moved)
                )
            c.execute(update(t.log_state).values(size=after.size, event=after.event, movement=after.movement))
            tx.commit()
        return True


def _state(connection: Connection, *, lock: bool) -> LogState:
    """The row of the state; with ``lock`` nothing, as of an empty log that nobody adds to, while another holds it."""
    c = t.log_state.c
    statement = select(c.size, c.event, c.movement)
    row = connection.execute(statement.with_for_update(skip_locked=True) if lock else statement).one_or_none()
    if row is None:
        return LogState(size=-1) if lock else LogState()
    return LogState(*row)


def _events(connection: Connection, state: LogState, settled: LogState, most: int) -> list[Group]:
    c = t.events.c
    statement = select(c.id).where(c.id > state.event, c.id <= settled.event).order_by(c.id).limit(most)
    return [Group((Leaf("event", None, id),), event=id) for id in connection.execute(statement).scalars()]


def _movements(connection: Connection, state: LogState, settled: LogState, most: int) -> list[Group]:
    """Movements, the first of a session behind its header and the measurements of its opening. Sessions on made-up
    records are left out: they are no part of any data set's history.
    """
    c, e, s = t.ledger.c, t.evidence.c, t.log_sessions.c
    found = connection.execute(
        select(c.id, c.session)
        .where(c.id > state.movement, c.id <= settled.movement, ~c.dataset.startswith("~"))
        .order_by(c.id)
        .limit(most)
    ).all()
    named = {row.session for row in found} - {None}
    known = set(connection.execute(select(s.session).where(s.session.in_(named))).scalars()) if named else set()
    opening: dict[str, list[Leaf]] = {id: [Leaf("header", id, None)] for id in named - known}
    if opening:
        measured = select(e.id, e.session).where(e.session.in_(opening), e.sequence == 0).order_by(e.id)
        for row in connection.execute(measured):
            opening[row.session].append(Leaf("record", row.session, row.id))
    groups = []
    for row in found:
        before = opening.pop(row.session, [])
        reached = Reached(row.session, 0, following=True) if before else None
        groups.append(Group((*before, Leaf("movement", None, row.id)), movement=row.id, reached=reached))
    if len(found) < most and settled.movement > (found[-1].id if found else state.movement):
        groups.append(Group((), movement=settled.movement))
    return groups


def _entries(connection: Connection, most: int) -> list[Group]:
    """Entries of sessions whose headers are there, each behind the measurement that was made for it."""
    s, row, e = t.sessions.c, t.log_sessions.c, t.evidence.c
    behind = connection.execute(
        select(s.id, s.status, s.sequence.label("last"), row.sequence.label("after"))
        .select_from(t.log_sessions.join(t.sessions, s.id == row.session))
        .where(row.following, or_(s.sequence > row.sequence, s.status == "closed"))
        .order_by(s.id)
        .limit(_SESSIONS)
    ).all()
    if not behind:
        return []
    each = max(1, most // len(behind))
    ends = {found.id: min(found.last, found.after + each) for found in behind}
    measured: dict[tuple[str, int], list[Leaf]] = defaultdict(list)
    spans = [and_(e.session == b.id, e.sequence > b.after, e.sequence <= ends[b.id]) for b in behind]
    for record in connection.execute(select(e.id, e.session, e.sequence).where(or_(*spans)).order_by(e.id)):
        measured[record.session, record.sequence].append(Leaf("record", record.session, record.id))
    groups = []
    for found in behind:
        for sequence in range(found.after + 1, ends[found.id] + 1):
            leaves = (*measured[found.id, sequence], Leaf("entry", found.id, sequence))
            following = found.status == "open" or sequence < found.last
            groups.append(Group(leaves, reached=Reached(found.id, sequence, following)))
        if found.after == found.last:  # it was closed
            groups.append(Group((), reached=Reached(found.id, found.last, following=False)))
    return groups


def _found(connection: Connection, leaves: Sequence[Leaf], of: Callable[[Any], Any]) -> dict[Leaf, Any]:
    """Something of the lines of leaves, movements left out, which have none before they are made."""
    kinds: dict[LeafKind, list[Leaf]] = defaultdict(list)
    for leaf in leaves:
        kinds[leaf.kind].append(leaf)
    found: dict[Leaf, Any] = {}
    numbered: dict[LeafKind, Table] = {"event": t.events, "record": t.evidence}
    for kind, table in numbered.items():
        named = {leaf.number: leaf for leaf in kinds[kind]}
        if named:
            rows = connection.execute(select(table.c.id, of(table.c.line)).where(table.c.id.in_(named)))
            found |= {named[id]: value for id, value in rows}
    headers = {leaf.session: leaf for leaf in kinds["header"]}
    if headers:
        s = t.sessions.c
        rows = connection.execute(select(s.id, of(s.header)).where(s.id.in_(headers)))
        found |= {headers[id]: value for id, value in rows}
    sessions: dict[str | None, list[int]] = defaultdict(list)
    for leaf in kinds["entry"]:
        assert leaf.number is not None
        sessions[leaf.session].append(leaf.number)
    c = t.entries.c
    for session, numbers in sessions.items():
        # A session's entries are in the log in their order, all of them.
        within = (c.session == session, c.sequence >= min(numbers), c.sequence <= max(numbers))
        for sequence, value in connection.execute(select(c.sequence, of(c.line)).where(*within)):
            found[Leaf("entry", session, sequence)] = value
    return found
