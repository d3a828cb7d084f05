"""The tables of the log, over SQLAlchemy; see :class:`app.services.log_ports.LogStore`.

Nothing is written to them while something is answered. What is to be added shows in the tables of others: events and
movements by their numbers, entries by how far each session has come. Where several processes write, numbers are not
committed in their order. Whoever adds a row holds a lock on its table from before the number is taken until the commit:
when those who held one after some number was seen are gone, nothing comes any more below it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import func, select

from app.audit.log import movement_record
from app.services.log_ports import Group, LeafKind, LogState, Run, SessionProgress
from app.services.ports import LedgerRow
from app.storage import log_statements as sql
from app.storage import tables as t
from app.storage.store import SqlStore, SqlTransaction
from curator_client.proofs.merkle import Subtree
from curator_client.proofs.tiles import Tile, home, subtree_hash

T = TypeVar("T")

_KIND_NUMBER: dict[LeafKind, int] = {
    "event": t.EVENT,
    "movement": t.MOVEMENT,
    "header": t.HEADER,
    "record": t.RECORD,
    "entry": t.ENTRY,
}
_KINDS: dict[int, LeafKind] = {number: kind for kind, number in _KIND_NUMBER.items()}
#: Runs that one statement names at most.
_NAMED = 1024
#: Bytes that the line of a movement has at most.
_MOVEMENT_BYTES = 512
#: How long those are waited for who are adding rows; they are about to commit.
_WAIT_SECONDS, _PAUSE_SECONDS = 0.5, 0.005


class SqlLog:
    """The log's tables in the database of a store."""

    def __init__(self, store: SqlStore) -> None:
        self._store = store
        self._safe = LogState()
        self._mark = "?" if store.exclusive else "$"

    def state(self) -> LogState:
        """How far it has come."""
        with self._store.read() as tx:
            return _state(tx.found(sql.STATE)) or LogState()

    def settled(self) -> LogState:
        """The last event and the last movement up to which no other can come any more; the size is not told.

        While somebody who is adding a row takes long, it stays what it was.
        """
        with self._store.read() as tx:
            [(event, movement)] = tx.found(sql.LAST)
            if self._store.exclusive or self._are_gone(tx):
                self._safe = LogState(event=event, movement=movement)
        return self._safe

    @staticmethod
    def _are_gone(tx: SqlTransaction) -> bool:
        """Whether all who are adding rows now have come to their end."""
        adding = set(tx.found(sql.ADDING))
        deadline = time.monotonic() + _WAIT_SECONDS
        while adding:
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
            adding &= set(tx.found(sql.ADDING))
        return True

    def news(self, state: LogState, settled: LogState, most: int) -> tuple[list[Group], bool]:
        """The leaves to be added next, about so many, in an order that any process may continue; and whether
        there is more.
        """
        with self._store.read() as tx:
            events = self._events(tx, state, settled, most) if settled.event > state.event else []
            movements = self._movements(tx, state, settled, most) if settled.movement > state.movement else []
            entries, more = self._entries(tx, most)
        # Entries of the sessions that are opened here come next.
        more = more or any(group.reached is not None for group in movements)
        for groups, last in ((events, settled.event), (movements, settled.movement)):
            more = more or (bool(groups) and last not in (groups[-1].event, groups[-1].movement))
        return events + movements + entries, more

    def _events(self, tx: SqlTransaction, state: LogState, settled: LogState, most: int) -> list[Group]:
        rows = tx.found(sql.islands("events", self._mark), [state.event, settled.event, most])
        return [Group((Run("event", None, first, count),), event=first + count - 1) for first, count in rows]

    def _movements(self, tx: SqlTransaction, state: LogState, settled: LogState, most: int) -> list[Group]:
        """Movements, the first of a session behind its header and the measurements of its opening. Sessions on made-up
        records are left out: they are no part of any data set's history.
        """
        span = [state.movement, settled.movement, most]
        rows = tx.found(sql.islands("ledger", self._mark), span)
        opened = {first: session for session, first in tx.found(sql.openings(self._mark), span)}
        measured = self._measured(tx, [(session, -1, 0) for session in opened.values()])
        groups: list[Group] = []
        for first, count in rows:
            end = first + count
            starts = sorted({first, *(id for id in opened if first <= id < end)})
            for start, after in zip(starts, [*starts[1:], end], strict=True):
                run, session = Run("movement", None, start, after - start), opened.get(start)
                if session is None:
                    groups.append(Group((run,), movement=after - 1))
                else:
                    before = (Run("header", session, 0), *measured[session])
                    groups.append(Group((*before, run), movement=after - 1, reached=SessionProgress(session, 0, True)))
        if sum(count for _, count in rows) < most and (not groups or groups[-1].movement != settled.movement):
            groups.append(Group((), movement=settled.movement))
        return groups

    def _entries(self, tx: SqlTransaction, most: int) -> tuple[list[Group], bool]:
        """Entries of sessions whose headers are there, those of each behind the measurements made for them; and whether
        there are others. Each session has a share, and more where others need less.
        """
        behind = sorted(tx.found(sql.BEHIND), key=lambda row: row[2] - row[3])
        ends: dict[str, int] = {}
        for number, (session, _, last, after) in enumerate(behind):
            ends[session] = min(last, after + max(1, most // (len(behind) - number)))
            most -= ends[session] - after
        measured = self._measured(tx, [(session, after, ends[session]) for session, _, _, after in behind])
        groups = []
        for session, status, last, after in behind:
            end = ends[session]
            runs = (*measured[session], Run("entry", session, after + 1, end - after)) if end > after else ()
            groups.append(Group(runs, reached=SessionProgress(session, end, status == "open" or end < last)))
        return groups, len(behind) == sql.SESSIONS or any(ends[row[0]] < row[2] for row in behind)

    def _measured(self, tx: SqlTransaction, spans: Sequence[tuple[str, int, int]]) -> Mapping[str, list[Run]]:
        """The records of what sessions measured for their entries beyond a number up to another."""
        found: dict[str, list[Run]] = defaultdict(list)
        for part in _parts(spans):
            statement = sql.measured(len(part), self._mark)
            for session, first, count in tx.found(statement, [value for span in part for value in span]):
                found[session].append(Run("record", session, first, count))
        return found

    def sizes(self, runs: Sequence[Run]) -> list[int]:
        """About how many bytes the lines of each run have."""
        found = [_MOVEMENT_BYTES * run.count for run in runs]
        with self._store.read() as tx:
            for kind, places in _by_kind(runs).items():
                for part in _parts(places) if kind != "movement" else ():
                    for place, held in tx.found(sql.sizes(kind, len(part), self._mark), _named(runs, part)):
                        found[place] = int(held)
        return found

    def lines(self, runs: Sequence[Run]) -> list[bytes]:
        """The lines of runs, one after another, as they are hashed."""
        found: dict[int, list[bytes]] = {}
        with self._store.read() as tx:
            for kind, places in _by_kind(runs).items():
                for part in _parts(places):
                    values, lines = _named(runs, part), list[bytes]()
                    if kind == "movement":
                        lines = _movement_lines(tx.found(sql.movements(len(part), self._mark), values)[0])
                    else:
                        [(joined,)] = tx.found(sql.lines(kind, len(part), self._mark), values)
                        lines = [] if joined is None else joined.split(b"\n")
                    if len(lines) != sum(runs[place].count for place in part):
                        raise LookupError(f"lines of the log are not where they stood, of the kind {kind}")
                    start = 0
                    for place in part:
                        found[place] = lines[start : start + runs[place].count]
                        start += runs[place].count
        return [line for place in range(len(runs)) for line in found[place]]

    def leaves(self, start: int, end: int) -> list[Run]:
        """The leaves from one number up to another, which is not among them."""
        c = t.log_runs.c
        found: list[Run] = []
        with self._store.read() as tx:
            before = select(func.max(c.start)).where(c.start <= start).scalar_subquery()
            rows = tx.connection.execute(select(t.log_runs).where(c.start >= before, c.start < end).order_by(c.start))
            for row in rows:
                skipped = max(0, start - row.start)
                count = min(row.count, end - row.start) - skipped
                if count > 0:
                    found.append(Run(_KINDS[row.kind], row.session, row.first + skipped, count))
        return found

    def covering(self, session: str, sequence: int) -> int | None:
        """The size of the smallest log that has a session's lines up to an entry; 0 is none but what its opening made.
        None while the log has not come so far, and for ever where the session is not in it.
        """
        c, e = t.log_runs.c, t.evidence.c
        kind = t.ENTRY if sequence else t.HEADER
        last = (
            select(c.start, c.first, c.count)
            .where(c.session == session, c.kind == kind, c.first <= sequence)
            .order_by(c.first.desc())
            .limit(1)
        )
        with self._store.read() as tx:
            run = tx.connection.execute(last).one_or_none()
            if run is None or sequence >= run.first + run.count:
                return None
            end = int(run.start + sequence - run.first + 1)
            if sequence:
                return end
            opening = select(func.count()).where(e.session == session, e.sequence == 0)
            return end + int(tx.connection.execute(opening).scalar_one())

    def tiles(self, wanted: Collection[Tile]) -> dict[Tile, bytes]:
        """Tiles, as far as they are there."""
        with self._store.read() as tx:
            found: dict[Tile, bytes] = {}
            for part in _parts(list(wanted)):
                rows = tx.found(sql.tiles(len(part), self._mark), [value for tile in part for value in tile])
                found |= {Tile(level, number): hashes for level, number, hashes in rows}
        return found

    def hashes(self, places: Sequence[Subtree]) -> list[bytes]:
        """Hashes of complete subtrees."""
        tiles = self.tiles({home(place) for place in places})
        return [subtree_hash(place, tiles[home(place)]) for place in places]

    def append(
        self,
        before: LogState,
        after: LogState,
        runs: Sequence[Run],
        tiles: Mapping[Tile, bytes],
        reached: Sequence[SessionProgress],
    ) -> bool:
        """Add runs of leaves, tiles as they are then, and how far sessions have come, each once; unless another process
        is about it, or has done it: then nothing happens, and this is False.
        """
        rows, start = list[tuple[Any, ...]](), before.size
        for run in runs:
            rows.append((start, _KIND_NUMBER[run.kind], run.session, run.first, run.count))
            start += run.count
        with self._store.write() as tx:
            if before == LogState():
                tx.found(sql.FIRST)
            if _state(tx.found(sql.STATE if self._store.exclusive else sql.FREE_STATE)) != before:
                return False
            tx.add_all(t.log_runs, ("start", "kind", "session", "first", "count"), rows)
            tx.add_all(
                t.log_tiles, ("level", "number", "hashes"), [(*tile, held) for tile, held in tiles.items()], keys=2
            )
            moved = [(each.session, each.sequence, each.following) for each in reached]
            tx.add_all(t.log_sessions, ("session", "sequence", "following"), moved, keys=1)
            tx.found(sql.move(self._mark), [after.size, after.event, after.movement])
            tx.commit()
        return True


def _state(rows: Sequence[tuple[Any, ...]]) -> LogState | None:
    """The row of the state; None where there is none, or another holds it."""
    return LogState(*rows[0]) if rows else None


def _parts(values: Sequence[T]) -> list[Sequence[T]]:
    """As many at a time as one statement names."""
    return [values[start : start + _NAMED] for start in range(0, len(values), _NAMED)]


def _by_kind(runs: Sequence[Run]) -> dict[LeafKind, list[int]]:
    """Where runs of each kind stand among all."""
    places: dict[LeafKind, list[int]] = defaultdict(list)
    for place, run in enumerate(runs):
        places[run.kind].append(place)
    return places


def _named(runs: Sequence[Run], places: Sequence[int]) -> list[Any]:
    """Runs as statements take them: place, session, first and last number."""
    values: list[Any] = []
    for place in places:
        run = runs[place]
        values += (place, run.session, run.first, run.first + run.count - 1)
    return values


def _movement_lines(joined: tuple[str | None, ...]) -> list[bytes]:
    """Lines of movements from their columns, each joined over all rows; what is empty was null."""
    columns = [[] if column is None else column.split("\n") for column in joined]
    lines = []
    for id, *values in zip(*columns, strict=True):
        told: dict[str, Any] = {name: value or None for name, value in zip(LedgerRow.__slots__, values, strict=True)}
        if told["sequence"] is not None:
            told["sequence"] = int(told["sequence"])
        lines.append(movement_record(int(id), told))
    return lines
