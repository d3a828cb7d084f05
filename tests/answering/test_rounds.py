"""Nothing leaves before its commit, and no round is abandoned: what lanes do when commits fail, sessions move
under them, and errors come after the noise.

Noise is injected, so that a test knows how often it was drawn and what each draw decided; the database is real.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from app.constructions.multiplicative_weights import MultiplicativeWeights
from app.curator.errors import SessionClosed, UpdatesExhausted
from app.http.json_bodies import fingerprint
from app.services.answering import group, round
from app.services.answering.tickets import Ticket
from app.services.errors import PayloadTooLarge, Unavailable
from app.services.idempotency import IdempotencyKey
from app.services.ports import SessionRow, Transaction
from app.services.residents import Residents
from app.spaces.errors import InvalidQuery
from tests.kit.databases import migrated_database
from tests.kit.fixtures import on_embedded, unhurried
from tests.kit.service import unique
from tests.kit.world import (
    HIT,
    SHAPE,
    Lost,
    World,
    distinct_queries,
    eventually,
    make_world,
    open_session,
    query,
    sessions_of,
    wait,
)

pytestmark = pytest.mark.integration

#: A commit that fails, one that is in doubt, and one that is in doubt when it has failed more than once.
FAULTS = [["before"], ["after"], ["before", "before", "after"]]


def cuttable(faults: list[str], url: str | None) -> list[str]:
    """PostgreSQL itself ends the connection where the injected faults say that a commit fails."""
    return ["cut" if fault == "before" else fault for fault in faults] if url else faults


class TestFailedCommits:
    def test_the_same_outcome_is_tried_again(self, world: World, database: str | None) -> None:
        """Catches a round drawn afresh after a failed commit (a free second threshold test), one lost, one recorded
        or charged twice because the commit had happened after all.
        """
        for faults, draw in itertools.product(FAULTS, (0, -HIT)):
            world.register(name := unique("d"))
            drawn = world.noise.drawn
            ann = world.analyst("ann")
            id = world.open(ann, name)
            world.ask(ann, id, query(0))
            world.noise.script.append(draw)
            world.store.faults.extend(cuttable(faults, database))
            answer = world.ask(ann, id, query(1), key="k")
            assert world.noise.drawn - drawn == 2
            assert answer["source"] == ("measurement" if draw else "hypothesis")
            assert world.ask(ann, id, query(1), key="k") == answer
            entries = world.entries(id)
            assert [e["sequence"] for e in entries] == [1, 2]
            assert (entries[1]["value"], entries[1]["entry_hash"]) == (answer["value"], answer["entry_hash"])
            assert len(world.movements(name, id)) == (1 if draw else 0)
            # And the lane goes on from there.
            assert world.ask(ann, id, query(2))["sequence"] == 3
            world.audit()

    def test_a_batch_and_other_sessions_in_one_commit(self, world: World, database: str | None) -> None:
        """Catches a retry that keeps only a part of what one commit carried."""
        for faults in FAULTS:
            world.register(name := unique("d"))
            drawn = world.noise.drawn
            ann, bob = world.analyst("ann"), world.analyst("bob")
            ids = [world.open(who, name) for who in (ann, bob)]
            hold = Gate()
            world.noise.before = hold
            first = world.submit(ann, ids[0], query(0))
            hold.reached.wait(30)
            world.noise.before = lambda: None
            world.noise.script.extend([0, HIT, 0, -HIT, 0, HIT])
            tickets = [
                world.submit(ann, ids[0], query(1), query(2), {"type": "nonsense"}, key="b", kind="batch"),
                world.submit(bob, ids[1], query(1), key="q"),
                world.submit(bob, ids[1], query(2), key="r"),
                world.submit(bob, ids[1], query(2), key="r"),
            ]
            world.store.faults.extend([None, *cuttable(faults, database)])
            hold.open()
            wait(first)
            replies = [wait(ticket) for ticket in tickets]
            assert [a["sequence"] for a in replies[0]["answers"][:2]] == [2, 3]
            assert replies[0]["answers"][2]["type"] == "/problems/invalid-query"
            assert [r["sequence"] for r in replies[1:]] == [1, 2, 2]
            assert replies[2] == replies[3]
            assert world.noise.drawn - drawn == 5
            assert [len(world.entries(id)) for id in ids] == [3, 2]
            world.audit()

    def test_a_close(self, world: World, database: str | None) -> None:
        """Catches a reservation returned twice: closing moves no sequence number by which to tell that the commit
        had happened.
        """
        for faults in FAULTS:
            world.register(name := unique("d"))
            ann = world.analyst("ann")
            id = world.open(ann, name)
            world.noise.script.append(HIT)
            world.ask(ann, id, query(0))
            world.store.faults.extend(cuttable(faults, database))
            closed = world.close(ann, id, key="c")
            assert closed["status"] == "closed"
            assert world.close(ann, id, key="c") == closed
            with pytest.raises(SessionClosed):
                world.ask(ann, id, query(1))
            assert len(world.movements(name, id, "return")) == 1
            world.audit()

    def test_a_reply_that_moves_nothing(self, world: World, database: str | None) -> None:
        """Catches a lane that tries for ever to store a reply which is there: a batch whose every query is refused
        has no entry by which to tell.
        """
        for faults in FAULTS:
            world.register(name := unique("d"))
            ann = world.analyst("ann")
            id = world.open(ann, name)
            world.store.faults.extend(cuttable(faults, database))
            reply = wait(world.submit(ann, id, {"type": "nonsense"}, key="b", kind="batch"))
            assert [a["status"] for a in reply["answers"]] == [422]
            assert world.ask(ann, id, query(1))["sequence"] == 1
            world.audit()

    def test_a_close_and_a_round_in_one_commit(self, world: World, database: str | None) -> None:
        """Catches a check by the first session alone of whether a commit had happened."""
        for faults in FAULTS:
            world.register(name := unique("d"))
            drawn = world.noise.drawn
            ann = world.analyst("ann")
            ids = sorted(world.open(ann, name) for _ in range(3))
            hold = Gate()
            world.noise.before = hold
            first = world.submit(ann, ids[0], query(0))
            hold.reached.wait(30)
            world.noise.before = lambda: None
            world.noise.script.extend([0, HIT])
            world.store.faults.extend([None, *cuttable(faults, database)])
            tickets = [world.submit(ann, ids[1], kind="close"), world.submit(ann, ids[2], query(0), key="k")]
            hold.open()
            assert [wait(t)["sequence"] for t in [first, *tickets]] == [1, 0, 1]
            assert world.noise.drawn - drawn == 2
            world.audit()

    @pytest.mark.parametrize("fault", ["before", "after"])
    def test_an_opening(self, world: World, fault: str) -> None:
        """Catches a session opened, or a mass bought, a second time because its first commit was in doubt."""
        world.register("d", records_public=False)
        ann = world.analyst("ann")
        asked = {
            "dataset": "d",
            "mechanism": {"construction": "mw"},
            "epsilon": 0.5,
            "max_queries": 10,
            "max_updates": 2,
        }
        key = IdempotencyKey("ann", "/v1/sessions", "k", fingerprint(asked))
        services = world.built.services
        world.store.faults.append(fault)
        with pytest.raises(Lost):
            open_session(services, ann, asked, key)
        reply = open_session(services, ann, asked, key)
        assert open_session(services, ann, asked, key) == reply
        (only,) = sessions_of(world.built.services, ann)
        assert only == json.loads(reply)
        assert len(world.movements("d", only["id"], "purchase")) == 1
        assert world.noise.drawn == (1 if fault == "after" else 2)
        world.audit()

    def test_readiness_tells(self, world: World) -> None:
        """Catches a service that looks well while no answer can be stored."""
        world.register("d")
        ann = world.analyst("ann")
        id = world.open(ann, "d")
        with world.store.failing():
            ticket = world.submit(ann, id, query(0))
            eventually(lambda: world.built.context.lifecycle.ready())
        wait(ticket)
        assert world.built.context.lifecycle.ready() is None


@pytest.mark.postgres
@pytest.mark.parametrize("draw", [0, HIT])
def test_the_connection_breaks_between_the_noise_and_the_entry(
    worlds: Callable[..., World], postgres_url: str, draw: int
) -> None:
    """The database restarts in the middle of a round: the lock is gone, the outcome is not."""
    world = worlds(postgres_url)
    world.register("d")
    ann = world.analyst("ann")
    id = world.open(ann, "d")
    world.ask(ann, id, query(0))

    def cut_all() -> None:
        world.noise.before = lambda: None
        with world.store._writing.connect() as connection:
            connection.execute(
                text(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            )

    world.noise.script.append(draw)
    world.noise.before = cut_all
    answer = world.ask(ann, id, query(1), key="k")
    assert answer["source"] == ("measurement" if draw else "hypothesis")
    assert world.ask(ann, id, query(1), key="k") == answer
    assert world.noise.drawn == 2
    world.audit()


class Gate:
    """Stops the thread that comes first until it is opened."""

    def __init__(self) -> None:
        self.reached, self._open = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        assert self._open.wait(30)

    def open(self) -> None:
        self._open.set()


@pytest.mark.parametrize("asked", ["dense", "product"])
def test_what_cannot_be_recorded_is_not_asked(world: World, monkeypatch: pytest.MonkeyPatch, asked: str) -> None:
    """Dense weights, or the form of a query, that pass what databases take. Catches noise drawn for an outcome which
    is then tried for ever: its lane would answer nobody any more.
    """
    world.register("d")
    ann = world.analyst("ann")
    id = world.open(ann, "d")
    long = {
        "dense": {"type": "dense", "weights": np.linspace(-1, 1, 32).reshape(SHAPE).tolist()},
        "product": {"type": "product", "weights": {"b": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]}},
    }[asked]
    monkeypatch.setattr(round, "RECORD_BYTES", 105)
    with pytest.raises(PayloadTooLarge):
        world.ask(ann, id, long)
    reply = wait(world.submit(ann, id, long, query(0), kind="batch"))
    assert [answer.get("status", 200) for answer in reply["answers"]] == [413, 200]
    assert (world.noise.drawn, len(world.entries(id))) == (1, 1)
    world.audit()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, postgres_server: str) -> Iterator[tuple[World, World]]:
    folder = tmp_path_factory.mktemp("moved")
    with migrated_database(postgres_server) as url:
        first, second = make_world(folder, url), make_world(folder, url)
        yield first, second
        first.stop()
        second.stop()


@pytest.mark.postgres
class TestMovedByAnother:
    """Two services on one PostgreSQL: the session moves between a failed commit and its retry. Each test has a data set
    of its own.
    """

    @pytest.fixture
    def two(self, both: tuple[World, World], monkeypatch: pytest.MonkeyPatch) -> tuple[World, World]:
        unhurried(monkeypatch)
        for world in both:
            world.noise.script.clear()
            world.noise.drawn = 0
        return both

    @pytest.mark.parametrize("draw", [0, HIT])
    def test_the_outcome_is_forfeited_and_charged_as_a_hit(self, two: tuple[World, World], draw: int) -> None:
        """Catches an outcome recorded on a state it does not stand on, a fork, and a round given up for free."""
        first, second = two
        first.register(name := unique("d"))
        ann = first.analyst("ann")
        id = first.open(ann, name)
        first.ask(ann, id, query(0))
        first.noise.script.append(draw)
        first.store.faults.append("before")
        first.store.between = lambda: second.ask(ann, id, query(2))
        with pytest.raises(Unavailable):
            first.ask(ann, id, query(1), key="k")
        entries = first.entries(id)
        assert [(e["record"], e["sequence"]) for e in entries] == [("answer", 1), ("answer", 2), ("forfeit", 3)]
        assert [m["sequence"] for m in first.movements(name, id)] == [3]
        first.audit()
        # The key was freed with the outcome: the same request is a new round, on the state as it is now.
        again = first.ask(ann, id, query(1), key="k")
        assert (again["sequence"], first.noise.drawn) == (4, 3)
        assert second.ask(ann, id, query(1), key="k") == again
        first.audit()
        second.audit()

    def test_moved_once_more_before_the_forfeit_is_stored(self, two: tuple[World, World]) -> None:
        """Catches a charge that is forgotten when the first attempt to record it fails, too."""
        first, second = two
        first.register(name := unique("d"))
        ann = first.analyst("ann")
        id = first.open(ann, name)
        moves = [query(2), query(3)]

        def move() -> None:
            second.ask(ann, id, moves.pop(0))
            if moves:
                first.store.faults.append("before")
                first.store.between = move

        first.store.faults.append("before")
        first.store.between = move
        with pytest.raises(Unavailable):
            first.ask(ann, id, query(1))
        assert [e["record"] for e in first.entries(id)] == ["answer", "answer", "forfeit"]
        first.audit()

    @pytest.mark.parametrize("draw", [0, HIT])
    def test_the_database_goes_away_while_the_outcome_is_given_up(
        self, two: tuple[World, World], draw: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Catches work that is half rewritten when the database fails again: the next try would find nothing left to
        charge, and deliver an answer that is in no transcript.
        """
        first, second = two
        first.register(name := unique("d"))
        ann = first.analyst("ann")
        id = first.open(ann, name)
        first.noise.script.append(draw)
        first.store.faults.append("before")
        first.store.between = lambda: second.ask(ann, id, query(2))
        whole, failures = group.last_recorded, [Lost()]

        def last_recorded(tx: Transaction, row: SessionRow) -> str:
            if failures:
                raise failures.pop()
            return whole(tx, row)

        with monkeypatch.context() as patch:
            patch.setattr(group, "last_recorded", last_recorded)
            with pytest.raises(Unavailable):
                first.ask(ann, id, query(1), key="k")
        assert not failures
        assert [e["record"] for e in first.entries(id)] == ["answer", "forfeit"]
        first.audit()

    def test_a_batch_forfeits_every_round_it_had_played(self, two: tuple[World, World]) -> None:
        first, second = two
        first.register(name := unique("d"))
        ann = first.analyst("ann")
        id = first.open(ann, name)
        first.store.faults.append("before")
        first.store.between = lambda: second.ask(ann, id, query(2))
        asked = [query(0), query(1), query(1), {"type": "nonsense"}, query(3)]
        with pytest.raises(Unavailable):
            wait(first.submit(ann, id, *asked, kind="batch"))
        assert [e["record"] for e in first.entries(id)] == ["answer"] + ["forfeit"] * 3
        first.audit()

    @pytest.mark.parametrize("draw", [0, HIT])
    def test_no_refusal_tells_of_it(self, two: tuple[World, World], draw: int) -> None:
        """Catches a refusal that follows from the dropped outcome: after a hit the last update is used, after a miss
        it is not, and a second request of the same group would tell which it was.
        """
        first, second = two
        first.register(name := unique("d"))
        ann = first.analyst("ann")
        still, id = first.open(ann, name), first.open(ann, name, max_updates=1)
        hold = Gate()
        first.noise.before = hold
        blocker = first.submit(ann, still, query(0))
        hold.reached.wait(30)
        first.noise.before = lambda: None
        first.noise.script.extend([0, draw, 0])
        first.store.faults.extend([None, "before"])
        first.store.between = lambda: second.ask(ann, id, query(2))
        tickets = [first.submit(ann, id, query(n), key=f"k{n}") for n in (0, 1)]
        hold.open()
        wait(blocker)
        for ticket in tickets:
            with pytest.raises(Unavailable):
                wait(ticket)
        first.audit()

    def test_other_sessions_of_the_commit_keep_theirs(self, two: tuple[World, World]) -> None:
        first, second = two
        first.register(name := unique("d"))
        ann = first.analyst("ann")
        moved, still = first.open(ann, name), first.open(ann, name)
        hold = Gate()
        first.noise.before = hold
        blocker = first.submit(ann, still, query(0))
        hold.reached.wait(30)
        first.noise.before = lambda: None
        first.noise.script.extend([0, HIT, HIT])
        first.store.faults.extend([None, "before"])
        first.store.between = lambda: second.ask(ann, moved, query(2))
        tickets = [first.submit(ann, moved, query(1), key="m"), first.submit(ann, still, query(1), key="s")]
        hold.open()
        wait(blocker)
        with pytest.raises(Unavailable):
            wait(tickets[0])
        assert wait(tickets[1])["sequence"] == 2
        assert [e["record"] for e in first.entries(moved)] == ["answer", "forfeit"]
        assert first.noise.drawn == 3
        first.audit()

    @pytest.mark.parametrize("draw", [0, HIT])
    def test_a_commit_that_had_happened_is_not_forfeited(self, two: tuple[World, World], draw: int) -> None:
        """Catches a retry that looks at the session's head alone: another process has gone on from our entry, so
        the head is no longer ours, and the round was charged for nothing a second time.
        """
        first, second = two
        first.register(name := unique("d"))
        ann = first.analyst("ann")
        id = first.open(ann, name)
        first.noise.script.append(draw)
        first.store.faults.append("after")
        first.store.between = lambda: second.ask(ann, id, query(2))
        answer = first.ask(ann, id, query(1), key="k")
        assert [e["record"] for e in first.entries(id)] == ["answer", "answer"]
        assert answer["sequence"] == 1
        assert first.ask(ann, id, query(3))["sequence"] == 3
        first.audit()

    @pytest.mark.parametrize("fault", ["before", "after"])
    def test_the_same_answer_of_another_is_not_ours(
        self, two: tuple[World, World], monkeypatch: pytest.MonkeyPatch, fault: str
    ) -> None:
        """The client was impatient and another process answered the same question, in the same second: its entry is
        ours to the last byte. Catches a retry that takes it for our own, and with it a draw that is told and not paid
        for, and answers of others in the same turn that nobody stores; and one that no longer knows its own entry.
        """
        first, second = two
        first.register(name := unique("d"))
        ann = first.analyst("ann")
        id, other = sorted(first.open(ann, name) for _ in range(2))
        for world in two:
            monkeypatch.setattr(world.answering.context, "clock", lambda: "2100-01-01T00:00:00Z")
        hold = Gate()
        first.noise.before = hold
        started = first.submit(ann, first.open(ann, name), query(0))
        hold.reached.wait(30)
        first.noise.before = lambda: None
        # The first commit is of what holds the lane, the next one of what came together meanwhile.
        first.store.faults.extend([None, fault])
        if fault == "before":
            first.store.between = lambda: second.ask(ann, id, query(1))
        tickets = [first.submit(ann, id, query(1)), first.submit(ann, other, query(2))]
        hold.open()
        wait(started)
        if fault == "after":
            assert [wait(ticket)["sequence"] for ticket in tickets] == [1, 1]
            records = ["answer"]
        else:
            with pytest.raises(Unavailable):
                wait(tickets[0])
            assert wait(tickets[1])["sequence"] == 1
            records = ["answer", "forfeit"]
        assert [entry["record"] for entry in first.entries(id)] == records
        assert [entry["record"] for entry in first.entries(other)] == ["answer"]
        first.audit()

    def test_closed_by_another_it_stays_closed(self, two: tuple[World, World]) -> None:
        """Catches a retry that writes its own row over a close: the session would be open again and hold what had
        been returned, which others may have reserved since.
        """
        first, second = two
        first.register(name := unique("d"))
        ann = first.analyst("ann")
        id = first.open(ann, name, epsilon=1.0)
        first.noise.script.append(HIT)
        first.store.faults.append("before")

        def close_and_take() -> None:
            second.close(ann, id)
            second.open(ann, name, epsilon=1.0)

        first.store.between = close_and_take
        with pytest.raises(Unavailable):
            first.ask(ann, id, query(1))
        assert first.built.services.sessions.get(ann, id)["status"] == "closed"
        first.audit()
        with pytest.raises(SessionClosed):
            first.ask(ann, id, query(1))

    def test_a_close_that_another_did_first(self, two: tuple[World, World]) -> None:
        """Catches a reservation returned by both."""
        first, second = two
        first.register(name := unique("d"))
        ann = first.analyst("ann")
        id = first.open(ann, name)
        first.store.faults.append("before")
        first.store.between = lambda: second.close(ann, id)
        with pytest.raises((Unavailable, SessionClosed)):
            first.close(ann, id)
        assert len(first.movements(name, id, "return")) == 1
        first.audit()

    def test_its_key_was_answered_by_another(self, two: tuple[World, World]) -> None:
        """Catches a lane that tries for ever to store a second reply under a key: the client was impatient and
        another process has answered it. Nothing but the reply tells, as refused queries move no session.
        """
        first, second = two
        first.register(name := unique("d"))
        ann = first.analyst("ann")
        id = first.open(ann, name)
        bad = {"type": "nonsense"}
        first.store.faults.append("before")
        first.store.between = lambda: wait(second.submit(ann, id, bad, key="b", kind="batch"))
        with pytest.raises(Unavailable):
            wait(first.submit(ann, id, bad, key="b", kind="batch"))
        assert wait(first.submit(ann, id, bad, key="b", kind="batch")) == wait(
            second.submit(ann, id, bad, key="b", kind="batch")
        )
        first.audit()

    def test_nothing_is_left_to_charge(self, two: tuple[World, World]) -> None:
        """Catches a forfeit beyond the last update, which would pass the share and no replay accepts."""
        first, second = two
        first.register(name := unique("d"))
        ann = first.analyst("ann")
        id = first.open(ann, name, max_updates=1)
        second.noise.script.append(HIT)
        first.store.faults.append("before")
        first.store.between = lambda: second.ask(ann, id, query(2))
        with pytest.raises(Unavailable):
            first.ask(ann, id, query(1))
        first.audit()
        with pytest.raises(UpdatesExhausted):
            first.ask(ann, id, query(1))

    @pytest.mark.parametrize("since", ["nothing", "another answer"])
    def test_a_database_that_went_back(self, two: tuple[World, World], since: str) -> None:
        """A standby takes over that lacks the last answer, beside running servers; one of them that has not seen it
        may go on from there. Catches an entry that follows from none that is stored, noise drawn for it, and a
        reservation returned that was charged.
        """
        first, second = two
        first.register(name := unique("d"))
        ann = first.analyst("ann")
        id = first.open(ann, name)
        first.ask(ann, id, query(0))
        with first.store.read() as tx:
            before = tx.session(id)
        assert before is not None
        first.noise.script.append(HIT)
        first.ask(ann, id, query(1))
        with first.store.write() as tx:
            tx.connection.execute(text("DELETE FROM entries WHERE sequence = 2 AND session = :id"), {"id": id})
            tx.connection.execute(text("DELETE FROM ledger WHERE kind = 'charge' AND session = :id"), {"id": id})
            tx.move_sessions([before])
            tx.commit()
        if since == "another answer":
            second.ask(ann, id, query(2))
        drawn = first.noise.drawn
        with pytest.raises(Unavailable, match="lacks"):
            first.ask(ann, id, query(3))
        with pytest.raises(Unavailable, match="lacks"):
            first.close(ann, id)
        assert first.noise.drawn == drawn
        first.audit()

    def test_a_worker_that_is_behind_catches_up(self, two: tuple[World, World]) -> None:
        """Catches an answer from a stale hypothesis, which no replay would accept."""
        first = two[0]
        first.register(name := unique("d"))
        ann = first.analyst("ann")
        id = first.open(ann, name)
        questions = distinct_queries()
        for turn in range(12):
            asking = two[turn % 2]
            asking.noise.script.append((0, HIT, 0, -HIT)[turn % 4] if turn < 10 else 0)
            assert asking.ask(ann, id, next(questions))["sequence"] == turn + 1
        first.audit()

    def test_a_catch_up_that_fails_half_way(self, two: tuple[World, World], monkeypatch: pytest.MonkeyPatch) -> None:
        """Catches a state in memory that counts an entry whose update it never made: its next answers would follow
        from no transcript.
        """
        first, second = two
        first.register(name := unique("d"))
        ann = first.analyst("ann")
        id = first.open(ann, name)
        first.ask(ann, id, query(0))
        second.noise.script.append(HIT)
        second.ask(ann, id, query(1))
        with monkeypatch.context() as patch:
            patch.setattr(MultiplicativeWeights, "update", failing(MemoryError))
            with pytest.raises(Unavailable):
                first.ask(ann, id, query(1, 1, 2))
        assert first.ask(ann, id, query(1, 1, 2))["sequence"] == 3
        first.audit()


def failing(error: type[BaseException] | BaseException) -> Callable[..., Any]:
    def fail(*_: Any) -> None:
        raise error

    return fail


class TestErrorsAfterTheNoise:
    """An error between the noise and the entry must cost what a hit costs, or errors are free threshold tests."""

    def test_in_the_update(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """The update runs on hits alone: if its failure cost nothing, it would tell hit from miss for free. A
        refusal of the protocol raised here is no refusal.
        """
        errors = RuntimeError("private?"), MemoryError(), InvalidQuery("raised too late"), Unavailable("too late")
        for error in errors:
            world.register(name := unique("d"))
            ann = world.analyst("ann")
            id = world.open(ann, name)
            world.noise.script.append(HIT)
            with monkeypatch.context() as patch:
                patch.setattr(MultiplicativeWeights, "update", failing(error))
                with pytest.raises(Unavailable):
                    world.ask(ann, id, query(1), key="k")
            self.charged(world, ann, name, id)

    def test_in_the_noise_itself(self, world: World) -> None:
        for kind in ("ask", "batch"):
            world.register(name := unique("d"))
            ann = world.analyst("ann")
            id = world.open(ann, name)
            world.noise.before = failing(RuntimeError("the generator failed"))
            with pytest.raises(Unavailable):
                wait(world.submit(ann, id, query(1), kind=kind, key="k"))
            world.noise.before = lambda: None
            self.charged(world, ann, name, id)

    def test_in_a_batch(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """Catches a batch that turns the error of one begun round into a problem in its place and goes on."""
        for error in (RuntimeError("private?"), InvalidQuery("raised too late")):
            world.register(name := unique("d"))
            ann = world.analyst("ann")
            id = world.open(ann, name)
            world.noise.script.extend([0, HIT])
            with monkeypatch.context() as patch:
                patch.setattr(MultiplicativeWeights, "update", failing(error))
                with pytest.raises(Unavailable):
                    wait(world.submit(ann, id, query(0), query(1), query(2), kind="batch"))
            # Both rounds that had begun, the miss of the first query included: its answer has not left.
            assert [e["record"] for e in world.entries(id)] == ["forfeit", "forfeit"]
            world.audit()

    def test_while_the_database_is_away(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """Catches a charge that is tried once and then forgotten: an analyst would ask while the database fails."""
        world.register("d")
        ann = world.analyst("ann")
        id = world.open(ann, "d")
        if not world.store.exclusive:
            world.store.refuse = 0
        world.noise.script.append(HIT)

        def fail(*_: Any) -> None:
            world.store.refuse = 3
            raise RuntimeError

        with monkeypatch.context() as patch:
            patch.setattr(MultiplicativeWeights, "update", fail)
            with pytest.raises(Unavailable):
                world.ask(ann, id, query(1), key="k")
        assert world.store.refuse == 0
        self.charged(world, ann, "d", id)

    def test_while_commits_fail(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """Catches a forfeit charged twice because its own commit was in doubt."""
        for faults in (["before"], ["after"], ["before", "after"]):
            world.register(name := unique("d"))
            ann = world.analyst("ann")
            id = world.open(ann, name)
            world.noise.script.append(HIT)
            world.store.faults.extend(faults)
            with monkeypatch.context() as patch:
                patch.setattr(MultiplicativeWeights, "update", failing(RuntimeError()))
                with pytest.raises(Unavailable):
                    world.ask(ann, id, query(1), key="k")
            self.charged(world, ann, name, id)

    def test_in_another_request_of_the_group(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """Catches rounds of innocent sessions in the same group that are dropped without a charge."""
        world.register("d")
        ann = world.analyst("ann")
        ids = [world.open(ann, "d") for _ in range(3)]
        hold = Gate()
        world.noise.before = hold
        first = world.submit(ann, ids[0], query(0))
        hold.reached.wait(30)
        world.noise.before = lambda: None
        world.noise.script.extend([0, 0, HIT])
        tickets = [world.submit(ann, ids[1], query(0)), world.submit(ann, ids[2], query(1))]
        with monkeypatch.context() as patch:
            patch.setattr(MultiplicativeWeights, "update", failing(RuntimeError()))
            hold.open()
            wait(first)
            for ticket in tickets:
                with pytest.raises(Unavailable):
                    wait(ticket)
        assert [[e["record"] for e in world.entries(id)] for id in ids] == [["answer"], ["forfeit"], ["forfeit"]]
        world.audit()

    @staticmethod
    def charged(world: World, ann: Any, dataset: str, id: str) -> None:
        assert [(e["record"], e["sequence"]) for e in world.entries(id)] == [("forfeit", 1)]
        assert [m["sequence"] for m in world.movements(dataset, id)] == [1]
        world.audit()
        # The key was freed; the session goes on, at the price of the update.
        answer = world.ask(ann, id, query(1), key="k")
        assert (answer["sequence"], answer["updates_left"]) == (2, 9)
        world.audit()


class TestRefusalsBeforeTheNoise:
    def test_leave_no_trace(self, world: World) -> None:
        """Catches a refusal that draws noise, counts, or is stored under its key."""
        world.register("d")
        ann = world.analyst("ann")
        id = world.open(ann, "d", max_queries=2)

        def state() -> dict[str, Any]:
            """Without how far the log has come with it, which goes on by itself."""
            return {
                name: part for name, part in world.built.services.sessions.get(ann, id).items() if name != "log_size"
            }

        before = state()
        for bad in ({"type": "nonsense"}, {"type": "predicate", "where": {"a": {"equals": SHAPE[0]}}}):
            with pytest.raises(InvalidQuery):
                world.ask(ann, id, bad, key="k")
        assert world.noise.drawn == 0
        assert state() == before
        assert world.ask(ann, id, query(0), key="k")["sequence"] == 1
        world.audit()


class TestMemory:
    def test_an_error_between_two_turns_ends_no_lane(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """Memory runs out while a session's snapshot is made, after its answer has left. Catches a lane that ends:
        nobody of its sessions would ever be answered again.
        """
        world.register("d")
        ann = world.analyst("ann")
        id = world.open(ann, "d")
        with monkeypatch.context() as patch:
            patch.setattr(Residents, "checkpoint", failing(MemoryError()))
            assert world.ask(ann, id, query(0))["sequence"] == 1
            assert world.ask(ann, id, query(1))["sequence"] == 2
        assert world.ask(ann, id, query(2))["sequence"] == 3
        world.audit()

    def test_a_session_is_not_dropped_while_its_answers_are_unwritten(
        self, worlds: Callable[..., World], database: str | None
    ) -> None:
        """Catches a lane that, short of memory, forgets a session in the middle of a group and restores it from a
        database that does not have the group's answers yet: the lost update would leave counters, cache and
        hypothesis behind the transcript.

        Eight universes of 1.6 MB in a lane of 5.6 MB; each session is asked twice in one group, so that the second
        question comes when others have taken its place. The last one is in memory when the group begins and is
        forgotten just before its turn comes.
        """
        world = worlds(database, memory_limit=16 * 1024**2)
        shape = (200, 1000)
        world.register(
            "d",
            np.ones(shape, np.int64),
            attributes=[{"name": "a", "size": shape[0]}, {"name": "b", "size": shape[1]}],
        )
        ann = world.analyst("ann")
        ids = [world.open(ann, "d", epsilon=0.1) for _ in range(8)]
        hold = Gate()
        world.noise.before = hold
        first = world.submit(ann, ids[-1], query(0, 1))
        hold.reached.wait(30)
        world.noise.before = lambda: None
        world.noise.script.extend([0] + [HIT] * 8)
        order = [*ids[:3], ids[-1], *ids[3:-1]]
        tickets = [world.submit(ann, id, query(1, 1)) for id in order * 2]
        hold.open()
        wait(first)
        sources = [wait(ticket)["source"] for ticket in tickets]
        assert sources == ["measurement"] * 8 + ["cached"] * 8
        world.audit()


class TestTurns:
    @on_embedded
    def test_one_analyst_cannot_starve_another(self, world: World) -> None:
        """Catches a lane that serves first come, first served: whoever sends batch after batch would have it alone."""
        world.register("d")
        ann, ben = world.analyst("ann"), world.analyst("ben")
        hers, his = world.open(ann, "d"), world.open(ben, "d")
        queries = list(distinct_queries())
        entered, go = threading.Event(), threading.Event()

        def gate() -> None:
            entered.set()
            assert go.wait(30)

        world.noise.before = gate
        first = world.submit(ann, hers, queries[0])
        assert entered.wait(30)
        done: list[str] = []

        class Mark:
            def __init__(self, name: str) -> None:
                self._name = name

            def set(self) -> None:
                done.append(self._name)

        for start in range(1, 801, 100):
            batch = Ticket("batch", hers, "ann", queries[start : start + 100] * 4, None, Mark("ann"))
            world.answering.submit(ann, batch)
        world.answering.submit(ben, Ticket("ask", his, "ben", queries[:1], None, Mark("ben")))
        world.noise.before = lambda: None
        go.set()
        wait(first)
        eventually(lambda: len(done) == 9)
        assert done.index("ben") <= 1
        world.audit()


def test_an_update_with_a_schatten_norm_keeps_nobody_waiting(worlds: Callable[..., World]) -> None:
    """Few updates over a large matrix. Catches a session counted by less than it holds, whose decompositions of seconds
    would come in the lane that everybody shares.
    """
    world = worlds(None, memory_limit=2 << 30)
    side = 1500
    attributes = [{"name": name, "size": side} for name in "ab"]
    world.register("wide", np.ones((side, side), np.int64), attributes=attributes)
    world.register("d")
    ann = world.analyst("ann")
    mechanism = {"construction": "md", "potential": "schatten", "ball_p": "none"}
    heavy = world.open(ann, "wide", mechanism=mechanism, max_updates=3, max_queries=100, epsilon=0.5)
    assert world.answering.route(ann, heavy)[1] != world.answering.route(ann, world.open(ann, "d"))[1] == 0
