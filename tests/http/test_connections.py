"""Without the defence: one address that holds its connections open, or tries keys, keeps everybody else out.

A real server over real sockets, with a limit of 64 connections; a second client comes from 127.0.0.2.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from app.services.principals import Principal
from tests.kit.noise import Noise
from tests.kit.patience import patience
from tests.kit.service import RawReply, Service, head, read_reply, refused, serving, unique
from tests.kit.world import eventually

pytestmark = pytest.mark.adversarial

LIMIT = 64
OTHER = "127.0.0.2"
#: Nothing ends for its age, however slow the machine is.
PATIENT = {"keep_alive_seconds": 300.0, "client_timeout_seconds": 300.0}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[Service]:
    """A server of 64 connections."""
    with serving(tmp_path, noise=Noise(), max_connections=LIMIT, **PATIENT) as service:
        yield service


def keeping(request: bytes) -> bytes:
    """The request without the wish to hang up."""
    return request.replace(b"Connection: close\r\n", b"")


def connected(service: Service, source: str) -> socket.socket:
    return socket.create_connection(service.address, 30, (source, 0))


def asked(service: Service, source: str, request: bytes) -> RawReply | None:
    """One request on a connection of its own from this address."""
    with connected(service, source) as line:
        line.sendall(request)
        return read_reply(line.makefile("rb"))


def held(service: Service, stack: contextlib.ExitStack, source: str, number: int) -> list[socket.socket]:
    """So many connections, one after the other, each kept after a first request."""
    lines = []
    for _ in range(number):
        line = stack.enter_context(connected(service, source))
        line.sendall(keeping(head("GET", "/healthz")))
        assert read_reply(line.makefile("rb")) is not None
        lines.append(line)
    return lines


def silent(service: Service, stack: contextlib.ExitStack, source: str, number: int, said: bytes) -> list[socket.socket]:
    """So many connections, one after the other, on which no request is sent to the end of its head."""
    lines = []
    for _ in range(number):
        lines.append(stack.enter_context(connected(service, source)))
        lines[-1].sendall(said)
    return lines


def test_half_a_head_behind_a_request(house: Service) -> None:
    """As many connections as an address may have, on each of which a request is answered and another one only begun.
    Catches one that can never be ended as it is neither silent nor idle.
    """
    with contextlib.ExitStack() as stack:
        for _ in range(LIMIT // 4):
            line = stack.enter_context(connected(house, "127.0.0.1"))
            line.sendall(keeping(head("GET", "/healthz")) + b"GET /healthz HTTP/1.1\r\n")
            assert read_reply(line.makefile("rb")) is not None
        reply = asked(house, "127.0.0.1", head("GET", "/v1/datasets", house.admin_key))
        assert reply is not None
        assert reply.status == 200


def ended(line: socket.socket) -> bool:
    """Whether the server has hung up, without waiting for it."""
    line.setblocking(False)
    try:
        return line.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_idle_connections_of_one_address(house: Service) -> None:
    """Seventy that are kept open and say nothing more: another address is served at once, ten times of ten; so is the
    same one, whose own longest idle connection ends for it.
    """
    request = head("GET", "/v1/datasets", house.admin_key)
    with contextlib.ExitStack() as stack:
        lines = held(house, stack, "127.0.0.1", 70)
        for source in [OTHER, "127.0.0.1"] * 10:
            reply = asked(house, source, request)
            assert reply is not None
            assert reply.status == 200
        eventually(lambda: ended(lines[0]))
        assert not ended(lines[-1])


def test_a_full_house_of_idle_ones(house: Service) -> None:
    """Eight addresses fill it, none of them beyond its own limit, and say nothing more. Whoever comes is served, and
    whoever has been idle for longest goes for it, nobody else.
    """
    with contextlib.ExitStack() as stack:
        lines = [line for n in range(8) for line in held(house, stack, f"127.0.0.{10 + n}", 8)]
        # The first one speaks again: it is no longer the longest idle.
        lines[0].sendall(keeping(head("GET", "/healthz")))
        assert read_reply(lines[0].makefile("rb")) is not None
        newcomers = held(house, stack, OTHER, 3)
        eventually(lambda: sum(map(ended, lines)) == 3)
        assert [ended(line) for line in lines] == [False, True, True, True] + [False] * 60
        assert not any(map(ended, newcomers))
        assert len(house._server.server_state.connections) == LIMIT


@pytest.mark.parametrize("said", [b"", b"GET /healthz HTTP/1.1\r\n"], ids=["nothing", "half a head"])
def test_silent_connections_of_one_address(house: Service, said: bytes) -> None:
    """More of them than an address may have, and one that has had a reply. Whoever comes from there is served: the
    first of the silent ones ends for each, and never the one that has asked.
    """
    request = head("GET", "/v1/datasets", house.admin_key)
    with contextlib.ExitStack() as stack:
        kept = held(house, stack, "127.0.0.1", 1)
        lines = silent(house, stack, "127.0.0.1", LIMIT // 4 + 3, said)
        eventually(lambda: sum(map(ended, lines)) == 4)
        assert [ended(line) for line in lines] == [True] * 4 + [False] * (len(lines) - 4)
        for _ in range(LIMIT // 4):
            reply = asked(house, "127.0.0.1", request)
            assert reply is not None
            assert reply.status == 200
        assert not ended(kept[0])


@pytest.mark.parametrize("said", [b"", b"GET /healthz HTTP/1.1\r\n"], ids=["nothing", "half a head"])
def test_a_full_house_of_silent_ones(house: Service, said: bytes) -> None:
    """Four addresses fill it with as many as each may have. Another one, which has few of them, is served again and
    again, keeps what it has asked on, and its own silent connection stays while others have more.
    """
    with contextlib.ExitStack() as stack:
        kept = held(house, stack, OTHER, 2)
        own = silent(house, stack, OTHER, 1, b"")
        sources = [f"127.0.0.{10 + n}" for n in range(4)]
        lines = [silent(house, stack, source, LIMIT // 4, said) for source in sources]
        request = head("GET", "/v1/datasets", house.admin_key)
        for _ in range(LIMIT // 4):
            reply = asked(house, OTHER, request)
            assert reply is not None
            assert reply.status == 200
        assert not any(map(ended, kept + own))
        left = [sum(not ended(line) for line in each) for each in lines]
        assert max(left) - min(left) <= 1, "each gives as many as the others"


def test_busy_connections_of_one_address(house: Service) -> None:
    """Connections with a request under way each cannot be ended: one address gets a quarter of all, is told so from
    there on, and another one is served.
    """
    with contextlib.ExitStack() as stack:
        for _ in range(LIMIT // 4):
            line = stack.enter_context(connected(house, "127.0.0.1"))
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf")
        request = head("GET", "/v1/datasets", house.admin_key)
        reply = asked(house, "127.0.0.1", request)
        problem = refused(reply, "unavailable")
        assert "address" in problem["detail"]
        reply = asked(house, OTHER, request)
        assert reply is not None
        assert reply.status == 200


def test_connections_of_a_proxy(tmp_path: Path) -> None:
    """A proxy that is trusted brings those of many clients: it may have all there are. Catches a limit for clients that
    takes a proxy for one.
    """
    with (
        serving(
            tmp_path, noise=Noise(), max_connections=LIMIT, trusted_proxies="192.0.2.1, 127.0.0.0/31", **PATIENT
        ) as service,
        contextlib.ExitStack() as stack,
    ):
        lines = held(service, stack, "127.0.0.1", LIMIT)
        assert held(service, stack, OTHER, LIMIT // 4)
        assert sum(map(ended, lines)) == LIMIT // 4
        held(service, stack, OTHER, 1)
        assert len(service._server.server_state.connections) <= LIMIT + 1
        assert sum(map(ended, lines)) == LIMIT // 4


@pytest.fixture
def guessing(tmp_path: Path) -> Iterator[Service]:
    """A server that 48 connections of 127.0.0.1 ask with one wrong key after the other."""
    stop = threading.Event()

    def guess(service: Service, number: int) -> None:
        with httpx.Client(base_url=service.url, timeout=patience(60)) as client:
            turn = 0
            while not stop.is_set():
                turn += 1
                key = f"cur_a-wrong-key-number-{number:03}-{turn:06}"
                client.get("/v1/datasets", headers={"Authorization": f"Bearer {key}"})

    with serving(tmp_path, noise=Noise()) as service:
        threads = [threading.Thread(target=guess, args=(service, number)) for number in range(48)]
        for thread in threads:
            thread.start()
        try:
            yield service
        finally:
            stop.set()
            for thread in threads:
                thread.join(60)


def test_a_valid_key_beside_guesses(guessing: Service) -> None:
    """Forty-eight of its address try keys all the while. Thirty people use their keys for the first time, as all do
    after a restart: each is let in at the first attempt.
    """
    known = guessing.built.services.principals
    admin = Principal("admin", "admin")
    keys = [known.add(admin, unique("newcomer"), "analyst")["api_key"] for _ in range(30)]
    authenticator = guessing.built.context.authenticator
    eventually(lambda: "127.0.0.1" in authenticator._guesses_of and authenticator._guesses_of["127.0.0.1"].locked())
    with ThreadPoolExecutor(6) as pool:
        replies = list(pool.map(lambda key: asked(guessing, "127.0.0.1", head("GET", "/v1/datasets", key)), keys))
    assert [reply and reply.status for reply in replies] == [200] * 30
