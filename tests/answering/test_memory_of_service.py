"""What is in memory stays within its limit: hypotheses, known answers, and the process as a whole."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.curator import answers, opening
from app.releases import factorization
from app.services import openings
from app.services.answering import dispatch
from app.services.errors import NotFound
from tests.kit.patience import patience
from tests.kit.servers import Caller, Server, launching
from tests.kit.world import ADMIN_KEY, SPEC, World, distinct_queries, eventually

pytestmark = pytest.mark.integration

SIDE, SESSIONS = 1000, 24

#: Threads that allocate at the same time, in a process that has called what its argument names; prints how many heaps
#: the C library then has.
HEAPS = """
import ctypes, sys, threading
from app.bootstrap import process
for name in sys.argv[2:]:
    getattr(process, name)()
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.fopen.restype = ctypes.c_void_p
together = threading.Barrier(12)
def allocate():
    together.wait()
    for _ in range(1000):
        libc.malloc(100_000)
threads = [threading.Thread(target=allocate) for _ in range(12)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
print(open(sys.argv[1]).read().count("<heap nr="))
"""


def heaps(told: Path, *calls: str, **environment: str) -> int:
    clean = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    command = [sys.executable, "-c", HEAPS, str(told), *calls]
    return int(subprocess.run(command, env=clean | environment, check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_info"), reason="not the GNU C library")
def test_threads_share_heaps(tmp_path: Path) -> None:
    """Each heap keeps the most that it ever held: with one a thread a server grows for hours. Would catch a switch that
    does nothing, as it does when it is set too late or by another number, and one that overrules the operator."""
    assert heaps(tmp_path / "as-it-was") > 3
    assert heaps(tmp_path / "shared", "share_heaps") == 2
    assert heaps(tmp_path / "told", "share_heaps", MALLOC_ARENA_MAX="1") == 1


@pytest.fixture(autouse=True)
def nothing_kept() -> None:
    """The process's caches are empty, as in a process that starts: they stand in its account of memory, and what tests
    before left there would take the room that lanes share."""
    for kept in (opening._SHARED, openings._kept, factorization._KEPT_ROWS):
        kept.clear()


def test_known_answers_are_accounted(worlds: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    """A session grows by what it was asked, and others make room for it. Would catch answers that nobody counts, an
    account that drifts from what is held, and room that is made only when a session comes back."""
    monkeypatch.setattr(answers, "RECENT_BYTES", 1 << 20)
    world = worlds(None, memory_limit=52 << 20)  # 13 MiB a lane, of which 5 are held ready for updates
    world.register("d")
    ann = world.analyst("ann")
    one, other = world.open(ann, "d"), world.open(ann, "d")
    queries = list(distinct_queries())
    residents = world.answering._lanes[0].residents
    world.ask(ann, one, queries[0])
    for number, body in enumerate(queries[:5], start=1):
        world.ask(ann, other, body)
        # Accounts are settled after the reply.
        eventually(lambda number=number: residents.get(other).nbytes > number << 20)
    assert one in residents
    ready = residents._ballast.nbytes
    assert ready == 5 << 20
    assert residents.held == residents.get(one).nbytes + residents.get(other).nbytes + ready
    for body in queries[5:7]:
        world.ask(ann, other, body)
    eventually(lambda: one not in residents and residents.held - ready == residents.get(other).nbytes > 7 << 20)
    assert world.ask(ann, one, queries[0])["source"] == "cached"
    world.audit()


def test_few_sessions_are_remembered_by_name(worlds: Callable[..., World], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where sessions belong is kept of so many: would catch a server that grows with every session there ever was, and
    one that forgets a session's owner, or its lane, with the note."""
    monkeypatch.setattr(dispatch, "ROUTES", 2)
    world = worlds(None)
    world.register("d")
    ann, eve = world.analyst("ann"), world.analyst("eve")
    ids = [world.open(ann, "d") for _ in range(4)]
    queries = list(distinct_queries())
    for number in range(8):
        assert world.ask(ann, ids[number % 4], queries[number])["sequence"] == 1 + number // 4
        assert sum(world.answering.knows(id) for id in ids) <= 2
    with pytest.raises(NotFound):
        world.submit(eve, ids[0], queries[0])
    world.audit()


def growth(folder: Path, limit: str) -> float:
    """MiB that a server's memory grew by while it answered sessions of 8 MB each in turn."""
    with launching(folder, None) as launcher:
        server = launcher.start(settings={"CURATOR_MEMORY_LIMIT": limit}).wait_until_ready()
        caller = Caller(server.url)
        axes = [{"name": "a", "size": SIDE}, {"name": "b", "size": SIDE}]
        assert caller.register("d", np.eye(SIDE, dtype=np.uint8), attributes=axes).status_code == 201
        body: dict[str, Any] = {"dataset": "d", "mechanism": {"construction": "mw"}, "epsilon": 0.01}
        body |= {"max_queries": 10, "max_updates": 2}
        ids = [caller.post("/v1/sessions", body).json()["id"] for _ in range(SESSIONS)]
        before, most = resident(server), 0.0
        for number, id in enumerate(ids):
            words = {"type": "predicate", "where": {"a": {"between": [0, number]}}}
            assert caller.post(f"/v1/sessions/{id}/queries", words).status_code == 200
            most = max(most, resident(server))
        return most - before


def resident(server: Server) -> float:
    status = Path(f"/proc/{server.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def test_a_process_stays_within_its_limit(tmp_path: Path) -> None:
    """24 sessions of 8 MB each, where two lanes have room for two each: the process itself grows by little more.
    And a limit that none of them reaches, to see that it is the limit that holds them."""
    hypotheses = SESSIONS * SIDE * SIDE * 8 / 2**20
    assert growth(tmp_path / "small", "80MiB") < hypotheses / 2
    assert growth(tmp_path / "large", "1GiB") > 0.9 * hypotheses


class Watched(threading.Thread):
    """The most bytes that a process held while this was entered: memory of its own, and memory files."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._process, self._ended = Path(f"/proc/{pid}"), threading.Event()
        self.before = self.most = self.held()

    def held(self) -> int:
        own = int((self._process / "status").read_text().split("RssAnon:")[1].split()[0]) * 1024
        files: dict[int, int] = {}
        for link in (self._process / "fd").iterdir():
            with suppress(FileNotFoundError):
                if str(link.readlink()).startswith("/memfd:"):
                    found = link.stat()
                    files[found.st_ino] = found.st_blocks * 512
        return own + sum(files.values())

    def run(self) -> None:
        while not self._ended.wait(0.002):
            self.most = max(self.most, self.held())

    def __enter__(self) -> Watched:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()


def test_an_upload_is_held_once(tmp_path: Path) -> None:
    """A file of 64 MiB, of which 64 KiB are numbers to keep: while it is registered the server holds it, and not much
    more. Would catch a second copy beside the one that the account of all bodies knows of, such as the form's own or
    one for the reader, and a file that stays when its reply is there."""
    rows = 1 << 16
    content = b"a,note\n" + b"".join(b"%d,%s\n" % (number % 2, b"x" * 1021) for number in range(rows))
    assert len(content) > 64 << 20
    spec = SPEC | {"name": "long", "attributes": [{"name": "a", "size": 2}]}
    with launching(tmp_path, None) as launcher:
        server = launcher.start().wait_until_ready()
        headers = {"Authorization": f"Bearer {ADMIN_KEY}"}
        with httpx.Client(base_url=server.url, headers=headers, timeout=patience(60)) as admin:

            def register(name: str, file: bytes) -> None:
                form = {"spec": json.dumps(spec | {"name": name})}
                reply = admin.post("/v1/datasets", data=form, files={"data": ("t.csv", file)})
                assert reply.status_code == 201, reply.text

            register("short", content[:10_000].rpartition(b"\n")[0])  # what is loaded late is loaded
            with Watched(server.pid) as watched:
                register("long", content)
            size, grown, left = len(content), watched.most - watched.before, watched.held() - watched.before
            assert size < grown < 1.25 * size
            assert left < size / 4


def test_private_numbers_and_what_is_held_ready_are_told_to_the_account(worlds: Callable[..., World]) -> None:
    """Would catch data sets beside the limit, and a lane that keeps a session beyond its share while another needs the
    room: two of 8 MB in two lanes with 20 for an update each, and private counts, of which one session goes."""
    world = worlds(None, memory_limit=64 << 20)  # 48 MiB for all lanes and the numbers
    attributes = [{"name": "a", "size": SIDE}, {"name": "b", "size": SIDE}]
    world.register("d", np.full((SIDE, SIDE), 1000, np.int64), attributes=attributes)
    ann = world.analyst("ann")
    lanes = world.answering._lanes
    account = lanes[0].residents._memory
    ids: dict[int, str] = {}
    while len(ids) < 2:
        id = world.open(ann, "d", epsilon=0.01, max_updates=2)
        ids.setdefault(world.answering.route(ann, id)[1], id)
    (first, one), (second, other) = ids.items()
    body = {"type": "predicate", "where": {"a": {"between": [0, 5]}}}
    for number, id in ((first, one), (second, other)):
        world.ask(ann, id, body)
        own = lanes[number].residents
        eventually(lambda own=own: own._ballast.nbytes > 16 << 20)
        assert id in own
    numbers = world.built.context.services.opener._private.held
    assert numbers >= 2 * SIDE**2
    assert account.held >= numbers + sum(lane.residents.held for lane in lanes)
    assert one not in lanes[first].residents
    assert lanes[first].residents._ballast.nbytes == 0
    world.audit()
