"""Private data that are no array of the service's: numbers told by a list of records, at once or after a while, or not
any more as their file has changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from app.services.answering import aside, costs, lane
from app.services.answering.tickets import LONG_BATCH
from app.services.errors import Unavailable
from app.storage import private_store
from tests.kit.plain_counts import PlainCounts
from tests.kit.world import HIT, World, distinct_queries, query, wait

pytestmark = pytest.mark.adversarial

#: By its capacity the data set is known that is told by a list of records.
LISTED, OTHERS = 10**9, 10**9 + 1
BUDGET = {"epsilon": 50.0, "delta": 1e-9}


@pytest.fixture
def told_by(world: World, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """told_by(waiting, **changes): registers the data set ``listed``, whose records are counted in plain Python."""
    arrays = private_store._counts_of

    def register(waiting: Callable[[], None] | None = None, **changes: Any) -> None:
        def counts_of(space: Any, data: Any) -> Any:
            return PlainCounts.of(data.array, waiting) if space.capacity == LISTED else arrays(space, data)

        monkeypatch.setattr(private_store, "_counts_of", counts_of)
        world.register("listed", capacity=LISTED, budget=BUDGET, **changes)

    return register


class Hold:
    """Holds whoever waits for numbers, until they are let go."""

    def __init__(self) -> None:
        self.held, self._go = threading.Semaphore(0), threading.Event()

    def __call__(self) -> None:
        self.held.release()
        assert self._go.wait(60)

    def let_go(self) -> None:
        self._go.set()


@pytest.fixture
def hold() -> Iterator[Hold]:
    held = Hold()
    yield held
    held.let_go()


def test_a_session_is_answered_from_whatever_tells_exact_counts(world: World, told_by: Callable[..., None]) -> None:
    """Bought mass, misses, a hit and a measured marginal, beside the same data in arrays: equal to the last unit. Would
    catch whoever looks behind the interface, at an opening, in a round or where a session pays for evidence."""
    told_by(records_public=False)
    world.register("arrays", capacity=OTHERS, budget=BUDGET, records_public=False)
    who, found = world.analyst("ann"), []
    for name in ("listed", "arrays"):
        mw = world.open(who, name, epsilon=1.0)
        world.noise.script.extend([0, 0, HIT])
        told = [world.ask(who, mw, query(n, 0, n)) for n in range(3)]
        assert not world.noise.script
        evidence = world.open(who, name, mechanism={"construction": "evidence"}, max_queries=10, max_updates=None)
        assert world.movements(name, evidence, "purchase"), "it measures at its opening"
        told.append(world.ask(who, evidence, {"type": "marginal", "attributes": ["b", "a"]}))
        found.append([(each.get("value"), each.get("values"), each["source"]) for each in told])
    assert found[0] == found[1]
    assert [source for _, _, source in found[0]] == ["hypothesis", "hypothesis", "measurement", "estimate"]
    world.audit()


def test_who_waits_for_numbers_keeps_nobody_else_waiting(
    world: World, told_by: Callable[..., None], hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More of them than there are threads, for what is computed and for what is waited for. Catches a lane that waits
    itself, costly questions and long batches of others that wait for a thread, or to be begun; and rounds that are
    lost."""
    told_by(hold)
    world.register("d", budget=BUDGET)
    waiting = []
    for number in range(max(aside.THREADS, lane.UNDER_WAY) + 2):
        who = world.analyst(f"ann-{number}")
        waiting.append((who, world.open(who, "listed")))
    ben = world.analyst("ben")
    his = world.open(ben, "d")
    world.ask(ben, his, query(0, 1))
    drawn = world.noise.drawn
    tickets = [world.submit(who, id, query(number % 4, 0)) for number, (who, id) in enumerate(waiting)]
    for _ in range(aside.THREADS):
        assert hold.held.acquire(timeout=60)
    assert world.ask(ben, his, query(1, 1))["source"] == "hypothesis"
    monkeypatch.setattr(costs, "CELLS", 12)
    assert world.ask(ben, his, query(2, 1))["source"] == "hypothesis"
    batch = [words for words, _ in zip(distinct_queries(), range(LONG_BATCH + 1), strict=False)]
    answers = wait(world.submit(ben, his, *batch, kind="batch"))["answers"]
    assert len(answers) == LONG_BATCH + 1
    assert all(ticket.reply is None and ticket.error is None for ticket in tickets)
    assert world.noise.drawn > drawn
    hold.let_go()
    assert {wait(ticket)["source"] for ticket in tickets} == {"hypothesis"}
    world.audit()


def test_numbers_that_are_not_what_was_registered_any_more_answer_nothing(world: World) -> None:
    """A file is taken away from a session in memory, and put back: a question, a batch and an opening that buys.
    Catches an answer from numbers that nobody has looked after, noise that is drawn for it, and a trace of what was
    refused."""
    world.register("d", budget=BUDGET, records_public=False)
    who = world.analyst("ann")
    id = world.open(who, "d")
    world.ask(who, id, query(0, 1))
    (file,) = (path for path in (world.folder / "vault").iterdir() if path.name.startswith("d."))
    elsewhere, drawn = file.with_name("elsewhere"), world.noise.drawn
    file.rename(elsewhere)
    for ticket in (world.submit(who, id, query(1, 1)), world.submit(who, id, query(1, 1), query(2, 2), kind="batch")):
        with pytest.raises(Unavailable):
            wait(ticket)
    with pytest.raises(Unavailable):
        world.open(who, "d", mechanism={"construction": "evidence"}, max_queries=10, max_updates=None)
    elsewhere.rename(file)
    assert world.noise.drawn == drawn
    assert len(world.entries(id)) == 1
    assert not world.movements("d", id)
    assert world.ask(who, id, query(1, 1))["source"] == "hypothesis"
    world.audit()
