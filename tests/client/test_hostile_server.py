"""Would show a client that believes what it is sent: without end, compressed, a byte at a time, nested without bottom.

The other end is a socket on 127.0.0.1 that says what a test has it say. Each reply is refused within bounds of memory,
disk and time, as an error that the client documents.
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
import re
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from curator_client import Curator, ProtocolError, Refused, Unreachable, log_folder
from curator_client._async import releases as awaited_releases
from curator_client._sync import releases as blocking_releases
from curator_client._sync.http import LEAST_RATE
from curator_client.calls import SMALL
from curator_client.log_folder import LogFolder
from curator_client.proofs.merkle import Frontier, leaf_hash
from curator_client.proofs.notes import Signer
from curator_client.release_states import ReleaseState
from curator_client.tables import array, arrow_table
from tests.kit.awaited import Awaited, awaited
from tests.kit.fetched import fetch
from tests.kit.patience import patience

pytestmark = pytest.mark.unit

Reply = Iterable[bytes]
DEEP = b"[" * 100_000 + b"]" * 100_000
ENDLESS_CHUNK = b"%x\r\n" % (1 << 16) + bytes(1 << 16) + b"\r\n"


def head(status: str = "200 OK", **fields: str) -> bytes:
    told = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\nConnection: close\r\n{told}\r\n".encode()


def whole(body: bytes, status: str = "200 OK", **fields: str) -> Reply:
    return [head(status, Content_Length=str(len(body)), **fields) + body]


def endless() -> Reply:
    yield head(Transfer_Encoding="chunked")
    yield from itertools.repeat(ENDLESS_CHUNK)


def dripping(content: bytes, seconds: float = 0.02) -> Reply:
    """A byte at a time, and then white space for ever."""
    for byte in content:
        time.sleep(seconds)
        yield bytes([byte])
    while True:
        time.sleep(seconds)
        yield b" "


class Server:
    """Answers each request with what ``say`` makes of its path, and closes the connection."""

    def __init__(self) -> None:
        self.say: Callable[[str], Reply] = lambda _: whole(b"{}")
        self.sent = 0
        self._ended = False
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with suppress(OSError), connection:
            request = b""
            while b"\r\n\r\n" not in request:
                request += connection.recv(1 << 16)
            length = re.search(rb"(?i)content-length: (\d+)", request)
            body = request.partition(b"\r\n\r\n")[2]
            while length is not None and len(body) < int(length[1]):
                body += connection.recv(1 << 16)
            for part in self.say(request.split(b" ")[1].decode()):
                if self._ended:
                    return
                connection.sendall(part)
                self.sent += len(part)

    def stop(self) -> None:
        self._ended = True
        self._socket.close()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


@pytest.fixture(params=[Curator, awaited], ids=["blocking", "awaited"])
def curator(server: Server, request: pytest.FixtureRequest) -> Iterator[Curator]:
    with request.param(server.url, "key", timeout=0.6, retry_for=0) as client:
        yield client


def peak_of(call: Callable[[], Any], words: str) -> int:
    """Bytes that a call takes which is refused with these words."""
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match=words):
            call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


SMALL_ROUTES: dict[str, Callable[[Curator], Any]] = {
    "the log's key": lambda curator: curator.log_routes.key(),
    "its statements": lambda curator: curator.log_routes.key_statements(),
    "a checkpoint": lambda curator: curator.log_routes.checkpoint(),
    "a proof": lambda curator: curator.log_routes.consistency(1, 2),
    "a refusal": lambda curator: curator.dataset("d"),
}


@pytest.mark.parametrize("route", SMALL_ROUTES)
def test_what_says_little_is_read_so_far_and_no_further(server: Server, curator: Curator, route: str) -> None:
    def say(_: str) -> Reply:
        yield head("403 Forbidden" if route == "a refusal" else "200 OK", Transfer_Encoding="chunked")
        yield from itertools.repeat(ENDLESS_CHUNK)

    server.say = say
    assert peak_of(lambda: SMALL_ROUTES[route](curator), "more than") < 16 * SMALL
    assert server.sent < 64 * SMALL  # what the system holds on the way is not the client's


@pytest.mark.slow
@pytest.mark.parametrize("route", SMALL_ROUTES)
def test_nothing_is_decompressed(server: Server, curator: Curator, route: str) -> None:
    """A megabyte under the log's key used to become a gigabyte in memory."""
    packed = gzip.compress(bytes(64 << 20))
    server.say = lambda _: whole(packed, Content_Encoding="gzip")
    assert peak_of(lambda: SMALL_ROUTES[route](curator), "compressed") < 4 << 20


def test_no_compression_is_asked_for(server: Server, curator: Curator) -> None:
    seen: list[str] = []

    def say(_: str) -> Reply:
        return whole(b'{"key": "k"}')

    server.say = say
    request = curator._service.transport._http.build_request("GET", "/v1/log/key")
    seen.append(request.headers["Accept-Encoding"])
    assert curator.log_routes.key() == "k"
    assert seen == ["identity"]


@pytest.mark.parametrize("where", ["head", "body", "refusal"])
def test_a_byte_now_and_then_is_not_waited_for(server: Server, curator: Curator, where: str) -> None:
    """Each byte came within the timeout; all of them never did."""

    def say(_: str) -> Reply:
        if where == "head":
            yield from dripping(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 10_000)
        yield head("200 OK" if where == "body" else "403 Forbidden", Content_Length="100000")
        yield from dripping(b'{"key": "')

    server.say = say
    began = time.monotonic()
    with pytest.raises(Unreachable):
        curator.log_routes.key()
    assert time.monotonic() - began < patience(5)


@pytest.mark.slow
def test_a_download_goes_on_while_its_bytes_move(server: Server, curator: Curator, tmp_path: Path) -> None:
    """Would catch a limit on the whole time that large transcripts cannot keep."""

    def say(_: str) -> Reply:
        yield head(Content_Length=str(16 * LEAST_RATE))
        for _ in range(16):
            time.sleep(0.1)
            yield bytes(LEAST_RATE)

    server.say = say
    began = time.monotonic()
    path = curator.transcript("S", tmp_path / "S")
    assert time.monotonic() - began > 1.2  # twice the timeout
    assert path.stat().st_size == 16 * LEAST_RATE


def test_a_transcript_has_the_bytes_that_it_may(server: Server, curator: Curator, tmp_path: Path) -> None:
    server.say = lambda _: endless()
    with pytest.raises(ProtocolError, match="more than 1,048,576 bytes"):
        curator.transcript("S", tmp_path / "S", most_bytes=1 << 20)
    assert [*tmp_path.iterdir()] == []


def test_json_has_a_bottom(server: Server, curator: Curator) -> None:
    """The parser of the standard library gave up with a RecursionError."""
    server.say = lambda _: whole(DEEP)
    asked: list[Callable[[], Any]] = [
        curator.log_routes.key, lambda: curator.dataset("d"), curator.principals, lambda: curator.resume("S"),
        lambda: curator.plan("d", epsilon=1, max_queries=1), lambda: curator.log_routes.consistency(1, 2),
    ]  # fmt: skip
    for ask in asked:
        with pytest.raises(ProtocolError):
            ask()
    server.say = lambda _: whole(DEEP, "422 Unprocessable Entity")
    with pytest.raises(Refused, match="not a problem object"):
        curator.dataset("d")


def test_json_of_another_form_is_told(server: Server, curator: Curator) -> None:
    for body in (b"[]", b"null", b"3", b'"x"', b"{}"):
        server.say = lambda _, body=body: whole(body)  # type: ignore[misc]
        for ask in (
            curator.log_routes.key,
            curator.log_routes.key_statements,
            lambda: curator.log_routes.consistency(1, 2),
        ):
            with pytest.raises(ProtocolError):
                ask()


def test_a_page_of_the_log_has_the_lines_that_it_may(server: Server, curator: Curator) -> None:
    server.say = lambda _: whole(b"\n" * 1_001)
    with pytest.raises(ProtocolError, match="a page of the log"):
        curator.log_routes.entries(0, 10**9)


def test_arrays_are_of_the_size_that_they_say(server: Server, curator: Curator) -> None:
    """NumPy makes room for as many numbers as are told before it reads them."""
    written = io.BytesIO()
    np.save(written, np.arange(6.0).reshape(2, 3))
    content = written.getvalue()
    lying = content.replace(b"(2, 3), }        ", b"(2, 999999999), }"[:17])
    bodies = [lying, b"", b"PK\x03\x04", content[:-1], content + b"x", content.replace(b"<f8", b"|O8")]
    assert lying != content
    assert (array(content) == np.arange(6.0).reshape(2, 3)).all()
    for body in bodies:
        with pytest.raises(ProtocolError, match="not an array"):
            array(body)


def test_tables_are_tables() -> None:
    for body in (b"", b"\xff\xff\xff\xff" + struct.pack("<i", 1 << 30), b"ARROW1\0\0"):
        with pytest.raises(ProtocolError, match="not a table"):
            arrow_table(body)


@pytest.mark.parametrize("lines", ["dripping", "without end", "deep"])
def test_events_have_their_time_and_their_size(
    server: Server, curator: Curator, lines: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (blocking_releases, awaited_releases):
        monkeypatch.setattr(module, "EVENT_SECONDS", 0.5)
        monkeypatch.setattr(module, "AWAY_SECONDS", 0.0)

    def say(_: str) -> Reply:
        yield head(Content_Type="text/event-stream")
        if lines == "dripping":
            yield from dripping(b"data: ")
        elif lines == "deep":
            yield b"data: " + DEEP + b"\n\n"
        while True:
            yield b"x" * (1 << 16)

    server.say = say
    release = release_of(curator)
    began = time.monotonic()
    with pytest.raises(Unreachable if lines == "dripping" else ProtocolError):
        next(release.events())
    assert time.monotonic() - began < patience(5)


def release_of(curator: Any) -> Any:
    """A release of which no more is known than its id."""
    blank: dict[str, Any] = dict.fromkeys(field.name for field in fields(ReleaseState))
    state = ReleaseState(**{**blank, "id": "R"})
    if isinstance(curator, Curator):
        return blocking_releases.Release(curator._service.transport, state)
    made = awaited_releases.AsyncRelease(curator._target._service.transport, state)
    return Awaited(made, curator._runner)


def log_of(lines: list[bytes], size: int | None = None) -> dict[str, bytes]:
    """What a service tells of a log."""
    signer, tree = Signer(bytes(32)), Frontier()
    for line in lines:
        tree.append(leaf_hash(line))
    return {
        "/v1/log/key": json.dumps({"key": signer.verifier.text(), "previous": []}).encode(),
        "/v1/log/checkpoint": signer.note(tree.size if size is None else size, tree.root()),
    }


def test_a_transcript_is_what_the_log_can_say_of_it(
    server: Server, curator: Curator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three gigabytes of transcript used to be written for a session of one line."""
    monkeypatch.setattr(log_folder, "SINCE_BYTES", 1 << 18)
    header = b'{"mechanism":{},"record":"header","session":"S"}'
    told = log_of([header])

    def say(path: str) -> Reply:
        if path in told:
            return whole(told[path])
        return whole(header + b"\n") if path.startswith("/v1/log/entries") else endless()

    server.say = say
    folder = LogFolder(tmp_path)
    fetch(folder, curator)
    with pytest.raises(ProtocolError, match=f"more than {len(header) + 1 + (1 << 18):,} bytes"):
        curator.log(tmp_path).fetch()
    with pytest.raises(ProtocolError, match="more than 1,000 bytes"):
        curator.log(tmp_path).fetch(most_bytes=1000)
    assert not [*tmp_path.rglob(".*.tmp")]


def test_a_log_grows_by_what_it_may(server: Server, curator: Curator, tmp_path: Path) -> None:
    """A log may be signed to be of any size, and its lines are written before they can be verified."""
    told = log_of([b"{}"], 10**12)
    page = (b'{"record":"' + b"x" * 1000 + b'"}\n') * 1000
    server.say = lambda path: whole(told.get(path, page))
    folder = LogFolder(tmp_path)
    with pytest.raises(ProtocolError, match="grown by more than 4,194,304 bytes"):
        fetch(folder, curator, most_bytes=4 << 20)
    assert (tmp_path / "entries.ndjson").stat().st_size == 0
    assert not (tmp_path / "checkpoint").exists()
