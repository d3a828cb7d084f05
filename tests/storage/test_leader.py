"""Which of several processes on one database looks often, and that nothing hangs on it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import text

from app.services import sequencer as sequencers
from app.services.log_ports import LogState
from app.services.sequencer import Sequencer
from app.storage import database
from app.storage.database import OVERFLOW, POOL, Leader, make_engines
from app.storage.log_store import SqlLog
from app.storage.store import SqlStore
from tests.kit.patience import patience
from tests.kit.world import eventually

pytestmark = [pytest.mark.integration, pytest.mark.postgres]


@pytest.fixture
def processes(postgres_url: str) -> Iterator[Callable[[], tuple[SqlStore, Leader]]]:
    """The store and the leader of as many processes as ask."""
    made: list[SqlStore] = []

    def make() -> tuple[SqlStore, Leader]:
        reading, writing = make_engines(postgres_url)
        made.append(SqlStore(reading, writing, exclusive=False))
        return made[-1], Leader(writing)

    yield make
    for store in made:
        store.close()


def leads_now(leader: Leader) -> bool:
    """Whether it leads when it asks again, without the wait until it would."""
    leader._asked = -1e9
    return leader.pause(0.5) == 0.5


def test_one_leads(processes: Callable[[], tuple[SqlStore, Leader]]) -> None:
    """Catches two that look often, one that gives the lead up by asking again, and one whose end nobody follows."""
    (first, leader), (_, other), (_, third) = processes(), processes(), processes()
    assert leader.pause(0.5) == 0.5
    assert [each.pause(0.5) for each in (other, third)] == [database.FOLLOWING_SECONDS] * 2
    assert [leads_now(each) for each in (leader, other, third)] == [True, False, False]
    first.close()
    eventually(lambda: leads_now(other), 20)
    assert not leads_now(third)
    assert third.pause(9.0) == 9.0


def test_a_lost_connection(processes: Callable[[], tuple[SqlStore, Leader]]) -> None:
    """The database ends the leader's connection. Catches one that goes on leading without the lock, and one that never
    asks again.
    """
    (store, leader), (_, other) = processes(), processes()
    assert leader.pause(0.5) == 0.5
    with store.write() as tx:
        # Other tests' databases of the same server have leaders of their own.
        ended = (
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = :key "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        assert tx.connection.execute(text(ended), {"key": database._LEADING}).scalar_one()
    eventually(lambda: leads_now(other), 20)
    assert [leads_now(leader), leads_now(leader)] == [False, False]


def test_a_leader_that_stands_still(
    processes: Callable[[], tuple[SqlStore, Leader]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the lock and adds nothing, as a stopped process does. Catches a log that stands still with it."""
    monkeypatch.setattr(database, "FOLLOWING_SECONDS", 0.2)
    (_, leader), (store, other) = processes(), processes()
    assert leader.pause(0.1) == 0.1
    assert other.pause(0.1) == 0.2
    log = SqlLog(store)
    following = Sequencer(log, other.pause)
    following.start()
    try:
        with store.write() as tx:
            tx.add_event(b"one")
            tx.commit()
        eventually(lambda: log.state() == LogState(size=1, event=1), 20)
    finally:
        following.stop()


def test_who_follows_looks_less_often(
    processes: Callable[[], tuple[SqlStore, Leader]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nothing is to be done. Catches processes that all look as often as the leader."""
    monkeypatch.setattr(database, "FOLLOWING_SECONDS", 60.0)
    monkeypatch.setattr(sequencers, "SECONDS", 0.01)
    looked = [0, 0]
    ended = threading.Event()

    class Counted(Sequencer):
        def __init__(self, number: int, store: SqlStore, leader: Leader) -> None:
            super().__init__(SqlLog(store), leader.pause)
            self._number = number

        def step(self) -> bool:
            if not ended.is_set():
                looked[self._number] += 1
            return super().step()

    made = [processes(), processes()]
    made[0][1].pause(1.0)
    running = [Counted(number, *each) for number, each in enumerate(made)]
    for each in running:
        each.start()
    eventually(lambda: looked[0] >= 5, 20)
    ended.set()
    for each in running:
        each.stop()
    assert looked[1] == 0


def test_connections_are_bounded(processes: Callable[[], tuple[SqlStore, Leader]]) -> None:
    """A rush of readers, and a leader beside them. Catches a process that keeps more connections than it says in
    docs/operations/postgresql.md, or opens more.
    """
    store, leader = processes()
    leader.pause(1.0)
    most, together = [0], threading.Barrier(POOL + OVERFLOW)

    def read() -> None:
        with store.read() as tx:
            together.wait(patience(20))
            open_now = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            most[0] = max(most[0], int(tx.connection.execute(text(open_now)).scalar_one()))
            together.wait(patience(20))

    readers = [threading.Thread(target=read) for _ in range(POOL + OVERFLOW)]
    for each in readers:
        each.start()
    for each in readers:
        each.join()
    assert most[0] == POOL + OVERFLOW + 1
    with store.read() as tx:
        kept = tx.connection.engine.pool
        assert kept.checkedin() + kept.checkedout() == POOL  # type: ignore[attr-defined]
