"""The client to be awaited: many at once, given up in the middle, and the same as the one that blocks."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from curator_client import (
    AsyncAudit,
    AsyncCurator,
    AsyncDataset,
    AsyncLog,
    AsyncMeasurement,
    AsyncRelease,
    AsyncSession,
    Audit,
    Curator,
    Dataset,
    Log,
    Measurement,
    Question,
    Refused,
    Release,
    Session,
    SessionState,
    Unreachable,
    question,
    where,
)
from tests.client.test_transport import ANSWER, SESSION
from tests.kit.noise import Noise
from tests.kit.patience import patience
from tests.kit.service import Gate, Service, people

api = pytest.mark.api
unit = pytest.mark.unit
FEMALE = where(sex="female").count()


def sums(count: int) -> list[Question[Any]]:
    """Questions that differ."""
    return [question({"type": "product", "weights": {"sex": [number / 64, 1]}}) for number in range(count)]


@asynccontextmanager
async def opened(service: Service, max_queries: int = 100) -> AsyncIterator[AsyncSession]:
    """A session that measures each question."""
    async with (
        AsyncCurator(service.url, service.admin_key) as curator,
        curator.session(people(service), epsilon=0.2, max_queries=max_queries, mechanism="gaussian") as session,
    ):
        yield session


@api
def test_many_at_once(service: Service, noise: Noise) -> None:
    """Thirty tasks ask in one session, and five ask for its state meanwhile. Catches answers that go to another
    question, an order that is not the one in which they were asked, and entries that are not kept for the check.
    """
    noise.draw = lambda _: 0

    async def main() -> None:
        async with opened(service) as session:
            asked = sums(30)
            answers = await asyncio.gather(*map(session.ask, asked), *(session.state() for _ in range(5)))
            told = answers[:30]
            assert [each.question for each in told] == asked
            assert [each.sequence for each in told] == list(range(1, 31))
            truths = await session.ask_many(asked)
            assert [float(each) for each in told] == [float(each) for each in truths]
            verdict = await session.verify(replay=True)
            assert verdict.summary["entries"] == 60
            assert any(each.startswith("60 entries that this client was told of") for each in verdict.checked)

    asyncio.run(main())


@api
def test_a_question_given_up_in_the_middle(service: Service, noise: Noise) -> None:
    """It is cancelled while the service draws noise: whoever asks again with its key gets its one answer, and others go
    on. Catches a session that stays locked, a connection that gives the next question the lost answer, a second charge.
    """
    gate = Gate()

    async def main() -> None:
        async with opened(service) as session:
            noise.draw = gate
            with gate.shut():
                asked = asyncio.create_task(session.ask(FEMALE, key="mine"))
                behind = asyncio.create_task(session.ask(sums(1)[0]))
                await asyncio.to_thread(gate.entered.wait, 30)
                asked.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await asked
                noise.draw = lambda _: 0
            other = await behind
            assert other.question == sums(1)[0]
            again = await session.ask(FEMALE, key="mine")
            assert {again.sequence, other.sequence} == {1, 2}
            assert again.charged > 0
            state = await session.state()
            assert state.queries_asked == 2
            assert state.spent_epsilon == pytest.approx(again.charged + other.charged, rel=0.5)
            await session.verify(replay=True)

    asyncio.run(main())


@api
def test_a_deadline_of_the_caller(service: Service, noise: Noise) -> None:
    """Catches a call that goes on when its caller's time is up, and one that cannot be asked again."""
    gate = Gate()

    async def main() -> None:
        async with opened(service) as session:
            noise.draw = gate
            with gate.shut():
                began = time.monotonic()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await session.ask(FEMALE, key="mine")
                assert time.monotonic() - began < patience(5)
            assert (await session.ask(FEMALE, key="mine")).sequence == 1

    asyncio.run(main())


@api
def test_each_as_it_comes(service: Service, noise: Noise) -> None:
    """Questions without end, each made of the answer before. Catches one that is asked before the answer before it was
    taken, and a refusal that is lost.
    """
    noise.draw = lambda _: 0
    taken: list[int] = []

    def endless() -> Iterator[Question[Any]]:
        for number in range(10_000):
            taken.append(number)
            yield sums(50)[number % 50]

    async def main() -> None:
        async with opened(service, max_queries=6) as session:
            found = []
            async for answer in session.ask_each(endless()):
                assert len(taken) == len(found) + 1
                found.append(answer.sequence)
                if len(found) == 4:
                    break
            assert found == [1, 2, 3, 4]
            assert (await session.state()).queries_asked == 4
            rest = session.ask_each(endless())
            with pytest.raises(Refused):
                found += [answer.sequence async for answer in rest]
            assert len(taken) == 4 + 4 + 3  # the first four were answered before, and cost no question
            assert (await session.state()).queries_left == 0

    asyncio.run(main())


@api
def test_opened_by_waiting_or_by_entering(service: Service) -> None:
    """Catches a session that is not closed at the end, or closed without being asked to, and one that is open though
    nobody waited for it.
    """

    async def main() -> None:
        async with AsyncCurator(service.url, service.admin_key) as curator:
            name = people(service)
            dataset = await curator.dataset(name)
            session = await dataset.session(epsilon=0.1, max_queries=5)
            assert (await session.state()).status == "open"
            async with curator.resume(session.id) as same:
                assert same.id == session.id
            assert (await session.state()).status == "closed"
            with suppress(ZeroDivisionError):
                async with curator.session(name, epsilon=0.1, max_queries=5) as broken:
                    raise ZeroDivisionError
            assert (await broken.state()).status == "closed"
            before = len(await curator.sessions())
            opening = curator.session(name, epsilon=0.1, max_queries=5)
            await asyncio.sleep(0)
            assert len(await curator.sessions()) == before
            await (await opening).close()

    asyncio.run(main())


class Dripping:
    """Answers below ``/v1/releases`` a byte now and then without end, in the session ``held`` once it is let go, and
    everything else at once.
    """

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self.held = 0
        self._ended, self.arrived, self.let_go = threading.Event(), threading.Event(), threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._answer, args=(self._socket.accept()[0],), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            while not self._ended.is_set():
                request = b""
                while b"\r\n\r\n" not in request:
                    got = connection.recv(1 << 16)
                    if not got:
                        return
                    request += got
                line = request.partition(b"\r\n")[0]
                if b"/v1/sessions/held/" in line:
                    self.held += 1
                    self.arrived.set()
                    self.let_go.wait(60)
                body = json.dumps(ANSWER if b"/v1/sessions" in line else {"items": []}).encode()
                dripping = b"/v1/releases" in line
                size = 100_000 if dripping else len(body)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
                if not dripping:
                    connection.sendall(body)
                while dripping and not self._ended.wait(0.02):
                    connection.sendall(b" ")

    def stop(self) -> None:
        self._ended.set()
        self.let_go.set()
        self._socket.close()


@pytest.fixture
def dripping() -> Iterator[Dripping]:
    server = Dripping()
    yield server
    server.stop()


@unit
def test_each_task_has_its_own_time(dripping: Dripping) -> None:
    """Others' quick calls go on beside one whose bytes drip. Catches a time of a try that any call begins anew."""

    async def main() -> None:
        async with AsyncCurator(dripping.url, "k", timeout=0.5, retry_for=0) as curator:
            slow = asyncio.create_task(curator.existing_release("R"))
            began, calls = time.monotonic(), 0
            while not slow.done() and time.monotonic() - began < patience(8):
                await curator.datasets()
                calls += 1
            assert slow.done()
            assert calls > 3
            with pytest.raises(Unreachable):
                await slow

    asyncio.run(main())


@unit
def test_sessions_do_not_wait_for_one_another(dripping: Dripping) -> None:
    """One session's question is held up in the service, and the next one in it waits. Catches a lock that all sessions
    share, and questions of one session that pass each other.
    """

    async def main() -> None:
        async with AsyncCurator(dripping.url, "k") as curator:
            held, other = (
                AsyncSession(
                    curator._service.transport,
                    curator._service.seen_log,
                    SessionState.parse({**SESSION, "id": name}),
                )
                for name in ("held", "other")
            )
            waiting = [asyncio.create_task(held.ask(FEMALE)) for _ in range(2)]
            # the thread that serves the held one may come late; waited for beside the loop, which sends the question
            assert await asyncio.to_thread(dripping.arrived.wait, patience(10))
            async with asyncio.timeout(patience(10)):
                for _ in range(3):
                    assert float(await other.ask(FEMALE)) == ANSWER["value"]
            assert not any(task.done() for task in waiting)
            assert dripping.held == 1
            dripping.let_go.set()
            assert [float(answer) for answer in await asyncio.gather(*waiting)] == [ANSWER["value"]] * 2

    asyncio.run(main())


@unit
def test_a_pause_lets_others_go_on(dripping: Dripping) -> None:
    """A service that is away is tried for a while. Catches a pause that holds up the loop."""

    async def main() -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))  # bound and not listening: every connection is refused
            url = f"http://127.0.0.1:{taken.getsockname()[1]}"
            async with AsyncCurator(url, "k", retry_for=0.6) as curator:
                away = asyncio.create_task(curator.datasets())
                longest, last = 0.0, time.monotonic()
                while not away.done():
                    await asyncio.sleep(0.005)
                    now = time.monotonic()
                    longest, last = max(longest, now - last), now
                with pytest.raises(Unreachable):
                    await away
        assert longest < patience(0.25)

    asyncio.run(main())


@unit
def test_a_download_given_up_leaves_nothing(dripping: Dripping, tmp_path: Path) -> None:
    """Catches a file that looks whole, or one that is left beside it."""

    async def main() -> None:
        async with AsyncCurator(dripping.url, "k", timeout=30) as curator:
            transport = curator._service.transport
            from curator_client.calls import Call

            begun = asyncio.Event()
            call = Call("GET", "/v1/releases/R/data")
            task = asyncio.create_task(transport.download(call, tmp_path / "data", lambda _: begun.set()))
            async with asyncio.timeout(patience(10)):
                await begun.wait()
            assert [*tmp_path.iterdir()]
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert not [*tmp_path.iterdir()]

    asyncio.run(main())


@pytest.fixture(scope="module")
def make_sync(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_sync", root / "clients" / "python" / "make_sync.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@api
def test_threads_ask_one_after_another(service: Service, noise: Noise) -> None:
    """Catches entries that one thread's answer replaces in what the client keeps of another's."""
    noise.draw = lambda _: 0
    with (
        Curator(service.url, service.admin_key) as curator,
        curator.session(people(service), epsilon=0.2, max_queries=100, mechanism="gaussian") as session,
        ThreadPoolExecutor(8) as pool,
    ):
        asked = sums(24)
        answers = [*pool.map(session.ask, asked)]
        assert [each.question for each in answers] == asked
        assert sorted(each.sequence for each in answers) == [*range(1, 25)]
        assert session.head is not None
        assert session.head[0] == 24
        assert any(each.startswith("24 entries that this client") for each in session.verify().checked)


@unit
def test_the_one_that_blocks_is_made(make_sync: ModuleType) -> None:
    """Catches a change of either that the other has not: run ``python clients/python/make_sync.py``."""
    made = make_sync.made()
    assert {path.name for path in make_sync.TARGET.glob("*.py")} == {path.name for path in made} | make_sync.OWN
    for path, text in made.items():
        assert path.read_text() == text, path.name
        assert not any(word in text for word in ("await ", "async ", "Async", "aclos")), path.name


@unit
def test_what_the_making_leaves_out(make_sync: ModuleType) -> None:
    """Each of its rules, and words that only look like them. Catches a rule that no longer holds."""
    source = '''
    """A ``with``::

        async with AsyncCurator() as curator:
            await curator.close()

    Whoever awaits it, and asynchronously.
    """
    # async only
    gone = 1

    # end
    async def each(self) -> AsyncIterator[int]:
        async for x in self.aiter_bytes():
            yield await x
        async with aclosing(y): await y.aclose()
    def session(self) -> Opening[AsyncSession]: ...
    async def __aenter__(self) -> None: ...
'''
    told = make_sync.made_of(f"class A:\n{source}", "x.py")
    for there in (
        "with Curator() as curator:",
        "            curator.close()",
        "Whoever awaits it, and asynchronously.",
        "def each(self) -> Iterator[int]:",
        "for x in self.iter_bytes():",
        "yield x",
        "with closing(y):",
        "y.close()",
        "def session(self) -> Session:",
        "def __enter__(self)",
    ):
        assert there in told, there
    assert "gone" not in told


@unit
@pytest.mark.parametrize(
    ("awaited", "blocking"),
    [
        (AsyncAudit, Audit),
        (AsyncCurator, Curator),
        (AsyncSession, Session),
        (AsyncLog, Log),
        (AsyncRelease, Release),
        (AsyncDataset, Dataset),
        (AsyncMeasurement, Measurement),
    ],
    ids=lambda each: str(each.__name__),
)
def test_the_same_names(awaited: type, blocking: type) -> None:
    """Catches a name, or a parameter, that one of the two has alone."""

    def names(of: type) -> dict[str, Any]:
        return {
            name: [*inspect.signature(each).parameters] if callable(each) else None
            for name, each in inspect.getmembers_static(of)
            if not name.startswith("_")
        }

    extra = {"ask_each"} if awaited is AsyncSession else set()
    assert names(awaited).keys() - names(blocking).keys() == extra
    assert {name: each for name, each in names(awaited).items() if name not in extra} == names(blocking)
