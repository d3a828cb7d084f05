"""Readers who take almost nothing of what they ask for would fill the server's memory with it, whatever its limit is.

One analyst asks forty times for a hypothesis of 16 MiB, or for a transcript with a record as long, and reads a few
bytes of each. Without a bound the server holds all of them: 640 MiB here.
"""

from __future__ import annotations

import io
import json
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from app.services.exports import MOST_EACH
from tests.kit.servers import Caller, Server, launching
from tests.kit.world import eventually

pytestmark = pytest.mark.adversarial

SHAPE = (2048, 1024)
ARRAY = 8 * SHAPE[0] * SHAPE[1]
CLIENTS = 40
MIB = 1 << 20
OPENING = {
    "dataset": "d",
    "mechanism": {"construction": "mw"},
    "epsilon": 0.01,
    "max_queries": 10,
    "max_updates": 2,
}


class Reader:
    """A client that reads the head of a reply, and of its body what came with that."""

    def __init__(self, stack: ExitStack, server: Server, key: str, path: str) -> None:
        self._socket = stack.enter_context(socket.socket())
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.connect(("127.0.0.1", server.port))
        self._socket.settimeout(30)
        head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nAccept: application/x-npy\r\n\r\n"
        self._socket.sendall(head.encode())

    def reply(self) -> tuple[int, dict[str, str], bytes]:
        """Status, headers in lower case, and the beginning of the body."""
        told = b""
        while b"\r\n\r\n" not in told:
            told += self._socket.recv(1024)
        head, _, body = told.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        if first.split()[1] != "200":
            while len(body) < int(headers["content-length"]):
                body += self._socket.recv(1024)
        return int(first.split()[1]), headers, body


@contextmanager
def attacked(folder: Path) -> Iterator[tuple[Server, str, dict[str, str]]]:
    """A server with a small limit, the id of ann's session, and keys."""
    with launching(folder / "data", None) as launcher:
        server = launcher.start(settings={"CURATOR_MEMORY_LIMIT": "64MiB"}).wait_until_ready()
        admin = Caller(server.url)
        axes = [{"name": "a", "size": SHAPE[0]}, {"name": "b", "size": SHAPE[1]}]
        assert admin.register("d", np.ones(SHAPE, dtype=np.uint8), attributes=axes).status_code == 201
        keys = {name: admin.add(name) for name in ("ann", "bob")}
        yield server, str(Caller(server.url, keys["ann"]).post("/v1/sessions", OPENING).json()["id"]), keys


@pytest.mark.parametrize("what", ["hypothesis", "transcript"])
def test_what_slow_readers_hold_is_bounded(tmp_path: Path, what: str) -> None:
    with attacked(tmp_path) as (server, id, keys), ExitStack() as stack:
        ann, bob = (Caller(server.url, keys[name]) for name in ("ann", "bob"))
        if what == "transcript":
            weights = io.BytesIO()
            np.save(weights, np.random.default_rng(1).uniform(-1, 1, SHAPE))
            dense = {"Content-Type": "application/x-npy"}
            asked = ann.http.post(f"/v1/sessions/{id}/queries", content=weights.getvalue(), headers=dense)
            assert asked.status_code == 200
        process = psutil.Process(server.pid)
        before = most = process.memory_info().rss
        readers = [Reader(stack, server, keys["ann"], f"/v1/sessions/{id}/{what}") for _ in range(CLIENTS)]
        statuses: Counter[int] = Counter()
        for reader in readers:
            status, headers, body = reader.reply()
            statuses[status] += 1
            most = max(most, process.memory_info().rss)
            if status != 200:
                assert headers["content-type"] == "application/problem+json"
                assert int(headers["retry-after"]) > 0
                assert json.loads(body)["status"] == status
        # Half of the few places that there are is hers; more would not be let in with more memory either.
        assert statuses.keys() == {200, 429}
        assert 1 <= statuses[200] <= MOST_EACH < CLIENTS
        # The one that is made takes three arrays at the most, and a record is written in some more pieces.
        assert most - before < 6 * ARRAY < CLIENTS * ARRAY / 4
        # What she holds keeps nobody else from theirs.
        theirs = bob.post("/v1/sessions", OPENING).json()["id"]
        got = bob.http.get(f"/v1/sessions/{theirs}/hypothesis", headers={"Accept": "application/x-npy"})
        assert got.status_code == 200
        assert np.load(io.BytesIO(got.content)).shape == SHAPE
        eventually(lambda: len(open_exports(server.pid)) == statuses[200])
        # And nothing of it is left when they hang up.
        stack.close()
        eventually(lambda: ann.http.get(f"/v1/sessions/{id}/hypothesis").status_code == 200)
        eventually(lambda: not open_exports(server.pid))


def open_exports(pid: int) -> list[Any]:
    """Files that the server holds of exports."""
    found = []
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(file.readlink())
        except FileNotFoundError:  # it was closed in this moment
            continue
        if "/exports/" in target:
            found.append(target)
    return found
