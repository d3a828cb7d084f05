"""Private data that are no array of the service's: numbers told by a list of records, at once or after a while, or not
any more as their file has changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from app.curator.errors import SessionClosed
from app.services.answering import aside, costs, group, lane
from app.services.answering.parked import Parked
from app.services.answering.tickets import LONG_BATCH
from app.services.errors import Unavailable
from app.spaces.counts import NotCounted
from app.storage import private_store
from tests.kit.patience import patience
from tests.kit.plain_counts import PlainCounts
from tests.kit.world import ADMIN, HIT, World, distinct_queries, eventually, query, wait

pytestmark = pytest.mark.adversarial

#: By its capacity the data set is known that is told by a list of records.
LISTED, OTHERS = 10**9, 10**9 + 1
#: How many questions are counted at a time where nothing is set.
QUERIES = 2
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
    for _ in range(QUERIES):
        assert hold.held.acquire(timeout=patience(60))
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


def test_what_waits_holds_nothing(world: World, told_by: Callable[..., None], hold: Hold) -> None:
    """A question whose numbers are being counted: its session's row is free, no noise was drawn, what else is asked of
    the session waits behind it, and a closing does not. Catches a row that is held for minutes, noise that is drawn
    before its numbers are there, answers out of order, and a session that cannot be ended."""
    told_by(hold)
    who = world.analyst("ann")
    id, ended = world.open(who, "listed"), world.open(who, "listed", epsilon=0.1)
    drawn = world.noise.drawn
    first, second = world.submit(who, id, query(0, 0)), world.submit(who, id, query(1, 0))
    assert hold.held.acquire(timeout=patience(60))
    with world.built.store.write() as tx:
        assert set(tx.lock_sessions([id], {}, 0)) == {id}
    assert world.noise.drawn == drawn
    asked, closed = world.submit(who, ended, query(0, 0)), world.submit(who, ended, kind="close")
    assert wait(closed)["status"] == "closed"
    with pytest.raises(SessionClosed):
        wait(asked)
    assert (first.reply, second.reply) == (None, None)
    hold.let_go()
    assert [wait(ticket)["sequence"] for ticket in (first, second)] == [1, 2]
    world.audit()


@pytest.mark.parametrize("ahead", [0, 256])
def test_a_batch_goes_on_where_it_waited(
    world: World, told_by: Callable[..., None], ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each question of a batch waits anew, or has its numbers counted ahead. Catches an answer that is given twice,
    lost or drawn for again, a batch that may wait less often than it has questions, and numbers for what is cached."""
    monkeypatch.setattr(group, "MOST_AHEAD", ahead)
    counted: list[int] = []
    told_by(lambda: counted.append(1))
    who = world.analyst("ann")
    id = world.open(who, "listed")
    asked = [query(0, 0), query(1, 0), query(0, 0), query(2, 0), query(3, 0), query(0, 1), query(1, 1)]
    answers = wait(world.submit(who, id, *asked, kind="batch"))["answers"]
    sources = ["hypothesis", "hypothesis", "cached", *["hypothesis"] * 4]
    assert [each["source"] for each in answers] == sources
    assert [each["sequence"] for each in answers] == [1, 2, 3, 4, 5, 6, 7]
    assert len(counted) == 6, "what is cached needs no numbers"
    world.audit()


@pytest.mark.parametrize("error", [Unavailable("the source moved", retry_after=60), OSError("text of a record")])
def test_numbers_that_cannot_be_counted_leave_no_trace(
    world: World, told_by: Callable[..., None], error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    """A question, an opening, and the same again once they can be. Catches a charge for what was not drawn, an error's
    own words, and a session that stays stuck."""
    broken = [True]

    def counting() -> None:
        if broken[0]:
            raise error

    told_by(counting)
    who = world.analyst("ann")
    id = world.open(who, "listed")
    drawn = world.noise.drawn
    with pytest.raises(Unavailable) as refused:
        world.ask(who, id, query(0, 0))
    with pytest.raises(Unavailable):
        world.open(who, "listed", mechanism={"construction": "evidence"}, max_queries=10, max_updates=None)
    assert "text" not in str(refused.value) + caplog.text
    assert (world.noise.drawn, world.entries(id), world.movements("listed", id)) == (drawn, [], [])
    broken.clear()
    broken.append(False)
    assert world.ask(who, id, query(0, 0))["source"] == "hypothesis"
    world.audit()


def test_a_data_set_that_another_server_retires_is_no_fault(
    worlds: Callable[..., World], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server retires the data set while a question waits for its numbers, whose file is then gone. Catches who
    is told that an operator must put it back: the session is closed.
    """
    world, other = worlds(postgres_url), worlds(postgres_url)

    def retired() -> None:
        other.built.services.retirement.retire(ADMIN, "listed")
        raise Unavailable("the file is missing", retry_after=60)

    arrays = private_store._counts_of
    monkeypatch.setattr(
        private_store,
        "_counts_of",
        lambda space, data: PlainCounts.of(data.array, retired) if space.capacity == LISTED else arrays(space, data),
    )
    world.register("listed", capacity=LISTED, budget=BUDGET)
    who = world.analyst("ann")
    id = world.open(who, "listed")
    with pytest.raises(SessionClosed):
        world.ask(who, id, query(0, 0))
    assert (world.entries(id), world.movements("listed", id)) == ([], [])


def test_numbers_that_are_never_the_right_ones_end(world: World, told_by: Callable[..., None]) -> None:
    """Would catch a request that waits for ever, as what it needs changes each time."""
    told_by(lambda: None)
    who = world.analyst("ann")
    id = world.open(who, "listed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PlainCounts, "_wait", lambda self: None)
        with pytest.raises(Unavailable, match="other numbers"):
            world.ask(who, id, query(0, 0))
    assert world.entries(id) == []


def test_whoever_waited_goes_on_after_whole_ticks() -> None:
    """Counting takes .03, .12 and .25 of ticks of .1 s, or fails at once: replies come at .1, .2 and .3, and .1. Where
    .5 s are declared they come at .5, with numbers or without; and one that takes .52 at a whole tick, .6. Would catch
    a reply that tells how long an engine took, or that it failed, and a late one that is not counted."""
    ends: list[str] = []
    late_ones: list[None] = []
    parked = Parked(8, 0.1, SimpleNamespace(tallied=ends.append, late_source=lambda: late_ones.append(None)))
    back: dict[float, float] = {}
    done = threading.Semaphore(0)
    began = time.monotonic()

    def failing() -> None:
        raise OSError

    asked = [(0.03, None, 0.0), (0.12, None, 0.0), (0.25, None, 0.0), (0.0, failing, 0.0)]
    asked += [(0.03, None, 0.5), (0.0, failing, 0.5), (0.52, None, 0.5)]
    for number, (seconds, count, declared) in enumerate(asked):

        def end(error: Any, number: int = number) -> None:
            back[number] = time.monotonic() - began
            done.release()

        parked.wait(f"analyst-{number}", NotCounted(count or partial(time.sleep, seconds), declared), end)
    for _ in asked:
        assert done.acquire(timeout=patience(60))
    parked.stop()
    assert sorted(ends) == ["counted"] * 5 + ["unavailable"] * 2
    assert len(late_ones) == 1
    assert not len(parked)
    late = patience(0.09)
    for number, ticks in enumerate([1, 2, 3, 1, 5, 5, 6]):
        assert ticks * 0.1 <= back[number] + 1e-3 < ticks * 0.1 + late, (number, back)


def test_an_engine_that_is_silent_keeps_nobody_from_another() -> None:
    """As many questions as are counted at a time wait for one: another engine, and what is counted here, go on. Would
    catch places that all engines share, of which the slowest has all in the end."""
    parked = Parked(2, 0.01, SimpleNamespace(tallied=lambda _: None, late_source=lambda: None))
    silent, told, done = threading.Event(), list[str](), threading.Semaphore(0)
    try:
        for number in range(3):
            parked.wait(f"ann-{number}", NotCounted(silent.wait, place="clinic"), lambda error: told.append("late"))  # type: ignore[arg-type]
        for place in ("", "other", ""):
            parked.wait("ben", NotCounted(lambda: None, place=place), lambda error: done.release())
        for _ in range(3):
            assert done.acquire(timeout=patience(5))
        assert told == []
        assert len(parked) == 3
    finally:
        silent.set()
    eventually(lambda: told == ["late"] * 3)
    parked.stop()


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
