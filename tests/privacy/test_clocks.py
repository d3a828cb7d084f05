"""Times that are recorded or sent would show how long the work on private numbers took, and so tell neighbours apart.

Each entry of a transcript once had its own microseconds, within a batch too: over 60,000 misses the gaps between them
told whether the element that was looked up is in the data, whatever the answering deadline. Nothing is timed here: the
clock goes as the attacker wishes, and steps are counted.
"""

from __future__ import annotations

import gc
import json
import re
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from app.bootstrap import wiring
from app.constructions.multiplicative_weights import MultiplicativeWeights
from app.services import session_opening
from app.services.answering import group
from app.services.errors import Unavailable
from app.spaces.queries.linear import CompiledProduct
from app.storage.private_data import ElementsData
from app.storage.private_store import VaultStore
from app.storage.store import SqlTransaction
from tests.kit.servers import Caller, launching
from tests.kit.world import HIT, SHAPE, World, distinct_queries, ledger_of, make_world, query, sessions_of, wait

pytestmark = pytest.mark.adversarial

# ---------------------------------------------------------------------------------------------- one time a commit


def moment(seconds: int) -> str:
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


class Watch:
    """A clock that moves on by a second whenever it is read, or instead whenever private numbers are looked at; and
    what each transaction wrote with a time.
    """

    def __init__(self) -> None:
        self.reads = self.looks = 0
        self.by = "looks"
        #: The times of what was written, and how often had been looked by then.
        self.written: list[tuple[list[str], int]] = []

    def __call__(self) -> str:
        self.reads += 1
        return moment(self.reads if self.by == "reads" else self.looks)

    def looking(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose calls are looks at private numbers."""

        def look(*arguments: Any, **named: Any) -> Any:
            self.looks += 1
            return function(*arguments, **named)

        return look


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    watch = Watch()

    def noting(write: Callable[..., None], time_of: Callable[[Any], str]) -> Callable[..., None]:
        def writing(tx: Any, rows: Any, *more: Any) -> None:
            tx.times = [*getattr(tx, "times", []), *map(time_of, rows)]
            write(tx, rows, *more)

        return writing

    commit = SqlTransaction.commit

    def committing(tx: Any) -> None:
        commit(tx)
        if hasattr(tx, "times"):
            watch.written.append((tx.times, watch.looks))

    def of_row(row: Any) -> str:
        return str(row.recorded_at)

    def of_entry(entry: Any) -> str:
        return str(json.loads(entry.line)["recorded_at"])

    monkeypatch.setattr(wiring, "utc_now", watch)
    monkeypatch.setattr(SqlTransaction, "append", noting(SqlTransaction.append, of_entry))
    monkeypatch.setattr(SqlTransaction, "move_ledger", noting(SqlTransaction.move_ledger, of_row))
    monkeypatch.setattr(SqlTransaction, "add_replies", noting(SqlTransaction.add_replies, of_row))
    monkeypatch.setattr(SqlTransaction, "commit", committing)
    monkeypatch.setattr(CompiledProduct, "exact", watch.looking(CompiledProduct.exact))
    return watch


@pytest.fixture
def world(tmp_path: Path, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(group, "SLICE_SECONDS", 60.0)  # a slow machine cuts no batch
    world = make_world(tmp_path)
    yield world
    world.stop()


def begun(watch: Watch, since: int) -> list[str]:
    """When each transaction's work was begun, by the looks, as one follows another."""
    return [moment(looks) for looks in [since, *(looks for _, looks in watch.written)]][:-1]


@pytest.mark.parametrize("by", ["reads", "looks"])
@pytest.mark.parametrize("faults", [[], ["before"], ["after"]], ids=["sound", "lost", "in doubt"])
def test_a_commit_has_one_time(world: World, watch: Watch, by: str, faults: list[str]) -> None:
    """Batches of misses and hits of two sessions, a closing, their movements and idempotency replies. Catches a clock
    that is read between two records of one commit, after the work on private numbers, or again when a commit failed.
    """
    world.register("d")
    ann = world.analyst("ann")
    first, second = (world.open(ann, "d") for _ in range(2))
    questions = distinct_queries()
    watch.by, watch.written = by, []
    for round in range(3):
        world.noise.script.extend([0, HIT, 0])
        world.store.faults.extend(faults)
        some = [next(questions) for _ in range(60)]
        tickets = [
            world.submit(ann, first, *some[:40], kind="batch"),
            world.submit(ann, second, some[40], key=f"key {round}"),
            world.submit(ann, second, *some[41:], kind="batch"),
        ]
        for ticket in tickets:
            wait(ticket)
    closed = world.close(ann, second)
    assert watch.looks == 180
    charges = sum(len(world.movements("d", id)) for id in (first, second))
    assert charges >= 3
    assert sum(len(times) for times, _ in watch.written) == 180 + charges + 3 + 1  # entries, replies, what came back
    assert len(watch.written) < 60
    assert [len(set(times)) for times, _ in watch.written] == [1] * len(watch.written)
    if by == "looks":
        assert [times[0] for times, _ in watch.written] == begun(watch, 0)
    assert closed["closed_at"] == watch.written[-1][0][0]
    world.audit()


def test_a_batch_in_slices(world: World, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches slices of a long batch that have a time each: others' turns come in between, but its commit is one."""
    monkeypatch.setattr(group, "SLICE_SECONDS", 0)
    world.register("d")
    ann, bob = world.analyst("ann"), world.analyst("bob")
    first, second = world.open(ann, "d"), world.open(bob, "d")
    questions = distinct_queries()
    ticket = world.submit(ann, first, *(next(questions) for _ in range(100)), kind="batch")
    others = [world.submit(bob, second, next(questions)) for _ in range(3)]
    for each in (ticket, *others):
        wait(each)
    assert watch.looks == 103
    times = {entry["recorded_at"] for entry in world.entries(first)}
    assert len(times) == 1
    assert times <= {moment(looks) for looks in range(4)}
    world.audit()


def test_a_round_that_is_given_up(world: World, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches charges that carry the time at which the work on private numbers had failed."""
    world.register("d")
    ann = world.analyst("ann")
    id = world.open(ann, "d")
    watch.written = []
    world.noise.script.extend([0, 0, HIT])

    def failing(*_: Any) -> None:
        watch.looks += 1000
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(MultiplicativeWeights, "update", failing)
        with pytest.raises(Unavailable):
            wait(world.submit(ann, id, query(0), query(1), query(2), kind="batch"))
    assert watch.looks == 1003
    entries = world.entries(id)
    assert {entry["record"] for entry in entries} == {"forfeit"}
    assert {entry["recorded_at"] for entry in entries} == {moment(0)}
    assert {time for times, _ in watch.written for time in times} == {moment(0)}
    world.audit()


def test_openings_and_registrations(world: World, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a time that is taken when a file has been read, or a fact of the data has been measured."""
    monkeypatch.setattr(VaultStore, "read_upload", watch.looking(VaultStore.read_upload))
    monkeypatch.setattr(session_opening, "measure", watch.looking(session_opening.measure))
    watch.looks = 100
    assert world.register("d", records_public=False)["created_at"] == moment(100)
    ann = world.analyst("ann")
    assert watch.looks == 101
    id = world.open(ann, "d")
    assert watch.looks == 102
    assert {each["recorded_at"] for each in ledger_of(world.built.services, "d")["entries"]} == {moment(101)}
    assert world.movements("d", id, "purchase")
    (session,) = sessions_of(world.built.services, ann)
    assert session["opened_at"] == moment(101)


# ---------------------------------------------------------------------------------------------- everything that leaves

#: A time of day with parts of seconds.
FINE = re.compile(r"\d\d:\d\d:\d\d[.,]\d")
#: A number long enough to be the time since 1970 to a second or finer, in whatever unit.
NUMBER = re.compile(r"(?<![\w.])\d\.\d{8,}[eE]\+\d+|(?<![\w.])\d{10,19}(?:\.\d+)?(?!\w)")
NAMED = re.compile(r'"(\w+_at)": ?"([^"]*)"')
#: Headers in which frameworks tell how long they took.
TOLD = re.compile(r"time|timing|duration|elapsed|runtime", re.IGNORECASE)


def clocks(text: str) -> list[str]:
    """The times in a text that are finer than seconds."""
    now = time.time()
    units = (1, 1e3, 1e6, 1e9)
    numbers = [number for number in NUMBER.findall(text) if any(abs(float(number) / u - now) < 1e6 for u in units)]
    return FINE.findall(text) + numbers


def test_the_search_finds() -> None:
    """Catches a search that would find nothing."""
    now = time.time()
    for text in (
        '"recorded_at": "2026-11-22T01:13:15.2Z"',
        "2026-11-22 01:13:15,123 INFO",
        f"curator_requests_created {now:.16e}",
        f'{{"at":{now}}}',
        f"at={time.time_ns()}",
    ):
        assert clocks(text), text
    assert not clocks('{"at":"2026-11-22T01:13:15Z","value":1795.310708,"id":"1795310708047a"}')


def test_nothing_that_leaves_holds_a_fine_clock(tmp_path: Path) -> None:
    """Every page for every role, after rounds, batches, refusals and closings, its headers, the log at its most
    talkative, and the database. Catches microseconds, times that a library adds, and durations in log lines.
    """
    replies: list[httpx.Response] = []
    with launching(tmp_path / "data", None, log_level="debug") as launcher:
        server = launcher.start().wait_until_ready()
        admin = Caller(server.url)
        callers = [admin, *(Caller(server.url, admin.add(role, role)) for role in ("analyst", "auditor"))]
        analyst = callers[1]
        for caller in callers:
            caller.http.event_hooks["response"].append(lambda reply: (reply.read(), replies.append(reply)))
        budget = {"epsilon": 4.0, "delta": 1e-6}
        counts = np.random.default_rng(5).integers(0, 200_000, SHAPE)
        for name in ("kept", "gone"):
            assert admin.register(name, counts, budget=budget, records_public=False).status_code == 201
        opening = {"mechanism": {"construction": "mw"}, "epsilon": 1.0, "max_queries": 100, "max_updates": 20}
        analyst.post("/v1/plans", {"dataset": "kept", **opening})
        sessions = []
        for name in ("kept", "kept", "gone"):
            opened = analyst.post("/v1/sessions", {"dataset": name, **opening}, f"open {len(sessions)}")
            assert opened.status_code == 201, opened.text
            path = f"/v1/sessions/{opened.json()['id']}"
            sessions.append(opened.json()["id"])
            questions = distinct_queries()
            analyst.post(f"{path}/queries", next(questions), "one")
            analyst.post(f"{path}/queries", next(questions), "one")
            analyst.post(f"{path}/queries", {"type": "nonsense"})
            batch = analyst.post(f"{path}/queries/batch", {"queries": [next(questions) for _ in range(20)]})
            assert len(batch.json()["answers"]) == 20
        analyst.post(f"/v1/sessions/{sessions[0]}/close", {})
        assert admin.http.delete("/v1/datasets/gone").is_success
        admin.add("left")
        assert admin.http.delete("/v1/principals/left").is_success
        for path in admin.get("/openapi.json")["paths"]:
            for id, name in zip(sessions, ("kept", "kept", "gone"), strict=True):
                for caller in callers:
                    caller.http.get(re.sub(r"\{\w+\}", id if "/sessions/" in path else name, path))
        lines = launcher.logs().splitlines()
        with closing(sqlite3.connect(tmp_path / "data" / "curator.sqlite3")) as database:
            kept = "\n".join(database.iterdump())
    texts = [f"{reply.headers}\n{reply.content.decode('latin-1')}" for reply in replies]
    for reply, text in zip(replies, texts, strict=True):
        if reply.url.path != "/metrics":
            assert clocks(text) == [], reply.url
        assert not [name for name in reply.headers if TOLD.search(name)], reply.url
    times = dict(NAMED.findall(" ".join(texts)))
    assert times.keys() >= {"created_at", "revoked_at", "opened_at", "closed_at", "recorded_at"}
    for name, time_ in NAMED.findall(" ".join(texts)):
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", time_), name
    # Durations are the operator's, and so on no other line (see docs/privacy.md, section 15.3).
    pages = [reply.text for reply in replies if reply.url.path == "/metrics" and reply.is_success]
    assert pages
    for line in "\n".join(pages).splitlines():
        assert "curator_turn_seconds" in line or clocks(line) == []
    assert len(lines) > len(replies)
    for line in lines:
        assert clocks(line) == []
        assert not [value for value in json.loads(line).values() if isinstance(value, float)]
    assert "recorded_at" in kept
    assert clocks(kept) == []


# ---------------------------------------------------------------------------------------------- the same steps


def steps(work: Callable[[], Any]) -> int:
    """How many of the interpreter's instructions are carried out."""
    count = 0

    def tracing(frame: Any, event: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return tracing

    before = sys.gettrace()
    # What others left behind is not collected meanwhile, as that runs code of its own.
    gc.disable()
    sys.settrace(tracing)
    try:
        work()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def multiset(elements: list[str]) -> ElementsData:
    words = sorted(element.encode() for element in elements)
    offsets = np.cumsum([0, *map(len, words)], dtype=np.int64)
    return ElementsData(np.frombuffer(b"".join(words), np.uint8), offsets, np.full(len(words), 3, np.int64), 1)


@pytest.mark.parametrize("others", [0, 1, 6, 7, 8, 9, 15, 16, 17, 63, 64, 65, 100, 1000])
def test_looking_up_takes_the_same_steps(others: int) -> None:
    """An element that is there, or is not and all else the same, first, last and in between. Catches a look-up that
    ends early, reads a count only where there is one, or searches more in one place than in another.
    """
    names = [f"{i:05}" for i in range(others)]
    found = set()
    for place in (*range(0, others, 1 + others // 20), others):
        asked = f"{place:05}-" if place else "!"
        for data in (multiset(names), multiset([*names, asked])):
            data.lookup([asked])  # makes what it searches
            assert len(data._search._marks) + 1 == 1 << len(data._search._marks).bit_length()
            found.add((data.lookup([asked])[0], steps(lambda data=data, asked=asked: data.lookup([asked]))))
    (absent, some), (present, as_many) = sorted(found)
    assert (absent, present) == (0, 3)
    assert some == as_many > 50
