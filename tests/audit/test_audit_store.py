"""The table of audits, on each database: one at a time, and an end that is written once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.services.audit_ports import AuditRow
from app.services.ports import PrincipalRow
from app.storage.audit_store import SqlAudits
from app.storage.database import is_sqlite, make_engines
from app.storage.store import SqlStore
from tests.kit.databases import place_migrated

pytestmark = pytest.mark.integration


@pytest.fixture
def stores(tmp_path: Path, database: str | None) -> Iterator[Callable[[], SqlAudits]]:
    """Stores on one database, as several processes have them."""
    file = tmp_path / "curator.sqlite3"
    place_migrated(file)
    url = database or f"sqlite:///{file}"
    made: list[SqlStore] = []

    def make() -> SqlAudits:
        made.append(SqlStore(*make_engines(url), exclusive=is_sqlite(url)))
        return SqlAudits(made[-1])

    with make()._store.write() as tx:
        tx.add_principal(PrincipalRow("ada", "auditor", "k", "h", "2026-01-01T00:00:00Z"))
        tx.commit()
    yield make
    for store in made:
        store.close()


def row(id: str, at: str = "2026-01-01T00:00:00Z", key: str | None = None) -> AuditRow:
    return AuditRow(id, "ada", None, None, key, None if key is None else "b", "running", None, 5.0, b"{}", at)


def test_one_at_a_time(stores: Callable[[], SqlAudits]) -> None:
    """Catches a second one beside the first, whichever process asks, and a slot that its end does not free."""
    one, other = stores(), stores()
    assert one.add(row("a"))
    assert not other.add(row("b"))
    assert other.audit("b") is None
    going = other.under_way()
    assert going is not None
    assert going.id == "a"
    taken = other.take("w", 7.0)
    assert taken is not None
    assert (taken.id, taken.worker, taken.beat) == ("a", "w", 7.0)
    assert one.take("v", 7.0) is None
    ended = replace(taken, status="done", finished_at="2026-01-01T00:01:00Z", verdict="holds", result=b"{}")
    assert other.end(ended, {"text/html": b"page"})
    assert (one.report("a", "text/html"), one.report("a", "x")) == (b"page", None)
    assert not other.end(ended, {})
    assert one.under_way() is None
    assert one.add(row("b"))


def test_a_stop_is_never_overwritten(stores: Callable[[], SqlAudits]) -> None:
    """Catches a verdict of an audit that somebody was told is stopped, and of one that was taken for dead."""
    store = stores()
    store.add(row("a"))
    taken = store.take("w", 7.0)
    assert taken is not None
    assert store.beat(taken, b'{"n":1}', 8.0)
    store.halt("a", "bob", "2026-01-01T00:01:00Z")
    assert not store.beat(taken, b'{"n":2}', 9.0)
    assert not store.end(replace(taken, status="done", verdict="holds"), {"text/html": b"page"})
    assert not store.add(row("b"))
    assert store.end(replace(taken, status="stopped", finished_at="2026-01-01T00:02:00Z"), {})
    found = store.audit("a")
    assert found is not None
    assert (found.status, found.stopped_by, found.verdict) == ("stopped", "bob", None)
    assert store.report("a", "text/html") is None

    store.add(row("b"))
    second = store.take("v", 7.0)
    assert second is not None
    store.abandon(7.0, "2026-01-01T00:03:00Z", 7.0)
    assert store.beat(second, b"{}", 7.5)
    store.abandon(8.0, "2026-01-01T00:03:00Z")
    assert not store.beat(second, b"{}", 9.0)
    assert not store.end(replace(second, status="done", verdict="holds"), {})
    # Since the clock was set back its last sign of life is one to come.
    store.add(row("ahead"))
    third = store.take("v", 500.0)
    assert third is not None
    store.abandon(8.0, "2026-01-01T00:03:00Z", 100.0)
    assert not store.beat(third, b"{}", 101.0)
    # Nobody works on it yet: it is stopped at once.
    store.add(row("c"))
    store.halt("c", "bob", "2026-01-01T00:04:00Z")
    found = store.audit("c")
    assert found is not None
    assert (found.status, found.finished_at, store.take("w", 7.0)) == ("stopped", "2026-01-01T00:04:00Z", None)


def test_what_has_ended_is_forgotten(stores: Callable[[], SqlAudits]) -> None:
    """Catches an audit that goes on and is removed, one that is kept, and pages that leave some out."""
    store = stores()
    for number in range(4):
        at = f"2026-01-0{number + 1}T00:00:00Z"
        store.add(row(f"a{number}", at, f"k{number}"))
        taken = store.take(f"w{number}", 7.0)
        assert taken is not None
        if number < 3:
            store.end(replace(taken, status="done", finished_at=at, result=b"long"), {"text/html": b"page"})
    assert store.forget("a3", "") == 0
    kept = store.asked_by("ada", "k1")
    assert kept is not None
    assert (kept.id, store.asked_by("ada", "k9"), store.asked_by("bob", "k1")) == ("a1", None, None)
    # The same key again, once the first one is gone from sight: the newest counts.
    store.halt("a3", "bob", "2026-01-04T00:00:00Z")
    store.abandon(float("inf"), "2026-01-04T00:00:00Z")
    store.add(row("b1", "2026-01-05T00:00:00Z", "k1"))
    kept = store.asked_by("ada", "k1")
    assert kept is not None
    assert kept.id == "b1"
    rows, others = store.page(None, "2026-01-01T00:00:00Z", 2)
    assert ([each.id for each in rows], others, {each.result for each in rows}) == (["a1", "a2"], True, {None})
    rows, others = store.page(rows[-1], "2026-01-01T00:00:00Z", 2)
    assert ([each.id for each in rows], others) == (["a3", "b1"], False)
    assert store.forget(None, "2026-01-02T00:00:00Z") == 2
    assert store.forget("a2", "") == 1
    assert store.forget("b1", "") == 0
    assert [store.audit(id) is None for id in ("a0", "a1", "a2", "a3", "b1")] == [True, True, True, False, False]
    assert store.report("a2", "text/html") is None
