"""The load and crash benchmarks measure what they say: on a real server, and on one that answers wrongly."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from benchmarks.harness import Reply, Script, curator, load
from benchmarks.service import load as benchmark
from benchmarks.service.crashes import schedule
from tests.kit.crashes import RANDOM, WORKER
from tests.kit.steps import KEEPING, MIGRATING, WORKING

pytestmark = pytest.mark.unit


@contextmanager
def replying(reply: Callable[[int], bytes]) -> Iterator[int]:
    """A server on this port that reads requests without a body and sends the n-th reply as it is."""
    loop, count = asyncio.new_event_loop(), iter(range(10**9))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                writer.close()
                return
            writer.write(reply(next(count)))

    async def ended() -> None:
        server.close()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    server = loop.run_until_complete(asyncio.start_server(serve, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(ended(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.slow
def test_bodies_reach_the_script_and_refusals_are_errors() -> None:
    """Would catch a stream that is taken for an empty body, which leaves its bytes to be read as the next reply, and a
    refusal that counts as an answer."""
    replies = [
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        b"HTTP/1.1 409 Conflict\r\ncontent-length: 0\r\n\r\n",
    ]
    heard: list[Reply] = []

    def script() -> Script:
        while True:
            heard.append((yield b"GET / HTTP/1.1\r\n\r\n"))

    with replying(lambda n: replies[n % 3]) as port:
        found = load(port, [script()], 0.5)
    told = [Reply(200, b"abc"), Reply(200, b"abcde"), Reply(409, b"")]
    assert heard == [told[n % 3] for n in range(len(heard))]
    assert found.requests == len(heard) > 3
    assert found.errors == len(heard) // 3
    assert found.median_ms <= found.p95_ms <= found.p99_ms <= found.max_ms


@pytest.mark.slow
def test_mixed_traffic_has_everything_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Would catch traffic without charges, sessions, keys or reads, as it looks from outside just the same."""
    monkeypatch.setattr(benchmark, "ANALYSTS", 2)
    monkeypatch.setattr(benchmark, "MIX", {**benchmark.MIX, "transcript": 20, "ledger": 20})
    monkeypatch.setattr(benchmark, "TERMS", {**benchmark.TERMS, "max_updates": 26})
    with curator() as running:
        traffic = benchmark.Mixed(running)
        tally, requests = traffic.tally, 0
        expected = ("hypothesis", "measurement", "cached", "retries", "transcripts and ledgers", "sessions closed")
        for seconds in (1, 1, 2, 4, 8, 16, 24):  # a busy machine takes longer until everything has come
            found = load(running.port, traffic.clients(4), seconds)
            assert (found.errors, traffic.wrong()) == (0, 0)
            requests += found.requests
            if all(tally[kind] > 0 for kind in expected):
                break
        assert all(tally[kind] > 0 for kind in expected), tally
        assert tally["sessions opened"] >= tally["sessions closed"], tally
        assert traffic.answers() > requests / 2


def test_a_retry_that_gets_other_bytes_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that answers every request anew, whatever its key. Would catch a comparison that compares nothing."""
    monkeypatch.setattr(benchmark, "MIX", {"fresh predicate under a key": 1, "retry": 1})
    traffic = benchmark.Mixed.__new__(benchmark.Mixed)
    traffic.tally = benchmark.Counter()
    slot = benchmark.Slot("t", "mw", benchmark.Session("s", "key"))
    vars(traffic).update(
        _analysts=["key"] * benchmark.ANALYSTS,
        _slots=[([slot], [slot])] * benchmark.ANALYSTS,
        _fresh=iter(range(10**6)),
        _keys=iter(range(10**6)),
        _predicate=lambda number: {"number": number},
    )
    (script,) = traffic.clients(1)
    next(script)
    for number in range(40):
        answer = b'{"sequence":%d,"source":"hypothesis","updates_left":99,"queries_left":9999}' % number
        script.send(Reply(200, answer))
    assert traffic.tally["retries"] > 3
    assert traffic.wrong() == traffic.tally["retries"]


@pytest.mark.parametrize("workers", [False, True])
def test_every_step_has_its_kills(workers: bool) -> None:
    """The run that is documented. Would catch a step that is named and never killed at."""
    moments, migrating = schedule(120, workers)
    assert len(moments) + len(migrating) == 120
    assert set(moments) == {*WORKING, *KEEPING, RANDOM, *([WORKER] * workers)}
    assert {step for step, _ in migrating} == set(MIGRATING)
