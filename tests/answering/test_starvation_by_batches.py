"""One analyst's long batches would keep everybody else of the lane waiting, and free answers would fill the disk.

A batch is one commit, so it was played in one go: 10,000 questions that cost nothing took seconds, in which the lane
served nobody else, and could be sent again at once.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from app.curator import session as sessions
from app.curator.errors import QueriesExhausted
from app.services.answering import group
from app.services.answering.tickets import LONG_BATCH, Ticket
from tests.answering.test_held_rows import held
from tests.kit.world import HIT, World, distinct_queries, eventually, query, wait

pytestmark = pytest.mark.adversarial

LONG = LONG_BATCH + 6


class Marks:
    """Notes in which order requests come to their end."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def ticket(self, world: World, who: Any, id: str, name: str, *queries: Any, kind: str = "batch") -> Ticket:
        done = self.done

        class Mark:
            def set(self) -> None:
                done.append(name)

        ticket = Ticket(kind, id, who.name, queries, None, Mark())  # type: ignore[arg-type]
        world.answering.submit(who, ticket)
        return ticket


@pytest.fixture
def gate(world: World) -> Callable[[], None]:
    """Holds the lane at the next noise, until it is called: all that is sent meanwhile waits together."""
    entered, go = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        assert go.wait(30)

    def release() -> None:
        world.noise.before = lambda: None
        go.set()

    world.noise.before = hold
    release.entered = entered  # type: ignore[attr-defined]
    return release


@pytest.fixture
def slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every query is a slice: how fast the machine is decides nothing."""
    monkeypatch.setattr(group, "SLICE_SECONDS", -1.0)


def test_others_have_their_turn_within_a_batch(world: World, gate: Any, slices: None) -> None:
    """Catches a batch played in one go, one whose session is asked meanwhile by requests that come later, and one that
    is committed in parts."""
    world.register("d")
    ann, ben = world.analyst("ann"), world.analyst("ben")
    hers, his = world.open(ann, "d"), world.open(ben, "d")
    blocker = world.submit(ann, hers, query(3, 1, 2))
    assert gate.entered.wait(30)
    marks = Marks()
    asked = list(itertools.islice(distinct_queries(), LONG))
    world.noise.script.extend([0, HIT])  # the blocker's, and the batch's first
    batch = marks.ticket(world, ann, hers, "batch", *asked)
    marks.ticket(world, ann, hers, "behind", asked[0], kind="ask")
    for number in range(3):
        marks.ticket(world, ben, his, f"ben {number}", query(number), kind="ask")
    gate()
    wait(blocker)
    eventually(lambda: len(marks.done) == 5)
    assert marks.done[-2:] == ["batch", "behind"]
    assert sorted(marks.done[:3]) == ["ben 0", "ben 1", "ben 2"]
    assert batch.reply is not None
    entries = world.entries(hers)
    assert [e["source"] for e in entries[1:3]] == ["measurement", "hypothesis"]
    assert len(entries) == LONG + 2
    world.audit()


def test_a_batch_is_all_or_nothing_although_others_are_answered_meanwhile(
    world: World, gate: Any, slices: None
) -> None:
    """A commit that fails, after others' commits have gone well within the batch. Catches answers of a batch that are
    recorded before its end, and others' that are lost with it."""
    world.register("d")
    ann, ben = world.analyst("ann"), world.analyst("ben")
    hers, his = world.open(ann, "d"), world.open(ben, "d")
    blocker = world.submit(ann, hers, query(3, 1, 2))
    assert gate.entered.wait(30)
    marks, stood = Marks(), []
    asked = list(itertools.islice(distinct_queries(), LONG))
    marks.ticket(world, ann, hers, "batch", *asked)
    marks.ticket(world, ben, his, "ben", query(0), kind="ask")
    world.store.committed = lambda: stood.append((len(world.entries(hers)), len(world.entries(his))))
    gate()
    wait(blocker)
    eventually(lambda: len(marks.done) == 2)
    assert stood == [(1, 0), (1, 1), (1 + LONG, 1)]
    world.audit()


def test_long_batches_share_a_lane(world: World, gate: Any, slices: None) -> None:
    """Catches one principal's batches, however many, in the way of another's one; and one principal with several under
    way."""
    world.register("d")
    ann, ben = world.analyst("ann"), world.analyst("ben")
    hers, his = [world.open(ann, "d", epsilon=0.1) for _ in range(3)], world.open(ben, "d")
    blocker = world.submit(ann, hers[0], query(3, 1, 2))
    assert gate.entered.wait(30)
    marks = Marks()
    asked = list(itertools.islice(distinct_queries(), LONG))
    for id in hers:
        marks.ticket(world, ann, id, "ann", *asked)
    marks.ticket(world, ben, his, "ben", *asked)
    gate()
    wait(blocker)
    eventually(lambda: len(marks.done) == 4)
    assert marks.done.index("ben") <= 1
    world.audit()


def test_closing_waits_for_the_batch(world: World, gate: Any, slices: None) -> None:
    """Catches a session that is closed in the midst of a batch, which could then not be recorded."""
    world.register("d")
    ann = world.analyst("ann")
    id = world.open(ann, "d")
    blocker = world.submit(ann, id, query(3, 1, 2))
    assert gate.entered.wait(30)
    marks = Marks()
    batch = marks.ticket(world, ann, id, "batch", *itertools.islice(distinct_queries(), LONG))
    marks.ticket(world, ann, id, "close", kind="close")
    gate()
    wait(blocker)
    eventually(lambda: len(marks.done) == 2)
    assert (marks.done, batch.error) == (["batch", "close"], None)
    world.audit()


@pytest.mark.postgres
def test_a_long_batch_that_was_put_aside_goes_alone(
    worlds: Callable[..., World], postgres_url: str, slices: None
) -> None:
    """Another process held the rows of several sessions; their requests are tried again together. Catches a group that
    pauses with requests of others in it."""
    world = worlds(postgres_url)
    world.register("d")
    ann, ben = world.analyst("ann"), world.analyst("ben")
    ids = [world.open(who, "d", epsilon=0.1) for who in (ann, ben, ann)]
    for who, id in zip((ann, ben, ann), ids, strict=True):
        world.ask(who, id, query(3, 1, 2))
    marks, asked, commits = Marks(), list(itertools.islice(distinct_queries(), LONG)), []
    world.store.committed = lambda: commits.append(len(marks.done))
    with held(postgres_url, *ids):
        marks.ticket(world, ann, ids[0], "first", *asked)
        marks.ticket(world, ben, ids[1], "second", *asked)
        marks.ticket(world, ann, ids[2], "single", query(2), kind="ask")
        time.sleep(0.3)  # they are put aside, and tried again
        assert marks.done == []
    eventually(lambda: len(marks.done) == 3)
    assert commits == [0, 1, 2]
    world.audit()


def test_a_stop_finishes_the_batch(worlds: Callable[..., World], slices: None) -> None:
    """Catches a lane that ends between two slices: rounds that were played would be in no record."""
    world = worlds(None)
    world.register("d")
    ann = world.analyst("ann")
    id = world.open(ann, "d")
    batch = world.submit(ann, id, *itertools.islice(distinct_queries(), LONG), kind="batch")
    world.stop()
    assert batch.reply is not None


def test_unverified_answers_come_to_an_end(worlds: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches free answers without end, each of which is a row for ever, and a count of them that a restart forgets."""
    monkeypatch.setattr(sessions, "UNVERIFIED", 30)
    world = worlds(None)
    world.register("d")
    ann = world.analyst("ann")
    id = world.open(ann, "d", max_queries=20)
    free = {**query(0), "unverified": True}
    replies = wait(world.submit(ann, id, *[free] * 20, kind="batch"))["answers"]
    assert [reply["unverified_left"] for reply in replies] == list(range(29, 9, -1))
    world.stop()
    again = worlds(None)
    replies = wait(again.submit(ann, id, *[free] * 15, kind="batch"))["answers"]
    assert ["sequence" in reply for reply in replies] == [True] * 10 + [False] * 5
    assert replies[-1]["type"] == "/problems/queries-exhausted"
    with pytest.raises(QueriesExhausted):
        again.ask(ann, id, free)
    assert again.ask(ann, id, query(0))["queries_left"] == 19
    again.audit()
