"""A full disk under the embedded database and the vault: nothing is answered that is not stored, nothing is lost.

Real servers on a real file system without room, made full and freed again while they run. Where a small file system
cannot be mounted (that takes a privilege) the server's own limit on the size of files refuses the same writes.
"""

from __future__ import annotations

import contextlib
import itertools
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.storage.store import SqlStore
from tests.kit.servers import Caller, Launcher, Server, launching
from tests.kit.world import HIT, SHAPE, World, distinct_queries, eventually, query, wait

pytestmark = pytest.mark.integration

COUNTS = np.random.default_rng(5).integers(0, 200_000, SHAPE)
MEBIBYTE = 1 << 20


class SmallDisk:
    """A file system of 24 MiB of its own, or a folder; its fullness is that of the one server it is for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        mount = shutil.which("mount")
        options = ["-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
        self.mounted = mount is not None and subprocess.run([mount, *options], check=False).returncode == 0

    def fill(self, server: Server, left: int = 0) -> None:
        """Leave no room, or so many bytes."""
        if not self.mounted:
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (left, resource.RLIM_INFINITY))
            return
        with (self.folder / "filler").open("wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(MEBIBYTE))
            # Whole pages are what it is full to.
            file.truncate(max(0, file.tell() - left))

    def free(self, server: Server) -> None:
        if self.mounted:
            (self.folder / "filler").unlink()
        else:
            resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def end(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    made = SmallDisk(tmp_path / "disk")
    try:
        yield made
    finally:
        made.end()


@pytest.fixture
def launcher(disk: SmallDisk) -> Iterator[Launcher]:
    """Its logs lie on the same disk, as they do where standard error goes to a file."""
    with launching(disk.folder / "data", None) as made:
        yield made


def opened(server: Server, analysts: int) -> list[tuple[Caller, str]]:
    """Analysts, each with a session that has been asked once."""
    admin = Caller(server.url)
    assert admin.register("d", COUNTS, budget={"epsilon": 4.0, "delta": 1e-6}).status_code == 201
    made = []
    for n in range(analysts):
        caller = Caller(server.url, admin.add(f"ann-{n}"))
        body = {"dataset": "d", "mechanism": {"construction": "mw"}, "epsilon": 0.5, "max_queries": 1000}
        reply = caller.post("/v1/sessions", {**body, "max_updates": 12})
        assert reply.status_code == 201, reply.text
        made.append((caller, reply.json()["id"]))
        told(caller, f"/v1/sessions/{made[-1][1]}/queries", query(0))
    return made


def told(caller: Caller, path: str, body: Any) -> httpx.Response:
    """The answer to a request that is repeated as long as it is told to come again."""

    def answer() -> httpx.Response | None:
        reply = caller.post(path, body, "k")
        assert reply.status_code in (200, 503), reply.text
        return reply if reply.status_code == 200 else None

    reply: httpx.Response = eventually(answer)
    return reply


def batch(which: int) -> dict[str, Any]:
    """Forty queries of nobody else's; their entries take more room than a page has left."""
    return {"queries": list(itertools.islice(distinct_queries(), 40 * which, 40 * which + 40))}


def not_ready(caller: Caller) -> httpx.Response | None:
    """What the service says when it cannot work; None when it can."""
    reply = caller.http.get("/readyz")
    return reply if reply.status_code == 503 else None


def ask_on_a_full_disk(launcher: Launcher, disk: SmallDisk, **order: Any) -> None:
    """Ask on a full disk, free it, and hold what was heard against what is recorded."""
    server = launcher.start(**order).wait_until_ready()
    sessions = opened(server, 3)
    paths = [f"/v1/sessions/{id}/queries/batch" for _, id in sessions]
    disk.fill(server)
    with ThreadPoolExecutor(len(sessions)) as pool:
        asked = [
            pool.submit(caller.post, path, batch(n), f"k{n}")
            for n, ((caller, _), path) in enumerate(zip(sessions, paths, strict=True))
        ]
        try:
            unready = eventually(lambda: not_ready(sessions[0][0]) or (asked[0].done() and asked[0].result()))
            assert unready.status_code == 503, "answered, and not stored"
            assert (unready.json()["type"], "commit" in unready.text) == ("/problems/unavailable", True)
            # Public records can be read meanwhile, and say nothing of what is not stored.
            assert [len(caller.transcript(id)) for caller, id in sessions] == [3] * len(sessions)
            assert not any(reply.done() for reply in asked), "answered, and not stored"
        finally:
            disk.free(server)
        replies = [reply.result(30) for reply in asked]
    assert [reply.status_code for reply in replies] == [200] * len(replies)
    eventually(lambda: sessions[0][0].http.get("/readyz").status_code == 200)
    server.kill()
    server = launcher.start(server.port).wait_until_ready()
    for n, ((caller, id), path, reply) in enumerate(zip(sessions, paths, replies, strict=True)):
        assert caller.post(path, batch(n), f"k{n}").content == reply.content, "another answer to the same key"
        found = [answer["sequence"] for answer in reply.json()["answers"] if "sequence" in answer]
        assert found == list(range(2, len(caller.transcript(id)) - 1))
    Caller(server.url, Caller(server.url).add("auditor", "auditor")).audit()
    assert "Traceback" not in launcher.logs()


def test_answers_wait_for_room(launcher: Launcher, disk: SmallDisk) -> None:
    """Catches an answer that leaves although its commit failed, an outcome dropped or drawn afresh, a lane that ends
    (of a log line, which finds no room either), and a service that calls itself ready meanwhile.
    """
    ask_on_a_full_disk(launcher, disk)


def test_the_harness_sees_an_answer_that_was_not_stored(launcher: Launcher, disk: SmallDisk) -> None:
    """The same over a server that takes a failed commit for one that has happened."""
    with pytest.raises(AssertionError, match="answered, and not stored"):
        ask_on_a_full_disk(launcher, disk, bug="drop on failure")


def test_a_client_that_gave_up_gets_the_same_outcome(launcher: Launcher, disk: SmallDisk) -> None:
    """Nobody waits any more when there is room again. Catches a round that is abandoned with its client: to be told
    503 and to ask again would be a second threshold test for free.
    """
    server = launcher.start(settings={"CURATOR_REQUEST_TIMEOUT_SECONDS": "0.5"}).wait_until_ready()
    ((caller, id),) = opened(server, 1)
    path = f"/v1/sessions/{id}/queries/batch"
    disk.fill(server)
    for _ in range(2):
        refusal = caller.post(path, batch(0), "k")
        assert (refusal.status_code, refusal.json()["type"]) == (503, "/problems/unavailable")
        assert int(refusal.headers["Retry-After"]) >= 1
    disk.free(server)
    reply = told(caller, path, batch(0))
    assert told(caller, path, batch(0)).content == reply.content
    auditor = Caller(server.url, Caller(server.url).add("auditor", "auditor"))
    auditor.audit()
    # Each query was answered once: none was already known when the repeated request came to its turn.
    assert "cached" not in {answer.get("source") for answer in reply.json()["answers"]}


def test_killed_while_the_disk_is_full(launcher: Launcher, disk: SmallDisk) -> None:
    """Catches a half-written log that a start takes for answers, or that keeps it from starting."""
    server = launcher.start().wait_until_ready()
    ((caller, id),) = opened(server, 1)
    path = f"/v1/sessions/{id}/queries/batch"
    # The log has come as far: else the trailer tells its size only after the restart.
    eventually(lambda: b'"log_size":null' not in caller.transcript(id)[-1])
    before = caller.transcript(id)
    disk.fill(server)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(caller.post, path, batch(0), "k")
        eventually(lambda: not_ready(caller))
        server.kill()
        assert asked.exception(30) is not None
    if disk.mounted:
        disk.free(server)
    server = launcher.start(server.port).wait_until_ready()
    assert caller.transcript(id) == before
    assert caller.post(path, batch(0), "k").status_code == 200
    Caller(server.url, Caller(server.url).add("auditor", "auditor")).audit()


@pytest.mark.parametrize("left", [0, 64 << 10], ids=["the file", "the row"])
def test_a_registration_without_room(launcher: Launcher, disk: SmallDisk, left: int) -> None:
    """Catches a file that stays behind (the next attempt would find even less room), a row without its file, and a
    reply that blames the upload.
    """
    server = launcher.start().wait_until_ready()
    admin = Caller(server.url)
    disk.fill(server, left)
    vault = launcher.folder / "vault"
    try:
        replies = []
        # There is room for this file, and for a few pages of the database's log besides.
        for _ in range(40 if left else 1):
            replies.append(admin.register(f"d{len(replies)}", COUNTS))
            if replies[-1].status_code != 201:
                break
        refusal = replies[-1]
        assert (refusal.status_code, refusal.json()["type"]) == (503, "/problems/unavailable"), refusal.text
        assert str(launcher.folder) not in refusal.text
        kept = [f"d{n}" for n in range(len(replies) - 1)]
        assert [item["name"] for item in admin.get("/v1/datasets")["items"]] == sorted(kept)
        assert sorted(p.name.split(".")[0] for p in vault.glob("*") if p.suffix != ".lock") == sorted(kept)
    finally:
        disk.free(server)
    assert admin.register(f"d{len(kept)}", COUNTS).status_code == 201
    assert admin.http.get("/readyz").status_code == 200
    assert "Traceback" not in launcher.logs()


@pytest.mark.parametrize("draw", [0, HIT])
def test_the_outcome_is_kept(worlds: Callable[..., World], monkeypatch: pytest.MonkeyPatch, draw: int) -> None:
    """SQLite itself refuses to grow, and noise is counted. Catches a round drawn afresh when there is room again."""
    world = worlds(None)
    world.register("d")
    ann = world.analyst("ann")
    id = world.open(ann, "d", max_updates=50, epsilon=0.9)
    questions = list(itertools.islice(distinct_queries(), 40))

    def pages(most: int) -> None:
        with SqlStore.write(world.store) as tx:
            tx.connection.exec_driver_sql(f"PRAGMA max_page_count={most}")

    world.noise.script.extend([draw] * len(questions))
    pages(1)  # SQLite takes it as: no more than there are
    ticket = world.submit(ann, id, *questions, key="k", kind="batch")
    eventually(lambda: world.built.context.lifecycle.ready())
    assert ticket.reply is None or not ticket.waiter.is_set()
    assert world.entries(id) == []
    pages(1 << 30)
    answers = wait(ticket)["answers"]
    assert world.noise.drawn == len(questions)
    assert [answer["source"] for answer in answers] == ["measurement" if draw else "hypothesis"] * len(questions)
    assert world.built.context.lifecycle.ready() is None
    assert wait(world.submit(ann, id, *questions, key="k", kind="batch"))["answers"] == answers
    assert world.noise.drawn == len(questions)
    world.audit()
