"""Turns at costly work: who has the next one, who is refused, and what becomes of those who hang up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from starlette.requests import Request

from app.http.fair_queue import WAITING, WAITING_EACH, CostlyWork, FairQueue
from app.services.errors import TooManyRequests, Unavailable
from app.services.principals import Principal

pytestmark = pytest.mark.unit


class Client:
    """Somebody who sends a request and may hang up."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def _receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    @property
    def request(self) -> Request:
        return Request({"type": "http", "headers": []}, self._receive)


class Turns:
    """Who had a turn, in order; work goes on until it is let go."""

    def __init__(self, queue: FairQueue) -> None:
        self.queue, self.order, self.running = queue, list[str](), dict[str, asyncio.Event]()

    async def take(self, name: str, client: Client | None = None) -> None:
        person = name.split("-")[0]
        async with self.queue.turn((client or Client()).request, Principal(person, "analyst")) as work:
            self.order.append(name)
            self.running[name] = asyncio.Event()
            try:
                await work.unless_abandoned(asyncio.ensure_future(self.running[name].wait()))
            finally:
                del self.running[name]

    def start(self, name: str, client: Client | None = None) -> asyncio.Task[None]:
        return asyncio.create_task(self.take(name, client))

    async def finish(self) -> None:
        """One piece of work ends, the longest under way."""
        next(iter(self.running.values())).set()
        await settle()


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 20))


def test_many_that_wait_delay_nobody_else() -> None:
    """Catches a queue of first come, first served: 31 of one principal's would be before the first of another's."""

    async def test() -> None:
        turns = Turns(FairQueue(1))
        tasks = [turns.start(f"ann-{number}") for number in range(WAITING_EACH)]
        await settle()
        tasks += [turns.start("bob-0"), turns.start("bob-1"), turns.start("eve-0")]
        await settle()
        assert turns.order == ["ann-0"]
        while turns.running:
            await turns.finish()
        assert turns.order[:6] == ["ann-0", "ann-1", "bob-0", "eve-0", "ann-2", "bob-1"]
        assert sorted(turns.order) == sorted([*(f"ann-{n}" for n in range(WAITING_EACH)), "bob-0", "bob-1", "eve-0"])
        await asyncio.gather(*tasks)

    run(test)


def test_nobody_has_every_turn() -> None:
    """Of several turns at a time one is left for whoever comes next. Catches a principal whose long work fills all of
    them, and turns lost or made up on the way.
    """

    async def test() -> None:
        turns = Turns(FairQueue(3))
        tasks = [turns.start(f"ann-{number}") for number in range(6)]
        await settle()
        assert set(turns.running) == {"ann-0", "ann-1"}
        tasks += [turns.start("bob-0")]
        await settle()
        assert set(turns.running) == {"ann-0", "ann-1", "bob-0"}
        while turns.running:
            await turns.finish()
            assert len([name for name in turns.running if name.startswith("ann")]) <= 2
        assert len(turns.order) == 7
        await asyncio.gather(*tasks)

    run(test)


def test_too_many_that_wait_are_refused() -> None:
    """Catches a queue that grows with the requests of one principal, or of all together."""

    async def test() -> None:
        refused: list[str] = []
        turns = Turns(FairQueue(1, refused.append))
        tasks = [turns.start(f"ann-{number}") for number in range(1 + WAITING_EACH)]
        await settle()
        with pytest.raises(TooManyRequests) as told:
            await turns.take("ann-more")
        assert told.value.retry_after >= 1
        people = (WAITING - WAITING_EACH) // WAITING_EACH
        tasks += [turns.start(f"{person}-{number}") for person in range(people) for number in range(WAITING_EACH)]
        await settle()
        with pytest.raises(Unavailable):
            await turns.take("bob-0")
        assert refused == ["work", "work"]
        while turns.running:
            await turns.finish()
        await asyncio.gather(*tasks)
        assert len(turns.order) == 1 + WAITING

    run(test)


def test_who_hangs_up_is_forgotten() -> None:
    """Catches work that is done for nobody: before its turn, and under way; and a turn that is then never free."""

    async def test() -> None:
        turns, ann, bob = Turns(FairQueue(1)), Client(), Client()
        first, second, third = turns.start("ann-0", ann), turns.start("bob-0", bob), turns.start("eve-0")
        await settle()
        bob.gone.set()
        await settle()
        with pytest.raises(Unavailable):
            await second
        ann.gone.set()
        await settle()
        with pytest.raises(Unavailable):
            await first
        assert turns.order == ["ann-0", "eve-0"]
        await turns.finish()
        await third
        # Nothing is left of any of them: the turn is free.
        last = turns.start("bob-1")
        await settle()
        await turns.finish()
        await last

    run(test)


def test_a_client_that_goes_as_its_turn_comes() -> None:
    """Catches the turn that is given to a request which is cancelled in the same moment, and is never given back."""

    async def test() -> None:
        turns = Turns(FairQueue(1))
        first, second, third = turns.start("ann-0"), turns.start("bob-0"), turns.start("eve-0")
        await settle()
        turns.running["ann-0"].set()
        while not first.done():
            await asyncio.sleep(0)
        second.cancel()
        await settle()
        assert list(turns.running) == ["eve-0"]
        await turns.finish()
        with suppress(asyncio.CancelledError):
            await second
        await third

    run(test)


def test_work_in_a_thread_is_told() -> None:
    """Catches a thread that works on for a client that has gone, or a server that ends."""

    given_up = threading.Event()

    def busy(work: CostlyWork) -> None:
        try:
            while True:
                work.check()
        finally:
            given_up.set()

    async def test() -> None:
        queue, client = FairQueue(1), Client()

        async def ask() -> None:
            async with queue.turn(client.request, Principal("ann", "analyst")) as work:
                await asyncio.to_thread(busy, work)

        for give_up in (client.gone.set, lambda: None):
            task = asyncio.create_task(ask())
            await asyncio.sleep(0.05)
            give_up()
            if give_up is not client.gone.set:
                task.cancel()
            with suppress(Unavailable, asyncio.CancelledError):
                await task
            assert given_up.wait(5)
            given_up.clear()
            client.gone.clear()

    run(test)


def test_a_server_that_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a drain that waits for every request in the queue, or for work without end."""
    monkeypatch.setattr("app.http.fair_queue.DRAIN_SECONDS", 0.05)

    async def test() -> None:
        turns = Turns(FairQueue(1))
        first, second = turns.start("ann-0"), turns.start("bob-0")
        await settle()
        turns.queue.drain()
        with pytest.raises(Unavailable):
            await second
        with pytest.raises(Unavailable):
            await turns.take("eve-0")
        assert not first.done()
        with pytest.raises(Unavailable):
            await first
        assert turns.order == ["ann-0"]

    run(test)


def test_what_a_turn_took_is_told() -> None:
    """Catches a turn that is counted for another, or without the time in which it failed."""

    async def test() -> None:
        took: list[tuple[str, float]] = []
        queue = FairQueue(1, finished=lambda name, seconds: took.append((name, seconds)))

        async def fail() -> None:
            async with queue.turn(Client().request, Principal("ann", "analyst")):
                await asyncio.sleep(0.05)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fail()
        [(name, seconds)] = took
        assert name == "ann"
        assert seconds >= 0.04

    run(test)


def test_a_turn_that_takes_too_long() -> None:
    """Catches work without end that holds its turn for good, or is given up without a word."""

    async def test() -> None:
        turns = Turns(FairQueue(1, seconds=0.05))
        first, second = turns.start("ann-0"), turns.start("bob-0")
        await settle()
        with pytest.raises(Unavailable, match="longer than"):
            await first
        await settle()
        await turns.finish()
        await second
        assert turns.order == ["ann-0", "bob-0"]

    run(test)
