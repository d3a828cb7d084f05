"""A store in memory, for tests of the services: it passes the store's contract (tests/storage/test_store.py).

A :class:`MemoryDatabase` is what several stores share, as processes share a database. A transaction keeps what it
writes as steps, which are made again on what is there when it commits; so what it sees is what was committed last, with
its own steps, and a reading one sees what was there when it began. Rows are locks, or where one process writes, one
transaction is written at a time.
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from app.services.ports import (
    NONE_KNOWN,
    DatasetRow,
    EntryKind,
    EntryRow,
    EvidenceRow,
    Holding,
    KnownEntries,
    LedgerRow,
    LoginRow,
    PrincipalRow,
    ReleaseFile,
    ReleaseRow,
    ReleaseStatus,
    ReplyName,
    ReplyRow,
    SessionRow,
    StoreConflict,
    StoreHeld,
    WeightsRow,
)

#: A page of long rows holds no more bytes, or one row.
PAGE_BYTES = 1 << 18
PAGE_ROWS = 1000
#: How long the row of a data set that somebody else holds is waited for.
DATASET_SECONDS = 2.0


@dataclass(slots=True)
class Tables:
    """Every row, by its key."""

    principals: dict[str, PrincipalRow] = field(default_factory=dict)
    logins: dict[str, LoginRow] = field(default_factory=dict)
    datasets: dict[str, DatasetRow] = field(default_factory=dict)
    grants: dict[tuple[str, str], str] = field(default_factory=dict)
    sessions: dict[str, SessionRow] = field(default_factory=dict)
    settled: dict[str, bool] = field(default_factory=dict)
    held: dict[str, Holding] = field(default_factory=dict)
    standing: dict[tuple[str, str, bool], Holding] = field(default_factory=dict)
    entries: dict[tuple[str, int], EntryRow] = field(default_factory=dict)
    weights: dict[tuple[str, str], WeightsRow] = field(default_factory=dict)
    evidence: dict[int, EvidenceRow] = field(default_factory=dict)
    ledger: dict[int, LedgerRow] = field(default_factory=dict)
    sums: dict[tuple[str, str, bool], Holding] = field(default_factory=dict)
    summed_to: dict[str, int] = field(default_factory=dict)
    replies: dict[ReplyName, ReplyRow] = field(default_factory=dict)
    releases: dict[str, ReleaseRow] = field(default_factory=dict)
    release_files: dict[tuple[str, str], ReleaseFile] = field(default_factory=dict)
    events: dict[int, bytes] = field(default_factory=dict)

    def copy(self) -> Tables:
        """The same rows; they themselves never change."""
        return Tables(*(dict(getattr(self, name)) for name in self.__slots__))


class MemoryDatabase:
    """What several stores share."""

    def __init__(self) -> None:
        self.tables = Tables()
        #: Counts commits.
        self.version = 0
        self.committed: set[str] = set()
        self.names = itertools.count(1)
        self.numbers = itertools.count(1)
        #: Who holds which row.
        self.held: dict[tuple[str, str], MemoryTransaction] = {}
        self.changed = threading.Condition()
        #: Held by the one that writes, where one process does.
        self.turn = threading.Lock()


def _add(table: dict[Any, Any], key: Any, row: Any) -> None:
    if key in table:
        raise StoreConflict
    table[key] = row


def _need(table: Mapping[Any, Any], *keys: Any) -> None:
    """A row that refers to no other one is refused."""
    if any(key not in table for key in keys):
        raise StoreConflict


def _counted(rows: Iterable[SessionRow]) -> list[Holding]:
    """What sessions hold and have spent, those that agree together."""
    found = Counter((row.owner, row.reserved, row.spent, row.reserved_pure, row.spent_pure) for row in rows)
    return [Holding(*key, number) for key, number in found.items()]


def _fitting(found: Sequence[tuple[Any, int]], most: int) -> tuple[list[Any], bool]:
    """Of rows, each with its bytes, those of a page; and whether there are others."""
    rows: list[Any] = []
    held = 0
    for row, size in found[:most]:
        held += size
        if rows and held > PAGE_BYTES:
            break
        rows.append(row)
    return rows, len(rows) < len(found)


class MemoryTransaction:
    """See :class:`app.services.ports.Transaction`."""

    def __init__(self, database: MemoryDatabase, *, writes: bool, exclusive: bool) -> None:
        self._database, self._writes, self._exclusive = database, writes, exclusive
        self._steps: list[Callable[[Tables], None]] = []
        self._seen, self._version = database.tables, database.version
        self.name: str | None = None

    @property
    def _tables(self) -> Tables:
        """What there is for this transaction."""
        if self._writes and self._version != self._database.version:
            with self._database.changed:
                self._seen, self._version = self._database.tables.copy(), self._database.version
            for step in self._steps:
                step(self._seen)
        return self._seen

    def _do(self, step: Callable[[Tables], None]) -> None:
        assert self._writes, "a reading transaction"
        if not self._steps:
            self._seen = self._tables.copy()
        step(self._tables)
        self._steps.append(step)

    def commit(self) -> None:
        with self._database.changed:
            tables = self._database.tables.copy()
            for step in self._steps:
                step(tables)
            self._database.tables = tables
            self._database.version += 1
            if self.name is not None:
                self._database.committed.add(self.name)
        self.end()

    def end(self) -> None:
        """Give back what is held; what was not committed has not happened."""
        self._steps.clear()
        with self._database.changed:
            self._seen, self._version = self._database.tables, self._database.version
            for key in [key for key, holder in self._database.held.items() if holder is self]:
                del self._database.held[key]
            self._database.changed.notify_all()

    def together(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def stay(self) -> None:
        pass

    def _hold(self, table: str, keys: Sequence[str], seconds: float | None) -> set[str]:
        """Hold rows; those that could not be had in this time are not among what is returned."""
        if self._exclusive:
            return set(keys)
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._database.changed:
            while True:
                free = {key for key in keys if self._database.held.get((table, key), self) is self}
                left = None if deadline is None else deadline - time.monotonic()
                if len(free) == len(keys) or (left is not None and left <= 0):
                    break
                self._database.changed.wait(left)
            for key in free:
                self._database.held[(table, key)] = self
        return free

    # principals
    def principal(self, name: str) -> PrincipalRow | None:
        return self._tables.principals.get(name)

    def principal_by_key(self, key_id: str) -> PrincipalRow | None:
        return next((row for row in self._tables.principals.values() if row.key_id == key_id), None)

    def principals(self) -> list[PrincipalRow]:
        return [row for _, row in sorted(self._tables.principals.items())]

    def principals_page(self, after: str, most: int) -> tuple[list[PrincipalRow], bool]:
        found = [row for row in self.principals() if row.name > after]
        return found[:most], len(found) > most

    def add_principal(self, row: PrincipalRow) -> None:
        def step(tables: Tables) -> None:
            if any(other.key_id == row.key_id for other in tables.principals.values()):
                raise StoreConflict
            _add(tables.principals, row.name, row)

        self._do(step)

    def set_key(self, name: str, key_id: str, key_hash: str) -> None:
        self._change_principal(name, key_id=key_id, key_hash=key_hash, revoked_at=None)

    def revoke_principal(self, name: str, at: str) -> None:
        self._change_principal(name, revoked_at=at)

    def _change_principal(self, name: str, **changes: Any) -> None:
        def step(tables: Tables) -> None:
            if name in tables.principals:
                tables.principals[name] = replace(tables.principals[name], **changes)

        self._do(step)

    # log-ins of browsers
    def login(self, id: str) -> LoginRow | None:
        return self._tables.logins.get(id)

    def logins(self, principal: str) -> list[LoginRow]:
        found = (row for row in self._tables.logins.values() if row.principal == principal)
        return sorted(found, key=lambda row: row.created_at)

    def add_login(self, row: LoginRow) -> None:
        self._do(lambda tables: _add(tables.logins, row.id, row))

    def use_login(self, id: str, at: str) -> None:
        def step(tables: Tables) -> None:
            if id in tables.logins:
                tables.logins[id] = replace(tables.logins[id], used_at=at)

        self._do(step)

    def remove_logins(self, ids: Sequence[str]) -> None:
        def step(tables: Tables) -> None:
            for id in ids:
                tables.logins.pop(id, None)

        self._do(step)

    def remove_old_logins(self, begun: str, used: str) -> int:
        old = [row.id for row in self._tables.logins.values() if row.created_at < begun or row.used_at < used]
        self.remove_logins(old)
        return len(old)

    # data sets
    def dataset(self, name: str, *, lock: bool = False) -> DatasetRow | None:
        if lock and not self._hold("datasets", [name], DATASET_SECONDS):
            raise StoreHeld
        return self._tables.datasets.get(name)

    def datasets(self) -> list[DatasetRow]:
        return [row for _, row in sorted(self._tables.datasets.items())]

    def datasets_page(self, after: str, most: int) -> tuple[list[DatasetRow], bool]:
        rows = [row for row in self.datasets() if row.name > after and not row.name.startswith("~")]
        return _fitting([(row, len(str(row.spec))) for row in rows], most)

    def dataset_names(self, *, retired: bool) -> list[str]:
        rows = self._tables.datasets.values()
        return sorted(row.name for row in rows if (row.retired_at is not None) == retired and row.name[0] != "~")

    def vault_entries(self) -> dict[str, dict[str, str]]:
        return {row.name: row.vault_entry for row in self.datasets() if row.retired_at is None}

    def add_dataset(self, row: DatasetRow) -> None:
        self._do(lambda tables: _add(tables.datasets, row.name, row))

    def count_race(self, name: str) -> None:
        self._change_dataset(name, lambda row: replace(row, race_sessions=row.race_sessions + 1))

    def set_bought(self, name: str, bought: dict[str, dict[str, float]]) -> None:
        self._change_dataset(name, lambda row: replace(row, bought=bought))

    def forfeit_dataset(self, row: DatasetRow) -> None:
        lost = {name: getattr(row, name) for name in ("forfeited", "forfeited_pure", "impure")}
        self._change_dataset(row.name, lambda there: replace(there, **lost))

    def set_impure(self, name: str) -> None:
        self._change_dataset(name, lambda row: replace(row, impure=True))

    def set_vault_entry(self, name: str, entry: dict[str, str]) -> None:
        self._change_dataset(name, lambda row: replace(row, vault_entry=entry))

    def set_revealed_to(self, name: str, principals: Sequence[str]) -> None:
        self._change_dataset(name, lambda row: replace(row, revealed_to=tuple(principals)))

    def retire_dataset(self, name: str, at: str) -> None:
        self._change_dataset(name, lambda row: replace(row, retired_at=at))

    def _change_dataset(self, name: str, change: Callable[[DatasetRow], DatasetRow]) -> None:
        def step(tables: Tables) -> None:
            if name in tables.datasets:
                tables.datasets[name] = change(tables.datasets[name])

        self._do(step)

    def grant(self, dataset: str, principal: str) -> str | None:
        return self._tables.grants.get((dataset, principal))

    def set_grant(self, dataset: str, principal: str, epsilon: str) -> None:
        def step(tables: Tables) -> None:
            _need(tables.datasets, dataset)
            _need(tables.principals, principal)
            tables.grants[dataset, principal] = epsilon

        self._do(step)

    def grants(self, dataset: str) -> dict[str, str]:
        return {principal: cap for (name, principal), cap in self._tables.grants.items() if name == dataset}

    def grants_of(self, principal: str) -> dict[str, str]:
        return {name: cap for (name, holder), cap in self._tables.grants.items() if holder == principal}

    def passed(self, dataset: str) -> list[Holding]:
        spent = [
            replace(each, reserved="0", reserved_pure=None if each.spent_pure is None else "0")
            for each in self.standing(dataset)
        ]
        return sorted([*_counted(self._unsettled(dataset)), *spent], key=str)

    def every(self, dataset: str) -> list[Holding]:
        rows = self._tables.sessions.values()
        return sorted(_counted(row for row in rows if row.dataset == dataset), key=str)

    def taken(self, dataset: str) -> list[Holding]:
        rows, held = self._unsettled(dataset), self._tables.held
        closed = [row for row in rows if row.status == "closed"]
        apart = [row for row in rows if row.status == "open" and row.id not in held]
        off = Counter(held[row.id] for row in closed if row.id in held)
        taken_off = [replace(each, sessions=-number) for each, number in off.items()]
        return sorted([*self.standing(dataset), *taken_off, *_counted(closed), *_counted(apart)], key=str)

    def standing(self, dataset: str) -> list[Holding]:
        return sorted((sums for (name, *_), sums in self._tables.standing.items() if name == dataset), key=str)

    def to_settle(self, dataset: str, most: int) -> dict[str, Holding]:
        closed = [row for row in self._unsettled(dataset) if row.status == "closed"][:most]
        none = {row.id: Holding(row.owner, "0", "0", row.reserved_pure, "0", 1) for row in closed}
        return {
            row.id: replace(self._tables.held.get(row.id, none[row.id]), spent=row.spent, spent_pure=row.spent_pure)
            for row in closed
        }

    def stand(self, dataset: str, sums: Sequence[Holding], settled: Iterable[str]) -> None:
        rows, gone = (
            {(dataset, each.owner, each.spent_pure is not None): each for each in sums},
            dict.fromkeys(settled, True),
        )

        def step(tables: Tables) -> None:
            tables.standing |= rows
            tables.settled |= gone

        self._do(step)

    def _unsettled(self, dataset: str) -> list[SessionRow]:
        rows, settled = self._tables.sessions.values(), self._tables.settled
        return [row for row in rows if row.dataset == dataset and row.id not in settled]

    # sessions
    def session(self, id: str) -> SessionRow | None:
        return self._tables.sessions.get(id)

    def lock_sessions(
        self, ids: Sequence[str], known: Mapping[str, SessionRow] = NONE_KNOWN, seconds: float | None = None
    ) -> dict[str, SessionRow]:
        there = sorted(id for id in ids if id in self._tables.sessions)
        held = self._hold("sessions", there, seconds)
        if held and not self._exclusive and self.name is None:
            self.name = str(next(self._database.names))
        return {id: self._tables.sessions[id] for id in there if id in held}

    def happened(self, name: str) -> bool:
        return name in self._database.committed

    def existing_sessions(self, ids: Sequence[str]) -> set[str]:
        return {id for id in ids if id in self._tables.sessions}

    def sessions_page(
        self, owner: str | None, after: SessionRow | None, most: int, dataset: str | None = None
    ) -> tuple[list[SessionRow], bool]:
        beyond = ("", "") if after is None else (after.opened_at, after.id)
        found = [row for row in self._in_order() if owner in (None, row.owner) and (row.opened_at, row.id) > beyond]
        found = [row for row in found if dataset in (None, row.dataset)]
        return _fitting([(row, len(row.header)) for row in found], most)

    def open_page(self, after: SessionRow | None, most: int) -> tuple[list[SessionRow], bool]:
        beyond = ("", "") if after is None else (after.opened_at, after.id)
        found = [row for row in self._open() if (row.opened_at, row.id) > beyond]
        return _fitting([(row, len(row.header)) for row in found], most)

    def count_open(self) -> int:
        return len(self._open())

    def _open(self) -> list[SessionRow]:
        return [row for row in self._in_order() if row.status == "open" and row.dataset[0] != "~"]

    def newest_sessions(
        self, owner: str, before: SessionRow | None, most: int, dataset: str | None, *, open: bool
    ) -> list[SessionRow]:
        found = [
            row
            for row in self._tables.sessions.values()
            if row.owner == owner
            and dataset in (None, row.dataset)
            and (row.status == "open" or not open)
            and (before is None or (row.opened_at, row.id) < (before.opened_at, before.id))
        ]
        return sorted(found, key=lambda row: (row.opened_at, row.id), reverse=True)[:most]

    def datasets_of(self, owner: str) -> set[str]:
        return {row.dataset for row in self._tables.sessions.values() if row.owner == owner}

    def open_in(self, dataset: str) -> list[str]:
        return [row.id for row in self._in_order() if row.dataset == dataset and row.status == "open"]

    def last_opened_in(self, dataset: str) -> str:
        return max((row.opened_at for row in self._in_order() if row.dataset == dataset), default="")

    def _in_order(self) -> list[SessionRow]:
        """Sessions in the order they were opened."""
        return sorted(self._tables.sessions.values(), key=lambda row: (row.opened_at, row.id))

    def open_sessions(self, ids: Sequence[str]) -> set[str]:
        found = self._tables.sessions
        return {id for id in ids if id in found and found[id].status == "open"}

    def closing_times(self, ids: Sequence[str]) -> dict[str, str]:
        rows = [self._tables.sessions[id] for id in ids if id in self._tables.sessions]
        return {row.id: row.closed_at for row in rows if row.closed_at is not None}

    def add_session(self, row: SessionRow, counted: Holding | None = None) -> None:
        def step(tables: Tables) -> None:
            _need(tables.datasets, row.dataset)
            _need(tables.principals, row.owner)
            _add(tables.sessions, row.id, row)
            if counted is not None:
                tables.held[row.id] = counted

        self._do(step)

    def move_sessions(self, rows: Sequence[SessionRow]) -> None:
        def step(tables: Tables) -> None:
            tables.sessions.update({row.id: row for row in rows if row.id in tables.sessions})

        self._do(step)

    def append(self, entries: Sequence[EntryRow], weights: Sequence[WeightsRow]) -> None:
        def step(tables: Tables) -> None:
            for each in weights:
                _need(tables.sessions, each.session)
                _add(tables.weights, (each.session, each.sha256), each)
            for entry in entries:
                _need(tables.sessions, entry.session)
                _add(tables.entries, (entry.session, entry.sequence), entry)

        self._do(step)

    def _entries(self, session: str, after: int, last: int | None = None) -> list[EntryRow]:
        """Entries of a session in their order, beyond the first number up to the last one."""
        rows = [row for (id, number), row in self._tables.entries.items() if id == session and number > after]
        return sorted((row for row in rows if last is None or row.sequence <= last), key=lambda row: row.sequence)

    @staticmethod
    def _known(rows: Iterable[EntryRow]) -> KnownEntries:
        known: Any = KnownEntries([], [])
        for row in rows:
            if row.kind in ("hypothesis", "measurement"):
                known.answers.append((row.digest, row.units, row.error_bound))
            if row.kind == "measurement":
                known.measurements.append((row.units, row.line))
            known.cached += row.kind == "cached"
            known.unverified += row.kind == "unverified"
            known.forfeits += row.kind == "forfeit"
        return known  # type: ignore[no-any-return]

    def known_entries(self, session: str, after: int) -> KnownEntries:
        return self._known(self._entries(session, after))

    def latest_entries(self, spans: Mapping[str, tuple[int, int]]) -> dict[str, tuple[KnownEntries, bytes]]:
        found = {id: self._entries(id, *span) for id, span in spans.items()}
        return {id: (self._known(rows), rows[-1].line) for id, rows in found.items()}

    def entry_lines(self, session: str, after: int, most: int) -> list[tuple[int, bytes]]:
        return [(row.sequence, row.line) for row in self._entries(session, after)[:most]]

    def blobs(self, session: str, names: Iterable[str]) -> dict[str, bytes]:
        keys = [(session, name) for name in names]
        return {key[1]: self._tables.weights[key].data for key in keys if key in self._tables.weights}

    def count_entries(self, session: str, after: int, last: int) -> Mapping[EntryKind, int]:
        counts = Counter(row.kind for row in self._entries(session, after, last))
        return {kind: counts[kind] for kind in get_args(EntryKind)}

    def measurements(self, session: str, after: int, last: int) -> list[tuple[int, bytes, bytes]]:
        rows = [row for row in self._entries(session, after, last) if row.kind == "measurement"]
        page, _ = _fitting([(row, len(row.line)) for row in rows], PAGE_ROWS)
        return [(row.sequence, row.units, row.line) for row in page]

    def transcript_page(self, session: str, after: int, last: int) -> list[tuple[int, bytes, list[tuple[str, bytes]]]]:
        weights: dict[int, list[tuple[str, bytes]]] = {}
        for (id, name), each in sorted(self._tables.weights.items()):
            if id == session:
                weights.setdefault(each.sequence, []).append((name, each.data))
        told = [(row.sequence, row.line, weights.get(row.sequence, [])) for row in self._entries(session, after, last)]
        page, _ = _fitting([(row, len(row[1]) + sum(len(data) for _, data in row[2])) for row in told], PAGE_ROWS)
        return page

    # releases
    def add_release(self, row: ReleaseRow) -> None:
        def step(tables: Tables) -> None:
            _need(tables.sessions, row.id)
            _need(tables.datasets, row.dataset)
            _need(tables.principals, row.owner)
            _add(tables.releases, row.id, row)

        self._do(step)

    def release(self, id: str) -> ReleaseRow | None:
        return self._tables.releases.get(id)

    def releases_page(self, owner: str | None, after: ReleaseRow | None, most: int) -> tuple[list[ReleaseRow], bool]:
        beyond = ("", "") if after is None else (after.created_at, after.id)
        rows = sorted(self._tables.releases.values(), key=lambda row: (row.created_at, row.id))
        found = [row for row in rows if owner in (None, row.owner) and (row.created_at, row.id) > beyond]
        return found[:most], len(found) > most

    def releases_in(self, dataset: str) -> list[str]:
        rows = sorted(self._tables.releases.values(), key=lambda row: (row.created_at, row.id))
        return [row.id for row in rows if row.dataset == dataset and row.status in ("queued", "running")]

    def count_releases(self) -> Mapping[ReleaseStatus, int]:
        return Counter(row.status for row in self._tables.releases.values())

    def _due(self, silent_since: float, most_seconds: float, ahead: float) -> list[str]:
        rows = list(self._tables.releases.values())
        served: dict[str, float] = {}
        for row in rows:
            served[row.owner] = max(row.beat, served.get(row.owner, 0.0))
        rows.sort(key=lambda row: (served[row.owner], row.created_at, row.id))
        silent = [row.status == "running" and not silent_since <= row.beat <= ahead for row in rows]
        due = [row for row, late in zip(rows, silent, strict=True) if late or row.status == "queued"]
        return [row.id for row in due if row.expected_seconds <= most_seconds]

    def next_release(self, silent_since: float, most_seconds: float = math.inf, ahead: float = math.inf) -> str | None:
        return next(iter(self._due(silent_since, most_seconds, ahead)), None)

    def claim_release(
        self,
        worker: str,
        now: float,
        silent_since: float,
        most_seconds: float = math.inf,
        ahead: float = math.inf,
    ) -> ReleaseRow | None:
        # What somebody else holds is passed over, and what he did with it meanwhile is seen.
        due = silent_since, most_seconds, ahead
        free = next((id for id in self._due(*due) if self._hold("releases", [id], 0)), None)
        if free is None or free not in self._due(*due):
            return None
        row = self._tables.releases[free]
        taken = replace(row, status="running", worker=worker, beat=now)
        return taken if self.move_release(taken, row) else None

    def orphan_releases(self) -> None:
        running = {row.id: replace(row, beat=0.0) for row in self._tables.releases.values() if row.status == "running"}
        self._do(lambda tables: tables.releases.update(running))

    def move_release(self, row: ReleaseRow, before: ReleaseRow) -> bool:
        row.check_follows(before)
        self._hold("releases", [row.id], None)
        there = self._tables.releases.get(row.id)
        known = before.status, before.step, before.worker
        if there is None or (there.status, there.step, there.worker) != known:
            return False
        moved = ("status", "step", "progress", "worker", "beat", "finished_at", "problem", "result", "expected_seconds")
        changed = replace(there, **{name: getattr(row, name) for name in moved})
        self._do(lambda tables: tables.releases.update({row.id: changed}))
        return True

    def add_release_files(self, files: Sequence[ReleaseFile]) -> None:
        def step(tables: Tables) -> None:
            for file in files:
                _need(tables.releases, file.release)
                _add(tables.release_files, (file.release, file.name), file)

        self._do(step)

    def release_file(self, id: str, name: str) -> ReleaseFile | None:
        return self._tables.release_files.get((id, name))

    # ledger and replies
    def move_ledger(self, rows: Sequence[LedgerRow]) -> None:
        numbers = [next(self._database.numbers) for _ in rows]

        def step(tables: Tables) -> None:
            for number, row in zip(numbers, rows, strict=True):
                _need(tables.datasets, row.dataset)
                tables.ledger[number] = row

        self._do(step)

    def add_evidence(self, rows: Sequence[EvidenceRow]) -> None:
        numbers = [next(self._database.numbers) for _ in rows]

        def step(tables: Tables) -> None:
            for number, row in zip(numbers, rows, strict=True):
                _need(tables.datasets, row.dataset)
                _need(tables.sessions, row.session)
                tables.evidence[number] = row

        self._do(step)

    def _evidence(self, dataset: str) -> list[tuple[int, EvidenceRow]]:
        return [(number, row) for number, row in sorted(self._tables.evidence.items()) if row.dataset == dataset]

    def evidence_of(self, session: str, after: int, last: int) -> dict[int, bytes]:
        rows = self._tables.evidence.values()
        return {row.sequence: row.line for row in rows if row.session == session and after < row.sequence <= last}

    def evidence_named(self, dataset: str, names: Sequence[str]) -> dict[str, bytes]:
        return {row.sha256: row.line for _, row in self._evidence(dataset) if row.sha256 in set(names)}

    def evidence_row(self, dataset: str, name: str) -> EvidenceRow | None:
        return next((row for _, row in self._evidence(dataset) if row.sha256 == name), None)

    def shared_evidence(self, dataset: str, most_bytes: int) -> list[str]:
        rows = [row for _, row in self._evidence(dataset) if row.shared]
        sizes = itertools.accumulate(len(row.line) for row in rows)
        return [row.sha256 for row, size in zip(rows, sizes, strict=True) if size <= most_bytes]

    def count_evidence(self, dataset: str, *, shared: bool) -> int:
        return sum(row.shared or not shared for _, row in self._evidence(dataset))

    def evidence_page(self, dataset: str, after: int, most: int) -> tuple[list[tuple[int, EvidenceRow]], bool]:
        found = [((number, row), len(row.line)) for number, row in self._evidence(dataset) if number > after]
        return _fitting(found, most)

    def ledger_page(self, dataset: str, after: int, most: int) -> tuple[list[tuple[int, LedgerRow]], bool]:
        found = [(n, row) for n, row in sorted(self._tables.ledger.items()) if row.dataset == dataset and n > after]
        return found[:most], len(found) > most

    def has_moved(self, dataset: str) -> bool:
        return any(row.dataset == dataset for row in self._tables.ledger.values())

    def holdings(self, dataset: str) -> list[Holding]:
        return sorted([*self.summed(dataset), *self._changed(self.summed_to(), None).get(dataset, [])], key=str)

    def summed(self, dataset: str) -> list[Holding]:
        return sorted((each for (name, *_), each in self._tables.sums.items() if name == dataset), key=str)

    def summed_to(self) -> int:
        return self._tables.summed_to.get("", 0)

    def unsummed(self, last: int, most: int) -> tuple[int, dict[str, list[Holding]]] | None:
        if not self._hold("ledger_state", ["1"], 0):
            return None
        numbers = sorted(number for number in self._tables.ledger if self.summed_to() < number <= last)[:most]
        return (numbers[-1], self._changed(self.summed_to(), numbers[-1])) if numbers else None

    def sum_up(self, last: int, sums: Mapping[str, Iterable[Holding]]) -> None:
        rows = {(name, each.owner, each.spent_pure is not None): each for name, own in sums.items() for each in own}

        def step(tables: Tables) -> None:
            tables.sums |= rows
            tables.summed_to[""] = last

        self._do(step)

    def _changed(self, after: int, last: int | None) -> dict[str, list[Holding]]:
        """What movements beyond a number change, up to another one."""
        found: dict[str, list[Holding]] = defaultdict(list)
        for number, row in self._tables.ledger.items():
            if number <= after or (last is not None and number > last) or row.session is None:
                continue
            session = self._tables.sessions[row.session]
            pure, none = (row.pure or "0", "0") if session.spent_pure is not None else (None, None)
            found[row.dataset].append(
                Holding(session.owner, row.amount, "0", pure, none, 1 if row.kind == "reserve" else -1)
            )
            if row.kind in ("charge", "purchase", "forfeit"):
                found[row.dataset].append(Holding(session.owner, "0", row.amount, none, pure, 1))
        return found

    def replies(self, names: Sequence[ReplyName]) -> dict[ReplyName, ReplyRow]:
        return {name: self._tables.replies[name] for name in names if name in self._tables.replies}

    def add_replies(self, rows: Sequence[ReplyRow]) -> None:
        def step(tables: Tables) -> None:
            for row in rows:
                _need(tables.principals, row.principal)
                _add(tables.replies, (row.principal, row.route, row.key), row)

        self._do(step)

    def reply_telling(self, principal: str, routes: Sequence[str], sequence: int) -> bytes | None:
        found = [
            (row.sequence, row.reply)
            for row in self._tables.replies.values()
            if row.principal == principal and row.route in routes and (row.sequence or 0) >= sequence
        ]
        return min(found)[1] if found else None

    def reply_names(self, after: ReplyName, most: int) -> list[tuple[ReplyName, bytes | None]]:
        found = [(name, row) for name, row in sorted(self._tables.replies.items()) if name > after][:most]
        return [(name, row.reply if row.opens else None) for name, row in found]

    def remove_replies(self, names: Sequence[ReplyName]) -> None:
        def step(tables: Tables) -> None:
            for name in names:
                tables.replies.pop(name, None)

        self._do(step)

    # the log
    def add_event(self, line: bytes) -> None:
        number = next(self._database.numbers)
        self._do(lambda tables: _add(tables.events, number, line))


class MemoryStore:
    """See :class:`app.services.ports.Store`."""

    def __init__(self, database: MemoryDatabase | None = None, *, exclusive: bool = True) -> None:
        self.database = MemoryDatabase() if database is None else database
        self.exclusive = exclusive

    @contextmanager
    def read(self) -> Iterator[MemoryTransaction]:
        """A consistent view; nothing is written."""
        yield MemoryTransaction(self.database, writes=False, exclusive=self.exclusive)

    @contextmanager
    def write(self) -> Iterator[MemoryTransaction]:
        """Reads and writes; left without a commit, nothing has happened."""
        with self.database.turn if self.exclusive else nullcontext():
            transaction = MemoryTransaction(self.database, writes=True, exclusive=self.exclusive)
            try:
                yield transaction
            finally:
                transaction.end()

    def ping(self) -> None:
        pass

    def close(self) -> None:
        pass
