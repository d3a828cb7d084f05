"""Log-ins as rows: when they end, how many there are, and whose they are."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

import pytest

from app.services.errors import NotFound
from app.services.logins import IDLE, LASTS, MOST, LoggedOut, Logins
from app.services.principals import Principal, Principals
from tests.kit.memory_store import MemoryStore

pytestmark = pytest.mark.unit

ADMIN = Principal("admin", "admin")
BEGIN = datetime.fromisoformat("2026-03-01T10:00:00+00:00")


class Clock:
    """The time as a test has it."""

    def __init__(self) -> None:
        self.now = BEGIN

    def __call__(self) -> str:
        return self.now.strftime("%Y-%m-%dT%H:%M:%SZ")

    def wait(self, span: timedelta) -> None:
        self.now += span


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def logins(store: MemoryStore, clock: Clock) -> Logins:
    return Logins(store, clock)


@pytest.fixture
def ann(store: MemoryStore, clock: Clock) -> tuple[Principal, str]:
    """An analyst and her key."""
    added = Principals(store, clock).add(ADMIN, "ann", "analyst")
    return Principal("ann", "analyst"), added["api_key"]


def test_a_secret_is_its_principals(logins: Logins, ann: tuple[Principal, str]) -> None:
    """Catches a log-in of somebody else, one of nobody, and two log-ins with one secret or one token."""
    secrets = [logins.begin(*ann, "10.0.0.1") for _ in range(2)]
    found = [logins.find(secret) for secret in secrets]
    assert [each.principal for each in found] == [ann[0]] * 2
    assert len({each.id for each in found} | {each.form_token for each in found} | {*secrets}) == 6
    for other in ("", "x" * 43, secrets[0][:-1], found[0].id, found[0].form_token, "\udcff"):
        with pytest.raises(LoggedOut):
            logins.find(other)


def test_it_ends_by_the_clock(logins: Logins, clock: Clock, ann: tuple[Principal, str]) -> None:
    """Catches a log-in that outlasts its time because it is used, and one that ends although it is."""
    secret = logins.begin(*ann, "")
    while clock.now + IDLE - timedelta(seconds=1) < BEGIN + LASTS:
        clock.wait(IDLE - timedelta(seconds=1))
        logins.find(secret)
    clock.now = BEGIN + LASTS
    logins.find(secret)
    clock.wait(timedelta(seconds=1))
    with pytest.raises(LoggedOut):
        logins.find(secret)
    assert logins.list(ann[0]) == []


def test_it_ends_without_use(logins: Logins, clock: Clock, ann: tuple[Principal, str]) -> None:
    """Catches an hour that is counted from the beginning, or from a use that was not written down."""
    secret = logins.begin(*ann, "")
    clock.wait(timedelta(minutes=50))
    logins.find(secret)
    clock.wait(timedelta(minutes=59))
    logins.find(secret)
    clock.wait(IDLE + timedelta(minutes=1, seconds=1))
    with pytest.raises(LoggedOut):
        logins.find(secret)


def test_a_new_one_ends_the_oldest(logins: Logins, clock: Clock, ann: tuple[Principal, str]) -> None:
    """Catches rows that grow without bounds."""
    secrets = []
    for _ in range(MOST + 1):
        secrets.append(logins.begin(*ann, ""))
        clock.wait(timedelta(seconds=1))
    assert len(logins.list(ann[0])) == MOST
    with pytest.raises(LoggedOut):
        logins.find(secrets[0])
    logins.find(secrets[1])


def test_what_is_over_goes(store: MemoryStore, logins: Logins, clock: Clock, ann: tuple[Principal, str]) -> None:
    """Catches rows of log-ins that ended long ago, and the removal of one that has not."""
    logins.begin(*ann, "")
    clock.wait(timedelta(minutes=30))
    kept = logins.begin(*ann, "")
    clock.wait(timedelta(minutes=45))
    logins.remove_old(threading.Event())
    with store.read() as tx:
        assert len(tx.logins("ann")) == 1
    logins.find(kept)


def test_one_ends_his_own_alone(store: MemoryStore, logins: Logins, clock: Clock, ann: tuple[Principal, str]) -> None:
    """Catches a log-in that somebody else ends by its name, and one that stays when all are ended."""
    bob_key = Principals(store, clock).add(ADMIN, "bob", "auditor")["api_key"]
    bob = Principal("bob", "auditor")
    hers, his = logins.begin(*ann, ""), logins.begin(bob, bob_key, "")
    for id in (logins.find(his).id, "x", "0" * 64, "ä" * 64):
        with pytest.raises(NotFound):
            logins.end(ann[0], id)
    logins.end_all(ann[0])
    with pytest.raises(LoggedOut):
        logins.find(hers)
    assert logins.find(his).principal == bob
    logins.end(bob, logins.find(his).id)
    with pytest.raises(LoggedOut):
        logins.find(his)
