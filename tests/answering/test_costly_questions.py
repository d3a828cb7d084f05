"""Questions that take seconds each, asked one at a time or in batches that were too short to be cut, kept everybody
else of the lane waiting; so did what clients had left that hung up.

Which questions these are is told from their words: here every predicate on two attributes, so that nothing depends on
how fast the machine is. The first of them is held at its noise, as one that takes for ever.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.bootstrap import lifecycle
from app.services.answering import aside, costs, group
from app.services.answering.tickets import LONG_BATCH
from app.services.errors import Unavailable
from app.services.principals import Principal
from tests.kit.fixtures import on_embedded
from tests.kit.world import HIT, World, distinct_queries, eventually, query, wait

pytestmark = pytest.mark.adversarial

CHEAP: dict[str, Any] = {"type": "predicate", "where": {"a": 0}}


@pytest.fixture(autouse=True)
def costly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two attributes are many."""
    monkeypatch.setattr(costs, "CELLS", 12)


class Hold:
    """Holds whoever draws noise, until it is let go."""

    def __init__(self) -> None:
        self.held, self._go = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.held.set()
        assert self._go.wait(60)

    def let_go(self) -> None:
        self._go.set()


@pytest.fixture
def hold(world: World) -> Iterator[Hold]:
    held = Hold()
    yield held
    held.let_go()


def people(world: World, *names: str) -> list[tuple[Principal, str]]:
    """Analysts, each with a session that has answered a question."""
    world.register("d", budget={"epsilon": 50.0, "delta": 1e-9})
    found = []
    for name in names:
        who = world.analyst(name)
        id = world.open(who, "d")
        world.ask(who, id, CHEAP)
        found.append((who, id))
    return found


def test_a_costly_question_keeps_nobody_else_waiting(world: World, hold: Hold) -> None:
    """Catches a lane that computes one itself; and a hit of one that is not recorded or charged."""
    (ann, hers), (ben, his) = people(world, "ann", "ben")
    world.noise.before, drawn = hold, world.noise.drawn
    world.noise.script.append(HIT)
    slow = world.submit(ann, hers, query(0, 1))
    assert hold.held.wait(60)
    behind = world.submit(ann, hers, CHEAP)
    for _ in range(3):
        assert world.ask(ben, his, CHEAP)["source"] == "cached"
    assert (slow.reply, behind.reply, world.noise.drawn) == (None, None, drawn)
    hold.let_go()
    assert (wait(slow)["source"], wait(behind)["source"]) == ("measurement", "cached")
    assert len(world.movements("d", hers)) == 1
    world.audit()


@on_embedded
@pytest.mark.parametrize("length", [2, LONG_BATCH, LONG_BATCH + 2])
def test_a_batch_of_costly_questions_keeps_nobody_else_waiting(world: World, hold: Hold, length: int) -> None:
    """Catches batches that are too short to be answered in slices; and one that is not one commit."""
    (ann, hers), (ben, his) = people(world, "ann", "ben")
    world.noise.before = hold
    asked = [CHEAP, *(query(n % 3, n % 4, 0 if n % 4 else 1) for n in range(length - 1))]
    slow = world.submit(ann, hers, *asked, kind="batch")
    assert hold.held.wait(60)
    assert world.ask(ben, his, CHEAP)["source"] == "cached"
    assert len(world.entries(hers)) == 1
    hold.let_go()
    answers = wait(slow)["answers"]
    assert [answer["sequence"] for answer in answers] == [*range(2, 2 + length)]
    world.audit()


@on_embedded
def test_one_principal_does_not_take_the_threads_of_another(world: World, hold: Hold) -> None:
    """Catches costly questions of one principal that are computed side by side until no thread is left."""
    (ann, hers), (ben, his) = people(world, "ann", "ben")
    more = [hers, *(world.open(ann, "d") for _ in range(aside.THREADS + 1))]
    first = world.submit(ann, hers, query(0, 1))
    wait(first)
    world.noise.before = hold
    waiting = [world.submit(ann, id, query(1, 1)) for id in more]
    assert hold.held.wait(60)
    world.noise.before = lambda: None
    assert wait(world.submit(ben, his, query(1, 1)))["source"] == "hypothesis"
    assert [ticket.reply for ticket in waiting] == [None] * len(more)
    hold.let_go()
    for ticket in waiting:
        wait(ticket)
    world.audit()


def test_a_question_that_fails_aside_is_charged(world: World, hold: Hold) -> None:
    """An unforeseen error after the noise, in another thread than the lane's. Catches a round that costs nothing, and a
    lane that is waiting for ever."""
    (ann, hers), (ben, his) = people(world, "ann", "ben")

    def fail() -> None:
        raise ZeroDivisionError

    world.noise.before = fail
    slow = world.submit(ann, hers, query(0, 1))
    eventually(lambda: slow.error is not None)
    world.noise.before = lambda: None
    assert [entry["record"] for entry in world.entries(hers)] == ["answer", "forfeit"]
    assert len(world.movements("d", hers)) == 1
    assert world.ask(ann, hers, query(0, 1))["sequence"] == 3
    assert world.ask(ben, his, CHEAP)["source"] == "cached"
    world.audit()


def test_a_stop_finishes_what_is_aside(worlds: Callable[..., World]) -> None:
    """Catches a lane that ends before what is computed aside is recorded."""
    world = worlds(None)
    (ann, hers), *_ = people(world, "ann")
    hold = Hold()
    world.noise.before = hold
    slow = world.submit(ann, hers, query(0, 1))
    assert hold.held.wait(60)
    stopping = threading.Thread(target=world.stop)
    stopping.start()
    hold.let_go()
    stopping.join(60)
    assert slow.reply is not None


@pytest.mark.parametrize("cells", [1 << 16, 12], ids=["in slices", "aside"])
def test_a_stop_records_what_a_long_batch_has_drawn(
    worlds: Callable[..., World], monkeypatch: pytest.MonkeyPatch, cells: int
) -> None:
    """A batch that takes longer than a stop may. Catches noise that is drawn and neither recorded nor charged when an
    operator does no more than stop a server.
    """
    monkeypatch.setattr(costs, "CELLS", cells)
    monkeypatch.setattr(lifecycle, "DRAIN_SECONDS", 3.0)
    world = worlds(None)
    (ann, hers), *_ = people(world, "ann")
    begun = threading.Event()

    def draw() -> None:
        begun.set()
        time.sleep(0.1)

    world.noise.before = draw
    asked = itertools.islice(distinct_queries(), 80)
    batch = world.submit(ann, hers, *asked, kind="batch", key="k")
    assert begun.wait(60)
    world.stop()
    assert len(world.entries(hers)) == world.noise.drawn > 2
    assert batch.reply is None
    assert isinstance(batch.error, Unavailable)


@on_embedded
def test_who_asks_what_takes_long_is_answered_aside(world: World, hold: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind of question whose words do not tell. Catches a lane that is caught by it again and again."""
    (ann, hers), (ben, his) = people(world, "ann", "ben")
    monkeypatch.setattr(costs, "CELLS", 1 << 16)
    monkeypatch.setattr(costs, "SLOW_SECONDS", 0.0)
    world.ask(ann, hers, query(0, 1))
    monkeypatch.setattr(costs, "SLOW_SECONDS", 60.0)
    world.noise.before = hold
    slow = world.submit(ann, hers, query(1, 1))
    assert hold.held.wait(60)
    assert world.ask(ben, his, CHEAP)["source"] == "cached"
    assert slow.reply is None
    hold.let_go()
    wait(slow)


def test_what_nobody_waits_for_is_not_computed(world: World, hold: Hold, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch and a question whose client hangs up. Catches work for nobody, and a round that is not finished."""
    monkeypatch.setattr(group, "SLICE_SECONDS", -1.0)
    ((ann, hers),) = people(world, "ann")
    world.noise.before = hold
    batch = world.submit(ann, hers, query(0, 1), query(1, 1), query(2, 1), kind="batch", key="k")
    assert hold.held.wait(60)
    single = world.submit(ann, hers, query(3, 1))
    batch.left = single.left = True
    drawn = world.noise.drawn
    hold.let_go()
    eventually(lambda: batch.delivered or batch.waiter.is_set())
    eventually(lambda: single.waiter.is_set())
    assert single.error is not None
    assert world.noise.drawn == drawn + 1
    assert len(world.entries(hers)) == 2
    again = wait(world.submit(ann, hers, query(0, 1), query(1, 1), query(2, 1), kind="batch", key="k"))["answers"]
    assert [answer["source"] for answer in again] == ["cached", "hypothesis", "hypothesis"]
    world.audit()
