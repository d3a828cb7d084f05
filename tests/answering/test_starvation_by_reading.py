"""One analyst who asks for hypotheses without end, and does not wait for them, would keep the server from all others.

Remaking a state takes as long as all its updates took, whoever asks. Lists would be as long as there are sessions.
"""

from __future__ import annotations

import json
import socket
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import event

from app.audit.replay import replay
from app.curator.session import Session
from app.spaces.query import Query
from tests.kit.patience import patience
from tests.kit.world import ADMIN, AUDITOR, HIT, World, distinct_queries, eventually, make_world, query, served

pytestmark = pytest.mark.adversarial

UPDATES = 10


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A service that writes no sessions down: on a slow machine that would be worth its while, and what is to be remade
    here would come from there.
    """
    made = make_world(tmp_path, snapshot_limit=0)
    yield made
    made.stop()


class Watch:
    """Sees every update that is made, and holds those of the sessions it is told to hold."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        #: Sessions as they began to be remade, by how many updates their plans have, and updates of each.
        self.begun: list[int] = []
        self.made: dict[int, int] = {}
        self.held, self._steps = -1, threading.Semaphore(0)
        learn = Session.learn

        def watched(session: Session, asked: Query, value: float) -> None:
            name = session.plan.max_updates
            if session.updates_used == 0:
                self.begun.append(name)
            if name == self.held:
                assert self._steps.acquire(timeout=patience(30))
            learn(session, asked, value)
            self.made[name] = self.made.get(name, 0) + 1

        monkeypatch.setattr(Session, "learn", watched)

    def step(self, updates: int) -> None:
        self._steps.release(updates)


def taught(world: World, who: Any, updates: int, plan: int) -> str:
    """A session with so many updates; ``plan`` of them are in its plan, which tells it apart."""
    id = world.open(who, "d", max_updates=plan, epsilon=0.1)
    for asked in list(distinct_queries())[:updates]:
        world.noise.script.append(HIT)
        assert world.ask(who, id, asked)["source"] == "measurement"
    return id


def asking(port: int, key: str, path: str) -> socket.socket:
    """A request that was sent, and whose reply nobody waits for."""
    line = socket.create_connection(("127.0.0.1", port))
    line.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n".encode())
    return line


def test_who_hangs_up_stops_the_work_and_others_come_next(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ann asks for twelve and hangs up on them while the first is being made. Would catch work that goes on for nobody,
    work that begins for who has left, and bob behind any of it."""
    world.register("d")
    ann, bob = world.analyst("ann"), world.analyst("bob")
    hers, his = taught(world, ann, UPDATES, 11), taught(world, bob, 2, 12)
    watch = Watch(monkeypatch)
    watch.held = 11
    with served(world) as port:
        lines = [asking(port, world.keys["ann"], f"/v1/sessions/{hers}/hypothesis") for _ in range(12)]
        eventually(lambda: watch.begun == [11])
        # While all of hers wait, his is made next: he waits for no more than what is under way.
        got = get(port, world.keys["bob"], f"/v1/sessions/{his}/hypothesis")
        assert got.status_code == 200
        assert (watch.begun, watch.made) == ([11, 12], {12: 2})
        for line in lines:
            line.close()
        queue = world.built.context.exports
        eventually(lambda: not queue._waiting and all(work.abandoned for work in queue._works))
        watch.step(10 * UPDATES)
        eventually(lambda: not queue._works)
        # The update that was being made is the last one, and none of the other eleven ever began.
        assert watch.begun == [11, 12]
        assert watch.made == {11: 1, 12: 2}
        # Who comes back and waits is served.
        assert get(port, world.keys["ann"], f"/v1/sessions/{hers}/hypothesis").status_code == 200
        assert watch.made[11] == 1 + UPDATES
    world.audit()


def test_a_transcript_needs_no_state(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last line follows from the others. Would catch a state that is remade for it, which takes as long as all
    updates took and which a slow reader could keep alive; and what is sent is a transcript."""
    world.register("d")
    ann = world.analyst("ann")
    id = taught(world, ann, 3, 11)
    states: list[int] = []
    start = Session.__init__

    def counted(session: Session, *arguments: Any, **named: Any) -> None:
        states.append(1)
        start(session, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "__init__", counted)
        told = list(world.built.services.transcripts.lines(ann, id))
    assert states == []
    assert replay(told).ok
    assert json.loads(told[-1])["updates"] == 3


def get(port: int, key: str, path: str) -> httpx.Response:
    return httpx.get(f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {key}"}, timeout=patience(30))


class Meter:
    """Steps that SQLite's machine takes for this thread, on whichever connection a store reads: the log has its own."""

    def __init__(self, world: World) -> None:
        self.steps, self._mine = 0, threading.get_ident()
        event.listen(world.store._reading, "checkout", lambda connection, *_: self._watch(connection))

    def _watch(self, connection: Any) -> None:
        connection.set_progress_handler(self._count, 1)

    def _count(self) -> int:
        self.steps += threading.get_ident() == self._mine
        return 0


def add_sessions(world: World, like: str, count: int, owner: str) -> list[str]:
    """So many sessions more, all but their ids as one that there is."""
    path = world.folder / "curator.sqlite3"
    with sqlite3.connect(path, timeout=patience(30)) as connection:
        names = [row[1] for row in connection.execute("PRAGMA table_info(sessions)")]
        others = ", ".join(name for name in names if name not in ("id", "owner"))
        ids = [f"{number:032x}" for number in range(1, count + 1)]
        connection.executemany(
            f"INSERT INTO sessions (id, owner, {others}) SELECT ?, ?, {others} FROM sessions WHERE id = ?",
            [(id, owner, like) for id in ids],
        )
    connection.close()
    return ids


@pytest.mark.parametrize("who", ["owner", "auditor"])
def test_a_page_costs_the_same_however_long_the_list_is(world: World, who: str) -> None:
    """A page of ten among eleven sessions and among three thousand, in steps of the database's machine. Would catch a
    list that is read whole, sorted whole, or gone through up to where the page begins."""
    world.register("d")
    ann = world.analyst("ann")
    actor = ann if who == "owner" else AUDITOR
    like = world.open(ann, "d", epsilon=0.001)
    sessions = world.built.services.sessions

    meter = Meter(world)

    def steps(after: str) -> int:
        before = meter.steps
        page = sessions.list(actor, after, 10)
        assert len(page.items) == 10
        return meter.steps - before

    ids = add_sessions(world, like, 12, "ann")
    few = steps(""), steps(ids[0])
    with sqlite3.connect(world.folder / "curator.sqlite3") as connection:
        connection.execute("DELETE FROM sessions WHERE id != ?", (like,))
    ids = add_sessions(world, like, 3000, "ann")
    many = steps(""), steps(ids[2500])
    for among_few, among_many in zip(few, many, strict=True):
        assert 0 < among_many < 1.5 * among_few


def test_pages_have_each_session_once_while_others_open(world: World) -> None:
    """An auditor and an owner walk the list, and between any two pages sessions open and close. Would catch a page that
    is told by its place in the list, and an order that changes with what a session does."""
    world.register("d")
    ann, bob = world.analyst("ann"), world.analyst("bob")
    there = [world.open((ann, bob)[number % 2], "d", epsilon=0.001, max_updates=1) for number in range(20)]
    new: list[str] = []

    def between() -> None:
        new.append(world.open(ann, "d", epsilon=0.001, max_updates=1))
        if len(new) <= 10:
            world.close(ann, there[2 * (len(new) - 1)])

    with served(world) as port:
        mine = walk(port, world.keys["ann"], between)
        auditor = world.built.services.principals.add(ADMIN, "eve", "auditor")["api_key"]
        everybodys = walk(port, auditor, between)
    assert [id for id in mine if id in there] == [id for id in walked_in_order(world) if id in there[::2]]
    assert [id for id in everybodys if id in there] == [id for id in walked_in_order(world) if id in there]
    for found in (mine, everybodys):
        assert len(found) == len(set(found))
        assert set(found) <= {*there, *new}


def walked_in_order(world: World) -> list[str]:
    """All sessions by when they were opened, as the database itself sorts them."""
    with sqlite3.connect(world.folder / "curator.sqlite3") as connection:
        rows = connection.execute("SELECT id FROM sessions ORDER BY opened_at, id").fetchall()
    connection.close()
    return [row[0] for row in rows]


def walk(port: int, key: str, between: Callable[[], None]) -> list[str]:
    """The ids of all sessions, three a page, as the links lead."""
    path, found = "/v1/sessions?limit=3", []
    while path:
        reply = get(port, key, path)
        assert reply.status_code == 200
        page = reply.json()
        assert len(page["items"]) <= 3
        found += [item["id"] for item in page["items"]]
        path = page.get("next", "")
        assert reply.links.get("next", {}).get("url", "") == path
        if len(found) < 50:
            between()
    return found


def test_queries_of_a_page_are_what_its_words_say(world: World) -> None:
    """Bad words of a page are refused with what to say instead."""
    world.register("d")
    ann = world.analyst("ann")
    id = taught(world, ann, 1, 11)
    bob = world.analyst("bob")
    theirs = world.open(bob, "d", epsilon=0.01)
    with served(world) as port:
        for words in ("limit=0", "limit=1001", "limit=-1", "limit=ten", "limit=", "limit=1&limit=2", "limit=1.0"):
            assert get(port, world.keys["ann"], f"/v1/sessions?{words}").status_code == 422, words
            assert get(port, world.keys["ann"], f"/v1/datasets?{words}").status_code == 422, words
        for after in ("", "x", theirs, "0" * 32, id.upper() + "0", "%00", f"{id}&after={id}"):
            refused = get(port, world.keys["ann"], f"/v1/sessions?after={after}")
            assert refused.status_code == 422, after
            assert refused.headers["content-type"] == "application/problem+json"
        assert get(port, world.keys["ann"], f"/v1/sessions?after={id}").json() == {"items": []}
        assert get(port, world.keys["ann"], f"/v1/sessions/{id}").status_code == 200
        world.ask(ann, id, query(3))
