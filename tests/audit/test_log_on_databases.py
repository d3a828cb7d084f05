"""The log over each database: several processes that add to it, numbers that are committed out of order, and servers
that are killed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import cast

import numpy as np
import orjson
import pytest
from sqlalchemy import insert

from app.bootstrap import wiring
from app.http import problems
from app.services.cosignatures import Cosignatures
from app.services.log import Log
from app.services.log_keys import LogKeys
from app.services.log_ports import CosignatureRow, LogState, LogStore
from app.services.sequencer import Sequencer
from app.services.upkeep import forfeit
from app.storage import log_statements, log_store
from app.storage.database import is_sqlite, make_engines
from app.storage.log_signatures import SqlCosignatures
from app.storage.log_store import SqlLog
from app.storage.store import SqlStore
from app.storage.tables import events
from curator_client import Curator
from curator_client.log_folder import LogFolder
from curator_client.proofs.merkle import root
from curator_client.proofs.notes import Signer
from tests.audit.test_log import mth
from tests.audit.test_log_client import soon
from tests.kit.databases import place_migrated
from tests.kit.fetched import fetch
from tests.kit.patience import patience
from tests.kit.servers import Caller, launching
from tests.kit.world import ADMIN, AUDITOR, EACH, HIT, SHAPE, World, query

pytestmark = pytest.mark.integration


@pytest.fixture
def stores(database: str | None, tmp_path: Path) -> Iterator[Callable[[], SqlStore]]:
    """The same migrated database for as many processes as ask."""
    url = database or f"sqlite:///{tmp_path / 'log.sqlite3'}"
    if database is None:
        place_migrated(tmp_path / "log.sqlite3")
    made: list[SqlStore] = []

    def make() -> SqlStore:
        made.append(SqlStore(*make_engines(url), exclusive=is_sqlite(url)))
        return made[-1]

    yield make
    for store in made:
        store.close()


def tell(store: SqlStore, *lines: bytes) -> None:
    with store.write() as tx:
        for line in lines:
            tx.add_event(line)
        tx.commit()


def whole(log: LogStore) -> list[bytes]:
    """All lines of a log, whose tree is that of the definition."""
    size = log.state().size
    lines = log.lines(log.leaves(0, size))
    assert mth(lines) == root(size, log.hashes)
    return lines


def check_sizes(store: SqlStore, log: LogStore, id: str, lines: list[bytes]) -> None:
    """At every entry the size that covers a session is that up to the last of its lines."""
    with store.read() as tx:
        row = tx.session(id)
        assert row is not None
        last = lines.index(row.header)
        opening = [place for place, line in enumerate(lines) if b'"sequence":0,"session":"%b"' % id.encode() in line]
        assert log.covering(id, 0) == max(last, *opening, 0) + 1
        for sequence, line in tx.entry_lines(id, 0, row.sequence):
            assert log.covering(id, sequence) == lines.index(line) + 1
            measured = tx.evidence_of(id, sequence - 1, sequence)
            assert all(last < lines.index(record) < lines.index(line) for record in measured.values())


def test_several_processes_make_one_log(stores: Callable[[], SqlStore], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two add what two others write. Catches a line that is added twice, left out or out of order, and a tree that
    follows neither of them.
    """
    monkeypatch.setattr(log_store, "_PAUSE_SECONDS", 0.0005)
    monkeypatch.setattr("app.services.sequencer._LEAVES", 7)
    first = stores()
    writers = [first, stores() if not first.exclusive else first]
    logs = [SqlLog(first), SqlLog(stores() if not first.exclusive else first)]
    written = threading.Event()

    def write(number: int) -> None:
        for step in range(40):
            tell(writers[number], *(b"%d %d %d" % (number, step, line) for line in range(1 + step % 4)))

    def follow(log: SqlLog) -> None:
        sequencer = Sequencer(log)
        while not written.is_set():
            sequencer.step()

    at_work = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    following = [threading.Thread(target=follow, args=(log,)) for log in logs]
    for thread in (*at_work, *following):
        thread.start()
    for thread in at_work:
        thread.join(60)
    written.set()
    for thread in following:
        thread.join(60)
    while Sequencer(logs[0]).step():
        pass
    lines = whole(logs[1])
    assert len(lines) == len(set(lines)) == 2 * sum(1 + step % 4 for step in range(40))
    for number in range(2):
        own = [line for line in lines if line.startswith(b"%d " % number)]
        assert own == [b"%d %d %d" % (number, step, line) for step in range(40) for line in range(1 + step % 4)]


def test_all_kinds_of_lines_when_a_service_ends(worlds: Callable[..., World], database: str | None) -> None:
    """A session on evidence, one of a hypothesis and a forfeited budget, read when the service has just ended. Catches
    a kind of line that one of the databases has otherwise, and a stop that leaves to the next start what it need not.
    """
    world = worlds(database)
    ann = world.analyst("ann")
    world.register("d")
    evidence = world.open(ann, "d", mechanism={"construction": "evidence"}, epsilon=0.1, max_updates=None)
    hypothesis = world.open(ann, "d", epsilon=0.1)
    for id in (evidence, hypothesis):
        world.noise.script.append(HIT)
        world.ask(ann, id, query(1, 2))
        world.close(ann, id)
    transcripts = world.built.services.transcripts
    needed = [line.rstrip(b"\n") for id in (evidence, hypothesis) for line in [*transcripts.lines(AUDITOR, id)][:-1]]
    world.stop()
    store = wiring.build(world.built.context.limits).store
    try:
        forfeit(store, lambda: "2026-01-01T00:00:00Z", problems.document)
        log = SqlLog(store)
        before = whole(log)
        assert set(needed) <= set(before)
        for id in (evidence, hypothesis):
            check_sizes(store, log, id, before)
        assert [log.covering(id, sequence) for id, sequence in ((evidence, 2), ("0" * 32, 0))] == [None, None]
        assert b'"record":"measurement"' in b"".join(needed)
        while Sequencer(log).step():
            pass
        after = whole(log)
        assert after[: len(before)] == before
        told = [orjson.loads(line) for line in after[len(before) :]]
        assert [(each["record"], each.get("event", each.get("kind"))) for each in told] == [
            ("dataset", "retired"),
            ("principal", "revoked"),
            ("movement", "forfeit"),
        ]
    finally:
        store.close()


@pytest.mark.postgres
def test_a_number_that_is_committed_late(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row with a smaller number is committed after one with a larger. Catches a log that has gone past it, and one
    that waits for rows that were given up.
    """
    monkeypatch.setattr(log_store, "_WAIT_SECONDS", 0.05)
    store = SqlStore(*make_engines(postgres_url), exclusive=False)
    try:
        log = SqlLog(store)
        sequencer = Sequencer(log)
        tell(store, b"before")
        assert sequencer.step()
        with store.write() as early:
            early.add_event(b"early")
            tell(store, b"late")
            assert not sequencer.step()
            assert whole(log) == [b"before"]
            early.commit()
        assert sequencer.step()
        assert whole(log) == [b"before", b"early", b"late"]
        with store.write() as undone:
            undone.add_event(b"undone")
        tell(store, b"after")
        assert sequencer.step()
        assert whole(log) == [b"before", b"early", b"late", b"after"]
    finally:
        store.close()


@pytest.mark.postgres
def test_nobody_waits_for_one_who_hangs(postgres_url: str) -> None:
    """A process stands still in the midst of adding. Catches another one that waits for it, or adds the same."""
    store = SqlStore(*make_engines(postgres_url), exclusive=False)
    try:
        log = SqlLog(store)
        tell(store, b"one")
        assert Sequencer(log).step()
        tell(store, b"two")
        state = log.state()
        with store.write() as tx:
            assert tx.found(log_statements.FREE_STATE) == [(state.size, state.event, state.movement)]
            began = time.monotonic()
            assert not Sequencer(log).step()
            assert time.monotonic() - began < patience(5)
        assert Sequencer(log).step()
        assert not log.append(state, LogState(size=9), [], {}, [])
        assert whole(log) == [b"one", b"two"]
    finally:
        store.close()


def test_long_lines_are_read_a_few_at_a_time(stores: Callable[[], SqlStore], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a step that reads everything at once, and one that never takes a line beyond the bound."""
    monkeypatch.setattr("app.services.sequencer._BYTES", 10)
    store = stores()
    log = SqlLog(store)
    tell(store, b"a" * 6, b"b" * 6, b"c" * 60, b"d")
    sizes = []
    while Sequencer(log).step():
        sizes.append(log.state().size)
    assert sizes == [1, 2, 3, 4]
    assert whole(log) == [b"a" * 6, b"b" * 6, b"c" * 60, b"d"]


def test_many_leaves_and_a_reading_of_few(stores: Callable[[], SqlStore]) -> None:
    """Catches a tree that is kept wrongly beyond one step, at sizes around powers of two."""
    store = stores()
    log = SqlLog(store)
    lines = [b"%d" % number for number in range(1100)]
    with store.write() as tx:
        tx.connection.execute(insert(events), [{"line": line} for line in lines])
        tx.commit()
    while Sequencer(log).step():
        pass
    assert whole(log) == lines
    for size in (1, 2, 3, 255, 256, 257, 1023, 1024, 1025, 1099):
        assert root(size, log.hashes) == mth(lines[:size])


def test_a_checkpoint_is_signed_once_a_size(stores: Callable[[], SqlStore]) -> None:
    """Catches a signature for every reading, and a checkpoint that stays what it was when something has come."""
    signed: list[int] = []

    class Counting(Signer):
        def note(self, size: int, root: bytes) -> bytes:
            signed.append(size)
            return super().note(size, root)

    store = stores()
    sql_log = SqlLog(store)
    counting = Counting(bytes(32))

    class Keys:
        """One key; which of several signs is tried elsewhere."""

        verifier = counting.verifier

        def signer(self) -> Signer:
            return counting

    keys = cast("LogKeys", Keys())
    shown = Log(sql_log, keys, Cosignatures(SqlCosignatures(store), sql_log, keys))
    for size in range(3):
        notes = {shown.checkpoint() for _ in range(3)}
        assert [counting.verifier.checkpoint(note).size for note in notes] == [size]
        tell(store, b"line %d" % size)
        assert Sequencer(sql_log).step()
    assert signed == [0, 1, 2]


def test_the_last_that_each_witness_saw(worlds: Callable[..., World], database: str | None) -> None:
    """Catches an older cosignature, a witness who is told of twice or not at all, and more than were asked for."""
    world = worlds(database)
    names = [f"witness-{number}" for number in range(3)]
    for name in names:
        world.built.services.principals.add(ADMIN, name, "auditor")
    kept = SqlCosignatures(world.store)
    rows = [CosignatureRow(name, size, f"key of {name}", size, b"line") for name in names for size in (7, 30, 8)]
    for row in rows:
        assert kept.add(row, 32)
    assert kept.last_of_each(100) == [row for row in rows if row.size == 30]
    assert kept.last_of_each(2) == [row for row in rows if row.size == 30][:2]


def test_numbers_with_gaps_and_few_at_a_time(stores: Callable[[], SqlStore], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a run that names lines which are not there, a bound on a step that loses what is beyond it, and pages
    that begin or end within a run.
    """
    monkeypatch.setattr("app.services.sequencer._LEAVES", 10)
    store = stores()
    log = SqlLog(store)
    kept = [number for number in range(1, 60) if number % 7 and number % 11]
    with store.write() as tx:
        tx.connection.execute(insert(events), [{"id": number, "line": b"%d" % number} for number in kept])
        tx.commit()
    sizes = []
    while Sequencer(log).step():
        sizes.append(log.state().size)
    assert sizes == [*range(10, len(kept), 10), len(kept)]
    lines = whole(log)
    assert lines == [b"%d" % number for number in kept]
    for start in range(0, len(kept), 3):
        for end in range(start, len(kept) + 1, 5):
            assert log.lines(log.leaves(start, end)) == lines[start:end]
    assert sum(log.sizes(log.leaves(0, len(kept)))) == sum(map(len, lines))


def test_killed_servers_lose_nothing_and_add_nothing_twice(tmp_path: Path, database: str | None) -> None:
    """kill -9 at random moments while questions are answered. Catches an entry, a movement or an event that is in the
    records and not in the log, one that is there twice, and a log that does not begin with what was signed before.
    """
    random = Random(5)
    with launching(tmp_path / "data", database) as launcher:
        folder = LogFolder(tmp_path / "kept")
        id = auditor = ""
        for kill in range(2):
            server = launcher.start().wait_until_ready()
            caller = Caller(server.url)
            if kill == 0:
                assert caller.register("d", np.full(SHAPE, EACH)).status_code == 201
                auditor = caller.add("audit", "auditor")
                asked = {"dataset": "d", "mechanism": {"construction": "mw"}, "epsilon": 0.5, "max_queries": 500}
                id = caller.post("/v1/sessions", asked | {"max_updates": 50}).json()["id"]
            with Curator(server.url, auditor) as curator:
                fetch(folder, curator)
            end, number = time.monotonic() + random.uniform(0.5, 0.9), 0
            while time.monotonic() < end or number < 15:
                words = query(number % 4, *random.sample(range(8), 3))
                assert caller.post(f"/v1/sessions/{id}/queries", words).status_code == 200
                number += 1
            server.kill()
        server = launcher.start().wait_until_ready()
        caller = Caller(server.url, auditor)
        path = tmp_path / "transcript.ndjson"
        path.write_bytes(b"".join(line + b"\n" for line in caller.transcript(id)))
        with Curator(server.url, auditor) as curator:
            assert soon(lambda: fetch(folder, curator) and folder.verify(path))[1] > 20
        transcript = path.read_bytes().splitlines()[:-1]
        lines = (tmp_path / "kept" / "entries.ndjson").read_bytes().splitlines()
        assert len(set(lines)) == len(lines)
        assert [line for line in lines if b'"entry_hash"' in line] == transcript[1:]
        movements = [line for line in lines if b'"record":"movement"' in line]
        assert len(movements) == len(caller.pages("/v1/datasets/d/ledger", "entries")["entries"])
        assert len(lines) == len(transcript) + len(movements) + 3
        assert "Traceback" not in launcher.logs()
