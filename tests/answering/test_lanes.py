"""The rules of answering (:mod:`app.services.answering`), each by its number: lanes over stores in memory, driven step
by step in the test's own thread.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.audit.replay import replay
from app.curator.errors import SessionClosed
from app.services.answering import group as groups
from app.services.answering.aside import Aside
from app.services.answering.dispatch import Answering
from app.services.answering.group import Groups
from app.services.answering.lane import Lane
from app.services.answering.parked import Parked
from app.services.answering.tickets import LONG_BATCH, Deferred, Ticket, TicketQueue
from app.services.answering.work import LaneContext, Work
from app.services.ballast import Ballast
from app.services.datasets import Datasets
from app.services.dummy_datasets import DummyDatasets
from app.services.errors import QueueFull, Unavailable
from app.services.idempotency import IdempotencyKey
from app.services.memory import Memory
from app.services.plans import Plans
from app.services.ports import PrincipalRow
from app.services.principals import Principal
from app.services.registration import Registration
from app.services.residents import Residents
from app.services.session_opening import SessionOpener
from app.services.sessions import Sessions
from app.services.tracing import UNTRACED
from app.services.transcripts import Transcripts
from app.spaces.errors import InvalidQuery
from tests.kit.memory_private_store import MemoryPrivateStore
from tests.kit.memory_store import MemoryDatabase, MemoryStore, MemoryTransaction
from tests.kit.noise import Noise

pytestmark = pytest.mark.unit

NOW = "2026-01-01T00:00:00Z"
ADMIN, AUDITOR = Principal("admin", "admin"), Principal("audit", "auditor")
ANN, BOB = Principal("ann", "analyst"), Principal("bob", "analyst")
#: 4 cells of 100 records each: the uniform hypothesis is the truth, so noise alone decides a round.
SPEC = {
    "name": "d",
    "kind": "table",
    "attributes": [{"name": "a", "size": 4}],
    "records_public": True,
    "budget": {"epsilon": 1.0, "delta": 1e-6},
}
#: A multiple of the noise's scale that passes every threshold of the plans used here: a certain hit.
HIT = 10_000


def query(*values: int) -> dict[str, Any]:
    return {"type": "predicate", "where": {"a": {"in": list(values)}}}


class Lost(Exception):
    """A commit after which nobody knows whether it happened."""


class FailingStore(MemoryStore):
    """A store whose commits fail as ``faults`` says, one word each: "before" it happens, or "after". ``committing`` is
    called ahead of each commit, ``retrying`` ahead of the first transaction after a fault.
    """

    def __init__(self, database: MemoryDatabase, *, exclusive: bool) -> None:
        super().__init__(database, exclusive=exclusive)
        self.faults: deque[str] = deque()
        self.commits = 0
        self.committing: Callable[[], None] = lambda: None
        self.retrying: Callable[[], None] | None = None

    @contextmanager
    def write(self) -> Iterator[MemoryTransaction]:
        if self.retrying is not None and self.commits and not self.faults:
            retrying, self.retrying = self.retrying, None
            retrying()
        with super().write() as tx:
            commit = tx.commit

            def failing() -> None:
                self.committing()
                self.commits += 1
                fault = self.faults.popleft() if self.faults else None
                if fault != "before":
                    commit()
                if fault is not None:
                    raise Lost

            tx.commit = failing  # type: ignore[method-assign]
            yield tx


class NoSnapshots:
    """Nothing is kept."""

    def write(self, session: str, snapshot: Any) -> None: ...
    def read(self, session: str) -> None: ...
    def remove(self, session: str) -> None: ...
    def sessions(self) -> list[str]:
        return []


class Told:
    """What was counted."""

    def __init__(self) -> None:
        self.sources: list[str] = []

    def late_source(self) -> None:
        pass

    def tallied(self, outcome: str) -> None:
        pass

    def answered(self, source: str, number: int) -> None:
        self.sources += [source] * number

    def group(self, size: int, seconds: float) -> None: ...
    def commit_failed(self) -> None: ...
    def not_converged(self, what: str, number: int) -> None: ...


class Process:
    """A process of the service over a database that it may share with others, without threads.

    Attributes:
        done: the requests that have their reply or error, in the order in which they were told.
        now: what the clock of deferred requests shows.
    """

    def __init__(self, database: MemoryDatabase, private: MemoryPrivateStore, *, exclusive: bool) -> None:
        self.store, self.private, self.noise = FailingStore(database, exclusive=exclusive), private, Noise()
        self.done: list[Ticket] = []
        self.now = 0.0
        snapshots = NoSnapshots()
        self.datasets = Datasets(self.store)
        self.registration = Registration(self.store, private, lambda: NOW)
        dummies = DummyDatasets(self.store, private, lambda: NOW, self.datasets, close_session=lambda id, seconds: None)
        plans = Plans(self.datasets, memory_limit=1 << 30, release_seconds=900.0, render=lambda error: {})
        self.opener = SessionOpener(self.store, private, self.noise, lambda: NOW, self.datasets, dummies, plans)
        self.sessions = Sessions(self.store, log_size=lambda *_: None)
        self.transcripts = Transcripts(self.store, self.sessions, log_size=lambda *_: None)
        self.context = LaneContext(
            self.store,
            private,
            self.noise,
            snapshots,
            lambda: NOW,
            Told(),
            render=lambda error: {"refused": type(error).__name__},
            deliver=self.done.extend,
            leave=lambda tickets: None,
            refill=lambda block: None,
            aside=Aside(),
            parked=Parked(1, 0.01, Told()),
            tracer=UNTRACED,
        )
        self.context.aside.start()
        self.lane = Lane(self.context, "lane", Memory(1 << 28))
        self.waiting, self.deferred = TicketQueue(), Deferred(lambda: self.now)
        self.residents = Residents(private, self.noise, snapshots, Memory(1 << 28), "lane", lambda: None)
        self.groups = Groups(
            self.context, self.residents, self.waiting, self.deferred, lambda work: () if work is None else work.base
        )

    def open(self, who: Principal, **asked: Any) -> str:
        body = {"dataset": "d", "mechanism": {"construction": "mw"}, "epsilon": 0.2, "max_queries": 200} | asked
        opening = self.opener.prepare(who, {"max_updates": 5, **body}, None)
        assert not isinstance(opening, bytes)
        return str(json.loads(self.opener.open(who, opening, None))["id"])

    def run(self, *tickets: Ticket) -> None:
        """The lane answers all that is sent together, and what arrives meanwhile, until nothing waits."""
        self.lane.inbox.put(list(tickets))
        self.lane.inbox.put(None)
        self.lane.run()
        self.lane = Lane(self.context, "lane", Memory(1 << 28))

    def turn(self, *tickets: Ticket) -> list[Ticket]:
        """One group is answered; those of it that are done."""
        group = list(tickets)
        for _ in self.groups.answer(group, Work(NOW)):
            raise AssertionError("a long batch")
        return group

    def entries(self, id: str) -> list[dict[str, Any]]:
        """The entries of a transcript, which replays."""
        lines = list(self.transcripts.lines(AUDITOR, id))
        verdict = replay(lines)
        assert verdict.ok, verdict
        return [json.loads(line) for line in lines[1:-1]]

    def charges(self, id: str) -> int:
        _, page = self.datasets.ledger(AUDITOR, "d", 0, 1000)
        return sum(item["session"] == id and item["kind"] == "charge" for item in page.items)

    def leaves_no_trace(self, id: str) -> None:
        assert self.noise.drawn == 0
        assert (self.entries(id), self.charges(id)) == ([], 0)
        assert self.sessions.get(ANN, id)["queries_asked"] == 0


def ask(who: Principal, id: str, *queries: Any, key: str | None = None) -> Ticket:
    """A request; of more queries than one a batch."""
    named = None if key is None else IdempotencyKey(who.name, f"/v1/sessions/{id}/queries", key, "h")
    return Ticket("ask" if len(queries) == 1 else "batch", id, who.name, queries, named)


def reply(ticket: Ticket) -> Any:
    """What a request was told."""
    if ticket.error is not None:
        raise ticket.error
    assert ticket.reply is not None
    return json.loads(ticket.reply)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], Process]:
    """make(exclusive): a process over this test's one database, with a data set; the first one registers it."""
    monkeypatch.setattr(groups, "RETRY_SECONDS", (0.0,))
    monkeypatch.setattr(groups, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(groups, "SLICE_SECONDS", 60.0)
    database, private = MemoryDatabase(), MemoryPrivateStore()

    def start(exclusive: bool) -> Process:
        process = Process(database, private, exclusive=exclusive)
        if not database.tables.datasets:
            with process.store.write() as tx:
                for number, who in enumerate((ANN, BOB)):
                    tx.add_principal(PrincipalRow(who.name, who.role, str(number), "", NOW))
                tx.commit()
            np.save(tmp_path / "counts.npy", np.full(4, 100))
            process.registration.register(ADMIN, SPEC, "counts.npy", tmp_path / "counts.npy")
        process.store.commits = 0
        return process

    return start


@pytest.fixture(params=[True, False], ids=["one process", "several"])
def process(request: pytest.FixtureRequest, make: Callable[[bool], Process]) -> Process:
    """A process that writes alone, and one that may not be the only one."""
    return make(request.param)


class TestBeforeTheNoise:
    """Rule 1."""

    def test_a_private_file_that_is_gone(self, process: Process) -> None:
        id = process.open(ANN)
        kept = dict(process.private.files)
        process.private.files.clear()
        asked = ask(ANN, id, query(0))
        process.run(asked)
        assert isinstance(asked.error, Unavailable)
        process.leaves_no_trace(id)
        process.private.files |= kept
        again = ask(ANN, id, query(0))
        process.run(again)
        assert reply(again)["sequence"] == 1

    def test_a_file_that_goes_between_two_turns(self, process: Process) -> None:
        """Its numbers are in memory. Catches a look at the file that is made only when they are read."""
        id = process.open(ANN)
        process.run(ask(ANN, id, query(0)))
        process.private.files.clear()
        asked = ask(ANN, id, query(1))
        process.run(asked)
        assert isinstance(asked.error, Unavailable)
        assert process.noise.drawn == 1

    def test_memory_that_cannot_be_had(self, process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
        """Catches memory that is asked for when the outcome is known: who sees the request fail knows it too."""

        def refuse(ballast: Ballast, nbytes: int) -> None:
            raise Unavailable("there is no memory: nothing was asked")

        id = process.open(ANN)
        monkeypatch.setattr(Ballast, "hold", refuse)
        asked = ask(ANN, id, query(0))
        process.run(asked)
        assert isinstance(asked.error, Unavailable)
        process.leaves_no_trace(id)

    def test_a_query_that_is_none(self, process: Process) -> None:
        id = process.open(ANN)
        asked = ask(ANN, id, query(7))
        process.run(asked)
        assert isinstance(asked.error, InvalidQuery)
        process.leaves_no_trace(id)

    def test_a_refusal_within_a_batch_stands_in_its_place(self, process: Process) -> None:
        id = process.open(ANN)
        asked = ask(ANN, id, query(0), query(7), query(1))
        process.run(asked)
        first, refused, last = reply(asked)["answers"]
        assert (first["sequence"], last["sequence"]) == (1, 2)
        assert refused == {"refused": "InvalidQuery"}
        assert process.noise.drawn == len(process.entries(id)) == 2

    def test_a_closed_session(self, process: Process) -> None:
        id = process.open(ANN)
        closing, asked = Ticket("close", id, "ann"), ask(ANN, id, query(0))
        process.run(closing, asked)
        assert reply(closing)["status"] == "closed"
        assert isinstance(asked.error, SessionClosed)
        process.leaves_no_trace(id)

    def test_a_full_queue(self, process: Process) -> None:
        """Lanes that do not run. Catches a queue that grows, and a service's own closing that is turned away."""
        sent: list[Any] = []
        context = process.context
        answering = Answering(
            context.store,
            context.private,
            context.noise,
            context.snapshots,
            context.clock,
            context.meter,
            render=context.render,
            deliver=sent.append,
            soon=lambda call: call(),
            queue_limit=2,
            memory=Memory(1 << 28),
            turn_seconds=0.0,
            parked=context.parked,
        )
        id, other = process.open(ANN), process.open(ANN)
        for _ in range(2):
            answering.submit(ANN, ask(ANN, id, query(0)))
        with pytest.raises(QueueFull):
            answering.submit(ANN, ask(ANN, id, query(0)))
        answering.submit(ANN, ask(ANN, other, query(0)))
        with pytest.raises(Unavailable, match="turn to close"):
            answering.close_now(id)
        assert (answering.waiting, sent) == (4, [])
        process.leaves_no_trace(id)


class TestAfterTheNoise:
    """Rule 2."""

    @pytest.mark.parametrize("faults", [["before"], ["before"] * 4, ["after"], ["before", "after"]])
    @pytest.mark.parametrize("draw", [0, HIT])
    def test_a_failed_commit_is_tried_again_with_the_same_outcome(
        self, process: Process, faults: list[str], draw: float
    ) -> None:
        """Whether it happened or not. Catches noise that is drawn anew, of which an analyst would get the better; a
        round that is recorded, or charged, twice; and one that is lost.
        """
        id = process.open(ANN)
        asked = ask(ANN, id, query(0), key="k")
        process.store.faults.extend(faults)
        process.noise.script.append(draw)
        process.run(asked)
        assert process.noise.drawn == 1
        (entry,) = process.entries(id)
        assert entry["entry_hash"] == reply(asked)["entry_hash"]
        assert entry["source"] == ("measurement" if draw else "hypothesis")
        assert process.charges(id) == bool(draw)
        again = ask(ANN, id, query(0), key="k")
        process.run(again)
        assert again.reply == asked.reply
        assert len(process.entries(id)) == 1

    def test_the_lane_answers_nothing_meanwhile(self, process: Process) -> None:
        """What arrives while a commit fails waits. Catches an answer that stands on one which is not durable, or one
        that is told before it is.
        """
        id = process.open(ANN)
        first, second = ask(ANN, id, query(0)), ask(ANN, id, query(1))
        seen: list[tuple[int, int]] = []

        def committing() -> None:
            if not seen:
                process.lane.inbox.put([second])
            seen.append((process.noise.drawn, len(process.done)))

        process.store.faults.extend(["before"] * 3)
        process.store.committing = committing
        process.run(first)
        assert seen == [(1, 0)] * 4 + [(2, 1)]
        assert process.done == [first, second]
        assert [reply(ticket)["sequence"] for ticket in (first, second)] == [1, 2]

    def test_requests_of_a_moment_share_a_commit(self, process: Process) -> None:
        """Each is its own record all the same."""
        id, other = process.open(ANN), process.open(BOB)
        process.store.commits = 0
        process.run(ask(ANN, id, query(0)), ask(BOB, other, query(0)), ask(ANN, id, query(1)))
        assert process.store.commits == 1
        assert [len(process.entries(each)) for each in (id, other)] == [2, 1]

    def test_an_error_after_the_noise_is_charged(self, process: Process) -> None:
        """A bug, not a refusal. Catches a round that was begun and leaves nothing: its end may tell of the data."""
        id = process.open(ANN)

        def fail() -> None:
            raise ZeroDivisionError

        process.noise.before = fail
        asked = ask(ANN, id, query(0))
        process.run(asked)
        assert isinstance(asked.error, Unavailable)
        assert [entry["record"] for entry in process.entries(id)] == ["forfeit"]
        assert process.charges(id) == 1


class TestAnotherProcess:
    """Rules 3 and 4: two processes over one database."""

    @pytest.fixture
    def two(self, make: Callable[[bool], Process]) -> tuple[Process, Process]:
        return make(False), make(False)

    @pytest.mark.parametrize("draw", [0, HIT])
    def test_an_outcome_that_no_longer_stands_is_a_forfeit(self, two: tuple[Process, Process], draw: float) -> None:
        """The connection is lost before the commit, and with it the row; the other process answers first. Catches a
        chain that forks, an outcome that is told though it is not recorded, and one that is dropped free of charge.
        """
        mine, theirs = two
        id = mine.open(ANN)
        first, between = ask(ANN, id, query(0), key="k"), ask(ANN, id, query(1))
        mine.noise.script.append(draw)
        mine.store.commits = 0
        mine.store.faults.append("before")
        mine.store.retrying = lambda: theirs.run(between)
        mine.run(first)
        assert isinstance(first.error, Unavailable)
        assert reply(between)["sequence"] == 1
        answered, forfeit = mine.entries(id)
        assert (answered["source"], forfeit["record"]) == ("hypothesis", "forfeit")
        assert mine.charges(id) == 1
        again = ask(ANN, id, query(0), key="k")
        mine.run(again)
        assert reply(again)["sequence"] == 3, "the key is free"

    def test_a_session_closed_in_between_is_charged_no_more(self, two: tuple[Process, Process]) -> None:
        """Its budget has gone back: there is nothing left to charge."""
        mine, theirs = two
        id = mine.open(ANN)
        first, closing = ask(ANN, id, query(0)), Ticket("close", id, "ann")
        mine.store.commits = 0
        mine.store.faults.append("before")
        mine.store.retrying = lambda: theirs.run(closing)
        mine.run(first)
        assert isinstance(first.error, Unavailable)
        assert (mine.entries(id), mine.charges(id)) == ([], 0)

    def test_the_row_is_held_from_before_the_noise(self, two: tuple[Process, Process]) -> None:
        """Catches a lock that is taken for the commit alone: two processes would draw for one state."""
        mine, theirs = two
        id = mine.open(ANN)
        held: list[Any] = []

        def look() -> None:
            with theirs.store.write() as tx:
                held.append(tx.lock_sessions([id], {}, 0))

        mine.noise.before = mine.store.committing = look
        mine.run(ask(ANN, id, query(0)))
        look()
        assert held[:-1] == [{}, {}]
        assert held[-1][id].sequence == 1

    def test_a_lane_that_is_behind_catches_up_first(self, two: tuple[Process, Process]) -> None:
        """Catches an answer from a state of yesterday: one that was given elsewhere is not known, a hypothesis has not
        learnt, and the chain forks.
        """
        mine, theirs = two
        id = mine.open(ANN)
        for number, (process, value) in enumerate([(mine, 0), (theirs, 1), (mine, 2), (theirs, 3)], start=1):
            process.noise.script.append(HIT if value % 2 else 0)
            asked = ask(ANN, id, query(value))
            process.turn(asked)
            assert (reply(asked)["sequence"], reply(asked)["updates_used"]) == (number, number // 2)
        for value in range(4):
            known = ask(ANN, id, query(value))
            mine.turn(known)
            assert reply(known)["source"] == "cached"
        assert len(mine.entries(id)) == 8

    def test_a_row_that_is_kept_delays_nobody_else(self, two: tuple[Process, Process]) -> None:
        """What asks for it is deferred, all of it, and tried again when it is time. Catches a lane that waits, a
        request that is refused or lost, and two of a session that change places.
        """
        mine, theirs = two
        kept, free = mine.open(ANN), mine.open(BOB)
        first, second, other = ask(ANN, kept, query(0)), ask(ANN, kept, query(1)), ask(BOB, free, query(0))
        with theirs.store.write() as tx:
            tx.lock_sessions([kept])
            assert mine.turn(first, second, other) == [other]
            assert reply(other)["sequence"] == 1
            assert mine.noise.drawn == 1
            assert kept in mine.deferred
            assert mine.deferred.try_again() == []
            mine.now += 1
            (tried,) = mine.deferred.try_again()
            assert tried is first
            assert mine.turn(tried) == []
        mine.now += 10
        assert mine.turn(*mine.deferred.try_again()) == [first]
        assert not mine.deferred
        assert mine.turn(*mine.waiting.next_group()) == [second]
        assert [reply(ticket)["sequence"] for ticket in (first, second)] == [1, 2]
        assert mine.done == [other, first, second]

    def test_what_is_deferred_at_the_end_is_refused(self, two: tuple[Process, Process]) -> None:
        """Catches a client that waits for a process which has ended."""
        mine, theirs = two
        id = mine.open(ANN)
        asked = ask(ANN, id, query(0))
        with theirs.store.write() as tx:
            tx.lock_sessions([id])
            mine.run(asked)
        assert isinstance(asked.error, Unavailable)
        assert mine.done == [asked]
        mine.leaves_no_trace(id)


class TestGathering:
    """What a lane waits for."""

    def test_a_moment_that_is_over_as_the_wait_begins(self, make: Callable[[bool], Process]) -> None:
        """Somebody else was answered in the last turn and may come back. Catches a wait for that which never ends:
        the request that is there would be answered when another one comes, and perhaps never.
        """
        lane = make(True).lane
        turns = []

        def gather() -> None:
            for turn in range(30_000):
                lane.inbox.put([ask(ANN, "s", query(0))])
                lane._expected, lane._until = 2, time.perf_counter() + turn % 25 * 2e-7
                turns.append(len(lane._gather()))

        waiting = threading.Thread(target=gather, daemon=True)
        waiting.start()
        waiting.join(30)
        assert turns == [1] * 30_000


class TestLongBatches:
    """Rule 5."""

    @pytest.fixture(autouse=True)
    def _slices(self, make: Callable[[bool], Process], monkeypatch: pytest.MonkeyPatch) -> None:
        """A slice is a query."""
        monkeypatch.setattr(groups, "SLICE_SECONDS", -1.0)

    @staticmethod
    def arriving(process: Process, after: int, *tickets: Ticket) -> None:
        """Have requests arrive while so much noise has been drawn."""

        def arrive() -> None:
            if process.noise.drawn == after:
                process.lane.inbox.put(list(tickets))

        process.noise.before = arrive

    def test_others_have_their_turn_within_it(self, process: Process) -> None:
        """Catches a lane that is kept for a whole batch, answers of a batch that are told or durable one by one, and a
        second request of its session that comes between.
        """
        id, other = process.open(ANN), process.open(BOB)
        batch = ask(ANN, id, *[query(number % 4) for number in range(LONG_BATCH + 1)])
        short, behind = ask(BOB, other, query(0)), ask(ANN, id, query(0, 1))
        self.arriving(process, 2, behind, short)
        process.store.commits = 0
        seen: list[int] = []
        process.store.committing = lambda: seen.append(len(process.store.database.tables.entries))
        process.run(batch)
        assert process.done == [short, batch, behind]
        assert seen == [0, 1, LONG_BATCH + 2], "the short one, the batch as a whole, and what waited for it"
        assert [answer["sequence"] for answer in reply(batch)["answers"]] == [*range(1, LONG_BATCH + 2)]
        assert reply(behind)["sequence"] == LONG_BATCH + 2
        assert len(process.entries(id)) == LONG_BATCH + 2

    def test_a_batch_that_fails_midway_is_charged_for_what_was_begun(self, process: Process) -> None:
        """Catches rounds of a batch that cost nothing as it never came to its end."""
        id = process.open(ANN)

        def fail() -> None:
            if process.noise.drawn == 3:
                raise ZeroDivisionError

        process.noise.before = fail
        batch = ask(ANN, id, *[query(number % 4) for number in range(LONG_BATCH + 1)])
        process.run(batch)
        assert isinstance(batch.error, Unavailable)
        assert [entry["record"] for entry in process.entries(id)] == ["forfeit"] * 4
        assert process.charges(id) == 4
