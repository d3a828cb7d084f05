"""Rows of sessions that another process holds: one that was stopped or cut off, or an operator's client."""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psycopg
import pytest
from sqlalchemy.engine import make_url

from app.services.answering import tickets
from app.services.answering.group import PATIENCE_SECONDS
from app.services.answering.tickets import Ticket
from app.services.errors import Unavailable
from app.storage import transaction
from app.storage.database import make_engines
from app.storage.store import SqlTransaction
from tests.kit.patience import patience
from tests.kit.servers import Caller, launching
from tests.kit.world import SHAPE, World, distinct_queries, eventually, query, wait

pytestmark = [pytest.mark.integration, pytest.mark.postgres]

#: The uniform hypothesis is the truth: updates last.
COUNTS = np.full(SHAPE, 50_000)
OPENING = {"dataset": "d", "mechanism": {"construction": "mw"}, "epsilon": 0.1, "max_queries": 1000, "max_updates": 30}


def plain(url: str) -> str:
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


@contextmanager
def transacting(url: str, statement: str) -> Iterator[None]:
    """Somebody else has done this and not committed it while the context lasts."""
    with psycopg.connect(plain(url)) as connection:
        connection.execute(statement)
        yield
        connection.rollback()


@contextmanager
def held(url: str, *ids: str) -> Iterator[None]:
    """Somebody else holds the rows of these sessions while the context lasts."""
    with psycopg.connect(plain(url)) as connection:
        connection.execute("SELECT id FROM sessions WHERE id = ANY(%s) FOR UPDATE", (list(ids),))
        yield
        connection.rollback()


def test_nobody_else_waits(tmp_path: Path, postgres_url: str) -> None:
    """One session's row is held; forty requests for it wait, while its owner and somebody else ask in other sessions of
    the same lane. Catches a turn that waits for a row which does not come: everybody of the lane would be told 503;
    and requests that are lost, reordered or answered twice when the row is free again.
    """
    # Those that were told to come again have their places in the queue until their turn comes: they count twice.
    with launching(tmp_path / "data", postgres_url, request_timeout_seconds="3", queue_limit="80") as launcher:
        server = launcher.start().wait_until_ready()
        admin = Caller(server.url)
        admin.register("d", COUNTS, budget={"epsilon": 4.0, "delta": 1e-6})
        keys = [admin.add(name) for name in ("ann", "bob")]
        ann, bob = (Caller(server.url, key) for key in keys)
        stuck, hers, his = (caller.post("/v1/sessions", OPENING).json()["id"] for caller in (ann, ann, bob))
        for caller, id in ((ann, stuck), (ann, hers), (bob, his)):
            assert caller.post(f"/v1/sessions/{id}/queries", query(0)).status_code == 200
        asked = list(distinct_queries())[10:]

        def wait_for(number: int) -> httpx.Response:
            return Caller(server.url, keys[0]).post(f"/v1/sessions/{stuck}/queries", asked[number], f"k{number}")

        def insist(number: int) -> httpx.Response:
            reply: httpx.Response = eventually(lambda: (r := wait_for(number)).status_code != 503 and r)
            assert reply.status_code == 200, reply.text
            return reply

        def turns() -> Iterator[float]:
            """Seconds that answers take in the other sessions, one after the other. A fast machine asks more often than
            there are questions: a repeated one takes its turn too."""
            for number in itertools.count():
                for caller, id in ((ann, hers), (bob, his)):
                    one = time.monotonic()
                    reply = caller.post(f"/v1/sessions/{id}/queries", asked[number % len(asked)])
                    assert reply.status_code == 200, reply.text
                    yield time.monotonic() - one

        taken = turns()
        # How fast the machine is: with forty requests under way everything takes a multiple of that.
        free = statistics.median(itertools.islice(taken, 20))
        took = []
        with ThreadPoolExecutor(40) as pool:
            with held(postgres_url, stuck):
                waiting = [pool.submit(wait_for, number) for number in range(40)]
                started = time.monotonic()
                while time.monotonic() - started < 2.5:
                    took.append(next(taken))
                assert admin.http.get("/readyz").status_code == 200
                replies = [each.result() for each in waiting]
            refusals = [reply for reply in replies if reply.status_code != 200]
            assert {reply.status_code for reply in refusals} == {503}
            assert len(refusals) == 40
            assert all(int(reply.headers["Retry-After"]) >= 1 for reply in refusals)
            # The machine may stand still once; a turn that waits is followed by another.
            assert sorted(took)[-2] < patience(1.3) + 20 * free
            assert statistics.median(took) < patience(0.1) + 10 * free
            # What waited is answered when the row is free, and is told to whoever repeats it.
            replies = [each.result() for each in [pool.submit(insist, number) for number in range(40)]]
        auditor = Caller(server.url, admin.add("auditor", "auditor"))
        assert len(auditor.audit()[stuck]) == 1 + 41 + 1
        assert sorted(reply.json()["sequence"] for reply in replies) == list(range(2, 42))


def test_what_waits_alone_waits_quietly(
    worlds: Callable[..., World], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else is asked for. Catches a lane that spins on the row, one that waits for it where a newcomer finds the
    lane taken, one that misses the row's being free, and a stop that waits for it.
    """
    world = worlds(postgres_url)
    world.register("d")
    ann = world.analyst("ann")
    id, other = world.open(ann, "d"), world.open(ann, "d")
    tries = []
    lock = SqlTransaction._lock_rows
    monkeypatch.setattr(SqlTransaction, "_lock_rows", lambda *of: (tries.append(1), lock(*of))[1])
    with held(postgres_url, id):
        tickets = [world.submit(ann, id, query(n), key=f"k{n}") for n in range(3)]
        time.sleep(1.5)
        assert len(tries) < 15
        assert wait(world.submit(ann, other, query(0)))["sequence"] == 1
        assert not any(ticket.waiter.is_set() for ticket in tickets)
    assert [wait(ticket)["sequence"] for ticket in tickets] == [1, 2, 3]
    assert world.ask(ann, id, query(3))["sequence"] == 4
    world.audit()
    with held(postgres_url, id):
        ticket = world.submit(ann, id, query(2, 1))
        eventually(lambda: id in world.answering._lanes[0].deferred)
        started = time.monotonic()
        world.answering.stop(20)
        assert time.monotonic() - started < patience(5)
        with pytest.raises(Unavailable):
            wait(ticket)


def test_the_database_fails_while_something_is_tried_again(worlds: Callable[..., World], postgres_url: str) -> None:
    """Catches a lane that ends, or forgets what waits, when a request that was put aside ends with an error."""
    world = worlds(postgres_url)
    world.register("d")
    ann = world.analyst("ann")
    id = world.open(ann, "d")
    with held(postgres_url, id):
        tickets = [world.submit(ann, id, query(n)) for n in range(2)]
        eventually(lambda: id in world.answering._lanes[0].deferred)
        world.store.refuse = 1
        with pytest.raises(Unavailable):
            wait(tickets[0])
    assert wait(tickets[1])["sequence"] == 1
    world.audit()


def test_nobody_is_passed_over(
    worlds: Callable[..., World], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process takes a session's row again and again, for longer than a turn waits for it, and lets go of it for
    a moment in between; here somebody asks in that session and others in their own. Catches a process that takes a row
    only when it happens to be free, while it has other things to do: who asks for it would wait for ever.
    """
    monkeypatch.setattr(tickets, "PATIENT_EVERY", 0.3)
    world = worlds(postgres_url)
    world.register("d")
    ann = world.analyst("ann")
    shared, *own = (world.open(ann, "d", max_queries=10**6) for _ in range(5))
    # A turn waits for a tenth of a second: two of three of its waits meet the release of the row. It is luck how many
    # do in a row, so there is time for many; who never waits does not get there in any time.
    until, heard = time.monotonic() + patience(60), Counter[str]()

    def going() -> bool:
        return heard[shared] < 6 and time.monotonic() < until

    def hold() -> None:
        with psycopg.connect(plain(postgres_url)) as connection:
            while going():
                connection.execute("SELECT id FROM sessions WHERE id = %s FOR UPDATE", (shared,))
                time.sleep(1.5 * PATIENCE_SECONDS)
                connection.commit()

    def client(id: str, ahead: int) -> None:
        sent = deque[Ticket]()
        while going():
            sent.append(world.submit(ann, id, {**query(1), "unverified": True}))
            if len(sent) > ahead:
                wait(sent.popleft())
                heard[id] += 1
        for ticket in sent:
            wait(ticket)

    with ThreadPoolExecutor(6) as pool:
        # More wait than one turn takes: the lane always has something else to do.
        for done in [pool.submit(hold), pool.submit(client, shared, 0), *(pool.submit(client, id, 40) for id in own)]:
            done.result()
    assert min(heard[id] for id in (shared, *own)) >= 6, heard
    world.audit()


@pytest.mark.parametrize("step", ["answering: after the noise", "answering: before the commit"])
def test_a_server_is_stopped_within_a_transaction(tmp_path: Path, postgres_url: str, step: str) -> None:
    """SIGSTOP in the midst of a round, then SIGCONT. Catches rows that a stopped process holds for ever, everybody's
    answers waiting for it meanwhile, and a process that comes back and records, or forgets, the round it had begun on a
    session that has moved: it has to be charged once.
    """
    sprung = tmp_path / "sprung"
    sprung.touch()
    with psycopg.connect(plain(postgres_url), autocommit=True) as connection:
        name = connection.execute("SELECT current_database()").fetchone()[0]  # type: ignore[index]
        connection.execute(f'ALTER DATABASE "{name}" SET idle_in_transaction_session_timeout = 4000')  # type: ignore[arg-type]
    with launching(tmp_path / "data", postgres_url) as launcher:
        stopped = launcher.start(traps=[[step, 2, "stop", str(sprung)]])
        server = launcher.start().wait_until_ready()
        stopped.wait_until_ready()
        admin = Caller(server.url)
        admin.register("d", COUNTS, budget={"epsilon": 4.0, "delta": 1e-6})
        key = admin.add("ann")
        here, there = Caller(server.url, key), Caller(stopped.url, key)
        shared, other = (here.post("/v1/sessions", OPENING).json()["id"] for _ in range(2))
        path = f"/v1/sessions/{shared}/queries"
        assert there.post(path, query(0)).status_code == 200
        with ThreadPoolExecutor(2) as pool:
            begun = pool.submit(there.post, path, query(1), "k")
            eventually(sprung.read_text)
            started = time.monotonic()
            moving = pool.submit(here.post, path, query(2), "m")
            for number in range(3):
                assert here.post(f"/v1/sessions/{other}/queries", query(3, number)).status_code == 200
            assert not moving.done(), moving.result().text
            moved = moving.result()
            assert time.monotonic() - started < patience(20)
            assert (moved.status_code, moved.json()["sequence"]) == (200, 2)
            os.kill(stopped.pid, signal.SIGCONT)
            refusal = begun.result()
        assert (refusal.status_code, refusal.json()["type"]) == (503, "/problems/unavailable")
        again = there.post(path, query(1), "k")
        assert (again.status_code, again.json()["sequence"]) == (200, 4)
        assert here.post(path, query(1), "k").content == again.content
        lines = Caller(server.url, admin.add("auditor", "auditor")).audit()[shared]
        assert [b'"forfeit"' in line for line in lines[1:-1]] == [False, False, True, False]
        assert '"Traceback' not in launcher.logs()


def test_long_work_is_not_taken_for_a_process_that_hangs(
    worlds: Callable[..., World], postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch takes longer than an idle transaction may, while another process asks in the same session. Catches rows
    given back in the midst of a batch, whose every round would then be forfeited.
    """
    with psycopg.connect(plain(postgres_url), autocommit=True) as connection:
        name = connection.execute("SELECT current_database()").fetchone()[0]  # type: ignore[index]
        connection.execute(f'ALTER DATABASE "{name}" SET idle_in_transaction_session_timeout = 4000')  # type: ignore[arg-type]
    monkeypatch.setattr(transaction, "STAY_SECONDS", 0.1)
    first, second = worlds(postgres_url), worlds(postgres_url)
    first.register("d")
    ann = first.analyst("ann")
    id = first.open(ann, "d")
    begun = threading.Event()

    def slowly() -> None:
        begun.set()
        time.sleep(0.5)

    first.noise.before = slowly
    batch = first.submit(ann, id, *(query(n % 4, n // 4) for n in range(10)), kind="batch")
    begun.wait(30)
    late = second.submit(ann, id, query(3))
    assert [answer["sequence"] for answer in wait(batch)["answers"]] == list(range(1, 11))
    assert wait(late)["sequence"] == 11
    first.audit()


def test_connections_notice_who_is_gone(postgres_url: str) -> None:
    """Catches connections that wait for a dead peer as long as the system's defaults are, and an operator's own choice
    that is overridden.
    """

    def found(url: str) -> tuple[dict[str, str], str, dict[str, str]]:
        reading, _ = make_engines(url)
        try:
            with reading.connect() as connection:
                driver: Any = connection.connection.driver_connection
                idle = driver.execute("SHOW idle_in_transaction_session_timeout").fetchone()[0]
                # By where they come from: through a socket of the system's own there is nothing to set.
                there = driver.execute("SELECT name, source FROM pg_settings WHERE name LIKE 'tcp_keepalives%'")
                return driver.info.get_parameters(), idle, dict(there.fetchall())
        finally:
            reading.dispose()

    parameters, idle, there = found(postgres_url)
    assert idle == "2min"
    assert there == dict.fromkeys([f"tcp_keepalives_{name}" for name in ("idle", "interval", "count")], "session")
    assert {"keepalives_idle": "30", "tcp_user_timeout": "60000"}.items() <= parameters.items()
    joined = "&" if "?" in postgres_url else "?"
    parameters, idle, there = found(
        f"{postgres_url}{joined}keepalives_idle=7&options=-c%20idle_in_transaction_session_timeout%3D9000"
        "%20-c%20tcp_keepalives_idle%3D8"
    )
    assert (idle, parameters["keepalives_idle"]) == ("9s", "7")
    assert (there["tcp_keepalives_idle"], there["tcp_keepalives_count"]) == ("client", "session")


def test_a_data_set_is_held(tmp_path: Path, postgres_url: str) -> None:
    """Its row is held by somebody else while fifty requests want to open sessions on it. Catches each of them waiting
    with a connection and a thread of its own, until nobody is answered any more, not even /readyz; and one that is
    refused after the row is free, or opens two sessions.
    """
    # Of two analysts, since fewer than fifty requests of one may wait for their plans.
    with launching(tmp_path / "data", postgres_url) as launcher:
        server = launcher.start().wait_until_ready()
        admin = Caller(server.url)
        for name in ("d", "e"):
            assert admin.register(name, COUNTS, budget={"epsilon": 4.0, "delta": 1e-6}).status_code == 201
        keys = [admin.add(name) for name in ("ann", "bob")]
        ann, bob = (Caller(server.url, key) for key in keys)
        other = ann.post("/v1/sessions", {**OPENING, "dataset": "e"}).json()["id"]

        def open_one(number: int) -> httpx.Response:
            return Caller(server.url, keys[number % 2]).post("/v1/sessions", {**OPENING, "epsilon": 0.01}, f"k{number}")

        with ThreadPoolExecutor(50) as pool:
            with transacting(postgres_url, "SELECT 1 FROM datasets WHERE name = 'd' FOR UPDATE"):
                started = time.monotonic()
                opening = [pool.submit(open_one, number) for number in range(50)]
                for number in range(5):
                    assert ann.post(f"/v1/sessions/{other}/queries", query(1, number)).status_code == 200
                assert httpx.get(f"{server.url}/readyz", timeout=10).status_code == 200
                refusals = [each.result() for each in opening]
                assert time.monotonic() - started < patience(15)
                assert admin.http.put("/v1/datasets/d/grants/ann", json={"epsilon": 1}).status_code == 503
            assert {(reply.status_code, reply.json()["type"]) for reply in refusals} == {(503, "/problems/unavailable")}
            assert all(int(reply.headers["Retry-After"]) >= 1 for reply in refusals)
            # While one finds out that the row is free, others are still refused: they come after it.
            replies = [open_one(0)]
            replies += [each.result() for each in [pool.submit(open_one, number) for number in range(1, 20)]]
            assert {reply.status_code for reply in replies} == {201}
            assert len({reply.json()["id"] for reply in replies}) == 20
        assert [len(analyst.get("/v1/sessions")["items"]) for analyst in (ann, bob)] == [11, 10]
        assert launcher.logs().count("another process holds the row of a data set") <= 2


def test_a_start_and_a_retirement_wait_for_nobody(tmp_path: Path, postgres_url: str) -> None:
    """A row of a data set is being changed, then one of a session of a data set that is retired. Catches a start, a
    request and a registration that wait for as long as somebody else pleases; and a private file that outlives its data
    set when the retirement is asked for again.
    """
    with launching(tmp_path / "data", postgres_url, request_timeout_seconds="2") as launcher:
        server = launcher.start().wait_until_ready()
        admin = Caller(server.url)
        admin.register("d", COUNTS)
        id = Caller(server.url, admin.add("ann")).post("/v1/sessions", OPENING).json()["id"]
        with transacting(postgres_url, "UPDATE datasets SET records = records"):
            launcher.start().wait_until_ready(20)
            assert admin.register("e", COUNTS).status_code == 201
        with held(postgres_url, id):
            refusal = admin.http.delete("/v1/datasets/d")
            assert (refusal.status_code, "Retry-After" in refusal.headers) == (503, True)
            launcher.start().wait_until_ready(20)
        eventually(lambda: admin.http.delete("/v1/datasets/d").status_code == 404)
        assert [path.name[:2] for path in (tmp_path / "data" / "vault").glob("*.vault")] == ["e."]
        assert "Traceback" not in launcher.logs()
