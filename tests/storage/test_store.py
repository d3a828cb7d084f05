"""What every store keeps to: one suite over SQLite and PostgreSQL, on the schema that the migrations make, and over the
store in memory with which services are tested, for one process and for several.

A store that joins adds a name to ``STORES`` and a branch to :func:`open_store`.
"""

from __future__ import annotations

import inspect
import itertools
import math
import multiprocessing
import random
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, create_engine, text
from sqlalchemy import inspect as reflect
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from app.services import spending
from app.services.ledger_sums import LedgerSums
from app.services.ports import (
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
    ReplyRow,
    SessionRow,
    StoreConflict,
    Transaction,
    WeightsRow,
)
from app.storage.database import make_engines
from app.storage.migrate import migrate, pending
from app.storage.repositories.sessions import _move_all
from app.storage.store import SqlStore, SqlTransaction
from app.storage.tables import metadata, sessions
from app.storage.transaction import PAGE_BYTES
from tests.kit.databases import migrate_when_told
from tests.kit.memory_store import MemoryDatabase, MemoryStore, MemoryTransaction
from tests.kit.patience import patience
from tests.kit.world import took

pytestmark = pytest.mark.contract

POSTGRESQL = pytest.param("postgresql", marks=pytest.mark.postgres)
DATABASES = ["sqlite", POSTGRESQL]
#: Stores on which one process writes at a time, and those on which rows are locks.
EXCLUSIVE, SHARED = ["memory:one", "sqlite"], ["memory:several", POSTGRESQL]
STORES = [*EXCLUSIVE, *SHARED]
_numbers = itertools.count()


def fresh(prefix: str) -> str:
    """A name that no other test uses."""
    return f"{prefix}{next(_numbers)}"


def make_database(kind: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """The URL of an empty database."""
    if kind == "sqlite":
        return f"sqlite:///{folder / fresh('store')}.sqlite3"
    server = make_url(request.getfixturevalue("postgres_server")).set(drivername="postgresql+psycopg")
    name = fresh(f"contract_{id(folder):x}_")
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    admin.dispose()
    return server.set(database=name).render_as_string(hide_password=False)


@cache
def in_memory(url: str) -> MemoryDatabase:
    """The database of this name, the same for all who ask."""
    return MemoryDatabase()


def open_store(url: str) -> Any:
    if url.startswith("memory"):
        return MemoryStore(in_memory(url), exclusive=url in EXCLUSIVE)
    reading, writing = make_engines(url)
    return SqlStore(reading, writing, exclusive=url.startswith("sqlite"))


@pytest.fixture(scope="module", params=STORES)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A migrated database that this module's tests share; each uses names of its own."""
    if request.param.startswith("memory"):
        return str(request.param)
    made = make_database(request.param, request, tmp_path_factory.mktemp("store"))
    _, writing = make_engines(made)
    migrate(writing)
    writing.dispose()
    return made


@pytest.fixture(scope="module")
def store(url: str) -> Iterator[SqlStore]:
    opened = open_store(url)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def other(url: str) -> Iterator[SqlStore]:
    """The same database through connections of its own, as another process has it."""
    opened = open_store(url)
    yield opened
    opened.close()


@pytest.fixture
def empty_url(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> str:
    return make_database(kind, request, tmp_path)


def principal() -> PrincipalRow:
    name = fresh("p")
    return PrincipalRow(name, "analyst", f"{hash(name) & (2**64 - 1):016x}", name * 4, "2026-01-01T00:00:00Z")


def dataset(**changes: Any) -> DatasetRow:
    row = DatasetRow(
        name=fresh("d"),
        spec={"name": "d", "unicode": "Ä\u2028", "nested": [1, 0.1]},
        records=1.5,
        bought={},
        vault_entry={"file_name": "f", "digest": "0" * 64},
        created_at="2026-01-01T00:00:00Z",
    )
    return replace(row, **changes)


def session(dataset: str, owner: str, **changes: Any) -> SessionRow:
    row = SessionRow(
        id=f"{next(_numbers):032x}",
        dataset=dataset,
        owner=owner,
        header=b'{"\x00\xff":1}',
        status="open",
        sequence=0,
        queries_asked=0,
        updates_used=0,
        spent="0",
        reserved="0.123456789012345678901234",
        spent_pure="0.000000000000000000000002",
        reserved_pure=None,
        head_hash="a" * 64,
        opened_at="2026-01-01T00:00:00.000001Z",
    )
    return replace(row, **changes)


def entry(session: str, sequence: int, **changes: Any) -> EntryRow:
    row = EntryRow(session, sequence, "hypothesis", b"\x00digest\xff", b"\x00\xff" * 4, 0.5, b'{"line":%d}' % sequence)
    return replace(row, **changes)


def walked(page: Callable[[Any], tuple[list[Any], bool]]) -> Iterator[list[Any]]:
    """The pages of a list, each asked for with the last item of the one before."""
    after, others = None, True
    while others:
        rows, others = page(after)
        yield rows
        after = rows[-1] if rows else None


def numbered(page: Callable[[int], list[Any]], after: int) -> Iterator[list[Any]]:
    """The pages of something numbered, until one is empty."""
    while rows := page(after):
        yield rows
        after = rows[-1][0]


def put(store: SqlStore, *rows: Any) -> None:
    """Write rows of any kind and commit."""
    with store.write() as tx:
        for row in rows:
            match row:
                case PrincipalRow():
                    tx.add_principal(row)
                case LoginRow():
                    tx.add_login(row)
                case DatasetRow():
                    tx.add_dataset(row)
                case SessionRow():
                    tx.add_session(row)
                case EntryRow():
                    tx.append([row], [])
                case LedgerRow():
                    tx.move_ledger([row])
                case ReleaseRow():
                    tx.add_release(row)
                case ReplyRow():
                    tx.add_replies([row])
                case _:
                    raise TypeError(type(row))
        tx.commit()


@pytest.fixture
def who(store: SqlStore) -> PrincipalRow:
    row = principal()
    put(store, row)
    return row


@pytest.fixture
def data(store: SqlStore) -> DatasetRow:
    row = dataset()
    put(store, row)
    return row


@pytest.fixture
def asked(store: SqlStore, data: DatasetRow, who: PrincipalRow) -> SessionRow:
    row = session(data.name, who.name)
    put(store, row)
    return row


class TestProtocol:
    def test_every_method_with_its_signature(self) -> None:
        """Catches a method of the port that the store lacks, or one whose parameters have drifted."""
        for name, method in inspect.getmembers(Transaction, inspect.isfunction):
            if not name.startswith("_"):
                for kept in (SqlTransaction, MemoryTransaction):
                    assert inspect.signature(getattr(kept, name)) == inspect.signature(method), (kept, name)

    def test_every_method_is_exercised_here(self) -> None:
        """Catches a method added to the port without a test of the contract."""
        source = Path(__file__).read_text()
        names = [n for n, _ in inspect.getmembers(Transaction, inspect.isfunction) if not n.startswith("_")]
        assert [n for n in names if f".{n}(" not in source] == []

    def test_ping(self, store: SqlStore) -> None:
        store.ping()

    def test_ping_of_a_database_that_is_gone(self, tmp_path: Path) -> None:
        """Catches a readiness check that never reaches the database."""
        for url in (f"sqlite:///{tmp_path}/none/x.sqlite3", "postgresql://nobody@127.0.0.1:9/none"):
            gone = open_store(url)
            with pytest.raises(DBAPIError):
                gone.ping()
            gone.close()


class TestPrincipals:
    def test_round_trip(self, store: SqlStore, who: PrincipalRow) -> None:
        with store.read() as tx:
            assert tx.principal(who.name) == who
            assert tx.principal_by_key(who.key_id) == who
            assert who in tx.principals()
            assert tx.principal("nobody") is None
            assert tx.principal_by_key("nothing") is None

    def test_listed_by_name(self, store: SqlStore) -> None:
        put(store, *(principal() for _ in range(3)))
        with store.read() as tx:
            rows = tx.principals()
            pages = list(walked(lambda after: tx.principals_page(after.name if after else "", 2)))
        names = [row.name for row in rows]
        assert names == sorted(names)
        assert list(chain.from_iterable(pages)) == rows
        assert all(len(page) == 2 for page in pages[:-1])

    def test_key_and_revocation(self, store: SqlStore, who: PrincipalRow) -> None:
        """Catches a revocation that does not stick, and a new key under which the old one still finds the row."""
        with store.write() as tx:
            tx.revoke_principal(who.name, "2026-02-02T00:00:00Z")
            tx.commit()
        with store.read() as tx:
            assert tx.principal(who.name) == replace(who, revoked_at="2026-02-02T00:00:00Z")
        with store.write() as tx:
            tx.set_key(who.name, who.key_id[::-1] + "x", "h" * 64)
            tx.commit()
        with store.read() as tx:
            assert tx.principal_by_key(who.key_id) is None
            known = tx.principal_by_key(who.key_id[::-1] + "x")
        assert known is not None
        assert (known.name, known.key_hash, known.revoked_at) == (who.name, "h" * 64, None)

    @pytest.mark.parametrize("revoked", [False, True])
    def test_a_name_is_never_reused(self, store: SqlStore, who: PrincipalRow, revoked: bool) -> None:
        if revoked:
            with store.write() as tx:
                tx.revoke_principal(who.name, "2026-02-02T00:00:00Z")
                tx.commit()
        with store.write() as tx, pytest.raises(StoreConflict):
            tx.add_principal(replace(principal(), name=who.name))
        with store.read() as tx:
            kept = tx.principal(who.name)
        assert kept is not None
        assert kept.key_hash == who.key_hash

    def test_a_key_has_one_holder(self, store: SqlStore, who: PrincipalRow) -> None:
        with store.write() as tx, pytest.raises(StoreConflict):
            tx.add_principal(replace(principal(), key_id=who.key_id))


class TestLogins:
    def test_round_trip(self, store: SqlStore, who: PrincipalRow) -> None:
        """Catches a log-in that is another's, one that is not used or not removed, and an order that is not of time."""
        first, second = (
            LoginRow(
                fresh("login"), who.name, who.key_id, "10.0.0.1", f"2026-01-0{day}T00:00:00Z", "2026-01-05T00:00:00Z"
            )
            for day in (1, 2)
        )
        with store.write() as tx:
            tx.add_login(second)
            tx.add_login(first)
            tx.commit()
        with store.write() as tx:
            tx.use_login(first.id, "2026-01-06T00:00:00Z")
            tx.use_login("nothing", "2026-01-06T00:00:00Z")
            tx.commit()
        with store.read() as tx:
            assert tx.logins(who.name) == [replace(first, used_at="2026-01-06T00:00:00Z"), second]
            assert tx.login(second.id) == second
            assert tx.login("nothing") is None
            assert tx.logins("nobody") == []
        with store.write() as tx:
            tx.remove_logins([second.id, "nothing"])
            tx.commit()
        with store.read() as tx:
            assert [row.id for row in tx.logins(who.name)] == [first.id]

    def test_what_is_old_goes(self, store: SqlStore, who: PrincipalRow) -> None:
        """Catches a row that goes too early, or stays by the one time where the other is over."""
        times = {
            "begun": ("2026-01-01", "2026-01-09"),
            "used": ("2026-01-03", "2026-01-04"),
            "kept": ("2026-01-03", "2026-01-09"),
        }
        rows = {
            name: LoginRow(fresh(name), who.name, who.key_id, "", f"{begun}T00:00:00Z", f"{used}T00:00:00Z")
            for name, (begun, used) in times.items()
        }
        put(store, *rows.values())
        with store.write() as tx:
            assert tx.remove_old_logins("2026-01-02T00:00:00Z", "2026-01-05T00:00:00Z") >= 2
            tx.commit()
        with store.read() as tx:
            assert tx.logins(who.name) == [rows["kept"]]


def one(row: SessionRow) -> Holding:
    """What a session holds and has spent."""
    return Holding(row.owner, row.reserved, row.spent, row.reserved_pure, row.spent_pure, 1)


def known(rows: list[SessionRow], id: str, opened: Holding | None) -> Holding:
    """What is told of a closed session that is to be settled: what it was opened with, where that counts."""
    row = next(row for row in rows if row.id == id)
    if opened is None:
        return one(row)
    return replace(one(row), reserved=opened.reserved, reserved_pure=opened.reserved_pure)


class TestDatasets:
    def test_round_trip(self, store: SqlStore, data: DatasetRow) -> None:
        with store.read() as tx:
            assert tx.dataset(data.name) == data
            assert data in tx.datasets()
            pages = list(walked(lambda after: tx.datasets_page(after.name if after else "", 1)))
            assert list(chain.from_iterable(pages)) == tx.datasets()
            assert all(len(page) == 1 for page in pages)
            assert tx.vault_entries()[data.name] == data.vault_entry
            assert tx.vault_entries().keys() == {row.name for row in tx.datasets() if row.retired_at is None}
            for retired in (False, True):
                there = [row for row in tx.datasets() if (row.retired_at is not None) == retired]
                named = sorted(row.name for row in there if not row.name.startswith("~"))
                assert tx.dataset_names(retired=retired) == named
            assert tx.dataset("none") is None
        with store.write() as tx:
            assert tx.dataset(data.name, lock=True) == data
            assert tx.dataset("none", lock=True) is None

    @pytest.mark.parametrize("retired", [False, True])
    def test_a_name_is_never_reused(self, store: SqlStore, data: DatasetRow, retired: bool) -> None:
        """Catches a retirement that deletes the row, after which the name would be free and the ledger with it."""
        if retired:
            with store.write() as tx:
                tx.retire_dataset(data.name, "2026-02-02T00:00:00Z")
                tx.commit()
        with store.write() as tx, pytest.raises(StoreConflict):
            tx.add_dataset(replace(dataset(), name=data.name))
        with store.read() as tx:
            kept = tx.dataset(data.name)
        assert kept == replace(data, retired_at="2026-02-02T00:00:00Z" if retired else None)

    def test_bought_facts(self, store: SqlStore, data: DatasetRow) -> None:
        bought = {"mass": {"value": 0.1 + 0.2, "noise_scale": 2.0**-40}, "other": {"value": -1.0, "noise_scale": 1.0}}
        with store.write() as tx:
            tx.set_bought(data.name, bought)
            tx.commit()
        with store.read() as tx:
            assert tx.dataset(data.name) == replace(data, bought=bought)

    def test_races_are_counted(self, store: SqlStore, data: DatasetRow) -> None:
        """Catches a count that is set instead of raised: two sessions would use the same part of delta."""
        for _ in range(2):
            with store.write() as tx:
                tx.count_race(data.name)
                tx.commit()
        with store.read() as tx:
            assert tx.dataset(data.name) == replace(data, race_sessions=data.race_sessions + 2)

    def test_another_private_file_and_what_is_forfeited(self, store: SqlStore, data: DatasetRow) -> None:
        """Catches an amount that went through a float, and a column written beside the one meant."""
        assert (data.forfeited, data.forfeited_pure, data.impure) == ("0", "0", False)
        lost = replace(data, forfeited="0.123456789012345678901234", forfeited_pure="0.987654321098765432109876")
        for impure in (True, False):
            lost = replace(
                lost, vault_entry={"file_name": f"{impure}.0123456789abcdef.vault", "digest": "e" * 64}, impure=impure
            )
            with store.write() as tx:
                tx.set_vault_entry(data.name, lost.vault_entry)
                tx.forfeit_dataset(replace(lost, records=7.0))
                tx.commit()
            with store.read() as tx:
                assert tx.dataset(data.name) == lost

    def test_a_commitment_and_who_has_its_key(self, store: SqlStore, data: DatasetRow) -> None:
        """Catches a commitment that is lost, and names in the row of another data set."""
        committed, other = dataset(commitment="c" * 64), dataset(commitment="d" * 64, revealed_to=("ann",))
        put(store, committed, other)
        for names in (("ann",), ("ann", "bob")):
            with store.write() as tx:
                tx.set_revealed_to(committed.name, names)
                tx.commit()
            with store.read() as tx:
                assert tx.dataset(committed.name) == replace(committed, revealed_to=names)
        with store.read() as tx:
            assert tx.dataset(other.name) == other
            assert tx.dataset(data.name) == data
        assert (data.commitment, data.revealed_to) == (None, ())

    def test_impure_for_good(self, store: SqlStore, data: DatasetRow) -> None:
        """Catches a flag of another data set, and one that a second session takes back."""
        other = dataset()
        put(store, other)
        for _ in range(2):
            with store.write() as tx:
                tx.set_impure(data.name)
                tx.commit()
            with store.read() as tx:
                assert tx.dataset(data.name) == replace(data, impure=True)
                assert tx.dataset(other.name) == other

    def test_grants(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        """Catches a second grant that adds a row instead of replacing the cap, and amounts that went through
        a float.
        """
        with store.read() as tx:
            assert tx.grant(data.name, who.name) is None
        for cap in ("0.3", "0.1000000000000000000000000000000001"):
            with store.write() as tx:
                tx.set_grant(data.name, who.name, cap)
                tx.commit()
            with store.read() as tx:
                assert tx.grant(data.name, who.name) == cap
                assert tx.grant("none", who.name) is None
                assert (tx.grants(data.name), tx.grants("none")) == ({who.name: cap}, {})
                assert (tx.grants_of(who.name), tx.grants_of("nobody")) == ({data.name: cap}, {})

    def test_all_sessions_of_this_data_set_are_passed_over(
        self, store: SqlStore, data: DatasetRow, who: PrincipalRow
    ) -> None:
        """Catches closed sessions left out of the sum, whose spendings would come back, sessions told together that do
        not agree, and those of somebody else.
        """
        elsewhere, somebody = dataset(), principal()
        mine = [
            session(data.name, who.name, spent="0.000000000000000000000001"),
            *[session(data.name, who.name, status="closed", reserved="0", spent="7") for _ in range(3)],
            session(data.name, who.name, status="closed", reserved="0", spent="7.0"),
            session(data.name, who.name, reserved="1", spent="7"),
            *[session(data.name, who.name, reserved="1", spent="7", reserved_pure="3") for _ in range(2)],
            session(data.name, who.name, reserved="1", spent="7", spent_pure=None),
            session(data.name, somebody.name, status="closed", reserved="0", spent="7"),
        ]
        put(store, elsewhere, somebody, *mine, session(elsewhere.name, who.name))
        with store.read() as tx:
            found = tx.passed(data.name)
            assert {
                (h.owner, h.reserved, h.spent, h.reserved_pure, h.spent_pure): h.sessions for h in found
            } == Counter((s.owner, s.reserved, s.spent, s.reserved_pure, s.spent_pure) for s in mine)
            assert len(found) == 7
            assert tx.passed("none") == tx.every("none") == []
            assert tx.every(data.name) == found

    def test_sums_stand_for_sessions(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        """Of open sessions that count with what they were opened with, and of closed ones with what they have spent.
        Catches an open session that is settled, one that is settled twice, one that is told beside the sum that has it,
        a sum of another data set, sums of pure and other noise in one, and a session that is in no sum and not told.
        """
        elsewhere, somebody = dataset(), principal()
        closed = [
            session(data.name, owner, status="closed", reserved="0", spent="7", reserved_pure=pure, spent_pure=pure)
            for owner in (who.name, somebody.name)
            for pure in ("0", None)
        ]
        still = session(data.name, who.name, reserved="1", spent="7", reserved_pure="2", spent_pure="3")
        alone = session(data.name, who.name, reserved="1", spent="7", reserved_pure=None, spent_pure=None)
        # The first closed one counted when it was opened, with 9; the second never did.
        opened, first = Holding(who.name, "8", "0", "5", "0", 1), Holding(who.name, "9", "0", "4", "0", 1)
        put(store, elsewhere, somebody, *closed[1:], alone, session(elsewhere.name, who.name, status="closed"))
        with store.read() as tx:
            # Nothing counts yet.
            assert tx.standing(data.name) == []
            rest = [one(row) for row in (*closed[1:], alone)]
            assert tx.taken(data.name) == tx.passed(data.name) == sorted(rest, key=str)
        each = {row.id: one(row) for row in (*closed, still, alone)}
        sums = [Holding(who.name, "17", "0", "9", "0", 1)]
        with store.write() as tx:
            tx.dataset(data.name, lock=True)
            tx.add_session(still, opened)
            tx.add_session(closed[0], first)
            tx.stand(data.name, sums, [])
            tx.commit()
        off, others = replace(first, sessions=-1), [each[row.id] for row in (*closed, alone)]
        with store.read() as tx:
            assert tx.standing(data.name) == sums
            assert tx.taken(data.name) == sorted([*sums, off, *others], key=str)
            none = Holding(who.name, "0", "0", "0", "0", 1)
            assert tx.passed(data.name) == sorted([*each.values(), none], key=str)
        with store.write() as tx:
            tx.dataset(data.name, lock=True)
            settled = tx.to_settle(data.name, 3)
            assert len(settled) == 3
            assert set(settled) < {row.id for row in closed}
            assert all(settled[id] == known(closed, id, first if id == closed[0].id else None) for id in settled)
            sums = [Holding(who.name, "8", "7", "5", "0", 1), Holding(somebody.name, "0", "7", None, None, 1)]
            tx.stand(data.name, sums, settled)
            tx.commit()
        rest = [each[row.id] for row in closed if row.id not in settled]
        with store.read() as tx:
            # Sums that were not given anew are those of before; here there were none.
            assert tx.standing(data.name) == sorted(sums, key=str)
            off = [] if closed[0].id in settled else [replace(first, sessions=-1)]
            assert tx.taken(data.name) == sorted([*sums, *off, *rest, each[alone.id]], key=str)
            spent = [replace(sum_, reserved="0", reserved_pure=sum_.reserved_pure and "0") for sum_ in sums]
            assert tx.passed(data.name) == sorted([*spent, *rest, each[still.id], each[alone.id]], key=str)
            assert len(tx.taken(elsewhere.name)) == 1
        with store.write() as tx:
            tx.dataset(data.name, lock=True)
            last = tx.to_settle(data.name, 100)
            assert set(last) == {row.id for row in closed} - set(settled)
            tx.stand(data.name, sums, last)
            tx.commit()
        with store.read() as tx:
            # Settled or not, as they are.
            assert sum(each.sessions for each in tx.every(data.name)) == len(closed) + 2
            assert took(tx.every(data.name)) == took([one(row) for row in (*closed, still, alone)])
        with store.write() as tx:
            assert tx.to_settle(data.name, 100) == {}
            assert tx.taken(data.name) == sorted([*sums, each[alone.id]], key=str)


class TestSessions:
    def test_round_trip(self, store: SqlStore, asked: SessionRow) -> None:
        with store.read() as tx:
            assert tx.session(asked.id) == asked
            assert tx.session("none") is None
        with store.write() as tx:
            assert tx.lock_sessions([asked.id, "none"]) == {asked.id: asked}
            assert tx.lock_sessions([]) == {}
            # What is known may be of yesterday: all that moves is read.
            earlier = replace(asked, status="closed", sequence=-1, queries_asked=-1, updates_used=-1, spent="-1")
            earlier = replace(
                earlier, reserved="-1", head_hash="", closed_at="never", spent_pure="-1", reserved_pure="-1"
            )
            assert tx.lock_sessions([asked.id, "none"], {asked.id: earlier}) == {asked.id: asked}
            assert tx.existing_sessions([asked.id, "none"]) == {asked.id}
            tx.stay()
        for seconds in (0, 0.1):
            with store.write() as tx:
                assert tx.lock_sessions([asked.id, "none"], {}, seconds) == {asked.id: asked}

    def test_listed_by_owner_a_page_at_a_time_in_the_order_opened(
        self, store: SqlStore, data: DatasetRow, who: PrincipalRow
    ) -> None:
        """Two of one moment among them: catches a page that leaves one of them out, tells one twice, or says that there
        is more where there is not."""
        somebody = principal()
        late = session(data.name, who.name, opened_at="2026-03-01T00:00:00Z")
        early = session(data.name, who.name, opened_at="2026-02-01T00:00:00Z")
        theirs = session(data.name, somebody.name, opened_at="2026-02-15T00:00:00Z")
        twins = [session(data.name, who.name, opened_at="2026-02-20T00:00:00Z") for _ in range(2)]
        twins.sort(key=attrgetter("id"))
        closed = session(data.name, who.name, opened_at="2026-02-10T00:00:00Z", status="closed")
        put(store, somebody, late, early, theirs, *twins, closed)
        mine = [early, closed, *twins, late]
        with store.read() as tx:
            for most in (1, 2, 3, 4, 5, 6):
                pages = list(walked(lambda after, most=most: tx.sessions_page(who.name, after, most)))
                assert [len(page) for page in pages] == [
                    *[most] * ((len(mine) - 1) // most),
                    (len(mine) - 1) % most + 1,
                ]
                assert list(chain.from_iterable(pages)) == mine
            assert tx.sessions_page(somebody.name, None, 10) == ([theirs], False)
            assert tx.sessions_page(somebody.name, theirs, 10) == ([], False)
            everybody = list(chain.from_iterable(walked(lambda after: tx.sessions_page(None, after, 2))))
            assert [s for s in everybody if s.dataset == data.name] == [early, closed, theirs, *twins, late]
            assert len(everybody) == len({s.id for s in everybody})
            whole = [early, closed, theirs, *twins, late]
            on_it = walked(lambda after: tx.sessions_page(None, after, 4, data.name))
            assert list(chain.from_iterable(on_it)) == whole
            assert tx.sessions_page(somebody.name, None, 10, data.name) == ([theirs], False)
            assert tx.sessions_page(None, None, 10, "nothing") == ([], False)
            assert (tx.datasets_of(somebody.name), tx.datasets_of("nobody")) == ({data.name}, set())
            assert tx.open_in(data.name) == [s.id for s in (early, theirs, *twins, late)]
            for most in (1, 3, 100):
                found = list(chain.from_iterable(walked(lambda after, most=most: tx.open_page(after, most))))
                assert [s for s in found if s.dataset == data.name] == [early, theirs, *twins, late]
                assert len(found) == len({s.id for s in found}) == tx.count_open()
                assert {s.status for s in found} == {"open"}
                assert not any(s.dataset.startswith("~") for s in found)
            assert tx.last_opened_in(data.name) == late.opened_at
            assert tx.last_opened_in("nobody") == ""

    def test_long_rows_make_short_pages(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        """Headers hold what an admin declared, which may be megabytes. Catches a page of a thousand of them."""
        rows = [
            session(data.name, who.name, header=bytes(size), opened_at=f"2026-04-0{day}T00:00:00Z")
            for day, size in enumerate((100, PAGE_BYTES, PAGE_BYTES // 2, PAGE_BYTES // 2, 3 * PAGE_BYTES), start=1)
        ]
        put(store, *rows)
        with store.read() as tx:
            pages = list(walked(lambda after: tx.sessions_page(who.name, after, 1000)))
        assert [len(page) for page in pages] == [1, 1, 2, 1]
        assert list(chain.from_iterable(pages)) == rows

    def test_moved_in_every_field_that_moves(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        """Catches a counter that is left out of the update, and an update that reaches another session."""
        first, second, third = (session(data.name, who.name) for _ in range(3))
        put(store, first, second, third)
        moved = [
            replace(
                row,
                status="closed",
                sequence=2**40 + number,
                queries_asked=2**40,
                updates_used=number,
                spent="0.000000000000000000000003",
                reserved="0",
                spent_pure=None,
                reserved_pure="0.123456789012345678901235",
                head_hash="b" * 64,
                closed_at="2026-04-01T00:00:00Z",
            )
            for number, row in enumerate((first, second))
        ]
        with store.write() as tx:
            tx.move_sessions(moved)
            tx.commit()
        with store.read() as tx:
            assert [tx.session(row.id) for row in (first, second, third)] == [*moved, third]

    def test_a_session_of_nothing(self, store: SqlStore, who: PrincipalRow) -> None:
        with store.write() as tx, pytest.raises(StoreConflict):
            tx.add_session(session("no-such-data-set", who.name))


class TestNewestSessions:
    def test_the_newest_first(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        """Catches sessions of others, of another data set or closed ones, an order that is not of time, and a page that
        begins with the end of the one before."""
        elsewhere, somebody = dataset(), principal()
        rows = [
            session(data.name, who.name, opened_at=f"2026-01-0{day}T00:00:00Z", status=status)
            for day, status in ((1, "open"), (3, "closed"), (2, "open"), (2, "open"))
        ]
        other = session(elsewhere.name, who.name, opened_at="2026-01-04T00:00:00Z")
        put(store, elsewhere, somebody, *rows, other, session(data.name, somebody.name))
        newest = sorted(rows, key=lambda row: (row.opened_at, row.id), reverse=True)
        with store.read() as tx:
            assert tx.newest_sessions(who.name, None, 10, data.name, open=False) == newest
            assert tx.newest_sessions(who.name, None, 10, None, open=False) == [other, *newest]
            assert tx.newest_sessions(who.name, None, 2, data.name, open=True) == newest[1:3]
            for place, row in enumerate(newest):
                assert tx.newest_sessions(who.name, row, 10, data.name, open=False) == newest[place + 1 :]


class TestEntries:
    def test_known_entries(self, store: SqlStore, asked: SessionRow) -> None:
        """Catches entries out of order, a kind exchanged, or a measurement without the line that a catch-up
        learns from.
        """
        kinds = ["measurement", "hypothesis", "cached", "unverified", "forfeit", "measurement", "unverified"]
        rows = [entry(asked.id, n, kind=kind) for n, kind in enumerate(kinds, start=1)]
        rows[4] = replace(rows[4], digest=None, units=None, error_bound=None)
        with store.write() as tx:
            tx.append(list(reversed(rows)), [])
            tx.commit()
        with store.read() as tx:
            found = tx.known_entries(asked.id, 0)
            first = [rows[n] for n in (0, 1, 5)]
            assert list(found.answers) == [(row.digest, row.units, row.error_bound) for row in first]
            assert list(found.measurements) == [(rows[n].units, rows[n].line) for n in (0, 5)]
            assert (found.cached, found.unverified, found.forfeits) == (1, 2, 1)
            rest = tx.known_entries(asked.id, 4)
            assert (len(rest.answers), len(rest.measurements), rest.cached + rest.unverified, rest.forfeits) == (
                1,
                1,
                1,
                1,
            )
            assert tx.known_entries(asked.id, 7) == KnownEntries([], [])

    def test_latest_entries(self, store: SqlStore, asked: SessionRow, data: DatasetRow, who: PrincipalRow) -> None:
        """Catches entries of one session given to another, one too many or too few at either end, and a last line that
        is not the last one's.
        """
        another = session(data.name, who.name)
        put(store, another)
        kinds = ["measurement", "hypothesis", "cached", "unverified", "forfeit", "measurement", "hypothesis"]
        rows = {
            id: [entry(id, n, kind=kind) for n, kind in enumerate(order, start=1)]
            for id, order in ((asked.id, kinds), (another.id, kinds[::-1]))
        }
        with store.write() as tx:
            tx.append([row for part in rows.values() for row in part], [])
            tx.commit()
        with store.read() as tx:
            for first, second in itertools.product(itertools.combinations(range(8), 2), repeat=2):
                spans = {asked.id: first, another.id: second}
                found = tx.latest_entries(spans)
                assert set(found) == set(spans)
                for id, (after, last) in spans.items():
                    part = rows[id][after:last]
                    known, line = found[id]
                    given = [row for row in part if row.kind in ("hypothesis", "measurement")]
                    assert known.answers == [(row.digest, row.units, row.error_bound) for row in given]
                    taught = [(row.units, row.line) for row in part if row.kind == "measurement"]
                    assert known.measurements == taught
                    assert known.forfeits == sum(row.kind == "forfeit" for row in part)
                    assert known.cached == sum(row.kind == "cached" for row in part)
                    assert known.unverified == sum(row.kind == "unverified" for row in part)
                    assert line == part[-1].line
            assert tx.latest_entries({}) == {}

    def test_open_sessions(self, store: SqlStore, asked: SessionRow, data: DatasetRow, who: PrincipalRow) -> None:
        """Catches a closed session, or one that is not there, taken for open."""
        another = session(data.name, who.name)
        put(store, another)
        with store.write() as tx:
            tx.move_sessions([replace(another, status="closed")])
            tx.commit()
        with store.read() as tx:
            assert tx.open_sessions([asked.id, another.id, "0" * 32]) == {asked.id}
            assert tx.open_sessions([]) == set()

    def test_lines_by_pages(self, store: SqlStore, asked: SessionRow, data: DatasetRow, who: PrincipalRow) -> None:
        another = session(data.name, who.name)
        rows = [entry(asked.id, n, line=bytes(range(256)) + b"%d" % n) for n in range(1, 8)]
        put(store, another, *rows, entry(another.id, 1))
        with store.read() as tx:
            assert tx.entry_lines(asked.id, 0, 3) == [(row.sequence, row.line) for row in rows[:3]]
            assert tx.entry_lines(asked.id, 3, 100) == [(row.sequence, row.line) for row in rows[3:]]
            assert tx.entry_lines(asked.id, 7, 3) == []

    def test_a_sequence_number_is_taken_once(self, store: SqlStore, asked: SessionRow) -> None:
        """The last line against a fork of the chain, whatever the locks did."""
        put(store, entry(asked.id, 1))
        with store.write() as tx, pytest.raises(StoreConflict):
            tx.append([entry(asked.id, 1, line=b"another")], [])
        with store.read() as tx:
            assert tx.entry_lines(asked.id, 0, 9) == [(1, entry(asked.id, 1).line)]

    def test_weights(self, store: SqlStore, asked: SessionRow) -> None:
        blobs = {f"{n:064x}": random.Random(n).randbytes(1 << n) for n in (0, 4, 20)}
        numbers = dict(zip(blobs, (1, 2, 2), strict=True))
        with store.write() as tx:
            tx.append(
                [entry(asked.id, n) for n in (1, 2, 3)],
                [WeightsRow(asked.id, name, numbers[name], blob) for name, blob in blobs.items()],
            )
            tx.commit()
        names = list(blobs)
        with store.read() as tx:
            assert tx.blobs(asked.id, names) == blobs
            assert tx.blobs(asked.id, names[:1]) == {names[0]: blobs[names[0]]}
            assert tx.blobs("none", names) == {}
            pages = list(numbered(lambda n: tx.transcript_page(asked.id, n, 100), 0))
        assert {number: dict(weights) for page in pages for number, _, weights in page if weights} == {
            1: {names[0]: blobs[names[0]]},
            2: {name: blobs[name] for name in names[1:]},
        }

    def test_transcripts_and_measurements_a_page_at_a_time(self, store: SqlStore, asked: SessionRow) -> None:
        """A thousand short entries and some long ones, one of them by its weights. Catches an entry that is left out or
        told twice, weights that stand with another entry, what comes after the last one asked for, and a page of many
        long ones."""
        kinds: list[EntryKind] = ["hypothesis", "measurement", "cached", "unverified", "forfeit", "release"]
        rows = [entry(asked.id, n, kind=kinds[n % 6], units=n.to_bytes(8, "little")) for n in range(1, 1501)]
        long = {300: PAGE_BYTES - 10, 301: 20, 302: 2 * PAGE_BYTES, 303: PAGE_BYTES // 2}
        rows = [replace(row, line=bytes(long[row.sequence])) if row.sequence in long else row for row in rows]
        heavy = WeightsRow(asked.id, "f" * 64, 700, bytes(PAGE_BYTES + 1))
        with store.write() as tx:
            tx.append(rows, [heavy])
            tx.commit()
        with store.read() as tx:
            for after, last in ((0, 1500), (0, 1499), (299, 304), (650, 1000), (1500, 1500)):
                expected = [row for row in rows if after < row.sequence <= last]
                pages = list(numbered(lambda n, last=last: tx.transcript_page(asked.id, n, last), after))
                told = [(n, line, weights) for page in pages for n, line, weights in page]
                assert [(n, line) for n, line, _ in told] == [(row.sequence, row.line) for row in expected]
                for n, _, weights in told:
                    assert weights == ([(heavy.sha256, heavy.data)] if n == 700 else [])
                for page in pages:
                    size = sum(len(line) + sum(len(blob) for _, blob in weights) for _, line, weights in page)
                    assert len(page) == 1 or size <= PAGE_BYTES
                measured = [row for row in expected if row.kind == "measurement"]
                found = list(
                    chain.from_iterable(numbered(lambda n, last=last: tx.measurements(asked.id, n, last), after))
                )
                assert found == [(row.sequence, row.units, row.line) for row in measured]
                counts = Counter(row.kind for row in expected)
                assert tx.count_entries(asked.id, after, last) == {kind: counts[kind] for kind in kinds}
            assert tx.transcript_page("none", 0, 100) == []

    def test_floats_come_back_bit_for_bit(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        """Catches a column of single precision, a decimal detour, or text with too few digits.

        Values are whole numbers of grid units scaled by a power of two, so that -0.0, of which SQLite keeps no
        sign, never arises.
        """
        source = random.Random(2012)
        floats = [0.0, 5e-324, 2.0**-1022, math.nextafter(1.0, 2.0), 0.1, 1e22, 2.0**53 + 2, 1.7976931348623157e308]
        floats += [struct.unpack("<d", struct.pack("<Q", source.getrandbits(64)))[0] for _ in range(400)]
        floats = [value for number in floats if math.isfinite(number) for value in (number, -number or 0.0)]
        row = session(data.name, who.name)
        weighed = dataset(records=0.1 + 0.2, bought={"mass": {"value": 1 / 3, "noise_scale": math.pi}})
        put(store, row, weighed)
        with store.write() as tx:
            tx.append(
                [entry(row.id, n, error_bound=value) for n, value in enumerate(floats, start=1)],
                [],
            )
            tx.commit()
        with store.read() as tx:
            found = tx.known_entries(row.id, 0).answers
            kept = tx.dataset(weighed.name)
        assert [struct.pack("<d", bound) for _, _, bound in found] == [struct.pack("<d", value) for value in floats]
        assert kept is not None
        assert (kept.records, kept.bought) == (weighed.records, weighed.bought)


class TestEvidence:
    def rows(self, data: DatasetRow, asked: SessionRow, number: int, size: int = 8) -> list[EvidenceRow]:
        """Measurements of one session: two at its opening, one for each entry after that; every third is not shared."""
        return [
            EvidenceRow(
                data.name, asked.id, max(0, n - 1), f"{n:02x}" * 32, n % 3 != 2, bytes([n % 256, 255]) * (size // 2)
            )
            for n in range(number)
        ]

    def test_what_was_measured_is_found_by_its_name_and_its_entry(
        self, store: SqlStore, data: DatasetRow, asked: SessionRow
    ) -> None:
        """Catches a record that is changed, one of another data set or session, and one that serves others though it
        is not shared."""
        rows = self.rows(data, asked, 6)
        with store.write() as tx:
            tx.add_evidence(rows[:2])
            tx.add_evidence(rows[2:])
            tx.commit()
        with store.read() as tx:
            assert tx.evidence_named(data.name, [row.sha256 for row in rows]) == {r.sha256: r.line for r in rows}
            assert tx.evidence_named(data.name, [rows[3].sha256, "0" * 63 + "1"]) == {rows[3].sha256: rows[3].line}
            assert tx.evidence_named("another", [rows[3].sha256]) == {}
            assert tx.evidence_row(data.name, rows[4].sha256) == rows[4]
            assert tx.evidence_row("another", rows[4].sha256) is None
            assert tx.evidence_of(asked.id, 1, 4) == {row.sequence: row.line for row in rows[3:]}
            assert tx.evidence_of("another", 0, 9) == {}
            assert tx.shared_evidence(data.name, 1000) == [row.sha256 for row in rows if row.shared]
            assert tx.shared_evidence(data.name, 20) == [row.sha256 for row in rows if row.shared][:2]
            assert tx.shared_evidence("another", 1000) == []
            assert tx.count_evidence(data.name, shared=False) == len(rows)
            assert tx.count_evidence(data.name, shared=True) == sum(row.shared for row in rows) < len(rows)
            assert tx.count_evidence("another", shared=False) == 0

    def test_pages_of_measurements(self, store: SqlStore, data: DatasetRow, asked: SessionRow) -> None:
        """In order, none left out or told twice, none of them too long. Catches a page whose size depends on what was
        measured alone."""
        rows = self.rows(data, asked, 9, size=PAGE_BYTES // 2)
        with store.write() as tx:
            tx.add_evidence(rows)
            tx.commit()
        with store.read() as tx:
            found, after, others = [], 0, True
            while others:
                page, others = tx.evidence_page(data.name, after, 4)
                assert 1 <= len(page) <= 2
                after = page[-1][0]
                found += [row for _, row in page]
            assert found == rows
            assert tx.evidence_page("another", 0, 4) == ([], False)


def release(session: SessionRow, **changes: Any) -> ReleaseRow:
    made = f"2026-01-01T00:00:{next(_numbers):010d}Z"
    row = ReleaseRow(session.id, session.dataset, session.owner, b'{"\x00\xff":1}', "queued", "queued", 0.0, made)
    return replace(row, **changes)


def claim(store: SqlStore, worker: str, now: float = 1000.0, silent_since: float = 0.0) -> ReleaseRow | None:
    with store.write() as tx:
        row = tx.claim_release(worker, now, silent_since)
        tx.commit()
    return row


def move(store: SqlStore, before: ReleaseRow, **changes: Any) -> bool:
    with store.write() as tx:
        moved = tx.move_release(replace(before, **changes), before)
        tx.commit()
    return moved


class TestReleases:
    @pytest.fixture(autouse=True)
    def nothing_waits(self, store: SqlStore) -> None:
        """There is one queue: what earlier tests left in it is taken out."""
        while (row := claim(store, "broom", silent_since=math.inf)) is not None:
            assert move(store, row, status="cancelled", worker=None)

    def many(self, store: SqlStore, data: DatasetRow, who: PrincipalRow, number: int) -> list[ReleaseRow]:
        """Queued releases, the oldest first."""
        sessions = [session(data.name, who.name) for _ in range(number)]
        rows = [release(each) for each in sessions]
        put(store, *sessions, *rows)
        return rows

    def stored(self, store: SqlStore, row: ReleaseRow) -> ReleaseRow:
        with store.read() as tx:
            found = tx.release(row.id)
        assert found is not None
        return found

    def test_round_trip(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        """Catches a field that is not kept, or is kept as something else."""
        (row,) = self.many(store, data, who, 1)
        assert self.stored(store, row) == row
        ended = {"status": "failed", "step": "fitting", "progress": 0.1 + 0.2, "beat": 1790000000.123456}
        ended |= {"worker": "w" * 32, "finished_at": "t", "problem": b"\x00p", "result": b"\xffr"}
        assert move(store, row, **ended)
        assert self.stored(store, row) == replace(row, **ended)
        with store.read() as tx:
            assert tx.release("none") is None

    def test_what_was_asked_for_does_not_move(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        """Catches a move that rewrites whose a release is, or what it was asked for."""
        (row,) = self.many(store, data, who, 1)
        assert move(store, row, request=b"other", owner="other", dataset="other", created_at="other")
        assert self.stored(store, row) == row

    def test_pages(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        """Catches a page that passes releases over, tells them twice, or shows somebody else's."""
        other = principal()
        put(store, other)
        mine, his = self.many(store, data, who, 5), self.many(store, data, other, 2)
        with store.read() as tx:
            assert list(walked(lambda after: tx.releases_page(who.name, after, 2))) == [mine[:2], mine[2:4], mine[4:]]
            everybody = list(chain.from_iterable(walked(lambda after: tx.releases_page(None, after, 2))))
            assert tx.releases_page("nobody", None, 2) == ([], False)
        assert [row for row in everybody if row.owner in (who.name, other.name)] == [*mine, *his]

    def test_counted_by_where_they_stand(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        with store.read() as tx:
            before = Counter(tx.count_releases())
        self.many(store, data, who, 3)
        claim(store, "one")
        with store.read() as tx:
            after = Counter(tx.count_releases())
        assert after - before == Counter(queued=2, running=1)

    def test_those_of_a_data_set_that_have_not_ended(
        self, store: SqlStore, data: DatasetRow, who: PrincipalRow
    ) -> None:
        """Catches a retirement that leaves work on a release going on, or ends another data set's."""
        rows = self.many(store, data, who, 5)
        for row, status in zip(rows, ("done", "failed", "cancelled", "running"), strict=False):
            assert move(store, row, status=status)
        with store.read() as tx:
            assert tx.releases_in(data.name) == [row.id for row in rows[3:]]
            assert tx.releases_in("another") == []

    def test_one_of_nothing(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        """A release is of a session that is there, and a session is of one release."""
        (row,) = self.many(store, data, who, 1)
        for wrong in (row, replace(row, id="none"), replace(release(session(data.name, who.name)))):
            with store.write() as tx, pytest.raises(StoreConflict):
                tx.add_release(wrong)

    def test_principals_take_turns(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        """Catches a principal with many releases who keeps all others waiting until they are done."""
        bob, eve = principal(), principal()
        put(store, bob, eve)
        mine, his, hers = (self.many(store, data, each, number) for each, number in ((who, 4), (bob, 2), (eve, 1)))
        taken = []
        while (row := claim(store, "one", now=1000.0 + len(taken))) is not None:
            taken.append(row.id)
            if len(taken) == 2:  # who ends is still the one served last
                assert move(store, row, status="done")
        due = [mine[0], his[0], hers[0], mine[1], his[1], mine[2], mine[3]]
        assert taken == [row.id for row in due]

    def test_quick_ones_by_themselves(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        """Catches a quick release that waits for a long one, and a long one that is taken for a quick one."""
        rows = self.many(store, data, who, 3)
        for row, seconds in zip(rows, (60.0, 10.5, 10.0), strict=True):
            assert move(store, row, expected_seconds=seconds)
        with store.read() as tx:
            assert tx.next_release(0.0, 10.0) == rows[2].id
            assert tx.next_release(0.0) == rows[0].id
        with store.write() as tx:
            quick = tx.claim_release("one", 1.0, 0.0, 10.0)
            assert quick is not None
            assert (quick.id, quick.expected_seconds) == (rows[2].id, 10.0)
            assert tx.claim_release("one", 1.0, 0.0, 10.0) is None
            tx.commit()
        assert move(store, quick, status="queued", worker=None, expected_seconds=60.0)
        with store.read() as tx:
            assert tx.next_release(0.0, 10.0) is None

    def test_a_start_finds_what_was_left(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        """Catches a release that waits for the silence of a process that is gone, though its clock was ahead."""
        left, waiting = self.many(store, data, who, 2)
        claim(store, "one", now=2e9)
        with store.write() as tx:
            tx.orphan_releases()
            tx.commit()
        assert self.stored(store, waiting) == waiting
        taken = claim(store, "two", now=1000.0, silent_since=940.0)
        assert taken is not None
        assert (taken.id, taken.worker) == (left.id, "two")

    def test_the_oldest_that_waits_is_next(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        """Catches a queue in another order, and one that gives a release twice."""
        rows = self.many(store, data, who, 3)
        taken = []
        for row in rows:
            with store.read() as tx:
                assert tx.next_release(0.0) == row.id
            taken.append(claim(store, "one", now=1234.5))
        assert taken == [replace(row, status="running", worker="one", beat=1234.5) for row in rows]
        assert [self.stored(store, row) for row in rows] == taken
        with store.read() as tx:
            assert tx.next_release(1234.5) is None
        assert claim(store, "one", silent_since=1234.5) is None

    def test_who_is_silent_is_succeeded(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        """Catches a release that is lost with its worker, and one that is taken from a worker who is alive."""
        (row,) = self.many(store, data, who, 1)
        claim(store, "one", now=100.0)
        assert claim(store, "two", now=150.0, silent_since=100.0) is None
        assert claim(store, "two", now=161.0, silent_since=100.5) == replace(
            row, status="running", worker="two", beat=161.0
        )

    def test_who_spoke_last_at_a_time_to_come_is_succeeded(
        self, store: SqlStore, data: DatasetRow, who: PrincipalRow
    ) -> None:
        """The clock was set back since. Catches a dead worker's release that waits until the clock is there again."""
        (row,) = self.many(store, data, who, 1)
        claim(store, "one", now=9000.0)
        with store.read() as tx:
            assert tx.next_release(40.0, ahead=9000.0) is None
            assert tx.next_release(40.0, ahead=160.0) == row.id
        with store.write() as tx:
            taken = tx.claim_release("two", 100.0, 40.0, ahead=160.0)
            tx.commit()
        assert taken == replace(row, status="running", worker="two", beat=100.0)

    def test_who_lost_it_changes_nothing(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        """Fencing. Catches a worker that was merely slow, and whose beat takes back, or whose record ends, a release
        that another one has.
        """
        (row,) = self.many(store, data, who, 1)
        slow = claim(store, "slow", now=100.0)
        taken = claim(store, "other", now=200.0, silent_since=150.0)
        assert slow is not None
        assert taken is not None
        for change in ({"beat": 201.0}, {"step": "fitting"}, {"status": "done"}, {"status": "queued", "worker": None}):
            assert not move(store, slow, **change)
        assert not move(store, row, status="cancelled")
        assert taken == self.stored(store, row)
        assert move(store, taken, status="queued", worker=None, step="measuring")
        assert not move(store, slow)
        assert not move(store, taken)
        assert self.stored(store, row) == replace(row, step="measuring", beat=200.0)

    def test_no_step_is_gone_back(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        """The worker is the same, and alive; a write of his that was in doubt comes late. Catches a release that is
        measured a second time, and one that is ended on terms which hold no more.
        """
        self.many(store, data, who, 1)
        taken = claim(store, "one", now=100.0)
        assert taken is not None
        measuring, fitting = replace(taken, step="measuring"), replace(taken, step="fitting")
        assert move(store, taken, step="measuring")
        assert not move(store, taken, step="measuring")
        assert not move(store, taken, status="cancelled")
        assert move(store, measuring, step="fitting")
        for changes in ({}, {"beat": 101.0}, {"status": "failed"}, {"status": "queued", "worker": None}):
            assert not move(store, measuring, **changes)
        assert self.stored(store, taken) == fitting
        for earlier in ("queued", "measuring"):
            with pytest.raises(ValueError, match="go back"):
                move(store, fitting, step=earlier)
        assert self.stored(store, taken) == fitting

    @pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
    def test_an_end_is_one(self, store: SqlStore, data: DatasetRow, who: PrincipalRow, status: str) -> None:
        (row,) = self.many(store, data, who, 1)
        taken = claim(store, "one", now=100.0)
        assert taken is not None
        assert move(store, taken, status=status)
        for again in (row, taken):
            assert not move(store, again, status="running", worker="one")
        with pytest.raises(ValueError, match="go back"):
            move(store, self.stored(store, row), status="running")
        assert claim(store, "two", silent_since=math.inf) is None
        assert self.stored(store, row).status == status

    def test_two_workers_never_take_the_same(
        self, store: SqlStore, other: SqlStore, data: DatasetRow, who: PrincipalRow
    ) -> None:
        """Catches a claim that two processes win, and a release that none of them takes."""
        rows = self.many(store, data, who, 12)
        taken: list[tuple[str, str]] = []
        start = threading.Barrier(4)

        def take(worker: str, where: SqlStore) -> None:
            start.wait()
            misses = 0
            while misses < 40:  # what others hold is passed over, and may come back
                row = claim(where, worker)
                if row is None:
                    misses += 1
                    time.sleep(0.001)
                else:
                    taken.append((row.id, worker))

        threads = [threading.Thread(target=take, args=(f"w{n}", (store, other)[n % 2])) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(id for id, _ in taken) == sorted(row.id for row in rows)
        for id, worker in taken:
            with store.read() as tx:
                found = tx.release(id)
            assert found is not None
            assert (found.status, found.worker) == ("running", worker)

    def test_what_another_transaction_takes_is_passed_over(
        self, store: SqlStore, other: SqlStore, data: DatasetRow, who: PrincipalRow
    ) -> None:
        """Catches a claim that waits for another one, or takes what that is about to take, or took."""
        first, second = self.many(store, data, who, 2)
        with store.write() as tx:
            mine = tx.claim_release("one", 1.0, 0.0)
            # Where one process writes, another transaction begins when this one has ended.
            his = None if store.exclusive else claim(other, "two")
            tx.commit()
        his = his or claim(other, "two")
        assert mine is not None
        assert his is not None
        assert [mine.id, his.id] == [first.id, second.id]

    def test_left_without_a_commit(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        (row,) = self.many(store, data, who, 1)
        with store.write() as tx:
            assert tx.claim_release("one", 1.0, 0.0) is not None
            tx.add_release_files([ReleaseFile(row.id, "answers", b"a")])
        assert self.stored(store, row) == row
        with store.read() as tx:
            assert tx.release_file(row.id, "answers") is None

    def test_files(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        """Catches bytes that change, a file found under another name or release, and one that replaces another."""
        one, two = self.many(store, data, who, 2)
        files = [ReleaseFile(one.id, "answers", bytes(range(256)) * 999), ReleaseFile(one.id, "records", b"")]
        with store.write() as tx:
            tx.add_release_files(files)
            tx.commit()
        with store.read() as tx:
            assert [tx.release_file(one.id, file.name) for file in files] == files
            assert tx.release_file(one.id, "edges") is None
            assert tx.release_file(two.id, "answers") is None
        for wrong in (files[0], ReleaseFile("none", "answers", b"")):
            with store.write() as tx, pytest.raises(StoreConflict):
                tx.add_release_files([wrong])


class TestLedgerAndReplies:
    def test_movements_in_their_order(self, store: SqlStore, asked: SessionRow, data: DatasetRow) -> None:
        elsewhere = dataset()
        put(store, elsewhere)
        rows = [
            LedgerRow(data.name, asked.id, "reserve", "0.1", "0.2", None, "2026-01-01T00:00:00Z"),
            LedgerRow(data.name, asked.id, "purchase", "0.000000000000000000000001", "0", None, "2026-01-01T00:00:00Z"),
            LedgerRow(data.name, asked.id, "charge", "1e-24", None, 1, "2025-01-01T00:00:00Z"),
            LedgerRow(data.name, None, "return", "0", "1e-24", None, "2024-01-01T00:00:00Z"),
        ]
        for part in (rows[:2], rows[2:]):
            with store.write() as tx:
                tx.move_ledger([*part, replace(part[0], dataset=elsewhere.name)])
                tx.commit()
        with store.read() as tx:
            for most in (1, 2, 3, 4, 5):
                pages = list(walked(lambda after, most=most: tx.ledger_page(data.name, after[0] if after else 0, most)))
                assert [row for page in pages for _, row in page] == rows
                assert {len(page) for page in pages[:-1]} <= {most}
                numbers = [number for page in pages for number, _ in page]
                assert numbers == sorted(set(numbers))
            assert not tx.has_moved("none")
            assert tx.has_moved(elsewhere.name)
            assert len(tx.ledger_page(elsewhere.name, 0, 10)[0]) == 2

    def test_what_movements_come_to(self, store: SqlStore, data: DatasetRow, who: PrincipalRow) -> None:
        """The exact sums of what sessions hold and have spent, however many of the movements are added up already.
        Catches one that is told twice or not at all, in a sum or beside it, a charge that is taken for a return, a
        movement of another data set, one of no session, what is not pure in a pure sum, and digits that are rounded.
        """
        elsewhere, somebody = dataset(), principal()
        pure, other, theirs = (
            session(data.name, owner, spent_pure=spent)
            for owner, spent in ((who.name, "0"), (who.name, None), (somebody.name, "0"))
        )
        put(store, elsewhere, somebody, pure, other, theirs)
        least, at = Decimal("1E-24"), "2026-01-01T00:00:00Z"
        moved: list[tuple[SessionRow, Any, Decimal, Decimal | None]] = [
            (pure, "reserve", Decimal("7"), Decimal("9.000")),
            (pure, "purchase", least, least),
            (other, "reserve", Decimal("1E+3"), None),
            (theirs, "reserve", Decimal("2.5"), Decimal("0.5")),
            (pure, "charge", Decimal("0E-24"), Decimal("0.25")),
            (pure, "charge", Decimal("0E-24"), Decimal("0.25")),
            (other, "purchase", Decimal("1"), Decimal("1")),
            (theirs, "return", Decimal("2.5"), Decimal("0.5")),
            (other, "charge", Decimal("3"), None),
            (pure, "return", 2 * least, least),
            (other, "forfeit", Decimal("4"), None),
        ]
        expected: dict[tuple[str, bool], list[Fraction]] = {}
        for number, (row, kind, amount, more) in enumerate(moved):
            own = expected.setdefault((row.owner, row.spent_pure is not None), [Fraction(0)] * 4)
            for place, value in ((0, amount), (2, more if row.spent_pure is not None else None)):
                own[place] += Fraction(value or 0) * (1 if kind == "reserve" else -1)
                own[place + 1] += Fraction(value or 0) * (kind in ("charge", "purchase", "forfeit"))
            told = LedgerRow(data.name, row.id, kind, str(amount), None if more is None else str(more), 1, at)
            with store.write() as tx:
                # Of the data set itself, and of another one: neither is anybody's here.
                tx.move_ledger(
                    [told, replace(told, session=None, kind="forfeit"), replace(told, dataset=elsewhere.name)]
                )
                tx.commit()
            self.check_sums(store, data.name, expected)
            if number % 3 == 1:
                with store.read() as tx:
                    last = tx.ledger_page(data.name, 0, 1000)[0][-1][0]
                while LedgerSums(store).step(last):
                    self.check_sums(store, data.name, expected)
                self.check_sums(store, data.name, expected)
                with store.read() as tx:
                    assert tx.summed_to() == last
        with store.read() as tx:
            assert tx.holdings("none") == tx.summed("none") == []
            assert len(tx.summed(data.name)) == 3

    @staticmethod
    def check_sums(store: SqlStore, name: str, expected: dict[tuple[str, bool], list[Fraction]]) -> None:
        with store.read() as tx:
            found = spending.added_up(tx.holdings(name))
        assert {
            (each.owner, each.spent_pure is not None): [
                Fraction(amount or 0) for amount in (each.reserved, each.spent, each.reserved_pure, each.spent_pure)
            ]
            for each in found
        } == expected

    @pytest.mark.parametrize("url", SHARED, indirect=True)
    def test_one_adds_movements_up(self, store: SqlStore, other: SqlStore, data: DatasetRow, asked: SessionRow) -> None:
        """Catches two servers that add the same movements to one sum, and one that waits for the other."""
        put(store, LedgerRow(data.name, asked.id, "reserve", "1", None, None, "2026-01-01T00:00:00Z"))
        with store.read() as tx:
            last = tx.ledger_page(data.name, 0, 1000)[0][-1][0]
        while LedgerSums(store).step(last - 1):
            pass
        with store.write() as tx:
            found = tx.unsummed(last, 10)
            assert found is not None
            assert (found[0], list(found[1])) == (last, [data.name])
            assert not LedgerSums(other).step(last)
            tx.sum_up(last, found[1])
            tx.commit()
        assert not LedgerSums(other).step(last)
        with store.read() as tx:
            assert [each.reserved for each in tx.holdings(data.name)] == ["1"]

    def test_replies(self, store: SqlStore, who: PrincipalRow) -> None:
        """Catches a reply found under another principal, route or key, or one that is not the same bytes."""
        somebody = principal()
        rows = [
            ReplyRow(who.name, "/v1/sessions", "k", "h1", True, bytes(range(256)), "2026-01-01T00:00:00Z"),
            ReplyRow(who.name, "/v1/sessions", "K", "h2", True, b"", "2026-01-01T00:00:00Z"),
            ReplyRow(who.name, "/v1/sessions/x/queries", "k", "h3", False, b"{}", "2026-01-01T00:00:00Z"),
            ReplyRow(somebody.name, "/v1/sessions", "k", "h4", False, b"[]", "2026-01-01T00:00:00Z"),
        ]
        put(store, somebody)
        with store.write() as tx:
            tx.add_replies(rows)
            tx.commit()
        with store.read() as tx:
            names = [(row.principal, row.route, row.key) for row in rows]
            assert tx.replies(names) == dict(zip(names, rows, strict=True))
            assert tx.replies([(who.name, "/v1/sessions", "other")]) == {}
            assert tx.replies([]) == {}

    def test_the_reply_that_tells_of_an_entry(self, store: SqlStore, who: PrincipalRow) -> None:
        """The first that has come as far, of these routes and this principal. Catches one that came before, one of
        another session, and one that tells of no entry."""
        somebody = principal()
        own, other = "/v1/sessions/x/queries", "/v1/sessions/y/queries"
        rows = [
            ReplyRow(who.name, own, f"k{last}", "h", False, b"%d" % last, "2026-01-01T00:00:00Z", last)
            for last in (3, 7, 8)
        ]
        rows += [
            ReplyRow(who.name, other, "k", "h", False, b"other", "2026-01-01T00:00:00Z", 5),
            ReplyRow(who.name, own, "close", "h", False, b"none", "2026-01-01T00:00:00Z"),
            ReplyRow(somebody.name, own, "k", "h", False, b"else", "2026-01-01T00:00:00Z", 5),
        ]
        put(store, somebody, *rows)
        with store.read() as tx:
            found = [tx.reply_telling(who.name, [own, "/v1/sessions/x/sql"], n) for n in (1, 3, 4, 7, 8, 9)]
            assert found == [b"3", b"3", b"7", b"7", b"8", None]
            assert tx.reply_telling(who.name, ["/v1/sessions/x/sql"], 1) is None

    def test_replies_in_their_order(self, store: SqlStore, who: PrincipalRow, data: DatasetRow) -> None:
        """Pages of any size, one after the other, are all there is, each once, with what openings replied; those that
        are removed are gone, and their keys free, and no others. Catches a page that begins with the last one's end,
        names that are compared part by part, and a removal by less than the whole name.
        """
        opened, closed = session(data.name, who.name), session(data.name, who.name, closed_at="2026-01-03T00:00:00Z")
        rows = [
            ReplyRow(who.name, route, key, "h", "x" not in route, b"%d" % n, "2026-01-01T00:00:00Z")
            for n, (route, key) in enumerate(
                itertools.product(("/v1/sessions", "/v1/sessions/x/queries", "/v1/sessions/x/close"), "aBc")
            )
        ]
        put(store, opened, closed, *rows)
        names = {(row.principal, row.route, row.key): row.reply if row.opens else None for row in rows}
        for most in (1, 2, 4, 100):
            with store.read() as tx:
                after, found = (who.name, "", ""), []
                while page := [each for each in tx.reply_names(after, most) if each[0][0] == who.name]:
                    found += page
                    after = page[-1][0]
            assert len(found) == len(rows)
            assert dict(found) == names
        gone = sorted(names)[1::3]
        with store.write() as tx:
            tx.remove_replies(gone)
            tx.remove_replies([])
            tx.remove_replies(gone)
            tx.commit()
        put(store, *(row for row in rows if (row.principal, row.route, row.key) == gone[0]))
        with store.read() as tx:
            assert set(tx.replies(list(names))) == set(names) - set(gone[1:])
            assert tx.closing_times([opened.id, closed.id, "nothing"]) == {closed.id: "2026-01-03T00:00:00Z"}

    def test_a_key_has_one_reply(self, store: SqlStore, who: PrincipalRow) -> None:
        row = ReplyRow(who.name, "/v1/sessions", "k", "h", True, b"first", "2026-01-01T00:00:00Z")
        put(store, row)
        with store.write() as tx, pytest.raises(StoreConflict):
            tx.add_replies([replace(row, reply=b"second")])
        with store.read() as tx:
            name = (row.principal, row.route, row.key)
            assert tx.replies([name, (*name[:2], "other")]) == {name: row}


def lock_timeout(tx: Any) -> str:
    """How long a transaction waits for locks from now on, as PostgreSQL says it; 0 is without end."""
    if isinstance(tx, MemoryTransaction):
        return "0"
    return str(tx.connection.execute(text("SHOW lock_timeout")).scalar_one())


class TestEvents:
    def test_told_with_what_happened(self, store: Any) -> None:
        """Catches an event without its change, which the log would tell of all the same, or one that is lost."""

        def told() -> list[bytes]:
            if isinstance(store, MemoryStore):
                return list(store.database.tables.events.values())
            with store.read() as tx:
                return list(tx.connection.execute(text("SELECT line FROM events ORDER BY id")).scalars())

        before = told()
        for line, kept in ((b"one", True), (b"undone", False), (b"two", True)):
            with store.write() as tx:
                tx.add_event(line)
                if kept:
                    tx.commit()
        assert told() == [*before, b"one", b"two"]


class TestTransactions:
    def test_together(self, store: SqlStore, asked: SessionRow) -> None:
        """Catches statements sent together that are not all there afterwards, and a failure that nobody hears of."""
        moved = replace(asked, sequence=2, head_hash="f" * 64)
        with store.write() as tx, tx.together():
            tx.append([entry(asked.id, 1), entry(asked.id, 2)], [])
            tx.move_sessions([moved])
            tx.commit()

        def broken() -> None:
            with store.write() as tx, tx.together():
                tx.append([entry(asked.id, 3)], [])
                tx.append([entry(asked.id, 1, line=b"another")], [])
                tx.commit()

        with pytest.raises(Exception, match=r"(?i)unique|conflict|^$"):
            broken()
        with store.read() as tx:
            assert tx.session(asked.id) == moved
            assert [n for n, _ in tx.entry_lines(asked.id, 0, 9)] == [1, 2]

    def test_much_is_sent_together(self, store: SqlStore, asked: SessionRow) -> None:
        """Lines that are longer than what a connection holds underway. Catches a driver that waits for the result of
        what it has not sent to its end: the database waits for the rest of it, for ever.
        """
        lines = [b'{"line":"%b"}' % (b"%d" % number * size) for number, size in enumerate((1, 1 << 18, 1 << 24, 1))]

        def add() -> None:
            with store.write() as tx, tx.together():
                for number, line in enumerate(lines, start=1):
                    tx.append([entry(asked.id, number, line=line)], [])
                tx.commit()

        thread = threading.Thread(target=add, daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        with store.read() as tx:
            assert [line for _, line in tx.entry_lines(asked.id, 0, 9)] == lines

    @staticmethod
    def everything(store: SqlStore, data: DatasetRow, who: PrincipalRow, row: SessionRow) -> Callable[[Any], None]:
        """A step that writes into every table but those of the log and of audits, which have stores of their own."""
        new_principal, new_dataset = principal(), dataset()
        new_session = session(data.name, who.name)

        def step(tx: SqlTransaction) -> None:
            tx.add_principal(new_principal)
            tx.add_dataset(new_dataset)
            tx.set_grant(data.name, who.name, "0.5")
            tx.set_bought(data.name, {"mass": {"value": 1.0, "noise_scale": 2.0}})
            tx.count_race(data.name)
            tx.add_session(new_session, Holding(who.name, "1", "0", "1", "0", 1))
            tx.move_sessions([replace(row, sequence=1, spent="1", head_hash="c" * 64)])
            tx.append([entry(row.id, 1)], [WeightsRow(row.id, "d" * 64, 1, b"w")])
            tx.move_ledger([LedgerRow(data.name, row.id, "charge", "1", None, 1, "2026-01-01T00:00:00Z")])
            tx.add_evidence([EvidenceRow(data.name, row.id, 1, "f" * 64, True, b"m")])
            tx.add_release(release(new_session, status="done"))
            tx.add_release_files([ReleaseFile(new_session.id, "answers", b"a")])
            tx.add_replies([ReplyRow(who.name, "/r", "k", "h", False, b"{}", "2026-01-01T00:00:00Z")])
            tx.add_login(
                LoginRow(fresh("login"), who.name, who.key_id, "", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
            )
            tx.revoke_principal(who.name, "2026-01-01T00:00:00Z")
            tx.set_vault_entry(data.name, {"file_name": "other.0123456789abcdef.vault", "digest": "e" * 64})
            tx.forfeit_dataset(replace(data, forfeited="0.5"))
            tx.set_impure(data.name)
            tx.retire_dataset(data.name, "2026-01-01T00:00:00Z")
            sums = Holding(who.name, "1", "1", "1", "1", 1)
            tx.stand(data.name, [sums], [new_session.id])
            tx.unsummed(0, 1)  # by which whoever adds up movements keeps others from it
            tx.sum_up(tx.summed_to() + 1, {data.name: [sums]})
            tx.add_event(b"event")

        return step

    @staticmethod
    def contents(store: Any) -> dict[str, list[Any]]:
        if isinstance(store, MemoryStore):
            tables = store.database.tables
            return {name: list(getattr(tables, name).items()) for name in tables.__slots__}
        with store.read() as tx:
            return {
                table.name: sorted((tuple(r) for r in tx.connection.execute(table.select())), key=repr)
                for table in metadata.sorted_tables
                # Kept counts, connections and jobs have stores of their own (tests/datasets, tests/releases).
                if not table.name.startswith(("log_", "audit", "kept_", "connections", "jobs"))
            }

    @pytest.mark.slow
    def test_nothing_is_seen_before_the_commit(
        self, store: SqlStore, other: SqlStore, data: DatasetRow, who: PrincipalRow, asked: SessionRow
    ) -> None:
        """Catches a statement that commits by itself: an answer could be charged without its entry, or be read
        before it is durable.
        """
        step, before = self.everything(store, data, who, asked), self.contents(other)
        with store.write() as tx:
            step(tx)
            assert self.contents(other) == before
            tx.commit()
        after = self.contents(other)
        assert {name for name in after if after[name] != before[name]} == set(after)

    def test_left_without_a_commit_nothing_has_happened(
        self, store: SqlStore, data: DatasetRow, who: PrincipalRow, asked: SessionRow
    ) -> None:
        """Catches a context manager that commits on its way out."""
        step, before = self.everything(store, data, who, asked), self.contents(store)
        with store.write() as tx:
            step(tx)
        assert self.contents(store) == before

    def test_left_by_an_error_nothing_has_happened(
        self, store: SqlStore, data: DatasetRow, who: PrincipalRow, asked: SessionRow
    ) -> None:
        step, before = self.everything(store, data, who, asked), self.contents(store)

        def fail() -> None:
            with store.write() as tx:
                step(tx)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert self.contents(store) == before

    def test_a_conflict_leaves_nothing_of_its_transaction(self, store: SqlStore, data: DatasetRow) -> None:
        """Catches a half-done registration: the rows written before the refusal must go with it."""
        new = principal()
        with store.write() as tx:
            tx.add_principal(new)
            with pytest.raises(StoreConflict):
                tx.add_dataset(replace(dataset(), name=data.name))
        with store.read() as tx:
            assert tx.principal(new.name) is None

    def test_a_view_is_of_one_moment(self, store: SqlStore, other: SqlStore, asked: SessionRow) -> None:
        """Catches a reading transaction whose second statement sees another state than its first: a ledger whose
        entries do not add up to its sum, a transcript whose trailer is not that of its entries.
        """
        with store.read() as tx:
            before = tx.session(asked.id)
            with other.write() as writing:
                writing.append([entry(asked.id, 1)], [])
                writing.move_sessions([replace(asked, sequence=1)])
                writing.commit()
            assert tx.entry_lines(asked.id, 0, 9) == []
            assert tx.session(asked.id) == before
        with store.read() as tx:
            assert len(tx.entry_lines(asked.id, 0, 9)) == 1

    def test_a_reader_waits_for_nobody(self, store: SqlStore, other: SqlStore, asked: SessionRow) -> None:
        """Catches a lock that readers need too: a slow round would stop every look at the data set."""
        with store.write() as tx:
            tx.lock_sessions([asked.id])
            tx.move_sessions([replace(asked, sequence=1)])
            with other.read() as reading:
                assert reading.session(asked.id) == asked

    def test_the_second_writer_of_a_session_waits_and_sees_the_first(
        self, store: SqlStore, other: SqlStore, asked: SessionRow
    ) -> None:
        """Catches a session row that is no lock: two processes would answer on one state and fork the chain."""
        self.held_off(
            store,
            other,
            first=lambda tx: tx.lock_sessions([asked.id]) and tx.move_sessions([replace(asked, sequence=1)]),
            second=lambda tx: tx.lock_sessions([asked.id])[asked.id].sequence,
            expected=1,
        )

    def test_the_second_writer_of_a_data_set_waits_and_sees_the_first(
        self, store: SqlStore, other: SqlStore, data: DatasetRow, who: PrincipalRow
    ) -> None:
        """Catches two sessions that both fit the budget as each sees it, and pass it together."""
        new = session(data.name, who.name)

        def first(tx: SqlTransaction) -> None:
            tx.dataset(data.name, lock=True)
            tx.add_session(new)

        def second(tx: SqlTransaction) -> int:
            tx.dataset(data.name, lock=True)
            return sum(holding.sessions for holding in tx.passed(data.name))

        self.held_off(store, other, first=first, second=second, expected=1)

    @staticmethod
    def held_off(
        store: SqlStore,
        other: SqlStore,
        *,
        first: Callable[[SqlTransaction], Any],
        second: Callable[[SqlTransaction], Any],
        expected: Any,
    ) -> None:
        found: list[Any] = []
        came = threading.Event()

        def run() -> None:
            with other.write() as tx:
                found.append(second(tx))
                came.set()

        with store.write() as tx:
            first(tx)
            waiting = threading.Thread(target=run)
            waiting.start()
            assert not came.wait(0.4), "the second writer did not wait"
            tx.commit()
        assert came.wait(20)
        waiting.join()
        assert found == [expected]

    def test_writers_of_several_sessions_never_wait_for_each_other(
        self, store: SqlStore, other: SqlStore, data: DatasetRow, who: PrincipalRow
    ) -> None:
        """Catches locks taken in the order asked for: two groups over the same sessions would deadlock."""
        rows = [session(data.name, who.name) for _ in range(6)]
        put(store, *rows)
        ids, errors = [row.id for row in rows], []

        def run(through: SqlStore, order: list[str]) -> None:
            try:
                for _ in range(40):
                    with through.write() as tx:
                        locked = tx.lock_sessions(order)
                        tx.move_sessions([replace(r, sequence=r.sequence + 1) for r in locked.values()])
                        tx.commit()
            except Exception as error:
                errors.append(error)

        threads = [
            threading.Thread(target=run, args=(store, ids)),
            threading.Thread(target=run, args=(other, ids[::-1])),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        with store.read() as tx:
            assert [tx.session(id).sequence for id in ids] == [80] * 6  # type: ignore[union-attr]

    @pytest.mark.parametrize("url", SHARED, indirect=True)
    @pytest.mark.parametrize("seconds", [0, 0.3])
    def test_a_row_that_is_held_is_waited_for_so_long(
        self, url: str, store: SqlStore, other: SqlStore, data: DatasetRow, who: PrincipalRow, seconds: float
    ) -> None:
        """Catches a bound that is not kept, one that outlives its statement, free rows that are not given or not held
        when others are not had, and a transaction that is of no use afterwards.
        """
        held, free = (session(data.name, who.name) for _ in range(2))
        put(store, held, free)
        with store.write() as tx:
            tx.lock_sessions([held.id])
            with other.write() as writing:
                started = time.monotonic()
                assert writing.lock_sessions([held.id, free.id], {}, seconds) == {free.id: free}
                assert seconds <= time.monotonic() - started < seconds + 2
                assert writing.lock_sessions([], {}, 0.1) == {}
                assert tx.lock_sessions([free.id], {}, 0) == {}
                assert lock_timeout(writing) == "0"
                assert writing.existing_sessions([held.id, free.id]) == {held.id, free.id}
                writing.move_sessions([replace(free, sequence=1)])
                writing.commit()
            with other.write() as writing:
                assert writing.lock_sessions([free.id], {}, seconds)[free.id].sequence == 1
                assert lock_timeout(writing) == "0"

    @pytest.mark.postgres
    @pytest.mark.parametrize("url", ["postgresql"], indirect=True)
    def test_moved_sessions_are_found_by_their_index(self, url: str, store: SqlStore, asked: SessionRow) -> None:
        """Among five thousand. Catches a statement that reads the whole table, or cuts what a column would refuse."""
        long = replace(asked, spent="0" * 60)
        for rows in ([asked, long], [long, asked]):
            with store.write() as tx, pytest.raises(psycopg.errors.StringDataRightTruncation):
                tx.move_sessions(rows)
        with store.write() as tx:
            copied = ", ".join("md5(n::text)" if c.name == "id" else c.name for c in sessions.columns)
            tx.connection.execute(
                text(f"INSERT INTO sessions SELECT {copied} FROM sessions, generate_series(1, 5000) n WHERE id = :id"),
                {"id": asked.id},
            )
            tx.connection.execute(text("ANALYZE sessions"))
            values = [value for _ in range(8) for value in ("open", 1, 1, 1, "0", "0", "0", None, "a", None, asked.id)]
            cursor = tx._cursor()
            cursor.execute(f"EXPLAIN {_move_all(8)}", values)
            plan = [row[0] for row in cursor.fetchall()]
        assert any("Index Scan" in step for step in plan), plan
        assert not any("Seq Scan" in step for step in plan), plan

    @pytest.mark.parametrize("url", SHARED, indirect=True)
    def test_writers_of_different_sessions_do_not_wait(
        self, url: str, store: SqlStore, other: SqlStore, data: DatasetRow, who: PrincipalRow
    ) -> None:
        """Catches a lock on more than the session: a heavy round would hold up every other session. (SQLite has
        one writer; there the lanes compute before they write.)
        """
        first, second = session(data.name, who.name), session(data.name, who.name)
        put(store, first, second)
        with store.write() as tx:
            tx.lock_sessions([first.id])
            tx.append([entry(first.id, 1)], [])
            tx.move_ledger([LedgerRow(data.name, first.id, "charge", "1", None, 1, "2026-01-01T00:00:00Z")])
            started = time.monotonic()
            with other.write() as writing:
                writing.lock_sessions([second.id])
                writing.append([entry(second.id, 1)], [])
                writing.move_ledger([LedgerRow(data.name, second.id, "charge", "1", None, 1, "2026-01-01T00:00:00Z")])
                writing.commit()
            assert time.monotonic() - started < patience(30)

    @pytest.mark.parametrize("url", SHARED, indirect=True)
    @pytest.mark.parametrize("seconds", [None, 0, 0.1])
    def test_whether_a_transaction_happened(
        self, store: SqlStore, other: SqlStore, asked: SessionRow, seconds: float | None
    ) -> None:
        """Catches a retry that takes another's commit for its own, and one that fails for ever over a transaction
        that the database does not know, as it was lost with the server that a standby stands in for.
        """
        names = []
        for commits in (True, False):
            with store.write() as tx:
                assert tx.name is None
                tx.lock_sessions([asked.id], {}, seconds)
                assert tx.name is not None
                names.append(tx.name)
                if commits:
                    tx.move_sessions([replace(asked, sequence=1)])
                    tx.commit()
        with other.write() as tx:
            tx.lock_sessions([asked.id])
            assert tx.name not in names
            lost = str(int(names[0]) + 10**6)
            assert [tx.happened(name) for name in (*names, lost)] == [True, False, False]

    @pytest.mark.parametrize("url", SHARED, indirect=True)
    def test_opening_a_session_holds_up_no_charge(
        self, url: str, store: SqlStore, other: SqlStore, data: DatasetRow, asked: SessionRow
    ) -> None:
        """Catches a lock on the data set that the ledger's foreign key runs into: buying a mass of a large data
        set would stop all its sessions.
        """
        with store.write() as tx:
            tx.dataset(data.name, lock=True)
            started = time.monotonic()
            with other.write() as writing:
                if isinstance(writing, SqlTransaction):
                    writing.connection.execute(text("SET LOCAL lock_timeout = '30s'"))
                writing.move_ledger([LedgerRow(data.name, asked.id, "charge", "1", None, 1, "2026-01-01T00:00:00Z")])
                writing.commit()
            assert time.monotonic() - started < patience(25)


def shape_of(engine: Engine) -> dict[str, Any]:
    """Everything the database itself tells of its tables, in comparable form."""
    inspector = reflect(engine)
    shape: dict[str, Any] = {}
    for table in sorted(inspector.get_table_names()):
        if table == "alembic_version":
            continue
        shape[table] = {
            "columns": [
                (c["name"], str(c["type"]), c["nullable"], c.get("default"), c.get("autoincrement"))
                for c in inspector.get_columns(table)
            ],
            "primary key": inspector.get_pk_constraint(table),
            "foreign keys": sorted(inspector.get_foreign_keys(table), key=repr),
            "unique": sorted(inspector.get_unique_constraints(table), key=repr),
            # What an index is limited to is told as an object of its own, equal to no other.
            "indexes": sorted(
                (
                    {**each, "dialect_options": {name: str(of) for name, of in each.get("dialect_options", {}).items()}}
                    for each in inspector.get_indexes(table)
                ),
                key=repr,
            ),
        }
    return shape


@pytest.mark.parametrize("kind", DATABASES)
class TestMigrations:
    def test_they_make_exactly_the_tables_of_the_code(
        self, request: pytest.FixtureRequest, empty_url: str, tmp_path: Path, kind: str
    ) -> None:
        """Catches a table, column, type, key or index that the code has and the migrations lack, or the other way
        round: by Alembic's own comparison, and by what the database tells of both.
        """
        _, migrated = make_engines(empty_url)
        assert pending(migrated)
        migrate(migrated)
        assert not pending(migrated)
        with migrated.connect() as connection:
            context = MigrationContext.configure(
                connection, opts={"compare_type": True, "compare_server_default": True}
            )
            assert compare_metadata(context, metadata) == []
        _, created = make_engines(make_database(kind, request, tmp_path))
        metadata.create_all(created)
        assert shape_of(migrated) == shape_of(created)
        assert len(shape_of(migrated)) == len(metadata.tables)
        migrated.dispose()
        created.dispose()

    def test_again_changes_nothing(self, empty_url: str, kind: str) -> None:
        _, engine = make_engines(empty_url)
        migrate(engine)
        before = shape_of(engine)
        store = SqlStore(engine, engine, exclusive=False)
        row = principal()
        put(store, row)
        migrate(engine)
        assert shape_of(engine) == before
        with store.read() as tx:
            assert tx.principal(row.name) == row
        store.close()

    @pytest.mark.slow
    def test_processes_that_migrate_at_once_take_turns(self, empty_url: str, kind: str) -> None:
        """Catches a second server that starts in the same second and fails on tables that are already there."""
        spawn = multiprocessing.get_context("spawn")
        barrier, results = spawn.Barrier(2), spawn.Queue()
        processes = [spawn.Process(target=migrate_when_told, args=(empty_url, barrier, results)) for _ in range(2)]
        for process in processes:
            process.start()
        assert [results.get(timeout=150) for _ in processes] == ["done", "done"]
        for process in processes:
            process.join()
        _, engine = make_engines(empty_url)
        assert not pending(engine)
        assert len(shape_of(engine)) == len(metadata.tables)
        engine.dispose()


def test_rows_have_the_columns_of_their_tables() -> None:
    """Catches a field of a row that the tables do not keep."""
    kept = {
        "principals": PrincipalRow,
        "console_logins": LoginRow,
        "datasets": DatasetRow,
        "sessions": SessionRow,
        "entries": EntryRow,
        "weights": WeightsRow,
        "idempotency": ReplyRow,
        "releases": ReleaseRow,
        "release_files": ReleaseFile,
    }
    for table, row in kept.items():
        # Which sessions sums stand for is the store's own matter.
        own = {"settled", "held", "held_pure"} if table == "sessions" else set()
        assert {f.name for f in fields(row)} == set(metadata.tables[table].columns.keys()) - own
    assert {f.name for f in fields(LedgerRow)} | {"id"} == set(metadata.tables["ledger"].columns.keys())
    assert {f.name for f in fields(EvidenceRow)} | {"id"} == set(metadata.tables["evidence"].columns.keys())


@pytest.mark.postgres
def test_locks_of_rows_hold_whatever_the_databases_isolation(postgres_url: str) -> None:
    """An operator's default is repeatable read. Catches a writer that does not see what was committed while it waited
    for a row, by which two sessions are admitted to one budget."""
    name = make_url(postgres_url).database
    admin = create_engine(make_url(postgres_url).set(drivername="postgresql+psycopg"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'"))
    admin.dispose()
    opened = open_store(postgres_url)
    try:
        for _ in range(2):  # connections are used again
            for begin, level in ((opened.read, "repeatable read"), (opened.write, "read committed")):
                with begin() as tx:
                    assert tx.connection.execute(text("SHOW transaction_isolation")).scalar_one() == level
    finally:
        opened.close()
